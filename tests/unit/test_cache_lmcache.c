/* The lmcache engine against a slow model: one list of chunks in the order in which they came. */
#include "unit.h"

#include "engine_fuzz.h"

enum { LRU, LFU, FIFO, MRU };

struct chunk {
    uint64_t id, uses, used_at, entered_at;
    unsigned pins;
    double pin_ends;
};

struct request {
    bool used;
    struct id_list output;
    uint64_t tokens, parent;
    bool has_parent;
    size_t next;
};

struct model {
    struct kvr_cache base;
    struct kvr_cache_sink sink;
    int64_t policy;
    bool loop, outputs;
    double watermark, ratio, look, timeout, looked;
    uint64_t size, capacity, clock, hits, live;
    struct chunk *chunks; /* oldest entry first */
    size_t count;
    struct request requests[32];
};

static enum kvr_status model_create(const struct kvr_engine_options *options,
    const struct kvr_parameter_value *values, struct kvr_cache **out, struct kvr_error *error)
{
    (void)error;
    struct model *model = calloc(1, sizeof *model);
    model->sink = *options->sink;
    model->policy = values[0].integer;
    model->loop = values[1].integer == 1;
    model->watermark = values[2].number;
    model->ratio = values[3].number;
    model->look = values[4].number;
    model->timeout = values[5].number;
    model->outputs = values[6].integer;
    model->size = options->block_tokens;
    model->capacity = options->capacity_blocks;
    model->chunks = calloc(model->capacity, sizeof *model->chunks);
    *out = &model->base;
    return KVR_OK;
}

static struct chunk *find(struct model *model, uint64_t id)
{
    for (size_t i = 0; i < model->count; i++)
        if (model->chunks[i].id == id)
            return &model->chunks[i];
    return NULL;
}

static bool sooner(const struct model *model, const struct chunk *a, const struct chunk *b)
{
    if (model->policy == FIFO)
        return a->entered_at < b->entered_at;
    if (model->policy == MRU)
        return a->used_at > b->used_at;
    if (model->policy == LFU && a->uses != b->uses)
        return a->uses < b->uses;
    return a->used_at < b->used_at;
}

static void forget(struct model *model, struct chunk *chunk)
{
    size_t after = (size_t)(model->chunks + model->count - chunk - 1);
    memmove(chunk, chunk + 1, after * sizeof *chunk);
    model->count--;
}

static bool evict(struct model *model)
{
    struct chunk *victim = NULL;
    for (size_t i = 0; i < model->count; i++) {
        struct chunk *chunk = &model->chunks[i];
        if (!chunk->pins && (!victim || sooner(model, chunk, victim)))
            victim = chunk;
    }
    if (!victim)
        return false;
    uint64_t id = victim->id;
    forget(model, victim);
    model->sink.removed(model->sink.context, KVR_MEDIUM_CPU, &id, 1);
    return true;
}

static void look(struct model *model)
{
    size_t share = (size_t)((double)model->count * model->ratio);
    if (!share && model->ratio > 0)
        share = 1;
    for (size_t i = 0; i < share; i++)
        evict(model);
}

static bool high(const struct model *model)
{
    return model->count && (double)model->count / (double)model->capacity >= model->watermark;
}

static void advance(struct model *model, double now)
{
    for (size_t i = 0; i < model->count; i++)
        if (model->chunks[i].pins && model->chunks[i].pin_ends < now)
            model->chunks[i].pins = 0;
    if (!model->loop)
        return;
    if (now == 0 && high(model))
        look(model);
    for (double tick = model->look; tick <= now; tick += model->look)
        if (tick > model->looked && high(model))
            look(model);
    model->looked = now;
}

static void put(struct model *model, const uint64_t *parent, const uint64_t *ids, size_t count)
{
    size_t most = 0, fresh = 0;
    if (model->loop) {
        for (size_t i = 0; i < count; i++)
            fresh += !find(model, ids[i]);
        most = model->count + fresh <= model->capacity ? count : 0;
    } else {
        while (most < count && (model->count + most < model->capacity || evict(model)))
            most++;
    }
    struct id_list run = {0}, all = {0};
    for (size_t i = 0; i < most; i++) {
        if (!find(model, ids[i])) {
            model->chunks[model->count++] = (struct chunk){.id = ids[i], .uses = 1};
            id_push(&run, ids[i]);
            id_push(&all, ids[i]);
        }
        if (run.count && (i + 1 == most || find(model, ids[i + 1]))) {
            size_t first = i + 1 - run.count;
            if (run.items[run.count - 1] != ids[i])
                first--; /* an id that came twice in one prompt ended the run */
            model->sink.stored(model->sink.context, KVR_MEDIUM_CPU,
                first ? &ids[first - 1] : parent, run.items, run.count);
            run.count = 0;
        }
    }
    for (size_t i = 0; i < all.count; i++) {
        struct chunk *chunk = find(model, all.items[model->loop ? all.count - 1 - i : i]);
        chunk->entered_at = chunk->used_at = ++model->clock;
    }
    id_free(&run);
    id_free(&all);
}

static enum kvr_status model_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    uint32_t handle = 0;
    while (model->requests[handle].used)
        handle++;
    struct request *mine = &model->requests[handle];
    advance(model, request->time_ms);
    size_t hit = 0;
    while (hit < request->id_count && find(model, request->ids[hit]))
        hit++;
    for (size_t i = hit; i--;) {
        struct chunk *chunk = find(model, request->ids[i]);
        chunk->uses++;
        chunk->used_at = ++model->clock;
    }
    put(model, hit ? &request->ids[hit - 1] : NULL, request->ids + hit, request->id_count - hit);
    mine->used = true;
    mine->tokens = request->input_tokens;
    mine->next = 0;
    mine->output.count = 0;
    mine->has_parent = request->id_count > 0;
    mine->parent = request->id_count ? request->ids[request->id_count - 1] : 0;
    for (size_t i = 0; i < request->output_id_count; i++)
        id_push(&mine->output, request->output_ids[i]);
    admission->admitted = true;
    admission->live = handle;
    model->hits += admission->hit_blocks[KVR_MEDIUM_CPU] = hit;
    model->live++;
    return KVR_OK;
}

static enum kvr_status model_output(struct kvr_cache *base, uint32_t handle, uint64_t tokens,
    uint64_t *made, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    struct request *mine = &model->requests[handle];
    for (*made = 0; *made < tokens; ++*made) {
        mine->tokens++;
        if (mine->tokens % model->size || !model->outputs || mine->next == mine->output.count)
            continue;
        put(model,
            mine->next         ? &mine->output.items[mine->next - 1]
            : mine->has_parent ? &mine->parent
                               : NULL,
            &mine->output.items[mine->next], 1);
        mine->next++;
    }
    return KVR_OK;
}

static enum kvr_status model_finish(
    struct kvr_cache *base, uint32_t handle, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    model->requests[handle].used = false;
    model->live--;
    return KVR_OK;
}

static enum kvr_status model_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    struct chunk *chunk;
    for (*pinned = 0; *pinned < count && (chunk = find(model, ids[*pinned])); ++*pinned) {
        chunk->pins++;
        chunk->pin_ends = pin->time_ms + (pin->duration_ms ? pin->duration_ms : model->timeout);
    }
    return KVR_OK;
}

static enum kvr_status model_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    for (size_t i = 0; i < count; i++) {
        struct chunk *chunk = find(model, ids[i]);
        if (chunk && chunk->pins)
            chunk->pins--;
    }
    return KVR_OK;
}

static void model_clear(struct kvr_cache *base)
{
    struct model *model = (struct model *)base;
    bool pinned = false;
    for (size_t i = 0; i < model->count; i++)
        pinned = pinned || model->chunks[i].pins;
    if (pinned) {
        while (evict(model))
            ;
    } else {
        model->count = 0;
        model->sink.cleared(model->sink.context, KVR_MEDIUM_CPU);
    }
}

static void model_stats(const struct kvr_cache *base, struct kvr_cache_stats *stats)
{
    const struct model *model = (const struct model *)base;
    stats->free_blocks = model->capacity - model->count;
    stats->live = model->live;
    stats->hit_blocks[KVR_MEDIUM_CPU] = model->hits;
}

static void model_resident(
    const struct kvr_cache *base, enum kvr_medium medium, kvr_cache_visit *visit, void *context)
{
    const struct model *model = (const struct model *)base;
    for (size_t i = 0; i < model->count && medium == KVR_MEDIUM_CPU; i++)
        visit(context, model->chunks[i].id);
}

static void model_destroy(struct kvr_cache *base)
{
    struct model *model = (struct model *)base;
    for (size_t i = 0; i < 32; i++)
        id_free(&model->requests[i].output);
    free(model->chunks);
    free(model);
}

static struct kvr_engine model_engine = {
    .name = "model of lmcache",
    .create = model_create,
    .admit = model_admit,
    .output = model_output,
    .finish = model_finish,
    .pin = model_pin,
    .unpin = model_unpin,
    .clear = model_clear,
    .stats = model_stats,
    .resident = model_resident,
    .destroy = model_destroy,
};

static void equals_the_model(void **state)
{
    (void)state;
    static const char *const policies[] = {"lru", "lfu", "fifo", "mru"};
    const struct kvr_engine *engine = kvr_engine_find("lmcache");
    model_engine.parameters = engine->parameters;
    model_engine.parameter_count = engine->parameter_count;
    for (uint64_t seed = 1; seed <= 320; seed++) {
        struct kvr_random random = {seed * 7919};
        char parameters[160];
        snprintf(parameters, sizeof parameters,
            "policy=%s,evict=%s,watermark=0.%u,ratio=0.%u,look=%u,outputs=%s,pin-timeout=700",
            policies[seed % 4], seed % 8 < 4 ? "demand" : "watermark",
            1 + kvr_random_below(&random, 9), kvr_random_below(&random, 10),
            50 + kvr_random_below(&random, 2000), kvr_random_below(&random, 2) ? "on" : "off");
        struct fuzz_plan plan = {
            .engines = {engine, &model_engine},
            .parameters = parameters,
            .capacity_blocks = 1 + kvr_random_below(&random, seed % 3 ? 60 : 10),
            .block_tokens = 1 + kvr_random_below(&random, 16),
            .live_most = kvr_random_below(&random, 7),
            .longest_blocks = 1 + kvr_random_below(&random, 14),
            .steps = 400,
            .pins = seed % 2,
            .clears = seed % 5 == 0,
            .times = seed % 7,
            .seed = seed,
        };
        fuzz_engines(&plan);
    }
}

/* By hand: five chunks fit; a prompt of three, then one that shares two, then another of three. */
static void the_tail_goes_before_the_head(void **state)
{
    (void)state;
    static const uint64_t first[] = {1, 2, 3}, second[] = {1, 2, 4}, third[] = {5, 6, 7};
    const uint64_t *const prompts[] = {first, second, third};
    struct id_list log = {0};
    struct kvr_cache_sink sink = {.context = &log, .removed = fuzz_removed};
    struct kvr_engine_options options = {.capacity_blocks = 5, .block_tokens = 256, .sink = &sink};
    struct kvr_cache *cache;
    struct kvr_admission answer;
    assert_int_equal(kvr_cache_create(kvr_engine_find("lmcache"), &options, &cache, NULL), KVR_OK);
    for (int i = 0; i < 3; i++) {
        struct kvr_cache_request request = {
            .ids = prompts[i], .id_count = 3, .input_tokens = 768, .block_tokens = 256};
        assert_int_equal(kvr_cache_admit(cache, &request, &answer, NULL), KVR_OK);
        assert_int_equal(answer.hit_blocks[KVR_MEDIUM_CPU], i == 1 ? 2 : 0);
    }
    /* 3 was never hit; of 2 and 1, touched last to first, 2 is the older; 4 is new */
    static const uint64_t wanted[] = {
        FUZZ_REMOVED, KVR_MEDIUM_CPU, 1, 3, FUZZ_REMOVED, KVR_MEDIUM_CPU, 1, 2};
    assert_int_equal(log.count, 8);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(log.items[i], wanted[i]);
    /* all found: the last token is computed all the same */
    struct kvr_cache_request again = {
        .ids = third, .id_count = 3, .input_tokens = 768, .block_tokens = 256};
    assert_int_equal(kvr_cache_admit(cache, &again, &answer, NULL), KVR_OK);
    assert_int_equal(answer.hit_blocks[KVR_MEDIUM_CPU], 3);
    assert_int_equal(answer.hit_tokens[KVR_MEDIUM_CPU], 767);
    id_free(&log);
    kvr_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tail_goes_before_the_head),
        cmocka_unit_test(equals_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
