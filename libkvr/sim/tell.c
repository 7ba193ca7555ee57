#include "sim/tell.h"

#include "base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void write_name(const struct kvr_sim *sim, uint32_t worker, struct kvr_buffer *out)
{
    const char *name = worker == KVR_SIM_NOBODY ? NULL : kvr_sim_worker_name(sim, worker);

    if (name)
        kvr_json_write_string(out, name, strlen(name));
    else
        kvr_buffer_append_text(out, "null");
}

static void add_u64(struct kvr_buffer *out, const char *name, uint64_t number)
{
    kvr_line_add(out, name);
    kvr_buffer_append_u64(out, number);
}

static void add_ms(struct kvr_buffer *out, const char *name, double ms)
{
    kvr_line_add(out, name);
    kvr_json_write_fixed(out, ms, 3);
}

void kvr_sim_tell_cache(const struct kvr_sim_request *request, struct kvr_buffer *out)
{
    const struct kvr_sim_result *result = &request->result;

    kvr_buffer_append_byte(out, '{');
    add_u64(out, "hit", kvr_sim_cached_tokens(request));
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
        if (medium == KVR_MEDIUM_GPU || result->cached[medium])
            add_u64(out, kvr_medium_name((enum kvr_medium)medium), result->cached[medium]);
    if (result->pulled)
        add_u64(out, "pulled", result->pulled);
    add_u64(out, "evicted", result->evicted_tokens);
    kvr_buffer_append_byte(out, '}');
}

void kvr_sim_tell_response(
    const struct kvr_sim *sim, const struct kvr_sim_request *request, struct kvr_buffer *out)
{
    const struct kvr_sim_result *result = &request->result;

    kvr_buffer_append_byte(out, '{');
    add_u64(out, "status", (uint64_t)result->status);
    if (result->status == KVR_SIM_OK)
        add_ms(out, "ttft_ms", result->first_token_ms - request->arrival_ms);
    add_ms(out, "e2e_ms", result->end_ms - request->arrival_ms);
    if (result->status == KVR_SIM_OK) {
        add_u64(out, "output_length", request->output_tokens);
        if (request->output_tokens > 1)
            add_ms(out, "gap_ms", result->longest_gap_ms);
        add_u64(out, "cached_tokens", kvr_sim_cached_tokens(request));
    }
    kvr_line_add(out, "worker");
    write_name(sim, result->worker, out);
    if (result->decode_worker != KVR_SIM_NOBODY) {
        kvr_line_add(out, "decode_worker");
        write_name(sim, result->decode_worker, out);
    }
    if (result->attempts > 1)
        add_u64(out, "attempts", result->attempts);
    if (result->preemptions)
        add_u64(out, "preemptions", result->preemptions);
    kvr_buffer_append_byte(out, '}');
}

static void begin(struct kvr_buffer *out, const char *event, double now_ms)
{
    kvr_buffer_append_text(out, "{\"event\":\"");
    kvr_buffer_append_text(out, event);
    kvr_buffer_append_byte(out, '"');
    kvr_line_add(out, "timestamp");
    kvr_json_write_double(out, now_ms);
}

void kvr_sim_tell_done(const struct kvr_sim *sim, const struct kvr_sim_item *item, double now_ms,
    struct kvr_buffer *out)
{
    kvr_buffer_clear(out);
    begin(out, "done", now_ms);
    kvr_line_add(out, "id");
    kvr_buffer_append(out, item->base.data + item->id_at, item->id_length);
    kvr_line_add(out, "worker");
    write_name(sim, item->request.result.worker, out);
    kvr_line_add(out, "response");
    kvr_sim_tell_response(sim, &item->request, out);
    kvr_buffer_append_byte(out, '}');
}

void kvr_sim_tell_load(const struct kvr_sim *sim, uint32_t worker, double now_ms,
    const struct kvr_sim_load *load, struct kvr_buffer *out)
{
    kvr_buffer_clear(out);
    begin(out, "load", now_ms);
    kvr_line_add(out, "worker");
    write_name(sim, worker, out);
    add_u64(out, "waiting", load->waiting);
    add_u64(out, "running", load->running);
    kvr_line_add(out, "kv_usage");
    kvr_json_write_double(out, load->kv_usage);
    add_u64(out, "tokens", load->tokens);
    kvr_buffer_append_byte(out, '}');
}

void kvr_sim_tell_worker(const struct kvr_worker_description *worker, struct kvr_buffer *out)
{
    static const char *const states[] = {"active", "draining", "down"};
    static const char *const roles[] = {"both", "prefill", "decode"};

    kvr_buffer_clear(out);
    kvr_buffer_append_text(out, "{\"event\":\"worker\"");
    kvr_line_add(out, "worker");
    kvr_json_write_string(out, worker->name.text, worker->name.length);
    kvr_buffer_append_format(
        out, ",\"state\":\"%s\",\"role\":\"%s\"", states[worker->state], roles[worker->role]);
    kvr_line_add(out, "capacity");
    kvr_buffer_append_format(out, worker->capacity.unit == KVR_BLOCKS ? "\"%llub\"" : "%llu",
        (unsigned long long)worker->capacity.amount);
    kvr_line_add(out, "weight");
    kvr_json_write_double(out, worker->weight);
    if (worker->block_size)
        add_u64(out, "block_size", worker->block_size);
    kvr_buffer_append_byte(out, '}');
}

/* ── namespaces ── */

void kvr_sim_spaces_release(struct kvr_sim_spaces *spaces)
{
    kvr_u64_map_release(&spaces->by_id);
    kvr_u64_map_release(&spaces->by_fold);
    for (size_t i = 0; i < spaces->count; i++)
        kvr_buffer_release(&spaces->members[i]);
    free(spaces->members);
    free(spaces->folds);
    memset(spaces, 0, sizeof *spaces);
}

static void add_raw(struct kvr_buffer *out, const struct kvr_line *line, enum kvr_name name)
{
    struct kvr_value value = kvr_line_get(line, name);

    if (value.type <= KVR_NULL)
        return;
    kvr_buffer_append_byte(out, ',');
    kvr_json_write_string(out, kvr_name_text(name), strlen(kvr_name_text(name)));
    kvr_buffer_append_byte(out, ':');
    kvr_buffer_append(out, value.text, value.length);
}

static bool add_space(
    struct kvr_sim_spaces *spaces, const struct kvr_line *line, uint64_t fold, uint64_t *number)
{
    bool inserted;
    uint64_t *slot = kvr_u64_map_insert(&spaces->by_fold, fold, &inserted);

    if (!slot)
        return false;
    if (inserted) {
        struct kvr_buffer *members =
            kvr_grow(spaces->members, &spaces->members_size, spaces->count + 1, sizeof *members);
        spaces->members = members ? members : spaces->members;
        uint64_t *folds =
            kvr_grow(spaces->folds, &spaces->folds_size, spaces->count + 1, sizeof *folds);
        spaces->folds = folds ? folds : spaces->folds;
        if (!members || !folds)
            return false;
        members[spaces->count] = (struct kvr_buffer){0};
        add_raw(&members[spaces->count], line, KVR_NAME_MODEL);
        add_raw(&members[spaces->count], line, KVR_NAME_LORA);
        add_raw(&members[spaces->count], line, KVR_NAME_SALT);
        folds[spaces->count] = fold;
        *slot = spaces->count++;
    }
    *number = *slot;
    return true;
}

void kvr_sim_spaces_note(
    struct kvr_sim_spaces *spaces, const struct kvr_line *line, const struct kvr_sim_item *item)
{
    const struct kvr_sim_request *request = &item->request;
    uint64_t number;

    if (!item->fold)
        return;
    spaces->failed |= !add_space(spaces, line, item->fold, &number);
    for (size_t i = 0; !spaces->failed && i < request->id_count + request->output_id_count; i++) {
        uint64_t id =
            i < request->id_count ? request->ids[i] : request->output_ids[i - request->id_count];
        uint64_t *slot = kvr_u64_map_insert(&spaces->by_id, id, NULL);
        if (slot)
            *slot = number + 1;
        spaces->failed |= !slot;
    }
}

/* 0: none; else one more than its number. */
static uint64_t space_of(const struct kvr_sim_spaces *spaces, uint64_t id)
{
    const uint64_t *number = spaces->by_id.length ? kvr_u64_map_find(&spaces->by_id, id) : NULL;

    return number ? *number : 0;
}

static void write_blocks(const struct kvr_sim *sim, const struct kvr_sim_spaces *spaces,
    uint64_t space, uint32_t worker, enum kvr_medium medium, const uint64_t *ids, size_t count,
    struct kvr_buffer *out)
{
    uint64_t fold = space ? spaces->folds[space - 1] : 0;

    kvr_line_add(out, "worker");
    write_name(sim, worker, out);
    kvr_line_add(out, "medium");
    kvr_buffer_append_format(out, "\"%s\"", kvr_medium_name(medium));
    add_u64(out, "block_size", kvr_sim_worker_block_tokens(sim, worker));
    if (space)
        kvr_buffer_append(out, spaces->members[space - 1].data, spaces->members[space - 1].length);
    kvr_line_add(out, "hash_ids");
    kvr_buffer_append_byte(out, '[');
    for (size_t i = 0; i < count; i++) {
        if (i)
            kvr_buffer_append_byte(out, ',');
        kvr_buffer_append_u64(out, ids[i] ^ fold);
    }
    kvr_buffer_append_byte(out, ']');
}

void kvr_sim_tell_stored(const struct kvr_sim *sim, const struct kvr_sim_spaces *spaces,
    uint32_t worker, enum kvr_medium medium, double now_ms, const uint64_t *parent,
    const uint64_t *ids, size_t count, struct kvr_buffer *out)
{
    uint64_t space = count ? space_of(spaces, ids[0]) : 0;

    kvr_buffer_clear(out);
    begin(out, "stored", now_ms);
    write_blocks(sim, spaces, space, worker, medium, ids, count, out);
    if (parent)
        add_u64(out, "parent", *parent ^ (space ? spaces->folds[space - 1] : 0));
    kvr_buffer_append_byte(out, '}');
}

void kvr_sim_tell_removed(const struct kvr_sim *sim, const struct kvr_sim_spaces *spaces,
    uint32_t worker, enum kvr_medium medium, double now_ms, const uint64_t *ids, size_t count,
    struct kvr_buffer *out)
{
    kvr_buffer_clear(out);
    for (size_t from = 0, to; from < count; from = to) {
        uint64_t space = space_of(spaces, ids[from]);
        for (to = from + 1; to < count && space_of(spaces, ids[to]) == space; to++)
            ;
        if (from)
            kvr_buffer_append_byte(out, '\n');
        begin(out, "removed", now_ms);
        write_blocks(sim, spaces, space, worker, medium, ids + from, to - from, out);
        kvr_buffer_append_byte(out, '}');
    }
}

void kvr_sim_tell_cleared(const struct kvr_sim *sim, uint32_t worker, enum kvr_medium medium,
    double now_ms, struct kvr_buffer *out)
{
    kvr_buffer_clear(out);
    begin(out, "cleared", now_ms);
    kvr_line_add(out, "worker");
    write_name(sim, worker, out);
    kvr_line_add(out, "medium");
    kvr_buffer_append_format(out, "\"%s\"", kvr_medium_name(medium));
    kvr_buffer_append_byte(out, '}');
}
