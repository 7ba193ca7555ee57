/*
 * GGUF, the model file of GGML and llama.cpp (versions 2 and 3, little-endian):
 *
 *   "GGUF", u32 version, u64 tensors, u64 pairs
 *   pairs of   string key, u32 type, value       a string is u64 length and bytes; an array u32
 *                                                type, u64 count and the elements
 *   tensors of string name, u32 dimensions, u64 sizes (innermost first), u32 type, u64 offset
 *   data, from the next multiple of general.alignment (32 without one)
 *
 * Everything in it is checked against the end of the file before it is touched; counts are bounded
 * by what the bytes that follow can hold.
 */
#ifndef KVR_KERNELS_GGUF_H
#define KVR_KERNELS_GGUF_H

#include "kernels/tensor.h"

struct kvr_gguf_pair {
    const char *key; /* not terminated */
    size_t key_bytes;
    uint32_t type;
    const unsigned char *value;
};

struct kvr_gguf {
    struct kvr_gguf_pair *pairs;
    size_t pair_count, pair_capacity;
    struct kvr_tensors tensors;
};

/* Whether bytes begin as a GGUF file does. */
bool kvr_is_gguf(const void *bytes, size_t size);

/* Reads the pairs and the list of tensors; both point into bytes. KVR_BAD_INPUT says what is wrong,
 * KVR_UNSUPPORTED names a type or version that is not read. Release in any case. */
enum kvr_status kvr_gguf_read(
    struct kvr_gguf *gguf, const void *bytes, size_t size, struct kvr_error *error);
void kvr_gguf_release(struct kvr_gguf *gguf);

/* The pair of that key; NULL where there is none. */
const struct kvr_gguf_pair *kvr_gguf_find(const struct kvr_gguf *gguf, const char *key);

/* A number or a bool of any width; false where it is none. The numbers of an array that are all
 * the same count as one. */
bool kvr_gguf_number(const struct kvr_gguf_pair *pair, double *number);

/* The text of a string; NULL where it is none. Not terminated. */
const char *kvr_gguf_text(const struct kvr_gguf_pair *pair, size_t *length);

#endif
