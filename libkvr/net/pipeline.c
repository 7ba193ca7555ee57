#include "net/pipeline.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_BYTES = 64 * 1024,
    LINE_LIMIT = 256 << 20,
    OUT_LIMIT = 16 << 20,
    LOOP_LIMIT = 8 << 20,
    LOOP_BYTES = 1 << 20,
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 10000,
    SILENCE_MS = 1000,   /* nothing said for so long after a late decision: it hangs */
    BEGINNING_MS = 5000, /* its start may take so long: vocabularies are loaded */
    REAP_MS = 50,
    LINGER_MS = 5,
    ENDING_MS = 1000, /* between the end of its output and its own */
};

struct kvr_pipe {
    struct kvr_pipe_options options;
    struct kvr_reactor *reactor;
    struct kvr_watch to, from, loop;
    struct kvr_timer restart, reap, hang, linger;
    pid_t pid, dying; /* of the group that runs, of one that was killed and is not yet reaped */
    struct kvr_buffer out, in, back; /* to stdin, from stdout, to the FIFO */
    size_t out_sent, in_scanned, back_sent;
    double begun_ms, pause_ms;
    bool heard;  /* a line, since a decision was late */
    bool spoke;  /* a line ever came */
    bool urgent; /* something in out is not to wait */
    uint64_t restarts;
    struct kvr_command_place place;
};

static void start(struct kvr_pipe *pipeline);

/* Takes the killed group's shell off the process table, whenever it has ended. */
static void reap(struct kvr_timer *timer)
{
    struct kvr_pipe *pipeline =
        (struct kvr_pipe *)((char *)timer - offsetof(struct kvr_pipe, reap));

    if (pipeline->dying && waitpid(pipeline->dying, NULL, WNOHANG) == 0)
        kvr_reactor_set(pipeline->reactor, timer, pipeline->reactor->now_ms + REAP_MS);
    else
        pipeline->dying = 0;
}

static void stop(struct kvr_pipe *pipeline)
{
    kvr_reactor_stop(pipeline->reactor, &pipeline->hang);
    kvr_reactor_stop(pipeline->reactor, &pipeline->linger);
    kvr_reactor_close(pipeline->reactor, &pipeline->to);
    kvr_reactor_close(pipeline->reactor, &pipeline->from);
    kvr_reactor_close(pipeline->reactor, &pipeline->loop);
    unlink(pipeline->place.fifo);
    kvr_buffer_release(&pipeline->out);
    kvr_buffer_release(&pipeline->in);
    kvr_buffer_release(&pipeline->back);
    pipeline->out_sent = pipeline->in_scanned = pipeline->back_sent = 0;
    if (pipeline->pid) {
        kill(-pipeline->pid, SIGKILL);
        if (pipeline->dying)
            waitpid(pipeline->dying, NULL, 0); /* killed long ago */
        pipeline->dying = pipeline->pid;
        pipeline->pid = 0;
        reap(&pipeline->reap);
    }
}

/* The exit status by which it says that it cannot be run as it was told to; else 0. Looked at only
 * where its first life ends without a line. Its other programs end with their
 * input. */
static int refusal(struct kvr_pipe *pipeline)
{
    const struct timespec pause = {0, 5000000};
    double until_ms = kvr_clock_ms() + ENDING_MS;

    if (!pipeline->options.refused || !pipeline->pid || pipeline->restarts || pipeline->spoke)
        return 0;
    kvr_reactor_close(pipeline->reactor, &pipeline->to);
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pipeline->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
            return 0;
        if (info.si_pid) {
            bool refuses = info.si_code == CLD_EXITED &&
                           (info.si_status == 2 || info.si_status == 126 || info.si_status == 127);
            return refuses ? info.si_status : 0;
        }
        if (kvr_clock_ms() >= until_ms)
            return 0;
        nanosleep(&pause, NULL);
    }
}

static void end(struct kvr_pipe *pipeline, const char *why)
{
    double lived_ms = kvr_clock_ms() - pipeline->begun_ms;

    stop(pipeline);
    if (lived_ms > LONGEST_PAUSE_MS)
        pipeline->pause_ms = FIRST_PAUSE_MS;
    kvr_reactor_set(pipeline->reactor, &pipeline->restart, kvr_clock_ms() + pipeline->pause_ms);
    pipeline->pause_ms *= 2;
    if (pipeline->pause_ms > LONGEST_PAUSE_MS)
        pipeline->pause_ms = LONGEST_PAUSE_MS;
    pipeline->options.ended(pipeline->options.context, why);
}

/* The same where it is the one that hung up. */
static void end_by_itself(struct kvr_pipe *pipeline, const char *why)
{
    int refused = refusal(pipeline);

    if (!refused) {
        end(pipeline, why);
        return;
    }
    stop(pipeline);
    pipeline->options.refused(pipeline->options.context, refused);
}

/* ---- writing ---- */

/* What a descriptor takes of a buffer; false when its other end is gone. */
static bool write_some(
    struct kvr_pipe *pipeline, struct kvr_watch *watch, struct kvr_buffer *buffer, size_t *sent)
{
    while (*sent < buffer->length) {
        ssize_t wrote = write(watch->descriptor, buffer->data + *sent, buffer->length - *sent);
        if (wrote < 0 && errno == EAGAIN)
            break;
        if (wrote < 0 && errno != EINTR)
            return false;
        *sent += wrote > 0 ? (size_t)wrote : 0;
    }
    if (*sent == buffer->length) {
        kvr_buffer_clear(buffer);
        *sent = 0;
    } else if (*sent > LOOP_BYTES) {
        memmove(buffer->data, buffer->data + *sent, buffer->length - *sent);
        buffer->length -= *sent;
        *sent = 0;
    }
    kvr_reactor_ask(pipeline->reactor, watch, buffer->length ? EPOLLOUT : 0);
    return true;
}

static void to_ready(struct kvr_watch *watch, unsigned events)
{
    struct kvr_pipe *pipeline = (struct kvr_pipe *)((char *)watch - offsetof(struct kvr_pipe, to));

    if ((events & EPOLLERR) || !write_some(pipeline, watch, &pipeline->out, &pipeline->out_sent))
        end_by_itself(pipeline, "closed its input");
}

static void loop_ready(struct kvr_watch *watch, unsigned events)
{
    struct kvr_pipe *pipeline =
        (struct kvr_pipe *)((char *)watch - offsetof(struct kvr_pipe, loop));

    (void)events;
    write_some(pipeline, watch, &pipeline->back, &pipeline->back_sent);
}

/* A whole line or nothing. */
static bool append_line(struct kvr_buffer *buffer, const char *text, size_t length)
{
    size_t before = buffer->length;

    kvr_buffer_append(buffer, text, length);
    kvr_buffer_append_byte(buffer, '\n');
    if (!buffer->failed)
        return true;
    buffer->length = before;
    buffer->failed = false;
    return false;
}

static bool queue_line(struct kvr_pipe *pipeline, const char *text, size_t length)
{
    return pipeline->pid && pipeline->out.length - pipeline->out_sent + length <= OUT_LIMIT &&
           append_line(&pipeline->out, text, length);
}

bool kvr_pipe_tell(struct kvr_pipe *pipeline, const char *text, size_t length)
{
    if (!queue_line(pipeline, text, length))
        return false;
    pipeline->urgent = true;
    return true;
}

bool kvr_pipe_mention(struct kvr_pipe *pipeline, const char *text, size_t length)
{
    if (!queue_line(pipeline, text, length))
        return false;
    if (!pipeline->linger.place)
        kvr_reactor_set(
            pipeline->reactor, &pipeline->linger, pipeline->reactor->now_ms + LINGER_MS);
    return true;
}

static void lingered(struct kvr_timer *timer)
{
    ((struct kvr_pipe *)((char *)timer - offsetof(struct kvr_pipe, linger)))->urgent = true;
}

/* Nobody may be reading it: then it fills up once, and what comes after is dropped. */
void kvr_pipe_loop(struct kvr_pipe *pipeline, const char *text, size_t length)
{
    if (pipeline->pid && pipeline->back.length - pipeline->back_sent + length <= LOOP_LIMIT)
        append_line(&pipeline->back, text, length);
}

void kvr_pipe_flush(struct kvr_pipe *pipeline)
{
    if (!pipeline->pid)
        return;
    /* What is full says when it has room. A broken pipe shows itself to the reader of its output.
     */
    if (pipeline->back.length && !(pipeline->loop.events & EPOLLOUT))
        write_some(pipeline, &pipeline->loop, &pipeline->back, &pipeline->back_sent);
    if (!pipeline->urgent)
        return;
    pipeline->urgent = false;
    kvr_reactor_stop(pipeline->reactor, &pipeline->linger);
    if (pipeline->out.length && !(pipeline->to.events & EPOLLOUT))
        write_some(pipeline, &pipeline->to, &pipeline->out, &pipeline->out_sent);
}

/* ---- reading ---- */

/* Whole lines, one by one. False when one of them was nonsense. */
static bool take_lines(struct kvr_pipe *pipeline)
{
    struct kvr_buffer *in = &pipeline->in;
    size_t start = 0;
    pid_t pid = pipeline->pid;

    for (;;) {
        char *newline =
            in->length > pipeline->in_scanned
                ? memchr(in->data + pipeline->in_scanned, '\n', in->length - pipeline->in_scanned)
                : NULL;
        if (!newline)
            break;
        size_t end_at = (size_t)(newline - in->data);
        pipeline->in_scanned = end_at + 1;
        pipeline->heard = pipeline->spoke = true;
        if (end_at > start && !pipeline->options.answered(
                                  pipeline->options.context, in->data + start, end_at - start))
            return false;
        if (pipeline->pid != pid)
            return true; /* it was ended inside */
        start = end_at + 1;
    }
    if (start) {
        memmove(in->data, in->data + start, in->length - start);
        in->length -= start;
    }
    pipeline->in_scanned = in->length;
    return true;
}

static void from_ready(struct kvr_watch *watch, unsigned events)
{
    struct kvr_pipe *pipeline =
        (struct kvr_pipe *)((char *)watch - offsetof(struct kvr_pipe, from));
    struct kvr_buffer *in = &pipeline->in;

    (void)events;
    if (in->length > LINE_LIMIT || !kvr_buffer_reserve(in, READ_BYTES)) {
        end(pipeline, "wrote a line without end");
        return;
    }
    ssize_t got = read(watch->descriptor, in->data + in->length, READ_BYTES);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        end_by_itself(pipeline, "has ended");
        return;
    }
    in->length += (size_t)got;
    if (!take_lines(pipeline))
        end(pipeline, "wrote a line that is no decision");
}

static void hung(struct kvr_timer *timer)
{
    struct kvr_pipe *pipeline =
        (struct kvr_pipe *)((char *)timer - offsetof(struct kvr_pipe, hang));

    if (pipeline->pid && !pipeline->heard)
        end(pipeline, "does not answer");
}

void kvr_pipe_late(struct kvr_pipe *pipeline)
{
    static const char ping[] = "{\"event\":\"ping\"}";
    double now_ms = kvr_clock_ms(), after_start_ms = pipeline->begun_ms + BEGINNING_MS;

    if (!pipeline->pid || pipeline->hang.place)
        return;
    pipeline->heard = false;
    /* Every program passes on events that it does not know: where it lives and has only dropped the
     * line, this comes back. */
    kvr_pipe_tell(pipeline, ping, sizeof ping - 1);
    kvr_reactor_set(pipeline->reactor, &pipeline->hang,
        now_ms + SILENCE_MS > after_start_ms ? now_ms + SILENCE_MS : after_start_ms);
}

/* ---- its life ---- */

static bool watch_end(struct kvr_pipe *pipeline, struct kvr_watch *watch, int descriptor,
    unsigned events, void (*ready)(struct kvr_watch *watch, unsigned events))
{
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
    *watch = (struct kvr_watch){descriptor, events, ready};
    return kvr_reactor_add(pipeline->reactor, watch);
}

static void start(struct kvr_pipe *pipeline)
{
    int in[2] = {-1, -1}, back[2] = {-1, -1}, loop = -1;

    pipeline->begun_ms = kvr_clock_ms();
    unlink(pipeline->place.fifo);
    if (mkfifo(pipeline->place.fifo, 0600) == 0)
        loop = open(pipeline->place.fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    bool made = loop >= 0 && pipe2(in, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0;
    pipeline->pid = made ? fork() : -1;
    if (pipeline->pid == 0)
        kvr_command_run(&pipeline->place, pipeline->options.command, in[0], back[1]);
    if (in[0] >= 0)
        close(in[0]);
    if (back[1] >= 0)
        close(back[1]);
    if (pipeline->pid < 0) {
        int own[] = {in[1], back[0], loop};
        for (size_t i = 0; i < 3; i++)
            if (own[i] >= 0)
                close(own[i]);
        pipeline->pid = 0;
        end(pipeline, "cannot be started");
        return;
    }
    setpgid(pipeline->pid, pipeline->pid);
    fcntl(loop, F_SETPIPE_SZ, LOOP_BYTES);
    bool watched = watch_end(pipeline, &pipeline->to, in[1], 0, to_ready);
    watched &= watch_end(pipeline, &pipeline->from, back[0], EPOLLIN, from_ready);
    watched &= watch_end(pipeline, &pipeline->loop, loop, 0, loop_ready);
    if (!watched) {
        end(pipeline, "cannot be watched");
        return;
    }
    pipeline->options.begun(pipeline->options.context);
}

static void restart(struct kvr_timer *timer)
{
    struct kvr_pipe *pipeline =
        (struct kvr_pipe *)((char *)timer - offsetof(struct kvr_pipe, restart));

    pipeline->restarts++;
    start(pipeline);
}

enum kvr_status kvr_pipe_create(struct kvr_pipe **out, struct kvr_reactor *reactor,
    const struct kvr_pipe_options *options, struct kvr_error *error)
{
    struct kvr_pipe *pipeline = calloc(1, sizeof *pipeline);

    if (!pipeline)
        return kvr_error_memory(error);
    pipeline->options = *options;
    pipeline->reactor = reactor;
    pipeline->to.descriptor = pipeline->from.descriptor = pipeline->loop.descriptor = -1;
    pipeline->restart.due = restart;
    pipeline->reap.due = reap;
    pipeline->hang.due = hung;
    pipeline->linger.due = lingered;
    pipeline->pause_ms = FIRST_PAUSE_MS;
    if (!kvr_command_place_make(&pipeline->place, "kvr-serve")) {
        free(pipeline);
        return kvr_error_errno(error, KVR_IO, "cannot make a place for the pipeline's FIFO");
    }
    *out = pipeline; /* begun() may already use it */
    start(pipeline);
    return KVR_OK;
}

void kvr_pipe_destroy(struct kvr_pipe *pipeline)
{
    const struct timespec pause = {0, 10000000};
    int patience = 100;

    if (!pipeline)
        return;
    kvr_reactor_stop(pipeline->reactor, &pipeline->restart);
    pipeline->urgent = true;
    kvr_pipe_flush(pipeline);
    kvr_reactor_close(pipeline->reactor, &pipeline->to);
    kvr_reactor_close(pipeline->reactor, &pipeline->loop);
    if (pipeline->pid && pipeline->options.terminates)
        kill(-pipeline->pid, SIGTERM);
    siginfo_t info = {0};
    while (pipeline->pid && patience--) {
        if (waitid(P_PID, (id_t)pipeline->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid)
            break;
        char drained[4096]; /* whatever it still says, so that it can end */
        while (read(pipeline->from.descriptor, drained, sizeof drained) > 0)
            ;
        nanosleep(&pause, NULL);
    }
    stop(pipeline);
    kvr_reactor_stop(pipeline->reactor, &pipeline->reap);
    if (pipeline->dying)
        waitpid(pipeline->dying, NULL, 0);
    kvr_command_place_remove(&pipeline->place);
    free(pipeline);
}

bool kvr_pipe_runs(const struct kvr_pipe *pipeline)
{
    return pipeline->pid != 0;
}

uint64_t kvr_pipe_restarts(const struct kvr_pipe *pipeline)
{
    return pipeline->restarts;
}
