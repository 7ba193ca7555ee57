/* weight.h on the device: one thread draws the eight weights of one hash, a row of blocks one row
 * of a slice. */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

static __device__ __forceinline__ uint64_t mix64(uint64_t word)
{
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
}

static __global__ void draw(uint16_t *out, uint64_t key, float scale, bool norm, uint64_t first,
    size_t count, size_t stride)
{
    first += blockIdx.y * stride;
    out += blockIdx.y * count;
    uint64_t group = first / 8 + static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    uint64_t word = mix64(key + group * 0x9e3779b97f4a7c15ull);

    for (int i = 0; i < 8; i++, word >>= 8) {
        uint64_t index = group * 8 + static_cast<uint64_t>(i);
        if (index < first || index >= first + count)
            continue;
        int byte = static_cast<int>(word & 255);
        float value = norm ? static_cast<float>(120 + (byte >> 4)) / 128
                           : static_cast<float>(2 * byte - 255) * scale;
        out[index - first] = bf16_round(value);
    }
}

void kvr_cuda_weights(kvr_stream stream, uint16_t *out, uint64_t key, float scale, bool norm,
    uint64_t first, size_t count, size_t rows, size_t stride)
{
    enum { ROWS = 32768 }; /* of a grid */
    size_t groups = (count + 7) / 8 + 1;

    for (size_t row = 0; count > 0 && row < rows; row += ROWS) {
        unsigned now =
            static_cast<unsigned>(rows - row < ROWS ? rows - row : static_cast<size_t>(ROWS));
        KVR_LAUNCH(draw, dim3(static_cast<unsigned>((groups + 255) / 256), now), 256, 0, stream,
            out + row * count, key, scale, norm, first + row * stride, count, stride);
    }
}
