/*
 * Members of small nested objects, fast: most are {"worker":"w0","matched":4096,…} without
 * whitespace or escapes, and are read here in one pass; anything else goes the general way.
 */
#ifndef KVR_STAT_SCAN_H
#define KVR_STAT_SCAN_H

#include "line/json.h"

/* Bytes that end a number in compact JSON. */
static inline bool kvr_scan_ends_number(char byte)
{
    return byte == ',' || byte == '}' || byte == ']' || byte <= ' ';
}

/* The next member of the object that cursor was opened on (kvr_value_open). */
static inline bool kvr_scan_member(
    struct kvr_cursor *cursor, struct kvr_text *name, struct kvr_value *value)
{
    const char *at = cursor->at;
    struct kvr_member member;

    if (!at)
        return false;
    if (at < cursor->end && *at == ',')
        at++;
    if (at >= cursor->end || *at != '"')
        goto general;
    name->text = ++at;
    while (*at != '"' && *at != '\\')
        at++;
    if (*at == '\\' || at[1] != ':')
        goto general;
    name->length = (size_t)(at - name->text);
    at += 2;
    value->text = at;
    if (*at == '"') {
        at++;
        while (*at != '"' && *at != '\\')
            at++;
        if (*at == '\\')
            goto general;
        at++;
        value->type = KVR_STRING;
    } else if ((unsigned)(*at - '0') <= 9 || *at == '-') {
        while (!kvr_scan_ends_number(*at))
            at++;
        value->type = KVR_NUMBER;
    } else {
        goto general;
    }
    value->length = (size_t)(at - value->text);
    cursor->at = at;
    return true;
general:
    if (!kvr_next_member(cursor, &member))
        return false;
    *name = (struct kvr_text){member.name.text + 1, member.name.length - 2};
    *value = member.value;
    return true;
}

static inline bool kvr_text_is(struct kvr_text text, const char *literal, size_t length)
{
    return text.length == length && memcmp(text.text, literal, length) == 0;
}

/* For string literals only. */
#define KVR_TEXT_IS(text, literal) kvr_text_is(text, literal, sizeof(literal) - 1)

#endif
