/*
 * The engines against runs of the real vLLM and SGLang cache managers: every hit, every evicted id
 * in its order, the pool's use, truncation, rejection, and the final free queue. Short slices of
 * the runs are in tests/data/engines; the full ones in $SHARED/engines, skipped where missing. The
 * runs with a host tier (tiers_*.txt) are of the real tree too, its transfers taking no time.
 */
#include "unit.h"

#include "cache/replay.h"
#include "golden.h"

#include <dirent.h>

struct told {
    struct id_list evicted;
};

/* A run of SGLang's tree with a host tier: a line of capacity, page size and parameters; then, a
 * request, a line of its numbers and a line of what was hit and happened, in turn. */
static void on_tier_removed(
    void *context, enum kvr_medium medium, const uint64_t *ids, size_t count)
{
    id_push(context, 1);
    id_push(context, medium);
    id_push(context, count);
    for (size_t i = 0; i < count; i++)
        id_push(context, ids[i]);
}

static void on_tier_stored(void *context, enum kvr_medium medium, const uint64_t *parent,
    const uint64_t *ids, size_t count)
{
    (void)parent;
    on_tier_removed(context, medium, ids, count);
    struct id_list *list = context;
    list->items[list->count - count - 3] = 2;
}

static void read_numbers(FILE *file, struct id_list *list)
{
    static char line[1 << 16];
    list->count = 0;
    if (!fgets(line, sizeof line, file))
        return;
    char *end;
    for (char *at = line;; at = end) {
        long long number = strtoll(at, &end, 10);
        if (end == at)
            break;
        id_push(list, (uint64_t)number);
    }
}

static void on_removed(void *context, enum kvr_medium medium, const uint64_t *ids, size_t count)
{
    struct told *told = context;
    assert_int_equal(medium, KVR_MEDIUM_GPU);
    for (size_t i = 0; i < count; i++)
        id_push(&told->evicted, ids[i]);
}

static void on_free(void *context, bool has_id, uint64_t id)
{
    id_push(context, has_id ? id : UINT64_MAX);
}

static void same_list(
    const struct id_list *got, const struct id_list *wanted, const char *what, size_t line)
{
    for (size_t i = 0; i < got->count && i < wanted->count; i++)
        if (got->items[i] != wanted->items[i])
            fail_msg("request q%zu: %s %zu is %lld, the real engine has %lld", line, what, i,
                (long long)got->items[i], (long long)wanted->items[i]);
    if (got->count != wanted->count)
        fail_msg("request q%zu: %zu of %s, the real engine has %zu", line, got->count, what,
            wanted->count);
}

static void same_number(uint64_t got, uint64_t wanted, const char *what, size_t line)
{
    if (got != wanted)
        fail_msg("request q%zu: %s is %llu, the real engine has %llu", line, what,
            (unsigned long long)got, (unsigned long long)wanted);
}

/* Replays the trace as the run did and compares everything. */
static void check_run(const struct golden_trace *trace, const struct golden_run *run, bool vllm)
{
    struct kvr_error error = {0};
    struct told told = {0};
    struct kvr_cache_sink sink = {.context = &told, .removed = on_removed};
    const struct kvr_engine *engine = kvr_engine_find(vllm ? "vllm" : "sglang");
    assert_non_null(engine);
    struct kvr_parameter_value values[16];
    assert_true(engine->parameter_count <= 16);
    assert_int_equal(
        kvr_parameter_defaults(engine->parameters, engine->parameter_count, values, &error),
        KVR_OK);
    if (!vllm) {
        char text[64];
        int length = snprintf(text, sizeof text, "strategy=%s", run->policy);
        if (kvr_parameter_read(engine->parameters, engine->parameter_count, text, (size_t)length,
                values, &error) != KVR_OK)
            fail_msg("%s", error.text);
    }
    struct kvr_engine_options options = {
        .capacity_blocks = run->blocks - vllm, /* the null block is not ours to use */
        .block_tokens = (uint32_t)run->block_tokens,
        .values = values,
        .sink = &sink,
    };
    struct kvr_cache *cache;
    struct kvr_replay replay;
    assert_int_equal(kvr_cache_create(engine, &options, &cache, &error), KVR_OK);
    assert_int_equal(
        kvr_replay_init(&replay, cache, (uint32_t)run->overlap, false, &error), KVR_OK);
    assert_true(run->count <= trace->count && run->count > 0);
    uint64_t hits = 0, prompt_blocks = 0;
    for (size_t i = 0; i < run->count; i++) {
        const struct golden_request *asked = &trace->requests[i];
        const struct golden_result *wanted = &run->results[i];
        struct kvr_cache_request request = {
            .ids = asked->ids.items,
            .id_count = asked->ids.count,
            .output_ids = asked->next_ids.items,
            .output_id_count = asked->next_ids.count,
            .input_tokens = asked->ids.count * run->block_tokens + asked->tail_tokens,
            .output_tokens = asked->output_tokens,
            .block_tokens = (uint32_t)run->block_tokens,
            .priority = i % 10 == 0,
        };
        struct kvr_replay_result result;
        told.evicted.count = 0;
        if (kvr_replay_request(&replay, &request, &result, &error) != KVR_OK)
            fail_msg("request q%zu: %s", i, error.text);
        same_number(result.rejected, wanted->rejected, "rejected", i);
        same_number(result.truncated, wanted->truncated, "truncated", i);
        same_number(result.hit_blocks[0], wanted->hit_blocks, "hit_blocks", i);
        same_list(&told.evicted, &wanted->evicted, "evicted ids", i);
        same_number(result.evicted_blocks, wanted->evicted.count, "evicted_blocks", i);
        if (wanted->has_usage)
            same_number(result.usage_blocks, wanted->usage_blocks, "usage_blocks", i);
        hits += result.hit_blocks[0];
        prompt_blocks += asked->ids.count;
    }
    same_number(hits, run->hit_blocks, "the sum of hit_blocks", run->count);
    same_number(prompt_blocks, run->total_prompt_blocks, "total_prompt_blocks", run->count);
    assert_int_equal(kvr_replay_finish_all(&replay, &error), KVR_OK);
    struct id_list queue = {0};
    if (vllm && run->free_queue.count) {
        assert_true(kvr_cache_walk_free(cache, on_free, &queue));
        same_list(&queue, &run->free_queue, "the final free queue", run->count);
    }
    struct kvr_cache_stats stats;
    kvr_cache_stats(cache, &stats);
    same_number(stats.inserted_blocks[0], stats.evicted_blocks[0] + stats.resident_blocks[0],
        "inserted = evicted + resident", run->count);
    id_free(&queue);
    id_free(&told.evicted);
    kvr_replay_release(&replay);
    kvr_cache_destroy(cache);
}

/* The trace that a run's file name says it was made from. */
static const char *trace_of(const char *name)
{
    if (!strncmp(name, "adversarial_", 12))
        return "trace_adversarial.json";
    return strncmp(name, "dup_", 4) ? "trace.json" : "trace_dup.json";
}

/* Checks every run in a folder; how many there were of the engine. */
static size_t check_folder(const char *folder, const char *engine)
{
    size_t runs = 0;
    DIR *directory = opendir(folder);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        char path[600];
        struct golden_trace trace;
        struct golden_run run;
        if (!strstr(entry->d_name, engine) || !strstr(entry->d_name, ".json"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, trace_of(entry->d_name));
        if (!golden_trace_read(&trace, path))
            fail_msg("no trace %s", path);
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_true(golden_run_read(&run, path));
        print_message("# %s\n", entry->d_name);
        check_run(&trace, &run, !strcmp(engine, "vllm"));
        golden_run_release(&run);
        golden_trace_release(&trace);
        runs++;
    }
    if (directory)
        closedir(directory);
    return runs;
}

static void check_shared(const char *engine)
{
    char folder[400];
    const char *shared = getenv("SHARED");
    snprintf(folder, sizeof folder, "%s/engines", shared ? shared : "../shared");
    if (!check_folder(folder, engine))
        skip();
}

static void check_tiers(const char *path)
{
    FILE *file = fopen(path, "r");
    char parameters[200];
    unsigned long long pages;
    unsigned page_tokens;
    struct kvr_parameter_value values[KVR_ENGINE_PARAMETERS_MOST];
    const struct kvr_engine *engine;
    struct kvr_error error = {0};
    struct id_list asked = {0}, wanted = {0}, got = {0};
    struct kvr_cache_sink sink = {&got, on_tier_removed, on_tier_stored, NULL};
    struct kvr_cache *cache;
    struct kvr_replay replay;
    char text[240];
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu %u %199s\n", &pages, &page_tokens, parameters), 3);
    snprintf(text, sizeof text, "sglang(%s)", parameters);
    if (kvr_engine_read(text, &engine, values, &error) != KVR_OK)
        fail_msg("%s", error.text);
    struct kvr_engine_options options = {
        .capacity_blocks = pages, .block_tokens = page_tokens, .values = values, .sink = &sink};
    assert_int_equal(kvr_cache_create(engine, &options, &cache, &error), KVR_OK);
    assert_int_equal(kvr_replay_init(&replay, cache, 0, false, &error), KVR_OK);
    size_t requests = 0;
    for (;; requests++) {
        read_numbers(file, &asked);
        read_numbers(file, &wanted);
        if (!wanted.count)
            break;
        size_t ids = (size_t)asked.items[3];
        struct kvr_cache_request request = {.ids = asked.items + 4,
            .id_count = ids,
            .output_ids = asked.items + 5 + ids,
            .output_id_count = (size_t)asked.items[4 + ids],
            .input_tokens = asked.items[0],
            .output_tokens = asked.items[1],
            .block_tokens = page_tokens,
            .priority = (int32_t)asked.items[2]};
        struct kvr_replay_result result;
        got.count = 0;
        id_push(&got, 0);
        id_push(&got, 0);
        assert_int_equal(kvr_replay_request(&replay, &request, &result, &error), KVR_OK);
        got.items[0] = result.rejected ? UINT64_MAX : result.hit_blocks[KVR_MEDIUM_GPU];
        got.items[1] = result.rejected ? UINT64_MAX : result.hit_blocks[KVR_MEDIUM_CPU];
        same_list(&got, &wanted, "numbers of hits and events", requests);
    }
    assert_int_equal(requests, 120);
    fclose(file);
    id_free(&asked);
    id_free(&wanted);
    id_free(&got);
    kvr_replay_release(&replay);
    kvr_cache_destroy(cache);
}

static void sglang_tiers(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        char path[64];
        snprintf(path, sizeof path, "tests/data/engines/tiers_%d.txt", i);
        check_tiers(path);
    }
}

static void vllm_slices(void **state)
{
    (void)state;
    assert_true(check_folder("tests/data/engines", "vllm") >= 4);
}

static void vllm_shared(void **state)
{
    (void)state;
    check_shared("vllm");
}

static void sglang_slices(void **state)
{
    (void)state;
    assert_true(check_folder("tests/data/engines", "sglang") >= 4);
}

static void sglang_shared(void **state)
{
    (void)state;
    check_shared("sglang");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm_slices),
        cmocka_unit_test(vllm_shared),
        cmocka_unit_test(sglang_slices),
        cmocka_unit_test(sglang_shared),
        cmocka_unit_test(sglang_tiers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
