/* The prefix index against a slow and obvious model, and its laws. */
#include "base/random.h"
#include "cache/index.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the model: arrays searched from end to end ---- */

#define MODEL_BLOCKS 4096
#define MODEL_WORKERS 40

struct model_worker {
    uint64_t ids[MODEL_BLOCKS]; /* oldest first */
    int64_t times[MODEL_BLOCKS];
    unsigned copies[MODEL_BLOCKS][KVR_MEDIUM_COUNT];
    size_t count, capacity;
    bool exact;
};

static long model_at(const struct model_worker *worker, uint64_t id)
{
    for (size_t i = 0; i < worker->count; i++)
        if (worker->ids[i] == id)
            return (long)i;
    return -1;
}

static void model_drop(struct model_worker *worker, size_t at)
{
    size_t after = worker->count - at - 1;

    memmove(&worker->ids[at], &worker->ids[at + 1], after * sizeof worker->ids[0]);
    memmove(&worker->times[at], &worker->times[at + 1], after * sizeof worker->times[0]);
    memmove(&worker->copies[at], &worker->copies[at + 1], after * sizeof worker->copies[0]);
    worker->count--;
}

static void model_add(struct model_worker *worker, uint64_t id, int64_t now)
{
    worker->ids[worker->count] = id;
    worker->times[worker->count] = now;
    memset(worker->copies[worker->count], 0, sizeof worker->copies[0]);
    worker->count++;
}

static void model_touch(struct model_worker *worker, uint64_t id, int64_t now)
{
    model_drop(worker, (size_t)model_at(worker, id));
    model_add(worker, id, now);
}

static size_t model_run(const struct model_worker *worker, const uint64_t *ids, size_t count)
{
    size_t run = 0;

    while (run < count && model_at(worker, ids[run]) >= 0)
        run++;
    return run;
}

static bool model_among(uint64_t id, const uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* The rule of index.h, word for word. */
static void model_place(struct model_worker *worker, const uint64_t *ids, size_t count, int64_t now)
{
    size_t hit = model_run(worker, ids, count);

    for (size_t i = hit; i--;)
        model_touch(worker, ids[i], now);
    for (size_t i = hit; i < count; i++) {
        if (model_at(worker, ids[i]) >= 0)
            continue;
        if (worker->count == worker->capacity) {
            if (!worker->count || model_among(worker->ids[0], ids, count))
                break;
            model_drop(worker, 0);
        }
        model_add(worker, ids[i], now);
    }
    for (size_t i = count; i--;)
        if (model_at(worker, ids[i]) >= 0)
            model_touch(worker, ids[i], now);
}

static void model_expire(struct model_worker *worker, int64_t now, int64_t ttl)
{
    while (ttl && worker->count && now - worker->times[0] >= ttl)
        model_drop(worker, 0);
}

/* ---- the two side by side ---- */

static struct model_worker model[MODEL_WORKERS];

static struct kvr_index *new_index(const struct kvr_index_options *options)
{
    struct kvr_index *index;

    assert_int_equal(kvr_index_create(&index, options, NULL), KVR_OK);
    return index;
}

static uint32_t new_worker(struct kvr_index *index, unsigned number)
{
    char name[16];
    uint32_t worker;

    snprintf(name, sizeof name, "w%u", number);
    assert_int_equal(kvr_index_worker(index, name, strlen(name), &worker, NULL), KVR_OK);
    return worker;
}

static struct kvr_blocks blocks_of(const struct kvr_index *index, const uint64_t *ids, size_t count)
{
    return (struct kvr_blocks){
        kvr_index_space(index, NULL, 0, NULL, 0, NULL, 0, 16), ids, count, 16};
}

static void compare_find(
    struct kvr_index *index, unsigned workers, const uint64_t *ids, size_t count, int64_t now)
{
    struct kvr_blocks blocks = blocks_of(index, ids, count);
    const struct kvr_index_match *matches;
    size_t found = kvr_index_find(index, now, &blocks, &matches), at = 0;

    for (unsigned w = 0; w < workers; w++) {
        size_t run = model_run(&model[w], ids, count);
        if (!run)
            continue;
        assert_true(at < found);
        assert_int_equal(matches[at].worker, w);
        assert_int_equal(matches[at].blocks, run);
        at++;
    }
    assert_int_equal(at, found);
}

static void compare_all(struct kvr_index *index, unsigned workers)
{
    uint64_t pairs = 0;

    for (unsigned w = 0; w < workers; w++) {
        assert_int_equal(kvr_index_worker_blocks(index, w), model[w].count);
        pairs += model[w].count;
        for (size_t i = 0; i < model[w].count; i++) {
            const struct kvr_index_match *matches;
            struct kvr_blocks blocks = blocks_of(index, &model[w].ids[i], 1);
            size_t found = kvr_index_find(index, INT64_MIN, &blocks, &matches), at = 0;
            while (at < found && matches[at].worker != w)
                at++;
            assert_true(at < found);
        }
    }
    assert_int_equal(kvr_index_pairs(index), pairs);
}

/*
 * A request of a random tree: a node's id is a hash of its parent and a small choice. With
 * `chained` false, ids are small numbers in any order, duplicates and all.
 */
static size_t random_request(struct kvr_random *random, bool chained, size_t longest, uint64_t *ids)
{
    size_t count = 1 + kvr_random_below(random, (uint32_t)longest);
    uint64_t parent = 0;

    for (size_t i = 0; i < count; i++) {
        /* Mostly the same way down, so that requests share long prefixes. */
        uint64_t choice = kvr_random_below(random, 12) ? 0 : 1 + kvr_random_below(random, 3);
        parent = chained ? kvr_mix64(parent * 4 + choice + 1) : kvr_random_below(random, 60);
        ids[i] = parent;
    }
    return count;
}

static void against_model(uint64_t seed, unsigned workers, size_t capacity, size_t longest,
    bool chained, int64_t ttl, unsigned rounds)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_random random = {seed};
    struct kvr_index *index;
    uint64_t ids[512];
    int64_t now = -1000;

    options.capacity_blocks = capacity;
    options.ttl_ms = ttl;
    options.seed = seed;
    index = new_index(&options);
    memset(model, 0, sizeof model);
    for (unsigned w = 0; w < workers; w++) {
        assert_int_equal(new_worker(index, w), w);
        model[w].capacity = capacity < MODEL_BLOCKS - 512 ? capacity : MODEL_BLOCKS - 512;
    }
    for (unsigned round = 0; round < rounds; round++) {
        size_t count = random_request(&random, chained, longest, ids);
        struct kvr_blocks blocks = blocks_of(index, ids, count);
        unsigned w = kvr_random_below(&random, workers);
        struct kvr_index_placed placed;
        size_t hit, before;

        now += kvr_random_below(&random, 20);
        for (unsigned i = 0; i < workers; i++)
            model_expire(&model[i], now, ttl);
        compare_find(index, workers, ids, count, now);
        if (kvr_random_below(&random, 4) == 0)
            continue;
        hit = model_run(&model[w], ids, count);
        before = model[w].count;
        model_place(&model[w], ids, count, now);
        assert_int_equal(kvr_index_place(index, w, now, &blocks, &placed, NULL), KVR_OK);
        assert_int_equal(placed.hit, hit);
        assert_int_equal(before + placed.inserted - placed.evicted, model[w].count);
        compare_find(index, workers, ids, count, now);
        if (kvr_random_below(&random, 200) == 0) {
            model[w].count = 0;
            kvr_index_worker_clear(index, w);
        }
        if (round % 64 == 0)
            compare_all(index, workers);
    }
    compare_all(index, workers);
    kvr_index_destroy(index);
}

static void chained_placements_match_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        against_model(seed, 1, 40, 60, true, 0, 600);
        against_model(seed + 100, 5, 200, 90, true, 0, 600);
        against_model(seed + 200, 40, 100, 40, true, 0, 600);
        against_model(seed + 300, 3, 2000, 400, true, 0, 150);
    }
}

static void unchained_ids_cost_speed_not_truth(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        against_model(seed, 1, 10, 12, false, 0, 400);
        against_model(seed + 100, 6, 30, 16, false, 0, 400);
        against_model(seed + 200, 2, 3, 9, false, 0, 400);
    }
}

static void a_time_to_live_is_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        against_model(seed, 4, 100, 30, true, 50, 800);
        against_model(seed + 50, 40, 3000, 30, true, 300, 800);
        against_model(seed + 90, 3, 50, 12, false, 40, 500);
    }
}

static void nothing_fits_a_capacity_of_zero(void **state)
{
    (void)state;
    against_model(1, 3, 0, 20, true, 0, 100);
    against_model(2, 3, 1, 20, true, 0, 100);
}

/* ---- events ---- */

static void events_with_holes_match_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct kvr_index_options options = KVR_INDEX_DEFAULTS;
        struct kvr_random random = {seed};
        struct kvr_index *index = new_index(&options);
        uint64_t ids[64];

        memset(model, 0, sizeof model);
        for (unsigned w = 0; w < 8; w++)
            new_worker(index, w);
        for (unsigned round = 0; round < 800; round++) {
            size_t count = random_request(&random, seed % 3 != 0, 40, ids), some;
            struct kvr_blocks blocks = blocks_of(index, ids, count);
            struct model_worker *worker = &model[kvr_random_below(&random, 8)];
            uint32_t w = (uint32_t)(worker - model);
            enum kvr_medium medium = kvr_random_below(&random, KVR_MEDIUM_COUNT);
            uint64_t tiers[KVR_MEDIUM_COUNT], expected[KVR_MEDIUM_COUNT] = {0};

            compare_find(index, 8, ids, count, 0);
            some = kvr_random_below(&random, (uint32_t)count + 1);
            blocks.ids += count - some;
            blocks.count = some;
            if (kvr_random_below(&random, 2)) {
                assert_int_equal(kvr_index_stored(index, w, medium, &blocks, NULL), KVR_OK);
                for (size_t i = 0; i < some; i++) {
                    if (model_at(worker, blocks.ids[i]) < 0)
                        model_add(worker, blocks.ids[i], 0);
                    worker->copies[model_at(worker, blocks.ids[i])][medium]++;
                }
            } else {
                assert_int_equal(kvr_index_removed(index, w, medium, &blocks, NULL), KVR_OK);
                for (size_t i = 0; i < some; i++) {
                    long at = model_at(worker, blocks.ids[i]);
                    unsigned *copies = at < 0 ? NULL : worker->copies[at];
                    if (!copies || !copies[medium])
                        continue;
                    copies[medium]--;
                    if (!(copies[0] + copies[1] + copies[2] + copies[3]))
                        model_drop(worker, (size_t)at);
                }
            }
            compare_find(index, 8, ids, count, 0);
            blocks = blocks_of(index, ids, count);
            for (size_t i = 0; i < model_run(worker, ids, count); i++) {
                const unsigned *copies = worker->copies[model_at(worker, ids[i])];
                medium = 0;
                while (!copies[medium])
                    medium++;
                expected[medium] += 16;
            }
            kvr_index_tiers(index, w, &blocks, 16 * model_run(worker, ids, count), tiers);
            assert_memory_equal(tiers, expected, sizeof tiers);
        }
        compare_all(index, 8);
        kvr_index_destroy(index);
    }
}

static void a_block_stored_twice_is_gone_when_removed_twice(void **state)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index = new_index(&options);
    uint64_t ids[] = {7, 8};
    struct kvr_blocks blocks = blocks_of(index, ids, 2);
    const struct kvr_index_match *matches;
    uint32_t w = new_worker(index, 0);
    struct kvr_error error;

    (void)state;
    kvr_index_stored(index, w, KVR_MEDIUM_GPU, &blocks, NULL);
    kvr_index_stored(index, w, KVR_MEDIUM_GPU, &blocks, NULL);
    kvr_index_removed(index, w, KVR_MEDIUM_GPU, &blocks, NULL);
    assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), 1);
    assert_int_equal(matches[0].blocks, 2);
    kvr_index_removed(index, w, KVR_MEDIUM_CPU, &blocks, NULL);
    assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), 1);
    kvr_index_removed(index, w, KVR_MEDIUM_GPU, &blocks, NULL);
    assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), 0);
    kvr_index_removed(index, w, KVR_MEDIUM_GPU, &blocks, NULL);
    assert_int_equal(kvr_index_pairs(index), 0);
    for (int i = 0; i < 65535; i++)
        assert_int_equal(kvr_index_stored(index, w, KVR_MEDIUM_DISK, &blocks, &error), KVR_OK);
    assert_int_equal(kvr_index_stored(index, w, KVR_MEDIUM_DISK, &blocks, &error), KVR_BAD_INPUT);
    kvr_index_destroy(index);
}

struct fed {
    struct kvr_index *to;
    struct kvr_blocks blocks;
    uint64_t space;
};

/* Test ids are chosen so that the key is its own id: space 0 and the inverse of the mix are not
 * needed when the events are told in keys, and keys of keys are as good as ids. */
static void feed_removed(void *context, uint32_t worker, uint64_t key)
{
    struct fed *fed = context;
    struct kvr_blocks blocks = {fed->space, &key, 1, 16};

    assert_int_equal(kvr_index_removed(fed->to, worker, KVR_MEDIUM_GPU, &blocks, NULL), KVR_OK);
}

static void events_of_a_mirror_make_the_same_mirror(void **state)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_random random = {5};
    struct kvr_index *from, *to;
    struct fed fed = {0};
    uint64_t ids[128], keys[128];

    (void)state;
    options.capacity_blocks = 150;
    from = new_index(&options);
    to = new_index(&options);
    fed.to = to;
    fed.space = kvr_index_space(to, NULL, 0, NULL, 0, NULL, 0, 16);
    kvr_index_on_evicted(from, feed_removed, &fed);
    for (unsigned w = 0; w < 6; w++) {
        new_worker(from, w);
        new_worker(to, w);
    }
    for (unsigned round = 0; round < 3000; round++) {
        size_t count = random_request(&random, true, 100, ids), found;
        struct kvr_blocks blocks = blocks_of(from, ids, count);
        struct kvr_blocks told = {fed.space, keys, count, 16};
        const struct kvr_index_match *left, *right;
        struct kvr_index_placed placed;
        uint32_t w = kvr_random_below(&random, 6);

        for (size_t i = 0; i < count; i++)
            keys[i] = kvr_index_key(blocks.space, ids[i]);
        found = kvr_index_find(from, 0, &blocks, &left);
        assert_int_equal(kvr_index_find(to, 0, &told, &right), found);
        for (size_t i = 0; i < found; i++) {
            assert_int_equal(left[i].worker, right[i].worker);
            assert_int_equal(left[i].blocks, right[i].blocks);
        }
        assert_int_equal(kvr_index_place(from, w, 0, &blocks, &placed, NULL), KVR_OK);
        told.ids += placed.hit;
        told.count = placed.inserted;
        assert_int_equal(kvr_index_stored(to, w, KVR_MEDIUM_GPU, &told, NULL), KVR_OK);
    }
    assert_int_equal(kvr_index_pairs(from), kvr_index_pairs(to));
    assert_true(kvr_index_worker_is_exact(to, 0));
    kvr_index_destroy(from);
    kvr_index_destroy(to);
}

static void the_first_event_replaces_what_was_guessed(void **state)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index = new_index(&options);
    uint64_t ids[] = {1, 2, 3, 4};
    struct kvr_blocks blocks = blocks_of(index, ids, 4), one = blocks_of(index, ids, 1);
    const struct kvr_index_match *matches;
    uint32_t w = new_worker(index, 0);

    (void)state;
    kvr_index_place(index, w, 0, &blocks, NULL, NULL);
    kvr_index_stored(index, w, KVR_MEDIUM_GPU, &one, NULL);
    assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), 1);
    assert_int_equal(matches[0].blocks, 1);
    kvr_index_place(index, w, 0, &blocks, NULL, NULL);
    assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), 1);
    assert_int_equal(matches[0].blocks, 1);
    kvr_index_worker_clear(index, w);
    kvr_index_place(index, w, 0, &blocks, NULL, NULL);
    assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), 0);
    kvr_index_destroy(index);
}

/* ---- laws and bounds ---- */

static void more_capacity_never_lowers_hits(void **state)
{
    size_t capacities[] = {1, 2, 5, 20, 50, 100, 200, 400, 1000, 4000};

    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        uint64_t last = 0;
        for (size_t c = 0; c < sizeof capacities / sizeof *capacities; c++) {
            struct kvr_index_options options = KVR_INDEX_DEFAULTS;
            struct kvr_random random = {seed};
            struct kvr_index *index;
            uint64_t ids[128], hits = 0;
            uint32_t w;

            options.capacity_blocks = capacities[c];
            index = new_index(&options);
            w = new_worker(index, 0);
            for (int round = 0; round < 1500; round++) {
                struct kvr_blocks blocks =
                    blocks_of(index, ids, random_request(&random, true, 100, ids));
                struct kvr_index_placed placed;
                kvr_index_place(index, w, 0, &blocks, &placed, NULL);
                hits += placed.hit;
                assert_true(kvr_index_pairs(index) <= capacities[c]);
            }
            assert_true(hits >= last);
            last = hits;
            kvr_index_destroy(index);
        }
        assert_true(last > 0);
    }
}

static void a_memory_bound_holds_and_cuts_the_heavy(void **state)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_random random = {3};
    struct kvr_index *index;
    uint64_t ids[256], next = 1;
    uint32_t light, heavy;
    const struct kvr_index_match *matches;
    struct kvr_blocks blocks;

    (void)state;
    options.max_memory_bytes = 1 << 20;
    index = new_index(&options);
    light = new_worker(index, 0);
    heavy = new_worker(index, 1);
    for (int i = 0; i < 8; i++)
        ids[i] = next++;
    blocks = blocks_of(index, ids, 8);
    kvr_index_place(index, light, 0, &blocks, NULL, NULL);
    for (int round = 0; round < 2000; round++) {
        uint64_t fresh[256];
        size_t count = 1 + kvr_random_below(&random, 255);
        for (size_t i = 0; i < count; i++)
            fresh[i] = next++;
        blocks = blocks_of(index, fresh, count);
        assert_int_equal(kvr_index_place(index, heavy, 0, &blocks, NULL, NULL), KVR_OK);
        assert_true(kvr_index_memory_bytes(index) <= options.max_memory_bytes);
        assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), 1);
        assert_int_equal(matches[0].blocks, count);
    }
    assert_true(kvr_index_pairs(index) > 8000);
    blocks = blocks_of(index, ids, 8);
    assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), 1);
    assert_int_equal(matches[0].worker, light);
    kvr_index_destroy(index);

    options.max_memory_bytes = 2048;
    index = new_index(&options);
    light = new_worker(index, 0);
    assert_int_equal(kvr_index_place(index, light, 0, &blocks, NULL, NULL), KVR_NO_MEMORY);
    kvr_index_destroy(index);
}

static void a_block_and_worker_costs_at_most_48_bytes(void **state)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index = new_index(&options);
    uint64_t ids[1000], next = 1;
    struct kvr_blocks blocks;

    (void)state;
    new_worker(index, 0);
    new_worker(index, 1);
    for (int round = 0; round < 3000; round++) {
        for (int i = 0; i < 1000; i++)
            ids[i] = next++;
        blocks = blocks_of(index, ids, 1000);
        kvr_index_place(index, 0, 0, &blocks, NULL, NULL);
        if (round % 2)
            kvr_index_place(index, 1, 0, &blocks, NULL, NULL);
        if (round > 50)
            assert_true(kvr_index_memory_bytes(index) <= 48 * kvr_index_pairs(index));
    }
    kvr_index_destroy(index);
}

static void thousands_of_workers_share_and_leave(void **state)
{
    enum { WORKERS = 5000 };
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index = new_index(&options);
    uint64_t ids[64];
    struct kvr_blocks blocks;
    const struct kvr_index_match *matches;

    (void)state;
    for (uint64_t i = 0; i < 64; i++)
        ids[i] = i + 1;
    for (unsigned w = 0; w < WORKERS; w++) {
        assert_int_equal(new_worker(index, w), w);
        blocks = blocks_of(index, ids, 20 + w % 40);
        kvr_index_place(index, w, 0, &blocks, NULL, NULL);
    }
    blocks = blocks_of(index, ids, 64);
    assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), WORKERS);
    for (unsigned w = 0; w < WORKERS; w++)
        assert_int_equal(matches[w].blocks, 20 + w % 40);
    for (unsigned w = 0; w < WORKERS; w += 2)
        kvr_index_worker_remove(index, w);
    assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), WORKERS / 2);
    for (unsigned i = 0; i < WORKERS / 2; i++)
        assert_int_equal(matches[i].blocks, 20 + matches[i].worker % 40);
    assert_int_equal(kvr_index_worker_lookup(index, "w0", 2), UINT32_MAX);
    assert_int_equal(kvr_index_worker_lookup(index, "w1", 2), 1);
    for (unsigned w = 0; w < WORKERS; w++) {
        char name[16];
        snprintf(name, sizeof name, "w%u", w);
        assert_int_equal(
            kvr_index_worker_lookup(index, name, strlen(name)), w % 2 ? w : UINT32_MAX);
    }
    assert_null(kvr_index_worker_name(index, 0));
    assert_int_equal(new_worker(index, 9999), 0);
    for (unsigned w = 0; w < WORKERS; w++)
        if (kvr_index_worker_name(index, w))
            kvr_index_worker_remove(index, w);
    assert_int_equal(kvr_index_pairs(index), 0);
    assert_int_equal(kvr_index_distinct_blocks(index), 0);
    kvr_index_destroy(index);
}

static void workers_are_bounded_and_named(void **state)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index = new_index(&options);
    struct kvr_error error;
    char name[300];
    uint32_t worker;

    (void)state;
    memset(name, 'x', sizeof name);
    assert_int_equal(kvr_index_worker(index, name, 0, &worker, &error), KVR_BAD_INPUT);
    assert_int_equal(kvr_index_worker(index, name, 256, &worker, &error), KVR_BAD_INPUT);
    assert_int_equal(kvr_index_worker(index, name, 255, &worker, &error), KVR_OK);
    for (unsigned i = 1; i < KVR_INDEX_MAX_WORKERS; i++)
        assert_int_equal(new_worker(index, i), i);
    assert_int_equal(kvr_index_worker(index, "more", 4, &worker, &error), KVR_BAD_INPUT);
    kvr_index_worker_remove(index, 77);
    assert_int_equal(kvr_index_worker(index, "more", 4, &worker, &error), KVR_OK);
    assert_int_equal(worker, 77);
    kvr_index_destroy(index);
}

static void namespaces_and_block_sizes_do_not_mix(void **state)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index = new_index(&options);
    uint64_t ids[] = {1, 2, 3};
    struct kvr_blocks plain = blocks_of(index, ids, 3), other = plain;
    const struct kvr_index_match *matches;
    struct kvr_error error;
    uint32_t w = new_worker(index, 0);

    (void)state;
    kvr_index_place(index, w, 0, &plain, NULL, NULL);
    other.space = kvr_index_space(index, "m", 1, NULL, 0, NULL, 0, 16);
    assert_int_not_equal(other.space, plain.space);
    assert_int_not_equal(other.space, kvr_index_space(index, NULL, 0, "m", 1, NULL, 0, 16));
    assert_int_not_equal(other.space, kvr_index_space(index, NULL, 0, NULL, 0, "m", 1, 16));
    assert_int_equal(kvr_index_find(index, 0, &other, &matches), 0);
    other.block_size = 32;
    other.space = kvr_index_space(index, NULL, 0, NULL, 0, NULL, 0, 32);
    assert_int_equal(kvr_index_find(index, 0, &other, &matches), 0);
    assert_int_equal(kvr_index_place(index, w, 0, &other, NULL, &error), KVR_BAD_INPUT);
    assert_string_equal(error.text, "worker 'w0' holds blocks of 16 tokens, these have 32");
    assert_int_equal(kvr_index_place(index, new_worker(index, 1), 0, &other, NULL, &error), KVR_OK);
    assert_int_equal(kvr_index_find(index, 0, &other, &matches), 1);
    assert_int_equal(matches[0].worker, 1);
    other.block_size = 0;
    assert_int_equal(kvr_index_place(index, w, 0, &other, NULL, &error), KVR_BAD_INPUT);
    kvr_index_destroy(index);
}

static void a_capacity_in_tokens_follows_the_block_size(void **state)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index;
    uint64_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct kvr_blocks blocks;
    uint32_t w;

    (void)state;
    options.capacity_tokens = 79;
    index = new_index(&options);
    blocks = blocks_of(index, ids, 8);
    w = new_worker(index, 0);
    kvr_index_place(index, w, 0, &blocks, NULL, NULL);
    assert_int_equal(kvr_index_worker_blocks(index, w), 4);
    kvr_index_worker_capacity(index, w, KVR_INDEX_UNBOUNDED, 6);
    kvr_index_place(index, w, 0, &blocks, NULL, NULL);
    assert_int_equal(kvr_index_worker_blocks(index, w), 6);
    kvr_index_worker_capacity(index, w, 33, KVR_INDEX_UNBOUNDED);
    assert_int_equal(kvr_index_worker_blocks(index, w), 2);
    kvr_index_destroy(index);
}

static void time_leaps_and_steps_back(void **state)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index;
    uint64_t ids[] = {1, 2, 3};
    struct kvr_blocks blocks;
    const struct kvr_index_match *matches;
    uint32_t w;

    (void)state;
    options.ttl_ms = 1000;
    index = new_index(&options);
    blocks = blocks_of(index, ids, 3);
    w = new_worker(index, 0);
    kvr_index_place(index, w, INT64_MIN, &blocks, NULL, NULL);
    assert_int_equal(kvr_index_find(index, INT64_MIN, &blocks, &matches), 1);
    /* Exactly 2^32 ms on, where a 32-bit stamp looks as if no time had passed. */
    assert_int_equal(kvr_index_find(index, INT64_MIN + (INT64_C(1) << 32), &blocks, &matches), 0);
    kvr_index_place(index, w, INT64_MAX - 10, &blocks, NULL, NULL);
    assert_int_equal(kvr_index_find(index, 0, &blocks, &matches), 1);
    assert_int_equal(kvr_index_find(index, INT64_MAX, &blocks, &matches), 1);
    kvr_index_destroy(index);
    options.ttl_ms = KVR_INDEX_MAX_TTL_MS + 1;
    assert_int_equal(kvr_index_create(&index, &options, NULL), KVR_BAD_USAGE);
    assert_null(index);
    kvr_index_destroy(index);
}

/* ---- state ---- */

static char *read_whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *data;

    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    data = malloc(*size);
    assert_int_equal(fread(data, 1, *size, file), *size);
    fclose(file);
    return data;
}

static void a_saved_index_answers_and_evicts_as_before(void **state)
{
    char path[] = "/tmp/kvr-index-state-XXXXXX";
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_random random = {11};
    struct kvr_index *index, *loaded;
    uint64_t ids[128];
    int64_t now = 0;

    (void)state;
    close(mkstemp(path));
    options.capacity_blocks = 120;
    options.ttl_ms = 5000;
    options.seed = 99;
    index = new_index(&options);
    options.seed = 7;
    loaded = new_index(&options);
    for (unsigned w = 0; w < 5; w++)
        new_worker(index, w);
    for (int round = 0; round < 2000; round++) {
        size_t count = random_request(&random, true, 60, ids), found;
        struct kvr_blocks blocks = blocks_of(index, ids, count);
        const struct kvr_index_match *left, *right;
        uint32_t w = kvr_random_below(&random, 4);

        now += kvr_random_below(&random, 100);
        if (round == 1000) {
            kvr_index_stored(index, 4, KVR_MEDIUM_CPU, &blocks, NULL);
            assert_int_equal(kvr_index_save(index, path, NULL), KVR_OK);
            assert_int_equal(kvr_index_load(loaded, path, NULL), KVR_OK);
        }
        found = kvr_index_find(index, now, &blocks, &left);
        kvr_index_place(index, w, now, &blocks, NULL, NULL);
        if (round >= 1000) {
            struct kvr_blocks same = blocks_of(loaded, ids, count);
            assert_int_equal(kvr_index_find(loaded, now, &same, &right), found);
            assert_memory_equal(left, right, found * sizeof *left);
            kvr_index_place(loaded, w, now, &same, NULL, NULL);
            assert_int_equal(kvr_index_pairs(loaded), kvr_index_pairs(index));
        }
    }
    assert_true(kvr_index_worker_is_exact(loaded, 4));
    kvr_index_destroy(index);
    kvr_index_destroy(loaded);
    unlink(path);
}

static void a_damaged_state_is_a_cold_start(void **state)
{
    char path[] = "/tmp/kvr-index-state-XXXXXX", *data;
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index = new_index(&options);
    uint64_t ids[] = {1, 2, 3, 4, 5};
    struct kvr_blocks blocks = blocks_of(index, ids, 5);
    struct kvr_error error;
    size_t size;

    (void)state;
    close(mkstemp(path));
    kvr_index_place(index, new_worker(index, 0), 0, &blocks, NULL, NULL);
    assert_int_equal(kvr_index_save(index, path, NULL), KVR_OK);
    data = read_whole(path, &size);
    for (size_t cut = 0; cut < size; cut++) {
        assert_int_equal(kvr_index_load_bytes(index, data, cut, "x", &error), KVR_BAD_INPUT);
        assert_int_equal(kvr_index_pairs(index), 0);
        assert_int_equal(kvr_index_worker_limit(index), 0);
    }
    for (size_t at = 0; at < size; at++) {
        data[at] ^= 0x10;
        assert_int_equal(kvr_index_load_bytes(index, data, size, "x", &error), KVR_BAD_INPUT);
        data[at] ^= 0x10;
    }
    assert_int_equal(kvr_index_load_bytes(index, data, size, "x", &error), KVR_OK);
    assert_int_equal(kvr_index_pairs(index), 5);
    assert_int_equal(kvr_index_load(index, "/nonexistent/state", &error), KVR_IO);
    assert_int_equal(kvr_index_save(index, "/nonexistent/state", &error), KVR_IO);
    free(data);
    kvr_index_destroy(index);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chained_placements_match_the_model),
        cmocka_unit_test(unchained_ids_cost_speed_not_truth),
        cmocka_unit_test(a_time_to_live_is_exact),
        cmocka_unit_test(nothing_fits_a_capacity_of_zero),
        cmocka_unit_test(events_with_holes_match_the_model),
        cmocka_unit_test(a_block_stored_twice_is_gone_when_removed_twice),
        cmocka_unit_test(events_of_a_mirror_make_the_same_mirror),
        cmocka_unit_test(the_first_event_replaces_what_was_guessed),
        cmocka_unit_test(more_capacity_never_lowers_hits),
        cmocka_unit_test(a_memory_bound_holds_and_cuts_the_heavy),
        cmocka_unit_test(a_block_and_worker_costs_at_most_48_bytes),
        cmocka_unit_test(thousands_of_workers_share_and_leave),
        cmocka_unit_test(workers_are_bounded_and_named),
        cmocka_unit_test(namespaces_and_block_sizes_do_not_mix),
        cmocka_unit_test(a_capacity_in_tokens_follows_the_block_size),
        cmocka_unit_test(time_leaps_and_steps_back),
        cmocka_unit_test(a_saved_index_answers_and_evicts_as_before),
        cmocka_unit_test(a_damaged_state_is_a_cold_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
