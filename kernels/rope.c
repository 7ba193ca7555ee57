#include "kernels/operations.h"

#include <math.h>

void kvr_rope_turns(float *turns, const uint32_t *positions, size_t count, size_t head_dim,
    double theta, const float *divisors)
{
    for (size_t row = 0; row < count; row++) {
        for (size_t i = 0; i < head_dim / 2; i++) {
            double angle = positions[row] * pow(theta, -2.0 * (double)i / (double)head_dim);
            if (divisors)
                angle /= (double)divisors[i];
            *turns++ = (float)cos(angle);
            *turns++ = (float)sin(angle);
        }
    }
}

void kvr_rope(
    float *x, size_t stride, const float *turns, size_t count, size_t heads, size_t head_dim)
{
    size_t half = head_dim / 2;

    for (size_t row = 0; row < count; row++, turns += head_dim) {
        for (size_t head = 0; head < heads; head++) {
            float *low = x + row * stride + head * head_dim, *high = low + half;
            for (size_t i = 0; i < half; i++) {
                float cosine = turns[2 * i], sine = turns[2 * i + 1], a = low[i], b = high[i];
                low[i] = a * cosine - b * sine;
                high[i] = b * cosine + a * sine;
            }
        }
    }
}
