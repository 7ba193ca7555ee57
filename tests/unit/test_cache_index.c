/* The prefix index against a slow and obvious model. */
#include "tests/unit/index_help.h"

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

/* An evicted block is told by its key; the exact side is told keys as ids from the start. */
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
