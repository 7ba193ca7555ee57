/*
 * Python's operators over template values: truth, equality, order, membership. Arithmetic is in
 * template_arithmetic.c.
 *
 * Integers are 64 bits wide with a fall-back: what does not fit is kept as decimal text (VALUE_BIG)
 * and computed with in 128 bits. What needs more than that is an error that says so, not a wrong
 * number; integers of any length pass through unchanged.
 */
#include "token/template_arithmetic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const kvr_operator_names[] = {
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

struct value kvr_wide_value(struct run *run, wide number)
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

wide kvr_value_wide(struct run *run, struct value value)
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
        kvr_operator_names[op], kvr_jinja_type_name(left), kvr_jinja_type_name(right));
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
