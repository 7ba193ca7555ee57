#include "kernels/operations.h"

#include <math.h>

void kvr_rms_norm(float *out, float *residual, const float *added, const kvr_bf16 *weight,
    size_t rows, size_t width, float epsilon)
{
    for (size_t row = 0; row < rows; row++) {
        float *x = residual + row * width;
        double squares = 0;

        for (size_t i = 0; i < width; i++) {
            if (added)
                x[i] += added[row * width + i];
            squares += (double)x[i] * x[i];
        }
        float scale = (float)(1 / sqrt(squares / (double)width + (double)epsilon));
        for (size_t i = 0; i < width; i++)
            out[row * width + i] = x[i] * scale * kvr_bf16_value(weight[i]);
    }
}
