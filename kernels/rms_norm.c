#include "kernels/operations.h"

#include <math.h>

/* Adds, and returns what the row is scaled by. */
static float take(float *x, const float *added, size_t width, float epsilon)
{
    double squares = 0;

    for (size_t i = 0; i < width; i++) {
        if (added)
            x[i] += added[i];
        squares += (double)x[i] * x[i];
    }
    return (float)(1 / sqrt(squares / (double)width + (double)epsilon));
}

void kvr_rms_norm(float *out, float *residual, const float *added, const kvr_bf16 *weight,
    size_t rows, size_t width, float epsilon)
{
    for (size_t row = 0; row < rows; row++) {
        float *x = residual + row * width;
        float scale = take(x, added ? added + row * width : NULL, width, epsilon);
        for (size_t i = 0; i < width; i++)
            out[row * width + i] = x[i] * scale * kvr_bf16_value(weight[i]);
    }
}

void kvr_rms_norm_float(float *out, float *residual, const float *added, const float *weight,
    size_t rows, size_t width, float epsilon)
{
    for (size_t row = 0; row < rows; row++) {
        float *x = residual + row * width;
        float scale = take(x, added ? added + row * width : NULL, width, epsilon);
        for (size_t i = 0; i < width; i++)
            out[row * width + i] = x[i] * scale * weight[i];
    }
}
