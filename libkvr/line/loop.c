#include "line/loop.h"

#include "base/buffer.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    READ_BYTES = 64 * 1024,
    PADDING = 64,   /* vector code may load, not use, a little past the end */
    FIRST_WAIT = 20 /* ms between looks for a first writer, which poll() does not tell */
};

struct kvr_loop {
    const char *name;
    int descriptor;
    bool written, ended, skipping;
    size_t limit;
    uint64_t line;
    struct kvr_buffer buffer;
    size_t start, scanned;
};

static int open_socket(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int descriptor;

    if (strlen(name) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, name);
    descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor >= 0 && (connect(descriptor, (struct sockaddr *)&address, sizeof address) != 0 ||
                               fcntl(descriptor, F_SETFL, O_NONBLOCK) != 0)) {
        int kept = errno;
        close(descriptor);
        errno = kept;
        return -1;
    }
    return descriptor;
}

enum kvr_status kvr_loop_open(
    struct kvr_loop **loop, const char *name, size_t line_limit_bytes, struct kvr_error *error)
{
    struct stat status;
    bool is_socket = stat(name, &status) == 0 && S_ISSOCK(status.st_mode);

    *loop = calloc(1, sizeof **loop);
    if (!*loop)
        return kvr_error_memory(error);
    (*loop)->name = name;
    (*loop)->limit = line_limit_bytes;
    (*loop)->written = is_socket;
    (*loop)->descriptor =
        is_socket ? open_socket(name) : open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if ((*loop)->descriptor < 0) {
        kvr_error_errno(error, KVR_IO, "cannot open %s", name);
    } else if (fstat((*loop)->descriptor, &status) != 0 ||
               !(S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode))) {
        kvr_error_set(error, KVR_IO, "%s is no FIFO (mkfifo makes one)", name);
    } else {
        return KVR_OK;
    }
    kvr_loop_close(*loop);
    *loop = NULL;
    return KVR_IO;
}

void kvr_loop_close(struct kvr_loop *loop)
{
    if (!loop)
        return;
    if (loop->descriptor >= 0)
        close(loop->descriptor);
    kvr_buffer_release(&loop->buffer);
    free(loop);
}

bool kvr_loop_was_written(const struct kvr_loop *loop)
{
    return loop->written;
}

/* A whole line out of the buffer. True when *status says what came of it. */
static bool take_line(struct kvr_loop *loop, struct kvr_source_line *line, enum kvr_status *status,
    struct kvr_error *error)
{
    for (;;) {
        char *data = loop->buffer.data;
        size_t end = loop->buffer.length;
        char *found =
            loop->scanned < end ? memchr(data + loop->scanned, '\n', end - loop->scanned) : NULL;
        size_t stop = found ? (size_t)(found - data) : end, length = stop - loop->start;
        bool too_long = length > loop->limit || loop->skipping;

        if (!found && !(loop->ended && length)) {
            loop->scanned = end;
            if (length > loop->limit) {
                loop->skipping = true;
                loop->start = loop->scanned = loop->buffer.length = 0;
            }
            return false;
        }
        line->text = data + loop->start;
        line->number = ++loop->line;
        loop->start = loop->scanned = stop + (found != NULL);
        loop->skipping = false;
        if (too_long) {
            line->text = NULL;
            *status = kvr_error_set(
                error, KVR_BAD_INPUT, "the line is longer than %zu bytes", loop->limit);
            return true;
        }
        while (length && (line->text[length - 1] == '\r' || line->text[length - 1] == ' '))
            length--;
        line->length = length;
        *status = KVR_OK;
        if (length)
            return true;
        line->text = NULL;
    }
}

/* Reads once. KVR_OK with *got false: there is nothing now. */
static enum kvr_status fill(struct kvr_loop *loop, bool *got, struct kvr_error *error)
{
    struct kvr_buffer *buffer = &loop->buffer;
    ssize_t done;

    *got = false;
    if (loop->start) {
        memmove(buffer->data, buffer->data + loop->start, buffer->length - loop->start);
        buffer->length -= loop->start;
        loop->scanned -= loop->start;
        loop->start = 0;
    }
    if (!kvr_buffer_reserve(buffer, READ_BYTES + PADDING))
        return kvr_error_memory(error);
    done = read(loop->descriptor, buffer->data + buffer->length, READ_BYTES);
    if (done > 0) {
        buffer->length += (size_t)done;
        *got = loop->written = true;
    } else if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        loop->written = true;
    } else if (done < 0 && errno != EINTR) {
        return kvr_error_errno(error, KVR_IO, "cannot read %s", loop->name);
    } else if (done == 0 && loop->written) {
        loop->ended = true;
    }
    return KVR_OK;
}

enum kvr_status kvr_loop_next(
    struct kvr_loop *loop, double timeout_ms, struct kvr_source_line *line, struct kvr_error *error)
{
    double until_ms = timeout_ms > 0 ? kvr_clock_ms() + timeout_ms : 0;
    bool look_first = timeout_ms <= 0;
    enum kvr_status status;
    bool got;

    *line = (struct kvr_source_line){.file = loop->name};
    for (;;) {
        struct pollfd waiting = {loop->descriptor, POLLIN, 0};
        double left_ms = timeout_ms;
        if (take_line(loop, line, &status, error))
            return status;
        if (loop->ended)
            return KVR_END;
        if (!look_first) {
            left_ms = until_ms - kvr_clock_ms();
            if (left_ms < 0)
                return KVR_OK;
            if (!loop->written && left_ms > FIRST_WAIT)
                left_ms = FIRST_WAIT;
            left_ms = left_ms < 86400e3 ? left_ms : 86400e3;
            if (poll(&waiting, 1, (int)left_ms + 1) < 0)
                return errno == EINTR
                           ? KVR_OK
                           : kvr_error_errno(error, KVR_IO, "cannot wait for %s", loop->name);
        }
        status = fill(loop, &got, error);
        if (status != KVR_OK)
            return status;
        if (look_first && !got && !loop->ended)
            return KVR_OK;
    }
}

enum kvr_status kvr_loop_wait_writable(
    struct kvr_loop *loop, int descriptor, struct kvr_error *error)
{
    for (;;) {
        /* A loop at its end is always ready, and must not keep this from sleeping. */
        struct pollfd waiting[] = {
            {descriptor, POLLOUT, 0}, {loop->ended ? -1 : loop->descriptor, POLLIN, 0}};
        bool got;
        if (poll(waiting, 2, -1) < 0)
            return errno == EINTR
                       ? KVR_OK
                       : kvr_error_errno(error, KVR_IO, "cannot wait for %s", loop->name);
        if (waiting[1].revents) {
            enum kvr_status status = fill(loop, &got, error);
            if (status != KVR_OK)
                return status;
        }
        if (waiting[0].revents)
            return KVR_OK;
    }
}
