#include "net/kv_event_space.h"

#include "base/grow.h"
#include "token/hash.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void kvr_kv_spaces_init(struct kvr_kv_spaces *spaces, struct kvr_kv_memory *memory)
{
    memset(spaces, 0, sizeof *spaces);
    spaces->memory = memory;
}

static void free_space(struct kvr_kv_spaces *spaces, struct kvr_kv_space *space)
{
    if (!space)
        return;
    spaces->memory->used -= space->bytes;
    free(space);
}

void kvr_kv_spaces_release(struct kvr_kv_spaces *spaces)
{
    for (size_t i = 0; i < spaces->count; i++)
        free_space(spaces, spaces->items[i]);
    free(spaces->items);
    free(spaces->free_numbers);
    kvr_u64_map_release(&spaces->by_key);
    kvr_kv_spaces_init(spaces, spaces->memory);
}

static bool same(struct kvr_text a, struct kvr_text b)
{
    return !a.text == !b.text && a.length == b.length &&
           (!a.length || memcmp(a.text, b.text, a.length) == 0);
}

static uint64_t key_of(const struct kvr_kv_space *wanted)
{
    const struct kvr_namespace names = {wanted->model, wanted->lora, wanted->salt, {NULL, 0}, 0};

    return kvr_namespace_seed(&names) ^ wanted->block_size * UINT64_C(0x9e3779b97f4a7c15);
}

static struct kvr_text keep(char **at, struct kvr_text text)
{
    if (!text.text)
        return text;
    memcpy(*at, text.text, text.length);
    text.text = *at;
    *at += text.length;
    return text;
}

static struct kvr_kv_space *make(struct kvr_kv_spaces *spaces, const struct kvr_kv_space *wanted)
{
    size_t texts = wanted->model.length + wanted->lora.length + wanted->salt.length;
    size_t bytes = sizeof *wanted + texts + 64; /* and about so much for finding it */
    struct kvr_kv_space *space;

    if (bytes > spaces->memory->limit - spaces->memory->used)
        return NULL;
    space = malloc(sizeof *space + texts);
    if (!space)
        return NULL;
    *space = *wanted;
    space->bytes = bytes;
    space->holders = 0;
    char *at = (char *)(space + 1);
    space->model = keep(&at, wanted->model);
    space->lora = keep(&at, wanted->lora);
    space->salt = keep(&at, wanted->salt);
    const struct kvr_namespace names = {space->model, space->lora, space->salt, {NULL, 0}, 0};
    space->seed = kvr_namespace_seed(&names);
    spaces->memory->used += bytes;
    return space;
}

/* A free number, 0 when memory is short. The list of free ones has room for all of them. */
static uint32_t free_number(struct kvr_kv_spaces *spaces)
{
    if (spaces->free_count)
        return spaces->free_numbers[--spaces->free_count];
    uint32_t *numbers =
        kvr_grow(spaces->free_numbers, &spaces->free_room, spaces->count + 1, sizeof *numbers);
    if (!numbers)
        return 0;
    spaces->free_numbers = numbers;
    struct kvr_kv_space **items =
        kvr_grow(spaces->items, &spaces->room, spaces->count + 1, sizeof *items);
    if (!items || spaces->count + 1 >= UINT32_MAX)
        return 0;
    spaces->items = items;
    items[spaces->count++] = NULL;
    return (uint32_t)spaces->count;
}

uint32_t kvr_kv_spaces_find(struct kvr_kv_spaces *spaces, const struct kvr_kv_space *wanted)
{
    uint64_t key = key_of(wanted), *slot;

    for (; (slot = kvr_u64_map_find(&spaces->by_key, key)); key++) {
        const struct kvr_kv_space *space = kvr_kv_spaces_get(spaces, (uint32_t)*slot);
        if (space->block_size == wanted->block_size && same(space->model, wanted->model) &&
            same(space->lora, wanted->lora) && same(space->salt, wanted->salt))
            return (uint32_t)*slot;
    }
    struct kvr_kv_space *space = make(spaces, wanted);
    uint32_t number = space ? free_number(spaces) : 0;
    slot = number ? kvr_u64_map_insert(&spaces->by_key, key, NULL) : NULL;
    if (!slot) {
        if (number)
            spaces->free_numbers[spaces->free_count++] = number;
        free_space(spaces, space);
        return 0;
    }
    *slot = number;
    space->key = key;
    spaces->items[number - 1] = space;
    return number;
}

void kvr_kv_spaces_drop(struct kvr_kv_spaces *spaces, uint32_t number)
{
    struct kvr_kv_space *space = kvr_kv_spaces_get(spaces, number);

    if (space->holders)
        return;
    kvr_u64_map_remove(&spaces->by_key, space->key, NULL);
    spaces->items[number - 1] = NULL;
    spaces->free_numbers[spaces->free_count++] = number;
    free_space(spaces, space);
}
