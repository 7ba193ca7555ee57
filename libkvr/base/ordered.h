/*
 * Work on a stream by several threads that comes out in the order it went in. The caller submits
 * jobs and takes them back, finished, in the same order; at most `depth` are under way, so memory
 * is bounded. Jobs are the caller's own; each thread has a context of its own.
 */
#ifndef KVR_BASE_ORDERED_H
#define KVR_BASE_ORDERED_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct kvr_ordered;

/* work is called with a job and the context of the thread that runs it (contexts has `threads`). */
enum kvr_status kvr_ordered_create(struct kvr_ordered **ordered, size_t threads, size_t depth,
    void (*work)(void *job, void *context), void *const *contexts, struct kvr_error *error);

/* Waits for work under way, then frees. Jobs that were not taken back stay the caller's. */
void kvr_ordered_destroy(struct kvr_ordered *ordered);

/* Hands a job over. The caller first takes jobs back while kvr_ordered_full(). */
void kvr_ordered_submit(struct kvr_ordered *ordered, void *job);
bool kvr_ordered_full(const struct kvr_ordered *ordered);

/* The oldest job, finished, or NULL: there is none or, without wait, it is not finished. */
void *kvr_ordered_take(struct kvr_ordered *ordered, bool wait);

#endif
