#include "kernels/crew.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct member {
    struct kvr_crew *crew;
    pthread_t thread;
    unsigned number;
};

struct kvr_crew {
    struct member *members; /* threads - 1 of them */
    unsigned threads;
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    unsigned long round; /* counts the calls of kvr_crew_run() */
    unsigned busy;       /* members that have not ended this round */
    bool ending;
    void (*job)(void *context, size_t number, unsigned thread);
    void *context;
    size_t count;
    atomic_size_t next;
};

static void work(struct kvr_crew *crew, unsigned thread)
{
    size_t number;

    while ((number = atomic_fetch_add(&crew->next, 1)) < crew->count)
        crew->job(crew->context, number, thread);
}

static void *live(void *argument)
{
    struct member *member = argument;
    struct kvr_crew *crew = member->crew;
    unsigned long seen = 0;

    pthread_mutex_lock(&crew->lock);
    for (;;) {
        while (crew->round == seen && !crew->ending)
            pthread_cond_wait(&crew->start, &crew->lock);
        if (crew->ending)
            break;
        seen = crew->round;
        pthread_mutex_unlock(&crew->lock);
        work(crew, member->number);
        pthread_mutex_lock(&crew->lock);
        if (--crew->busy == 0)
            pthread_cond_signal(&crew->done);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

enum kvr_status kvr_crew_create(unsigned threads, struct kvr_crew **out, struct kvr_error *error)
{
    if (threads < 1 || threads > 1024)
        return kvr_error_set(error, KVR_BAD_USAGE, "the number of threads is not from 1 to 1024");
    struct kvr_crew *crew = calloc(1, sizeof *crew);
    if (!crew)
        return kvr_error_memory(error);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->start, NULL);
    pthread_cond_init(&crew->done, NULL);
    crew->threads = 1;
    crew->members = calloc(threads, sizeof *crew->members);
    for (unsigned i = 0; crew->members && i + 1 < threads; i++) {
        struct member *member = &crew->members[i];
        *member = (struct member){.crew = crew, .number = i + 1};
        if (pthread_create(&member->thread, NULL, live, member) != 0)
            break;
        crew->threads++;
    }
    if (crew->threads < threads) {
        kvr_crew_destroy(crew);
        return kvr_error_set(error, KVR_NO_MEMORY, "cannot start %u threads", threads);
    }
    *out = crew;
    return KVR_OK;
}

void kvr_crew_destroy(struct kvr_crew *crew)
{
    if (!crew)
        return;
    pthread_mutex_lock(&crew->lock);
    crew->ending = true;
    pthread_cond_broadcast(&crew->start);
    pthread_mutex_unlock(&crew->lock);
    for (unsigned i = 0; i + 1 < crew->threads; i++)
        pthread_join(crew->members[i].thread, NULL);
    pthread_cond_destroy(&crew->start);
    pthread_cond_destroy(&crew->done);
    pthread_mutex_destroy(&crew->lock);
    free(crew->members);
    free(crew);
}

unsigned kvr_crew_threads(const struct kvr_crew *crew)
{
    return crew->threads;
}

void kvr_crew_run(struct kvr_crew *crew, size_t count,
    void (*job)(void *context, size_t number, unsigned thread), void *context)
{
    pthread_mutex_lock(&crew->lock);
    crew->job = job;
    crew->context = context;
    crew->count = count;
    atomic_store(&crew->next, 0);
    crew->busy = crew->threads - 1;
    crew->round++;
    pthread_cond_broadcast(&crew->start);
    pthread_mutex_unlock(&crew->lock);
    work(crew, 0);
    pthread_mutex_lock(&crew->lock);
    while (crew->busy > 0)
        pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}
