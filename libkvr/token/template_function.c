/*
 * Arguments, and the global functions of a template.
 */
#include "token/template_internal.h"

#include <string.h>
#include <time.h>

void kvr_call_bind(struct run *run, const struct call *call, const char *function,
    const char *const *names, size_t count, size_t required, struct value *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = kvr_missing();
    if (call->count > count)
        kvr_run_raise(run, "TypeError", "%s() takes at most %zu arguments (%zu given)", function,
            count, call->count);
    for (size_t i = 0; i < call->count; i++)
        out[i] = call->items[i];
    for (size_t i = 0; i < call->keyword_count; i++) {
        const struct text *name = call->keywords[i].name;
        size_t at = 0;
        while (at < count && !kvr_template_text_is(name, names[at]))
            at++;
        if (at == count)
            kvr_run_raise(run, "TypeError", "%s() got an unexpected keyword argument '%.*s'",
                function, kvr_text_width(name), kvr_text_shown(name));
        if (kvr_given(out[at]))
            kvr_run_raise(run, "TypeError", "%s() got multiple values for argument '%s'", function,
                names[at]);
        out[at] = call->keywords[i].value;
    }
    for (size_t i = 0; i < required; i++)
        if (!kvr_given(out[i]))
            kvr_run_raise(run, "TypeError", "%s() missing 1 required positional argument: '%s'",
                function, names[i]);
}

static struct value call_range(struct run *run, const struct call *call)
{
    struct value value = {.type = VALUE_RANGE};
    struct range_value *range = kvr_run_take(run, sizeof *range);
    int64_t bounds[3] = {0, 0, 1};
    __int128 span;
    if (call->keyword_count)
        kvr_run_raise(run, "TypeError", "range() takes no keyword arguments");
    if (!call->count || call->count > 3)
        kvr_run_raise(run, "TypeError", "range expected at %s, got %zu",
            call->count ? "most 3 arguments" : "least 1 argument", call->count);
    for (size_t i = 0; i < call->count; i++)
        bounds[i] = kvr_jinja_need_integer(run, call->items[i]);
    if (call->count == 1) {
        bounds[1] = bounds[0];
        bounds[0] = 0;
    }
    if (bounds[2] == 0)
        kvr_run_raise(run, "ValueError", "range() arg 3 must not be zero");
    span = bounds[2] > 0 ? (__int128)bounds[1] - bounds[0] : (__int128)bounds[0] - bounds[1];
    if (span > 0) {
        __int128 step = bounds[2] > 0 ? bounds[2] : -(__int128)bounds[2];
        span = (span + step - 1) / step;
    } else {
        span = 0;
    }
    if (span > 100000)
        kvr_run_raise(run, "OverflowError",
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    *range = (struct range_value){bounds[0], bounds[1], bounds[2], (size_t)span};
    value.range = range;
    return value;
}

/* dict(mapping or pairs, **more), for dict() and namespace(). */
static struct dict *make_dict(struct run *run, const struct call *call, const char *function)
{
    struct dict *dict = kvr_dict_new(run, call->keyword_count);
    if (call->count > 1)
        kvr_run_raise(
            run, "TypeError", "%s expected at most 1 argument, got %zu", function, call->count);
    if (call->count && call->items[0].type == VALUE_DICT) {
        const struct dict *source = call->items[0].dict;
        for (size_t i = 0; i < source->count; i++)
            kvr_dict_set(run, dict, source->entries[i].key, source->entries[i].value);
    } else if (call->count) {
        struct iterator *iterator = kvr_jinja_iterate(run, call->items[0]);
        struct value item;
        while (kvr_iterator_next(run, iterator, &item)) {
            const struct list *pair;
            if (!kvr_jinja_iterable(item))
                kvr_run_raise(run, "TypeError",
                    "cannot convert dictionary update sequence element #%zu to a sequence",
                    dict->count);
            pair = kvr_jinja_to_list(run, item);
            if (pair->count != 2)
                kvr_run_raise(run, "ValueError",
                    "dictionary update sequence element #%zu has "
                    "length %zu; 2 is required",
                    dict->count, pair->count);
            kvr_dict_set(run, dict, pair->items[0], pair->items[1]);
        }
    }
    for (size_t i = 0; i < call->keyword_count; i++)
        kvr_dict_set(run, dict, kvr_text_value(call->keywords[i].name), call->keywords[i].value);
    return dict;
}

static struct value call_dict(struct run *run, const struct call *call)
{
    return kvr_dict_value(make_dict(run, call, "dict"));
}

static struct value call_namespace(struct run *run, const struct call *call)
{
    struct value value = {.type = VALUE_NAMESPACE};
    value.dict = make_dict(run, call, "namespace");
    for (size_t i = 0; i < value.dict->count; i++) {
        struct value key = value.dict->entries[i].key;
        if (key.type == VALUE_TEXT && key.text->length && key.text->data[0] == '_')
            kvr_run_raise(run, "SecurityError",
                "Chat templates cannot store underscore-prefixed attributes on a namespace, but "
                "got '%.*s'. Please rename the attribute.",
                kvr_text_width(key.text), kvr_text_shown(key.text));
    }
    return value;
}

static struct cycler *make_cycler(struct run *run, const struct value *items, size_t count)
{
    struct cycler *cycler = kvr_run_take(run, sizeof *cycler);
    *cycler = (struct cycler){.items = kvr_list_new(run, count)};
    for (size_t i = 0; i < count; i++)
        kvr_list_add(run, cycler->items, items[i]);
    return cycler;
}

static struct value call_cycler(struct run *run, const struct call *call)
{
    struct value value = {.type = VALUE_CYCLER};
    if (call->keyword_count)
        kvr_run_raise(run, "TypeError", "cycler takes no keyword arguments");
    if (!call->count)
        kvr_run_raise(run, "RuntimeError", "at least one item has to be provided");
    value.cycler = make_cycler(run, call->items, call->count);
    return value;
}

static struct value call_joiner(struct run *run, const struct call *call)
{
    static const char *const names[] = {"sep"};
    struct value value = {.type = VALUE_JOINER};
    struct value separator;
    kvr_call_bind(run, call, "joiner", names, 1, 0, &separator);
    if (!kvr_given(separator))
        separator = kvr_text_value(kvr_text_literal(run, ", "));
    value.cycler = make_cycler(run, &separator, 1);
    return value;
}

/* The message, with "..." for pieces of content. */
static struct text *raised_text(struct run *run, struct text *text)
{
    struct builder builder;
    size_t at = 0;
    size_t count = text->origin == ORIGIN_MIXED ? text->range_count : 0;
    if (text->origin == ORIGIN_CONTENT)
        return kvr_text_literal(run, "...");
    kvr_builder_start(&builder, run, text->length + 16);
    for (size_t i = 0; i < count; i++) {
        struct kvr_template_range range = text->ranges->items[i];
        kvr_builder_add(&builder, text->data + at, range.start - at);
        kvr_builder_add(&builder, "...", 3);
        at = range.end;
    }
    kvr_builder_add(&builder, text->data + at, text->length - at);
    return kvr_builder_end(&builder);
}

static struct value call_raise(struct run *run, const struct call *call)
{
    static const char *const names[] = {"message"};
    struct value message;
    const struct text *text;
    kvr_call_bind(run, call, "raise_exception", names, 1, 1, &message);
    text = raised_text(run, kvr_jinja_string(run, message));
    run->raised = true;
    kvr_run_raise(run, "TemplateError", "%.*s",
        (int)(text->length < sizeof run->message ? text->length : sizeof run->message), text->data);
}

static struct value call_strftime(struct run *run, const struct call *call)
{
    static const char *const names[] = {"format"};
    struct value format;
    struct tm now;
    char pattern[256];
    char shown[512];
    time_t seconds;
    size_t length;
    kvr_call_bind(run, call, "strftime_now", names, 1, 1, &format);
    if (format.type != VALUE_TEXT)
        kvr_run_raise(run, "TypeError", "strftime() argument 1 must be str, not %s",
            kvr_jinja_type_name(format));
    if (format.text->length >= sizeof pattern)
        kvr_run_unsupported(run, "strftime_now with a format of more than 255 bytes");
    memcpy(pattern, format.text->data, format.text->length);
    pattern[format.text->length] = 0;
    seconds = run->now_ms < 0 ? time(NULL) : (time_t)(run->now_ms / 1000);
    if (!localtime_r(&seconds, &now))
        kvr_run_raise(run, "ValueError", "the time is out of range");
    length = strftime(shown, sizeof shown, pattern, &now);
    return kvr_text_value(kvr_text_copy(run, shown, length));
}

static struct value call_lipsum(struct run *run, const struct call *call)
{
    (void)call;
    kvr_run_unsupported(run, "lipsum()");
}

static const struct function functions[] = {
    {"range", call_range},
    {"dict", call_dict},
    {"namespace", call_namespace},
    {"cycler", call_cycler},
    {"joiner", call_joiner},
    {"raise_exception", call_raise},
    {"strftime_now", call_strftime},
    {"lipsum", call_lipsum},
};

const struct function *kvr_function_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strlen(functions[i].name) == length && memcmp(functions[i].name, name, length) == 0)
            return &functions[i];
    return NULL;
}
