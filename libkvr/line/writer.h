/*
 * Buffered output of whole lines to a descriptor. Text is put straight into the buffer
 * (writer->buffer is an ordinary kvr_buffer), kvr_writer_line_done() ends a line, and a flush only
 * ever writes whole lines, so that what a reader or a file has seen after a kill is whole lines.
 *
 * A closed reader (EPIPE) is not a failure: the writer becomes `closed`, later output is dropped,
 * and the program ends quietly. A full disk is KVR_IO, kept until kvr_writer_close() has told it.
 */
#ifndef KVR_LINE_WRITER_H
#define KVR_LINE_WRITER_H

#include "base/buffer.h"

struct kvr_writer {
    struct kvr_buffer buffer;
    int descriptor;
    size_t whole; /* bytes of buffer that are whole lines */
    bool closed;  /* nobody reads any more */
    /* Of a program that waits for what comes back of its own output: called before each write with
     * the bytes at hand, says how many may be written now. NULL: all. */
    size_t (*before_write)(void *context, size_t length);
    void *context;
    struct kvr_error error;
};

void kvr_writer_init(struct kvr_writer *writer, int descriptor);

/* Ends the line that was appended to the buffer since the last call ("\n" is added) and flushes
 * when much has gathered. Memory that ran short while the line was built drops the line and is kept
 * as the writer's error. */
void kvr_writer_line_done(struct kvr_writer *writer);

/* Takes over lines that were built elsewhere, each with its "\n"; *lines is then an empty buffer
 * for others. No line of the writer's own may be half built. */
void kvr_writer_lines(struct kvr_writer *writer, struct kvr_buffer *lines);

/* Writes out all whole lines now. Fails as the writer has failed. */
enum kvr_status kvr_writer_flush(struct kvr_writer *writer);

/* Flushes and closes the descriptor, where a full disk may show itself, and frees the buffer. The
 * first failure of the writer's life is returned and put into *error. */
enum kvr_status kvr_writer_close(struct kvr_writer *writer, struct kvr_error *error);

#endif
