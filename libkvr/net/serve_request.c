/*
 * From the body of a request to its line. Only members that the stream knows are taken over, and
 * only where they are of the stream's types: a client cannot write hash_ids, route or event into
 * our lines, nor a line that a program of the pipeline drops as bad, for which no decision comes.
 */
#include "net/serve_private.h"

#include "base/clock.h"

#include <zlib.h>

enum request_kind request_kind(const struct kvr_http_head *head)
{
    static const struct {
        const char *path;
        enum request_kind kind;
    } kinds[] = {
        {"/v1/chat/completions", REQUEST_CHAT},
        {"/v1/completions", REQUEST_COMPLETION},
        {"/v1/embeddings", REQUEST_EMBEDDING},
        {"/v1/responses", REQUEST_RESPONSE},
        {"/generate", REQUEST_GENERATE},
    };
    struct kvr_text path = head->target;
    const char *query = memchr(path.text, '?', path.length);

    if (query)
        path.length = (size_t)(query - path.text);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kvr_text_is(path, kinds[i].path) && kvr_text_is(head->method, "POST"))
            return kinds[i].kind;
    return REQUEST_OTHER;
}

/* JSON on one line: newlines can only stand between tokens. */
static void copy(const char *name, struct kvr_value value, struct kvr_buffer *out)
{
    if (value.type <= KVR_NULL)
        return;
    kvr_buffer_append_text(out, name);
    size_t start = out->length;
    kvr_buffer_append(out, value.text, value.length);
    if (out->failed || value.type < KVR_ARRAY || !memchr(value.text, '\n', value.length))
        return;
    for (size_t i = start; i < out->length; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r')
            out->data[i] = ' ';
}

static void copy_typed(
    const char *name, struct kvr_value value, enum kvr_type type, struct kvr_buffer *out)
{
    if (value.type == type)
        copy(name, value, out);
}

static void copy_identity(const char *name, struct kvr_value value, struct kvr_buffer *out)
{
    if (value.type == KVR_STRING || value.type == KVR_NUMBER)
        copy(name, value, out);
}

/* An array of token ids; of anything else it is several prompts, or nonsense. */
static bool is_tokens(struct kvr_value value)
{
    struct kvr_cursor cursor = kvr_value_open(value);
    struct kvr_value element;
    uint64_t id;
    size_t count = 0;

    for (; kvr_next_element(&cursor, &element); count++)
        if (!kvr_value_u64(element, &id) || id > UINT32_MAX)
            return false;
    return value.type == KVR_ARRAY && count;
}

static bool are_objects(struct kvr_value value)
{
    struct kvr_cursor cursor = kvr_value_open(value);
    struct kvr_value element;

    while (kvr_next_element(&cursor, &element))
        if (element.type != KVR_OBJECT)
            return false;
    return value.type == KVR_ARRAY;
}

static void copy_objects(const char *name, struct kvr_value value, struct kvr_buffer *out)
{
    if (are_objects(value))
        copy(name, value, out);
}

/* Of several prompts none is the request's; a list of one is that one. */
static void write_prompt(struct kvr_value value, struct kvr_buffer *out)
{
    struct kvr_cursor cursor = kvr_value_open(value);
    struct kvr_value first, second;

    if (value.type == KVR_ARRAY && kvr_next_element(&cursor, &first) && first.type >= KVR_STRING &&
        !kvr_next_element(&cursor, &second))
        value = first;
    if (value.type == KVR_STRING)
        copy(",\"prompt\":", value, out);
    else if (is_tokens(value))
        copy(",\"token_ids\":", value, out);
}

static void copy_truth(const char *name, struct kvr_value value, struct kvr_buffer *out)
{
    if (value.type == KVR_TRUE || value.type == KVR_FALSE)
        copy(name, value, out);
}

/* Where the prompt ends. add_generation_prompt is left out where it says what is so without it: a
 * line that has it is a call of the template itself for kvr-tokenize, not a request of an API. */
static void write_ends(const struct kvr_line *body, struct kvr_buffer *out)
{
    struct kvr_value generation = kvr_line_get(body, KVR_NAME_ADD_GENERATION_PROMPT);
    struct kvr_value continued = kvr_line_get(body, KVR_NAME_CONTINUE_FINAL_MESSAGE);

    if (generation.type != (continued.type == KVR_TRUE ? KVR_FALSE : KVR_TRUE))
        copy_truth(",\"add_generation_prompt\":", generation, out);
    copy_truth(",\"continue_final_message\":", continued, out);
}

/* What vLLM does to the tokens of any prompt. */
static void write_token_options(const struct kvr_line *body, struct kvr_buffer *out)
{
    struct kvr_value truncate = kvr_line_get(body, KVR_NAME_TRUNCATE_PROMPT_TOKENS);
    uint64_t tokens;

    copy_truth(",\"add_special_tokens\":", kvr_line_get(body, KVR_NAME_ADD_SPECIAL_TOKENS), out);
    if (kvr_value_u64(truncate, &tokens) && tokens <= UINT32_MAX)
        copy(",\"truncate_prompt_tokens\":", truncate, out);
}

static void write_content(
    const struct kvr_line *body, enum request_kind kind, struct kvr_buffer *out)
{
    struct kvr_value input = kvr_line_find(body, "input");

    write_token_options(body, out);
    switch (kind) {
    case REQUEST_CHAT:
        copy_objects(",\"messages\":", kvr_line_get(body, KVR_NAME_MESSAGES), out);
        copy_objects(",\"tools\":", kvr_line_get(body, KVR_NAME_TOOLS), out);
        copy_objects(",\"documents\":", kvr_line_get(body, KVR_NAME_DOCUMENTS), out);
        copy_typed(",\"chat_template_kwargs\":", kvr_line_get(body, KVR_NAME_CHAT_TEMPLATE_KWARGS),
            KVR_OBJECT, out);
        copy_typed(",\"reasoning_effort\":", kvr_line_get(body, KVR_NAME_REASONING_EFFORT),
            KVR_STRING, out);
        write_ends(body, out);
        break;
    case REQUEST_COMPLETION:
        write_prompt(kvr_line_get(body, KVR_NAME_PROMPT), out);
        break;
    case REQUEST_RESPONSE:
        if (is_tokens(input))
            write_prompt(input, out);
        else
            responses_write(body, out);
        break;
    case REQUEST_EMBEDDING:
        write_prompt(input, out);
        break;
    case REQUEST_GENERATE:
        write_prompt(kvr_line_find(body, "text"), out);
        write_prompt(kvr_line_find(body, "input_ids"), out);
        break;
    case REQUEST_OTHER:
        break;
    }
}

/* The value of a cookie. */
static struct kvr_text find_cookie(struct kvr_text header, const char *name)
{
    size_t length = strlen(name);

    while (header.length) {
        const char *stop = memchr(header.text, ';', header.length);
        size_t pair = stop ? (size_t)(stop - header.text) : header.length;
        const char *at = header.text;
        while (pair && *at == ' ')
            at++, pair--;
        if (pair > length && memcmp(at, name, length) == 0 && at[length] == '=')
            return (struct kvr_text){at + length + 1, pair - length - 1};
        if (!stop)
            break;
        header.length -= (size_t)(stop + 1 - header.text);
        header.text = stop + 1;
    }
    return (struct kvr_text){0};
}

static enum kvr_status write_session(
    struct call *call, struct kvr_buffer *out, struct kvr_error *error)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_text text = {0};
    struct kvr_value value;

    if (serve->session) {
        enum kvr_status status =
            kvr_expression_evaluate(serve->session, &serve->line, &value, error);
        if (status == KVR_OK)
            copy_identity(",\"session\":", value, out);
        return KVR_OK; /* a body that has no such thing has no session */
    }
    if (serve->session_cookie[0])
        text = find_cookie(kvr_http_header(&call->head, "cookie"), serve->session_cookie);
    else
        text = kvr_http_header(&call->head, serve->session_header);
    if (text.length) {
        kvr_buffer_append_text(out, ",\"session\":");
        kvr_json_write_string(out, text.text, text.length);
    } else {
        copy_identity(",\"user\":", kvr_line_get(&serve->line, KVR_NAME_USER), out);
    }
    return KVR_OK;
}

enum kvr_status request_write(struct call *call, enum request_kind kind, struct kvr_error *error)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_buffer *out = &call->request;
    struct kvr_source_line source = {.text = call->body.data ? call->body.data : "",
        .length = call->body.length,
        .file = "body",
        .number = 1};
    uint64_t limit;
    int64_t rank;

    enum kvr_status status = kvr_line_parse(&serve->line, &source, error);
    if (status != KVR_OK)
        return status;
    kvr_buffer_clear(out);
    kvr_buffer_append_text(out, "{\"id\":\"");
    kvr_buffer_append(out, call->id.data, call->id.length);
    kvr_buffer_append_text(out, "\",\"timestamp\":");
    kvr_json_write_fixed(out, kvr_clock_wall_ms(), 3);
    copy_typed(",\"model\":", kvr_line_get(&serve->line, KVR_NAME_MODEL), KVR_STRING, out);
    struct kvr_value priority = kvr_line_get(&serve->line, KVR_NAME_PRIORITY);
    if (kvr_value_i64(priority, &rank))
        copy(",\"priority\":", priority, out);
    struct kvr_value most = kvr_line_find(&serve->line, "max_completion_tokens");
    if (most.type <= KVR_NULL)
        most = kvr_line_find(&serve->line, "max_tokens");
    if (kvr_value_u64(most, &limit) && limit <= UINT32_MAX) {
        kvr_buffer_append_text(out, ",\"output_length\":");
        kvr_buffer_append_u64(out, limit);
    }
    struct kvr_value salt = kvr_line_find(&serve->line, "cache_salt");
    if (salt.type == KVR_STRING)
        copy(",\"salt\":", salt, out);
    status = write_session(call, out, error);
    if (status != KVR_OK)
        return status;
    call->content_at = out->length;
    write_content(&serve->line, kind, out);
    kvr_buffer_append_byte(out, '}');
    return out->failed ? kvr_error_memory(error) : KVR_OK;
}

/* The body as it was before gzip, which must stay below the same limit. */
enum kvr_status request_gunzip(struct call *call, struct kvr_error *error)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_buffer plain = {0};
    z_stream stream = {
        .next_in = (unsigned char *)call->body.data, .avail_in = (unsigned)call->body.length};
    int code = inflateInit2(&stream, 15 + 16);
    enum kvr_status status = code == Z_OK ? KVR_OK : kvr_error_memory(error);

    while (status == KVR_OK && code != Z_STREAM_END) {
        if (!kvr_buffer_reserve(&plain, 64 * 1024)) {
            status = kvr_error_memory(error);
            break;
        }
        stream.next_out = (unsigned char *)plain.data + plain.length;
        stream.avail_out = 64 * 1024;
        code = inflate(&stream, Z_NO_FLUSH);
        plain.length += 64 * 1024 - stream.avail_out;
        if (code != Z_OK && code != Z_STREAM_END)
            status = kvr_error_set(error, KVR_BAD_INPUT, "the body is no gzip");
        else if (plain.length > serve->options.max_body_bytes ||
                 serve->buffered_bytes + plain.length > serve->options.max_buffered_bytes)
            status =
                kvr_error_set(error, KVR_UNSUPPORTED, "the body is larger than this server takes");
        else if (code == Z_OK && stream.avail_in == 0 && stream.avail_out)
            status = kvr_error_set(error, KVR_BAD_INPUT, "the gzip of the body is cut short");
    }
    inflateEnd(&stream);
    if (status == KVR_OK && stream.avail_in)
        status = kvr_error_set(error, KVR_BAD_INPUT, "bytes behind the gzip of the body");
    if (status != KVR_OK) {
        kvr_buffer_release(&plain);
        return status;
    }
    kvr_buffer_release(&call->body);
    call->body = plain;
    serve->buffered_bytes += plain.length - call->counted_bytes;
    call->counted_bytes = plain.length;
    return KVR_OK;
}
