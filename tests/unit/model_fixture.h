/*
 * Model files made by hand: the weights of a seed written as safetensors and as GGUF, as their
 * converters lay them, for a shape and a family. What a runner of the seed computes, runners of
 * both files must compute.
 */
#ifndef KVR_TESTS_MODEL_FIXTURE_H
#define KVR_TESTS_MODEL_FIXTURE_H

#include "base/buffer.h"
#include "kernels/model_file.h"
#include "tests/unit/kernel_fixture.h"

#include <stdio.h>

struct made_model {
    const struct kvr_shape *shape;
    const char *family; /* "llama", "qwen2", "qwen3" */
    uint64_t seed;
    bool floats;          /* F32, else BF16 */
    const char *extra;    /* more members of config.json, from a comma on */
    const char *left_out; /* a tensor's name in GGUF or safetensors that is not written */
    const char *twice;    /* one that is written two times */
    struct kvr_buffer gguf, safetensors, config;
    struct kvr_buffer infos, data, header, pairs; /* under way */
    uint32_t tensors, pair_count;
};

static inline void put(struct kvr_buffer *out, uint64_t number, size_t bytes)
{
    kvr_buffer_append(out, &number, bytes);
}

static inline void put_string(struct kvr_buffer *out, const char *text)
{
    put(out, strlen(text), 8);
    kvr_buffer_append_text(out, text);
}

static inline void pair_text(struct made_model *model, const char *key, const char *text)
{
    put_string(&model->pairs, key);
    put(&model->pairs, 8, 4);
    put_string(&model->pairs, text);
    model->pair_count++;
}

/* Under "FAMILY.". */
static inline void pair_number(struct made_model *model, const char *key, uint32_t number)
{
    char name[128];

    snprintf(name, sizeof name, "%s.%s", model->family, key);
    put_string(&model->pairs, name);
    put(&model->pairs, 4, 4);
    put(&model->pairs, number, 4);
    model->pair_count++;
}

static inline void pair_float(struct made_model *model, const char *key, float number)
{
    char name[128];

    snprintf(name, sizeof name, "%s.%s", model->family, key);
    put_string(&model->pairs, name);
    put(&model->pairs, 6, 4);
    kvr_buffer_append(&model->pairs, &number, 4);
    model->pair_count++;
}

static inline void put_number(struct made_model *model, float value, bool is_float)
{
    kvr_bf16 half = kvr_bf16_round(value);

    if (is_float)
        kvr_buffer_append(&model->data, &value, 4);
    else
        kvr_buffer_append(&model->data, &half, 2);
}

/* A piece of a tensor of the seed, its rows from `first` on, under both names. rows 0: a vector.
 * heads: of queries or keys, whose rows llama.cpp lays in pairs; 0: of neither. */
static inline void put_tensor(struct made_model *model, const char *gguf, const char *hf,
    enum kvr_weight_kind kind, uint32_t layer, size_t first, size_t rows, size_t columns,
    size_t heads)
{
    bool norm = rows == 0 && kind != KVR_WEIGHT_QKV_BIAS, is_float = model->floats;
    size_t count = rows ? rows : heads ? columns : 1, width = rows ? columns : 1;
    size_t dim = model->shape->head_dim;
    struct kvr_weight_stream stream =
        kvr_weight_stream(model->seed, kind, layer, norm ? 1 : (uint32_t)columns);
    char sizes[64];

    if (!rows && !heads)
        width = columns;
    for (int format = 0; format < 2; format++) {
        const char *name = format ? gguf : hf;
        if (model->left_out && strcmp(name, model->left_out) == 0)
            continue;
        size_t begin = model->data.length;
        bool in_pairs = format && heads && strcmp(model->family, "llama") == 0;
        for (size_t row = 0; row < count; row++) {
            size_t at = row;
            if (in_pairs)
                at = row / dim * dim + row % 2 * (dim / 2) + row % dim / 2;
            for (size_t i = 0; i < width; i++)
                put_number(model,
                    norm ? kvr_weight_norm_value(&stream, i)
                         : kvr_weight_value(&stream, (first + at) * width + i),
                    is_float);
        }
        for (int copy = 0; copy < 1 + (model->twice && strcmp(name, model->twice) == 0); copy++) {
            if (format) {
                put_string(&model->infos, name);
                put(&model->infos, rows ? 2 : 1, 4);
                put(&model->infos, columns, 8);
                if (rows)
                    put(&model->infos, rows, 8);
                put(&model->infos, is_float ? 0 : 30, 4);
                put(&model->infos, begin, 8);
                model->tensors++;
            } else {
                snprintf(sizes, sizeof sizes, rows ? "[%zu,%zu]" : "[%.0zu%zu]", rows, columns);
                kvr_buffer_append_format(&model->header,
                    "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                    model->header.length > 1 ? "," : "", name, is_float ? "F32" : "BF16", sizes,
                    begin, model->data.length);
            }
        }
        while (model->data.length % 32)
            kvr_buffer_append_byte(&model->data, 0);
    }
}

static inline void put_layer(struct made_model *model, uint32_t layer)
{
    const struct kvr_shape *s = model->shape;
    size_t q = (size_t)s->heads * s->head_dim, kv = (size_t)s->kv_heads * s->head_dim;
    const struct {
        const char *gguf, *hf;
        enum kvr_weight_kind kind;
        size_t first, rows, columns, heads;
        const char *family; /* whose it is; NULL: all have it */
    } tensors[] = {
        {"attn_norm.weight", "input_layernorm.weight", KVR_WEIGHT_ATTENTION_NORM, 0, 0, s->hidden,
            0, NULL},
        {"attn_q.weight", "self_attn.q_proj.weight", KVR_WEIGHT_QKV, 0, q, s->hidden, s->heads,
            NULL},
        {"attn_k.weight", "self_attn.k_proj.weight", KVR_WEIGHT_QKV, q, kv, s->hidden, s->kv_heads,
            NULL},
        {"attn_v.weight", "self_attn.v_proj.weight", KVR_WEIGHT_QKV, q + kv, kv, s->hidden, 0,
            NULL},
        {"attn_q.bias", "self_attn.q_proj.bias", KVR_WEIGHT_QKV_BIAS, 0, 0, q, s->heads, "qwen2"},
        {"attn_k.bias", "self_attn.k_proj.bias", KVR_WEIGHT_QKV_BIAS, q, 0, kv, s->kv_heads,
            "qwen2"},
        {"attn_v.bias", "self_attn.v_proj.bias", KVR_WEIGHT_QKV_BIAS, q + kv, 0, kv, s->kv_heads,
            "qwen2"},
        {"attn_q_norm.weight", "self_attn.q_norm.weight", KVR_WEIGHT_QUERY_NORM, 0, 0, s->head_dim,
            0, "qwen3"},
        {"attn_k_norm.weight", "self_attn.k_norm.weight", KVR_WEIGHT_KEY_NORM, 0, 0, s->head_dim, 0,
            "qwen3"},
        {"attn_output.weight", "self_attn.o_proj.weight", KVR_WEIGHT_OUT, 0, s->hidden, q, 0, NULL},
        {"ffn_norm.weight", "post_attention_layernorm.weight", KVR_WEIGHT_INNER_NORM, 0, 0,
            s->hidden, 0, NULL},
        {"ffn_gate.weight", "mlp.gate_proj.weight", KVR_WEIGHT_GATE_UP, 0, s->inner, s->hidden, 0,
            NULL},
        {"ffn_up.weight", "mlp.up_proj.weight", KVR_WEIGHT_GATE_UP, s->inner, s->inner, s->hidden,
            0, NULL},
        {"ffn_down.weight", "mlp.down_proj.weight", KVR_WEIGHT_DOWN, 0, s->hidden, s->inner, 0,
            NULL},
    };
    char gguf[128], hf[128];

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (tensors[i].family && strcmp(tensors[i].family, model->family) != 0)
            continue;
        snprintf(gguf, sizeof gguf, "blk.%u.%s", layer, tensors[i].gguf);
        snprintf(hf, sizeof hf, "model.layers.%u.%s", layer, tensors[i].hf);
        put_tensor(model, gguf, hf, tensors[i].kind, layer, tensors[i].first, tensors[i].rows,
            tensors[i].columns, tensors[i].heads);
    }
}

/* Closes the files; pairs may have been added before. */
static inline void make_model(struct made_model *model)
{
    const struct kvr_shape *s = model->shape;

    kvr_buffer_append_byte(&model->header, '{');
    if (!s->tied)
        put_tensor(model, "output.weight", "lm_head.weight", KVR_WEIGHT_LOGITS, 0, 0, s->vocabulary,
            s->hidden, 0);
    put_tensor(model, "token_embd.weight", "model.embed_tokens.weight", KVR_WEIGHT_EMBEDDING, 0, 0,
        s->vocabulary, s->hidden, 0);
    put_tensor(model, "output_norm.weight", "model.norm.weight", KVR_WEIGHT_FINAL_NORM, 0, 0, 0,
        s->hidden, 0);
    for (uint32_t layer = 0; layer < s->layers; layer++)
        put_layer(model, layer);
    kvr_buffer_append_byte(&model->header, '}');

    put(&model->safetensors, model->header.length, 8);
    kvr_buffer_append(&model->safetensors, model->header.data, model->header.length);
    kvr_buffer_append(&model->safetensors, model->data.data, model->data.length);
    kvr_buffer_append_format(&model->config,
        "{\"model_type\":\"%s\",\"hidden_act\":\"silu\",\"vocab_size\":%u,\"hidden_size\":%u,"
        "\"num_hidden_layers\":%u,\"num_attention_heads\":%u,\"num_key_value_heads\":%u,"
        "\"head_dim\":%u,\"intermediate_size\":%u,\"rms_norm_eps\":%.9g,\"rope_theta\":%g,"
        "\"tie_word_embeddings\":%s%s}",
        model->family, s->vocabulary, s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim,
        s->inner, (double)s->norm_epsilon, s->rope_theta, s->tied ? "true" : "false",
        model->extra ? model->extra : "");

    pair_text(model, "general.architecture", model->family);
    pair_number(model, "embedding_length", s->hidden);
    pair_number(model, "block_count", s->layers);
    pair_number(model, "attention.head_count", s->heads);
    pair_number(model, "attention.head_count_kv", s->kv_heads);
    pair_number(model, "attention.key_length", s->head_dim);
    pair_number(model, "feed_forward_length", s->inner);
    pair_float(model, "rope.freq_base", (float)s->rope_theta);
    pair_float(model, "attention.layer_norm_rms_epsilon", s->norm_epsilon);
    kvr_buffer_append_text(&model->gguf, "GGUF");
    put(&model->gguf, 3, 4);
    put(&model->gguf, model->tensors, 8);
    put(&model->gguf, model->pair_count, 8);
    kvr_buffer_append(&model->gguf, model->pairs.data, model->pairs.length);
    kvr_buffer_append(&model->gguf, model->infos.data, model->infos.length);
    while (model->gguf.length % 32)
        kvr_buffer_append_byte(&model->gguf, 0);
    kvr_buffer_append(&model->gguf, model->data.data, model->data.length);
    assert_false(model->gguf.failed || model->safetensors.failed || model->config.failed);
}

static inline void unmake_model(struct made_model *model)
{
    struct kvr_buffer *buffers[] = {&model->gguf, &model->safetensors, &model->config,
        &model->infos, &model->data, &model->header, &model->pairs};

    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        kvr_buffer_release(buffers[i]);
}

static inline enum kvr_status open_made(const struct made_model *model, bool gguf,
    struct kvr_model_file **file, struct kvr_error *error)
{
    return gguf ? kvr_model_file_gguf("made", model->gguf.data, model->gguf.length, file, error)
                : kvr_model_file_safetensors("made", model->config.data, model->config.length,
                      model->safetensors.data, model->safetensors.length, file, error);
}

#endif
