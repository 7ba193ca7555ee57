/*
 * What others tell of the workers and of requests, for the decision: lines of -m (cache events,
 * loads, other replicas' logs) and those of kvr-events, which --events runs.
 *
 * kvr-events is a program beside this one and not a part of it: whatever a publisher does to it, no
 * request waits. It runs like a decision pipeline that is only listened to (net/pipeline.h): when
 * it ends it is started again with growing pauses, and since it begins each worker with a `cleared`
 * line, what was known of its caches is forgotten then and learned anew.
 */
#include "net/serve_private.h"

#include <stdlib.h>

enum { MERGE_LOOK_MS = 50, MERGE_LINES = 1000 };

static void take_line(struct kvr_serve *serve, const struct kvr_source_line *line)
{
    struct kvr_error error;
    bool taken = true;

    if (!line->text || !line->length)
        return;
    serve->merged_lines++;
    struct kvr_source_line source = *line;
    if (kvr_line_parse(&serve->line, &source, &error) != KVR_OK) {
        serve_say(serve, true, "%s:%lu: %s", line->file, (unsigned long)line->number, error.text);
        return;
    }
    if (serve->pipeline && !kvr_line_is_event(&serve->line))
        kvr_pipe_loop(serve->pipeline, line->text, line->length);
    else if (serve->pipeline)
        taken = kvr_pipe_tell(serve->pipeline, line->text, line->length);
    else if (serve->options.decider &&
             kvr_decider_tell(serve->options.decider, line->text, line->length, &error) != KVR_OK)
        serve_say(serve, true, "%s:%lu: %s", line->file, (unsigned long)line->number, error.text);
    serve->gauges.merged_lost += !taken;
}

/* ---- -m ---- */

/* Whatever is there, in bounded portions; a FIFO whose writers left is opened for the next ones, a
 * file that grows is followed. */
static void look_at_merged(struct kvr_timer *timer)
{
    struct kvr_serve *serve =
        (struct kvr_serve *)((char *)timer - offsetof(struct kvr_serve, merge_timer));
    struct kvr_source_line line;
    struct kvr_error error;

    for (size_t i = 0; i < serve->merged_count; i++) {
        struct kvr_input *input = &serve->merged[i].input;
        const char *name = serve->options.merged->items[i];
        if (input->descriptor < 0 && kvr_input_open(input, name, true, &error) != KVR_OK) {
            input->descriptor = -1;
            continue;
        }
        for (int lines = 0; lines < MERGE_LINES;) {
            if (kvr_input_line(input, 64 << 20, &line)) {
                take_line(serve, &line);
                lines++;
                continue;
            }
            size_t had = input->end - input->start;
            if (input->ended || kvr_input_fill(input, 64 << 20, &error) != KVR_OK ||
                input->end - input->start == had)
                break;
        }
        if (input->ended && input->fifo) {
            kvr_input_close(input);
            input->descriptor = -1;
        }
    }
    kvr_reactor_set(&serve->reactor, timer, serve->reactor.now_ms + MERGE_LOOK_MS);
}

static enum kvr_status open_merged(struct kvr_serve *serve, struct kvr_error *error)
{
    const struct kvr_text_list *list = serve->options.merged;

    serve->merged = calloc(list->count, sizeof *serve->merged);
    if (!serve->merged)
        return kvr_error_memory(error);
    serve->merged_count = list->count;
    for (size_t i = 0; i < list->count; i++)
        serve->merged[i].input.descriptor = -1;
    for (size_t i = 0; i < list->count; i++) {
        enum kvr_status status =
            kvr_input_open(&serve->merged[i].input, list->items[i], true, error);
        if (status != KVR_OK) {
            serve->merged[i].input.descriptor = -1;
            return status;
        }
    }
    serve->merge_timer.due = look_at_merged;
    kvr_reactor_set(&serve->reactor, &serve->merge_timer, serve->reactor.now_ms);
    return KVR_OK;
}

/* ---- --events ---- */

static void events_begun(void *context)
{
    (void)context;
}

static bool event_came(void *context, const char *text, size_t length)
{
    struct kvr_serve *serve = context;
    struct kvr_source_line line = {
        .text = text, .length = length, .file = "kvr-events", .number = ++serve->event_lines};

    take_line(serve, &line);
    return true;
}

static void events_ended(void *context, const char *why)
{
    serve_say(context, true, "kvr-events %s; it is started again", why);
}

static void events_refused(void *context, int exit_status)
{
    struct kvr_serve *serve = context;

    if (exit_status == 2)
        kvr_error_set(&serve->failure, KVR_BAD_USAGE, "--events: kvr-events does not take this: %s",
            serve->options.events);
    else
        kvr_error_set(&serve->failure, KVR_BAD_USAGE,
            "--events: kvr-events cannot be run (exit status %d)", exit_status);
}

static enum kvr_status run_events(struct kvr_serve *serve, struct kvr_error *error)
{
    struct kvr_buffer command = {0};
    struct kvr_pipe_options options = {.terminates = true,
        .begun = events_begun,
        .answered = event_came,
        .ended = events_ended,
        .refused = events_refused,
        .context = serve};

    kvr_buffer_append_text(&command, "exec kvr-events ");
    kvr_buffer_append_text(&command, serve->options.events);
    for (size_t i = 0; i < command.length; i++) /* a list over several lines is one command */
        if (command.data[i] == '\n')
            command.data[i] = ' ';
    serve->events_command = kvr_buffer_text(&command);
    if (!serve->events_command)
        return kvr_error_memory(error);
    options.command = serve->events_command;
    return kvr_pipe_create(&serve->events, &serve->reactor, &options, error);
}

enum kvr_status feeds_open(struct kvr_serve *serve, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    if (serve->options.merged && serve->options.merged->count)
        status = open_merged(serve, error);
    if (status == KVR_OK && serve->options.events)
        status = run_events(serve, error);
    return status;
}

void feeds_release(struct kvr_serve *serve)
{
    kvr_pipe_destroy(serve->events);
    free(serve->events_command);
    for (size_t i = 0; i < serve->merged_count; i++)
        if (serve->merged[i].input.descriptor >= 0)
            kvr_input_close(&serve->merged[i].input);
    free(serve->merged);
}
