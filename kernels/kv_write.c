#include "kernels/operations.h"

void kvr_kv_write(const struct kvr_kv *kv, const uint32_t *page_table, uint32_t layer,
    uint32_t first, size_t count, const float *keys, const float *values, size_t stride)
{
    for (size_t row = 0; row < count; row++) {
        uint32_t token = first + (uint32_t)row;
        for (uint32_t head = 0; head < kv->kv_heads; head++) {
            size_t from = row * stride + (size_t)head * kv->head_dim;
            kvr_bf16 *key = kv->data + kvr_kv_at(kv, page_table, layer, token, 0, head);
            kvr_bf16 *value = kv->data + kvr_kv_at(kv, page_table, layer, token, 1, head);
            for (uint32_t i = 0; i < kv->head_dim; i++) {
                key[i] = kvr_bf16_round(keys[from + i]);
                value[i] = kvr_bf16_round(values[from + i]);
            }
        }
    }
}

void kvr_kv_write_float(const struct kvr_kv *kv, float *data, const uint32_t *page_table,
    uint32_t layer, uint32_t token, const float *keys, const float *values)
{
    size_t bytes = kv->head_dim * sizeof *data;

    for (uint32_t head = 0; head < kv->kv_heads; head++) {
        size_t from = (size_t)head * kv->head_dim;
        memcpy(data + kvr_kv_at(kv, page_table, layer, token, 0, head), keys + from, bytes);
        memcpy(data + kvr_kv_at(kv, page_table, layer, token, 1, head), values + from, bytes);
    }
}
