/*
 * for: the loop, its variable `loop`, its filter, its recursion.
 *
 * jinja2 reads the iterable one item ahead only when loop.last, loop.nextitem or loop.length ask
 * for it, which shows where the iterable is a generator; so does this.
 */
#include "token/template_internal.h"

/* ---- the loop variable ---- */

static bool loop_peek(struct run *run, struct loop *loop)
{
    if (!loop->has_peeked && !loop->ended) {
        if (kvr_iterator_next(run, loop->iterator, &loop->peeked))
            loop->has_peeked = true;
        else
            loop->ended = true;
    }
    return loop->has_peeked;
}

static bool loop_next(struct run *run, struct loop *loop)
{
    if (!loop_peek(run, loop))
        return false;
    loop->has_peeked = false;
    loop->index0++;
    loop->previous = loop->current;
    loop->current = loop->peeked;
    return true;
}

static int64_t loop_length(struct run *run, struct loop *loop)
{
    if (!loop->sized) {
        struct list *rest = kvr_list_new(run, 0);
        struct value item;
        while (kvr_iterator_next(run, loop->iterator, &item))
            kvr_list_add(run, rest, item);
        loop->iterator = kvr_iterator_of_list(run, "list_iterator", rest);
        loop->ended = false;
        loop->length = rest->count + (size_t)(loop->index0 + 1) + loop->has_peeked;
        loop->sized = true;
    }
    return (int64_t)loop->length;
}

struct value kvr_loop_attribute(struct run *run, struct loop *loop, struct text *name)
{
    if (kvr_template_text_is(name, "index"))
        return kvr_integer(loop->index0 + 1);
    if (kvr_template_text_is(name, "index0"))
        return kvr_integer(loop->index0);
    if (kvr_template_text_is(name, "first"))
        return kvr_bool(loop->index0 == 0);
    if (kvr_template_text_is(name, "last"))
        return kvr_bool(!loop_peek(run, loop));
    if (kvr_template_text_is(name, "length"))
        return kvr_integer(loop_length(run, loop));
    if (kvr_template_text_is(name, "revindex"))
        return kvr_integer(loop_length(run, loop) - loop->index0);
    if (kvr_template_text_is(name, "revindex0"))
        return kvr_integer(loop_length(run, loop) - loop->index0 - 1);
    if (kvr_template_text_is(name, "depth"))
        return kvr_integer(loop->depth0 + 1);
    if (kvr_template_text_is(name, "depth0"))
        return kvr_integer(loop->depth0);
    if (kvr_template_text_is(name, "previtem"))
        return loop->index0 == 0 ? kvr_undefined_hint(run, "there is no previous item")
                                 : loop->previous;
    if (kvr_template_text_is(name, "nextitem"))
        return loop_peek(run, loop) ? loop->peeked
                                    : kvr_undefined_hint(run, "there is no next item");
    return kvr_missing();
}

/* ---- the statement ---- */

static bool next_that_passes(struct run *run, struct iterator *iterator, struct value *out)
{
    const struct node *node = iterator->operation;
    struct scope *outer = run->scope;
    bool passes = false;
    while (!passes && kvr_iterator_next(run, iterator->inner, out)) {
        run->scope = kvr_scope_new(run, iterator->scope);
        kvr_run_assign(run, node->first, *out);
        passes = kvr_jinja_truth(run, kvr_run_evaluate(run, node->third));
        run->scope = outer;
    }
    return passes;
}

/* One loop over value, in the scope that is current. */
static void run_loop(struct run *run, const struct node *node, struct value value, int64_t depth0)
{
    struct scope *outer = run->scope;
    struct scope *inner = NULL;
    struct loop *loop = kvr_run_take(run, sizeof *loop);
    struct value loop_value = {.type = VALUE_LOOP, .loop = loop};
    enum flow flow;
    bool completed = false;
    *loop = (struct loop){
        .node = node->flag ? node : NULL, .scope = outer, .index0 = -1, .depth0 = depth0};
    loop->iterator = kvr_jinja_iterate(run, value);
    if (node->third) {
        struct iterator *filtered = kvr_iterator_new(run, "generator", next_that_passes);
        filtered->inner = loop->iterator;
        filtered->operation = node;
        filtered->scope = outer;
        loop->iterator = filtered;
    } else {
        loop->sized = kvr_jinja_length(value, &loop->length);
    }
    while (loop_next(run, loop)) {
        if (!inner || inner->captured)
            inner = kvr_scope_new(run, outer);
        inner->count = 0;
        run->scope = inner;
        kvr_scope_set(run, inner, run->compiled->symbol_loop, loop_value);
        kvr_run_assign(run, node->first, loop->current);
        if (loop->current.type == VALUE_DICT && loop->current.dict->mark)
            run->marks[loop->current.dict->mark - 1] =
                run->captures ? run->captured_from : run->out->length - run->out_start;
        flow = kvr_run_body(run, &node->items);
        if (flow == FLOW_BREAK)
            break;
        completed |= flow == FLOW_ON;
    }
    run->scope = outer;
    /* As jinja2 has it: a turn that was left by break or continue does not count. */
    if (!completed && node->otherwise.count) {
        run->scope = kvr_scope_new(run, outer);
        kvr_run_body(run, &node->otherwise);
        run->scope = outer;
    }
}

enum flow kvr_run_for(struct run *run, const struct node *node)
{
    run_loop(run, node, kvr_run_evaluate(run, node->second), 0);
    return FLOW_ON;
}

struct value kvr_loop_call(struct run *run, struct loop *loop, const struct call *call)
{
    struct scope *outer = run->scope;
    struct capture capture;
    struct value value;
    if (call->count != 1 || call->keyword_count)
        kvr_run_raise(run, "TypeError", "loop() takes one argument");
    if (!loop->node)
        kvr_run_raise(run, "TypeError",
            "The loop must have the 'recursive' marker to be called recursively.");
    kvr_run_enter(run);
    capture = kvr_capture_begin(run);
    run->scope = loop->scope;
    run_loop(run, loop->node, call->items[0], loop->depth0 + 1);
    value = kvr_text_value(kvr_capture_end(run, capture));
    run->scope = outer;
    kvr_run_leave(run);
    return value;
}
