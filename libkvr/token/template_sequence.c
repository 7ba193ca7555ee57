/*
 * Filters of sequences that give their result at once; those that are generators in jinja2 are in
 * template_generator.c. Sorting is a stable merge sort over keys made beforehand; its order is
 * Python's
 * `<`, which raises for what cannot be compared.
 */
#include "token/template_sequence.h"

#include <string.h>

/* ---- attributes of items ---- */

/* "a.b.0" as a list of keys; none where no attribute is given. */
struct list *kvr_attribute_parts(struct run *run, struct value attribute)
{
    struct list *parts = kvr_list_new(run, 2);
    size_t start = 0;
    if (!kvr_given(attribute) || attribute.type == VALUE_NONE)
        return parts;
    if (attribute.type != VALUE_TEXT) {
        kvr_list_add(run, parts, attribute);
        return parts;
    }
    for (size_t at = 0; at <= attribute.text->length; at++) {
        const struct text *part;
        bool number;
        if (at < attribute.text->length && attribute.text->data[at] != '.')
            continue;
        part = kvr_text_cut(run, attribute.text, start, at);
        number = part->length > 0;
        for (size_t i = 0; i < part->length; i++)
            number &= part->data[i] >= '0' && part->data[i] <= '9';
        kvr_list_add(run, parts,
            number ? kvr_integer_from_digits(run, part->data, part->length)
                   : kvr_text_value(kvr_text_cut(run, attribute.text, start, at)));
        start = at + 1;
    }
    return parts;
}

struct value kvr_attribute_get(
    struct run *run, struct value item, const struct list *parts, struct value otherwise)
{
    for (size_t i = 0; i < parts->count; i++) {
        item = kvr_jinja_item(run, item, parts->items[i]);
        if (item.type == VALUE_UNDEFINED && kvr_given(otherwise) && otherwise.type != VALUE_NONE)
            item = otherwise;
    }
    return item;
}

struct value kvr_ignore_case(struct run *run, struct value value, bool case_sensitive)
{
    if (!case_sensitive && value.type == VALUE_TEXT)
        return kvr_text_value(kvr_text_lower(run, value.text));
    return value;
}

bool kvr_given_true(struct run *run, struct value value)
{
    return kvr_given(value) && kvr_jinja_truth(run, value);
}

void kvr_filter_no_arguments(struct run *run, const struct call *call, const char *filter)
{
    if (call->count || call->keyword_count)
        kvr_run_raise(run, "TypeError", "%s() takes 1 positional argument but %zu were given",
            filter, call->count + call->keyword_count + 1);
}

/* ---- sorting ---- */

static void merge_sort(
    struct run *run, struct keyed *items, struct keyed *spare, size_t count, bool reverse)
{
    size_t half = count / 2;
    size_t left = 0;
    size_t right = half;
    if (count < 2)
        return;
    merge_sort(run, items, spare, half, reverse);
    merge_sort(run, items + half, spare, count - half, reverse);
    memcpy(spare, items, half * sizeof *items);
    for (size_t at = 0; left < half; at++) {
        bool take_right = false;
        kvr_run_charge(run, 0);
        if (right < count)
            take_right = reverse ? kvr_jinja_less(run, spare[left].key, items[right].key, OP_LT)
                                 : kvr_jinja_less(run, items[right].key, spare[left].key, OP_LT);
        items[at] = take_right ? items[right++] : spare[left++];
    }
}

static struct keyed *keyed_items(struct run *run, struct value value, size_t *count)
{
    const struct list *list = kvr_jinja_to_list(run, value);
    struct keyed *items = kvr_run_array(run, list->count + 1, sizeof *items);
    for (size_t i = 0; i < list->count; i++)
        items[i].key = items[i].item = list->items[i];
    *count = list->count;
    return items;
}

void kvr_sort_keyed(struct run *run, struct keyed *items, size_t count, bool reverse)
{
    merge_sort(run, items, kvr_run_array(run, count / 2 + 1, sizeof *items), count, reverse);
}

static struct value items_of(struct run *run, const struct keyed *items, size_t count)
{
    struct list *list = kvr_list_new(run, count);
    for (size_t i = 0; i < count; i++)
        kvr_list_add(run, list, items[i].item);
    return kvr_list_value(list);
}

struct value kvr_filter_sort(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"reverse", "case_sensitive", "attribute"};
    struct value bound[3];
    struct list *attributes = kvr_list_new(run, 1);
    struct keyed *items;
    size_t count;
    kvr_call_bind(run, call, "do_sort", names, 3, 0, bound);
    if (bound[2].type == VALUE_TEXT) {
        struct text *text = bound[2].text;
        size_t start = 0;
        for (size_t at = 0; at <= text->length; at++) {
            if (at < text->length && text->data[at] != ',')
                continue;
            kvr_list_add(run, attributes, kvr_text_value(kvr_text_cut(run, text, start, at)));
            start = at + 1;
        }
    } else {
        kvr_list_add(run, attributes, bound[2]);
    }
    for (size_t i = 0; i < attributes->count; i++)
        attributes->items[i] = kvr_list_value(kvr_attribute_parts(run, attributes->items[i]));
    items = keyed_items(run, value, &count);
    for (size_t i = 0; i < count; i++) {
        struct list *key = kvr_list_new(run, attributes->count);
        for (size_t j = 0; j < attributes->count; j++)
            kvr_list_add(run, key,
                kvr_ignore_case(run,
                    kvr_attribute_get(run, items[i].item, attributes->items[j].list, kvr_missing()),
                    kvr_given_true(run, bound[1])));
        items[i].key = kvr_list_value(key);
    }
    kvr_sort_keyed(run, items, count, kvr_given_true(run, bound[0]));
    return items_of(run, items, count);
}

struct value kvr_filter_dictsort(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"case_sensitive", "by", "reverse"};
    struct value bound[3];
    struct keyed *items;
    size_t count;
    size_t position = 0;
    kvr_call_bind(run, call, "do_dictsort", names, 3, 0, bound);
    if (kvr_given(bound[1])) {
        if (bound[1].type == VALUE_TEXT && kvr_template_text_is(bound[1].text, "value"))
            position = 1;
        else if (bound[1].type != VALUE_TEXT || !kvr_template_text_is(bound[1].text, "key"))
            kvr_run_raise(
                run, "FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    }
    if (value.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, value.undefined);
    if (value.type != VALUE_DICT)
        kvr_run_raise(run, "AttributeError", "'%s' object has no attribute 'items'",
            kvr_jinja_type_name(value));
    value.type = VALUE_VIEW;
    value.kind = VIEW_ITEMS;
    items = keyed_items(run, value, &count);
    for (size_t i = 0; i < count; i++)
        items[i].key = kvr_ignore_case(
            run, items[i].item.list->items[position], kvr_given_true(run, bound[0]));
    kvr_sort_keyed(run, items, count, kvr_given_true(run, bound[2]));
    return items_of(run, items, count);
}

struct value kvr_filter_groupby(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"attribute", "default", "case_sensitive"};
    struct value bound[3];
    struct list *parts;
    struct list *groups = kvr_list_new(run, 0);
    struct keyed *items;
    size_t count;
    size_t end;
    kvr_call_bind(run, call, "do_groupby", names, 3, 1, bound);
    parts = kvr_attribute_parts(run, bound[0]);
    items = keyed_items(run, value, &count);
    for (size_t i = 0; i < count; i++)
        items[i].key = kvr_ignore_case(run, kvr_attribute_get(run, items[i].item, parts, bound[1]),
            kvr_given_true(run, bound[2]));
    kvr_sort_keyed(run, items, count, false);
    for (size_t start = 0; start < count; start = end) {
        struct list *pair = kvr_list_new(run, 2);
        struct value group;
        for (end = start + 1; end < count; end++)
            if (!kvr_jinja_equal(run, items[start].key, items[end].key))
                break;
        kvr_list_add(run, pair, kvr_attribute_get(run, items[start].item, parts, bound[1]));
        kvr_list_add(run, pair, items_of(run, items + start, end - start));
        group = kvr_tuple_value(pair);
        group.kind = 1; /* has .grouper and .list */
        kvr_list_add(run, groups, group);
    }
    return kvr_list_value(groups);
}

static struct value extreme(
    struct run *run, struct value value, const struct call *call, enum operator op)
{
    static const char *const names[] = {"case_sensitive", "attribute"};
    struct value bound[2];
    struct iterator *iterator;
    struct list *parts;
    struct value best;
    struct value best_key;
    struct value item;
    bool sensitive;
    kvr_call_bind(run, call, op == OP_LT ? "do_min" : "do_max", names, 2, 0, bound);
    iterator = kvr_jinja_iterate(run, value);
    if (!kvr_iterator_next(run, iterator, &best))
        return kvr_undefined_hint(run, "No aggregated item, sequence was empty.");
    sensitive = kvr_given_true(run, bound[0]);
    parts = kvr_attribute_parts(run, bound[1]);
    best_key = kvr_ignore_case(run, kvr_attribute_get(run, best, parts, kvr_missing()), sensitive);
    while (kvr_iterator_next(run, iterator, &item)) {
        struct value key =
            kvr_ignore_case(run, kvr_attribute_get(run, item, parts, kvr_missing()), sensitive);
        if (kvr_jinja_less(run, key, best_key, op)) {
            best = item;
            best_key = key;
        }
    }
    return best;
}

struct value kvr_filter_min(struct run *run, struct value value, const struct call *call)
{
    return extreme(run, value, call, OP_LT);
}

struct value kvr_filter_max(struct run *run, struct value value, const struct call *call)
{
    return extreme(run, value, call, OP_GT);
}

/* ---- the rest ---- */

struct value kvr_filter_first(struct run *run, struct value value, const struct call *call)
{
    struct value item;
    kvr_filter_no_arguments(run, call, "do_first");
    if (kvr_iterator_next(run, kvr_jinja_iterate(run, value), &item))
        return item;
    return kvr_undefined_hint(run, "No first item, sequence was empty.");
}

static bool reversible(struct value value)
{
    size_t length;
    return kvr_jinja_length(value, &length);
}

struct value kvr_filter_last(struct run *run, struct value value, const struct call *call)
{
    size_t length = 0;
    kvr_filter_no_arguments(run, call, "do_last");
    if (!reversible(value))
        kvr_run_raise(
            run, "TypeError", "'%s' object is not reversible", kvr_jinja_type_name(value));
    kvr_jinja_length(value, &length);
    if (!length)
        return kvr_undefined_hint(run, "No last item, sequence was empty.");
    if (value.type == VALUE_DICT || value.type == VALUE_VIEW) {
        const struct list *list = kvr_jinja_to_list(run, value);
        return list->items[list->count - 1];
    }
    return kvr_jinja_item(run, value, kvr_integer(-1));
}

struct value kvr_filter_reverse(struct run *run, struct value value, const struct call *call)
{
    struct list *list;
    kvr_filter_no_arguments(run, call, "do_reverse");
    if (value.type == VALUE_TEXT)
        return kvr_jinja_slice(run, value, kvr_missing(), kvr_missing(), kvr_integer(-1));
    if (!kvr_jinja_iterable(value))
        kvr_run_raise(run, "FilterArgumentError", "argument must be iterable");
    list = kvr_jinja_to_list(run, value);
    list = kvr_jinja_slice(run, kvr_list_value(list), kvr_missing(), kvr_missing(), kvr_integer(-1))
               .list;
    if (!reversible(value))
        return kvr_list_value(list);
    return kvr_iterator_value(kvr_iterator_of_list(run, "list_reverseiterator", list));
}

struct value kvr_filter_list(struct run *run, struct value value, const struct call *call)
{
    kvr_filter_no_arguments(run, call, "do_list");
    return kvr_list_value(kvr_jinja_to_list(run, value));
}

struct value kvr_filter_join(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"d", "attribute"};
    struct value bound[2];
    struct text *separator;
    struct text *joined = kvr_text_literal(run, "");
    struct list *parts = NULL;
    struct list *texts = kvr_list_new(run, 0);
    struct iterator *iterator;
    struct value item;
    kvr_call_bind(run, call, "do_join", names, 2, 0, bound);
    if (kvr_given(bound[1]) && bound[1].type != VALUE_NONE)
        parts = kvr_attribute_parts(run, bound[1]);
    separator = kvr_given(bound[0]) ? kvr_jinja_string(run, bound[0]) : joined;
    iterator = kvr_jinja_iterate(run, value);
    /* All strings first: the joined one then grows in place. */
    while (kvr_iterator_next(run, iterator, &item)) {
        if (parts)
            item = kvr_attribute_get(run, item, parts, kvr_missing());
        kvr_list_add(run, texts, kvr_text_value(kvr_jinja_string(run, item)));
    }
    for (size_t i = 0; i < texts->count; i++) {
        if (i && separator->length)
            joined = kvr_text_join(run, joined, separator);
        joined = kvr_text_join(run, joined, texts->items[i].text);
    }
    return kvr_text_value(joined);
}

struct value kvr_filter_sum(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"attribute", "start"};
    struct value bound[2];
    struct list *parts;
    struct iterator *iterator;
    struct value sum;
    struct value item;
    kvr_call_bind(run, call, "do_sum", names, 2, 0, bound);
    parts = kvr_attribute_parts(run, bound[0]);
    sum = kvr_given(bound[1]) ? bound[1] : kvr_integer(0);
    iterator = kvr_jinja_iterate(run, value);
    if (sum.type == VALUE_TEXT)
        kvr_run_raise(run, "TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
    while (kvr_iterator_next(run, iterator, &item))
        sum =
            kvr_jinja_binary(run, OP_ADD, sum, kvr_attribute_get(run, item, parts, kvr_missing()));
    return sum;
}
