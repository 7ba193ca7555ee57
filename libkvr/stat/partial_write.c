#include "stat/partial.h"

#include <math.h>
#include <stdlib.h>

static void add_u64(struct kvr_buffer *out, const char *name, uint64_t number)
{
    kvr_line_add(out, name);
    kvr_buffer_append_u64(out, number);
}

static void add_double(struct kvr_buffer *out, const char *name, double number)
{
    kvr_line_add(out, name);
    kvr_json_write_double(out, number);
}

static void write_sketch(struct kvr_buffer *out, const struct kvr_sketch *sketch)
{
    uint32_t low = 0, high = sketch->length;

    kvr_buffer_append_byte(out, '{');
    add_u64(out, "zeros", sketch->zeros);
    add_u64(out, "sum", sketch->sum_thousandths);
    add_double(out, "least", sketch->least);
    add_double(out, "most", sketch->most);
    while (low < high && !sketch->counts[low])
        low++;
    while (high > low && !sketch->counts[high - 1])
        high--;
    kvr_line_add(out, "first");
    kvr_buffer_append_format(out, "%ld", (long)sketch->first + (long)low);
    kvr_line_add(out, "counts");
    kvr_buffer_append_byte(out, '[');
    for (uint32_t i = low; i < high; i++) {
        if (i > low)
            kvr_buffer_append_byte(out, ',');
        kvr_buffer_append_u64(out, sketch->counts[i]);
    }
    kvr_buffer_append_text(out, "]}");
}

static void write_tally(struct kvr_buffer *out, const struct kvr_tally *tally)
{
    kvr_line_add(out, "counters");
    kvr_buffer_append_byte(out, '{');
    for (int i = 0; i < KVR_COUNTER_COUNT; i++) {
        if (tally->counters[i])
            add_u64(out, kvr_counter_text((enum kvr_counter)i), tally->counters[i]);
    }
    kvr_line_end(out);
    kvr_line_add(out, "sketches");
    kvr_buffer_append_byte(out, '{');
    for (int i = 0; i < KVR_SKETCH_COUNT; i++) {
        if (!tally->sketches[i].count)
            continue;
        kvr_line_add(out, kvr_sketch_text((enum kvr_sketch_name)i));
        write_sketch(out, &tally->sketches[i]);
    }
    kvr_line_end(out);
}

static void add_name(struct kvr_buffer *out, const struct kvr_group *group)
{
    if (out->length && out->data[out->length - 1] != '{')
        kvr_buffer_append_byte(out, ',');
    kvr_json_write_string(out, group->name, group->length);
    kvr_buffer_append_byte(out, ':');
}

static void write_workers(struct kvr_buffer *out, const struct kvr_report *report)
{
    kvr_line_add(out, "workers");
    kvr_buffer_append_byte(out, '{');
    for (uint32_t i = 0; i < report->worker_names.count; i++) {
        const struct kvr_worker_stat *worker = &report->workers[i];
        add_name(out, &report->worker_names.items[i]);
        kvr_buffer_append_byte(out, '{');
        add_u64(out, "state", (uint64_t)worker->state);
        add_u64(out, "declared", worker->declared);
        add_u64(out, "capacity_tokens", worker->capacity_tokens);
        add_u64(out, "outstanding", worker->outstanding);
        add_u64(out, "outstanding_most", worker->outstanding_most);
        add_u64(out, "resident_blocks", worker->resident_blocks);
        add_u64(out, "resident_tokens", worker->resident_tokens);
        add_u64(out, "blocks_contradict", worker->blocks_contradict);
        add_double(out, "state_ms", worker->state_ms);
        add_double(out, "load_ms", worker->load_ms);
        add_double(out, "waiting", worker->waiting);
        add_double(out, "running", worker->running);
        add_double(out, "kv_usage", worker->kv_usage);
        add_double(out, "kv_usage_most", worker->kv_usage_most);
        write_tally(out, &worker->tally);
        kvr_line_end(out);
    }
    kvr_line_end(out);
}

static void write_groups(struct kvr_buffer *out, const struct kvr_report *report)
{
    kvr_line_add(out, "groups");
    kvr_buffer_append_byte(out, '{');
    for (uint32_t i = 0; i < report->group_names.count && i < report->group_capacity; i++) {
        add_name(out, &report->group_names.items[i]);
        kvr_buffer_append_byte(out, '{');
        write_tally(out, &report->groups[i]);
        kvr_line_end(out);
    }
    kvr_line_end(out);
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

    return (first > second) - (first < second);
}

static void write_keys(struct kvr_buffer *out, uint64_t *keys, size_t count)
{
    qsort(keys, count, sizeof *keys, compare_keys);
    kvr_buffer_append_byte(out, '[');
    kvr_buffer_append_u64s(out, keys, count);
    kvr_buffer_append_byte(out, ']');
}

static void write_sessions(struct kvr_buffer *out, const struct kvr_report *report)
{
    const struct kvr_u64_map *seen = &report->sessions;
    uint64_t *keys = malloc((seen->length + 1) * sizeof *keys);
    size_t count = 0;

    if (!keys) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; seen->length && i <= seen->mask; i++) {
        if (seen->used[i])
            keys[count++] = seen->slots[i].key;
    }
    kvr_line_add(out, "sessions");
    write_keys(out, keys, count);
    free(keys);
}

struct block {
    uint64_t key;
    uint32_t tokens;
};

static int compare_blocks(const void *a, const void *b)
{
    const struct block *first = a, *second = b;

    if (first->tokens != second->tokens)
        return first->tokens < second->tokens ? 1 : -1;
    return (first->key > second->key) - (first->key < second->key);
}

/* {"512":[keys of blocks of 512 tokens],"100":[…]} */
static void write_blocks(struct kvr_buffer *out, const struct kvr_ceiling *ceiling)
{
    struct block *blocks = malloc((ceiling->count + 1) * sizeof *blocks);
    size_t count = 0;

    if (!blocks) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; ceiling->count && i <= ceiling->mask; i++) {
        if (ceiling->keys[i])
            blocks[count++] = (struct block){ceiling->keys[i], ceiling->tokens[i]};
    }
    qsort(blocks, count, sizeof *blocks, compare_blocks);
    kvr_line_add(out, "blocks");
    kvr_buffer_append_byte(out, '{');
    for (size_t i = 0; i < count; i++) {
        bool opens = i == 0 || blocks[i].tokens != blocks[i - 1].tokens;
        if (opens)
            kvr_buffer_append_format(out, "%s\"%u\":[", i ? "]," : "", blocks[i].tokens);
        else
            kvr_buffer_append_byte(out, ',');
        kvr_buffer_append_u64(out, blocks[i].key);
    }
    if (count)
        kvr_buffer_append_byte(out, ']');
    kvr_line_end(out);
    free(blocks);
}

void kvr_partial_write(const struct kvr_report *report, const char *by, struct kvr_buffer *out)
{
    const struct kvr_report_options *options = &report->options;
    const struct kvr_cost *cost = &options->cost;
    bool keeps_blocks = options->ceiling && !report->ceiling.full && !report->ceiling_lost;

    kvr_buffer_append_byte(out, '{');
    add_u64(out, "kvr_stats_partial", 1);
    add_double(out, "accuracy", options->accuracy);
    add_double(out, "window_ms", options->window_ms);
    add_double(out, "slo_ttft_ms", options->slo_ttft_ms);
    kvr_line_add(out, "cost");
    kvr_buffer_append_byte(out, '[');
    kvr_json_write_double(out, cost->prefill_overhead_ms);
    kvr_buffer_append_byte(out, ',');
    kvr_json_write_double(out, cost->prefill_token_ms);
    kvr_buffer_append_byte(out, ',');
    kvr_json_write_double(out, cost->prefill_pair_ms);
    kvr_buffer_append_byte(out, ']');
    if (by) {
        kvr_line_add(out, "by");
        kvr_json_write_string(out, by, strlen(by));
    }
    add_double(out, "oldest_ms", report->windows.oldest_ms);
    add_double(out, "newest_ms", report->windows.newest_ms);
    add_u64(out, "lines", report->lines);
    add_u64(out, "request_lines", report->request_lines);
    add_u64(out, "event_lines", report->event_lines);
    add_u64(out, "untimed_lines", report->windows.untimed_lines);
    add_u64(out, "forgotten", report->forgotten);
    add_u64(out, "unmatched_done", report->unmatched_done);
    add_u64(out, "answered_ids", report->answered_ids);
    add_u64(out, "unmatched_ids", report->unmatched_ids);
    add_u64(out, "done_seen", report->done_seen);
    add_u64(out, "match_seen", report->match_seen);
    add_u64(out, "blocks_seen", report->blocks_seen);
    add_u64(out, "residents_full", report->residents_full);
    add_u64(out, "sessions_full", report->sessions_full);
    add_u64(out, "sessions_asked", report->sessions_asked);
    add_u64(out, "ceiling_kept", keeps_blocks);
    add_u64(out, "ceiling_stands_in", report->ceiling_stands_in);
    add_u64(out, "sessions_contradict", report->sessions_contradict);
    add_u64(out, "blocks_contradict", report->blocks_contradict);
    add_u64(out, "parts", report->merged_parts ? report->merged_parts : 1);
    add_u64(out, "inactive_seen", report->inactive_seen);
    kvr_line_add(out, "beyond_workers");
    kvr_buffer_append_byte(out, '{');
    write_tally(out, &report->beyond_workers);
    kvr_line_end(out);
    write_workers(out, report);
    write_groups(out, report);
    kvr_line_add(out, "reasons");
    kvr_buffer_append_byte(out, '{');
    for (uint32_t i = 0; i < report->reason_names.count; i++) {
        add_name(out, &report->reason_names.items[i]);
        kvr_buffer_append_u64(out, report->reasons[i]);
    }
    kvr_line_end(out);
    write_sessions(out, report);
    if (keeps_blocks)
        write_blocks(out, &report->ceiling);
    kvr_line_end(out);
}
