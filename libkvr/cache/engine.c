/* What every engine shares: checks at the door, and regrouping of foreign block sizes. */
#include "cache/engine.h"
#include "cache/regroup.h"

#include <stdlib.h>
#include <string.h>

const char *kvr_medium_name(enum kvr_medium medium)
{
    static const char *const names[KVR_MEDIUM_COUNT] = {"gpu", "cpu", "disk", "remote"};
    return names[medium];
}

const struct kvr_engine *kvr_engine_find(const char *name)
{
    for (size_t i = 0; i < kvr_engine_count; i++)
        if (!strcmp(kvr_engines[i]->name, name))
            return kvr_engines[i];
    return NULL;
}

enum kvr_status kvr_engine_read(const char *text, const struct kvr_engine **engine,
    struct kvr_parameter_value *values, struct kvr_error *error)
{
    size_t name = strcspn(text, "("), length = strlen(text);
    *engine = NULL;
    for (size_t i = 0; i < kvr_engine_count && !*engine; i++)
        if (strlen(kvr_engines[i]->name) == name && !memcmp(kvr_engines[i]->name, text, name))
            *engine = kvr_engines[i];
    if (!*engine) {
        struct kvr_buffer known = {0};
        char shown[64];
        for (size_t i = 0; i < kvr_engine_count; i++)
            kvr_buffer_append_format(&known, "%s%s", i ? ", " : "", kvr_engines[i]->name);
        const char *names = kvr_buffer_text(&known);
        enum kvr_status status =
            kvr_error_set(error, KVR_BAD_USAGE, "there is no engine '%s' (there are: %s)",
                kvr_printable(shown, sizeof shown, text, name), names ? names : "");
        kvr_buffer_release(&known);
        return status;
    }
    size_t count = (*engine)->parameter_count;
    enum kvr_status status = kvr_parameter_defaults((*engine)->parameters, count, values, error);
    if (status != KVR_OK || name == length)
        return status;
    if (text[length - 1] != ')')
        return kvr_error_set(error, KVR_BAD_USAGE, "the parameters of the engine '%s' end with ')'",
            (*engine)->name);
    status = kvr_parameter_read(
        (*engine)->parameters, count, text + name + 1, length - name - 2, values, error);
    return status == KVR_OK ? status : kvr_error_prefix(error, "engine '%s'", (*engine)->name);
}

enum kvr_status kvr_cache_create(const struct kvr_engine *engine,
    const struct kvr_engine_options *options, struct kvr_cache **out, struct kvr_error *error)
{
    *out = NULL;
    if (options->capacity_blocks < 1 || options->capacity_blocks >= (uint64_t)1 << 31)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "a capacity of %llu blocks is not between 1 and 2147483647",
            (unsigned long long)options->capacity_blocks);
    if (options->block_tokens < 1 || options->block_tokens > 1 << 30)
        return kvr_error_set(error, KVR_BAD_USAGE, "a block of %u tokens is not between 1 and 2^30",
            options->block_tokens);
    struct kvr_parameter_value *defaults = NULL;
    const struct kvr_parameter_value *values = options->values;
    if (!values && engine->parameter_count) {
        defaults = calloc(engine->parameter_count, sizeof *defaults);
        if (!defaults)
            return kvr_error_memory(error);
        enum kvr_status status =
            kvr_parameter_defaults(engine->parameters, engine->parameter_count, defaults, error);
        if (status != KVR_OK) {
            free(defaults);
            return status;
        }
        values = defaults;
    }
    enum kvr_status status = engine->create(options, values, out, error);
    free(defaults);
    if (status != KVR_OK)
        return status;
    (*out)->engine = engine;
    (*out)->block_tokens = options->block_tokens;
    (*out)->regrouped = NULL;
    return KVR_OK;
}

void kvr_cache_destroy(struct kvr_cache *cache)
{
    if (!cache)
        return;
    if (cache->regrouped)
        kvr_regrouped_release(cache->regrouped);
    free(cache->regrouped);
    cache->engine->destroy(cache);
}

enum kvr_status kvr_cache_admit(struct kvr_cache *cache, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    memset(admission, 0, sizeof *admission);
    if (request->block_tokens < 1)
        return kvr_error_set(error, KVR_BAD_INPUT, "a request's blocks have no tokens");
    if (request->input_tokens >= (uint64_t)1 << 60 || request->output_tokens >= (uint64_t)1 << 60)
        return kvr_error_set(error, KVR_BAD_INPUT, "a request of 2^60 tokens or more");
    if (request->block_tokens != cache->block_tokens) {
        if (!cache->regrouped) {
            cache->regrouped = calloc(1, sizeof *cache->regrouped);
            if (!cache->regrouped)
                return kvr_error_memory(error);
        }
        enum kvr_status status = kvr_regroup(cache->regrouped, request, cache->block_tokens, error);
        if (status != KVR_OK)
            return status;
        request = &cache->regrouped->request;
    }
    return cache->engine->admit(cache, request, admission, error);
}

enum kvr_status kvr_cache_pin(struct kvr_cache *cache, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    *pinned = 0;
    if (!cache->engine->pin)
        return kvr_error_set(
            error, KVR_UNSUPPORTED, "the engine '%s' has no pins", cache->engine->name);
    return cache->engine->pin(cache, ids, count, pin, pinned, error);
}

enum kvr_status kvr_cache_unpin(
    struct kvr_cache *cache, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    if (!cache->engine->unpin)
        return kvr_error_set(
            error, KVR_UNSUPPORTED, "the engine '%s' has no pins", cache->engine->name);
    return cache->engine->unpin(cache, ids, count, error);
}

void kvr_cache_clear(struct kvr_cache *cache)
{
    cache->engine->clear(cache);
}

void kvr_cache_stats(const struct kvr_cache *cache, struct kvr_cache_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    cache->engine->stats(cache, stats);
}

void kvr_cache_resident(
    const struct kvr_cache *cache, enum kvr_medium medium, kvr_cache_visit *visit, void *context)
{
    cache->engine->resident(cache, medium, visit, context);
}

bool kvr_cache_walk_free(const struct kvr_cache *cache, kvr_cache_visit_free *visit, void *context)
{
    if (!cache->engine->walk_free)
        return false;
    cache->engine->walk_free(cache, visit, context);
    return true;
}
