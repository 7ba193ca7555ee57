/*
 * Whether a template takes a message's content as a string or as a list of parts. The engines read
 * it off the template's tree, each by rules of its own, and what they find decides what the
 * template is given; so the rules are theirs, with their gaps.
 *
 * vLLM (renderers/hf.py): names that are set from `messages`, maybe filtered or sliced; loops over
 * these; loops over `.content` of such a loop's variable; or any loop over a plain name `content`.
 * SGLang (parser/jinja_template_utils.py): a template that mentions image, audio, video or vision;
 * or a loop over `.content` of message, msg or m.
 */
#include "token/chat_internal.h"

#include <stdlib.h>
#include <string.h>

/* Goes down through filters, tests and slices. */
static const struct node *innermost(const struct node *node)
{
    while (node && (node->kind == NODE_FILTER || node->kind == NODE_TEST ||
                       (node->kind == NODE_ITEM && node->second->kind == NODE_SLICE)))
        node = node->first;
    return node;
}

/* The name whose .content or ['content'] this is, or NULL. */
static const struct node *owner_of_content(const struct node *node)
{
    bool content = false;
    node = innermost(node);
    if (!node)
        return NULL;
    if (node->kind == NODE_ATTRIBUTE)
        content = kvr_template_text_is(node->value.text, "content");
    else if (node->kind == NODE_ITEM && node->second->kind == NODE_CONSTANT)
        content = node->second->value.type == VALUE_TEXT &&
                  kvr_template_text_is(node->second->value.text, "content");
    return content && node->first->kind == NODE_NAME ? node->first : NULL;
}

/* What is known of names, by symbol. */
struct habits {
    const struct kvr_template *compiled;
    bool *messages; /* set from messages */
    bool *message;  /* the variable of a loop over them */
    bool changed;
    bool named_content; /* a loop over a plain name content */
    bool loop_found;    /* over the content of a message */
    bool sglang_found;
};

static bool is_named(const struct node *node, const char *name)
{
    return node->kind == NODE_NAME && kvr_template_text_is(node->value.text, name);
}

static void look_at(struct habits *habits, const struct node *node)
{
    const struct node *source;
    const struct node *owner;
    if (node->kind == NODE_SET && node->first->kind == NODE_NAME) {
        source = innermost(node->second);
        if (source && source->kind == NODE_NAME && habits->messages[source->symbol] &&
            !habits->messages[node->first->symbol])
            habits->changed = habits->messages[node->first->symbol] = true;
    }
    if (node->kind != NODE_FOR || node->first->kind != NODE_NAME)
        return;
    source = innermost(node->second);
    if (source && source->kind == NODE_NAME && habits->messages[source->symbol] &&
        !habits->message[node->first->symbol])
        habits->changed = habits->message[node->first->symbol] = true;
    habits->named_content |= is_named(node->second, "content");
    owner = owner_of_content(node->second);
    if (owner) {
        habits->loop_found |= habits->message[owner->symbol];
        habits->sglang_found |=
            is_named(owner, "message") || is_named(owner, "msg") || is_named(owner, "m");
    }
}

static void look_through(struct habits *habits, const struct body *body)
{
    for (size_t i = 0; i < body->count; i++) {
        if (!body->items[i])
            continue;
        look_at(habits, body->items[i]);
        look_through(habits, &body->items[i]->items);
        look_through(habits, &body->items[i]->otherwise);
    }
}

/* Looks until nothing new is learnt; each round but the last learns of a name. */
static bool learn(struct habits *habits, const struct kvr_template *compiled)
{
    *habits = (struct habits){.compiled = compiled};
    habits->messages = calloc(compiled->symbol_count * 2 + 2, sizeof *habits->messages);
    if (!habits->messages)
        return false;
    habits->message = habits->messages + compiled->symbol_count + 1;
    for (size_t i = 0; i < compiled->symbol_count; i++)
        habits->messages[i] = kvr_template_text_is(compiled->symbols[i], "messages");
    for (unsigned round = 0; round < 16; round++) {
        habits->changed = false;
        look_through(habits, &compiled->body);
        if (!habits->changed)
            break;
    }
    free(habits->messages);
    return true;
}

bool kvr_chat_parts_in_vllm(const struct kvr_template *compiled)
{
    struct habits habits;
    return learn(&habits, compiled) && (habits.loop_found || habits.named_content);
}

bool kvr_chat_parts_in_sglang(const struct kvr_template *compiled)
{
    static const char *const words[] = {"image", "audio", "video", "vision"};
    struct habits habits;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (kvr_template_mentions(compiled, words[i]))
            return true;
    return learn(&habits, compiled) && habits.sglang_found;
}
