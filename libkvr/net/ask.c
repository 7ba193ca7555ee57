#include "net/ask.h"

static void copy(const char *name, struct kvr_value value, struct kvr_buffer *body)
{
    if (kvr_value_missing(value))
        return;
    kvr_buffer_append_text(body, name);
    kvr_buffer_append(body, value.text, value.length);
}

static void add_members(struct kvr_value object, struct kvr_buffer *body)
{
    struct kvr_cursor cursor = kvr_value_open(object);
    struct kvr_member member;

    while (kvr_next_member(&cursor, &member)) {
        kvr_buffer_append_byte(body, ',');
        kvr_buffer_append(body, member.name.text, member.name.length);
        kvr_buffer_append_byte(body, ':');
        kvr_buffer_append(body, member.value.text, member.value.length);
    }
}

enum kvr_status kvr_ask_write(const struct kvr_ask_options *options, const struct kvr_line *line,
    struct kvr_text prompt, struct kvr_buffer *body, const char **path, struct kvr_error *error)
{
    struct kvr_value messages = kvr_line_get(line, KVR_NAME_MESSAGES);
    struct kvr_value text = kvr_line_get(line, KVR_NAME_PROMPT);
    struct kvr_value ids = kvr_line_get(line, KVR_NAME_TOKEN_IDS);
    struct kvr_value model = kvr_line_get(line, KVR_NAME_MODEL);
    struct kvr_value output = kvr_line_get(line, KVR_NAME_OUTPUT_LENGTH);
    uint64_t max_tokens = options->max_tokens;

    if (!kvr_value_missing(output) && !kvr_value_u64(output, &max_tokens))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'output_length' is not a whole number");
    *path = "/v1/completions";
    kvr_buffer_append_byte(body, '{');
    if (prompt.text) {
        kvr_buffer_append_text(body, "\"prompt\":");
        kvr_json_write_string(body, prompt.text, prompt.length);
    } else if (messages.type == KVR_ARRAY) {
        *path = "/v1/chat/completions";
        copy("\"messages\":", messages, body);
        copy(",\"tools\":", kvr_line_get(line, KVR_NAME_TOOLS), body);
    } else if (!kvr_value_missing(text)) {
        copy("\"prompt\":", text, body);
    } else if (ids.type == KVR_ARRAY) {
        copy("\"prompt\":", ids, body);
    } else {
        return kvr_error_set(error, KVR_BAD_INPUT,
            "nothing to send: no messages, prompt or token_ids (--synthesize makes prompts)");
    }
    if (!kvr_value_missing(model)) {
        copy(",\"model\":", model, body);
    } else if (options->model) {
        kvr_buffer_append_text(body, ",\"model\":");
        kvr_json_write_string(body, options->model, strlen(options->model));
    }
    /* A request for no token at all is none that engines take. */
    kvr_buffer_append_text(body, ",\"max_tokens\":");
    kvr_buffer_append_u64(body, max_tokens ? max_tokens : 1);
    if (options->stream)
        kvr_buffer_append_text(
            body, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    add_members(options->members, body);
    kvr_buffer_append_byte(body, '}');
    return body->failed ? kvr_error_memory(error) : KVR_OK;
}

void kvr_ask_url(const char *base, size_t length, const char *path, struct kvr_buffer *url)
{
    while (length && base[length - 1] == '/')
        length--;
    if (length >= 3 && memcmp(base + length - 3, "/v1", 3) == 0)
        length -= 3;
    kvr_buffer_append(url, base, length);
    kvr_buffer_append_text(url, path);
}
