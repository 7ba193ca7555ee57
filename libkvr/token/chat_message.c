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
    return value && value->type == VALUE_TEXT && kvr_template_text_is(value->text, literal);
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
            const struct value *uuid = member(part, "uuid");
            bool named = uuid && uuid->type == VALUE_TEXT;
            const struct text *text;
            if (is_text_part(part) || part.type != VALUE_DICT)
                continue;
            if (work->media_count == capacity) {
                struct kvr_chat_media *grown;
                struct kvr_chat_marks *grown_marks;
                capacity = capacity ? capacity * 2 : 8;
                grown = kvr_run_array(run, capacity, sizeof *grown);
                grown_marks = kvr_run_array(run, capacity, sizeof *grown_marks);
                if (work->media_count) {
                    memcpy(grown, work->media, work->media_count * sizeof *grown);
                    memcpy(grown_marks, work->media_marks, work->media_count * sizeof *grown_marks);
                }
                work->media = grown;
                work->media_marks = grown_marks;
            }
            text = kvr_jinja_json(run, part, kvr_missing(), false, false, kvr_missing());
            if (!message.dict->mark)
                message.dict->mark = ++run->mark_count;
            part.dict->mark = ++run->mark_count;
            work->media_marks[work->media_count] =
                (struct kvr_chat_marks){message.dict->mark, part.dict->mark};
            work->media[work->media_count++] =
                (struct kvr_chat_media){.hash = XXH3_64bits(text->data, text->length),
                    .uuid = named ? uuid->text->data : NULL,
                    .uuid_length = named ? uuid->text->length : 0,
                    .message = i,
                    .part = j};
        }
    }
}

void kvr_chat_prepare(struct run *run, struct kvr_chat_work *work)
{
    find_media(run, work);
    kvr_chat_style_apply(run, work);
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
    struct text rendered = {.data = run->out->data ? run->out->data + run->out_start : "",
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
