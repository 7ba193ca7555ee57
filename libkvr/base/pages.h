/*
 * Large arrays of anonymous memory that start as zeros and grow without being copied.
 *
 * The kernel moves page tables, not bytes, so an array of gigabytes grows in microseconds and never
 * needs twice its size. Arrays of several megabytes lie on huge page boundaries and ask for huge
 * pages: random access to them is bound by TLB misses otherwise.
 */
#ifndef KVR_BASE_PAGES_H
#define KVR_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kvr_pages {
    void *data;        /* NULL while nothing is held */
    size_t size_bytes; /* what is mapped: at least what was asked for, a multiple of a page */
    bool random;       /* may be set first: read at random, so huge pages from 4 MiB on */
};

/* Makes size_bytes at least `bytes`. What was there stays (data may move), what is new is zero.
 * False, and nothing changed, when memory is short. */
bool kvr_pages_grow(struct kvr_pages *pages, size_t bytes);

/* Gives all of it back; the result is empty and may grow again. */
void kvr_pages_release(struct kvr_pages *pages);

/* malloc() for an array that is written all over soon: what is large comes in huge pages, where a
 * fault for each small one would cost more than the writing. Given back with free(). */
void *kvr_pages_malloc(size_t bytes);

/* Asks for huge pages for memory that somebody else allocated. */
void kvr_pages_advise(void *data, size_t bytes);

/* What kvr_pages_grow() would map for `bytes`. */
size_t kvr_pages_round(size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
