/*
 * Methods of strings that do not look for anything in them: case, padding, classes of characters.
 */
#include "token/template_method.h"

#include <string.h>

void kvr_method_no_arguments(struct run *run, const struct call *call, const char *method)
{
    if (call->count || call->keyword_count)
        kvr_run_raise(run, "TypeError", "str.%s() takes no arguments (%zu given)", method,
            call->count + call->keyword_count);
}

struct text *kvr_method_need_text(struct run *run, struct value value, const char *what)
{
    if (value.type != VALUE_TEXT)
        kvr_run_raise(run, "TypeError", "%s must be str, not %s", what, kvr_jinja_type_name(value));
    return value.text;
}

/* ---- case ---- */

METHOD(upper)
{
    kvr_method_no_arguments(run, call, "upper");
    return kvr_text_value(kvr_text_upper(run, self.text));
}

METHOD(lower)
{
    kvr_method_no_arguments(run, call, "lower");
    return kvr_text_value(kvr_text_lower(run, self.text));
}

METHOD(casefold)
{
    kvr_method_no_arguments(run, call, "casefold");
    return kvr_text_value(kvr_text_casefold(run, self.text));
}

METHOD(capitalize)
{
    kvr_method_no_arguments(run, call, "capitalize");
    return kvr_text_value(kvr_text_capitalize(run, self.text));
}

METHOD(title)
{
    kvr_method_no_arguments(run, call, "title");
    return kvr_text_value(kvr_text_title(run, self.text));
}

METHOD(swapcase)
{
    kvr_method_no_arguments(run, call, "swapcase");
    return kvr_text_value(kvr_text_swapcase(run, self.text));
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
    kvr_call_bind(run, call, method, names, 2, 1, bound);
    width = kvr_jinja_need_integer(run, bound[0]);
    fill = kvr_given(bound[1]) ? kvr_method_need_text(run, bound[1], "fill character")
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
    kvr_call_bind(run, call, "zfill", names, 1, 1, &bound);
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
    kvr_call_bind(run, call, "expandtabs", names, 1, 0, &bound);
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
    kvr_method_no_arguments(run, call, method);
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
    kvr_method_no_arguments(run, call, "isascii");
    return kvr_bool(kvr_text_ascii(self.text));
}

METHOD(isspace)
{
    kvr_method_no_arguments(run, call, "isspace");
    return kvr_bool(self.text->length &&
                    kvr_text_strip_left(self.text, NULL, self.text->length) == self.text->length);
}

METHOD(isidentifier)
{
    const struct text *text = self.text;
    size_t used;
    kvr_method_no_arguments(run, call, "isidentifier");
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
    kvr_method_no_arguments(run, call, "islower");
    return kvr_bool(check(run, self, "lower"));
}

METHOD(isupper)
{
    kvr_method_no_arguments(run, call, "isupper");
    return kvr_bool(check(run, self, "upper"));
}

METHOD(istitle)
{
    const struct text *text = self.text;
    bool cased = false;
    bool found = false;
    size_t used;
    kvr_method_no_arguments(run, call, "istitle");
    for (size_t at = 0; at < text->length; at += used) {
        unsigned bits = kvr_point_bits(kvr_point_read(text->data + at, text->length - at, &used));
        if (bits & (POINT_UPPER | POINT_TITLE) ? cased : bits & POINT_LOWER ? !cased : false)
            return kvr_bool(false);
        cased = bits & (POINT_UPPER | POINT_TITLE | POINT_LOWER);
        found |= cased;
    }
    return kvr_bool(found);
}
