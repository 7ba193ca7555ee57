#include "stat/report.h"

#include "base/grow.h"

#include <math.h>
#include <stdlib.h>

enum kvr_status kvr_report_defaults(struct kvr_report_options *options, struct kvr_error *error)
{
    *options = (struct kvr_report_options){.accuracy = 0.01,
        .block_tokens = 512,
        .window_ms = 60e3,
        .late_ms = 5e3,
        .worker_limit = KVR_PANE_WORKERS - 1,
        .group_limit = 1000,
        .block_limit = 16 << 20,
        .session_limit = 4 << 20,
        .pending_limit = 1 << 20,
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
    kvr_groups_release(&report->worker_names);
    kvr_groups_release(&report->group_names);
    kvr_groups_release(&report->reason_names);
    kvr_windows_release(&report->windows);
    kvr_u64_map_release(&report->sessions);
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
        workers[i] = (struct kvr_worker_stat){
            .kv_usage = NAN, .kv_usage_most = NAN, .waiting = NAN, .running = NAN, .tokens = NAN};
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
static enum kvr_status kind_by_session(
    struct kvr_report *report, struct kvr_facts *facts, struct kvr_error *error)
{
    bool is_new;

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

/* ---- what one request adds: counted once, then added to each tally that it belongs to ---- */

struct sample {
    enum kvr_sketch_name sketch;
    int32_t bucket;
    double value;
};

struct addition {
    uint64_t counters[KVR_COUNTER_COUNT];
    struct sample samples[8];
    unsigned sample_count;
};

static void add_sample(const struct kvr_report *report, struct addition *addition,
    enum kvr_sketch_name sketch, double value)
{
    if (!(value >= 0))
        return;
    addition->samples[addition->sample_count++] =
        (struct sample){sketch, kvr_sketch_bucket(&report->scale, value), value};
}

static bool apply(const struct addition *addition, struct kvr_tally *tally)
{
    bool kept = true;

    for (int i = 0; i < KVR_COUNTER_COUNT; i++)
        tally->counters[i] += addition->counters[i];
    for (unsigned i = 0; i < addition->sample_count; i++) {
        const struct sample *sample = &addition->samples[i];
        kept &= kvr_sketch_add_bucket(
            &tally->sketches[sample->sketch], sample->bucket, sample->value, 1);
    }
    return kept;
}

static uint64_t microseconds(double ms)
{
    return ms > 0 ? (uint64_t)llrint(fmin(ms, KVR_SKETCH_MOST) * 1e3) : 0;
}

/* Prefill of the whole prompt and what is saved of it when `cached` tokens need none. */
static void prefill_us(
    const struct kvr_report *report, int64_t input, int64_t cached, uint64_t *full, uint64_t *saved)
{
    const struct kvr_cost *cost = &report->options.cost;
    uint64_t rest;

    *full = microseconds(kvr_cost_prefill_ms(cost, (double)input, 0));
    rest = cached > 0
               ? microseconds(kvr_cost_prefill_ms(cost, (double)(input - cached), (double)cached))
               : *full;
    *saved = *full > rest ? *full - rest : 0;
}

static void add_arrival(const struct kvr_report *report, const struct kvr_facts *facts,
    int64_t reusable, struct addition *addition)
{
    uint64_t *counters = addition->counters, full, saved;
    int64_t input = facts->input_tokens, best = facts->best_tokens, chosen = facts->chosen_tokens;

    counters[KVR_COUNT_REQUESTS] = 1;
    counters[KVR_COUNT_REJECTED] = facts->rejected;
    counters[KVR_COUNT_NEW] = facts->kind == KVR_KIND_NEW;
    counters[KVR_COUNT_CONTINUED] = facts->kind == KVR_KIND_CONTINUED;
    counters[KVR_COUNT_PROMPT_TOKENS] = input > 0 ? (uint64_t)input : 0;
    if (facts->evicted_tokens > 0)
        counters[KVR_COUNT_EVICTED_TOKENS] = (uint64_t)facts->evicted_tokens;
    if (input < 0)
        return;
    if (reusable >= 0) {
        prefill_us(report, input, reusable, &full, &saved);
        counters[KVR_COUNT_CEILING] = 1;
        counters[KVR_COUNT_CEILING_PROMPT_TOKENS] = (uint64_t)input;
        counters[KVR_COUNT_CEILING_TOKENS] = (uint64_t)reusable;
        counters[KVR_COUNT_CEILING_HITS] = reusable > 0;
        counters[KVR_COUNT_CEILING_PREFILL_US] = full;
        counters[KVR_COUNT_CEILING_SAVED_US] = saved;
    }
    if (facts->rejected || !facts->worker.text)
        return;
    if (best < 0) { /* no match: the infinite cache stands for the best worker */
        best = reusable;
        chosen = facts->reused_tokens;
    }
    if (best < 0 || chosen < 0)
        return;
    best = best < input ? best : input;
    chosen = chosen < input ? chosen : input;
    counters[KVR_COUNT_BEST] = 1;
    counters[KVR_COUNT_BEST_PROMPT_TOKENS] = (uint64_t)input;
    counters[KVR_COUNT_BEST_TOKENS] = (uint64_t)best;
    counters[KVR_COUNT_CHOSEN_TOKENS] = (uint64_t)chosen;
    if (best > chosen) {
        counters[KVR_COUNT_REGRET_TOKENS] = (uint64_t)(best - chosen);
        prefill_us(report, input, best, &full, &saved);
        counters[KVR_COUNT_REGRET_US] = saved;
        prefill_us(report, input, chosen, &full, &saved);
        counters[KVR_COUNT_REGRET_US] -=
            saved < counters[KVR_COUNT_REGRET_US] ? saved : counters[KVR_COUNT_REGRET_US];
    }
}

static void add_reuse(
    const struct kvr_report *report, const struct kvr_facts *facts, struct addition *addition)
{
    uint64_t *counters = addition->counters;
    int64_t input = facts->input_tokens, reused = facts->reused_tokens;

    if (input < 0 || reused < 0 || facts->rejected)
        return;
    counters[KVR_COUNT_KNOWN] = 1;
    counters[KVR_COUNT_KNOWN_TOKENS] = (uint64_t)input;
    counters[KVR_COUNT_REUSED_TOKENS] = (uint64_t)reused;
    counters[KVR_COUNT_HITS] = reused > 0;
    prefill_us(
        report, input, reused, &counters[KVR_COUNT_PREFILL_US], &counters[KVR_COUNT_SAVED_US]);
    add_sample(report, addition, KVR_SKETCH_MATCH, (double)reused);
}

static void add_outcome(
    const struct kvr_report *report, const struct kvr_facts *facts, struct addition *addition)
{
    uint64_t *counters = addition->counters;
    double ttft_ms = facts->ttft_ms;
    bool failed =
        facts->answered && facts->status >= 0 && (facts->status == 0 || facts->status >= 400);

    counters[KVR_COUNT_ANSWERED] = facts->answered;
    counters[KVR_COUNT_FAILED] = failed;
    counters[KVR_COUNT_OUTPUT_TOKENS] =
        facts->output_tokens > 0 ? (uint64_t)facts->output_tokens : 0;
    double slo_ms = facts->slo_ttft_ms >= 0 ? facts->slo_ttft_ms : report->options.slo_ttft_ms;
    /* Who is rejected or fails has not been served in time. */
    if (slo_ms > 0 && (ttft_ms >= 0 || failed || facts->rejected)) {
        counters[KVR_COUNT_SLO_KNOWN] = 1;
        counters[KVR_COUNT_SLO_MET] = ttft_ms <= slo_ms && !failed && !facts->rejected;
    }
    if (failed)
        return;
    if (facts->measured_tokens >= 0 && facts->chosen_tokens >= 0) {
        counters[KVR_COUNT_PROMISED] = 1;
        counters[KVR_COUNT_PROMISED_TOKENS] = (uint64_t)facts->chosen_tokens;
        counters[KVR_COUNT_KEPT_TOKENS] =
            (uint64_t)(facts->measured_tokens < facts->chosen_tokens ? facts->measured_tokens
                                                                     : facts->chosen_tokens);
    }
    add_sample(report, addition, KVR_SKETCH_TTFT_NEW + facts->kind, ttft_ms);
    add_sample(report, addition, KVR_SKETCH_E2E_NEW + facts->kind, facts->e2e_ms);
    if (facts->output_tokens > 1)
        add_sample(report, addition, KVR_SKETCH_TPOT_NEW + facts->kind,
            (facts->e2e_ms - ttft_ms) / (double)(facts->output_tokens - 1));
    if (ttft_ms > 0 && facts->predicted_ttft_ms >= 0) {
        counters[KVR_COUNT_PREDICTED] = 1;
        counters[KVR_COUNT_PREDICTED_US] = microseconds(facts->predicted_ttft_ms);
        counters[KVR_COUNT_ACTUAL_US] = microseconds(ttft_ms);
        add_sample(report, addition, KVR_SKETCH_PREDICTION_ERROR,
            fabs(facts->predicted_ttft_ms - ttft_ms) / ttft_ms);
    }
}

static enum kvr_status apply_everywhere(struct kvr_report *report, const struct addition *addition,
    uint32_t worker, uint32_t group, struct kvr_pane *pane, struct kvr_error *error)
{
    bool kept = apply(addition, &report->workers[worker].tally);

    if (report->options.by)
        kept &= apply(addition, &report->groups[group]);
    if (pane) {
        const uint64_t *counters = addition->counters;
        struct kvr_worker_load *load = kvr_pane_worker(pane, worker);
        kept &= load && apply(addition, &pane->tally);
        if (load) {
            load->requests += counters[KVR_COUNT_REQUESTS];
            load->prompt_tokens += counters[KVR_COUNT_PROMPT_TOKENS];
            load->known_tokens += counters[KVR_COUNT_KNOWN_TOKENS];
            load->reused_tokens += counters[KVR_COUNT_REUSED_TOKENS];
            load->outstanding =
                fmax(load->outstanding, (double)report->workers[worker].outstanding);
        }
    }
    return kept ? KVR_OK : kvr_error_memory(error);
}

/* ---- requests that wait for their done line ---- */

static struct kvr_pending *pending_at(struct kvr_report *report, uint64_t sequence)
{
    return &report->pending[sequence & (report->pending_capacity - 1)];
}

/* Counts what is known of a request whose answer will not be seen. */
static enum kvr_status forget(
    struct kvr_report *report, struct kvr_pending *pending, struct kvr_error *error)
{
    struct addition addition = {.sample_count = 0};

    kvr_u64_map_remove(&report->pending_index, pending->key, NULL);
    pending->waiting = false;
    if (pending->reuse_counted)
        return KVR_OK;
    add_reuse(report, &pending->facts, &addition);
    return apply_everywhere(report, &addition, pending->worker, pending->group, NULL, error);
}

static bool grow_pending(struct kvr_report *report)
{
    size_t capacity = report->pending_capacity ? report->pending_capacity * 2 : 256;
    struct kvr_pending *ring = malloc(capacity * sizeof *ring);

    if (!ring)
        return false;
    for (uint64_t i = report->pending_first; i < report->pending_next; i++)
        ring[i & (capacity - 1)] = *pending_at(report, i);
    free(report->pending);
    report->pending = ring;
    report->pending_capacity = capacity;
    return true;
}

static enum kvr_status wait_for_done(struct kvr_report *report, const struct kvr_line *line,
    const struct kvr_facts *facts, uint32_t worker, uint32_t group, bool reuse_counted,
    struct kvr_error *error)
{
    uint64_t key = kvr_facts_hash(kvr_line_get(line, KVR_NAME_ID));
    enum kvr_status status = KVR_OK;

    while (report->pending_first < report->pending_next &&
           !pending_at(report, report->pending_first)->waiting)
        report->pending_first++;
    uint64_t *known = kvr_u64_map_find(&report->pending_index, key);
    if (known) /* the same id again: the earlier one will not be told apart any more */
        status = forget(report, pending_at(report, *known), error);
    if (status == KVR_OK &&
        report->pending_next - report->pending_first >= report->options.pending_limit) {
        struct kvr_pending *oldest = pending_at(report, report->pending_first++);
        if (oldest->waiting) {
            report->forgotten++;
            report->workers[oldest->worker].outstanding--;
            status = forget(report, oldest, error);
        }
    }
    if (status != KVR_OK)
        return status;
    if (report->pending_next - report->pending_first >= report->pending_capacity &&
        !grow_pending(report))
        return kvr_error_memory(error);
    uint64_t *place = kvr_u64_map_insert(&report->pending_index, key, NULL);
    if (!place)
        return kvr_error_memory(error);
    *place = report->pending_next++;
    *pending_at(report, *place) =
        (struct kvr_pending){key, *facts, worker, group, true, reuse_counted};
    struct kvr_worker_stat *stat = &report->workers[worker];
    if (++stat->outstanding > stat->outstanding_most)
        stat->outstanding_most = stat->outstanding;
    return KVR_OK;
}

enum kvr_status kvr_report_done(struct kvr_report *report, const struct kvr_line *line,
    struct kvr_pane *pane, struct kvr_error *error)
{
    struct addition addition = {.sample_count = 0};
    uint64_t key = kvr_facts_hash(kvr_line_get(line, KVR_NAME_ID));
    uint64_t *known = key ? kvr_u64_map_find(&report->pending_index, key) : NULL;
    struct kvr_facts discarded = {.measured_tokens = -1};
    struct kvr_facts *facts = known ? &pending_at(report, *known)->facts : &discarded;

    enum kvr_status status =
        kvr_facts_read_response(kvr_line_get(line, KVR_NAME_RESPONSE), facts, error);
    if (status != KVR_OK)
        return status;
    report->done_seen = true;
    if (!known) {
        report->unmatched_done++;
        return KVR_OK;
    }
    struct kvr_pending *pending = pending_at(report, *known);
    pending->waiting = false;
    kvr_u64_map_remove(&report->pending_index, key, NULL);
    if (report->workers[pending->worker].outstanding)
        report->workers[pending->worker].outstanding--;
    facts->answered = true;
    if (facts->measured_tokens >= 0 && facts->input_tokens >= 0)
        facts->reused_tokens = facts->measured_tokens < facts->input_tokens ? facts->measured_tokens
                                                                            : facts->input_tokens;
    if (!pending->reuse_counted)
        add_reuse(report, facts, &addition);
    add_outcome(report, facts, &addition);
    return apply_everywhere(report, &addition, pending->worker, pending->group, pane, error);
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

static enum kvr_status request(
    struct kvr_report *report, const struct kvr_line *line, struct kvr_error *error)
{
    struct addition addition;
    struct kvr_facts facts;
    struct kvr_pane *pane = NULL;
    uint32_t worker, group = 0, reason = 0;
    uint64_t reusable = 0;
    int64_t ceiling = -1;
    size_t id_count = 0;
    bool block_ids =
        report->options.ceiling || report->options.prefixes || report->residents.length;

    enum kvr_status status = kvr_facts_read(line, report->options.block_tokens,
        report->inactive_workers ? is_active : NULL, report, &facts, error);
    if (status == KVR_OK && block_ids && facts.hash_ids.type > KVR_NULL)
        status = kvr_report_ids(report, facts.hash_ids, &id_count, error);
    if (status == KVR_OK && report->options.by)
        status = group_of(report, line, &group, error);
    if (status == KVR_OK)
        status = worker_of(report, &facts, &worker, error);
    if (status == KVR_OK && facts.routed)
        status = kvr_groups_find_json(&report->reason_names,
            facts.reason.text ? facts.reason
                              : (struct kvr_text){KVR_GROUP_NONE, sizeof KVR_GROUP_NONE - 1},
            &reason, error);
    if (status == KVR_OK)
        status = kind_by_session(report, &facts, error);
    if (status == KVR_OK)
        status = kvr_windows_at(&report->windows, facts.timestamp_ms, &pane, error);
    if (status != KVR_OK)
        return status;
    if (id_count) {
        uint64_t prompt =
            facts.input_tokens >= 0 ? (uint64_t)facts.input_tokens : id_count * facts.block_tokens;
        if (facts.input_tokens < 0)
            facts.input_tokens = (int64_t)prompt;
        if (report->options.ceiling) {
            status = kvr_ceiling_request(&report->ceiling, report->ids, id_count, facts.name_space,
                facts.block_tokens, prompt, &reusable, error);
            ceiling = report->ceiling.full ? -1 : (int64_t)reusable;
        }
        if (status == KVR_OK && report->options.prefixes && !report->prefixes.full) {
            struct kvr_value id = kvr_line_get(line, KVR_NAME_ID);
            status = kvr_prefixes_request(&report->prefixes, &report->scale, report->ids, id_count,
                facts.name_space, facts.block_tokens, prompt, id.text, id.length,
                facts.worker.text && worker ? (int)worker - 1 : -1, error);
        }
        if (report->residents.length)
            mark_reused(report, &facts, worker, id_count);
        if (status != KVR_OK)
            return status;
    }
    report->request_lines++;
    report->match_seen |= facts.best_tokens >= 0;
    memset(addition.counters, 0, sizeof addition.counters);
    addition.sample_count = 0;
    add_arrival(report, &facts, ceiling, &addition);
    if (facts.routed) {
        report->reasons[reason]++;
        if (pane)
            pane->reasons[reason]++;
    }
    bool waits = facts.routed && !facts.answered && !facts.rejected && facts.worker.text &&
                 line->slots[KVR_NAME_ID];
    bool counts_now = !waits || !report->done_seen || facts.measured_tokens >= 0;
    if (counts_now)
        add_reuse(report, &facts, &addition);
    if (!waits)
        add_outcome(report, &facts, &addition);
    else
        status = wait_for_done(report, line, &facts, worker, group, counts_now, error);
    if (status != KVR_OK)
        return status;
    return apply_everywhere(report, &addition, worker, group, pane, error);
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
    enum kvr_status status = KVR_OK;

    for (; report->pending_first < report->pending_next && status == KVR_OK;
         report->pending_first++) {
        struct kvr_pending *pending = pending_at(report, report->pending_first);
        if (pending->waiting)
            status = forget(report, pending, error);
    }
    return status == KVR_OK ? kvr_windows_finish(&report->windows, error) : status;
}

bool kvr_report_total(const struct kvr_report *report, struct kvr_tally *total)
{
    bool whole = true;

    for (uint32_t i = 0; i < report->worker_names.count; i++)
        whole &= kvr_tally_merge(total, &report->workers[i].tally);
    return whole;
}
