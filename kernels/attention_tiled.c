#include "kernels/attention_tiled.h"

#include <math.h>
#include <string.h>

enum { ROWS = KVR_ATTENTION_ROWS, KEYS = KVR_ATTENTION_KEYS };

size_t kvr_attention_scratch(uint32_t head_dim)
{
    size_t panels = (size_t)2 * KEYS * head_dim;

    return (size_t)2 * ROWS * head_dim + (size_t)ROWS * KEYS + 2 * ROWS + panels;
}

uint32_t kvr_attention_tile_tokens(uint32_t heads, uint32_t kv_heads)
{
    uint32_t tokens = ROWS / (heads / kv_heads);

    return tokens < 64 ? tokens : 64;
}

/* Keys `start` to start + 63 of one head as two panels [head_dim][32], and values as panels
 * [head_dim / 32][64][32]; from `end` on there are zeros. `width` bytes a number, a constant where
 * it is called. */
__attribute__((always_inline)) static inline void gather(const size_t width, char *keys,
    char *values, const char *pool, const struct kvr_kv *kv, const uint32_t *page_table,
    uint32_t layer, uint32_t head, uint32_t start, uint32_t end)
{
    uint32_t dim = kv->head_dim;

    for (uint32_t at = 0; at < KEYS; at++) {
        char *column = keys + ((size_t)(at / KVR_PANEL) * dim * KVR_PANEL + at % KVR_PANEL) * width;
        char *row = values + (size_t)at * KVR_PANEL * width;
        if (start + at >= end) {
            for (uint32_t i = 0; i < dim; i++)
                memset(column + (size_t)i * KVR_PANEL * width, 0, width);
            for (uint32_t i = 0; i < dim; i += KVR_PANEL)
                memset(row + (size_t)i * KEYS * width, 0, KVR_PANEL * width);
            continue;
        }
        const char *key = pool + kvr_kv_at(kv, page_table, layer, start + at, 0, head) * width;
        const char *value = pool + kvr_kv_at(kv, page_table, layer, start + at, 1, head) * width;
        for (uint32_t i = 0; i < dim; i++)
            memcpy(column + (size_t)i * KVR_PANEL * width, key + i * width, width);
        for (uint32_t i = 0; i < dim; i += KVR_PANEL)
            memcpy(row + (size_t)i * KEYS * width, value + i * width, KVR_PANEL * width);
    }
}

void kvr_attention_tile(const struct kvr_tile *tile, float *scratch, float *out,
    const float *queries, size_t stride, const struct kvr_kv *kv, const float *floats,
    const uint32_t *page_table, uint32_t layer, uint32_t first, size_t count, uint32_t heads,
    uint32_t kv_head)
{
    const uint32_t dim = kv->head_dim, shared = heads / kv->kv_heads;
    const size_t rows = count * shared, head = (size_t)kv_head * shared;
    const float scale = 1 / sqrtf((float)dim);
    const uint32_t end = first + (uint32_t)count;
    float *query = scratch, *sums = query + ROWS * dim, *scores = sums + ROWS * dim;
    float *maximum = scores + ROWS * KEYS, *total = maximum + ROWS;
    float *keys = total + ROWS, *values = keys + (size_t)KEYS * dim; /* or halves in their place */
    kvr_bf16 *half_keys = (kvr_bf16 *)keys, *half_values = (kvr_bf16 *)values;

    for (size_t row = 0; row < rows; row++) {
        const float *from = queries + row / shared * stride + (head + row % shared) * dim;
        for (uint32_t i = 0; i < dim; i++)
            query[row * dim + i] = from[i] * scale;
        maximum[row] = -INFINITY;
        total[row] = 0;
    }
    memset(sums, 0, rows * dim * sizeof *sums);
    for (uint32_t start = 0; start < end; start += KEYS) {
        /* Rows before this one see no key of the block. */
        size_t begin = start > first ? (size_t)(start - first) * shared : 0;
        if (floats)
            gather(sizeof(float), (char *)keys, (char *)values, (const char *)floats, kv,
                page_table, layer, kv_head, start, end);
        else
            gather(sizeof(kvr_bf16), (char *)keys, (char *)values, (const char *)kv->data, kv,
                page_table, layer, kv_head, start, end);
        for (size_t half = 0; half < KEYS; half += KVR_PANEL) {
            float *to = scores + begin * KEYS + half;
            const float *from = query + begin * dim;
            if (floats)
                tile->float_rows(to, KEYS, from, dim, rows - begin, keys + half * dim, dim, false);
            else
                tile->rows(to, KEYS, from, dim, rows - begin, half_keys + half * dim, dim, false);
        }
        for (size_t row = begin; row < rows; row++) {
            uint32_t seen = first + (uint32_t)(row / shared) - start + 1;
            float *line = scores + row * KEYS;
            for (uint32_t i = seen; i < KEYS; i++)
                line[i] = -INFINITY;
            float keep = tile->softmax(line, &maximum[row], &total[row]);
            for (uint32_t i = 0; i < dim; i++)
                sums[row * dim + i] *= keep;
        }
        for (size_t i = 0; i < dim; i += KVR_PANEL) {
            float *to = sums + begin * dim + i;
            const float *from = scores + begin * KEYS;
            if (floats)
                tile->float_rows(to, dim, from, KEYS, rows - begin, values + i * KEYS, KEYS, true);
            else
                tile->rows(to, dim, from, KEYS, rows - begin, half_values + i * KEYS, KEYS, true);
        }
    }
    for (size_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < dim; i++)
            out[(row / shared * heads + head + row % shared) * dim + i] =
                sums[row * dim + i] / total[row];
}
