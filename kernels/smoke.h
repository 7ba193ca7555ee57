/*
 * The smoke test of a node: one line a check, with value, unit and verdict, for people or as TAP
 * (Test Anything Protocol 13).
 */
#ifndef KVR_KERNELS_SMOKE_H
#define KVR_KERNELS_SMOKE_H

#include "kernels/measure.h"
#include "kernels/plugin.h"

struct kvr_smoke {
    struct kvr_buffer *out;
    bool tap;
    uint32_t checks, failed;
};

/* What NVML says about one GPU: driver, memory, ECC, temperature. A GPU with uncorrected memory
 * errors fails, and one above 90 °C. */
void kvr_smoke_gpu(struct kvr_smoke *smoke, const struct kvr_gpu_state *gpu, uint32_t number);

/*
 * What the backend computes: the rate of a matrix product (fails below expected_flops, 0: any), the
 * memory's copy rate, the same bits twice, logits with a cached prefix against those without
 * (bit for bit, unless the backend states a bound), a small model's logits against those of the
 * processor, and `seconds` of prefills whose bits must not
 * change. KVR_BAD_USAGE where the pool holds less than two pages.
 */
enum kvr_status kvr_smoke_compute(struct kvr_smoke *smoke, const struct kvr_bench *bench,
    double expected_flops, double seconds, struct kvr_error *error);

/* The closing line: TAP's plan, or how many checks failed. */
void kvr_smoke_end(struct kvr_smoke *smoke);

#endif
