/*
 * Stepping through large JSON by the positions that its check found, where json.h's cursors look
 * for the end of every value again: a vocabulary is megabytes of short strings, most of it the
 * whitespace between them.
 *
 * A walk is good for as long as the structure that kvr_json_check() was given keeps its positions:
 * until its next check. Values are those of json.h, pieces of the text.
 */
#ifndef KVR_LINE_JSON_WALK_H
#define KVR_LINE_JSON_WALK_H

#include "line/json.h"

struct kvr_json_walk {
    const char *text;
    const uint32_t *at;    /* the position of what comes next, or of the bracket that ends it all */
    const uint32_t *value; /* of the value given last */
};

/* Walks through a container (or nothing, where value is none) of a text that was checked. */
struct kvr_json_walk kvr_json_walk_open(
    const struct kvr_structure *structure, const char *text, struct kvr_value value);

/* Walks through the container that the walk gave last. */
struct kvr_json_walk kvr_json_walk_into(const struct kvr_json_walk *walk);

/* The position behind a value that is an array or object. */
const uint32_t *kvr_json_walk_over(const char *text, const uint32_t *at);

/* The value at the next position. Everything up to the one behind it is its own or whitespace. */
static inline struct kvr_value kvr_json_walk_value(struct kvr_json_walk *walk)
{
    const char *text = walk->text;
    struct kvr_value value = {.text = text + walk->at[0]};

    walk->value = walk->at;
    if (*value.text == '"') {
        const char *end = text + walk->at[1];
        while (end[-1] != '"')
            end--;
        value.length = (size_t)(end - value.text);
        value.type = KVR_STRING;
        walk->at++;
    } else if (*value.text == '[' || *value.text == '{') {
        walk->at = kvr_json_walk_over(text, walk->at);
        value.length = (size_t)(text + walk->at[-1] + 1 - value.text);
        value.type = *value.text == '[' ? KVR_ARRAY : KVR_OBJECT;
    } else {
        const char *end = text + walk->at[1];
        while ((unsigned char)end[-1] <= ' ')
            end--;
        value.length = (size_t)(end - value.text);
        value.type = kvr_json_type(*value.text);
        walk->at++;
    }
    return value;
}

/* Like kvr_next_element() and kvr_next_member(). */
static inline bool kvr_json_walk_element(struct kvr_json_walk *walk, struct kvr_value *element)
{
    if (!walk->at || walk->text[*walk->at] == ']')
        return false;
    *element = kvr_json_walk_value(walk);
    walk->at += walk->text[*walk->at] == ',';
    return true;
}

static inline bool kvr_json_walk_member(struct kvr_json_walk *walk, struct kvr_member *member)
{
    if (!walk->at || walk->text[*walk->at] == '}')
        return false;
    member->name = kvr_json_walk_value(walk);
    walk->at++; /* the colon */
    member->value = kvr_json_walk_value(walk);
    walk->at += walk->text[*walk->at] == ',';
    return true;
}

#endif
