/* Lives, pins, pools, quotas, admission and tiers of the block cache on random lives: what the
 * events say is what is resident, nothing live or pinned goes, the counts add up. */
#include "cache/block_cache_internal.h"
#include "cache/tiers.h"
#include "tests/unit/unit.h"

#include "base/random.h"

#include <stdio.h>
#include <string.h>

enum { LENGTH_MOST = 12, LIVES = 6, STEPS = 1500, BLOCK = 16 };

/* What the events say is there, by medium. */
struct mirror {
    struct kvr_u64_map media[KVR_MEDIUM_COUNT];
    bool plain; /* a block may come without its parent */
};

static void mirror_removed(void *context, enum kvr_medium medium, const uint64_t *ids, size_t count)
{
    struct mirror *mirror = context;

    for (size_t i = 0; i < count; i++)
        assert_true(kvr_u64_map_remove(&mirror->media[medium], ids[i], NULL));
}

static void mirror_stored(void *context, enum kvr_medium medium, const uint64_t *parent,
    const uint64_t *ids, size_t count)
{
    struct mirror *mirror = context;
    bool is_new;

    if (parent && medium == KVR_MEDIUM_GPU && !mirror->plain)
        assert_non_null(kvr_u64_map_find(&mirror->media[medium], *parent));
    for (size_t i = 0; i < count; i++) {
        assert_non_null(kvr_u64_map_insert(&mirror->media[medium], ids[i], &is_new));
        assert_true(is_new);
    }
}

static void mirror_cleared(void *context, enum kvr_medium medium)
{
    kvr_u64_map_clear(&((struct mirror *)context)->media[medium]);
}

static void mirror_release(struct mirror *mirror)
{
    for (int i = 0; i < KVR_MEDIUM_COUNT; i++)
        kvr_u64_map_release(&mirror->media[i]);
}

struct seen {
    struct mirror *mirror;
    enum kvr_medium medium;
    uint64_t count;
};

static void check_resident(void *context, uint64_t id)
{
    struct seen *seen = context;

    assert_non_null(kvr_u64_map_find(&seen->mirror->media[seen->medium], id));
    seen->count++;
}

static void check(struct kvr_cache *cache, struct mirror *mirror)
{
    struct kvr_cache_stats stats;

    kvr_cache_stats(cache, &stats);
    for (int i = 0; i < KVR_MEDIUM_COUNT; i++) {
        struct seen seen = {mirror, (enum kvr_medium)i, 0};
        kvr_cache_resident(cache, seen.medium, check_resident, &seen);
        assert_int_equal(seen.count, mirror->media[i].length);
        assert_int_equal(seen.count, stats.resident_blocks[i]);
        assert_int_equal(stats.inserted_blocks[i],
            stats.evicted_blocks[i] + stats.cleared_blocks[i] + stats.resident_blocks[i]);
        assert_true(stats.resident_blocks[i] <= stats.capacity_blocks[i]);
    }
}

/* A chained path: the id of a block is a function of all branches up to it. */
static size_t make_path(struct kvr_random *random, uint64_t *ids)
{
    size_t length = 1 + kvr_random_below(random, LENGTH_MOST);
    uint64_t id = 7;

    for (size_t i = 0; i < length; i++) {
        id = kvr_mix64(id * 3 + (kvr_random_below(random, 3) ? 0 : kvr_random_below(random, 3)));
        ids[i] = id >> 12;
    }
    return length;
}

struct life {
    bool live;
    uint32_t handle;
    uint64_t ids[LENGTH_MOST];
    size_t resident; /* blocks of it that were there after admission */
};

static size_t resident_run(const struct mirror *mirror, const uint64_t *ids, size_t count)
{
    size_t run = 0;

    while (run < count && kvr_u64_map_find(&mirror->media[KVR_MEDIUM_GPU], ids[run]))
        run++;
    return run;
}

static void admit(struct kvr_cache *cache, struct kvr_cache *blocks, struct life *life,
    struct kvr_random *random, struct mirror *mirror, double time_ms)
{
    struct kvr_admission admission;
    struct kvr_error error = {0};
    uint64_t outputs[4];
    size_t count = make_path(random, life->ids);
    uint64_t tokens = count * BLOCK - kvr_random_below(random, BLOCK);
    struct kvr_block_tags tags = {1 + kvr_random_below(random, 50),
        kvr_random_below(random, 3) ? 0 : 1 + kvr_random_below(random, 5),
        (uint16_t)(kvr_random_below(random, 2) *
                   (((struct kvr_block_cache *)blocks)->ranking_count - 1))};

    for (size_t i = 0; i < 4; i++)
        outputs[i] = kvr_mix64(life->ids[tokens / BLOCK ? tokens / BLOCK - 1 : 0] + 100 + i) >> 12;
    struct kvr_cache_request request = {
        life->ids, count, outputs, 4, tokens, kvr_random_below(random, 60), BLOCK, 0, time_ms};
    size_t run = resident_run(mirror, life->ids, count);
    kvr_block_cache_tag(blocks, &tags);
    assert_int_equal(kvr_cache_admit(cache, &request, &admission, &error), KVR_OK);
    assert_true(admission.admitted);
    if (!((struct kvr_block_cache *)blocks)->options.plain &&
        !((struct kvr_block_cache *)blocks)->options.policy->expired)
        if (admission.hit_blocks[KVR_MEDIUM_GPU] != run)
            fail_msg("%s %s: %d hits, not %d",
                ((struct kvr_block_cache *)blocks)->options.policy->name,
                ((struct kvr_block_cache *)blocks)->options.admission->name,
                (int)admission.hit_blocks[KVR_MEDIUM_GPU], (int)run);
    life->live = true;
    life->handle = admission.live;
    life->resident =
        resident_run(mirror, life->ids, tokens / BLOCK < count ? tokens / BLOCK : count);
}

static void live_paths_are_there(const struct life *lives, const struct mirror *mirror)
{
    for (int i = 0; i < LIVES; i++)
        if (lives[i].live)
            assert_true(resident_run(mirror, lives[i].ids, lives[i].resident) == lives[i].resident);
}

/* Admits, generates, finishes, pins, unpins and clears at random. */
static void live_through(
    struct kvr_cache *cache, struct kvr_cache *blocks, struct mirror *mirror, uint64_t seed)
{
    struct kvr_random random = {seed};
    struct life lives[LIVES] = {0};
    struct kvr_error error = {0};
    uint64_t pinned[LENGTH_MOST], made;
    size_t pin_count = 0;
    bool plain = ((struct kvr_block_cache *)blocks)->options.plain;

    for (int step = 0; step < STEPS; step++) {
        struct life *life = &lives[kvr_random_below(&random, LIVES)];
        uint32_t what = kvr_random_below(&random, 100);
        if (!life->live) {
            admit(cache, blocks, life, &random, mirror, step * 10.0);
        } else if (what < 50) {
            assert_int_equal(
                kvr_cache_output(cache, life->handle, kvr_random_below(&random, 20), &made, &error),
                KVR_OK);
        } else {
            assert_int_equal(kvr_cache_finish(cache, life->handle, &error), KVR_OK);
            life->live = false;
        }
        if (what == 7) {
            struct kvr_pin pin = {step * 10.0, kvr_random_below(&random, 2) ? 300 : 0, false};
            size_t count, got;
            /* now and then only the first ones, which leaves the others pinned behind them */
            if (kvr_random_below(&random, 4) == 0 && pin_count)
                pin_count--;
            kvr_cache_unpin(cache, pinned, pin_count, &error);
            count = make_path(&random, pinned);
            assert_int_equal(kvr_cache_pin(cache, pinned, count, &pin, &got, &error), KVR_OK);
            pin_count = got;
        }
        if (what == 8 && kvr_random_below(&random, 10) == 0) {
            kvr_cache_clear(cache);
            mirror_cleared(mirror, KVR_MEDIUM_COUNT - 1);
        }
        if (!plain)
            live_paths_are_there(lives, mirror);
        if (step % 50 == 0)
            check(cache, mirror);
    }
    for (int i = 0; i < LIVES; i++)
        if (lives[i].live)
            assert_int_equal(kvr_cache_finish(cache, lives[i].handle, &error), KVR_OK);
    check(cache, mirror);
    kvr_cache_clear(cache);
}

static void random_lives_keep_the_laws(void **state)
{
    (void)state;
    for (size_t policy = 0; policy < kvr_policy_count; policy++)
        for (uint64_t seed = 1; seed <= 8; seed++) {
            if (kvr_policies[policy]->needs_future)
                continue;
            struct mirror mirror = {.plain = seed % 4 == 0};
            struct kvr_cache_sink sink = {&mirror, mirror_removed, mirror_stored, mirror_cleared};
            struct kvr_random random = {seed + policy * 100};
            struct kvr_block_options options = {
                .capacity_blocks = 5 + kvr_random_below(&random, 60),
                .block_tokens = BLOCK,
                .policy = kvr_policies[policy],
                .admission = kvr_admission_rules[kvr_random_below(
                    &random, (uint32_t)kvr_admission_rule_count)],
                .plain = seed % 4 == 0,
                .outputs = seed % 2,
                .pool_shared = seed % 3 == 0 ? 0.3 : 0,
                .sink = &sink,
            };
            struct kvr_cache *cache;
            struct kvr_error error = {0};
            uint16_t tenant;
            assert_int_equal(kvr_block_cache_create(&options, &cache, &error), KVR_OK);
            if (seed % 5 == 0)
                assert_int_equal(kvr_block_cache_add_tenant(cache, 0.4, &tenant, &error), KVR_OK);
            live_through(cache, cache, &mirror, seed * 31 + policy);
            kvr_cache_destroy(cache);
            mirror_release(&mirror);
        }
}

static void tiers_keep_the_laws(void **state)
{
    static const char *const stacks[][4] = {
        {"gpu=10b", "cpu=20b", "disk=40b", "remote=80b"},
        {"gpu=10b", "cpu=20b(write=through)", "disk=40b(write=second,admission=second)", NULL},
        {"gpu=12b(policy=s3fifo)", "cpu=15b(policy=arc,exclusive)", "remote=60b(policy=sieve)"},
        {"gpu=12b(admission=prefix-aware)", "cpu=15b(write=second,promote=second)", "disk=60b"},
        {"gpu=8b(policy=value)", "disk=50b(promote=never,policy=gdsf,admission=tinylfu)"},
        {"cpu=9b", "disk=30b(policy=ttl(ttl=500),write=through,admission=min-length(tokens=64))"},
        {"gpu=9b", "cpu=30b(bandwidth=20kB/s,latency=1ms,compression=2)", "disk=30b(policy=slru)"},
    };

    (void)state;
    for (size_t stack = 0; stack < sizeof stacks / sizeof *stacks; stack++)
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct kvr_tier tiers[4];
            size_t count = 0;
            struct mirror mirror = {0};
            struct kvr_cache_sink sink = {&mirror, mirror_removed, mirror_stored, mirror_cleared};
            struct kvr_error error = {0};
            struct kvr_cache *cache;
            for (; count < 4 && stacks[stack][count]; count++)
                if (kvr_tier_read(stacks[stack][count], &tiers[count], &error) != KVR_OK)
                    fail_msg("%s", error.text);
            struct kvr_tiers_options options = {.tiers = tiers,
                .tier_count = count,
                .block_tokens = BLOCK,
                .kv_bytes_per_token = 100,
                .prefill = {0.5, 0.001},
                .outputs = seed % 2,
                .seed = seed,
                .sink = &sink};
            if (kvr_tiers_create(&options, &cache, &error) != KVR_OK)
                fail_msg("%s", error.text);
            if (tiers[0].medium == KVR_MEDIUM_GPU)
                live_through(cache, kvr_tiers_first(cache), &mirror, seed * 131 + stack);
            kvr_cache_destroy(cache);
            mirror_release(&mirror);
        }
}

/* ── admission ── */

static struct kvr_gate *gate(const char *name, const char *parameters)
{
    const struct kvr_admission_rule *rule = kvr_admission_find(name, strlen(name));
    struct kvr_parameter_value values[KVR_ADMISSION_PARAMETERS_MOST];
    struct kvr_gate *made;
    struct kvr_error error = {0};

    assert_non_null(rule);
    assert_int_equal(
        kvr_parameter_defaults(rule->parameters, rule->parameter_count, values, &error), KVR_OK);
    assert_int_equal(kvr_parameter_read(rule->parameters, rule->parameter_count, parameters,
                         strlen(parameters), values, &error),
        KVR_OK);
    assert_int_equal(kvr_gate_create(rule, 10, values, 1, &made, &error), KVR_OK);
    return made;
}

/* How many leading blocks of ids come in for a request of that identity. */
static size_t let_in(
    struct kvr_gate *gate, const uint64_t *ids, size_t count, size_t hit, uint64_t identity)
{
    struct kvr_admission_path path = {ids, count, hit, count * BLOCK, BLOCK, identity};
    struct kvr_error error = {0};
    size_t in = hit;

    if (gate->rule->look)
        assert_int_equal(gate->rule->look(gate, &path, &error), KVR_OK);
    while (in < count && gate->rule->admits(gate, &path, in))
        in++;
    return in;
}

static void a_second_sighting_is_another_request(void **state)
{
    static const uint64_t path[] = {1, 2, 3, 4}, other[] = {1, 2, 9}, twice[] = {7, 7};

    (void)state;
    struct kvr_gate *second = gate("second", "");
    assert_int_equal(let_in(second, path, 4, 0, 1), 0);
    assert_int_equal(let_in(second, path, 4, 0, 1), 0);  /* asked again */
    assert_int_equal(let_in(second, other, 3, 0, 2), 2); /* the common part is known */
    assert_int_equal(let_in(second, path, 4, 2, 1), 2);  /* the first one again */
    assert_int_equal(let_in(second, path, 4, 2, 3), 4);  /* the whole path was recorded */
    assert_int_equal(let_in(second, twice, 2, 0, 5), 0); /* twice in one request */
    assert_int_equal(let_in(second, twice, 2, 0, 6), 2);
    kvr_gate_destroy(second);
}

static void sightings_are_forgotten_after_two_windows(void **state)
{
    static const uint64_t path[] = {5};

    (void)state;
    struct kvr_gate *second = gate("second", "window=0.01");
    assert_int_equal(let_in(second, path, 1, 0, 1), 0);
    for (uint64_t i = 0; i < 3 * 65536; i++) {
        uint64_t id = 1000 + i;
        assert_int_equal(let_in(second, &id, 1, 0, 100), 0);
    }
    assert_int_equal(let_in(second, path, 1, 0, 2), 0);
    assert_int_equal(let_in(second, path, 1, 0, 3), 1);
    kvr_gate_destroy(second);
}

static void length_and_prefix_rules(void **state)
{
    static const uint64_t path[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

    (void)state;
    struct kvr_gate *least = gate("min-length", "tokens=64"),
                    *most = gate("max-length", "tokens=64");
    assert_int_equal(let_in(least, path, 3, 0, 1), 0);
    assert_int_equal(let_in(least, path, 4, 0, 1), 4);
    assert_int_equal(let_in(most, path, 4, 0, 1), 4);
    assert_int_equal(let_in(most, path, 5, 0, 1), 0);
    struct kvr_gate *prefix = gate("prefix-aware", "head=2,growth=1.5");
    assert_int_equal(let_in(prefix, path, 10, 0, 1), 2);
    assert_int_equal(let_in(prefix, path, 10, 2, 1), 5);
    assert_int_equal(let_in(prefix, path, 10, 5, 1), 10);
    kvr_gate_destroy(least);
    kvr_gate_destroy(most);
    kvr_gate_destroy(prefix);
}

static void tinylfu_prefers_the_more_frequent(void **state)
{
    static const uint64_t often[] = {1}, seldom[] = {2};
    struct kvr_error error = {0};

    (void)state;
    struct kvr_gate *tinylfu = gate("tinylfu", "window=100");
    struct kvr_admission_path path = {often, 1, 0, BLOCK, BLOCK, 1};
    for (int i = 0; i < 5; i++)
        assert_int_equal(tinylfu->rule->look(tinylfu, &path, &error), KVR_OK);
    path.ids = seldom;
    assert_int_equal(tinylfu->rule->look(tinylfu, &path, &error), KVR_OK);
    assert_true(tinylfu->rule->prefers(tinylfu, 1, 2));
    assert_false(tinylfu->rule->prefers(tinylfu, 2, 1));
    assert_false(tinylfu->rule->prefers(tinylfu, 2, 2));
    for (int i = 0; i < 4000; i++) { /* four halvings and more */
        uint64_t id = 100 + (uint64_t)i;
        path.ids = &id;
        assert_int_equal(tinylfu->rule->look(tinylfu, &path, &error), KVR_OK);
    }
    assert_false(tinylfu->rule->prefers(tinylfu, 1, 2));
    kvr_gate_destroy(tinylfu);
}

static void the_engine_takes_every_online_policy_and_rule(void **state)
{
    const struct kvr_parameter *parameters = kvr_engine_block.parameters;
    char words[400] = "", rules[400] = "";

    (void)state;
    for (size_t i = 0; i < kvr_policy_count; i++)
        if (!kvr_policies[i]->needs_future)
            snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", i ? " " : "",
                kvr_policies[i]->name);
    for (size_t i = 0; i < kvr_admission_rule_count; i++)
        snprintf(rules + strlen(rules), sizeof rules - strlen(rules), "%s%s", i ? " " : "",
            kvr_admission_rules[i]->name);
    assert_string_equal(parameters[0].choices, words);
    assert_string_equal(parameters[1].choices, rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lives_keep_the_laws),
        cmocka_unit_test(tiers_keep_the_laws),
        cmocka_unit_test(a_second_sighting_is_another_request),
        cmocka_unit_test(sightings_are_forgotten_after_two_windows),
        cmocka_unit_test(length_and_prefix_rules),
        cmocka_unit_test(tinylfu_prefers_the_more_frequent),
        cmocka_unit_test(the_engine_takes_every_online_policy_and_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
