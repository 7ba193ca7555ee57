#include "cost/cost.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define assert_near(actual, expected, relative)                                                    \
    assert_true(fabs((actual) - (expected)) <= (relative)*fabs(expected))

/* The same sums written out from the published shapes, apart from the code under test. */
static double dense_parameters(double vocabulary, double hidden, double layers, double heads,
    double kv_heads, double head, double inner, int tied, int head_norms)
{
    double attention = 2 * hidden * heads * head + 2 * hidden * kv_heads * head;
    double layer = attention + 3 * hidden * inner + 2 * hidden + (head_norms ? 2 * head : 0);

    return (tied ? 1 : 2) * vocabulary * hidden + layers * layer + hidden;
}

static void dense_presets_have_the_parameters_of_their_shapes(void **state)
{
    static const struct {
        const char *name;
        double vocabulary, hidden, inner;
        int tied, head_norms;
    } shapes[] = {
        {"llama-3.1-8b", 128256, 4096, 14336, 0, 0},
        {"llama-3.1-70b", 128256, 8192, 28672, 0, 0},
        {"llama-3.1-405b", 128256, 16384, 53248, 0, 0},
        {"qwen3-0.6b", 151936, 1024, 3072, 1, 1},
        {"qwen3-1.7b", 151936, 2048, 6144, 1, 1},
        {"qwen3-4b", 151936, 2560, 9728, 1, 1},
        {"qwen3-8b", 151936, 4096, 12288, 0, 1},
        {"qwen3-14b", 151936, 5120, 17408, 0, 1},
        {"qwen3-32b", 151936, 5120, 25600, 0, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct kvr_model *model = kvr_model_find(shapes[i].name);
        assert_non_null(model);
        assert_true(
            model->parameters == dense_parameters(shapes[i].vocabulary, shapes[i].hidden,
                                     model->layers, model->heads, model->kv_heads, model->key_dim,
                                     shapes[i].inner, shapes[i].tied, shapes[i].head_norms));
        assert_true(model->active_parameters == model->parameters);
    }
}

static void kv_bytes_are_those_that_the_models_publish(void **state)
{
    (void)state;
    /* 2 · 32 layers · 8 heads · 128 · 2 bytes = 128 KiB, and so on */
    assert_true(kvr_model_kv_bytes_per_token(kvr_model_find("llama-3.1-8b")) == 131072);
    assert_true(kvr_model_kv_bytes_per_token(kvr_model_find("llama-3.1-70b")) == 327680);
    assert_true(kvr_model_kv_bytes_per_token(kvr_model_find("llama-3.1-405b")) == 516096);
    assert_true(kvr_model_kv_bytes_per_token(kvr_model_find("qwen3-235b-a22b")) == 192512);
    /* MLA: 61 layers · (512 + 64) · 2 bytes */
    assert_true(kvr_model_kv_bytes_per_token(kvr_model_find("DeepSeek-V3")) == 70272);
    assert_true(kvr_model_kv_bytes_per_token(kvr_model_find("gpt-oss-120b")) == 73728);
}

static void every_preset_is_plausible(void **state)
{
    (void)state;
    for (size_t i = 0; i < kvr_model_count; i++) {
        const struct kvr_model *model = &kvr_models[i];
        assert_true(model->active_parameters <= model->parameters);
        assert_true(model->active_parameters >= 0.03 * model->parameters);
        assert_true((model->experts == 0) == (model->active_parameters == model->parameters));
        assert_true(model->heads % model->kv_heads == 0);
        assert_true(model->windowed_layers < model->layers);
        assert_ptr_equal(kvr_model_find(model->name), model);
    }
    for (size_t i = 0; i < kvr_gpu_count; i++) {
        assert_true(kvr_gpus[i].fp8_flops >= kvr_gpus[i].bf16_flops);
        assert_true(kvr_gpus[i].memory_bytes_per_s > 10 * kvr_gpus[i].memory_bytes);
    }
    for (size_t i = 0; i < kvr_link_count; i++)
        assert_true(kvr_links[i].bytes_per_s >= 1e9 && kvr_links[i].latency_ms > 0);
}

static void the_ttft_table_of_a_70b_on_8_h100(void **state)
{
    static const struct {
        double cached, about_ms;
    } rows[] = {{0, 200}, {2048, 100}, {3686, 20}, {4055, 2}};
    struct kvr_cost cost;

    (void)state;
    assert_int_equal(kvr_cost_preset(&cost, "llama-3.1-70b", "8xh100", 0, NULL), KVR_OK);
    for (size_t i = 0; i < 4; i++)
        assert_near(kvr_cost_prefill_ms(&cost, 4096 - rows[i].cached, rows[i].cached),
            rows[i].about_ms, 0.06);
}

static void prefill_equals_the_formula_by_hand(void **state)
{
    struct kvr_cost cost;

    (void)state;
    /* 8B, one A100 at MFU .5: F = 156e12. n = 1000, c = 3000:
     * 2·8030261248·1000 = 1.60605225e13; 4·32·32·128·1000·3500 = 1.835008e12; sum / F = 114.715 ms
     */
    assert_int_equal(kvr_cost_preset(&cost, "llama-3.1-8b", "a100", 0.5, NULL), KVR_OK);
    assert_near(kvr_cost_prefill_ms(&cost, 1000, 3000), 114.7149, 1e-5);
    /* nothing new costs nothing; parts add up to the whole */
    assert_true(kvr_cost_prefill_ms(&cost, 0, 5000) == 0);
    assert_near(kvr_cost_prefill_ms(&cost, 1000, 0) + kvr_cost_prefill_ms(&cost, 3000, 1000),
        kvr_cost_prefill_ms(&cost, 4000, 0), 1e-12);
}

static void latent_and_windowed_attention_are_counted_as_they_are(void **state)
{
    struct kvr_cost cost;

    (void)state;
    /* MLA: 2·61·128·(192 + 128) a pair, over 8 · 1978.9e12 · .38 FP8 */
    assert_int_equal(kvr_cost_preset(&cost, "deepseek-v3", "8xh100", 0, NULL), KVR_OK);
    assert_near(cost.prefill_pair_ms, 4997120.0 / (8 * 1978.9e9 * 0.38), 1e-12);
    /* 18 whole layers: 2·18·64·128 a pair; 18 windowed: 2·18·64·128·128 a token */
    assert_int_equal(kvr_cost_preset(&cost, "gpt-oss-120b", "h100", 0, NULL), KVR_OK);
    assert_near(cost.prefill_pair_ms, 294912.0 / (989.4e9 * 0.38), 1e-12);
    assert_near(cost.prefill_token_ms, (2 * 5132849472.0 + 37748736.0) / (989.4e9 * 0.38), 1e-12);
}

static void a_decode_step_reads_weights_and_context(void **state)
{
    struct kvr_cost cost;

    (void)state;
    /* 70B, 8 H100 at MBU .7: 18.7712e12 bytes/s; weights 141.107e9 → 7.5172 ms; 64 sequences of
     * 1,000 tokens: 20.97e9 → 1.1172 ms */
    assert_int_equal(kvr_cost_preset(&cost, "llama-3.1-70b", "8xh100", 0, NULL), KVR_OK);
    assert_near(kvr_cost_decode_ms(&cost, 1, 0), 7.51723, 1e-5);
    assert_near(kvr_cost_decode_ms(&cost, 64, 64000), 7.51723 + 1.11721, 1e-5);
    /* a step with a large prefill chunk is bound by arithmetic, and adds the decodes' */
    double chunk_ms = kvr_cost_prefill_compute_ms(&cost, 8192, 0);
    assert_near(
        kvr_cost_step_ms(&cost, chunk_ms, 4, 0), chunk_ms + 4 * cost.prefill_token_ms, 1e-12);
    assert_true(kvr_cost_step_ms(&cost, 0, 0, 0) == 0);
}

static void a_mixture_reads_the_experts_that_its_tokens_choose(void **state)
{
    struct kvr_cost cost;

    (void)state;
    assert_int_equal(kvr_cost_preset(&cost, "mixtral-8x7b", "h100", 0, NULL), KVR_OK);
    /* one token reads the active weights, many read all */
    double bytes_per_ms = 3.352e9 * 0.7;
    assert_near(kvr_cost_decode_ms(&cost, 1, 0), 12879925248.0 * 2 / bytes_per_ms, 1e-9);
    assert_near(kvr_cost_decode_ms(&cost, 60, 0), 46702792704.0 * 2 / bytes_per_ms, 1e-6);
    /* two tokens: 1 − (6/8)² of the experts: dense 1605636096, experts 45097156608 */
    assert_near(kvr_cost_decode_ms(&cost, 2, 0),
        (1605636096.0 + 45097156608.0 * 0.4375) * 2 / bytes_per_ms, 1e-9);
}

static void moving_kv_takes_latency_and_bytes(void **state)
{
    struct kvr_cost cost;
    struct kvr_link link;

    (void)state;
    assert_int_equal(kvr_cost_preset(&cost, "llama-3.1-70b", "8xh100", 0, NULL), KVR_OK);
    assert_int_equal(kvr_link_read("rdma-200", &link, NULL), KVR_OK);
    /* 10,000 tokens = 3.2768e9 bytes at 23e9/s; CacheGen makes it a quarter */
    assert_near(kvr_cost_transfer_ms(&cost, &link, 1, 10000), 142.4696 + 0.01, 1e-5);
    assert_near(kvr_cost_transfer_ms(&cost, &link, 4, 10000), 142.4696 / 4 + 0.01, 1e-5);
    assert_true(kvr_cost_transfer_ms(&cost, &link, 1, 0) == 0);
    assert_int_equal(kvr_link_read("12.5GB/s", &link, NULL), KVR_OK);
    assert_true(link.bytes_per_s == 12.5e9);
    assert_int_equal(kvr_link_read("100Gbit/s", &link, NULL), KVR_OK);
    assert_true(link.bytes_per_s == 12.5e9);
}

static void what_is_wrong_is_refused_with_what_there_is(void **state)
{
    struct kvr_cost cost;
    struct kvr_link link;
    struct kvr_error error;

    (void)state;
    assert_int_equal(kvr_cost_preset(&cost, "gpt-9", "h100", 0, &error), KVR_BAD_USAGE);
    assert_non_null(strstr(error.text, "llama-3.1-8b"));
    assert_int_equal(kvr_cost_preset(&cost, NULL, "8xtpu", 0, &error), KVR_BAD_USAGE);
    assert_non_null(strstr(error.text, "mi300x"));
    assert_int_equal(kvr_cost_preset(&cost, NULL, "0xh100", 0, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_cost_preset(&cost, NULL, "8h100", 0, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_cost_preset(&cost, NULL, NULL, 1.5, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_link_read("fast", &link, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_link_read("12", &link, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_link_read("0GB/s", &link, &error), KVR_BAD_USAGE);
}

static void a_model_that_fits_has_room_for_kv(void **state)
{
    struct kvr_cost cost;

    (void)state;
    /* .9 · 80e9 − 16.06e9 = 55.94e9 over 131,072 */
    assert_int_equal(kvr_cost_preset(&cost, "llama-3.1-8b", "h100", 0, NULL), KVR_OK);
    assert_true(cost.kv_capacity_tokens == floor((72e9 - 2 * 8030261248.0) / 131072));
    assert_int_equal(kvr_cost_preset(&cost, "llama-3.1-405b", "h100", 0, NULL), KVR_OK);
    assert_true(cost.kv_capacity_tokens == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_presets_have_the_parameters_of_their_shapes),
        cmocka_unit_test(kv_bytes_are_those_that_the_models_publish),
        cmocka_unit_test(every_preset_is_plausible),
        cmocka_unit_test(the_ttft_table_of_a_70b_on_8_h100),
        cmocka_unit_test(prefill_equals_the_formula_by_hand),
        cmocka_unit_test(latent_and_windowed_attention_are_counted_as_they_are),
        cmocka_unit_test(a_decode_step_reads_weights_and_context),
        cmocka_unit_test(a_mixture_reads_the_experts_that_its_tokens_choose),
        cmocka_unit_test(moving_kv_takes_latency_and_bytes),
        cmocka_unit_test(what_is_wrong_is_refused_with_what_there_is),
        cmocka_unit_test(a_model_that_fits_has_room_for_kv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
