#include "token/added_backward.h"
#include "base/grow.h"
#include "token/text_order.h"

#define BLOCK 65536 /* places known at a time, or as many as the longest text has bytes */

/* The state behind `state` at a byte; 0 (where only the root is): there is none. */
static inline uint32_t child_of(const uint64_t *units, uint32_t state, uint8_t byte)
{
    uint32_t unit = KVR_TRIE_BASE(units[state]) ^ byte;

    return KVR_TRIE_LABEL(units[unit]) == byte ? unit : 0;
}

static inline uint32_t next_state(const struct kvr_backward *b, uint32_t state, uint8_t byte)
{
    const uint64_t *units = (const uint64_t *)(const void *)b->units.data;
    uint32_t next;

    while (!(next = child_of(units, state, byte)) && state)
        state = b->fallback[state];
    return next;
}

/* Gives each state its fallback, those of fewer bytes first. */
static bool link_states(struct kvr_backward *b, const uint8_t *bytes,
    const struct kvr_source_token *texts, uint32_t count)
{
    const uint64_t *units = (const uint64_t *)(const void *)b->units.data;
    uint32_t *states = calloc((size_t)count + 1, sizeof *states), left = 0;
    uint32_t *going_on = calloc((size_t)count + 1, sizeof *going_on);

    for (uint32_t i = 0; going_on && i < count; i++)
        going_on[left++] = i;
    for (uint32_t depth = 0; states && going_on && left; depth++) {
        uint32_t kept = 0;
        for (uint32_t k = 0; k < left; k++) {
            uint32_t i = going_on[k];
            if (depth >= texts[i].length)
                continue;
            going_on[kept++] = i;
            uint8_t byte = bytes[texts[i].offset + depth];
            uint32_t state = states[i], next = child_of(units, state, byte);
            states[i] = next;
            if (b->fallback[next] != KVR_NO_TOKEN)
                continue;
            b->fallback[next] = state ? next_state(b, b->fallback[state], byte) : 0;
            uint32_t own = KVR_TRIE_TOKEN(units[next]);
            b->found[next] = own != KVR_NO_TOKEN ? own : b->found[b->fallback[next]];
        }
        left = kept;
    }
    bool ok = states && going_on;
    free(going_on);
    free(states);
    return ok;
}

static void write_backwards(
    uint8_t *out, const uint8_t *bytes, const struct kvr_source_token *texts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < texts[i].length; k++)
            out[texts[i].offset + k] = bytes[texts[i].offset + texts[i].length - 1 - k];
}

enum kvr_status kvr_backward_build(struct kvr_backward *b, const uint8_t *bytes,
    const struct kvr_source_token *texts, uint32_t count, struct kvr_error *error)
{
    struct kvr_ordered_text *order = malloc(((size_t)count + 1) * sizeof *order);
    uint32_t kept = 0;
    size_t length = 0;

    memset(b, 0, sizeof *b);
    for (uint32_t i = 0; i < count; i++) {
        size_t end = (size_t)texts[i].offset + texts[i].length;
        length = end > length ? end : length;
        b->longest = texts[i].length > b->longest ? texts[i].length : b->longest;
        if (order && texts[i].length)
            order[kept++].id = i;
    }
    uint8_t *backwards = malloc(length + 1);
    b->lengths = malloc(((size_t)count + 1) * sizeof *b->lengths);
    bool ok = order && backwards && b->lengths;
    for (uint32_t i = 0; ok && i < count; i++)
        b->lengths[i] = texts[i].length;
    if (ok) {
        write_backwards(backwards, bytes, texts, count);
        ok = kvr_text_order(order, kept, backwards, texts);
    }
    if (ok) {
        kept = kvr_text_order_unique(order, kept);
        ok = kvr_trie_build(order, kept, backwards, texts, &b->units, error) == KVR_OK;
    }
    if (ok) {
        size_t states = b->units.length / sizeof(uint64_t);
        b->fallback = malloc(states * sizeof *b->fallback);
        b->found = malloc(states * sizeof *b->found);
        ok = b->fallback && b->found;
        for (size_t i = 0; ok && i < states; i++)
            b->fallback[i] = b->found[i] = KVR_NO_TOKEN;
        if (ok)
            b->fallback[0] = 0;
        ok = ok && link_states(b, backwards, texts, count);
    }
    free(order);
    free(backwards);
    return ok ? KVR_OK : kvr_error_memory(error);
}

void kvr_backward_release(struct kvr_backward *backward)
{
    kvr_buffer_release(&backward->units);
    free(backward->fallback);
    free(backward->found);
    free(backward->lengths);
    memset(backward, 0, sizeof *backward);
}

/* Finds what starts at the places from `from` on, for a block. */
static void look_at_block(const struct kvr_backward *b, struct kvr_backward_matches *matches,
    const uint8_t *text, size_t from, size_t length)
{
    size_t block = b->longest > BLOCK ? b->longest : BLOCK;
    size_t end = length - from > block ? from + block : length;
    size_t at = length - end > b->longest ? end + b->longest : length;
    uint32_t state = 0;

    matches->count = 0;
    matches->block_end = end;
    while (at-- > from) {
        state = next_state(b, state, text[at]);
        if (at >= end || b->found[state] == KVR_NO_TOKEN)
            continue;
        uint64_t *grown = kvr_grow(
            matches->items, &matches->capacity, matches->count + 1, sizeof *matches->items);
        if (!grown) {
            matches->failed = true;
            return;
        }
        matches->items = grown;
        matches->items[matches->count++] = (uint64_t)at << 32 | b->found[state];
    }
}

uint32_t kvr_backward_find(const struct kvr_backward *backward,
    struct kvr_backward_matches *matches, const uint8_t *text, size_t from, size_t length,
    size_t *start, size_t *stop)
{
    for (;;) {
        while (matches->count && matches->items[matches->count - 1] >> 32 < from)
            matches->count--;
        if (matches->count && !matches->failed) {
            uint32_t number = (uint32_t)matches->items[matches->count - 1];
            *start = (size_t)(matches->items[matches->count - 1] >> 32);
            *stop = *start + backward->lengths[number];
            return number;
        }
        size_t next = from > matches->block_end ? from : matches->block_end;
        if (next >= length || matches->failed)
            return KVR_NO_TOKEN;
        look_at_block(backward, matches, text, next, length);
    }
}
