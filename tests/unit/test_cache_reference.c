/* Published figures and laws on a real trace: Mooncake's conversation trace. */
#include "cache/trace.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <unistd.h>

static struct kvr_trace trace;
static bool have_trace;
static struct kvr_buffer reference; /* the text of evict_conversation.json */
static struct kvr_value figures;

static void shared_path(char *path, size_t size, const char *name)
{
    const char *shared = getenv("SHARED");

    snprintf(path, size, "%s/%s", shared ? shared : "../shared", name);
}

static int load(void **state)
{
    char path[4096];
    struct kvr_error error;
    struct kvr_structure *structure = kvr_structure_create();

    (void)state;
    shared_path(path, sizeof path, "reference/evict_conversation.json");
    FILE *file = fopen(path, "rb");
    if (file && structure) {
        char piece[4096];
        size_t got;
        while ((got = fread(piece, 1, sizeof piece, file)) > 0)
            kvr_buffer_append(&reference, piece, got);
        fclose(file);
        shared_path(path, sizeof path, "traces/mooncake_conversation.jsonl.gz");
        have_trace = kvr_json_check(structure, reference.data, reference.length, &figures, NULL,
                         &error) == KVR_OK &&
                     kvr_trace_load(&trace, path, 512, &error) == KVR_OK &&
                     kvr_trace_look_ahead(&trace, &error) == KVR_OK;
    }
    kvr_structure_destroy(structure);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    kvr_trace_release(&trace);
    kvr_buffer_release(&reference);
    return 0;
}

static struct kvr_cache *replay(const char *policy, uint64_t capacity, bool plain)
{
    const struct kvr_policy *found = kvr_policy_find(policy, strlen(policy));
    struct kvr_error error = {0};
    struct kvr_cache *cache;

    assert_non_null(found);
    struct kvr_block_options options = {
        .capacity_blocks = capacity,
        .block_tokens = 512,
        .policy = found,
        .plain = plain,
        .future = found->needs_future ? trace.future : NULL,
        .future_length = found->needs_future ? trace.id_count : 0,
    };
    if (kvr_block_cache_create(&options, &cache, &error) != KVR_OK ||
        kvr_trace_replay(&trace, cache, 0, trace.request_count, &error) != KVR_OK)
        fail_msg("%s", error.text);
    return cache;
}

static uint64_t misses_of(const char *policy, uint64_t capacity, bool plain)
{
    struct kvr_cache *cache = replay(policy, capacity, plain);
    const struct kvr_block_counts *counts = kvr_block_cache_counts(cache);
    uint64_t misses = counts->accesses - counts->hits;

    kvr_cache_destroy(cache);
    return misses;
}

static uint64_t number_at(struct kvr_value object, const char *name)
{
    uint64_t number = 0;

    assert_true(kvr_value_u64(kvr_value_get(object, name), &number));
    return number;
}

static uint64_t libcachesim_misses(const char *name, unsigned capacity)
{
    char key[64];

    snprintf(key, sizeof key, "%s@%u", name, capacity);
    return number_at(
        kvr_value_get(kvr_value_get(figures, "plain_libcachesim_0.3.5"), key), "misses");
}

static void need_trace(void)
{
    if (!have_trace)
        skip();
}

static void plain_misses_equal_the_reference(void **state)
{
    static const struct {
        const char *policy, *name;
        unsigned slack;
    } rows[] = {{"lru", "LRU", 0}, {"fifo", "FIFO", 0}, {"lfu", "LFU", 0}, {"sieve", "Sieve", 0},
        {"belady", "Belady", 0}, {"clock", "Clock", 0}, {"arc", "ARC", 0},
        {"s3fifo-cold", "S3FIFO", 0}, {"gdsf", "GDSF", 26}};
    static const unsigned capacities[] = {1000, 10000, 50000};

    (void)state;
    need_trace();
    assert_int_equal(trace.id_count, 288500);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < 3; j++) {
            uint64_t wanted = libcachesim_misses(rows[i].name, capacities[j]);
            uint64_t got = misses_of(rows[i].policy, capacities[j], true);
            if (got > wanted + rows[i].slack || got + rows[i].slack < wanted)
                fail_msg("%s at %u: %lu misses, not %lu", rows[i].policy, capacities[j],
                    (unsigned long)got, (unsigned long)wanted);
        }
}

static void plain_misses_equal_the_independent_figures(void **state)
{
    static const struct {
        const char *policy, *name;
    } rows[] = {{"s3fifo", "S3FIFO"}, {"gdsf", "GDSF"}, {"belady-bypass", "Belady_bypass"}};
    static const unsigned capacities[] = {1000, 10000, 50000};

    (void)state;
    need_trace();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < 3; j++) {
            char key[16];
            snprintf(key, sizeof key, "%u", capacities[j]);
            struct kvr_value column =
                kvr_value_get(kvr_value_get(figures, "plain_independent"), key);
            assert_int_equal(
                misses_of(rows[i].policy, capacities[j], true), number_at(column, rows[i].name));
        }
}

static void leaf_lru_tokens_equal_the_reference(void **state)
{
    struct kvr_cursor cursor;
    struct kvr_value row;
    int rows = 0;

    (void)state;
    need_trace();
    cursor = kvr_value_open(kvr_value_get(figures, "prefix_leaf_lru"));
    while (kvr_next_element(&cursor, &row)) {
        struct kvr_value full = kvr_value_get(row, "full");
        struct kvr_cache *cache = replay("lru", number_at(row, "capacity"), false);
        const struct kvr_block_counts *counts = kvr_block_cache_counts(cache);
        assert_int_equal(counts->hit_tokens, number_at(full, "hit_tokens"));
        assert_int_equal(counts->hits, number_at(full, "hit_blocks"));
        assert_int_equal(counts->prompt_tokens, number_at(full, "tokens"));
        kvr_cache_destroy(cache);
        rows++;
    }
    assert_int_equal(rows, 4);
}

static void belady_is_never_beaten(void **state)
{
    static const uint64_t capacities[] = {100, 1000, 5000, 20000, 60000};

    (void)state;
    need_trace();
    for (int plain = 0; plain < 2; plain++)
        for (size_t j = 0; j < sizeof capacities / sizeof *capacities; j++) {
            uint64_t ceiling = misses_of("belady-bypass", capacities[j], plain);
            uint64_t forced = misses_of("belady", capacities[j], plain);
            assert_true(forced >= ceiling);
            for (size_t i = 0; i < kvr_policy_count; i++) {
                if (kvr_policies[i]->needs_future)
                    continue;
                uint64_t misses = misses_of(kvr_policies[i]->name, capacities[j], plain);
                if (misses < forced)
                    fail_msg("%s at %lu: %lu misses, belady %lu", kvr_policies[i]->name,
                        (unsigned long)capacities[j], (unsigned long)misses, (unsigned long)forced);
            }
        }
}

static void room_for_all_leaves_the_compulsory_misses(void **state)
{
    (void)state;
    need_trace();
    for (size_t i = 0; i < kvr_policy_count; i++) {
        if (kvr_policies[i]->in_time)
            continue; /* ttl also evicts by age */
        for (int plain = 0; plain < 2; plain++)
            assert_int_equal(misses_of(kvr_policies[i]->name, 182790, plain), 182790);
    }
}

static void a_larger_lru_never_hits_less(void **state)
{
    uint64_t last = UINT64_MAX;

    (void)state;
    need_trace();
    for (uint64_t capacity = 16; capacity < 300000; capacity *= 3) {
        uint64_t misses = misses_of("lru", capacity, false);
        assert_true(misses <= last);
        last = misses;
    }
}

static void inserted_is_evicted_plus_resident(void **state)
{
    (void)state;
    need_trace();
    for (size_t i = 0; i < kvr_policy_count; i++)
        for (int plain = 0; plain < 2; plain++) {
            struct kvr_cache *cache = replay(kvr_policies[i]->name, 3000, plain);
            struct kvr_cache_stats stats;
            kvr_cache_stats(cache, &stats);
            assert_int_equal(
                stats.inserted_blocks[0], stats.evicted_blocks[0] + stats.resident_blocks[0]);
            assert_true(stats.resident_blocks[0] <= 3000);
            kvr_cache_destroy(cache);
        }
}

static void a_resident_block_takes_at_most_64_bytes(void **state)
{
    (void)state;
    need_trace();
    for (size_t i = 0; i < kvr_policy_count; i++) {
        const char *name = kvr_policies[i]->name;
        if (kvr_policies[i]->needs_future || kvr_policies[i]->in_time || !strcmp(name, "arc") ||
            !strncmp(name, "s3fifo", 6))
            continue; /* a future is as long as the trace; ghosts are not resident */
        struct kvr_cache *cache = replay(name, 50000, false);
        struct kvr_cache_stats stats;
        kvr_cache_stats(cache, &stats);
        assert_int_equal(stats.resident_blocks[0], 50000);
        if (stats.memory_bytes > 64 * stats.resident_blocks[0])
            fail_msg("%s: %lu bytes", name, (unsigned long)stats.memory_bytes);
        kvr_cache_destroy(cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_misses_equal_the_reference),
        cmocka_unit_test(plain_misses_equal_the_independent_figures),
        cmocka_unit_test(leaf_lru_tokens_equal_the_reference),
        cmocka_unit_test(belady_is_never_beaten),
        cmocka_unit_test(room_for_all_leaves_the_compulsory_misses),
        cmocka_unit_test(a_larger_lru_never_hits_less),
        cmocka_unit_test(inserted_is_evicted_plus_resident),
        cmocka_unit_test(a_resident_block_takes_at_most_64_bytes),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
