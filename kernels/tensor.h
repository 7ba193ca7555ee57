/*
 * Tensors as model files hold them: a name, a shape, numbers in one of the usual types. Plain
 * floats, halves, bfloat16, and the block formats of GGML, in which 32 numbers (256 in the K
 * formats) share a scale:
 *
 *   Q8_0  half d; 32 signed bytes                                        d · q
 *   Q4_0  half d; 16 bytes of two nibbles, low ones first                d · (q − 8)
 *   Q4_1  half d, half m; 16 bytes of nibbles                            d · q + m
 *   Q5_0, Q5_1  as these with a fifth bit of each q in 4 bytes before the nibbles (− 16)
 *   Q4_K  half d, half m; 12 bytes of eight 6-bit scales and minima; 128 of nibbles
 *   Q5_K  the same with 32 bytes of fifth bits before the nibbles
 *   Q6_K  128 bytes of low nibbles, 64 of high bit pairs, 16 scales, half d     d · s · (q − 32)
 *
 * Little-endian, as the files are and as the machines are that this is built for.
 */
#ifndef KVR_KERNELS_TENSOR_H
#define KVR_KERNELS_TENSOR_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum kvr_tensor_type {
    KVR_TENSOR_F32,
    KVR_TENSOR_F16,
    KVR_TENSOR_BF16,
    KVR_TENSOR_Q4_0,
    KVR_TENSOR_Q4_1,
    KVR_TENSOR_Q5_0,
    KVR_TENSOR_Q5_1,
    KVR_TENSOR_Q8_0,
    KVR_TENSOR_Q4_K,
    KVR_TENSOR_Q5_K,
    KVR_TENSOR_Q6_K,
    KVR_TENSOR_TYPES,
};

enum { KVR_TENSOR_BLOCK_MOST = 256 };

struct kvr_tensor {
    const char *name; /* not terminated; points into the file, as data does */
    size_t name_bytes;
    enum kvr_tensor_type type;
    uint32_t dimensions;    /* 1 or 2 */
    uint64_t rows, columns; /* [rows][columns]; rows is 1 where there is one dimension */
    const unsigned char *data;
};

/* A list of them. The tensors point into the files, which must outlive it. */
struct kvr_tensors {
    struct kvr_tensor *items;
    size_t count, capacity;
};

void kvr_tensors_release(struct kvr_tensors *tensors);

/* Appends; KVR_NO_MEMORY. */
enum kvr_status kvr_tensors_add(
    struct kvr_tensors *tensors, const struct kvr_tensor *tensor, struct kvr_error *error);

const char *kvr_tensor_type_name(enum kvr_tensor_type type);

/* Numbers of a block (1 for plain types). */
uint32_t kvr_tensor_block(enum kvr_tensor_type type);

/* Bytes of the whole tensor. False where columns are no whole blocks or the size leaves 63 bits. */
bool kvr_tensor_bytes(const struct kvr_tensor *tensor, uint64_t *bytes);

/* out = the numbers first .. first + count - 1 of a row, which are within it. first is a multiple
 * of the type's block, and so is count unless it ends the row. Never fails: whoever made the tensor
 * has checked that its bytes are there. */
void kvr_tensor_read(
    const struct kvr_tensor *tensor, uint64_t row, uint64_t first, size_t count, float *out);

#endif
