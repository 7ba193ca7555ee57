/*
 * The decision pipeline as real programs, driven in lock step.
 *
 *            stdin                       stdout
 *   we ────────────────► kvr-match │ kvr-route ────────────────► we
 *    └── routed lines ──► $KVR_LOOP (a FIFO that kvr-match reads back)
 *
 * The command runs under /bin/sh in a process group of its own. A request line is written and its
 * routed line awaited, both with bounded patience, while whatever else comes (event lines passed
 * on) is read and dropped, so that no pipe fills up on either side. Then the routed line is written
 * to the FIFO named by the environment variable KVR_LOOP, from which a kvr-match without --loop
 * learns placements. A pipeline without such a reader works as well: lines that pile up there have
 * none, and nothing more is written.
 *
 * A child that dies, says nonsense or hangs ends the simulation with KVR_IO and a message. Its
 * group is signalled and its shell reaped by their numbers.
 */
#ifndef KVR_SIM_CHILD_H
#define KVR_SIM_CHILD_H

#include "base/buffer.h"

#include <sys/types.h>

struct kvr_child;

/* patience_ms: for one answer, and for the end. */
enum kvr_status kvr_child_start(
    struct kvr_child **child, const char *command, double patience_ms, struct kvr_error *error);

/* Sends a line without waiting for anything: text has no newline. */
enum kvr_status kvr_child_tell(
    struct kvr_child *child, const char *text, size_t length, struct kvr_error *error);

/* Sends a request line and waits for the next line that does not begin as our tools' event lines
 * do. *answer is valid until the next call, without newline. */
enum kvr_status kvr_child_ask(struct kvr_child *child, const char *text, size_t length,
    const char **answer, size_t *answer_length, struct kvr_error *error);

/* The next such line, where the last turned out to be an event line all the same; patience goes on
 * from when the request was sent. */
enum kvr_status kvr_child_answer(
    struct kvr_child *child, const char **answer, size_t *answer_length, struct kvr_error *error);

/* The answer goes round the loop. */
enum kvr_status kvr_child_loop(
    struct kvr_child *child, const char *text, size_t length, struct kvr_error *error);

/* Closes its input, waits for its end, kills it when patience ends; frees everything. KVR_IO when
 * it ended otherwise than with status 0. NULL is allowed. */
enum kvr_status kvr_child_end(struct kvr_child *child, struct kvr_error *error);

#endif
