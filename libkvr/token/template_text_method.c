/*
 * Methods of strings: searching, cutting, joining, formatting. Positions are code points, as Python
 * counts them; where a string is ASCII they are bytes.
 */
#include "token/template_method.h"

#include <string.h>

static bool absent(struct value value)
{
    return !kvr_given(value) || value.type == VALUE_NONE;
}

/* ---- strip ---- */

static struct value strip(
    struct run *run, struct value self, const struct call *call, bool left, bool right)
{
    static const char *const names[] = {"chars"};
    struct value characters;
    const struct text *set;
    size_t start = 0;
    size_t end = self.text->length;
    if (call->keyword_count)
        kvr_run_raise(run, "TypeError", "strip() takes no keyword arguments");
    kvr_call_bind(run, call, "strip", names, 1, 0, &characters);
    set = absent(characters) ? NULL : kvr_method_need_text(run, characters, "strip arg");
    kvr_text_charge_set(run, self.text, set);
    if (left)
        start = kvr_text_strip_left(self.text, set, end);
    if (right)
        end = kvr_text_strip_right(self.text, set, start);
    kvr_run_charge(run, self.text->length - (end - start));
    if (!start && end == self.text->length)
        return self;
    return kvr_text_value(kvr_text_cut(run, self.text, start, end));
}

METHOD(strip)
{
    return strip(run, self, call, true, true);
}

METHOD(lstrip)
{
    return strip(run, self, call, true, false);
}

METHOD(rstrip)
{
    return strip(run, self, call, false, true);
}

static bool starts(const struct text *text, size_t start, size_t end, const struct text *prefix)
{
    return end >= start && end - start >= prefix->length &&
           (!prefix->length || memcmp(text->data + start, prefix->data, prefix->length) == 0);
}

static bool ends(const struct text *text, size_t start, size_t end, const struct text *suffix)
{
    return end >= start && end - start >= suffix->length &&
           (!suffix->length ||
               memcmp(text->data + end - suffix->length, suffix->data, suffix->length) == 0);
}

METHOD(removeprefix)
{
    static const char *const names[] = {"prefix"};
    struct value prefix;
    kvr_call_bind(run, call, "removeprefix", names, 1, 1, &prefix);
    kvr_method_need_text(run, prefix, "removeprefix() argument");
    if (!starts(self.text, 0, self.text->length, prefix.text))
        return self;
    return kvr_text_value(kvr_text_cut(run, self.text, prefix.text->length, self.text->length));
}

METHOD(removesuffix)
{
    static const char *const names[] = {"suffix"};
    struct value suffix;
    kvr_call_bind(run, call, "removesuffix", names, 1, 1, &suffix);
    kvr_method_need_text(run, suffix, "removesuffix() argument");
    if (!suffix.text->length || !ends(self.text, 0, self.text->length, suffix.text))
        return self;
    return kvr_text_value(kvr_text_cut(run, self.text, 0, self.text->length - suffix.text->length));
}

/* ---- search ---- */

/* The byte range that optional start and stop arguments leave of the text; false where start lies
 * behind the end, so that nothing is found, not even an empty string. */
static bool range_of(struct run *run, struct text *text, struct value start, struct value stop,
    size_t *from, size_t *to)
{
    int64_t length = (int64_t)kvr_text_points(text);
    int64_t first = absent(start) ? 0 : kvr_jinja_need_integer(run, start);
    int64_t last = absent(stop) ? length : kvr_jinja_need_integer(run, stop);
    first = first < 0 ? (first + length < 0 ? 0 : first + length) : first;
    last = last < 0 ? (last + length < 0 ? 0 : last + length) : last > length ? length : last;
    if (first > length || first > last)
        return false;
    *from = kvr_text_offset(text, (size_t)first);
    *to = kvr_text_offset(text, (size_t)last);
    return true;
}

typedef bool affix_test(const struct text *, size_t, size_t, const struct text *);

static struct value has_affix(struct run *run, struct value self, const struct call *call,
    const char *method, affix_test *test)
{
    static const char *const names[] = {"prefix", "start", "end"};
    struct value bound[3];
    size_t from;
    size_t to;
    bool inside;
    if (call->keyword_count)
        kvr_run_raise(run, "TypeError", "%s() takes no keyword arguments", method);
    kvr_call_bind(run, call, method, names, 3, 1, bound);
    inside = range_of(run, self.text, bound[1], bound[2], &from, &to);
    if (bound[0].type == VALUE_TUPLE) {
        for (size_t i = 0; i < bound[0].list->count; i++) {
            struct text *affix = kvr_method_need_text(run, bound[0].list->items[i], "tuple item");
            if (inside && test(self.text, from, to, affix))
                return kvr_bool(true);
        }
        return kvr_bool(false);
    }
    if (bound[0].type != VALUE_TEXT)
        kvr_run_raise(run, "TypeError", "%s first arg must be str or a tuple of str, not %s",
            method, kvr_jinja_type_name(bound[0]));
    return kvr_bool(inside && test(self.text, from, to, bound[0].text));
}

METHOD(startswith)
{
    return has_affix(run, self, call, "startswith", starts);
}

METHOD(endswith)
{
    return has_affix(run, self, call, "endswith", ends);
}

/* Byte offset of the last occurrence, or SIZE_MAX. Candidates are where the first byte is; what
 * they cost to compare is charged, for they may be many. */
static size_t find_last(
    struct run *run, const struct text *text, size_t from, size_t to, const struct text *what)
{
    if (to - from < what->length)
        return SIZE_MAX;
    if (!what->length)
        return to;
    for (size_t end = to - what->length + 1; end > from;) {
        const char *found = memrchr(text->data + from, what->data[0], end - from);
        if (!found)
            break;
        end = (size_t)(found - text->data);
        kvr_run_charge(run, what->length);
        if (memcmp(found, what->data, what->length) == 0)
            return end;
    }
    return SIZE_MAX;
}

static size_t points_before(struct text *text, size_t offset)
{
    struct text prefix = {.data = text->data, .length = offset, .points = SIZE_MAX};
    return kvr_text_ascii(text) ? offset : kvr_text_points(&prefix);
}

static int64_t find(
    struct run *run, struct value self, const struct call *call, const char *method, bool last)
{
    static const char *const names[] = {"sub", "start", "end"};
    struct value bound[3];
    struct text *what;
    size_t from;
    size_t to;
    size_t found = SIZE_MAX;
    if (call->keyword_count)
        kvr_run_raise(run, "TypeError", "%s() takes no keyword arguments", method);
    kvr_call_bind(run, call, method, names, 3, 1, bound);
    what = kvr_method_need_text(run, bound[0], "sub");
    kvr_run_charge(run, self.text->length);
    if (!range_of(run, self.text, bound[1], bound[2], &from, &to))
        return -1;
    if (last) {
        found = find_last(run, self.text, from, to, what);
    } else {
        const char *at =
            kvr_bytes_find(self.text->data + from, to - from, what->data, what->length);
        if (at && what->length)
            found = (size_t)(at - self.text->data);
        else if (at)
            found = from;
    }
    return found == SIZE_MAX ? -1 : (int64_t)points_before(self.text, found);
}

METHOD(find_text)
{
    return kvr_integer(find(run, self, call, "find", false));
}

METHOD(rfind)
{
    return kvr_integer(find(run, self, call, "rfind", true));
}

static struct value need_found(struct run *run, int64_t found)
{
    if (found < 0)
        kvr_run_raise(run, "ValueError", "substring not found");
    return kvr_integer(found);
}

METHOD(index)
{
    return need_found(run, find(run, self, call, "index", false));
}

METHOD(rindex)
{
    return need_found(run, find(run, self, call, "rindex", true));
}

METHOD(count)
{
    static const char *const names[] = {"sub", "start", "end"};
    struct value bound[3];
    struct text *what;
    size_t from;
    size_t to;
    int64_t count = 0;
    kvr_call_bind(run, call, "count", names, 3, 1, bound);
    what = kvr_method_need_text(run, bound[0], "sub");
    if (!range_of(run, self.text, bound[1], bound[2], &from, &to))
        return kvr_integer(0);
    kvr_run_charge(run, to - from);
    if (!what->length)
        return kvr_integer(
            (int64_t)(points_before(self.text, to) - points_before(self.text, from)) + 1);
    for (const char *at;
         (at = kvr_bytes_find(self.text->data + from, to - from, what->data, what->length));
         count++)
        from = (size_t)(at - self.text->data) + what->length;
    return kvr_integer(count);
}

METHOD(replace)
{
    static const char *const names[] = {"old", "new", "count"};
    struct value bound[3];
    struct text *replaced;
    int64_t count = -1;
    if (call->keyword_count &&
        !(call->keyword_count == 1 && kvr_template_text_is(call->keywords[0].name, "count")))
        kvr_run_raise(run, "TypeError", "str.replace() takes no keyword arguments");
    kvr_call_bind(run, call, "replace", names, 3, 2, bound);
    if (call->keyword_count)
        kvr_run_raise(run, "TypeError", "str.replace() takes no keyword arguments");
    if (kvr_given(bound[2]))
        count = kvr_jinja_need_integer(run, bound[2]);
    kvr_method_need_text(run, bound[0], "replace() argument 1");
    kvr_method_need_text(run, bound[1], "replace() argument 2");
    if (self.text->markup)
        bound[1].text = kvr_text_escape(run, bound[1].text);
    replaced = kvr_text_replace(run, self.text, bound[0].text, bound[1].text, count);
    return kvr_text_value(replaced);
}

/* ---- split and join ---- */

static void add_cut(struct run *run, struct list *list, struct text *text, size_t from, size_t to)
{
    kvr_list_add(run, list, kvr_text_value(kvr_text_cut(run, text, from, to)));
}

static void reverse_list(struct list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        struct value swapped = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = swapped;
    }
}

static void split_blanks(struct run *run, struct text *text, int64_t most, struct list *out)
{
    size_t at = 0;
    for (;;) {
        size_t start;
        size_t used = 0;
        struct text rest = {.data = text->data + at, .length = text->length - at};
        at += kvr_text_strip_left(&rest, NULL, rest.length);
        if (at >= text->length)
            return;
        if (most-- == 0) {
            add_cut(run, out, text, at, text->length);
            return;
        }
        for (start = at; at < text->length; at += used)
            if (kvr_point_space(kvr_point_read(text->data + at, text->length - at, &used)))
                break;
        add_cut(run, out, text, start, at);
    }
}

static void rsplit_blanks(struct run *run, struct text *text, int64_t most, struct list *out)
{
    size_t end = text->length;
    for (;;) {
        struct text part = {.data = text->data, .length = end};
        size_t start;
        end = kvr_text_strip_right(&part, NULL, 0);
        if (!end)
            return;
        if (most-- == 0) {
            add_cut(run, out, text, 0, end);
            return;
        }
        for (start = end; start;) {
            size_t used;
            size_t before = start - 1;
            while (before && ((unsigned char)text->data[before] & 0xc0) == 0x80)
                before--;
            if (kvr_point_space(kvr_point_read(text->data + before, end - before, &used)))
                break;
            start = before;
        }
        add_cut(run, out, text, start, end);
        end = start;
    }
}

static struct value split(
    struct run *run, struct value self, const struct call *call, const char *method, bool right)
{
    static const char *const names[] = {"sep", "maxsplit"};
    struct value bound[2];
    struct list *list = kvr_list_new(run, 0);
    struct text *text = self.text;
    struct text *separator;
    int64_t most = -1;
    size_t from = 0;
    size_t to = text->length;
    kvr_call_bind(run, call, method, names, 2, 0, bound);
    if (kvr_given(bound[1]))
        most = kvr_jinja_need_integer(run, bound[1]);
    kvr_run_charge(run, text->length);
    if (absent(bound[0])) {
        if (right)
            rsplit_blanks(run, text, most, list);
        else
            split_blanks(run, text, most, list);
    } else {
        separator = kvr_method_need_text(run, bound[0], "sep");
        if (!separator->length)
            kvr_run_raise(run, "ValueError", "empty separator");
        while (most-- != 0) {
            size_t found;
            if (right) {
                found = find_last(run, text, 0, to, separator);
                if (found == SIZE_MAX)
                    break;
                add_cut(run, list, text, found + separator->length, to);
                to = found;
            } else {
                const char *at = kvr_bytes_find(
                    text->data + from, to - from, separator->data, separator->length);
                if (!at)
                    break;
                found = (size_t)(at - text->data);
                add_cut(run, list, text, from, found);
                from = found + separator->length;
            }
        }
        add_cut(run, list, text, from, to);
    }
    if (right)
        reverse_list(list);
    return kvr_list_value(list);
}

METHOD(split)
{
    return split(run, self, call, "split", false);
}

METHOD(rsplit)
{
    return split(run, self, call, "rsplit", true);
}

METHOD(splitlines)
{
    static const char *const names[] = {"keepends"};
    struct value keep;
    kvr_call_bind(run, call, "splitlines", names, 1, 0, &keep);
    return kvr_list_value(
        kvr_text_lines(run, self.text, kvr_given(keep) && kvr_jinja_truth(run, keep)));
}

static struct value partition(
    struct run *run, struct value self, const struct call *call, const char *method, bool right)
{
    static const char *const names[] = {"sep"};
    struct value bound;
    struct text *text = self.text;
    struct text *separator;
    struct list *parts = kvr_list_new(run, 3);
    size_t found = SIZE_MAX;
    kvr_call_bind(run, call, method, names, 1, 1, &bound);
    separator = kvr_method_need_text(run, bound, "sep");
    if (!separator->length)
        kvr_run_raise(run, "ValueError", "empty separator");
    kvr_run_charge(run, text->length);
    if (right) {
        found = find_last(run, text, 0, text->length, separator);
    } else {
        const char *at =
            kvr_bytes_find(text->data, text->length, separator->data, separator->length);
        if (at)
            found = (size_t)(at - text->data);
    }
    if (found == SIZE_MAX) {
        add_cut(run, parts, text, 0, right ? 0 : text->length);
        add_cut(run, parts, text, 0, 0);
        add_cut(run, parts, text, 0, right ? text->length : 0);
    } else {
        add_cut(run, parts, text, 0, found);
        kvr_list_add(run, parts, bound);
        add_cut(run, parts, text, found + separator->length, text->length);
    }
    return kvr_tuple_value(parts);
}

METHOD(partition)
{
    return partition(run, self, call, "partition", false);
}

METHOD(rpartition)
{
    return partition(run, self, call, "rpartition", true);
}

METHOD(join)
{
    static const char *const names[] = {"iterable"};
    struct value iterable;
    struct list *items;
    struct text *joined = kvr_text_literal(run, "");
    kvr_call_bind(run, call, "join", names, 1, 1, &iterable);
    if (!kvr_jinja_iterable(iterable))
        kvr_run_raise(run, "TypeError", "can only join an iterable");
    items = kvr_jinja_to_list(run, iterable);
    for (size_t i = 0; i < items->count; i++)
        if (items->items[i].type != VALUE_TEXT && !self.text->markup)
            kvr_run_raise(run, "TypeError", "sequence item %zu: expected str instance, %s found", i,
                kvr_jinja_type_name(items->items[i]));
    for (size_t i = 0; self.text->markup && i < items->count; i++)
        items->items[i] =
            kvr_text_value(kvr_text_escape(run, kvr_jinja_soft_string(run, items->items[i])));
    for (size_t i = 0; i < items->count; i++) {
        struct text *item = items->items[i].text;
        if (i && self.text->length)
            joined = kvr_text_join(run, joined, self.text);
        joined = kvr_text_join(run, joined, item);
    }
    joined->markup = self.text->markup;
    return kvr_text_value(joined);
}

/* ---- format ---- */

METHOD(format)
{
    return kvr_text_value(kvr_text_format_method(run, self.text, call));
}

METHOD(format_map)
{
    static const char *const names[] = {"mapping"};
    struct value mapping;
    struct call inner = {0};
    kvr_call_bind(run, call, "format_map", names, 1, 1, &mapping);
    if (mapping.type != VALUE_DICT)
        kvr_run_raise(run, "TypeError", "format_map() argument must be a mapping");
    inner.keywords = kvr_run_array(run, mapping.dict->count + 1, sizeof *inner.keywords);
    for (size_t i = 0; i < mapping.dict->count; i++)
        if (mapping.dict->entries[i].key.type == VALUE_TEXT)
            inner.keywords[inner.keyword_count++] =
                (struct keyword){mapping.dict->entries[i].key.text, mapping.dict->entries[i].value};
    return kvr_text_value(kvr_text_format_method(run, self.text, &inner));
}
