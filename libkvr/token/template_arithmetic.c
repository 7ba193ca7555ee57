/*
 * Python's arithmetic over template values: numbers, and what + and * mean for texts and lists.
 */
#include "token/template_arithmetic.h"

#include <math.h>
#include <string.h>

static _Noreturn void unsupported_operands(
    struct run *run, enum operator op, struct value left, struct value right)
{
    kvr_run_raise(run, "TypeError", "unsupported operand type(s) for %s: '%s' and '%s'",
        kvr_operator_names[op], kvr_jinja_type_name(left), kvr_jinja_type_name(right));
}

static struct value integer_power(struct run *run, struct value left, struct value right)
{
    wide base = kvr_value_wide(run, left);
    wide power = kvr_value_wide(run, right);
    wide result = 1;
    if (power < 0) {
        double a;
        double b;
        if (base == 0)
            kvr_run_raise(run, "ZeroDivisionError", "0.0 cannot be raised to a negative power");
        kvr_jinja_as_float(left, &a);
        kvr_jinja_as_float(right, &b);
        return kvr_float(pow(a, b));
    }
    if (base == 0 || base == 1 || base == -1)
        return kvr_integer(power == 0 ? 1 : base >= 0 ? (int64_t)base : (power % 2 ? -1 : 1));
    for (wide i = 0; i < power; i++)
        if (__builtin_mul_overflow(result, base, &result))
            kvr_run_unsupported(run, "integer of more than 127 bits");
    return kvr_wide_value(run, result);
}

static struct value integer_arithmetic(
    struct run *run, enum operator op, struct value left, struct value right)
{
    wide a;
    wide b;
    wide result = 0;
    bool overflow = false;
    if (op == OP_POW)
        return integer_power(run, left, right);
    a = kvr_value_wide(run, left);
    b = kvr_value_wide(run, right);
    switch (op) {
    case OP_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUB:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MUL:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_DIV: {
        double x;
        double y;
        if (b == 0)
            kvr_run_raise(run, "ZeroDivisionError", "division by zero");
        kvr_jinja_as_float(left, &x);
        kvr_jinja_as_float(right, &y);
        /* Both exact as doubles: one correct rounding. Else nearly so. */
        if (a <= 1LL << 53 && a >= -(1LL << 53) && b <= 1LL << 53 && b >= -(1LL << 53))
            return kvr_float(x / y);
        return kvr_float((double)((long double)a / (long double)b));
    }
    default:
        if (b == 0)
            kvr_run_raise(run, "ZeroDivisionError",
                op == OP_MOD ? "integer modulo by zero" : "integer division or modulo by zero");
        result = a % b;
        if (result && (result < 0) != (b < 0))
            result += b; /* Python's remainder has the sign of the divisor */
        if (op == OP_FLOORDIV)
            result = (a - result) / b;
        break;
    }
    if (overflow)
        kvr_run_unsupported(run, "integer of more than 127 bits");
    return kvr_wide_value(run, result);
}

static struct value float_arithmetic(
    struct run *run, enum operator op, struct value left, struct value right)
{
    double a = 0;
    double b = 0;
    double rest;
    kvr_jinja_as_float(left, &a);
    kvr_jinja_as_float(right, &b);
    switch (op) {
    case OP_ADD:
        return kvr_float(a + b);
    case OP_SUB:
        return kvr_float(a - b);
    case OP_MUL:
        return kvr_float(a * b);
    case OP_POW:
        if (a == 0 && b < 0)
            kvr_run_raise(run, "ZeroDivisionError", "0.0 cannot be raised to a negative power");
        if (a < 0 && b != floor(b) && !isinf(a) && !isinf(b))
            kvr_run_unsupported(run, "complex numbers");
        if (!isinf(a) && !isinf(b) && isinf(pow(a, b)))
            kvr_run_raise(run, "OverflowError", "(34, 'Numerical result out of range')");
        return kvr_float(pow(a, b));
    default:
        break;
    }
    if (b == 0)
        kvr_run_raise(run, "ZeroDivisionError",
            op == OP_DIV   ? "float division by zero"
            : op == OP_MOD ? "float modulo"
                           : "float floor division by zero");
    if (op == OP_DIV)
        return kvr_float(a / b);
    rest = fmod(a, b);
    if (rest != 0) {
        if ((b < 0) != (rest < 0))
            rest += b;
    } else {
        rest = copysign(0.0, b);
    }
    if (op == OP_MOD)
        return kvr_float(rest);
    {
        double quotient = (a - rest) / b;
        double whole = floor(quotient);
        if (quotient != 0) {
            if (quotient - whole > 0.5)
                whole += 1;
        } else {
            whole = copysign(0.0, a / b);
        }
        return kvr_float(whole);
    }
}

static struct value repeat(struct run *run, struct value sequence, struct value times)
{
    int64_t count;
    if (!kvr_jinja_as_integer(times, &count))
        kvr_run_raise(run, "TypeError", "can't multiply sequence by non-int of type '%s'",
            kvr_jinja_type_name(times));
    if (count < 0)
        count = 0;
    if (sequence.type == VALUE_TEXT) {
        struct builder builder;
        struct text *text;
        kvr_builder_start(&builder, run, 0);
        kvr_builder_pad(&builder, sequence.text->data, sequence.text->length, (size_t)count);
        text = kvr_text_from(kvr_builder_end(&builder), sequence.text);
        text->markup = sequence.text->markup;
        return kvr_text_value(text);
    }
    {
        struct list *list;
        size_t each = sequence.list->count;
        if (each && (size_t)count > run->limits.memory_bytes / sizeof(struct value) / each)
            kvr_run_no_memory(run);
        list = kvr_list_new(run, each * (size_t)count);
        for (int64_t i = 0; each && i < count; i++)
            for (size_t j = 0; j < each; j++)
                kvr_list_add(run, list, sequence.list->items[j]);
        kvr_run_charge(run, list->count * sizeof(struct value));
        return sequence.type == VALUE_TUPLE ? kvr_tuple_value(list) : kvr_list_value(list);
    }
}

static struct value add_sequences(struct run *run, struct value left, struct value right)
{
    if (left.type == VALUE_TEXT) {
        struct text *a = left.text;
        struct text *b = right.text;
        if (right.type != VALUE_TEXT)
            kvr_run_raise(run, "TypeError", "can only concatenate str (not \"%s\") to str",
                kvr_jinja_type_name(right));
        if (a->markup != b->markup) {
            if (a->markup)
                b = kvr_text_escape(run, b);
            else
                a = kvr_text_escape(run, a);
        }
        return kvr_text_value(kvr_text_join(run, a, b));
    }
    if (right.type != left.type)
        kvr_run_raise(run, "TypeError", "can only concatenate %s (not \"%s\") to %s",
            kvr_jinja_type_name(left), kvr_jinja_type_name(right), kvr_jinja_type_name(left));
    {
        struct list *list = kvr_list_new(run, left.list->count + right.list->count);
        for (size_t i = 0; i < left.list->count; i++)
            kvr_list_add(run, list, left.list->items[i]);
        for (size_t i = 0; i < right.list->count; i++)
            kvr_list_add(run, list, right.list->items[i]);
        kvr_run_charge(run, list->count * sizeof(struct value));
        return left.type == VALUE_TUPLE ? kvr_tuple_value(list) : kvr_list_value(list);
    }
}

struct value kvr_jinja_binary(
    struct run *run, enum operator op, struct value left, struct value right)
{
    if (left.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, left.undefined);
    if (op == OP_MOD && left.type == VALUE_TEXT)
        return kvr_text_value(kvr_text_percent(run, left.text, right));
    if (right.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, right.undefined);
    if (is_integer(left) && is_integer(right))
        return integer_arithmetic(run, op, left, right);
    if (is_number(left) && is_number(right))
        return float_arithmetic(run, op, left, right);
    if (op == OP_ADD &&
        (left.type == VALUE_TEXT || left.type == VALUE_LIST || left.type == VALUE_TUPLE))
        return add_sequences(run, left, right);
    if (op == OP_MUL) {
        if (left.type == VALUE_TEXT || left.type == VALUE_LIST || left.type == VALUE_TUPLE)
            return repeat(run, left, right);
        if (right.type == VALUE_TEXT || right.type == VALUE_LIST || right.type == VALUE_TUPLE)
            return repeat(run, right, left);
    }
    if (op == OP_SUB && left.type == VALUE_VIEW)
        kvr_run_unsupported(run, "set arithmetic on dict views");
    unsupported_operands(run, op, left, right);
}

struct value kvr_jinja_negative(struct run *run, struct value value)
{
    if (value.type == VALUE_FLOAT)
        return kvr_float(-value.real);
    if (is_integer(value))
        return kvr_wide_value(run, -kvr_value_wide(run, value));
    if (value.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, value.undefined);
    kvr_run_raise(
        run, "TypeError", "bad operand type for unary -: '%s'", kvr_jinja_type_name(value));
}

struct value kvr_jinja_positive(struct run *run, struct value value)
{
    if (value.type == VALUE_BOOL)
        return kvr_integer(value.truth);
    if (is_number(value))
        return value;
    if (value.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, value.undefined);
    kvr_run_raise(
        run, "TypeError", "bad operand type for unary +: '%s'", kvr_jinja_type_name(value));
}
