#include "kernels/smoke.h"
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void kvr_smoke_check(struct kvr_smoke *smoke, bool passes, const char *name, double value,
    const char *unit, const char *remark)
{
    char number[64] = "", full[96];

    if (smoke->tap && smoke->checks == 0)
        kvr_buffer_append_text(smoke->out, "TAP version 13\n");
    smoke->checks++;
    smoke->failed += !passes;
    if (!isnan(value))
        snprintf(number, sizeof number, "%.4g ", value);
    if (smoke->numbered)
        snprintf(full, sizeof full, "gpu %u %s", smoke->number, name);
    else
        snprintf(full, sizeof full, "%s", name);
    if (smoke->tap)
        kvr_buffer_append_format(smoke->out, "%s %u - %s: %s%s%s%s\n", passes ? "ok" : "not ok",
            smoke->checks, full, number, unit, *remark ? ", " : "", remark);
    else
        kvr_buffer_append_format(smoke->out, "%-4s  %-24s %12s%-10s %s\n", passes ? "pass" : "FAIL",
            full, number, unit, remark);
}

struct trial {
    uint32_t tokens[64], count, half;
    uint32_t table[64];
    float *first, *second;
    size_t bytes;
};

static enum kvr_status prefill(const struct kvr_bench *bench, const struct trial *trial,
    uint32_t cached, float *logits, struct kvr_error *error)
{
    struct kvr_step steps[] = {{trial->tokens, cached, 0, trial->table, NULL},
        {trial->tokens + cached, trial->count - cached, cached, trial->table, logits}};
    enum kvr_status status = KVR_OK;

    if (cached > 0)
        status = bench->backend->run(bench->runner, &steps[0], 1, error);
    if (status == KVR_OK)
        status = bench->backend->run(bench->runner, &steps[1], 1, error);
    return status;
}

/* The same on the processor, with the same weights, into trial->second. */
static enum kvr_status prefill_on_cpu(
    const struct kvr_bench *bench, const struct trial *trial, struct kvr_error *error)
{
    struct kvr_backend_options options = {.shape = bench->shape,
        .seed = bench->seed,
        .page_tokens = bench->page_tokens,
        .pages = bench->pages,
        .threads = 1};
    struct kvr_bench cpu = {.backend = &kvr_cpu_backend};

    enum kvr_status status = kvr_cpu_backend.create(&options, &cpu.runner, error);
    if (status == KVR_OK) {
        status = prefill(&cpu, trial, 0, trial->second, error);
        kvr_cpu_backend.destroy(cpu.runner);
    }
    return status;
}

/* Compares the second logits with the first: bound 0 asks for the same bits. */
static void near(struct kvr_smoke *smoke, const struct trial *trial, const char *name, double bound,
    const char *remark)
{
    double difference = 0, size = 0;

    if (!(bound > 0)) {
        kvr_smoke_check(smoke, memcmp(trial->first, trial->second, trial->bytes) == 0, name, NAN,
            "bits", remark);
        return;
    }
    for (size_t i = 0; i < trial->bytes / sizeof(float); i++) {
        double a = (double)trial->first[i], b = (double)trial->second[i];
        difference += (a - b) * (a - b);
        size += a * a;
    }
    double error = sqrt(difference / size);
    kvr_smoke_check(smoke, error <= bound, name, error, "error", remark);
}

static enum kvr_status compare(struct kvr_smoke *smoke, const struct kvr_bench *bench,
    struct trial *trial, double seconds, struct kvr_error *error)
{
    double begun = kvr_clock_ms(), slowest = 0, fastest = INFINITY;
    uint64_t runs = 0, changed = 0;

    enum kvr_status status = prefill(bench, trial, 0, trial->first, error);
    if (status == KVR_OK)
        status = prefill(bench, trial, 0, trial->second, error);
    if (status != KVR_OK)
        return status;
    kvr_smoke_check(smoke, memcmp(trial->first, trial->second, trial->bytes) == 0, "repeatability",
        NAN, "bits", "the same prefill twice");
    status = prefill(bench, trial, trial->half, trial->second, error);
    if (status != KVR_OK)
        return status;
    near(smoke, trial, "cached prefix", bench->backend->bound,
        "logits with a cached prefix and without");
    if (bench->backend != &kvr_cpu_backend && kvr_shape_parameters(bench->shape) < 1e8) {
        status = prefill_on_cpu(bench, trial, error);
        if (status != KVR_OK)
            return status;
        near(smoke, trial, "against the processor", 3e-2, "logits");
    }
    for (double now = begun; seconds > 0 && now - begun < seconds * 1e3; runs++) {
        status = prefill(bench, trial, 0, trial->second, error);
        if (status != KVR_OK)
            return status;
        double taken = kvr_clock_ms() - now;
        slowest = fmax(slowest, taken);
        fastest = fmin(fastest, taken);
        changed += memcmp(trial->first, trial->second, trial->bytes) != 0;
        now += taken;
    }
    if (runs > 0) {
        char remark[96];
        snprintf(remark, sizeof remark, "%llu prefills, slowest %.2f times the fastest",
            (unsigned long long)runs, slowest / fastest);
        kvr_smoke_check(smoke, changed == 0, "sustained load", (double)changed, "changed", remark);
    }
    return KVR_OK;
}

/* Bytes a second that a PCIe link of this generation and width carries one way; 0: unknown. */
static double link_bytes_per_s(const struct kvr_gpu_state *gpu)
{
    static const double lane[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};

    return gpu && gpu->link_generation < sizeof lane / sizeof *lane
               ? lane[gpu->link_generation] * gpu->link_width
               : 0;
}

static double memory_bytes_per_s(const struct kvr_gpu_state *gpu)
{
    for (size_t i = 0; gpu && i < kvr_gpu_count; i++)
        if (strcasestr(gpu->name, kvr_gpus[i].name))
            return kvr_gpus[i].memory_bytes_per_s;
    return 0;
}

static void check_rate(
    struct kvr_smoke *smoke, const char *name, double rate, double made_for, const char *of)
{
    char remark[96] = "";

    if (made_for > 0)
        snprintf(remark, sizeof remark, "at least half of %s's %.4g expected", of, made_for / 1e9);
    kvr_smoke_check(smoke, rate > 0 && rate >= made_for / 2, name, rate / 1e9, "GB/s", remark);
}

static enum kvr_status check_copies(struct kvr_smoke *smoke, const struct kvr_bench *bench,
    const struct kvr_gpu_state *gpu, struct kvr_error *error)
{
    struct kvr_copy_rates rates = {0};
    enum kvr_status status = KVR_OK;

    double copy = kvr_measure_copy();
    kvr_smoke_check(smoke, copy > 0, "host memory copy", copy / 1e9, "GB/s", "");
    if (bench->backend == &kvr_cpu_backend)
        return KVR_OK;
    status = bench->backend->copy_rates(bench->runner, &rates, error);
    if (status != KVR_OK)
        return status;
    check_rate(smoke, "copy to gpu", rates.from_host, link_bytes_per_s(gpu), "the link");
    check_rate(smoke, "copy from gpu", rates.to_host, link_bytes_per_s(gpu), "the link");
    /* every byte is read and written */
    check_rate(smoke, "gpu memory", 2 * rates.on_device, memory_bytes_per_s(gpu), "the memory");
    return KVR_OK;
}

enum kvr_status kvr_smoke_compute(struct kvr_smoke *smoke, const struct kvr_bench *bench,
    const struct kvr_gpu_state *gpu, double expected_flops, double seconds, struct kvr_error *error)
{
    struct trial trial = {.bytes = bench->shape->vocabulary * sizeof(float)};
    uint64_t room = (uint64_t)bench->pages * bench->page_tokens;
    char remark[64] = "";

    if (room < 4)
        return kvr_error_set(error, KVR_BAD_USAGE, "the KV cache is too small for a smoke test");
    if (expected_flops > 0)
        snprintf(remark, sizeof remark, "%.4g expected", expected_flops / 1e12);
    kvr_smoke_check(smoke, bench->peak_flops > 0 && bench->peak_flops >= expected_flops,
        "matrix product", bench->peak_flops / 1e12, "TFLOP/s", remark);
    enum kvr_status status = check_copies(smoke, bench, gpu, error);
    if (status != KVR_OK)
        return status;
    trial.count = room < 64 ? (uint32_t)room : 64;
    trial.half = trial.count / 2 + 1;
    for (uint32_t i = 0; i < trial.count; i++) {
        trial.tokens[i] = i * 31 % bench->shape->vocabulary;
        trial.table[i] = i % bench->pages;
    }
    trial.first = calloc(1, trial.bytes);
    trial.second = calloc(1, trial.bytes);
    status = trial.first && trial.second ? compare(smoke, bench, &trial, seconds, error)
                                         : kvr_error_memory(error);
    free(trial.first);
    free(trial.second);
    return status;
}

void kvr_smoke_end(struct kvr_smoke *smoke)
{
    if (smoke->tap)
        kvr_buffer_append_format(smoke->out, "1..%u\n", smoke->checks);
    else
        kvr_buffer_append_format(
            smoke->out, "%u of %u checks failed\n", smoke->failed, smoke->checks);
}
