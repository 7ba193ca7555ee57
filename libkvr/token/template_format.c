/*
 * "...".format(values), and what it shares with "..." % values (template_percent.c): a converted
 * text with sign, prefix and digits apart, padded to a width.
 */
#include "token/template_format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kvr_spec_pad(struct builder *builder, const struct spec *spec, char align, const char *prefix,
    struct text *body)
{
    struct run *run = builder->run;
    size_t points = strlen(prefix) + kvr_text_points(body);
    size_t more = spec->width > (int64_t)points ? (size_t)spec->width - points : 0;
    size_t before = align == '<' ? 0 : align == '^' ? more / 2 : more;
    char fill[4];
    size_t fill_length = kvr_point_write(fill, spec->fill);
    if (spec->width > WIDTH_LIMIT)
        kvr_run_unsupported(run, "a width of more than %d", WIDTH_LIMIT);
    if (align != '=')
        kvr_builder_pad(builder, fill, fill_length, before);
    kvr_builder_add(builder, prefix, strlen(prefix));
    if (align == '=')
        kvr_builder_pad(builder, fill, fill_length, more);
    kvr_builder_add_text(builder, body);
    if (align != '=')
        kvr_builder_pad(builder, fill, fill_length, more - before);
}

/* "1234567.5" to "1,234,567.5". */
static struct text *group_digits(struct run *run, const char *digits, char separator)
{
    size_t whole = strspn(digits, "0123456789");
    struct builder builder;
    kvr_builder_start(&builder, run, strlen(digits) * 2);
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % 3 == 0)
            kvr_builder_add_byte(&builder, separator);
        kvr_builder_add_byte(&builder, digits[i]);
    }
    kvr_builder_add(&builder, digits + whole, strlen(digits + whole));
    return kvr_builder_end(&builder);
}

static const char *sign_of(const struct spec *spec, bool negative)
{
    return negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
}

void kvr_spec_integer(struct builder *builder, const struct spec *spec, struct value value)
{
    struct run *run = builder->run;
    bool negative = kvr_jinja_less(run, value, kvr_integer(0), OP_LT);
    char prefix[8];
    char digits[80];
    const char *base = "";
    struct text *body;
    builder->content |= !kvr_number_says_nothing(value);
    if (value.type == VALUE_BOOL)
        value = kvr_integer(value.truth);
    if (value.type == VALUE_BIG && (spec->type == 'd' || !spec->type)) {
        body = kvr_text_cut(run, value.text, negative, value.text->length);
    } else if (value.type == VALUE_BIG) {
        kvr_run_unsupported(run, "an integer of more than 64 bits in another base");
    } else {
        uint64_t size = negative ? 0 - (uint64_t)value.integer : (uint64_t)value.integer;
        if (spec->type == 'x' || spec->type == 'X' || spec->type == 'o') {
            const char *format = spec->type == 'x' ? "%llx" : spec->type == 'X' ? "%llX" : "%llo";
            snprintf(digits, sizeof digits, format, (unsigned long long)size);
            base = spec->alternate ? spec->type == 'x'   ? "0x"
                                     : spec->type == 'X' ? "0X"
                                                         : "0o"
                                   : "";
        } else if (spec->type == 'b') {
            size_t at = sizeof digits - 1;
            digits[at] = 0;
            do
                digits[--at] = (char)('0' + (size & 1));
            while (size >>= 1);
            memmove(digits, digits + at, sizeof digits - at);
            base = spec->alternate ? "0b" : "";
        } else {
            snprintf(digits, sizeof digits, "%llu", (unsigned long long)size);
        }
        body = spec->group ? group_digits(run, digits, spec->group)
                           : kvr_text_copy(run, digits, strlen(digits));
    }
    snprintf(prefix, sizeof prefix, "%s%s", sign_of(spec, negative), base);
    kvr_spec_pad(builder, spec, spec->align ? spec->align : '>', prefix, body);
}

void kvr_spec_float(struct builder *builder, const struct spec *spec, double real)
{
    struct run *run = builder->run;
    bool negative = signbit(real) && !isnan(real);
    char type = spec->type == 'F' ? 'f' : spec->type;
    int precision = spec->precision < 0 ? 6 : (int)spec->precision;
    char format[16];
    char *digits;
    struct text *body;
    builder->content = true;
    if (spec->precision > 400)
        kvr_run_unsupported(run, "a precision of more than 400");
    digits = kvr_run_take(run, 800);
    if (isnan(real) || isinf(real)) {
        bool upper = spec->type == 'F' || spec->type == 'E' || spec->type == 'G';
        strcpy(digits, isnan(real) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf");
        if (type == '%')
            strcat(digits, "%");
    } else if (!type && spec->precision < 0) {
        kvr_float_repr(fabs(real), digits);
    } else if (type == '%') {
        snprintf(digits, 800, "%.*f%%", precision, fabs(real) * 100);
    } else if (!type) {
        /* As 'g', but with a digit behind the point and an earlier scientific notation. */
        snprintf(digits, 800, "%.*g", precision ? precision : 1, fabs(real));
        if (precision && strspn(digits, "0123456789") == strlen(digits)) {
            if ((int)strlen(digits) >= precision && strlen(digits) > 1)
                snprintf(digits, 800, "%.*e", precision - 1, fabs(real));
            else
                strcat(digits, ".0");
        }
    } else {
        snprintf(format, sizeof format, spec->alternate ? "%%#.*%c" : "%%.*%c", type);
        if (type != 'f' && type != 'e' && type != 'E' && type != 'g' && type != 'G')
            kvr_run_raise(run, "ValueError", "Unknown format code '%c' for object of type 'float'",
                spec->shown);
        snprintf(digits, 800, format, precision, fabs(real));
    }
    body = spec->group ? group_digits(run, digits, spec->group)
                       : kvr_text_copy(run, digits, strlen(digits));
    kvr_spec_pad(builder, spec, spec->align ? spec->align : '>', sign_of(spec, negative), body);
}

void kvr_spec_text(struct builder *builder, const struct spec *spec, struct text *text)
{
    if (spec->precision >= 0 && (size_t)spec->precision < kvr_text_points(text))
        text = kvr_text_cut(builder->run, text, 0, kvr_text_offset(text, (size_t)spec->precision));
    kvr_spec_pad(builder, spec, spec->align ? spec->align : '<', "", text);
}

struct text *kvr_spec_ascii(struct run *run, struct value value)
{
    const struct text *repr = kvr_jinja_repr(run, value);
    struct builder builder;
    size_t used;
    kvr_builder_start(&builder, run, repr->length);
    builder.content = repr->origin != ORIGIN_TEMPLATE;
    for (size_t at = 0; at < repr->length; at += used) {
        uint32_t point = kvr_point_read(repr->data + at, repr->length - at, &used);
        char escape[16];
        if (point < 0x80)
            kvr_builder_add_byte(&builder, (char)point);
        else
            kvr_builder_add(&builder, escape,
                (size_t)sprintf(escape,
                    point < 0x100     ? "\\x%02x"
                    : point < 0x10000 ? "\\u%04x"
                                      : "\\U%08x",
                    point));
    }
    return kvr_builder_end(&builder);
}

static bool all_digits(const struct text *text)
{
    for (size_t i = 0; i < text->length; i++)
        if (text->data[i] < '0' || text->data[i] > '9')
            return false;
    return text->length;
}

static struct spec parse_spec(struct run *run, const struct text *text)
{
    struct spec spec = {.fill = ' ', .precision = -1};
    size_t at = 0;
    size_t used = 0;
    const char *data = text->data;
    size_t length = text->length;
    if (length) {
        uint32_t point = kvr_point_read(data, length, &used);
        if (used < length && strchr("<>^=", data[used]) && data[used]) {
            spec.fill = point;
            spec.align = data[used];
            at = used + 1;
        } else if (strchr("<>^=", data[0]) && data[0]) {
            spec.align = data[at++];
        }
    }
    if (at < length && (data[at] == '+' || data[at] == '-' || data[at] == ' '))
        spec.sign = data[at++];
    if (at < length && data[at] == '#') {
        spec.alternate = true;
        at++;
    }
    if (at < length && data[at] == '0') {
        if (!spec.align) {
            spec.align = '=';
            spec.fill = '0';
        }
        at++;
    }
    for (; at < length && data[at] >= '0' && data[at] <= '9'; at++)
        if (spec.width < WIDTH_LIMIT * 10)
            spec.width = spec.width * 10 + (data[at] - '0');
    if (at < length && (data[at] == ',' || data[at] == '_'))
        spec.group = data[at++];
    if (at < length && data[at] == '.') {
        spec.precision = 0;
        if (++at >= length || data[at] < '0' || data[at] > '9')
            kvr_run_raise(run, "ValueError", "Format specifier missing precision");
        for (; at < length && data[at] >= '0' && data[at] <= '9'; at++)
            if (spec.precision < WIDTH_LIMIT)
                spec.precision = spec.precision * 10 + (data[at] - '0');
    }
    if (at < length)
        spec.type = data[at++];
    spec.shown = text->origin == ORIGIN_TEMPLATE ? spec.type : '?';
    if (at < length)
        kvr_run_raise(run, "ValueError", "Invalid format specifier");
    return spec;
}

static void add_formatted(struct builder *builder, struct value value, const struct text *text)
{
    struct run *run = builder->run;
    struct spec spec;
    double real = 0;
    if (!text->length) {
        kvr_builder_add_text(builder, kvr_jinja_string(run, value));
        return;
    }
    if (value.type != VALUE_TEXT && (value.type < VALUE_BOOL || value.type > VALUE_FLOAT))
        kvr_run_raise(run, "TypeError", "unsupported format string passed to %s.__format__",
            kvr_jinja_type_name(value));
    spec = parse_spec(run, text);
    if (value.type == VALUE_TEXT) {
        if (spec.type && spec.type != 's')
            kvr_run_raise(
                run, "ValueError", "Unknown format code '%c' for object of type 'str'", spec.shown);
        if (spec.sign || spec.alternate || spec.align == '=' || spec.group)
            kvr_run_raise(run, "ValueError", "format specifier not allowed for strings");
        kvr_spec_text(builder, &spec, value.text);
        return;
    }
    kvr_jinja_as_float(value, &real);
    if (value.type == VALUE_FLOAT || (spec.type && strchr("eEfFgG%", spec.type))) {
        if (spec.type == 'n')
            kvr_run_unsupported(run, "format code 'n'");
        kvr_spec_float(builder, &spec, real);
        return;
    }
    if (spec.precision >= 0)
        kvr_run_raise(run, "ValueError", "Precision not allowed in integer format specifier");
    if (spec.type == 'c') {
        if (value.type != VALUE_INTEGER || value.integer < 0 || value.integer > 0x10ffff)
            kvr_run_raise(run, "OverflowError", "%%c arg not in range(0x110000)");
        builder->content = true;
        kvr_builder_add_point(builder, (uint32_t)value.integer);
        return;
    }
    if (spec.type && !strchr("bdoxX", spec.type))
        kvr_run_raise(
            run, "ValueError", "Unknown format code '%c' for object of type 'int'", spec.shown);
    kvr_spec_integer(builder, &spec, value);
}

struct formatting {
    const struct call *call;
    int64_t automatic; /* next number of {}; -1 once {0} was used */
    unsigned depth;
};

/* The value that "name.attribute[key]" names. */
static struct value format_field(struct run *run, struct formatting *state, struct text *field)
{
    size_t at = 0;
    struct value value = kvr_missing();
    struct text *first;
    bool number;
    while (at < field->length && field->data[at] != '.' && field->data[at] != '[')
        at++;
    first = kvr_text_cut(run, field, 0, at);
    number = all_digits(first) && first->length < 10;
    if (!first->length || number) {
        int64_t index = state->automatic;
        if (number)
            index = kvr_integer_from_digits(run, first->data, first->length).integer;
        if (!number && state->automatic < 0)
            kvr_run_raise(run, "ValueError",
                "cannot switch from manual field specification to "
                "automatic field numbering");
        if (number && state->automatic > 0)
            kvr_run_raise(run, "ValueError",
                "cannot switch from automatic field numbering to "
                "manual field specification");
        state->automatic = number ? -1 : state->automatic + 1;
        if ((uint64_t)index >= state->call->count)
            kvr_run_raise(run, "IndexError", "tuple index out of range");
        value = state->call->items[index];
    } else {
        for (size_t i = 0; i < state->call->keyword_count; i++)
            if (kvr_text_equal(state->call->keywords[i].name, first))
                value = state->call->keywords[i].value;
        if (!kvr_given(value))
            kvr_run_raise(run, "KeyError", "%s", kvr_run_show(run, kvr_text_value(first)));
    }
    while (at < field->length) {
        size_t start = at + 1;
        struct text *part;
        if (field->data[at] == '.') {
            for (at = start; at < field->length && field->data[at] != '.' && field->data[at] != '[';
                 at++)
                ;
            part = kvr_text_cut(run, field, start, at);
            value =
                kvr_jinja_attribute(run, value, part, kvr_method_find(part->data, part->length));
        } else if (field->data[at] == '[') {
            const char *close = memchr(field->data + start, ']', field->length - start);
            if (!close)
                kvr_run_raise(run, "ValueError", "Missing ']' in format string");
            part = kvr_text_cut(run, field, start, (size_t)(close - field->data));
            at = (size_t)(close - field->data) + 1;
            number = all_digits(part);
            value = kvr_jinja_item(run, value,
                number ? kvr_integer_from_digits(run, part->data, part->length)
                       : kvr_text_value(part));
        } else {
            kvr_run_raise(
                run, "ValueError", "Only '.' or '[' may follow ']' in format field specifier");
        }
    }
    return value;
}

static struct text *format_text(struct run *run, struct formatting *state, struct text *format)
{
    struct builder builder;
    size_t at = 0;
    if (++state->depth > 2)
        kvr_run_raise(run, "ValueError", "Max string recursion exceeded");
    kvr_builder_start(&builder, run, format->length + 64);
    builder.content = format->origin != ORIGIN_TEMPLATE;
    while (at < format->length) {
        char byte = format->data[at++];
        size_t start = at;
        size_t name_end;
        unsigned nested = 1;
        char conversion = 0;
        struct value value;
        struct text *spec;
        if (byte != '{' && byte != '}') {
            kvr_builder_add_byte(&builder, byte);
            continue;
        }
        if (at < format->length && format->data[at] == byte) {
            kvr_builder_add_byte(&builder, byte);
            at++;
            continue;
        }
        if (byte == '}')
            kvr_run_raise(run, "ValueError", "Single '}' encountered in format string");
        for (; at < format->length; at++) {
            nested += format->data[at] == '{';
            nested -= format->data[at] == '}';
            if (!nested)
                break;
        }
        if (at >= format->length)
            kvr_run_raise(run, "ValueError",
                at == start ? "Single '{' encountered in format string"
                            : "expected '}' before end of string");
        for (name_end = start;
             name_end < at && format->data[name_end] != '!' && format->data[name_end] != ':';
             name_end++)
            if (format->data[name_end] == '[')
                while (name_end < at && format->data[name_end] != ']')
                    name_end++;
        if (name_end > at)
            name_end = at;
        value = format_field(run, state, kvr_text_cut(run, format, start, name_end));
        if (name_end < at && format->data[name_end] == '!') {
            conversion = ++name_end < at ? format->data[name_end++] : 0;
            if (name_end < at && format->data[name_end] != ':')
                kvr_run_raise(run, "ValueError", "expected ':' after conversion specifier");
        }
        spec =
            name_end < at ? kvr_text_cut(run, format, name_end + 1, at) : kvr_text_literal(run, "");
        if (spec->length && memchr(spec->data, '{', spec->length))
            spec = format_text(run, state, spec);
        if (conversion == 's')
            value = kvr_text_value(kvr_jinja_string(run, value));
        else if (conversion == 'r')
            value = kvr_text_value(kvr_jinja_repr(run, value));
        else if (conversion == 'a')
            value = kvr_text_value(kvr_spec_ascii(run, value));
        else if (conversion)
            kvr_run_raise(run, "ValueError", "Unknown conversion specifier");
        add_formatted(&builder, value, spec);
        at++;
    }
    state->depth--;
    return kvr_builder_end(&builder);
}

struct text *kvr_text_format_method(struct run *run, struct text *format, const struct call *call)
{
    struct formatting state = {.call = call};
    if (format->markup)
        kvr_run_unsupported(run, "formatting with a safe string");
    return format_text(run, &state, format);
}
