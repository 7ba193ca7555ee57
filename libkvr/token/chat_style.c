/*
 * What the servers do to messages and tools before a template sees them. vLLM:
 * entrypoints/chat_utils.py and openai/protocol.py; SGLang: entrypoints/openai/serving_chat.py and
 * parser/jinja_template_utils.py; transformers 5: utils/chat_template_utils.py; llama.cpp:
 * common/chat.cpp and tools/server. Their gaps are kept: the text must be theirs.
 */
#include "token/chat_internal.h"

#include <string.h>

static struct value *member(struct value object, const char *name)
{
    return object.type == VALUE_DICT ? kvr_dict_find_name(object.dict, name) : NULL;
}

static bool is_text(const struct value *value, const char *literal)
{
    return value && value->type == VALUE_TEXT && kvr_template_text_is(value->text, literal);
}

static struct value literal(struct run *run, const char *text)
{
    return kvr_text_value(kvr_text_literal(run, text));
}

static void copy_member(
    struct run *run, struct dict *made, const struct dict *source, const char *name)
{
    const struct value *value = kvr_dict_find_name(source, name);
    if (value && value->type != VALUE_NONE)
        kvr_dict_set_name(run, made, name, *value);
}

/* ---- transformers 5 ---- */

static struct dict *without_nulls(struct run *run, const struct dict *message)
{
    struct dict *kept = kvr_dict_new(run, message->count);
    kept->mark = message->mark;
    for (size_t i = 0; i < message->count; i++)
        if (message->entries[i].value.type != VALUE_NONE)
            kvr_dict_set(run, kept, message->entries[i].key, message->entries[i].value);
    return kept;
}

/* {"thinking": r, ...message, "reasoning_content": r} where the message has any of the three. */
static struct dict *with_reasoning(struct run *run, struct dict *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    struct value *found = NULL;
    struct value reasoning;
    struct dict *made;
    for (size_t i = 0; i < 3 && !found; i++)
        found = kvr_dict_find_name(message, names[i]);
    if (!found)
        return message;
    reasoning = *found;
    made = kvr_dict_new(run, message->count + 2);
    made->mark = message->mark;
    kvr_dict_set_name(run, made, "thinking", reasoning);
    for (size_t i = 0; i < message->count; i++)
        kvr_dict_set(run, made, message->entries[i].key, message->entries[i].value);
    kvr_dict_set_name(run, made, "reasoning_content", reasoning);
    return made;
}

/* ---- parts ---- */

static struct text *part_text(struct value part)
{
    const struct value *text = NULL;
    if (part.type == VALUE_TEXT)
        return part.text;
    text = member(part, "text");
    if (!text)
        text = member(part, "refusal");
    if (!text)
        text = member(part, "thinking");
    return text && text->type == VALUE_TEXT ? text->text : NULL;
}

/* Between which texts the separator stands. */
enum join { JOIN_ALL, JOIN_AFTER_TEXT };

static struct text *join_texts(
    struct run *run, const struct list *parts, const char *separator, enum join join)
{
    struct text *joined = kvr_text_literal(run, "");
    bool first = true;
    for (size_t i = 0; i < parts->count; i++) {
        struct text *text = part_text(parts->items[i]);
        if (!text)
            continue;
        if (!first)
            joined = kvr_text_join(run, joined, kvr_text_literal(run, separator));
        joined = first ? text : kvr_text_join(run, joined, text);
        first = join == JOIN_AFTER_TEXT && !joined->length;
    }
    return joined;
}

/* What a part of such a type is for templates, "image" of image_url; NULL: no medium of the API. */
static const char *medium_of(const struct value *type)
{
    static const char *const names[][2] = {{"image_url", "image"}, {"input_image", "image"},
        {"image_pil", "image"}, {"image_embeds", "image"}, {"video_url", "video"},
        {"video_embeds", "video"}, {"audio_url", "audio"}, {"input_audio", "audio"},
        {"audio_embeds", "audio"}};
    for (size_t j = 0; j < sizeof names / sizeof *names; j++)
        if (is_text(type, names[j][0]))
            return names[j][1];
    return NULL;
}

/* Both engines hand the API's image_url and its like to templates as {"type": "image"}. */
static struct value simple_medium(struct run *run, struct value part)
{
    const char *medium = medium_of(member(part, "type"));
    struct dict *made;
    if (!medium)
        return part;
    made = kvr_dict_new(run, 1);
    made->mark = part.dict->mark;
    kvr_dict_set_name(run, made, "type", literal(run, medium));
    return kvr_dict_value(made);
}

static void simplify_media(struct run *run, const struct list *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        parts->items[i] = simple_medium(run, parts->items[i]);
}

/* ---- tool calls and tools ---- */

/* Arguments are JSON in a string in the API, and objects for templates. vLLM has an empty object
 * for what is none. */
static void parse_arguments(struct run *run, const struct dict *message, bool fill)
{
    const struct value *calls = kvr_dict_find_name(message, "tool_calls");
    if (!calls || calls->type != VALUE_LIST ||
        !is_text(kvr_dict_find_name(message, "role"), "assistant"))
        return;
    for (size_t i = 0; i < calls->list->count; i++) {
        struct value *function = member(calls->list->items[i], "function");
        struct value *arguments = function ? member(*function, "arguments") : NULL;
        struct text *text = arguments && arguments->type == VALUE_TEXT ? arguments->text : NULL;
        if (!function || function->type != VALUE_DICT)
            continue;
        if (text && !fill)
            *arguments = kvr_json_read(run, text->data, text->length, false);
        else if (fill && (text ? !kvr_json_try(run, text->data, text->length, false, arguments)
                               : !arguments || (arguments->type != VALUE_DICT &&
                                                   arguments->type != VALUE_LIST)))
            kvr_dict_set_name(
                run, function->dict, "arguments", kvr_dict_value(kvr_dict_new(run, 0)));
    }
}

static void set_or_none(
    struct run *run, struct dict *made, const struct dict *source, const char *name)
{
    const struct value *value = kvr_dict_find_name(source, name);
    kvr_dict_set_name(run, made, name, value ? *value : kvr_none());
}

/* The members that are not in made yet. */
static void copy_rest(struct run *run, struct dict *made, const struct dict *source)
{
    for (size_t i = 0; i < source->count; i++)
        if (!kvr_dict_find(run, made, source->entries[i].key))
            kvr_dict_set(run, made, source->entries[i].key, source->entries[i].value);
}

/* A tool as the engine's protocol classes print it. */
static struct value dump_tool(struct run *run, struct value tool, enum kvr_chat_style style)
{
    const struct value *given = member(tool, "function");
    struct dict *function;
    struct dict *made;
    if (!given || given->type != VALUE_DICT)
        return tool;
    made = kvr_dict_new(run, 4);
    function = kvr_dict_new(run, 4);
    kvr_dict_set_name(run, made, "type", literal(run, "function"));
    kvr_dict_set_name(run, made, "function", kvr_dict_value(function));
    if (style == KVR_CHAT_VLLM) {
        set_or_none(run, function, given->dict, "name");
        set_or_none(run, function, given->dict, "description");
        set_or_none(run, function, given->dict, "parameters");
        copy_rest(run, function, given->dict);
        copy_rest(run, made, tool.dict);
    } else {
        const struct value *strict = kvr_dict_find_name(given->dict, "strict");
        set_or_none(run, function, given->dict, "description");
        set_or_none(run, function, given->dict, "name");
        set_or_none(run, function, given->dict, "parameters");
        kvr_dict_set_name(run, function, "strict", strict ? *strict : kvr_bool(false));
        copy_member(run, function, given->dict, "defer_loading");
    }
    return kvr_dict_value(made);
}

static void dump_tools(struct run *run, struct kvr_chat_work *work)
{
    struct list *made;
    if (work->tools.type != VALUE_LIST)
        return;
    if (work->request->style == KVR_CHAT_SGLANG && !work->tools.list->count) {
        work->tools = kvr_none();
        return;
    }
    made = kvr_list_new(run, work->tools.list->count);
    for (size_t i = 0; i < work->tools.list->count; i++) {
        struct value tool = dump_tool(run, work->tools.list->items[i], work->request->style);
        const struct value *function = member(tool, "function");
        kvr_list_add(run, made, work->flat_tools && function ? *function : tool);
    }
    work->tools = kvr_list_value(made);
}

/* ---- vLLM ---- */

/* What a part says, NULL for media: a text's text, also where it is null, a tool reference's name.
 */
static const struct value *vllm_said(const struct value *part)
{
    static const char *const names[][2] = {{"text", "text"}, {"input_text", "text"},
        {"output_text", "text"}, {"refusal", "refusal"}, {"thinking", "thinking"},
        {"tool_reference", "name"}};
    static const struct value nothing = {.type = VALUE_NONE};
    const struct value *type = member(*part, "type");
    if (part->type == VALUE_TEXT)
        return part;
    if (!type)
        return member(*part, "text");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (is_text(type, names[i][0])) {
            const struct value *said = member(*part, names[i][1]);
            return said ? said : &nothing;
        }
    }
    return NULL;
}

static struct value text_part(struct run *run, struct value text)
{
    struct dict *made = kvr_dict_new(run, 2);
    kvr_dict_set_name(run, made, "type", literal(run, "text"));
    kvr_dict_set_name(run, made, "text", text);
    return kvr_dict_value(made);
}

/* Texts as {"type": "text"}, whatever they were, media as {"type": "image"}; members that the API
 * does not know stay. *only_texts: there is nothing else. */
static struct list *vllm_parts(struct run *run, const struct list *parts, bool *only_texts)
{
    static const char *const known[] = {"type", "text", "refusal", "thinking", "name", "uuid",
        "image_url", "image_pil", "image_embeds", "audio_url", "audio_embeds", "input_audio",
        "video_url", "video_embeds", "data", "detail", "file", "file_id", "closed", "annotations",
        "logprobs"};
    struct list *made = kvr_list_new(run, parts->count);
    *only_texts = true;
    for (size_t i = 0; i < parts->count; i++) {
        struct value part = parts->items[i];
        const struct value *said = vllm_said(&part);
        bool reference = is_text(member(part, "type"), "tool_reference");
        struct value item = said && !reference ? text_part(run, *said) : simple_medium(run, part);
        if (said && said->type == VALUE_NONE)
            continue;
        *only_texts &= said && !reference;
        for (size_t j = 0; part.type == VALUE_DICT && !reference && j < part.dict->count; j++) {
            const struct entry *entry = &part.dict->entries[j];
            bool extra = item.dict != part.dict;
            for (size_t k = 0; k < sizeof known / sizeof *known && extra; k++)
                extra = !is_text(&entry->key, known[k]);
            if (extra)
                kvr_dict_set(run, item.dict, entry->key, entry->value);
        }
        kvr_list_add(run, made, item);
    }
    return made;
}

/* What the parts say, empty texts left out, on lines of their own. */
static struct text *vllm_text(struct run *run, const struct list *parts)
{
    struct list *texts = kvr_list_new(run, parts->count);
    for (size_t i = 0; i < parts->count; i++) {
        const struct value *said = vllm_said(&parts->items[i]);
        if (said && said->type == VALUE_TEXT && said->text->length)
            kvr_list_add(run, texts, *said);
    }
    return join_texts(run, texts, "\n", JOIN_ALL);
}

static struct value vllm_content(struct run *run, struct value content, bool as_parts, bool tool)
{
    struct list *parts;
    bool only_texts;
    if (content.type == VALUE_TEXT && (!as_parts || tool))
        return content;
    if (content.type == VALUE_NONE)
        return as_parts && !tool ? kvr_list_value(kvr_list_new(run, 0)) : literal(run, "");
    if (content.type == VALUE_TEXT) {
        parts = kvr_list_new(run, 1);
        kvr_list_add(run, parts, text_part(run, content));
        return kvr_list_value(parts);
    }
    if (content.type != VALUE_LIST)
        return content;
    if (!as_parts)
        return kvr_text_value(vllm_text(run, content.list));
    parts = vllm_parts(run, content.list, &only_texts);
    return tool && only_texts ? kvr_text_value(join_texts(run, parts, "\n", JOIN_ALL))
                              : kvr_list_value(parts);
}

static void copy_text_member(
    struct run *run, struct dict *made, const struct dict *source, const char *name)
{
    const struct value *value = kvr_dict_find_name(source, name);
    if (value && value->type == VALUE_TEXT)
        kvr_dict_set_name(run, made, name, *value);
}

static struct dict *as_vllm(struct run *run, const struct dict *message, bool as_parts)
{
    const struct value *role = kvr_dict_find_name(message, "role");
    const struct value *content = kvr_dict_find_name(message, "content");
    const struct value *reasoning = kvr_dict_find_name(message, "reasoning");
    const struct value *calls = kvr_dict_find_name(message, "tool_calls");
    struct dict *made = kvr_dict_new(run, 6);
    made->mark = message->mark;
    copy_member(run, made, message, "role");
    kvr_dict_set_name(run, made, "content",
        vllm_content(run, content ? *content : kvr_none(), as_parts, is_text(role, "tool")));
    if (is_text(role, "assistant")) {
        parse_arguments(run, message, true);
        if (calls && (calls->type != VALUE_LIST || calls->list->count))
            copy_member(run, made, message, "tool_calls");
        if (!reasoning || reasoning->type == VALUE_NONE)
            reasoning = kvr_dict_find_name(message, "reasoning_content");
        if (reasoning && reasoning->type != VALUE_NONE) {
            kvr_dict_set_name(run, made, "reasoning", *reasoning);
            kvr_dict_set_name(run, made, "reasoning_content", *reasoning);
        }
    } else if (is_text(role, "tool")) {
        copy_member(run, made, message, "tool_call_id");
    } else if (is_text(role, "developer")) {
        set_or_none(run, made, message, "tools");
    }
    copy_text_member(run, made, message, "name");
    copy_text_member(run, made, message, "task");
    return made;
}

/* ---- SGLang ---- */

/* A text of the API: what else holds text is none here. */
static bool is_sglang_text(struct value part)
{
    const struct value *type = member(part, "type");
    if (part.type == VALUE_TEXT)
        return true;
    if (!type)
        return member(part, "text") != NULL;
    return is_text(type, "text") || is_text(type, "input_text");
}

static struct value sglang_content(
    struct run *run, const struct list *parts, bool as_parts, bool tool)
{
    struct list *texts = kvr_list_new(run, parts->count);
    struct list *made = kvr_list_new(run, parts->count);
    for (size_t i = 0; i < parts->count; i++) {
        struct value part = parts->items[i];
        const struct value *text = member(part, "text");
        if (is_sglang_text(part))
            kvr_list_add(run, texts, part);
        kvr_list_add(run, made,
            is_sglang_text(part) && text ? text_part(run, *text) : simple_medium(run, part));
    }
    if (!as_parts || (tool && texts->count == parts->count))
        return kvr_text_value(join_texts(run, texts, " ", JOIN_ALL));
    return kvr_list_value(made);
}

static struct dict *as_sglang(struct run *run, struct dict *message, bool as_parts)
{
    struct value *content;
    parse_arguments(run, message, false);
    content = kvr_dict_find_name(message, "content");
    if (!content || content->type == VALUE_NONE)
        kvr_dict_set_name(run, message, "content", literal(run, ""));
    else if (content->type == VALUE_LIST)
        *content = sglang_content(
            run, content->list, as_parts, is_text(kvr_dict_find_name(message, "role"), "tool"));
    return without_nulls(run, message);
}

/* A last message of the assistant is not left to the template. */
static void take_last(struct run *run, struct kvr_chat_work *work)
{
    struct value *last;
    struct value *content;
    struct value kept;
    if (!work->messages->count)
        return;
    last = &work->messages->items[work->messages->count - 1];
    content = member(*last, "content");
    if (!is_text(member(*last, "role"), "assistant") || !content || content->type != VALUE_TEXT)
        return;
    kept = *content;
    if (work->request->continue_final_message) {
        work->appended = kept.text;
        work->messages->count--;
        return;
    }
    last->dict = kvr_dict_new(run, 2);
    kvr_dict_set_name(run, last->dict, "role", literal(run, "user"));
    kvr_dict_set_name(run, last->dict, "content", kept);
}

/* ---- llama.cpp ---- */

/* Whole numbers as integers, in place, also within lists and objects: its JSON has no 1.0. */
static struct value whole_numbers(struct value value)
{
    if (value.type == VALUE_FLOAT && value.real > -1e15 && value.real < 1e15 &&
        value.real == (double)(int64_t)value.real)
        return kvr_integer((int64_t)value.real);
    for (size_t i = 0; value.type == VALUE_LIST && i < value.list->count; i++)
        value.list->items[i] = whole_numbers(value.list->items[i]);
    for (size_t i = 0; value.type == VALUE_DICT && i < value.dict->count; i++)
        value.dict->entries[i].value = whole_numbers(value.dict->entries[i].value);
    return value;
}

static void as_llamacpp(struct run *run, struct dict *message, const struct kvr_chat_named *named)
{
    struct value *content = kvr_dict_find_name(message, "content");
    struct value *calls = kvr_dict_find_name(message, "tool_calls");

    bool as_parts = named && named->parts_in_vllm;

    if (is_text(kvr_dict_find_name(message, "role"), "developer") &&
        !(named && kvr_template_mentions(named->compiled, "<|channel|>")))
        kvr_dict_set_name(run, message, "role", literal(run, "system"));
    if (!content && !calls)
        kvr_run_raise(run, "ValueError", "a message has neither 'content' nor 'tool_calls'");
    if (!content || content->type == VALUE_NONE)
        kvr_dict_set_name(run, message, "content", literal(run, ""));
    else if (content->type == VALUE_LIST && !as_parts)
        *content = kvr_text_value(join_texts(run, content->list, "\n", JOIN_AFTER_TEXT));
    else if (content->type == VALUE_LIST)
        simplify_media(run, content->list);
    else if (content->type != VALUE_TEXT)
        kvr_run_raise(run, "TypeError", "the content of a message is neither text nor a list");
    parse_arguments(run, message, false);
    if (calls)
        *calls = whole_numbers(*calls);
}

/* A last message of the assistant is not rendered: it follows, for the model to go on with. */
static void leave_last_open(struct run *run, struct kvr_chat_work *work)
{
    size_t count = work->messages->count;
    struct value last = work->messages->items[count - 1];
    const struct value *reasoning = member(last, "reasoning_content");
    const struct value *calls = member(last, "tool_calls");
    const struct value *content = member(last, "content");

    if (count > 1 && is_text(member(work->messages->items[count - 2], "role"), "assistant"))
        kvr_run_raise(run, "ValueError", "two messages of the assistant at the end");
    if (calls && kvr_jinja_truth(run, *calls))
        kvr_run_raise(run, "ValueError", "a message with tool calls cannot be continued");
    if (reasoning && kvr_jinja_truth(run, *reasoning))
        kvr_run_raise(
            run, "not supported", "continuing a message with reasoning in the style of llama.cpp");
    work->appended = content->type == VALUE_LIST
                         ? join_texts(run, content->list, "\n\n", JOIN_AFTER_TEXT)
                         : content->text;
    work->messages->count--;
    work->add_generation_prompt = true;
    if (work->kwargs.type != VALUE_DICT)
        work->kwargs = kvr_dict_value(kvr_dict_new(run, 1));
    kvr_dict_set_name(run, work->kwargs.dict, "enable_thinking", kvr_bool(false));
}

/* A system's message that the template refuses stands before the text of the next one. */
static void merge_system(struct run *run, struct kvr_chat_work *work)
{
    struct list *messages = work->messages;
    const struct value *first;
    struct value *second;

    if (!messages->count || !is_text(member(messages->items[0], "role"), "system"))
        return;
    first = member(messages->items[0], "content");
    second = messages->count > 1 ? member(messages->items[1], "content") : NULL;
    if (second && second->type == VALUE_TEXT && first->type == VALUE_TEXT)
        second->text = kvr_text_join(
            run, kvr_text_join(run, first->text, kvr_text_literal(run, "\n")), second->text);
    memmove(messages->items, messages->items + 1, --messages->count * sizeof *messages->items);
}

/* ---- all of them ---- */

void kvr_chat_style_apply(struct run *run, struct kvr_chat_work *work)
{
    enum kvr_chat_style style = work->request->style;
    const struct kvr_chat_named *named = work->named;
    if (style == KVR_CHAT_TRANSFORMERS_5 && !work->messages->count)
        kvr_run_raise(run, "ValueError",
            "Cannot apply chat template to an empty conversation. "
            "Provide at least one message.");
    for (size_t i = 0; i < work->messages->count; i++) {
        struct value *message = &work->messages->items[i];
        if (message->type != VALUE_DICT) {
            if (style == KVR_CHAT_PLAIN && named)
                continue;
            kvr_run_raise(run, "TypeError", "message %zu is no object", i);
        }
        if (style == KVR_CHAT_TRANSFORMERS_5)
            message->dict = with_reasoning(run, without_nulls(run, message->dict));
        else if (style == KVR_CHAT_VLLM)
            message->dict = as_vllm(run, message->dict, named && named->parts_in_vllm);
        else if (style == KVR_CHAT_SGLANG)
            message->dict = as_sglang(run, message->dict, named && named->parts_in_sglang);
        else if (style == KVR_CHAT_LLAMACPP)
            as_llamacpp(run, message->dict, named);
    }
    if (style == KVR_CHAT_LLAMACPP) {
        if (work->no_system)
            merge_system(run, work);
        work->tools = whole_numbers(work->tools);
        if (work->messages->count &&
            is_text(member(work->messages->items[work->messages->count - 1], "role"), "assistant"))
            leave_last_open(run, work);
    }
    if (style == KVR_CHAT_VLLM || style == KVR_CHAT_SGLANG)
        dump_tools(run, work);
    if (style == KVR_CHAT_SGLANG) {
        work->add_generation_prompt = true;
        take_last(run, work);
    }
}
