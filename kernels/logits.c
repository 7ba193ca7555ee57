#include "kernels/operations.h"

void kvr_logits(
    float *logits, const float *x, const kvr_bf16 *table, size_t vocabulary, size_t hidden)
{
    for (size_t word = 0; word < vocabulary; word++) {
        double sum = 0;
        for (size_t i = 0; i < hidden; i++)
            sum += (double)x[i] * (double)kvr_bf16_value(table[word * hidden + i]);
        logits[word] = (float)sum;
    }
}
