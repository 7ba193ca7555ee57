/*
 * What a model file says of the model's shape: config.json beside safetensors, or the pairs of a
 * GGUF file. Dense decoders of the Llama family are read (llama, mistral, qwen2, qwen3); what would
 * need another computation (a sliding window, YaRN, experts, another activation) is refused by
 * name, never left out.
 */
#ifndef KVR_KERNELS_MODEL_CONFIG_H
#define KVR_KERNELS_MODEL_CONFIG_H

#include "kernels/gguf.h"
#include "kernels/shape.h"
#include "line/json.h"

enum { KVR_HEAD_DIM_MOST = 512 };

/*
 * tied says what the file says, where it says; `ties` whether it does. interleaved: a pair that
 * RoPE turns stands in neighbouring rows of the query's and key's weights, as llama.cpp's converter
 * lays them for the architecture llama; everywhere else half a head apart.
 */
struct kvr_model_config {
    struct kvr_shape shape; /* but for name and head_norms */
    bool ties, interleaved;
    float rope_divisors[KVR_HEAD_DIM_MOST / 2]; /* of the frequency of each pair; else 1 */
    char architecture[32];
};

/* KVR_BAD_INPUT where something is missing or out of range, KVR_UNSUPPORTED as above. The
 * vocabulary of GGUF is 0 where no pair says it: the embedding's rows tell. */
enum kvr_status kvr_model_config_json(
    struct kvr_model_config *config, struct kvr_value object, struct kvr_error *error);
enum kvr_status kvr_model_config_gguf(
    struct kvr_model_config *config, const struct kvr_gguf *gguf, struct kvr_error *error);

#endif
