#include "kernels/model_config.h"

#include <math.h>
#include <stdio.h>

enum { KEY_BYTES = 96 };

static const struct architecture {
    const char *name;
    bool interleaved; /* in GGUF */
} architectures[] = {{"llama", true}, {"mistral", true}, {"qwen2", false}, {"qwen3", false}};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

static enum kvr_status choose_architecture(
    struct kvr_model_config *config, const char *name, size_t length, struct kvr_error *error)
{
    char shown[64];

    for (size_t i = 0; i < ARCHITECTURES; i++) {
        if (strlen(architectures[i].name) != length ||
            memcmp(architectures[i].name, name, length) != 0)
            continue;
        snprintf(config->architecture, sizeof config->architecture, "%s", architectures[i].name);
        config->interleaved = architectures[i].interleaved;
        return KVR_OK;
    }
    return kvr_error_set(error, KVR_UNSUPPORTED,
        "a model of architecture '%s'; llama, mistral, qwen2 and qwen3 can be run",
        kvr_printable(shown, sizeof shown, name, length));
}

/* A number of the model by its names in both kinds of file. */
static const struct number {
    const char *json, *gguf; /* the latter behind "ARCHITECTURE." */
    size_t at;
    double least, most, otherwise; /* 0: it must be there */
} numbers[] = {
#define NUMBER(json, gguf, member, least, most, otherwise)                                         \
    {                                                                                              \
        json, gguf, offsetof(struct kvr_shape, member), least, most, otherwise                     \
    }
    NUMBER("hidden_size", "embedding_length", hidden, 1, 1 << 20, 0),
    NUMBER("num_hidden_layers", "block_count", layers, 1, 4096, 0),
    NUMBER("num_attention_heads", "attention.head_count", heads, 1, 1 << 16, 0),
    NUMBER("num_key_value_heads", "attention.head_count_kv", kv_heads, 1, 1 << 16, -1),
    NUMBER("intermediate_size", "feed_forward_length", inner, 1, 1 << 24, 0),
    NUMBER("head_dim", "attention.key_length", head_dim, 32, KVR_HEAD_DIM_MOST, -1),
    NUMBER("vocab_size", "vocab_size", vocabulary, 1, 1 << 24, -1),
#undef NUMBER
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static enum kvr_status take_number(struct kvr_model_config *config, const struct number *row,
    const char *name, bool there, bool is_number, double number, struct kvr_error *error)
{
    uint32_t *place = (uint32_t *)(void *)((char *)&config->shape + row->at);

    if (!there && row->otherwise == 0)
        return kvr_error_set(error, KVR_BAD_INPUT, "the model's '%s' is missing", name);
    if (!there)
        return KVR_OK;
    if (!is_number || !(number >= row->least && number <= row->most) || number != floor(number))
        return kvr_error_set(error, KVR_BAD_INPUT,
            "the model's '%s' is not a whole number from %.0f to %.0f", name, row->least,
            row->most);
    *place = (uint32_t)number;
    return KVR_OK;
}

static enum kvr_status settle(struct kvr_model_config *config, struct kvr_error *error)
{
    struct kvr_shape *shape = &config->shape;

    if (shape->kv_heads == 0)
        shape->kv_heads = shape->heads;
    if (shape->head_dim == 0)
        shape->head_dim = shape->hidden / shape->heads;
    if (shape->heads % shape->kv_heads || shape->heads / shape->kv_heads > 256)
        return kvr_error_set(error, KVR_UNSUPPORTED,
            "%u query heads over %u key heads; a whole number up to 256 can share one",
            shape->heads, shape->kv_heads);
    if (shape->head_dim % 32 || shape->head_dim < 32 || shape->head_dim > KVR_HEAD_DIM_MOST)
        return kvr_error_set(error, KVR_UNSUPPORTED,
            "heads of %u numbers; multiples of 32 up to %d can be run", shape->head_dim,
            KVR_HEAD_DIM_MOST);
    if (!(shape->rope_theta > 0 && shape->rope_theta <= 1e12))
        return kvr_error_set(error, KVR_BAD_INPUT, "the model's RoPE base is out of range");
    if (!(shape->norm_epsilon >= 0 && shape->norm_epsilon < 1))
        return kvr_error_set(error, KVR_BAD_INPUT, "the model's RMSNorm epsilon is out of range");
    return KVR_OK;
}

static void divide_all(struct kvr_model_config *config, double divisor)
{
    for (size_t i = 0; i < KVR_HEAD_DIM_MOST / 2; i++)
        config->rope_divisors[i] = (float)divisor;
}

/* Llama 3.1: slow frequencies are divided by `factor`, fast ones left, those between blended. */
static void divide_slow(
    struct kvr_model_config *config, double factor, double low, double high, double original)
{
    const struct kvr_shape *shape = &config->shape;

    for (uint32_t i = 0; i < shape->head_dim / 2; i++) {
        double turn = pow(shape->rope_theta, -2.0 * i / shape->head_dim);
        double turns = original * turn / (2 * M_PI); /* in the original context */
        double blend = (turns - low) / (high - low);
        blend = blend < 0 ? 0 : blend > 1 ? 1 : blend;
        config->rope_divisors[i] = (float)(1 / ((1 - blend) / factor + blend));
    }
}

static bool positive(struct kvr_value object, const char *name, double *number)
{
    return kvr_value_double(kvr_value_get(object, name), number) && *number > 0 && *number <= 1e12;
}

static enum kvr_status scale_rope(
    struct kvr_model_config *config, struct kvr_value scaling, struct kvr_error *error)
{
    struct kvr_value type = kvr_value_get(scaling, "rope_type");
    double factor, low, high, original;

    if (type.type == KVR_ABSENT)
        type = kvr_value_get(scaling, "type");
    if (scaling.type != KVR_OBJECT || type.type == KVR_ABSENT || kvr_value_is(type, "default"))
        return KVR_OK;
    if (kvr_value_is(type, "linear") && positive(scaling, "factor", &factor)) {
        divide_all(config, factor);
        return KVR_OK;
    }
    if (!kvr_value_is(type, "llama3"))
        return kvr_error_set(
            error, KVR_UNSUPPORTED, "the model scales RoPE in another way than llama3 or linear");
    if (!positive(scaling, "factor", &factor) || !positive(scaling, "low_freq_factor", &low) ||
        !positive(scaling, "high_freq_factor", &high) || high <= low ||
        !positive(scaling, "original_max_position_embeddings", &original))
        return kvr_error_set(
            error, KVR_BAD_INPUT, "the model's llama3 scaling of RoPE lacks a number");
    divide_slow(config, factor, low, high, original);
    return KVR_OK;
}

/* What config.json may ask for and is not computed here. */
static enum kvr_status refuse_json(struct kvr_value object, struct kvr_error *error)
{
    static const char *const must_be_off[] = {"mlp_bias", "use_sliding_window",
        "quantization_config", "num_experts", "num_local_experts"};
    struct kvr_value activation = kvr_value_get(object, "hidden_act");
    struct kvr_value partial = kvr_value_get(object, "partial_rotary_factor");
    struct kvr_value window = kvr_value_get(object, "sliding_window");
    struct kvr_value uses = kvr_value_get(object, "use_sliding_window");
    double share = 1;

    for (size_t i = 0; i < sizeof must_be_off / sizeof *must_be_off; i++)
        if (kvr_value_true(kvr_value_get(object, must_be_off[i])))
            return kvr_error_set(
                error, KVR_UNSUPPORTED, "the model's '%s' is not computed", must_be_off[i]);
    if (activation.type != KVR_ABSENT && !kvr_value_is(activation, "silu"))
        return kvr_error_set(error, KVR_UNSUPPORTED, "the model's activation is not silu");
    if (kvr_value_true(partial) && (!kvr_value_double(partial, &share) || share != 1))
        return kvr_error_set(error, KVR_UNSUPPORTED, "the model turns a part of each head only");
    if (kvr_value_true(window) && uses.type == KVR_ABSENT)
        return kvr_error_set(error, KVR_UNSUPPORTED, "the model's attention has a sliding window");
    return KVR_OK;
}

enum kvr_status kvr_model_config_json(
    struct kvr_model_config *config, struct kvr_value object, struct kvr_error *error)
{
    struct kvr_shape *shape = &config->shape;
    struct kvr_value tied = kvr_value_get(object, "tie_word_embeddings");
    struct kvr_value rope = kvr_value_get(object, "rope_parameters");
    struct kvr_value theta = kvr_value_get(object, "rope_theta");
    struct kvr_value epsilon = kvr_value_get(object, "rms_norm_eps");
    struct kvr_buffer name = {0};
    enum kvr_status status;

    *config = (struct kvr_model_config){.shape = {.rope_theta = 10000, .norm_epsilon = 1e-6f}};
    divide_all(config, 1);
    if (!kvr_value_string(kvr_value_get(object, "model_type"), &name))
        status = kvr_error_set(error, KVR_BAD_INPUT, "config.json has no 'model_type'");
    else
        status = choose_architecture(config, name.data, name.length, error);
    kvr_buffer_release(&name);
    config->interleaved = false;
    if (status == KVR_OK)
        status = refuse_json(object, error);
    for (size_t i = 0; status == KVR_OK && i < NUMBERS; i++) {
        struct kvr_value value = kvr_value_get(object, numbers[i].json);
        double number = 0;
        bool is_number = kvr_value_double(value, &number);
        status = take_number(config, &numbers[i], numbers[i].json,
            value.type != KVR_ABSENT && value.type != KVR_NULL, is_number, number, error);
    }
    if (rope.type != KVR_OBJECT)
        rope = kvr_value_get(object, "rope_scaling");
    else if (theta.type == KVR_ABSENT)
        theta = kvr_value_get(rope, "rope_theta");
    if (theta.type != KVR_ABSENT && !kvr_value_double(theta, &shape->rope_theta))
        shape->rope_theta = 0;
    double number = 0;
    if (epsilon.type != KVR_ABSENT)
        shape->norm_epsilon = kvr_value_double(epsilon, &number) ? (float)number : -1;
    config->ties = tied.type == KVR_TRUE || tied.type == KVR_FALSE;
    shape->tied = tied.type == KVR_TRUE;
    if (status == KVR_OK)
        status = settle(config, error);
    return status == KVR_OK ? scale_rope(config, rope, error) : status;
}

/* A number under "ARCHITECTURE.name"; *there says whether there is such a pair. */
static bool gguf_number(const struct kvr_gguf *gguf, const struct kvr_model_config *config,
    const char *name, bool *there, double *number)
{
    char key[KEY_BYTES];

    snprintf(key, sizeof key, "%s.%s", config->architecture, name);
    const struct kvr_gguf_pair *pair = kvr_gguf_find(gguf, key);
    *there = pair != NULL;
    return pair && kvr_gguf_number(pair, number);
}

/* Pairs that must be what they would be if they were not there. */
static enum kvr_status refuse_gguf(
    const struct kvr_gguf *gguf, const struct kvr_model_config *config, struct kvr_error *error)
{
    const struct {
        const char *name;
        double plain;
    } plain[] = {{"expert_count", 0}, {"attention.sliding_window", 0},
        {"attention.value_length", config->shape.head_dim},
        {"rope.dimension_count", config->shape.head_dim}, {"attention.scale", 0},
        {"logit_scale", 1}, {"embedding_scale", 1}, {"residual_scale", 1}};
    double number;
    bool there;

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        bool is_number = gguf_number(gguf, config, plain[i].name, &there, &number);
        if (there && (!is_number || number != plain[i].plain))
            return kvr_error_set(error, KVR_UNSUPPORTED, "the model's '%s.%s' is not computed",
                config->architecture, plain[i].name);
    }
    return KVR_OK;
}

static enum kvr_status scale_rope_gguf(
    struct kvr_model_config *config, const struct kvr_gguf *gguf, struct kvr_error *error)
{
    char key[KEY_BYTES];
    size_t length = 0;
    double factor = 1;
    bool there;

    snprintf(key, sizeof key, "%s.rope.scaling.type", config->architecture);
    const struct kvr_gguf_pair *pair = kvr_gguf_find(gguf, key);
    const char *type = pair ? kvr_gguf_text(pair, &length) : NULL;
    if (!pair || (type && length == 4 && memcmp(type, "none", 4) == 0))
        return KVR_OK;
    if (!type || length != 6 || memcmp(type, "linear", 6) != 0)
        return kvr_error_set(
            error, KVR_UNSUPPORTED, "the model's '%s' is neither none nor linear", key);
    gguf_number(gguf, config, "rope.scaling.factor", &there, &factor);
    if (!(factor > 0 && factor <= 1e6))
        return kvr_error_set(error, KVR_BAD_INPUT, "the model's scaling of RoPE is out of range");
    divide_all(config, factor);
    return KVR_OK;
}

enum kvr_status kvr_model_config_gguf(
    struct kvr_model_config *config, const struct kvr_gguf *gguf, struct kvr_error *error)
{
    const struct kvr_gguf_pair *name = kvr_gguf_find(gguf, "general.architecture");
    struct kvr_shape *shape = &config->shape;
    size_t length = 0;
    double number = 1;
    bool there;

    *config = (struct kvr_model_config){.shape = {.rope_theta = 10000, .norm_epsilon = -1}};
    divide_all(config, 1);
    const char *text = name ? kvr_gguf_text(name, &length) : NULL;
    if (!text)
        return kvr_error_set(error, KVR_BAD_INPUT, "no 'general.architecture'");
    enum kvr_status status = choose_architecture(config, text, length, error);
    const struct kvr_gguf_pair *split = kvr_gguf_find(gguf, "split.count");
    if (status == KVR_OK && split && (!kvr_gguf_number(split, &number) || number > 1))
        status = kvr_error_set(error, KVR_UNSUPPORTED,
            "a GGUF model in several files; llama-gguf-split --merge makes it one");
    for (size_t i = 0; status == KVR_OK && i < NUMBERS; i++) {
        bool is_number = gguf_number(gguf, config, numbers[i].gguf, &there, &number);
        status = take_number(config, &numbers[i], numbers[i].gguf, there, is_number, number, error);
    }
    if (status != KVR_OK)
        return status;
    if (!gguf_number(gguf, config, "rope.freq_base", &there, &shape->rope_theta) && there)
        shape->rope_theta = 0;
    bool is_number = gguf_number(gguf, config, "attention.layer_norm_rms_epsilon", &there, &number);
    if (there)
        shape->norm_epsilon = is_number ? (float)number : -1;
    status = settle(config, error);
    if (status == KVR_OK)
        status = refuse_gguf(gguf, config, error);
    return status == KVR_OK ? scale_rope_gguf(config, gguf, error) : status;
}
