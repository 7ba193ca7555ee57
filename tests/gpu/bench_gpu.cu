/*
 * The CUDA backend against its targets, on one GPU: a table of what was measured, the yardstick of
 * the same run, the share, the target. Times of kernels are those between two events on the stream,
 * the cache flushed before each, the median of several; times of prefills are the clock's.
 *
 * The yardsticks: bf16 is the rate of one large product by cuBLASLt (8192 rows and columns); copy
 * is a device-to-device copy of 1 GiB, every byte counted as read and written.
 *
 *   bench_gpu [--small | --probe]
 *       small: sizes for a processor in the place of a GPU, whose shares say nothing; it shows that
 *       the measuring works. probe: only whether there is a GPU. Status 4: there is none.
 */
#include "kernels/cuda_runner.h"

extern "C" {
extern const struct kvr_backend kvr_cuda_backend;
}

#include <time.h>

enum { RUNS = 9, FLUSH_BYTES = 256 << 20 };

struct bench {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    uint16_t *memory; /* for operands */
    size_t numbers;
    void *flush;
    size_t flush_bytes;
    double matrix_flops, copy_bytes_per_s;
    bool small, missed;
};

static void check(cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "bench_gpu: %s: %s\n", what, cudaGetErrorString(result));
    exit(3);
}

static void check_run(enum kvr_status status, const struct kvr_error *error)
{
    if (status == KVR_OK)
        return;
    fprintf(stderr, "bench_gpu: %s\n", error->text);
    exit(status == KVR_UNSUPPORTED ? 4 : 3);
}

/* One line. A target of 0 is none; `below`: the share should be at most the target. */
static void report(struct bench *bench, const char *what, double value, const char *unit,
    double share, const char *of, double target, bool below)
{
    const char *verdict = "";

    if (target > 0 && !bench->small)
        verdict = (below ? share <= target : share >= target) ? "met" : "MISSED";
    printf("%-44s %10.4g %-8s %7.3f of %-6s", what, value, unit, share, of);
    if (target > 0)
        printf("  target %s %.2f  %s", below ? "<=" : ">=", target, verdict);
    printf("\n");
    bench->missed |= *verdict == 'M';
}

static int by_size(const void *a, const void *b)
{
    float x = *static_cast<const float *>(a), y = *static_cast<const float *>(b);

    return (x > y) - (x < y);
}

/* Milliseconds of what `work` starts on the stream: the median. */
template <typename Work> static double time_work(struct bench *bench, Work work)
{
    float times[RUNS];

    work();
    for (int i = 0; i < RUNS; i++) {
        check(cudaMemsetAsync(bench->flush, i, bench->flush_bytes, bench->stream), "flush");
        check(cudaEventRecord(bench->begin, bench->stream), "event");
        work();
        check(cudaEventRecord(bench->end, bench->stream), "event");
        check(cudaStreamSynchronize(bench->stream), "kernel");
        check(cudaEventElapsedTime(&times[i], bench->begin, bench->end), "event");
    }
    check(cudaGetLastError(), "kernel");
    qsort(times, RUNS, sizeof *times, by_size);
    return static_cast<double>(times[RUNS / 2]);
}

static double now_ms()
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

static void bench_yardsticks(struct bench *bench)
{
    const uint32_t size = bench->small ? 64 : 8192;
    const size_t square = static_cast<size_t>(size) * size;
    const size_t bytes = bench->numbers / 2 * sizeof(uint16_t);
    struct kvr_cuda_gemm *gemm = kvr_cuda_gemm_create(bench->stream);
    uint16_t *data = bench->memory;

    if (!gemm)
        check(static_cast<cudaError_t>(1), "cuBLASLt");
    bool fine = true;
    double time = time_work(bench, [&]() {
        fine &= kvr_cuda_gemm(gemm, data + 2 * square, data, data + square, size, size, size);
    });
    kvr_cuda_gemm_destroy(gemm);
    if (!fine)
        check(static_cast<cudaError_t>(1), "cuBLASLt");
    bench->matrix_flops = 2.0 * static_cast<double>(square) * size / time * 1e3;
    report(bench, "bf16: a product of cuBLASLt", bench->matrix_flops / 1e12, "TFLOP/s", 1, "bf16",
        0, false);
    time = time_work(bench, [&]() {
        cudaMemcpyAsync(reinterpret_cast<char *>(data) + bytes, data, bytes,
            cudaMemcpyDeviceToDevice, bench->stream);
    });
    bench->copy_bytes_per_s = 2 * static_cast<double>(bytes) / time * 1e3;
    report(bench, "copy: in the device's memory", bench->copy_bytes_per_s / 1e9, "GB/s", 1, "copy",
        0, false);
}

/* A kernel that is bound by memory; bytes: all that it reads and writes. */
template <typename Work>
static void bench_bandwidth(struct bench *bench, const char *what, double bytes, Work work)
{
    double rate = bytes / time_work(bench, work) * 1e3;

    report(bench, what, rate / 1e9, "GB/s", rate / bench->copy_bytes_per_s, "copy", 0.85, false);
}

/* At the widths of Llama 3.1 8B. */
static void bench_kernels(struct bench *bench)
{
    const uint32_t rows = bench->small ? 32 : 8192, hidden = bench->small ? 128 : 4096;
    const uint32_t inner = bench->small ? 256 : 14336, dim = 64u << !bench->small;
    const uint32_t heads = hidden / dim, kv_heads = heads >= 32 ? 8 : 1, page = 16;
    const uint32_t width = hidden + 2 * kv_heads * dim;
    const double hidden_bytes = 2.0 * rows * hidden, inner_bytes = 2.0 * rows * inner;
    const double turned = 2.0 * rows * (heads + kv_heads) * dim,
                 kv = 2.0 * rows * 2 * kv_heads * dim;
    uint16_t *a = bench->memory, *b = a + static_cast<size_t>(rows) * 2 * inner;
    uint16_t *c = b + static_cast<size_t>(rows) * inner;
    uint32_t *numbers = nullptr, *host = static_cast<uint32_t *>(calloc(rows, sizeof *host));
    float *turns = nullptr;
    cudaStream_t stream = bench->stream;

    check(cudaMalloc(&numbers, rows * sizeof *numbers), "memory");
    check(cudaMalloc(&turns, static_cast<size_t>(rows) * dim * sizeof *turns), "memory");
    if (!host)
        exit(3);
    for (uint32_t i = 0; i < rows;
         i++) /* pages in another order; 7 and their number share no factor */
        host[i] = i / page * 7 % (rows / page) * page + i % page;
    check(cudaMemcpyAsync(numbers, host, rows * sizeof *host, cudaMemcpyHostToDevice, stream),
        "copy");
    check(
        cudaMemsetAsync(turns, 0, static_cast<size_t>(rows) * dim * sizeof *turns, stream), "set");
    bench_bandwidth(bench, "RMSNorm with an update", 4 * hidden_bytes,
        [&]() { kvr_cuda_rms_norm(stream, a, b, c, c, rows, hidden, 1, hidden, 1e-5f); });
    bench_bandwidth(bench, "RoPE", 2 * turned + 4.0 * rows * dim,
        [&]() { kvr_cuda_rope(stream, a, width, turns, numbers, rows, heads + kv_heads, dim); });
    bench_bandwidth(
        bench, "SwiGLU", 3 * inner_bytes, [&]() { kvr_cuda_swiglu(stream, b, a, rows, inner); });
    struct kvr_cuda_kv pool = {c, kv_heads, dim, page};
    bench_bandwidth(bench, "KV write", 2 * kv, [&]() {
        kvr_cuda_kv_write(
            stream, &pool, numbers, a + hidden, a + hidden + kv_heads * dim, width, rows);
    });
    cudaFree(numbers);
    cudaFree(turns);
    free(host);
}

/* Causal, 32 heads of 128 over 8 key heads; what is not seen is not counted. */
static void bench_attention(struct bench *bench, uint32_t tokens, double target)
{
    const uint32_t dim = 64u << !bench->small, heads = bench->small ? 2 : 32, page = 16;
    const uint32_t kv_heads = bench->small ? 1 : 8, pages = tokens / page;
    const uint32_t width = (heads + 2 * kv_heads) * dim;
    struct kvr_cuda_kv kv = {bench->memory, kv_heads, dim, page};
    uint16_t *queries = kv.layer + static_cast<size_t>(tokens) * 2 * kv_heads * dim;
    uint16_t *out = queries + static_cast<size_t>(tokens) * width;
    const struct kvr_cuda_part host_part = {0, tokens, 0, 0};
    struct kvr_cuda_part *part = nullptr;
    uint32_t *table = nullptr, *host = static_cast<uint32_t *>(calloc(pages, sizeof *host));
    bool fine = true;
    char what[64];

    check(cudaMalloc(&table, pages * sizeof *table), "memory");
    check(cudaMalloc(&part, sizeof *part), "memory");
    if (!host)
        exit(3);
    for (uint32_t i = 0; i < pages; i++) /* 7 shares no factor with a power of two */
        host[i] = static_cast<uint32_t>(static_cast<uint64_t>(i) * 7 % pages);
    check(cudaMemcpyAsync(table, host, pages * sizeof *host, cudaMemcpyHostToDevice, bench->stream),
        "copy");
    check(cudaMemcpyAsync(part, &host_part, sizeof *part, cudaMemcpyHostToDevice, bench->stream),
        "copy");
    double time = time_work(bench, [&]() {
        fine &= kvr_cuda_attention(
            bench->stream, out, queries, width, &kv, table, part, 1, tokens, heads);
    });
    double rate = 2.0 * tokens * (tokens + 1.0) * heads * dim / time * 1e3;
    if (!fine)
        check(static_cast<cudaError_t>(1), "attention");
    snprintf(what, sizeof what, "attention, %u tokens, %u heads of %u", tokens, heads, dim);
    report(bench, what, rate / 1e12, "TFLOP/s", rate / bench->matrix_flops, "bf16", target, false);
    cudaFree(table);
    cudaFree(part);
    free(host);
}

static struct kvr_runner *start(
    const struct kvr_shape *shape, uint32_t tokens, bool eager, bool fp8)
{
    struct kvr_backend_options options = {};
    struct kvr_runner *runner = nullptr;
    struct kvr_error error = {};

    options.shape = shape, options.seed = 1, options.page_tokens = 16;
    options.pages = tokens / 16 + 1, options.eager = eager, options.fp8 = fp8;
    check_run(kvr_cuda_backend.create(&options, &runner, &error), &error);
    return runner;
}

/* The best of several, the clock started before the call and stopped when the logits are there. */
static double time_prefill(struct kvr_runner *runner, uint32_t count, uint32_t first)
{
    uint32_t *tokens = static_cast<uint32_t *>(calloc(count, sizeof *tokens));
    uint32_t *table = static_cast<uint32_t *>(calloc(runner->pages, sizeof *table));
    float *logits = static_cast<float *>(calloc(runner->shape.vocabulary, sizeof *logits));
    struct kvr_error error = {};
    double best = 0;

    if (!tokens || !table || !logits)
        exit(3);
    for (uint32_t i = 0; i < runner->pages; i++)
        table[i] = i;
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = i * 7 % runner->shape.vocabulary;
    const struct kvr_step step = {tokens, count, first, table, logits};
    for (int run = 0; run < 6; run++) { /* the first ones make plans and graphs */
        double begin = now_ms();
        check_run(kvr_cuda_backend.run(runner, &step, 1, &error), &error);
        double time = now_ms() - begin;
        best = run == 2 || (run > 2 && time < best) ? time : best;
    }
    free(tokens);
    free(table);
    free(logits);
    return best;
}

/* FLOP of a prefill from nothing: the layers' products, attention, the last logits. */
static double flops_of(const struct kvr_shape *shape, double n)
{
    double heads = static_cast<double>(shape->heads) * shape->head_dim;
    double kv_heads = static_cast<double>(shape->kv_heads) * shape->head_dim;
    double matrices = shape->hidden * (2 * heads + 2 * kv_heads + 3.0 * shape->inner);

    return shape->layers * (2 * matrices * n + 2 * heads * n * (n + 1)) +
           2.0 * shape->hidden * shape->vocabulary;
}

static void bench_prefill(
    struct bench *bench, const struct kvr_shape *shape, uint32_t tokens, double target, bool fp8)
{
    struct kvr_runner *runner = start(shape, tokens, false, fp8);
    double time = time_prefill(runner, tokens, 0), rate = flops_of(shape, tokens) / time * 1e3;
    char what[80];

    kvr_cuda_backend.destroy(runner);
    snprintf(what, sizeof what, "prefill %s%s, %u layers, %u tokens", shape->name,
        fp8 ? " in 8 bits" : "", shape->layers, tokens);
    report(bench, what, rate / 1e12, "TFLOP/s", rate / bench->matrix_flops, "bf16", target, false);
}

/*
 * What starting kernels adds to a prefill of 16 tokens: the time of one by the clock, less what the
 * GPU needs for it when many are queued behind each other, over the former.
 */
static void bench_launches(struct bench *bench, const struct kvr_shape *shape, bool eager)
{
    enum { QUEUED = 20 };
    const uint32_t first = bench->small ? 16 : 2048;
    struct kvr_runner *runner = start(shape, first + 32, eager, false);
    const struct kvr_cuda_size size = {16, 1, 16, 1};
    cudaStream_t stream = runner->ranks[0].stream;
    double wall = time_prefill(runner, 16, first);
    float busy = 0;

    check(cudaEventRecord(bench->begin, stream), "event");
    for (int i = 0; i < QUEUED; i++) {
        if (eager)
            kvr_cuda_walk(runner, &size);
        else
            kvr_cuda_walk_graph(runner, &size);
    }
    check(cudaEventRecord(bench->end, stream), "event");
    check(cudaStreamSynchronize(stream), "prefill");
    check(cudaEventElapsedTime(&busy, bench->begin, bench->end), "event");
    kvr_cuda_backend.destroy(runner);
    busy /= QUEUED;
    report(bench,
        eager ? "16 tokens, kernels one by one: overhead" : "16 tokens, one graph: overhead", wall,
        "ms", (wall - static_cast<double>(busy)) / wall, "time", eager ? 0 : 0.05, true);
}

static void bench_all(struct bench *bench)
{
    struct kvr_shape b8 = {
        "llama-3.1-8b", 128256, 4096, 32, 32, 8, 128, 14336, false, false, 500000, 1e-5f};
    struct kvr_shape b70 = {
        "llama-3.1-70b", 128256, 8192, 8, 64, 8, 128, 28672, false, false, 500000, 1e-5f};
    const struct kvr_shape tiny = {"tiny", 100, 128, 2, 2, 1, 64, 256, true, false, 1e4, 1e-5f};

    if (bench->small)
        b8 = b70 = tiny;
    bench_yardsticks(bench);
    bench_kernels(bench);
    bench_attention(bench, bench->small ? 64 : 4096, 0.55);
    bench_attention(bench, bench->small ? 128 : 16384, 0.65);
    bench_prefill(bench, &b8, bench->small ? 48 : 4096, 0.60, false);
    bench_prefill(bench, &b8, bench->small ? 80 : 16384, 0.60, false);
    bench_prefill(bench, &b70, bench->small ? 48 : 4096, 0.70, false);
    bench_prefill(bench, &b8, bench->small ? 48 : 4096, 0, true);
    bench_launches(bench, &b8, false);
    bench_launches(bench, &b8, true);
}

int main(int argc, char **argv)
{
    struct bench bench = {};
    struct cudaDeviceProp properties;
    int devices = 0;

    bench.small = argc > 1 && strcmp(argv[1], "--small") == 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        fprintf(stderr, "bench_gpu: no GPU\n");
        return 4;
    }
    check(cudaGetDeviceProperties(&properties, 0), "device");
    printf("%s\n", properties.name);
    if (argc > 1 && strcmp(argv[1], "--probe") == 0)
        return 0;
    bench.numbers = static_cast<size_t>(bench.small ? 1 << 20 : 1 << 30);
    bench.flush_bytes = static_cast<size_t>(bench.small ? 4096 : static_cast<int>(FLUSH_BYTES));
    check(cudaStreamCreate(&bench.stream), "stream");
    check(cudaEventCreate(&bench.begin), "event");
    check(cudaEventCreate(&bench.end), "event");
    check(cudaMalloc(&bench.memory, bench.numbers * sizeof *bench.memory), "memory");
    check(cudaMalloc(&bench.flush, bench.flush_bytes), "memory");
    check(cudaMemsetAsync(bench.memory, 0x3c, bench.numbers * sizeof *bench.memory, bench.stream),
        "set");
    bench_all(&bench);
    cudaEventDestroy(bench.begin);
    cudaEventDestroy(bench.end);
    cudaFree(bench.memory);
    cudaFree(bench.flush);
    cudaStreamDestroy(bench.stream);
    printf("%s\n", bench.missed ? "some targets were missed" : "done");
    return 0;
}
