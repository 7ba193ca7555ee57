#include "kernels/cpu_weights.h"
#include "kernels/gemm.h"
#include "kernels/weight.h"

#include <stdlib.h>

/* Where the next tensor goes; while data is NULL only sizes are counted. */
struct plan {
    kvr_bf16 *data;
    size_t used;
    uint64_t seed;
    struct kvr_crew *crew;
};

struct matrix {
    struct kvr_weight_stream stream;
    kvr_bf16 *packed;
    size_t outputs, k;
};

/* One panel: 32 rows of the matrix, each drawn in its own order and spread over the panel. */
static void generate_panel(void *context, size_t panel, unsigned thread)
{
    const struct matrix *matrix = context;
    kvr_bf16 row[512];

    (void)thread;
    for (size_t lane = 0; lane < KVR_PANEL; lane++) {
        size_t output = panel * KVR_PANEL + lane;
        for (size_t at = 0; output < matrix->outputs && at < matrix->k; at += 512) {
            size_t length = matrix->k - at < 512 ? matrix->k - at : 512;
            kvr_weight_fill(&matrix->stream, output * matrix->k + at, length, row);
            for (size_t i = 0; i < length; i++)
                matrix->packed[(panel * matrix->k + at + i) * KVR_PANEL + lane] = row[i];
        }
    }
}

static const kvr_bf16 *place_matrix(
    struct plan *plan, enum kvr_weight_kind kind, uint32_t layer, size_t outputs, size_t k)
{
    struct matrix matrix = {kvr_weight_stream(plan->seed, kind, layer, (uint32_t)k),
        plan->data ? plan->data + plan->used : NULL, outputs, k};
    size_t size = kvr_gemm_packed_size(outputs, k);

    plan->used += size;
    if (!plan->data)
        return NULL;
    kvr_crew_run(plan->crew, (outputs + KVR_PANEL - 1) / KVR_PANEL, generate_panel, &matrix);
    return matrix.packed;
}

static const kvr_bf16 *place_norm(
    struct plan *plan, enum kvr_weight_kind kind, uint32_t layer, size_t width)
{
    struct kvr_weight_stream stream = kvr_weight_stream(plan->seed, kind, layer, 1);
    kvr_bf16 *norm = plan->data ? plan->data + plan->used : NULL;

    plan->used += (width + KVR_PANEL - 1) / KVR_PANEL * KVR_PANEL;
    if (!plan->data)
        return NULL;
    for (size_t i = 0; i < width; i++)
        norm[i] = kvr_bf16_round(kvr_weight_norm_value(&stream, i));
    return norm;
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
    weights->final_norm = place_norm(plan, KVR_WEIGHT_FINAL_NORM, 0, hidden);
    for (uint32_t i = 0; i < shape->layers; i++) {
        layer.attention_norm = place_norm(plan, KVR_WEIGHT_ATTENTION_NORM, i, hidden);
        if (shape->head_norms) {
            layer.query_norm = place_norm(plan, KVR_WEIGHT_QUERY_NORM, i, shape->head_dim);
            layer.key_norm = place_norm(plan, KVR_WEIGHT_KEY_NORM, i, shape->head_dim);
        }
        layer.inner_norm = place_norm(plan, KVR_WEIGHT_INNER_NORM, i, hidden);
        layer.qkv = place_matrix(plan, KVR_WEIGHT_QKV, i, heads + 2 * kv_heads, hidden);
        layer.out = place_matrix(plan, KVR_WEIGHT_OUT, i, hidden, heads);
        layer.gate_up = place_matrix(plan, KVR_WEIGHT_GATE_UP, i, (size_t)2 * shape->inner, hidden);
        layer.down = place_matrix(plan, KVR_WEIGHT_DOWN, i, hidden, shape->inner);
        if (weights->layers)
            weights->layers[i] = layer;
    }
}

double kvr_cpu_weights_bytes(const struct kvr_shape *shape)
{
    struct plan plan = {0};
    struct kvr_cpu_weights none = {0};

    place_all(&plan, &none, shape);
    return (double)plan.used * sizeof(kvr_bf16);
}

enum kvr_status kvr_cpu_weights_generate(struct kvr_cpu_weights *weights,
    const struct kvr_shape *shape, uint64_t seed, struct kvr_crew *crew, struct kvr_error *error)
{
    struct plan plan = {.seed = seed, .crew = crew};

    *weights = (struct kvr_cpu_weights){0};
    weights->layers = calloc(shape->layers, sizeof *weights->layers);
    if (!weights->layers ||
        !kvr_pages_grow(&weights->memory, (size_t)kvr_cpu_weights_bytes(shape))) {
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
