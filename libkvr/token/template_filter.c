/*
 * Filters of one value: text, numbers, JSON. Those of sequences are in template_sequence.c.
 */
#include "token/template_sequence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void bind(struct run *run, const struct call *call, const char *filter,
    const char *const *names, size_t count, size_t required, struct value *out)
{
    kvr_call_bind(run, call, filter, names, count, required, out);
}

static void no_arguments(struct run *run, const struct call *call, const char *filter)
{
    if (call->count || call->keyword_count)
        kvr_run_raise(run, "TypeError", "%s() takes 1 positional argument but %zu were given",
            filter, call->count + call->keyword_count + 1);
}

static bool truth_or(struct run *run, struct value value, bool otherwise)
{
    return kvr_given(value) ? kvr_jinja_truth(run, value) : otherwise;
}

/* ---- text ---- */

static struct value do_upper(struct run *run, struct value value, const struct call *call)
{
    no_arguments(run, call, "do_upper");
    return kvr_text_value(kvr_text_upper(run, kvr_jinja_soft_string(run, value)));
}

static struct value do_lower(struct run *run, struct value value, const struct call *call)
{
    no_arguments(run, call, "do_lower");
    return kvr_text_value(kvr_text_lower(run, kvr_jinja_soft_string(run, value)));
}

static struct value do_capitalize(struct run *run, struct value value, const struct call *call)
{
    no_arguments(run, call, "do_capitalize");
    return kvr_text_value(kvr_text_capitalize(run, kvr_jinja_soft_string(run, value)));
}

static bool begins_word(uint32_t point)
{
    return point == '-' || point == '(' || point == '{' || point == '[' || point == '<' ||
           kvr_point_space(point);
}

static struct value do_title(struct run *run, struct value value, const struct call *call)
{
    struct text *text = kvr_jinja_soft_string(run, value);
    struct builder builder;
    size_t start = 0;
    size_t used;
    bool separator = false;
    no_arguments(run, call, "do_title");
    kvr_builder_start(&builder, run, text->length + 16);
    for (size_t at = 0; at <= text->length; at += used) {
        bool now = separator;
        used = 1;
        if (at < text->length)
            now = begins_word(kvr_point_read(text->data + at, text->length - at, &used));
        if (at == text->length || (now != separator && at > start)) {
            kvr_builder_add_title(&builder, text, start, at);
            start = at;
        }
        separator = now;
    }
    return kvr_text_value(kvr_text_from(kvr_builder_end(&builder), text));
}

static struct value do_trim(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"chars"};
    struct value characters;
    bind(run, call, "do_trim", names, 1, 0, &characters);
    if (kvr_given(characters) && characters.type != VALUE_TEXT && characters.type != VALUE_NONE)
        kvr_run_raise(run, "TypeError", "strip arg must be None or str");
    return kvr_text_value(kvr_text_strip(run, kvr_jinja_soft_string(run, value),
        characters.type == VALUE_TEXT ? characters.text : NULL));
}

static struct value do_replace(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"old", "new", "count"};
    struct value bound[3];
    int64_t count = -1;
    bind(run, call, "do_replace", names, 3, 2, bound);
    if (kvr_given(bound[2]) && bound[2].type != VALUE_NONE)
        count = kvr_jinja_need_integer(run, bound[2]);
    return kvr_text_value(kvr_text_replace(run, kvr_jinja_string(run, value),
        kvr_jinja_string(run, bound[0]), kvr_jinja_string(run, bound[1]), count));
}

static struct value do_center(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"width"};
    struct value width;
    struct call inner = {.items = &width, .count = 1};
    bind(run, call, "do_center", names, 1, 0, &width);
    if (!kvr_given(width))
        width = kvr_integer(80);
    return kvr_method_call(run, kvr_text_value(kvr_jinja_soft_string(run, value)),
        kvr_method_find("center", 6), &inner);
}

static struct value do_indent(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"width", "first", "blank"};
    struct value bound[3];
    struct text *text;
    struct text *indent;
    struct list *lines;
    struct builder builder;
    bool blank;
    bind(run, call, "do_indent", names, 3, 0, bound);
    blank = truth_or(run, bound[2], false);
    if (bound[0].type == VALUE_TEXT) {
        indent = bound[0].text;
    } else {
        struct value width = kvr_given(bound[0]) ? bound[0] : kvr_integer(4);
        indent =
            kvr_jinja_binary(run, OP_MUL, kvr_text_value(kvr_text_literal(run, " ")), width).text;
    }
    /* The newline added at the end is jinja2's, and a TypeError for what is no string. */
    if (value.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, value.undefined);
    if (value.type == VALUE_LIST) /* += takes any iterable there */
        kvr_run_raise(run, "AttributeError", "'list' object has no attribute 'splitlines'");
    if (value.type != VALUE_TEXT)
        kvr_run_raise(run, "TypeError", "unsupported operand type(s) for +=: '%s' and 'str'",
            kvr_jinja_type_name(value));
    text = kvr_jinja_binary(run, OP_ADD, value, kvr_text_value(kvr_text_literal(run, "\n"))).text;
    lines = kvr_text_lines(run, text, false);
    kvr_builder_start(&builder, run, text->length + 16 + lines->count * indent->length);
    for (size_t i = 0; i < lines->count; i++) {
        const struct text *line = lines->items[i].text;
        if (i)
            kvr_builder_add_byte(&builder, '\n');
        if (i ? blank || line->length : truth_or(run, bound[1], false))
            kvr_builder_add_text(&builder, indent);
        kvr_builder_add_text(&builder, line);
    }
    return kvr_text_value(kvr_text_from(kvr_builder_end(&builder), text));
}

static struct value do_truncate(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"length", "killwords", "end", "leeway"};
    struct value bound[4];
    struct text *text;
    struct text *end;
    int64_t length;
    int64_t leeway;
    size_t points;
    size_t cut;
    bind(run, call, "do_truncate", names, 4, 0, bound);
    length = kvr_given(bound[0]) ? kvr_jinja_need_integer(run, bound[0]) : 255;
    leeway = kvr_given(bound[3]) && bound[3].type != VALUE_NONE
                 ? kvr_jinja_need_integer(run, bound[3])
                 : 5;
    end = kvr_given(bound[2]) ? kvr_jinja_soft_string(run, bound[2]) : kvr_text_literal(run, "...");
    if (length < (int64_t)kvr_text_points(end))
        kvr_run_raise(run, "AssertionError", "expected length >= %zu, got %lld",
            kvr_text_points(end), (long long)length);
    if (leeway < 0)
        kvr_run_raise(run, "AssertionError", "expected leeway >= 0, got %lld", (long long)leeway);
    if (!kvr_jinja_length(value, &points))
        kvr_run_raise(
            run, "TypeError", "object of type '%s' has no len()", kvr_jinja_type_name(value));
    if ((int64_t)points <= length || (int64_t)points - length <= leeway)
        return value;
    if (value.type != VALUE_TEXT)
        kvr_run_unsupported(run, "truncate of a '%s'", kvr_jinja_type_name(value));
    text = value.text;
    cut = kvr_text_offset(text, (size_t)length - kvr_text_points(end));
    if (!truth_or(run, bound[1], false)) {
        size_t at = cut;
        while (at && text->data[at - 1] != ' ')
            at--;
        if (at)
            cut = at - 1;
    }
    return kvr_text_value(kvr_text_join(run, kvr_text_cut(run, text, 0, cut), end));
}

static struct value do_wordcount(struct run *run, struct value value, const struct call *call)
{
    const struct text *text = kvr_jinja_soft_string(run, value);
    int64_t words = 0;
    bool inside = false;
    size_t used;
    no_arguments(run, call, "do_wordcount");
    kvr_run_charge(run, text->length);
    for (size_t at = 0; at < text->length; at += used) {
        uint32_t point = kvr_point_read(text->data + at, text->length - at, &used);
        bool word =
            point == '_' ||
            (kvr_point_bits(point) & (POINT_ALPHA | POINT_DECIMAL | POINT_DIGIT | POINT_NUMERIC));
        words += word && !inside;
        inside = word;
    }
    return kvr_integer(words);
}

static struct value do_string(struct run *run, struct value value, const struct call *call)
{
    no_arguments(run, call, "soft_str");
    return kvr_text_value(kvr_jinja_soft_string(run, value));
}

static struct value do_safe(struct run *run, struct value value, const struct call *call)
{
    struct text *text = kvr_run_take(run, sizeof *text);
    no_arguments(run, call, "do_mark_safe");
    *text = *kvr_jinja_soft_string(run, value);
    text->markup = true;
    return kvr_text_value(text);
}

static struct value do_escape(struct run *run, struct value value, const struct call *call)
{
    no_arguments(run, call, "escape");
    return kvr_text_value(kvr_text_escape(run, kvr_jinja_soft_string(run, value)));
}

static struct value do_force_escape(struct run *run, struct value value, const struct call *call)
{
    no_arguments(run, call, "do_forceescape");
    return kvr_text_value(kvr_text_escape(run, kvr_jinja_string(run, value)));
}

static struct value do_format(struct run *run, struct value value, const struct call *call)
{
    struct value arguments;
    if (call->count && call->keyword_count)
        kvr_run_raise(run, "FilterArgumentError",
            "can't handle positional and keyword arguments at the same time");
    if (call->keyword_count) {
        struct dict *dict = kvr_dict_new(run, call->keyword_count);
        for (size_t i = 0; i < call->keyword_count; i++)
            kvr_dict_set(
                run, dict, kvr_text_value(call->keywords[i].name), call->keywords[i].value);
        arguments = kvr_dict_value(dict);
    } else {
        struct list *list = kvr_list_new(run, call->count);
        for (size_t i = 0; i < call->count; i++)
            kvr_list_add(run, list, call->items[i]);
        arguments = kvr_tuple_value(list);
    }
    return kvr_text_value(kvr_text_percent(run, kvr_jinja_soft_string(run, value), arguments));
}

static struct value do_tojson(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
    struct value bound[4];
    bind(run, call, "tojson", names, 4, 0, bound);
    return kvr_text_value(kvr_jinja_json(run, value, bound[1], truth_or(run, bound[0], false),
        truth_or(run, bound[3], false), bound[2]));
}

static bool plain_in_url(unsigned char byte, bool query)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || (byte && strchr("_.-~", byte)) ||
           (byte == '/' && !query);
}

static void add_quoted(struct builder *builder, struct value value, bool query)
{
    const struct text *text = kvr_jinja_string(builder->run, value);
    builder->content |= text->origin != ORIGIN_TEMPLATE;
    for (size_t i = 0; i < text->length; i++) {
        unsigned char byte = (unsigned char)text->data[i];
        char escape[8];
        if (plain_in_url(byte, query))
            kvr_builder_add_byte(builder, (char)byte);
        else if (query && byte == ' ')
            kvr_builder_add_byte(builder, '+');
        else
            kvr_builder_add(builder, escape, (size_t)sprintf(escape, "%%%02X", byte));
    }
}

static struct value do_urlencode(struct run *run, struct value value, const struct call *call)
{
    struct builder builder;
    struct value item;
    struct iterator *iterator;
    bool first = true;
    no_arguments(run, call, "do_urlencode");
    kvr_builder_start(&builder, run, 64);
    if (value.type == VALUE_TEXT || !kvr_jinja_iterable(value)) {
        add_quoted(&builder, value, false);
        return kvr_text_value(kvr_builder_end(&builder));
    }
    if (value.type == VALUE_DICT) {
        value.type = VALUE_VIEW;
        value.kind = VIEW_ITEMS;
    }
    iterator = kvr_jinja_iterate(run, value);
    while (kvr_iterator_next(run, iterator, &item)) {
        const struct list *pair = kvr_jinja_to_list(run, item);
        if (pair->count != 2)
            kvr_run_raise(run, "ValueError", "not enough values to unpack (expected 2, got %zu)",
                pair->count);
        if (!first)
            kvr_builder_add_byte(&builder, '&');
        first = false;
        add_quoted(&builder, pair->items[0], true);
        kvr_builder_add_byte(&builder, '=');
        add_quoted(&builder, pair->items[1], true);
    }
    return kvr_text_value(kvr_builder_end(&builder));
}

/* ---- values and numbers ---- */

static struct value do_default(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"default_value", "boolean"};
    struct value bound[2];
    bind(run, call, "do_default", names, 2, 0, bound);
    if (value.type == VALUE_UNDEFINED ||
        (truth_or(run, bound[1], false) && !kvr_jinja_truth(run, value)))
        return kvr_given(bound[0]) ? bound[0] : kvr_text_value(kvr_text_literal(run, ""));
    return value;
}

static struct value do_length(struct run *run, struct value value, const struct call *call)
{
    size_t length;
    no_arguments(run, call, "len");
    if (value.type == VALUE_LOOP) {
        struct text name = {.data = "length", .length = 6};
        return kvr_loop_attribute(run, value.loop, &name);
    }
    if (!kvr_jinja_length(value, &length))
        kvr_run_raise(
            run, "TypeError", "object of type '%s' has no len()", kvr_jinja_type_name(value));
    return kvr_integer((int64_t)length);
}

/* The trimmed text of a number without the '_' between digits, or NULL where a '_' stands wrong or
 * a character is not ASCII or a decimal digit. */
static const char *number_text(struct run *run, struct text *text, size_t *length)
{
    struct text *trimmed = kvr_text_strip(run, text, NULL);
    char *plain = kvr_run_take(run, trimmed->length + 1);
    size_t used = 0;
    size_t width;
    bool after_digit = false;
    for (size_t at = 0; at < trimmed->length; at += width) {
        uint32_t point = kvr_point_read(trimmed->data + at, trimmed->length - at, &width);
        int digit = kvr_point_decimal_value(point);
        if (point == '_') {
            if (!after_digit || at + 1 == trimmed->length)
                return NULL;
            after_digit = false;
            continue;
        }
        if (digit < 0 && point >= 0x80)
            return NULL;
        if (at && trimmed->data[at - 1] == '_' && digit < 0 && !(point >= 'a' && point <= 'f') &&
            !(point >= 'A' && point <= 'F'))
            return NULL;
        after_digit = digit >= 0 || (point | 0x20) >= 'a';
        plain[used++] = digit >= 0 ? (char)('0' + digit) : (char)point;
    }
    plain[used] = 0;
    *length = used;
    return plain;
}

/* int(text, base); VALUE_MISSING where Python raises ValueError. */
static struct value text_to_integer(struct run *run, struct text *text, int64_t base)
{
    size_t length;
    const char *digits = number_text(run, text, &length);
    size_t at = 0;
    bool negative;
    struct value result = kvr_integer(0);
    if (!digits || (base != 0 && (base < 2 || base > 36)))
        return kvr_missing();
    negative = digits[0] == '-';
    at += digits[0] == '-' || digits[0] == '+';
    if (digits[at] == '0' && digits[at + 1]) {
        char kind = (char)(digits[at + 1] | 0x20);
        int64_t meant = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        if (meant && (base == meant || base == 0)) {
            base = meant;
            at += 2;
        }
    }
    if (base == 0)
        base = 10;
    if (at == length)
        return kvr_missing();
    for (size_t i = at; i < length; i++) {
        int digit = digits[i] >= '0' && digits[i] <= '9' ? digits[i] - '0'
                    : (digits[i] | 0x20) >= 'a' && (digits[i] | 0x20) <= 'z'
                        ? (digits[i] | 0x20) - 'a' + 10
                        : 99;
        if (digit >= base)
            return kvr_missing();
    }
    if (base == 10 && length - at > 18) {
        char *signed_digits = kvr_run_take(run, length + 2);
        signed_digits[0] = '-';
        memcpy(signed_digits + 1, digits + at, length - at);
        return kvr_integer_from_digits(
            run, signed_digits + (negative ? 0 : 1), length - at + (negative ? 1 : 0));
    }
    for (size_t i = at; i < length; i++) {
        int digit = digits[i] <= '9' ? digits[i] - '0' : (digits[i] | 0x20) - 'a' + 10;
        result = kvr_jinja_binary(run, OP_MUL, result, kvr_integer(base));
        result = kvr_jinja_binary(run, OP_ADD, result, kvr_integer(digit));
    }
    return negative ? kvr_jinja_negative(run, result) : result;
}

/* float(text); false where Python raises ValueError. */
static bool text_to_float(struct run *run, struct text *text, double *out)
{
    size_t length;
    const char *digits = number_text(run, text, &length);
    const char *at = digits;
    char *end;
    static const char *const words[] = {"inf", "infinity", "nan"};
    if (!digits || !length || memchr(digits, 0, length))
        return false;
    at += *at == '-' || *at == '+';
    for (size_t i = 0; i < 3; i++) {
        if (strcasecmp(at, words[i]) == 0) {
            *out = i == 2 ? NAN : *digits == '-' ? -INFINITY : INFINITY;
            return true;
        }
    }
    if (strspn(digits, "0123456789.+-eE") != length || *at == '-' || *at == '+')
        return false;
    *out = strtod(digits, &end);
    return *end == 0 && end != digits;
}

static struct value float_to_integer(struct run *run, double real)
{
    char digits[400];
    if (isnan(real) || isinf(real))
        return kvr_missing();
    return kvr_integer_from_digits(run, digits, (size_t)sprintf(digits, "%.0f", trunc(real)));
}

static struct value do_int(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"default", "base"};
    struct value bound[2];
    struct value result = kvr_missing();
    double real;
    bind(run, call, "do_int", names, 2, 0, bound);
    if (value.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, value.undefined);
    if (value.type == VALUE_TEXT) {
        result = text_to_integer(
            run, value.text, kvr_given(bound[1]) ? kvr_jinja_need_integer(run, bound[1]) : 10);
        if (!kvr_given(result) && text_to_float(run, value.text, &real))
            result = float_to_integer(run, real);
    } else if (value.type == VALUE_FLOAT) {
        if (isinf(value.real))
            kvr_run_raise(run, "OverflowError", "cannot convert float infinity to integer");
        result = float_to_integer(run, value.real);
    } else if (value.type == VALUE_BOOL) {
        result = kvr_integer(value.truth);
    } else if (value.type == VALUE_INTEGER || value.type == VALUE_BIG) {
        result = value;
    }
    if (kvr_given(result))
        return result;
    return kvr_given(bound[0]) ? bound[0] : kvr_integer(0);
}

static struct value do_float(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"default"};
    struct value otherwise;
    double real;
    bind(run, call, "do_float", names, 1, 0, &otherwise);
    if (value.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, value.undefined);
    if (value.type == VALUE_TEXT ? text_to_float(run, value.text, &real)
                                 : kvr_jinja_as_float(value, &real))
        return kvr_float(real);
    return kvr_given(otherwise) ? otherwise : kvr_float(0);
}

static struct value do_abs(struct run *run, struct value value, const struct call *call)
{
    no_arguments(run, call, "abs");
    if (value.type < VALUE_BOOL || value.type > VALUE_FLOAT)
        kvr_run_raise(
            run, "TypeError", "bad operand type for abs(): '%s'", kvr_jinja_type_name(value));
    if (value.type == VALUE_FLOAT)
        return kvr_float(fabs(value.real));
    if (kvr_jinja_less(run, value, kvr_integer(0), OP_LT))
        return kvr_jinja_negative(run, value);
    return kvr_jinja_positive(run, value);
}

/* round(real, precision) as Python: correctly rounded, half to even, through the decimal text. */
static double round_to(double real, int64_t precision)
{
    char digits[400];
    if (isnan(real) || isinf(real) || precision > 323)
        return real;
    if (precision < 0) {
        double power = precision < -308 ? INFINITY : pow(10, (double)-precision);
        double scaled = isinf(power) ? 0 : rint(real / power);
        return isinf(power) ? copysign(0.0, real) : scaled * power;
    }
    if (fabs(real) >= 4503599627370496.0)
        return real;
    snprintf(digits, sizeof digits, "%.*f", (int)precision, real);
    return strtod(digits, NULL);
}

/* `whole` as an integer, or what Python raises for a `real` that has none. */
static struct value need_finite(struct run *run, double real, double whole)
{
    struct value integer = float_to_integer(run, whole);
    if (!kvr_given(integer))
        kvr_run_raise(run, isnan(real) ? "ValueError" : "OverflowError",
            isnan(real) ? "cannot convert float NaN to integer"
                        : "cannot convert float infinity to integer");
    return integer;
}

static struct value do_round(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"precision", "method"};
    struct value bound[2];
    int64_t precision;
    bool to_integer;
    const struct text *method;
    struct value power;
    struct value scaled;
    bind(run, call, "do_round", names, 2, 0, bound);
    to_integer = bound[0].type == VALUE_NONE; /* round(x, None) is an integer */
    precision = kvr_given(bound[0]) && !to_integer ? kvr_jinja_need_integer(run, bound[0]) : 0;
    method = bound[1].type == VALUE_TEXT ? bound[1].text : kvr_text_literal(run, "common");
    if (kvr_given(bound[1]) && bound[1].type != VALUE_TEXT)
        method = kvr_text_literal(run, "");
    if (!kvr_text_is(method, "common") && !kvr_text_is(method, "ceil") &&
        !kvr_text_is(method, "floor"))
        kvr_run_raise(run, "FilterArgumentError", "method must be common, ceil or floor");
    if (value.type == VALUE_UNDEFINED && !kvr_text_is(method, "common"))
        kvr_run_undefined(run, value.undefined);
    if (value.type < VALUE_BOOL || value.type > VALUE_FLOAT)
        kvr_run_raise(run, "TypeError", "type %s doesn't define __round__ method",
            kvr_jinja_type_name(value));
    if (kvr_text_is(method, "common")) {
        if (value.type == VALUE_FLOAT && to_integer)
            return need_finite(run, value.real, rint(value.real));
        if (value.type == VALUE_FLOAT)
            return kvr_float(round_to(value.real, precision));
        if (precision >= 0)
            return kvr_jinja_positive(run, value);
        /* round(1250, -2): to the even multiple. */
        power = kvr_jinja_binary(run, OP_POW, kvr_integer(10), kvr_integer(-precision));
        scaled = kvr_jinja_binary(run, OP_MOD, value, power);
        value = kvr_jinja_binary(run, OP_SUB, value, scaled);
        {
            struct value twice = kvr_jinja_binary(run, OP_MUL, scaled, kvr_integer(2));
            struct value odd = kvr_jinja_binary(
                run, OP_MOD, kvr_jinja_binary(run, OP_FLOORDIV, value, power), kvr_integer(2));
            if (kvr_jinja_less(run, power, twice, OP_LT) ||
                (kvr_jinja_equal(run, power, twice) && kvr_jinja_truth(run, odd)))
                value = kvr_jinja_binary(run, OP_ADD, value, power);
        }
        return value;
    }
    power = kvr_jinja_binary(run, OP_POW, kvr_integer(10), kvr_integer(precision));
    scaled = kvr_jinja_binary(run, OP_MUL, value, power);
    if (scaled.type == VALUE_FLOAT) {
        double whole = kvr_text_is(method, "ceil") ? ceil(scaled.real) : floor(scaled.real);
        scaled = need_finite(run, whole, whole);
    }
    return kvr_jinja_binary(run, OP_DIV, scaled, power);
}

static struct value do_filesize(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"binary"};
    static const char letters[] = "kMGTPEZY";
    struct value binary;
    struct call none = {0};
    double bytes;
    double base;
    double unit;
    bind(run, call, "do_filesizeformat", names, 1, 0, &binary);
    base = truth_or(run, binary, false) ? 1024 : 1000;
    if (value.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, value.undefined);
    if (!kvr_jinja_as_float(value, &bytes)) {
        if (value.type != VALUE_TEXT || !text_to_float(run, value.text, &bytes))
            kvr_run_raise(run, value.type == VALUE_TEXT ? "ValueError" : "TypeError",
                "could not convert to float");
    }
    (void)none;
    if (bytes == 1)
        return kvr_text_value(kvr_text_literal(run, "1 Byte"));
    if (bytes < base)
        return kvr_text_value(kvr_text_format(run, "%.0f Bytes", trunc(bytes) + 0.0));
    unit = base * base;
    for (size_t i = 0;; i++, unit *= base)
        if (bytes < unit || i == 7)
            return kvr_text_value(kvr_text_format(run, "%.1f %c%s", base * bytes / unit,
                base == 1024 && i == 0 ? 'K' : letters[i], base == 1024 ? "iB" : "B"));
}

static struct value do_attr(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"name"};
    struct value name;
    bind(run, call, "do_attr", names, 1, 1, &name);
    if (name.type != VALUE_TEXT)
        kvr_run_raise(
            run, "TypeError", "attribute name must be string, not '%s'", kvr_jinja_type_name(name));
    if (value.type == VALUE_DICT) {
        bool unsafe;
        unsigned method = kvr_method_find(name.text->data, name.text->length);
        if (!method || !kvr_method_has(value, method, &unsafe))
            return kvr_undefined_member(run, value, name);
    }
    return kvr_jinja_attribute(
        run, value, name.text, kvr_method_find(name.text->data, name.text->length));
}

static struct value not_supported(struct run *run, struct value value, const struct call *call)
{
    (void)value, (void)call;
    kvr_run_unsupported(run, "one of the filters pprint, random, striptags, urlize, wordwrap, "
                             "xmlattr");
}

static const struct filter filters[] = {
    {"abs", do_abs},
    {"attr", do_attr},
    {"batch", kvr_filter_batch},
    {"capitalize", do_capitalize},
    {"center", do_center},
    {"count", do_length},
    {"d", do_default},
    {"default", do_default},
    {"dictsort", kvr_filter_dictsort},
    {"e", do_escape},
    {"escape", do_escape},
    {"filesizeformat", do_filesize},
    {"first", kvr_filter_first},
    {"float", do_float},
    {"forceescape", do_force_escape},
    {"format", do_format},
    {"groupby", kvr_filter_groupby},
    {"indent", do_indent},
    {"int", do_int},
    {"items", kvr_filter_items},
    {"join", kvr_filter_join},
    {"last", kvr_filter_last},
    {"length", do_length},
    {"list", kvr_filter_list},
    {"lower", do_lower},
    {"map", kvr_filter_map},
    {"max", kvr_filter_max},
    {"min", kvr_filter_min},
    {"pprint", not_supported},
    {"random", not_supported},
    {"reject", kvr_filter_reject},
    {"rejectattr", kvr_filter_rejectattr},
    {"replace", do_replace},
    {"reverse", kvr_filter_reverse},
    {"round", do_round},
    {"safe", do_safe},
    {"select", kvr_filter_select},
    {"selectattr", kvr_filter_selectattr},
    {"slice", kvr_filter_slice},
    {"sort", kvr_filter_sort},
    {"string", do_string},
    {"striptags", not_supported},
    {"sum", kvr_filter_sum},
    {"title", do_title},
    {"tojson", do_tojson},
    {"trim", do_trim},
    {"truncate", do_truncate},
    {"unique", kvr_filter_unique},
    {"upper", do_upper},
    {"urlencode", do_urlencode},
    {"urlize", not_supported},
    {"wordcount", do_wordcount},
    {"wordwrap", not_supported},
    {"xmlattr", not_supported},
};

const struct filter *kvr_filter_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strlen(filters[i].name) == length && memcmp(filters[i].name, name, length) == 0)
            return &filters[i];
    return NULL;
}
