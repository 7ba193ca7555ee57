#include "stat/partial.h"

#include "base/grow.h"
#include "stat/report_private.h"

#include <math.h>
#include <stdlib.h>

/* A partial is read twice: once to check every part of it, once to add it, so that a bad one leaves
 * the report as it was. While checking, report is NULL. */
struct reader {
    struct kvr_report *report;
    const struct kvr_sketch_scale *scale;
    struct kvr_buffer scratch;
    struct kvr_error *error;
};

static enum kvr_status bad(struct reader *reader, const char *what)
{
    return kvr_error_set(reader->error, KVR_BAD_INPUT, "the partial's %s cannot be read", what);
}

static bool get_u64(struct kvr_value object, const char *name, uint64_t *number)
{
    return kvr_value_u64(kvr_value_get(object, name), number);
}

/* null is NaN: what kvr_json_write_double writes for it. */
static bool get_double(struct kvr_value object, const char *name, double *number)
{
    struct kvr_value value = kvr_value_get(object, name);

    *number = NAN;
    return value.type == KVR_NULL || kvr_value_double(value, number);
}

static enum kvr_status read_sketch(
    struct reader *reader, struct kvr_value object, struct kvr_sketch *into)
{
    struct kvr_value list = kvr_value_get(object, "counts"), element;
    struct kvr_sketch sketch = {0};
    struct kvr_cursor cursor;
    int64_t first;
    uint32_t capacity = 0;

    if (!get_u64(object, "zeros", &sketch.zeros) ||
        !get_u64(object, "sum", &sketch.sum_thousandths) ||
        !get_double(object, "least", &sketch.least) || !get_double(object, "most", &sketch.most) ||
        !(sketch.least >= 0) || !(sketch.most >= sketch.least) ||
        !kvr_value_i64(kvr_value_get(object, "first"), &first) || list.type != KVR_ARRAY)
        return bad(reader, "sketch");
    for (cursor = kvr_value_open(list); kvr_next_element(&cursor, &element);)
        capacity++;
    if (capacity && (first < reader->scale->lowest || first > reader->scale->highest ||
                        first + capacity - 1 > reader->scale->highest))
        return bad(reader, "sketch");
    sketch.first = (int32_t)first;
    sketch.count = sketch.zeros;
    sketch.counts = calloc((size_t)capacity + 1, sizeof *sketch.counts);
    if (!sketch.counts)
        return kvr_error_memory(reader->error);
    enum kvr_status status = KVR_OK;
    for (cursor = kvr_value_open(list); kvr_next_element(&cursor, &element); sketch.length++) {
        if (!kvr_value_u64(element, &sketch.counts[sketch.length]) ||
            __builtin_add_overflow(sketch.count, sketch.counts[sketch.length], &sketch.count)) {
            status = bad(reader, "sketch");
            break;
        }
    }
    if (status == KVR_OK && reader->report && !kvr_sketch_merge(into, &sketch))
        status = kvr_error_memory(reader->error);
    kvr_sketch_release(&sketch);
    return status;
}

static int find_name(const char *(*text)(int), int count, struct kvr_value name)
{
    for (int i = 0; i < count; i++) {
        if (kvr_value_is(name, text(i)))
            return i;
    }
    return -1;
}

static const char *counter_text(int i)
{
    return kvr_counter_text((enum kvr_counter)i);
}

static const char *sketch_text(int i)
{
    return kvr_sketch_text((enum kvr_sketch_name)i);
}

static enum kvr_status read_tally(
    struct reader *reader, struct kvr_value object, struct kvr_tally *into)
{
    struct kvr_cursor cursor = kvr_value_open(kvr_value_get(object, "counters"));
    struct kvr_member member;
    uint64_t number;

    while (kvr_next_member(&cursor, &member)) {
        int counter = find_name(counter_text, KVR_COUNTER_COUNT, member.name);
        if (counter < 0 || !kvr_value_u64(member.value, &number))
            return bad(reader, "counters");
        if (reader->report &&
            __builtin_add_overflow(into->counters[counter], number, &into->counters[counter]))
            into->counters[counter] = UINT64_MAX;
    }
    cursor = kvr_value_open(kvr_value_get(object, "sketches"));
    while (kvr_next_member(&cursor, &member)) {
        int sketch = find_name(sketch_text, KVR_SKETCH_COUNT, member.name);
        if (sketch < 0)
            return bad(reader, "sketches");
        enum kvr_status status =
            read_sketch(reader, member.value, reader->report ? &into->sketches[sketch] : NULL);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

static enum kvr_status plain_name(struct reader *reader, struct kvr_value name)
{
    kvr_buffer_clear(&reader->scratch);
    if (!kvr_value_string(name, &reader->scratch))
        return kvr_error_memory(reader->error);
    return KVR_OK;
}

/* Blocks of a worker that two partials speak of cannot be told: marked for kvr_partial_settle(). */
static bool has_blocks(const struct kvr_worker_stat *worker)
{
    const uint64_t *counters = worker->tally.counters;

    return counters[KVR_COUNT_STORED_BLOCKS] || counters[KVR_COUNT_EVICTED_BLOCKS];
}

static enum kvr_status read_worker(
    struct reader *reader, struct kvr_value name, struct kvr_value object)
{
    struct kvr_worker_stat part = {0}, *worker = NULL;
    uint64_t state, declared, contradict;
    uint32_t index = 0;

    if (!get_u64(object, "state", &state) || state > KVR_WORKER_DOWN ||
        !get_u64(object, "declared", &declared) ||
        !get_u64(object, "capacity_tokens", &part.capacity_tokens) ||
        !get_u64(object, "outstanding", &part.outstanding) ||
        !get_u64(object, "outstanding_most", &part.outstanding_most) ||
        !get_u64(object, "resident_blocks", &part.resident_blocks) ||
        !get_u64(object, "resident_tokens", &part.resident_tokens) ||
        !get_u64(object, "blocks_contradict", &contradict) ||
        !get_double(object, "state_ms", &part.state_ms) ||
        !get_double(object, "load_ms", &part.load_ms) ||
        !get_double(object, "waiting", &part.waiting) ||
        !get_double(object, "running", &part.running) ||
        !get_double(object, "kv_usage", &part.kv_usage) ||
        !get_double(object, "kv_usage_most", &part.kv_usage_most))
        return bad(reader, "worker");
    enum kvr_status status = KVR_OK;
    if (reader->report) {
        struct kvr_report *report = reader->report;
        status = kvr_report_worker(
            report, (struct kvr_text){name.text + 1, name.length - 2}, &index, reader->error);
        if (status != KVR_OK)
            return status;
        worker = &report->workers[index];
        if (kvr_value_is(name, KVR_GROUP_NONE))
            report->no_worker = index;
        struct kvr_value counters = kvr_value_get(object, "counters");
        uint64_t stored = 0, evicted = 0, requests = 0;
        get_u64(counters, "stored_blocks", &stored);
        get_u64(counters, "evicted_blocks", &evicted);
        get_u64(counters, "requests", &requests);
        /* Whether a block was reused before it went is known where its worker's requests are. */
        bool was_asked = worker->tally.counters[KVR_COUNT_REQUESTS] != 0;
        bool speaks = stored || evicted;
        worker->blocks_contradict |= (speaks && (has_blocks(worker) || was_asked)) ||
                                     (requests && has_blocks(worker)) || contradict;
        /* The state is that of the latest worker line, the gauges those of the latest load line. */
        if (declared && !(part.state_ms < worker->state_ms)) {
            worker->state = (enum kvr_worker_state)state;
            worker->state_ms = part.state_ms;
            worker->declared = true;
        }
        if (!isnan(part.load_ms) && !(part.load_ms < worker->load_ms)) {
            worker->load_ms = part.load_ms;
            worker->kv_usage = part.kv_usage;
            worker->waiting = part.waiting;
            worker->running = part.running;
        }
        if (part.capacity_tokens > worker->capacity_tokens)
            worker->capacity_tokens = part.capacity_tokens;
        worker->outstanding += part.outstanding;
        worker->outstanding_most = part.outstanding_most > worker->outstanding_most
                                       ? part.outstanding_most
                                       : worker->outstanding_most;
        worker->resident_blocks += part.resident_blocks;
        worker->resident_tokens += part.resident_tokens;
        worker->kv_usage_most = fmax(worker->kv_usage_most, part.kv_usage_most);
    }
    return read_tally(reader, object, worker ? &worker->tally : NULL);
}

static enum kvr_status read_groups(struct reader *reader, struct kvr_value object)
{
    struct kvr_cursor cursor = kvr_value_open(object);
    struct kvr_report *report = reader->report;
    enum kvr_status status = KVR_OK;
    struct kvr_member member;

    while (status == KVR_OK && kvr_next_member(&cursor, &member)) {
        uint32_t group = 0;
        if (report) {
            size_t capacity = report->group_capacity;
            status = plain_name(reader, member.name);
            if (status == KVR_OK)
                status = kvr_groups_find(&report->group_names, reader->scratch.data,
                    reader->scratch.length, &group, reader->error);
            if (status == KVR_OK && group >= capacity) {
                struct kvr_tally *groups =
                    kvr_grow(report->groups, &capacity, (size_t)group + 1, sizeof *groups);
                if (!groups)
                    return kvr_error_memory(reader->error);
                memset(groups + report->group_capacity, 0,
                    (capacity - report->group_capacity) * sizeof *groups);
                report->groups = groups;
                report->group_capacity = capacity;
            }
        }
        if (status == KVR_OK)
            status = read_tally(reader, member.value, report ? &report->groups[group] : NULL);
    }
    return status;
}

static enum kvr_status read_reasons(struct reader *reader, struct kvr_value object)
{
    struct kvr_cursor cursor = kvr_value_open(object);
    enum kvr_status status = KVR_OK;
    struct kvr_member member;
    uint64_t number;
    uint32_t reason;

    while (status == KVR_OK && kvr_next_member(&cursor, &member)) {
        if (!kvr_value_u64(member.value, &number))
            return bad(reader, "reasons");
        if (!reader->report)
            continue;
        status = plain_name(reader, member.name);
        if (status == KVR_OK)
            status = kvr_groups_find(&reader->report->reason_names, reader->scratch.data,
                reader->scratch.length, &reason, reader->error);
        if (status == KVR_OK)
            reader->report->reasons[reason] += number;
    }
    return status;
}

static enum kvr_status read_sessions(struct reader *reader, struct kvr_value list)
{
    struct kvr_cursor cursor = kvr_value_open(list);
    struct kvr_report *report = reader->report;
    struct kvr_value element;
    uint64_t key;

    while (kvr_next_element(&cursor, &element)) {
        bool is_new;
        if (!kvr_value_u64(element, &key))
            return bad(reader, "sessions");
        if (!report)
            continue;
        if (report->sessions.length >= report->options.session_limit) {
            report->sessions_full = true;
            return KVR_OK;
        }
        if (!kvr_u64_map_insert(&report->sessions, key, &is_new))
            return kvr_error_memory(reader->error);
        report->sessions_contradict |= !is_new;
    }
    return KVR_OK;
}

static enum kvr_status read_blocks(struct reader *reader, struct kvr_value object)
{
    struct kvr_cursor members = kvr_value_open(object);
    struct kvr_report *report = reader->report;
    struct kvr_value element;
    struct kvr_member member;

    while (kvr_next_member(&members, &member)) {
        struct kvr_value digits = {member.name.text + 1, member.name.length - 2, KVR_NUMBER};
        struct kvr_cursor keys = kvr_value_open(member.value);
        uint64_t tokens, key;
        if (digits.length == 0 || digits.length > 10 ||
            strspn(digits.text, "0123456789") != digits.length || !kvr_value_u64(digits, &tokens) ||
            tokens > UINT32_MAX || member.value.type != KVR_ARRAY)
            return bad(reader, "blocks");
        while (kvr_next_element(&keys, &element)) {
            bool known = false;
            if (!kvr_value_u64(element, &key) || key == 0)
                return bad(reader, "blocks");
            if (!report)
                continue;
            enum kvr_status status =
                kvr_ceiling_add(&report->ceiling, key, (uint32_t)tokens, &known, reader->error);
            if (status != KVR_OK)
                return status;
            /* Seen first by both: in the whole, the later of the two was a hit. */
            if (known) {
                report->blocks_contradict = true;
                report->beyond_workers.counters[KVR_COUNT_CEILING_TOKENS] += tokens;
            }
        }
    }
    return KVR_OK;
}

/* Everything with structure, checked or added. */
static enum kvr_status read_parts(struct reader *reader, const struct kvr_line *line)
{
    struct kvr_value workers = kvr_line_find(line, "workers");
    struct kvr_cursor cursor = kvr_value_open(workers);
    enum kvr_status status = KVR_OK;
    struct kvr_member member;

    if (workers.type != KVR_OBJECT)
        return bad(reader, "workers");
    while (status == KVR_OK && kvr_next_member(&cursor, &member))
        status = read_worker(reader, member.name, member.value);
    if (status == KVR_OK)
        status = read_tally(reader, kvr_line_find(line, "beyond_workers"),
            reader->report ? &reader->report->beyond_workers : NULL);
    if (status == KVR_OK)
        status = read_groups(reader, kvr_line_find(line, "groups"));
    if (status == KVR_OK)
        status = read_reasons(reader, kvr_line_find(line, "reasons"));
    if (status == KVR_OK)
        status = read_sessions(reader, kvr_line_find(line, "sessions"));
    if (status == KVR_OK)
        status = read_blocks(reader, kvr_line_find(line, "blocks"));
    return status;
}

static bool same_text(struct kvr_value value, const char *text)
{
    return text ? kvr_value_is(value, text) : value.type == KVR_ABSENT;
}

/* The options of a report that has no part yet become those of its first partial; later ones must
 * agree. */
static enum kvr_status check_options(
    struct kvr_report *report, const struct kvr_line *line, const char *by, struct kvr_error *error)
{
    static const char *const names[] = {
        "accuracy", "window_ms", "slo_ttft_ms", "cost[0]", "cost[1]", "cost[2]"};
    struct kvr_report_options *options = &report->options;
    const double mine[] = {options->accuracy, options->window_ms, options->slo_ttft_ms,
        options->cost.prefill_overhead_ms, options->cost.prefill_token_ms,
        options->cost.prefill_pair_ms};
    struct kvr_cursor cost = kvr_value_open(kvr_line_find(line, "cost"));
    struct kvr_value value;
    uint64_t version;
    double theirs;

    if (!kvr_value_u64(kvr_line_find(line, "kvr_stats_partial"), &version))
        return kvr_error_set(error, KVR_BAD_INPUT, "not a partial of kvr-stats --partial");
    if (version != 1)
        return kvr_error_set(error, KVR_BAD_INPUT, "a partial of version %lu", version);
    for (int i = 0; i < 6; i++) {
        if (i < 3)
            value = kvr_line_find(line, names[i]);
        else if (!kvr_next_element(&cost, &value))
            value.type = KVR_ABSENT;
        if (!kvr_value_double(value, &theirs))
            return kvr_error_set(error, KVR_BAD_INPUT, "the partial has no %s", names[i]);
        if (theirs != mine[i])
            return kvr_error_set(error, KVR_BAD_INPUT,
                "the partial was made with %s %.17g, not %.17g: give --merge the same options",
                names[i], theirs, mine[i]);
    }
    if (!same_text(kvr_line_find(line, "by"), by))
        return kvr_error_set(error, KVR_BAD_INPUT,
            "the partial was made with another --by: give --merge the same options");
    return KVR_OK;
}

static enum kvr_status check_counts(
    const struct kvr_line *line, uint64_t *counts, struct kvr_error *error)
{
    static const char *const names[] = {"lines", "request_lines", "event_lines", "untimed_lines",
        "forgotten", "unmatched_done", "done_seen", "match_seen", "blocks_seen", "residents_full",
        "sessions_full", "sessions_asked", "ceiling_kept", "ceiling_stands_in",
        "sessions_contradict", "blocks_contradict", "parts", "inactive_seen"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!kvr_value_u64(kvr_line_find(line, names[i]), &counts[i]))
            return kvr_error_set(error, KVR_BAD_INPUT, "the partial has no %s", names[i]);
    }
    return KVR_OK;
}

enum kvr_status kvr_partial_merge(
    struct kvr_report *report, const struct kvr_line *line, const char *by, struct kvr_error *error)
{
    struct reader reader = {.scale = &report->scale, .error = error};
    struct kvr_windows *windows = &report->windows;
    double oldest_ms = NAN, newest_ms = NAN;
    uint64_t counts[18], answered_ids = 0, unmatched_ids = 0;

    enum kvr_status status = check_options(report, line, by, error);
    if (status == KVR_OK)
        status = check_counts(line, counts, error);
    if (status == KVR_OK && (!get_double(line->object, "oldest_ms", &oldest_ms) ||
                                !get_double(line->object, "newest_ms", &newest_ms)))
        status = bad(&reader, "times");
    if (status == KVR_OK)
        status = read_parts(&reader, line);
    if (status == KVR_OK) {
        reader.report = report;
        status = read_parts(&reader, line);
    }
    kvr_buffer_release(&reader.scratch);
    if (status != KVR_OK)
        return status;
    /* 0 where a partial does not say. */
    kvr_value_u64(kvr_line_find(line, "answered_ids"), &answered_ids);
    kvr_value_u64(kvr_line_find(line, "unmatched_ids"), &unmatched_ids);
    windows->oldest_ms = fmin(windows->oldest_ms, oldest_ms);
    windows->newest_ms = fmax(windows->newest_ms, newest_ms);
    report->merged_parts += counts[16];
    report->inactive_seen |= counts[17] != 0;
    report->sessions_contradict |= counts[14] != 0;
    report->blocks_contradict |= counts[15] != 0;
    report->lines += counts[0];
    report->request_lines += counts[1];
    report->event_lines += counts[2];
    windows->untimed_lines += counts[3];
    report->forgotten += counts[4];
    report->unmatched_done += counts[5];
    report->answered_ids += answered_ids;
    report->unmatched_ids += unmatched_ids;
    report->done_seen |= counts[6] != 0;
    report->match_seen |= counts[7] != 0;
    report->blocks_seen |= counts[8] != 0;
    report->residents_full |= counts[9] != 0;
    report->sessions_full |= counts[10] != 0;
    report->sessions_asked += counts[11];
    report->ceiling_lost |= counts[12] == 0;
    report->ceiling_stands_in += counts[13];
    return KVR_OK;
}

/* ---- what could not be merged ---- */

static void leave_out(struct kvr_report *report, const char *name, const char *why)
{
    kvr_buffer_append(&report->left_out, name, strlen(name) + 1);
    kvr_buffer_append(&report->left_out, why, strlen(why) + 1);
}

/* New and continued become unknown. */
static bool forget_kinds(struct kvr_tally *tally)
{
    static const enum kvr_sketch_name firsts[] = {
        KVR_SKETCH_TTFT_NEW, KVR_SKETCH_TPOT_NEW, KVR_SKETCH_E2E_NEW};
    bool whole = true;

    tally->counters[KVR_COUNT_NEW] = tally->counters[KVR_COUNT_CONTINUED] = 0;
    for (int i = 0; i < 3; i++) {
        struct kvr_sketch *unknown = &tally->sketches[firsts[i] + KVR_KIND_UNKNOWN];
        for (int kind = 0; kind < KVR_KIND_UNKNOWN; kind++) {
            whole &= kvr_sketch_merge(unknown, &tally->sketches[firsts[i] + kind]);
            kvr_sketch_clear(&tally->sketches[firsts[i] + kind]);
        }
    }
    return whole;
}

/* Of the ceiling only the tokens of the run are left. */
static void settle_ceiling(struct kvr_report *report)
{
    uint64_t *beyond = report->beyond_workers.counters;
    bool lost = report->ceiling_lost || report->ceiling.full;

    if (!lost && !report->blocks_contradict)
        return;
    if (lost) {
        beyond[KVR_COUNT_CEILING_TOKENS] = 0;
        leave_out(report, "ceiling", "a partial was made without its blocks");
    } else {
        for (uint32_t i = 0; i < report->worker_names.count; i++) {
            const uint64_t *counters = report->workers[i].tally.counters;
            beyond[KVR_COUNT_CEILING_TOKENS] += counters[KVR_COUNT_CEILING_TOKENS];
            beyond[KVR_COUNT_CEILING_PROMPT_TOKENS] += counters[KVR_COUNT_CEILING_PROMPT_TOKENS];
        }
        leave_out(report,
            "ceiling_request_hit_rate, ceiling_time_saved_rate and the ceilings of "
            "workers and groups",
            "partials share blocks");
    }
    kvr_report_clear(report, KVR_COUNT_CEILING, KVR_COUNT_CEILING_SAVED_US);
    if (report->ceiling_stands_in) {
        kvr_report_clear(report, KVR_COUNT_BEST, KVR_COUNT_REGRET_US);
        leave_out(report, "best_token_hit_rate and regret",
            "requests without match, and partials that share blocks");
    }
}

enum kvr_status kvr_partial_settle(struct kvr_report *report, struct kvr_error *error)
{
    bool contradict = false, whole = true;

    report->options.ceiling = true; /* whether it is there is said below */
    if (report->merged_parts <= 1 && !report->ceiling_lost)
        return KVR_OK;
    settle_ceiling(report);
    report->windows.most_request_rate = NAN;
    if (report->sessions_contradict) {
        for (uint32_t i = 0; i < report->worker_names.count; i++)
            whole &= forget_kinds(&report->workers[i].tally);
        for (size_t i = 0; i < report->group_capacity; i++)
            whole &= forget_kinds(&report->groups[i]);
        leave_out(report, "kind of conversation", "partials share sessions");
    }
    for (uint32_t i = 0; i < report->worker_names.count; i++) {
        struct kvr_worker_stat *worker = &report->workers[i];
        if (!worker->blocks_contradict)
            continue;
        contradict = true;
        for (int counter = KVR_COUNT_STORED_BLOCKS; counter <= KVR_COUNT_EVICTED_TOKENS; counter++)
            worker->tally.counters[counter] = 0;
        kvr_sketch_clear(&worker->tally.sketches[KVR_SKETCH_EVICTION_AGE]);
        worker->resident_blocks = worker->resident_tokens = 0;
    }
    if (contradict)
        leave_out(report, "stored and evicted blocks of some workers",
            "more than one partial speaks of these workers");
    if (kvr_report_lost_done(report))
        leave_out(report, "outcome of some requests",
            "their done lines are in another partial, or their requests in none");
    if (report->inactive_seen && report->match_seen) {
        kvr_report_clear(report, KVR_COUNT_BEST, KVR_COUNT_REGRET_US);
        leave_out(report, "best_token_hit_rate and regret",
            "workers were not active all the time, and partials do not know of each other's");
    }
    if (report->done_seen)
        leave_out(report, "outstanding_max by placement", "it depends on the order");
    if (report->merged_parts > 1)
        leave_out(report, "windows, alerts, prefixes, match drift and reuse distance",
            "they depend on the order of the whole");
    return whole && !report->left_out.failed ? KVR_OK : kvr_error_memory(error);
}
