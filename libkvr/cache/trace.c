#include "cache/trace.h"

#include "base/grow.h"
#include "cache/block_cache_internal.h"

void kvr_trace_release(struct kvr_trace *trace)
{
    free(trace->ids);
    free(trace->requests);
    free(trace->future);
    kvr_regrouped_release(&trace->regrouped);
    memset(trace, 0, sizeof *trace);
}

enum kvr_status kvr_trace_add(
    struct kvr_trace *trace, const struct kvr_request_view *view, struct kvr_error *error)
{
    const struct kvr_cache_request *request = &view->request;

    if (request->block_tokens != trace->block_tokens) {
        enum kvr_status status =
            kvr_regroup(&trace->regrouped, request, trace->block_tokens, error);
        if (status != KVR_OK)
            return status;
        request = &trace->regrouped.request;
    }
    if (request->id_count > UINT32_MAX)
        return kvr_error_set(error, KVR_BAD_INPUT, "a request of 2^32 blocks or more");
    uint64_t *ids =
        kvr_grow(trace->ids, &trace->id_size, trace->id_count + request->id_count + 1, sizeof *ids);
    if (!ids)
        return kvr_error_memory(error);
    trace->ids = ids;
    struct kvr_trace_request *requests =
        kvr_grow(trace->requests, &trace->request_size, trace->request_count + 1, sizeof *requests);
    if (!requests)
        return kvr_error_memory(error);
    trace->requests = requests;
    if (request->id_count)
        memcpy(ids + trace->id_count, request->ids, request->id_count * sizeof *ids);
    requests[trace->request_count++] = (struct kvr_trace_request){
        .first = trace->id_count,
        .count = (uint32_t)request->id_count,
        .tenant = view->tags.tenant,
        .input_tokens = request->input_tokens,
        .identity = view->tags.identity,
        .session = view->tags.session,
        .time_ms = request->time_ms,
    };
    trace->id_count += request->id_count;
    return KVR_OK;
}

enum kvr_status kvr_trace_look_ahead(struct kvr_trace *trace, struct kvr_error *error)
{
    if (trace->future)
        return KVR_OK;
    trace->future = malloc((trace->id_count + 1) * sizeof *trace->future);
    if (!trace->future)
        return kvr_error_memory(error);
    return kvr_future_compute(trace->ids, trace->id_count, trace->future, error);
}

enum kvr_status kvr_trace_load(
    struct kvr_trace *trace, const char *file, uint32_t block_tokens, struct kvr_error *error)
{
    struct kvr_source_options options = {.files = &file, .file_count = 1};
    struct kvr_request_reader reader = {.block_tokens = block_tokens, .wants_session = true};
    struct kvr_source_line text;
    struct kvr_line line;
    struct kvr_source *source = NULL;
    struct kvr_request_view view;
    enum kvr_status status = kvr_line_init(&line, error);

    memset(trace, 0, sizeof *trace);
    trace->block_tokens = block_tokens;
    if (status == KVR_OK)
        status = kvr_source_create(&source, &options, error);
    while (status == KVR_OK && (status = kvr_source_next(source, &text, error)) == KVR_OK) {
        status = kvr_line_parse(&line, &text, error);
        if (status == KVR_OK && kvr_line_is_event(&line))
            continue;
        if (status == KVR_OK)
            status = kvr_request_read(&reader, &line, &view, error);
        if (status == KVR_OK)
            status = kvr_trace_add(trace, &view, error);
    }
    kvr_source_destroy(source);
    kvr_line_release(&line);
    kvr_request_reader_release(&reader);
    return status == KVR_END ? KVR_OK : status;
}

enum kvr_status kvr_trace_serve(const struct kvr_trace *trace, size_t number,
    struct kvr_cache *base, uint64_t *hit_blocks, uint64_t *hit_tokens, struct kvr_error *error)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;
    const struct kvr_trace_request *request = &trace->requests[number];

    cache->tags = (struct kvr_block_tags){request->identity, request->session, request->tenant};
    if (request->time_ms > cache->store.now_ms)
        cache->store.now_ms = request->time_ms;
    return kvr_block_cache_serve(base, trace->ids + request->first, request->count,
        request->input_tokens, hit_blocks, hit_tokens, error);
}

enum kvr_status kvr_trace_replay(const struct kvr_trace *trace, struct kvr_cache *cache,
    size_t from, size_t to, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    for (size_t i = from; i < to && status == KVR_OK; i++)
        status = kvr_trace_serve(trace, i, cache, NULL, NULL, error);
    return status;
}
