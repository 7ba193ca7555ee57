#include "kernels/weight.h"

void kvr_weight_fill(
    const struct kvr_weight_stream *stream, uint64_t first, size_t count, kvr_bf16 *out)
{
    size_t i = 0;

    for (; i < count && (first + i) % 8; i++)
        out[i] = kvr_bf16_round(kvr_weight_value(stream, first + i));
    for (; i + 8 <= count; i += 8) {
        uint64_t word = kvr_mix64(stream->key + (first + i) / 8 * 0x9e3779b97f4a7c15u);
        for (int byte = 0; byte < 8; byte++, word >>= 8)
            out[i + (size_t)byte] =
                kvr_bf16_round((float)(2 * (int)(word & 255) - 255) * stream->scale);
    }
    for (; i < count; i++)
        out[i] = kvr_bf16_round(kvr_weight_value(stream, first + i));
}
