/*
 * The way back of a closed loop: whole lines from a FIFO (or socket), with bounded waiting.
 *
 *     kvr-match --loop loop trace | kvr-route | tee loop
 *
 * The reader is there before any writer: opening a FIFO does not wait, and a FIFO that nobody has
 * opened for writing yet is not at its end. It is at its end when writers were there and have all
 * gone.
 *
 * Ownership: a line's text is valid until the next call. Memory: one buffer, as large as the
 * longest line up to the limit; a longer line is passed over.
 */
#ifndef KVR_LINE_LOOP_H
#define KVR_LINE_LOOP_H

#include "line/source.h"

struct kvr_loop;

/* name is kept by pointer. KVR_IO when it cannot be opened. */
enum kvr_status kvr_loop_open(
    struct kvr_loop **loop, const char *name, size_t line_limit_bytes, struct kvr_error *error);
void kvr_loop_close(struct kvr_loop *loop);

/*
 * The next line. Waits for at most timeout_ms (0: not at all); line->text is NULL when the time ran
 * out or a signal came. KVR_END: all writers have gone. KVR_BAD_INPUT: a line over the limit was
 * passed over. KVR_IO: reading failed.
 */
enum kvr_status kvr_loop_next(struct kvr_loop *loop, double timeout_ms,
    struct kvr_source_line *line, struct kvr_error *error);

/* Waits until `descriptor` can be written to without waiting (PIPE_BUF bytes, where it is a pipe),
 * and keeps reading the loop meanwhile, into memory: whoever writes into a full loop does not read.
 */
enum kvr_status kvr_loop_wait_writable(
    struct kvr_loop *loop, int descriptor, struct kvr_error *error);

/* Whether some writer has been there. */
bool kvr_loop_was_written(const struct kvr_loop *loop);

#endif
