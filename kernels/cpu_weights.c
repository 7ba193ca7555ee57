#include "kernels/cpu_weights.h"
#include "kernels/tensor.h"
#include "kernels/weight.h"

#include <stdlib.h>

enum { PIECE = 512, LINE_BYTES = 64 };

_Static_assert(PIECE % KVR_TENSOR_BLOCK_MOST == 0, "a piece of a row is whole blocks");

/* Where the next tensor goes; while data is NULL only sizes are counted. */
struct plan {
    char *data;
    size_t used;
    uint64_t seed;
    const struct kvr_model_file *file; /* NULL: drawn from the seed */
    struct kvr_crew *crew;
};

struct matrix {
    struct kvr_weight_stream stream;
    const struct kvr_model_file *file;
    enum kvr_weight_kind kind;
    uint32_t layer;
    kvr_bf16 *halves; /* one of the two */
    float *floats;
    size_t outputs, k;
};

static void read_piece(
    const struct matrix *matrix, size_t output, size_t at, size_t length, float *out)
{
    kvr_bf16 drawn[PIECE];

    if (matrix->file) {
        kvr_model_file_read(matrix->file, matrix->kind, matrix->layer, output, at, length, out);
        return;
    }
    kvr_weight_fill(&matrix->stream, output * matrix->k + at, length, drawn);
    for (size_t i = 0; i < length; i++)
        out[i] = kvr_bf16_value(drawn[i]);
}

/* One panel: 32 rows of the matrix, each read in its own order and spread over the panel. */
static void fill_panel(void *context, size_t panel, unsigned thread)
{
    const struct matrix *matrix = context;
    float row[PIECE];

    (void)thread;
    for (size_t at = 0; at < matrix->k; at += PIECE) {
        size_t length = matrix->k - at < PIECE ? matrix->k - at : PIECE;
        size_t place = (panel * matrix->k + at) * KVR_PANEL;
        for (size_t lane = 0; lane < KVR_PANEL; lane++, place++) {
            size_t output = panel * KVR_PANEL + lane;
            if (output >= matrix->outputs)
                break;
            read_piece(matrix, output, at, length, row);
            if (matrix->floats)
                for (size_t i = 0; i < length; i++)
                    matrix->floats[place + i * KVR_PANEL] = row[i];
            else
                for (size_t i = 0; i < length; i++)
                    matrix->halves[place + i * KVR_PANEL] = kvr_bf16_round(row[i]);
        }
    }
}

/* Room in the plan, on a cache line of its own; NULL while only counting. */
static void *take(struct plan *plan, size_t bytes)
{
    void *place = plan->data ? plan->data + plan->used : NULL;

    plan->used += (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    return place;
}

static struct kvr_packed place_matrix(
    struct plan *plan, enum kvr_weight_kind kind, uint32_t layer, size_t outputs, size_t k)
{
    struct matrix matrix = {kvr_weight_stream(plan->seed, kind, layer, (uint32_t)k), plan->file,
        kind, layer, NULL, NULL, outputs, k};
    size_t size = kvr_gemm_packed_size(outputs, k);

    if (plan->file && !kvr_model_file_is_bf16(plan->file, kind, layer))
        matrix.floats = take(plan, size * sizeof(float));
    else
        matrix.halves = take(plan, size * sizeof(kvr_bf16));
    if (plan->data)
        kvr_crew_run(plan->crew, (outputs + KVR_PANEL - 1) / KVR_PANEL, fill_panel, &matrix);
    return (struct kvr_packed){matrix.halves, matrix.floats};
}

static const float *place_vector(
    struct plan *plan, enum kvr_weight_kind kind, uint32_t layer, size_t width)
{
    struct kvr_weight_stream stream = kvr_weight_stream(plan->seed, kind, layer, 1);
    float *vector = take(plan, width * sizeof *vector);

    if (plan->data && plan->file)
        kvr_model_file_read(plan->file, kind, layer, 0, 0, width, vector);
    else if (plan->data)
        for (size_t i = 0; i < width; i++)
            vector[i] = kvr_weight_norm_value(&stream, i);
    return vector;
}

static void place_all(
    struct plan *plan, struct kvr_cpu_weights *weights, const struct kvr_shape *shape)
{
    size_t heads = (size_t)shape->heads * shape->head_dim, hidden = shape->hidden;
    size_t kv_heads = (size_t)shape->kv_heads * shape->head_dim;
    struct kvr_cpu_layer layer = {0};

    weights->embedding =
        place_matrix(plan, KVR_WEIGHT_EMBEDDING, 0, shape->vocabulary, shape->hidden);
    weights->logits =
        shape->tied ? weights->embedding
                    : place_matrix(plan, KVR_WEIGHT_LOGITS, 0, shape->vocabulary, shape->hidden);
    weights->final_norm = place_vector(plan, KVR_WEIGHT_FINAL_NORM, 0, hidden);
    for (uint32_t i = 0; i < shape->layers; i++) {
        layer.attention_norm = place_vector(plan, KVR_WEIGHT_ATTENTION_NORM, i, hidden);
        if (shape->head_norms) {
            layer.query_norm = place_vector(plan, KVR_WEIGHT_QUERY_NORM, i, shape->head_dim);
            layer.key_norm = place_vector(plan, KVR_WEIGHT_KEY_NORM, i, shape->head_dim);
        }
        if (plan->file && kvr_model_file_has_bias(plan->file))
            layer.qkv_bias = place_vector(plan, KVR_WEIGHT_QKV_BIAS, i, heads + 2 * kv_heads);
        layer.inner_norm = place_vector(plan, KVR_WEIGHT_INNER_NORM, i, hidden);
        layer.qkv = place_matrix(plan, KVR_WEIGHT_QKV, i, heads + 2 * kv_heads, hidden);
        layer.out = place_matrix(plan, KVR_WEIGHT_OUT, i, hidden, heads);
        layer.gate_up = place_matrix(plan, KVR_WEIGHT_GATE_UP, i, (size_t)2 * shape->inner, hidden);
        layer.down = place_matrix(plan, KVR_WEIGHT_DOWN, i, hidden, shape->inner);
        if (weights->layers)
            weights->layers[i] = layer;
    }
}

double kvr_cpu_weights_bytes(const struct kvr_shape *shape, const struct kvr_model_file *file)
{
    struct plan plan = {.file = file};
    struct kvr_cpu_weights none = {0};

    place_all(&plan, &none, shape);
    return (double)plan.used;
}

enum kvr_status kvr_cpu_weights_make(struct kvr_cpu_weights *weights, const struct kvr_shape *shape,
    uint64_t seed, const struct kvr_model_file *file, struct kvr_crew *crew,
    struct kvr_error *error)
{
    struct plan plan = {.seed = seed, .file = file, .crew = crew};

    *weights = (struct kvr_cpu_weights){0};
    weights->layers = calloc(shape->layers, sizeof *weights->layers);
    if (!weights->layers ||
        !kvr_pages_grow(&weights->memory, (size_t)kvr_cpu_weights_bytes(shape, file))) {
        kvr_cpu_weights_release(weights);
        return kvr_error_memory(error);
    }
    plan.data = weights->memory.data;
    place_all(&plan, weights, shape);
    return KVR_OK;
}

void kvr_cpu_weights_release(struct kvr_cpu_weights *weights)
{
    free(weights->layers);
    kvr_pages_release(&weights->memory);
    *weights = (struct kvr_cpu_weights){0};
}
