/*
 * Template values to JSON: json.dumps as transformers' tojson calls it.
 */
#include "token/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    builder->content |= value.type != VALUE_NONE && !kvr_number_says_nothing(value);
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
