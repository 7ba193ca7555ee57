/*
 * What the files of the template interpreter share.
 *
 * Layout of a rendering: all values live in two arenas of the run, one for objects, one for the
 * bytes of strings, and die together when the run is reset. No value is ever freed alone, so there
 * are no reference counts. Strings of the context point into the caller's JSON text where they can.
 *
 * Failure inside a rendering is a jump back to its start (kvr_run_raise): jinja2's semantics are
 * those of Python's exceptions, every operation can raise, and no template can catch. Nothing
 * between the start and a raise owns memory outside the arenas and the output buffer.
 */
#ifndef KVR_TOKEN_TEMPLATE_INTERNAL_H
#define KVR_TOKEN_TEMPLATE_INTERNAL_H

#include "token/template.h"

#include <setjmp.h>

/* ---- memory ---- */

struct arena_chunk;
struct arena {
    struct arena_chunk *chunks; /* newest first */
    char *next;
    char *end;
    size_t total_bytes; /* in all chunks */
};

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

/* ---- the compiled template ---- */

enum node_kind {
    NODE_CONSTANT,
    NODE_NAME,
    NODE_TUPLE,
    NODE_LIST,
    NODE_DICT, /* items: key, value, key, value */
    NODE_ATTRIBUTE,
    NODE_ITEM,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_NOT,
    NODE_AND,
    NODE_OR,
    NODE_CONDITION, /* first if second else third */
    NODE_COMPARE,   /* first, then items with operators */
    NODE_BINARY,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_CONCAT,
    NODE_MEMBER, /* namespace.attribute as a target */
    NODE_OUTPUT,
    NODE_IF, /* first: condition; body; else: `otherwise` */
    NODE_FOR,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_CALL_BLOCK,
    NODE_FILTER_BLOCK,
    NODE_WITH,
    NODE_SCOPE, /* block, generation: a body with a scope of its own */
    NODE_BREAK,
    NODE_CONTINUE,
};

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

struct body {
    struct node **items;
    size_t count;
};

struct argument {
    struct text *name; /* of a keyword argument */
    struct node *value;
};

struct arguments {
    struct body positional;
    struct argument *keywords;
    size_t keyword_count;
    struct node *more_positional; /* *args */
    struct node *more_keywords;   /* **kwargs */
};

struct signature {
    struct text *name; /* NULL: the body of a call block */
    unsigned symbol;
    struct text **names;
    unsigned *symbols;
    struct node **defaults; /* NULL where there is none */
    size_t count;
    bool uses_caller;
    bool uses_varargs;
    bool uses_kwargs;
};

struct node {
    uint8_t kind;
    uint8_t op;
    bool flag; /* recursive loop */
    uint16_t method;
    uint16_t height; /* of the tree under it */
    unsigned line;
    unsigned symbol;
    struct node *first;
    struct node *second;
    struct node *third;
    uint8_t *operators;
    struct body items;
    struct body otherwise;
    struct value value;
    struct arguments *arguments;
    struct signature *signature;
    const struct filter *filter; /* NULL: not known, found out when it runs */
    const struct test *test;
};

struct kvr_template {
    struct arena arena;
    struct body body;
    struct text **symbols;
    size_t symbol_count;
    size_t symbol_capacity;
    unsigned symbol_loop;
    unsigned symbol_caller;
    unsigned symbol_varargs;
    unsigned symbol_kwargs;
    char *source; /* normalised text, for kvr_template_mentions */
    size_t source_length;
};

/* ---- a rendering ---- */

struct binding {
    unsigned symbol;
    struct value value;
};

struct scope {
    struct scope *parent;
    struct binding *items;
    unsigned count;
    unsigned capacity;
    bool captured; /* a macro keeps it: not to be used again */
};

struct macro {
    const struct node *node; /* the body */
    const struct signature *signature;
    struct scope *scope;
};

struct loop {
    struct iterator *iterator;
    const struct node *node; /* of a recursive loop, else NULL */
    struct scope *scope;     /* around the loop */
    struct value previous;
    struct value current;
    struct value peeked;
    bool has_peeked;
    bool ended;
    bool sized;
    size_t length;
    int64_t index0;
    int64_t depth0;
    struct list *changed;
};

struct run {
    jmp_buf escape;
    const struct kvr_template *compiled;
    struct arena objects;
    struct arena texts;
    struct kvr_template_limits limits;
    int64_t now_ms;
    uint64_t steps_left;
    unsigned depth;
    unsigned line;
    struct scope *scope;
    struct value *globals; /* by symbol: variables of the template's own level */
    struct dict *context;
    struct kvr_buffer *out;
    size_t out_start; /* where the rendering begins in out */
    struct kvr_template_range *pieces;
    size_t piece_count;
    size_t piece_capacity;
    size_t piece_base; /* pieces before it belong to text outside the innermost capture */
    unsigned captures; /* open ones, and where the outermost began */
    size_t captured_from;
    size_t *marks; /* where the loop was, last, that walked over a marked dict */
    size_t mark_count;
    const char *odd_item; /* type of what was printed and is no string: an error at the end */
    /* the failure */
    enum kvr_status status;
    const char *kind;
    bool raised;
    char message[400];
};

struct kvr_template_run {
    struct run run;
};

/* ---- arena ---- */
void *kvr_arena_take(struct arena *arena, size_t bytes, size_t limit_bytes);
void kvr_arena_reset(struct arena *arena);
void kvr_arena_release(struct arena *arena);

/* ---- failing ---- */
_Noreturn void kvr_run_raise(struct run *run, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void kvr_run_unsupported(struct run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void kvr_run_no_memory(struct run *run);
/* repr() for a message, without content beyond the length of a name. */
const char *kvr_run_show(struct run *run, struct value value);
_Noreturn void kvr_run_undefined(struct run *run, const struct undefined *undefined);
_Noreturn void kvr_run_too_long(struct run *run);
_Noreturn void kvr_run_too_deep(struct run *run);

static inline void kvr_run_charge(struct run *run, size_t bytes)
{
    uint64_t steps = 1 + bytes / 64;
    if (run->steps_left < steps)
        kvr_run_too_long(run);
    run->steps_left -= steps;
}

static inline void kvr_run_enter(struct run *run)
{
    if (++run->depth > run->limits.depth)
        kvr_run_too_deep(run);
}

static inline void kvr_run_leave(struct run *run)
{
    run->depth--;
}

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

/* Of content, no more than this goes into a message: enough for a role or a key, not for a prompt.
 */
enum { SHOWN_CONTENT_BYTES = 40 };

/* For "%.*s" in a message. */
static inline int kvr_text_width(const struct text *text)
{
    if (text->origin != ORIGIN_TEMPLATE && text->length > SHOWN_CONTENT_BYTES)
        return 0;
    return text->length < 200 ? (int)text->length : 200;
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

/* ---- sorting ---- */
struct keyed {
    struct value key;
    struct value item;
};
/* Stable, by Python's `<` of the keys. */
void kvr_sort_keyed(struct run *run, struct keyed *items, size_t count, bool reverse);

/* ---- calls ---- */
unsigned kvr_method_find(const char *name, size_t length); /* 0: not a method of anything */
/* Whether values of this type have the method; sets *unsafe where the sandbox forbids it. */
bool kvr_method_has(struct value self, unsigned method, bool *unsafe);
struct value kvr_method_call(
    struct run *run, struct value self, unsigned method, const struct call *call);
struct value kvr_jinja_call(struct run *run, struct value callee, const struct call *call);
const struct filter *kvr_filter_find(const char *name, size_t length);
const struct test *kvr_test_find(const char *name, size_t length);
const struct function *kvr_function_find(const char *name, size_t length);
/* Sorts arguments into out[] by name: Python's rules for a function of `count` parameters of which
 * the first `required` have no default. */
void kvr_call_bind(struct run *run, const struct call *call, const char *function,
    const char *const *names, size_t count, size_t required, struct value *out);
struct value kvr_macro_call(struct run *run, struct macro *macro, const struct call *call);
/* loop.index and the like; VALUE_MISSING if it has no such attribute. */
struct value kvr_loop_attribute(struct run *run, struct loop *loop, struct text *name);
/* loop(items) of a recursive loop. */
struct value kvr_loop_call(struct run *run, struct loop *loop, const struct call *call);

/* ---- scopes, statements, expressions ---- */
struct scope *kvr_scope_new(struct run *run, struct scope *parent);
void kvr_scope_set(struct run *run, struct scope *scope, unsigned symbol, struct value value);
struct value kvr_scope_find(const struct run *run, unsigned symbol);
void kvr_run_assign(struct run *run, const struct node *target, struct value value);
struct value kvr_run_evaluate(struct run *run, const struct node *node);
/* Evaluates arguments, with `extra` keyword arguments more room. */
struct call *kvr_run_arguments(struct run *run, const struct arguments *arguments, size_t extra);
/* A filter node or chain; the value of one without an operand is `captured`. */
struct value kvr_run_filter(struct run *run, const struct node *node, struct value captured);
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
enum flow kvr_run_body(struct run *run, const struct body *body);
enum flow kvr_run_for(struct run *run, const struct node *node);

/* What is printed between begin and end becomes a string instead. */
struct capture {
    size_t length;
    size_t piece_count;
    size_t piece_base;
    const char *odd_item;
};
struct capture kvr_capture_begin(struct run *run);
struct text *kvr_capture_end(struct run *run, struct capture capture);
void kvr_run_print(struct run *run, const struct text *text);
void kvr_run_check_items(struct run *run);

/* Renders with a context of values made in this run. */
void kvr_run_template(struct run *run, const struct kvr_template *compiled, struct dict *context);
/* Empties the run for the next rendering. */
void kvr_run_reset(struct run *run);
/* Runs body; false if it raised. */
bool kvr_run_protect(struct run *run, void (*body)(struct run *run, void *state), void *state);
enum kvr_status kvr_run_failed(const struct run *run, size_t out_length,
    struct kvr_template_fault *fault, struct kvr_error *error);

#endif
