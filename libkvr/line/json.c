/* Access to values inside checked JSON: these functions trust the syntax and only look around. */
#include "line/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static inline const char *skip_space(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')
        at++;
    return at;
}

/* The byte after the string whose opening quote is at `at`. The next quote ends it unless an odd
 * number of backslashes stands before it: prompts are long and quotes in them few. */
static const char *string_end(const char *at)
{
    const char *quote = at, *before;

    do {
        quote = rawmemchr(quote + 1, '"');
        before = quote;
        while (before[-1] == '\\')
            before--;
    } while ((quote - before) & 1);
    return quote + 1;
}

static const char *value_end(const char *at)
{
    int depth = 0;

    if (*at == '"')
        return string_end(at);
    if (*at != '{' && *at != '[') {
        while ((unsigned char)*at > ' ' && *at != ',' && *at != ']' && *at != '}')
            at++;
        return at;
    }
    for (;;) {
        switch (*at) {
        case '"':
            at = string_end(at);
            continue;
        case '{':
        case '[':
            depth++;
            break;
        case '}':
        case ']':
            if (--depth == 0)
                return at + 1;
            break;
        }
        at++;
    }
}

enum kvr_type kvr_json_type(char first)
{
    switch (first) {
    case '"':
        return KVR_STRING;
    case '{':
        return KVR_OBJECT;
    case '[':
        return KVR_ARRAY;
    case 't':
        return KVR_TRUE;
    case 'f':
        return KVR_FALSE;
    case 'n':
        return KVR_NULL;
    default:
        return KVR_NUMBER;
    }
}

static struct kvr_value value_at(const char *at)
{
    return (struct kvr_value){at, (size_t)(value_end(at) - at), kvr_json_type(*at)};
}

struct kvr_cursor kvr_value_open(struct kvr_value container)
{
    struct kvr_cursor cursor = {NULL, NULL};

    if (container.type == KVR_ARRAY || container.type == KVR_OBJECT) {
        cursor.at = container.text + 1;
        cursor.end = container.text + container.length - 1;
    }
    return cursor;
}

/* Moves to the next item's first byte, over whitespace and a comma; false at the end. */
static bool next_item(struct kvr_cursor *cursor)
{
    if (!cursor->at)
        return false;
    cursor->at = skip_space(cursor->at);
    if (cursor->at < cursor->end && *cursor->at == ',')
        cursor->at = skip_space(cursor->at + 1);
    return cursor->at < cursor->end;
}

bool kvr_next_element(struct kvr_cursor *cursor, struct kvr_value *element)
{
    if (!next_item(cursor))
        return false;
    *element = value_at(cursor->at);
    cursor->at = element->text + element->length;
    return true;
}

bool kvr_next_member(struct kvr_cursor *cursor, struct kvr_member *member)
{
    if (!next_item(cursor))
        return false;
    member->name = value_at(cursor->at);
    const char *colon = skip_space(member->name.text + member->name.length);
    member->value = value_at(skip_space(colon + 1));
    cursor->at = member->value.text + member->value.length;
    return true;
}

struct kvr_value kvr_value_get(struct kvr_value object, const char *name)
{
    struct kvr_value found = {NULL, 0, KVR_ABSENT};
    struct kvr_cursor cursor;
    struct kvr_member member;

    if (object.type != KVR_OBJECT)
        return found;
    cursor = kvr_value_open(object);
    while (kvr_next_member(&cursor, &member)) {
        if (kvr_value_is(member.name, name))
            found = member.value;
    }
    return found;
}

/* A number's sign, its digits as one integer and the power of ten they stand for. */
static bool whole_number(struct kvr_value value, bool *negative, uint64_t *magnitude)
{
    uint64_t number = 0;
    long exponent = 0, point = 0, zeros = 0;

    if (value.type != KVR_NUMBER)
        return false;
    const char *at = value.text, *end = value.text + value.length;
    *negative = *at == '-';
    at += *negative;
    for (bool fraction = false; at < end && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.') {
            fraction = true;
            continue;
        }
        point += fraction;
        if (*at == '0') { /* held back: trailing zeros of a fraction do not count */
            zeros++;
            continue;
        }
        for (zeros++; zeros > 0; zeros--) {
            uint64_t digit = zeros == 1 ? (uint64_t)(*at - '0') : 0;
            if (__builtin_mul_overflow(number, 10, &number) ||
                __builtin_add_overflow(number, digit, &number))
                return false;
        }
    }
    if (at < end) {
        exponent = strtol(at + 1, NULL, 10); /* ends at the comma or bracket behind it */
        if (exponent > 100000 || exponent < -100000)
            exponent = exponent > 0 ? 100000 : -100000;
    }
    exponent += zeros - point;
    if (number == 0)
        exponent = 0;
    if (exponent < 0 || exponent > 20)
        return false;
    for (; exponent > 0; exponent--) {
        if (__builtin_mul_overflow(number, 10, &number))
            return false;
    }
    *magnitude = number;
    return true;
}

bool kvr_value_u64(struct kvr_value value, uint64_t *number)
{
    bool negative;
    uint64_t magnitude;

    if (value.type == KVR_NUMBER && value.length <= 19) {
        uint64_t plain = 0;
        size_t i = 0;
        for (; i < value.length && (unsigned)(value.text[i] - '0') <= 9; i++)
            plain = plain * 10 + (uint64_t)(value.text[i] - '0');
        if (i == value.length) {
            *number = plain;
            return true;
        }
    }
    if (!whole_number(value, &negative, &magnitude) || (negative && magnitude))
        return false;
    *number = magnitude;
    return true;
}

bool kvr_value_i64(struct kvr_value value, int64_t *number)
{
    bool negative;
    uint64_t magnitude;

    if (!whole_number(value, &negative, &magnitude) || magnitude > (uint64_t)INT64_MAX + negative)
        return false;
    *number = (int64_t)(negative ? 0 - magnitude : magnitude);
    return true;
}

bool kvr_value_double(struct kvr_value value, double *number)
{
    if (value.type != KVR_NUMBER)
        return false;
    /* At most 15 digits with a point somewhere, the common case: both the digits and the power of
     * ten are exact doubles, so that one division rounds as strtod does, without its cost. */
    if (value.length <= 17) {
        static const double powers[] = {
            1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
        bool negative = value.text[0] == '-';
        uint64_t plain = 0;
        size_t digits = 0, decimals = 0, i = negative;
        bool point = false;
        for (; i < value.length; i++) {
            unsigned digit = (unsigned)(value.text[i] - '0');
            if (digit <= 9) {
                plain = plain * 10 + digit;
                digits++;
                decimals += point;
            } else if (value.text[i] == '.') {
                point = true;
            } else {
                break;
            }
        }
        if (i == value.length && digits <= 15) {
            *number = (double)plain / powers[decimals];
            if (negative)
                *number = -*number;
            return true;
        }
    }
    /* JSON's numbers are all strtod's, and a value in checked text ends at a byte that is neither.
     */
    *number = strtod(value.text, NULL);
    return isfinite(*number);
}

ptrdiff_t kvr_value_u64s(struct kvr_value value, uint64_t *numbers)
{
    if (value.type != KVR_ARRAY)
        return -1;
    const char *at = value.text + 1, *end = value.text + value.length - 1;
    ptrdiff_t count = 0;

    for (at = skip_space(at); at < end; count++) {
        const char *start = at;
        uint64_t number = 0;
        unsigned digit;
        while ((digit = (unsigned)(*at - '0')) <= 9) {
            number = number * 10 + digit;
            at++;
        }
        if (at - start > 19 || at == start || (*at != ',' && at != end)) {
            struct kvr_value element = value_at(start);
            if (!kvr_value_u64(element, &number))
                return -1;
            at = skip_space(start + element.length);
        }
        numbers[count] = number;
        if (at < end)
            at++; /* the comma */
        if (*at == ' ') {
            at++;
            if (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')
                at = skip_space(at);
        } else if (*at == '\t' || *at == '\r' || *at == '\n')
            at = skip_space(at);
    }
    return count;
}

void kvr_json_write_double(struct kvr_buffer *out, double number)
{
    char digits[40];

    if (!isfinite(number)) {
        kvr_buffer_append_text(out, "null");
        return;
    }
    if (number == trunc(number) && fabs(number) < 1e15) {
        kvr_buffer_append_format(out, "%.0f", number == 0 ? 0 : number);
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    kvr_buffer_append_text(out, digits);
}

void kvr_json_write_fixed(struct kvr_buffer *out, double number, int decimals)
{
    static const double powers[] = {1, 10, 100, 1000, 1e4, 1e5, 1e6};
    double scaled = fabs(number) * powers[decimals];

    if (!(scaled < 9e15)) {
        kvr_json_write_double(out, number);
        return;
    }
    uint64_t digits = (uint64_t)llrint(scaled);
    uint64_t unit = (uint64_t)powers[decimals];
    if (number < 0 && digits)
        kvr_buffer_append_byte(out, '-');
    kvr_buffer_append_u64(out, digits / unit);
    uint64_t fraction = digits % unit;
    if (fraction) {
        kvr_buffer_append_byte(out, '.');
        while (fraction) {
            unit /= 10;
            kvr_buffer_append_byte(out, (char)('0' + fraction / unit));
            fraction %= unit;
        }
    }
}
