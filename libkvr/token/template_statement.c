/*
 * Running statements, and printing.
 *
 * Everything is printed into one buffer, the caller's; what a macro, a set block or a filter block
 * prints is cut off its end again and becomes a string (a capture). With the bytes go the pieces,
 * the ranges of them that are content: two that touch become one, but not across the start of a
 * capture.
 *
 * Scopes are jinja2's: a loop's body (each turn anew), a macro, a call, filter or set block, `with`
 * and generation blocks have one of their own, `if` has none. A scope is a short list of names; the
 * template's own level is an array by name.
 */
#include "token/template_internal.h"

#include <string.h>

/* ---- printing ---- */

static void add_piece(struct run *run, size_t start, size_t end)
{
    if (start >= end)
        return;
    if (run->piece_count > run->piece_base && run->pieces[run->piece_count - 1].end == start) {
        run->pieces[run->piece_count - 1].end = end;
        return;
    }
    if (run->piece_count == run->piece_capacity) {
        size_t capacity = run->piece_capacity ? run->piece_capacity * 2 : 64;
        struct kvr_template_range *grown = kvr_run_array(run, capacity, sizeof *grown);
        if (run->piece_count)
            memcpy(grown, run->pieces, run->piece_count * sizeof *grown);
        run->pieces = grown;
        run->piece_capacity = capacity;
    }
    run->pieces[run->piece_count++] = (struct kvr_template_range){start, end};
}

void kvr_run_print(struct run *run, const struct text *text)
{
    size_t at = run->out->length - run->out_start;
    if (text->length > run->limits.output_bytes - at)
        kvr_run_raise(
            run, "Limit", "more than %zu bytes of text rendered", run->limits.output_bytes);
    kvr_run_charge(run, text->length);
    kvr_buffer_append(run->out, text->data, text->length);
    if (run->out->failed)
        kvr_run_no_memory(run);
    if (text->origin == ORIGIN_CONTENT)
        add_piece(run, at, at + text->length);
    for (size_t i = 0; text->origin == ORIGIN_MIXED && i < text->range_count; i++)
        add_piece(run, at + text->ranges->items[i].start, at + text->ranges->items[i].end);
}

struct capture kvr_capture_begin(struct run *run)
{
    struct capture capture = {
        run->out->length - run->out_start, run->piece_count, run->piece_base, run->odd_item};
    run->odd_item = NULL;
    run->piece_base = run->piece_count;
    if (!run->captures++)
        run->captured_from = capture.length;
    return capture;
}

struct text *kvr_capture_end(struct run *run, struct capture capture)
{
    size_t length = run->out->length - run->out_start - capture.length;
    size_t count = run->piece_count - capture.piece_count;
    const struct kvr_template_range *pieces = count ? run->pieces + capture.piece_count : NULL;
    struct text *text;
    kvr_run_check_items(run);
    run->odd_item = capture.odd_item;
    text =
        kvr_text_copy(run, length ? run->out->data + run->out_start + capture.length : "", length);
    if (count == 1 && pieces[0].start == capture.length &&
        pieces[0].end == capture.length + length) {
        text->origin = ORIGIN_CONTENT;
    } else if (count) {
        text->origin = ORIGIN_MIXED;
        text->ranges = kvr_run_take(run, sizeof *text->ranges);
        text->ranges->items = kvr_run_array(run, count, sizeof *text->ranges->items);
        text->ranges->used = text->ranges->capacity = text->range_count = count;
        for (size_t i = 0; i < count; i++)
            text->ranges->items[i] = (struct kvr_template_range){
                pieces[i].start - capture.length, pieces[i].end - capture.length};
    }
    run->out->length = run->out_start + capture.length;
    run->piece_count = capture.piece_count;
    run->piece_base = capture.piece_base;
    run->captures--;
    return text;
}

/* Prints a sum of strings operand by operand instead of adding them up first. The sum raises where
 * printing would: when an operand after the first is no string. A first operand that is none is
 * left to the real addition, and so is Markup, which changes what was printed: that is taken back
 * then. Returns false with the sum in *value if it is not printed. */
static bool print_sum(
    struct run *run, const struct node *node, struct capture capture, struct value *value)
{
    struct value right;
    bool printed;
    if (node->kind != NODE_BINARY || node->op != OP_ADD) {
        *value = kvr_run_evaluate(run, node);
        if (value->type != VALUE_TEXT || value->text->markup)
            return false;
        kvr_run_print(run, value->text);
        return true;
    }
    kvr_run_charge(run, 0);
    kvr_run_enter(run);
    printed = print_sum(run, node->first, capture, value);
    right = kvr_run_evaluate(run, node->second);
    kvr_run_leave(run);
    if (printed && right.type == VALUE_TEXT && !right.text->markup) {
        kvr_run_print(run, right.text);
        return true;
    }
    if (printed)
        *value = kvr_text_value(kvr_capture_end(run, capture));
    *value = kvr_jinja_binary(run, OP_ADD, *value, right);
    return false;
}

static void print_node(struct run *run, const struct node *node)
{
    struct value value;
    if (node->kind == NODE_CONSTANT && node->value.type == VALUE_TEXT) {
        kvr_run_print(run, node->value.text);
        return;
    }
    run->line = node->line;
    if (node->kind == NODE_BINARY && node->op == OP_ADD) {
        unsigned captures = run->captures;
        struct capture capture = kvr_capture_begin(run);
        bool printed = print_sum(run, node, capture, &value);
        /* Left open, or ended on the way. */
        run->piece_base = capture.piece_base;
        run->captures = captures;
        run->odd_item = capture.odd_item;
        if (printed)
            return;
    } else {
        value = kvr_run_evaluate(run, node);
    }
    kvr_run_print(run, kvr_jinja_string(run, value));
}

/* ---- scopes and assignment ---- */

struct scope *kvr_scope_new(struct run *run, struct scope *parent)
{
    struct scope *scope = kvr_run_take(run, sizeof *scope);
    *scope = (struct scope){.parent = parent};
    return scope;
}

void kvr_scope_set(struct run *run, struct scope *scope, unsigned symbol, struct value value)
{
    if (!scope) {
        run->globals[symbol] = value;
        return;
    }
    for (unsigned i = 0; i < scope->count; i++) {
        if (scope->items[i].symbol == symbol) {
            scope->items[i].value = value;
            return;
        }
    }
    if (scope->count == scope->capacity) {
        unsigned capacity = scope->capacity ? scope->capacity * 2 : 4;
        struct binding *grown = kvr_run_array(run, capacity, sizeof *grown);
        if (scope->count)
            memcpy(grown, scope->items, scope->count * sizeof *grown);
        scope->items = grown;
        scope->capacity = capacity;
    }
    scope->items[scope->count++] = (struct binding){symbol, value};
}

static void assign_tuple(struct run *run, const struct node *target, struct value value)
{
    struct iterator *iterator;
    struct value item;
    if (!kvr_jinja_iterable(value))
        kvr_run_raise(
            run, "TypeError", "cannot unpack non-iterable %s object", kvr_jinja_type_name(value));
    iterator = kvr_jinja_iterate(run, value);
    for (size_t i = 0; i < target->items.count; i++) {
        if (!kvr_iterator_next(run, iterator, &item))
            kvr_run_raise(run, "ValueError", "not enough values to unpack (expected %zu, got %zu)",
                target->items.count, i);
        kvr_run_assign(run, target->items.items[i], item);
    }
    if (kvr_iterator_next(run, iterator, &item))
        kvr_run_raise(
            run, "ValueError", "too many values to unpack (expected %zu)", target->items.count);
}

static struct value need_namespace(struct run *run, const struct node *target)
{
    struct value value = kvr_scope_find(run, target->symbol);
    if (value.type != VALUE_NAMESPACE)
        kvr_run_raise(
            run, "TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    return value;
}

static void check_members(struct run *run, const struct node *target)
{
    if (target->kind == NODE_MEMBER)
        need_namespace(run, target);
    for (size_t i = 0; target->kind == NODE_TUPLE && i < target->items.count; i++)
        check_members(run, target->items.items[i]);
}

void kvr_run_assign(struct run *run, const struct node *target, struct value value)
{
    if (target->kind == NODE_NAME) {
        kvr_scope_set(run, run->scope, target->symbol, value);
    } else if (target->kind == NODE_TUPLE) {
        kvr_run_enter(run);
        assign_tuple(run, target, value);
        kvr_run_leave(run);
    } else {
        struct value space = need_namespace(run, target);
        if (target->value.text->data[0] == '_')
            kvr_run_raise(run, "SecurityError",
                "Chat templates cannot store underscore-prefixed attributes on a namespace, but "
                "got '%.*s'. Please rename the attribute.",
                (int)target->value.text->length, target->value.text->data);
        kvr_dict_set(run, space.dict, target->value, value);
    }
}

/* ---- statements ---- */

static enum flow run_scoped(struct run *run, const struct body *body)
{
    struct scope *outer = run->scope;
    enum flow flow;
    run->scope = kvr_scope_new(run, outer);
    flow = kvr_run_body(run, body);
    run->scope = outer;
    return flow;
}

static struct value run_captured(struct run *run, const struct node *node)
{
    struct scope *outer = run->scope;
    struct capture capture = kvr_capture_begin(run);
    struct value value;
    run->scope = kvr_scope_new(run, outer);
    kvr_run_body(run, &node->items);
    value = kvr_text_value(kvr_capture_end(run, capture));
    if (node->second)
        value = kvr_run_filter(run, node->second, value);
    run->scope = outer;
    return value;
}

static struct value make_macro(struct run *run, const struct node *node)
{
    struct value value = {.type = VALUE_MACRO};
    value.macro = kvr_run_take(run, sizeof *value.macro);
    *value.macro = (struct macro){node, node->signature, run->scope};
    for (struct scope *scope = run->scope; scope && !scope->captured; scope = scope->parent)
        scope->captured = true;
    return value;
}

/* What a filter or call block yields goes into the text as it is: jinja2 makes no string of it, and
 * fails when it joins the text. */
static void print_result(struct run *run, struct value value)
{
    if (value.type == VALUE_TEXT)
        kvr_run_print(run, value.text);
    else if (!run->odd_item)
        run->odd_item = kvr_jinja_type_name(value);
}

void kvr_run_check_items(struct run *run)
{
    if (run->odd_item)
        kvr_run_raise(
            run, "TypeError", "sequence item 0: expected str instance, %s found", run->odd_item);
}

static void run_call_block(struct run *run, const struct node *node)
{
    const struct node *call_node = node->first;
    struct value caller = make_macro(run, node);
    struct value callee = kvr_run_evaluate(run, call_node->first);
    struct call *call = kvr_run_arguments(run, call_node->arguments, 1);
    call->keywords[call->keyword_count++] =
        (struct keyword){run->compiled->symbols[run->compiled->symbol_caller], caller};
    print_result(run, kvr_jinja_call(run, callee, call));
}

static enum flow run_with(struct run *run, const struct node *node)
{
    struct scope *outer = run->scope;
    struct scope *inner = kvr_scope_new(run, outer);
    enum flow flow;
    for (size_t i = 0; i + 1 < node->otherwise.count; i += 2) {
        struct value value = kvr_run_evaluate(run, node->otherwise.items[i + 1]);
        run->scope = inner;
        kvr_run_assign(run, node->otherwise.items[i], value);
        run->scope = outer;
    }
    run->scope = inner;
    flow = kvr_run_body(run, &node->items);
    run->scope = outer;
    return flow;
}

static enum flow run_node(struct run *run, const struct node *node)
{
    switch (node->kind) {
    case NODE_OUTPUT:
        for (size_t i = 0; i < node->items.count; i++)
            print_node(run, node->items.items[i]);
        return FLOW_ON;
    case NODE_IF:
        return kvr_run_body(run, kvr_jinja_truth(run, kvr_run_evaluate(run, node->first))
                                     ? &node->items
                                     : &node->otherwise);
    case NODE_FOR:
        return kvr_run_for(run, node);
    case NODE_SET:
        check_members(run, node->first);
        kvr_run_assign(run, node->first, kvr_run_evaluate(run, node->second));
        return FLOW_ON;
    case NODE_SET_BLOCK:
        kvr_run_assign(run, node->first, run_captured(run, node));
        return FLOW_ON;
    case NODE_FILTER_BLOCK:
        print_result(run, run_captured(run, node));
        return FLOW_ON;
    case NODE_MACRO:
        kvr_scope_set(run, run->scope, node->signature->symbol, make_macro(run, node));
        return FLOW_ON;
    case NODE_CALL_BLOCK:
        run_call_block(run, node);
        return FLOW_ON;
    case NODE_WITH:
        return run_with(run, node);
    case NODE_SCOPE:
        return run_scoped(run, &node->items);
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        kvr_run_unsupported(run, "statement");
    }
}

enum flow kvr_run_body(struct run *run, const struct body *body)
{
    enum flow flow = FLOW_ON;
    kvr_run_enter(run);
    for (size_t i = 0; i < body->count && flow == FLOW_ON; i++) {
        kvr_run_charge(run, 0);
        run->line = body->items[i]->line;
        flow = run_node(run, body->items[i]);
    }
    kvr_run_leave(run);
    return flow;
}

/* ---- macros ---- */

static struct value take_keyword(struct call *left, const struct text *name)
{
    for (size_t i = 0; i < left->keyword_count; i++) {
        struct value value = left->keywords[i].value;
        if (!kvr_text_equal(left->keywords[i].name, name))
            continue;
        memmove(left->keywords + i, left->keywords + i + 1,
            (left->keyword_count - i - 1) * sizeof *left->keywords);
        left->keyword_count--;
        return value;
    }
    return kvr_missing();
}

/* Sorts the arguments into the scope as jinja2's Macro.__call__ does. */
static void bind_macro(struct run *run, const struct signature *signature, const struct call *call,
    struct scope *scope)
{
    const struct kvr_template *compiled = run->compiled;
    struct call left = *call;
    char shown[64] = "None";
    if (signature->name)
        kvr_printable(shown, sizeof shown, signature->name->data, signature->name->length);
    left.keywords = kvr_run_array(run, call->keyword_count + 1, sizeof *left.keywords);
    if (call->keyword_count)
        memcpy(left.keywords, call->keywords, call->keyword_count * sizeof *left.keywords);
    for (size_t i = 0; i < signature->count; i++) {
        struct value value =
            i < call->count ? call->items[i] : take_keyword(&left, signature->names[i]);
        kvr_scope_set(run, scope, signature->symbols[i], value);
    }
    if (signature->uses_caller) {
        struct value caller = take_keyword(&left, compiled->symbols[compiled->symbol_caller]);
        if (!kvr_given(caller) || caller.type == VALUE_NONE)
            caller = kvr_undefined_hint(run, "No caller defined");
        kvr_scope_set(run, scope, compiled->symbol_caller, caller);
    }
    if (signature->uses_kwargs) {
        struct dict *rest = kvr_dict_new(run, left.keyword_count);
        for (size_t i = 0; i < left.keyword_count; i++)
            kvr_dict_set(run, rest, kvr_text_value(left.keywords[i].name), left.keywords[i].value);
        kvr_scope_set(run, scope, compiled->symbol_kwargs, kvr_dict_value(rest));
    } else if (left.keyword_count) {
        for (size_t i = 0; i < left.keyword_count; i++)
            if (kvr_template_text_is(left.keywords[i].name, "caller"))
                kvr_run_raise(run, "TypeError",
                    "macro '%s' was invoked with two values for the "
                    "special caller argument. This is most likely a bug.",
                    shown);
        kvr_run_raise(run, "TypeError", "macro '%s' takes no keyword argument '%.*s'", shown,
            kvr_text_width(left.keywords[0].name), kvr_text_shown(left.keywords[0].name));
    }
    if (signature->uses_varargs) {
        struct list *rest = kvr_list_new(run, 0);
        for (size_t i = signature->count; i < call->count; i++)
            kvr_list_add(run, rest, call->items[i]);
        kvr_scope_set(run, scope, compiled->symbol_varargs, kvr_tuple_value(rest));
    } else if (call->count > signature->count) {
        kvr_run_raise(run, "TypeError", "macro '%s' takes not more than %zu argument(s)", shown,
            signature->count);
    }
}

struct value kvr_macro_call(struct run *run, struct macro *macro, const struct call *call)
{
    const struct signature *signature = macro->signature;
    struct scope *outer = run->scope;
    struct scope *scope = kvr_scope_new(run, macro->scope);
    unsigned line = run->line;
    struct capture capture;
    struct value value;
    kvr_run_enter(run);
    bind_macro(run, signature, call, scope);
    capture = kvr_capture_begin(run);
    run->scope = scope;
    for (size_t i = 0; i < signature->count; i++) {
        if (kvr_given(scope->items[i].value))
            continue;
        if (signature->defaults[i])
            value = kvr_run_evaluate(run, signature->defaults[i]);
        else
            value = kvr_undefined_text(
                run, kvr_text_format(run, "parameter '%.*s' was not provided",
                         kvr_text_width(signature->names[i]), kvr_text_shown(signature->names[i])));
        kvr_scope_set(run, scope, signature->symbols[i], value);
    }
    kvr_run_body(run, &macro->node->items);
    value = kvr_text_value(kvr_capture_end(run, capture));
    run->scope = outer;
    run->line = line;
    kvr_run_leave(run);
    return value;
}
