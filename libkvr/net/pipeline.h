/*
 * The decision pipeline of a front end: real programs under /bin/sh, never waited for.
 *
 *            stdin                                   stdout
 *   we ────────────────► kvr-tokenize │ kvr-match │ kvr-route ────────────────► answered()
 *    └── placements ────► $KVR_LOOP (a FIFO that kvr-match reads back)
 *
 * It is a failure domain of its own. When it ends, says what is no line, or stops answering, it is
 * killed, ended() is called, and it is started again after a while that doubles from 100 ms to 10
 * s; begun() is where what it must know (its workers) is told again. Whatever is told while it is
 * not there is dropped, and so is what it does not take in: nothing gathers beyond a bound.
 */
#ifndef KVR_NET_PIPELINE_H
#define KVR_NET_PIPELINE_H

#include "net/reactor.h"

#include <stdint.h>

struct kvr_pipe;

struct kvr_pipe_options {
    const char *command;
    bool terminates; /* it does not end with its input: at the end it gets SIGTERM */
    void (*begun)(void *context);
    /* A line of its output that is no event; valid during the call. False: nonsense. */
    bool (*answered)(void *context, const char *text, size_t length);
    void (*ended)(void *context, const char *why);
    /* Its first life ends without a line, and its status says that no other will be better: 2,
     * bad options; 126 and 127, what cannot be run. It is not started again. NULL: it is. */
    void (*refused)(void *context, int exit_status);
    void *context;
};

enum kvr_status kvr_pipe_create(struct kvr_pipe **pipeline, struct kvr_reactor *reactor,
    const struct kvr_pipe_options *options, struct kvr_error *error);
/* Closes its input, gives it a second, kills what is left. */
void kvr_pipe_destroy(struct kvr_pipe *pipeline);

/* A line for it (text has no newline), sent by the next kvr_pipe_flush(). False: it is not there,
 * or does not take more. */
bool kvr_pipe_tell(struct kvr_pipe *pipeline, const char *text, size_t length);
/* The same for a line that nobody waits for: it goes with the next one that is told, or after 5 ms.
 * Each write wakes every program of the pipeline in turn, which costs more than the line itself. */
bool kvr_pipe_mention(struct kvr_pipe *pipeline, const char *text, size_t length);
/* A placement, for the FIFO; sent by the next flush, before what is told. */
void kvr_pipe_loop(struct kvr_pipe *pipeline, const char *text, size_t length);
/* Sends what has gathered; to be called before the reactor waits. */
void kvr_pipe_flush(struct kvr_pipe *pipeline);

/* A decision was not there in time. When nothing at all is said for a second after, it hangs, and
 * is ended. */
void kvr_pipe_late(struct kvr_pipe *pipeline);

bool kvr_pipe_runs(const struct kvr_pipe *pipeline);
uint64_t kvr_pipe_restarts(const struct kvr_pipe *pipeline);

#endif
