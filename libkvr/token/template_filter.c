/*
 * Filters of text and JSON, and the table of all filters.
 */
#include "token/template_sequence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void bind(struct run *run, const struct call *call, const char *filter,
    const char *const *names, size_t count, size_t required, struct value *out)
{
    kvr_call_bind(run, call, filter, names, count, required, out);
}

static bool truth_or(struct run *run, struct value value, bool otherwise)
{
    return kvr_given(value) ? kvr_jinja_truth(run, value) : otherwise;
}

/* ---- text ---- */

static struct value do_upper(struct run *run, struct value value, const struct call *call)
{
    kvr_filter_no_arguments(run, call, "do_upper");
    return kvr_text_value(kvr_text_upper(run, kvr_jinja_soft_string(run, value)));
}

static struct value do_lower(struct run *run, struct value value, const struct call *call)
{
    kvr_filter_no_arguments(run, call, "do_lower");
    return kvr_text_value(kvr_text_lower(run, kvr_jinja_soft_string(run, value)));
}

static struct value do_capitalize(struct run *run, struct value value, const struct call *call)
{
    kvr_filter_no_arguments(run, call, "do_capitalize");
    return kvr_text_value(kvr_text_capitalize(run, kvr_jinja_soft_string(run, value)));
}

static bool begins_word(uint32_t point)
{
    return point == '-' || point == '(' || point == '{' || point == '[' || point == '<' ||
           kvr_point_space(point);
}

static struct value do_title(struct run *run, struct value value, const struct call *call)
{
    struct text *text = kvr_jinja_soft_string(run, value);
    struct builder builder;
    size_t start = 0;
    size_t used;
    bool separator = false;
    kvr_filter_no_arguments(run, call, "do_title");
    kvr_builder_start(&builder, run, text->length + 16);
    for (size_t at = 0; at <= text->length; at += used) {
        bool now = separator;
        used = 1;
        if (at < text->length)
            now = begins_word(kvr_point_read(text->data + at, text->length - at, &used));
        if (at == text->length || (now != separator && at > start)) {
            kvr_builder_add_title(&builder, text, start, at);
            start = at;
        }
        separator = now;
    }
    return kvr_text_value(kvr_text_from(kvr_builder_end(&builder), text));
}

static struct value do_trim(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"chars"};
    struct value characters;
    bind(run, call, "do_trim", names, 1, 0, &characters);
    if (kvr_given(characters) && characters.type != VALUE_TEXT && characters.type != VALUE_NONE)
        kvr_run_raise(run, "TypeError", "strip arg must be None or str");
    return kvr_text_value(kvr_text_strip(run, kvr_jinja_soft_string(run, value),
        characters.type == VALUE_TEXT ? characters.text : NULL));
}

static struct value do_replace(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"old", "new", "count"};
    struct value bound[3];
    int64_t count = -1;
    bind(run, call, "do_replace", names, 3, 2, bound);
    if (kvr_given(bound[2]) && bound[2].type != VALUE_NONE)
        count = kvr_jinja_need_integer(run, bound[2]);
    return kvr_text_value(kvr_text_replace(run, kvr_jinja_string(run, value),
        kvr_jinja_string(run, bound[0]), kvr_jinja_string(run, bound[1]), count));
}

static struct value do_center(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"width"};
    struct value width;
    struct call inner = {.items = &width, .count = 1};
    bind(run, call, "do_center", names, 1, 0, &width);
    if (!kvr_given(width))
        width = kvr_integer(80);
    return kvr_method_call(run, kvr_text_value(kvr_jinja_soft_string(run, value)),
        kvr_method_find("center", 6), &inner);
}

static struct value do_indent(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"width", "first", "blank"};
    struct value bound[3];
    struct text *text;
    struct text *indent;
    struct list *lines;
    struct builder builder;
    bool blank;
    bind(run, call, "do_indent", names, 3, 0, bound);
    blank = truth_or(run, bound[2], false);
    if (bound[0].type == VALUE_TEXT) {
        indent = bound[0].text;
    } else {
        struct value width = kvr_given(bound[0]) ? bound[0] : kvr_integer(4);
        indent =
            kvr_jinja_binary(run, OP_MUL, kvr_text_value(kvr_text_literal(run, " ")), width).text;
    }
    /* The newline added at the end is jinja2's, and a TypeError for what is no string. */
    if (value.type == VALUE_UNDEFINED)
        kvr_run_undefined(run, value.undefined);
    if (value.type == VALUE_LIST) /* += takes any iterable there */
        kvr_run_raise(run, "AttributeError", "'list' object has no attribute 'splitlines'");
    if (value.type != VALUE_TEXT)
        kvr_run_raise(run, "TypeError", "unsupported operand type(s) for +=: '%s' and 'str'",
            kvr_jinja_type_name(value));
    text = kvr_jinja_binary(run, OP_ADD, value, kvr_text_value(kvr_text_literal(run, "\n"))).text;
    lines = kvr_text_lines(run, text, false);
    kvr_builder_start(&builder, run, text->length + 16 + lines->count * indent->length);
    for (size_t i = 0; i < lines->count; i++) {
        const struct text *line = lines->items[i].text;
        if (i)
            kvr_builder_add_byte(&builder, '\n');
        if (i ? blank || line->length : truth_or(run, bound[1], false))
            kvr_builder_add_text(&builder, indent);
        kvr_builder_add_text(&builder, line);
    }
    return kvr_text_value(kvr_text_from(kvr_builder_end(&builder), text));
}

static struct value do_truncate(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"length", "killwords", "end", "leeway"};
    struct value bound[4];
    struct text *text;
    struct text *end;
    int64_t length;
    int64_t leeway;
    size_t points;
    size_t cut;
    bind(run, call, "do_truncate", names, 4, 0, bound);
    length = kvr_given(bound[0]) ? kvr_jinja_need_integer(run, bound[0]) : 255;
    leeway = kvr_given(bound[3]) && bound[3].type != VALUE_NONE
                 ? kvr_jinja_need_integer(run, bound[3])
                 : 5;
    end = kvr_given(bound[2]) ? kvr_jinja_soft_string(run, bound[2]) : kvr_text_literal(run, "...");
    if (length < (int64_t)kvr_text_points(end))
        kvr_run_raise(run, "AssertionError", "expected length >= %zu", kvr_text_points(end));
    if (leeway < 0)
        kvr_run_raise(run, "AssertionError", "expected leeway >= 0");
    if (!kvr_jinja_length(value, &points))
        kvr_run_raise(
            run, "TypeError", "object of type '%s' has no len()", kvr_jinja_type_name(value));
    if ((int64_t)points <= length || (int64_t)points - length <= leeway)
        return value;
    if (value.type != VALUE_TEXT)
        kvr_run_unsupported(run, "truncate of a '%s'", kvr_jinja_type_name(value));
    text = value.text;
    cut = kvr_text_offset(text, (size_t)length - kvr_text_points(end));
    if (!truth_or(run, bound[1], false)) {
        size_t at = cut;
        while (at && text->data[at - 1] != ' ')
            at--;
        if (at)
            cut = at - 1;
    }
    return kvr_text_value(kvr_text_join(run, kvr_text_cut(run, text, 0, cut), end));
}

static struct value do_wordcount(struct run *run, struct value value, const struct call *call)
{
    const struct text *text = kvr_jinja_soft_string(run, value);
    int64_t words = 0;
    bool inside = false;
    size_t used;
    kvr_filter_no_arguments(run, call, "do_wordcount");
    kvr_run_charge(run, text->length);
    for (size_t at = 0; at < text->length; at += used) {
        uint32_t point = kvr_point_read(text->data + at, text->length - at, &used);
        bool word =
            point == '_' ||
            (kvr_point_bits(point) & (POINT_ALPHA | POINT_DECIMAL | POINT_DIGIT | POINT_NUMERIC));
        words += word && !inside;
        inside = word;
    }
    return kvr_integer(words);
}

static struct value do_string(struct run *run, struct value value, const struct call *call)
{
    kvr_filter_no_arguments(run, call, "soft_str");
    return kvr_text_value(kvr_jinja_soft_string(run, value));
}

static struct value do_safe(struct run *run, struct value value, const struct call *call)
{
    struct text *text = kvr_run_take(run, sizeof *text);
    kvr_filter_no_arguments(run, call, "do_mark_safe");
    *text = *kvr_jinja_soft_string(run, value);
    text->markup = true;
    return kvr_text_value(text);
}

static struct value do_escape(struct run *run, struct value value, const struct call *call)
{
    kvr_filter_no_arguments(run, call, "escape");
    return kvr_text_value(kvr_text_escape(run, kvr_jinja_soft_string(run, value)));
}

static struct value do_force_escape(struct run *run, struct value value, const struct call *call)
{
    kvr_filter_no_arguments(run, call, "do_forceescape");
    return kvr_text_value(kvr_text_escape(run, kvr_jinja_string(run, value)));
}

static struct value do_format(struct run *run, struct value value, const struct call *call)
{
    struct value arguments;
    if (call->count && call->keyword_count)
        kvr_run_raise(run, "FilterArgumentError",
            "can't handle positional and keyword arguments at the same time");
    if (call->keyword_count) {
        struct dict *dict = kvr_dict_new(run, call->keyword_count);
        for (size_t i = 0; i < call->keyword_count; i++)
            kvr_dict_set(
                run, dict, kvr_text_value(call->keywords[i].name), call->keywords[i].value);
        arguments = kvr_dict_value(dict);
    } else {
        struct list *list = kvr_list_new(run, call->count);
        for (size_t i = 0; i < call->count; i++)
            kvr_list_add(run, list, call->items[i]);
        arguments = kvr_tuple_value(list);
    }
    return kvr_text_value(kvr_text_percent(run, kvr_jinja_soft_string(run, value), arguments));
}

static struct value do_tojson(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
    struct value bound[4];
    bind(run, call, "tojson", names, 4, 0, bound);
    return kvr_text_value(kvr_jinja_json(run, value, bound[1], truth_or(run, bound[0], false),
        truth_or(run, bound[3], false), bound[2]));
}

static bool plain_in_url(unsigned char byte, bool query)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || (byte && strchr("_.-~", byte)) ||
           (byte == '/' && !query);
}

static void add_quoted(struct builder *builder, struct value value, bool query)
{
    const struct text *text = kvr_jinja_string(builder->run, value);
    builder->content |= text->origin != ORIGIN_TEMPLATE;
    for (size_t i = 0; i < text->length; i++) {
        unsigned char byte = (unsigned char)text->data[i];
        char escape[8];
        if (plain_in_url(byte, query))
            kvr_builder_add_byte(builder, (char)byte);
        else if (query && byte == ' ')
            kvr_builder_add_byte(builder, '+');
        else
            kvr_builder_add(builder, escape, (size_t)sprintf(escape, "%%%02X", byte));
    }
}

static struct value do_urlencode(struct run *run, struct value value, const struct call *call)
{
    struct builder builder;
    struct value item;
    struct iterator *iterator;
    bool first = true;
    kvr_filter_no_arguments(run, call, "do_urlencode");
    kvr_builder_start(&builder, run, 64);
    if (value.type == VALUE_TEXT || !kvr_jinja_iterable(value)) {
        add_quoted(&builder, value, false);
        return kvr_text_value(kvr_builder_end(&builder));
    }
    if (value.type == VALUE_DICT) {
        value.type = VALUE_VIEW;
        value.kind = VIEW_ITEMS;
    }
    iterator = kvr_jinja_iterate(run, value);
    while (kvr_iterator_next(run, iterator, &item)) {
        const struct list *pair = kvr_jinja_to_list(run, item);
        if (pair->count != 2)
            kvr_run_raise(run, "ValueError", "not enough values to unpack (expected 2, got %zu)",
                pair->count);
        if (!first)
            kvr_builder_add_byte(&builder, '&');
        first = false;
        add_quoted(&builder, pair->items[0], true);
        kvr_builder_add_byte(&builder, '=');
        add_quoted(&builder, pair->items[1], true);
    }
    return kvr_text_value(kvr_builder_end(&builder));
}

/* ---- values ---- */

static struct value do_default(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"default_value", "boolean"};
    struct value bound[2];
    bind(run, call, "do_default", names, 2, 0, bound);
    if (value.type == VALUE_UNDEFINED ||
        (truth_or(run, bound[1], false) && !kvr_jinja_truth(run, value)))
        return kvr_given(bound[0]) ? bound[0] : kvr_text_value(kvr_text_literal(run, ""));
    return value;
}

static struct value do_length(struct run *run, struct value value, const struct call *call)
{
    size_t length;
    kvr_filter_no_arguments(run, call, "len");
    if (value.type == VALUE_LOOP) {
        struct text name = {.data = "length", .length = 6};
        return kvr_loop_attribute(run, value.loop, &name);
    }
    if (!kvr_jinja_length(value, &length))
        kvr_run_raise(
            run, "TypeError", "object of type '%s' has no len()", kvr_jinja_type_name(value));
    return kvr_integer((int64_t)length);
}

static struct value do_attr(struct run *run, struct value value, const struct call *call)
{
    static const char *const names[] = {"name"};
    struct value name;
    bind(run, call, "do_attr", names, 1, 1, &name);
    if (name.type != VALUE_TEXT)
        kvr_run_raise(
            run, "TypeError", "attribute name must be string, not '%s'", kvr_jinja_type_name(name));
    if (value.type == VALUE_DICT) {
        bool unsafe;
        unsigned method = kvr_method_find(name.text->data, name.text->length);
        if (!method || !kvr_method_has(value, method, &unsafe))
            return kvr_undefined_member(run, value, name);
    }
    return kvr_jinja_attribute(
        run, value, name.text, kvr_method_find(name.text->data, name.text->length));
}

/* Filters of jinja2 that no chat template is known to use. */
#define NOT_SUPPORTED(name)                                                                        \
    static struct value no_##name(struct run *run, struct value value, const struct call *call)    \
    {                                                                                              \
        (void)value, (void)call;                                                                   \
        kvr_run_unsupported(run, "the filter '" #name "'");                                        \
    }

NOT_SUPPORTED(pprint)
NOT_SUPPORTED(random)
NOT_SUPPORTED(striptags)
NOT_SUPPORTED(urlize)
NOT_SUPPORTED(wordwrap)
NOT_SUPPORTED(xmlattr)

static const struct filter filters[] = {
    {"abs", kvr_filter_abs},
    {"attr", do_attr},
    {"batch", kvr_filter_batch},
    {"capitalize", do_capitalize},
    {"center", do_center},
    {"count", do_length},
    {"d", do_default},
    {"default", do_default},
    {"dictsort", kvr_filter_dictsort},
    {"e", do_escape},
    {"escape", do_escape},
    {"filesizeformat", kvr_filter_filesize},
    {"first", kvr_filter_first},
    {"float", kvr_filter_float},
    {"forceescape", do_force_escape},
    {"format", do_format},
    {"groupby", kvr_filter_groupby},
    {"indent", do_indent},
    {"int", kvr_filter_int},
    {"items", kvr_filter_items},
    {"join", kvr_filter_join},
    {"last", kvr_filter_last},
    {"length", do_length},
    {"list", kvr_filter_list},
    {"lower", do_lower},
    {"map", kvr_filter_map},
    {"max", kvr_filter_max},
    {"min", kvr_filter_min},
    {"pprint", no_pprint},
    {"random", no_random},
    {"reject", kvr_filter_reject},
    {"rejectattr", kvr_filter_rejectattr},
    {"replace", do_replace},
    {"reverse", kvr_filter_reverse},
    {"round", kvr_filter_round},
    {"safe", do_safe},
    {"select", kvr_filter_select},
    {"selectattr", kvr_filter_selectattr},
    {"slice", kvr_filter_slice},
    {"sort", kvr_filter_sort},
    {"string", do_string},
    {"striptags", no_striptags},
    {"sum", kvr_filter_sum},
    {"title", do_title},
    {"tojson", do_tojson},
    {"trim", do_trim},
    {"truncate", do_truncate},
    {"unique", kvr_filter_unique},
    {"upper", do_upper},
    {"urlencode", do_urlencode},
    {"urlize", no_urlize},
    {"wordcount", do_wordcount},
    {"wordwrap", no_wordwrap},
    {"xmlattr", no_xmlattr},
};

const struct filter *kvr_filter_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strlen(filters[i].name) == length && memcmp(filters[i].name, name, length) == 0)
            return &filters[i];
    return NULL;
}
