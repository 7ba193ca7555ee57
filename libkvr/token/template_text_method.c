/*
 * Methods of strings: searching, cutting, joining, padding. Positions are code points, as Python
 * counts them; where a string is ASCII they are bytes.
 */
#include "token/template_method.h"

#include <string.h>

#define METHOD(name)                                                                               \
    struct value kvr_method_##name(struct run *run, struct value self, const struct call *call)

static void bind(struct run *run, const struct call *call, const char *method,
    const char *const *names, size_t count, size_t required, struct value *out)
{
    kvr_call_bind(run, call, method, names, count, required, out);
}

static void no_arguments(struct run *run, const struct call *call, const char *method)
{
    if (call->count || call->keyword_count)
        kvr_run_raise(run, "TypeError", "str.%s() takes no arguments (%zu given)", method,
            call->count + call->keyword_count);
}

static struct text *need_text(struct run *run, struct value value, const char *what)
{
    if (value.type != VALUE_TEXT)
        kvr_run_raise(run, "TypeError", "%s must be str, not %s", what, kvr_jinja_type_name(value));
    return value.text;
}

static bool absent(struct value value)
{
    return !kvr_given(value) || value.type == VALUE_NONE;
}

/* ---- case ---- */

METHOD(upper)
{
    no_arguments(run, call, "upper");
    return kvr_text_value(kvr_text_upper(run, self.text));
}

METHOD(lower)
{
    no_arguments(run, call, "lower");
    return kvr_text_value(kvr_text_lower(run, self.text));
}

METHOD(casefold)
{
    no_arguments(run, call, "casefold");
    return kvr_text_value(kvr_text_casefold(run, self.text));
}

METHOD(capitalize)
{
    no_arguments(run, call, "capitalize");
    return kvr_text_value(kvr_text_capitalize(run, self.text));
}

METHOD(title)
{
    no_arguments(run, call, "title");
    return kvr_text_value(kvr_text_title(run, self.text));
}

METHOD(swapcase)
{
    no_arguments(run, call, "swapcase");
    return kvr_text_value(kvr_text_swapcase(run, self.text));
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
    bind(run, call, "strip", names, 1, 0, &characters);
    set = absent(characters) ? NULL : need_text(run, characters, "strip arg");
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
    bind(run, call, "removeprefix", names, 1, 1, &prefix);
    need_text(run, prefix, "removeprefix() argument");
    if (!starts(self.text, 0, self.text->length, prefix.text))
        return self;
    return kvr_text_value(kvr_text_cut(run, self.text, prefix.text->length, self.text->length));
}

METHOD(removesuffix)
{
    static const char *const names[] = {"suffix"};
    struct value suffix;
    bind(run, call, "removesuffix", names, 1, 1, &suffix);
    need_text(run, suffix, "removesuffix() argument");
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
    bind(run, call, method, names, 3, 1, bound);
    inside = range_of(run, self.text, bound[1], bound[2], &from, &to);
    if (bound[0].type == VALUE_TUPLE) {
        for (size_t i = 0; i < bound[0].list->count; i++) {
            struct text *affix = need_text(run, bound[0].list->items[i], "tuple item");
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

/* Byte offset of the last occurrence, or SIZE_MAX. */
static size_t find_last(const struct text *text, size_t from, size_t to, const struct text *what)
{
    for (size_t at = to; at >= from + what->length; at--) {
        if (ends(text, from, at, what))
            return at - what->length;
        if (at == 0)
            break;
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
    bind(run, call, method, names, 3, 1, bound);
    what = need_text(run, bound[0], "sub");
    kvr_run_charge(run, self.text->length);
    if (!range_of(run, self.text, bound[1], bound[2], &from, &to))
        return -1;
    if (last) {
        kvr_run_charge(run, what->length * 8);
        found = find_last(self.text, from, to, what);
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
    bind(run, call, "count", names, 3, 1, bound);
    what = need_text(run, bound[0], "sub");
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
        !(call->keyword_count == 1 && kvr_text_is(call->keywords[0].name, "count")))
        kvr_run_raise(run, "TypeError", "str.replace() takes no keyword arguments");
    bind(run, call, "replace", names, 3, 2, bound);
    if (call->keyword_count)
        kvr_run_raise(run, "TypeError", "str.replace() takes no keyword arguments");
    if (kvr_given(bound[2]))
        count = kvr_jinja_need_integer(run, bound[2]);
    need_text(run, bound[0], "replace() argument 1");
    need_text(run, bound[1], "replace() argument 2");
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
    bind(run, call, method, names, 2, 0, bound);
    if (kvr_given(bound[1]))
        most = kvr_jinja_need_integer(run, bound[1]);
    kvr_run_charge(run, text->length);
    if (absent(bound[0])) {
        if (right)
            rsplit_blanks(run, text, most, list);
        else
            split_blanks(run, text, most, list);
    } else {
        separator = need_text(run, bound[0], "sep");
        if (!separator->length)
            kvr_run_raise(run, "ValueError", "empty separator");
        while (most-- != 0) {
            size_t found;
            if (right) {
                kvr_run_charge(run, separator->length);
                found = find_last(text, 0, to, separator);
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
    bind(run, call, "splitlines", names, 1, 0, &keep);
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
    bind(run, call, method, names, 1, 1, &bound);
    separator = need_text(run, bound, "sep");
    if (!separator->length)
        kvr_run_raise(run, "ValueError", "empty separator");
    kvr_run_charge(run, text->length);
    if (right) {
        found = find_last(text, 0, text->length, separator);
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
    bind(run, call, "join", names, 1, 1, &iterable);
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

/* ---- padding ---- */

static struct value pad(
    struct run *run, struct value self, const struct call *call, const char *method, int side)
{
    static const char *const names[] = {"width", "fillchar"};
    struct value bound[2];
    struct builder builder;
    struct text *fill;
    struct text *padded;
    int64_t width;
    size_t points = kvr_text_points(self.text);
    size_t more;
    size_t before;
    bind(run, call, method, names, 2, 1, bound);
    width = kvr_jinja_need_integer(run, bound[0]);
    fill = kvr_given(bound[1]) ? need_text(run, bound[1], "fill character")
                               : kvr_text_literal(run, " ");
    if (kvr_text_points(fill) != 1)
        kvr_run_raise(run, "TypeError", "The fill character must be exactly one character long");
    if (width <= (int64_t)points)
        return self;
    more = (size_t)width - points;
    /* str.center() puts the odd one left where both width and the rest are odd. */
    before = side < 0 ? 0 : side > 0 ? more : more / 2 + (more & (size_t)width & 1);
    if (more > run->limits.memory_bytes)
        kvr_run_no_memory(run);
    kvr_builder_start(&builder, run, self.text->length + 64);
    kvr_builder_pad(&builder, fill->data, fill->length, before);
    kvr_builder_add(&builder, self.text->data, self.text->length);
    kvr_builder_pad(&builder, fill->data, fill->length, more - before);
    padded = kvr_text_from(kvr_text_from(kvr_builder_end(&builder), self.text), fill);
    padded->markup = self.text->markup;
    return kvr_text_value(padded);
}

METHOD(ljust)
{
    return pad(run, self, call, "ljust", -1);
}

METHOD(rjust)
{
    return pad(run, self, call, "rjust", 1);
}

METHOD(center)
{
    return pad(run, self, call, "center", 0);
}

METHOD(zfill)
{
    static const char *const names[] = {"width"};
    struct value bound;
    struct builder builder;
    struct text *text = self.text;
    int64_t width;
    size_t points = kvr_text_points(text);
    size_t sign = text->length && (text->data[0] == '-' || text->data[0] == '+');
    bind(run, call, "zfill", names, 1, 1, &bound);
    width = kvr_jinja_need_integer(run, bound);
    if (width <= (int64_t)points)
        return self;
    kvr_builder_start(&builder, run, text->length + 64);
    kvr_builder_add(&builder, text->data, sign);
    kvr_builder_pad(&builder, "0", 1, (size_t)width - points);
    kvr_builder_add(&builder, text->data + sign, text->length - sign);
    return kvr_text_value(kvr_text_from(kvr_builder_end(&builder), text));
}

METHOD(expandtabs)
{
    static const char *const names[] = {"tabsize"};
    struct value bound;
    struct builder builder;
    int64_t size;
    size_t column = 0;
    size_t used;
    bind(run, call, "expandtabs", names, 1, 0, &bound);
    size = kvr_given(bound) ? kvr_jinja_need_integer(run, bound) : 8;
    kvr_builder_start(&builder, run, self.text->length + 64);
    for (size_t at = 0; at < self.text->length; at += used) {
        uint32_t point = kvr_point_read(self.text->data + at, self.text->length - at, &used);
        if (point == '\t') {
            size_t spaces = size > 0 ? (size_t)size - column % (size_t)size : 0;
            kvr_builder_pad(&builder, " ", 1, spaces);
            column += spaces;
            continue;
        }
        kvr_builder_add(&builder, self.text->data + at, used);
        column = point == '\n' || point == '\r' ? 0 : column + 1;
    }
    return kvr_text_value(kvr_text_from(kvr_builder_end(&builder), self.text));
}

/* ---- classes ---- */

/* Not empty, and every point has one of the bits. */
static struct value every(
    struct run *run, struct value self, const struct call *call, const char *method, unsigned bits)
{
    const struct text *text = self.text;
    size_t used;
    no_arguments(run, call, method);
    kvr_run_charge(run, text->length);
    for (size_t at = 0; at < text->length; at += used)
        if (!(kvr_point_bits(kvr_point_read(text->data + at, text->length - at, &used)) & bits))
            return kvr_bool(false);
    return kvr_bool(text->length || bits == POINT_PRINTABLE);
}

METHOD(isalnum)
{
    return every(
        run, self, call, "isalnum", POINT_ALPHA | POINT_DECIMAL | POINT_DIGIT | POINT_NUMERIC);
}

METHOD(isalpha)
{
    return every(run, self, call, "isalpha", POINT_ALPHA);
}

METHOD(isdecimal)
{
    return every(run, self, call, "isdecimal", POINT_DECIMAL);
}

METHOD(isdigit)
{
    return every(run, self, call, "isdigit", POINT_DECIMAL | POINT_DIGIT);
}

METHOD(isnumeric)
{
    return every(run, self, call, "isnumeric", POINT_DECIMAL | POINT_DIGIT | POINT_NUMERIC);
}

METHOD(isprintable)
{
    return every(run, self, call, "isprintable", POINT_PRINTABLE);
}

METHOD(isascii)
{
    no_arguments(run, call, "isascii");
    return kvr_bool(kvr_text_ascii(self.text));
}

METHOD(isspace)
{
    no_arguments(run, call, "isspace");
    return kvr_bool(self.text->length &&
                    kvr_text_strip_left(self.text, NULL, self.text->length) == self.text->length);
}

METHOD(isidentifier)
{
    const struct text *text = self.text;
    size_t used;
    no_arguments(run, call, "isidentifier");
    for (size_t at = 0; at < text->length; at += used) {
        unsigned bits = kvr_point_bits(kvr_point_read(text->data + at, text->length - at, &used));
        if (!(bits & (at ? POINT_ID_CONTINUE : POINT_ID_START)))
            return kvr_bool(false);
    }
    return kvr_bool(text->length);
}

static bool check(struct run *run, struct value self, const char *test)
{
    static const struct call none;
    return kvr_test_find(test, strlen(test))->check(run, self, &none);
}

METHOD(islower)
{
    no_arguments(run, call, "islower");
    return kvr_bool(check(run, self, "lower"));
}

METHOD(isupper)
{
    no_arguments(run, call, "isupper");
    return kvr_bool(check(run, self, "upper"));
}

METHOD(istitle)
{
    const struct text *text = self.text;
    bool cased = false;
    bool found = false;
    size_t used;
    no_arguments(run, call, "istitle");
    for (size_t at = 0; at < text->length; at += used) {
        unsigned bits = kvr_point_bits(kvr_point_read(text->data + at, text->length - at, &used));
        if (bits & (POINT_UPPER | POINT_TITLE) ? cased : bits & POINT_LOWER ? !cased : false)
            return kvr_bool(false);
        cased = bits & (POINT_UPPER | POINT_TITLE | POINT_LOWER);
        found |= cased;
    }
    return kvr_bool(found);
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
    bind(run, call, "format_map", names, 1, 1, &mapping);
    if (mapping.type != VALUE_DICT)
        kvr_run_raise(run, "TypeError", "format_map() argument must be a mapping");
    inner.keywords = kvr_run_array(run, mapping.dict->count + 1, sizeof *inner.keywords);
    for (size_t i = 0; i < mapping.dict->count; i++)
        if (mapping.dict->entries[i].key.type == VALUE_TEXT)
            inner.keywords[inner.keyword_count++] =
                (struct keyword){mapping.dict->entries[i].key.text, mapping.dict->entries[i].value};
    return kvr_text_value(kvr_text_format_method(run, self.text, &inner));
}
