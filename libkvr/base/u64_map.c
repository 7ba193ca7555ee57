#include "base/u64_map.h"

#include "base/random.h"

#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 16 };

static size_t home(const struct kvr_u64_map *map, uint64_t key)
{
    return (size_t)kvr_mix64(key) & map->mask;
}

void kvr_u64_map_release(struct kvr_u64_map *map)
{
    free(map->slots);
    free(map->used);
    memset(map, 0, sizeof *map);
}

void kvr_u64_map_clear(struct kvr_u64_map *map)
{
    if (map->slots)
        memset(map->used, 0, map->mask + 1);
    map->length = 0;
}

/* The slot of key, or the free slot where it belongs. The map has slots and is never full. */
static size_t probe(const struct kvr_u64_map *map, uint64_t key)
{
    size_t at = home(map, key);

    while (map->used[at] && map->slots[at].key != key)
        at = (at + 1) & map->mask;
    return at;
}

uint64_t *kvr_u64_map_find(const struct kvr_u64_map *map, uint64_t key)
{
    if (!map->slots)
        return NULL;
    size_t at = probe(map, key);
    return map->used[at] ? &map->slots[at].value : NULL;
}

static bool grow(struct kvr_u64_map *map)
{
    size_t size = map->slots ? (map->mask + 1) * 2 : SMALLEST;
    struct kvr_u64_map larger = {.mask = size - 1, .length = map->length};

    if (size > SIZE_MAX / sizeof *larger.slots)
        return false;
    larger.slots = malloc(size * sizeof *larger.slots);
    larger.used = calloc(size, 1);
    if (!larger.slots || !larger.used) {
        free(larger.slots);
        free(larger.used);
        return false;
    }
    for (size_t i = 0; map->slots && i <= map->mask; i++) {
        if (map->used[i]) {
            size_t at = probe(&larger, map->slots[i].key);
            larger.used[at] = 1;
            larger.slots[at] = map->slots[i];
        }
    }
    free(map->slots);
    free(map->used);
    *map = larger;
    return true;
}

uint64_t *kvr_u64_map_insert(struct kvr_u64_map *map, uint64_t key, bool *inserted)
{
    uint64_t *found = kvr_u64_map_find(map, key);

    if (inserted)
        *inserted = false;
    if (found)
        return found;
    if ((!map->slots || (map->length + 1) * 4 > (map->mask + 1) * 3) && !grow(map))
        return NULL;
    size_t at = probe(map, key);
    map->used[at] = 1;
    map->slots[at] = (struct kvr_u64_map_slot){.key = key};
    map->length++;
    if (inserted)
        *inserted = true;
    return &map->slots[at].value;
}

bool kvr_u64_map_remove(struct kvr_u64_map *map, uint64_t key, uint64_t *value)
{
    if (!map->slots)
        return false;
    size_t hole = probe(map, key);
    if (!map->used[hole])
        return false;
    if (value)
        *value = map->slots[hole].value;

    /* Whatever follows in the cluster and may live in the hole (its home is not between the hole
     * and itself) moves there, and its own place becomes the hole. */
    for (size_t at = (hole + 1) & map->mask; map->used[at]; at = (at + 1) & map->mask) {
        size_t wanted = home(map, map->slots[at].key);
        if (((at - wanted) & map->mask) >= ((at - hole) & map->mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->used[hole] = 0;
    map->length--;
    return true;
}
