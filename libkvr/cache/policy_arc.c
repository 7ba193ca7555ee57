/*
 * arc: adaptive replacement. T1 holds blocks seen once lately, T2 blocks seen at least twice; B1
 * and B2 are the ids lately evicted from each. A miss that is in B1 says that T1 is too small, one
 * in B2 that T2 is: the target p of T1 moves, by more when the other ghost list is the longer.
 *
 *     B1 ◄── T1 ──hit──► T2 ──► B2        |T1|+|T2| <= c, |T1|+|B1| <= c, all four <= 2c
 *
 * In a tree, sizes count all blocks of a list, candidates are its leaves, and where the chosen list
 * has none the other one gives. Ghosts take 34 bytes an id and are not resident blocks.
 */
#include "cache/ghost.h"
#include "cache/policy.h"

enum { T1, T2 };

enum arc_miss { MISS_ALL, MISS_B1, MISS_B2 };

struct arc {
    struct kvr_ranking ranking;
    uint32_t lists[2], counts[2];
    struct kvr_ghost ghosts[2];
    double target; /* p */
    enum arc_miss miss;
    bool leaves_no_ghost; /* the victim just chosen */
};

static enum kvr_status arc_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct arc *arc = (struct arc *)ranking;

    (void)values, (void)seed;
    arc->ghosts[T1].most = arc->ghosts[T2].most = ranking->capacity;
    arc->lists[T1] = kvr_store_sentinel(ranking->store);
    arc->lists[T2] = kvr_store_sentinel(ranking->store);
    return arc->lists[T2] ? KVR_OK : kvr_error_memory(error);
}

static void arc_release(struct kvr_ranking *ranking)
{
    kvr_ghost_release(&((struct arc *)ranking)->ghosts[T1]);
    kvr_ghost_release(&((struct arc *)ranking)->ghosts[T2]);
}

static enum kvr_status arc_reserve(
    struct kvr_ranking *ranking, uint32_t slots, struct kvr_error *error)
{
    struct arc *arc = (struct arc *)ranking;

    return kvr_ghost_reserve(&arc->ghosts[T1], slots) && kvr_ghost_reserve(&arc->ghosts[T2], slots)
               ? KVR_OK
               : kvr_error_memory(error);
}

static void arc_hit(struct kvr_ranking *ranking, uint32_t block)
{
    struct arc *arc = (struct arc *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;

    if (kvr_block_is_queued(&blocks[block])) {
        kvr_list_remove(blocks, block);
        kvr_list_push_newest(blocks, arc->lists[T2], block);
    }
    arc->counts[blocks[block].queue]--;
    arc->counts[T2]++;
    blocks[block].queue = T2;
}

static void arc_miss(struct kvr_ranking *ranking, uint64_t id)
{
    struct arc *arc = (struct arc *)ranking;
    double in_b1 = arc->ghosts[T1].count, in_b2 = arc->ghosts[T2].count;

    arc->miss = MISS_ALL;
    if (kvr_ghost_take(&arc->ghosts[T1], id)) {
        arc->miss = MISS_B1;
        arc->target += in_b2 > in_b1 ? in_b2 / in_b1 : 1;
        if (arc->target > ranking->capacity)
            arc->target = ranking->capacity;
    } else if (kvr_ghost_take(&arc->ghosts[T2], id)) {
        arc->miss = MISS_B2;
        arc->target -= in_b1 > in_b2 ? in_b1 / in_b2 : 1;
        if (arc->target < 0)
            arc->target = 0;
    }
}

static void arc_insert(struct kvr_ranking *ranking, uint32_t block)
{
    struct arc *arc = (struct arc *)ranking;
    uint8_t queue = arc->miss == MISS_ALL ? T1 : T2;

    ranking->store->blocks[block].queue = queue;
    arc->counts[queue]++;
    arc->miss = MISS_ALL;
}

static void arc_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t list = ((struct arc *)ranking)->lists[blocks[block].queue];

    kvr_list_insert_after(blocks, place == KVR_FRESH ? blocks[list].older : list, block);
}

static void arc_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    kvr_list_remove(ranking->store->blocks, block);
}

/* The oldest leaf of the list that must give, else of the other. */
static uint32_t replace(struct arc *arc, struct kvr_block *blocks)
{
    uint32_t in_t1 = arc->counts[T1];
    bool over = in_t1 > arc->target || (in_t1 == arc->target && arc->miss == MISS_B2);
    int first = in_t1 && over ? T1 : T2;
    uint32_t block = kvr_list_oldest(blocks, arc->lists[first]);

    return block ? block : kvr_list_oldest(blocks, arc->lists[!first]);
}

static uint32_t arc_victim(struct kvr_ranking *ranking)
{
    struct arc *arc = (struct arc *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;
    uint64_t capacity = ranking->capacity;
    uint64_t first = (uint64_t)arc->counts[T1] + arc->ghosts[T1].count;
    uint64_t all = first + arc->counts[T2] + arc->ghosts[T2].count;
    uint32_t block = 0;

    arc->leaves_no_ghost = false;
    if (arc->miss == MISS_ALL && first >= capacity) {
        if (arc->counts[T1] < capacity) {
            kvr_ghost_drop_oldest(&arc->ghosts[T1]);
        } else {
            block = kvr_list_oldest(blocks, arc->lists[T1]);
            arc->leaves_no_ghost = block != 0;
        }
    } else if (arc->miss == MISS_ALL && all >= 2 * capacity) {
        kvr_ghost_drop_oldest(&arc->ghosts[T2]);
    }
    if (!block)
        block = replace(arc, blocks);
    if (block)
        kvr_list_remove(blocks, block);
    return block;
}

static void arc_evicted(struct kvr_ranking *ranking, uint32_t block)
{
    struct arc *arc = (struct arc *)ranking;
    struct kvr_block *gone = &ranking->store->blocks[block];

    arc->counts[gone->queue]--;
    if (!arc->leaves_no_ghost)
        kvr_ghost_push(&arc->ghosts[gone->queue], gone->id);
    arc->leaves_no_ghost = false;
}

static uint64_t arc_memory_bytes(const struct kvr_ranking *ranking)
{
    const struct arc *arc = (const struct arc *)ranking;

    return kvr_ghost_memory_bytes(&arc->ghosts[T1]) + kvr_ghost_memory_bytes(&arc->ghosts[T2]);
}

const struct kvr_policy kvr_policy_arc = {
    .name = "arc",
    .summary = "balances recency and frequency by what was evicted too early",
    .source = "Megiddo and Modha, ARC, FAST 2003",
    .size = sizeof(struct arc),
    .init = arc_init,
    .release = arc_release,
    .reserve = arc_reserve,
    .hit = arc_hit,
    .miss = arc_miss,
    .insert = arc_insert,
    .enqueue = arc_enqueue,
    .dequeue = arc_dequeue,
    .victim = arc_victim,
    .evicted = arc_evicted,
    .memory_bytes = arc_memory_bytes,
};
