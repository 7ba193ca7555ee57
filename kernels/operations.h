/*
 * The operations of a prefill as plain C that a person can check by eye: what each one means. One
 * pair of files an operation: NAME.c here, NAME.cu for a GPU. The CPU backend uses them as they
 * are, but for attention, whose fast form is in attention_tiled.c.
 *
 * Shapes are written outermost first, rows without gaps. Activations are float.
 */
#ifndef KVR_KERNELS_OPERATIONS_H
#define KVR_KERNELS_OPERATIONS_H

#include "kernels/number.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Keys and values in pages. A sequence's token t lies in slot t mod page_tokens of the page that
 * its page table names at t / page_tokens. One layer's part of a page holds, for keys and then for
 * values, [kv_heads][page_tokens][head_dim]: what one head of one page reads is contiguous.
 */
struct kvr_kv {
    kvr_bf16 *data; /* [layers][pages][2][kv_heads][page_tokens][head_dim] */
    uint32_t layers, pages, kv_heads, head_dim, page_tokens;
};

static inline size_t kvr_kv_size(const struct kvr_kv *kv)
{
    return (size_t)kv->layers * kv->pages * 2 * kv->kv_heads * kv->page_tokens * kv->head_dim;
}

/* Where head_dim numbers of one token begin; value 0: its key, 1: its value. */
static inline size_t kvr_kv_at(const struct kvr_kv *kv, const uint32_t *page_table, uint32_t layer,
    uint32_t token, int value, uint32_t head)
{
    size_t page = (size_t)layer * kv->pages + page_table[token / kv->page_tokens];

    return (((page * 2 + (size_t)value) * kv->kv_heads + head) * kv->page_tokens +
               token % kv->page_tokens) *
           kv->head_dim;
}

/* out[count][hidden] = table[tokens[i]][hidden]. */
void kvr_embed(
    float *out, const kvr_bf16 *table, const uint32_t *tokens, size_t count, size_t hidden);

/* residual[rows][width] += added (NULL: nothing); out = residual / rms(residual) · weight, with
 * rms² = mean of squares + epsilon (Zhang and Sennrich, arXiv:1910.07467). out may be residual. */
void kvr_rms_norm(float *out, float *residual, const float *added, const kvr_bf16 *weight,
    size_t rows, size_t width, float epsilon);

/* The same with weights in single precision, as model files may have them. */
void kvr_rms_norm_float(float *out, float *residual, const float *added, const float *weight,
    size_t rows, size_t width, float epsilon);

/*
 * Rotary positions (Su et al., arXiv:2104.09864): pair i of a head, numbers i and i + head_dim / 2,
 * turns by position · theta^(−2i / head_dim) / divisors[i] (NULL: 1). turns[count][head_dim / 2][2]
 * holds cosine and sine and is the same for all layers and heads, so that kvr_rope_turns() makes it
 * once. x[count] rows are `stride` floats apart.
 */
void kvr_rope_turns(float *turns, const uint32_t *positions, size_t count, size_t head_dim,
    double theta, const float *divisors);
void kvr_rope(
    float *x, size_t stride, const float *turns, size_t count, size_t heads, size_t head_dim);

/* Writes keys and values [count][kv_heads][head_dim], rows `stride` floats apart, of the tokens
 * first .. first + count - 1 of a sequence into its pages, rounded to bfloat16. */
void kvr_kv_write(const struct kvr_kv *kv, const uint32_t *page_table, uint32_t layer,
    uint32_t first, size_t count, const float *keys, const float *values, size_t stride);

/* One token's into pages that hold floats, laid as kv->data would be: nothing is rounded. */
void kvr_kv_write_float(const struct kvr_kv *kv, float *data, const uint32_t *page_table,
    uint32_t layer, uint32_t token, const float *keys, const float *values);

/*
 * Causal attention of `count` new tokens, the first at position `first`, over everything of their
 * sequence up to themselves, which lies in the pages. queries[count][heads][head_dim], rows
 * `stride` floats apart; query heads share key heads in runs of heads / kv_heads.
 * out[count][heads][head_dim]. Sums in double precision: the measure for all faster ones.
 */
void kvr_attention(float *out, const float *queries, size_t stride, const struct kvr_kv *kv,
    const uint32_t *page_table, uint32_t layer, uint32_t first, size_t count, uint32_t heads);

/* out[rows][inner] = gate / (1 + exp(−gate)) · up, from gate_up[rows][2][inner]. */
void kvr_swiglu(float *out, const float *gate_up, size_t rows, size_t inner);

/* logits[vocabulary] = x[hidden] · table[vocabulary][hidden]ᵀ, summed in double precision. */
void kvr_logits(
    float *logits, const float *x, const kvr_bf16 *table, size_t vocabulary, size_t hidden);

#endif
