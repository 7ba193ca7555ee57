/*
 * random: any candidate, with equal chance. A yardstick: a policy that does not beat it knows
 * nothing about the trace. The candidates stand in an array and the last fills the gap of one that
 * leaves; the generator is seeded, so the same input and options give the same output.
 */
#include "base/random.h"
#include "cache/policy.h"

struct random_ranking {
    struct kvr_ranking ranking;
    struct kvr_random random;
    uint32_t *members;
    uint32_t count, size;
};

static enum kvr_status random_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    (void)values, (void)error;
    ((struct random_ranking *)ranking)->random.state = seed;
    return KVR_OK;
}

static void random_release(struct kvr_ranking *ranking)
{
    free(((struct random_ranking *)ranking)->members);
}

static enum kvr_status random_reserve(
    struct kvr_ranking *ranking, uint32_t slots, struct kvr_error *error)
{
    struct random_ranking *all = (struct random_ranking *)ranking;

    if (slots <= all->size)
        return KVR_OK;
    uint32_t *members = realloc(all->members, (size_t)slots * sizeof *members);
    if (!members)
        return kvr_error_memory(error);
    all->members = members;
    all->size = slots;
    return KVR_OK;
}

static void random_ignore(struct kvr_ranking *ranking, uint32_t block)
{
    (void)ranking, (void)block;
}

static void random_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct random_ranking *all = (struct random_ranking *)ranking;

    (void)place;
    ranking->store->blocks[block].place = all->count;
    all->members[all->count++] = block;
}

static void random_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    struct random_ranking *all = (struct random_ranking *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t last = all->members[--all->count];

    all->members[blocks[block].place] = last;
    blocks[last].place = blocks[block].place;
}

static uint32_t random_victim(struct kvr_ranking *ranking)
{
    struct random_ranking *all = (struct random_ranking *)ranking;

    if (!all->count)
        return 0;
    uint32_t block = all->members[kvr_random_below(&all->random, all->count)];
    random_dequeue(ranking, block);
    return block;
}

static uint64_t random_memory_bytes(const struct kvr_ranking *ranking)
{
    return ((const struct random_ranking *)ranking)->size * (uint64_t)sizeof(uint32_t);
}

const struct kvr_policy kvr_policy_random = {
    .name = "random",
    .summary = "any block with equal chance (--seed); a yardstick",
    .source = "Belady, IBM Systems Journal 5(2), 1966",
    .size = sizeof(struct random_ranking),
    .init = random_init,
    .release = random_release,
    .reserve = random_reserve,
    .hit = random_ignore,
    .insert = random_ignore,
    .enqueue = random_enqueue,
    .dequeue = random_dequeue,
    .victim = random_victim,
    .memory_bytes = random_memory_bytes,
};
