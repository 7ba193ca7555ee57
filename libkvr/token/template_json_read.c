/*
 * JSON to template values, strictly (RFC 8259, valid UTF-8, no more than 500 levels), with what
 * Python's json module keeps: integers of any length, the order of members, the last of repeated
 * ones. Strings without escapes are not copied: they point into the caller's text. A surrogate
 * alone, which UTF-8 cannot hold, becomes U+FFFD as everywhere in kvr.
 */
#include "token/template_internal.h"

#include <stdlib.h>
#include <string.h>

enum { JSON_DEPTH_LIMIT = 1000 }; /* as of a line, KVR_JSON_DEPTH */

struct reader {
    struct run *run;
    const char *start;
    const char *at;
    const char *end;
    uint8_t origin;
    unsigned depth;
    jmp_buf *escape; /* where to go on after a fault; NULL: it is raised */
};

static _Noreturn void bad(struct reader *reader, const char *why)
{
    if (reader->escape)
        longjmp(*reader->escape, 1);
    kvr_run_raise(reader->run, "JSONDecodeError", "%s at byte %zu of the JSON text", why,
        (size_t)(reader->at - reader->start));
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n' ||
                                           *reader->at == '\t' || *reader->at == '\r'))
        reader->at++;
}

static unsigned read_hex(struct reader *reader)
{
    unsigned code = 0;
    if (reader->end - reader->at < 4)
        bad(reader, "truncated escape");
    for (int i = 0; i < 4; i++) {
        char byte = *reader->at++;
        unsigned digit = byte >= '0' && byte <= '9' ? (unsigned)(byte - '0')
                         : (byte | 0x20) >= 'a' && (byte | 0x20) <= 'f'
                             ? (unsigned)((byte | 0x20) - 'a' + 10)
                             : 16;
        if (digit > 15)
            bad(reader, "invalid escape");
        code = code * 16 + digit;
    }
    return code;
}

static size_t read_escape(struct reader *reader, char *out)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *known;
    unsigned code;
    if (reader->at == reader->end)
        bad(reader, "truncated escape");
    if (*reader->at != 'u') {
        known = *reader->at ? strchr(from, *reader->at) : NULL;
        if (!known)
            bad(reader, "invalid escape");
        reader->at++;
        *out = to[known - from];
        return 1;
    }
    reader->at++;
    code = read_hex(reader);
    if (code >= 0xd800 && code < 0xe000) {
        unsigned low;
        const char *after = reader->at;
        if (code >= 0xdc00 || reader->end - reader->at < 2 || reader->at[0] != '\\' ||
            reader->at[1] != 'u')
            return kvr_point_write(out, 0xfffd);
        reader->at += 2;
        low = read_hex(reader);
        if (low < 0xdc00 || low >= 0xe000) {
            reader->at = after;
            return kvr_point_write(out, 0xfffd);
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    return kvr_point_write(out, code);
}

/* Bytes up to the next quote, backslash or control byte; UTF-8 checked on the way. */
static void scan_plain(struct reader *reader, bool *ascii)
{
    const char *at = reader->at;
    const char *end = reader->end;
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t high = 0x8080808080808080u;
    for (;;) {
        unsigned char byte;
        size_t used;
        while (end - at >= 8) {
            uint64_t word;
            uint64_t quote;
            uint64_t slash;
            memcpy(&word, at, 8);
            quote = word ^ (ones * '"');
            slash = word ^ (ones * '\\');
            if ((word | (word - ones * 0x20) | (quote - ones) | (slash - ones)) & high)
                break;
            at += 8;
        }
        if (at == end)
            break;
        byte = (unsigned char)*at;
        if (byte == '"' || byte == '\\' || byte < 0x20)
            break;
        if (byte < 0x80) {
            at++;
            continue;
        }
        *ascii = false;
        if (kvr_point_read(at, (size_t)(end - at), &used) == UINT32_MAX) {
            reader->at = at;
            bad(reader, "invalid UTF-8");
        }
        at += used;
    }
    reader->at = at;
    if (at == end)
        bad(reader, "unterminated string");
    if ((unsigned char)*at < 0x20)
        bad(reader, "control character in a string");
}

/* The quote that ends the string: the first with an even number of backslashes before it. */
static const char *string_end(struct reader *reader)
{
    const char *at = reader->at;
    for (;;) {
        const char *quote = memchr(at, '"', (size_t)(reader->end - at));
        const char *slash = quote;
        if (!quote)
            bad(reader, "unterminated string");
        while (slash > reader->at && slash[-1] == '\\')
            slash--;
        if ((quote - slash) % 2 == 0)
            return quote;
        at = quote + 1;
    }
}

static struct text *read_string(struct reader *reader)
{
    const char *start = ++reader->at;
    bool ascii = true;
    struct text *text;
    scan_plain(reader, &ascii);
    if (*reader->at == '"') {
        text = kvr_text_new(reader->run, start, (size_t)(reader->at - start));
    } else {
        /* The text with its escapes is no longer than the string's source: find its end first. */
        const char *stop = string_end(reader);
        char *bytes;
        size_t used = (size_t)(reader->at - start);
        size_t room;
        room = (size_t)(stop - start);
        bytes = kvr_run_bytes(reader->run, room);
        memcpy(bytes, start, used);
        while (*reader->at != '"') {
            const char *from = reader->at;
            if (*from == '\\') {
                size_t made;
                reader->at++;
                made = read_escape(reader, bytes + used);
                ascii &= (unsigned char)bytes[used] < 0x80;
                used += made;
            }
            from = reader->at;
            scan_plain(reader, &ascii);
            memcpy(bytes + used, from, (size_t)(reader->at - from));
            used += (size_t)(reader->at - from);
        }
        kvr_run_bytes_trim(reader->run, room - used);
        text = kvr_text_new(reader->run, bytes, used);
    }
    reader->at++;
    if (ascii)
        text->points = text->length;
    text->origin = reader->origin;
    return text;
}

static struct value read_number(struct reader *reader)
{
    const char *start = reader->at;
    const char *digits;
    bool real = false;
    char copy[64];
    if (*reader->at == '-')
        reader->at++;
    digits = reader->at;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9')
        reader->at++;
    if (reader->at == digits || (*digits == '0' && reader->at - digits > 1))
        bad(reader, "invalid number");
    if (reader->at < reader->end && *reader->at == '.') {
        real = true;
        digits = ++reader->at;
        while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9')
            reader->at++;
        if (reader->at == digits)
            bad(reader, "invalid number");
    }
    if (reader->at < reader->end && (*reader->at | 0x20) == 'e') {
        real = true;
        reader->at++;
        if (reader->at < reader->end && (*reader->at == '+' || *reader->at == '-'))
            reader->at++;
        digits = reader->at;
        while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9')
            reader->at++;
        if (reader->at == digits)
            bad(reader, "invalid number");
    }
    if (!real)
        return kvr_integer_from_digits(reader->run, start, (size_t)(reader->at - start));
    if ((size_t)(reader->at - start) < sizeof copy) {
        memcpy(copy, start, (size_t)(reader->at - start));
        copy[reader->at - start] = 0;
        return kvr_float(strtod(copy, NULL));
    }
    {
        size_t length = (size_t)(reader->at - start);
        char *longer = kvr_run_bytes(reader->run, length + 1);
        memcpy(longer, start, length);
        longer[length] = 0;
        return kvr_float(strtod(longer, NULL));
    }
}

static struct value read_value(struct reader *reader);

static struct value read_list(struct reader *reader)
{
    struct list *list = kvr_list_new(reader->run, 0);
    reader->at++;
    skip_blanks(reader);
    if (reader->at < reader->end && *reader->at == ']') {
        reader->at++;
        return kvr_list_value(list);
    }
    for (;;) {
        kvr_list_add(reader->run, list, read_value(reader));
        if (reader->at < reader->end && *reader->at == ',') {
            reader->at++;
        } else if (reader->at < reader->end && *reader->at == ']') {
            reader->at++;
            return kvr_list_value(list);
        } else {
            bad(reader, "expected ',' or ']'");
        }
    }
}

static struct value read_dict(struct reader *reader)
{
    struct dict *dict = kvr_dict_new(reader->run, 4);
    reader->at++;
    skip_blanks(reader);
    if (reader->at < reader->end && *reader->at == '}') {
        reader->at++;
        return kvr_dict_value(dict);
    }
    for (;;) {
        struct value key;
        skip_blanks(reader);
        if (reader->at == reader->end || *reader->at != '"')
            bad(reader, "expected a member name");
        key = kvr_text_value(read_string(reader));
        skip_blanks(reader);
        if (reader->at == reader->end || *reader->at != ':')
            bad(reader, "expected ':'");
        reader->at++;
        kvr_dict_set(reader->run, dict, key, read_value(reader));
        if (reader->at < reader->end && *reader->at == ',') {
            reader->at++;
        } else if (reader->at < reader->end && *reader->at == '}') {
            reader->at++;
            return kvr_dict_value(dict);
        } else {
            bad(reader, "expected ',' or '}'");
        }
    }
}

static bool read_word(struct reader *reader, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

/* A value with the blanks around it. */
static struct value read_value(struct reader *reader)
{
    struct value value;
    skip_blanks(reader);
    if (reader->at == reader->end)
        bad(reader, "unexpected end");
    if (++reader->depth > JSON_DEPTH_LIMIT)
        bad(reader, "nested too deeply");
    if (*reader->at == '"')
        value = kvr_text_value(read_string(reader));
    else if (*reader->at == '{')
        value = read_dict(reader);
    else if (*reader->at == '[')
        value = read_list(reader);
    else if (*reader->at == '-' || (*reader->at >= '0' && *reader->at <= '9'))
        value = read_number(reader);
    else if (read_word(reader, "true"))
        value = kvr_bool(true);
    else if (read_word(reader, "false"))
        value = kvr_bool(false);
    else if (read_word(reader, "null"))
        value = kvr_none();
    else
        bad(reader, "unexpected character");
    reader->depth--;
    skip_blanks(reader);
    return value;
}

static struct value read_whole(
    struct run *run, const char *json, size_t length, bool trusted, jmp_buf *escape)
{
    struct reader reader = {.run = run,
        .start = json,
        .at = json,
        .end = json + length,
        .origin = trusted ? ORIGIN_TEMPLATE : ORIGIN_CONTENT,
        .escape = escape};
    struct value value = read_value(&reader);
    if (reader.at != reader.end)
        bad(&reader, "extra data");
    return value;
}

struct value kvr_json_read(struct run *run, const char *json, size_t length, bool trusted)
{
    return read_whole(run, json, length, trusted, NULL);
}

bool kvr_json_try(
    struct run *run, const char *json, size_t length, bool trusted, struct value *value)
{
    jmp_buf escape;
    if (setjmp(escape))
        return false;
    *value = read_whole(run, json, length, trusted, &escape);
    return true;
}
