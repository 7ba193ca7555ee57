/*
 * The weights of a real model, from safetensors or GGUF, mapped and read by their place in the
 * model: whatever the file calls its tensors and however it lays them, a reader here asks for a row
 * of the matrix that the backend multiplies with.
 *
 * Problem: the two formats name tensors differently, keep queries, keys and values apart where one
 * product wants them together, and llama.cpp's converter puts the two halves of a head that RoPE
 * turns together next to each other for the architecture llama, but not for others. Idea: a table
 * of roles with both names; each tensor of the file must have a role, with the shape that the
 * configuration says, or the file is refused: a tensor that nobody multiplies with would make the
 * result wrong without a word. Row numbers are mapped when a row is read.
 */
#ifndef KVR_KERNELS_MODEL_FILE_H
#define KVR_KERNELS_MODEL_FILE_H

#include "kernels/shape.h"
#include "kernels/weight.h"

struct kvr_model_file;

/*
 * A .gguf file; a .safetensors file with config.json beside it; a model.safetensors.index.json; or
 * a folder with model.safetensors or that index. Files stay mapped until kvr_model_file_close().
 * KVR_IO, KVR_BAD_INPUT where a file is damaged, KVR_UNSUPPORTED where the model cannot be run;
 * messages name the file or the tensor.
 */
enum kvr_status kvr_model_file_open(
    const char *path, struct kvr_model_file **file, struct kvr_error *error);
void kvr_model_file_close(struct kvr_model_file *file);

/* The same from bytes in memory, which must outlive it: a GGUF file; or config.json and one file of
 * safetensors. name becomes the shape's and must outlive it too. */
enum kvr_status kvr_model_file_gguf(const char *name, const void *bytes, size_t size,
    struct kvr_model_file **file, struct kvr_error *error);
enum kvr_status kvr_model_file_safetensors(const char *name, const char *config,
    size_t config_length, const void *bytes, size_t size, struct kvr_model_file **file,
    struct kvr_error *error);

const struct kvr_shape *kvr_model_file_shape(const struct kvr_model_file *file);

/* [head_dim / 2]: what the frequency of each rotary pair is divided by. */
const float *kvr_model_file_rope_divisors(const struct kvr_model_file *file);

/* Whether queries, keys and values have biases: KVR_WEIGHT_QKV_BIAS. */
bool kvr_model_file_has_bias(const struct kvr_model_file *file);

/* Whether bfloat16 holds all numbers of this tensor exactly, as they are kept in it. */
bool kvr_model_file_is_bf16(
    const struct kvr_model_file *file, enum kvr_weight_kind kind, uint32_t layer);

/* out = the numbers first .. first + count - 1 of row `row` of a tensor as kvr_weight_kind
 * describes it; a norm or bias is one row. first is a multiple of KVR_TENSOR_BLOCK_MOST, and count
 * is one unless it ends the row. */
void kvr_model_file_read(const struct kvr_model_file *file, enum kvr_weight_kind kind,
    uint32_t layer, size_t row, size_t first, size_t count, float *out);

#endif
