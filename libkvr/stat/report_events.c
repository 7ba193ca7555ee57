/* Event lines: what workers say about themselves. */
#include "stat/report.h"

#include "base/grow.h"

#include <math.h>
#include <stdlib.h>

static enum kvr_status named_worker(struct kvr_report *report, const struct kvr_line *line,
    uint32_t *worker, struct kvr_error *error)
{
    struct kvr_value name = kvr_line_get(line, KVR_NAME_WORKER);

    if (kvr_worker_check(name, "worker", error) != KVR_OK)
        return error->status;
    return kvr_report_worker(
        report, (struct kvr_text){name.text + 1, name.length - 2}, worker, error);
}

static enum kvr_status on_worker(
    struct kvr_report *report, const struct kvr_line *line, double now_ms, struct kvr_error *error)
{
    struct kvr_worker_description description;
    uint32_t worker;
    uint64_t blocks = 0;

    enum kvr_status status = kvr_worker_read(line, &report->scratch, &description, error);
    if (status == KVR_OK)
        status = named_worker(report, line, &worker, error);
    if (status != KVR_OK)
        return status;
    struct kvr_worker_stat *stat = &report->workers[worker];
    report->inactive_workers +=
        (description.state != KVR_WORKER_ACTIVE) - (stat->state != KVR_WORKER_ACTIVE);
    stat->state = description.state;
    report->inactive_seen |= description.state != KVR_WORKER_ACTIVE;
    stat->declared = true;
    stat->state_ms = now_ms;
    if (description.capacity.amount &&
        kvr_capacity_blocks(&description.capacity, 1, report->options.cost.kv_bytes_per_token,
            &blocks, NULL) == KVR_OK)
        stat->capacity_tokens = description.capacity.unit == KVR_BLOCKS
                                    ? description.capacity.amount *
                                          (description.block_size ? description.block_size
                                                                  : report->options.block_tokens)
                                    : blocks;
    return KVR_OK;
}

/* Reads a member into *number when it is there; false when it is no number. */
static bool read_gauge(const struct kvr_line *line, enum kvr_name name, double *number)
{
    struct kvr_value value = kvr_line_get(line, name);

    return value.type <= KVR_NULL || (kvr_value_double(value, number) && *number >= 0);
}

/* What engines count themselves, since the load line before (--scrape): all of it, or nothing and
 * false when a number is none. */
static bool add_engine_counts(const struct kvr_line *line, struct kvr_tally *tally)
{
    static const struct {
        const char *name;
        enum kvr_counter counter;
    } counts[] = {{"prompt_tokens", KVR_COUNT_ENGINE_PROMPT_TOKENS},
        {"cached_tokens", KVR_COUNT_ENGINE_CACHED_TOKENS},
        {"evicted_tokens", KVR_COUNT_EVICTED_TOKENS}};
    double numbers[3] = {0, 0, 0};

    for (int i = 0; i < 3; i++) {
        struct kvr_value value = kvr_line_find(line, counts[i].name);
        if (value.type > KVR_NULL && (!kvr_value_double(value, &numbers[i]) || numbers[i] < 0))
            return false;
    }
    for (int i = 0; i < 3; i++)
        tally->counters[counts[i].counter] += (uint64_t)fmin(numbers[i], 1e15);
    return true;
}

static enum kvr_status on_load(struct kvr_report *report, const struct kvr_line *line,
    double now_ms, struct kvr_pane *pane, struct kvr_error *error)
{
    double usage = NAN, waiting = NAN, running = NAN, tokens = NAN;
    uint32_t worker;

    if (!read_gauge(line, KVR_NAME_KV_USAGE, &usage) ||
        !read_gauge(line, KVR_NAME_WAITING, &waiting) ||
        !read_gauge(line, KVR_NAME_RUNNING, &running) ||
        !read_gauge(line, KVR_NAME_TOKENS, &tokens))
        return kvr_error_set(error, KVR_BAD_INPUT, "a load is not a number of 0 or more");
    enum kvr_status status = named_worker(report, line, &worker, error);
    if (status != KVR_OK)
        return status;
    struct kvr_worker_stat *stat = &report->workers[worker];
    if (!add_engine_counts(line, &stat->tally) || (pane && !add_engine_counts(line, &pane->tally)))
        return kvr_error_set(error, KVR_BAD_INPUT, "a load is not a number of 0 or more");
    /* One that reports tokens and has a capacity reports its use as well. */
    if (isnan(usage) && tokens >= 0 && stat->capacity_tokens)
        usage = tokens / (double)stat->capacity_tokens;
    if (usage > 1)
        usage = 1;
    stat->load_ms = now_ms;
    stat->kv_usage = isnan(usage) ? stat->kv_usage : usage;
    stat->kv_usage_most = fmax(stat->kv_usage_most, usage);
    stat->waiting = isnan(waiting) ? stat->waiting : waiting;
    stat->running = isnan(running) ? stat->running : running;
    stat->tokens = isnan(tokens) ? stat->tokens : tokens;
    if (waiting + running > (double)stat->outstanding_most && waiting + running < 1e12)
        stat->outstanding_most = (uint64_t)(waiting + running);
    if (pane) {
        struct kvr_worker_load *load = kvr_pane_worker(pane, worker);
        if (!load)
            return kvr_error_memory(error);
        load->kv_usage = fmax(load->kv_usage, usage);
        if (waiting + running >= 0)
            load->outstanding = fmax(load->outstanding, waiting + running);
    }
    return KVR_OK;
}

static struct kvr_resident *new_resident(struct kvr_report *report, uint64_t key)
{
    uint32_t place;

    if (report->resident_free_count) {
        place = report->resident_free[--report->resident_free_count];
    } else {
        size_t capacity = report->resident_capacity;
        struct kvr_resident *pool =
            kvr_grow(report->resident_pool, &capacity, report->resident_count + 1, sizeof *pool);
        if (!pool)
            return NULL;
        report->resident_pool = pool;
        if (capacity != report->resident_capacity) {
            uint32_t *free_places = realloc(report->resident_free, capacity * sizeof *free_places);
            if (!free_places)
                return NULL;
            report->resident_free = free_places;
            report->resident_capacity = capacity;
        }
        place = (uint32_t)report->resident_count++;
    }
    uint64_t *slot = kvr_u64_map_insert(&report->residents, key, NULL);
    if (!slot)
        return NULL;
    *slot = place;
    return &report->resident_pool[place];
}

static enum kvr_status on_stored(struct kvr_report *report, const struct kvr_line *line,
    uint32_t worker, size_t count, double now_ms, struct kvr_tally *pane, struct kvr_error *error)
{
    struct kvr_worker_stat *stat = &report->workers[worker];
    uint64_t block_tokens = report->options.block_tokens;
    struct kvr_value size = kvr_line_get(line, KVR_NAME_BLOCK_SIZE);

    if (size.type > KVR_NULL && (!kvr_value_u64(size, &block_tokens) || block_tokens > UINT32_MAX))
        return kvr_error_set(error, KVR_BAD_INPUT, "block_size is not a number of tokens");
    report->blocks_seen = true;
    for (size_t i = 0; i < count; i++) {
        uint64_t key = kvr_resident_key(worker, report->ids[i]);
        uint64_t *place = kvr_u64_map_find(&report->residents, key);
        if (place) { /* the same content again */
            report->resident_pool[*place].copies++;
            continue;
        }
        if (report->residents.length >= report->options.block_limit) {
            report->residents_full = true;
            return KVR_OK;
        }
        struct kvr_resident *resident = new_resident(report, key);
        if (!resident)
            return kvr_error_memory(error);
        *resident = (struct kvr_resident){.key = key,
            .stored_ms = now_ms,
            .worker = worker,
            .tokens = (uint32_t)block_tokens,
            .copies = 1};
        stat->resident_blocks++;
        stat->resident_tokens += block_tokens;
        stat->tally.counters[KVR_COUNT_STORED_BLOCKS]++;
        if (pane)
            pane->counters[KVR_COUNT_STORED_BLOCKS]++;
    }
    return KVR_OK;
}

/* The last copy of a block is gone. */
static bool evict(struct kvr_report *report, uint64_t place, double now_ms, struct kvr_pane *pane)
{
    struct kvr_resident *resident = &report->resident_pool[place];
    struct kvr_worker_stat *stat = &report->workers[resident->worker];
    struct kvr_tally *tallies[2] = {&stat->tally, pane ? &pane->tally : NULL};
    double age_ms = now_ms - resident->stored_ms;
    bool kept = true;

    for (int i = 0; i < 2 && tallies[i]; i++) {
        tallies[i]->counters[KVR_COUNT_EVICTED_BLOCKS]++;
        tallies[i]->counters[KVR_COUNT_EVICTED_TOKENS] += resident->tokens;
        tallies[i]->counters[KVR_COUNT_EVICTED_UNUSED] += !resident->reused;
        kept &=
            kvr_sketch_add(&tallies[i]->sketches[KVR_SKETCH_EVICTION_AGE], &report->scale, age_ms);
    }
    if (pane) {
        struct kvr_worker_load *load = kvr_pane_worker(pane, resident->worker);
        if (load)
            load->evicted_blocks++;
        kept &= load != NULL;
    }
    stat->resident_blocks--;
    stat->resident_tokens -= resident->tokens;
    kvr_u64_map_remove(&report->residents, resident->key, NULL);
    report->resident_free[report->resident_free_count++] = (uint32_t)place;
    resident->copies = 0;
    return kept;
}

static enum kvr_status on_removed(struct kvr_report *report, uint32_t worker, size_t count,
    double now_ms, struct kvr_pane *pane, struct kvr_error *error)
{
    bool kept = true;

    for (size_t i = 0; i < count; i++) {
        uint64_t *place =
            kvr_u64_map_find(&report->residents, kvr_resident_key(worker, report->ids[i]));
        if (place && --report->resident_pool[*place].copies == 0)
            kept &= evict(report, *place, now_ms, pane);
    }
    return kept ? KVR_OK : kvr_error_memory(error);
}

/* A restart or a flush is no eviction: the blocks are gone, but say nothing about the cache. */
static void on_cleared(struct kvr_report *report, uint32_t worker)
{
    for (size_t i = 0; i < report->resident_count; i++) {
        struct kvr_resident *resident = &report->resident_pool[i];
        if (!resident->copies || resident->worker != worker)
            continue;
        kvr_u64_map_remove(&report->residents, resident->key, NULL);
        report->resident_free[report->resident_free_count++] = (uint32_t)i;
        resident->copies = 0;
    }
    report->workers[worker].resident_blocks = report->workers[worker].resident_tokens = 0;
}

/* Only the device's own memory is the cache that occupancy and evictions speak of. */
static bool is_device(const struct kvr_line *line)
{
    struct kvr_value medium = kvr_line_get(line, KVR_NAME_MEDIUM);

    return medium.type <= KVR_NULL || kvr_value_is(medium, "gpu") || kvr_value_is(medium, "GPU");
}

static enum kvr_status on_blocks(struct kvr_report *report, const struct kvr_line *line, char kind,
    double now_ms, struct kvr_pane *pane, struct kvr_error *error)
{
    struct kvr_value list = kvr_line_get(line, KVR_NAME_HASH_IDS);
    size_t count = 0;
    uint32_t worker;

    if (!is_device(line))
        return KVR_OK;
    enum kvr_status status = named_worker(report, line, &worker, error);
    if (status == KVR_OK && list.type > KVR_NULL)
        status = kvr_report_ids(report, list, &count, error);
    if (status != KVR_OK)
        return status;
    if (kind == 's')
        return on_stored(report, line, worker, count, now_ms, pane ? &pane->tally : NULL, error);
    if (kind == 'r')
        return on_removed(report, worker, count, now_ms, pane, error);
    on_cleared(report, worker);
    return KVR_OK;
}

enum kvr_status kvr_report_event(
    struct kvr_report *report, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_value event = kvr_line_get(line, KVR_NAME_EVENT);
    struct kvr_value timestamp = kvr_line_get(line, KVR_NAME_TIMESTAMP);
    struct kvr_pane *pane = report->options.brief ? NULL : kvr_windows_newest(&report->windows);
    double now_ms = report->windows.newest_ms;
    enum kvr_status status = KVR_OK;

    if (timestamp.type > KVR_NULL) {
        if (!kvr_value_double(timestamp, &now_ms))
            return kvr_error_set(error, KVR_BAD_INPUT, "timestamp is not a number");
        if (report->options.brief)
            kvr_windows_stretch(&report->windows, now_ms);
        else
            status = kvr_windows_at(&report->windows, now_ms, &pane, error);
    }
    if (status != KVR_OK)
        return status;
    if (isnan(now_ms))
        now_ms = 0;
    if (kvr_value_is(event, "worker"))
        return on_worker(report, line, now_ms, error);
    if (kvr_value_is(event, "load"))
        return on_load(report, line, now_ms, pane, error);
    if (kvr_value_is(event, "done"))
        return kvr_report_done(report, line, pane, error);
    if (kvr_value_is(event, "stored"))
        return on_blocks(report, line, 's', now_ms, pane, error);
    if (kvr_value_is(event, "removed"))
        return on_blocks(report, line, 'r', now_ms, pane, error);
    if (kvr_value_is(event, "cleared"))
        return on_blocks(report, line, 'c', now_ms, pane, error);
    report->other_events++;
    return KVR_OK;
}
