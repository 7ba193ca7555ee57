/*
 * Filters of numbers: int, float, abs, round, filesizeformat, and the reading of numbers as
 * Python's int() and float() read them.
 */
#include "token/template_sequence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

struct value kvr_filter_int(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"default", "base"};
    struct value bound[2];
    struct value result = kvr_missing();
    double real;
    kvr_call_bind(run, call, "do_int", names, 2, 0, bound);
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

struct value kvr_filter_float(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"default"};
    struct value otherwise;
    double real;
    kvr_call_bind(run, call, "do_float", names, 1, 0, &otherwise);
    if (value.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, value.undefined);
    if (value.type == VALUE_TEXT ? text_to_float(run, value.text, &real)
                                 : kvr_jinja_as_float(value, &real))
        return kvr_float(real);
    return kvr_given(otherwise) ? otherwise : kvr_float(0);
}

struct value kvr_filter_abs(struct run *run, struct value value, const struct call *call)
{
    kvr_filter_no_arguments(run, call, "abs");
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

struct value kvr_filter_round(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"precision", "method"};
    struct value bound[2];
    int64_t precision;
    bool to_integer;
    const struct text *method;
    struct value power;
    struct value scaled;
    kvr_call_bind(run, call, "do_round", names, 2, 0, bound);
    to_integer = bound[0].type == VALUE_NONE; /* round(x, None) is an integer */
    precision = kvr_given(bound[0]) && !to_integer ? kvr_jinja_need_integer(run, bound[0]) : 0;
    method = bound[1].type == VALUE_TEXT ? bound[1].text : kvr_text_literal(run, "common");
    if (kvr_given(bound[1]) && bound[1].type != VALUE_TEXT)
        method = kvr_text_literal(run, "");
    if (!kvr_template_text_is(method, "common") && !kvr_template_text_is(method, "ceil") &&
        !kvr_template_text_is(method, "floor"))
        kvr_run_raise(run, "FilterArgumentError", "method must be common, ceil or floor");
    if (value.type == VALUE_UNDEFINED && !kvr_template_text_is(method, "common"))
        kvr_run_undefined(run, value.undefined);
    if (value.type < VALUE_BOOL || value.type > VALUE_FLOAT)
        kvr_run_raise(run, "TypeError", "type %s doesn't define __round__ method",
            kvr_jinja_type_name(value));
    if (kvr_template_text_is(method, "common")) {
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
        double whole =
            kvr_template_text_is(method, "ceil") ? ceil(scaled.real) : floor(scaled.real);
        scaled = need_finite(run, whole, whole);
    }
    return kvr_jinja_binary(run, OP_DIV, scaled, power);
}

static struct value as_content(struct text *text)
{
    text->origin = ORIGIN_CONTENT;
    return kvr_text_value(text);
}

struct value kvr_filter_filesize(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"binary"};
    static const char letters[] = "kMGTPEZY";
    struct value binary;
    struct call none = {0};
    double bytes;
    double base;
    double unit;
    kvr_call_bind(run, call, "do_filesizeformat", names, 1, 0, &binary);
    base = kvr_given_true(run, binary) ? 1024 : 1000;
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
        return as_content(kvr_text_format(run, "%.0f Bytes", trunc(bytes) + 0.0));
    unit = base * base;
    for (size_t i = 0;; i++, unit *= base)
        if (bytes < unit || i == 7)
            return as_content(kvr_text_format(run, "%.1f %c%s", base * bytes / unit,
                base == 1024 && i == 0 ? 'K' : letters[i], base == 1024 ? "iB" : "B"));
}
