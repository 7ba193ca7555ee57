/*
 * Tests: what stands behind `is`.
 */
#include "token/template_internal.h"

#include <string.h>

static struct value only_argument(
    struct run *run, const struct call *call, const char *test, const char *name)
{
    struct value value;
    const char *const names[] = {name};
    kvr_call_bind(run, call, test, names, 1, 1, &value);
    return value;
}

static void no_argument(struct run *run, const struct call *call)
{
    if (call->count || call->keyword_count)
        kvr_run_raise(run, "TypeError", "the test takes 1 positional argument but %zu were given",
            call->count + call->keyword_count + 1);
}

static struct value remainder_of(struct run *run, struct value value, struct value by)
{
    return kvr_jinja_binary(run, OP_MOD, value, by);
}

static bool is_odd(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return kvr_jinja_equal(run, remainder_of(run, value, kvr_integer(2)), kvr_integer(1));
}

static bool is_even(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return kvr_jinja_equal(run, remainder_of(run, value, kvr_integer(2)), kvr_integer(0));
}

static bool is_divisible(struct run *run, struct value value, const struct call *call)
{
    struct value by = only_argument(run, call, "test_divisibleby", "num");
    return kvr_jinja_equal(run, remainder_of(run, value, by), kvr_integer(0));
}

static bool is_defined(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type != VALUE_UNDEFINED;
}

static bool is_undefined(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_UNDEFINED;
}

static bool is_filter(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    kvr_jinja_hash(run, value);
    return value.type == VALUE_TEXT && kvr_filter_find(value.text->data, value.text->length);
}

static bool is_test(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    kvr_jinja_hash(run, value);
    return value.type == VALUE_TEXT && kvr_test_find(value.text->data, value.text->length);
}

static bool is_none(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_NONE;
}

static bool is_boolean(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_BOOL;
}

static bool is_false(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_BOOL && !value.truth;
}

static bool is_true(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_BOOL && value.truth;
}

static bool is_integer(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_INTEGER || value.type == VALUE_BIG;
}

static bool is_float(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_FLOAT;
}

static bool is_number(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type >= VALUE_BOOL && value.type <= VALUE_FLOAT;
}

/* str.islower() and str.isupper(): cased letters are there, and none of the other case. */
static bool all_of_case(struct run *run, struct value value, unsigned wanted, unsigned other)
{
    const struct text *text = kvr_jinja_string(run, value);
    bool found = false;
    size_t used;
    kvr_run_charge(run, text->length);
    for (size_t at = 0; at < text->length; at += used) {
        unsigned bits = kvr_point_bits(kvr_point_read(text->data + at, text->length - at, &used));
        if (bits & (other | POINT_TITLE))
            return false;
        found |= (bits & wanted) != 0;
    }
    return found;
}

static bool is_lower(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return all_of_case(run, value, POINT_LOWER, POINT_UPPER);
}

static bool is_upper(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return all_of_case(run, value, POINT_UPPER, POINT_LOWER);
}

static bool is_string(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_TEXT;
}

static bool is_mapping(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_DICT;
}

static bool is_sequence(struct run *run, struct value value, const struct call *call)
{
    size_t length;
    no_argument(run, call);
    return kvr_jinja_length(value, &length) && value.type != VALUE_VIEW;
}

static bool is_iterable(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return kvr_jinja_iterable(value);
}

static bool is_callable(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_FUNCTION || value.type == VALUE_METHOD ||
           value.type == VALUE_MACRO || value.type == VALUE_LOOP || value.type == VALUE_JOINER ||
           value.type == VALUE_UNDEFINED;
}

static bool is_same(struct run *run, struct value value, const struct call *call)
{
    return kvr_jinja_same(value, only_argument(run, call, "test_sameas", "other"));
}

static bool is_escaped(struct run *run, struct value value, const struct call *call)
{
    no_argument(run, call);
    return value.type == VALUE_TEXT && value.text->markup;
}

static bool is_in(struct run *run, struct value value, const struct call *call)
{
    return kvr_jinja_contains(run, only_argument(run, call, "test_in", "seq"), value);
}

static bool is_equal(struct run *run, struct value value, const struct call *call)
{
    return kvr_jinja_equal(run, value, only_argument(run, call, "eq", "b"));
}

static bool is_not_equal(struct run *run, struct value value, const struct call *call)
{
    return !kvr_jinja_equal(run, value, only_argument(run, call, "ne", "b"));
}

static bool is_less(struct run *run, struct value value, const struct call *call)
{
    return kvr_jinja_less(run, value, only_argument(run, call, "lt", "b"), OP_LT);
}

static bool is_at_most(struct run *run, struct value value, const struct call *call)
{
    return kvr_jinja_less(run, value, only_argument(run, call, "le", "b"), OP_LE);
}

static bool is_greater(struct run *run, struct value value, const struct call *call)
{
    return kvr_jinja_less(run, value, only_argument(run, call, "gt", "b"), OP_GT);
}

static bool is_at_least(struct run *run, struct value value, const struct call *call)
{
    return kvr_jinja_less(run, value, only_argument(run, call, "ge", "b"), OP_GE);
}

static const struct test tests[] = {
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"filter", is_filter},
    {"test", is_test},
    {"none", is_none},
    {"boolean", is_boolean},
    {"false", is_false},
    {"true", is_true},
    {"integer", is_integer},
    {"float", is_float},
    {"lower", is_lower},
    {"upper", is_upper},
    {"string", is_string},
    {"mapping", is_mapping},
    {"number", is_number},
    {"sequence", is_sequence},
    {"iterable", is_iterable},
    {"callable", is_callable},
    {"sameas", is_same},
    {"escaped", is_escaped},
    {"in", is_in},
    {"==", is_equal},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"!=", is_not_equal},
    {"ne", is_not_equal},
    {">", is_greater},
    {"gt", is_greater},
    {"greaterthan", is_greater},
    {"ge", is_at_least},
    {">=", is_at_least},
    {"<", is_less},
    {"lt", is_less},
    {"lessthan", is_less},
    {"<=", is_at_most},
    {"le", is_at_most},
};

const struct test *kvr_test_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strlen(tests[i].name) == length && memcmp(tests[i].name, name, length) == 0)
            return &tests[i];
    return NULL;
}
