/* A block takes one row; a thread turns one pair of one head and goes on to the next. */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

static __global__ void turn(uint16_t *x, uint32_t stride, const float *turns,
    const uint32_t *positions, uint32_t heads, uint32_t head_dim)
{
    uint32_t half = head_dim / 2;
    const float *angles = turns + static_cast<size_t>(positions[blockIdx.x]) * head_dim;

    for (uint32_t i = threadIdx.x; i < heads * half; i += blockDim.x) {
        uint16_t *low =
            x + static_cast<size_t>(blockIdx.x) * stride + i / half * head_dim + i % half;
        float cosine = angles[2 * (i % half)], sine = angles[2 * (i % half) + 1];
        float a = bf16_value(low[0]), b = bf16_value(low[half]);
        low[0] = bf16_round(a * cosine - b * sine);
        low[half] = bf16_round(b * cosine + a * sine);
    }
}

void kvr_cuda_rope(kvr_stream stream, uint16_t *x, uint32_t stride, const float *turns,
    const uint32_t *positions, uint32_t rows, uint32_t heads, uint32_t head_dim)
{
    KVR_LAUNCH(turn, rows, 256, 0, stream, x, stride, turns, positions, heads, head_dim);
}
