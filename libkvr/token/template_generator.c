/*
 * Filters that are generators in jinja2: map, select, reject, unique, batch, slice, items. They do
 * nothing, not even look at their arguments, until their first item is asked for, so that what
 * would raise raises where it does in jinja2, or never.
 */
#include "token/template_sequence.h"

/* What a generator was made of, and what it becomes when it starts. */
struct generator {
    const struct call *call;
    struct call rest; /* arguments of the filter or test */
    const struct filter *filter;
    const struct test *test;
    struct list *parts;
    struct value otherwise;
    bool started;
    bool negated;
    bool by_attribute;
    struct dict *seen;
    struct list *(*make)(struct run *run, struct value value, const struct call *call);
};

static struct value generator(struct run *run, struct value source, const struct call *call,
    bool (*next)(struct run *, struct iterator *, struct value *), struct generator **out)
{
    struct iterator *iterator = kvr_iterator_new(run, "generator", next);
    struct generator *made = kvr_run_take(run, sizeof *made);
    *made = (struct generator){.call = call};
    iterator->source = source;
    iterator->operation = made;
    *out = made;
    return kvr_iterator_value(iterator);
}

static struct generator *generator_of(struct iterator *iterator)
{
    return (struct generator *)iterator->operation;
}

static bool map_next(struct run *run, struct iterator *iterator, struct value *out)
{
    struct generator *self = generator_of(iterator);
    const struct call *call = self->call;
    struct value item;
    if (!self->started) {
        self->started = true;
        if (!kvr_jinja_truth(run, iterator->source))
            return false;
        self->rest = *call;
        if (!call->count && call->keyword_count) {
            struct value attribute = kvr_missing();
            for (size_t i = 0; i < call->keyword_count; i++)
                if (kvr_template_text_is(call->keywords[i].name, "attribute"))
                    attribute = call->keywords[i].value;
                else if (kvr_template_text_is(call->keywords[i].name, "default"))
                    self->otherwise = call->keywords[i].value;
                else
                    kvr_run_raise(run, "FilterArgumentError", "Unexpected keyword argument '%.*s'",
                        kvr_text_width(call->keywords[i].name),
                        kvr_text_shown(call->keywords[i].name));
            if (!kvr_given(attribute))
                kvr_run_raise(run, "FilterArgumentError", "map requires a filter argument");
            self->parts = kvr_attribute_parts(run, attribute);
        } else if (!call->count) {
            kvr_run_raise(run, "FilterArgumentError", "map requires a filter argument");
        } else {
            self->rest.items++;
            self->rest.count--;
        }
        iterator->inner = kvr_jinja_iterate(run, iterator->source);
    }
    if (!kvr_iterator_next(run, iterator->inner, &item))
        return false;
    if (self->parts) {
        *out = kvr_attribute_get(run, item, self->parts, self->otherwise);
        return true;
    }
    if (!self->filter) {
        struct value name = call->items[0];
        if (name.type == VALUE_TEXT)
            self->filter = kvr_filter_find(name.text->data, name.text->length);
        if (!self->filter) {
            const struct text *shown = kvr_jinja_repr(run, name);
            kvr_run_raise(run, "TemplateRuntimeError", "No filter named %.*s.",
                kvr_text_width(shown), kvr_text_shown(shown));
        }
    }
    *out = self->filter->apply(run, item, &self->rest);
    return true;
}

struct value kvr_filter_map(struct run *run, struct value value, const struct call *call)
{
    struct generator *self;
    return generator(run, value, call, map_next, &self);
}

static bool select_next(struct run *run, struct iterator *iterator, struct value *out)
{
    struct generator *self = generator_of(iterator);
    const struct call *call = self->call;
    size_t skip = self->by_attribute;
    if (!self->started) {
        self->started = true;
        if (!kvr_jinja_truth(run, iterator->source))
            return false;
        if (call->count < skip)
            kvr_run_raise(run, "FilterArgumentError", "Missing parameter for attribute name");
        self->parts = kvr_attribute_parts(run, skip ? call->items[0] : kvr_missing());
        self->rest = *call;
        if (call->count > skip) {
            self->rest.items += skip + 1;
            self->rest.count -= skip + 1;
        }
        iterator->inner = kvr_jinja_iterate(run, iterator->source);
    }
    while (kvr_iterator_next(run, iterator->inner, out)) {
        struct value tested = kvr_attribute_get(run, *out, self->parts, kvr_missing());
        bool passes;
        if (call->count > skip && !self->test) {
            struct value name = call->items[skip];
            if (name.type == VALUE_TEXT)
                self->test = kvr_test_find(name.text->data, name.text->length);
            if (!self->test) {
                const struct text *shown = kvr_jinja_repr(run, name);
                kvr_run_raise(run, "TemplateRuntimeError", "No test named %.*s.",
                    kvr_text_width(shown), kvr_text_shown(shown));
            }
        }
        passes =
            self->test ? self->test->check(run, tested, &self->rest) : kvr_jinja_truth(run, tested);
        if (passes != self->negated)
            return true;
    }
    return false;
}

static struct value select(
    struct run *run, struct value value, const struct call *call, bool negated, bool by_attribute)
{
    struct generator *self;
    struct value made = generator(run, value, call, select_next, &self);
    self->negated = negated;
    self->by_attribute = by_attribute;
    return made;
}

struct value kvr_filter_select(struct run *run, struct value value, const struct call *call)
{
    return select(run, value, call, false, false);
}

struct value kvr_filter_reject(struct run *run, struct value value, const struct call *call)
{
    return select(run, value, call, true, false);
}

struct value kvr_filter_selectattr(struct run *run, struct value value, const struct call *call)
{
    return select(run, value, call, false, true);
}

struct value kvr_filter_rejectattr(struct run *run, struct value value, const struct call *call)
{
    return select(run, value, call, true, true);
}

static bool unique_next(struct run *run, struct iterator *iterator, struct value *out)
{
    struct generator *self = generator_of(iterator);
    if (!self->started) {
        self->started = true;
        self->seen = kvr_dict_new(run, 0);
        iterator->inner = kvr_jinja_iterate(run, iterator->source);
    }
    while (kvr_iterator_next(run, iterator->inner, out)) {
        struct value key = kvr_ignore_case(
            run, kvr_attribute_get(run, *out, self->parts, kvr_missing()), self->negated);
        if (kvr_dict_find(run, self->seen, key))
            continue;
        kvr_dict_set(run, self->seen, key, kvr_none());
        return true;
    }
    return false;
}

struct value kvr_filter_unique(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"case_sensitive", "attribute"};
    struct value bound[2];
    struct generator *self;
    struct value made;
    kvr_call_bind(run, call, "do_unique", names, 2, 0, bound);
    made = generator(run, value, call, unique_next, &self);
    self->negated = kvr_given_true(run, bound[0]);
    self->parts = kvr_attribute_parts(run, bound[1]);
    return made;
}

/* A generator whose items are all made when the first is asked for. */
static bool made_next(struct run *run, struct iterator *iterator, struct value *out)
{
    struct generator *self = generator_of(iterator);
    if (!self->started) {
        self->started = true;
        self->parts = self->make(run, iterator->source, self->call);
    }
    if (iterator->position >= self->parts->count)
        return false;
    *out = self->parts->items[iterator->position++];
    return true;
}

static struct value made_later(struct run *run, struct value value, const struct call *call,
    struct list *(*make)(struct run *, struct value, const struct call *))
{
    struct generator *self;
    struct value made = generator(run, value, call, made_next, &self);
    self->make = make;
    return made;
}

static struct list *make_items(struct run *run, struct value value, const struct call *call)
{
    (void)call;
    if (value.type == VALUE_UNDEFINED)
        return kvr_list_new(run, 0);
    if (value.type != VALUE_DICT)
        kvr_run_raise(run, "TypeError", "Can only get item pairs from a mapping.");
    value.type = VALUE_VIEW;
    value.kind = VIEW_ITEMS;
    return kvr_jinja_to_list(run, value);
}

struct value kvr_filter_items(struct run *run, struct value value, const struct call *call)
{
    kvr_filter_no_arguments(run, call, "do_items");
    return made_later(run, value, call, make_items);
}

static struct list *make_batches(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"linecount", "fill_with"};
    struct value bound[2];
    struct list *batches = kvr_list_new(run, 0);
    struct list *batch = kvr_list_new(run, 0);
    struct iterator *iterator;
    struct value item;
    kvr_call_bind(run, call, "do_batch", names, 2, 1, bound);
    iterator = kvr_jinja_iterate(run, value);
    while (kvr_iterator_next(run, iterator, &item)) {
        if (kvr_jinja_equal(run, kvr_integer((int64_t)batch->count), bound[0])) {
            kvr_list_add(run, batches, kvr_list_value(batch));
            batch = kvr_list_new(run, 0);
        }
        kvr_list_add(run, batch, item);
    }
    if (!batch->count)
        return batches;
    if (kvr_given(bound[1]) && bound[1].type != VALUE_NONE) {
        int64_t wanted = kvr_jinja_need_integer(run, bound[0]);
        while ((int64_t)batch->count < wanted) {
            kvr_list_add(run, batch, bound[1]);
            kvr_run_charge(run, 0);
        }
    }
    kvr_list_add(run, batches, kvr_list_value(batch));
    return batches;
}

struct value kvr_filter_batch(struct run *run, struct value value, const struct call *call)
{
    return made_later(run, value, call, make_batches);
}

static struct list *make_slices(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"slices", "fill_with"};
    struct value bound[2];
    struct list *slices = kvr_list_new(run, 0);
    struct list *all;
    int64_t count;
    size_t at = 0;
    kvr_call_bind(run, call, "do_slice", names, 2, 1, bound);
    all = kvr_jinja_to_list(run, value);
    count = kvr_jinja_need_integer(run, bound[0]);
    if (count == 0)
        kvr_run_raise(run, "ZeroDivisionError", "integer division or modulo by zero");
    for (int64_t i = 0; i < count; i++) {
        bool longer = (uint64_t)i < all->count % (uint64_t)count;
        size_t size = all->count / (uint64_t)count + longer;
        struct list *slice = kvr_list_new(run, size);
        for (size_t j = 0; j < size; j++)
            kvr_list_add(run, slice, all->items[at++]);
        if (!longer && kvr_given(bound[1]) && bound[1].type != VALUE_NONE)
            kvr_list_add(run, slice, bound[1]);
        kvr_list_add(run, slices, kvr_list_value(slice));
        kvr_run_charge(run, 0);
    }
    return slices;
}

struct value kvr_filter_slice(struct run *run, struct value value, const struct call *call)
{
    return made_later(run, value, call, make_slices);
}
