/*
 * JSON in and out of template values.
 *
 * Reading is strict (RFC 8259, valid UTF-8, no more than 500 levels) and keeps what Python's json
 * module keeps: integers of any length, the order of members, the last of repeated ones. Strings
 * without escapes are not copied: they point into the caller's text. A surrogate alone, which UTF-8
 * cannot hold, becomes U+FFFD as everywhere in kvr. Writing is json.dumps as
 * transformers' tojson calls it.
 */
#include "token/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_DEPTH_LIMIT = 500 };

struct reader {
    struct run *run;
    const char *start;
    const char *at;
    const char *end;
    uint8_t origin;
    unsigned depth;
};

static _Noreturn void bad(struct reader *reader, const char *why)
{
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

struct value kvr_json_read(struct run *run, const char *json, size_t length, bool trusted)
{
    struct reader reader = {.run = run,
        .start = json,
        .at = json,
        .end = json + length,
        .origin = trusted ? ORIGIN_TEMPLATE : ORIGIN_CONTENT};
    struct value value = read_value(&reader);
    if (reader.at != reader.end)
        bad(&reader, "extra data");
    return value;
}

/* ---- writing ---- */

struct writer {
    struct builder builder;
    const char *indent;
    size_t indent_length;
    bool indented;
    bool ensure_ascii;
    bool sort_keys;
    const char *item_separator;
    size_t item_length;
    const char *key_separator;
    size_t key_length;
    unsigned level;
};

static void write_string(struct writer *writer, const struct text *text)
{
    struct builder *builder = &writer->builder;
    size_t plain = 0;
    builder->content |= text->origin != ORIGIN_TEMPLATE;
    kvr_builder_add_byte(builder, '"');
    for (size_t i = 0; i < text->length;) {
        unsigned char byte = (unsigned char)text->data[i];
        static const char from[] = "\"\\\n\r\t\f\b";
        static const char to[] = "\"\\nrtfb";
        const char *known;
        char escape[16];
        if (byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x80 || !writer->ensure_ascii)) {
            i++;
            continue;
        }
        known = byte ? strchr(from, byte) : NULL;
        kvr_builder_add(builder, text->data + plain, i - plain);
        if (known) {
            kvr_builder_add_byte(builder, '\\');
            kvr_builder_add_byte(builder, to[known - from]);
            i++;
        } else if (byte < 0x80) {
            kvr_builder_add(builder, escape, (size_t)sprintf(escape, "\\u%04x", byte));
            i++;
        } else {
            size_t used;
            uint32_t point = kvr_point_read(text->data + i, text->length - i, &used);
            int length = point < 0x10000
                             ? sprintf(escape, "\\u%04x", point)
                             : sprintf(escape, "\\u%04x\\u%04x", 0xd800 + ((point - 0x10000) >> 10),
                                   0xdc00 + ((point - 0x10000) & 0x3ff));
            kvr_builder_add(builder, escape, (size_t)length);
            i += used;
        }
        plain = i;
    }
    kvr_builder_add(builder, text->data + plain, text->length - plain);
    kvr_builder_add_byte(builder, '"');
}

static void write_line(struct writer *writer)
{
    if (!writer->indented)
        return;
    kvr_builder_add_byte(&writer->builder, '\n');
    kvr_builder_pad(&writer->builder, writer->indent, writer->indent_length, writer->level);
}

static void write_float(struct writer *writer, double real)
{
    char digits[40];
    if (isnan(real) || isinf(real))
        kvr_builder_add(&writer->builder,
            isnan(real) ? "NaN"
            : real < 0  ? "-Infinity"
                        : "Infinity",
            isnan(real) ? 3
            : real < 0  ? 9
                        : 8);
    else {
        kvr_float_repr(real, digits);
        kvr_builder_add(&writer->builder, digits, strlen(digits));
    }
}

static void write_value(struct writer *writer, struct value value);

static void write_scalar_text(struct writer *writer, struct value value)
{
    struct builder *builder = &writer->builder;
    char digits[32];
    if (value.type == VALUE_NONE)
        kvr_builder_add(builder, "null", 4);
    else if (value.type == VALUE_BOOL)
        kvr_builder_add(builder, value.truth ? "true" : "false", value.truth ? 4 : 5);
    else if (value.type == VALUE_INTEGER)
        kvr_builder_add(builder, digits, (size_t)sprintf(digits, "%lld", (long long)value.integer));
    else if (value.type == VALUE_BIG)
        kvr_builder_add_text(builder, value.text);
    else
        write_float(writer, value.real);
}

static void write_dict(struct writer *writer, const struct dict *dict)
{
    struct builder *builder = &writer->builder;
    struct run *run = builder->run;
    struct keyed *sorted = NULL;
    kvr_builder_add_byte(builder, '{');
    writer->level++;
    if (writer->sort_keys) {
        sorted = kvr_run_array(run, dict->count + 1, sizeof *sorted);
        for (size_t i = 0; i < dict->count; i++)
            sorted[i] = (struct keyed){dict->entries[i].key, dict->entries[i].value};
        kvr_sort_keyed(run, sorted, dict->count, false);
    }
    for (size_t i = 0; i < dict->count; i++) {
        struct value key = sorted ? sorted[i].key : dict->entries[i].key;
        if (i)
            kvr_builder_add(builder, writer->item_separator, writer->item_length);
        write_line(writer);
        if (key.type == VALUE_TEXT) {
            write_string(writer, key.text);
        } else if (key.type >= VALUE_NONE && key.type <= VALUE_FLOAT) {
            kvr_builder_add_byte(builder, '"');
            write_scalar_text(writer, key);
            kvr_builder_add_byte(builder, '"');
        } else {
            kvr_run_raise(run, "TypeError", "keys must be str, int, float, bool or None, not %s",
                kvr_jinja_type_name(key));
        }
        kvr_builder_add(builder, writer->key_separator, writer->key_length);
        write_value(writer, sorted ? sorted[i].item : dict->entries[i].value);
    }
    writer->level--;
    if (dict->count)
        write_line(writer);
    kvr_builder_add_byte(builder, '}');
}

static void write_value(struct writer *writer, struct value value)
{
    struct builder *builder = &writer->builder;
    struct run *run = builder->run;
    kvr_run_enter(run);
    switch (value.type) {
    case VALUE_TEXT:
        write_string(writer, value.text);
        break;
    case VALUE_NONE:
    case VALUE_BOOL:
    case VALUE_INTEGER:
    case VALUE_BIG:
    case VALUE_FLOAT:
        write_scalar_text(writer, value);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        kvr_builder_add_byte(builder, '[');
        writer->level++;
        for (size_t i = 0; i < value.list->count; i++) {
            if (i)
                kvr_builder_add(builder, writer->item_separator, writer->item_length);
            write_line(writer);
            write_value(writer, value.list->items[i]);
        }
        writer->level--;
        if (value.list->count)
            write_line(writer);
        kvr_builder_add_byte(builder, ']');
        break;
    case VALUE_DICT:
        write_dict(writer, value.dict);
        break;
    default:
        kvr_run_raise(run, "TypeError", "Object of type %s is not JSON serializable",
            kvr_jinja_type_name(value));
    }
    kvr_run_leave(run);
}

struct text *kvr_jinja_json(struct run *run, struct value value, struct value indent,
    bool ensure_ascii, bool sort_keys, struct value separators)
{
    struct writer writer = {.ensure_ascii = ensure_ascii, .sort_keys = sort_keys};
    char *spaces;
    if (indent.type == VALUE_TEXT) {
        writer.indented = true;
        writer.indent = indent.text->data;
        writer.indent_length = indent.text->length;
    } else if (indent.type == VALUE_INTEGER || indent.type == VALUE_BOOL) {
        int64_t width = kvr_jinja_need_integer(run, indent);
        writer.indented = true;
        writer.indent_length = width < 0 ? 0 : width > 1000 ? 1000 : (size_t)width;
        spaces = kvr_run_take(run, writer.indent_length + 1);
        memset(spaces, ' ', writer.indent_length);
        writer.indent = spaces;
    } else if (kvr_given(indent) && indent.type != VALUE_NONE) {
        kvr_run_raise(run, "TypeError", "can't multiply sequence by non-int of type '%s'",
            kvr_jinja_type_name(indent));
    }
    writer.item_separator = writer.indented ? "," : ", ";
    writer.item_length = strlen(writer.item_separator);
    writer.key_separator = ": ";
    writer.key_length = 2;
    if (kvr_given(separators) && separators.type != VALUE_NONE) {
        const struct list *pair = kvr_jinja_to_list(run, separators);
        if (pair->count != 2)
            kvr_run_raise(run, "ValueError",
                pair->count > 2 ? "too many values to unpack (expected 2)"
                                : "not enough values to unpack (expected 2, got %zu)",
                pair->count);
        if (pair->items[0].type != VALUE_TEXT || pair->items[1].type != VALUE_TEXT)
            kvr_run_raise(run, "TypeError", "separators must be strings");
        writer.item_separator = pair->items[0].text->data;
        writer.item_length = pair->items[0].text->length;
        writer.key_separator = pair->items[1].text->data;
        writer.key_length = pair->items[1].text->length;
    }
    kvr_builder_start(&writer.builder, run, 256);
    write_value(&writer, value);
    return kvr_builder_end(&writer.builder);
}
