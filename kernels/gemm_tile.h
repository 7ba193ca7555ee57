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
#define EACH_ROW(row)                                                                              \
    row(0) row(1) row(2) row(3) row(4) row(5) row(6) row(7) row(8) row(9) row(10) row(11)
#define BEGIN(i)                                                                                   \
    VECTOR left##i = {0}, right##i = {0};                                                          \
    if (count > i && accumulate) {                                                                 \
        left##i = *(const VECTOR *)(out + i * out_stride);                                         \
        right##i = *(const VECTOR *)(out + i * out_stride + TILE_FLOATS);                          \
    }
#define STEP(i)                                                                                    \
    if (count > i) {                                                                               \
        left##i += x[i * x_stride + step] * left_weights;                                          \
        right##i += x[i * x_stride + step] * right_weights;                                        \
    }
#define FINISH(i)                                                                                  \
    if (count > i) {                                                                               \
        *(VECTOR *)(out + i * out_stride) = left##i;                                               \
        *(VECTOR *)(out + i * out_stride + TILE_FLOATS) = right##i;                                \
    }

TILE_TARGET __attribute__((always_inline)) static inline void TILE_NAME(few)(const int count,
    float *out, size_t out_stride, const float *x, size_t x_stride, const kvr_bf16 *panel, size_t k,
    bool accumulate)
{
    EACH_ROW(BEGIN)
    for (size_t step = 0; step < k; step++) {
        const TILE_NAME(halves) *halves =
            (const TILE_NAME(halves) *)(const void *)(panel + step * KVR_PANEL);
        VECTOR left_weights = (VECTOR)(__builtin_convertvector(halves[0], TILE_NAME(words)) << 16);
        VECTOR right_weights = (VECTOR)(__builtin_convertvector(halves[1], TILE_NAME(words)) << 16);
        EACH_ROW(STEP)
    }
    EACH_ROW(FINISH)
}

#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (n <= TILE_ROWS)                                                                        \
            TILE_NAME(few)                                                                         \
        (n <= TILE_ROWS ? n : 1, out, out_stride, x, x_stride, panel, k, accumulate);              \
        break;

TILE_TARGET static void TILE_NAME(rows)(float *out, size_t out_stride, const float *x,
    size_t x_stride, size_t rows, const kvr_bf16 *panel, size_t k, bool accumulate)
{
    while (rows > 0) {
        size_t now = rows < TILE_ROWS ? rows : TILE_ROWS;
        for (int part = 0; part < KVR_PANEL; part += 2 * TILE_FLOATS) {
            switch (now) {
                CASE(1)
                CASE(2)
                CASE(3)
                CASE(4)
                CASE(5)
                CASE(6)
                CASE(7)
                CASE(8)
                CASE(9)
                CASE(10)
                CASE(11)
                CASE(12)
            }
            out += 2 * TILE_FLOATS;
            panel += 2 * TILE_FLOATS;
        }
        out += now * out_stride - KVR_PANEL;
        panel -= KVR_PANEL;
        x += now * x_stride;
        rows -= now;
    }
}

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
#undef EACH_ROW
#undef BEGIN
#undef STEP
#undef FINISH
#undef CASE
#undef TILE_NAME
#undef TILE_TARGET
#undef TILE_FLOATS
#undef TILE_ROWS
