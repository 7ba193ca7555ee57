/*
 * Workers as people name them (-w) and as `worker` lines describe them.
 */
#ifndef KVR_LINE_WORKER_H
#define KVR_LINE_WORKER_H

#include "base/quantity.h"
#include "line/line.h"

enum kvr_worker_state { KVR_WORKER_ACTIVE, KVR_WORKER_DRAINING, KVR_WORKER_DOWN };

enum kvr_worker_role { KVR_ROLE_BOTH, KVR_ROLE_PREFILL, KVR_ROLE_DECODE };

/* What one worker line says; text points into the line or into scratch memory of the reader and
 * lives until the next one is read. */
struct kvr_worker_description {
    struct kvr_text name;
    struct kvr_text url; /* empty: not given */
    enum kvr_worker_state state;
    enum kvr_worker_role role;
    struct kvr_capacity capacity; /* amount 0: not given; a number is tokens, text as -c takes it */
    double weight;                /* 1 where not given */
    uint64_t block_size;          /* tokens; 0: not given */
};

enum { KVR_WORKER_NAME_BYTES_MOST = 255 };

/* The name that a member holds: a string of 1 to KVR_WORKER_NAME_BYTES_MOST bytes without NUL, as
 * kvr_value_text() gives it (scratch holds it where it had escapes). KVR_BAD_INPUT, naming the
 * member, where it is none. */
enum kvr_status kvr_worker_name(struct kvr_value value, const char *member,
    struct kvr_buffer *scratch, struct kvr_text *name, struct kvr_error *error);

/* The same rule for who keeps names as they are written: fails where kvr_worker_name() does. */
enum kvr_status kvr_worker_check(
    struct kvr_value value, const char *member, struct kvr_error *error);

/* Reads a line whose event is "worker". scratch holds decoded text. KVR_BAD_INPUT when a member has
 * the wrong type or no worker is named. */
enum kvr_status kvr_worker_read(const struct kvr_line *line, struct kvr_buffer *scratch,
    struct kvr_worker_description *worker, struct kvr_error *error);

/*
 * Calls each() for every worker of a -w argument: a number N (w0 … wN-1), a list of names separated
 * by commas, or a file of worker lines (when a file of that name exists, or the text has a slash).
 * Stops at the first status of each() that is not KVR_OK and returns it. KVR_BAD_USAGE for an empty
 * name or a number over 1,000,000, KVR_IO for an unreadable file, KVR_BAD_INPUT for a bad line of
 * it (the message names file and line).
 */
enum kvr_status kvr_workers_each(const char *argument,
    enum kvr_status (*each)(
        void *context, const struct kvr_worker_description *worker, struct kvr_error *error),
    void *context, struct kvr_error *error);

#endif
