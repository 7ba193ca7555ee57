/*
 * Sorting some hundred thousand short texts. The first eight bytes as a number decide nearly all of
 * it, and numbers are sorted without comparing: by 11 bits at a time, the lowest first, each time
 * keeping the order that there was. What is left are short runs of texts whose first eight bytes
 * are the same.
 */
#include "token/text_order.h"
#include "base/pages.h"
#include "token/pair_table.h"

#include <stdlib.h>
#include <string.h>

#define DIGIT_BITS 11
#define DIGITS 6 /* of a number of 64 bits */
#define DIGIT_COUNT (1u << DIGIT_BITS)
#define FEW 500 /* up to here comparing is less work than counting digits */

struct item {
    uint64_t start; /* the first eight bytes, the first the highest; zeros behind the end */
    uint32_t id, length;
};

/* What comparing two texts reads. */
struct texts {
    const uint8_t *bytes;
    const struct kvr_source_token *tokens;
};

static uint64_t start_of(const uint8_t *bytes, uint32_t length)
{
    uint64_t start = 0;

    memcpy(&start, bytes, length < 8 ? length : 8);
    return __builtin_bswap64(start);
}

static int compare(const void *a, const void *b, void *context)
{
    const struct texts *texts = context;
    const struct item *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    uint32_t shared = x->length < y->length ? x->length : y->length;
    int order = memcmp(texts->bytes + texts->tokens[x->id].offset,
        texts->bytes + texts->tokens[y->id].offset, shared);

    if (!order)
        order = (x->length > y->length) - (x->length < y->length);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

/* Sorts by `start`. The items end up where they were or in `spare`: returns which. */
static struct item *sort_starts(
    struct item *items, struct item *spare, uint32_t count, uint32_t (*at)[DIGIT_COUNT])
{
    memset(at, 0, DIGITS * sizeof *at);
    for (uint32_t i = 0; i < count; i++)
        for (int digit = 0; digit < DIGITS; digit++)
            at[digit][items[i].start >> digit * DIGIT_BITS & (DIGIT_COUNT - 1)]++;
    for (int digit = 0; digit < DIGITS; digit++) {
        uint32_t first = 0;
        for (uint32_t value = 0; value < DIGIT_COUNT; value++) {
            uint32_t size = at[digit][value];
            at[digit][value] = first;
            first += size;
        }
        for (uint32_t i = 0; i < count; i++)
            spare[at[digit][items[i].start >> digit * DIGIT_BITS & (DIGIT_COUNT - 1)]++] = items[i];
        struct item *sorted = spare;
        spare = items;
        items = sorted;
    }
    return items;
}

/* How many bytes two neighbours share. */
static uint32_t shared_bytes(
    const struct texts *texts, const struct item *before, const struct item *item)
{
    uint32_t shorter = before->length < item->length ? before->length : item->length, shared = 8;

    if (before->start != item->start) {
        shared = (uint32_t)__builtin_clzll(before->start ^ item->start) / 8;
    } else if (shorter > 8) {
        const uint8_t *x = texts->bytes + texts->tokens[before->id].offset;
        const uint8_t *y = texts->bytes + texts->tokens[item->id].offset;
        while (shared < shorter && x[shared] == y[shared])
            shared++;
    }
    return shared < shorter ? shared : shorter;
}

bool kvr_text_order(struct kvr_ordered_text *order, uint32_t count, const uint8_t *bytes,
    const struct kvr_source_token *tokens)
{
    struct texts texts = {bytes, tokens};
    struct item *items = kvr_pages_malloc(((size_t)count * 2 + 1) * sizeof *items);
    uint32_t(*at)[DIGIT_COUNT] = malloc(DIGITS * sizeof *at);

    if (!items || !at) {
        free(items);
        free(at);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct kvr_source_token *token = &tokens[order[i].id];
        items[i] = (struct item){
            start_of(bytes + token->offset, token->length), order[i].id, token->length};
    }
    struct item *sorted = items;
    if (count > FEW)
        sorted = sort_starts(items, items + count, count, at);
    for (uint32_t i = 0; i < count;) {
        uint32_t end = count > FEW ? i + 1 : count;
        while (end < count && sorted[end].start == sorted[i].start)
            end++;
        if (end - i > 1)
            qsort_r(&sorted[i], end - i, sizeof *sorted, compare, &texts);
        i = end;
    }
    for (uint32_t i = 0; i < count; i++)
        order[i] = (struct kvr_ordered_text){sorted[i].id,
            i ? shared_bytes(&texts, &sorted[i - 1], &sorted[i]) : 0, sorted[i].length};
    free(items);
    free(at);
    return true;
}

uint32_t kvr_text_order_keep(
    struct kvr_ordered_text *order, uint32_t count, const uint8_t *flags, uint8_t flag)
{
    uint32_t kept = 0, shared = UINT32_MAX;

    for (uint32_t i = 0; i < count; i++) {
        shared = order[i].shared < shared ? order[i].shared : shared;
        if (!(flags[order[i].id] & flag))
            continue;
        order[kept++] = (struct kvr_ordered_text){order[i].id, shared, order[i].length};
        shared = UINT32_MAX;
    }
    return kept;
}

uint32_t kvr_text_order_unique(struct kvr_ordered_text *order, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (!i || order[i].shared < order[i].length || order[i - 1].length != order[i].length)
            order[kept++] = order[i];
    return kept;
}

bool kvr_text_order_shorter(const struct kvr_ordered_text *order, uint32_t count, uint32_t *shorter)
{
    /* the texts that the one before starts with, and itself, from the shortest on */
    const struct kvr_ordered_text **chain = malloc(((size_t)count + 1) * sizeof *chain);
    uint32_t depth = 0;

    if (!chain)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        while (depth && chain[depth - 1]->length > order[i].shared)
            depth--;
        shorter[order[i].id] = depth ? chain[depth - 1]->id : KVR_NO_TOKEN;
        chain[depth++] = &order[i];
    }
    free(chain);
    return true;
}
