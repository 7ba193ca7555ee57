/*
 * Messages on their way to a template: what the styles change in them, the media in them, and the
 * open end of a message that is to be continued.
 *
 * An end is left open as transformers does it: the last message's text gets a tag at its end, the
 * template is rendered, and the text is cut where the tag came out. Whether the template kept the
 * space after the tag tells whether it trims the text, and then so is what stands before the cut.
 */
#include "token/chat_internal.h"

#include <string.h>
#include <xxhash.h>

static const char open_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static struct value *member(struct value object, const char *name)
{
    return object.type == VALUE_DICT ? kvr_dict_find_name(object.dict, name) : NULL;
}

static bool is_text(const struct value *value, const char *literal)
{
    return value && value->type == VALUE_TEXT && kvr_text_is(value->text, literal);
}

/* ---- media ---- */

static bool is_text_part(struct value part)
{
    const struct value *type = member(part, "type");
    if (part.type == VALUE_TEXT)
        return true;
    if (!type)
        return member(part, "text");
    return is_text(type, "text") || is_text(type, "input_text") || is_text(type, "output_text") ||
           is_text(type, "refusal") || is_text(type, "thinking");
}

static void find_media(struct run *run, struct kvr_chat_work *work)
{
    size_t capacity = 0;
    for (size_t i = 0; i < work->messages->count; i++) {
        struct value message = work->messages->items[i];
        const struct value *content = member(message, "content");
        if (!content || content->type != VALUE_LIST)
            continue;
        for (size_t j = 0; j < content->list->count; j++) {
            struct value part = content->list->items[j];
            const struct text *text;
            if (is_text_part(part) || part.type != VALUE_DICT)
                continue;
            if (work->media_count == capacity) {
                struct kvr_chat_media *grown;
                capacity = capacity ? capacity * 2 : 8;
                grown = kvr_run_array(run, capacity, sizeof *grown);
                if (work->media_count)
                    memcpy(grown, work->media, work->media_count * sizeof *grown);
                work->media = grown;
            }
            text = kvr_jinja_json(run, part, kvr_missing(), false, false, kvr_missing());
            work->media[work->media_count++] = (struct kvr_chat_media){
                .hash = XXH3_64bits(text->data, text->length), .message = i, .part = j};
            part.dict->mark = ++run->mark_count;
            if (!message.dict->mark)
                message.dict->mark = ++run->mark_count;
        }
    }
}

/* ---- styles ---- */

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

/* A part as vLLM hands it to templates: the API's image_url and its like are {"type": "image"}. */
static struct value vllm_part(struct run *run, struct value part)
{
    static const char *const names[][2] = {{"image_url", "image"}, {"input_image", "image"},
        {"image_pil", "image"}, {"image_embeds", "image"}, {"video_url", "video"},
        {"audio_url", "audio"}, {"input_audio", "audio"}};
    const struct value *type = member(part, "type");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct dict *made;
        if (!is_text(type, names[i][0]))
            continue;
        made = kvr_dict_new(run, 1);
        made->mark = part.dict->mark;
        kvr_dict_set_name(run, made, "type", kvr_text_value(kvr_text_literal(run, names[i][1])));
        return kvr_dict_value(made);
    }
    return part;
}

static struct value vllm_content(struct run *run, struct value content, bool as_parts)
{
    struct text *joined = kvr_text_literal(run, "");
    bool first = true;
    if (as_parts && content.type == VALUE_TEXT) {
        struct dict *part = kvr_dict_new(run, 2);
        struct list *parts = kvr_list_new(run, 1);
        kvr_dict_set_name(run, part, "type", kvr_text_value(kvr_text_literal(run, "text")));
        kvr_dict_set_name(run, part, "text", content);
        kvr_list_add(run, parts, kvr_dict_value(part));
        return kvr_list_value(parts);
    }
    if (content.type == VALUE_NONE)
        return as_parts ? kvr_list_value(kvr_list_new(run, 0)) : kvr_text_value(joined);
    if (content.type != VALUE_LIST)
        return content;
    if (as_parts) {
        for (size_t i = 0; i < content.list->count; i++)
            content.list->items[i] = vllm_part(run, content.list->items[i]);
        return content;
    }
    for (size_t i = 0; i < content.list->count; i++) {
        struct text *text = part_text(content.list->items[i]);
        if (!text)
            continue;
        if (!first)
            joined = kvr_text_join(run, joined, kvr_text_literal(run, "\n"));
        joined = first ? text : kvr_text_join(run, joined, text);
        first = false;
    }
    return kvr_text_value(joined);
}

/* Tool calls' arguments are JSON in a string in the API, and objects for templates. */
static void parse_arguments(struct run *run, struct value calls)
{
    for (size_t i = 0; calls.type == VALUE_LIST && i < calls.list->count; i++) {
        struct value *function = member(calls.list->items[i], "function");
        struct value *arguments = function ? member(*function, "arguments") : NULL;
        if (!function || function->type != VALUE_DICT)
            continue;
        if (!arguments || !kvr_jinja_truth(run, *arguments))
            kvr_dict_set_name(
                run, function->dict, "arguments", kvr_dict_value(kvr_dict_new(run, 0)));
        else if (arguments->type == VALUE_TEXT)
            *arguments = kvr_json_read(run, arguments->text->data, arguments->text->length, false);
    }
}

static void as_vllm(struct run *run, struct dict *message, bool as_parts)
{
    struct value *content = kvr_dict_find_name(message, "content");
    struct value *calls = kvr_dict_find_name(message, "tool_calls");
    const struct value *role = kvr_dict_find_name(message, "role");
    if (calls && calls->type == VALUE_LIST && is_text(role, "assistant"))
        parse_arguments(run, *calls);
    kvr_dict_set_name(
        run, message, "content", vllm_content(run, content ? *content : kvr_none(), as_parts));
}

void kvr_chat_prepare(struct run *run, struct kvr_chat_work *work)
{
    enum kvr_chat_style style = work->request->style;
    bool as_parts = work->named && work->named->walks_content;
    if (style == KVR_CHAT_TRANSFORMERS_5 && !work->messages->count)
        kvr_run_raise(run, "ValueError",
            "Cannot apply chat template to an empty conversation. "
            "Provide at least one message.");
    find_media(run, work);
    for (size_t i = 0; i < work->messages->count; i++) {
        struct value *message = &work->messages->items[i];
        if (message->type != VALUE_DICT) {
            if (style == KVR_CHAT_PLAIN && work->named)
                continue;
            kvr_run_raise(run, "TypeError", "message %zu is no object", i);
        }
        if (style == KVR_CHAT_TRANSFORMERS_5)
            message->dict = with_reasoning(run, without_nulls(run, message->dict));
        else if (style == KVR_CHAT_VLLM)
            as_vllm(run, message->dict, as_parts);
    }
    if (run->mark_count) {
        run->marks = kvr_run_array(run, run->mark_count, sizeof *run->marks);
        memset(run->marks, 0, run->mark_count * sizeof *run->marks);
    }
}

/* ---- the open end ---- */

static struct text *tagged(struct run *run, struct text *text)
{
    struct text *tag = kvr_text_literal(run, open_tag);
    tag->origin = ORIGIN_CONTENT;
    return kvr_text_join(run, text, tag);
}

void kvr_chat_open_end(struct run *run, struct kvr_chat_work *work)
{
    struct value *message;
    struct value *content;
    if (work->request->add_generation_prompt)
        kvr_run_raise(run, "ValueError",
            "continue_final_message and add_generation_prompt are not compatible");
    if (!work->messages->count)
        kvr_run_raise(
            run, "ValueError", "continue_final_message is set but the conversation is empty");
    message = &work->messages->items[work->messages->count - 1];
    content = member(*message, "content");
    if (!content || content->type == VALUE_NONE)
        kvr_run_raise(run, "ValueError",
            "continue_final_message is set but the final message has no content to continue");
    if (work->named && !kvr_template_mentions(work->named->compiled, "content"))
        kvr_run_raise(run, "ValueError",
            "continue_final_message is set but the template does not "
            "use the content of messages");
    if (content->type == VALUE_TEXT) {
        work->continued = content->text;
        content->text = tagged(run, content->text);
        return;
    }
    for (size_t i = content->type == VALUE_LIST ? content->list->count : 0; i--;) {
        struct value *text = member(content->list->items[i], "text");
        if (!text || text->type != VALUE_TEXT)
            continue;
        work->continued = text->text;
        text->text = tagged(run, text->text);
        return;
    }
    kvr_run_raise(run, "ValueError",
        "continue_final_message is set but there is no text to continue in the final message");
}

static void cut_pieces(struct run *run, size_t length)
{
    while (run->piece_count && run->pieces[run->piece_count - 1].start >= length)
        run->piece_count--;
    if (run->piece_count && run->pieces[run->piece_count - 1].end > length)
        run->pieces[run->piece_count - 1].end = length;
}

void kvr_chat_cut_end(struct run *run, struct kvr_chat_work *work)
{
    struct text rendered = {.data = run->out->data + run->out_start,
        .length = run->out->length - run->out_start,
        .points = SIZE_MAX};
    const struct text *wanted = kvr_text_strip(run, work->continued, NULL);
    size_t tag_length = strlen(open_tag) - 1;
    size_t at = rendered.length;
    bool found = false;
    while (at >= tag_length && !found) {
        found = memcmp(rendered.data + at - tag_length, open_tag, tag_length) == 0;
        at -= found ? tag_length : 1;
    }
    if (!found || !kvr_bytes_find(rendered.data, rendered.length, wanted->data, wanted->length))
        kvr_run_raise(run, "ValueError",
            "continue_final_message is set but the final message does "
            "not appear in the chat after applying the chat template");
    if (at + tag_length == rendered.length || rendered.data[at + tag_length] != ' ') {
        rendered.length = at;
        at = kvr_text_strip_right(&rendered, NULL, 0);
    }
    run->out->length = run->out_start + at;
    cut_pieces(run, at);
}
