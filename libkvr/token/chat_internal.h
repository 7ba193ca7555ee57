/* What the files of chat.h share. */
#ifndef KVR_TOKEN_CHAT_INTERNAL_H
#define KVR_TOKEN_CHAT_INTERNAL_H

#include "token/chat.h"
#include "token/template_internal.h"

struct kvr_chat_named {
    char *name;
    struct kvr_template *compiled;
    bool parts_in_vllm;
    bool parts_in_sglang;
};

struct kvr_chat {
    struct kvr_chat_named *templates;
    size_t template_count;
    struct {
        char *name;
        char *text;
    } * tokens;
    size_t token_count;
};

/* One of a model's files: data NULL: there is none. */
struct kvr_chat_text {
    const char *path; /* whom errors blame; NULL: the text is in no file */
    struct kvr_chat_json text;
};

/* A template of additional_chat_templates, which owns what it holds. */
struct kvr_chat_text_named {
    char *name;
    struct kvr_buffer path, bytes;
};

struct kvr_chat_texts {
    struct kvr_chat_text config, source, special_map;
    struct kvr_chat_text_named *named;
    size_t named_count;
};
enum kvr_status kvr_chat_read_texts(
    struct kvr_chat **out, const struct kvr_chat_texts *texts, struct kvr_error *error);

/* Whether a template takes message contents as lists of parts, as the engines find out by reading
 * it (chat_format.c). */
bool kvr_chat_parts_in_vllm(const struct kvr_template *compiled);
bool kvr_chat_parts_in_sglang(const struct kvr_template *compiled);

/* One request on its way into a template. */
struct kvr_chat_work {
    const struct kvr_chat *chat;
    const struct kvr_chat_request *request;
    const struct kvr_chat_named *named;
    struct list *messages;
    struct value tools;
    struct value documents;
    struct value kwargs;
    struct value effort; /* reasoning_effort: a text, or anything that does not count */
    struct kvr_chat_media *media;
    size_t media_count;
    struct kvr_chat_marks {
        size_t message;
        size_t part;
    } * media_marks;        /* of their dicts */
    struct text *continued; /* the text that is left open, or NULL */
    struct text *appended;  /* what follows the rendered text, or NULL */
    bool add_generation_prompt;
    bool flat_tools; /* without {"type": "function", "function": ...} around them */
    bool no_system;  /* the system's message goes into the next one */
};

/* The messages and tools as the style has them; raises where they have no form to work with. */
void kvr_chat_style_apply(struct run *run, struct kvr_chat_work *work);
/* The same, and the media in them. */
void kvr_chat_prepare(struct run *run, struct kvr_chat_work *work);
/* Marks the last message's text; after the rendering, cuts the text there. */
void kvr_chat_open_end(struct run *run, struct kvr_chat_work *work);
void kvr_chat_cut_end(struct run *run, struct kvr_chat_work *work);

#endif
