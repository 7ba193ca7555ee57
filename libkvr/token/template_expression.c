/*
 * Evaluating expressions: a walk over the tree.
 *
 * What costs time in a chat template is moving message text, not walking nodes, so the walk is
 * plain and the moves are few: constants and the caller's strings are used where they lie, and a
 * sum that is to be printed is printed operand by operand (see template_statement.c).
 */
#include "token/template_internal.h"

#include <string.h>

struct value kvr_scope_find(const struct run *run, unsigned symbol)
{
    for (const struct scope *scope = run->scope; scope; scope = scope->parent)
        for (unsigned i = scope->count; i--;)
            if (scope->items[i].symbol == symbol)
                return scope->items[i].value;
    return run->globals[symbol];
}

static struct value evaluate_name(struct run *run, const struct node *node)
{
    struct value value = kvr_scope_find(run, node->symbol);
    return kvr_given(value) ? value : kvr_undefined_name(run, node->value.text);
}

static struct value evaluate_items(struct run *run, const struct node *node)
{
    struct list *list = kvr_list_new(run, node->items.count);
    for (size_t i = 0; i < node->items.count; i++)
        kvr_list_add(run, list, kvr_run_evaluate(run, node->items.items[i]));
    return node->kind == NODE_TUPLE ? kvr_tuple_value(list) : kvr_list_value(list);
}

static struct value evaluate_dict(struct run *run, const struct node *node)
{
    struct dict *dict = kvr_dict_new(run, node->items.count / 2);
    for (size_t i = 0; i + 1 < node->items.count; i += 2) {
        struct value key = kvr_run_evaluate(run, node->items.items[i]);
        kvr_dict_set(run, dict, key, kvr_run_evaluate(run, node->items.items[i + 1]));
    }
    return kvr_dict_value(dict);
}

static struct value evaluate_part(struct run *run, const struct node *node)
{
    return node ? kvr_run_evaluate(run, node) : kvr_missing();
}

static struct value evaluate_item(struct run *run, const struct node *node)
{
    struct value object = kvr_run_evaluate(run, node->first);
    const struct node *key = node->second;
    struct value start;
    struct value stop;
    if (key->kind != NODE_SLICE)
        return kvr_jinja_item(run, object, kvr_run_evaluate(run, key));
    start = evaluate_part(run, key->first);
    stop = evaluate_part(run, key->second);
    return kvr_jinja_slice(run, object, start, stop, evaluate_part(run, key->third));
}

/* ---- calls ---- */

static void add_keyword(
    struct run *run, struct call *call, struct text *name, struct value value, bool check)
{
    for (size_t i = 0; check && i < call->keyword_count; i++)
        if (kvr_text_equal(call->keywords[i].name, name))
            kvr_run_raise(run, "TypeError", "got multiple values for keyword argument '%.*s'",
                kvr_text_width(name), kvr_text_shown(name));
    call->keywords[call->keyword_count++] = (struct keyword){name, value};
}

struct call *kvr_run_arguments(struct run *run, const struct arguments *arguments, size_t extra)
{
    struct call *call = kvr_run_take(run, sizeof *call);
    struct list *more = NULL;
    struct value more_keywords = kvr_missing();
    size_t positional = arguments ? arguments->positional.count : 0;
    size_t keywords = (arguments ? arguments->keyword_count : 0) + extra;
    *call = (struct call){0};
    if (!arguments && !extra)
        return call;
    if (!positional || (arguments && arguments->more_positional))
        call->items = NULL;
    else
        call->items = kvr_run_array(run, positional, sizeof *call->items);
    if (arguments && arguments->more_positional) {
        struct list *all = kvr_list_new(run, positional);
        for (size_t i = 0; i < positional; i++)
            kvr_list_add(run, all, kvr_run_evaluate(run, arguments->positional.items[i]));
        more = kvr_jinja_to_list(run, kvr_run_evaluate(run, arguments->more_positional));
        for (size_t i = 0; i < more->count; i++)
            kvr_list_add(run, all, more->items[i]);
        call->items = all->items;
        call->count = all->count;
    } else {
        for (size_t i = 0; i < positional; i++)
            call->items[call->count++] = kvr_run_evaluate(run, arguments->positional.items[i]);
    }
    if (keywords || (arguments && arguments->more_keywords)) {
        size_t room = keywords;
        struct value *values = kvr_run_array(run, keywords + 1, sizeof *values);
        for (size_t i = 0; arguments && i < arguments->keyword_count; i++)
            values[i] = kvr_run_evaluate(run, arguments->keywords[i].value);
        if (arguments && arguments->more_keywords) {
            more_keywords = kvr_run_evaluate(run, arguments->more_keywords);
            if (more_keywords.type != VALUE_DICT)
                kvr_run_raise(run, "TypeError", "argument after ** must be a mapping, not %s",
                    kvr_jinja_type_name(more_keywords));
            room += more_keywords.dict->count;
        }
        call->keywords = kvr_run_array(run, room + 1, sizeof *call->keywords);
        for (size_t i = 0; arguments && i < arguments->keyword_count; i++)
            add_keyword(run, call, arguments->keywords[i].name, values[i], false);
        for (size_t i = 0; kvr_given(more_keywords) && i < more_keywords.dict->count; i++) {
            const struct entry *entry = &more_keywords.dict->entries[i];
            if (entry->key.type != VALUE_TEXT)
                kvr_run_raise(run, "TypeError", "keywords must be strings");
            add_keyword(run, call, entry->key.text, entry->value, true);
        }
    }
    return call;
}

static struct value evaluate_call(struct run *run, const struct node *node)
{
    const struct node *callee = node->first;
    struct value object;
    bool unsafe;
    if (callee->kind == NODE_ATTRIBUTE && callee->method) {
        /* object.method(...) without making the bound method in between */
        object = kvr_run_evaluate(run, callee->first);
        if (object.type != VALUE_NAMESPACE && kvr_method_has(object, callee->method, &unsafe) &&
            !unsafe)
            return kvr_method_call(
                run, object, callee->method, kvr_run_arguments(run, node->arguments, 0));
        object = kvr_jinja_attribute(run, object, callee->value.text, callee->method);
    } else {
        object = kvr_run_evaluate(run, callee);
    }
    return kvr_jinja_call(run, object, kvr_run_arguments(run, node->arguments, 0));
}

struct value kvr_jinja_call(struct run *run, struct value callee, const struct call *call)
{
    switch (callee.type) {
    case VALUE_FUNCTION:
        return callee.function->call(run, call);
    case VALUE_METHOD:
        return kvr_method_call(run, callee.bound->self, callee.method, call);
    case VALUE_MACRO:
        return kvr_macro_call(run, callee.macro, call);
    case VALUE_LOOP:
        return kvr_loop_call(run, callee.loop, call);
    case VALUE_UNDEFINED:
        kvr_run_undefined(run, callee.undefined);
    case VALUE_JOINER: {
        struct cycler *joiner = callee.cycler;
        if (!joiner->position++)
            return kvr_text_value(kvr_text_literal(run, ""));
        return joiner->items->items[0];
    }
    default:
        kvr_run_raise(run, "TypeError", "'%s' object is not callable", kvr_jinja_type_name(callee));
    }
}

struct value kvr_run_filter(struct run *run, const struct node *node, struct value captured)
{
    struct value value = captured;
    if (node->first && node->first->kind == NODE_FILTER)
        value = kvr_run_filter(run, node->first, captured);
    else if (node->first)
        value = kvr_run_evaluate(run, node->first);
    if (!node->filter)
        kvr_run_raise(run, "TemplateRuntimeError", "No filter named '%.*s' found.",
            (int)node->value.text->length, node->value.text->data);
    return node->filter->apply(run, value, kvr_run_arguments(run, node->arguments, 0));
}

static bool evaluate_test(struct run *run, const struct node *node)
{
    struct value value = kvr_run_evaluate(run, node->first);
    if (!node->test)
        kvr_run_raise(run, "TemplateRuntimeError", "No test named '%.*s' found.",
            (int)node->value.text->length, node->value.text->data);
    return node->test->check(run, value, kvr_run_arguments(run, node->arguments, 0));
}

/* ---- operators ---- */

static bool compare(struct run *run, enum operator op, struct value left, struct value right)
{
    switch (op) {
    case OP_EQ:
        return kvr_jinja_equal(run, left, right);
    case OP_NE:
        return !kvr_jinja_equal(run, left, right);
    case OP_IN:
        return kvr_jinja_contains(run, right, left);
    case OP_NOT_IN:
        return !kvr_jinja_contains(run, right, left);
    default:
        return kvr_jinja_less(run, left, right, op);
    }
}

static struct value evaluate_comparison(struct run *run, const struct node *node)
{
    struct value left = kvr_run_evaluate(run, node->first);
    for (size_t i = 0; i < node->items.count; i++) {
        struct value right = kvr_run_evaluate(run, node->items.items[i]);
        if (!compare(run, node->operators[i], left, right))
            return kvr_bool(false);
        left = right;
    }
    return kvr_bool(true);
}

static struct value evaluate_concat(struct run *run, const struct node *node)
{
    struct text *text = kvr_jinja_string(run, kvr_run_evaluate(run, node->items.items[0]));
    for (size_t i = 1; i < node->items.count; i++)
        text = kvr_text_join(
            run, text, kvr_jinja_string(run, kvr_run_evaluate(run, node->items.items[i])));
    return kvr_text_value(text);
}

static struct value evaluate(struct run *run, const struct node *node)
{
    struct value value;
    switch (node->kind) {
    case NODE_CONSTANT:
        return node->value;
    case NODE_NAME:
        return evaluate_name(run, node);
    case NODE_TUPLE:
    case NODE_LIST:
        return evaluate_items(run, node);
    case NODE_DICT:
        return evaluate_dict(run, node);
    case NODE_ATTRIBUTE:
        value = kvr_run_evaluate(run, node->first);
        return kvr_jinja_attribute(run, value, node->value.text, node->method);
    case NODE_ITEM:
        return evaluate_item(run, node);
    case NODE_CALL:
        return evaluate_call(run, node);
    case NODE_FILTER:
        return kvr_run_filter(run, node, kvr_none());
    case NODE_TEST:
        return kvr_bool(evaluate_test(run, node));
    case NODE_NOT:
        return kvr_bool(!kvr_jinja_truth(run, kvr_run_evaluate(run, node->first)));
    case NODE_AND:
        value = kvr_run_evaluate(run, node->first);
        return kvr_jinja_truth(run, value) ? kvr_run_evaluate(run, node->second) : value;
    case NODE_OR:
        value = kvr_run_evaluate(run, node->first);
        return kvr_jinja_truth(run, value) ? value : kvr_run_evaluate(run, node->second);
    case NODE_CONDITION:
        if (kvr_jinja_truth(run, kvr_run_evaluate(run, node->second)))
            return kvr_run_evaluate(run, node->first);
        if (node->third)
            return kvr_run_evaluate(run, node->third);
        return kvr_undefined_text(run,
            kvr_text_format(run,
                "the inline if-expression on line %u evaluated to false and no else section was "
                "defined.",
                node->line));
    case NODE_COMPARE:
        return evaluate_comparison(run, node);
    case NODE_BINARY:
        value = kvr_run_evaluate(run, node->first);
        return kvr_jinja_binary(run, node->op, value, kvr_run_evaluate(run, node->second));
    case NODE_NEGATIVE:
        return kvr_jinja_negative(run, kvr_run_evaluate(run, node->first));
    case NODE_POSITIVE:
        return kvr_jinja_positive(run, kvr_run_evaluate(run, node->first));
    case NODE_CONCAT:
        return evaluate_concat(run, node);
    default:
        kvr_run_unsupported(run, "expression");
    }
}

struct value kvr_run_evaluate(struct run *run, const struct node *node)
{
    struct value value;
    if (node->kind == NODE_CONSTANT)
        return node->value;
    kvr_run_charge(run, 0);
    kvr_run_enter(run);
    value = evaluate(run, node);
    kvr_run_leave(run);
    return value;
}
