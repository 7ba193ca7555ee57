/*
 * Text out of values, and text as Python's str has it: building, printing, case, splitting.
 */
#ifndef KVR_TOKEN_TEMPLATE_TEXT_H
#define KVR_TOKEN_TEMPLATE_TEXT_H

#include "token/template_value.h"

/* ---- text out of values ---- */
struct text *kvr_jinja_string(struct run *run, struct value value);      /* str() */
struct text *kvr_jinja_soft_string(struct run *run, struct value value); /* keeps Markup */
struct text *kvr_jinja_repr(struct run *run, struct value value);
void kvr_float_repr(double real, char out[40]);
struct text *kvr_jinja_json(struct run *run, struct value value, struct value indent,
    bool ensure_ascii, bool sort_keys, struct value separators);
struct text *kvr_text_percent(struct run *run, struct text *format, struct value arguments);
struct text *kvr_text_format_method(struct run *run, struct text *format, const struct call *call);
struct text *kvr_text_escape(struct run *run, struct text *text);

/* A string under construction in the run's string space. */
struct builder {
    struct run *run;
    char *data;
    size_t length;
    size_t capacity;
    bool content;
};
void kvr_builder_start(struct builder *builder, struct run *run, size_t capacity);
void kvr_builder_add(struct builder *builder, const char *data, size_t length);
void kvr_builder_add_byte(struct builder *builder, char byte);
void kvr_builder_add_text(struct builder *builder, const struct text *text);
void kvr_builder_add_point(struct builder *builder, uint32_t point);
void kvr_builder_add_repr(struct builder *builder, struct value value);
void kvr_builder_pad(struct builder *builder, const char *fill, size_t length, size_t times);
struct text *kvr_builder_end(struct builder *builder);

/* ---- Unicode, as Python's str sees it ---- */
uint32_t kvr_point_read(const char *data, size_t length, size_t *used);
size_t kvr_point_write(char out[4], uint32_t point);
bool kvr_point_space(uint32_t point);
bool kvr_point_printable(uint32_t point);
int kvr_point_decimal_value(uint32_t point); /* -1: not a decimal digit */
/* Classes of a code point, in the order of template_unicode_table.py. */
enum {
    POINT_PRINTABLE = 1,
    POINT_ALPHA = 2,
    POINT_UPPER = 4,
    POINT_LOWER = 8,
    POINT_TITLE = 0x10,
    POINT_CASED = 0x20,
    POINT_IGNORABLE = 0x40, /* left aside when a word's end is looked for */
    POINT_DECIMAL = 0x80,
    POINT_DIGIT = 0x100,
    POINT_NUMERIC = 0x200,
    POINT_ID_START = 0x400,
    POINT_ID_CONTINUE = 0x800,
};
unsigned kvr_point_bits(uint32_t point);
enum case_kind { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_FOLD };
struct text *kvr_text_upper(struct run *run, struct text *text);
struct text *kvr_text_lower(struct run *run, struct text *text);
struct text *kvr_text_casefold(struct run *run, struct text *text);
struct text *kvr_text_capitalize(struct run *run, struct text *text);
struct text *kvr_text_title(struct run *run, struct text *text); /* str.title() */
struct text *kvr_text_swapcase(struct run *run, struct text *text);
/* The word at text[start:end] as the title filter writes it. */
void kvr_builder_add_title(struct builder *builder, struct text *text, size_t start, size_t end);
void kvr_text_charge_set(struct run *run, const struct text *text, const struct text *characters);
size_t kvr_text_strip_left(const struct text *text, const struct text *characters, size_t end);
size_t kvr_text_strip_right(const struct text *text, const struct text *characters, size_t start);
struct text *kvr_text_strip(struct run *run, struct text *text, const struct text *characters);
struct text *kvr_text_replace(
    struct run *run, struct text *text, struct text *old, struct text *new, int64_t count);
struct list *kvr_text_lines(struct run *run, struct text *text, bool keep_ends);
const char *kvr_bytes_find(
    const char *data, size_t length, const char *needle, size_t needle_length);

/* ---- JSON ---- */
struct value kvr_json_read(struct run *run, const char *json, size_t length, bool trusted);
/* The same; false, and nothing raised, where the text is no JSON. */
bool kvr_json_try(
    struct run *run, const char *json, size_t length, bool trusted, struct value *value);

#endif
