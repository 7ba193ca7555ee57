/*
 * The CUDA backend: making a runner. Matrix products are cuBLASLt's, in bfloat16 or 8 bits with
 * sums in float; everything between them is our kernels'. Weights are computed on the device, the
 * same bits as everywhere (weight.h), each GPU those of its share; rotations are sent once; a step
 * sends tokens, positions, slots and page tables, and gets back logits.
 *
 * Stands alone as a plug-in: it uses nothing of the library but its types.
 */
#include "kernels/cuda_runner.h"

extern "C" {
#include "kernels/weight.h"
}

#include <math.h>
#include <time.h>

/* Weights in the order of their places; while data is NULL only sizes are counted. Sizes are in
 * two-byte numbers. */
struct layout {
    const struct kvr_runner *runner;
    struct kvr_cuda_rank *rank;
    uint16_t *data;
    size_t used, largest; /* largest: of the matrices that become 8 bits */
    uint64_t seed;
};

static uint16_t *cut(struct layout *layout, size_t size)
{
    uint16_t *place = layout->data ? layout->data + layout->used : nullptr;

    layout->used += (size + 127) / 128 * 128;
    return place;
}

static uint16_t *place_norm(
    struct layout *layout, enum kvr_weight_kind kind, uint32_t layer, size_t width)
{
    struct kvr_weight_stream stream = kvr_weight_stream(layout->seed, kind, layer, 1);
    uint16_t *place = cut(layout, width);

    if (place)
        kvr_cuda_weights(
            layout->rank->stream, place, stream.key, stream.scale, true, 0, width, 1, 0);
    return place;
}

/* Rows of a tensor of `k` columns, `count` from `first` on, and of these `columns` from `column`
 * on: what one GPU has of it. */
struct slice {
    size_t first, count, column, columns;
};

static void draw(struct layout *layout, uint16_t *to, enum kvr_weight_kind kind, uint32_t layer,
    size_t k, const struct slice *slice)
{
    struct kvr_weight_stream stream =
        kvr_weight_stream(layout->seed, kind, layer, static_cast<uint32_t>(k));

    kvr_cuda_weights(layout->rank->stream, to, stream.key, stream.scale, false,
        slice->first * k + slice->column, slice->columns, slice->count, k);
}

/* A whole table in bfloat16. */
static uint16_t *place_table(
    struct layout *layout, enum kvr_weight_kind kind, size_t rows, size_t k)
{
    const struct slice all = {0, rows, 0, k};
    uint16_t *place = cut(layout, rows * k);

    if (place)
        draw(layout, place, kind, 0, k, &all);
    return place;
}

/* Slices beneath each other make one matrix. With 8 bits it is drawn into the activations' room,
 * which is unused so far, and made smaller from there. */
static struct kvr_cuda_matrix place_matrix(struct layout *layout, enum kvr_weight_kind kind,
    uint32_t layer, size_t k, const struct slice *slices, int count)
{
    struct kvr_cuda_matrix matrix = {nullptr, nullptr, nullptr};
    const bool fp8 = layout->runner->fp8;
    size_t size = 0;

    for (int i = 0; i < count; i++)
        size += slices[i].count * slices[i].columns;
    layout->largest = size > layout->largest ? size : layout->largest;
    uint16_t *place = cut(layout, fp8 ? (size + 1) / 2 : size);
    uint16_t *scale = fp8 ? cut(layout, 4) : nullptr; /* kvr_cuda_fp8() has two floats there */
    if (!place)
        return matrix;
    uint16_t *drawn = fp8 ? layout->rank->gate_up : place, *to = drawn;
    for (int i = 0; i < count; to += slices[i].count * slices[i].columns, i++)
        draw(layout, to, kind, layer, k, &slices[i]);
    if (!fp8) {
        matrix.numbers = place;
        return matrix;
    }
    matrix.bytes = reinterpret_cast<uint8_t *>(place);
    matrix.scale = reinterpret_cast<float *>(scale);
    kvr_cuda_fp8(layout->rank->stream, matrix.bytes, matrix.scale, drawn, size);
    return matrix;
}

static void place_layer(struct layout *layout, uint32_t number)
{
    const struct kvr_shape *shape = &layout->runner->shape;
    struct kvr_cuda_rank *rank = layout->rank;
    struct device_layer *layer = &rank->layers[number];
    const size_t dim = shape->head_dim, hidden = shape->hidden, inner = rank->inner;
    const size_t heads = rank->heads * dim, kv_heads = rank->kv_heads * dim, at = rank->number;
    const size_t keys = shape->heads * dim, values = keys + shape->kv_heads * dim;
    const struct slice qkv[] = {{at * heads, heads, 0, hidden},
        {keys + at * kv_heads, kv_heads, 0, hidden}, {values + at * kv_heads, kv_heads, 0, hidden}};
    const struct slice gate_up[] = {
        {at * inner, inner, 0, hidden}, {shape->inner + at * inner, inner, 0, hidden}};
    const struct slice out = {0, hidden, at * heads, heads};
    const struct slice down = {0, hidden, at * inner, inner};

    layer->attention_norm = place_norm(layout, KVR_WEIGHT_ATTENTION_NORM, number, hidden);
    if (shape->head_norms) {
        layer->query_norm = place_norm(layout, KVR_WEIGHT_QUERY_NORM, number, dim);
        layer->key_norm = place_norm(layout, KVR_WEIGHT_KEY_NORM, number, dim);
    }
    layer->inner_norm = place_norm(layout, KVR_WEIGHT_INNER_NORM, number, hidden);
    layer->qkv = place_matrix(layout, KVR_WEIGHT_QKV, number, hidden, qkv, 3);
    layer->out = place_matrix(layout, KVR_WEIGHT_OUT, number, keys, &out, 1);
    layer->gate_up = place_matrix(layout, KVR_WEIGHT_GATE_UP, number, hidden, gate_up, 2);
    layer->down = place_matrix(layout, KVR_WEIGHT_DOWN, number, shape->inner, &down, 1);
}

static void place_all(struct layout *layout)
{
    const struct kvr_shape *shape = &layout->runner->shape;
    struct kvr_cuda_rank *rank = layout->rank;

    rank->embedding = place_table(layout, KVR_WEIGHT_EMBEDDING, shape->vocabulary, shape->hidden);
    if (rank->number == 0) {
        rank->logits_table = rank->embedding;
        if (!shape->tied)
            rank->logits_table =
                place_table(layout, KVR_WEIGHT_LOGITS, shape->vocabulary, shape->hidden);
        rank->final_norm = place_norm(layout, KVR_WEIGHT_FINAL_NORM, 0, shape->hidden);
    }
    for (uint32_t i = 0; i < shape->layers; i++)
        place_layer(layout, i);
}

/* Cuts the work memory; with NULL only counts. `drawn`: numbers of the largest matrix that is drawn
 * there, 0 for none. All sizes are in two-byte numbers. */
static size_t cut_work(
    const struct kvr_runner *runner, struct kvr_cuda_rank *rank, uint16_t *data, size_t drawn)
{
    const struct kvr_shape *shape = &runner->shape;
    size_t heads = static_cast<size_t>(rank->heads) * shape->head_dim, used = 0;
    size_t qkv = heads + 2ul * rank->kv_heads * shape->head_dim, inner = rank->inner;
    size_t positions = static_cast<size_t>(runner->pages) * runner->page_tokens;
    size_t gate_up = 2 * CHUNK_ROWS * inner, widest = inner > heads ? inner : heads;
    widest = shape->hidden > widest ? shape->hidden : widest;
    const struct {
        void *array;
        size_t size;
    } arrays[] = {
        {&rank->residual, static_cast<size_t>(CHUNK_ROWS) * shape->hidden},
        {&rank->normed, static_cast<size_t>(CHUNK_ROWS) * shape->hidden},
        {&rank->update, static_cast<size_t>(CHUNK_ROWS) * shape->hidden},
        {&rank->qkv, CHUNK_ROWS * qkv},
        {&rank->attended, CHUNK_ROWS * heads},
        {&rank->gate_up, drawn > gate_up ? drawn : gate_up},
        {&rank->activated, CHUNK_ROWS * inner},
        {&rank->bytes, runner->fp8 ? CHUNK_ROWS * widest / 2 : 0},
        {&rank->scale, 4},
        {&rank->turns, 2 * positions * shape->head_dim},
        {&rank->logits, rank->number == 0 ? 2ul * LOGITS_ROWS * shape->vocabulary : 0},
        {&rank->numbers, 2ul * 4 * CHUNK_ROWS},
        {&rank->parts, sizeof(struct kvr_cuda_part) / 2 * CHUNK_ROWS},
    };

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        uint16_t *place = data ? data + used : nullptr;
        memcpy(arrays[i].array, &place, sizeof place);
        used += (arrays[i].size + 127) / 128 * 128;
    }
    return used;
}

/* Cosines and sines of all positions that the pool can hold, in double precision as the CPU's. */
static bool send_turns(struct kvr_runner *runner, struct kvr_cuda_rank *rank)
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
    keep(runner, cudaMemcpyAsync(rank->turns, turns, positions * dim * sizeof *turns,
                     cudaMemcpyHostToDevice, rank->stream));
    keep(runner, cudaStreamSynchronize(rank->stream));
    free(turns);
    return true;
}

/* A GPU's share: memory, weights, rotations. False with *status and the error. */
static enum kvr_status create_rank(
    struct kvr_runner *runner, struct kvr_cuda_rank *rank, uint64_t seed, struct kvr_error *error)
{
    const struct kvr_shape *shape = &runner->shape;
    struct layout layout = {runner, rank, nullptr, 0, 0, seed};
    size_t free_bytes = 0, total = 0;

    keep(runner, cudaSetDevice(rank->device));
    keep(runner, cudaMemGetInfo(&free_bytes, &total));
    rank->layers = static_cast<struct device_layer *>(calloc(shape->layers, sizeof *rank->layers));
    if (!rank->layers)
        return fail(error, KVR_NO_MEMORY, "out of memory", "");
    place_all(&layout);
    const size_t weights = layout.used, drawn = runner->fp8 ? layout.largest : 0;
    const size_t kv = 2ul * shape->layers * (runner->pages + 1ul) * runner->page_tokens *
                      rank->kv_heads * shape->head_dim;
    const size_t work = cut_work(runner, rank, nullptr, drawn);
    double wanted =
        2 * (static_cast<double>(weights) + static_cast<double>(kv) + static_cast<double>(work));
    if (runner->failure == cudaSuccess && wanted > static_cast<double>(free_bytes)) {
        char detail[128];
        snprintf(detail, sizeof detail, "%.1f GiB of %.1f that are free", wanted / 0x1p30,
            static_cast<double>(free_bytes) / 0x1p30);
        return fail(error, KVR_UNSUPPORTED, "the model and its KV cache take", detail);
    }
    keep(runner, cudaStreamCreate(&rank->stream));
    keep(runner, cudaMalloc(&rank->weights, weights * sizeof(uint16_t)));
    keep(runner, cudaMalloc(&rank->kv, kv * sizeof(uint16_t)));
    keep(runner, cudaMalloc(&rank->work, work * sizeof(uint16_t)));
    if (runner->failure == cudaSuccess) {
        rank->gemm = kvr_cuda_gemm_create(rank->stream);
        cut_work(runner, rank, rank->work, drawn);
        layout.data = rank->weights;
        layout.used = 0;
        place_all(&layout);
        keep(runner, cudaGetLastError());
        if (!rank->gemm || !send_turns(runner, rank))
            return fail(error, KVR_IO, "the GPU cannot be set up",
                rank->gemm ? "out of memory" : "cuBLASLt does not start");
    }
    return runner->failure == cudaSuccess ? KVR_OK
                                          : fail(error, KVR_IO, "the GPU cannot be set up",
                                                cudaGetErrorString(runner->failure));
}

static void cuda_destroy(struct kvr_runner *runner)
{
    if (!runner)
        return;
    kvr_cuda_forget_graphs(runner);
    kvr_cuda_link_destroy(runner->link);
    for (uint32_t i = 0; i < runner->rank_count; i++) {
        struct kvr_cuda_rank *rank = &runner->ranks[i];
        cudaSetDevice(rank->device);
        kvr_cuda_gemm_destroy(rank->gemm);
        cudaFree(rank->weights);
        cudaFree(rank->kv);
        cudaFree(rank->work);
        cudaFree(rank->tables);
        if (rank->stream)
            cudaStreamDestroy(rank->stream);
        free(rank->layers);
    }
    free(runner->host_tables);
    free(runner);
}

/* Whether the options can be had of this shape and these GPUs. */
static enum kvr_status check_options(const struct kvr_backend_options *options, uint32_t ranks,
    struct cudaDeviceProp *properties, struct kvr_error *error)
{
    const struct kvr_shape *shape = options->shape;
    int devices = 0;

    if (options->page_tokens == 0 || shape->hidden % 16 || shape->inner % 16)
        return fail(error, KVR_BAD_USAGE, "a page has no tokens, or widths are odd", "");
    if (shape->head_dim != 64 && shape->head_dim != 128 && shape->head_dim != 256)
        return fail(error, KVR_BAD_USAGE, "heads are not of 64, 128 or 256 numbers", "");
    if (ranks > RANKS || shape->heads % ranks || shape->kv_heads % ranks ||
        shape->inner % (16 * ranks))
        return fail(error, KVR_BAD_USAGE,
            "the model's heads cannot be shared out among so many "
            "GPUs",
            "");
    cudaError_t found = cudaGetDeviceCount(&devices);
    if (found != cudaSuccess || devices == 0)
        return fail(error, KVR_UNSUPPORTED, "no GPU",
            found == cudaSuccess ? "none is listed" : cudaGetErrorString(found));
    if (options->device + ranks > static_cast<uint32_t>(devices))
        return fail(error, KVR_UNSUPPORTED, "there are fewer GPUs than that", "");
    found = cudaGetDeviceProperties(properties, static_cast<int>(options->device));
    if (found != cudaSuccess)
        return fail(error, KVR_UNSUPPORTED, "no GPU", cudaGetErrorString(found));
    if (options->fp8 && properties->major * 10 + properties->minor < 89)
        return fail(error, KVR_UNSUPPORTED, "this GPU has no 8-bit products", properties->name);
    return KVR_OK;
}

static enum kvr_status cuda_create(
    const struct kvr_backend_options *options, struct kvr_runner **out, struct kvr_error *error)
{
    const struct kvr_shape *shape = options->shape;
    const uint32_t ranks = options->gpus > 0 ? options->gpus : 1;
    struct cudaDeviceProp properties;
    const char *why = "";

    enum kvr_status status = check_options(options, ranks, &properties, error);
    if (status != KVR_OK)
        return status;
    struct kvr_runner *runner = static_cast<struct kvr_runner *>(calloc(1, sizeof *runner));
    if (!runner)
        return fail(error, KVR_NO_MEMORY, "out of memory", "");
    runner->shape = *shape;
    runner->pages = options->pages;
    runner->page_tokens = options->page_tokens;
    runner->eager = options->eager;
    runner->fp8 = options->fp8;
    runner->rank_count = ranks;
    for (uint32_t i = 0; i < ranks; i++) {
        struct kvr_cuda_rank *rank = &runner->ranks[i];
        rank->device = static_cast<int>(options->device + i);
        rank->number = i;
        rank->heads = shape->heads / ranks;
        rank->kv_heads = shape->kv_heads / ranks;
        rank->inner = shape->inner / ranks;
    }
    for (uint32_t i = 0; status == KVR_OK && i < ranks; i++)
        status = create_rank(runner, &runner->ranks[i], options->seed, error);
    if (status == KVR_OK && ranks > 1 &&
        !(runner->link = kvr_cuda_link_create(static_cast<int>(options->device), ranks, &why)))
        status = fail(error, KVR_UNSUPPORTED, "GPUs cannot be joined", why);
    if (status != KVR_OK) {
        cuda_destroy(runner);
        return status;
    }
    if (ranks > 1)
        snprintf(runner->device, sizeof runner->device, "%ux %.100s", ranks, properties.name);
    else
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

/* Times the GPUs that take part. A product of 8192 rows and columns, or of 64 where the memory is
 * short; the best of five pieces of ten, after one that warms up. */
static double cuda_matrix_flops(struct kvr_runner *runner)
{
    struct kvr_cuda_rank *rank = &runner->ranks[0];
    uint32_t size = 8192;
    uint16_t *data = nullptr;
    size_t free_bytes = 0, total = 0;
    double best = 0;

    cudaSetDevice(rank->device);
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess || total <= static_cast<size_t>(1) << 32)
        size = 64;
    const size_t square = static_cast<size_t>(size) * size;
    if (cudaMalloc(&data, 3 * square * sizeof *data) != cudaSuccess)
        return 0;
    struct kvr_weight_stream stream = kvr_weight_stream(0, KVR_WEIGHT_KV, 0, 8192);
    kvr_cuda_weights(rank->stream, data, stream.key, stream.scale, false, 0, 2 * square, 1, 0);
    for (int piece = 0; piece < 6; piece++) {
        double start = now_s();
        for (int i = 0; i < 10; i++)
            if (!kvr_cuda_gemm(
                    rank->gemm, data + 2 * square, data, data + square, size, size, size))
                piece = 6;
        if (cudaStreamSynchronize(rank->stream) != cudaSuccess)
            piece = 6;
        double rate = 20.0 * static_cast<double>(square) * size / (now_s() - start);
        best = piece > 0 && piece < 6 && rate > best ? rate : best;
    }
    cudaFree(data);
    return best * runner->rank_count;
}

static const char *cuda_device(const struct kvr_runner *runner)
{
    return runner->device;
}

extern "C" {
extern const struct kvr_backend kvr_cuda_backend;
const struct kvr_backend kvr_cuda_backend = {"cuda", cuda_create, cuda_destroy, kvr_cuda_run,
    cuda_device, cuda_matrix_flops, 2e-2, kvr_cuda_pack, kvr_cuda_unpack, kvr_cuda_copy_pages,
    kvr_cuda_copy_rates};
}
