/* Regrouping of ids, and the window of live requests, on cases worked out by hand. */
#include "unit.h"

#include "cache/regroup.h"
#include "cache/replay.h"

#include <string.h>

static void check_ids(const uint64_t *got, size_t got_count, const uint64_t *wanted, size_t count)
{
    assert_int_equal(got_count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(got[i], wanted[i]);
}

static void coarser_blocks_take_the_last_id(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1, 2, 3, 4, 5, 6, 7, 99}, output[] = {8, 9, 10};
    struct kvr_regrouped regrouped = {0};
    struct kvr_cache_request request = {.ids = ids,
        .id_count = 8,
        .output_ids = output,
        .output_id_count = 3,
        .input_tokens = 7 * 16 + 5, /* the eighth id is the partial block's */
        .block_tokens = 16};
    assert_int_equal(kvr_regroup(&regrouped, &request, 64, NULL), KVR_OK);
    check_ids(regrouped.request.ids, regrouped.request.id_count, (uint64_t[]){4}, 1);
    check_ids(regrouped.request.output_ids, regrouped.request.output_id_count, (uint64_t[]){8}, 1);
    assert_int_equal(regrouped.request.block_tokens, 64);
    assert_int_equal(regrouped.request.input_tokens, 117);
    kvr_regrouped_release(&regrouped);
}

static void finer_blocks_match_where_outer_ones_do(void **state)
{
    (void)state;
    static const uint64_t ids[] = {11, 12, 13};
    struct kvr_regrouped a = {0}, b = {0};
    struct kvr_cache_request request = {
        .ids = ids, .id_count = 3, .input_tokens = 2 * 64 + 40, .block_tokens = 64};
    assert_int_equal(kvr_regroup(&a, &request, 16, NULL), KVR_OK);
    /* two whole blocks of four, and the two full inner blocks of the partial one */
    assert_int_equal(a.request.id_count, 10);
    assert_int_equal(a.request.output_id_count, 0);
    assert_int_equal(a.request.ids[3], 11);
    assert_int_equal(a.request.ids[7], 12);
    for (size_t i = 0; i < 10; i++) {
        assert_true(a.request.ids[i] < (uint64_t)1 << 53);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(a.request.ids[i], a.request.ids[k]);
    }
    /* what stands above the 53 bits of the wire is kept */
    static const uint64_t spaced[] = {(uint64_t)5 << 53 | 11};
    request = (struct kvr_cache_request){
        .ids = spaced, .id_count = 1, .input_tokens = 64, .block_tokens = 64};
    assert_int_equal(kvr_regroup(&b, &request, 16, NULL), KVR_OK);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(b.request.ids[i] >> 53, 5);
        assert_int_not_equal(b.request.ids[i] << 11 >> 11, i < 3 ? a.request.ids[i] : 12);
    }
    /* the next turn: the block that was partial is full now, under the output's first id */
    static const uint64_t turn[] = {11, 12, 21, 22}, output[] = {21, 22};
    request = (struct kvr_cache_request){.ids = ids,
        .id_count = 3,
        .output_ids = output,
        .output_id_count = 2,
        .input_tokens = 2 * 64 + 40,
        .block_tokens = 64};
    assert_int_equal(kvr_regroup(&a, &request, 16, NULL), KVR_OK);
    assert_int_equal(a.request.id_count, 10);
    assert_int_equal(a.request.output_id_count, 6);
    request = (struct kvr_cache_request){
        .ids = turn, .id_count = 4, .input_tokens = 4 * 64, .block_tokens = 64};
    assert_int_equal(kvr_regroup(&b, &request, 16, NULL), KVR_OK);
    assert_int_equal(b.request.id_count, 16);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(b.ids[i], a.ids[i]);
    kvr_regrouped_release(&a);
    kvr_regrouped_release(&b);
}

static void sizes_that_do_not_divide_are_refused(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1};
    struct kvr_engine_options options = {.capacity_blocks = 8, .block_tokens = 16};
    struct kvr_cache_request request = {
        .ids = ids, .id_count = 1, .input_tokens = 24, .block_tokens = 24};
    struct kvr_cache *cache;
    struct kvr_admission answer;
    struct kvr_error error = {0};
    assert_int_equal(kvr_cache_create(kvr_engine_find("vllm"), &options, &cache, &error), KVR_OK);
    assert_int_equal(kvr_cache_admit(cache, &request, &answer, &error), KVR_BAD_INPUT);
    assert_string_equal(error.text, "ids of 24 tokens cannot be regrouped into blocks of 16: "
                                    "neither is a multiple of the other");
    /* and those that do are cached in the cache's own blocks */
    request.block_tokens = 32;
    request.input_tokens = 32;
    assert_int_equal(kvr_cache_admit(cache, &request, &answer, &error), KVR_OK);
    assert_int_equal(kvr_cache_finish(cache, answer.live, &error), KVR_OK);
    assert_int_equal(kvr_cache_admit(cache, &request, &answer, &error), KVR_OK);
    assert_int_equal(answer.hit_blocks[0], 1); /* of two; the last token is computed again */
    kvr_cache_destroy(cache);
}

static void the_window_ends_the_oldest(void **state)
{
    (void)state;
    static const uint64_t ids[][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
    struct kvr_engine_options options = {.capacity_blocks = 5, .block_tokens = 16};
    struct kvr_cache *cache;
    struct kvr_replay replay;
    struct kvr_replay_result result;
    struct kvr_cache_stats stats;
    assert_int_equal(kvr_cache_create(kvr_engine_find("vllm"), &options, &cache, NULL), KVR_OK);
    assert_int_equal(kvr_replay_init(&replay, cache, 2, false, NULL), KVR_OK);
    for (int i = 0; i < 4; i++) {
        struct kvr_cache_request request = {.ids = ids[i],
            .id_count = 2,
            .input_tokens = 32,
            .output_tokens = i == 3 ? 100 : 0,
            .block_tokens = 16};
        assert_int_equal(kvr_replay_request(&replay, &request, &result, NULL), KVR_OK);
        assert_false(result.rejected);
        kvr_cache_stats(cache, &stats);
        assert_int_equal(stats.live, i == 0 ? 1 : i < 3 ? 2 : 1);
    }
    /* the last one needs nine blocks, has the pool to itself in the end, and is cut at five */
    assert_true(result.truncated);
    assert_int_equal(result.output_tokens, 3 * 16);
    assert_int_equal(result.usage_blocks, 5);
    assert_int_equal(result.evicted_blocks, 5); /* 1, 4, 3, 6, 5; 2 went before */
    assert_int_equal(kvr_replay_finish_all(&replay, NULL), KVR_OK);
    kvr_cache_stats(cache, &stats);
    assert_int_equal(stats.free_blocks, 5);
    kvr_replay_release(&replay);
    kvr_cache_destroy(cache);
}

static void the_last_token_can_go_without_a_slot(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1}, output[] = {2};
    struct kvr_engine_options options = {.capacity_blocks = 5, .block_tokens = 16};
    for (int skip = 0; skip < 2; skip++) {
        struct kvr_cache *cache;
        struct kvr_replay replay;
        struct kvr_replay_result result;
        struct kvr_cache_stats stats;
        struct kvr_cache_request request = {.ids = ids,
            .id_count = 1,
            .output_ids = output,
            .output_id_count = 1,
            .input_tokens = 16,
            .output_tokens = 16,
            .block_tokens = 16};
        kvr_cache_create(kvr_engine_find("vllm"), &options, &cache, NULL);
        kvr_replay_init(&replay, cache, 0, skip, NULL);
        assert_int_equal(kvr_replay_request(&replay, &request, &result, NULL), KVR_OK);
        kvr_cache_stats(cache, &stats);
        assert_int_equal(stats.resident_blocks[0], skip ? 1 : 2);
        kvr_replay_release(&replay);
        kvr_cache_destroy(cache);
    }
}

static void an_engine_is_read_from_text(void **state)
{
    (void)state;
    struct kvr_parameter_value values[KVR_ENGINE_PARAMETERS_MOST];
    const struct kvr_engine *engine;
    struct kvr_error error = {0};
    for (size_t i = 0; i < kvr_engine_count; i++) {
        assert_true(kvr_engines[i]->parameter_count <= KVR_ENGINE_PARAMETERS_MOST);
        assert_int_equal(kvr_engine_read(kvr_engines[i]->name, &engine, values, &error), KVR_OK);
        assert_ptr_equal(engine, kvr_engines[i]);
    }
    assert_int_equal(
        kvr_engine_read("lmcache(policy=mru,watermark=60%)", &engine, values, &error), KVR_OK);
    assert_string_equal(engine->name, "lmcache");
    assert_int_equal(values[0].integer, 3);
    assert_true(values[2].number == 0.6);
    assert_int_equal(kvr_engine_read("vllm()", &engine, values, &error), KVR_OK);
    assert_int_equal(kvr_engine_read("vlm", &engine, values, &error), KVR_BAD_USAGE);
    assert_non_null(strstr(error.text, "there is no engine 'vlm' (there are: "));
    assert_int_equal(kvr_engine_read("", &engine, values, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_engine_read("vllm(", &engine, values, &error), KVR_BAD_USAGE);
    assert_int_equal(
        kvr_engine_read("sglang(insert=never)", &engine, values, &error), KVR_BAD_USAGE);
    assert_string_equal(error.text,
        "engine 'sglang': 'never' of parameter 'insert' is not one of: finish checkpoint");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coarser_blocks_take_the_last_id),
        cmocka_unit_test(finer_blocks_match_where_outer_ones_do),
        cmocka_unit_test(sizes_that_do_not_divide_are_refused),
        cmocka_unit_test(the_window_ends_the_oldest),
        cmocka_unit_test(the_last_token_can_go_without_a_slot),
        cmocka_unit_test(an_engine_is_read_from_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
