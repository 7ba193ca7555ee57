#include "cache/feedback.h"

#include "base/clock.h"
#include "line/loop.h"

#include <stdlib.h>
#include <string.h>

enum {
    DRAIN_SILENCE_MS = 1000,
    DRAIN_NOTHING_MS = 2000, /* nothing was sent: only a writer that still opens is waited for */
    DRAIN_STEP_MS = 100,
    PIPE_HOLDS_BYTES = 32 * 1024, /* any pipe of the loop takes as much without being read */
    PIPE_ATOM_BYTES = 4096,       /* what a writable pipe takes without waiting */
};

struct kvr_feedback {
    struct kvr_feedback_options options;
    struct kvr_matcher *matcher;
    struct kvr_loop *loop; /* NULL: its writers have gone */
    struct kvr_line line;
    uint64_t sent, answered; /* requests that went out, placements that came back */
    size_t on_the_way_bytes; /* written since the last awaited placement came */
    bool patient;            /* placements come back in time */
    bool warned;
};

static void end_loop(struct kvr_feedback *feedback)
{
    kvr_loop_close(feedback->loop);
    feedback->loop = NULL;
}

static void say_of_line(
    struct kvr_feedback *feedback, const struct kvr_source_line *source, struct kvr_error *error)
{
    kvr_error_prefix(error, "%s:%lu", source->file, source->number);
    feedback->options.say(feedback->options.context, error);
}

static size_t before_write(void *context, size_t length)
{
    struct kvr_feedback *feedback = context;
    struct kvr_error error = {0};

    if (feedback->loop && feedback->on_the_way_bytes + length > PIPE_HOLDS_BYTES) {
        length = length < PIPE_ATOM_BYTES ? length : PIPE_ATOM_BYTES;
        if (kvr_loop_wait_writable(feedback->loop, feedback->options.out->descriptor, &error) !=
            KVR_OK) {
            feedback->options.say(feedback->options.context, &error);
            end_loop(feedback);
        }
    }
    feedback->on_the_way_bytes += length;
    return length;
}

enum kvr_status kvr_feedback_open(struct kvr_feedback **feedback, struct kvr_matcher *matcher,
    const struct kvr_feedback_options *options, struct kvr_error *error)
{
    struct kvr_feedback *made = calloc(1, sizeof *made);
    enum kvr_status status;

    *feedback = NULL;
    if (!made)
        return kvr_error_memory(error);
    made->options = *options;
    made->matcher = matcher;
    made->patient = true;
    status = kvr_loop_open(&made->loop, options->name, options->line_limit_bytes, error);
    if (status == KVR_OK)
        status = kvr_line_init(&made->line, error);
    if (status != KVR_OK) {
        kvr_feedback_close(made);
        return status;
    }
    options->out->before_write = before_write;
    options->out->context = made;
    *feedback = made;
    return KVR_OK;
}

void kvr_feedback_close(struct kvr_feedback *feedback)
{
    if (!feedback)
        return;
    if (feedback->options.out->context == feedback)
        feedback->options.out->before_write = NULL;
    end_loop(feedback);
    if (feedback->line.structure)
        kvr_line_release(&feedback->line);
    free(feedback);
}

/* Learns from one line that came back; events came from our own input. True when it is the
 * placement of the awaited request. */
static bool take_back(
    struct kvr_feedback *feedback, const struct kvr_source_line *source, struct kvr_value awaited)
{
    struct kvr_match_request request;
    struct kvr_error error = {0};
    struct kvr_value id;
    enum kvr_status status = kvr_line_parse(&feedback->line, source, &error);

    if (status != KVR_OK) {
        say_of_line(feedback, source, &error);
        return false;
    }
    if (kvr_line_is_event(&feedback->line))
        return false;
    status = kvr_match_read(feedback->matcher, &feedback->line, &request, &error);
    if (status == KVR_OK && !request.routed)
        return false;
    if (status == KVR_OK)
        status = kvr_match_learn(feedback->matcher, &request, &error);
    if (status != KVR_OK)
        say_of_line(feedback, source, &error);
    feedback->answered++;
    id = kvr_line_get(&feedback->line, KVR_NAME_ID);
    if (awaited.type != KVR_ABSENT)
        return id.length == awaited.length && memcmp(id.text, awaited.text, id.length) == 0;
    return feedback->answered >= feedback->sent;
}

/* One line of the loop, waiting for at most timeout_ms. False when none came or the loop is over.
 */
static bool next_back(
    struct kvr_feedback *feedback, double timeout_ms, struct kvr_source_line *line)
{
    struct kvr_error error = {0};
    enum kvr_status status;

    while ((status = kvr_loop_next(feedback->loop, timeout_ms, line, &error)) == KVR_BAD_INPUT)
        say_of_line(feedback, line, &error);
    if (status == KVR_OK)
        return line->text != NULL;
    if (status != KVR_END)
        feedback->options.say(feedback->options.context, &error);
    end_loop(feedback);
    return false;
}

/* Nobody listens any more, at one end or the other. */
static bool is_over(const struct kvr_feedback *feedback)
{
    return feedback->options.out->closed || feedback->options.interrupted();
}

/* No placement came: that is worth one warning, and no more waiting. */
static void lose_patience(struct kvr_feedback *feedback)
{
    struct kvr_error warning = {0};

    if (!feedback->warned) {
        if (feedback->loop)
            kvr_error_set(&warning, KVR_OK,
                "%s: no placement came back in %.0f ms; going on without", feedback->options.name,
                feedback->options.timeout_ms);
        else
            kvr_error_set(&warning, KVR_OK,
                "%s: closed by its writers; going on without placements", feedback->options.name);
        feedback->options.say(feedback->options.context, &warning);
        feedback->warned = true;
    }
    feedback->patient = false;
    feedback->answered = feedback->sent;
}

void kvr_feedback_await(struct kvr_feedback *feedback, struct kvr_value id)
{
    double until_ms = kvr_clock_ms() + feedback->options.timeout_ms;
    struct kvr_source_line line;

    kvr_writer_flush(feedback->options.out);
    feedback->sent++;
    if (!feedback->loop)
        return;
    while (feedback->loop && !is_over(feedback)) {
        double left_ms = feedback->patient ? until_ms - kvr_clock_ms() : 0;
        if (next_back(feedback, left_ms, &line)) {
            if (!take_back(feedback, &line, id))
                continue;
            feedback->patient = true;
            feedback->on_the_way_bytes = 0;
            return;
        }
        if (left_ms <= 0)
            break;
    }
    if (!is_over(feedback))
        lose_patience(feedback);
}

void kvr_feedback_drain(struct kvr_feedback *feedback)
{
    struct kvr_value nothing = {0};
    double heard_ms = kvr_clock_ms();
    struct kvr_source_line line;

    while (feedback->loop && !feedback->options.interrupted()) {
        double patience_ms = !feedback->sent                        ? DRAIN_NOTHING_MS
                             : feedback->answered >= feedback->sent ? DRAIN_SILENCE_MS
                                                                    : feedback->options.timeout_ms;
        if (next_back(feedback, DRAIN_STEP_MS, &line)) {
            take_back(feedback, &line, nothing);
            heard_ms = kvr_clock_ms();
        } else if (kvr_clock_ms() - heard_ms > patience_ms) {
            return;
        }
    }
}
