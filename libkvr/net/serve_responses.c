/*
 * The items of /v1/responses as the messages of a chat, as vLLM makes them (entrypoints/openai/
 * responses/utils.py): instructions are a system message, a text is one of the user, reasoning, an
 * answer and the calls behind it are one message of the assistant, and a call's output is one of a
 * tool. An item that is none of these is left out, and so is what a previous_response_id stands
 * for, which only the worker knows.
 */
#include "net/serve_private.h"

/* A message of the assistant stays open until something comes that does not belong to it. */
struct messages {
    struct kvr_buffer *out;
    size_t count;
    bool open, content, calls;
};

static void put(struct messages *m, const char *name, struct kvr_value value)
{
    kvr_buffer_append_text(m->out, name);
    kvr_buffer_append(m->out, value.text, value.length);
}

static void close_message(struct messages *m)
{
    if (m->open)
        kvr_buffer_append_text(m->out, m->calls ? "]}" : "}");
    m->open = m->content = m->calls = false;
}

static void begin_message(struct messages *m)
{
    close_message(m);
    kvr_buffer_append_text(m->out, m->count++ ? "," : "");
}

static void open_assistant(struct messages *m)
{
    begin_message(m);
    kvr_buffer_append_text(m->out, "{\"role\":\"assistant\"");
    m->open = true;
}

static void add_call(struct messages *m, struct kvr_value item)
{
    struct kvr_value name = kvr_value_get(item, "name");
    struct kvr_value id = kvr_value_get(item, "call_id");
    struct kvr_value arguments = kvr_value_get(item, "arguments");

    if (name.type != KVR_STRING || arguments.type != KVR_STRING)
        return;
    if (!m->open)
        open_assistant(m);
    kvr_buffer_append_text(m->out, m->calls ? "," : ",\"tool_calls\":[");
    if (id.type == KVR_STRING) {
        put(m, "{\"id\":", id);
        kvr_buffer_append_text(m->out, ",\"type\":\"function\"");
    } else {
        kvr_buffer_append_text(m->out, "{\"type\":\"function\"");
    }
    put(m, ",\"function\":{\"name\":", name);
    put(m, ",\"arguments\":", arguments);
    kvr_buffer_append_text(m->out, "}}");
    m->calls = true;
}

/* The text of the first part of a list, as a reasoning has it in its content or summary. */
static struct kvr_value first_text(struct kvr_value parts)
{
    struct kvr_cursor cursor = kvr_value_open(parts);
    struct kvr_value part = {0};

    if (parts.type == KVR_ARRAY && kvr_next_element(&cursor, &part))
        part = kvr_value_get(part, "text");
    return part;
}

static void add_reasoning(struct messages *m, struct kvr_value item)
{
    struct kvr_value text = first_text(kvr_value_get(item, "content"));

    if (text.type != KVR_STRING)
        text = first_text(kvr_value_get(item, "summary"));
    if (text.type != KVR_STRING)
        return;
    open_assistant(m);
    put(m, ",\"reasoning\":", text);
}

static void add_answer(struct messages *m, struct kvr_value content)
{
    if (!m->open || m->content || m->calls)
        open_assistant(m);
    if (content.type == KVR_STRING || content.type == KVR_ARRAY)
        put(m, ",\"content\":", content);
    m->content = true;
}

static void add_item(struct messages *m, struct kvr_value item)
{
    struct kvr_value type = kvr_value_get(item, "type");
    struct kvr_value role = kvr_value_get(item, "role");
    struct kvr_value id = kvr_value_get(item, "call_id");
    struct kvr_value output = kvr_value_get(item, "output");

    if (kvr_value_is(role, "assistant") && kvr_value_missing(kvr_value_get(item, "tool_calls"))) {
        add_answer(m, kvr_value_get(item, "content"));
    } else if (role.type == KVR_STRING) {
        begin_message(m);
        put(m, "", item);
    } else if (kvr_value_is(type, "function_call")) {
        add_call(m, item);
    } else if (kvr_value_is(type, "reasoning")) {
        add_reasoning(m, item);
    } else if (kvr_value_is(type, "function_call_output") &&
               (output.type == KVR_STRING || output.type == KVR_ARRAY)) {
        begin_message(m);
        put(m, "{\"role\":\"tool\",\"content\":", output);
        if (id.type == KVR_STRING)
            put(m, ",\"tool_call_id\":", id);
        kvr_buffer_append_byte(m->out, '}');
    }
}

/* Whether a tool may go one level deeper than it stands in the body: a line that is too deep is
 * dropped by the programs, and no decision comes. */
static bool is_shallow(struct kvr_value tool)
{
    size_t depth = 0;
    bool inside = false;

    for (size_t i = 0; i < tool.length; i++) {
        char byte = tool.text[i];
        if (inside && byte == '\\')
            i++;
        else if (byte == '"')
            inside = !inside;
        else if (!inside && (byte == '{' || byte == '[') && ++depth > KVR_JSON_DEPTH - 4)
            return false;
        else if (!inside && (byte == '}' || byte == ']'))
            depth--;
    }
    return true;
}

static void write_tools(struct kvr_value tools, struct kvr_buffer *out)
{
    struct kvr_cursor cursor = kvr_value_open(tools);
    struct kvr_value tool;
    struct kvr_member member;
    size_t count = 0;

    while (tools.type == KVR_ARRAY && kvr_next_element(&cursor, &tool)) {
        struct kvr_cursor members = kvr_value_open(tool);
        bool first = true;
        if (!kvr_value_is(kvr_value_get(tool, "type"), "function") || !is_shallow(tool))
            continue;
        kvr_buffer_append_text(out, count++ ? "," : ",\"tools\":[");
        kvr_buffer_append_text(out, "{\"type\":\"function\",\"function\":{");
        while (kvr_next_member(&members, &member)) {
            if (kvr_value_is(member.name, "type"))
                continue;
            kvr_buffer_append_text(out, first ? "" : ",");
            kvr_buffer_append(out, member.name.text, member.name.length);
            kvr_buffer_append_byte(out, ':');
            kvr_buffer_append(out, member.value.text, member.value.length);
            first = false;
        }
        kvr_buffer_append_text(out, "}}");
    }
    if (count)
        kvr_buffer_append_byte(out, ']');
}

void responses_write(const struct kvr_line *body, struct kvr_buffer *out)
{
    struct kvr_value instructions = kvr_line_find(body, "instructions");
    struct kvr_value input = kvr_line_find(body, "input"), item;
    struct kvr_value effort = kvr_value_get(kvr_line_find(body, "reasoning"), "effort");
    struct kvr_cursor cursor = kvr_value_open(input);
    struct messages messages = {.out = out};
    size_t start = out->length;

    kvr_buffer_append_text(out, ",\"messages\":[");
    if (instructions.type == KVR_STRING) {
        begin_message(&messages);
        put(&messages, "{\"role\":\"system\",\"content\":", instructions);
        kvr_buffer_append_byte(out, '}');
    }
    if (input.type == KVR_STRING) {
        begin_message(&messages);
        put(&messages, "{\"role\":\"user\",\"content\":", input);
        kvr_buffer_append_byte(out, '}');
    }
    while (input.type == KVR_ARRAY && kvr_next_element(&cursor, &item))
        if (item.type == KVR_OBJECT)
            add_item(&messages, item);
    close_message(&messages);
    kvr_buffer_append_byte(out, ']');
    write_tools(kvr_line_get(body, KVR_NAME_TOOLS), out);
    if (effort.type == KVR_STRING)
        put(&messages, ",\"reasoning_effort\":", effort);
    if (out->failed)
        return;
    if (!messages.count) {
        out->length = start;
        return;
    }
    /* JSON on one line: newlines can only stand between tokens */
    for (size_t i = start; i < out->length; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r')
            out->data[i] = ' ';
}
