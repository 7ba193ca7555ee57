/*
 * The CUDA backend: cpu.c's walk through the layers, on a stream. Matrix products are cuBLAS's in
 * bfloat16 with sums in float; everything between them is our kernels'. Up to 2,048 rows of any
 * sequences go through all layers at a time. Weights and rotations are computed on the device or
 * sent once; a step sends tokens, positions, slots and page tables, and gets back logits.
 *
 * Stands alone as a plug-in: it uses nothing of the library but its types.
 */
#include "kernels/cuda_runner.h"

extern "C" {
#include "kernels/weight.h"
}

#include <math.h>
#include <time.h>

/* Weights in the order of their places; while data is NULL only sizes are counted. */
struct plan {
    struct kvr_runner *runner;
    uint16_t *data;
    size_t used;
    uint64_t seed;
};

static uint16_t *place(struct plan *plan, enum kvr_weight_kind kind, uint32_t layer, size_t outputs,
    size_t k, bool norm)
{
    struct kvr_weight_stream stream =
        kvr_weight_stream(plan->seed, kind, layer, static_cast<uint32_t>(k));
    uint16_t *tensor = plan->data ? plan->data + plan->used : nullptr;

    plan->used += (outputs * k + 7) / 8 * 8;
    if (tensor)
        kvr_cuda_weights(
            plan->runner->stream, tensor, stream.key, stream.scale, norm, 0, outputs * k);
    return tensor;
}

static void place_all(struct plan *plan)
{
    struct kvr_runner *runner = plan->runner;
    const struct kvr_shape *shape = &runner->shape;
    size_t heads = static_cast<size_t>(shape->heads) * shape->head_dim, hidden = shape->hidden;
    size_t kv_heads = static_cast<size_t>(shape->kv_heads) * shape->head_dim;
    size_t inner = shape->inner;

    runner->embedding = place(plan, KVR_WEIGHT_EMBEDDING, 0, shape->vocabulary, hidden, false);
    runner->logits_table =
        shape->tied ? runner->embedding
                    : place(plan, KVR_WEIGHT_LOGITS, 0, shape->vocabulary, hidden, false);
    runner->final_norm = place(plan, KVR_WEIGHT_FINAL_NORM, 0, hidden, 1, true);
    for (uint32_t i = 0; i < shape->layers; i++) {
        struct device_layer *layer = &runner->layers[i];
        layer->attention_norm = place(plan, KVR_WEIGHT_ATTENTION_NORM, i, hidden, 1, true);
        if (shape->head_norms) {
            layer->query_norm = place(plan, KVR_WEIGHT_QUERY_NORM, i, shape->head_dim, 1, true);
            layer->key_norm = place(plan, KVR_WEIGHT_KEY_NORM, i, shape->head_dim, 1, true);
        }
        layer->inner_norm = place(plan, KVR_WEIGHT_INNER_NORM, i, hidden, 1, true);
        layer->qkv = place(plan, KVR_WEIGHT_QKV, i, heads + 2 * kv_heads, hidden, false);
        layer->out = place(plan, KVR_WEIGHT_OUT, i, hidden, heads, false);
        layer->gate_up = place(plan, KVR_WEIGHT_GATE_UP, i, 2 * inner, hidden, false);
        layer->down = place(plan, KVR_WEIGHT_DOWN, i, hidden, inner, false);
    }
}

/* Cuts the work memory; with NULL only counts. All sizes are in two-byte numbers. */
static size_t cut_work(struct kvr_runner *runner, uint16_t *data)
{
    const struct kvr_shape *shape = &runner->shape;
    size_t heads = static_cast<size_t>(shape->heads) * shape->head_dim, used = 0;
    size_t qkv = heads + 2ul * shape->kv_heads * shape->head_dim;
    size_t positions = static_cast<size_t>(runner->pages) * runner->page_tokens;
    const struct {
        void *array;
        size_t size;
    } arrays[] = {
        {&runner->residual, static_cast<size_t>(CHUNK_ROWS) * shape->hidden},
        {&runner->normed, static_cast<size_t>(CHUNK_ROWS) * shape->hidden},
        {&runner->update, static_cast<size_t>(CHUNK_ROWS) * shape->hidden},
        {&runner->qkv, CHUNK_ROWS * qkv},
        {&runner->attended, CHUNK_ROWS * heads},
        {&runner->gate_up, 2ul * CHUNK_ROWS * shape->inner},
        {&runner->inner, static_cast<size_t>(CHUNK_ROWS) * shape->inner},
        {&runner->turns, 2 * positions * shape->head_dim},
        {&runner->logits, 2ul * LOGITS_ROWS * shape->vocabulary},
        {&runner->numbers, 2ul * 4 * CHUNK_ROWS},
        {&runner->parts, sizeof(struct kvr_cuda_part) / 2 * CHUNK_ROWS},
    };

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        uint16_t *place = data ? data + used : nullptr;
        memcpy(arrays[i].array, &place, sizeof place);
        used += (arrays[i].size + 127) / 128 * 128;
    }
    return used;
}

/* out[rows][outputs] = x[rows][k] · weights[outputs][k]ᵀ. */
static void gemm(struct kvr_runner *runner, uint16_t *out, const uint16_t *x,
    const uint16_t *weights, size_t outputs, size_t k)
{
    const float one = 1, zero = 0;
    const int m = static_cast<int>(outputs), n = static_cast<int>(runner->rows);
    const int depth = static_cast<int>(k);

    if (cublasGemmEx(runner->blas, CUBLAS_OP_T, CUBLAS_OP_N, m, n, depth, &one, weights,
            CUDA_R_16BF, depth, x, CUDA_R_16BF, depth, &zero, out, CUDA_R_16BF, m,
            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
        keep(runner, static_cast<cudaError_t>(1));
}

static void norm(struct kvr_runner *runner, const uint16_t *weight, const uint16_t *added)
{
    uint32_t hidden = runner->shape.hidden;

    kvr_cuda_rms_norm(runner->stream, runner->normed, runner->residual, added, weight, runner->rows,
        hidden, 1, hidden, runner->shape.norm_epsilon);
}

static void run_layer(struct kvr_runner *runner, uint32_t number, uint32_t most_count)
{
    const struct kvr_shape *shape = &runner->shape;
    const struct device_layer *layer = &runner->layers[number];
    uint32_t dim = shape->head_dim, heads = shape->heads * dim, kv_heads = shape->kv_heads * dim;
    uint32_t width = heads + 2 * kv_heads, rows = runner->rows;
    const uint32_t *positions = runner->numbers + CHUNK_ROWS, *slots = positions + CHUNK_ROWS;
    struct kvr_cuda_kv kv = {runner->kv + static_cast<size_t>(number) * runner->pages * 2 *
                                              kv_heads * runner->page_tokens,
        shape->kv_heads, dim, runner->page_tokens};

    norm(runner, layer->attention_norm, number > 0 ? runner->update : nullptr);
    gemm(runner, runner->qkv, runner->normed, layer->qkv, width, shape->hidden);
    if (shape->head_norms) {
        uint16_t *keys = runner->qkv + heads;
        kvr_cuda_rms_norm(runner->stream, runner->qkv, runner->qkv, nullptr, layer->query_norm,
            rows, width, shape->heads, dim, shape->norm_epsilon);
        kvr_cuda_rms_norm(runner->stream, keys, keys, nullptr, layer->key_norm, rows, width,
            shape->kv_heads, dim, shape->norm_epsilon);
    }
    kvr_cuda_rope(runner->stream, runner->qkv, width, runner->turns, positions, rows,
        shape->heads + shape->kv_heads, dim);
    kvr_cuda_kv_write(runner->stream, &kv, slots, runner->qkv + heads,
        runner->qkv + heads + kv_heads, width, rows);
    if (!kvr_cuda_attention(runner->stream, runner->attended, runner->qkv, width, &kv,
            runner->tables, runner->parts, runner->part_count, most_count, shape->heads))
        keep(runner, static_cast<cudaError_t>(1));
    gemm(runner, runner->update, runner->attended, layer->out, shape->hidden, heads);
    norm(runner, layer->inner_norm, runner->update);
    gemm(
        runner, runner->gate_up, runner->normed, layer->gate_up, 2ul * shape->inner, shape->hidden);
    kvr_cuda_swiglu(runner->stream, runner->inner, runner->gate_up, rows, shape->inner);
    gemm(runner, runner->update, runner->inner, layer->down, shape->hidden, shape->inner);
}

static void send(struct kvr_runner *runner, void *to, const void *from, size_t bytes)
{
    keep(runner, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, runner->stream));
}

/* Logits of the parts that end a step, LOGITS_ROWS at a time; their rows stand in numbers[3]. */
static void run_logits(struct kvr_runner *runner)
{
    uint32_t vocabulary = runner->shape.vocabulary, count = 0;
    const struct kvr_step *ending[CHUNK_ROWS];

    for (uint32_t i = 0; i < runner->part_count; i++) {
        const struct kvr_cuda_part *part = &runner->host_parts[i];
        if (part->first + part->count != runner->steps[i]->first + runner->steps[i]->count)
            continue;
        ending[count] = runner->steps[i];
        runner->host_numbers[3][count++] = part->row + part->count - 1;
    }
    send(runner, runner->numbers + 3 * CHUNK_ROWS, runner->host_numbers[3],
        count * sizeof(uint32_t));
    for (uint32_t at = 0; at < count; at += LOGITS_ROWS) {
        uint32_t now = count - at < LOGITS_ROWS ? count - at : static_cast<uint32_t>(LOGITS_ROWS);
        kvr_cuda_logits(runner->stream, runner->logits, runner->normed,
            runner->numbers + 3 * CHUNK_ROWS + at, now, runner->logits_table, vocabulary,
            runner->shape.hidden);
        for (uint32_t i = 0; i < now; i++)
            if (ending[at + i]->logits)
                keep(runner,
                    cudaMemcpyAsync(ending[at + i]->logits,
                        runner->logits + static_cast<size_t>(i) * vocabulary,
                        vocabulary * sizeof(float), cudaMemcpyDeviceToHost, runner->stream));
    }
}

static void run_chunk(struct kvr_runner *runner)
{
    uint32_t most_count = 0;

    for (uint32_t i = 0; i < runner->part_count; i++)
        if (runner->host_parts[i].count > most_count)
            most_count = runner->host_parts[i].count;
    if (runner->table_used > runner->table_room) {
        cudaFree(runner->tables);
        runner->tables = nullptr;
        runner->table_room = 0;
        keep(runner, cudaMalloc(&runner->tables, 2 * runner->table_used * sizeof(uint32_t)));
        if (runner->failure != cudaSuccess)
            return;
        runner->table_room = 2 * runner->table_used;
    }
    send(runner, runner->tables, runner->host_tables, runner->table_used * sizeof(uint32_t));
    send(
        runner, runner->parts, runner->host_parts, runner->part_count * sizeof *runner->host_parts);
    for (int i = 0; i < 3; i++)
        send(runner, runner->numbers + i * CHUNK_ROWS, runner->host_numbers[i],
            runner->rows * sizeof(uint32_t));
    kvr_cuda_embed(runner->stream, runner->residual, runner->embedding, runner->numbers,
        runner->rows, runner->shape.hidden);
    for (uint32_t layer = 0; layer < runner->shape.layers; layer++)
        run_layer(runner, layer, most_count);
    norm(runner, runner->final_norm, runner->update);
    run_logits(runner);
    keep(runner, cudaGetLastError());
    keep(runner, cudaStreamSynchronize(runner->stream));
    runner->rows = runner->part_count = 0;
    runner->table_used = 0;
}

/* Takes rows of a step into the chunk; 0 when memory is short. */
static uint32_t take(struct kvr_runner *runner, const struct kvr_step *step, uint32_t done)
{
    uint32_t count = step->count - done, room = CHUNK_ROWS - runner->rows;
    if (count > room)
        count = room;
    uint32_t first = step->first + done;
    size_t pages = (static_cast<size_t>(first) + count - 1) / runner->page_tokens + 1;

    if (runner->table_used + pages > runner->host_table_room) {
        size_t wanted = 2 * (runner->table_used + pages);
        void *grown = realloc(runner->host_tables, wanted * sizeof(uint32_t));
        if (!grown)
            return 0;
        runner->host_tables = static_cast<uint32_t *>(grown);
        runner->host_table_room = wanted;
    }
    memcpy(runner->host_tables + runner->table_used, step->page_table, pages * sizeof(uint32_t));
    runner->host_parts[runner->part_count] =
        kvr_cuda_part{runner->rows, count, first, static_cast<uint32_t>(runner->table_used)};
    runner->steps[runner->part_count++] = step;
    runner->table_used += pages;
    for (uint32_t i = 0; i < count; i++, runner->rows++) {
        uint32_t position = first + i;
        runner->host_numbers[0][runner->rows] = step->tokens[done + i];
        runner->host_numbers[1][runner->rows] = position;
        runner->host_numbers[2][runner->rows] =
            step->page_table[position / runner->page_tokens] * runner->page_tokens +
            position % runner->page_tokens;
    }
    return count;
}

static enum kvr_status check_step(
    const struct kvr_runner *runner, const struct kvr_step *step, struct kvr_error *error)
{
    uint64_t end = static_cast<uint64_t>(step->first) + step->count;
    uint64_t positions = static_cast<uint64_t>(runner->pages) * runner->page_tokens;

    if (step->count == 0 || end > positions)
        return fail(error, KVR_BAD_USAGE, "a step has no tokens, or more than the KV cache", "");
    for (uint32_t i = 0; i < step->count; i++)
        if (step->tokens[i] >= runner->shape.vocabulary)
            return fail(error, KVR_BAD_INPUT, "a token is not in the vocabulary", "");
    for (uint64_t i = 0; i < (end + runner->page_tokens - 1) / runner->page_tokens; i++)
        if (step->page_table[i] >= runner->pages)
            return fail(error, KVR_BAD_USAGE, "a page is not in the pool", "");
    return KVR_OK;
}

static enum kvr_status cuda_run(
    struct kvr_runner *runner, const struct kvr_step *steps, size_t count, struct kvr_error *error)
{
    for (size_t i = 0; i < count; i++) {
        enum kvr_status status = check_step(runner, &steps[i], error);
        if (status != KVR_OK)
            return status;
    }
    runner->rows = runner->part_count = 0;
    runner->table_used = 0;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t done = 0; done < steps[i].count;) {
            uint32_t taken = take(runner, &steps[i], done);
            if (taken == 0)
                return fail(error, KVR_NO_MEMORY, "out of memory", "");
            done += taken;
            if (runner->rows == CHUNK_ROWS)
                run_chunk(runner);
        }
    }
    if (runner->rows > 0)
        run_chunk(runner);
    if (runner->failure != cudaSuccess)
        return fail(error, KVR_IO, "the GPU failed", cudaGetErrorString(runner->failure));
    return KVR_OK;
}

static void cuda_destroy(struct kvr_runner *runner)
{
    if (!runner)
        return;
    if (runner->has_blas)
        cublasDestroy(runner->blas);
    cudaFree(runner->weights);
    cudaFree(runner->kv);
    cudaFree(runner->work);
    cudaFree(runner->tables);
    if (runner->stream)
        cudaStreamDestroy(runner->stream);
    free(runner->layers);
    free(runner->host_tables);
    free(runner);
}

/* Cosines and sines of all positions that the pool can hold, in double precision as the CPU's. */
static bool send_turns(struct kvr_runner *runner)
{
    size_t positions = static_cast<size_t>(runner->pages) * runner->page_tokens;
    size_t dim = runner->shape.head_dim;
    float *turns = static_cast<float *>(malloc(positions * dim * sizeof *turns));
    if (!turns)
        return false;
    for (size_t i = 0; i < dim / 2; i++) {
        double speed =
            pow(runner->shape.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
        for (size_t position = 0; position < positions; position++) {
            double angle = static_cast<double>(position) * speed;
            turns[position * dim + 2 * i] = static_cast<float>(cos(angle));
            turns[position * dim + 2 * i + 1] = static_cast<float>(sin(angle));
        }
    }
    send(runner, runner->turns, turns, positions * dim * sizeof *turns);
    keep(runner, cudaStreamSynchronize(runner->stream));
    free(turns);
    return true;
}

/* Memory and weights; false with runner->failure or when the host's memory is short. */
static bool fill(struct kvr_runner *runner, uint64_t seed, size_t weights, size_t kv, size_t work)
{
    struct plan plan = {runner, nullptr, 0, seed};

    keep(runner, cudaStreamCreate(&runner->stream));
    keep(runner, cudaMalloc(&runner->weights, weights * sizeof(uint16_t)));
    keep(runner, cudaMalloc(&runner->kv, kv * sizeof(uint16_t)));
    keep(runner, cudaMalloc(&runner->work, work * sizeof(uint16_t)));
    if (runner->failure != cudaSuccess)
        return false;
    runner->has_blas = cublasCreate(&runner->blas) == CUBLAS_STATUS_SUCCESS;
    if (!runner->has_blas || cublasSetStream(runner->blas, runner->stream) != CUBLAS_STATUS_SUCCESS)
        return false;
    cut_work(runner, runner->work);
    plan.data = runner->weights;
    place_all(&plan);
    keep(runner, cudaGetLastError());
    return send_turns(runner) && runner->failure == cudaSuccess;
}

static enum kvr_status cuda_create(
    const struct kvr_backend_options *options, struct kvr_runner **out, struct kvr_error *error)
{
    const struct kvr_shape *shape = options->shape;
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;

    if (options->page_tokens == 0 || shape->hidden % 8 || shape->inner % 8)
        return fail(error, KVR_BAD_USAGE, "a page has no tokens, or widths are odd", "");
    cudaError_t found = cudaGetDeviceProperties(&properties, 0);
    if (found == cudaSuccess)
        found = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (found != cudaSuccess)
        return fail(error, KVR_UNSUPPORTED, "no GPU", cudaGetErrorString(found));
    struct kvr_runner *runner = static_cast<struct kvr_runner *>(calloc(1, sizeof *runner));
    if (!runner)
        return fail(error, KVR_NO_MEMORY, "out of memory", "");
    runner->shape = *shape;
    runner->pages = options->pages;
    runner->page_tokens = options->page_tokens;
    runner->layers =
        static_cast<struct device_layer *>(calloc(shape->layers, sizeof *runner->layers));
    struct plan plan = {runner, nullptr, 0, options->seed};
    if (runner->layers)
        place_all(&plan);
    size_t kv = 2ul * shape->layers * options->pages * options->page_tokens * shape->kv_heads *
                shape->head_dim;
    size_t work = cut_work(runner, nullptr);
    double wanted =
        2 * (static_cast<double>(plan.used) + static_cast<double>(kv) + static_cast<double>(work));
    enum kvr_status status = KVR_OK;
    if (wanted > static_cast<double>(free_bytes)) {
        char detail[128];
        snprintf(detail, sizeof detail, "%.1f GiB of %.1f that are free", wanted / 0x1p30,
            static_cast<double>(free_bytes) / 0x1p30);
        status = fail(error, KVR_UNSUPPORTED, "the model and its KV cache take", detail);
    } else if (!runner->layers || !fill(runner, options->seed, plan.used, kv, work)) {
        status = fail(error, KVR_IO, "the GPU cannot be set up",
            runner->failure == cudaSuccess ? "" : cudaGetErrorString(runner->failure));
    }
    if (status != KVR_OK) {
        cuda_destroy(runner);
        return status;
    }
    snprintf(runner->device, sizeof runner->device, "%.120s", properties.name);
    *out = runner;
    return KVR_OK;
}

static double now_s()
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/* A product of 8192 rows and columns, or of 64 where the memory is short; the best of five pieces
 * of ten, after one that warms up. */
static double cuda_matrix_flops(struct kvr_runner *runner)
{
    const float one = 1, zero = 0;
    int size = 8192;
    uint16_t *data = nullptr;
    size_t free_bytes = 0, total = 0;
    double best = 0;

    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess || total <= static_cast<size_t>(1) << 32)
        size = 64;
    const size_t square = static_cast<size_t>(size) * size;
    if (cudaMalloc(&data, 3 * square * sizeof *data) != cudaSuccess)
        return 0;
    struct kvr_weight_stream stream = kvr_weight_stream(0, KVR_WEIGHT_KV, 0, 8192);
    kvr_cuda_weights(runner->stream, data, stream.key, stream.scale, false, 0, 2 * square);
    for (int piece = 0; piece < 6; piece++) {
        double start = now_s();
        for (int i = 0; i < 10; i++)
            if (cublasGemmEx(runner->blas, CUBLAS_OP_T, CUBLAS_OP_N, size, size, size, &one, data,
                    CUDA_R_16BF, size, data + square, CUDA_R_16BF, size, &zero, data + 2 * square,
                    CUDA_R_16BF, size, CUBLAS_COMPUTE_32F,
                    CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
                piece = 6;
        if (cudaStreamSynchronize(runner->stream) != cudaSuccess)
            piece = 6;
        double rate = 20.0 * static_cast<double>(square) * size / (now_s() - start);
        best = piece > 0 && piece < 6 && rate > best ? rate : best;
    }
    cudaFree(data);
    return best;
}

static const char *cuda_device(const struct kvr_runner *runner)
{
    return runner->device;
}

extern "C" {
extern const struct kvr_backend kvr_cuda_backend;
const struct kvr_backend kvr_cuda_backend = {"cuda", cuda_create, cuda_destroy, cuda_run,
    cuda_device, cuda_matrix_flops, 2e-2, kvr_cuda_pack, kvr_cuda_unpack, kvr_cuda_copy_pages,
    kvr_cuda_copy_rates};
}
