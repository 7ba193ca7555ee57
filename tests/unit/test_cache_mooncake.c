/*
 * The mooncake engine against a slow model: a list of objects, the master's thread looking at all
 * of them at each of its ticks.
 */
#include "unit.h"

#include "engine_fuzz.h"

#include <math.h>

struct object {
    uint64_t id, granted, group; /* granted: the order of leases with one stamp */
    double lease, soft_until;    /* ms */
    unsigned hard;
};

struct model {
    struct kvr_cache base;
    struct kvr_cache_sink sink;
    double lease, soft_pin, watermark, ratio, look, looked;
    bool evict_soft, grouped, put_failed;
    uint64_t capacity, grants, groups, hits, live;
    struct object *objects;
    size_t count;
    bool used[32];
};

static enum kvr_status model_create(const struct kvr_engine_options *options,
    const struct kvr_parameter_value *values, struct kvr_cache **out, struct kvr_error *error)
{
    (void)error;
    struct model *model = calloc(1, sizeof *model);
    model->sink = *options->sink;
    model->lease = values[0].number;
    model->soft_pin = values[1].number;
    model->evict_soft = values[2].integer;
    model->watermark = values[3].number;
    model->ratio = values[4].number;
    model->look = values[5].number;
    model->grouped = values[6].integer;
    model->capacity = options->capacity_blocks;
    model->objects = calloc(model->capacity, sizeof *model->objects);
    *out = &model->base;
    return KVR_OK;
}

static struct object *find(struct model *model, uint64_t id)
{
    for (size_t i = 0; i < model->count; i++)
        if (model->objects[i].id == id)
            return &model->objects[i];
    return NULL;
}

static void forget(struct model *model, uint64_t id, bool tell)
{
    struct object *object = find(model, id);
    size_t after = (size_t)(model->objects + model->count - object - 1);
    memmove(object, object + 1, after * sizeof *object);
    model->count--;
    if (tell)
        model->sink.removed(model->sink.context, KVR_MEDIUM_CPU, &id, 1);
}

static bool may_stay(const struct model *model, const struct object *object, double now)
{
    for (size_t i = 0; i < model->count; i++)
        if (model->objects[i].group == object->group && model->objects[i].lease > now)
            return true;
    return false;
}

/* Evicts the object and its group: first itself, then those after it in the group, around. */
static uint64_t evict(struct model *model, uint64_t id, bool soft_too)
{
    struct id_list group = {0};
    struct object *object = find(model, id);
    uint64_t number = object->group, gone = 1;
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < model->count; i++)
            if (model->objects[i].group == number && model->objects[i].id != id &&
                (&model->objects[i] < object) == (pass == 1))
                id_push(&group, model->objects[i].id);
    forget(model, id, true);
    for (size_t i = 0; i < group.count; i++) {
        object = find(model, group.items[i]);
        if (object->hard || (object->soft_until > 0 && !soft_too))
            continue;
        forget(model, group.items[i], true);
        gone++;
    }
    id_free(&group);
    return gone;
}

/* Evicts the oldest leases of the soft-pinned or the others, until `count` are gone. */
static double evict_oldest(struct model *model, bool soft, double count, double now)
{
    double gone = 0;
    while (gone < count) {
        struct object *oldest = NULL;
        for (size_t i = 0; i < model->count; i++) {
            struct object *object = &model->objects[i];
            if (!object->hard && (object->soft_until > 0) == soft && object->lease <= now &&
                !may_stay(model, object, now) &&
                (!oldest || object->lease < oldest->lease ||
                    (object->lease == oldest->lease && object->granted < oldest->granted)))
                oldest = object;
        }
        if (!oldest)
            break;
        gone += (double)evict(model, oldest->id, soft);
    }
    return gone;
}

static bool pressed(const struct model *model)
{
    return (double)model->count / (double)model->capacity > model->watermark ||
           (model->put_failed && model->ratio > 0);
}

static void end_soft_pins(struct model *model, double now)
{
    for (size_t i = 0; i < model->count; i++)
        if (model->objects[i].soft_until <= now)
            model->objects[i].soft_until = 0;
}

static void look(struct model *model, double now)
{
    size_t base = 0;
    end_soft_pins(model, now);
    for (size_t i = 0; i < model->count; i++)
        base += !model->objects[i].hard;
    if (!base)
        model->put_failed = false;
    double over = (double)model->count / (double)model->capacity - model->watermark;
    double target = fmax(model->ratio, over + model->ratio);
    double least = fmax(target / 2, over);
    double gone = evict_oldest(model, false, ceil((double)base * target), now);
    if (model->evict_soft)
        gone += evict_oldest(model, true, ceil((double)base * least) - gone, now);
    if (gone > 0)
        model->put_failed = false;
}

static enum kvr_status model_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    double now = request->time_ms;
    uint32_t handle = 0;
    while (model->used[handle])
        handle++;
    if (now == 0 && pressed(model))
        look(model, 0);
    for (double tick = model->look; tick <= now; tick += model->look)
        if (tick > model->looked && pressed(model))
            look(model, tick);
    end_soft_pins(model, now);
    model->looked = now;

    size_t hit = 0, count = request->id_count;
    while (hit < count && find(model, request->ids[hit]))
        hit++;
    for (size_t i = 0; i < hit; i++) {
        struct object *object = find(model, request->ids[i]);
        size_t members = 0;
        for (size_t k = 0; k < model->count; k++)
            members += model->objects[k].group == object->group;
        if (members > 1 && object->lease > now + floor(model->lease / 2))
            continue;
        /* its group after it, around, and itself last */
        struct object *const start = object;
        for (size_t k = 1; k <= model->count; k++) {
            size_t at = (size_t)(start - model->objects) + k;
            object = &model->objects[at % model->count];
            if (object->group != start->group)
                continue;
            object->lease = fmax(object->lease, now + model->lease);
            object->granted = ++model->grants;
        }
    }
    struct id_list run = {0};
    uint64_t group = ++model->groups;
    for (size_t i = hit; i <= count; i++) {
        bool there = i < count && find(model, request->ids[i]);
        if (i < count && !there && model->count < model->capacity) {
            model->objects[model->count++] = (struct object){
                .id = request->ids[i], .lease = now, .granted = ++model->grants, .group = group};
            if (!model->grouped)
                group = ++model->groups;
            id_push(&run, request->ids[i]);
            continue;
        }
        if (run.count)
            model->sink.stored(model->sink.context, KVR_MEDIUM_CPU,
                i > run.count ? &request->ids[i - run.count - 1] : NULL, run.items, run.count);
        run.count = 0;
        if (i < count && !there) {
            model->put_failed = true;
            break;
        }
    }
    id_free(&run);
    model->used[handle] = true;
    admission->admitted = true;
    admission->live = handle;
    model->hits += admission->hit_blocks[KVR_MEDIUM_CPU] = hit;
    model->live++;
    return KVR_OK;
}

static enum kvr_status model_output(struct kvr_cache *base, uint32_t handle, uint64_t tokens,
    uint64_t *made, struct kvr_error *error)
{
    (void)base, (void)handle, (void)error;
    *made = tokens;
    return KVR_OK;
}

static enum kvr_status model_finish(
    struct kvr_cache *base, uint32_t handle, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    model->used[handle] = false;
    model->live--;
    return KVR_OK;
}

static enum kvr_status model_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    struct object *object;
    for (*pinned = 0; *pinned < count && (object = find(model, ids[*pinned])); ++*pinned) {
        double until = pin->time_ms + (pin->duration_ms > 0 ? pin->duration_ms : model->soft_pin);
        if (!pin->soft)
            object->hard++;
        else
            object->soft_until = fmax(object->soft_until, until);
    }
    return KVR_OK;
}

static enum kvr_status model_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    for (size_t i = 0; i < count; i++) {
        struct object *object = find(model, ids[i]);
        if (object && object->hard)
            object->hard--;
        else if (object)
            object->soft_until = 0;
    }
    return KVR_OK;
}

static void model_clear(struct kvr_cache *base)
{
    struct model *model = (struct model *)base;
    bool all = true;
    for (size_t i = 0; i < model->count; i++)
        all = all && !model->objects[i].hard && !(model->objects[i].soft_until > 0);
    for (;;) {
        struct object *oldest = NULL;
        for (size_t i = 0; i < model->count; i++) {
            struct object *object = &model->objects[i];
            if (!object->hard && !(object->soft_until > 0) &&
                (!oldest || object->lease < oldest->lease ||
                    (object->lease == oldest->lease && object->granted < oldest->granted)))
                oldest = object;
        }
        if (!oldest)
            break;
        forget(model, oldest->id, !all);
    }
    if (all)
        model->sink.cleared(model->sink.context, KVR_MEDIUM_CPU);
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
        visit(context, model->objects[i].id);
}

static void model_destroy(struct kvr_cache *base)
{
    struct model *model = (struct model *)base;
    free(model->objects);
    free(model);
}

static struct kvr_engine model_engine = {
    .name = "model of mooncake",
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
    const struct kvr_engine *engine = kvr_engine_find("mooncake");
    model_engine.parameters = engine->parameters;
    model_engine.parameter_count = engine->parameter_count;
    for (uint64_t seed = 1; seed <= 320; seed++) {
        struct kvr_random random = {seed * 7919};
        char parameters[160];
        snprintf(parameters, sizeof parameters,
            "lease=%u,watermark=0.%u,ratio=0.%02u,look=%u,group=%s,evict-soft-pinned=%s",
            kvr_random_below(&random, 2) ? 2 * kvr_random_below(&random, 2000) : 0,
            1 + kvr_random_below(&random, 9), kvr_random_below(&random, 30),
            1 + kvr_random_below(&random, 100), kvr_random_below(&random, 2) ? "request" : "off",
            kvr_random_below(&random, 3) ? "on" : "off");
        struct fuzz_plan plan = {
            .engines = {engine, &model_engine},
            .parameters = parameters,
            .capacity_blocks = 1 + kvr_random_below(&random, seed % 3 ? 60 : 10),
            .block_tokens = 1 + kvr_random_below(&random, 16),
            .live_most = kvr_random_below(&random, 7),
            .longest_blocks = 1 + kvr_random_below(&random, 14),
            .steps = 400,
            .pins = seed % 4,
            .clears = seed % 5 == 0,
            .times = seed % 7,
            .seed = seed,
        };
        fuzz_engines(&plan);
    }
}

/*
 * By hand: ten objects fit, watermark .5, ratio .2. Two prompts of four at 0 and 5 s, the first
 * read again at 6 s; at 7 s use is .8: target = max(.2, .8 - .5 + .2) = .5 of 8 objects, 4 of them.
 * The leases of the first run to 16 s, so the second prompt goes, head first.
 */
static void the_oldest_lapsed_lease_goes(void **state)
{
    (void)state;
    static const uint64_t first[] = {1, 2, 3, 4}, second[] = {5, 6, 7, 8}, other[] = {9};
    static const struct {
        const uint64_t *ids;
        size_t count;
        double time_ms;
    } asked[] = {{first, 4, 1}, {second, 4, 5000}, {first, 4, 5005}, {other, 1, 7000}};
    static const char text[] = "watermark=0.5,ratio=0.2";
    const struct kvr_engine *engine = kvr_engine_find("mooncake");
    struct kvr_parameter_value values[16];
    kvr_parameter_defaults(engine->parameters, engine->parameter_count, values, NULL);
    kvr_parameter_read(
        engine->parameters, engine->parameter_count, text, sizeof text - 1, values, NULL);
    struct id_list log = {0};
    struct kvr_cache_sink sink = {.context = &log, .removed = fuzz_removed};
    struct kvr_engine_options options = {
        .capacity_blocks = 10, .block_tokens = 512, .values = values, .sink = &sink};
    struct kvr_cache *cache;
    struct kvr_admission answer;
    assert_int_equal(kvr_cache_create(engine, &options, &cache, NULL), KVR_OK);
    for (size_t i = 0; i < 4; i++) {
        struct kvr_cache_request request = {.ids = asked[i].ids,
            .id_count = asked[i].count,
            .input_tokens = asked[i].count * 512,
            .block_tokens = 512,
            .time_ms = asked[i].time_ms};
        assert_int_equal(kvr_cache_admit(cache, &request, &answer, NULL), KVR_OK);
        assert_int_equal(answer.hit_blocks[KVR_MEDIUM_CPU], i == 2 ? 4 : 0);
    }
    assert_int_equal(log.count, 16);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(log.items[i * 4 + 3], 5 + i);
    id_free(&log);
    kvr_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_lapsed_lease_goes),
        cmocka_unit_test(equals_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
