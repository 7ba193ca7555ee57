/* Reads every number of a model file, so that a sanitizer sees what lies outside. Closes it. */
#ifndef KVR_TESTS_FUZZ_MODEL_FILE_H
#define KVR_TESTS_FUZZ_MODEL_FILE_H

#include "kernels/model_file.h"
#include "kernels/tensor.h"

#include <stdlib.h>

static inline void read_kind(const struct kvr_model_file *file, enum kvr_weight_kind kind,
    uint32_t layer, size_t rows, size_t columns)
{
    float *row = malloc(columns * sizeof *row);

    if (!row)
        abort();
    kvr_model_file_is_bf16(file, kind, layer);
    for (size_t i = 0; i < rows; i++)
        kvr_model_file_read(file, kind, layer, i, 0, columns, row);
    free(row);
}

static inline void read_all(struct kvr_model_file *file)
{
    const struct kvr_shape *s = kvr_model_file_shape(file);
    size_t heads = (size_t)s->heads * s->head_dim, kv_heads = (size_t)s->kv_heads * s->head_dim;

    read_kind(file, KVR_WEIGHT_EMBEDDING, 0, s->vocabulary, s->hidden);
    if (!s->tied)
        read_kind(file, KVR_WEIGHT_LOGITS, 0, s->vocabulary, s->hidden);
    read_kind(file, KVR_WEIGHT_FINAL_NORM, 0, 1, s->hidden);
    for (uint32_t layer = 0; layer < s->layers; layer++) {
        read_kind(file, KVR_WEIGHT_ATTENTION_NORM, layer, 1, s->hidden);
        read_kind(file, KVR_WEIGHT_QKV, layer, heads + 2 * kv_heads, s->hidden);
        if (kvr_model_file_has_bias(file))
            read_kind(file, KVR_WEIGHT_QKV_BIAS, layer, 1, heads + 2 * kv_heads);
        if (s->head_norms) {
            read_kind(file, KVR_WEIGHT_QUERY_NORM, layer, 1, s->head_dim);
            read_kind(file, KVR_WEIGHT_KEY_NORM, layer, 1, s->head_dim);
        }
        read_kind(file, KVR_WEIGHT_OUT, layer, s->hidden, heads);
        read_kind(file, KVR_WEIGHT_INNER_NORM, layer, 1, s->hidden);
        read_kind(file, KVR_WEIGHT_GATE_UP, layer, 2 * (size_t)s->inner, s->hidden);
        read_kind(file, KVR_WEIGHT_DOWN, layer, s->hidden, s->inner);
    }
    kvr_model_file_close(file);
}

#endif
