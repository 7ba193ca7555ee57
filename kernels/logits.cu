/* A warp takes one word of the vocabulary and one row: bound by reading the table once. */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

static __global__ void multiply(float *logits, const uint16_t *x, const uint32_t *last_rows,
    const uint16_t *table, uint32_t vocabulary, uint32_t hidden)
{
    uint32_t word = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (word >= vocabulary)
        return;
    const uint16_t *row = x + static_cast<size_t>(last_rows[blockIdx.y]) * hidden;
    const uint16_t *weights = table + static_cast<size_t>(word) * hidden;
    float sum = 0;

    for (uint32_t i = threadIdx.x % 32 * 8; i < hidden; i += 256) {
        eight a = *reinterpret_cast<const eight *>(row + i);
        eight b = *reinterpret_cast<const eight *>(weights + i);
        for (int j = 0; j < 8; j++)
            sum += bf16_value(a.number[j]) * bf16_value(b.number[j]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        logits[static_cast<size_t>(blockIdx.y) * vocabulary + word] = sum;
}

void kvr_cuda_logits(kvr_stream stream, float *logits, const uint16_t *x, const uint32_t *last_rows,
    uint32_t count, const uint16_t *table, uint32_t vocabulary, uint32_t hidden)
{
    if (count > 0)
        KVR_LAUNCH(multiply, dim3((vocabulary + 7) / 8, count), 256, 0, stream, logits, x,
            last_rows, table, vocabulary, hidden);
}
