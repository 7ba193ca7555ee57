#include "stat/report_private.h"

#include "base/grow.h"

#include <math.h>
#include <stdlib.h>

enum kvr_status kvr_report_defaults(struct kvr_report_options *options, struct kvr_error *error)
{
    *options = (struct kvr_report_options){.accuracy = 0.01,
        .block_tokens = 512,
        .window_ms = 60e3,
        .late_ms = 30e3,
        .worker_limit = KVR_PANE_WORKERS - 1,
        .group_limit = 1000,
        .block_limit = 8000000,
        .session_limit = 4 << 20,
        .pending_limit = 1 << 18,
        .ceiling = true};
    return kvr_cost_preset(&options->cost, NULL, NULL, 0, error);
}

enum kvr_status kvr_report_create(
    struct kvr_report **result, const struct kvr_report_options *options, struct kvr_error *error)
{
    struct kvr_report *report = calloc(1, sizeof *report);
    struct kvr_text other = {KVR_GROUP_OTHER, sizeof KVR_GROUP_OTHER - 1};
    uint32_t worker;

    *result = NULL;
    if (!report)
        return kvr_error_memory(error);
    report->options = *options;
    report->ceiling.limit = report->prefixes.limit = options->block_limit;
    enum kvr_status status = kvr_sketch_scale_init(&report->scale, options->accuracy, error);
    if (status == KVR_OK)
        status = kvr_windows_init(
            &report->windows, options->window_ms, options->late_ms, options->baseline_ms, error);
    if (status == KVR_OK)
        status = kvr_groups_init(&report->worker_names, options->worker_limit, error);
    if (status == KVR_OK)
        status = kvr_groups_init(&report->group_names, options->group_limit, error);
    if (status == KVR_OK)
        status = kvr_groups_init(&report->reason_names, KVR_REASONS - 1, error);
    if (status == KVR_OK)
        status = kvr_report_worker(report, other, &worker, error);
    if (status != KVR_OK) {
        kvr_report_destroy(report);
        return status;
    }
    *result = report;
    return KVR_OK;
}

void kvr_report_destroy(struct kvr_report *report)
{
    if (!report)
        return;
    for (size_t i = 0; i < report->worker_capacity; i++)
        kvr_tally_release(&report->workers[i].tally);
    for (size_t i = 0; i < report->group_capacity; i++)
        kvr_tally_release(&report->groups[i]);
    free(report->workers);
    free(report->groups);
    kvr_tally_release(&report->beyond_workers);
    kvr_groups_release(&report->worker_names);
    kvr_groups_release(&report->group_names);
    kvr_groups_release(&report->reason_names);
    kvr_windows_release(&report->windows);
    kvr_u64_map_release(&report->sessions);
    kvr_session_reader_release(&report->session_reader);
    kvr_ceiling_release(&report->ceiling);
    kvr_prefixes_release(&report->prefixes);
    kvr_u64_map_release(&report->residents);
    free(report->resident_pool);
    free(report->resident_free);
    kvr_u64_map_release(&report->pending_index);
    free(report->pending);
    free(report->ids);
    kvr_buffer_release(&report->scratch);
    kvr_buffer_release(&report->left_out);
    free(report);
}

enum kvr_status kvr_report_worker(
    struct kvr_report *report, struct kvr_text inside, uint32_t *worker, struct kvr_error *error)
{
    enum kvr_status status = kvr_groups_find_json(&report->worker_names, inside, worker, error);
    size_t capacity = report->worker_capacity;

    if (status != KVR_OK || *worker < capacity)
        return status;
    struct kvr_worker_stat *workers =
        kvr_grow(report->workers, &capacity, (size_t)*worker + 1, sizeof *workers);
    if (!workers)
        return kvr_error_memory(error);
    for (size_t i = report->worker_capacity; i < capacity; i++)
        workers[i] = (struct kvr_worker_stat){.state_ms = NAN,
            .load_ms = NAN,
            .kv_usage = NAN,
            .kv_usage_most = NAN,
            .waiting = NAN,
            .running = NAN,
            .tokens = NAN};
    report->workers = workers;
    report->worker_capacity = capacity;
    return KVR_OK;
}

static enum kvr_status worker_of(struct kvr_report *report, const struct kvr_facts *facts,
    uint32_t *worker, struct kvr_error *error)
{
    static const struct kvr_text none = {KVR_GROUP_NONE, sizeof KVR_GROUP_NONE - 1};

    if (facts->worker.text)
        return kvr_report_worker(report, facts->worker, worker, error);
    if (report->no_worker) {
        *worker = report->no_worker;
        return KVR_OK;
    }
    enum kvr_status status = kvr_report_worker(report, none, worker, error);
    report->no_worker = *worker;
    return status;
}

/* Only asked while some worker drains or is down. */
static bool is_active(void *context, struct kvr_text name)
{
    struct kvr_report *report = context;
    uint32_t worker = kvr_groups_look(&report->worker_names, name.text, name.length);

    return worker == UINT32_MAX || report->workers[worker].state == KVR_WORKER_ACTIVE;
}

static enum kvr_status group_of(struct kvr_report *report, const struct kvr_line *line,
    uint32_t *group, struct kvr_error *error)
{
    struct kvr_value value;
    size_t capacity = report->group_capacity;
    enum kvr_status status = kvr_expression_evaluate(report->options.by, line, &value, error);

    if (status != KVR_OK)
        return status;
    if (value.type <= KVR_NULL)
        status = kvr_groups_find(
            &report->group_names, KVR_GROUP_NONE, strlen(KVR_GROUP_NONE), group, error);
    else if (value.type == KVR_STRING)
        status = kvr_groups_find_json(&report->group_names,
            (struct kvr_text){value.text + 1, value.length - 2}, group, error);
    else
        status = kvr_groups_find(&report->group_names, value.text, value.length, group, error);
    if (status != KVR_OK || *group < capacity)
        return status;
    struct kvr_tally *groups =
        kvr_grow(report->groups, &capacity, (size_t)*group + 1, sizeof *groups);
    if (!groups)
        return kvr_error_memory(error);
    memset(
        groups + report->group_capacity, 0, (capacity - report->group_capacity) * sizeof *groups);
    report->groups = groups;
    report->group_capacity = capacity;
    return KVR_OK;
}

/* New or continued by the session, where the line itself does not say. */
static enum kvr_status kind_by_session(struct kvr_report *report, const struct kvr_line *line,
    struct kvr_facts *facts, struct kvr_error *error)
{
    bool is_new;

    enum kvr_status status =
        kvr_session_read(&report->session_reader, line, &facts->session, error);
    if (status != KVR_OK)
        return status;
    if (facts->kind != KVR_KIND_UNKNOWN || !facts->session)
        return KVR_OK;
    report->sessions_asked++;
    if (report->sessions.length >= report->options.session_limit &&
        !kvr_u64_map_find(&report->sessions, facts->session)) {
        report->sessions_full = true;
        return KVR_OK;
    }
    if (!kvr_u64_map_insert(&report->sessions, facts->session, &is_new))
        return kvr_error_memory(error);
    facts->kind = is_new ? KVR_KIND_NEW : KVR_KIND_CONTINUED;
    return KVR_OK;
}

/* ---- lines ---- */

enum kvr_status kvr_report_ids(
    struct kvr_report *report, struct kvr_value list, size_t *count, struct kvr_error *error)
{
    size_t room = kvr_value_u64s_room(list);

    if (room > report->ids_capacity) {
        uint64_t *ids = kvr_grow(report->ids, &report->ids_capacity, room, sizeof *ids);
        if (!ids)
            return kvr_error_memory(error);
        report->ids = ids;
    }
    ptrdiff_t read = kvr_value_u64s(list, report->ids);
    if (read < 0)
        return kvr_error_set(error, KVR_BAD_INPUT, "hash_ids is not a list of block ids");
    *count = (size_t)read;
    return KVR_OK;
}

/* The blocks of a request that its worker is known to store were of use. */
static void mark_reused(
    struct kvr_report *report, const struct kvr_facts *facts, uint32_t worker, size_t count)
{
    int64_t tokens = facts->reused_tokens;

    for (size_t i = 0; i < count && tokens > 0; i++, tokens -= (int64_t)facts->block_tokens) {
        uint64_t *place =
            kvr_u64_map_find(&report->residents, kvr_resident_key(worker, report->ids[i]));
        if (place)
            report->resident_pool[*place].reused = true;
    }
}

/* The set of blocks has outgrown its bound: a ceiling of the first part of the stream would be
 * taken for that of the whole. */
static void drop_ceiling(struct kvr_report *report)
{
    kvr_report_clear(report, KVR_COUNT_CEILING, KVR_COUNT_CEILING_SAVED_US);
    if (report->ceiling_stands_in)
        kvr_report_clear(report, KVR_COUNT_BEST, KVR_COUNT_REGRET_US);
}

static enum kvr_status request(
    struct kvr_report *report, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_addition addition;
    struct kvr_facts facts;
    struct kvr_pane *pane = NULL;
    uint32_t worker, group = 0, reason = 0;
    uint64_t reusable = 0, name_space = 0;
    enum kvr_status status = KVR_OK;
    int64_t ceiling = -1;
    size_t id_count = 0;
    bool block_ids =
        !report->options.brief &&
        (report->options.ceiling || report->options.prefixes || report->residents.length);

    /* The block ids first: what the ceiling will look at comes from memory while the rest is read.
     */
    struct kvr_value ids = kvr_line_get(line, KVR_NAME_HASH_IDS);
    if (block_ids && ids.type > KVR_NULL) {
        status = kvr_report_ids(report, ids, &id_count, error);
        if (status != KVR_OK)
            return status;
        name_space = kvr_facts_name_space(line);
        if (report->options.ceiling)
            kvr_ceiling_prefetch(&report->ceiling, report->ids, id_count, name_space);
    }
    status = kvr_facts_read(line, report->options.brief, report->options.block_tokens,
        report->inactive_workers ? is_active : NULL, report, &facts, error);
    if (status == KVR_OK && report->options.by)
        status = group_of(report, line, &group, error);
    if (status == KVR_OK)
        status = worker_of(report, &facts, &worker, error);
    if (status == KVR_OK && facts.reason.text)
        status = kvr_groups_find_json(&report->reason_names, facts.reason, &reason, error);
    if (status == KVR_OK && !report->options.brief)
        status = kind_by_session(report, line, &facts, error);
    if (status == KVR_OK && report->options.brief)
        kvr_windows_stretch(&report->windows, facts.timestamp_ms);
    else if (status == KVR_OK)
        status = kvr_windows_at(&report->windows, facts.timestamp_ms, &pane, error);
    if (status != KVR_OK)
        return status;
    if (id_count) {
        uint64_t prompt =
            facts.input_tokens >= 0 ? (uint64_t)facts.input_tokens : id_count * facts.block_tokens;
        if (facts.input_tokens < 0)
            facts.input_tokens = (int64_t)prompt;
        if (report->options.ceiling) {
            bool was_kept = !report->ceiling.full;
            status = kvr_ceiling_request(&report->ceiling, report->ids, id_count, name_space,
                facts.block_tokens, prompt, &reusable, error);
            ceiling = report->ceiling.full ? -1 : (int64_t)reusable;
            if (was_kept && report->ceiling.full)
                drop_ceiling(report);
        }
        if (status == KVR_OK && report->options.prefixes && !report->prefixes.full) {
            struct kvr_value id = kvr_line_get(line, KVR_NAME_ID);
            status = kvr_prefixes_request(&report->prefixes, &report->scale, report->ids, id_count,
                name_space, facts.block_tokens, prompt, id.text, id.length,
                facts.worker.text && worker ? (int)worker - 1 : -1, error);
        }
        if (report->residents.length)
            mark_reused(report, &facts, worker, id_count);
        if (status != KVR_OK)
            return status;
    }
    report->request_lines++;
    report->match_seen |= facts.best_tokens >= 0;
    struct kvr_report_place place = {worker, group, pane, 0};
    if (report->observe) {
        place.unit =
            facts.session ? facts.session : kvr_value_identity(kvr_line_get(line, KVR_NAME_ID));
        if (!place.unit)
            place.unit = report->request_lines;
    }
    kvr_addition_clear(&addition);
    kvr_add_arrival(report, &facts, ceiling, &addition);
    kvr_add_reuse(report, &facts, &addition);
    if (facts.best_tokens < 0 && addition.counters[KVR_COUNT_BEST])
        report->ceiling_stands_in++;
    if (facts.reason.text) {
        report->reasons[reason]++;
        if (pane)
            pane->reasons[reason]++;
    }
    if (facts.routed && !facts.answered && !facts.rejected && facts.worker.text &&
        line->slots[KVR_NAME_ID])
        status = kvr_report_wait(report, line, &facts, &place, error);
    else
        kvr_add_outcome(report, &facts, &addition);
    if (facts.answered)
        report->answered_ids += kvr_value_identity(kvr_line_get(line, KVR_NAME_ID));
    return status == KVR_OK ? kvr_addition_apply(report, &addition, &place, error) : status;
}

enum kvr_status kvr_report_line(
    struct kvr_report *report, const struct kvr_line *line, struct kvr_error *error)
{
    enum kvr_status status;

    report->lines++;
    if (!kvr_line_is_event(line))
        return request(report, line, error);
    status = kvr_report_event(report, line, error);
    report->event_lines += status == KVR_OK;
    return status;
}

enum kvr_status kvr_report_finish(struct kvr_report *report, struct kvr_error *error)
{
    return kvr_windows_finish(&report->windows, error);
}

bool kvr_report_total(const struct kvr_report *report, struct kvr_tally *total)
{
    bool whole = true;

    for (uint32_t i = 0; i < report->worker_names.count; i++)
        whole &= kvr_tally_merge(total, &report->workers[i].tally);
    return whole & kvr_tally_merge(total, &report->beyond_workers);
}
