/*
 * A rendering: its state, how it fails, and the walk over the tree.
 *
 * Failure is a jump back to the start of the rendering (kvr_run_raise): jinja2's semantics are
 * those of Python's exceptions, every operation can raise, and no template can catch. Nothing
 * between the start and a raise owns memory outside the arenas and the output buffer.
 */
#ifndef KVR_TOKEN_TEMPLATE_RUN_H
#define KVR_TOKEN_TEMPLATE_RUN_H

#include "token/template_text.h"
#include "token/template_tree.h"

#include <setjmp.h>

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

/* ---- failing ---- */
_Noreturn void kvr_run_raise(struct run *run, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void kvr_run_unsupported(struct run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void kvr_run_no_memory(struct run *run);
/* repr() for a message, "..." for what comes from content. */
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
