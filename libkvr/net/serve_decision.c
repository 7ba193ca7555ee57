/*
 * Decisions that come from a pipeline. Between question and answer a request stands in
 * serve->deciding under its number: a pointer to its call or, where the answer was late and the
 * request has gone on, the number of the worker it went to, shifted, with the lowest bit set.
 */
#include "net/serve_private.h"

#include <stdio.h>
#include <stdlib.h>

enum { LATE_MOST = 65536 };

/* A pipeline may drop lines that it cannot read: what waits for them is given up, all at once and
 * rarely. */
static void forget_late(struct kvr_serve *serve)
{
    struct kvr_u64_map kept = {0};
    bool inserted;

    for (size_t i = 0; serve->deciding.slots && i <= serve->deciding.mask; i++) {
        if (!serve->deciding.used[i] || serve->deciding.slots[i].value & 1)
            continue;
        uint64_t *slot = kvr_u64_map_insert(&kept, serve->deciding.slots[i].key, &inserted);
        if (!slot) { /* no memory: later, then */
            kvr_u64_map_release(&kept);
            return;
        }
        *slot = serve->deciding.slots[i].value;
    }
    kvr_u64_map_release(&serve->deciding);
    serve->deciding = kept;
    serve->late_count = 0;
}

void serve_expect_late(
    struct kvr_serve *serve, uint64_t number, const struct kvr_upstream_worker *backend)
{
    uint64_t *slot = kvr_u64_map_find(&serve->deciding, number);

    if (!slot)
        return;
    *slot = (uint64_t)backend->number << 1 | 1;
    if (++serve->late_count > LATE_MOST)
        forget_late(serve);
}

/* The number in an id of ours. */
static bool read_number(const struct kvr_serve *serve, struct kvr_value id, uint64_t *number)
{
    size_t boot = strlen(serve->boot);
    char digits[24], *end;

    if (id.type != KVR_STRING || id.length < boot + 3 || id.length - boot - 2 >= sizeof digits ||
        memcmp(id.text + 1, serve->boot, boot) != 0)
        return false;
    snprintf(digits, sizeof digits, "%.*s", (int)(id.length - boot - 2), id.text + 1 + boot);
    *number = strtoull(digits, &end, 10);
    return *end == '\0';
}

static void take_text(struct kvr_value value, char *to, size_t size)
{
    struct kvr_buffer text = {0};

    to[0] = '\0';
    if (kvr_value_string(value, &text) && text.length < size)
        snprintf(to, size, "%.*s", (int)text.length, text.data ? text.data : "");
    kvr_buffer_release(&text);
}

static void read_verdict(
    const struct kvr_line *line, struct kvr_value route, struct kvr_decide_verdict *verdict)
{
    *verdict = (struct kvr_decide_verdict){0};
    take_text(kvr_value_get(route, "worker"), verdict->worker, sizeof verdict->worker);
    take_text(kvr_value_get(route, "reason"), verdict->reason, sizeof verdict->reason);
    verdict->rejected = strcmp(verdict->reason, "rejected") == 0;
    kvr_value_u64(kvr_value_get(route, "matched"), &verdict->matched);
    kvr_value_u64(kvr_line_get(line, KVR_NAME_INPUT_LENGTH), &verdict->input_tokens);
    if (!kvr_value_double(kvr_value_get(route, "retry_after_ms"), &verdict->retry_after_ms))
        verdict->retry_after_ms = 0;
}

/* The answer for a request that has gone on without it. */
static void loop_late(struct kvr_serve *serve, uint32_t number)
{
    static const enum kvr_name dropped[] = {
        KVR_NAME_MESSAGES, KVR_NAME_TOOLS, KVR_NAME_PROMPT, KVR_NAME_TOKEN_IDS, KVR_NAME_ROUTE};
    struct kvr_buffer *out = &serve->done;

    kvr_buffer_clear(out);
    kvr_line_begin(&serve->line, out, dropped, 5);
    kvr_line_add(out, "route");
    kvr_buffer_append_text(out, "{\"worker\":");
    const char *name = serve->upstream.backends[number]->name;
    kvr_json_write_string(out, name, strlen(name));
    kvr_buffer_append_text(out, "}}");
    if (!out->failed)
        kvr_pipe_loop(serve->pipeline, out->data, out->length);
}

static bool answered(void *context, const char *text, size_t length)
{
    static const enum kvr_name dropped[] = {
        KVR_NAME_MESSAGES, KVR_NAME_TOOLS, KVR_NAME_PROMPT, KVR_NAME_TOKEN_IDS};
    struct kvr_serve *serve = context;
    struct kvr_source_line source = {.text = text, .length = length};
    struct kvr_decide_verdict verdict;
    struct kvr_error ignored;
    uint64_t number, value;

    if (kvr_line_parse(&serve->line, &source, &ignored) != KVR_OK)
        return false;
    if (kvr_line_is_event(&serve->line))
        return true;
    struct kvr_value route = kvr_line_get(&serve->line, KVR_NAME_ROUTE);
    if (route.type != KVR_OBJECT ||
        !read_number(serve, kvr_line_get(&serve->line, KVR_NAME_ID), &number))
        return false;
    if (!kvr_u64_map_remove(&serve->deciding, number, &value))
        return true; /* its client has gone */
    if (value & 1) {
        serve->late_count--;
        loop_late(serve, (uint32_t)(value >> 1));
        return true;
    }
    struct call *call = (struct call *)(uintptr_t)value;
    read_verdict(&serve->line, route, &verdict);
    kvr_line_begin(&serve->line, &call->line, dropped, 4);
    call_decided(call, &verdict);
    return true;
}

static void begun(void *context)
{
    fleet_tell_all(context);
}

/* Whatever waits for a decision goes on without. */
static void ended(void *context, const char *why)
{
    struct kvr_serve *serve = context;
    struct kvr_u64_map waiting = serve->deciding;

    serve_say(serve, true,
        "the pipeline %s; requests go to the least loaded worker until it is back", why);
    serve->deciding = (struct kvr_u64_map){0};
    serve->late_count = 0;
    for (size_t i = 0; waiting.slots && i <= waiting.mask; i++)
        if (waiting.used[i] && !(waiting.slots[i].value & 1))
            call_fallback((struct call *)(uintptr_t)waiting.slots[i].value);
    kvr_u64_map_release(&waiting);
}

static void refused(void *context, int exit_status)
{
    struct kvr_serve *serve = context;

    kvr_error_set(&serve->failure, KVR_BAD_USAGE, "the pipeline cannot be run (exit status %d): %s",
        exit_status, serve->options.command);
}

enum kvr_status serve_begin_pipeline(struct kvr_serve *serve, struct kvr_error *error)
{
    struct kvr_pipe_options options = {.command = serve->options.command,
        .begun = begun,
        .answered = answered,
        .ended = ended,
        .refused = refused,
        .context = serve};

    return kvr_pipe_create(&serve->pipeline, &serve->reactor, &options, error);
}
