/*
 * Drives two engines through the same random life and compares all that can be seen of them: every
 * event in its order, hits, refusals, statistics, what is resident, the free queue. One of the two
 * is the engine under test, the other a slow and obvious model of the same rules.
 */
#ifndef KVR_TESTS_ENGINE_FUZZ_H
#define KVR_TESTS_ENGINE_FUZZ_H

#include "base/random.h"
#include "cache/engine.h"
#include "id_list.h"

#include <stdio.h>

enum { FUZZ_REMOVED = 1, FUZZ_STORED, FUZZ_CLEARED };

static void fuzz_removed(void *context, enum kvr_medium medium, const uint64_t *ids, size_t count)
{
    id_push(context, FUZZ_REMOVED);
    id_push(context, medium);
    id_push(context, count);
    for (size_t i = 0; i < count; i++)
        id_push(context, ids[i]);
}

static void fuzz_stored(void *context, enum kvr_medium medium, const uint64_t *parent,
    const uint64_t *ids, size_t count)
{
    id_push(context, FUZZ_STORED);
    id_push(context, medium);
    id_push(context, count);
    id_push(context, parent ? *parent : UINT64_MAX);
    for (size_t i = 0; i < count; i++)
        id_push(context, ids[i]);
}

static void fuzz_cleared(void *context, enum kvr_medium medium)
{
    id_push(context, FUZZ_CLEARED);
    id_push(context, medium);
}

static void fuzz_visit(void *context, uint64_t id)
{
    id_push(context, id);
}

static void fuzz_visit_free(void *context, bool has_id, uint64_t id)
{
    id_push(context, has_id ? id : UINT64_MAX);
}

static int fuzz_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* What a run is made of; zero means none of it. */
struct fuzz_plan {
    const struct kvr_engine *engines[2]; /* under test, the model */
    const char *parameters;
    uint64_t capacity_blocks;
    uint32_t block_tokens;
    uint32_t live_most;
    uint32_t longest_blocks; /* of a prompt */
    uint32_t steps;
    bool pins, clears, loose_ids; /* loose: ids that come after different parents */
    bool times;
    uint64_t seed;
};

struct fuzz_live {
    uint32_t handle[2];
    uint64_t left;
};

struct fuzz_chain {
    struct id_list ids;
};

struct fuzz_run {
    const struct fuzz_plan *plan;
    struct kvr_random random;
    struct kvr_cache *cache[2];
    struct id_list log[2];
    struct fuzz_live live[16];
    size_t live_count;
    struct fuzz_chain chains[24]; /* what was asked lately, to share prefixes with */
    size_t step;
    uint64_t fresh_id;
    struct id_list pinned; /* the ids of the one pin, if any */
    double time_ms;
};

static void fuzz_fail(const struct fuzz_run *run, const char *what, uint64_t got, uint64_t wanted)
{
    fail_msg("engine %s, parameters '%s', capacity %llu, block %u, seed %llu, step %zu: "
             "%s is %llu, the model has %llu",
        run->plan->engines[0]->name, run->plan->parameters,
        (unsigned long long)run->plan->capacity_blocks, run->plan->block_tokens,
        (unsigned long long)run->plan->seed, run->step, what, (unsigned long long)got,
        (unsigned long long)wanted);
}

static void fuzz_same(const struct fuzz_run *run, const char *what, uint64_t got, uint64_t wanted)
{
    if (got != wanted)
        fuzz_fail(run, what, got, wanted);
}

static void fuzz_same_list(const struct fuzz_run *run, const char *what, const struct id_list *got,
    const struct id_list *wanted)
{
    char label[80];
    for (size_t i = 0; i < got->count && i < wanted->count; i++) {
        snprintf(label, sizeof label, "%s, entry %zu,", what, i);
        fuzz_same(run, label, got->items[i], wanted->items[i]);
    }
    snprintf(label, sizeof label, "the length of %s", what);
    fuzz_same(run, label, got->count, wanted->count);
}

static void fuzz_compare(struct fuzz_run *run)
{
    struct kvr_cache_stats stats[2];
    fuzz_same_list(run, "the events", &run->log[0], &run->log[1]);
    for (int k = 0; k < 2; k++)
        run->log[k].count = 0;
    for (int k = 0; k < 2; k++)
        kvr_cache_stats(run->cache[k], &stats[k]);
    fuzz_same(run, "free_blocks", stats[0].free_blocks, stats[1].free_blocks);
    fuzz_same(run, "live", stats[0].live, stats[1].live);
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++) {
        struct id_list ids[2] = {{0}, {0}};
        for (int k = 0; k < 2; k++) {
            kvr_cache_resident(run->cache[k], (enum kvr_medium)medium, fuzz_visit, &ids[k]);
            if (ids[k].count)
                qsort(ids[k].items, ids[k].count, sizeof *ids[k].items, fuzz_order);
        }
        fuzz_same_list(run, "the resident ids", &ids[0], &ids[1]);
        fuzz_same(run, "resident_blocks", stats[0].resident_blocks[medium], ids[1].count);
        fuzz_same(run, "hit_blocks", stats[0].hit_blocks[medium], stats[1].hit_blocks[medium]);
        fuzz_same(run, "inserted - evicted - cleared", stats[0].inserted_blocks[medium],
            stats[0].evicted_blocks[medium] + stats[0].cleared_blocks[medium] +
                stats[0].resident_blocks[medium]);
        assert_true(stats[0].resident_blocks[medium] <= stats[0].capacity_blocks[medium]);
        for (int k = 0; k < 2; k++)
            id_free(&ids[k]);
    }
    struct id_list queue[2] = {{0}, {0}};
    for (int k = 0; k < 2; k++)
        kvr_cache_walk_free(run->cache[k], fuzz_visit_free, &queue[k]);
    fuzz_same_list(run, "the free queue", &queue[0], &queue[1]);
    for (int k = 0; k < 2; k++)
        id_free(&queue[k]);
}

/* A chain of ids: a random cut of an earlier one and something new. */
static struct id_list *fuzz_make_chain(struct fuzz_run *run, size_t length)
{
    struct kvr_random *random = &run->random;
    struct id_list *from = &run->chains[kvr_random_below(random, 24)].ids;
    struct id_list *to = &run->chains[kvr_random_below(random, 24)].ids;
    size_t keep = from->count ? kvr_random_below(random, from->count + 1) : 0;
    if (kvr_random_below(random, 4) == 0)
        keep = from->count; /* the same again, or its next turn */
    if (keep > length)
        keep = length;
    if (to != from) {
        to->count = 0;
        for (size_t i = 0; i < keep; i++)
            id_push(to, from->items[i]);
    } else if (to->count > keep) {
        to->count = keep;
    }
    while (to->count < length) {
        uint64_t id = run->fresh_id++;
        if (run->plan->loose_ids && kvr_random_below(random, 3) == 0)
            id = 1 + kvr_random_below(random, 12);
        id_push(to, id);
    }
    return to;
}

static void fuzz_admit(struct fuzz_run *run)
{
    const struct fuzz_plan *plan = run->plan;
    struct kvr_admission answers[2];
    struct kvr_error error = {0};
    size_t prompt = kvr_random_below(&run->random, plan->longest_blocks + 1);
    uint64_t output = kvr_random_below(&run->random, 3 * plan->block_tokens + 2);
    uint64_t tail = kvr_random_below(&run->random, plan->block_tokens);
    size_t spare = kvr_random_below(&run->random, 3);
    size_t reach = (size_t)((tail + output) / plan->block_tokens);
    struct id_list *chain = fuzz_make_chain(run, prompt + reach + spare);
    struct kvr_cache_request request = {
        .ids = chain->items,
        .id_count = prompt,
        .output_ids = chain->items ? chain->items + prompt : NULL,
        .output_id_count = reach + spare,
        .input_tokens = prompt * plan->block_tokens + tail,
        .output_tokens = output,
        .block_tokens = plan->block_tokens,
        .priority = (int32_t)kvr_random_below(&run->random, 3),
        .time_ms = run->time_ms,
    };
    for (int k = 0; k < 2; k++)
        assert_int_equal(kvr_cache_admit(run->cache[k], &request, &answers[k], &error), KVR_OK);
    fuzz_same(run, "admitted", answers[0].admitted, answers[1].admitted);
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
        fuzz_same(run, "the hit", answers[0].hit_blocks[medium], answers[1].hit_blocks[medium]);
    if (answers[0].admitted)
        run->live[run->live_count++] = (struct fuzz_live){
            .handle = {answers[0].live, answers[1].live},
            .left = output,
        };
}

static void fuzz_output(struct fuzz_run *run, size_t which)
{
    struct fuzz_live *live = &run->live[which];
    uint64_t made[2], tokens = kvr_random_below(&run->random, live->left + 1);
    if (kvr_random_below(&run->random, 2))
        tokens = live->left;
    for (int k = 0; k < 2; k++)
        assert_int_equal(
            kvr_cache_output(run->cache[k], live->handle[k], tokens, &made[k], NULL), KVR_OK);
    fuzz_same(run, "tokens made", made[0], made[1]);
    live->left -= made[0];
}

static void fuzz_finish(struct fuzz_run *run, size_t which)
{
    for (int k = 0; k < 2; k++)
        assert_int_equal(kvr_cache_finish(run->cache[k], run->live[which].handle[k], NULL), KVR_OK);
    run->live[which] = run->live[--run->live_count];
}

/* One pin at a time is held and given back, so that what it holds is known. Where pins end by
 * themselves, others come and go beside it. */
static void fuzz_pin(struct fuzz_run *run)
{
    struct kvr_random *random = &run->random;
    struct id_list *chain = &run->chains[kvr_random_below(random, 24)].ids;
    bool passing = run->plan->times && kvr_random_below(random, 4);
    if (run->pinned.count && !passing) {
        for (int k = 0; k < 2; k++)
            kvr_cache_unpin(run->cache[k], run->pinned.items, run->pinned.count, NULL);
        run->pinned.count = 0;
    } else if (chain->count) {
        size_t pinned[2], count = 1 + kvr_random_below(random, (uint32_t)chain->count);
        struct kvr_pin pin = {.time_ms = run->time_ms,
            .duration_ms = run->plan->times ? 100 + kvr_random_below(random, 4000) : 0,
            .soft = passing || kvr_random_below(random, 2)};
        for (int k = 0; k < 2; k++)
            assert_int_equal(
                kvr_cache_pin(run->cache[k], chain->items, count, &pin, &pinned[k], NULL), KVR_OK);
        fuzz_same(run, "the pinned run", pinned[0], pinned[1]);
        for (size_t i = 0; i < pinned[0] && !passing; i++)
            id_push(&run->pinned, chain->items[i]);
    }
}

static void fuzz_engines(const struct fuzz_plan *plan)
{
    struct fuzz_run run = {.plan = plan, .random = {plan->seed}, .fresh_id = 100};
    struct kvr_error error = {0};
    for (int k = 0; k < 2; k++) {
        struct kvr_cache_sink sink = {&run.log[k], fuzz_removed, fuzz_stored, fuzz_cleared};
        struct kvr_parameter_value values[16];
        const struct kvr_engine *engine = plan->engines[k];
        assert_true(engine->parameter_count <= 16);
        kvr_parameter_defaults(engine->parameters, engine->parameter_count, values, &error);
        if (kvr_parameter_read(engine->parameters, engine->parameter_count, plan->parameters,
                strlen(plan->parameters), values, &error) != KVR_OK)
            fail_msg("%s", error.text);
        struct kvr_engine_options options = {
            .capacity_blocks = plan->capacity_blocks,
            .block_tokens = plan->block_tokens,
            .values = values,
            .sink = &sink,
        };
        if (kvr_cache_create(engine, &options, &run.cache[k], &error) != KVR_OK)
            fail_msg("%s", error.text);
    }
    for (run.step = 0; run.step < plan->steps; run.step++) {
        uint64_t dice = kvr_random_below(&run.random, 100);
        run.time_ms += (double)kvr_random_below(&run.random, 200);
        if (dice < 2 && plan->clears && kvr_random_below(&run.random, 8) == 0) {
            for (int k = 0; k < 2; k++)
                kvr_cache_clear(run.cache[k]);
        } else if (dice < (plan->times ? 20 : 8) && plan->pins) {
            fuzz_pin(&run);
        } else if (dice < 40 && run.live_count) {
            fuzz_output(&run, kvr_random_below(&run.random, run.live_count));
        } else if (run.live_count && (dice < 60 || run.live_count > plan->live_most)) {
            size_t which = kvr_random_below(&run.random, run.live_count);
            if (kvr_random_below(&run.random, 4))
                fuzz_output(&run, which);
            fuzz_finish(&run, which);
        } else {
            fuzz_admit(&run);
        }
        fuzz_compare(&run);
    }
    while (run.live_count)
        fuzz_finish(&run, 0);
    fuzz_compare(&run);
    for (int k = 0; k < 2; k++) {
        kvr_cache_destroy(run.cache[k]);
        id_free(&run.log[k]);
    }
    for (size_t i = 0; i < 24; i++)
        id_free(&run.chains[i].ids);
    id_free(&run.pinned);
}

#endif
