/*
 * tinylfu: a block comes in only if it was asked for more often lately than the block that would
 * have to go. While there is room everything comes in.
 *
 * Frequencies are estimated by a count-min sketch of 4-bit counters, four a word's hash row, over
 * `window` capacities of sightings; then all counters are halved, so the past fades. An estimate is
 * never too low between two halvings and at most 15. Two bytes a block of capacity.
 *
 * A request sights each id of its path once, even where the look-up stops early.
 */
#include "base/random.h"
#include "cache/admission.h"

#include <stdlib.h>

enum { ROWS = 4, COUNTER_MOST = 15 };

struct tinylfu_gate {
    struct kvr_gate gate;
    uint64_t *words; /* 16 counters a word */
    uint64_t mask;   /* counters - 1 */
    uint64_t seed;
    uint64_t sightings, window;
};

static const struct kvr_parameter tinylfu_parameters[] = {
    {"window", KVR_PARAMETER_NUMBER, "10", NULL, 0.1, 1e6,
        "sightings between two halvings, in capacities"},
};

static enum kvr_status tinylfu_init(struct kvr_gate *gate, const struct kvr_parameter_value *values,
    uint64_t seed, struct kvr_error *error)
{
    struct tinylfu_gate *tinylfu = (struct tinylfu_gate *)gate;
    uint64_t counters = 64;

    while (counters < 4 * (uint64_t)gate->capacity)
        counters *= 2;
    tinylfu->mask = counters - 1;
    tinylfu->seed = seed;
    tinylfu->window = (uint64_t)(values[0].number * gate->capacity) + 1;
    tinylfu->words = calloc(counters / 16, sizeof *tinylfu->words);
    return tinylfu->words ? KVR_OK : kvr_error_memory(error);
}

static void tinylfu_release(struct kvr_gate *gate)
{
    free(((struct tinylfu_gate *)gate)->words);
}

/* The counter of id in a row; one multiplication a row after one mixing. */
static uint64_t counter_of(const struct tinylfu_gate *tinylfu, uint64_t mixed, unsigned row)
{
    static const uint64_t odd[ROWS] = {
        0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u, 0xd6e8feb86659fd93u};

    return ((mixed * odd[row]) >> 20) & tinylfu->mask;
}

static unsigned read_counter(const struct tinylfu_gate *tinylfu, uint64_t counter)
{
    return tinylfu->words[counter / 16] >> counter % 16 * 4 & COUNTER_MOST;
}

static unsigned estimate(const struct tinylfu_gate *tinylfu, uint64_t id)
{
    uint64_t mixed = kvr_mix64(id ^ tinylfu->seed);
    unsigned least = COUNTER_MOST;

    for (unsigned row = 0; row < ROWS; row++) {
        unsigned value = read_counter(tinylfu, counter_of(tinylfu, mixed, row));
        if (value < least)
            least = value;
    }
    return least;
}

/* Conservative update: only the counters that bound the estimate grow. */
static void sight(struct tinylfu_gate *tinylfu, uint64_t id)
{
    uint64_t mixed = kvr_mix64(id ^ tinylfu->seed);
    unsigned least = estimate(tinylfu, id);

    if (least == COUNTER_MOST)
        return;
    for (unsigned row = 0; row < ROWS; row++) {
        uint64_t counter = counter_of(tinylfu, mixed, row);
        if (read_counter(tinylfu, counter) == least)
            tinylfu->words[counter / 16] += 1ull << counter % 16 * 4;
    }
}

static enum kvr_status tinylfu_look(
    struct kvr_gate *gate, const struct kvr_admission_path *path, struct kvr_error *error)
{
    struct tinylfu_gate *tinylfu = (struct tinylfu_gate *)gate;

    (void)error;
    for (size_t i = 0; i < path->count; i++) {
        if (++tinylfu->sightings >= tinylfu->window) {
            for (uint64_t word = 0; word <= tinylfu->mask / 16; word++)
                tinylfu->words[word] = tinylfu->words[word] >> 1 & 0x7777777777777777u;
            tinylfu->sightings = 0;
        }
        sight(tinylfu, path->ids[i]);
    }
    return KVR_OK;
}

static bool tinylfu_prefers(struct kvr_gate *gate, uint64_t id, uint64_t victim)
{
    struct tinylfu_gate *tinylfu = (struct tinylfu_gate *)gate;

    return estimate(tinylfu, id) > estimate(tinylfu, victim);
}

static uint64_t tinylfu_memory_bytes(const struct kvr_gate *gate)
{
    return (((const struct tinylfu_gate *)gate)->mask + 1) / 2;
}

const struct kvr_admission_rule kvr_admission_tinylfu = {
    .name = "tinylfu",
    .summary = "blocks asked for more often lately than the one that would go",
    .source = "Einziger, Friedman and Manes, TinyLFU, ACM TOS 13(4), 2017",
    .parameters = tinylfu_parameters,
    .parameter_count = 1,
    .size = sizeof(struct tinylfu_gate),
    .init = tinylfu_init,
    .release = tinylfu_release,
    .look = tinylfu_look,
    .prefers = tinylfu_prefers,
    .memory_bytes = tinylfu_memory_bytes,
};
