/*
 * belady: the block whose next use lies farthest ahead goes first. Optimal among policies that let
 * every block in, and it needs the future, so it is for replays only: the ceiling of a size.
 *
 * store->future holds for each access the number of the next access to the same id. Next uses are
 * distinct, so the candidates are a set of integers below the trace's length and the victim is the
 * largest: a tree of 64-bit words, each bit of a level saying that a word of the level below is not
 * zero. Insert, remove and largest touch one word a level, four for 16 million accesses, and there
 * is no comparison. Blocks never used again are in a list of their own and go before all others,
 * oldest first.
 *
 *     level 1     [ 1 0 1 … ]                  bit i: word i of level 0 is not zero
 *     level 0     [ 0110… ][ 0 ][ 1… ] …       bit t: a candidate's next use is access t
 *
 * In a tree a parent's next use comes before its child's, so the farthest is a leaf by itself.
 *
 * belady-bypass also may refuse a block that would be the next to go: then it is optimal among all
 * policies with any admission rule, and nothing online can pass it. In a tree this is the best
 * set of `capacity` blocks out of the cached and the new ones, taken after each request.
 */
#include "cache/policy.h"

#include <string.h>

enum { LEVELS_MOST = 6 };

struct belady {
    struct kvr_ranking ranking;
    uint64_t *levels[LEVELS_MOST];
    int level_count;
    uint32_t *slots; /* by next use: which block */
    uint32_t never;  /* list of blocks not used again */
};

static void belady_release(struct kvr_ranking *ranking)
{
    struct belady *belady = (struct belady *)ranking;

    for (int i = 0; i < belady->level_count; i++)
        free(belady->levels[i]);
    free(belady->slots);
}

static enum kvr_status belady_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct belady *belady = (struct belady *)ranking;
    uint64_t words = ranking->store->future_length;

    (void)values, (void)seed;
    if (!ranking->store->future)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "policy '%s' needs the whole trace ahead: it works with --json, --sweep and --curve "
            "only",
            ranking->policy->name);
    belady->slots = malloc((words ? words : 1) * sizeof *belady->slots);
    if (!belady->slots)
        return kvr_error_memory(error);
    do {
        words = (words + 63) / 64;
        uint64_t *level = calloc(words ? words : 1, sizeof *level);
        if (!level)
            return kvr_error_memory(error);
        belady->levels[belady->level_count++] = level;
    } while (words > 1);
    belady->never = kvr_store_sentinel(ranking->store);
    return belady->never ? KVR_OK : kvr_error_memory(error);
}

static void set_bit(struct belady *belady, uint32_t at)
{
    for (int i = 0; i < belady->level_count; i++, at /= 64) {
        uint64_t *word = &belady->levels[i][at / 64];
        bool was_empty = !*word;
        *word |= 1ull << at % 64;
        if (!was_empty)
            break;
    }
}

static void clear_bit(struct belady *belady, uint32_t at)
{
    for (int i = 0; i < belady->level_count; i++, at /= 64) {
        uint64_t *word = &belady->levels[i][at / 64];
        *word &= ~(1ull << at % 64);
        if (*word)
            break;
    }
}

static void belady_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct belady *belady = (struct belady *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t next = blocks[block].stamp, list = belady->never;

    if (next == KVR_NEVER) {
        kvr_list_insert_after(blocks, place == KVR_FRESH ? blocks[list].older : list, block);
    } else {
        belady->slots[next] = block;
        set_bit(belady, next);
    }
}

static void belady_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    struct kvr_block *blocks = ranking->store->blocks;

    if (blocks[block].stamp == KVR_NEVER)
        kvr_list_remove(blocks, block);
    else
        clear_bit((struct belady *)ranking, blocks[block].stamp);
}

static void belady_insert(struct kvr_ranking *ranking, uint32_t block)
{
    ranking->store->blocks[block].stamp = ranking->store->future[ranking->store->clock];
}

static void belady_hit(struct kvr_ranking *ranking, uint32_t block)
{
    bool queued = kvr_block_is_queued(&ranking->store->blocks[block]);

    if (queued)
        belady_dequeue(ranking, block);
    belady_insert(ranking, block);
    if (queued)
        belady_enqueue(ranking, block, KVR_FRESH);
}

static uint32_t belady_victim(struct kvr_ranking *ranking)
{
    struct belady *belady = (struct belady *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t block = kvr_list_oldest(blocks, belady->never);
    uint32_t at = 0;

    if (block) {
        kvr_list_remove(blocks, block);
        return block;
    }
    for (int i = belady->level_count - 1; i >= 0; i--) {
        uint64_t word = belady->levels[i][at];
        if (!word)
            return 0;
        at = at * 64 + 63 - (uint32_t)__builtin_clzll(word);
    }
    clear_bit(belady, at);
    return belady->slots[at];
}

static bool belady_refuses(struct kvr_ranking *ranking, uint32_t victim)
{
    return ranking->store->future[ranking->store->clock] >= ranking->store->blocks[victim].stamp;
}

static uint64_t belady_memory_bytes(const struct kvr_ranking *ranking)
{
    return ranking->store->future_length * (2 * sizeof(uint32_t)) +
           ranking->store->future_length / 8;
}

#define BELADY_FUNCTIONS                                                                           \
    .size = sizeof(struct belady), .needs_future = true, .init = belady_init,                      \
    .release = belady_release, .hit = belady_hit, .insert = belady_insert,                         \
    .enqueue = belady_enqueue, .dequeue = belady_dequeue, .victim = belady_victim,                 \
    .memory_bytes = belady_memory_bytes

const struct kvr_policy kvr_policy_belady = {
    .name = "belady",
    .summary = "offline optimum: the block used again latest goes first",
    .source = "Belady, IBM Systems Journal 5(2), 1966",
    BELADY_FUNCTIONS,
};

const struct kvr_policy kvr_policy_belady_bypass = {
    .name = "belady-bypass",
    .summary = "offline optimum that may also refuse a block; the ceiling of every policy",
    .source = "Belady 1966; McFarling, ISCA 1992 (bypassing)",
    .refuses = belady_refuses,
    BELADY_FUNCTIONS,
};
