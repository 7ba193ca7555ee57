#include "sim/stage.h"

#include "sim/child.h"
#include "sim/tell.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct kvr_stage {
    struct kvr_stage_options options;
    struct kvr_sim_reader *reader;
    struct kvr_writer *out;
    struct kvr_sim *sim;
    struct kvr_desk *desk;
    struct kvr_child *child;
    struct kvr_line answer;
    struct kvr_sim_item *inside; /* submitted and not finished */
    struct kvr_sim_pace pace;
    struct kvr_sim_spaces spaces;
    struct kvr_buffer text, event, scratch; /* event: of caches, told from inside the cluster */
    enum kvr_status failure;
    struct kvr_error error;
};

/* Takes event lines to the pipeline and, where asked for, to the output. */
static enum kvr_status send_text(
    struct kvr_stage *stage, const struct kvr_buffer *text, bool told, struct kvr_error *error)
{
    if (text->failed)
        return kvr_error_memory(error);
    if (stage->options.events) {
        kvr_buffer_append(&stage->out->buffer, text->data, text->length);
        kvr_writer_line_done(stage->out);
    }
    return told && stage->child ? kvr_child_tell(stage->child, text->data, text->length, error)
                                : KVR_OK;
}

static enum kvr_status send_event(struct kvr_stage *stage, bool told, struct kvr_error *error)
{
    return send_text(stage, &stage->text, told, error);
}

/* ── decisions ── */

static enum kvr_status decide_here(struct kvr_stage *stage, struct kvr_sim_item *item,
    double now_ms, struct kvr_sim_decision *decision, struct kvr_error *error)
{
    struct kvr_desk_request asked = item->desk;
    struct kvr_route_decision answer;

    asked.route.now_ms = now_ms;
    item->line.length--; /* the brace */
    enum kvr_status status = kvr_desk_decide(stage->desk, &asked, &answer, &item->line, error);
    kvr_line_end(&item->line);
    if (status == KVR_OK)
        kvr_sim_translate(&answer, decision);
    return status;
}

static enum kvr_status named_worker(
    struct kvr_stage *stage, struct kvr_value name, uint32_t *worker, struct kvr_error *error)
{
    struct kvr_text text;

    *worker = KVR_SIM_NOBODY;
    if (name.type <= KVR_NULL)
        return KVR_OK;
    if (kvr_value_text(name, &stage->scratch, &text))
        *worker = kvr_sim_find_worker(stage->sim, text.text, text.length);
    if (*worker == KVR_SIM_NOBODY)
        return kvr_error_set(error, KVR_IO, "the pipeline chose a worker that is not there");
    return KVR_OK;
}

static uint64_t tokens_of(struct kvr_value value)
{
    uint64_t tokens;

    return kvr_value_u64(value, &tokens) ? tokens : 0;
}

static enum kvr_status read_decision(
    struct kvr_stage *stage, struct kvr_sim_decision *decision, struct kvr_error *error)
{
    struct kvr_value route = kvr_line_get(&stage->answer, KVR_NAME_ROUTE);
    struct kvr_value pull = kvr_value_get(route, "pull");

    if (route.type != KVR_OBJECT)
        return kvr_error_set(
            error, KVR_IO, "the pipeline answered without a route (is there a kvr-route in it?)");
    enum kvr_status status =
        named_worker(stage, kvr_value_get(route, "worker"), &decision->worker, error);
    if (status == KVR_OK)
        status =
            named_worker(stage, kvr_value_get(route, "decode"), &decision->decode_worker, error);
    if (status == KVR_OK && pull.type == KVR_OBJECT)
        status = named_worker(stage, kvr_value_get(pull, "from"), &decision->pull_from, error);
    decision->rejected = kvr_value_is(kvr_value_get(route, "reason"), "rejected");
    decision->pull_tokens =
        tokens_of(kvr_value_get(route, "matched")) + tokens_of(kvr_value_get(pull, "tokens"));
    return status;
}

/* Takes a line of the pipeline as the item's, and reads it. */
static enum kvr_status take_answer(struct kvr_stage *stage, struct kvr_sim_item *item,
    const char *text, size_t length, struct kvr_error *error)
{
    kvr_buffer_clear(&item->line);
    kvr_buffer_append(&item->line, text, length);
    if (item->line.failed)
        return kvr_error_memory(error);
    const struct kvr_source_line source = {
        .text = item->line.data, .length = length, .file = "pipeline", .number = 1};
    if (kvr_line_parse(&stage->answer, &source, error) == KVR_OK)
        return KVR_OK;
    kvr_error_prefix(error, "the pipeline answered nonsense");
    return error->status = KVR_IO;
}

static enum kvr_status decide_there(struct kvr_stage *stage, struct kvr_sim_item *item,
    struct kvr_sim_decision *decision, struct kvr_error *error)
{
    const char *text;
    size_t length;

    enum kvr_status status =
        kvr_child_ask(stage->child, item->line.data, item->line.length, &text, &length, error);
    while (status == KVR_OK) {
        status = take_answer(stage, item, text, length, error);
        if (status != KVR_OK || !kvr_line_is_event(&stage->answer))
            break;
        status = kvr_child_answer(stage->child, &text, &length, error);
    }
    if (status != KVR_OK)
        return status;
    status = read_decision(stage, decision, error);
    if (status == KVR_OK && !item->has_blocks)
        status = kvr_sim_item_reread(stage->reader, item, item->line.data, length, error);
    return status == KVR_OK ? kvr_child_loop(stage->child, item->line.data, length, error) : status;
}

static enum kvr_status stage_decide(void *context, struct kvr_sim_request *request, double now_ms,
    struct kvr_sim_decision *decision, struct kvr_error *error)
{
    struct kvr_stage *stage = context;
    struct kvr_sim_item *item = (struct kvr_sim_item *)request;
    enum kvr_status status = KVR_OK;

    kvr_buffer_clear(&item->line);
    kvr_buffer_append(&item->line, item->base.data, item->base.length);
    if (item->line.failed)
        return kvr_error_memory(error);
    if (request->result.attempts > 1)
        status = kvr_sim_stamp(stage->reader, &item->line, now_ms, error);
    if (status != KVR_OK)
        return status;
    return stage->desk ? decide_here(stage, item, now_ms, decision, error)
                       : decide_there(stage, item, decision, error);
}

/* ── ends ── */

/* Items are kept in a list, so that an abandoned simulation can free them. */
static void list(struct kvr_stage *stage, struct kvr_sim_item *item)
{
    item->after = stage->inside;
    if (stage->inside)
        stage->inside->before = item;
    stage->inside = item;
}

static void unlist_and_destroy(struct kvr_stage *stage, struct kvr_sim_item *item)
{
    *(item->before ? &item->before->after : &stage->inside) = item->after;
    if (item->after)
        item->after->before = item->before;
    kvr_sim_item_destroy(item);
}

static enum kvr_status stage_finished(
    void *context, struct kvr_sim_request *request, double now_ms, struct kvr_error *error)
{
    struct kvr_stage *stage = context;
    struct kvr_sim_item *item = (struct kvr_sim_item *)request;
    struct kvr_buffer *out = &stage->out->buffer;
    enum kvr_status status = KVR_OK;

    if (request->result.status != KVR_SIM_REJECTED) {
        kvr_sim_tell_done(stage->sim, item, now_ms, &stage->text);
        status = send_event(stage, true, error);
        if (stage->desk)
            kvr_desk_done(stage->desk, now_ms, item->desk.route.id);
    }
    if (status == KVR_OK && request->result.attempts > 1)
        status = kvr_sim_stamp(stage->reader, &item->line, request->arrival_ms, error);
    if (status == KVR_OK) {
        kvr_buffer_append(out, item->line.data, item->line.length - 1);
        kvr_line_add(out, "cache");
        kvr_sim_tell_cache(request, out);
        kvr_line_add(out, "response");
        kvr_sim_tell_response(stage->sim, request, out);
        kvr_line_end(out);
        kvr_writer_line_done(stage->out);
    }
    unlist_and_destroy(stage, item);
    return status;
}

static enum kvr_status stage_load(void *context, uint32_t worker, double now_ms,
    const struct kvr_sim_load *load, struct kvr_error *error)
{
    struct kvr_stage *stage = context;
    const struct kvr_load_report report = {
        load->waiting, load->running, load->kv_usage, (int64_t)load->tokens};

    if (stage->desk)
        kvr_desk_load(stage->desk, now_ms, worker, &report);
    kvr_sim_tell_load(stage->sim, worker, now_ms, load, &stage->text);
    return send_event(stage, true, error);
}

/* ── cache events ── */

/* What goes wrong inside a cache's event is told by the next decision or end. */
static void keep_failure(
    struct kvr_stage *stage, enum kvr_status status, const struct kvr_error *error)
{
    if (stage->failure == KVR_OK && status != KVR_OK) {
        stage->failure = status;
        stage->error = *error;
    }
}

static enum kvr_status failure(
    const struct kvr_stage *stage, enum kvr_status status, struct kvr_error *error)
{
    if (status == KVR_OK && stage->failure != KVR_OK) {
        *error = stage->error;
        status = stage->failure;
    }
    return status;
}

static void stage_stored(void *context, uint32_t worker, enum kvr_medium medium, double now_ms,
    const uint64_t *parent, const uint64_t *ids, size_t count)
{
    struct kvr_stage *stage = context;
    struct kvr_error error = {0};
    enum kvr_status status = KVR_OK;

    if (stage->desk && stage->options.cache_events) {
        const struct kvr_blocks blocks =
            kvr_sim_blocks(stage->reader, stage->sim, worker, ids, count);
        status = kvr_desk_stored(stage->desk, worker, medium, &blocks, &error);
    }
    keep_failure(stage, status, &error);
    kvr_sim_tell_stored(
        stage->sim, &stage->spaces, worker, medium, now_ms, parent, ids, count, &stage->event);
    keep_failure(
        stage, send_text(stage, &stage->event, stage->options.cache_events, &error), &error);
}

static void stage_removed(void *context, uint32_t worker, enum kvr_medium medium, double now_ms,
    const uint64_t *ids, size_t count)
{
    struct kvr_stage *stage = context;
    struct kvr_error error = {0};
    enum kvr_status status = KVR_OK;

    if (stage->desk && stage->options.cache_events) {
        const struct kvr_blocks blocks =
            kvr_sim_blocks(stage->reader, stage->sim, worker, ids, count);
        status = kvr_desk_removed(stage->desk, worker, medium, &blocks, &error);
    }
    keep_failure(stage, status, &error);
    kvr_sim_tell_removed(
        stage->sim, &stage->spaces, worker, medium, now_ms, ids, count, &stage->event);
    keep_failure(
        stage, send_text(stage, &stage->event, stage->options.cache_events, &error), &error);
}

static void stage_cleared(void *context, uint32_t worker, enum kvr_medium medium, double now_ms)
{
    struct kvr_stage *stage = context;
    struct kvr_error error = {0};
    enum kvr_status status = KVR_OK;

    if (stage->desk && stage->options.cache_events)
        status = kvr_desk_cleared(stage->desk, worker, medium, &error);
    keep_failure(stage, status, &error);
    kvr_sim_tell_cleared(stage->sim, worker, medium, now_ms, &stage->event);
    keep_failure(
        stage, send_text(stage, &stage->event, stage->options.cache_events, &error), &error);
}

/* ── beginning, lines, end ── */

enum kvr_status kvr_stage_create(const struct kvr_stage_options *options,
    struct kvr_sim_reader *reader, struct kvr_writer *out, struct kvr_stage **to,
    struct kvr_error *error)
{
    struct kvr_stage *stage = calloc(1, sizeof *stage);

    if (!stage)
        return kvr_error_memory(error);
    struct kvr_sim_calls calls = {
        .context = stage, .decide = stage_decide, .finished = stage_finished, .load = stage_load};
    if (options->events || options->cache_events) {
        calls.stored = stage_stored;
        calls.removed = stage_removed;
        calls.cleared = stage_cleared;
    }
    stage->options = *options;
    stage->reader = reader;
    stage->out = out;
    stage->pace = options->pace;
    enum kvr_status status = kvr_line_init(&stage->answer, error);
    if (status == KVR_OK)
        status = kvr_sim_create(options->sim, &calls, &stage->sim, error);
    if (status == KVR_OK && options->desk)
        status = kvr_desk_create(options->desk, &stage->desk, error);
    else if (status == KVR_OK)
        status = kvr_child_start(&stage->child, options->command, options->patience_ms, error);
    if (status != KVR_OK) {
        kvr_stage_destroy(stage);
        return status;
    }
    *to = stage;
    return KVR_OK;
}

void kvr_stage_destroy(struct kvr_stage *stage)
{
    if (!stage)
        return;
    kvr_child_end(stage->child, NULL);
    kvr_sim_destroy(stage->sim);
    while (stage->inside)
        unlist_and_destroy(stage, stage->inside);
    kvr_desk_destroy(stage->desk);
    if (stage->answer.structure)
        kvr_line_release(&stage->answer);
    kvr_sim_spaces_release(&stage->spaces);
    kvr_buffer_release(&stage->text);
    kvr_buffer_release(&stage->event);
    kvr_buffer_release(&stage->scratch);
    free(stage);
}

/* Everybody hears of a worker: first who decides, so that what its end sets free is decided anew
 * without it. stage->text is its line. */
static enum kvr_status change(struct kvr_stage *stage, double now_ms, double told_ms,
    const struct kvr_worker_description *worker, bool has_role, bool has_weight,
    struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    if (stage->desk)
        status = kvr_desk_worker(stage->desk, told_ms, worker, has_role, has_weight, error);
    else
        status = kvr_child_tell(stage->child, stage->text.data, stage->text.length, error);
    return status == KVR_OK
               ? kvr_sim_change_worker(stage->sim, now_ms, worker, has_role, has_weight, error)
               : status;
}

enum kvr_status kvr_stage_join(
    struct kvr_stage *stage, const struct kvr_worker_description *worker, struct kvr_error *error)
{
    kvr_sim_tell_worker(worker, &stage->text);
    if (stage->text.failed)
        return kvr_error_memory(error);
    return change(stage, 0, NAN, worker, true, true, error);
}

static enum kvr_status worker_line(
    struct kvr_stage *stage, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_worker_description worker;
    double timestamp_ms, now_ms;

    enum kvr_status status = kvr_worker_read(line, &stage->scratch, &worker, error);
    if (status == KVR_OK)
        status = kvr_sim_timestamp(line, &timestamp_ms, error);
    if (status != KVR_OK)
        return status;
    now_ms = stage->pace.closed || isnan(timestamp_ms)
                 ? fmax(kvr_sim_now_ms(stage->sim), stage->pace.last_ms)
                 : kvr_sim_pace_ms(&stage->pace, timestamp_ms);
    status = kvr_sim_advance(stage->sim, now_ms, error);
    if (status != KVR_OK)
        return error->status = KVR_IO;
    kvr_buffer_clear(&stage->text);
    status = kvr_sim_base(stage->reader, line, now_ms, &stage->text, error);
    kvr_line_end(&stage->text);
    if (status != KVR_OK)
        return status;
    kvr_buffer_append(&stage->out->buffer, stage->text.data, stage->text.length);
    kvr_writer_line_done(stage->out);
    return change(stage, now_ms, now_ms, &worker,
        !kvr_value_missing(kvr_line_get(line, KVR_NAME_ROLE)),
        !kvr_value_missing(kvr_line_get(line, KVR_NAME_WEIGHT)), error);
}

/* A failure of the cluster is no line's fault. */
static enum kvr_status beyond_line(enum kvr_status status, struct kvr_error *error)
{
    if (status == KVR_BAD_INPUT)
        status = error->status = KVR_IO;
    return status;
}

static enum kvr_status request_line(
    struct kvr_stage *stage, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_sim_item *item;
    double timestamp_ms;
    enum kvr_status status = kvr_sim_timestamp(line, &timestamp_ms, error);

    while (
        status == KVR_OK && stage->pace.closed && kvr_sim_inside(stage->sim) >= stage->pace.closed)
        status = beyond_line(kvr_sim_next(stage->sim, error), error);
    if (status != KVR_OK)
        return status;
    double now_ms = stage->pace.closed ? kvr_sim_now_ms(stage->sim)
                                       : kvr_sim_pace_ms(&stage->pace, timestamp_ms);
    status = kvr_sim_item_create(stage->reader, line, now_ms, &item, error);
    if (status != KVR_OK)
        return status;
    if (stage->options.events || stage->options.cache_events)
        kvr_sim_spaces_note(&stage->spaces, line, item);
    item->request.arrival_ms = now_ms;
    list(stage, item);
    return beyond_line(kvr_sim_submit(stage->sim, &item->request, error), error);
}

enum kvr_status kvr_stage_line(
    struct kvr_stage *stage, const struct kvr_line *line, struct kvr_error *error)
{
    if (!kvr_line_is_event(line))
        return failure(stage, request_line(stage, line, error), error);
    if (kvr_value_is(kvr_line_get(line, KVR_NAME_EVENT), "worker"))
        return failure(stage, worker_line(stage, line, error), error);
    kvr_line_pass(line, stage->out);
    return KVR_OK;
}

enum kvr_status kvr_stage_end(struct kvr_stage *stage, struct kvr_error *error)
{
    enum kvr_status status;

    while ((status = kvr_sim_next(stage->sim, error)) == KVR_OK)
        ;
    status = failure(stage, status == KVR_END ? KVR_OK : status, error);
    if (status != KVR_OK)
        return beyond_line(status, error);
    struct kvr_child *child = stage->child;
    stage->child = NULL;
    return kvr_child_end(child, error);
}
