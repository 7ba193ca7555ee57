#include "cache/match.h"

#include "base/clock.h"
#include "base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NOT_LISTED 0u

struct kvr_matcher {
    struct kvr_match_options options;
    struct kvr_index *index;
    uint32_t any; /* the one mirror of options.any */
    uint64_t learned;
    uint64_t *ids;
    size_t id_room;
    struct kvr_index_match *sorted; /* for options.top */
    size_t sorted_room;
    struct kvr_buffer scratch, model, lora, salt;
    struct kvr_stream_clock clock;
    bool has_time;    /* a line had one */
    uint32_t *listed; /* by worker: the last kvr_matcher_workers() that named it */
    size_t listed_room;
    uint32_t listing;
};

/* ---- options ---- */

static enum kvr_status capacity_of(const struct kvr_matcher *matcher,
    const struct kvr_capacity *capacity, uint64_t *tokens, uint64_t *blocks,
    struct kvr_error *error)
{
    double bytes = matcher->options.kv_bytes_per_token;

    *tokens = *blocks = KVR_INDEX_UNBOUNDED;
    if (!capacity->amount)
        return KVR_OK;
    if (capacity->unit == KVR_BLOCKS)
        *blocks = capacity->amount;
    else if (capacity->unit == KVR_TOKENS)
        *tokens = capacity->amount;
    else
        return kvr_capacity_blocks(capacity, 1, bytes, tokens, error);
    return KVR_OK;
}

static enum kvr_status add_any(struct kvr_matcher *matcher, struct kvr_error *error)
{
    return kvr_index_worker(matcher->index, "any", 3, &matcher->any, error);
}

enum kvr_status kvr_matcher_create(
    struct kvr_matcher **matcher, const struct kvr_match_options *options, struct kvr_error *error)
{
    struct kvr_index_options index = KVR_INDEX_DEFAULTS;
    enum kvr_status status;

    *matcher = calloc(1, sizeof **matcher);
    if (!*matcher)
        return kvr_error_memory(error);
    (*matcher)->options = *options;
    index.ttl_ms = options->ttl_ms;
    /* Ids may come from strangers. Without a secret the hash still works, as it does in tests. */
    if (getrandom(&index.seed, sizeof index.seed, GRND_NONBLOCK) != sizeof index.seed)
        index.seed = 0;
    if (options->max_memory_bytes)
        index.max_memory_bytes = options->max_memory_bytes;
    status = capacity_of(
        *matcher, &options->capacity, &index.capacity_tokens, &index.capacity_blocks, error);
    if (status == KVR_OK && options->any && options->capacity.amount)
        status = kvr_error_set(error, KVR_BAD_USAGE,
            "what was seen anywhere has no capacity (--max-memory bounds it)");
    if (status == KVR_OK)
        status = kvr_index_create(&(*matcher)->index, &index, error);
    if (status == KVR_OK && options->any)
        status = add_any(*matcher, error);
    if (status != KVR_OK) {
        kvr_matcher_destroy(*matcher);
        *matcher = NULL;
    }
    return status;
}

void kvr_matcher_destroy(struct kvr_matcher *matcher)
{
    if (!matcher)
        return;
    kvr_index_destroy(matcher->index);
    free(matcher->ids);
    free(matcher->sorted);
    free(matcher->listed);
    kvr_buffer_release(&matcher->scratch);
    kvr_buffer_release(&matcher->model);
    kvr_buffer_release(&matcher->lora);
    kvr_buffer_release(&matcher->salt);
    free(matcher);
}

struct kvr_index *kvr_matcher_index(struct kvr_matcher *matcher)
{
    return matcher->index;
}

/* The index holds the workers of a fleet, which --against any has none of. */
static bool has_a_fleet(const struct kvr_matcher *matcher)
{
    for (uint32_t i = 0; i < kvr_index_worker_limit(matcher->index); i++) {
        const char *name = kvr_index_worker_name(matcher->index, i);
        if (name && strcmp(name, "any") != 0)
            return true;
    }
    return false;
}

enum kvr_status kvr_matcher_loaded(struct kvr_matcher *matcher, struct kvr_error *error)
{
    uint64_t tokens, blocks;
    int64_t now_ms;

    if (matcher->options.any && has_a_fleet(matcher)) {
        for (uint32_t i = 0; i < kvr_index_worker_limit(matcher->index); i++)
            if (kvr_index_worker_name(matcher->index, i))
                kvr_index_worker_remove(matcher->index, i);
        add_any(matcher, NULL);
        return kvr_error_set(error, KVR_BAD_INPUT, "the state is of a fleet, not of --against any");
    }
    if (kvr_index_now(matcher->index, &now_ms))
        matcher->clock = (struct kvr_stream_clock){.now_ms = (double)now_ms, .started = true};
    matcher->learned = kvr_index_pairs(matcher->index);
    if (matcher->options.any)
        return add_any(matcher, error);
    if (!matcher->options.capacity.amount ||
        capacity_of(matcher, &matcher->options.capacity, &tokens, &blocks, NULL) != KVR_OK)
        return KVR_OK;
    for (uint32_t i = 0; i < kvr_index_worker_limit(matcher->index); i++)
        if (kvr_index_worker_name(matcher->index, i))
            kvr_index_worker_capacity(matcher->index, i, tokens, blocks);
    return KVR_OK;
}

uint64_t kvr_matcher_learned(const struct kvr_matcher *matcher)
{
    return matcher->learned;
}

/* ---- reading members ---- */

/* The text of an optional string member; empty where it is missing. */
static enum kvr_status read_text(const struct kvr_line *line, enum kvr_name name,
    struct kvr_buffer *scratch, struct kvr_text *text, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, name);

    *text = (struct kvr_text){NULL, 0};
    if (kvr_value_missing(value) || kvr_value_text(value, scratch, text))
        return KVR_OK;
    return kvr_line_wrong_type(kvr_name_text(name), "a string", error);
}

/* Block size, namespace and ids of a request or event line. */
static enum kvr_status read_blocks(struct kvr_matcher *matcher, const struct kvr_line *line,
    struct kvr_blocks *blocks, bool *has_blocks, struct kvr_error *error)
{
    struct kvr_value ids = kvr_line_get(line, KVR_NAME_HASH_IDS);
    struct kvr_value size = kvr_line_get(line, KVR_NAME_BLOCK_SIZE);
    uint64_t block_size = matcher->options.block_size, *grown;
    struct kvr_text model, lora, salt;
    enum kvr_status status;
    ptrdiff_t count;

    *blocks = (struct kvr_blocks){0};
    *has_blocks = !kvr_value_missing(ids);
    if (!kvr_value_missing(size) &&
        (!kvr_value_u64(size, &block_size) || !block_size || block_size > UINT32_MAX))
        return kvr_line_wrong_type("block_size", "a whole number above 0", error);
    if (!*has_blocks)
        return KVR_OK;
    status = read_text(line, KVR_NAME_MODEL, &matcher->model, &model, error);
    if (status == KVR_OK)
        status = read_text(line, KVR_NAME_LORA, &matcher->lora, &lora, error);
    if (status == KVR_OK)
        status = read_text(line, KVR_NAME_SALT, &matcher->salt, &salt, error);
    if (status != KVR_OK)
        return status;
    grown = kvr_grow(matcher->ids, &matcher->id_room, kvr_value_u64s_room(ids), sizeof *grown);
    if (!grown)
        return kvr_error_memory(error);
    matcher->ids = grown;
    count = kvr_value_u64s(ids, grown);
    if (count < 0 || count > UINT32_MAX)
        return kvr_line_wrong_type("hash_ids", "an array of whole numbers", error);
    blocks->ids = grown;
    blocks->count = (size_t)count;
    blocks->block_size = (uint32_t)block_size;
    blocks->space = kvr_index_space(matcher->index, model.text, model.length, lora.text,
        lora.length, salt.text, salt.length, blocks->block_size);
    return KVR_OK;
}

/* Only a time to live looks at time. A line without a timestamp comes at the time of the last one
 * that had one; where none ever has, time is the machine's. */
static enum kvr_status read_time(struct kvr_matcher *matcher, const struct kvr_line *line,
    int64_t *time_ms, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, KVR_NAME_TIMESTAMP);
    double number;

    *time_ms = 0;
    if (!matcher->options.ttl_ms)
        return KVR_OK;
    if (!kvr_value_missing(value)) {
        if (!kvr_value_double(value, &number))
            return kvr_line_wrong_type("timestamp", "a number", error);
        matcher->has_time = true;
        kvr_stream_clock_follow(&matcher->clock, number);
    } else if (!matcher->has_time) {
        kvr_stream_clock_follow(&matcher->clock, kvr_clock_ms());
    }
    /* far from the ends of int64_t: a clock takes no leaps, and few steps of centuries */
    *time_ms = (int64_t)floor(fmin(matcher->clock.now_ms, 4e18));
    return KVR_OK;
}

enum kvr_status kvr_match_read(struct kvr_matcher *matcher, const struct kvr_line *line,
    struct kvr_match_request *request, struct kvr_error *error)
{
    struct kvr_value route = kvr_line_get(line, KVR_NAME_ROUTE);
    struct kvr_value input = kvr_line_get(line, KVR_NAME_INPUT_LENGTH);
    struct kvr_value worker;
    enum kvr_status status;

    memset(request, 0, sizeof *request);
    request->input_tokens = UINT64_MAX;
    if (!kvr_value_missing(input) && !kvr_value_u64(input, &request->input_tokens))
        return kvr_line_wrong_type("input_length", "a whole number", error);
    status = read_time(matcher, line, &request->time_ms, error);
    if (status != KVR_OK)
        return status;
    if (!kvr_value_missing(route)) {
        if (route.type != KVR_OBJECT)
            return kvr_line_wrong_type("route", "an object", error);
        worker = kvr_value_get(route, "worker");
        request->routed = worker.type != KVR_ABSENT;
        if (!kvr_value_missing(worker))
            status =
                kvr_worker_name(worker, "route.worker", &matcher->scratch, &request->worker, error);
        if (status != KVR_OK)
            return status;
    }
    return read_blocks(matcher, line, &request->blocks, &request->has_blocks, error);
}

/* ---- writing ---- */

static uint64_t tokens_of(const struct kvr_match_request *request, uint64_t blocks)
{
    uint64_t tokens = blocks * request->blocks.block_size;
    return tokens < request->input_tokens ? tokens : request->input_tokens;
}

static int longest_first(const void *a, const void *b)
{
    const struct kvr_index_match *left = a, *right = b;

    if (left->blocks != right->blocks)
        return left->blocks > right->blocks ? -1 : 1;
    return left->worker < right->worker ? -1 : left->worker > right->worker;
}

static void keep_top(
    struct kvr_matcher *matcher, const struct kvr_index_match **matches, size_t *count)
{
    struct kvr_index_match *grown =
        kvr_grow(matcher->sorted, &matcher->sorted_room, *count, sizeof *grown);

    if (!grown)
        return; /* too many, rather than none */
    matcher->sorted = grown;
    memcpy(grown, *matches, *count * sizeof *grown);
    qsort(grown, *count, sizeof *grown, longest_first);
    *matches = grown;
    if (*count > matcher->options.top)
        *count = matcher->options.top;
}

static void write_tiers(struct kvr_matcher *matcher, const struct kvr_match_request *request,
    const struct kvr_index_match *match, struct kvr_buffer *out)
{
    uint64_t tiers[KVR_MEDIUM_COUNT];
    char separator = '{';

    kvr_index_tiers(
        matcher->index, match->worker, &request->blocks, tokens_of(request, match->blocks), tiers);
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++) {
        if (!tiers[medium])
            continue;
        kvr_buffer_append_byte(out, separator);
        kvr_json_write_string(out, kvr_medium_name(medium), strlen(kvr_medium_name(medium)));
        kvr_buffer_append_byte(out, ':');
        kvr_buffer_append_u64(out, tiers[medium]);
        separator = ',';
    }
    kvr_buffer_append_text(out, separator == '{' ? "{}" : "}");
}

/* One object over the matches: with tiers false the tokens of each, else its tiers. */
static void write_object(struct kvr_matcher *matcher, const struct kvr_match_request *request,
    const struct kvr_index_match *matches, size_t count, bool tiers, struct kvr_buffer *out)
{
    char separator = '{';

    for (size_t i = 0; i < count; i++) {
        uint64_t tokens = tokens_of(request, matches[i].blocks);
        const char *name = kvr_index_worker_name(matcher->index, matches[i].worker);
        if (!tokens || tokens < matcher->options.min_tokens)
            continue;
        kvr_buffer_append_byte(out, separator);
        kvr_json_write_string(out, name, strlen(name));
        kvr_buffer_append_byte(out, ':');
        if (tiers)
            write_tiers(matcher, request, &matches[i], out);
        else
            kvr_buffer_append_u64(out, tokens);
        separator = ',';
    }
    kvr_buffer_append_text(out, separator == '{' ? "{}" : "}");
}

void kvr_match_write(
    struct kvr_matcher *matcher, const struct kvr_match_request *request, struct kvr_buffer *out)
{
    const struct kvr_index_match *matches;
    size_t count = kvr_index_find(matcher->index, request->time_ms, &request->blocks, &matches);

    if (matcher->options.top && count)
        keep_top(matcher, &matches, &count);
    write_object(matcher, request, matches, count, false, out);
    if (matcher->options.tiers) {
        kvr_line_add(out, "tiers");
        write_object(matcher, request, matches, count, true, out);
    }
}

/* ---- learning ---- */

enum kvr_status kvr_match_learn(
    struct kvr_matcher *matcher, const struct kvr_match_request *request, struct kvr_error *error)
{
    uint32_t worker = matcher->any;
    enum kvr_status status = KVR_OK;

    if (!matcher->options.any) {
        if (!request->worker.length)
            return KVR_OK;
        status = kvr_index_worker(
            matcher->index, request->worker.text, request->worker.length, &worker, error);
    }
    if (status != KVR_OK)
        return status;
    matcher->learned++;
    return kvr_index_place(matcher->index, worker, request->time_ms, &request->blocks, NULL, error);
}

/* ---- workers ---- */

static enum kvr_status set_worker(struct kvr_matcher *matcher,
    const struct kvr_worker_description *description, uint32_t *worker, struct kvr_error *error)
{
    uint64_t tokens, blocks;
    enum kvr_status status = kvr_index_worker(
        matcher->index, description->name.text, description->name.length, worker, error);

    if (status != KVR_OK || !description->capacity.amount)
        return status;
    status = capacity_of(matcher, &description->capacity, &tokens, &blocks, error);
    if (status == KVR_OK)
        kvr_index_worker_capacity(matcher->index, *worker, tokens, blocks);
    return status;
}

static void remove_worker(struct kvr_matcher *matcher, uint32_t worker)
{
    kvr_index_worker_remove(matcher->index, worker);
    if (worker < matcher->listed_room)
        matcher->listed[worker] = NOT_LISTED;
}

static enum kvr_status worker_event(
    struct kvr_matcher *matcher, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_worker_description description;
    uint32_t worker;
    enum kvr_status status = kvr_worker_read(line, &matcher->scratch, &description, error);

    if (status != KVR_OK)
        return status;
    if (description.state != KVR_WORKER_DOWN)
        return set_worker(matcher, &description, &worker, error);
    worker =
        kvr_index_worker_lookup(matcher->index, description.name.text, description.name.length);
    if (worker != UINT32_MAX)
        remove_worker(matcher, worker);
    return KVR_OK;
}

static enum kvr_status medium_of(
    const struct kvr_line *line, enum kvr_medium *medium, bool *given, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, KVR_NAME_MEDIUM);

    *given = !kvr_value_missing(value);
    *medium = KVR_MEDIUM_GPU;
    if (!*given)
        return KVR_OK;
    for (int i = 0; i < KVR_MEDIUM_COUNT; i++) {
        if (kvr_value_is(value, kvr_medium_name(i))) {
            *medium = (enum kvr_medium)i;
            return KVR_OK;
        }
    }
    return kvr_line_wrong_type("medium", "gpu, cpu, disk or remote", error);
}

static enum kvr_status cache_event(struct kvr_matcher *matcher, const struct kvr_line *line,
    bool stored, bool removed, struct kvr_error *error)
{
    struct kvr_text name;
    struct kvr_blocks blocks;
    enum kvr_medium medium;
    bool has_blocks, has_medium;
    uint32_t worker;
    enum kvr_status status;

    status = kvr_worker_name(
        kvr_line_get(line, KVR_NAME_WORKER), "worker", &matcher->scratch, &name, error);
    if (status == KVR_OK)
        status = kvr_index_worker(matcher->index, name.text, name.length, &worker, error);
    if (status == KVR_OK)
        status = medium_of(line, &medium, &has_medium, error);
    if (status == KVR_OK && !stored && !removed) {
        if (has_medium)
            kvr_index_cleared(matcher->index, worker, medium);
        else
            kvr_index_worker_clear(matcher->index, worker);
        return KVR_OK;
    }
    if (status == KVR_OK)
        status = read_blocks(matcher, line, &blocks, &has_blocks, error);
    if (status != KVR_OK)
        return status;
    if (!has_blocks)
        return kvr_line_wrong_type("hash_ids", "there", error);
    if (removed)
        return kvr_index_removed(matcher->index, worker, medium, &blocks, error);
    matcher->learned++;
    return kvr_index_stored(matcher->index, worker, medium, &blocks, error);
}

enum kvr_status kvr_match_event(
    struct kvr_matcher *matcher, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_value event = kvr_line_get(line, KVR_NAME_EVENT);
    bool stored, removed;

    if (matcher->options.any)
        return KVR_OK;
    if (kvr_value_is(event, "worker"))
        return worker_event(matcher, line, error);
    stored = kvr_value_is(event, "stored");
    removed = kvr_value_is(event, "removed");
    if (!stored && !removed && !kvr_value_is(event, "cleared"))
        return KVR_OK;
    return cache_event(matcher, line, stored, removed, error);
}

/* ---- -w ---- */

struct listing {
    struct kvr_matcher *matcher;
    struct kvr_buffer *out;
};

static void write_capacity(
    const struct kvr_matcher *matcher, const struct kvr_capacity *capacity, struct kvr_buffer *out)
{
    uint64_t tokens, blocks;

    if (!capacity->amount || capacity_of(matcher, capacity, &tokens, &blocks, NULL) != KVR_OK)
        return;
    kvr_line_add(out, "capacity");
    if (capacity->unit == KVR_BLOCKS)
        kvr_buffer_append_format(out, "\"%llub\"", (unsigned long long)blocks);
    else
        kvr_buffer_append_u64(out, tokens);
}

static void write_worker(const struct kvr_matcher *matcher,
    const struct kvr_worker_description *worker, struct kvr_buffer *out)
{
    static const char *const states[] = {"active", "draining", "down"};
    static const char *const roles[] = {"both", "prefill", "decode"};

    kvr_buffer_append_text(out, "{\"event\":\"worker\",\"worker\":");
    kvr_json_write_string(out, worker->name.text, worker->name.length);
    kvr_buffer_append_format(out, ",\"state\":\"%s\"", states[worker->state]);
    if (worker->url.length) {
        kvr_line_add(out, "url");
        kvr_json_write_string(out, worker->url.text, worker->url.length);
    }
    if (worker->role != KVR_ROLE_BOTH)
        kvr_buffer_append_format(out, ",\"role\":\"%s\"", roles[worker->role]);
    if (worker->state != KVR_WORKER_DOWN)
        write_capacity(
            matcher, worker->capacity.amount ? &worker->capacity : &matcher->options.capacity, out);
    if (worker->weight != 1 && worker->weight > 0) {
        kvr_line_add(out, "weight");
        kvr_json_write_double(out, worker->weight);
    }
    if (worker->block_size) {
        kvr_line_add(out, "block_size");
        kvr_buffer_append_u64(out, worker->block_size);
    }
    kvr_buffer_append_text(out, "}\n");
}

static enum kvr_status list_worker(
    void *context, const struct kvr_worker_description *description, struct kvr_error *error)
{
    struct listing *listing = context;
    struct kvr_matcher *matcher = listing->matcher;
    uint32_t worker;
    size_t old = matcher->listed_room;
    enum kvr_status status = KVR_OK;

    if (description->state != KVR_WORKER_DOWN) {
        status = set_worker(matcher, description, &worker, error);
        if (status != KVR_OK)
            return status;
        uint32_t *grown =
            kvr_grow(matcher->listed, &matcher->listed_room, (size_t)worker + 1, sizeof *grown);
        if (!grown)
            return kvr_error_memory(error);
        matcher->listed = grown;
        if (matcher->listed_room > old)
            memset(grown + old, 0, (matcher->listed_room - old) * sizeof *grown);
        grown[worker] = matcher->listing;
    }
    if (listing->out)
        write_worker(matcher, description, listing->out);
    return KVR_OK;
}

enum kvr_status kvr_matcher_workers(struct kvr_matcher *matcher, const char *argument,
    struct kvr_buffer *out, struct kvr_error *error)
{
    struct listing listing = {matcher, out};
    enum kvr_status status;

    matcher->listing++;
    status = kvr_workers_each(argument, list_worker, &listing, error);
    if (status != KVR_OK)
        return status; /* a list that cannot be read removes nobody */
    for (uint32_t i = 0; i < matcher->listed_room; i++) {
        const char *name = kvr_index_worker_name(matcher->index, i);
        if (matcher->listed[i] == NOT_LISTED || matcher->listed[i] == matcher->listing || !name)
            continue;
        if (out) {
            struct kvr_worker_description gone = {
                .name = {name, strlen(name)}, .state = KVR_WORKER_DOWN, .weight = 1};
            write_worker(matcher, &gone, out);
        }
        remove_worker(matcher, i);
    }
    return KVR_OK;
}
