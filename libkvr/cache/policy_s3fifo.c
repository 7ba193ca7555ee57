/*
 * s3fifo: three FIFO queues. New blocks come into a small one (`small` of the capacity); at its end
 * a block used at least `threshold` times moves to main, the others leave and only their id stays,
 * as a ghost (`ghost` of the capacity). A miss whose id is a ghost goes straight to main. Main is a
 * clock with a two-bit counter. One-hit wonders thus pass through a tenth of the cache.
 *
 *     miss ──► small ──used──► main ──► oldest, unused: gone
 *                └──unused──► gone, ghost ──miss again──► main
 *
 * Two variants go by the name. `s3fifo` is the paper's: while the cache is not yet full, the small
 * queue takes all newcomers and so holds much more than its share. `s3fifo-cold` sends newcomers
 * to main once the small queue has its share and until the first eviction, as libCacheSim does
 * since 0.3.5; whatever arrives during warm-up then sits in main.
 *
 * In a tree, a parent is in the queue it was in when its last child goes, at the oldest end.
 */
#include "cache/ghost.h"
#include "cache/policy.h"

enum { SMALL, MAIN, COUNT_MOST = 3 };

struct s3fifo {
    struct kvr_ranking ranking;
    struct kvr_ghost ghost;
    uint32_t lists[2], counts[2]; /* counts: blocks, queued or not */
    uint32_t small_most, main_most, threshold;
    bool fills_main, ever_evicted;
    bool was_ghost; /* the id that is about to come */
};

static const struct kvr_parameter s3fifo_parameters[] = {
    {"small", KVR_PARAMETER_NUMBER, "0.1", NULL, 0, 1, "share of the small queue"},
    {"ghost", KVR_PARAMETER_NUMBER, "0.9", NULL, 0, 4, "ghost ids, in capacities"},
    {"threshold", KVR_PARAMETER_INTEGER, "2", NULL, 1, 3, "uses that move a block to main"},
};

static enum kvr_status s3fifo_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct s3fifo *s3fifo = (struct s3fifo *)ranking;

    (void)seed;
    s3fifo->small_most = (uint32_t)(ranking->capacity * values[0].number);
    if (!s3fifo->small_most)
        s3fifo->small_most = 1;
    s3fifo->main_most = ranking->capacity - s3fifo->small_most;
    double ghosts = ranking->capacity * values[1].number;
    s3fifo->ghost.most =
        ghosts < KVR_STORE_CAPACITY_MOST ? (uint32_t)ghosts : KVR_STORE_CAPACITY_MOST;
    s3fifo->threshold = (uint32_t)values[2].integer;
    s3fifo->lists[SMALL] = kvr_store_sentinel(ranking->store);
    s3fifo->lists[MAIN] = kvr_store_sentinel(ranking->store);
    return s3fifo->lists[MAIN] ? KVR_OK : kvr_error_memory(error);
}

static enum kvr_status s3fifo_cold_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    ((struct s3fifo *)ranking)->fills_main = true;
    return s3fifo_init(ranking, values, seed, error);
}

static void s3fifo_release(struct kvr_ranking *ranking)
{
    kvr_ghost_release(&((struct s3fifo *)ranking)->ghost);
}

static enum kvr_status s3fifo_reserve(
    struct kvr_ranking *ranking, uint32_t slots, struct kvr_error *error)
{
    struct s3fifo *s3fifo = (struct s3fifo *)ranking;
    /* in step with the store until it has all its slots, then the whole ghost */
    uint32_t ids = slots < ranking->store->capacity ? slots : s3fifo->ghost.most;

    return kvr_ghost_reserve(&s3fifo->ghost, ids) ? KVR_OK : kvr_error_memory(error);
}

static void s3fifo_hit(struct kvr_ranking *ranking, uint32_t block)
{
    struct kvr_block *used = &ranking->store->blocks[block];

    used->count += used->count < COUNT_MOST;
}

static void s3fifo_miss(struct kvr_ranking *ranking, uint64_t id)
{
    struct s3fifo *s3fifo = (struct s3fifo *)ranking;

    s3fifo->was_ghost = kvr_ghost_take(&s3fifo->ghost, id);
}

static void s3fifo_insert(struct kvr_ranking *ranking, uint32_t block)
{
    struct s3fifo *s3fifo = (struct s3fifo *)ranking;
    bool full = s3fifo->counts[SMALL] >= s3fifo->small_most;
    bool to_main = s3fifo->was_ghost || (s3fifo->fills_main && !s3fifo->ever_evicted && full);

    ranking->store->blocks[block].queue = to_main ? MAIN : SMALL;
    ranking->store->blocks[block].count = 0;
    s3fifo->counts[to_main ? MAIN : SMALL]++;
    s3fifo->was_ghost = false;
}

static void s3fifo_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t list = ((struct s3fifo *)ranking)->lists[blocks[block].queue];

    kvr_list_insert_after(blocks, place == KVR_FRESH ? blocks[list].older : list, block);
}

static void s3fifo_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    kvr_list_remove(ranking->store->blocks, block);
}

static uint32_t small_victim(struct s3fifo *s3fifo, struct kvr_block *blocks)
{
    uint32_t block;

    while ((block = kvr_list_oldest(blocks, s3fifo->lists[SMALL]))) {
        kvr_list_remove(blocks, block);
        if (blocks[block].count < s3fifo->threshold)
            break;
        blocks[block].count = 0;
        blocks[block].queue = MAIN;
        s3fifo->counts[SMALL]--;
        s3fifo->counts[MAIN]++;
        kvr_list_push_newest(blocks, s3fifo->lists[MAIN], block);
    }
    return block;
}

static uint32_t main_victim(struct s3fifo *s3fifo, struct kvr_block *blocks)
{
    uint32_t block;

    while ((block = kvr_list_oldest(blocks, s3fifo->lists[MAIN]))) {
        kvr_list_remove(blocks, block);
        if (!blocks[block].count)
            break;
        blocks[block].count--;
        kvr_list_push_newest(blocks, s3fifo->lists[MAIN], block);
    }
    return block;
}

static uint32_t s3fifo_victim(struct kvr_ranking *ranking)
{
    struct s3fifo *s3fifo = (struct s3fifo *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t block = 0;

    s3fifo->ever_evicted = true;
    if (s3fifo->counts[MAIN] <= s3fifo->main_most)
        block = small_victim(s3fifo, blocks);
    if (!block)
        block = main_victim(s3fifo, blocks);
    return block ? block : small_victim(s3fifo, blocks);
}

static void s3fifo_evicted(struct kvr_ranking *ranking, uint32_t block)
{
    struct s3fifo *s3fifo = (struct s3fifo *)ranking;
    struct kvr_block *gone = &ranking->store->blocks[block];

    s3fifo->counts[gone->queue]--;
    if (gone->queue == SMALL)
        kvr_ghost_push(&s3fifo->ghost, gone->id);
}

static uint64_t s3fifo_memory_bytes(const struct kvr_ranking *ranking)
{
    return kvr_ghost_memory_bytes(&((const struct s3fifo *)ranking)->ghost);
}

#define S3FIFO_FUNCTIONS                                                                           \
    .parameters = s3fifo_parameters, .parameter_count = 3, .size = sizeof(struct s3fifo),          \
    .release = s3fifo_release, .reserve = s3fifo_reserve, .hit = s3fifo_hit, .miss = s3fifo_miss,  \
    .insert = s3fifo_insert, .enqueue = s3fifo_enqueue, .dequeue = s3fifo_dequeue,                 \
    .victim = s3fifo_victim, .evicted = s3fifo_evicted, .memory_bytes = s3fifo_memory_bytes

const struct kvr_policy kvr_policy_s3fifo = {
    .name = "s3fifo",
    .summary = "small, main and ghost FIFO queues, as in the paper",
    .source = "Yang et al., FIFO queues are all you need, SOSP 2023",
    .init = s3fifo_init,
    S3FIFO_FUNCTIONS,
};

const struct kvr_policy kvr_policy_s3fifo_cold = {
    .name = "s3fifo-cold",
    .summary = "s3fifo that fills main while the cache is cold, as libCacheSim 0.3.5",
    .source = "libCacheSim 0.3.5",
    .init = s3fifo_cold_init,
    S3FIFO_FUNCTIONS,
};
