#include "cache/order.h"
#include "base/grow.h"

#include <string.h>

bool kvr_order_reserve(struct kvr_order *order, size_t items)
{
    struct kvr_order_entry *entries =
        kvr_grow(order->entries, &order->entry_capacity, items, sizeof *entries);
    if (!entries)
        return false;
    order->entries = entries;
    size_t old = order->place_capacity;
    uint32_t *places = kvr_grow(order->places, &order->place_capacity, items, sizeof *places);
    if (!places)
        return false;
    order->places = places;
    memset(places + old, 0, (order->place_capacity - old) * sizeof *places);
    return true;
}

void kvr_order_release(struct kvr_order *order)
{
    free(order->entries);
    free(order->places);
    memset(order, 0, sizeof *order);
}

static bool before(const struct kvr_order_entry *a, const struct kvr_order_entry *b)
{
    return a->major != b->major ? a->major < b->major : a->minor < b->minor;
}

static void set(struct kvr_order *order, uint32_t at, const struct kvr_order_entry *entry)
{
    order->entries[at] = *entry;
    order->places[entry->item] = at + 1;
}

/* Moves the entry up or down from the hole at `at` to where it belongs. */
static void settle(struct kvr_order *order, uint32_t at, struct kvr_order_entry moving)
{
    struct kvr_order_entry *entries = order->entries;
    while (at && before(&moving, &entries[(at - 1) / 2])) {
        set(order, at, &entries[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (uint64_t child; (child = 2 * (uint64_t)at + 1) < order->count; at = (uint32_t)child) {
        if (child + 1 < order->count && before(&entries[child + 1], &entries[child]))
            child++;
        if (!before(&entries[child], &moving))
            break;
        set(order, at, &entries[child]);
    }
    set(order, at, &moving);
}

void kvr_order_put(struct kvr_order *order, uint32_t item, int64_t major, uint64_t minor)
{
    uint32_t place = order->places[item];
    settle(order, place ? place - 1 : order->count++,
        (struct kvr_order_entry){.major = major, .minor = minor, .item = item});
}

void kvr_order_remove(struct kvr_order *order, uint32_t item)
{
    uint32_t place = order->places[item];
    if (!place)
        return;
    uint32_t last = --order->count;
    order->places[item] = 0;
    if (place - 1 != last)
        settle(order, place - 1, order->entries[last]);
}

size_t kvr_order_bytes(const struct kvr_order *order)
{
    return order->entry_capacity * sizeof *order->entries +
           order->place_capacity * sizeof *order->places;
}
