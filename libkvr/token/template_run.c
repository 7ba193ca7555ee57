/*
 * One rendering from start to end, and how it fails.
 */
#include "token/template_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct kvr_template_limits defaults = {
    .steps = 50000000, .output_bytes = 256 << 20, .memory_bytes = 1u << 30, .depth = 2000};

/* ---- failing ---- */

static _Noreturn void fail(struct run *run, enum kvr_status status, const char *kind,
    const char *format, va_list arguments)
{
    run->status = status;
    run->kind = kind;
    vsnprintf(run->message, sizeof run->message, format, arguments);
    longjmp(run->escape, 1);
}

_Noreturn void kvr_run_raise(struct run *run, const char *kind, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(run, KVR_BAD_INPUT, kind, format, arguments);
}

_Noreturn void kvr_run_unsupported(struct run *run, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(run, KVR_UNSUPPORTED, "not supported", format, arguments);
}

static _Noreturn void fail_bound(struct run *run, enum kvr_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(run, status, "Limit", format, arguments);
}

_Noreturn void kvr_run_no_memory(struct run *run)
{
    fail_bound(run, KVR_NO_MEMORY, "the rendering needs more than %zu bytes of memory",
        run->limits.memory_bytes);
}

_Noreturn void kvr_run_too_long(struct run *run)
{
    fail_bound(run, KVR_BAD_INPUT, "the rendering takes more than %llu steps",
        (unsigned long long)run->limits.steps);
}

_Noreturn void kvr_run_too_deep(struct run *run)
{
    kvr_run_raise(run, "RecursionError", "the rendering is nested more than %u levels deep",
        run->limits.depth);
}

const char *kvr_run_show(struct run *run, struct value value)
{
    const struct text *repr;
    char *shown;
    size_t length;
    if (value.type == VALUE_TEXT && value.text->origin != ORIGIN_TEMPLATE)
        return "'...'";
    repr = kvr_jinja_repr(run, value);
    if (repr->origin != ORIGIN_TEMPLATE)
        return "...";
    length = repr->length < 200 ? repr->length : 200;
    shown = kvr_run_take(run, length + 1);
    memcpy(shown, repr->data, length);
    shown[length] = 0;
    return shown;
}

/* As jinja2's object_type_repr(). */
static const char *object_name(struct value object, char out[64])
{
    const char *module =
        object.type == VALUE_NAMESPACE || object.type == VALUE_CYCLER || object.type == VALUE_JOINER
            ? "jinja2.utils."
        : object.type == VALUE_LOOP || object.type == VALUE_MACRO ? "jinja2.runtime."
        : object.type == VALUE_TEXT && object.text->markup        ? "markupsafe."
                                                                  : "";
    if (object.type == VALUE_NONE)
        return "None";
    snprintf(out, 64, "%s%s object", module, kvr_jinja_type_name(object));
    return out;
}

_Noreturn void kvr_run_undefined(struct run *run, const struct undefined *undefined)
{
    char object[64];
    const char *name;
    if (undefined->hint)
        kvr_run_raise(run, undefined->exception, "%.*s", kvr_text_width(undefined->hint),
            kvr_text_shown(undefined->hint));
    name = kvr_run_show(run, undefined->name);
    if (!kvr_given(undefined->object))
        kvr_run_raise(run, undefined->exception, "%s is undefined", name);
    if (undefined->name.type != VALUE_TEXT)
        kvr_run_raise(run, undefined->exception, "%s has no element %s",
            object_name(undefined->object, object), name);
    kvr_run_raise(run, undefined->exception, "'%s' has no attribute %s",
        object_name(undefined->object, object), name);
}

/* ---- the run ---- */

struct kvr_template_run *kvr_template_run_new(
    const struct kvr_template_limits *limits, int64_t now_ms)
{
    struct kvr_template_run *made = calloc(1, sizeof *made);
    struct kvr_template_limits *own;
    if (!made)
        return NULL;
    own = &made->run.limits;
    *own = limits ? *limits : defaults;
    own->steps = own->steps ? own->steps : defaults.steps;
    own->output_bytes = own->output_bytes ? own->output_bytes : defaults.output_bytes;
    own->memory_bytes = own->memory_bytes ? own->memory_bytes : defaults.memory_bytes;
    own->depth = own->depth ? own->depth : defaults.depth;
    made->run.now_ms = now_ms;
    return made;
}

void kvr_run_reset(struct run *run)
{
    kvr_arena_reset(&run->objects);
    kvr_arena_reset(&run->texts);
    run->steps_left = run->limits.steps;
    run->depth = 0;
    run->line = 0;
    run->scope = NULL;
    run->globals = NULL;
    run->pieces = NULL;
    run->piece_count = run->piece_capacity = run->piece_base = 0;
    run->mark_count = 0;
    run->captures = 0;
    run->odd_item = NULL;
    run->status = KVR_OK;
    run->kind = "";
    run->raised = false;
    run->message[0] = 0;
}

void kvr_template_run_free(struct kvr_template_run *made)
{
    if (!made)
        return;
    kvr_arena_release(&made->run.objects);
    kvr_arena_release(&made->run.texts);
    free(made);
}

/* Captures end where the next piece may begin: merges what touches, at the very end. */
static void merge_pieces(struct run *run)
{
    size_t kept = 0;
    for (size_t i = 0; i < run->piece_count; i++) {
        if (kept && run->pieces[kept - 1].end == run->pieces[i].start)
            run->pieces[kept - 1].end = run->pieces[i].end;
        else
            run->pieces[kept++] = run->pieces[i];
    }
    run->piece_count = kept;
}

void kvr_run_template(struct run *run, const struct kvr_template *compiled, struct dict *context)
{
    run->compiled = compiled;
    run->globals = kvr_run_array(run, compiled->symbol_count, sizeof *run->globals);
    for (size_t i = 0; i < compiled->symbol_count; i++) {
        struct text *name = compiled->symbols[i];
        const struct value *given = kvr_dict_find_text(context, name);
        const struct function *function = kvr_function_find(name->data, name->length);
        if (given)
            run->globals[i] = *given;
        else if (function)
            run->globals[i] = (struct value){.type = VALUE_FUNCTION, .function = function};
        else
            run->globals[i] = kvr_missing();
    }
    run->out_start = run->out->length;
    kvr_run_body(run, &compiled->body);
    kvr_run_check_items(run);
    merge_pieces(run);
}

enum kvr_status kvr_run_failed(const struct run *run, size_t out_length,
    struct kvr_template_fault *fault, struct kvr_error *error)
{
    char shown[480];
    run->out->length = out_length;
    run->out->failed = false;
    if (fault) {
        fault->raised = run->raised;
        fault->line = run->line;
        fault->kind = run->kind;
    }
    kvr_printable(shown, sizeof shown, run->message, strlen(run->message));
    if (run->line)
        return kvr_error_set(
            error, run->status, "template line %u: %s: %s", run->line, run->kind, shown);
    return kvr_error_set(error, run->status, "template: %s: %s", run->kind, shown);
}

bool kvr_run_protect(struct run *run, void (*body)(struct run *run, void *state), void *state)
{
    if (setjmp(run->escape))
        return false;
    body(run, state);
    return true;
}

struct rendering {
    const struct kvr_template *compiled;
    const struct kvr_template_variable *variables;
    size_t count;
};

static void render(struct run *run, void *state)
{
    const struct rendering *rendering = state;
    struct dict *context = kvr_dict_new(run, rendering->count);
    for (size_t i = 0; i < rendering->count; i++) {
        const struct kvr_template_variable *variable = &rendering->variables[i];
        kvr_dict_set_name(run, context, variable->name,
            kvr_json_read(run, variable->json, variable->json_length, variable->trusted));
    }
    kvr_run_template(run, rendering->compiled, context);
}

enum kvr_status kvr_template_render(const struct kvr_template *compiled,
    struct kvr_template_run *made, const struct kvr_template_variable *variables, size_t count,
    struct kvr_buffer *out, struct kvr_template_fault *fault, struct kvr_error *error)
{
    struct rendering rendering = {compiled, variables, count};
    size_t out_length = out->length;
    kvr_run_reset(&made->run);
    made->run.out = out;
    if (kvr_run_protect(&made->run, render, &rendering))
        return KVR_OK;
    made->run.piece_count = 0;
    return kvr_run_failed(&made->run, out_length, fault, error);
}

const struct kvr_template_range *kvr_template_trace(
    const struct kvr_template_run *made, size_t *count)
{
    *count = made->run.piece_count;
    return made->run.pieces;
}
