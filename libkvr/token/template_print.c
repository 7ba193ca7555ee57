/*
 * Text out of values: Python's str() and repr().
 *
 * A float prints as the shortest decimal that reads back as the same double, in scientific notation
 * below 1e-4 and from 1e16, as repr() does.
 */
#include "token/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kvr_float_repr(double real, char out[40])
{
    char digits[40];
    char *exponent;
    int power;
    size_t used = 0;
    size_t count = 0;
    char plain[24];
    bool negative = signbit(real);
    if (isnan(real) || isinf(real)) {
        strcpy(out, isnan(real) ? "nan" : negative ? "-inf" : "inf");
        return;
    }
    for (int precision = 0; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, fabs(real));
        if (strtod(digits, NULL) == fabs(real))
            break;
    }
    exponent = strchr(digits, 'e');
    power = atoi(exponent + 1);
    for (const char *at = digits; at < exponent; at++)
        if (*at != '.')
            plain[count++] = *at;
    while (count > 1 && plain[count - 1] == '0')
        count--;
    if (negative)
        out[used++] = '-';
    if (power < -4 || power >= 16) {
        out[used++] = plain[0];
        if (count > 1) {
            out[used++] = '.';
            memcpy(out + used, plain + 1, count - 1);
            used += count - 1;
        }
        sprintf(out + used, "e%c%02d", power < 0 ? '-' : '+', abs(power));
        return;
    }
    if (power < 0) {
        out[used++] = '0';
        out[used++] = '.';
        for (int i = -1; i > power; i--)
            out[used++] = '0';
        memcpy(out + used, plain, count);
        used += count;
    } else {
        for (int i = 0; i <= power; i++)
            out[used++] = (size_t)i < count ? plain[i] : '0';
        out[used++] = '.';
        if (count > (size_t)power + 1) {
            memcpy(out + used, plain + power + 1, count - (size_t)power - 1);
            used += count - (size_t)power - 1;
        } else {
            out[used++] = '0';
        }
    }
    out[used] = 0;
}

static void add_text_repr(struct builder *builder, const struct text *text)
{
    bool apostrophe = text->length && memchr(text->data, '\'', text->length);
    bool quotes = text->length && memchr(text->data, '"', text->length);
    char quote = apostrophe && !quotes ? '"' : '\'';
    size_t used;
    builder->content |= text->origin != ORIGIN_TEMPLATE;
    if (text->markup)
        kvr_builder_add(builder, "Markup(", 7);
    kvr_builder_add_byte(builder, quote);
    for (size_t at = 0; at < text->length; at += used) {
        uint32_t point = kvr_point_read(text->data + at, text->length - at, &used);
        char escape[16];
        if (point == (unsigned char)quote || point == '\\') {
            kvr_builder_add_byte(builder, '\\');
            kvr_builder_add_byte(builder, (char)point);
        } else if (point == '\n' || point == '\r' || point == '\t') {
            kvr_builder_add_byte(builder, '\\');
            kvr_builder_add_byte(builder, point == '\n' ? 'n' : point == '\r' ? 'r' : 't');
        } else if ((point >= 0x20 && point < 0x7f) ||
                   (point >= 0x80 && kvr_point_printable(point))) {
            kvr_builder_add(builder, text->data + at, used);
        } else {
            kvr_builder_add(builder, escape,
                (size_t)sprintf(escape,
                    point < 0x100     ? "\\x%02x"
                    : point < 0x10000 ? "\\u%04x"
                                      : "\\U%08x",
                    point));
        }
    }
    kvr_builder_add_byte(builder, quote);
    if (text->markup)
        kvr_builder_add_byte(builder, ')');
}

static void add_list(struct builder *builder, struct list *list, char open, char close)
{
    kvr_builder_add_byte(builder, open);
    if (list->printing) {
        kvr_builder_add(builder, "...", 3);
        kvr_builder_add_byte(builder, close);
        return;
    }
    list->printing = true;
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            kvr_builder_add(builder, ", ", 2);
        kvr_builder_add_repr(builder, list->items[i]);
    }
    if (open == '(' && list->count == 1)
        kvr_builder_add_byte(builder, ',');
    kvr_builder_add_byte(builder, close);
    list->printing = false;
}

static void add_dict(struct builder *builder, struct dict *dict)
{
    /* Only through a namespace can something hold itself. */
    if (dict->printing) {
        kvr_builder_add(builder, "{...}", 5);
        return;
    }
    dict->printing = true;
    kvr_builder_add_byte(builder, '{');
    for (size_t i = 0; i < dict->count; i++) {
        if (i)
            kvr_builder_add(builder, ", ", 2);
        kvr_builder_add_repr(builder, dict->entries[i].key);
        kvr_builder_add(builder, ": ", 2);
        kvr_builder_add_repr(builder, dict->entries[i].value);
    }
    kvr_builder_add_byte(builder, '}');
    dict->printing = false;
}

static void add_view(struct builder *builder, struct value view)
{
    const char *name = kvr_jinja_type_name(view);
    kvr_builder_add(builder, name, strlen(name));
    kvr_builder_add_byte(builder, '(');
    add_list(builder, kvr_jinja_to_list(builder->run, view), '[', ']');
    kvr_builder_add_byte(builder, ')');
}

void kvr_builder_add_repr(struct builder *builder, struct value value)
{
    char digits[64];
    struct run *run = builder->run;
    kvr_run_enter(run);
    switch (value.type) {
    case VALUE_UNDEFINED:
        kvr_builder_add(builder, "Undefined", 9);
        break;
    case VALUE_NONE:
        kvr_builder_add(builder, "None", 4);
        break;
    case VALUE_BOOL:
        kvr_builder_add(builder, value.truth ? "True" : "False", value.truth ? 4 : 5);
        break;
    case VALUE_INTEGER:
        builder->content |= !kvr_number_says_nothing(value);
        kvr_builder_add(builder, digits, (size_t)sprintf(digits, "%lld", (long long)value.integer));
        break;
    case VALUE_BIG:
        builder->content = true;
        kvr_builder_add(builder, value.text->data, value.text->length);
        break;
    case VALUE_FLOAT:
        builder->content = true;
        kvr_float_repr(value.real, digits);
        kvr_builder_add(builder, digits, strlen(digits));
        break;
    case VALUE_TEXT:
        add_text_repr(builder, value.text);
        break;
    case VALUE_LIST:
        add_list(builder, value.list, '[', ']');
        break;
    case VALUE_TUPLE:
        add_list(builder, value.list, '(', ')');
        break;
    case VALUE_DICT:
        add_dict(builder, value.dict);
        break;
    case VALUE_RANGE:
        builder->content = true;
        kvr_builder_add(builder, digits,
            (size_t)snprintf(digits, sizeof digits,
                value.range->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                (long long)value.range->start, (long long)value.range->stop,
                (long long)value.range->step));
        break;
    case VALUE_VIEW:
        add_view(builder, value);
        break;
    case VALUE_NAMESPACE:
        kvr_builder_add(builder, "<Namespace ", 11);
        add_dict(builder, value.dict);
        kvr_builder_add_byte(builder, '>');
        break;
    case VALUE_MACRO: {
        const struct text *name = value.macro->signature->name;
        kvr_builder_add(builder, "<Macro ", 7);
        if (name) {
            kvr_builder_add_byte(builder, '\'');
            kvr_builder_add(builder, name->data, name->length);
            kvr_builder_add_byte(builder, '\'');
        } else {
            kvr_builder_add(builder, "anonymous", 9);
        }
        kvr_builder_add_byte(builder, '>');
        break;
    }
    case VALUE_LOOP: {
        struct text name = {.data = "length", .length = 6};
        struct value length = kvr_loop_attribute(run, value.loop, &name);
        kvr_builder_add(builder, digits,
            (size_t)sprintf(digits, "<LoopContext %lld/%lld>", (long long)value.loop->index0 + 1,
                (long long)length.integer));
        break;
    }
    default:
        /* Python prints an address here, which differs from run to run. */
        kvr_run_unsupported(run, "printing a '%s' object", kvr_jinja_type_name(value));
    }
    kvr_run_leave(run);
}

struct text *kvr_jinja_repr(struct run *run, struct value value)
{
    struct builder builder;
    kvr_builder_start(&builder, run, 64);
    kvr_builder_add_repr(&builder, value);
    return kvr_builder_end(&builder);
}

struct text *kvr_jinja_string(struct run *run, struct value value)
{
    if (value.type == VALUE_TEXT) {
        struct text *plain;
        if (!value.text->markup)
            return value.text;
        plain = kvr_run_take(run, sizeof *plain);
        *plain = *value.text;
        plain->markup = false;
        return plain;
    }
    if (value.type == VALUE_UNDEFINED)
        return kvr_text_literal(run, "");
    return kvr_jinja_repr(run, value);
}

struct text *kvr_jinja_soft_string(struct run *run, struct value value)
{
    return value.type == VALUE_TEXT ? value.text : kvr_jinja_string(run, value);
}

struct text *kvr_text_escape(struct run *run, struct text *text)
{
    struct builder builder;
    struct text *escaped;
    if (text->markup)
        return text;
    kvr_builder_start(&builder, run, text->length + 16);
    for (size_t i = 0; i < text->length; i++) {
        const char *entity = NULL;
        switch (text->data[i]) {
        case '&':
            entity = "&amp;";
            break;
        case '<':
            entity = "&lt;";
            break;
        case '>':
            entity = "&gt;";
            break;
        case '\'':
            entity = "&#39;";
            break;
        case '"':
            entity = "&#34;";
            break;
        default:
            break;
        }
        if (entity)
            kvr_builder_add(&builder, entity, strlen(entity));
        else
            kvr_builder_add_byte(&builder, text->data[i]);
    }
    escaped = kvr_text_from(kvr_builder_end(&builder), text);
    escaped->markup = true;
    return escaped;
}
