/* Every policy against the slow model on random traces: the same hits, the same evictions. */
#include "cache/block_cache.h"
#include "cache/block_cache_internal.h"
#include "tests/unit/policy_model.h"
#include "tests/unit/unit.h"

#include <stdio.h>

enum { REQUESTS = 300, LENGTH_MOST = 9, RUNS = 40 };

struct trace {
    uint64_t ids[REQUESTS * LENGTH_MOST];
    int starts[REQUESTS + 1];
    double times[REQUESTS];
};

/* Walks down a random tree with favourite branches; shapes differ from seed to seed. */
static void make_trace(struct trace *trace, uint64_t seed)
{
    struct kvr_random random = {seed};
    uint32_t branches = 2 + kvr_random_below(&random, 3), skew = 1 + kvr_random_below(&random, 4);
    double time_ms = 0;

    trace->starts[0] = 0;
    for (int i = 0; i < REQUESTS; i++) {
        uint32_t length = 1 + kvr_random_below(&random, LENGTH_MOST);
        uint64_t id = 1;
        for (uint32_t j = 0; j < length; j++) {
            uint32_t branch =
                kvr_random_below(&random, skew + 1) ? 0 : kvr_random_below(&random, branches);
            id = id * 5 % 999983 + branch + 1;
            /* ids name their path: a child under another parent is another id */
            id = (kvr_mix64(id + 1000003ull * j) >> 40) + 1;
            trace->ids[trace->starts[i] + (int)j] = id;
        }
        trace->starts[i + 1] = trace->starts[i] + (int)length;
        time_ms += kvr_random_below(&random, 50);
        trace->times[i] = time_ms;
    }
}

struct log {
    uint64_t *ids;
    int count;
};

static void note_removed(void *context, enum kvr_medium medium, const uint64_t *ids, size_t count)
{
    struct log *log = context;

    (void)medium;
    for (size_t i = 0; i < count && log->count < MODEL_LOG; i++)
        log->ids[log->count++] = ids[i];
}

static struct kvr_cache *make_cache(const struct kvr_policy *policy, bool plain, int capacity,
    const struct trace *trace, uint32_t *future, struct log *log)
{
    static struct kvr_parameter_value values[KVR_POLICY_PARAMETERS_MOST];
    struct kvr_cache_sink sink = {.context = log, .removed = note_removed};
    struct kvr_cache *cache;
    struct kvr_error error = {0};

    assert_int_equal(
        kvr_parameter_defaults(policy->parameters, policy->parameter_count, values, &error),
        KVR_OK);
    if (policy->in_time)
        assert_int_equal(kvr_parameter_read(policy->parameters, policy->parameter_count, "ttl=700",
                             7, values, &error),
            KVR_OK);
    size_t accesses = (size_t)trace->starts[REQUESTS];
    assert_int_equal(kvr_future_compute(trace->ids, accesses, future, &error), KVR_OK);
    struct kvr_block_options options = {
        .capacity_blocks = (uint64_t)capacity,
        .block_tokens = 16,
        .policy = policy,
        .policy_values = values,
        .plain = plain,
        .sink = &sink,
        .future = policy->needs_future ? future : NULL,
        .future_length = policy->needs_future ? accesses : 0,
    };
    if (kvr_block_cache_create(&options, &cache, &error) != KVR_OK)
        fail_msg("%s", error.text);
    return cache;
}

/* The tree's own laws, whatever the policy. */
static void check_tree(const struct kvr_block_cache *cache)
{
    const struct kvr_store *store = &cache->store;
    uint32_t resident = 0;

    for (uint32_t at = 0; at < store->table.group_count; at++)
        for (uint32_t i = 0; i < store->table.groups[at].count; i++) {
            const struct kvr_block *block = &store->blocks[store->table.groups[at].slots[i]];
            resident++;
            if (block->parent)
                assert_int_not_equal(store->blocks[block->parent].busy, 0);
            if (!cache->whole_path && !cache->options.plain)
                assert_int_equal(block->busy == 0, kvr_block_is_queued(block));
            assert_false(block->flags & KVR_BLOCK_HELD);
        }
    assert_int_equal(resident, store->resident);
    assert_true(resident <= store->capacity);
}

static void compare(const struct kvr_policy *policy, bool plain, uint64_t seed, bool tenant)
{
    static struct model model;
    static struct trace trace;
    static uint32_t future[REQUESTS * LENGTH_MOST];
    static uint64_t removed[MODEL_LOG];
    struct log log = {removed, 0};
    struct kvr_error error = {0};
    struct kvr_random random = {seed * 977};
    int capacity = 1 + (int)kvr_random_below(&random, 40);

    make_trace(&trace, seed);
    model_init(&model, policy->name, plain, capacity);
    model.all = trace.ids;
    model.all_count = (uint64_t)trace.starts[REQUESTS];
    model.ttl_ms = 700;
    struct kvr_cache *cache = make_cache(policy, plain, capacity, &trace, future, &log);
    uint16_t number;
    if (tenant)
        assert_int_equal(kvr_block_cache_add_tenant(cache, 0.5, &number, &error), KVR_OK);
    for (int i = 0; i < REQUESTS; i++) {
        const uint64_t *ids = trace.ids + trace.starts[i];
        int count = trace.starts[i + 1] - trace.starts[i];
        uint64_t hits;
        model.now_ms = ((struct kvr_block_cache *)cache)->store.now_ms = trace.times[i];
        int wanted = model_serve(&model, ids, count, (uint64_t)trace.starts[i]);
        assert_int_equal(kvr_block_cache_serve(
                             cache, ids, (size_t)count, 16 * (uint64_t)count, &hits, NULL, &error),
            KVR_OK);
        bool same = (int)hits == wanted && log.count == model.evicted_count &&
                    !memcmp(log.ids, model.evicted, (size_t)log.count * sizeof *log.ids);
        if (!same)
            fail_msg("%s %s, seed %d, capacity %d: request %d hits %d, not %d; %d evicted, not %d",
                policy->name, plain ? "plain" : "tree", (int)seed, capacity, i, (int)hits, wanted,
                log.count, model.evicted_count);
        check_tree((const struct kvr_block_cache *)cache);
    }
    kvr_cache_destroy(cache);
}

static void plain_equals_the_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < kvr_policy_count; i++)
        for (uint64_t seed = 1; seed <= RUNS; seed++)
            compare(kvr_policies[i], true, seed, false);
}

/* With a tenant lru lists leaves only: it must be the same order. */
static void lru_over_leaves_equals_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3 * RUNS; seed++)
        compare(kvr_policy_find("lru", 3), false, seed, true);
}

static void tree_equals_the_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < kvr_policy_count; i++)
        for (uint64_t seed = 1; seed <= RUNS; seed++)
            compare(kvr_policies[i], false, seed, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_equals_the_model),
        cmocka_unit_test(tree_equals_the_model),
        cmocka_unit_test(lru_over_leaves_equals_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
