/*
 * A block takes one row (or one head of it), adds the update, and sums the squares: first a thread
 * its own, then a warp by shuffles, then the block through shared memory. The row is read a second
 * time for the scaling and comes from the cache then. The sum is taken before the residual is
 * rounded, as if it were kept in float.
 */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

enum { NORM_THREADS = 128 };

static __global__ void norm(uint16_t *out, uint16_t *residual, const uint16_t *added,
    const uint16_t *weight, uint32_t stride, uint32_t width, float epsilon)
{
    KVR_SHARED(float, sums);
    size_t at = static_cast<size_t>(blockIdx.x) * stride + static_cast<size_t>(blockIdx.y) * width;
    float squares = 0;

    for (uint32_t i = threadIdx.x * 8; i < width; i += NORM_THREADS * 8) {
        eight x = *reinterpret_cast<const eight *>(residual + at + i);
        eight update = {};
        if (added)
            update = *reinterpret_cast<const eight *>(added + at + i);
        for (int j = 0; j < 8; j++) {
            float value = bf16_value(x.number[j]) + bf16_value(update.number[j]);
            squares += value * value;
            x.number[j] = bf16_round(value);
        }
        if (added)
            *reinterpret_cast<eight *>(residual + at + i) = x;
    }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = squares;
    __syncthreads();
    squares = 0;
    for (int i = 0; i < NORM_THREADS / 32; i++)
        squares += sums[i];
    float scale = rsqrtf(squares / static_cast<float>(width) + epsilon);
    for (uint32_t i = threadIdx.x * 8; i < width; i += NORM_THREADS * 8) {
        eight x = *reinterpret_cast<const eight *>(residual + at + i);
        eight w = *reinterpret_cast<const eight *>(weight + i);
        for (int j = 0; j < 8; j++)
            x.number[j] = bf16_round(bf16_value(x.number[j]) * scale * bf16_value(w.number[j]));
        *reinterpret_cast<eight *>(out + at + i) = x;
    }
}

void kvr_cuda_rms_norm(kvr_stream stream, uint16_t *out, uint16_t *residual, const uint16_t *added,
    const uint16_t *weight, uint32_t rows, uint32_t stride, uint32_t heads, uint32_t width,
    float epsilon)
{
    KVR_LAUNCH(norm, dim3(rows, heads), NORM_THREADS, NORM_THREADS / 32 * sizeof(float), stream,
        out, residual, added, weight, stride, width, epsilon);
}
