#include "line/source.h"

#include "line/input.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LOOK_EVERY_LINES = 64, /* how often merged inputs are looked at while the main one flows */
    MERGED_LIMIT = 64,
};

struct kvr_source {
    struct kvr_source_options options;
    const volatile int *stop;
    struct kvr_input main;
    size_t opened;    /* inputs, of both kinds */
    size_t next_file; /* the next name to open as the main input */
    bool main_open;
    struct kvr_input merged[MERGED_LIMIT];
    size_t merged_count;  /* of those opened so far */
    size_t merged_turn;   /* which merged input delivers next */
    unsigned until_look;  /* main lines before the merged inputs are looked at again */
    bool last_look;       /* the main input has ended and the merged ones were looked at since */
    uint64_t read_before; /* bytes of main inputs already closed */
    uint64_t total;
};

static void sum_sizes(struct kvr_source *source)
{
    struct stat status;

    for (size_t i = 0; i < source->options.file_count; i++) {
        if (stat(source->options.files[i], &status) != 0 || !S_ISREG(status.st_mode)) {
            source->total = 0;
            return;
        }
        source->total += (uint64_t)status.st_size;
    }
}

enum kvr_status kvr_source_create(
    struct kvr_source **source, const struct kvr_source_options *options, struct kvr_error *error)
{
    static const char *const standard_input[] = {"-"};

    if (options->merged_count > MERGED_LIMIT)
        return kvr_error_set(error, KVR_BAD_USAGE, "more than %d merged inputs", (int)MERGED_LIMIT);
    *source = calloc(1, sizeof **source);
    if (!*source)
        return kvr_error_memory(error);
    (*source)->options = *options;
    if (options->file_count == 0) {
        (*source)->options.files = standard_input;
        (*source)->options.file_count = 1;
    } else {
        sum_sizes(*source);
    }
    if (options->line_limit_bytes == 0)
        (*source)->options.line_limit_bytes = 64 << 20;
    return KVR_OK;
}

void kvr_source_destroy(struct kvr_source *source)
{
    if (!source)
        return;
    if (source->main_open)
        kvr_input_close(&source->main);
    for (size_t i = 0; i < source->merged_count; i++)
        kvr_input_close(&source->merged[i]);
    free(source);
}

void kvr_source_stop_when(struct kvr_source *source, const volatile int *stop)
{
    source->stop = stop;
}

void kvr_source_progress(const struct kvr_source *source, uint64_t *read, uint64_t *total)
{
    *read = source->read_before + (source->main_open ? source->main.read_bytes : 0);
    *total = source->total;
}

size_t kvr_source_opened(const struct kvr_source *source)
{
    return source->opened;
}

size_t kvr_source_descriptors(const struct kvr_source *source, int *descriptors, size_t room)
{
    size_t count = 0;

    if (!source->main_open) /* what comes next is that the next file is opened, or the end */
        return 0;
    if (count < room)
        descriptors[count++] = source->main.descriptor;
    for (size_t i = 0; i < source->merged_count && count < room; i++)
        if (!source->merged[i].ended && !source->merged[i].regular)
            descriptors[count++] = source->merged[i].descriptor;
    return count;
}

static bool stopped(const struct kvr_source *source)
{
    return source->stop && *source->stop;
}

/* Errors of an input name it, and the line where it stopped when it had begun. */
static enum kvr_status at_input(
    const struct kvr_input *input, struct kvr_source_line *line, struct kvr_error *error)
{
    line->file = input->name;
    line->number = input->line + 1;
    return error->status;
}

/* One line out of a buffer; true when *status says what came of it. */
static bool take_line(struct kvr_source *source, struct kvr_input *input,
    struct kvr_source_line *line, enum kvr_status *status, struct kvr_error *error)
{
    while (kvr_input_line(input, source->options.line_limit_bytes, line)) {
        if (!line->text) {
            *status = kvr_error_set(error, KVR_BAD_INPUT,
                "the line is longer than %zu bytes (--max-line)", source->options.line_limit_bytes);
            return true;
        }
        if (line->length) {
            line->merged = input != &source->main;
            *status = KVR_OK;
            return true;
        }
    }
    return false;
}

/* A FIFO whose writers have gone is opened again, so that the next writer is heard. */
static void reopen_fifo(struct kvr_input *input)
{
    const char *name = input->name;
    uint64_t line = input->line;

    kvr_input_close(input);
    if (kvr_input_open(input, name, true, NULL) != KVR_OK)
        input->ended = true;
    input->line = line;
}

/* Merged regular files are drained here, when they are opened; true when a line or error came. */
static bool open_merged(struct kvr_source *source, struct kvr_source_line *line,
    enum kvr_status *status, struct kvr_error *error)
{
    while (source->merged_count < source->options.merged_count) {
        const char *name = source->options.merged[source->merged_count];
        struct kvr_input *input = &source->merged[source->merged_count++];
        if (kvr_input_open(input, name, true, error) != KVR_OK) {
            input->ended = true;
            line->file = NULL;
            *status = error->status;
            return true;
        }
        source->opened++;
    }
    for (size_t i = 0; i < source->merged_count; i++) {
        struct kvr_input *input = &source->merged[i];
        while (input->regular) {
            if (take_line(source, input, line, status, error))
                return true;
            if (input->ended)
                break;
            *status = kvr_input_fill(input, source->options.line_limit_bytes, error);
            if (*status != KVR_OK && *status != KVR_END) {
                at_input(input, line, error);
                return true;
            }
        }
    }
    return false;
}

/* Polls the merged inputs, and the main one with them when timeout_ms is not 0, and reads those
 * that have something. *main_ready says whether the main input can be read without waiting. */
static enum kvr_status look(struct kvr_source *source, int timeout_ms, bool *main_ready,
    struct kvr_source_line *line, struct kvr_error *error)
{
    struct pollfd waiting[MERGED_LIMIT + 1];
    struct kvr_input *inputs[MERGED_LIMIT + 1];
    nfds_t count = 0;

    if (timeout_ms) {
        inputs[count] = &source->main;
        waiting[count++] = (struct pollfd){source->main.descriptor, POLLIN, 0};
    }
    for (size_t i = 0; i < source->merged_count; i++) {
        struct kvr_input *input = &source->merged[i];
        if (!input->ended && !input->regular) {
            inputs[count] = input;
            waiting[count++] = (struct pollfd){input->descriptor, POLLIN, 0};
        }
    }
    *main_ready = false;
    if (count == 0)
        return KVR_OK;
    int ready = poll(waiting, count, timeout_ms);
    if (ready < 0 && errno != EINTR)
        return kvr_error_errno(error, KVR_IO, "cannot wait for input");
    for (nfds_t i = 0; ready > 0 && i < count; i++) {
        struct kvr_input *input = inputs[i];
        if (!waiting[i].revents)
            continue;
        if (input == &source->main) {
            *main_ready = true;
            continue;
        }
        enum kvr_status status = kvr_input_fill(input, source->options.line_limit_bytes, error);
        if (status != KVR_OK && status != KVR_END) {
            line->merged = true;
            return at_input(input, line, error);
        }
    }
    return KVR_OK;
}

static bool take_merged(struct kvr_source *source, struct kvr_source_line *line,
    enum kvr_status *status, struct kvr_error *error)
{
    for (size_t i = 0; i < source->merged_count; i++) {
        struct kvr_input *input = &source->merged[source->merged_turn++ % source->merged_count];
        if (take_line(source, input, line, status, error))
            return true;
        if (input->ended && input->fifo)
            reopen_fifo(input);
    }
    return false;
}

static void close_main(struct kvr_source *source)
{
    source->read_before += source->main.read_bytes;
    kvr_input_close(&source->main);
    source->main_open = false;
}

/* False when it is to be ended now: the program may find that out only here. */
static bool tell_before_wait(struct kvr_source *source)
{
    if (source->options.before_wait)
        source->options.before_wait(source->options.context);
    return !stopped(source);
}

enum kvr_status kvr_source_next(
    struct kvr_source *source, struct kvr_source_line *line, struct kvr_error *error)
{
    enum kvr_status status;
    bool ready;

    *line = (struct kvr_source_line){0};
    if (source->options.merged_count && open_merged(source, line, &status, error))
        return status;
    for (;;) {
        if (stopped(source))
            return KVR_END;
        if (source->merged_count && source->until_look-- == 0) {
            source->until_look = LOOK_EVERY_LINES;
            status = look(source, 0, &ready, line, error);
            if (status != KVR_OK)
                return status;
        }
        if (source->merged_count && take_merged(source, line, &status, error))
            return status;
        if (source->main_open) {
            if (take_line(source, &source->main, line, &status, error))
                return status;
            if (source->main.ended) {
                close_main(source);
                continue;
            }
        } else if (source->next_file < source->options.file_count) {
            const char *name = source->options.files[source->next_file];
            if (!tell_before_wait(source)) /* for a FIFO's writer */
                return KVR_END;
            status = kvr_input_open(&source->main, name, false, error);
            if (status == KVR_END)
                continue;
            source->next_file++;
            if (status != KVR_OK)
                return status;
            source->main_open = true;
            source->opened++;
        } else if (!source->last_look) {
            source->last_look = true;
            source->until_look = 0;
            continue;
        } else {
            return KVR_END;
        }
        if (!source->main.regular) {
            if (!tell_before_wait(source))
                return KVR_END;
            if (source->merged_count) {
                status = look(source, -1, &ready, line, error);
                if (status != KVR_OK)
                    return status;
                if (!ready)
                    continue;
            }
        }
        status = kvr_input_fill(&source->main, source->options.line_limit_bytes, error);
        if (status != KVR_OK && status != KVR_END)
            return at_input(&source->main, line, error);
    }
}
