/*
 * out = x · Wᵀ on the CPU, for weights in bfloat16 (or float) and activations in float, in a way
 * that gives every row the same bits whatever other rows stand beside it.
 *
 * Problem: a prefill on top of a cached prefix multiplies fewer rows than one without. BLAS
 * libraries choose kernels and edges by the number of rows, so the same row may sum in another
 * order and get other bits; they also pack the weights again in every call, which a prefill of a
 * few tokens pays dearly. Idea: the weights are packed once, into panels of 32 outputs, and one
 * output of one row is always one chain of fused multiply-adds over k = 0, 1, 2, ...: how many rows
 * share a pass over the panel (up to 12 with AVX-512) decides which registers hold the chains, and
 * nothing else. Partition by rows, panels or threads therefore cannot change a bit, and k is never
 * parted between threads.
 *
 * Layout of packed weights: [outputs / 32 rounded up][k][32], the last panel filled up with zeros.
 * Cost: one load of 32 weights feeds 12 · 32 multiply-adds; rows are walked in blocks of 256 and k
 * in blocks of 512, so that x lies in the L2 cache and the piece of a panel in L1.
 */
#ifndef KVR_KERNELS_GEMM_H
#define KVR_KERNELS_GEMM_H

#include "kernels/crew.h"
#include "kernels/number.h"

#include <stdbool.h>
#include <stdint.h>

enum { KVR_PANEL = 32 };

/* Numbers in the packed form of [outputs][k]. */
static inline size_t kvr_gemm_packed_size(size_t outputs, size_t k)
{
    return (outputs + KVR_PANEL - 1) / KVR_PANEL * KVR_PANEL * k;
}

/* Where weight [output][i] stands in it. */
static inline size_t kvr_gemm_packed_at(size_t output, size_t i, size_t k)
{
    return (output / KVR_PANEL * k + i) * KVR_PANEL + output % KVR_PANEL;
}

/* Packed weights: one of the two. Floats are for those of model files that bfloat16 would round;
 * the same numbers give the same products either way. */
struct kvr_packed {
    const kvr_bf16 *halves;
    const float *floats;
};

/* How the inner loops are written for this machine. A plain value. */
struct kvr_tile {
    const char *name; /* "avx512", "avx2", "plain" */
    /* out[r][0..31] (+)= Σ x[r][i] · panel[i][0..31], rows out_stride and x_stride floats apart */
    void (*rows)(float *out, size_t out_stride, const float *x, size_t x_stride, size_t rows,
        const kvr_bf16 *panel, size_t k, bool accumulate);
    /* The same for a panel of floats. */
    void (*float_rows)(float *out, size_t out_stride, const float *x, size_t x_stride, size_t rows,
        const float *panel, size_t k, bool accumulate);
    /* One step of an online softmax over a row of 64 scores: they become exp(score − maximum),
     * *maximum and *sum are brought up to date, and what older sums must be scaled by is returned.
     */
    float (*softmax)(float *scores, float *maximum, float *sum);
};

/* Those that this machine can run, the fastest first; returns how many. */
size_t kvr_tiles(struct kvr_tile tiles[3]);

/* out[rows][outputs] = x[rows][k] · Wᵀ. outputs that are no multiple of 32 are cut at the edge. */
void kvr_gemm(struct kvr_crew *crew, const struct kvr_tile *tile, float *out, const float *x,
    size_t rows, struct kvr_packed packed, size_t outputs, size_t k);

#endif
