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

/* A member as it was scanned. Plain decimal numbers of at most 15 digits, which are almost all
 * there are, come read: `plain` says so. */
struct kvr_scanned {
    struct kvr_text name;
    struct kvr_value value;
    bool plain;
    uint32_t decimals; /* so many of the digits stand behind the point */
    uint64_t digits;
};

static const double kvr_scan_powers[] = {
    1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17};

/* The value of a plain number: digits and power are both exact in a double, so that the division
 * rounds once, as strtod does. */
static inline double kvr_scanned_number(const struct kvr_scanned *member)
{
    return (double)member->digits / kvr_scan_powers[member->decimals];
}

/* Reads the digits at `at`; the byte after the number. */
static inline const char *kvr_scan_digits(const char *at, struct kvr_scanned *member)
{
    const char *start = at, *point = NULL;
    uint64_t digits = 0;

    for (;; at++) {
        unsigned digit = (unsigned)(*at - '0');
        if (digit <= 9)
            digits = digits * 10 + digit;
        else if (*at == '.' && !point)
            point = at;
        else
            break;
    }
    size_t length = (size_t)(at - start);
    member->plain = length <= 16 && digits < (uint64_t)1 << 53 && kvr_scan_ends_number(*at);
    member->decimals = point ? (uint32_t)(at - point - 1) : 0;
    member->digits = digits;
    while (!kvr_scan_ends_number(*at))
        at++;
    return at;
}

/* The next member of the object that cursor was opened on (kvr_value_open). */
static inline bool kvr_scan_member(struct kvr_cursor *cursor, struct kvr_scanned *member)
{
    const char *at = cursor->at;
    struct kvr_member general;

    member->plain = false;
    if (!at)
        return false;
    if (at < cursor->end && *at == ',')
        at++;
    if (at >= cursor->end || *at != '"')
        goto general;
    member->name.text = ++at;
    while (*at != '"' && *at != '\\')
        at++;
    if (*at == '\\' || at[1] != ':')
        goto general;
    member->name.length = (size_t)(at - member->name.text);
    at += 2;
    member->value.text = at;
    if ((unsigned)(*at - '0') <= 9) {
        at = kvr_scan_digits(at, member);
        member->value.type = KVR_NUMBER;
    } else if (*at == '"') {
        at++;
        while (*at != '"' && *at != '\\')
            at++;
        if (*at == '\\')
            goto general;
        at++;
        member->value.type = KVR_STRING;
    } else {
        goto general;
    }
    member->value.length = (size_t)(at - member->value.text);
    cursor->at = at;
    return true;
general:
    if (!kvr_next_member(cursor, &general))
        return false;
    member->name = (struct kvr_text){general.name.text + 1, general.name.length - 2};
    member->value = general.value;
    return true;
}

static inline bool kvr_text_equals(struct kvr_text text, const char *literal, size_t length)
{
    return text.length == length && memcmp(text.text, literal, length) == 0;
}

/* For string literals only. */
#define KVR_TEXT_IS(text, literal) kvr_text_equals(text, literal, sizeof(literal) - 1)

#endif
