/*
 * kvr-prefill: runs the prefill of each request line and adds `prefill`; or measures the machine.
 * The work is done in kernels/; here are the options, what a line asks for, and what is written.
 */
#include "base/clock.h"
#include "base/grow.h"
#include "base/random.h"
#include "cache/request_line.h"
#include "cmd/prefill_options.h"
#include "kernels/likely.h"
#include "kernels/line_cached.h"
#include "kernels/measure_codec.h"
#include "kernels/model_file.h"
#include "kernels/plugin.h"
#include "kernels/prefix_store.h"
#include "kernels/smoke.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { GPUS_MOST = 64, TOP_MOST = 1000 };

struct prefill {
    struct tool tool;
    struct settings settings;
    struct kvr_bench bench; /* bench.runner is NULL with --backend model */
    struct kvr_cost cost;
    struct kvr_prefix_store *store;
    struct kvr_request_reader reader;
    struct kvr_model_file *file; /* NULL: random weights */
    const char *device;
    uint32_t device_number; /* of the GPU */
    float *logits;          /* of the last token; NULL without --top */
    struct kvr_likely *top;
    uint32_t *tokens;
    size_t token_size;
    uint64_t *given;
    size_t given_size;
    uint32_t block_tokens; /* of the store */
};

/* What a line asks for. */
struct work {
    struct kvr_request_view view;
    uint64_t tokens, said; /* prompt; cached as the line says */
    bool says;
};

static enum kvr_status read_cost(struct prefill *prefill, struct kvr_error *error)
{
    const struct settings *settings = &prefill->settings;
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
    const struct settings *settings = &prefill->settings;

    if (!settings->weights)
        return kvr_shape_find(settings->model, &prefill->bench.shape, error);
    enum kvr_status status = kvr_model_file_open(settings->weights, &prefill->file, error);
    if (status == KVR_OK)
        prefill->bench.shape = kvr_model_file_shape(prefill->file);
    return status;
}

static enum kvr_status start_runner(struct prefill *prefill, struct kvr_error *error)
{
    const struct settings *settings = &prefill->settings;
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

static enum kvr_status read_work(
    struct prefill *prefill, struct work *work, struct kvr_error *error)
{
    const struct kvr_line *line = &prefill->tool.line;
    const char *cached = prefill->settings.cached;
    enum kvr_status status = kvr_request_read(&prefill->reader, line, &work->view, error);

    if (status == KVR_OK && (cached[0] == 'a' || cached[0] == 'l'))
        status = kvr_line_cached(line, &work->says, &work->said, error);
    if (status != KVR_OK)
        return status;
    work->tokens = work->view.request.input_tokens;
    struct kvr_value ids = kvr_line_get(line, KVR_NAME_TOKEN_IDS);
    if (ids.type != KVR_ABSENT && ids.type != KVR_NULL) {
        uint64_t *given =
            kvr_grow(prefill->given, &prefill->given_size, kvr_value_u64s_room(ids), sizeof *given);
        if (!given)
            return kvr_error_memory(error);
        prefill->given = given;
        ptrdiff_t count = ids.type == KVR_ARRAY ? kvr_value_u64s(ids, given) : -1;
        if (count < 0)
            return kvr_error_set(error, KVR_BAD_INPUT, "'token_ids' is not a list of tokens");
        work->tokens = (uint64_t)count;
    }
    if (work->tokens == 0)
        return kvr_error_set(error, KVR_BAD_INPUT, "the prompt has no tokens: no input_length");
    if (work->said >= work->tokens)
        work->said = work->tokens - 1;
    return KVR_OK;
}

/* The prompt: token_ids (modulo the vocabulary where the weights are random), else tokens drawn
 * from the block's id, so that equal blocks have equal tokens. */
static enum kvr_status fill_tokens(
    struct prefill *prefill, const struct work *work, struct kvr_error *error)
{
    const struct kvr_cache_request *request = &work->view.request;
    uint32_t vocabulary = prefill->bench.shape->vocabulary;
    bool given = kvr_line_get(&prefill->tool.line, KVR_NAME_TOKEN_IDS).type == KVR_ARRAY;
    uint32_t *tokens =
        kvr_grow(prefill->tokens, &prefill->token_size, work->tokens, sizeof *tokens);

    if (!tokens)
        return kvr_error_memory(error);
    prefill->tokens = tokens;
    for (uint64_t i = 0; i < work->tokens; i++) {
        uint64_t block = i / request->block_tokens;
        if (given && prefill->file && prefill->given[i] >= vocabulary)
            return kvr_error_set(error, KVR_BAD_INPUT,
                "token %llu is not in the model's vocabulary of %u",
                (unsigned long long)prefill->given[i], vocabulary);
        uint64_t id = block < request->id_count ? request->ids[block] : 0;
        tokens[i] = given ? (uint32_t)(prefill->given[i] % vocabulary)
                          : (uint32_t)(kvr_mix64(kvr_mix64(id) + i) % vocabulary);
    }
    return KVR_OK;
}

static enum kvr_status open_store(
    struct prefill *prefill, uint32_t block_tokens, struct kvr_error *error)
{
    const struct kvr_bench *bench = &prefill->bench;

    if (prefill->store && prefill->block_tokens != block_tokens)
        return kvr_error_set(error, KVR_BAD_INPUT,
            "block_size %u after %u: the KV cache has blocks of one size", block_tokens,
            prefill->block_tokens);
    if (prefill->store)
        return KVR_OK;
    prefill->block_tokens = block_tokens;
    enum kvr_status status = kvr_prefix_store_create(
        bench->pages, bench->page_tokens, block_tokens, &prefill->store, error);
    /* An impossible block size is the line's fault where the line says it. */
    bool line_says = block_tokens != prefill->settings.block_size;
    return status == KVR_BAD_USAGE && line_says ? error->status = KVR_BAD_INPUT : status;
}

static enum kvr_status run_line(struct prefill *prefill, const struct work *work, uint32_t *cached,
    double *time_ms, struct kvr_error *error)
{
    const struct kvr_cache_request *request = &work->view.request;
    const struct kvr_bench *bench = &prefill->bench;
    bool own =
        prefill->settings.cached[0] == 'o' || (prefill->settings.cached[0] == 'a' && !work->says);
    const uint32_t *table;

    /* The store names blocks when it gives them: whatever can be wrong with the line comes first.
     */
    if (work->tokens > (uint64_t)bench->pages * bench->page_tokens)
        return kvr_error_set(error, KVR_BAD_INPUT,
            "a prompt of %llu tokens does not fit into a KV cache of %llu",
            (unsigned long long)work->tokens,
            (unsigned long long)bench->pages * bench->page_tokens);
    enum kvr_status status = fill_tokens(prefill, work, error);
    if (status == KVR_OK)
        status = open_store(prefill, request->block_tokens, error);
    if (status == KVR_OK)
        status = kvr_prefix_store_take(prefill->store, request->ids, own ? request->id_count : 0,
            work->tokens, &table, cached, error);
    if (status != KVR_OK)
        return status;
    if (!own)
        *cached = (uint32_t)work->said;
    struct kvr_step step = {prefill->tokens + *cached, (uint32_t)(work->tokens - *cached), *cached,
        table, prefill->logits};
    tool_long_work(&prefill->tool, true);
    double start = kvr_clock_ms();
    status = bench->backend->run(bench->runner, &step, 1, error);
    *time_ms = kvr_clock_ms() - start;
    tool_long_work(&prefill->tool, false);
    return status;
}

static void write_top(struct prefill *prefill, size_t count)
{
    struct kvr_buffer *out = &prefill->tool.out.buffer;

    kvr_buffer_append_text(out, ",\"top\":[");
    for (size_t i = 0; i < count; i++) {
        kvr_buffer_append_format(
            out, "%s{\"id\":%u,\"logprob\":", i ? "," : "", prefill->top[i].token);
        kvr_json_write_fixed(out, prefill->top[i].log_probability, 6);
        kvr_buffer_append_byte(out, '}');
    }
    kvr_buffer_append_byte(out, ']');
}

/* flops: of the prefill where the shape is known, else 0. top: likeliest tokens found. */
static void write_prefill(struct prefill *prefill, double time_ms, uint64_t fresh, uint64_t cached,
    double flops, size_t top)
{
    static const enum kvr_name dropped[] = {KVR_NAME_PREFILL};
    struct kvr_buffer *out = &prefill->tool.out.buffer;
    bool runs = prefill->bench.runner != NULL;

    kvr_line_begin(&prefill->tool.line, out, dropped, 1);
    kvr_line_add(out, "prefill");
    kvr_buffer_append_text(out, "{\"ms\":");
    kvr_json_write_fixed(out, time_ms, 3);
    kvr_buffer_append_format(out, ",\"tokens\":%llu,\"cached\":%llu", (unsigned long long)fresh,
        (unsigned long long)cached);
    if (flops > 0) {
        kvr_buffer_append_text(out, ",\"tflops\":");
        kvr_json_write_fixed(out, flops / time_ms / 1e9, 4);
    }
    if (flops > 0 && prefill->bench.peak_flops > 0) {
        kvr_buffer_append_text(out, ",\"mfu\":");
        kvr_json_write_fixed(out, flops / time_ms * 1e3 / prefill->bench.peak_flops, 3);
    }
    kvr_buffer_append_format(
        out, ",\"backend\":\"%s\",\"device\":", runs ? prefill->bench.backend->name : "model");
    kvr_json_write_string(out, prefill->device, strlen(prefill->device));
    if (prefill->logits)
        write_top(prefill, top);
    kvr_buffer_append_byte(out, '}');
    kvr_line_end(out);
    kvr_writer_line_done(&prefill->tool.out);
}

static enum kvr_status prefill_line(struct prefill *prefill, struct kvr_error *error)
{
    struct work work = {0};
    uint32_t cached = 0;
    double time_ms = 0;
    size_t top = 0;

    enum kvr_status status = read_work(prefill, &work, error);
    if (status != KVR_OK)
        return status;
    if (prefill->bench.runner) {
        const struct kvr_shape *shape = prefill->bench.shape;
        status = run_line(prefill, &work, &cached, &time_ms, error);
        if (status == KVR_OK && prefill->logits &&
            !(top = kvr_likely_find(
                  prefill->logits, shape->vocabulary, prefill->top, prefill->settings.top)))
            status = kvr_error_set(error, KVR_BAD_INPUT, "the logits are not finite numbers");
        if (status == KVR_OK)
            write_prefill(prefill, time_ms, work.tokens - cached, cached,
                kvr_shape_flops(shape, (double)(work.tokens - cached), cached), top);
        return status;
    }
    uint64_t fresh = work.tokens - work.said;
    time_ms = kvr_cost_prefill_ms(&prefill->cost, (double)fresh, (double)work.said);
    write_prefill(prefill, time_ms, fresh, work.said, 0, 0);
    return KVR_OK;
}

/* A request that no worker got has no prefill. */
static bool rejected(const struct kvr_line *line)
{
    struct kvr_value route = kvr_line_get(line, KVR_NAME_ROUTE);

    return kvr_value_get(route, "worker").type == KVR_NULL;
}

static void prefill_lines(struct prefill *prefill)
{
    struct tool *tool = &prefill->tool;
    struct kvr_error error = {0};

    while (tool_next(tool) == TOOL_LINE) {
        if (kvr_line_is_event(&tool->line) || rejected(&tool->line)) {
            kvr_line_pass(&tool->line, &tool->out);
            continue;
        }
        enum kvr_status status = prefill_line(prefill, &error);
        if (status == KVR_BAD_INPUT) {
            tool_bad_line(tool, &error);
        } else if (status != KVR_OK) {
            tool_fail(tool, &error);
            break;
        }
    }
}

/* What one GPU computes, or the processor. A GPU that cannot be set up is a failed check. */
static enum kvr_status smoke_device(struct prefill *prefill, struct kvr_smoke *smoke,
    const struct kvr_gpu_state *gpu, struct kvr_error *error)
{
    const struct settings *settings = &prefill->settings;
    struct kvr_bench *bench = &prefill->bench;

    enum kvr_status status = start_runner(prefill, error);
    if (status == KVR_OK)
        status =
            kvr_smoke_compute(smoke, bench, gpu, settings->expect * 1e12, settings->seconds, error);
    if (bench->runner)
        bench->backend->destroy(bench->runner);
    bench->runner = NULL;
    if (gpu && (status == KVR_UNSUPPORTED || status == KVR_IO)) {
        kvr_smoke_check(smoke, false, "computing", NAN, "not to be had", error->text);
        status = KVR_OK;
    }
    return status;
}

/* The GPUs: what NVML says of each, what each computes, and what went wrong meanwhile. */
static enum kvr_status smoke_gpus(
    struct prefill *prefill, struct kvr_smoke *smoke, struct kvr_error *error)
{
    const bool all = prefill->settings.all_gpus;
    const struct kvr_backend *backend;
    struct kvr_gpu_state gpus[GPUS_MOST];
    struct kvr_nvml *nvml = NULL;
    uint32_t count = 0;
    bool watched = false;

    enum kvr_status status = kvr_nvml_open(&nvml, &count, error);
    if (status != KVR_OK)
        return status;
    count = all ? (count < GPUS_MOST ? count : (uint32_t)GPUS_MOST) : 1;
    for (uint32_t i = 0; i < count; i++) {
        watched |= kvr_nvml_watch(nvml, i);
        kvr_nvml_read(nvml, i, &gpus[i]);
        kvr_smoke_gpu(smoke, &gpus[i], i);
    }
    prefill->settings.backend = "cuda";
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0); /* which is NVML's */
    status = kvr_plugin_load(&backend, error);
    for (uint32_t i = 0; status == KVR_OK && i < count; i++) {
        smoke->numbered = all;
        smoke->number = prefill->device_number = i;
        if (!gpus[i].lost)
            status = smoke_device(prefill, smoke, &gpus[i], error);
    }
    if (status == KVR_OK && watched)
        kvr_smoke_xids(smoke, nvml);
    kvr_nvml_close(nvml);
    return status;
}

static enum kvr_status run_smoke(struct prefill *prefill, struct kvr_error *error)
{
    struct kvr_smoke smoke = {.out = &prefill->tool.out.buffer, .tap = prefill->settings.tap};
    bool processor = strcmp(prefill->settings.backend, "cpu") == 0;

    enum kvr_status status =
        processor ? smoke_device(prefill, &smoke, NULL, error) : smoke_gpus(prefill, &smoke, error);
    if (smoke.checks > 0)
        kvr_smoke_end(&smoke);
    if (smoke.failed > 0)
        prefill->tool.status = 1;
    return status;
}

/* The token_ids of the inputs in a row, --tokens of them at most; numbers without any. */
static enum kvr_status read_prompt(
    struct prefill *prefill, uint32_t *count, struct kvr_error *error)
{
    uint32_t most = (uint32_t)prefill->settings.tokens;
    uint32_t *tokens = kvr_grow(prefill->tokens, &prefill->token_size, most, sizeof *tokens);

    if (!tokens)
        return kvr_error_memory(error);
    prefill->tokens = tokens;
    *count = prefill->tool.operand_count > 0 ? 0 : most;
    for (uint32_t i = 0; i < *count; i++)
        tokens[i] = (uint32_t)(kvr_mix64(i) % prefill->bench.shape->vocabulary);
    while (*count < most && tool_next(&prefill->tool) == TOOL_LINE) {
        struct kvr_value ids = kvr_line_get(&prefill->tool.line, KVR_NAME_TOKEN_IDS);
        if (ids.type != KVR_ARRAY)
            continue;
        uint64_t *given =
            kvr_grow(prefill->given, &prefill->given_size, kvr_value_u64s_room(ids), sizeof *given);
        if (!given)
            return kvr_error_memory(error);
        prefill->given = given;
        ptrdiff_t found = kvr_value_u64s(ids, given);
        for (ptrdiff_t i = 0; i < found && *count < most; i++)
            tokens[(*count)++] = (uint32_t)(given[i] % prefill->bench.shape->vocabulary);
    }
    return *count >= 2 ? KVR_OK
                       : kvr_error_set(error, KVR_BAD_INPUT, "the files have no 'token_ids'");
}

/* Appends what the codec does, as an object. */
static enum kvr_status measure_codec(struct prefill *prefill, struct kvr_error *error)
{
    const struct kvr_codec_level *level;
    struct kvr_codec_measure measured;
    uint32_t count = 0;

    enum kvr_status status = kvr_codec_level_find(prefill->settings.codec, &level, error);
    if (status == KVR_OK)
        status = read_prompt(prefill, &count, error);
    if (status == KVR_OK)
        status =
            kvr_measure_codec(&prefill->bench, prefill->tokens, count, level, &measured, error);
    if (status == KVR_OK)
        kvr_codec_measure_write(&measured, level->name, &prefill->bench, &prefill->tool.out.buffer);
    return status;
}

/* A cost file, with what the codec does in its description where that is asked for. */
static enum kvr_status calibrate(struct prefill *prefill, struct kvr_error *error)
{
    static const char end[] = "}}\n";
    struct kvr_buffer *out = &prefill->tool.out.buffer;
    enum kvr_status status =
        kvr_measure_cost(&prefill->bench, (uint32_t)prefill->settings.tokens, out, error);

    if (status != KVR_OK || !prefill->settings.codec)
        return status;
    out->length -= sizeof end - 1;
    kvr_buffer_append_text(out, ",\"kv_codec\":");
    status = measure_codec(prefill, error);
    kvr_buffer_append_text(out, end);
    return status;
}

static enum kvr_status measure(struct prefill *prefill, struct kvr_error *error)
{
    const struct settings *settings = &prefill->settings;
    struct kvr_buffer *out = &prefill->tool.out.buffer;

    if (strcmp(settings->backend, "model") == 0)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--backend model measures nothing; kvr-route --explain-cost prints what it predicts");
    if (settings->smoke)
        return run_smoke(prefill, error);
    if (settings->tokens == 0 || settings->tokens > UINT32_MAX / 4)
        return kvr_error_set(error, KVR_BAD_USAGE, "--tokens is out of range");
    enum kvr_status status = start_runner(prefill, error);
    if (status == KVR_OK && settings->table)
        status = kvr_measure_table(&prefill->bench, (uint32_t)settings->tokens, out, error);
    if (status == KVR_OK && settings->calibrate)
        status = calibrate(prefill, error);
    if (status == KVR_OK && settings->codec && !settings->calibrate) {
        kvr_buffer_append_text(out, "{\"kv_codec\":");
        status = measure_codec(prefill, error);
        kvr_buffer_append_text(out, "}\n");
    }
    if (status != KVR_OK)
        kvr_buffer_clear(out);
    return status;
}

/* Whether it measures the machine instead of reading lines. */
static bool measures(const struct settings *settings)
{
    return settings->table || settings->calibrate || settings->codec || settings->smoke;
}

static enum kvr_status check_options(struct settings *settings, struct kvr_error *error)
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
    if (settings->top > 0 && (measures(settings) || strcmp(backend, "model") == 0))
        return kvr_error_set(
            error, KVR_BAD_USAGE, "--top is for request lines that a backend computes");
    if (settings->top > 0 && strcmp(settings->cached, "line") == 0)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "with --cached line nobody has computed the prefix: there is no next token for --top");
    if (settings->top > 0 && strcmp(settings->cached, "auto") == 0)
        settings->cached = "own";
    return KVR_OK;
}

static int prefill_main(struct prefill *prefill)
{
    const struct settings *settings = &prefill->settings;
    struct kvr_error error = {0};
    enum kvr_status status = check_options(&prefill->settings, &error);

    if (status == KVR_OK && measures(settings)) {
        tool_long_work(&prefill->tool, true);
        status = measure(prefill, &error);
        tool_long_work(&prefill->tool, false);
        prefill->tool.out.whole = prefill->tool.out.buffer.length;
    } else if (status == KVR_OK) {
        prefill->reader.block_tokens = (uint32_t)settings->block_size;
        status = strcmp(settings->backend, "model") == 0 ? read_cost(prefill, &error)
                                                         : start_runner(prefill, &error);
        if (status == KVR_OK)
            prefill_lines(prefill);
    }
    if (status != KVR_OK)
        tool_fail(&prefill->tool, &error);
    if (prefill->bench.runner)
        prefill->bench.backend->destroy(prefill->bench.runner);
    kvr_prefix_store_destroy(prefill->store);
    kvr_request_reader_release(&prefill->reader);
    kvr_model_file_close(prefill->file);
    free(prefill->logits);
    free(prefill->top);
    free(prefill->tokens);
    free(prefill->given);
    return tool_end(&prefill->tool);
}

int main(int argc, char **argv)
{
    static struct prefill prefill;
    const struct kvr_option_group groups[] = {{"Prefill", run_options, &prefill.settings},
        {"Measuring", measure_options, &prefill.settings},
        {"Cost model", cost_options, &prefill.settings}, {0}};

    int begun = tool_begin(&prefill.tool, &program, groups, argc, argv);
    return begun >= 0 ? begun : prefill_main(&prefill);
}
