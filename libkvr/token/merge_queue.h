/*
 * The queue of pairs that may merge: lowest order first, and of one order the leftmost.
 *
 * A heap of all pairs of a long piece is larger than the processor's caches, and each pair goes
 * through all of its levels. But pairs of one order come almost always from left to right, and a
 * piece of a million equal letters has a handful of orders. So here is a list for each order, a
 * small heap for what comes late to it, and a heap of the orders whose lists are not
 * empty: most pairs are appended and taken without a comparison but one.
 */
#ifndef KVR_TOKEN_MERGE_QUEUE_H
#define KVR_TOKEN_MERGE_QUEUE_H

#include "base/u64_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers as a heap, the lowest first. All zero bytes is an empty one. */
struct kvr_number_heap {
    uint64_t *numbers;
    size_t count, capacity;
};

struct kvr_order_list {
    uint32_t *places; /* [first, count) ascends */
    size_t first, count, capacity;
    struct kvr_number_heap late;
};

/* All zero bytes is an empty queue. */
struct kvr_merge_queue {
    struct kvr_number_heap heap;   /* order:32 number of list:32, of the lists that are not empty */
    struct kvr_u64_map known;      /* order -> number of its list */
    struct kvr_order_list *orders; /* the lists */
    size_t order_count, order_capacity;
    uint32_t last_order, last_list; /* the list used last */
    bool failed;                    /* memory was short */
};

void kvr_merge_queue_push(struct kvr_merge_queue *queue, uint32_t order, uint32_t place);

/* Takes the first pair out; false: there is none. */
bool kvr_merge_queue_pop(struct kvr_merge_queue *queue, uint32_t *order, uint32_t *place);

void kvr_merge_queue_release(struct kvr_merge_queue *queue);

#endif
