#include "token/chat_request.h"

static struct kvr_chat_json json_of(const struct kvr_line *line, enum kvr_name name)
{
    struct kvr_value value = kvr_line_get(line, name);

    return (struct kvr_chat_json){value.text, value.length};
}

void kvr_chat_request_read(
    const struct kvr_line *line, enum kvr_chat_style style, struct kvr_chat_request *request)
{
    struct kvr_value generation = kvr_line_get(line, KVR_NAME_ADD_GENERATION_PROMPT);

    *request = (struct kvr_chat_request){
        .messages = json_of(line, KVR_NAME_MESSAGES),
        .tools = json_of(line, KVR_NAME_TOOLS),
        .documents = json_of(line, KVR_NAME_DOCUMENTS),
        .kwargs = json_of(line, KVR_NAME_CHAT_TEMPLATE_KWARGS),
        .reasoning_effort = json_of(line, KVR_NAME_REASONING_EFFORT),
        .continue_final_message =
            kvr_value_true(kvr_line_get(line, KVR_NAME_CONTINUE_FINAL_MESSAGE)),
        .style = style,
    };
    request->add_generation_prompt = kvr_value_missing(generation)
                                         ? !request->continue_final_message
                                         : kvr_value_true(generation);
}

/* A part of a type that only an API knows and no template. */
static bool is_api_part(struct kvr_value part)
{
    static const char *const types[] = {
        "image_url", "input_image", "video_url", "audio_url", "input_audio", "file"};
    struct kvr_value type = kvr_value_get(part, "type");

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (kvr_value_is(type, types[i]))
            return true;
    return false;
}

static bool has_api_parts(struct kvr_value messages)
{
    struct kvr_cursor cursor = kvr_value_open(messages);
    struct kvr_value message, part;

    while (messages.type == KVR_ARRAY && kvr_next_element(&cursor, &message)) {
        struct kvr_value content = kvr_value_get(message, "content");
        struct kvr_cursor parts = kvr_value_open(content);
        while (content.type == KVR_ARRAY && kvr_next_element(&parts, &part))
            if (is_api_part(part))
                return true;
    }
    return false;
}

static bool are_api_calls(struct kvr_value calls)
{
    struct kvr_cursor cursor = kvr_value_open(calls);
    struct kvr_value call;
    bool any = false;

    if (calls.type != KVR_ARRAY)
        return calls.type == KVR_NULL;
    while (kvr_next_element(&cursor, &call)) {
        struct kvr_value function = kvr_value_get(call, "function");
        if (kvr_value_get(function, "arguments").type == KVR_STRING)
            return true;
        any = true;
    }
    return !any;
}

/* One walk over the members: messages are most of a line. */
static bool is_api_message(struct kvr_value message)
{
    struct kvr_cursor cursor = kvr_value_open(message);
    enum kvr_type content = KVR_ABSENT;
    struct kvr_value calls = {0};
    struct kvr_member member;

    while (kvr_next_member(&cursor, &member)) {
        if (kvr_value_is(member.name, "content"))
            content = member.value.type;
        else if (kvr_value_is(member.name, "tool_calls"))
            calls = member.value;
    }
    return content <= KVR_NULL || content == KVR_ARRAY ||
           (calls.type != KVR_ABSENT && are_api_calls(calls));
}

bool kvr_chat_request_api_forms(const struct kvr_line *line)
{
    struct kvr_value messages = kvr_line_get(line, KVR_NAME_MESSAGES), message;
    struct kvr_cursor cursor = kvr_value_open(messages);

    while (messages.type == KVR_ARRAY && kvr_next_element(&cursor, &message))
        if (message.type == KVR_OBJECT && is_api_message(message))
            return true;
    return false;
}

enum kvr_chat_style kvr_chat_request_style(const struct kvr_line *line)
{
    bool api;

    if (!kvr_value_missing(kvr_line_get(line, KVR_NAME_ADD_GENERATION_PROMPT)))
        api = has_api_parts(kvr_line_get(line, KVR_NAME_MESSAGES));
    else
        api = !kvr_value_missing(kvr_line_get(line, KVR_NAME_MODEL)) ||
              !kvr_value_missing(kvr_line_get(line, KVR_NAME_REASONING_EFFORT)) ||
              kvr_chat_request_api_forms(line);
    return api ? KVR_CHAT_VLLM : KVR_CHAT_PLAIN;
}
