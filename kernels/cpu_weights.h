/* The weights of a model as the CPU backend keeps them: packed for gemm.h, in bfloat16, or in
 * single precision where a model file has numbers that bfloat16 does not hold. */
#ifndef KVR_KERNELS_CPU_WEIGHTS_H
#define KVR_KERNELS_CPU_WEIGHTS_H

#include "base/pages.h"
#include "kernels/gemm.h"
#include "kernels/model_file.h"

struct kvr_cpu_layer {
    const float *attention_norm, *query_norm, *key_norm, *inner_norm;
    const float *qkv_bias; /* NULL: none */
    struct kvr_packed qkv, out, gate_up, down;
};

struct kvr_cpu_weights {
    struct kvr_pages memory;
    struct kvr_cpu_layer *layers;
    struct kvr_packed embedding, logits; /* the same where they are tied */
    const float *final_norm;
};

/* Bytes that kvr_cpu_weights_make() takes. file may be NULL. */
double kvr_cpu_weights_bytes(const struct kvr_shape *shape, const struct kvr_model_file *file);

/* From a model file, or with NULL drawn from the seed. */
enum kvr_status kvr_cpu_weights_make(struct kvr_cpu_weights *weights, const struct kvr_shape *shape,
    uint64_t seed, const struct kvr_model_file *file, struct kvr_crew *crew,
    struct kvr_error *error);
void kvr_cpu_weights_release(struct kvr_cpu_weights *weights);

#endif
