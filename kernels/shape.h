/*
 * The shapes of dense decoder-only transformers (Llama, Qwen3): what a prefill needs beyond
 * cost/cost.h to run one. Mixtures of experts and latent attention have no shape here: their cost
 * can be predicted (--backend model) but they cannot be run.
 */
#ifndef KVR_KERNELS_SHAPE_H
#define KVR_KERNELS_SHAPE_H

#include "cost/cost.h"

#include <stdbool.h>

struct kvr_shape {
    const char *name;
    uint32_t vocabulary, hidden, layers, heads, kv_heads, head_dim, inner;
    bool tied;       /* the logits use the embedding's weights */
    bool head_norms; /* RMSNorm of every query and key head before RoPE (Qwen3) */
    double rope_theta;
    float norm_epsilon;
};

/* `tiny` and `1b` (Llama 3.2 1B) and the dense models of cost/presets.def. */
extern const struct kvr_shape kvr_shapes[];
extern const size_t kvr_shape_count;

/* Upper and lower case are one; KVR_BAD_USAGE lists the names. */
enum kvr_status kvr_shape_find(
    const char *name, const struct kvr_shape **shape, struct kvr_error *error);

/* All weights, embeddings included. */
double kvr_shape_parameters(const struct kvr_shape *shape);

/* Bytes of keys and values of one token in bfloat16. */
double kvr_shape_kv_bytes_per_token(const struct kvr_shape *shape);

/*
 * Floating point operations of a prefill of new_tokens behind cached_tokens, a multiplication and
 * an addition counted as two: 2 for every weight of the layers and every new token, 4·L·H·d for
 * every pair of a new token and one it sees, and the logits of the last token alone.
 */
double kvr_shape_flops(const struct kvr_shape *shape, double new_tokens, double cached_tokens);

/* The same shape as kvr_cost_compute() takes it. */
struct kvr_model kvr_shape_model(const struct kvr_shape *shape);

#endif
