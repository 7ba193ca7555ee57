/* "..." % values. */
#include "token/template_format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct percent {
    struct run *run;
    struct builder builder;
    struct value arguments;
    const struct list *tuple; /* NULL: one value */
    size_t used;
};

static struct value next_argument(struct percent *state)
{
    size_t count = state->tuple ? state->tuple->count : 1;
    if (state->used >= count)
        kvr_run_raise(state->run, "TypeError", "not enough arguments for format string");
    return state->tuple ? state->tuple->items[state->used++] : (state->used++, state->arguments);
}

/* A number from the format at *at, or from the arguments for '*'; -1 where there is none. */
static int64_t percent_number(struct percent *state, const struct text *format, size_t *at)
{
    int64_t number = 0;
    size_t start = *at;
    if (*at < format->length && format->data[*at] == '*') {
        struct value value = next_argument(state);
        ++*at;
        if (value.type != VALUE_INTEGER && value.type != VALUE_BOOL)
            kvr_run_raise(state->run, "TypeError", "* wants int");
        return kvr_jinja_need_integer(state->run, value);
    }
    for (; *at < format->length && format->data[*at] >= '0' && format->data[*at] <= '9'; ++*at)
        if (number < WIDTH_LIMIT * 10)
            number = number * 10 + (format->data[*at] - '0');
    return *at == start ? -1 : number;
}

static void percent_item(struct percent *state, struct spec *spec, char type, struct value value)
{
    struct run *run = state->run;
    struct builder *builder = &state->builder;
    double real;
    spec->type = type;
    switch (type) {
    case 's':
    case 'r':
    case 'a':
        spec->fill = ' ';
        spec->align = spec->align == '<' ? '<' : '>';
        kvr_spec_text(builder, spec,
            type == 's'   ? kvr_jinja_string(run, value)
            : type == 'r' ? kvr_jinja_repr(run, value)
                          : kvr_spec_ascii(run, value));
        return;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        if (value.type == VALUE_UNDEFINED && strchr("diu", type))
            kvr_run_undefined(run, value.undefined);
        if (value.type == VALUE_FLOAT && strchr("diu", type)) {
            char digits[400];
            if (isnan(value.real) || isinf(value.real))
                kvr_run_raise(run, isnan(value.real) ? "ValueError" : "OverflowError",
                    "cannot convert float to integer");
            value = kvr_integer_from_digits(
                run, digits, (size_t)sprintf(digits, "%.0f", trunc(value.real)));
        }
        if (value.type != VALUE_INTEGER && value.type != VALUE_BOOL && value.type != VALUE_BIG)
            kvr_run_raise(run, "TypeError", "%%%c format: a real number is required, not %s",
                spec->shown, kvr_jinja_type_name(value));
        spec->type = strchr("diu", type) ? 'd' : type;
        if (spec->precision > 0)
            kvr_run_unsupported(run, "a precision for integers");
        spec->precision = -1;
        kvr_spec_integer(builder, spec, value);
        return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (value.type == VALUE_UNDEFINED)
            kvr_run_undefined(run, value.undefined);
        if (!kvr_jinja_as_float(value, &real))
            kvr_run_raise(
                run, "TypeError", "must be real number, not %s", kvr_jinja_type_name(value));
        kvr_spec_float(builder, spec, real);
        return;
    case 'c':
        if (value.type == VALUE_TEXT && kvr_text_points(value.text) == 1) {
            spec->align = spec->align == '<' ? '<' : '>';
            spec->fill = ' ';
            kvr_spec_pad(builder, spec, spec->align, "", value.text);
            return;
        }
        if (value.type == VALUE_INTEGER && value.integer >= 0 && value.integer < 0x110000) {
            builder->content = true;
            kvr_builder_add_point(builder, (uint32_t)value.integer);
            return;
        }
        kvr_run_raise(run, "TypeError", "%%c requires int or char");
    default:
        kvr_run_raise(run, "ValueError", "unsupported format character '%c'", spec->shown);
    }
}

static void percent_directive(struct percent *state, const struct text *format, size_t *at)
{
    struct run *run = state->run;
    struct spec spec = {.fill = ' ', .precision = -1};
    struct value value = kvr_missing();
    bool zero = false;
    char type;
    if (*at < format->length && format->data[*at] == '(') {
        size_t start = ++*at;
        unsigned depth = 1;
        while (*at < format->length) {
            depth += format->data[*at] == '(';
            depth -= format->data[*at] == ')';
            if (!depth)
                break;
            ++*at;
        }
        if (*at >= format->length)
            kvr_run_raise(run, "ValueError", "incomplete format key");
        if (state->arguments.type != VALUE_DICT)
            kvr_run_raise(run, "TypeError", "format requires a mapping");
        {
            struct text *key = kvr_text_cut(run, format, start, (*at)++);
            const struct value *found = kvr_dict_find_text(state->arguments.dict, key);
            if (!found)
                kvr_run_raise(run, "KeyError", "%s", kvr_run_show(run, kvr_text_value(key)));
            value = *found;
        }
    }
    for (; *at < format->length && strchr("-+ #0", format->data[*at]) && format->data[*at]; ++*at) {
        char flag = format->data[*at];
        if (flag == '-')
            spec.align = '<';
        else if (flag == '0')
            zero = true;
        else if (flag == '#')
            spec.alternate = true;
        else if (flag == '+' || !spec.sign)
            spec.sign = flag;
    }
    spec.width = percent_number(state, format, at);
    if (spec.width < -1) {
        spec.align = '<';
        spec.width = -spec.width;
    }
    if (*at < format->length && format->data[*at] == '.') {
        ++*at;
        spec.precision = percent_number(state, format, at);
        if (spec.precision < 0)
            spec.precision = 0;
    }
    while (*at < format->length && strchr("hlL", format->data[*at]) && format->data[*at])
        ++*at;
    if (*at >= format->length)
        kvr_run_raise(run, "ValueError", "incomplete format");
    type = format->data[(*at)++];
    spec.shown = format->origin == ORIGIN_TEMPLATE ? type : '?';
    if (type == '%') {
        kvr_builder_add_byte(&state->builder, '%');
        return;
    }
    if (zero && spec.align != '<') {
        spec.align = '=';
        spec.fill = '0';
    }
    if (!kvr_given(value))
        value = next_argument(state);
    percent_item(state, &spec, type, value);
}

struct text *kvr_text_percent(struct run *run, struct text *format, struct value arguments)
{
    struct percent state = {.run = run, .arguments = arguments};
    struct text *made;
    size_t at = 0;
    if (arguments.type == VALUE_TUPLE)
        state.tuple = arguments.list;
    if (format->markup)
        kvr_run_unsupported(run, "formatting with a safe string");
    kvr_builder_start(&state.builder, run, format->length + 64);
    while (at < format->length) {
        const char *next = memchr(format->data + at, '%', format->length - at);
        size_t stop = next ? (size_t)(next - format->data) : format->length;
        kvr_builder_add(&state.builder, format->data + at, stop - at);
        at = stop;
        if (next) {
            at++;
            percent_directive(&state, format, &at);
        }
    }
    if (state.used < (state.tuple ? state.tuple->count : 1) && arguments.type != VALUE_DICT &&
        arguments.type != VALUE_LIST && arguments.type != VALUE_UNDEFINED &&
        arguments.type != VALUE_RANGE)
        kvr_run_raise(run, "TypeError", "not all arguments converted during string formatting");
    made = kvr_builder_end(&state.builder);
    return kvr_text_from(made, format);
}
