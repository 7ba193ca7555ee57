/* What the files of the CUDA backend share: its state, and how it fails. Nobody else's. */
#ifndef KVR_KERNELS_CUDA_RUNNER_H
#define KVR_KERNELS_CUDA_RUNNER_H

#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

extern "C" {
#include "kernels/backend.h"
}

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows that go through the layers at a time; rows of logits at a time. */
enum { CHUNK_ROWS = 2048, LOGITS_ROWS = 16 };

struct device_layer {
    uint16_t *attention_norm, *query_norm, *key_norm, *inner_norm, *qkv, *out, *gate_up, *down;
};

struct kvr_runner {
    struct kvr_shape shape;
    uint32_t pages, page_tokens;
    cudaStream_t stream;
    cublasHandle_t blas;
    bool has_blas;
    uint16_t *weights, *kv, *work; /* one allocation each */
    struct device_layer *layers;
    uint16_t *embedding, *logits_table, *final_norm;
    uint16_t *residual, *normed, *qkv, *attended, *gate_up, *inner, *update;
    float *turns, *logits;
    uint32_t *numbers; /* tokens, positions, slots, last rows: CHUNK_ROWS each */
    struct kvr_cuda_part *parts;
    uint32_t *tables; /* of a chunk */
    size_t table_room;
    /* the host's side of the same */
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

static inline void keep(struct kvr_runner *runner, cudaError_t result)
{
    if (runner->failure == cudaSuccess)
        runner->failure = result;
}

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
