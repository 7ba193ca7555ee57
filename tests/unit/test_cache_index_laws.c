/* Laws and bounds of the prefix index, its workers, and its state on disk. */
#include "tests/unit/index_help.h"

#include <unistd.h>

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
