/*
 * Lists, dicts, undefined values, and iteration over whatever can be iterated.
 *
 * A dict keeps its entries in the order of insertion; up to eight are found by comparing hashes in
 * turn, more through an open-addressing index of entry numbers. Generators (what map, select and
 * the like return in jinja2) are iterators that make their items as they are asked for: they can be
 * used once, have no length, and are true even when they will yield nothing, as in Python.
 */
#include "token/template_internal.h"

#include <string.h>

enum { DICT_SMALL = 8 };

/* ---- lists ---- */

struct list *kvr_list_new(struct run *run, size_t capacity)
{
    struct list *list = kvr_run_take(run, sizeof *list);
    *list = (struct list){.capacity = capacity};
    if (capacity)
        list->items = kvr_run_array(run, capacity, sizeof *list->items);
    return list;
}

void kvr_list_add(struct run *run, struct list *list, struct value value)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 4;
        struct value *grown = kvr_run_array(run, capacity, sizeof *grown);
        if (list->count)
            memcpy(grown, list->items, list->count * sizeof *grown);
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->count++] = value;
}

/* ---- dicts ---- */

struct dict *kvr_dict_new(struct run *run, size_t capacity)
{
    struct dict *dict = kvr_run_take(run, sizeof *dict);
    *dict = (struct dict){.capacity = capacity};
    if (capacity)
        dict->entries = kvr_run_array(run, capacity, sizeof *dict->entries);
    return dict;
}

uint32_t kvr_jinja_hash(struct run *run, struct value value)
{
    switch (value.type) {
    case VALUE_TEXT:
        return kvr_text_hash(value.text);
    case VALUE_BOOL:
        return value.truth ? 1 * 2654435761u : 0;
    case VALUE_INTEGER:
        return (uint32_t)((uint64_t)value.integer ^ ((uint64_t)value.integer >> 32)) * 2654435761u;
    case VALUE_FLOAT:
        if (value.real > -9e18 && value.real < 9e18 && (double)(int64_t)value.real == value.real)
            return kvr_jinja_hash(run, kvr_integer((int64_t)value.real));
        return 3;
    case VALUE_BIG:
        return 3;
    case VALUE_TUPLE: {
        uint32_t hash = 17;
        kvr_run_enter(run);
        for (size_t i = 0; i < value.list->count; i++)
            hash = hash * 31 + kvr_jinja_hash(run, value.list->items[i]);
        kvr_run_leave(run);
        return hash;
    }
    case VALUE_LIST:
    case VALUE_DICT:
        kvr_run_raise(run, "TypeError", "unhashable type: '%s'", kvr_jinja_type_name(value));
    case VALUE_VIEW:
        if (value.kind != VIEW_VALUES)
            kvr_run_raise(run, "TypeError", "unhashable type: '%s'", kvr_jinja_type_name(value));
        return 5;
    default:
        return 5 + value.type;
    }
}

static bool key_equal(struct run *run, struct value left, struct value right)
{
    if (left.type == VALUE_TEXT && right.type == VALUE_TEXT)
        return kvr_text_equal(left.text, right.text);
    return kvr_jinja_equal(run, left, right);
}

static struct entry *dict_lookup(
    struct run *run, const struct dict *dict, struct value key, uint32_t hash)
{
    if (!dict->index) {
        for (size_t i = 0; i < dict->count; i++)
            if (dict->entries[i].hash == hash && key_equal(run, dict->entries[i].key, key))
                return &dict->entries[i];
        return NULL;
    }
    for (size_t slot = hash & (dict->index_size - 1);; slot = (slot + 1) & (dict->index_size - 1)) {
        uint32_t number = dict->index[slot];
        if (!number)
            return NULL;
        if (dict->entries[number - 1].hash == hash &&
            key_equal(run, dict->entries[number - 1].key, key))
            return &dict->entries[number - 1];
    }
}

struct value *kvr_dict_find(struct run *run, const struct dict *dict, struct value key)
{
    struct entry *entry = dict_lookup(run, dict, key, kvr_jinja_hash(run, key));
    return entry ? &entry->value : NULL;
}

struct value *kvr_dict_find_text(const struct dict *dict, struct text *key)
{
    /* Comparing texts never raises, so no run is needed. */
    struct entry *entry = NULL;
    uint32_t hash = kvr_text_hash(key);
    if (dict->index) {
        entry = dict_lookup(NULL, dict, kvr_text_value(key), hash);
        return entry ? &entry->value : NULL;
    }
    for (size_t i = 0; i < dict->count; i++) {
        entry = &dict->entries[i];
        if (entry->hash == hash && entry->key.type == VALUE_TEXT &&
            kvr_text_equal(entry->key.text, key))
            return &entry->value;
    }
    return NULL;
}

struct value *kvr_dict_find_name(const struct dict *dict, const char *name)
{
    struct text text = {.data = name, .length = strlen(name), .points = SIZE_MAX};
    return kvr_dict_find_text(dict, &text);
}

static void index_add(struct dict *dict, size_t number)
{
    size_t slot = dict->entries[number].hash & (dict->index_size - 1);
    while (dict->index[slot])
        slot = (slot + 1) & (dict->index_size - 1);
    dict->index[slot] = (uint32_t)number + 1;
}

void kvr_dict_set(struct run *run, struct dict *dict, struct value key, struct value value)
{
    uint32_t hash = kvr_jinja_hash(run, key);
    struct entry *entry = dict_lookup(run, dict, key, hash);
    if (entry) {
        entry->value = value;
        return;
    }
    if (dict->count == dict->capacity) {
        size_t capacity = dict->capacity ? dict->capacity * 2 : 4;
        struct entry *grown = kvr_run_array(run, capacity, sizeof *grown);
        if (dict->count)
            memcpy(grown, dict->entries, dict->count * sizeof *grown);
        dict->entries = grown;
        dict->capacity = capacity;
    }
    if (dict->count >= UINT32_MAX / 4)
        kvr_run_no_memory(run);
    dict->entries[dict->count++] = (struct entry){key, value, hash};
    if (dict->index && dict->count * 2 <= dict->index_size) {
        index_add(dict, dict->count - 1);
    } else if (dict->count > DICT_SMALL) {
        dict->index_size = dict->index ? dict->index_size * 2 : 4 * DICT_SMALL;
        dict->index = kvr_run_array(run, dict->index_size, sizeof *dict->index);
        memset(dict->index, 0, dict->index_size * sizeof *dict->index);
        for (size_t i = 0; i < dict->count; i++)
            index_add(dict, i);
    }
}

void kvr_dict_set_name(struct run *run, struct dict *dict, const char *name, struct value value)
{
    kvr_dict_set(run, dict, kvr_text_value(kvr_text_literal(run, name)), value);
}

/* ---- undefined ---- */

static struct value undefined(struct run *run, struct undefined content)
{
    struct value value = {.type = VALUE_UNDEFINED};
    value.undefined = kvr_run_take(run, sizeof *value.undefined);
    *value.undefined = content;
    return value;
}

struct value kvr_undefined_name(struct run *run, struct text *name)
{
    return undefined(
        run, (struct undefined){.name = kvr_text_value(name), .exception = "UndefinedError"});
}

struct value kvr_undefined_text(struct run *run, struct text *hint)
{
    return undefined(run, (struct undefined){.hint = hint, .exception = "UndefinedError"});
}

struct value kvr_undefined_hint(struct run *run, const char *hint)
{
    return kvr_undefined_text(run, kvr_text_literal(run, hint));
}

struct value kvr_undefined_member(struct run *run, struct value object, struct value name)
{
    return undefined(
        run, (struct undefined){.object = object, .name = name, .exception = "UndefinedError"});
}

struct value kvr_undefined_unsafe(struct run *run, struct value object, struct text *name)
{
    struct text *hint = kvr_text_format(run, "access to attribute '%.*s' of '%s' object is unsafe.",
        kvr_text_width(name), kvr_text_shown(name), kvr_jinja_type_name(object));
    return undefined(run, (struct undefined){.hint = hint, .exception = "SecurityError"});
}

/* ---- iteration ---- */

struct iterator *kvr_iterator_new(struct run *run, const char *type_name,
    bool (*next)(struct run *, struct iterator *, struct value *))
{
    struct iterator *iterator = kvr_run_take(run, sizeof *iterator);
    *iterator = (struct iterator){.next = next, .type_name = type_name};
    return iterator;
}

static bool next_of_list(struct run *run, struct iterator *iterator, struct value *out)
{
    const struct list *list = iterator->source.list;
    (void)run;
    if (iterator->position >= list->count)
        return false;
    *out = list->items[iterator->position++];
    return true;
}

struct iterator *kvr_iterator_of_list(struct run *run, const char *type_name, struct list *list)
{
    struct iterator *iterator = kvr_iterator_new(run, type_name, next_of_list);
    iterator->source = kvr_list_value(list);
    return iterator;
}

static bool next_of_text(struct run *run, struct iterator *iterator, struct value *out)
{
    struct text *text = iterator->source.text;
    size_t used;
    if (iterator->position >= text->length)
        return false;
    kvr_point_read(text->data + iterator->position, text->length - iterator->position, &used);
    *out = kvr_text_value(kvr_text_cut(run, text, iterator->position, iterator->position + used));
    out->text->markup = false;
    iterator->position += used;
    return true;
}

static bool next_of_dict(struct run *run, struct iterator *iterator, struct value *out)
{
    const struct dict *dict = iterator->source.dict;
    const struct entry *entry;
    if (iterator->position >= dict->count)
        return false;
    entry = &dict->entries[iterator->position++];
    if (iterator->extra.integer == VIEW_ITEMS) {
        struct list *pair = kvr_list_new(run, 2);
        pair->items[0] = entry->key;
        pair->items[1] = entry->value;
        pair->count = 2;
        *out = kvr_tuple_value(pair);
    } else {
        *out = iterator->extra.integer == VIEW_KEYS ? entry->key : entry->value;
    }
    return true;
}

static bool next_of_range(struct run *run, struct iterator *iterator, struct value *out)
{
    const struct range_value *range = iterator->source.range;
    (void)run;
    if (iterator->position >= range->count)
        return false;
    *out = kvr_integer(range->start + (int64_t)iterator->position++ * range->step);
    return true;
}

static bool next_of_loop(struct run *run, struct iterator *iterator, struct value *out)
{
    (void)iterator;
    (void)out;
    kvr_run_unsupported(run, "iteration over the loop variable itself");
}

bool kvr_jinja_iterable(struct value value)
{
    switch (value.type) {
    case VALUE_UNDEFINED:
    case VALUE_TEXT:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_RANGE:
    case VALUE_VIEW:
    case VALUE_ITERATOR:
    case VALUE_LOOP:
        return true;
    default:
        return false;
    }
}

struct iterator *kvr_jinja_iterate(struct run *run, struct value value)
{
    struct iterator *iterator;
    switch (value.type) {
    case VALUE_UNDEFINED:
        return kvr_iterator_of_list(run, "generator", kvr_list_new(run, 0));
    case VALUE_LIST:
        return kvr_iterator_of_list(run, "list_iterator", value.list);
    case VALUE_TUPLE:
        return kvr_iterator_of_list(run, "tuple_iterator", value.list);
    case VALUE_ITERATOR:
        return value.iterator;
    case VALUE_TEXT:
        iterator = kvr_iterator_new(run, "str_iterator", next_of_text);
        break;
    case VALUE_DICT:
        iterator = kvr_iterator_new(run, "dict_keyiterator", next_of_dict);
        iterator->extra = kvr_integer(VIEW_KEYS);
        break;
    case VALUE_VIEW:
        iterator = kvr_iterator_new(run, "dict_itemiterator", next_of_dict);
        iterator->extra = kvr_integer(value.kind);
        break;
    case VALUE_RANGE:
        iterator = kvr_iterator_new(run, "range_iterator", next_of_range);
        break;
    case VALUE_LOOP:
        iterator = kvr_iterator_new(run, "LoopContext", next_of_loop);
        break;
    default:
        kvr_run_raise(run, "TypeError", "'%s' object is not iterable", kvr_jinja_type_name(value));
    }
    iterator->source = value;
    return iterator;
}

bool kvr_iterator_next(struct run *run, struct iterator *iterator, struct value *out)
{
    if (iterator->done)
        return false;
    kvr_run_charge(run, 0);
    kvr_run_enter(run);
    if (!iterator->next(run, iterator, out))
        iterator->done = true;
    kvr_run_leave(run);
    return !iterator->done;
}

struct list *kvr_jinja_to_list(struct run *run, struct value value)
{
    struct iterator *iterator = kvr_jinja_iterate(run, value);
    size_t length = 0;
    struct list *list;
    struct value item;
    kvr_jinja_length(value, &length);
    list = kvr_list_new(run, value.type == VALUE_TEXT ? 0 : length);
    while (kvr_iterator_next(run, iterator, &item))
        kvr_list_add(run, list, item);
    return list;
}

bool kvr_jinja_length(struct value value, size_t *length)
{
    switch (value.type) {
    case VALUE_UNDEFINED:
        *length = 0;
        return true;
    case VALUE_TEXT:
        *length = kvr_text_points(value.text);
        return true;
    case VALUE_LIST:
    case VALUE_TUPLE:
        *length = value.list->count;
        return true;
    case VALUE_DICT:
    case VALUE_VIEW:
        *length = value.dict->count;
        return true;
    case VALUE_RANGE:
        *length = value.range->count;
        return true;
    default:
        return false;
    }
}
