#include "kernels/gemm.h"

#include <string.h>

#define TILE_NAME(name) plain_##name
#define TILE_TARGET
#define TILE_FLOATS 4
#define TILE_ROWS 4
#include "kernels/gemm_tile.h"

#ifdef __x86_64__
#define TILE_NAME(name) avx2_##name
#define TILE_TARGET __attribute__((target("avx2,fma")))
#define TILE_FLOATS 8
#define TILE_ROWS 6
#include "kernels/gemm_tile.h"

/* GCC would use vectors of half the width unless it is told so; clang does as the code says. */
#ifdef __clang__
#define AVX512 "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq"
#else
#define AVX512 "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512"
#endif
#define TILE_NAME(name) avx512_##name
#define TILE_TARGET __attribute__((target(AVX512)))
#define TILE_FLOATS 16
#define TILE_ROWS 12
#include "kernels/gemm_tile.h"
#endif

enum { ROW_BLOCK = 252, K_BLOCK = 512, JOB_PANELS = 4 };

size_t kvr_tiles(struct kvr_tile tiles[3])
{
    size_t count = 0;

#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        tiles[count++] =
            (struct kvr_tile){"avx512", avx512_rows, avx512_float_rows, avx512_softmax};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        tiles[count++] = (struct kvr_tile){"avx2", avx2_rows, avx2_float_rows, avx2_softmax};
#endif
    tiles[count++] = (struct kvr_tile){"plain", plain_rows, plain_float_rows, plain_softmax};
    return count;
}

struct product {
    const struct kvr_tile *tile;
    float *out;
    const float *x;
    struct kvr_packed packed;
    size_t rows, outputs, k, panels, groups;
};

/* Some rows with a piece of a panel, which begins at number `at` of the packed weights. */
static void run_rows(const struct product *product, float *out, size_t out_stride, const float *x,
    size_t rows, size_t at, size_t length, bool accumulate)
{
    if (product->packed.floats)
        product->tile->float_rows(
            out, out_stride, x, product->k, rows, product->packed.floats + at, length, accumulate);
    else
        product->tile->rows(
            out, out_stride, x, product->k, rows, product->packed.halves + at, length, accumulate);
}

/* The last panel of outputs that are no multiple of 32: through a buffer of whole panels. */
static void ragged(const struct product *product, size_t panel, size_t first, size_t rows)
{
    float whole[12 * KVR_PANEL];
    size_t start = panel * KVR_PANEL, width = product->outputs - start;

    for (size_t row = first; row < first + rows; row += 12) {
        size_t now = first + rows - row < 12 ? first + rows - row : 12;
        run_rows(product, whole, KVR_PANEL, product->x + row * product->k, now, start * product->k,
            product->k, false);
        for (size_t i = 0; i < now; i++)
            memcpy(product->out + (row + i) * product->outputs + start, whole + i * KVR_PANEL,
                width * sizeof *whole);
    }
}

/* A job: a block of rows with a few panels. */
static void multiply(void *context, size_t number, unsigned thread)
{
    const struct product *product = context;
    size_t first = number / product->groups * ROW_BLOCK;
    size_t rows = product->rows - first < ROW_BLOCK ? product->rows - first : ROW_BLOCK;
    size_t from = number % product->groups * JOB_PANELS;
    size_t to = from + JOB_PANELS < product->panels ? from + JOB_PANELS : product->panels;

    (void)thread;
    if (to * KVR_PANEL > product->outputs)
        ragged(product, --to, first, rows);
    for (size_t at = 0; at < product->k; at += K_BLOCK) {
        size_t length = product->k - at < K_BLOCK ? product->k - at : K_BLOCK;
        for (size_t panel = from; panel < to; panel++)
            run_rows(product, product->out + first * product->outputs + panel * KVR_PANEL,
                product->outputs, product->x + first * product->k + at, rows,
                (panel * product->k + at) * KVR_PANEL, length, at > 0);
    }
}

void kvr_gemm(struct kvr_crew *crew, const struct kvr_tile *tile, float *out, const float *x,
    size_t rows, struct kvr_packed packed, size_t outputs, size_t k)
{
    struct product product = {tile, out, x, packed, rows, outputs, k, 0, 0};

    product.panels = (outputs + KVR_PANEL - 1) / KVR_PANEL;
    product.groups = (product.panels + JOB_PANELS - 1) / JOB_PANELS;
    kvr_crew_run(crew, (rows + ROW_BLOCK - 1) / ROW_BLOCK * product.groups, multiply, &product);
}
