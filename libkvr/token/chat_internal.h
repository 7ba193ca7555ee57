/* What the files of chat.h share. */
#ifndef KVR_TOKEN_CHAT_INTERNAL_H
#define KVR_TOKEN_CHAT_INTERNAL_H

#include "token/chat.h"
#include "token/template_internal.h"

struct kvr_chat_named {
    char *name;
    struct kvr_template *compiled;
    bool walks_content; /* has a loop over a message's content */
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

/* Whether the template walks over a message's content with `for`, which is how vLLM tells those
 * that take parts from those that take a string. */
bool kvr_chat_walks_content(const struct kvr_template *compiled);

/* One request on its way into a template. */
struct kvr_chat_work {
    const struct kvr_chat *chat;
    const struct kvr_chat_request *request;
    const struct kvr_chat_named *named;
    struct list *messages;
    struct value tools;
    struct value documents;
    struct value kwargs;
    struct kvr_chat_media *media;
    size_t media_count;
    struct text *continued; /* the text that is left open, or NULL */
};

/* The messages as the style has them; raises where they have no form to work with. */
void kvr_chat_prepare(struct run *run, struct kvr_chat_work *work);
/* Marks the last message's text; after the rendering, cuts the text there. */
void kvr_chat_open_end(struct run *run, struct kvr_chat_work *work);
void kvr_chat_cut_end(struct run *run, struct kvr_chat_work *work);

#endif
