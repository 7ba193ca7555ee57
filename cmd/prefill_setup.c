/* From kvr-prefill's settings to what computes. */
#include "cmd/prefill.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOP_MOST = 1000 };

bool prefill_measures(const struct prefill_settings *settings)
{
    return settings->table || settings->calibrate || settings->codec || settings->smoke;
}

enum kvr_status prefill_check(struct prefill_settings *settings, struct kvr_error *error)
{
    const char *backend = settings->backend;

    if (settings->block_size == 0 || settings->block_size > UINT32_MAX / 2)
        return kvr_error_set(error, KVR_BAD_USAGE, "--block-size is out of range");
    if (settings->table + settings->calibrate + settings->smoke > 1 ||
        (settings->codec && (settings->table || settings->smoke)))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--table, --calibrate, --kv-codec and --smoke exclude each other");
    if (settings->weights && settings->smoke)
        return kvr_error_set(error, KVR_BAD_USAGE, "--smoke has weights of its own");
    if (settings->weights && strcmp(backend, "cpu") != 0 && strcmp(backend, "auto") != 0)
        return kvr_error_set(error, KVR_BAD_USAGE, "--weights is for --backend cpu");
    if (settings->top > TOP_MOST)
        return kvr_error_set(error, KVR_BAD_USAGE, "--top is at most %d", TOP_MOST);
    if (settings->top > 0 && (prefill_measures(settings) || strcmp(backend, "model") == 0))
        return kvr_error_set(
            error, KVR_BAD_USAGE, "--top is for request lines that a backend computes");
    if (settings->top > 0 && strcmp(settings->cached, "line") == 0)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "with --cached line nobody has computed the prefix: there is no next token for --top");
    if (settings->top > 0 && strcmp(settings->cached, "auto") == 0)
        settings->cached = "own";
    return KVR_OK;
}

enum kvr_status prefill_read_cost(struct prefill *prefill, struct kvr_error *error)
{
    const struct prefill_settings *settings = &prefill->settings;
    enum kvr_status status =
        kvr_cost_preset(&prefill->cost, NULL, settings->gpu, settings->mfu, error);

    /* tiny and 1b are no presets of kvr-cost(5): their shape tells. */
    const struct kvr_shape *shape = NULL;
    if (status == KVR_OK && !kvr_model_find(settings->model))
        status = kvr_shape_find(settings->model, &shape, error);
    if (status == KVR_OK && !shape)
        status = kvr_cost_settle(&prefill->cost, settings->model, settings->gpu, settings->mfu,
            settings->cost_file, error);
    else if (status == KVR_OK) {
        const struct kvr_gpu *gpu = kvr_gpu_find(settings->gpu);
        struct kvr_model model = kvr_shape_model(shape);
        status = gpu ? kvr_cost_compute(&prefill->cost, &model, gpu, 1, settings->mfu, error)
                     : kvr_error_set(error, KVR_BAD_USAGE, "model %s is for one GPU", shape->name);
    }
    if (status == KVR_OK && shape && settings->cost_file)
        status = kvr_cost_load(&prefill->cost, settings->cost_file, error);
    prefill->device = settings->cost_file ? settings->cost_file : settings->gpu;
    return status;
}

static enum kvr_status choose_backend(
    struct prefill *prefill, const char *name, struct kvr_error *error)
{
    const struct kvr_backend **backend = &prefill->bench.backend;

    *backend = &kvr_cpu_backend;
    if (strcmp(name, "cpu") == 0)
        return KVR_OK;
    enum kvr_status status = kvr_plugin_load(backend, error);
    if (status != KVR_UNSUPPORTED || strcmp(name, "auto") != 0)
        return status;
    tool_detail(&prefill->tool, "%s; the cpu backend is used", error->text);
    *backend = &kvr_cpu_backend;
    return KVR_OK;
}

/* The shape of a preset, or that of a model file with its weights. */
static enum kvr_status choose_model(struct prefill *prefill, struct kvr_error *error)
{
    const struct prefill_settings *settings = &prefill->settings;

    if (!settings->weights)
        return kvr_shape_find(settings->model, &prefill->bench.shape, error);
    enum kvr_status status = kvr_model_file_open(settings->weights, &prefill->file, error);
    if (status == KVR_OK)
        prefill->bench.shape = kvr_model_file_shape(prefill->file);
    return status;
}

enum kvr_status prefill_start(struct prefill *prefill, struct kvr_error *error)
{
    const struct prefill_settings *settings = &prefill->settings;
    struct kvr_bench *bench = &prefill->bench;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t threads =
        settings->threads ? settings->threads : (uint64_t)(processors > 0 ? processors : 1);
    uint64_t pages = 0;

    if (settings->page_size == 0 || settings->page_size > 1 << 20)
        return kvr_error_set(error, KVR_BAD_USAGE, "--page-size is out of range");
    if (settings->gpus == 0 || settings->gpus > GPUS_MOST)
        return kvr_error_set(error, KVR_BAD_USAGE, "--tp is out of range");
    if (threads > 1024 || settings->repeats == 0 || settings->repeats > 1000)
        return kvr_error_set(error, KVR_BAD_USAGE, "--threads or --repeats is out of range");
    enum kvr_status status = choose_model(prefill, error);
    if (status == KVR_OK)
        status = kvr_capacity_blocks(&settings->capacity, settings->page_size,
            kvr_shape_kv_bytes_per_token(bench->shape), &pages, error);
    if (status == KVR_OK && (pages == 0 || pages * settings->page_size > UINT32_MAX / 2))
        status = kvr_error_set(error, KVR_BAD_USAGE, "--capacity is out of range");
    if (status == KVR_OK)
        status = choose_backend(prefill, prefill->file ? "cpu" : settings->backend, error);
    if (status != KVR_OK)
        return status;
    if (bench->backend == &kvr_cpu_backend && (settings->gpus > 1 || settings->fp8))
        return kvr_error_set(error, KVR_BAD_USAGE, "--tp and --fp8 are for --backend cuda");
    bench->pages = (uint32_t)pages;
    bench->page_tokens = (uint32_t)settings->page_size;
    bench->repeats = (uint32_t)settings->repeats;
    bench->directory = settings->directory;
    bench->seed = settings->seed;
    struct kvr_backend_options options = {.shape = bench->shape,
        .seed = settings->seed,
        .page_tokens = bench->page_tokens,
        .pages = bench->pages,
        .threads = (uint32_t)threads,
        .device = prefill->device_number,
        .gpus = (uint32_t)settings->gpus,
        .fp8 = settings->fp8,
        .eager = settings->eager};
    status = prefill->file
                 ? kvr_cpu_create(&options, prefill->file, settings->top > 0, &bench->runner, error)
                 : bench->backend->create(&options, &bench->runner, error);
    if (status == KVR_OK && settings->top > 0) {
        prefill->logits = calloc(bench->shape->vocabulary, sizeof *prefill->logits);
        prefill->top = calloc(settings->top, sizeof *prefill->top);
        if (!prefill->logits || !prefill->top)
            status = kvr_error_memory(error);
    }
    if (status == KVR_OK) {
        prefill->device = bench->backend->device(bench->runner);
        bench->peak_flops = bench->backend->matrix_flops(bench->runner);
    }
    return status;
}
