#include "kernels/model_file.h"
#include "base/mapped.h"
#include "kernels/model_file_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 80, VOCABULARY_MOST = 1 << 24 };

/* Names in GGUF and in safetensors, those of a layer behind "blk.N." and "model.layers.N.". */
static const struct {
    const char *gguf, *safetensors;
} roles[KVR_ROLES] = {
    [KVR_ROLE_ATTENTION_NORM] = {"attn_norm.weight", "input_layernorm.weight"},
    [KVR_ROLE_QUERY] = {"attn_q.weight", "self_attn.q_proj.weight"},
    [KVR_ROLE_KEY] = {"attn_k.weight", "self_attn.k_proj.weight"},
    [KVR_ROLE_VALUE] = {"attn_v.weight", "self_attn.v_proj.weight"},
    [KVR_ROLE_QUERY_BIAS] = {"attn_q.bias", "self_attn.q_proj.bias"},
    [KVR_ROLE_KEY_BIAS] = {"attn_k.bias", "self_attn.k_proj.bias"},
    [KVR_ROLE_VALUE_BIAS] = {"attn_v.bias", "self_attn.v_proj.bias"},
    [KVR_ROLE_QUERY_NORM] = {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    [KVR_ROLE_KEY_NORM] = {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    [KVR_ROLE_OUT] = {"attn_output.weight", "self_attn.o_proj.weight"},
    [KVR_ROLE_INNER_NORM] = {"ffn_norm.weight", "post_attention_layernorm.weight"},
    [KVR_ROLE_GATE] = {"ffn_gate.weight", "mlp.gate_proj.weight"},
    [KVR_ROLE_UP] = {"ffn_up.weight", "mlp.up_proj.weight"},
    [KVR_ROLE_DOWN] = {"ffn_down.weight", "mlp.down_proj.weight"},
    /* of no layer */
    [KVR_ROLE_EMBEDDING] = {"token_embd.weight", "model.embed_tokens.weight"},
    [KVR_ROLE_LOGITS] = {"output.weight", "lm_head.weight"},
    [KVR_ROLE_FINAL_NORM] = {"output_norm.weight", "model.norm.weight"},
    [KVR_ROLE_ROPE] = {"rope_freqs.weight", NULL},
};

static enum kvr_status missing(int role, bool gguf, struct kvr_error *error)
{
    return kvr_error_set(error, KVR_BAD_INPUT, "tensor '%s' is missing",
        gguf ? roles[role].gguf : roles[role].safetensors);
}

/* What the shape wants of a role: rows (0: a vector) and columns. */
static void wanted(const struct kvr_shape *shape, int role, uint64_t *rows, uint64_t *columns)
{
    uint64_t heads = (uint64_t)shape->heads * shape->head_dim;
    uint64_t kv_heads = (uint64_t)shape->kv_heads * shape->head_dim;

    *rows = 0;
    *columns = shape->hidden;
    switch (role) {
    case KVR_ROLE_QUERY:
        *rows = heads;
        break;
    case KVR_ROLE_KEY:
    case KVR_ROLE_VALUE:
        *rows = kv_heads;
        break;
    case KVR_ROLE_QUERY_BIAS:
        *columns = heads;
        break;
    case KVR_ROLE_KEY_BIAS:
    case KVR_ROLE_VALUE_BIAS:
        *columns = kv_heads;
        break;
    case KVR_ROLE_QUERY_NORM:
    case KVR_ROLE_KEY_NORM:
        *columns = shape->head_dim;
        break;
    case KVR_ROLE_OUT:
        *rows = shape->hidden;
        *columns = heads;
        break;
    case KVR_ROLE_GATE:
    case KVR_ROLE_UP:
        *rows = shape->inner;
        break;
    case KVR_ROLE_DOWN:
        *rows = shape->hidden;
        *columns = shape->inner;
        break;
    case KVR_ROLE_EMBEDDING:
    case KVR_ROLE_LOGITS:
        *rows = shape->vocabulary;
        break;
    case KVR_ROLE_ROPE:
        *columns = shape->head_dim / 2;
        break;
    default: /* the norms of the hidden width */
        break;
    }
}

static enum kvr_status misshapen(
    const struct kvr_tensor *tensor, uint64_t rows, uint64_t columns, struct kvr_error *error)
{
    char shown[SHOWN_BYTES];

    kvr_printable(shown, sizeof shown, tensor->name, tensor->name_bytes);
    if (!rows)
        return kvr_error_set(error, KVR_BAD_INPUT, "tensor '%s' is not of %llu plain numbers",
            shown, (unsigned long long)columns);
    return kvr_error_set(error, KVR_BAD_INPUT,
        "tensor '%s' is %llu x %llu and should be %llu x %llu", shown,
        (unsigned long long)tensor->rows, (unsigned long long)tensor->columns,
        (unsigned long long)rows, (unsigned long long)columns);
}

/* A name behind its prefix; NULL where the prefix is another or the layer is none of the model. */
static const char *behind_layer(const struct kvr_model_file *file, const struct kvr_tensor *tensor,
    const char *prefix, uint32_t *layer, size_t *left)
{
    size_t at = strlen(prefix), digits = 0;
    uint64_t number = 0;

    if (tensor->name_bytes <= at || memcmp(tensor->name, prefix, at) != 0)
        return NULL;
    for (; at < tensor->name_bytes && digits < 6; at++, digits++) {
        unsigned digit = (unsigned char)tensor->name[at] - '0';
        if (digit > 9)
            break;
        number = number * 10 + digit;
    }
    if (digits == 0 || at == tensor->name_bytes || tensor->name[at] != '.' ||
        number >= file->config.shape.layers)
        return NULL;
    *layer = (uint32_t)number;
    *left = tensor->name_bytes - at - 1;
    return tensor->name + at + 1;
}

static bool is_name(const char *name, size_t length, const char *expected)
{
    return expected && strlen(expected) == length && memcmp(name, expected, length) == 0;
}

/* Where a tensor belongs; NULL: nowhere. */
static const struct kvr_tensor **place_of(
    struct kvr_model_file *file, const struct kvr_tensor *tensor, bool gguf, int *role)
{
    uint32_t layer = 0;
    size_t left = 0;
    const char *name = behind_layer(file, tensor, gguf ? "blk." : "model.layers.", &layer, &left);
    int begin = name ? 0 : KVR_LAYER_ROLES, end = name ? KVR_LAYER_ROLES : KVR_ROLES;

    if (!name) {
        name = tensor->name;
        left = tensor->name_bytes;
    }
    for (*role = begin; *role < end; ++*role)
        if (is_name(name, left, gguf ? roles[*role].gguf : roles[*role].safetensors))
            return *role < KVR_LAYER_ROLES ? &file->layers[layer].tensors[*role]
                                           : &file->others[*role - KVR_LAYER_ROLES];
    return NULL;
}

/* Old checkpoints carry the frequencies of RoPE, which follow from the configuration. */
static bool is_needless(const struct kvr_tensor *tensor)
{
    static const char ending[] = ".rotary_emb.inv_freq";

    return tensor->name_bytes >= sizeof ending &&
           memcmp(tensor->name + tensor->name_bytes - (sizeof ending - 1), ending,
               sizeof ending - 1) == 0;
}

static enum kvr_status place(struct kvr_model_file *file, const struct kvr_tensor *tensor,
    bool gguf, struct kvr_error *error)
{
    char shown[SHOWN_BYTES];
    uint64_t rows, columns;
    int role;
    const struct kvr_tensor **slot = place_of(file, tensor, gguf, &role);

    kvr_printable(shown, sizeof shown, tensor->name, tensor->name_bytes);
    if (!slot)
        return kvr_error_set(error, KVR_UNSUPPORTED,
            "tensor '%s' has no place in a %s of %u layers", shown, file->config.architecture,
            file->config.shape.layers);
    if (*slot)
        return kvr_error_set(error, KVR_BAD_INPUT, "tensor '%s' is there twice", shown);
    wanted(&file->config.shape, role, &rows, &columns);
    bool is_vector = tensor->dimensions == 1 && kvr_tensor_block(tensor->type) == 1;
    if (rows ? tensor->dimensions != 2 || tensor->rows != rows || tensor->columns != columns
             : !is_vector || tensor->columns != columns)
        return misshapen(tensor, rows, columns, error);
    *slot = tensor;
    return KVR_OK;
}

/* Some roles may be missing, but then in all layers and together. */
static enum kvr_status check_layers(struct kvr_model_file *file, bool gguf, struct kvr_error *error)
{
    file->has_bias = file->layers[0].tensors[KVR_ROLE_QUERY_BIAS] != NULL;
    file->config.shape.head_norms = file->layers[0].tensors[KVR_ROLE_QUERY_NORM] != NULL;
    for (uint32_t layer = 0; layer < file->config.shape.layers; layer++) {
        for (int role = 0; role < KVR_LAYER_ROLES; role++) {
            bool bias = role == KVR_ROLE_QUERY_BIAS || role == KVR_ROLE_KEY_BIAS ||
                        role == KVR_ROLE_VALUE_BIAS;
            bool norm = role == KVR_ROLE_QUERY_NORM || role == KVR_ROLE_KEY_NORM;
            bool expected = bias ? file->has_bias : norm ? file->config.shape.head_norms : true;
            if (expected != (file->layers[layer].tensors[role] != NULL))
                return kvr_error_set(error, KVR_BAD_INPUT, "tensor '%s%u.%s' %s",
                    gguf ? "blk." : "model.layers.", layer,
                    gguf ? roles[role].gguf : roles[role].safetensors,
                    expected ? "is missing" : "is not in every layer");
        }
    }
    return KVR_OK;
}

/* The architecture says what must be there too: a Qwen3 without its norms is damaged. */
static enum kvr_status check_family(struct kvr_model_file *file, struct kvr_error *error)
{
    const char *architecture = file->config.architecture;
    bool norms = strcmp(architecture, "qwen3") == 0, bias = strcmp(architecture, "qwen2") == 0;

    if (norms != file->config.shape.head_norms)
        return kvr_error_set(error, KVR_UNSUPPORTED, "a %s %s norms of queries and keys",
            architecture, norms ? "without" : "with");
    if (bias && !file->has_bias)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "a %s without biases of queries and keys", architecture);
    return KVR_OK;
}

static enum kvr_status check_others(struct kvr_model_file *file, bool gguf, struct kvr_error *error)
{
    struct kvr_shape *shape = &file->config.shape;
    const struct kvr_tensor *const *others = file->others;
    static const int needed[] = {KVR_ROLE_EMBEDDING, KVR_ROLE_FINAL_NORM};

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!others[needed[i] - KVR_LAYER_ROLES])
            return missing(needed[i], gguf, error);
    bool has_logits = others[KVR_ROLE_LOGITS - KVR_LAYER_ROLES] != NULL;
    if (file->config.ties && !shape->tied && !has_logits)
        return kvr_error_set(error, KVR_BAD_INPUT,
            "tensor '%s' is missing and 'tie_word_embeddings' is false",
            roles[KVR_ROLE_LOGITS].safetensors);
    if (!file->config.ties)
        shape->tied = !has_logits;
    const struct kvr_tensor *rope = others[KVR_ROLE_ROPE - KVR_LAYER_ROLES];
    if (rope)
        kvr_tensor_read(rope, 0, 0, shape->head_dim / 2, file->config.rope_divisors);
    for (uint32_t i = 0; i < shape->head_dim / 2; i++)
        if (!(file->config.rope_divisors[i] > 0 && isfinite(file->config.rope_divisors[i])))
            return kvr_error_set(
                error, KVR_BAD_INPUT, "the model's scaling of RoPE is out of range");
    return KVR_OK;
}

/* Where the configuration does not say the size of the vocabulary, the embedding has it. */
static void find_vocabulary(struct kvr_model_file *file, bool gguf)
{
    const struct kvr_tensors *tensors = &file->gguf.tensors;
    int role;

    for (size_t i = 0; i < tensors->count && file->config.shape.vocabulary == 0; i++)
        if (place_of(file, &tensors->items[i], gguf, &role) && role == KVR_ROLE_EMBEDDING &&
            tensors->items[i].rows <= VOCABULARY_MOST)
            file->config.shape.vocabulary = (uint32_t)tensors->items[i].rows;
}

enum kvr_status kvr_model_file_settle(
    struct kvr_model_file *file, bool gguf, struct kvr_error *error)
{
    const struct kvr_tensors *tensors = &file->gguf.tensors;
    enum kvr_status status = KVR_OK;

    file->layers = calloc(file->config.shape.layers, sizeof *file->layers);
    if (!file->layers)
        return kvr_error_memory(error);
    find_vocabulary(file, gguf);
    if (file->config.shape.vocabulary == 0)
        status = missing(KVR_ROLE_EMBEDDING, gguf, error);
    for (size_t i = 0; status == KVR_OK && i < tensors->count; i++)
        if (!is_needless(&tensors->items[i]))
            status = place(file, &tensors->items[i], gguf, error);
    if (status == KVR_OK)
        status = check_layers(file, gguf, error);
    if (status == KVR_OK)
        status = check_family(file, error);
    return status == KVR_OK ? check_others(file, gguf, error) : status;
}

const struct kvr_shape *kvr_model_file_shape(const struct kvr_model_file *file)
{
    return &file->config.shape;
}

const float *kvr_model_file_rope_divisors(const struct kvr_model_file *file)
{
    return file->config.rope_divisors;
}

bool kvr_model_file_has_bias(const struct kvr_model_file *file)
{
    return file->has_bias;
}

/* The roles that follow each other in a kind of weight; returns how many. */
static int parts_of(enum kvr_weight_kind kind, int parts[3])
{
    static const struct {
        enum kvr_weight_kind kind;
        int count, roles[3];
    } kinds[] = {
        {KVR_WEIGHT_EMBEDDING, 1, {KVR_ROLE_EMBEDDING}},
        {KVR_WEIGHT_LOGITS, 1, {KVR_ROLE_LOGITS}},
        {KVR_WEIGHT_FINAL_NORM, 1, {KVR_ROLE_FINAL_NORM}},
        {KVR_WEIGHT_ATTENTION_NORM, 1, {KVR_ROLE_ATTENTION_NORM}},
        {KVR_WEIGHT_QUERY_NORM, 1, {KVR_ROLE_QUERY_NORM}},
        {KVR_WEIGHT_KEY_NORM, 1, {KVR_ROLE_KEY_NORM}},
        {KVR_WEIGHT_QKV, 3, {KVR_ROLE_QUERY, KVR_ROLE_KEY, KVR_ROLE_VALUE}},
        {KVR_WEIGHT_OUT, 1, {KVR_ROLE_OUT}},
        {KVR_WEIGHT_INNER_NORM, 1, {KVR_ROLE_INNER_NORM}},
        {KVR_WEIGHT_GATE_UP, 2, {KVR_ROLE_GATE, KVR_ROLE_UP}},
        {KVR_WEIGHT_DOWN, 1, {KVR_ROLE_DOWN}},
        {KVR_WEIGHT_QKV_BIAS, 3, {KVR_ROLE_QUERY_BIAS, KVR_ROLE_KEY_BIAS, KVR_ROLE_VALUE_BIAS}},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].kind != kind)
            continue;
        memcpy(parts, kinds[i].roles, sizeof kinds[i].roles);
        return kinds[i].count;
    }
    return 0;
}

static const struct kvr_tensor *tensor_of(
    const struct kvr_model_file *file, int role, uint32_t layer)
{
    return role < KVR_LAYER_ROLES ? file->layers[layer].tensors[role]
                                  : file->others[role - KVR_LAYER_ROLES];
}

bool kvr_model_file_is_bf16(
    const struct kvr_model_file *file, enum kvr_weight_kind kind, uint32_t layer)
{
    int parts[3], count = parts_of(kind, parts);

    for (int i = 0; i < count; i++)
        if (tensor_of(file, parts[i], layer)->type != KVR_TENSOR_BF16)
            return false;
    return true;
}

/* The row of the file that is row `row` of the queries or keys. */
static uint64_t turned(const struct kvr_model_file *file, uint64_t row)
{
    uint64_t dim = file->config.shape.head_dim, number = row % dim;

    return row - number + number % (dim / 2) * 2 + number / (dim / 2);
}

/* Biases: one vector after the other, number by number. */
static void read_bias(
    const struct kvr_model_file *file, uint32_t layer, size_t first, size_t count, float *out)
{
    static const int parts[] = {KVR_ROLE_QUERY_BIAS, KVR_ROLE_KEY_BIAS, KVR_ROLE_VALUE_BIAS};

    for (size_t i = first; i < first + count; i++) {
        int part = 0;
        uint64_t at = i;
        const struct kvr_tensor *tensor = tensor_of(file, parts[0], layer);
        while (at >= tensor->columns) {
            at -= tensor->columns;
            tensor = tensor_of(file, parts[++part], layer);
        }
        if (file->config.interleaved && part < 2)
            at = turned(file, at);
        kvr_tensor_read(tensor, 0, at, 1, out++);
    }
}

void kvr_model_file_read(const struct kvr_model_file *file, enum kvr_weight_kind kind,
    uint32_t layer, size_t row, size_t first, size_t count, float *out)
{
    int parts[3] = {0}, part = 0;
    uint64_t at = row;

    if (kind == KVR_WEIGHT_QKV_BIAS) {
        read_bias(file, layer, first, count, out);
        return;
    }
    parts_of(kind, parts);
    const struct kvr_tensor *tensor = tensor_of(file, parts[0], layer);
    while (at >= tensor->rows) {
        at -= tensor->rows;
        tensor = tensor_of(file, parts[++part], layer);
    }
    if (kind == KVR_WEIGHT_QKV && file->config.interleaved && part < 2)
        at = turned(file, at);
    kvr_tensor_read(tensor, at, first, count, out);
}
