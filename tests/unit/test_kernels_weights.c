/*
 * Model files: the same weights from both formats give the same bits as drawn from their seed, in
 * every family; the laws of the cache hold on them; blocks of numbers unpack as GGML unpacks them;
 * and nothing that is wrong with a file is taken for a model.
 */
#include "kernels/backend.h"
#include "kernels/gguf.h"
#include "kernels/likely.h"
#include "kernels/model_config.h"
#include "tests/unit/model_fixture.h"

#include <string.h>

enum { SEED = 5, TOKENS = 150 };

static struct kvr_shape small(const char *family, bool tied)
{
    return (struct kvr_shape){.name = family,
        .vocabulary = 90,
        .hidden = 64,
        .layers = 2,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 32,
        .inner = 96,
        .tied = tied,
        .head_norms = strcmp(family, "qwen3") == 0,
        .rope_theta = 10000,
        .norm_epsilon = 1e-5f};
}

static struct kvr_runner *start(
    const struct kvr_shape *shape, const struct kvr_model_file *file, uint32_t page)
{
    struct kvr_backend_options options = {.shape = shape,
        .seed = SEED,
        .page_tokens = page,
        .pages = TOKENS / page + 2,
        .threads = 2};
    struct kvr_runner *runner = NULL;
    struct kvr_error error = {0};

    assert_int_equal(kvr_cpu_create(&options, file, true, &runner, &error), KVR_OK);
    memset(
        kvr_cpu_kv_floats(runner), 0xff, kvr_kv_size(kvr_cpu_kv(runner)) * sizeof(float)); /* NaN */
    return runner;
}

/* Logits behind 150 tokens of which the first `cached` were computed before. */
static void prefill(
    struct kvr_runner *runner, uint32_t vocabulary, uint32_t page, uint32_t cached, float *logits)
{
    uint32_t tokens[TOKENS], *table = scattered(TOKENS / page + 2, cached);
    struct kvr_error error;

    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 37 % vocabulary;
    struct kvr_step prefix = {tokens, cached, 0, table, NULL};
    struct kvr_step rest = {tokens + cached, TOKENS - cached, cached, table, logits};
    if (cached > 0)
        assert_int_equal(kvr_cpu_backend.run(runner, &prefix, 1, &error), KVR_OK);
    assert_int_equal(kvr_cpu_backend.run(runner, &rest, 1, &error), KVR_OK);
    free(table);
}

static void compare_family(const char *family, bool tied, bool floats)
{
    struct kvr_shape shape = small(family, tied);
    struct made_model model = {.shape = &shape, .family = family, .seed = SEED, .floats = floats};
    float expected[90], logits[90];
    struct kvr_error error = {0};
    bool has_bias = strcmp(family, "qwen2") == 0;

    make_model(&model);
    for (int format = 0; format < 2; format++) {
        struct kvr_model_file *file = NULL;
        assert_int_equal(open_made(&model, format, &file, &error), KVR_OK);
        const struct kvr_shape *read = kvr_model_file_shape(file);
        assert_int_equal(read->tied, tied);
        assert_int_equal(read->head_norms, shape.head_norms);
        assert_int_equal(kvr_model_file_has_bias(file), has_bias);
        assert_true(read->norm_epsilon == shape.norm_epsilon);
        assert_int_equal(kvr_model_file_is_bf16(file, KVR_WEIGHT_QKV, 1), !floats);
        /* Biases are no part of what a seed draws: there the formats are held against each other */
        struct kvr_runner *runner =
            start(format || has_bias ? read : &shape, format || has_bias ? file : NULL, 16);
        if (!format)
            prefill(runner, 90, 16, 0, expected);
        kvr_cpu_backend.destroy(runner);
        static const uint32_t pages[] = {1, 7, 64}, splits[] = {0, 1, 63, 64, 65, 149};
        for (size_t i = 0; i < 18; i++) {
            runner = start(read, file, pages[i / 6]);
            prefill(runner, 90, pages[i / 6], splits[i % 6], logits);
            assert_memory_equal(logits, expected, sizeof logits);
            kvr_cpu_backend.destroy(runner);
        }
        kvr_model_file_close(file);
    }
    assert_true(isfinite(expected[0]) && expected[0] != expected[1]);
    unmake_model(&model);
}

static void both_formats_give_the_bits_of_the_seed(void **state)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3"};

    (void)state;
    for (size_t i = 0; i < 12; i++)
        compare_family(families[i % 3], i / 3 % 2, i / 6);
}

/* The biases are added, and to the right numbers: without them, or with those of the keys in the
 * place of the queries, the bits differ. */
static void biases_count(void **state)
{
    struct kvr_shape shape = small("qwen2", true);
    struct made_model model = {.shape = &shape, .family = "qwen2", .seed = SEED};
    struct kvr_model_file *file = NULL;
    struct kvr_error error;
    float bias[256], with[90], without[90];
    uint32_t tokens[] = {3, 4, 5}, table[] = {0, 1};
    struct kvr_step step = {tokens, 3, 0, table, with};

    (void)state;
    make_model(&model);
    assert_int_equal(open_made(&model, true, &file, &error), KVR_OK);
    kvr_model_file_read(file, KVR_WEIGHT_QKV_BIAS, 1, 0, 0, 256, bias);
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t columns = i < 128 ? 128 : 64; /* the fan-in that the fixture draws with */
        struct kvr_weight_stream stream = kvr_weight_stream(SEED, KVR_WEIGHT_QKV_BIAS, 1, columns);
        assert_true(bias[i] == kvr_weight_value(&stream, i));
    }
    struct kvr_runner *runner = start(&shape, file, 16);
    assert_int_equal(kvr_cpu_backend.run(runner, &step, 1, &error), KVR_OK);
    kvr_cpu_backend.destroy(runner);
    runner = start(&shape, NULL, 16);
    step.logits = without;
    assert_int_equal(kvr_cpu_backend.run(runner, &step, 1, &error), KVR_OK);
    assert_true(distance(with, without, 90) > 1e-3);
    kvr_cpu_backend.destroy(runner);
    kvr_model_file_close(file);
    unmake_model(&model);
}

/* Expected numbers are those of the gguf package's dequantize() for the same bytes. */
static void blocks_unpack_as_ggml_unpacks_them(void **state)
{
    static const struct {
        enum kvr_tensor_type type;
        size_t bytes, scale, minimum; /* where the halves stand; minimum 0: there is none */
        float first, last;
        double weighted; /* the sum of number i times i + 1: each place counts */
    } blocks[] = {
        {KVR_TENSOR_Q4_0, 18, 0, 0, -0.112518311f, 0, -19.4281616},
        {KVR_TENSOR_Q4_1, 20, 0, 2, 0.550788879f, 0.438270569f, 143.154999},
        {KVR_TENSOR_Q5_0, 22, 0, 0, 0.337554932f, 0.0375061035f, 4.20068359},
        {KVR_TENSOR_Q5_1, 24, 0, 2, 0.700813293f, 0.175727844f, 290.103912},
        {KVR_TENSOR_Q8_0, 34, 0, 0, 3.1880188f, -1.80029297f, -303.049316},
        {KVR_TENSOR_Q4_K, 144, 0, 2, 13.3915176f, 2.8884964f, 313099.171},
        {KVR_TENSOR_Q5_K, 176, 0, 2, 31.994545f, 5.13886261f, 630198.574},
        {KVR_TENSOR_Q6_K, 210, 208, 0, -53.6712341f, -2.25036621f, 29420.5377},
    };
    static const unsigned char scale[] = {0xcd, 0x28}, minimum[] = {0x0b, 0xa2}; /* .0375 -.0118 */

    (void)state;
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        unsigned char bytes[2 * 210];
        size_t size = blocks[b].bytes, block = kvr_tensor_block(blocks[b].type);
        float out[256];
        double sum = 0;
        uint64_t whole;
        for (size_t i = 0; i < size; i++)
            bytes[size + i] = bytes[i] = (unsigned char)(i * 37 + 11);
        memset(bytes, 0xff, size); /* the block before it is not what is read */
        memcpy(bytes + size + blocks[b].scale, scale, 2);
        if (blocks[b].minimum)
            memcpy(bytes + size + blocks[b].minimum, minimum, 2);
        struct kvr_tensor tensor = {
            .type = blocks[b].type, .rows = 1, .columns = 2 * block, .data = bytes};
        assert_true(kvr_tensor_bytes(&tensor, &whole));
        assert_int_equal(whole, 2 * size);
        kvr_tensor_read(&tensor, 0, block, block, out);
        for (size_t i = 0; i < block; i++)
            sum += (double)out[i] * (double)(i + 1);
        assert_true(fabsf(out[0] - blocks[b].first) < 1e-5f);
        assert_true(fabsf(out[block - 1] - blocks[b].last) < 1e-5f);
        assert_true(fabs(sum - blocks[b].weighted) < 1e-6 * fabs(blocks[b].weighted) + 1e-5);
        tensor.columns++;
        assert_false(kvr_tensor_bytes(&tensor, &whole));
    }
}

static void halves_are_read_in_their_whole_range(void **state)
{
    static const uint16_t bits[] = {1, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x7bff, 0x8000, 0x3555};
    static const float values[] = {
        0x1p-24f, 0x3ffp-24f, 0x1p-14f, 1, -1, 65504, -0.0f, 0.333251953125f};
    struct kvr_tensor tensor = {
        .type = KVR_TENSOR_F16, .rows = 1, .columns = 8, .data = (const unsigned char *)bits};
    float out[8];

    (void)state;
    kvr_tensor_read(&tensor, 0, 0, 8, out);
    assert_memory_equal(out, values, sizeof values);
}

static enum kvr_status read_config(
    const char *text, struct kvr_model_config *config, struct kvr_error *error)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_value object;

    assert_int_equal(kvr_json_check(structure, text, strlen(text), &object, NULL, error), KVR_OK);
    enum kvr_status status = kvr_model_config_json(config, object, error);
    kvr_structure_destroy(structure);
    return status;
}

/* Llama 3.2 1B's configuration; the divisors are those of its reference code. */
static void llama_3_scales_slow_frequencies(void **state)
{
    static const struct {
        int pair;
        float divisor;
    } expected[] = {{0, 1}, {14, 1}, {15, 1.65132928f}, {16, 3.29226208f}, {17, 9.66672897f},
        {20, 32}, {31, 32}};
    static const char *const scalings[] = {
        "\"rope_theta\":500000.0,\"rope_scaling\":{\"factor\":32.0,\"high_freq_factor\":4.0,"
        "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,"
        "\"rope_type\":\"llama3\"}",
        "\"rope_parameters\":{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
        "\"original_max_position_embeddings\":8192,\"rope_theta\":500000.0,"
        "\"rope_type\":\"llama3\"}"};
    struct kvr_model_config config;
    struct kvr_error error;
    char text[1024];

    (void)state;
    for (int s = 0; s < 2; s++) {
        snprintf(text, sizeof text,
            "{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"hidden_size\":2048,"
            "\"intermediate_size\":8192,\"num_attention_heads\":32,\"num_hidden_layers\":16,"
            "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,\"vocab_size\":128256,"
            "\"tie_word_embeddings\":true,%s}",
            scalings[s]);
        assert_int_equal(read_config(text, &config, &error), KVR_OK);
        assert_int_equal(config.shape.head_dim, 64);
        assert_true(config.shape.tied && config.ties && config.shape.rope_theta == 500000);
        for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
            assert_true(
                fabsf(config.rope_divisors[expected[i].pair] - expected[i].divisor) < 1e-5f);
    }
}

/* What makes a file no model that can be run, and what is said of it. */
static void what_cannot_be_run_is_refused_by_name(void **state)
{
    static const struct {
        const char *family, *extra, *left_out, *twice;
        int format; /* 0 safetensors, 1 GGUF */
        enum kvr_status status;
        const char *said;
    } cases[] = {
        {"llama", ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}", NULL, NULL, 0,
            KVR_UNSUPPORTED, "scales RoPE"},
        {"llama", ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":4}", NULL, NULL, 0,
            KVR_BAD_INPUT, "lacks a number"},
        {"llama", ",\"sliding_window\":4096", NULL, NULL, 0, KVR_UNSUPPORTED, "sliding window"},
        {"llama", ",\"hidden_act\":\"gelu\"", NULL, NULL, 0, KVR_UNSUPPORTED, "silu"},
        {"llama", ",\"partial_rotary_factor\":0.5", NULL, NULL, 0, KVR_UNSUPPORTED, "part"},
        {"llama", ",\"quantization_config\":{}", NULL, NULL, 0, KVR_UNSUPPORTED,
            "'quantization_config'"},
        {"llama", ",\"model_type\":\"gemma\"", NULL, NULL, 0, KVR_UNSUPPORTED, "'gemma'"},
        {"llama", ",\"num_hidden_layers\":1", NULL, NULL, 0, KVR_UNSUPPORTED, "layers.1."},
        {"llama", ",\"num_hidden_layers\":3", NULL, NULL, 0, KVR_BAD_INPUT, "layers.2."},
        {"llama", ",\"num_hidden_layers\":1e9", NULL, NULL, 0, KVR_BAD_INPUT,
            "'num_hidden_layers'"},
        {"llama", ",\"num_hidden_layers\":1.5", NULL, NULL, 0, KVR_BAD_INPUT, "whole number"},
        {"llama", ",\"hidden_size\":128", NULL, NULL, 0, KVR_BAD_INPUT, "should be"},
        {"llama", ",\"num_key_value_heads\":3", NULL, NULL, 0, KVR_UNSUPPORTED, "key heads"},
        {"llama", ",\"head_dim\":48", NULL, NULL, 0, KVR_UNSUPPORTED, "heads of 48"},
        {"llama", ",\"rms_norm_eps\":\"x\"", NULL, NULL, 0, KVR_BAD_INPUT, "epsilon"},
        {"llama", ",\"rope_theta\":-1", NULL, NULL, 0, KVR_BAD_INPUT, "RoPE base"},
        {"llama", NULL, "lm_head.weight", NULL, 0, KVR_BAD_INPUT, "'tie_word_embeddings'"},
        {"llama", NULL, "model.norm.weight", NULL, 0, KVR_BAD_INPUT, "'model.norm.weight'"},
        {"llama", NULL, NULL, "model.norm.weight", 0, KVR_BAD_INPUT, "twice"},
        {"llama", NULL, NULL, "blk.1.attn_q.weight", 1, KVR_BAD_INPUT, "twice"},
        {"llama", NULL, "blk.1.ffn_up.weight", NULL, 1, KVR_BAD_INPUT, "'blk.1.ffn_up.weight'"},
        {"llama", NULL, "token_embd.weight", NULL, 1, KVR_BAD_INPUT,
            "token_embd.weight' is missing"},
        {"qwen2", NULL, "blk.1.attn_k.bias", NULL, 1, KVR_BAD_INPUT, "blk.1.attn_k.bias"},
        {"qwen3", NULL, "blk.0.attn_q_norm.weight", NULL, 1, KVR_BAD_INPUT, "every layer"},
        {"gemma", NULL, NULL, NULL, 1, KVR_UNSUPPORTED, "'gemma'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_shape shape = small(cases[i].family, false);
        struct made_model model = {.shape = &shape,
            .family = cases[i].family,
            .extra = cases[i].extra,
            .left_out = cases[i].left_out,
            .twice = cases[i].twice};
        struct kvr_model_file *file = NULL;
        struct kvr_error error = {0};
        make_model(&model);
        assert_int_equal(open_made(&model, cases[i].format, &file, &error), cases[i].status);
        if (!strstr(error.text, cases[i].said))
            fail_msg("case %zu: '%s' does not say '%s'", i, error.text, cases[i].said);
        unmake_model(&model);
    }
}

/* Pairs of GGUF that ask for what is not computed. */
static void pairs_that_ask_for_more_are_refused(void **state)
{
    static const char *const names[] = {"expert_count", "attention.sliding_window",
        "rope.dimension_count", "attention.value_length"};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct kvr_shape shape = small("llama", true);
        struct made_model model = {.shape = &shape, .family = "llama"};
        struct kvr_model_file *file = NULL;
        struct kvr_error error = {0};
        if (i < 4)
            pair_number(&model, names[i], 8);
        else
            pair_text(&model, "llama.rope.scaling.type", i == 4 ? "yarn" : "none");
        make_model(&model);
        assert_int_equal(open_made(&model, true, &file, &error), i == 5 ? KVR_OK : KVR_UNSUPPORTED);
        kvr_model_file_close(file);
        unmake_model(&model);
    }
}

/* Every file that ends too early is refused, and a changed byte never leads outside the file. The
 * bytes are copied, so that a sanitizer or valgrind sees a read behind their end. */
static void damaged_files_are_refused(void **state)
{
    struct kvr_shape shape = small("llama", true);
    struct made_model model = {.shape = &shape, .family = "llama", .seed = SEED};
    struct kvr_random random = {1};
    struct kvr_error error;

    (void)state;
    make_model(&model);
    for (int format = 0; format < 2; format++) {
        const struct kvr_buffer *whole = format ? &model.gguf : &model.safetensors;
        size_t header = whole->length - model.data.length;
        for (size_t trial = 0; trial < header + 3000; trial++) {
            bool cut = trial < header;
            size_t length = cut ? trial : whole->length;
            char *bytes = malloc(length + 1);
            struct kvr_model_file *file = NULL;
            assert_non_null(bytes);
            memcpy(bytes, whole->data, length);
            for (int change = 0; !cut && change < 3; change++)
                bytes[kvr_random_below(&random, (uint32_t)header)] =
                    (char)kvr_random_below(&random, 256);
            bytes = realloc(bytes, length ? length : 1);
            enum kvr_status status = format
                                         ? kvr_model_file_gguf("x", bytes, length, &file, &error)
                                         : kvr_model_file_safetensors("x", model.config.data,
                                               model.config.length, bytes, length, &file, &error);
            if (cut)
                assert_int_not_equal(status, KVR_OK);
            if (status == KVR_OK) {
                const struct kvr_shape *read = kvr_model_file_shape(file);
                size_t rows = (size_t)(read->heads + 2 * read->kv_heads) * read->head_dim;
                float *row = some(read->hidden, sizeof *row);
                for (size_t i = 0; i < rows; i++)
                    kvr_model_file_read(
                        file, KVR_WEIGHT_QKV, read->layers - 1, i, 0, read->hidden, row);
                kvr_model_file_close(file);
                free(row);
            }
            free(bytes);
        }
    }
    unmake_model(&model);
}

static void the_likeliest_tokens_come_in_order(void **state)
{
    const float logits[] = {1, 3, -2, 3, 0.5f}, bad[] = {1, NAN};
    struct kvr_likely likely[8];
    double sum = exp(1) + 2 * exp(3) + exp(-2) + exp(0.5);

    (void)state;
    assert_int_equal(kvr_likely_find(logits, 5, likely, 3), 3);
    assert_int_equal(likely[0].token, 1);
    assert_int_equal(likely[1].token, 3);
    assert_int_equal(likely[2].token, 0);
    assert_true(fabs(likely[2].log_probability - (1 - log(sum))) < 1e-12);
    assert_int_equal(kvr_likely_find(logits, 5, likely, 8), 5);
    assert_int_equal(likely[4].token, 2);
    assert_int_equal(kvr_likely_find(bad, 2, likely, 8), 0);
    assert_int_equal(kvr_likely_find(logits, 5, likely, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_formats_give_the_bits_of_the_seed),
        cmocka_unit_test(biases_count),
        cmocka_unit_test(blocks_unpack_as_ggml_unpacks_them),
        cmocka_unit_test(halves_are_read_in_their_whole_range),
        cmocka_unit_test(llama_3_scales_slow_frequencies),
        cmocka_unit_test(what_cannot_be_run_is_refused_by_name),
        cmocka_unit_test(pairs_that_ask_for_more_are_refused),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(the_likeliest_tokens_come_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
