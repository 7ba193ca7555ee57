#include "kernels/operations.h"

void kvr_embed(
    float *out, const kvr_bf16 *table, const uint32_t *tokens, size_t count, size_t hidden)
{
    for (size_t row = 0; row < count; row++)
        for (size_t i = 0; i < hidden; i++)
            out[row * hidden + i] = kvr_bf16_value(table[tokens[row] * hidden + i]);
}
