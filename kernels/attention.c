#include "kernels/operations.h"

#include <math.h>

static double score(const float *query, const struct kvr_kv *kv, const uint32_t *page_table,
    uint32_t layer, uint32_t token, uint32_t kv_head)
{
    const kvr_bf16 *key = kv->data + kvr_kv_at(kv, page_table, layer, token, 0, kv_head);
    double sum = 0;

    for (uint32_t i = 0; i < kv->head_dim; i++)
        sum += (double)query[i] * (double)kvr_bf16_value(key[i]);
    return sum / sqrt(kv->head_dim);
}

/* One query: the largest score first, then the weighted mean of the values. */
static void attend(float *out, const float *query, const struct kvr_kv *kv,
    const uint32_t *page_table, uint32_t layer, uint32_t position, uint32_t kv_head)
{
    double most = -INFINITY, total = 0;

    for (uint32_t token = 0; token <= position; token++)
        most = fmax(most, score(query, kv, page_table, layer, token, kv_head));
    for (uint32_t token = 0; token <= position; token++)
        total += exp(score(query, kv, page_table, layer, token, kv_head) - most);
    for (uint32_t i = 0; i < kv->head_dim; i++)
        out[i] = 0;
    for (uint32_t token = 0; token <= position; token++) {
        const kvr_bf16 *value = kv->data + kvr_kv_at(kv, page_table, layer, token, 1, kv_head);
        double weight = exp(score(query, kv, page_table, layer, token, kv_head) - most) / total;
        for (uint32_t i = 0; i < kv->head_dim; i++)
            out[i] = (float)(out[i] + weight * (double)kvr_bf16_value(value[i]));
    }
}

void kvr_attention(float *out, const float *queries, size_t stride, const struct kvr_kv *kv,
    const uint32_t *page_table, uint32_t layer, uint32_t first, size_t count, uint32_t heads)
{
    uint32_t shared = heads / kv->kv_heads;

    for (size_t row = 0; row < count; row++)
        for (uint32_t head = 0; head < heads; head++)
            attend(out + (row * heads + head) * kv->head_dim,
                queries + row * stride + (size_t)head * kv->head_dim, kv, page_table, layer,
                first + (uint32_t)row, head / shared);
}
