#include "net/answer.h"

#include <math.h>

enum { BODY_LIMIT = 64 << 20 };

enum kvr_status kvr_answer_init(struct kvr_answer *answer, struct kvr_error *error)
{
    *answer = (struct kvr_answer){.structure = kvr_structure_create()};
    kvr_sse_init(&answer->sse, BODY_LIMIT);
    kvr_answer_begin(answer, false);
    return answer->structure ? KVR_OK : kvr_error_memory(error);
}

void kvr_answer_release(struct kvr_answer *answer)
{
    kvr_sse_release(&answer->sse);
    kvr_buffer_release(&answer->body);
    kvr_buffer_release(&answer->intervals);
    kvr_members_release(&answer->members);
    kvr_structure_destroy(answer->structure);
    answer->structure = NULL;
}

void kvr_answer_begin(struct kvr_answer *answer, bool stream)
{
    answer->first_ms = answer->last_ms = answer->longest_gap_ms = NAN;
    answer->prompt_tokens = answer->output_tokens = answer->cached_tokens = -1;
    answer->chunks = 0;
    answer->ended = answer->failed = false;
    answer->stream = stream;
    kvr_sse_reset(&answer->sse);
    kvr_buffer_clear(&answer->body);
    kvr_buffer_clear(&answer->intervals);
}

static void note_count(struct kvr_value value, int64_t *count)
{
    int64_t number;

    if (kvr_value_i64(value, &number) && number >= 0)
        *count = number;
}

/* usage as OpenAI's two interfaces write it, meta_info as SGLang does, timings as llama.cpp. */
static void read_usage(struct kvr_answer *answer, struct kvr_value object)
{
    struct kvr_value usage = kvr_value_get(object, "usage");
    struct kvr_value meta = kvr_value_get(object, "meta_info");

    if (meta.type == KVR_OBJECT) {
        note_count(kvr_value_get(meta, "prompt_tokens"), &answer->prompt_tokens);
        note_count(kvr_value_get(meta, "completion_tokens"), &answer->output_tokens);
        note_count(kvr_value_get(meta, "cached_tokens"), &answer->cached_tokens);
    }
    if (usage.type == KVR_OBJECT) {
        note_count(kvr_value_get(usage, "prompt_tokens"), &answer->prompt_tokens);
        note_count(kvr_value_get(usage, "input_tokens"), &answer->prompt_tokens);
        note_count(kvr_value_get(usage, "completion_tokens"), &answer->output_tokens);
        note_count(kvr_value_get(usage, "output_tokens"), &answer->output_tokens);
        struct kvr_value details = kvr_value_get(usage, "prompt_tokens_details");
        if (details.type != KVR_OBJECT)
            details = kvr_value_get(usage, "input_tokens_details");
        note_count(kvr_value_get(details, "cached_tokens"), &answer->cached_tokens);
    }
    if (answer->cached_tokens < 0)
        note_count(
            kvr_value_get(kvr_value_get(object, "timings"), "cache_n"), &answer->cached_tokens);
}

static bool has_text(struct kvr_value value)
{
    return value.type == KVR_STRING && value.length > 2;
}

/* Whether a chunk brings something that the model said. */
static bool has_content(struct kvr_value object)
{
    struct kvr_cursor choices = kvr_value_open(kvr_value_get(object, "choices"));
    struct kvr_value choice;

    while (kvr_next_element(&choices, &choice)) {
        struct kvr_value delta = kvr_value_get(choice, "delta");
        if (has_text(kvr_value_get(choice, "text")) || has_text(kvr_value_get(delta, "content")) ||
            has_text(kvr_value_get(delta, "reasoning_content")) ||
            has_text(kvr_value_get(delta, "reasoning")) ||
            kvr_value_get(delta, "tool_calls").type == KVR_ARRAY)
            return true;
    }
    return has_text(kvr_value_get(object, "text")) || has_text(kvr_value_get(object, "delta"));
}

static void note_token(struct kvr_answer *answer)
{
    double now_ms = answer->now_ms;

    if (isnan(answer->first_ms)) {
        answer->first_ms = now_ms;
    } else {
        double gap_ms = now_ms - answer->last_ms;
        if (!(answer->longest_gap_ms >= gap_ms))
            answer->longest_gap_ms = gap_ms;
        if (answer->keep_intervals)
            kvr_buffer_append(&answer->intervals, &gap_ms, sizeof gap_ms);
    }
    answer->last_ms = now_ms;
    answer->chunks++;
}

static void read_event(void *context, const char *data, size_t length)
{
    struct kvr_answer *answer = context;
    struct kvr_value object;

    if (length == 6 && memcmp(data, "[DONE]", 6) == 0) {
        answer->ended = true;
        return;
    }
    if (kvr_json_check(answer->structure, data, length, &object, &answer->members, NULL) !=
            KVR_OK ||
        object.type != KVR_OBJECT)
        return;
    struct kvr_value type = kvr_value_get(object, "type");
    if (kvr_value_get(object, "error").type == KVR_OBJECT)
        answer->failed = true;
    if (has_content(object))
        note_token(answer);
    if (type.type == KVR_STRING && kvr_value_is(type, "response.completed")) {
        answer->ended = true;
        object = kvr_value_get(object, "response");
    }
    read_usage(answer, object);
}

void kvr_answer_feed(struct kvr_answer *answer, const char *bytes, size_t length, double now_ms)
{
    answer->now_ms = now_ms;
    if (answer->stream)
        kvr_sse_feed(&answer->sse, bytes, length, read_event, answer, NULL);
    else if (answer->body.length + length <= BODY_LIMIT)
        kvr_buffer_append(&answer->body, bytes, length);
}

void kvr_answer_end(struct kvr_answer *answer, double now_ms)
{
    struct kvr_value object;

    if (answer->stream)
        return;
    answer->ended = true;
    if (answer->body.failed ||
        kvr_json_check(answer->structure, answer->body.data ? answer->body.data : "",
            answer->body.length, &object, &answer->members, NULL) != KVR_OK ||
        object.type != KVR_OBJECT)
        return;
    answer->now_ms = now_ms;
    read_usage(answer, object);
    struct kvr_cursor choices = kvr_value_open(kvr_value_get(object, "choices"));
    struct kvr_value choice;
    if (kvr_next_element(&choices, &choice) || kvr_value_get(object, "output").type == KVR_ARRAY ||
        has_text(kvr_value_get(object, "text")))
        note_token(answer);
}

static void write_ms(const char *name, double ms, struct kvr_buffer *out)
{
    if (isnan(ms))
        return;
    kvr_buffer_append_text(out, name);
    kvr_json_write_fixed(out, ms, 3);
}

static void write_count(const char *name, int64_t count, struct kvr_buffer *out)
{
    if (count < 0)
        return;
    kvr_buffer_append_text(out, name);
    kvr_buffer_append_u64(out, (uint64_t)count);
}

void kvr_answer_write(const struct kvr_answer *answer, unsigned status, double start_ms,
    double end_ms, const char *worker, struct kvr_buffer *out)
{
    int64_t tokens = answer->output_tokens;

    if (tokens < 0 && answer->stream && answer->chunks)
        tokens = (int64_t)answer->chunks;
    kvr_buffer_append_text(out, "{\"status\":");
    kvr_buffer_append_u64(out, status);
    write_ms(",\"ttft_ms\":", answer->first_ms - start_ms, out);
    write_ms(",\"e2e_ms\":", end_ms - start_ms, out);
    if (answer->stream && answer->chunks > 1 && tokens > 1)
        write_ms(",\"tpot_ms\":", (answer->last_ms - answer->first_ms) / (double)(tokens - 1), out);
    if (answer->stream)
        write_ms(",\"max_gap_ms\":", answer->longest_gap_ms, out);
    write_count(",\"input_length\":", answer->prompt_tokens, out);
    write_count(",\"output_length\":", tokens, out);
    write_count(",\"cached_tokens\":", answer->cached_tokens, out);
    if (worker) {
        kvr_buffer_append_text(out, ",\"worker\":");
        kvr_json_write_string(out, worker, strlen(worker));
    }
}
