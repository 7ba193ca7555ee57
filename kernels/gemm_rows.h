/*
 * The product of gemm_tile.h for one kind of weights: the includer defines ROWS_NAME(x), WEIGHT
 * (what a panel holds) and LOAD(at) (TILE_FLOATS of them as floats). No include guard.
 */
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

TILE_TARGET __attribute__((always_inline)) static inline void ROWS_NAME(few)(const int count,
    float *out, size_t out_stride, const float *x, size_t x_stride, const WEIGHT *panel, size_t k,
    bool accumulate)
{
    EACH_ROW(BEGIN)
    for (size_t step = 0; step < k; step++) {
        const WEIGHT *weights = panel + step * KVR_PANEL;
        VECTOR left_weights = LOAD(weights), right_weights = LOAD(weights + TILE_FLOATS);
        EACH_ROW(STEP)
    }
    EACH_ROW(FINISH)
}

#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (n <= TILE_ROWS)                                                                        \
            ROWS_NAME(few)                                                                         \
        (n <= TILE_ROWS ? n : 1, out, out_stride, x, x_stride, panel, k, accumulate);              \
        break;

TILE_TARGET static void ROWS_NAME(rows)(float *out, size_t out_stride, const float *x,
    size_t x_stride, size_t rows, const WEIGHT *panel, size_t k, bool accumulate)
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

#undef EACH_ROW
#undef BEGIN
#undef STEP
#undef FINISH
#undef CASE
#undef ROWS_NAME
#undef WEIGHT
#undef LOAD
