/*
 * Looking into values: object.name, object[key], object[start:stop:step].
 *
 * As in jinja2's sandbox: a name is an attribute first (a method, or a member of loop, namespace
 * and the like) and a key second; a key in brackets the other way round. What is not there is
 * undefined, an error only once it is used; what the sandbox forbids (methods that would change a
 * list or dict, names with two underscores) is undefined with a message of its own.
 */
#include "token/template_internal.h"

#include <string.h>

/* What every Python object has, so that the sandbox, and not the lookup, refuses it. */
static bool is_internal(const struct text *name)
{
    static const char *const names[] = {"__class__", "__init__", "__doc__", "__dict__",
        "__module__", "__getattribute__", "__eq__", "__hash__", "__str__", "__repr__", "__dir__",
        "__reduce__", "__reduce_ex__", "__new__", "__sizeof__", "__subclasshook__",
        "__init_subclass__", "__setattr__", "__delattr__", "__format__", "__ne__", "__lt__",
        "__le__", "__gt__", "__ge__"};
    if (name->length < 4 || memcmp(name->data, "__", 2) != 0)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (kvr_template_text_is(name, names[i]))
            return true;
    return false;
}

/* The attribute, or VALUE_MISSING. */
static struct value attribute(
    struct run *run, struct value object, struct text *name, unsigned method)
{
    struct value found = kvr_missing();
    struct value *member;
    bool unsafe = false;
    if (object.type == VALUE_NAMESPACE) {
        member = kvr_dict_find_text(object.dict, name);
        return member ? *member : found;
    }
    if (is_internal(name))
        return kvr_undefined_unsafe(run, object, name);
    if (object.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, object.undefined);
    if (object.type == VALUE_LOOP) {
        found = kvr_loop_attribute(run, object.loop, name);
        if (kvr_given(found))
            return found;
    }
    if (object.type == VALUE_CYCLER && kvr_template_text_is(name, "current"))
        return object.cycler->items->items[object.cycler->position];
    if (object.type == VALUE_TUPLE && object.kind && kvr_template_text_is(name, "grouper"))
        return object.list->items[0];
    if (object.type == VALUE_TUPLE && object.kind && kvr_template_text_is(name, "list"))
        return object.list->items[1];
    if (object.type == VALUE_MACRO && kvr_template_text_is(name, "name"))
        return object.macro->signature->name ? kvr_text_value(object.macro->signature->name)
                                             : kvr_none();
    if (object.type == VALUE_MACRO && kvr_template_text_is(name, "arguments")) {
        const struct signature *signature = object.macro->signature;
        struct list *names = kvr_list_new(run, signature->count);
        for (size_t i = 0; i < signature->count; i++)
            kvr_list_add(run, names, kvr_text_value(signature->names[i]));
        return kvr_tuple_value(names);
    }
    if (object.type == VALUE_RANGE && kvr_template_text_is(name, "start"))
        return kvr_integer(object.range->start);
    if (object.type == VALUE_RANGE && kvr_template_text_is(name, "stop"))
        return kvr_integer(object.range->stop);
    if (object.type == VALUE_RANGE && kvr_template_text_is(name, "step"))
        return kvr_integer(object.range->step);
    if (!method || !kvr_method_has(object, method, &unsafe))
        return found;
    if (unsafe)
        return kvr_undefined_unsafe(run, object, name);
    found.type = VALUE_METHOD;
    found.method = (uint16_t)method;
    found.bound = kvr_run_take(run, sizeof *found.bound);
    found.bound->self = object;
    return found;
}

struct value kvr_jinja_attribute(
    struct run *run, struct value object, struct text *name, unsigned method)
{
    struct value found = attribute(run, object, name, method);
    if (kvr_given(found))
        return found;
    if (object.type == VALUE_DICT) {
        const struct value *item = kvr_dict_find_text(object.dict, name);
        if (item)
            return *item;
    }
    return kvr_undefined_member(run, object, kvr_text_value(name));
}

static bool sequence_item(struct run *run, struct value object, int64_t index, struct value *out)
{
    size_t length;
    if (!kvr_jinja_length(object, &length))
        return false;
    if (index < 0)
        index += (int64_t)length;
    if (index < 0 || (uint64_t)index >= length)
        return false;
    if (object.type == VALUE_TEXT) {
        size_t start = kvr_text_offset(object.text, (size_t)index);
        size_t used;
        kvr_run_charge(run, start);
        kvr_point_read(object.text->data + start, object.text->length - start, &used);
        *out = kvr_text_value(kvr_text_cut(run, object.text, start, start + used));
    } else if (object.type == VALUE_RANGE) {
        *out = kvr_integer(object.range->start + index * object.range->step);
    } else {
        *out = object.list->items[index];
    }
    return true;
}

static bool is_sequence(struct value value)
{
    return value.type == VALUE_TEXT || value.type == VALUE_LIST || value.type == VALUE_TUPLE ||
           value.type == VALUE_RANGE;
}

struct value kvr_jinja_item(struct run *run, struct value object, struct value key)
{
    struct value found;
    int64_t index;
    if (object.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, object.undefined);
    if (object.type == VALUE_DICT) {
        const struct value *item = NULL;
        if (key.type == VALUE_TEXT)
            item = kvr_dict_find_text(object.dict, key.text);
        else if (key.type != VALUE_LIST && key.type != VALUE_DICT)
            item = kvr_dict_find(run, object.dict, key);
        if (item)
            return *item;
    } else if (is_sequence(object) && kvr_jinja_as_integer(key, &index)) {
        if (sequence_item(run, object, index, &found))
            return found;
    }
    if (key.type == VALUE_TEXT) {
        found = attribute(run, object, key.text, kvr_method_find(key.text->data, key.text->length));
        if (kvr_given(found))
            return found;
    }
    return kvr_undefined_member(run, object, key);
}

/* One bound of a slice, as slice.indices() makes it: within [low, high]. */
static int64_t slice_bound(
    struct run *run, struct value value, int64_t absent, int64_t length, int64_t low, int64_t high)
{
    int64_t bound;
    if (!kvr_given(value) || value.type == VALUE_NONE)
        return absent;
    if (!kvr_jinja_as_integer(value, &bound))
        kvr_run_raise(
            run, "TypeError", "slice indices must be integers or None or have an __index__ method");
    if (bound < 0)
        bound = bound < -length ? low : bound + length;
    return bound < low ? low : bound > high ? high : bound;
}

struct value kvr_jinja_slice(
    struct run *run, struct value object, struct value start, struct value stop, struct value step)
{
    size_t size;
    int64_t length;
    int64_t from;
    int64_t to;
    int64_t by = 1;
    size_t count = 0;
    if (object.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, object.undefined);
    if (object.type == VALUE_DICT)
        kvr_run_raise(run, "TypeError", "unhashable type: 'slice'");
    if (!is_sequence(object))
        kvr_run_raise(
            run, "TypeError", "'%s' object is not subscriptable", kvr_jinja_type_name(object));
    kvr_jinja_length(object, &size);
    length = (int64_t)size;
    if (kvr_given(step) && step.type != VALUE_NONE) {
        if (!kvr_jinja_as_integer(step, &by))
            kvr_run_raise(run, "TypeError",
                "slice indices must be integers or None or have an __index__ method");
        if (by == 0)
            kvr_run_raise(run, "ValueError", "slice step cannot be zero");
        by = by > length + 1 ? length + 1 : by < -length - 1 ? -length - 1 : by;
    }
    if (by > 0) {
        from = slice_bound(run, start, 0, length, 0, length);
        to = slice_bound(run, stop, length, length, 0, length);
        count = from < to ? (size_t)((to - from + by - 1) / by) : 0;
    } else {
        from = slice_bound(run, start, length - 1, length, -1, length - 1);
        to = slice_bound(run, stop, -1, length, -1, length - 1);
        count = from > to ? (size_t)((from - to - by - 1) / -by) : 0;
    }
    if (object.type == VALUE_RANGE) {
        struct value part = object;
        part.range = kvr_run_take(run, sizeof *part.range);
        part.range->start = object.range->start + from * object.range->step;
        part.range->stop = object.range->start + to * object.range->step;
        part.range->step = object.range->step * by;
        part.range->count = count;
        return part;
    }
    if (object.type != VALUE_TEXT) {
        struct list *list = kvr_list_new(run, count);
        for (size_t i = 0; i < count; i++)
            kvr_list_add(run, list, object.list->items[from + (int64_t)i * by]);
        kvr_run_charge(run, count * sizeof(struct value));
        return object.type == VALUE_TUPLE ? kvr_tuple_value(list) : kvr_list_value(list);
    }
    kvr_run_charge(run, object.text->length);
    if (by == 1 || count == 0) {
        size_t begin = kvr_text_offset(object.text, (size_t)from);
        size_t end = count ? kvr_text_offset(object.text, (size_t)to) : begin;
        return kvr_text_value(kvr_text_cut(run, object.text, begin, end));
    }
    {
        struct builder builder;
        struct text *made;
        bool ascii = kvr_text_ascii(object.text);
        /* Code points found one by one from the last: walking back for a step of -1. */
        size_t offset = kvr_text_offset(object.text, (size_t)from);
        int64_t at = from;
        kvr_builder_start(&builder, run, count + 8);
        for (size_t i = 0; i < count; i++) {
            int64_t point = from + (int64_t)i * by;
            size_t used = 1;
            if (ascii) {
                offset = (size_t)point;
            } else {
                for (; at < point; at++)
                    do
                        offset++;
                    while (((unsigned char)object.text->data[offset] & 0xc0) == 0x80);
                for (; at > point; at--)
                    do
                        offset--;
                    while (((unsigned char)object.text->data[offset] & 0xc0) == 0x80);
                kvr_point_read(object.text->data + offset, object.text->length - offset, &used);
            }
            kvr_builder_add(&builder, object.text->data + offset, used);
        }
        made = kvr_text_from(kvr_builder_end(&builder), object.text);
        made->markup = object.text->markup;
        return kvr_text_value(made);
    }
}
