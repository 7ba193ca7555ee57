/*
 * Matrix products by cuBLASLt: a plan (layouts, and the algorithm that the library's heuristic
 * names first for them) is made once for each shape and kept, so that a product is one call, also
 * while a graph is captured.
 */
#ifndef KVR_KERNELS_CUDA_GEMM_H
#define KVR_KERNELS_CUDA_GEMM_H

#include "kernels/device.cuh"

struct kvr_cuda_gemm;

/* For the current device; work is done on the stream. NULL where cuBLASLt does not start or memory
 * is short. */
struct kvr_cuda_gemm *kvr_cuda_gemm_create(cudaStream_t stream);
void kvr_cuda_gemm_destroy(struct kvr_cuda_gemm *gemm);

/* out[rows][outputs] = x[rows][k] · weights[outputs][k]ᵀ in bfloat16, sums in float. Widths are
 * multiples of 8. False where cuBLASLt has no algorithm, or fails. */
bool kvr_cuda_gemm(struct kvr_cuda_gemm *gemm, uint16_t *out, const uint16_t *x,
    const uint16_t *weights, uint32_t rows, uint32_t outputs, uint32_t k);

/* The same with x and weights in 8 bits (FP8 E4M3): out = x · x_scale · (weights · weight_scale)ᵀ,
 * the scales on the device. For devices of compute capability 8.9 and above; widths are multiples
 * of 16. */
bool kvr_cuda_gemm_fp8(struct kvr_cuda_gemm *gemm, uint16_t *out, const uint8_t *x,
    const float *x_scale, const uint8_t *weights, const float *weight_scale, uint32_t rows,
    uint32_t outputs, uint32_t k);

#endif
