/* What model_file.c and model_file_open.c share. */
#ifndef KVR_KERNELS_MODEL_FILE_PRIVATE_H
#define KVR_KERNELS_MODEL_FILE_PRIVATE_H

#include "base/mapped.h"
#include "kernels/gguf.h"
#include "kernels/model_config.h"
#include "kernels/model_file.h"

enum {
    KVR_ROLE_ATTENTION_NORM,
    KVR_ROLE_QUERY,
    KVR_ROLE_KEY,
    KVR_ROLE_VALUE,
    KVR_ROLE_QUERY_BIAS,
    KVR_ROLE_KEY_BIAS,
    KVR_ROLE_VALUE_BIAS,
    KVR_ROLE_QUERY_NORM,
    KVR_ROLE_KEY_NORM,
    KVR_ROLE_OUT,
    KVR_ROLE_INNER_NORM,
    KVR_ROLE_GATE,
    KVR_ROLE_UP,
    KVR_ROLE_DOWN,
    KVR_LAYER_ROLES,
    KVR_ROLE_EMBEDDING = KVR_LAYER_ROLES,
    KVR_ROLE_LOGITS,
    KVR_ROLE_FINAL_NORM,
    KVR_ROLE_ROPE,
    KVR_ROLES,
};

struct kvr_layer_tensors {
    const struct kvr_tensor *tensors[KVR_LAYER_ROLES];
};

struct kvr_model_file {
    struct kvr_model_config config;
    struct kvr_gguf gguf; /* of safetensors only its list of tensors is used */
    struct kvr_layer_tensors *layers;
    const struct kvr_tensor *others[KVR_ROLES - KVR_LAYER_ROLES];
    bool has_bias;
    struct kvr_mapped *mapped; /* the files, where this opened them */
    size_t mapped_count, mapped_capacity;
    char *name;
};

/* Gives every tensor its role and checks that none is missing. */
enum kvr_status kvr_model_file_settle(
    struct kvr_model_file *file, bool gguf, struct kvr_error *error);

#endif
