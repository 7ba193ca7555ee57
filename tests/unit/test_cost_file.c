#include "cost/cost.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum kvr_status read_text(struct kvr_cost *cost, const char *text, struct kvr_error *error)
{
    return kvr_cost_read(cost, text, strlen(text), error);
}

static void what_is_written_reads_back_the_same(void **state)
{
    struct kvr_cost cost, back = {0};
    struct kvr_buffer text = {0};

    (void)state;
    for (size_t i = 0; i < kvr_model_count; i++) {
        kvr_buffer_clear(&text);
        assert_int_equal(kvr_cost_preset(&cost, kvr_models[i].name, "3xb200", 0.41, NULL), KVR_OK);
        kvr_cost_write(&cost, &text);
        assert_int_equal(kvr_cost_read(&back, text.data, text.length, NULL), KVR_OK);
        assert_memory_equal(&cost, &back, sizeof cost);
    }
    kvr_buffer_release(&text);
}

static void a_part_replaces_only_what_it_names(void **state)
{
    struct kvr_cost cost, preset;

    (void)state;
    assert_int_equal(kvr_cost_preset(&preset, "qwen3-8b", "h200", 0.5, NULL), KVR_OK);
    assert_int_equal(read_text(&cost,
                         "{\"decode\":{\"token_ms\":2},\"gpu\":\"h200\",\"mfu\":0.5,"
                         "\"model\":\"qwen3-8b\",\"description\":[\"any\",{}]}",
                         NULL),
        KVR_OK);
    assert_true(cost.decode_token_ms == 2);
    cost.decode_token_ms = preset.decode_token_ms;
    assert_memory_equal(&cost, &preset, sizeof cost);
    assert_int_equal(read_text(&cost, "{}", NULL), KVR_OK);
    assert_memory_equal(&cost, &preset, sizeof cost);
}

/* A file that names the GPU alone is about that GPU with the model and the MFU of the options. */
static void a_file_leaves_what_it_does_not_name_to_the_options(void **state)
{
    static const char *const cases[][4] = {
        /* the file, and what it and the options come to */
        {"{\"gpu\":\"h200\"}", "qwen3-0.6b", "h200", "0.5"},
        {"{\"model\":\"qwen3-8b\"}", "qwen3-8b", "2xl40s", "0.5"},
        {"{\"mfu\":0.25}", "qwen3-0.6b", "2xl40s", "0.25"},
        {"{}", "qwen3-0.6b", "2xl40s", "0.5"},
    };
    char path[] = "/tmp/kvr-cost-XXXXXX";
    struct kvr_cost cost, expected;
    int descriptor = mkstemp(path);

    (void)state;
    assert_true(descriptor >= 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t length = strlen(cases[i][0]);
        assert_int_equal(ftruncate(descriptor, 0), 0);
        assert_int_equal(pwrite(descriptor, cases[i][0], length, 0), length);
        assert_int_equal(kvr_cost_settle(&cost, "qwen3-0.6b", "2xl40s", 0.5, path, NULL), KVR_OK);
        assert_int_equal(
            kvr_cost_preset(&expected, cases[i][1], cases[i][2], strtod(cases[i][3], NULL), NULL),
            KVR_OK);
        assert_memory_equal(&cost, &expected, sizeof cost);
    }
    close(descriptor);
    unlink(path);
}

static void what_is_wrong_is_named_and_changes_nothing(void **state)
{
    static const char *const cases[][2] = {
        {"", "ends"},
        {"[]", "one JSON object"},
        {"{\"prefill\":3}", "'prefill' is not an object"},
        {"{\"prefill\":{\"token_ms\":\"1\"}}", "'prefill.token_ms' is not a number"},
        {"{\"prefill\":{\"token_ms\":-1}}", "'prefill.token_ms' is not a number"},
        {"{\"prefill\":{\"token_ms\":1e300}}", "'prefill.token_ms' is not a number"},
        {"{\"decode\":{\"expert_miss\":1.5}}", "from 0 to 1"},
        {"{\"prefill\":{\"tokens_ms\":1}}", "'prefill.tokens_ms' is no member"},
        {"{\"token_ms\":1}", "'token_ms' is no member"},
        {"{\"kv_bytes_per_token\":5,\"colour\":1}", "'colour' is no member"},
        {"{\"model\":5}", "'model' is not a string"},
        {"{\"model\":\"none\"}", "no model 'none'"},
        {"{\"mfu\":2}", "'mfu'"},
    };
    struct kvr_cost cost, before;
    struct kvr_error error;

    (void)state;
    assert_int_equal(kvr_cost_preset(&cost, NULL, NULL, 0, NULL), KVR_OK);
    before = cost;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_text(&cost, cases[i][0], &error), KVR_BAD_INPUT);
        if (i && !strstr(error.text, cases[i][1]))
            fail_msg("%s says: %s", cases[i][0], error.text);
        assert_memory_equal(&cost, &before, sizeof cost);
    }
    assert_int_equal(kvr_cost_settle(&cost, NULL, NULL, 0, "/no/such/file", &error), KVR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back_the_same),
        cmocka_unit_test(a_part_replaces_only_what_it_names),
        cmocka_unit_test(a_file_leaves_what_it_does_not_name_to_the_options),
        cmocka_unit_test(what_is_wrong_is_named_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
