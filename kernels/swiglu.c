#include "kernels/operations.h"

#include <math.h>

void kvr_swiglu(float *out, const float *gate_up, size_t rows, size_t inner)
{
    for (size_t row = 0; row < rows; row++) {
        const float *gate = gate_up + row * 2 * inner, *up = gate + inner;
        for (size_t i = 0; i < inner; i++)
            out[row * inner + i] = gate[i] / (1 + expf(-gate[i])) * up[i];
    }
}
