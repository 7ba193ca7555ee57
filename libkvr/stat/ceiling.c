#include "stat/ceiling.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 4096 };

void kvr_ceiling_release(struct kvr_ceiling *ceiling)
{
    free(ceiling->keys);
    free(ceiling->tokens);
    ceiling->keys = NULL;
    ceiling->tokens = NULL;
    ceiling->mask = ceiling->count = 0;
}

/* Ids are often small integers that come one after the other: eight such share a cache line. */
static inline size_t place(const struct kvr_ceiling *ceiling, uint64_t key)
{
    uint64_t line = (key >> 3) * 0x9e3779b97f4a7c15u;

    return (size_t)((line >> 20 << 3) | (key & 7)) & ceiling->mask;
}

static inline size_t find(const struct kvr_ceiling *ceiling, uint64_t key)
{
    size_t at = place(ceiling, key);

    while (ceiling->keys[at] && ceiling->keys[at] != key)
        at = (at + 1) & ceiling->mask;
    return at;
}

static inline bool has(const struct kvr_ceiling *ceiling, uint64_t key)
{
    return ceiling->keys[find(ceiling, key)] != 0;
}

static bool grow(struct kvr_ceiling *ceiling)
{
    size_t slots = ceiling->mask ? (ceiling->mask + 1) * 2 : FIRST_SLOTS;
    struct kvr_ceiling larger = *ceiling;

    larger.mask = slots - 1;
    larger.keys = calloc(slots, sizeof *larger.keys);
    larger.tokens = calloc(slots, sizeof *larger.tokens);
    if (!larger.keys || !larger.tokens) {
        free(larger.keys);
        free(larger.tokens);
        return false;
    }
    for (size_t i = 0; ceiling->mask && i <= ceiling->mask; i++) {
        if (ceiling->keys[i]) {
            size_t at = find(&larger, ceiling->keys[i]);
            larger.keys[at] = ceiling->keys[i];
            larger.tokens[at] = ceiling->tokens[i];
        }
    }
    free(ceiling->keys);
    free(ceiling->tokens);
    *ceiling = larger;
    return true;
}

enum kvr_status kvr_ceiling_add(struct kvr_ceiling *ceiling, uint64_t key, uint32_t tokens,
    bool *known, struct kvr_error *error)
{
    *known = false;
    if (ceiling->full)
        return KVR_OK;
    if ((!ceiling->mask || (ceiling->count + 1) * 2 > ceiling->mask) && !grow(ceiling))
        return kvr_error_memory(error);
    size_t at = find(ceiling, key);
    if (ceiling->keys[at]) {
        *known = true;
        return KVR_OK;
    }
    if (ceiling->count >= ceiling->limit) {
        ceiling->full = true;
        kvr_ceiling_release(ceiling);
        return KVR_OK;
    }
    ceiling->keys[at] = key;
    ceiling->tokens[at] = tokens;
    ceiling->count++;
    return KVR_OK;
}

void kvr_ceiling_prefetch(
    const struct kvr_ceiling *ceiling, const uint64_t *ids, size_t count, uint64_t name_space)
{
    if (ceiling->mask && count)
        __builtin_prefetch(
            &ceiling->keys[place(ceiling, kvr_ceiling_key(ids[count - 1], name_space))]);
}

enum kvr_status kvr_ceiling_request(struct kvr_ceiling *ceiling, const uint64_t *ids, size_t count,
    uint64_t name_space, uint64_t block_tokens, uint64_t prompt_tokens, uint64_t *reusable,
    struct kvr_error *error)
{
    size_t seen = 0, i;

    *reusable = 0;
    if (ceiling->full)
        return KVR_OK;
    /* The blocks seen before are a prefix: most often all of them, else its end is searched. */
    if (ceiling->mask && count) {
        size_t unseen = count;
        if (has(ceiling, kvr_ceiling_key(ids[count - 1], name_space)))
            seen = count;
        while (seen < unseen) {
            size_t middle = seen + (unseen - seen) / 2;
            if (middle + 1 < count && has(ceiling, kvr_ceiling_key(ids[middle], name_space)))
                seen = middle + 1;
            else
                unseen = middle;
        }
    }
    uint64_t tokens = seen * block_tokens;
    *reusable = tokens < prompt_tokens ? tokens : prompt_tokens;
    for (i = seen; i < count; i++) {
        bool known;
        uint64_t before = i * block_tokens;
        uint64_t left = before < prompt_tokens ? prompt_tokens - before : 0;
        enum kvr_status status = kvr_ceiling_add(ceiling, kvr_ceiling_key(ids[i], name_space),
            (uint32_t)(left < block_tokens ? left : block_tokens), &known, error);
        if (status != KVR_OK || ceiling->full) {
            *reusable = 0;
            return status;
        }
    }
    return KVR_OK;
}
