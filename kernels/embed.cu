/* A block copies one token's row, eight numbers a thread and step. */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

static __global__ void gather(
    eight *out, const eight *table, const uint32_t *tokens, uint32_t width)
{
    const eight *from = table + static_cast<size_t>(tokens[blockIdx.x]) * width;
    eight *to = out + static_cast<size_t>(blockIdx.x) * width;

    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x)
        to[i] = from[i];
}

void kvr_cuda_embed(kvr_stream stream, uint16_t *out, const uint16_t *table, const uint32_t *tokens,
    uint32_t count, uint32_t hidden)
{
    KVR_LAUNCH(gather, count, 128, 0, stream, reinterpret_cast<eight *>(out),
        reinterpret_cast<const eight *>(table), tokens, hidden / 8);
}
