/*
 * Merging where symbols repeat. A vocabulary with tokens of 2, 3, 4, ... 64 dashes has dozens of
 * ways to begin a run of dashes, and which are compatible is decided at its end: the search of
 * bpe.c then goes back over all of it. So a piece with long runs is merged, as runs: a node is a
 * symbol and how many of it follow each other.
 *
 * The lowest pair is one of two kinds. Two of a node's own symbols: merging goes from left to
 * right, so k / 2 pairs of its k symbols merge, and what is left over stays behind them; one step,
 * whatever k. Or the last of a node and the first of the next. Neighbouring nodes never have the
 * same symbol, so equal pairs do not overlap, and their order among themselves does not matter; and
 * what a merge makes merges later than it (not so where vocabularies are irregular). A run of k
 * symbols takes O(log k) steps.
 */
#include "base/grow.h"
#include "token/merge_heap.h"
#include "token/unicode.h"

#define LONG_RUN 32 /* bytes */
#define NONE UINT32_MAX

struct node {
    uint32_t id, count;      /* count 0: a free node */
    uint32_t previous, next; /* indexes of nodes, or NONE; of a free node: the next free one */
};

struct runs {
    const struct kvr_vocabulary *v;
    struct kvr_bpe_scratch *scratch;
    struct node *nodes;
    size_t candidates;
    uint32_t node_count, unused; /* unused: the first free node */
    bool failed;
};

bool kvr_bpe_has_runs(const struct kvr_vocabulary *v, const uint8_t *piece, size_t length)
{
    bool characters = v->header->model == KVR_MODEL_CHAR_BPE;
    size_t in_runs = 0, start = 0, symbol = 0;

    for (size_t at = 0; at < length;) {
        unsigned size = 1;
        if (characters && piece[at] >= 0x80)
            kvr_utf8_decode(piece + at, piece + length, &size);
        if (size != symbol || memcmp(piece + at, piece + start, size) != 0) {
            in_runs += at - start >= LONG_RUN ? at - start : 0;
            start = at;
            symbol = size;
        }
        at += size;
    }
    in_runs += length - start >= LONG_RUN ? length - start : 0;
    return in_runs >= length / 4 + 1;
}

/* Asks for the merge of a node's last symbol with the next node's first, or of two of its own. */
static void consider(struct runs *r, uint32_t at, bool own)
{
    if (at == NONE || (own ? r->nodes[at].count < 2 : r->nodes[at].next == NONE))
        return;
    uint32_t left = r->nodes[at].id, right = own ? left : r->nodes[r->nodes[at].next].id;
    uint32_t merged = kvr_pair_find(r->v, left, right);
    if (merged == KVR_NO_TOKEN)
        return;
    void *heap = kvr_grow(r->scratch->heap, &r->scratch->heap_bytes,
        (r->candidates + 1) * sizeof(struct kvr_candidate), 1);
    if (!heap) {
        r->failed = true;
        return;
    }
    r->scratch->heap = heap;
    kvr_candidate_push(
        heap, &r->candidates, (struct kvr_candidate){r->v->records[merged].order, at, left, right});
}

/* A node behind `previous`. */
static uint32_t insert(struct runs *r, uint32_t previous, uint32_t id, uint32_t count)
{
    uint32_t at = r->unused, next = previous == NONE ? NONE : r->nodes[previous].next;

    if (at == NONE) {
        void *nodes = kvr_grow(r->scratch->nodes, &r->scratch->node_bytes,
            ((size_t)r->node_count + 1) * sizeof *r->nodes, 1);
        if (!nodes) {
            r->failed = true;
            return previous;
        }
        r->nodes = r->scratch->nodes = nodes;
        at = r->node_count++;
    } else {
        r->unused = r->nodes[at].next;
    }
    r->nodes[at] = (struct node){id, count, previous, next};
    if (previous != NONE)
        r->nodes[previous].next = at;
    if (next != NONE)
        r->nodes[next].previous = at;
    return at;
}

static void drop(struct runs *r, uint32_t at)
{
    uint32_t previous = r->nodes[at].previous, next = r->nodes[at].next;

    if (previous != NONE)
        r->nodes[previous].next = next;
    if (next != NONE)
        r->nodes[next].previous = previous;
    r->nodes[at] = (struct node){KVR_NO_TOKEN, 0, NONE, r->unused};
    r->unused = at;
}

/* Takes a node and what stands beside it with the same symbol together. Returns where it is. */
static uint32_t join(struct runs *r, uint32_t at)
{
    uint32_t previous = r->nodes[at].previous, next = r->nodes[at].next;

    if (next != NONE && r->nodes[next].id == r->nodes[at].id) {
        r->nodes[at].count += r->nodes[next].count;
        drop(r, next);
    }
    if (previous != NONE && r->nodes[previous].id == r->nodes[at].id) {
        r->nodes[previous].count += r->nodes[at].count;
        drop(r, at);
        at = previous;
    }
    return at;
}

/* Merges the pairs within a node, or the pair that it makes with the next. */
static void merge(struct runs *r, uint32_t at, uint32_t merged, bool own)
{
    uint32_t count = 1;

    if (own) {
        count = r->nodes[at].count / 2;
        r->nodes[at].count -= 2 * count; /* of what is left, at most one, the place is behind */
    } else {
        r->nodes[at].count--;
        r->nodes[r->nodes[at].next].count--;
    }
    uint32_t middle = insert(r, own ? r->nodes[at].previous : at, merged, count);
    if (r->failed)
        return;
    if (own && r->nodes[at].previous != middle) { /* it was the first */
        r->nodes[middle].next = at;
        r->nodes[at].previous = middle;
    }
    uint32_t next = r->nodes[middle].next;
    if (next != NONE && !r->nodes[next].count)
        drop(r, next);
    if (!own && !r->nodes[at].count)
        drop(r, at);
    middle = join(r, middle);
    consider(r, middle, true);
    consider(r, r->nodes[middle].previous, false);
    consider(r, middle, false);
}

/* Makes the nodes of a piece. False: one of its symbols is no token. */
static bool make_nodes(struct runs *r, const uint8_t *piece, size_t length)
{
    uint32_t last = NONE;
    unsigned size;

    for (size_t at = 0; at < length && !r->failed; at += size) {
        uint32_t id = kvr_symbol_at(r->v, piece + at, piece + length, &size);
        if (id == KVR_NO_TOKEN)
            return false;
        if (last != NONE && r->nodes[last].id == id)
            r->nodes[last].count++;
        else
            last = insert(r, last, id, 1);
    }
    return true;
}

bool kvr_bpe_merge_runs(const struct kvr_vocabulary *v, struct kvr_bpe_scratch *scratch,
    const uint8_t *piece, size_t length, struct kvr_ids *ids)
{
    struct runs r = {.v = v, .scratch = scratch, .unused = NONE};

    if (length >= UINT32_MAX / 4) {
        ids->failed = true;
        return true;
    }
    if (!make_nodes(&r, piece, length))
        return false;
    for (uint32_t at = 0; at < r.node_count && !r.failed; at++) {
        consider(&r, at, true);
        consider(&r, at, false);
    }
    while (r.candidates && !r.failed) {
        struct kvr_candidate best = kvr_candidate_pop(scratch->heap, &r.candidates);
        const struct node *node = &r.nodes[best.at];
        bool own = best.left == best.right;
        if (!node->count || node->id != best.left)
            continue;
        if (own ? node->count < 2 : node->next == NONE || r.nodes[node->next].id != best.right)
            continue;
        merge(&r, best.at, kvr_pair_find(v, best.left, best.right), own);
    }
    ids->failed |= r.failed;
    uint32_t at = 0;
    while (!ids->failed && !(r.nodes[at].count && r.nodes[at].previous == NONE))
        at++;
    for (; !ids->failed && at != NONE; at = r.nodes[at].next)
        for (uint32_t i = 0; i < r.nodes[at].count; i++)
            kvr_ids_push(ids, r.nodes[at].id);
    return true;
}
