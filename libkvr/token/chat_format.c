/*
 * Whether a template takes a message's content as a string or as a list of parts. The engines read
 * it off the template's tree, each by rules of its own, and what they find decides what the
 * template is given; so the rules are theirs, with their gaps.
 *
 * vLLM (renderers/hf.py): names that are set from `messages`, maybe filtered or sliced; loops over
 * these; loops over `.content` of such a loop's variable, or over a macro's parameter that a call
 * hands one to; or, outside of macros, any loop over a plain name `content`.
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
    unsigned in_macros; /* how many are around what is looked at */
    bool named_content; /* a loop over a plain name content */
    bool loop_found;    /* over the content of a message */
    bool sglang_found;
    const struct node *macro; /* the one whose calls are looked for */
    uint64_t handed;          /* a bit for each of its first parameters that is given a content */
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
    habits->named_content |= !habits->in_macros && is_named(node->second, "content");
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
        habits->in_macros += body->items[i]->kind == NODE_MACRO;
        look_through(habits, &body->items[i]->items);
        look_through(habits, &body->items[i]->otherwise);
        habits->in_macros -= body->items[i]->kind == NODE_MACRO;
    }
}

/* ---- macros that are handed a content ---- */

typedef void visitor(struct habits *habits, const struct node *node);

static void visit_body(struct habits *habits, const struct body *body, visitor *visit);

/* A node and all that is under it. */
static void visit_all(struct habits *habits, const struct node *node, visitor *visit)
{
    if (!node)
        return;
    visit(habits, node);
    visit_all(habits, node->first, visit);
    visit_all(habits, node->second, visit);
    visit_all(habits, node->third, visit);
    visit_body(habits, &node->items, visit);
    visit_body(habits, &node->otherwise, visit);
    if (node->arguments) {
        visit_body(habits, &node->arguments->positional, visit);
        for (size_t i = 0; i < node->arguments->keyword_count; i++)
            visit_all(habits, node->arguments->keywords[i].value, visit);
    }
}

static void visit_body(struct habits *habits, const struct body *body, visitor *visit)
{
    for (size_t i = 0; i < body->count; i++)
        visit_all(habits, body->items[i], visit);
}

static bool is_content(const struct habits *habits, const struct node *node)
{
    const struct node *owner = owner_of_content(node);
    return owner && habits->message[owner->symbol];
}

static void look_at_call(struct habits *habits, const struct node *node)
{
    const struct signature *signature = habits->macro->signature;
    const struct arguments *given = node->arguments;
    if (node->kind != NODE_CALL || node->first->kind != NODE_NAME || !given ||
        node->first->symbol != signature->symbol)
        return;
    for (size_t i = 0; i < signature->count && i < 64; i++) {
        bool handed = i < given->positional.count && is_content(habits, given->positional.items[i]);
        for (size_t j = 0; j < given->keyword_count; j++)
            handed |= kvr_text_equal(given->keywords[j].name, signature->names[i]) &&
                      is_content(habits, given->keywords[j].value);
        habits->handed |= (uint64_t)handed << i;
    }
}

static void look_at_loop(struct habits *habits, const struct node *node)
{
    const struct signature *signature = habits->macro->signature;
    if (node->kind != NODE_FOR || node->first->kind != NODE_NAME || node->second->kind != NODE_NAME)
        return;
    for (size_t i = 0; i < signature->count && i < 64; i++)
        habits->loop_found |=
            habits->handed >> i & 1 && node->second->symbol == signature->symbols[i];
}

static void look_at_macro(struct habits *habits, const struct node *node)
{
    if (node->kind != NODE_MACRO)
        return;
    habits->macro = node;
    habits->handed = 0;
    visit_body(habits, &habits->compiled->body, look_at_call);
    if (habits->handed)
        visit_body(habits, &node->items, look_at_loop);
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
    visit_body(habits, &compiled->body, look_at_macro);
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
