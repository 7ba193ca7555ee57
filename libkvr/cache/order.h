/*
 * Items in order of a key that changes: a heap of four branches that knows where each item stands,
 * so that an item is moved or taken out in O(log n). Items are small numbers; the smallest (major,
 * minor) is first. The keys lie in the heap itself: a comparison touches no item.
 *
 * Cost: 24 bytes an entry and 4 an item. Only the reserve functions allocate.
 */
#ifndef KVR_CACHE_ORDER_H
#define KVR_CACHE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_ORDER_NONE UINT32_MAX

struct kvr_order_entry {
    int64_t major;
    uint64_t minor;
    uint32_t item;
};

struct kvr_order { /* all zero bytes: empty */
    struct kvr_order_entry *entries;
    uint32_t *places; /* of an item: its entry plus one, 0 where it is not in */
    size_t entry_capacity, place_capacity;
    uint32_t count;
};

/* Room for the items 0 … items - 1, all at once. False when memory is short. */
bool kvr_order_reserve(struct kvr_order *order, size_t items);

/* The two halves of that, for an order that holds few of many items at a time. */
bool kvr_order_reserve_items(struct kvr_order *order, size_t items);
bool kvr_order_reserve_entries(struct kvr_order *order, size_t entries);

void kvr_order_release(struct kvr_order *order);

/* Puts an item in, or moves it to a new key. */
void kvr_order_put(struct kvr_order *order, uint32_t item, int64_t major, uint64_t minor);

/* Takes an item out, wherever it stands; nothing where it is not in. */
void kvr_order_remove(struct kvr_order *order, uint32_t item);

static inline bool kvr_order_has(const struct kvr_order *order, uint32_t item)
{
    return order->places[item] != 0;
}

static inline uint32_t kvr_order_first(const struct kvr_order *order)
{
    return order->count ? order->entries[0].item : KVR_ORDER_NONE;
}

size_t kvr_order_bytes(const struct kvr_order *order);

#endif
