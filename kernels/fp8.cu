/* Numbers in 8 bits with one scale: a kernel finds the largest, the next divides by it. */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

enum { THREADS = 256, BLOCKS = 1024, EACH = 16 }; /* EACH: numbers a thread, at least */

/* The largest of all in scale[1], as bits: those of floats above 0 compare as integers do. */
static __global__ void find_largest(float *scale, const uint16_t *x, size_t count)
{
    KVR_SHARED(uint32_t, most_of);
    uint32_t most = 0;

    for (size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x; i < count;
         i += static_cast<size_t>(gridDim.x) * THREADS) {
        uint32_t size = static_cast<uint32_t>(x[i] & 0x7fff) << 16;
        most = size > most && size < 0x7f800000u ? size : most;
    }
    most_of[threadIdx.x] = most;
    __syncthreads();
    for (uint32_t half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && most_of[threadIdx.x + half] > most_of[threadIdx.x])
            most_of[threadIdx.x] = most_of[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicMax(reinterpret_cast<uint32_t *>(&scale[1]), most_of[0]);
}

static __device__ __forceinline__ uint8_t fp8_round(float value)
{
    uint32_t word = __float_as_uint(value), sign = word >> 24 & 0x80u;

    word &= 0x7fffffffu;
    if (word > 0x7f800000u)
        return 0x7f;
    if (word >= 0x43e00000u)
        return static_cast<uint8_t>(sign | 0x7eu);
    if (word < 0x3c800000u)
        return static_cast<uint8_t>(
            sign | (__float_as_uint(__fadd_rn(__uint_as_float(word), 16384.0f)) & 0xfu));
    word += 0x7ffffu + (word >> 20 & 1u);
    return static_cast<uint8_t>(sign | ((word >> 20) - (120u << 3)));
}

static __global__ void shrink(uint8_t *out, float *scale, const uint16_t *x, size_t count)
{
    float most = scale[1], inverse = most > 0 ? 448.0f / most : 1;

    for (size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x; i < count;
         i += static_cast<size_t>(gridDim.x) * THREADS)
        out[i] = fp8_round(__fmul_rn(bf16_value(x[i]), inverse));
    if (blockIdx.x == 0 && threadIdx.x == 0)
        scale[0] = most > 0 ? most / 448.0f : 1;
}

void kvr_cuda_fp8(kvr_stream stream, uint8_t *out, float *scale, const uint16_t *x, size_t count)
{
    size_t blocks = (count + THREADS * EACH - 1) / (THREADS * EACH);
    unsigned grid = static_cast<unsigned>(blocks < BLOCKS ? blocks : static_cast<size_t>(BLOCKS));

    if (count == 0 || cudaMemsetAsync(scale, 0, 2 * sizeof *scale, stream) != cudaSuccess)
        return;
    KVR_LAUNCH(find_largest, grid, THREADS, THREADS * sizeof(uint32_t), stream, scale, x, count);
    KVR_LAUNCH(shrink, grid, THREADS, 0, stream, out, scale, x, count);
}
