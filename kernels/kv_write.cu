/* A block takes one row's keys and values, eight numbers a thread and step. */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

static __global__ void place(struct kvr_cuda_kv kv, const uint32_t *slots, const uint16_t *keys,
    const uint16_t *values, uint32_t stride)
{
    uint32_t slot = slots[blockIdx.x], pieces = kv.head_dim / 8;
    size_t page = slot / kv.page_tokens, offset = slot % kv.page_tokens;

    for (uint32_t i = threadIdx.x; i < 2 * kv.kv_heads * pieces; i += blockDim.x) {
        uint32_t head = i / pieces % kv.kv_heads, value = i / pieces / kv.kv_heads;
        size_t from =
            static_cast<size_t>(blockIdx.x) * stride + head * kv.head_dim + i % pieces * 8;
        size_t to =
            (((page * 2 + value) * kv.kv_heads + head) * kv.page_tokens + offset) * kv.head_dim +
            i % pieces * 8;
        *reinterpret_cast<eight *>(kv.layer + to) =
            *reinterpret_cast<const eight *>((value ? values : keys) + from);
    }
}

void kvr_cuda_kv_write(kvr_stream stream, const struct kvr_cuda_kv *kv, const uint32_t *slots,
    const uint16_t *keys, const uint16_t *values, uint32_t stride, uint32_t rows)
{
    KVR_LAUNCH(place, rows, 128, 0, stream, *kv, slots, keys, values, stride);
}
