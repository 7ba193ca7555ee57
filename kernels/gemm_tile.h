/*
 * The inner loops of gemm.c, written once and compiled for several instruction sets: the includer
 * defines TILE_NAME(x), TILE_TARGET, TILE_FLOATS (a vector) and TILE_ROWS (2 · rows vectors of sums
 * must fit into the registers). The rows are spelled out by macros because compilers keep named
 * variables in registers and arrays in memory. No include guard: it is meant to be included again.
 */
typedef float TILE_NAME(vector)
    __attribute__((vector_size(TILE_FLOATS * 4), aligned(4), may_alias));
typedef uint32_t TILE_NAME(words)
    __attribute__((vector_size(TILE_FLOATS * 4), aligned(4), may_alias));
typedef int32_t TILE_NAME(integers)
    __attribute__((vector_size(TILE_FLOATS * 4), aligned(4), may_alias));
typedef uint16_t TILE_NAME(halves)
    __attribute__((vector_size(TILE_FLOATS * 2), aligned(2), may_alias));

#define VECTOR TILE_NAME(vector)

#define ROWS_NAME(name) TILE_NAME(name)
#define WEIGHT kvr_bf16
#define LOAD(at)                                                                                   \
    ((VECTOR)(__builtin_convertvector(                                                             \
                  *(const TILE_NAME(halves) *)(const void *)(at), TILE_NAME(words))                \
              << 16))
#include "kernels/gemm_rows.h"

#define ROWS_NAME(name) TILE_NAME(float_##name)
#define WEIGHT float
#define LOAD(at) (*(const VECTOR *)(at))
#include "kernels/gemm_rows.h"

/*
 * exp(x) for x ≤ 0, to about 2 units in the last place: 2^n · e^r with n the nearest integer to
 * x / ln 2 and a polynomial for e^r, |r| ≤ ln 2 / 2 (coefficients of Cephes, Moshier). Below −87
 * the result is 0.
 */
TILE_TARGET __attribute__((always_inline)) static inline void TILE_NAME(exponential)(VECTOR *value)
{
    const VECTOR zero = {0};
    const float magic = 12582912.0f; /* 1.5 · 2^23: adding it rounds to an integer */
    VECTOR x = *value;
    TILE_NAME(integers) usable = x > zero - 87.0f;
    VECTOR shifted = x * 1.44269504f + magic;
    VECTOR n = shifted - magic;
    VECTOR r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    VECTOR p = zero + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    TILE_NAME(integers) power = (TILE_NAME(integers))((TILE_NAME(words))shifted << 23);
    *value = (VECTOR)(((TILE_NAME(integers))p + power) & usable);
}

TILE_TARGET static float TILE_NAME(softmax)(float *scores, float *maximum, float *sum)
{
    float most = *maximum, total = 0;
    VECTOR lanes = {0}, change = {0};

    for (int i = 0; i < 64; i++)
        most = scores[i] > most ? scores[i] : most;
    change += *maximum - most;
    for (int i = 0; i < 64; i += TILE_FLOATS) {
        VECTOR value = *(VECTOR *)(scores + i) - most;
        TILE_NAME(exponential)(&value);
        *(VECTOR *)(scores + i) = value;
        lanes += value;
    }
    for (int i = 0; i < TILE_FLOATS; i++)
        total += lanes[i];
    TILE_NAME(exponential)(&change);
    *sum = *sum * change[0] + total;
    *maximum = most;
    return change[0];
}

#undef VECTOR
#undef TILE_NAME
#undef TILE_TARGET
#undef TILE_FLOATS
#undef TILE_ROWS
