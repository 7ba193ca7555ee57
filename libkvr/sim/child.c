#include "sim/child.h"

#include "base/clock.h"
#include "base/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 64 * 1024, ANSWER_LIMIT = 256 << 20, LOOP_BYTES = 1 << 20 };

struct kvr_child {
    pid_t pid; /* of the shell, and of the group */
    int to, from, loop;
    double patience_ms, until_ms; /* until_ms: for the answer to the last question */
    struct kvr_buffer in;         /* what has come and was not taken: from in_start on */
    size_t in_start, in_scanned;
    bool ended; /* its output is at its end */
    struct kvr_command_place place;
};

static bool set_flags(int descriptor)
{
    return fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0 &&
           fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0;
}

static bool make_loop(struct kvr_child *child)
{
    if (!kvr_command_place_make(&child->place, "kvr-sim"))
        return false;
    if (mkfifo(child->place.fifo, 0600) != 0)
        return false;
    /* Read and write: it never waits for a reader, and what is written waits for one. */
    child->loop = open(child->place.fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (child->loop >= 0)
        fcntl(child->loop, F_SETPIPE_SZ, LOOP_BYTES);
    return child->loop >= 0;
}

static void close_descriptor(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

static void free_child(struct kvr_child *child)
{
    close_descriptor(&child->to);
    close_descriptor(&child->from);
    close_descriptor(&child->loop);
    if (child->place.fifo[0])
        unlink(child->place.fifo);
    kvr_command_place_remove(&child->place);
    kvr_buffer_release(&child->in);
    free(child);
}

enum kvr_status kvr_child_start(
    struct kvr_child **out, const char *command, double patience_ms, struct kvr_error *error)
{
    int in[2] = {-1, -1}, back[2] = {-1, -1};
    struct kvr_child *child = calloc(1, sizeof *child);

    if (!child)
        return kvr_error_memory(error);
    child->to = child->from = child->loop = -1;
    child->patience_ms = patience_ms;
    if (!make_loop(child) || pipe2(in, O_CLOEXEC) != 0 || pipe2(back, O_CLOEXEC) != 0 ||
        (child->pid = fork()) < 0) {
        kvr_error_errno(error, KVR_IO, "cannot start '%s'", command);
        close_descriptor(&in[0]);
        close_descriptor(&in[1]);
        close_descriptor(&back[0]);
        close_descriptor(&back[1]);
        free_child(child);
        return KVR_IO;
    }
    if (child->pid == 0)
        kvr_command_run(&child->place, command, in[0], back[1]);
    setpgid(child->pid, child->pid);
    close(in[0]);
    close(back[1]);
    child->to = in[1];
    child->from = back[0];
    set_flags(child->to);
    set_flags(child->from);
    *out = child;
    return KVR_OK;
}

static enum kvr_status fail(struct kvr_error *error, const char *what)
{
    return kvr_error_set(error, KVR_IO, "the pipeline %s", what);
}

/* Takes what has come. */
static enum kvr_status take(struct kvr_child *child, struct kvr_error *error)
{
    if (child->in_start == child->in.length)
        child->in_start = child->in_scanned = child->in.length = 0;
    if (child->in.length - child->in_start > ANSWER_LIMIT)
        return fail(error, "wrote a line without end");
    if (!kvr_buffer_reserve(&child->in, READ_BYTES))
        return kvr_error_memory(error);
    ssize_t got = read(child->from, child->in.data + child->in.length, READ_BYTES);
    if (got > 0)
        child->in.length += (size_t)got;
    else if (got == 0)
        child->ended = true;
    else if (errno != EAGAIN && errno != EINTR)
        return kvr_error_errno(error, KVR_IO, "cannot read from the pipeline");
    return KVR_OK;
}

/* Waits until there is something to read, or, with writes, room to write. */
static enum kvr_status wait_for(
    struct kvr_child *child, bool writes, double until_ms, struct kvr_error *error)
{
    struct pollfd polled[2] = {
        {child->ended ? -1 : child->from, POLLIN, 0}, {writes ? child->to : -1, POLLOUT, 0}};
    double left_ms = until_ms - kvr_clock_ms();

    if (left_ms <= 0)
        return fail(error, "did not answer in time (--decision-timeout)");
    if (poll(polled, 2, left_ms > 1e6 ? 1000000 : (int)left_ms + 1) < 0) {
        if (errno != EINTR)
            return kvr_error_errno(error, KVR_IO, "cannot wait for the pipeline");
        return kvr_error_set(error, KVR_IO, "interrupted");
    }
    return polled[0].revents ? take(child, error) : KVR_OK;
}

enum kvr_status kvr_child_tell(
    struct kvr_child *child, const char *text, size_t length, struct kvr_error *error)
{
    double until_ms = kvr_clock_ms() + child->patience_ms;
    static const char newline = '\n';
    size_t sent = 0;

    while (sent <= length) {
        const char *from = sent < length ? text + sent : &newline;
        ssize_t wrote = write(child->to, from, sent < length ? length - sent : 1);
        if (wrote > 0) {
            sent += (size_t)wrote;
            continue;
        }
        if (errno == EPIPE)
            return fail(error, "ended before its input did");
        if (errno != EAGAIN && errno != EINTR)
            return kvr_error_errno(error, KVR_IO, "cannot write to the pipeline");
        enum kvr_status status = wait_for(child, true, until_ms, error);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

/* The next whole line that has come. */
static bool next_line(struct kvr_child *child, const char **line, size_t *length)
{
    char *data = child->in.data;
    const char *end =
        child->in_scanned < child->in.length
            ? memchr(data + child->in_scanned, '\n', child->in.length - child->in_scanned)
            : NULL;

    child->in_scanned = child->in.length;
    if (!end)
        return false;
    *line = data + child->in_start;
    *length = (size_t)(end - *line);
    child->in_start = child->in_scanned = (size_t)(end - data) + 1;
    return true;
}

/* Event lines are ours, passed on, or alerts: none has anything to do with a decision. The member
 * is looked for as every tool of ours writes it, which spares reading them; lines of the trace may
 * write it otherwise, and whoever reads the answer asks on. */
static bool is_event(const char *line, size_t length)
{
    static const char start[] = "{\"event\":";

    return length >= sizeof start - 1 && memcmp(line, start, sizeof start - 1) == 0;
}

enum kvr_status kvr_child_answer(
    struct kvr_child *child, const char **answer, size_t *answer_length, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    while (status == KVR_OK) {
        while (next_line(child, answer, answer_length))
            if (!is_event(*answer, *answer_length))
                return KVR_OK;
        if (child->ended)
            return fail(error, "ended without an answer");
        status = wait_for(child, false, child->until_ms, error);
    }
    return status;
}

enum kvr_status kvr_child_ask(struct kvr_child *child, const char *text, size_t length,
    const char **answer, size_t *answer_length, struct kvr_error *error)
{
    child->until_ms = kvr_clock_ms() + child->patience_ms;
    enum kvr_status status = kvr_child_tell(child, text, length, error);

    return status == KVR_OK ? kvr_child_answer(child, answer, answer_length, error) : status;
}

static size_t unread(const struct kvr_child *child)
{
    int bytes = 0;

    return ioctl(child->loop, FIONREAD, &bytes) == 0 && bytes > 0 ? (size_t)bytes : 0;
}

/* Writes what is left of a line that the FIFO did not take whole. Without a reader it is given up
 * and the loop with it. */
static enum kvr_status write_rest(
    struct kvr_child *child, const struct kvr_buffer *line, size_t sent, struct kvr_error *error)
{
    double until_ms = kvr_clock_ms() + child->patience_ms;

    while (sent < line->length) {
        ssize_t wrote = write(child->loop, line->data + sent, line->length - sent);
        struct pollfd polled = {child->loop, POLLOUT, 0};
        if (wrote > 0) {
            sent += (size_t)wrote;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return kvr_error_errno(error, KVR_IO, "cannot write to the pipeline's loop");
        if (kvr_clock_ms() > until_ms) {
            bool somebody_reads = unread(child) < sent;
            close_descriptor(&child->loop);
            return somebody_reads ? fail(error, "does not read its loop") : KVR_OK;
        }
        poll(&polled, 1, 20);
    }
    return KVR_OK;
}

enum kvr_status kvr_child_loop(
    struct kvr_child *child, const char *text, size_t length, struct kvr_error *error)
{
    if (child->loop < 0)
        return KVR_OK;
    /* A reader in lock step has taken every line before it answered again. One that lags has all of
     * the FIFO; what does not fit behind unread lines has no reader. */
    size_t before = unread(child);
    if (before && before + length + 1 > LOOP_BYTES / 2) {
        close_descriptor(&child->loop);
        return KVR_OK;
    }
    struct kvr_buffer line = {0};
    kvr_buffer_append(&line, text, length);
    kvr_buffer_append_byte(&line, '\n');
    enum kvr_status status =
        line.failed ? kvr_error_memory(error) : write_rest(child, &line, 0, error);
    kvr_buffer_release(&line);
    return status;
}

/* Waits for the shell's end until the time given, reading on so that it can end. It stays a zombie,
 * so that its number stays its own until the group was dealt with. */
static bool has_ended(struct kvr_child *child, double until_ms)
{
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == child->pid)
            return true;
        if (kvr_clock_ms() >= until_ms)
            return false;
        if (child->ended) {
            const struct timespec pause = {0, 2000000};
            nanosleep(&pause, NULL);
        } else {
            struct pollfd polled = {child->from, POLLIN, 0};
            struct kvr_error ignored;
            if (poll(&polled, 1, 10) > 0 && take(child, &ignored) == KVR_OK)
                child->in_start = child->in.length;
        }
    }
}

enum kvr_status kvr_child_end(struct kvr_child *child, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;
    int ended = 0;

    if (!child)
        return KVR_OK;
    close_descriptor(&child->to);
    close_descriptor(&child->loop);
    bool in_time = has_ended(child, kvr_clock_ms() + child->patience_ms);
    if (!in_time) {
        kill(-child->pid, SIGTERM);
        has_ended(child, kvr_clock_ms() + 1000);
    }
    kill(-child->pid, SIGKILL); /* whoever of the group is still there */
    waitpid(child->pid, &ended, 0);
    if (!in_time) {
        status = fail(error, "did not end when its input did; it was killed");
    } else if (WIFSIGNALED(ended)) {
        status =
            kvr_error_set(error, KVR_IO, "the pipeline was ended by signal %d", WTERMSIG(ended));
    } else if (WEXITSTATUS(ended) != 0) {
        status =
            kvr_error_set(error, KVR_IO, "the pipeline ended with status %d", WEXITSTATUS(ended));
    }
    free_child(child);
    return status;
}
