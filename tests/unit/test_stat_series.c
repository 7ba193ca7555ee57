/* The /metrics pages of engines: names, labels, sums, resets, histograms. */
#include "tests/unit/unit.h"

#include "stat/output.h"
#include "stat/series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct kvr_engine_series read_file(const char *name)
{
    struct kvr_buffer page = {0};
    struct kvr_engine_series series;
    char path[200];

    snprintf(path, sizeof path, "tests/data/metrics/%s", name);
    assert_int_equal(kvr_read_whole(path, &page, NULL), KVR_OK);
    assert_true(kvr_series_read(page.data, page.length, &series));
    kvr_buffer_release(&page);
    return series;
}

static void test_vllm(void **state)
{
    struct kvr_engine_series before = read_file("vllm_1.txt"), now = read_file("vllm_2.txt");

    (void)state;
    assert_true(before.running == 5 && before.waiting == 1 && before.kv_usage == 0.75);
    assert_true(before.prompt_tokens == 1500 && before.cached_tokens == 400);
    assert_true(before.capacity_tokens == 16000 && isnan(before.evicted_tokens));
    /* The second page has the counters without _total. */
    assert_true(kvr_series_increase(before.prompt_tokens, now.prompt_tokens) == 2000);
    assert_true(kvr_series_increase(before.cached_tokens, now.cached_tokens) == 1000);
    assert_true(kvr_series_increase(500, 20) == 20); /* a restart */
    assert_true(isnan(kvr_series_increase(NAN, 20)) && isnan(kvr_series_increase(5, NAN)));
    /* Of 10 new requests 5 up to 0.1 s, 5 up to 0.5 s. */
    assert_int_equal(now.ttft_count, 3);
    assert_true(fabs(kvr_series_ttft_ms(&before, &now, 0.5) - 100) < 1e-9);
    assert_true(fabs(kvr_series_ttft_ms(&before, &now, 0.75) - 300) < 1e-9);
    assert_true(isnan(kvr_series_ttft_ms(&now, &now, 0.5)));
    assert_true(fabs(kvr_series_ttft_ms(&now, &before, 0.99) - 500) < 1e-9); /* restarted */
}

static void test_others(void **state)
{
    struct kvr_engine_series sglang = read_file("sglang.txt"), llama = read_file("llamacpp.txt");

    (void)state;
    assert_true(sglang.running == 4 && sglang.waiting == 2 && sglang.kv_usage == 0.25);
    assert_true(sglang.cached_tokens == 700 && sglang.prompt_tokens == 2000);
    assert_true(sglang.evicted_tokens == 50);
    assert_true(llama.running == 1 && llama.waiting == 0 && isnan(llama.kv_usage));
    assert_true(llama.prompt_tokens == 770 + 1531 && llama.cached_tokens == 1531);
}

static void test_gateways(void **state)
{
    static const char tgi[] = "tgi_queue_size 4\ntgi_batch_current_size 7\n";
    static const char lmcache[] = "lmcache:num_requested_tokens_total 100\n"
                                  "lmcache:num_hit_tokens_total 40\n";
    static const char both[] =
        "lmcache:num_requested_tokens_total 100\n"
        "lmcache:num_hit_tokens_total 40\n"
        "vllm:prefix_cache_queries_total 90\nvllm:prefix_cache_hits_total 9\n"
        "lmcache:num_hit_tokens_total 50\n";
    static const char dynamo[] =
        "dynamo_frontend_queued_requests{model=\"m\"} 2\n"
        "dynamo_frontend_inflight_requests{model=\"m\"} 5\n"
        "dynamo_frontend_time_to_first_token_seconds_bucket{model=\"m\",le=\"1\"} 4\n"
        "dynamo_frontend_time_to_first_token_seconds_bucket{model=\"m\",le=\"+Inf\"} 4\n";
    static const char others[] = "go_goroutines 7\nup 1\n";
    struct kvr_engine_series series, nothing = {0};

    (void)state;
    assert_true(kvr_series_read(tgi, sizeof tgi - 1, &series));
    assert_true(series.waiting == 4 && series.running == 7 && isnan(series.prompt_tokens));
    assert_true(kvr_series_read(lmcache, sizeof lmcache - 1, &series));
    assert_true(series.prompt_tokens == 100 && series.cached_tokens == 40);
    assert_true(kvr_series_read(both, sizeof both - 1, &series)); /* the engine's own count */
    assert_true(series.prompt_tokens == 90 && series.cached_tokens == 9);
    assert_true(kvr_series_read(dynamo, sizeof dynamo - 1, &series));
    assert_true(series.waiting == 2 && series.running == 5 && series.ttft_count == 2);
    assert_true(fabs(kvr_series_ttft_ms(&nothing, &series, 0.5) - 500) < 1e-9);
    assert_false(kvr_series_read(others, sizeof others - 1, &series));
}

static void test_text(void **state)
{
    static const char page[] =
        "# HELP x y\n\nplain 1\r\n"
        "a:b_c{x=\"1\",y=\"q\\\"}\\\\\\n\", z=\"\"} -2.5e3 1700000000\n"
        "no_value\nbad{x=\"1\" 3\nbad{} x\n9name 3\ninf +Inf\nnan NaN\nlast 7";
    struct kvr_exposition exposition = kvr_exposition_open(page, sizeof page - 1);
    struct kvr_exposition_sample sample;
    struct kvr_buffer text = {0};

    (void)state;
    assert_true(kvr_exposition_next(&exposition, &sample));
    assert_int_equal(sample.name.length, 5);
    assert_true(sample.value == 1);
    assert_true(kvr_exposition_next(&exposition, &sample));
    assert_true(sample.value == -2500);
    assert_true(kvr_exposition_label(&sample, "y", &text));
    assert_string_equal(kvr_buffer_text(&text), "q\"}\\\n");
    kvr_buffer_clear(&text);
    assert_true(kvr_exposition_label(&sample, "z", &text));
    assert_int_equal(text.length, 0);
    assert_false(kvr_exposition_label(&sample, "w", &text));
    assert_true(kvr_exposition_next(&exposition, &sample) && isinf(sample.value));
    assert_true(kvr_exposition_next(&exposition, &sample) && isnan(sample.value));
    assert_true(kvr_exposition_next(&exposition, &sample) && sample.value == 7);
    assert_false(kvr_exposition_next(&exposition, &sample));
    assert_int_equal(exposition.bad_lines, 4);
    kvr_buffer_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vllm),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_gateways),
        cmocka_unit_test(test_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
