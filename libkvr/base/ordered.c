#include "base/ordered.h"

#include <pthread.h>
#include <stdlib.h>

/* Jobs lie in a ring by their number: [taken, started) are done or under way, [started, submitted)
 * wait for a thread. */
struct slot {
    void *job;
    bool done;
};

struct thread {
    struct kvr_ordered *ordered;
    void *context;
    pthread_t id;
};

struct kvr_ordered {
    pthread_mutex_t lock;
    pthread_cond_t submitted_more, done_more;
    void (*work)(void *job, void *context);
    struct slot *slots;
    struct thread *threads;
    size_t depth, thread_count;
    size_t taken, started, submitted; /* counts */
    bool ending;
};

static void *run(void *argument)
{
    struct thread *self = argument;
    struct kvr_ordered *o = self->ordered;

    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (o->started == o->submitted && !o->ending)
            pthread_cond_wait(&o->submitted_more, &o->lock);
        if (o->started == o->submitted)
            break;
        struct slot *slot = &o->slots[o->started++ % o->depth];
        pthread_mutex_unlock(&o->lock);
        o->work(slot->job, self->context);
        pthread_mutex_lock(&o->lock);
        slot->done = true;
        pthread_cond_signal(&o->done_more);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

enum kvr_status kvr_ordered_create(struct kvr_ordered **ordered, size_t threads, size_t depth,
    void (*work)(void *job, void *context), void *const *contexts, struct kvr_error *error)
{
    struct kvr_ordered *o = calloc(1, sizeof *o);

    *ordered = NULL;
    if (!o)
        return kvr_error_memory(error);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->submitted_more, NULL);
    pthread_cond_init(&o->done_more, NULL);
    o->work = work;
    o->depth = depth;
    o->slots = calloc(depth, sizeof *o->slots);
    o->threads = calloc(threads, sizeof *o->threads);
    bool ok = o->slots && o->threads;
    for (size_t i = 0; ok && i < threads; i++) {
        o->threads[i] = (struct thread){.ordered = o, .context = contexts[i]};
        ok = pthread_create(&o->threads[i].id, NULL, run, &o->threads[i]) == 0;
        o->thread_count += ok;
    }
    if (!ok) {
        kvr_ordered_destroy(o);
        return kvr_error_set(error, KVR_NO_MEMORY, "cannot start threads");
    }
    *ordered = o;
    return KVR_OK;
}

void kvr_ordered_destroy(struct kvr_ordered *o)
{
    if (!o)
        return;
    pthread_mutex_lock(&o->lock);
    o->ending = true;
    pthread_cond_broadcast(&o->submitted_more);
    pthread_mutex_unlock(&o->lock);
    for (size_t i = 0; i < o->thread_count; i++)
        pthread_join(o->threads[i].id, NULL);
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->submitted_more);
    pthread_cond_destroy(&o->done_more);
    free(o->slots);
    free(o->threads);
    free(o);
}

bool kvr_ordered_full(const struct kvr_ordered *o)
{
    return o->submitted - o->taken == o->depth; /* both change in the caller's thread only */
}

void kvr_ordered_submit(struct kvr_ordered *o, void *job)
{
    pthread_mutex_lock(&o->lock);
    o->slots[o->submitted++ % o->depth] = (struct slot){job, false};
    pthread_cond_signal(&o->submitted_more);
    pthread_mutex_unlock(&o->lock);
}

void *kvr_ordered_take(struct kvr_ordered *o, bool wait)
{
    void *job = NULL;

    if (o->taken == o->submitted)
        return NULL;
    pthread_mutex_lock(&o->lock);
    struct slot *slot = &o->slots[o->taken % o->depth];
    while (!slot->done && wait)
        pthread_cond_wait(&o->done_more, &o->lock);
    if (slot->done) {
        job = slot->job;
        o->taken++;
    }
    pthread_mutex_unlock(&o->lock);
    return job;
}
