/*
 * A heap of the pairs that may merge, lowest order first, leftmost among equals. Of interest to the
 * merging encoders only.
 */
#ifndef KVR_TOKEN_MERGE_HEAP_H
#define KVR_TOKEN_MERGE_HEAP_H

#include "token/bpe.h"

struct kvr_candidate {
    uint32_t order, at; /* at: the left node */
    uint32_t left, right;
};

static inline bool kvr_candidate_before(struct kvr_candidate a, struct kvr_candidate b)
{
    return a.order != b.order ? a.order < b.order : a.at < b.at;
}

/* The caller has seen to the room. */
static inline void kvr_candidate_push(
    struct kvr_candidate *heap, size_t *count, struct kvr_candidate item)
{
    size_t i = (*count)++;

    for (; i && kvr_candidate_before(item, heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = item;
}

static inline struct kvr_candidate kvr_candidate_pop(struct kvr_candidate *heap, size_t *count)
{
    struct kvr_candidate top = heap[0], item = heap[--*count];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *count)
            break;
        if (child + 1 < *count && kvr_candidate_before(heap[child + 1], heap[child]))
            child++;
        if (!kvr_candidate_before(heap[child], item))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = item;
    return top;
}

/* The symbol that text starts with, or KVR_NO_TOKEN, and how long it is. */
uint32_t kvr_symbol_at(const struct kvr_vocabulary *vocabulary, const uint8_t *text,
    const uint8_t *end, unsigned *length);

#endif
