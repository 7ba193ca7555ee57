/*
 * The vllm engine against a slow model of its rules: blocks in an array, the free queue a list that
 * is shifted, the earliest cached of an id found by looking at every block.
 */
#include "unit.h"

#include "engine_fuzz.h"

struct model_block {
    uint64_t id, cached_at;
    bool hashed;
    int holders, pins;
};

struct model_request {
    bool used;
    struct id_list blocks, chain;
    uint64_t tokens;
};

struct model {
    struct kvr_cache base;
    struct kvr_cache_sink sink;
    uint32_t size, usable;
    struct model_block *blocks;
    struct id_list queue;
    uint64_t ticks, hits, live;
    struct model_request requests[32];
};

static enum kvr_status model_create(const struct kvr_engine_options *options,
    const struct kvr_parameter_value *values, struct kvr_cache **out, struct kvr_error *error)
{
    (void)values, (void)error;
    struct model *model = calloc(1, sizeof *model);
    model->sink = *options->sink;
    model->size = options->block_tokens;
    model->usable = (uint32_t)options->capacity_blocks;
    model->blocks = calloc(model->usable + 1, sizeof *model->blocks);
    for (uint32_t i = 1; i <= model->usable; i++)
        id_push(&model->queue, i);
    *out = &model->base;
    return KVR_OK;
}

static uint32_t earliest(const struct model *model, uint64_t id)
{
    uint32_t found = 0;
    for (uint32_t i = 1; i <= model->usable; i++)
        if (model->blocks[i].hashed && model->blocks[i].id == id &&
            (!found || model->blocks[i].cached_at < model->blocks[found].cached_at))
            found = i;
    return found;
}

static void queue_insert(struct model *model, size_t at, uint64_t block)
{
    id_push(&model->queue, 0);
    for (size_t i = model->queue.count - 1; i > at; i--)
        model->queue.items[i] = model->queue.items[i - 1];
    model->queue.items[at] = block;
}

static void queue_delete(struct model *model, size_t at)
{
    for (size_t i = at + 1; i < model->queue.count; i++)
        model->queue.items[i - 1] = model->queue.items[i];
    model->queue.count--;
}

static void hold(struct model *model, uint32_t block)
{
    if (model->blocks[block].holders++ == 0)
        for (size_t i = 0; i < model->queue.count; i++)
            if (model->queue.items[i] == block) {
                queue_delete(model, i);
                break;
            }
}

static void let_go(struct model *model, uint32_t block)
{
    if (--model->blocks[block].holders == 0)
        queue_insert(model, model->blocks[block].hashed ? model->queue.count : 0, block);
}

static uint32_t pop(struct model *model)
{
    uint32_t block = (uint32_t)model->queue.items[0];
    queue_delete(model, 0);
    model->blocks[block].holders = 1;
    if (model->blocks[block].hashed) {
        model->blocks[block].hashed = false;
        model->sink.removed(model->sink.context, KVR_MEDIUM_GPU, &model->blocks[block].id, 1);
    }
    return block;
}

static void cache_block(struct model *model, uint32_t block, uint64_t id)
{
    model->blocks[block].id = id;
    model->blocks[block].hashed = true;
    model->blocks[block].cached_at = model->ticks++;
}

static enum kvr_status model_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    uint64_t prompt = request->input_tokens, size = model->size;
    uint64_t hit = 0, idle = 0;
    while (prompt && hit < request->id_count && hit < (prompt - 1) / size &&
           earliest(model, request->ids[hit])) {
        idle += model->blocks[earliest(model, request->ids[hit])].holders == 0;
        hit++;
    }
    uint64_t need = (prompt + size - 1) / size - hit;
    if (need + idle > model->queue.count)
        return KVR_OK;
    uint32_t handle = 0;
    while (model->requests[handle].used)
        handle++;
    struct model_request *mine = &model->requests[handle];
    mine->used = true;
    mine->tokens = prompt;
    mine->blocks.count = mine->chain.count = 0;
    for (size_t i = 0; i < request->id_count; i++)
        id_push(&mine->chain, request->ids[i]);
    for (size_t i = 0; i < request->output_id_count; i++)
        id_push(&mine->chain, request->output_ids[i]);
    for (uint64_t i = 0; i < hit; i++) {
        id_push(&mine->blocks, earliest(model, request->ids[i]));
        hold(model, (uint32_t)mine->blocks.items[i]);
    }
    for (uint64_t i = 0; i < need; i++)
        id_push(&mine->blocks, pop(model));
    for (uint64_t i = hit; i < prompt / size; i++)
        cache_block(model, (uint32_t)mine->blocks.items[i], mine->chain.items[i]);
    if (hit < prompt / size)
        model->sink.stored(model->sink.context, KVR_MEDIUM_GPU,
            hit ? &mine->chain.items[hit - 1] : NULL, mine->chain.items + hit, prompt / size - hit);
    admission->admitted = true;
    admission->live = handle;
    admission->hit_blocks[0] = hit;
    model->hits += hit;
    model->live++;
    return KVR_OK;
}

static enum kvr_status model_output(struct kvr_cache *base, uint32_t handle, uint64_t tokens,
    uint64_t *made, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    struct model_request *mine = &model->requests[handle];
    for (*made = 0; *made < tokens; ++*made) {
        if (mine->tokens % model->size == 0) {
            if (!model->queue.count)
                break;
            id_push(&mine->blocks, pop(model));
        }
        mine->tokens++;
        uint64_t i = mine->tokens / model->size - 1;
        if (mine->tokens % model->size == 0 && i < mine->chain.count) {
            cache_block(model, (uint32_t)mine->blocks.items[i], mine->chain.items[i]);
            model->sink.stored(model->sink.context, KVR_MEDIUM_GPU,
                i ? &mine->chain.items[i - 1] : NULL, &mine->chain.items[i], 1);
        }
    }
    return KVR_OK;
}

static enum kvr_status model_finish(
    struct kvr_cache *base, uint32_t handle, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    struct model_request *mine = &model->requests[handle];
    for (size_t i = mine->blocks.count; i--;)
        let_go(model, (uint32_t)mine->blocks.items[i]);
    mine->used = false;
    model->live--;
    return KVR_OK;
}

static enum kvr_status model_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    (void)pin, (void)error;
    struct model *model = (struct model *)base;
    for (*pinned = 0; *pinned < count && earliest(model, ids[*pinned]); ++*pinned) {
        hold(model, earliest(model, ids[*pinned]));
        model->blocks[earliest(model, ids[*pinned])].pins++;
    }
    return KVR_OK;
}

static enum kvr_status model_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    while (count--) {
        uint32_t block = earliest(model, ids[count]);
        if (block && model->blocks[block].pins) {
            model->blocks[block].pins--;
            let_go(model, block);
        }
    }
    return KVR_OK;
}

static void model_clear(struct kvr_cache *base)
{
    struct model *model = (struct model *)base;
    bool all = model->queue.count == model->usable;
    for (uint32_t i = 1; i <= model->usable; i++) {
        struct model_block *block = &model->blocks[i];
        if (block->hashed && !block->holders) {
            block->hashed = false;
            if (!all)
                model->sink.removed(model->sink.context, KVR_MEDIUM_GPU, &block->id, 1);
        }
    }
    if (all)
        model->sink.cleared(model->sink.context, KVR_MEDIUM_GPU);
}

static void model_stats(const struct kvr_cache *base, struct kvr_cache_stats *stats)
{
    const struct model *model = (const struct model *)base;
    stats->free_blocks = model->queue.count;
    stats->live = model->live;
    stats->hit_blocks[0] = model->hits;
}

static void model_resident(
    const struct kvr_cache *base, enum kvr_medium medium, kvr_cache_visit *visit, void *context)
{
    const struct model *model = (const struct model *)base;
    for (uint32_t i = 1; i <= model->usable && medium == KVR_MEDIUM_GPU; i++)
        if (model->blocks[i].hashed)
            visit(context, model->blocks[i].id);
}

static void model_walk_free(
    const struct kvr_cache *base, kvr_cache_visit_free *visit, void *context)
{
    const struct model *model = (const struct model *)base;
    for (size_t i = 0; i < model->queue.count; i++) {
        const struct model_block *block = &model->blocks[model->queue.items[i]];
        visit(context, block->hashed, block->id);
    }
}

static void model_destroy(struct kvr_cache *base)
{
    struct model *model = (struct model *)base;
    for (size_t i = 0; i < 32; i++) {
        id_free(&model->requests[i].blocks);
        id_free(&model->requests[i].chain);
    }
    id_free(&model->queue);
    free(model->blocks);
    free(model);
}

static const struct kvr_engine model_engine = {
    .name = "model of vllm",
    .create = model_create,
    .admit = model_admit,
    .output = model_output,
    .finish = model_finish,
    .pin = model_pin,
    .unpin = model_unpin,
    .clear = model_clear,
    .stats = model_stats,
    .resident = model_resident,
    .walk_free = model_walk_free,
    .destroy = model_destroy,
};

static void equals_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 240; seed++) {
        struct kvr_random random = {seed * 7919};
        struct fuzz_plan plan = {
            .engines = {kvr_engine_find("vllm"), &model_engine},
            .parameters = "",
            .capacity_blocks = 1 + kvr_random_below(&random, seed % 3 ? 40 : 8),
            .block_tokens = (uint32_t)(1 + kvr_random_below(&random, 16)),
            .live_most = (uint32_t)kvr_random_below(&random, 7),
            .longest_blocks = 1 + (uint32_t)kvr_random_below(&random, 14),
            .steps = 400,
            .pins = seed % 2,
            .clears = seed % 5 == 0,
            .loose_ids = seed % 3 == 1,
            .seed = seed,
        };
        fuzz_engines(&plan);
    }
}

/* By hand: four blocks of one token, nothing else going on. */
static void duplicates_stay_two_blocks(void **state)
{
    (void)state;
    static const uint64_t ids[] = {7, 8};
    struct kvr_engine_options options = {.capacity_blocks = 5, .block_tokens = 1};
    struct kvr_cache *cache;
    struct kvr_admission first, second, third;
    assert_int_equal(kvr_cache_create(kvr_engine_find("vllm"), &options, &cache, NULL), KVR_OK);
    struct kvr_cache_request request = {
        .ids = ids, .id_count = 2, .input_tokens = 2, .block_tokens = 1};
    kvr_cache_admit(cache, &request, &first, NULL);
    kvr_cache_admit(cache, &request, &second, NULL);
    assert_int_equal(first.hit_blocks[0], 0);
    assert_int_equal(second.hit_blocks[0], 1); /* the last token is always computed */
    kvr_cache_admit(cache, &request, &third, NULL);
    assert_true(third.admitted);
    struct kvr_cache_stats stats;
    kvr_cache_stats(cache, &stats);
    assert_int_equal(stats.resident_blocks[0], 4); /* 7, and 8 three times */
    assert_int_equal(stats.free_blocks, 1);
    assert_int_equal(kvr_cache_finish(cache, 99, NULL), KVR_BAD_INPUT);
    kvr_cache_destroy(cache);
}

static void unusable_sizes_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t capacity;
        uint32_t block;
    } cases[] = {{0, 16}, {(uint64_t)1 << 31, 16}, {10, 0}, {10, (1u << 30) + 1}};
    for (size_t e = 0; e < kvr_engine_count; e++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct kvr_engine_options options = {
                .capacity_blocks = cases[i].capacity, .block_tokens = cases[i].block};
            struct kvr_cache *cache;
            struct kvr_error error = {0};
            assert_int_equal(
                kvr_cache_create(kvr_engines[e], &options, &cache, &error), KVR_BAD_USAGE);
            assert_null(cache);
            assert_true(error.text[0]);
        }
    }
}

static void absurd_requests_are_answered(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1, 2, 3};
    for (size_t e = 0; e < kvr_engine_count; e++) {
        struct kvr_engine_options options = {.capacity_blocks = 8, .block_tokens = 16};
        struct kvr_cache *cache;
        struct kvr_admission answer;
        struct kvr_error error = {0};
        uint64_t made;
        assert_int_equal(kvr_cache_create(kvr_engines[e], &options, &cache, &error), KVR_OK);
        struct kvr_cache_request huge = {
            .ids = ids, .id_count = 3, .input_tokens = (uint64_t)1 << 59, .block_tokens = 16};
        assert_int_equal(kvr_cache_admit(cache, &huge, &answer, &error), KVR_OK);
        huge.input_tokens = (uint64_t)1 << 60;
        assert_int_equal(kvr_cache_admit(cache, &huge, &answer, &error), KVR_BAD_INPUT);
        huge.input_tokens = 16;
        huge.block_tokens = 0;
        assert_int_equal(kvr_cache_admit(cache, &huge, &answer, &error), KVR_BAD_INPUT);
        struct kvr_cache_request nothing = {.block_tokens = 16};
        assert_int_equal(kvr_cache_admit(cache, &nothing, &answer, &error), KVR_OK);
        assert_true(answer.admitted);
        assert_int_equal(kvr_cache_output(cache, answer.live, 1000000, &made, &error), KVR_OK);
        assert_int_equal(kvr_cache_finish(cache, answer.live, &error), KVR_OK);
        assert_int_equal(kvr_cache_finish(cache, answer.live, &error), KVR_BAD_INPUT);
        kvr_cache_destroy(cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(duplicates_stay_two_blocks),
        cmocka_unit_test(unusable_sizes_are_refused),
        cmocka_unit_test(absurd_requests_are_answered),
        cmocka_unit_test(equals_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
