#include "line/writer.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

enum { FLUSH_BYTES = 128 * 1024, KEEP_BYTES = 4 << 20 };

void kvr_writer_init(struct kvr_writer *writer, int descriptor)
{
    memset(writer, 0, sizeof *writer);
    writer->descriptor = descriptor;
}

void kvr_writer_line_done(struct kvr_writer *writer)
{
    struct kvr_buffer *buffer = &writer->buffer;

    kvr_buffer_append_byte(buffer, '\n');
    if (buffer->failed) {
        if (writer->error.status == KVR_OK)
            kvr_error_memory(&writer->error);
        buffer->length = writer->whole;
        buffer->failed = false;
        return;
    }
    writer->whole = buffer->length;
    if (writer->whole >= FLUSH_BYTES)
        kvr_writer_flush(writer);
}

void kvr_writer_lines(struct kvr_writer *writer, struct kvr_buffer *lines)
{
    kvr_writer_flush(writer);
    struct kvr_buffer empty = writer->buffer;
    writer->buffer = *lines;
    writer->whole = lines->length;
    *lines = empty;
    if (writer->whole >= FLUSH_BYTES)
        kvr_writer_flush(writer);
}

/* Waits for a descriptor that somebody else has set not to wait. */
static bool wait_writable(int descriptor)
{
    struct pollfd waiting = {descriptor, POLLOUT, 0};

    return poll(&waiting, 1, -1) > 0 || errno == EINTR;
}

enum kvr_status kvr_writer_flush(struct kvr_writer *writer)
{
    size_t done = 0;

    if (writer->buffer.failed && writer->error.status == KVR_OK)
        kvr_error_memory(&writer->error); /* text with a hole is not written as if it were whole */
    while (done < writer->whole && !writer->closed && writer->error.status == KVR_OK) {
        size_t length = writer->whole - done;
        if (writer->before_write)
            length = writer->before_write(writer->context, length);
        ssize_t count = write(writer->descriptor, writer->buffer.data + done, length);
        if (count >= 0)
            done += (size_t)count;
        else if (errno == EPIPE)
            writer->closed = true;
        else if (errno == EAGAIN ? !wait_writable(writer->descriptor) : errno != EINTR)
            kvr_error_errno(&writer->error, KVR_IO, "cannot write output");
    }
    size_t rest = writer->buffer.length - writer->whole;
    if (rest)
        memmove(writer->buffer.data, writer->buffer.data + writer->whole, rest);
    writer->buffer.length = rest;
    writer->whole = 0;
    if (!rest && writer->buffer.capacity > KEEP_BYTES)
        kvr_buffer_release(&writer->buffer); /* one giant line need not be paid for ever */
    return writer->error.status;
}

enum kvr_status kvr_writer_close(struct kvr_writer *writer, struct kvr_error *error)
{
    kvr_writer_flush(writer);
    if (writer->descriptor >= 0 && close(writer->descriptor) != 0 && errno != EINTR &&
        writer->error.status == KVR_OK)
        kvr_error_errno(&writer->error, KVR_IO, "cannot write output");
    writer->descriptor = -1;
    kvr_buffer_release(&writer->buffer);
    if (writer->error.status != KVR_OK && error)
        *error = writer->error;
    return writer->error.status;
}
