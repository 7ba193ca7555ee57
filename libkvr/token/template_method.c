/*
 * Methods of strings, lists, dicts and the like: the table, and those of what is no string.
 *
 * A method is a number everywhere (the parser looks names up), and a row here: which kinds of
 * values have it. Methods that would change a list or dict are known only to be refused, as the
 * sandbox of transformers does.
 */
#include "token/template_method.h"

#include <string.h>

enum {
    ON_LIST = 1,
    ON_TUPLE = 2,
    ON_DICT = 4,
    ON_RANGE = 8,
    ON_LOOP = 16,
    ON_CYCLER = 32,
    ON_NUMBER = 64,
    ON_VIEW = 128
};

/* Methods of Python that no chat template is known to use. */
#define NOT_SUPPORTED(name)                                                                        \
    static struct value no_##name(struct run *run, struct value self, const struct call *call)     \
    {                                                                                              \
        (void)self, (void)call;                                                                    \
        kvr_run_unsupported(run, "the method '" #name "'");                                        \
    }

NOT_SUPPORTED(as_integer_ratio)
NOT_SUPPORTED(bit_count)
NOT_SUPPORTED(bit_length)
NOT_SUPPORTED(conjugate)
NOT_SUPPORTED(encode)
NOT_SUPPORTED(fromkeys)
NOT_SUPPORTED(hex)
NOT_SUPPORTED(is_integer)
NOT_SUPPORTED(isdisjoint)
NOT_SUPPORTED(maketrans)
NOT_SUPPORTED(to_bytes)
NOT_SUPPORTED(translate)

static void argument_count(
    struct run *run, const struct call *call, const char *method, size_t least, size_t most)
{
    if (call->keyword_count)
        kvr_run_raise(run, "TypeError", "%s() takes no keyword arguments", method);
    if (call->count < least)
        kvr_run_raise(run, "TypeError", "%s expected at least %zu argument%s, got %zu", method,
            least, least == 1 ? "" : "s", call->count);
    if (call->count > most)
        kvr_run_raise(run, "TypeError", "%s expected at most %zu argument%s, got %zu", method, most,
            most == 1 ? "" : "s", call->count);
}

/* ---- dicts ---- */

static struct value view(struct value self, enum view_kind kind)
{
    self.type = VALUE_VIEW;
    self.kind = (uint8_t)kind;
    return self;
}

static struct value dict_keys(struct run *run, struct value self, const struct call *call)
{
    argument_count(run, call, "keys", 0, 0);
    return view(self, VIEW_KEYS);
}

static struct value dict_values(struct run *run, struct value self, const struct call *call)
{
    argument_count(run, call, "values", 0, 0);
    return view(self, VIEW_VALUES);
}

static struct value dict_items(struct run *run, struct value self, const struct call *call)
{
    argument_count(run, call, "items", 0, 0);
    return view(self, VIEW_ITEMS);
}

static struct value dict_get(struct run *run, struct value self, const struct call *call)
{
    const struct value *found;
    argument_count(run, call, "get", 1, 2);
    found = kvr_dict_find(run, self.dict, call->items[0]);
    return found ? *found : call->count > 1 ? call->items[1] : kvr_none();
}

static struct value any_copy(struct run *run, struct value self, const struct call *call)
{
    argument_count(run, call, "copy", 0, 0);
    if (self.type == VALUE_DICT) {
        struct dict *copy = kvr_dict_new(run, self.dict->count);
        for (size_t i = 0; i < self.dict->count; i++)
            kvr_dict_set(run, copy, self.dict->entries[i].key, self.dict->entries[i].value);
        return kvr_dict_value(copy);
    }
    return kvr_list_value(kvr_jinja_to_list(run, self));
}

/* ---- sequences ---- */

static struct value sequence_count(struct run *run, struct value self, const struct call *call)
{
    struct iterator *iterator = kvr_jinja_iterate(run, self);
    struct value item;
    int64_t count = 0;
    argument_count(run, call, "count", 1, 1);
    while (kvr_iterator_next(run, iterator, &item))
        count += kvr_jinja_same(item, call->items[0]) || kvr_jinja_equal(run, item, call->items[0]);
    return kvr_integer(count);
}

static struct value sequence_index(struct run *run, struct value self, const struct call *call)
{
    struct iterator *iterator = kvr_jinja_iterate(run, self);
    struct value item;
    size_t length = 0;
    int64_t start = 0;
    int64_t stop = INT64_MAX;
    argument_count(run, call, "index", 1, 3);
    kvr_jinja_length(self, &length);
    if (call->count > 1)
        start = kvr_jinja_need_integer(run, call->items[1]);
    if (call->count > 2)
        stop = kvr_jinja_need_integer(run, call->items[2]);
    start = start < 0 ? start + (int64_t)length : start;
    stop = stop < 0 ? stop + (int64_t)length : stop;
    for (int64_t i = 0; kvr_iterator_next(run, iterator, &item); i++)
        if (i >= start && i < stop &&
            (kvr_jinja_same(item, call->items[0]) || kvr_jinja_equal(run, item, call->items[0])))
            return kvr_integer(i);
    if (self.type == VALUE_TUPLE)
        kvr_run_raise(run, "ValueError", "tuple.index(x): x not in tuple");
    kvr_run_raise(run, "ValueError", "%s is not in %s", kvr_run_show(run, call->items[0]),
        kvr_jinja_type_name(self));
}

/* ---- loop and cycler ---- */

static struct value loop_cycle(struct run *run, struct value self, const struct call *call)
{
    if (!call->count)
        kvr_run_raise(run, "TypeError", "no items for cycling given");
    return call->items[(size_t)self.loop->index0 % call->count];
}

static struct value loop_changed(struct run *run, struct value self, const struct call *call)
{
    struct list *now = kvr_list_new(run, call->count);
    bool changed;
    for (size_t i = 0; i < call->count; i++)
        kvr_list_add(run, now, call->items[i]);
    changed = !self.loop->changed ||
              !kvr_jinja_equal(run, kvr_list_value(self.loop->changed), kvr_list_value(now));
    if (changed)
        self.loop->changed = now;
    return kvr_bool(changed);
}

static struct value cycler_next(struct run *run, struct value self, const struct call *call)
{
    struct cycler *cycler = self.cycler;
    struct value item = cycler->items->items[cycler->position];
    argument_count(run, call, "next", 0, 0);
    cycler->position = (cycler->position + 1) % cycler->items->count;
    return item;
}

static struct value cycler_reset(struct run *run, struct value self, const struct call *call)
{
    argument_count(run, call, "reset", 0, 0);
    self.cycler->position = 0;
    return kvr_none();
}

/* ---- the table ---- */

typedef struct value method_function(struct run *run, struct value self, const struct call *call);

static const struct {
    const char *name;
    method_function *on_text;
    method_function *on_other;
    uint8_t other;  /* ON_*: what else has it */
    uint8_t unsafe; /* ON_*: what has it and must not use it */
} methods[] = {
    {"", NULL, NULL, 0, 0},
    {"append", NULL, NULL, 0, ON_LIST},
    {"as_integer_ratio", NULL, no_as_integer_ratio, ON_NUMBER, 0},
    {"bit_count", NULL, no_bit_count, ON_NUMBER, 0},
    {"bit_length", NULL, no_bit_length, ON_NUMBER, 0},
    {"capitalize", kvr_method_capitalize, NULL, 0, 0},
    {"casefold", kvr_method_casefold, NULL, 0, 0},
    {"center", kvr_method_center, NULL, 0, 0},
    {"changed", NULL, loop_changed, ON_LOOP, 0},
    {"clear", NULL, NULL, 0, ON_LIST | ON_DICT},
    {"conjugate", NULL, no_conjugate, ON_NUMBER, 0},
    {"copy", NULL, any_copy, ON_LIST | ON_DICT, 0},
    {"count", kvr_method_count, sequence_count, ON_LIST | ON_TUPLE | ON_RANGE, 0},
    {"cycle", NULL, loop_cycle, ON_LOOP, 0},
    {"encode", no_encode, NULL, 0, 0},
    {"endswith", kvr_method_endswith, NULL, 0, 0},
    {"expandtabs", kvr_method_expandtabs, NULL, 0, 0},
    {"extend", NULL, NULL, 0, ON_LIST},
    {"find", kvr_method_find_text, NULL, 0, 0},
    {"format", kvr_method_format, NULL, 0, 0},
    {"format_map", kvr_method_format_map, NULL, 0, 0},
    {"fromkeys", NULL, no_fromkeys, ON_DICT, 0},
    {"get", NULL, dict_get, ON_DICT, 0},
    {"hex", NULL, no_hex, ON_NUMBER, 0},
    {"index", kvr_method_index, sequence_index, ON_LIST | ON_TUPLE | ON_RANGE, 0},
    {"insert", NULL, NULL, 0, ON_LIST},
    {"is_integer", NULL, no_is_integer, ON_NUMBER, 0},
    {"isalnum", kvr_method_isalnum, NULL, 0, 0},
    {"isalpha", kvr_method_isalpha, NULL, 0, 0},
    {"isascii", kvr_method_isascii, NULL, 0, 0},
    {"isdecimal", kvr_method_isdecimal, NULL, 0, 0},
    {"isdigit", kvr_method_isdigit, NULL, 0, 0},
    {"isdisjoint", NULL, no_isdisjoint, ON_VIEW, 0},
    {"isidentifier", kvr_method_isidentifier, NULL, 0, 0},
    {"islower", kvr_method_islower, NULL, 0, 0},
    {"isnumeric", kvr_method_isnumeric, NULL, 0, 0},
    {"isprintable", kvr_method_isprintable, NULL, 0, 0},
    {"isspace", kvr_method_isspace, NULL, 0, 0},
    {"istitle", kvr_method_istitle, NULL, 0, 0},
    {"isupper", kvr_method_isupper, NULL, 0, 0},
    {"items", NULL, dict_items, ON_DICT, 0},
    {"join", kvr_method_join, NULL, 0, 0},
    {"keys", NULL, dict_keys, ON_DICT, 0},
    {"ljust", kvr_method_ljust, NULL, 0, 0},
    {"lower", kvr_method_lower, NULL, 0, 0},
    {"lstrip", kvr_method_lstrip, NULL, 0, 0},
    {"maketrans", no_maketrans, NULL, 0, 0},
    {"next", NULL, cycler_next, ON_CYCLER, 0},
    {"partition", kvr_method_partition, NULL, 0, 0},
    {"pop", NULL, NULL, 0, ON_LIST | ON_DICT},
    {"popitem", NULL, NULL, 0, ON_DICT},
    {"remove", NULL, NULL, 0, ON_LIST},
    {"removeprefix", kvr_method_removeprefix, NULL, 0, 0},
    {"removesuffix", kvr_method_removesuffix, NULL, 0, 0},
    {"replace", kvr_method_replace, NULL, 0, 0},
    {"reset", NULL, cycler_reset, ON_CYCLER, 0},
    {"reverse", NULL, NULL, 0, ON_LIST},
    {"rfind", kvr_method_rfind, NULL, 0, 0},
    {"rindex", kvr_method_rindex, NULL, 0, 0},
    {"rjust", kvr_method_rjust, NULL, 0, 0},
    {"rpartition", kvr_method_rpartition, NULL, 0, 0},
    {"rsplit", kvr_method_rsplit, NULL, 0, 0},
    {"rstrip", kvr_method_rstrip, NULL, 0, 0},
    {"setdefault", NULL, NULL, 0, ON_DICT},
    {"sort", NULL, NULL, 0, ON_LIST},
    {"split", kvr_method_split, NULL, 0, 0},
    {"splitlines", kvr_method_splitlines, NULL, 0, 0},
    {"startswith", kvr_method_startswith, NULL, 0, 0},
    {"strip", kvr_method_strip, NULL, 0, 0},
    {"swapcase", kvr_method_swapcase, NULL, 0, 0},
    {"title", kvr_method_title, NULL, 0, 0},
    {"to_bytes", NULL, no_to_bytes, ON_NUMBER, 0},
    {"translate", no_translate, NULL, 0, 0},
    {"update", NULL, NULL, 0, ON_DICT},
    {"upper", kvr_method_upper, NULL, 0, 0},
    {"values", NULL, dict_values, ON_DICT, 0},
    {"zfill", kvr_method_zfill, NULL, 0, 0},
};

static unsigned kind_of(struct value value)
{
    switch (value.type) {
    case VALUE_LIST:
        return ON_LIST;
    case VALUE_TUPLE:
        return ON_TUPLE;
    case VALUE_DICT:
        return ON_DICT;
    case VALUE_RANGE:
        return ON_RANGE;
    case VALUE_LOOP:
        return ON_LOOP;
    case VALUE_CYCLER:
        return ON_CYCLER;
    case VALUE_VIEW:
        return ON_VIEW;
    case VALUE_BOOL:
    case VALUE_INTEGER:
    case VALUE_BIG:
    case VALUE_FLOAT:
        return ON_NUMBER;
    default:
        return 0;
    }
}

unsigned kvr_method_find(const char *name, size_t length)
{
    size_t low = 1;
    size_t high = sizeof methods / sizeof *methods;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strncmp(methods[middle].name, name, length);
        if (!order)
            order = (int)(strlen(methods[middle].name) > length);
        if (!order)
            return (unsigned)middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

bool kvr_method_has(struct value self, unsigned method, bool *unsafe)
{
    unsigned kind = kind_of(self);
    *unsafe = methods[method].unsafe & kind;
    if (self.type == VALUE_TEXT)
        return methods[method].on_text;
    return (methods[method].other | methods[method].unsafe) & kind;
}

struct value kvr_method_call(
    struct run *run, struct value self, unsigned method, const struct call *call)
{
    return self.type == VALUE_TEXT ? methods[method].on_text(run, self, call)
                                   : methods[method].on_other(run, self, call);
}
