/* The weights of a model as the CPU backend keeps them: packed for gemm.h, in bfloat16. */
#ifndef KVR_KERNELS_CPU_WEIGHTS_H
#define KVR_KERNELS_CPU_WEIGHTS_H

#include "base/pages.h"
#include "kernels/crew.h"
#include "kernels/number.h"
#include "kernels/shape.h"

struct kvr_cpu_layer {
    const kvr_bf16 *attention_norm, *query_norm, *key_norm, *inner_norm; /* plain */
    const kvr_bf16 *qkv, *out, *gate_up, *down;                          /* packed */
};

struct kvr_cpu_weights {
    struct kvr_pages memory;
    struct kvr_cpu_layer *layers;
    const kvr_bf16 *embedding, *logits; /* packed; the same where they are tied */
    const kvr_bf16 *final_norm;
};

/* Bytes that kvr_cpu_weights_generate() takes. */
double kvr_cpu_weights_bytes(const struct kvr_shape *shape);

enum kvr_status kvr_cpu_weights_generate(struct kvr_cpu_weights *weights,
    const struct kvr_shape *shape, uint64_t seed, struct kvr_crew *crew, struct kvr_error *error);
void kvr_cpu_weights_release(struct kvr_cpu_weights *weights);

#endif
