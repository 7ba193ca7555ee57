/*
 * What the files of the CUDA backend share: its state, and how it fails. Nobody else's.
 *
 *   cuda.cu        making and unmaking a runner; the backend
 *   cuda_walk.cu   a step: rows into chunks, chunks through the layers, logits
 *   cuda_graph.cu  short chunks started as one graph
 *   cuda_pages.cu  KV pages packed, unpacked and copied
 */
#ifndef KVR_KERNELS_CUDA_RUNNER_H
#define KVR_KERNELS_CUDA_RUNNER_H

#include "kernels/cuda_gemm.h"
#include "kernels/cuda_link.h"
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

extern "C" {
#include "kernels/backend.h"
}

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_ROWS = 2048, /* that go through the layers at a time */
    SHORT_ROWS = 64,   /* a chunk of at most so many is padded, and may be a graph */
    LOGITS_ROWS = 16,  /* rows of logits at a time */
    RANKS = 16,
    GRAPHS = 64,
};

/* A matrix in bfloat16; in 8 bits with a scale where that is what the runner computes in. */
struct kvr_cuda_matrix {
    uint16_t *numbers;
    uint8_t *bytes;
    float *scale;
};

struct device_layer {
    uint16_t *attention_norm, *query_norm, *key_norm, *inner_norm;
    struct kvr_cuda_matrix qkv, out, gate_up, down;
};

/* One GPU's share: all layers, of each its part of the heads and of the inner width. With one GPU
 * everything. */
struct kvr_cuda_rank {
    int device;
    uint32_t number;
    uint32_t heads, kv_heads, inner;
    cudaStream_t stream;
    struct kvr_cuda_gemm *gemm;
    uint16_t *weights, *kv, *work; /* one allocation each */
    struct device_layer *layers;
    uint16_t *embedding, *logits_table, *final_norm;
    uint16_t *residual, *normed, *qkv, *attended, *gate_up, *activated, *update;
    uint8_t *bytes; /* an activation in 8 bits, and its scale */
    float *scale;
    float *turns, *logits;
    uint32_t *numbers; /* tokens, positions, slots, last rows: CHUNK_ROWS each */
    struct kvr_cuda_part *parts;
    uint32_t *tables; /* of a chunk */
};

/* How much of everything a chunk has, which is what grids are made from. */
struct kvr_cuda_size {
    uint32_t rows, parts, longest_part, logits;
};

struct kvr_cuda_graph {
    struct kvr_cuda_size size;
    cudaGraphExec_t graph;
};

struct kvr_runner {
    struct kvr_shape shape;
    uint32_t pages, page_tokens; /* each GPU has one page more, where padded rows write */
    bool eager, fp8;
    uint32_t rank_count;
    struct kvr_cuda_rank ranks[RANKS];
    struct kvr_cuda_link *link; /* NULL with one GPU */
    struct kvr_cuda_graph graphs[GRAPHS];
    uint32_t graph_count;
    size_t table_room; /* of every rank's tables */
    /* the host's side of a chunk */
    uint32_t host_numbers[4][CHUNK_ROWS];
    struct kvr_cuda_part host_parts[CHUNK_ROWS];
    const struct kvr_step *steps[CHUNK_ROWS];
    uint32_t *host_tables;
    size_t host_table_room, table_used;
    uint32_t rows, part_count;
    cudaError_t failure;
    char device[128];
};

static inline enum kvr_status fail(
    struct kvr_error *error, enum kvr_status status, const char *text, const char *detail)
{
    if (error) {
        error->status = status;
        snprintf(error->text, sizeof error->text, "%s%s%s", text, *detail ? ": " : "", detail);
    }
    return status;
}

/* Keeps the first failure. */
static inline void keep(struct kvr_runner *runner, cudaError_t result)
{
    if (runner->failure == cudaSuccess)
        runner->failure = result;
}

static inline void keep_true(struct kvr_runner *runner, bool fine)
{
    if (!fine)
        keep(runner, static_cast<cudaError_t>(1));
}

/* cuda_walk.cu: the backend's run(); and what a graph is made of: the layers and the first logits
 * of a chunk whose numbers are on the GPUs already. */
enum kvr_status kvr_cuda_run(
    struct kvr_runner *runner, const struct kvr_step *steps, size_t count, struct kvr_error *error);
void kvr_cuda_walk(struct kvr_runner *runner, const struct kvr_cuda_size *size);

/* cuda_graph.cu: the same as one graph, made the first time for each size. */
void kvr_cuda_walk_graph(struct kvr_runner *runner, const struct kvr_cuda_size *size);
void kvr_cuda_forget_graphs(struct kvr_runner *runner);

/* cuda_pages.cu: the backend's pack(), unpack(), copy_pages() and copy_rates(). */
enum kvr_status kvr_cuda_pack(struct kvr_runner *runner, const uint32_t *page_table,
    uint32_t tokens, const struct kvr_codec_level *level, uint8_t **bytes, size_t *size,
    struct kvr_error *error);
enum kvr_status kvr_cuda_unpack(struct kvr_runner *runner, const uint32_t *page_table,
    uint32_t max_tokens, const uint8_t *bytes, size_t size, uint32_t *tokens,
    struct kvr_error *error);
enum kvr_status kvr_cuda_copy_pages(struct kvr_runner *runner, const uint32_t *pages,
    uint32_t count, void *host, bool out, struct kvr_error *error);
enum kvr_status kvr_cuda_copy_rates(
    struct kvr_runner *runner, struct kvr_copy_rates *rates, struct kvr_error *error);

#endif
