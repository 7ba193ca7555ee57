#include "cache/order.h"
#include "base/grow.h"

#include <string.h>

bool kvr_order_reserve_entries(struct kvr_order *order, size_t entries)
{
    struct kvr_order_entry *grown =
        kvr_grow(order->entries, &order->entry_capacity, entries, sizeof *grown);
    if (grown)
        order->entries = grown;
    return grown != NULL;
}

bool kvr_order_reserve_items(struct kvr_order *order, size_t items)
{
    size_t old = order->place_capacity;
    uint32_t *places = kvr_grow(order->places, &order->place_capacity, items, sizeof *places);
    if (!places)
        return false;
    order->places = places;
    memset(places + old, 0, (order->place_capacity - old) * sizeof *places);
    return true;
}

bool kvr_order_reserve(struct kvr_order *order, size_t items)
{
    return kvr_order_reserve_entries(order, items) && kvr_order_reserve_items(order, items);
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

/* Moves the entry up or down from the hole at `at` to where it belongs. Four children a node: half
 * the levels of two, and the four lie side by side. */
static void settle(struct kvr_order *order, uint32_t at, struct kvr_order_entry moving)
{
    struct kvr_order_entry *entries = order->entries;
    while (at && before(&moving, &entries[(at - 1) / 4])) {
        set(order, at, &entries[(at - 1) / 4]);
        at = (at - 1) / 4;
    }
    for (uint64_t first; (first = 4 * (uint64_t)at + 1) < order->count;) {
        uint64_t end = first + 4 < order->count ? first + 4 : order->count;
        uint64_t least = first;
        for (uint64_t child = first + 1; child < end; child++)
            if (before(&entries[child], &entries[least]))
                least = child;
        if (!before(&entries[least], &moving))
            break;
        set(order, at, &entries[least]);
        at = (uint32_t)least;
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
