/*
 * Threads that share a list of numbered jobs. What a job computes must not depend on which thread
 * does it; the jobs are cut by the work alone, never by the number of threads, so that results have
 * the same bits for any crew.
 */
#ifndef KVR_KERNELS_CREW_H
#define KVR_KERNELS_CREW_H

#include "base/error.h"

#include <stddef.h>

struct kvr_crew;

/* threads counts the caller, 1 to 1024. KVR_NO_MEMORY also where a thread cannot be had. */
enum kvr_status kvr_crew_create(unsigned threads, struct kvr_crew **crew, struct kvr_error *error);
void kvr_crew_destroy(struct kvr_crew *crew);
unsigned kvr_crew_threads(const struct kvr_crew *crew);

/* Runs job(context, number, thread) for every number below count and returns when all are done;
 * thread is below kvr_crew_threads(), one at a time each. The caller works too. */
void kvr_crew_run(struct kvr_crew *crew, size_t count,
    void (*job)(void *context, size_t number, unsigned thread), void *context);

#endif
