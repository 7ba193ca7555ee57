/*
 * Python's operators over template values: truth, equality, order, membership, arithmetic.
 *
 * Integers are 64 bits wide with a fall-back: what does not fit is kept as decimal text (VALUE_BIG)
 * and computed with in 128 bits. What needs more than that is an error that says so, not a wrong
 * number; integers of any length pass through unchanged.
 */
#include "token/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef __int128 wide;

static const char *const operator_names[] = {
    "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

const char *kvr_jinja_type_name(struct value value)
{
    static const char *const names[] = {"missing", "Undefined", "NoneType", "bool", "int", "int",
        "float", "str", "list", "tuple", "dict", "range", "dict_keys", "generator", "Namespace",
        "Macro", "function", "builtin_function_or_method", "LoopContext", "Cycler", "Joiner"};
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    if (value.type == VALUE_VIEW)
        return views[value.kind];
    if (value.type == VALUE_ITERATOR)
        return value.iterator->type_name;
    if (value.type == VALUE_TEXT && value.text->markup)
        return "Markup";
    return names[value.type];
}

bool kvr_jinja_truth(struct run *run, struct value value)
{
    size_t length;
    (void)run;
    switch (value.type) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value.truth;
    case VALUE_INTEGER:
        return value.integer != 0;
    case VALUE_FLOAT:
        return value.real != 0;
    case VALUE_TEXT:
        return value.text->length != 0;
    default:
        return !kvr_jinja_length(value, &length) || length != 0;
    }
}

/* ---- numbers ---- */

struct value kvr_integer_from_digits(struct run *run, const char *digits, size_t length)
{
    bool negative = length && digits[0] == '-';
    uint64_t sum = 0;
    struct value big = {.type = VALUE_BIG};
    size_t start = negative;
    while (start + 1 < length && digits[start] == '0')
        start++;
    if (length - start <= 18) {
        for (size_t i = start; i < length; i++)
            sum = sum * 10 + (uint64_t)(digits[i] - '0');
        return kvr_integer(negative ? -(int64_t)sum : (int64_t)sum);
    }
    if (length - start == 19) {
        for (size_t i = start; i < length; i++)
            sum = sum * 10 + (uint64_t)(digits[i] - '0');
        if (sum <= (uint64_t)INT64_MAX)
            return kvr_integer(negative ? -(int64_t)sum : (int64_t)sum);
        if (negative && sum == (uint64_t)INT64_MAX + 1)
            return kvr_integer(INT64_MIN);
    }
    if (length - start > 4300)
        kvr_run_raise(run, "ValueError",
            "Exceeds the limit (4300 digits) for integer string "
            "conversion: value has %zu digits",
            length - start);
    big.text = kvr_text_copy(
        run, digits + (negative ? start - 1 : start), length - start + (negative ? 1 : 0));
    if (negative)
        ((char *)big.text->data)[0] = '-';
    return big;
}

static struct value from_wide(struct run *run, wide number)
{
    char digits[48];
    size_t at = sizeof digits;
    bool negative = number < 0;
    unsigned __int128 rest = negative ? -(unsigned __int128)number : (unsigned __int128)number;
    if (number >= INT64_MIN && number <= INT64_MAX)
        return kvr_integer((int64_t)number);
    while (rest) {
        digits[--at] = (char)('0' + (int)(rest % 10));
        rest /= 10;
    }
    if (negative)
        digits[--at] = '-';
    return kvr_integer_from_digits(run, digits + at, sizeof digits - at);
}

static bool is_integer(struct value value)
{
    return value.type == VALUE_BOOL || value.type == VALUE_INTEGER || value.type == VALUE_BIG;
}

static bool is_number(struct value value)
{
    return is_integer(value) || value.type == VALUE_FLOAT;
}

static wide to_wide(struct run *run, struct value value)
{
    wide number = 0;
    bool negative;
    if (value.type == VALUE_BOOL)
        return value.truth;
    if (value.type == VALUE_INTEGER)
        return value.integer;
    if (value.text->length > 38)
        kvr_run_unsupported(run, "arithmetic on an integer of more than 127 bits");
    negative = value.text->data[0] == '-';
    for (size_t i = negative; i < value.text->length; i++)
        number = number * 10 + (value.text->data[i] - '0');
    return negative ? -number : number;
}

bool kvr_jinja_as_integer(struct value value, int64_t *out)
{
    if (value.type == VALUE_BOOL)
        *out = value.truth;
    else if (value.type == VALUE_INTEGER)
        *out = value.integer;
    else if (value.type == VALUE_BIG)
        *out = value.text->data[0] == '-' ? INT64_MIN : INT64_MAX; /* saturated */
    else
        return false;
    return true;
}

int64_t kvr_jinja_need_integer(struct run *run, struct value value)
{
    int64_t integer;
    if (!kvr_jinja_as_integer(value, &integer))
        kvr_run_raise(run, "TypeError", "'%s' object cannot be interpreted as an integer",
            kvr_jinja_type_name(value));
    return integer;
}

bool kvr_jinja_as_float(struct value value, double *out)
{
    char digits[512];
    if (value.type == VALUE_FLOAT)
        *out = value.real;
    else if (value.type == VALUE_BOOL)
        *out = value.truth;
    else if (value.type == VALUE_INTEGER)
        *out = (double)value.integer;
    else if (value.type == VALUE_BIG) {
        size_t length = value.text->length < sizeof digits ? value.text->length : 0;
        memcpy(digits, value.text->data, length);
        digits[length] = 0;
        *out = length ? strtod(digits, NULL) : (value.text->data[0] == '-' ? -HUGE_VAL : HUGE_VAL);
    } else {
        return false;
    }
    return true;
}

/* Sign of left - right; 2 where one is not a number. */
static int compare_numbers(struct value left, struct value right)
{
    if (left.type == VALUE_BIG || right.type == VALUE_BIG) {
        const struct text *a = left.type == VALUE_BIG ? left.text : NULL;
        const struct text *b = right.type == VALUE_BIG ? right.text : NULL;
        if (a && b) {
            bool minus = a->data[0] == '-';
            int order;
            if (minus != (b->data[0] == '-'))
                return minus ? -1 : 1;
            if (a->length != b->length)
                order = a->length < b->length ? -1 : 1;
            else
                order = memcmp(a->data, b->data, a->length);
            order = order < 0 ? -1 : order > 0;
            return minus ? -order : order;
        }
        if (left.type != VALUE_FLOAT && right.type != VALUE_FLOAT)
            return a ? (a->data[0] == '-' ? -1 : 1) : (b->data[0] == '-' ? 1 : -1);
    }
    if (left.type == VALUE_FLOAT || right.type == VALUE_FLOAT) {
        long double a;
        long double b;
        double real;
        if (isnan(left.type == VALUE_FLOAT ? left.real : 0) ||
            isnan(right.type == VALUE_FLOAT ? right.real : 0))
            return 2;
        kvr_jinja_as_float(left, &real);
        a = left.type == VALUE_INTEGER ? (long double)left.integer : real;
        kvr_jinja_as_float(right, &real);
        b = right.type == VALUE_INTEGER ? (long double)right.integer : real;
        return a < b ? -1 : a > b;
    }
    {
        int64_t a = 0;
        int64_t b = 0;
        kvr_jinja_as_integer(left, &a);
        kvr_jinja_as_integer(right, &b);
        return a < b ? -1 : a > b;
    }
}

/* ---- equality and order ---- */

bool kvr_jinja_same(struct value left, struct value right)
{
    if (left.type != right.type)
        return false;
    switch (left.type) {
    case VALUE_NONE:
        return true;
    case VALUE_BOOL:
        return left.truth == right.truth;
    case VALUE_INTEGER:
        return left.integer == right.integer;
    case VALUE_TEXT:
        return left.text == right.text ||
               (left.text->data == right.text->data && left.text->length == right.text->length) ||
               (left.text->length <= 1 && kvr_text_equal(left.text, right.text));
    case VALUE_FLOAT:
        return memcmp(&left.real, &right.real, sizeof left.real) == 0;
    default:
        return left.list == right.list;
    }
}

static bool equal_lists(struct run *run, const struct list *left, const struct list *right)
{
    if (left->count != right->count)
        return false;
    for (size_t i = 0; i < left->count; i++)
        if (!kvr_jinja_equal(run, left->items[i], right->items[i]))
            return false;
    return true;
}

static bool equal_dicts(struct run *run, const struct dict *left, const struct dict *right)
{
    if (left->count != right->count)
        return false;
    for (size_t i = 0; i < left->count; i++) {
        const struct value *other = kvr_dict_find(run, right, left->entries[i].key);
        if (!other || !kvr_jinja_equal(run, left->entries[i].value, *other))
            return false;
    }
    return true;
}

bool kvr_jinja_equal(struct run *run, struct value left, struct value right)
{
    bool equal;
    if (left.type == VALUE_TEXT && right.type == VALUE_TEXT)
        return kvr_text_equal(left.text, right.text);
    if (is_number(left) && is_number(right))
        return compare_numbers(left, right) == 0;
    if (left.type != right.type)
        return false;
    switch (left.type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return true;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
        if (left.list == right.list)
            return true;
        kvr_run_charge(run, 0);
        kvr_run_enter(run);
        equal = left.type == VALUE_DICT ? equal_dicts(run, left.dict, right.dict)
                                        : equal_lists(run, left.list, right.list);
        kvr_run_leave(run);
        return equal;
    case VALUE_RANGE:
        if (left.range->count != right.range->count)
            return false;
        return left.range->count == 0 ||
               (left.range->start == right.range->start &&
                   (left.range->count == 1 || left.range->step == right.range->step));
    case VALUE_VIEW:
        if (left.kind == VIEW_VALUES || right.kind != left.kind)
            return left.dict == right.dict && left.kind == right.kind;
        if (left.kind == VIEW_ITEMS)
            return equal_dicts(run, left.dict, right.dict);
        if (left.dict->count != right.dict->count)
            return false;
        for (size_t i = 0; i < left.dict->count; i++)
            if (!kvr_dict_find(run, right.dict, left.dict->entries[i].key))
                return false;
        return true;
    case VALUE_METHOD:
        return left.method == right.method && kvr_jinja_same(left.bound->self, right.bound->self);
    default:
        return left.list == right.list;
    }
}

static bool by_sign(int sign, enum operator op)
{
    if (sign == 2)
        return false;
    return op == OP_LT ? sign < 0 : op == OP_LE ? sign <= 0 : op == OP_GT ? sign > 0 : sign >= 0;
}

bool kvr_jinja_less(struct run *run, struct value left, struct value right, enum operator op)
{
    if (left.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, left.undefined);
    if (right.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, right.undefined);
    if (is_number(left) && is_number(right))
        return by_sign(compare_numbers(left, right), op);
    if (left.type == VALUE_TEXT && right.type == VALUE_TEXT) {
        size_t length =
            left.text->length < right.text->length ? left.text->length : right.text->length;
        int sign = length ? memcmp(left.text->data, right.text->data, length) : 0;
        kvr_run_charge(run, length);
        if (!sign)
            sign =
                (left.text->length > right.text->length) - (left.text->length < right.text->length);
        return by_sign(sign < 0 ? -1 : sign > 0, op);
    }
    if (left.type == right.type && (left.type == VALUE_LIST || left.type == VALUE_TUPLE)) {
        size_t count = left.list->count < right.list->count ? left.list->count : right.list->count;
        bool less;
        for (size_t i = 0; i < count; i++) {
            if (kvr_jinja_equal(run, left.list->items[i], right.list->items[i]))
                continue;
            kvr_run_enter(run);
            less = kvr_jinja_less(run, left.list->items[i], right.list->items[i], op);
            kvr_run_leave(run);
            return less;
        }
        return by_sign(
            (left.list->count > right.list->count) - (left.list->count < right.list->count), op);
    }
    kvr_run_raise(run, "TypeError", "'%s' not supported between instances of '%s' and '%s'",
        operator_names[op], kvr_jinja_type_name(left), kvr_jinja_type_name(right));
}

bool kvr_jinja_contains(struct run *run, struct value container, struct value item)
{
    switch (container.type) {
    case VALUE_TEXT:
        if (item.type != VALUE_TEXT)
            kvr_run_raise(run, "TypeError", "'in <string>' requires string as left operand, not %s",
                kvr_jinja_type_name(item));
        kvr_run_charge(run, container.text->length);
        return kvr_bytes_find(
            container.text->data, container.text->length, item.text->data, item.text->length);
    case VALUE_DICT:
        return kvr_dict_find(run, container.dict, item);
    case VALUE_VIEW:
        if (container.kind == VIEW_KEYS)
            return kvr_dict_find(run, container.dict, item);
        break;
    case VALUE_UNDEFINED:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_ITERATOR:
    case VALUE_LOOP:
        break;
    default:
        kvr_run_raise(run, "TypeError", "argument of type '%s' is not iterable",
            kvr_jinja_type_name(container));
    }
    {
        struct iterator *iterator = kvr_jinja_iterate(run, container);
        struct value each;
        while (kvr_iterator_next(run, iterator, &each))
            if (kvr_jinja_same(each, item) || kvr_jinja_equal(run, each, item))
                return true;
    }
    return false;
}

/* ---- arithmetic ---- */

static _Noreturn void unsupported_operands(
    struct run *run, enum operator op, struct value left, struct value right)
{
    kvr_run_raise(run, "TypeError", "unsupported operand type(s) for %s: '%s' and '%s'",
        operator_names[op], kvr_jinja_type_name(left), kvr_jinja_type_name(right));
}

static struct value integer_power(struct run *run, struct value left, struct value right)
{
    wide base = to_wide(run, left);
    wide power = to_wide(run, right);
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
    return from_wide(run, result);
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
    a = to_wide(run, left);
    b = to_wide(run, right);
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
    return from_wide(run, result);
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
        return from_wide(run, -to_wide(run, value));
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
