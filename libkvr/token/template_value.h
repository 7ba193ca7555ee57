/*
 * The values of templates, which are Python's, and what Python's operations make of them.
 *
 * All of them live in two arenas of the run, one for objects, one for the bytes of strings, and die
 * together when the run is reset. No value is ever freed alone, so there are no reference counts.
 * Strings of the context point into the caller's JSON text where they can. Operations raise
 * (kvr_run_raise) where Python's do.
 */
#ifndef KVR_TOKEN_TEMPLATE_VALUE_H
#define KVR_TOKEN_TEMPLATE_VALUE_H

#include "token/template.h"

/* ---- memory ---- */

struct arena_chunk;
struct arena {
    struct arena_chunk *chunks; /* newest first */
    char *next;
    char *end;
    size_t total_bytes; /* in all chunks */
};

void *kvr_arena_take(struct arena *arena, size_t bytes, size_t limit_bytes);
void kvr_arena_reset(struct arena *arena);
void kvr_arena_release(struct arena *arena);

/* ---- values ---- */

enum value_type {
    VALUE_MISSING, /* no value: an argument that was not given */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INTEGER,
    VALUE_BIG, /* an integer beyond 64 bits, as decimal text */
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_RANGE,
    VALUE_VIEW, /* dict.keys(), .values(), .items() */
    VALUE_ITERATOR,
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_FUNCTION, /* a global function */
    VALUE_METHOD,   /* bound to its object */
    VALUE_LOOP,
    VALUE_CYCLER,
    VALUE_JOINER,
};

enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct value {
    uint8_t type;
    uint8_t kind; /* of a view */
    uint16_t method;
    union {
        bool truth;
        int64_t integer;
        double real;
        struct text *text;
        struct list *list;
        struct dict *dict;
        struct range_value *range;
        struct iterator *iterator;
        struct macro *macro;
        const struct function *function;
        struct bound *bound;
        struct loop *loop;
        struct cycler *cycler;
        struct undefined *undefined;
    };
};

enum origin { ORIGIN_TEMPLATE, ORIGIN_CONTENT, ORIGIN_MIXED };

/* Ranges that a growing string shares with its prefixes: a string sees its first range_count ones.
 */
struct ranges {
    size_t used;
    size_t capacity;
    struct kvr_template_range *items;
};

struct text {
    const char *data;
    size_t length;  /* bytes */
    size_t points;  /* code points; SIZE_MAX: not counted yet */
    uint32_t hash;  /* 0: not computed yet */
    bool markup;    /* markupsafe.Markup: escapes what is added to it */
    uint8_t origin; /* enum origin */
    struct ranges *ranges;
    size_t range_count;
};

struct list {
    struct value *items;
    size_t count;
    size_t capacity;
    bool printing;
};

struct entry {
    struct value key;
    struct value value;
    uint32_t hash;
};

struct dict {
    struct entry *entries; /* in insertion order */
    size_t count;
    size_t capacity;
    uint32_t *index; /* open addressing, entry + 1; NULL while the dict is small */
    size_t index_size;
    size_t mark; /* number of its mark, from 1; 0: none */
    bool printing;
};

struct range_value {
    int64_t start;
    int64_t stop;
    int64_t step;
    size_t count;
};

struct run;

struct iterator {
    bool (*next)(struct run *run, struct iterator *iterator, struct value *out);
    const char *type_name; /* as Python's type().__name__ */
    struct value source;
    struct iterator *inner;
    size_t position;
    struct call *call;
    const void *operation; /* a filter, a test or a node */
    struct value extra;
    struct scope *scope;
    bool flag;
    bool done;
};

struct undefined {
    struct text *hint;   /* or NULL */
    struct value object; /* VALUE_MISSING: a plain name */
    struct value name;
    const char *exception;
};

struct bound {
    struct value self;
};

struct cycler {
    struct list *items;
    size_t position;
};

/* Arguments of one call, evaluated. */
struct keyword {
    struct text *name;
    struct value value;
};

struct call {
    struct value *items;
    size_t count;
    struct keyword *keywords;
    size_t keyword_count;
};

struct function {
    const char *name;
    struct value (*call)(struct run *run, const struct call *call);
};

struct filter {
    const char *name;
    struct value (*apply)(struct run *run, struct value value, const struct call *call);
};

struct test {
    const char *name;
    bool (*check)(struct run *run, struct value value, const struct call *call);
};

/* ---- operators ---- */
enum operator{
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
};

/* ---- making values ---- */
void *kvr_run_take(struct run *run, size_t bytes);
void *kvr_run_array(struct run *run, size_t count, size_t size);
/* Room for `length` bytes of a new string. */
char *kvr_run_bytes(struct run *run, size_t length);
/* Gives back the last `unused` bytes of the newest string space. */
void kvr_run_bytes_trim(struct run *run, size_t unused);

static inline struct value kvr_none(void)
{
    return (struct value){.type = VALUE_NONE};
}
static inline struct value kvr_missing(void)
{
    return (struct value){.type = VALUE_MISSING};
}
static inline struct value kvr_bool(bool truth)
{
    return (struct value){.type = VALUE_BOOL, .truth = truth};
}
static inline struct value kvr_integer(int64_t integer)
{
    return (struct value){.type = VALUE_INTEGER, .integer = integer};
}
static inline struct value kvr_float(double real)
{
    return (struct value){.type = VALUE_FLOAT, .real = real};
}
static inline struct value kvr_text_value(struct text *text)
{
    return (struct value){.type = VALUE_TEXT, .text = text};
}
static inline struct value kvr_list_value(struct list *list)
{
    return (struct value){.type = VALUE_LIST, .list = list};
}
static inline struct value kvr_tuple_value(struct list *list)
{
    return (struct value){.type = VALUE_TUPLE, .list = list};
}
static inline struct value kvr_dict_value(struct dict *dict)
{
    return (struct value){.type = VALUE_DICT, .dict = dict};
}
static inline struct value kvr_iterator_value(struct iterator *iterator)
{
    return (struct value){.type = VALUE_ITERATOR, .iterator = iterator};
}
static inline bool kvr_given(struct value value)
{
    return value.type != VALUE_MISSING;
}

/* Strings. `new` refers to data, which must live as long as the run. */
struct text *kvr_text_new(struct run *run, const char *data, size_t length);
struct text *kvr_text_literal(struct run *run, const char *text);
struct text *kvr_text_copy(struct run *run, const char *data, size_t length);
struct text *kvr_text_format(struct run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A part of a string, with its part of the pieces. */
struct text *kvr_text_cut(struct run *run, const struct text *text, size_t start, size_t end);
struct text *kvr_text_join(struct run *run, const struct text *left, const struct text *right);
/* Marks a string made out of `source` by an operation that moves bytes: content if any of it was.
 */
struct text *kvr_text_from(struct text *made, const struct text *source);
size_t kvr_text_points(struct text *text);
/* Byte offset of code point `point`; a point past the end is the length. */
size_t kvr_text_offset(struct text *text, size_t point);
uint32_t kvr_text_hash(struct text *text);
bool kvr_text_equal(const struct text *left, const struct text *right);
bool kvr_template_text_is(const struct text *text, const char *literal);
static inline bool kvr_text_ascii(struct text *text)
{
    return kvr_text_points(text) == text->length;
}

/* A name for "%.*s" in a message. Nothing that comes from content goes into one, however short:
 * messages go to terminals and logs, and a key or a role may be a password. */
static inline const char *kvr_text_shown(const struct text *text)
{
    return text->origin == ORIGIN_TEMPLATE ? text->data : "...";
}

static inline int kvr_text_width(const struct text *text)
{
    if (text->origin != ORIGIN_TEMPLATE)
        return 3;
    return text->length < 200 ? (int)text->length : 200;
}

/* Numbers do not know where they come from. Those of two digits are indices and counts, as a rule;
 * the text of any other counts as content. */
static inline bool kvr_number_says_nothing(struct value value)
{
    return value.type == VALUE_BOOL ||
           (value.type == VALUE_INTEGER && value.integer > -100 && value.integer < 100);
}

struct list *kvr_list_new(struct run *run, size_t capacity);
void kvr_list_add(struct run *run, struct list *list, struct value value);

struct dict *kvr_dict_new(struct run *run, size_t capacity);
struct value *kvr_dict_find(struct run *run, const struct dict *dict, struct value key);
struct value *kvr_dict_find_text(const struct dict *dict, struct text *key);
struct value *kvr_dict_find_name(const struct dict *dict, const char *name);
void kvr_dict_set(struct run *run, struct dict *dict, struct value key, struct value value);
void kvr_dict_set_name(struct run *run, struct dict *dict, const char *name, struct value value);
/* Raises TypeError for a key that cannot be one. */
uint32_t kvr_jinja_hash(struct run *run, struct value value);

struct value kvr_undefined_name(struct run *run, struct text *name);
struct value kvr_undefined_hint(struct run *run, const char *hint);
struct value kvr_undefined_text(struct run *run, struct text *hint);
struct value kvr_undefined_member(struct run *run, struct value object, struct value name);
struct value kvr_undefined_unsafe(struct run *run, struct value object, struct text *name);

/* ---- Python's meaning of values ---- */
const char *kvr_jinja_type_name(struct value value);
bool kvr_jinja_truth(struct run *run, struct value value);
bool kvr_jinja_equal(struct run *run, struct value left, struct value right);
bool kvr_jinja_same(struct value left, struct value right);
/* <0, 0, >0 by Python's order; raises TypeError with the operator's name. */
bool kvr_jinja_less(struct run *run, struct value left, struct value right, enum operator op);
bool kvr_jinja_contains(struct run *run, struct value container, struct value item);
struct value kvr_jinja_binary(
    struct run *run, enum operator op, struct value left, struct value right);
struct value kvr_jinja_negative(struct run *run, struct value value);
struct value kvr_jinja_positive(struct run *run, struct value value);
/* Length; false where Python's len() raises TypeError. */
bool kvr_jinja_length(struct value value, size_t *length);
struct iterator *kvr_jinja_iterate(struct run *run, struct value value);
bool kvr_jinja_iterable(struct value value);
bool kvr_iterator_next(struct run *run, struct iterator *iterator, struct value *out);
struct list *kvr_jinja_to_list(struct run *run, struct value value);
struct iterator *kvr_iterator_new(struct run *run, const char *type_name,
    bool (*next)(struct run *, struct iterator *, struct value *));
struct iterator *kvr_iterator_of_list(struct run *run, const char *type_name, struct list *list);
bool kvr_jinja_as_integer(struct value value, int64_t *out);
int64_t kvr_jinja_need_integer(struct run *run, struct value value);
bool kvr_jinja_as_float(struct value value, double *out);
struct value kvr_integer_from_digits(struct run *run, const char *digits, size_t length);

/* obj[name] and obj.name as the sandbox looks them up, and obj[start:stop:step]. */
struct value kvr_jinja_item(struct run *run, struct value object, struct value key);
struct value kvr_jinja_attribute(
    struct run *run, struct value object, struct text *name, unsigned method);
struct value kvr_jinja_slice(
    struct run *run, struct value object, struct value start, struct value stop, struct value step);

/* ---- sorting ---- */
struct keyed {
    struct value key;
    struct value item;
};
/* Stable, by Python's `<` of the keys. */
void kvr_sort_keyed(struct run *run, struct keyed *items, size_t count, bool reverse);

#endif
