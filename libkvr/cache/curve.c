/*
 * Stack distances without a stack.
 *
 * Problem: a block's depth in the LRU stack is the number of blocks used since, and a trace of ten
 * million accesses over a million blocks must not walk it.
 *
 * Idea: give every use a position on a growing axis. A block lives at the position of its last use;
 * its depth is the number of living positions from its own to the end. Living positions are bits,
 * and a Fenwick tree counts them by blocks of 512 bits, so a depth is ten additions and at most
 * eight population counts.
 *
 *     axis    . . x . x x . | x x . . x x x | . x …      x: last use of some block
 *                     ^ depth = x's from here to the right end
 *
 * A request's path gets new positions leaf first. So a path that was used before as a whole lies at
 * descending neighbours, and only the first block of such a run is counted: the next ones are each
 * one deeper. Runs are also cleared and set a word at a time. The axis is renumbered when it is
 * full, at twice the living blocks, so that its cost is O(1) an access.
 *
 * Memory: 58 bytes a different block for id, parent and table, some 9 for the axis, 16 a depth.
 */
#include "cache/curve.h"

#include "base/grow.h"
#include "base/random.h"
#include "base/u64_map.h"
#include "cache/block_store.h"

#include <math.h>

enum {
    CHUNK_WORDS = 8, /* of the Fenwick tree's leaves: 512 positions */
    BINS = 272,      /* capacities at which sampled sessions are told apart: powers of 2^(1/8) */
};

struct session {
    uint64_t tokens;
    uint64_t hit_tokens[BINS]; /* by bin of depth */
};

struct kvr_curve {
    struct kvr_curve_options options;
    struct kvr_store store; /* every block ever seen; stamp: its position */
    uint64_t *words;
    uint32_t *fenwick; /* over chunks, 1-based */
    uint32_t *slots;   /* by position */
    size_t positions;  /* size of the axis */
    size_t next;       /* first position not used yet */
    uint32_t *path;
    size_t path_size;
    uint64_t *hit_blocks, *hit_tokens; /* by depth; after summing: by capacity */
    size_t depth_size, blocks_size, depths;
    bool summed;
    struct kvr_curve_totals totals;
    struct session *sessions;
    size_t session_size;
    struct kvr_u64_map session_numbers;
};

enum kvr_status kvr_curve_create(
    struct kvr_curve **out, const struct kvr_curve_options *options, struct kvr_error *error)
{
    *out = NULL;
    if (!(options->sample > 0 && options->sample <= 1))
        return kvr_error_set(error, KVR_BAD_USAGE, "a sample is above 0 and at most 1");
    struct kvr_curve *curve = calloc(1, sizeof *curve);
    if (!curve)
        return kvr_error_memory(error);
    curve->options = *options;
    enum kvr_status status = kvr_store_init(&curve->store, KVR_STORE_CAPACITY_MOST, error);
    if (status != KVR_OK) {
        kvr_curve_destroy(curve);
        return status;
    }
    *out = curve;
    return KVR_OK;
}

void kvr_curve_destroy(struct kvr_curve *curve)
{
    if (!curve)
        return;
    kvr_store_release(&curve->store);
    kvr_u64_map_release(&curve->session_numbers);
    free(curve->words);
    free(curve->fenwick);
    free(curve->slots);
    free(curve->path);
    free(curve->hit_blocks);
    free(curve->hit_tokens);
    free(curve->sessions);
    free(curve);
}

/* ── the axis ── */

static void count_chunk(struct kvr_curve *curve, size_t word, int32_t change)
{
    size_t chunks = curve->positions / (64 * CHUNK_WORDS);

    for (size_t i = word / CHUNK_WORDS + 1; i <= chunks; i += i & -i)
        curve->fenwick[i] += (uint32_t)change;
}

/* Sets or clears the positions [from, to). */
static void change_range(struct kvr_curve *curve, size_t from, size_t to, bool set)
{
    while (from < to) {
        size_t word = from / 64, end = (word + 1) * 64 < to ? (word + 1) * 64 : to;
        size_t width = end - from;
        uint64_t mask = (width == 64 ? ~0ull : (1ull << width) - 1) << from % 64;
        curve->words[word] = set ? curve->words[word] | mask : curve->words[word] & ~mask;
        count_chunk(curve, word, set ? (int32_t)width : -(int32_t)width);
        from = end;
    }
}

/* Living positions before `position`. */
static uint64_t living_before(const struct kvr_curve *curve, size_t position)
{
    size_t word = position / 64, chunk = word / CHUNK_WORDS;
    uint64_t sum = 0;

    for (size_t i = chunk; i; i -= i & -i)
        sum += curve->fenwick[i];
    for (size_t i = chunk * CHUNK_WORDS; i < word; i++)
        sum += (uint64_t)__builtin_popcountll(curve->words[i]);
    if (position % 64)
        sum += (uint64_t)__builtin_popcountll(curve->words[word] & ((1ull << position % 64) - 1));
    return sum;
}

/* A longer axis, or the same one packed: living blocks first, in their order. */
static enum kvr_status renumber(struct kvr_curve *curve, size_t more, struct kvr_error *error)
{
    size_t living = curve->store.resident;
    size_t positions = (2 * living + more + 65536) / (64 * CHUNK_WORDS) + 1;

    positions *= 64 * CHUNK_WORDS;
    if (positions >= UINT32_MAX)
        return kvr_error_set(error, KVR_UNSUPPORTED, "more than 2^31 different blocks");
    uint32_t *slots = malloc(positions * sizeof *slots);
    uint64_t *words = calloc(positions / 64, sizeof *words);
    uint32_t *fenwick = calloc(positions / (64 * CHUNK_WORDS) + 1, sizeof *fenwick);
    if (!slots || !words || !fenwick) {
        free(slots);
        free(words);
        free(fenwick);
        return kvr_error_memory(error);
    }
    size_t packed = 0;
    for (size_t word = 0; word < (curve->next + 63) / 64; word++)
        for (uint64_t bits = curve->words[word]; bits; bits &= bits - 1) {
            uint32_t slot = curve->slots[word * 64 + (size_t)__builtin_ctzll(bits)];
            curve->store.blocks[slot].stamp = (uint32_t)packed;
            slots[packed++] = slot;
        }
    free(curve->slots);
    free(curve->words);
    free(curve->fenwick);
    curve->slots = slots;
    curve->words = words;
    curve->fenwick = fenwick;
    curve->positions = positions;
    curve->next = packed;
    change_range(curve, 0, packed, true);
    return KVR_OK;
}

/* ── requests ── */

static enum kvr_status reserve(struct kvr_curve *curve, size_t count, struct kvr_error *error)
{
    if (count > UINT32_MAX / 4)
        return kvr_error_set(error, KVR_BAD_INPUT, "a request of %zu blocks", count);
    enum kvr_status status = kvr_store_reserve(&curve->store, (uint32_t)count, error);
    if (status != KVR_OK)
        return status;
    uint32_t *path = kvr_grow(curve->path, &curve->path_size, count + 1, sizeof *path);
    if (!path)
        return kvr_error_memory(error);
    curve->path = path;
    size_t depths = (size_t)curve->store.resident + count + 2, before = curve->depth_size;
    uint64_t *tokens = kvr_grow(curve->hit_tokens, &curve->depth_size, depths, sizeof *tokens);
    if (!tokens)
        return kvr_error_memory(error);
    curve->hit_tokens = tokens;
    uint64_t *blocks = kvr_grow(curve->hit_blocks, &curve->blocks_size, depths, sizeof *blocks);
    if (!blocks)
        return kvr_error_memory(error);
    curve->hit_blocks = blocks;
    for (size_t i = before; i < curve->depth_size; i++)
        tokens[i] = blocks[i] = 0;
    if (curve->next + count > curve->positions)
        return renumber(curve, count, error);
    return KVR_OK;
}

static unsigned bin_of(const struct kvr_curve *curve, uint64_t depth)
{
    double capacity = (double)depth / curve->options.sample;
    double bin = ceil(8 * log2(capacity) - 1e-9);

    return bin < 0 ? 0 : bin >= BINS ? BINS - 1 : (unsigned)bin;
}

static enum kvr_status find_session(
    struct kvr_curve *curve, uint64_t session, struct session **found, struct kvr_error *error)
{
    bool is_new;
    uint64_t *number = kvr_u64_map_insert(&curve->session_numbers, session, &is_new);

    if (!number)
        return kvr_error_memory(error);
    if (is_new) {
        *number = curve->totals.sessions;
        struct session *sessions = kvr_grow(
            curve->sessions, &curve->session_size, curve->totals.sessions + 1, sizeof *sessions);
        if (!sessions)
            return kvr_error_memory(error);
        curve->sessions = sessions;
        sessions[curve->totals.sessions++] = (struct session){0};
    }
    *found = &curve->sessions[*number];
    return KVR_OK;
}

/* The leading run of known blocks into path; their depths into the histogram. */
static size_t count_hits(struct kvr_curve *curve, const uint64_t *ids, size_t count,
    uint64_t input_tokens, struct session *session)
{
    struct kvr_store *store = &curve->store;
    uint64_t living = store->resident, left = input_tokens, depth = 0;
    uint32_t block_tokens = curve->options.block_tokens, parent = 0;
    size_t run = 0, run_start = 0, last = 0;

    for (; run < count; run++) {
        const struct kvr_block *blocks = store->blocks;
        uint32_t slot = parent + 1;
        if (!parent || slot >= store->used || blocks[slot].parent != parent ||
            blocks[slot].id != ids[run]) {
            slot = kvr_store_find(store, ids[run]);
            if (!slot || blocks[slot].parent != parent)
                break;
        }
        size_t position = blocks[slot].stamp;
        if (!run || position + 1 != last) {
            if (run)
                change_range(curve, last, run_start + 1, false);
            run_start = position;
            /* what has been cleared of this path was above it: it still counts in living */
            depth = living - living_before(curve, position);
        } else {
            depth++;
        }
        last = position;
        uint64_t tokens = left < block_tokens ? left : block_tokens;
        left -= tokens;
        curve->hit_blocks[depth]++;
        curve->hit_tokens[depth] += tokens;
        if (session)
            session->hit_tokens[bin_of(curve, depth)] += tokens;
        curve->path[run] = parent = slot;
    }
    if (run)
        change_range(curve, last, run_start + 1, false);
    curve->totals.compulsory_tokens += left;
    return run;
}

enum kvr_status kvr_curve_add(struct kvr_curve *curve, const uint64_t *ids, size_t count,
    uint64_t input_tokens, uint64_t session, struct kvr_error *error)
{
    struct kvr_store *store = &curve->store;
    struct session *sampled = NULL;

    if (curve->options.sample < 1) {
        if (!session && count)
            session = ids[count > 1];
        uint64_t chance = kvr_mix64(session ^ kvr_mix64(curve->options.seed));
        if ((double)(chance >> 11) * 0x1p-53 >= curve->options.sample)
            return KVR_OK;
        enum kvr_status status = find_session(curve, session, &sampled, error);
        if (status != KVR_OK)
            return status;
        sampled->tokens += input_tokens;
    }
    enum kvr_status status = reserve(curve, count, error);
    if (status != KVR_OK)
        return status;
    size_t length = count_hits(curve, ids, count, input_tokens, sampled);
    for (; length < count; length++) {
        uint32_t hash = kvr_block_table_hash(ids[length]);
        if (kvr_store_find_hashed(store, ids[length], hash))
            break; /* elsewhere in the tree: such ids are no chain */
        uint32_t slot = kvr_store_add(store, ids[length], hash);
        store->blocks[slot].parent = length ? curve->path[length - 1] : 0;
        curve->path[length] = slot;
    }
    for (size_t i = 0; i < length; i++) {
        size_t position = curve->next + length - 1 - i;
        store->blocks[curve->path[i]].stamp = (uint32_t)position;
        curve->slots[position] = curve->path[i];
    }
    change_range(curve, curve->next, curve->next + length, true);
    curve->next += length;
    curve->totals.requests++;
    curve->totals.accesses += count;
    curve->totals.prompt_tokens += input_tokens;
    return KVR_OK;
}

/* ── answers ── */

void kvr_curve_totals(const struct kvr_curve *curve, struct kvr_curve_totals *totals)
{
    *totals = curve->totals;
    totals->footprint_blocks =
        (uint64_t)llround((double)curve->store.resident / curve->options.sample);
}

static void sum_up(struct kvr_curve *curve)
{
    if (curve->summed)
        return;
    curve->depths = curve->store.resident;
    for (size_t depth = 1; depth <= curve->depths && depth < curve->depth_size; depth++) {
        curve->hit_blocks[depth] += curve->hit_blocks[depth - 1];
        curve->hit_tokens[depth] += curve->hit_tokens[depth - 1];
    }
    curve->summed = true;
}

/*
 * The error of a ratio of sums over sampled sessions (Cochran, Sampling Techniques, 6.13): with
 * hits h and tokens t of each of n sessions and rate r, the variance of r is n / (n - 1) * sum (h -
 * r t)^2 / (sum t)^2, times what was not looked at.
 */
static double standard_error(const struct kvr_curve *curve, uint64_t capacity, double rate)
{
    uint64_t n = curve->totals.sessions;
    unsigned bin = bin_of(curve, (uint64_t)ceil((double)capacity * curve->options.sample));
    double squares = 0, tokens = 0;

    if (curve->options.sample >= 1 || n < 2)
        return 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct session *session = &curve->sessions[i];
        double hits = 0;
        for (unsigned j = 0; j <= bin; j++)
            hits += (double)session->hit_tokens[j];
        double off = hits - rate * (double)session->tokens;
        squares += off * off;
        tokens += (double)session->tokens;
    }
    double variance = (double)n / (double)(n - 1) * squares / (tokens * tokens);
    return tokens > 0 ? sqrt(variance * (1 - curve->options.sample)) : 0;
}

void kvr_curve_point(
    struct kvr_curve *curve, uint64_t capacity_blocks, struct kvr_curve_point *point)
{
    double scaled = floor((double)capacity_blocks * curve->options.sample);

    sum_up(curve);
    size_t depth = scaled < (double)curve->depths ? (size_t)scaled : curve->depths;
    *point = (struct kvr_curve_point){.capacity_blocks = capacity_blocks};
    if (!curve->depth_size || !curve->totals.prompt_tokens)
        return;
    point->hit_blocks = (double)curve->hit_blocks[depth];
    point->hit_tokens = (double)curve->hit_tokens[depth];
    point->token_hit_rate = point->hit_tokens / (double)curve->totals.prompt_tokens;
    point->standard_error = standard_error(curve, capacity_blocks, point->token_hit_rate);
}

uint64_t kvr_curve_knee(struct kvr_curve *curve)
{
    struct kvr_curve_totals totals;
    struct kvr_curve_point point, last;
    uint64_t knee = 1;
    double farthest = -1;

    kvr_curve_totals(curve, &totals);
    if (!totals.footprint_blocks)
        return 1;
    kvr_curve_point(curve, totals.footprint_blocks, &last);
    for (int step = 0;; step++) {
        double capacity = round(exp2(step / 8.0));
        if (capacity > (double)totals.footprint_blocks)
            break;
        kvr_curve_point(curve, (uint64_t)capacity, &point);
        double across = capacity / (double)totals.footprint_blocks;
        double up = last.hit_tokens > 0 ? point.hit_tokens / last.hit_tokens : 0;
        if (up - across > farthest) {
            farthest = up - across;
            knee = (uint64_t)capacity;
        }
    }
    return knee;
}

uint64_t kvr_curve_capacity_for(struct kvr_curve *curve, double share)
{
    sum_up(curve);
    if (!curve->depths)
        return 1;
    double wanted = share * (double)curve->hit_tokens[curve->depths];
    size_t low = 1, high = curve->depths;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((double)curve->hit_tokens[middle] >= wanted)
            high = middle;
        else
            low = middle + 1;
    }
    return (uint64_t)ceil((double)low / curve->options.sample);
}
