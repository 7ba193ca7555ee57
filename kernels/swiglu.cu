/* A thread computes eight outputs. */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

static __global__ void activate(eight *out, const eight *gate_up, size_t count, uint32_t width)
{
    size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    eight gate = gate_up[i / width * 2 * width + i % width];
    eight up = gate_up[(i / width * 2 + 1) * width + i % width];

    for (int j = 0; j < 8; j++) {
        float value = bf16_value(gate.number[j]);
        gate.number[j] = bf16_round(value / (1 + expf(-value)) * bf16_value(up.number[j]));
    }
    out[i] = gate;
}

void kvr_cuda_swiglu(
    kvr_stream stream, uint16_t *out, const uint16_t *gate_up, uint32_t rows, uint32_t inner)
{
    size_t count = static_cast<size_t>(rows) * (inner / 8);

    KVR_LAUNCH(activate, static_cast<unsigned>((count + 255) / 256), 256, 0, stream,
        reinterpret_cast<eight *>(out), reinterpret_cast<const eight *>(gate_up), count, inner / 8);
}
