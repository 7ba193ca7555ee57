/*
 * The search.
 *
 * The problem: for each of thousands of workers, how many blocks from the first does it hold? A
 * walk over the request costs a look-up a block; a request has hundreds of them.
 *
 * Where holdings are closed under prefixes, H(d), the set of workers holding block d, only shrinks
 * with depth d. So its size c(d), which stands in the head record, only falls, c(a) = c(b) means
 * H(a) = H(b), and the answer lies in the depths where c falls. Those are found by a multi-way
 * search for all of them at once:
 *   round 1   probe depths 1, 2, 4, 8 … n;
 *   round r   of each gap between neighbouring probes whose c differs, probe some more;
 *   end       when each fall is known to the block: list the holders there, deepest first.
 *
 *     c(d)  8 8 8 8 8 8 3 3 3 3 3 3 3 1 1 1 1 1 1 0 0 0 …       the falls are at 6, 13 and 19
 *           ^ ^   ^       ^               ^                    first round
 *
 * The probes of a round do not depend on each other: their buckets are prefetched, then their
 * records, so a round costs two memory latencies whatever its width, and a search a few rounds,
 * O(log n) probes for each distinct run length.
 *
 * Where there may be holes (cache events, ids that are not chained) each holder of the first block
 * is walked. The record after the last one is tried first: blocks that were stored together lie
 * side by side, so the walk is mostly a comparison of consecutive 16-byte cells.
 */
#include "cache/index_private.h"

#define MAX_PROBES 1024u /* of one search; a request that needs more is walked */
#define ROUND_PROBES 16u

struct probe {
    uint32_t depth;   /* 1 is the first block; 0 and count + 1 are sentinels */
    uint32_t head;    /* 0 when nobody holds the block */
    uint32_t holders; /* c(depth) */
};

/* Fills head and holders of `count` probes. */
static void look(const struct kvr_index *index, const struct kvr_blocks *blocks,
    struct probe *probes, uint32_t count)
{
    uint64_t keys[64];

    for (uint32_t i = 0; i < count; i++) {
        keys[i] = kvr_index_mix(blocks->space, blocks->ids[probes[i].depth - 1]);
        kvr_index_prefetch(index, keys[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct kvr_index_bucket *bucket = &index->buckets[kvr_index_home(index, keys[i])];
        uint32_t slots = kvr_index_slots(bucket, kvr_index_tag(keys[i]));
        if (slots)
            __builtin_prefetch(&index->block[bucket->records[__builtin_ctz(slots)]]);
    }
    for (uint32_t i = 0; i < count; i++) {
        probes[i].head = kvr_index_head(index, keys[i]);
        probes[i].holders = probes[i].head ? index->block[probes[i].head].holders : 0;
    }
}

/* The first round: its depths, rising. At most 33. */
static uint32_t first_depths(size_t count, struct probe *probes)
{
    uint32_t length = 0;

    for (uint64_t depth = 1; depth < count; depth *= 2)
        probes[length++].depth = (uint32_t)depth;
    probes[length++].depth = (uint32_t)count;
    return length;
}

static uint32_t gap(const struct probe *probe)
{
    return probe[0].holders != probe[1].holders ? probe[1].depth - probe[0].depth - 1 : 0;
}

/*
 * One more round between the known probes, which rise in depth and end with sentinels. Returns the
 * new number of them; the same number when every fall is known to the block; 0 when `room` is
 * short.
 */
static uint32_t next_round(const struct kvr_index *index, const struct kvr_blocks *blocks,
    struct probe *known, uint32_t length, uint32_t room)
{
    struct probe fresh[64];
    uint32_t open = 0, each, made = 0, from;

    for (uint32_t i = 0; i + 1 < length; i++)
        open += gap(&known[i]) != 0;
    if (!open)
        return length;
    each = open < ROUND_PROBES ? ROUND_PROBES / open : 1;
    for (uint32_t i = 0; i + 1 < length && made + each <= 64; i++) {
        uint32_t inside = gap(&known[i]), take = inside < each ? inside : each;
        for (uint32_t j = 1; j <= take; j++)
            fresh[made++].depth =
                known[i].depth + (uint32_t)((uint64_t)(inside + 1) * j / (take + 1));
    }
    if (length + made > room)
        return 0;
    look(index, blocks, fresh, made);
    /* Merge from the back: both are sorted. */
    from = length;
    length += made;
    for (uint32_t to = length; made;)
        if (from && known[from - 1].depth > fresh[made - 1].depth)
            known[--to] = known[--from];
        else
            known[--to] = fresh[--made];
    return length;
}

/* True unless c rises somewhere, which closed holdings and chained ids cannot show. */
static bool only_falls(const struct probe *known, uint32_t length)
{
    for (uint32_t i = 0; i + 1 < length; i++)
        if (known[i + 1].holders > known[i].holders)
            return false;
    return true;
}

/* The holders at each fall, deepest first, each worker once. */
static size_t list_falls(struct kvr_index *index, const struct probe *known, uint32_t length)
{
    size_t found = 0;

    for (uint32_t i = length - 1; i-- > 1;) {
        if (known[i].holders == known[i + 1].holders)
            continue;
        for (uint32_t record = known[i].head; found < known[i].holders && record;
             record = index->block[record].next_holder) {
            uint32_t worker = index->block[record].worker;
            if (index->seen[worker] == index->seen_epoch)
                continue;
            index->seen[worker] = index->seen_epoch;
            index->matches[found++] = (struct kvr_index_match){worker, known[i].depth};
        }
    }
    return found;
}

/* False when the request must be walked. */
static bool search(struct kvr_index *index, const struct kvr_blocks *blocks, size_t *found)
{
    struct probe known[MAX_PROBES];
    uint32_t length = first_depths(blocks->count, known + 1), before;

    look(index, blocks, known + 1, length);
    known[0] = (struct probe){0, 0, UINT32_MAX};
    known[length + 1] = (struct probe){(uint32_t)blocks->count + 1, 0, 0};
    length += 2;
    if (!known[1].holders) {
        *found = 0;
        return true;
    }
    do {
        if (!only_falls(known, length))
            return false;
        before = length;
        length = next_round(index, blocks, known, length, MAX_PROBES);
        if (!length)
            return false;
    } while (length != before);
    if (++index->seen_epoch == 0) {
        memset(index->seen, 0, index->worker_room * sizeof *index->seen);
        index->seen_epoch = 1;
    }
    *found = list_falls(index, known, length);
    return true;
}

static size_t walk(struct kvr_index *index, const struct kvr_blocks *blocks)
{
    uint64_t first = kvr_index_mix(blocks->space, blocks->ids[0]);
    size_t found = 0;

    for (uint32_t holder = kvr_index_head(index, first); holder;
         holder = index->block[holder].next_holder) {
        uint32_t worker = index->block[holder].worker, run = 1;
        for (uint32_t record = holder; run < blocks->count; run++) {
            record = kvr_index_follow(
                index, record, worker, kvr_index_mix(blocks->space, blocks->ids[run]));
            if (!record)
                break;
        }
        index->matches[found++] = (struct kvr_index_match){worker, run};
    }
    return found;
}

/* So few steps that walking them is as fast as the rounds of a search. */
static bool is_small(const struct kvr_index *index, const struct kvr_blocks *blocks)
{
    uint64_t first = kvr_index_mix(blocks->space, blocks->ids[0]);
    uint32_t head = kvr_index_head(index, first);

    return !head || (uint64_t)index->block[head].holders * blocks->count <= KVR_INDEX_WALK_STEPS;
}

/* One pass of a radix sort: by the byte of the worker's number that begins at bit `shift`. */
static void sort_by_byte(
    const struct kvr_index_match *from, struct kvr_index_match *to, size_t count, unsigned shift)
{
    uint32_t start[257] = {0};

    for (size_t i = 0; i < count; i++)
        start[(from[i].worker >> shift & 255) + 1]++;
    for (unsigned byte = 1; byte < 256; byte++)
        start[byte] += start[byte - 1];
    for (size_t i = 0; i < count; i++)
        to[start[from[i].worker >> shift & 255]++] = from[i];
}

/* In order of worker, whose numbers have 16 bits. Returns where the result lies: matches or, of the
 * same room, spare. */
static const struct kvr_index_match *sort_matches(
    struct kvr_index_match *matches, struct kvr_index_match *spare, size_t count)
{
    uint32_t high = 0;

    if (count > 32) {
        for (size_t i = 0; i < count; i++)
            high |= matches[i].worker >> 8;
        sort_by_byte(matches, spare, count, 0);
        if (!high)
            return spare;
        sort_by_byte(spare, matches, count, 8);
        return matches;
    }
    for (size_t i = 1; i < count; i++) {
        struct kvr_index_match moving = matches[i];
        size_t at = i;
        for (; at && matches[at - 1].worker > moving.worker; at--)
            matches[at] = matches[at - 1];
        matches[at] = moving;
    }
    return matches;
}

size_t kvr_index_find(struct kvr_index *index, int64_t now_ms, const struct kvr_blocks *blocks,
    const struct kvr_index_match **matches)
{
    size_t found = 0;

    kvr_index_advance(index, now_ms);
    *matches = index->matches;
    if (!blocks->count || !index->slots_taken)
        return 0;
    if (index->walk || is_small(index, blocks) || !search(index, blocks, &found))
        found = walk(index, blocks);
    *matches = sort_matches(index->matches, index->matches + index->worker_room, found);
    return found;
}

void kvr_index_tiers(const struct kvr_index *index, uint32_t worker,
    const struct kvr_blocks *blocks, uint64_t tokens, uint64_t tiers[KVR_MEDIUM_COUNT])
{
    bool exact = index->workers[worker].exact;
    uint32_t record = 0;

    memset(tiers, 0, KVR_MEDIUM_COUNT * sizeof *tiers);
    for (size_t i = 0; tokens && i < blocks->count; i++) {
        uint64_t here = tokens < blocks->block_size ? tokens : blocks->block_size;
        int medium = KVR_MEDIUM_GPU;
        record =
            kvr_index_follow(index, record, worker, kvr_index_mix(blocks->space, blocks->ids[i]));
        if (!record)
            return;
        if (exact)
            while (medium < KVR_MEDIUM_REMOTE && !index->use[record].copies[medium])
                medium++;
        tiers[medium] += here;
        tokens -= here;
    }
}
