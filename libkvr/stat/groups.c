#include "stat/groups.h"

#include "base/grow.h"

#include <stdio.h>
#include <xxhash.h>

enum kvr_status kvr_groups_init(struct kvr_groups *groups, uint32_t limit, struct kvr_error *error)
{
    uint32_t other;

    memset(groups, 0, sizeof *groups);
    groups->limit = limit;
    groups->mask = 63;
    groups->slots = calloc(groups->mask + 1, sizeof *groups->slots);
    if (!groups->slots)
        return kvr_error_memory(error);
    return kvr_groups_find(groups, KVR_GROUP_OTHER, strlen(KVR_GROUP_OTHER), &other, error);
}

void kvr_groups_release(struct kvr_groups *groups)
{
    for (uint32_t i = 0; i < groups->count; i++)
        free(groups->items[i].name);
    free(groups->items);
    free(groups->slots);
    memset(groups, 0, sizeof *groups);
}

/* Names reach terminals and labels: control characters become spaces, a long name is cut, and
 * either is told by a hash, so that two names stay two. */
static char *tidy(const char *name, size_t length, uint64_t hash, size_t *tidy_length)
{
    char *text = malloc(KVR_GROUP_NAME_BYTES + 32);
    bool changed = false;
    size_t used = 0;

    if (!text)
        return NULL;
    for (size_t i = 0; i < length;) {
        bool unsafe;
        unsigned count = kvr_character_bytes(name + i, length - i, &unsafe);
        if (i + count > KVR_GROUP_NAME_BYTES) {
            changed = true;
            break;
        }
        changed |= unsafe;
        memcpy(text + used, unsafe ? " " : name + i, unsafe ? 1 : count);
        used += unsafe ? 1 : count;
        i += count;
    }
    text[used] = '\0';
    if (changed)
        used += (size_t)sprintf(text + used, "~%016lx", hash);
    *tidy_length = used;
    return text;
}

static bool rehash(struct kvr_groups *groups)
{
    uint32_t mask = groups->mask * 2 + 1;
    uint32_t *slots = calloc((size_t)mask + 1, sizeof *slots);

    if (!slots)
        return false;
    for (uint32_t i = 0; i < groups->count; i++) {
        uint32_t at = (uint32_t)groups->items[i].hash & mask;
        while (slots[at])
            at = (at + 1) & mask;
        slots[at] = i + 1;
    }
    free(groups->slots);
    groups->slots = slots;
    groups->mask = mask;
    return true;
}

/* Different names of one 64-bit hash are taken for one another: not to be met by accident. */
static uint32_t look(const struct kvr_groups *groups, uint64_t hash, uint32_t *slot)
{
    uint32_t at = (uint32_t)hash & groups->mask;

    for (; groups->slots[at]; at = (at + 1) & groups->mask) {
        if (groups->items[groups->slots[at] - 1].hash == hash)
            return groups->slots[at] - 1;
    }
    *slot = at;
    return UINT32_MAX;
}

enum kvr_status kvr_groups_find(struct kvr_groups *groups, const char *name, size_t length,
    uint32_t *group, struct kvr_error *error)
{
    uint64_t hash = XXH3_64bits(name, length);
    uint32_t slot = 0;

    *group = 0;
    if (groups->last < groups->count && groups->items[groups->last].hash == hash) {
        *group = groups->last;
        return KVR_OK;
    }
    uint32_t found = look(groups, hash, &slot);
    if (found != UINT32_MAX) {
        *group = groups->last = found;
        return KVR_OK;
    }
    if (groups->count > groups->limit)
        return KVR_OK;
    struct kvr_group *items =
        kvr_grow(groups->items, &groups->capacity, groups->count + 1, sizeof *items);
    if (!items)
        return kvr_error_memory(error);
    groups->items = items;
    struct kvr_group *item = &items[groups->count];
    item->hash = hash;
    item->name = tidy(name, length, hash, &item->length);
    if (!item->name)
        return kvr_error_memory(error);
    *group = groups->count++;
    groups->slots[slot] = groups->count;
    if (groups->count * 2 > groups->mask && !rehash(groups))
        return kvr_error_memory(error);
    return KVR_OK;
}

enum kvr_status kvr_groups_find_json(
    struct kvr_groups *groups, struct kvr_text inside, uint32_t *group, struct kvr_error *error)
{
    if (!memchr(inside.text, '\\', inside.length))
        return kvr_groups_find(groups, inside.text, inside.length, group, error);
    struct kvr_value string = {inside.text - 1, inside.length + 2, KVR_STRING};
    struct kvr_buffer plain = {0};
    enum kvr_status status = KVR_OK;
    if (!kvr_value_string(string, &plain))
        status = kvr_error_memory(error);
    else
        status = kvr_groups_find(groups, plain.data, plain.length, group, error);
    kvr_buffer_release(&plain);
    return status;
}

uint32_t kvr_groups_look(const struct kvr_groups *groups, const char *name, size_t length)
{
    uint32_t slot;

    return look(groups, XXH3_64bits(name, length), &slot);
}

static int compare_names(const void *a, const void *b, void *context)
{
    const struct kvr_groups *groups = context;
    uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
    int order = strverscmp(groups->items[first].name, groups->items[second].name);

    return order ? order : (first > second) - (first < second);
}

uint32_t kvr_groups_sorted(const struct kvr_groups *groups, uint32_t *order)
{
    uint32_t count = 0;

    for (uint32_t i = 1; i < groups->count; i++)
        order[count++] = i;
    qsort_r(order, count, sizeof *order, compare_names, (void *)groups);
    return count;
}
