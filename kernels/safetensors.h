/*
 * safetensors, the model file of Hugging Face: u64 length of a header, the header, the data. The
 * header is one JSON object, a member a tensor:
 *
 *   "model.norm.weight":{"dtype":"BF16","shape":[2048],"data_offsets":[0,4096]}
 *
 * A model in several files has a JSON file beside them whose `weight_map` names the file of each
 * tensor. F32, F16 and BF16 are read.
 */
#ifndef KVR_KERNELS_SAFETENSORS_H
#define KVR_KERNELS_SAFETENSORS_H

#include "kernels/tensor.h"
#include "line/json.h"

/* Appends the tensors of a file; they point into bytes. KVR_BAD_INPUT says what is wrong with it,
 * KVR_UNSUPPORTED names a type that is not read. */
enum kvr_status kvr_safetensors_read(struct kvr_tensors *tensors, const void *bytes, size_t size,
    struct kvr_structure *structure, struct kvr_error *error);

#endif
