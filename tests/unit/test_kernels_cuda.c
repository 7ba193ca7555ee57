/*
 * The CUDA kernels against the plain operations over a grid of shapes, executed on the processor
 * (tests/cuda_host.h) with the threads in three orders.
 */
#include "kernels/backend.h"
#include "kernels/cuda_operations.h"
#include "kernels/smoke.h"
#include "kernels/weight.h"
#include "tests/cuda_host.h"
#include "tests/unit/kernel_fixture.h"

#include <string.h>

/* bfloat16 keeps eight bits: a rounding is off by 2^-9 at most, 2^-10 on the average. */
#define ONE_ROUNDING 3e-3

static void begin(int order)
{
    cuda_host_begin((enum cuda_host_order)(order % 3));
}

static void no_fault(void)
{
    if (cuda_host_fault())
        fail_msg("%s", cuda_host_fault());
}

static float *values_of(const kvr_bf16 *halves, size_t count)
{
    float *floats = some(count, sizeof *floats);

    for (size_t i = 0; i < count; i++)
        floats[i] = kvr_bf16_value(halves[i]);
    return floats;
}

/* Compares device numbers with floats and frees both. */
static void same(kvr_bf16 *ours, float *expected, size_t count, double bound)
{
    float *floats = values_of(ours, count);
    double error = distance(floats, expected, count);

    no_fault();
    if (!(error <= bound))
        fail_msg("normalised error %g above %g", error, bound);
    free(floats);
    free(ours);
    free(expected);
}

static void weights_have_the_same_bits(void **state)
{
    static const uint64_t firsts[] = {0, 1, 7, 8, 13, 4096};
    static const size_t counts[] = {1, 7, 8, 9, 3000};
    struct kvr_weight_stream stream = kvr_weight_stream(5, KVR_WEIGHT_QKV, 2, 4096);
    enum { MOST = 3001 };
    kvr_bf16 *ours = some(MOST, sizeof *ours), expected[MOST];

    (void)state;
    for (int c = 0; c < 30; c++) {
        uint64_t first = firsts[c % 6];
        size_t count = counts[c / 6];
        memset(ours, 0xff, sizeof expected);
        memset(expected, 0xff, sizeof expected);
        begin(c);
        kvr_cuda_weights(NULL, ours, stream.key, stream.scale, false, first, count, 1, 0);
        kvr_weight_fill(&stream, first, count, expected);
        assert_memory_equal(ours, expected, sizeof expected);
        kvr_cuda_weights(NULL, ours, stream.key, 1, true, first, count, 1, 0);
        for (size_t i = 0; i < count; i++)
            assert_true(kvr_bf16_value(ours[i]) == kvr_weight_norm_value(&stream, first + i));
        no_fault();
    }
    free(ours);
}

static void embedding_gathers(void **state)
{
    static const uint32_t widths[] = {8, 256, 1032};
    const uint32_t five[] = {3, 0, 9, 9, 1}, *tokens = some_of(five, sizeof five);

    (void)state;
    for (int c = 0; c < 9; c++) {
        uint32_t width = widths[c % 3];
        kvr_bf16 *table = some_halves(10 * width, 1), *ours = some(5 * width, sizeof *ours);
        float *expected = some(5 * width, sizeof *expected);
        begin(c / 3);
        kvr_cuda_embed(NULL, ours, table, tokens, 5, width);
        kvr_embed(expected, table, tokens, 5, width);
        same(ours, expected, 5 * width, 0);
        free(table);
    }
    free((void *)tokens);
}

static void rms_norm_agrees(void **state)
{
    static const uint32_t widths[] = {8, 64, 128, 264, 2048, 4096};
    static const uint32_t rows[] = {1, 3};

    (void)state;
    for (int c = 0; c < 6 * 2 * 2 * 3; c++) {
        uint32_t width = widths[c % 6], count = rows[c / 6 % 2];
        bool adds = c / 12 % 2;
        size_t size = (size_t)count * width;
        kvr_bf16 *residual = some_halves(size, 1), *added = some_halves(size, 2);
        kvr_bf16 *weight = some_halves(width, 3), *ours = some(size, sizeof *ours);
        float *x = values_of(residual, size), *update = values_of(added, size);
        float *expected = some(size, sizeof *expected);
        begin(c / 24);
        kvr_cuda_rms_norm(
            NULL, ours, residual, adds ? added : NULL, weight, count, width, 1, width, 1e-5f);
        kvr_rms_norm(expected, x, adds ? update : NULL, weight, count, width, 1e-5f);
        same(ours, expected, size, adds ? 2 * ONE_ROUNDING : ONE_ROUNDING);
        same(residual, x, size, ONE_ROUNDING);
        free(added), free(update), free(weight);
    }
}

/* Heads inside wider rows, in place; what stands beside them stays. */
static void head_norms_agree(void **state)
{
    (void)state;
    for (int c = 0; c < 3; c++) {
        enum { ROWS = 3, HEADS = 2, DIM = 64, STRIDE = 200 };
        kvr_bf16 *x = some_halves(ROWS * STRIDE, 1), *weight = some_halves(DIM, 3);
        float *expected = values_of(x, ROWS * STRIDE);
        begin(c);
        kvr_cuda_rms_norm(NULL, x, x, NULL, weight, ROWS, STRIDE, HEADS, DIM, 1e-6f);
        for (size_t row = 0; row < ROWS; row++)
            kvr_rms_norm(
                expected + row * STRIDE, expected + row * STRIDE, NULL, weight, HEADS, DIM, 1e-6f);
        for (size_t i = HEADS * DIM; i < STRIDE; i++)
            assert_true(kvr_bf16_value(x[i]) == expected[i]);
        same(x, expected, ROWS * STRIDE, ONE_ROUNDING);
        free(weight);
    }
}

static void rope_agrees(void **state)
{
    static const uint32_t dims[] = {64, 128, 256};
    const uint32_t four[] = {0, 1, 5, 99}, *positions = some_of(four, sizeof four);
    uint32_t all[100];

    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        all[i] = i;
    for (int c = 0; c < 9; c++) {
        uint32_t dim = dims[c % 3], heads = 3, stride = heads * dim + 24;
        float *table = some((size_t)100 * dim, sizeof *table);
        float *turns = some((size_t)4 * dim, sizeof *turns);
        kvr_bf16 *x = some_halves((size_t)4 * stride, 1);
        float *expected = values_of(x, (size_t)4 * stride);
        begin(c / 3);
        kvr_rope_turns(table, all, 100, dim, 1e4, NULL);
        kvr_rope_turns(turns, positions, 4, dim, 1e4, NULL);
        kvr_cuda_rope(NULL, x, stride, table, positions, 4, heads, dim);
        kvr_rope(expected, stride, turns, 4, heads, dim);
        same(x, expected, (size_t)4 * stride, ONE_ROUNDING);
        free(table), free(turns);
    }
    free((void *)positions);
}

static void swiglu_agrees(void **state)
{
    static const uint32_t widths[] = {8, 96, 544, 2056};

    (void)state;
    for (int c = 0; c < 12; c++) {
        uint32_t width = widths[c % 4];
        kvr_bf16 *both = some_halves((size_t)3 * 2 * width, 1);
        kvr_bf16 *ours = some((size_t)3 * width, sizeof *ours);
        float *floats = values_of(both, (size_t)3 * 2 * width);
        float *expected = some((size_t)3 * width, sizeof *expected);
        begin(c / 4);
        kvr_cuda_swiglu(NULL, ours, both, 3, width);
        kvr_swiglu(expected, floats, 3, width);
        same(ours, expected, (size_t)3 * width, ONE_ROUNDING);
        free(both), free(floats);
    }
}

static void logits_agree(void **state)
{
    static const uint32_t words[] = {1, 7, 8, 33};
    static const uint32_t widths[] = {8, 256, 264};
    const uint32_t two[] = {4, 1}, *last_rows = some_of(two, sizeof two);

    (void)state;
    for (int c = 0; c < 36; c++) {
        uint32_t vocabulary = words[c % 4], hidden = widths[c / 4 % 3];
        kvr_bf16 *x = some_halves((size_t)5 * hidden, 1);
        kvr_bf16 *table = some_halves((size_t)vocabulary * hidden, 2);
        float *floats = values_of(x, (size_t)5 * hidden);
        float *ours = some(66, sizeof *ours), expected[66];
        begin(c / 12);
        kvr_cuda_logits(NULL, ours, x, last_rows, 2, table, vocabulary, hidden);
        for (int i = 0; i < 2; i++)
            kvr_logits(expected + i * vocabulary, floats + last_rows[i] * hidden, table, vocabulary,
                hidden);
        assert_true(distance(ours, expected, 2 * vocabulary) < 1e-5);
        no_fault();
        free(x), free(table), free(floats), free(ours);
    }
    free((void *)last_rows);
}

/* Two parts: the shape's, and one of another length behind it. Pages that nobody wrote are NaN. */
static void compare_attention(int order, uint32_t dim, uint32_t heads, uint32_t kv_heads,
    uint32_t page_tokens, uint32_t first, uint32_t count)
{
    struct kvr_cuda_part two[] = {{0, count, first, 0}, {count, 3, 30, 0}};
    struct kvr_cuda_part *parts = some_of(two, sizeof two);
    uint32_t rows = count + 3, stride = (heads + 2 * kv_heads) * dim;
    uint32_t per_table = (first + count + 33) / page_tokens + 1, pages = 2 * per_table + 1;
    uint32_t *tables = scattered(pages, first * 31 + count);
    struct kvr_kv kv = {NULL, 1, pages, kv_heads, dim, page_tokens};
    kvr_bf16 *qkv = some_halves((size_t)rows * stride, 9), *ours;
    float *expected = some((size_t)rows * heads * dim, sizeof *expected);

    parts[1].table_offset = per_table;
    kv.data = some(kvr_kv_size(&kv), sizeof *kv.data);
    memset(kv.data, 0xff, kvr_kv_size(&kv) * sizeof *kv.data);
    for (size_t i = 0; i < (size_t)rows * stride; i++) /* some weights large, some nothing */
        if (i % stride < (size_t)heads * dim)
            qkv[i] = kvr_bf16_round(kvr_bf16_value(qkv[i]) * 6);
    struct kvr_cuda_kv device = {kv.data, kv_heads, dim, page_tokens};
    float *floats = values_of(qkv, (size_t)rows * stride);
    begin(order);
    for (int p = 0; p < 2; p++) {
        uint32_t end = parts[p].first + parts[p].count;
        kvr_bf16 *past = some_halves((size_t)end * 2 * kv_heads * dim, 20 + (uint64_t)p);
        uint32_t *slots = some(end, sizeof *slots), width = 2 * kv_heads * dim;
        for (uint32_t token = 0; token < end; token++)
            slots[token] = tables[parts[p].table_offset + token / page_tokens] * page_tokens +
                           token % page_tokens;
        kvr_cuda_kv_write(NULL, &device, slots, past, past + kv_heads * dim, width, end);
        float *keys = values_of(past, (size_t)end * width);
        kvr_bf16 *before = some(kvr_kv_size(&kv), sizeof *before);
        memcpy(before, kv.data, kvr_kv_size(&kv) * sizeof *before);
        kvr_kv_write(
            &kv, tables + parts[p].table_offset, 0, 0, end, keys, keys + kv_heads * dim, width);
        assert_memory_equal(before, kv.data, kvr_kv_size(&kv) * sizeof *before);
        free(before), free(past), free(slots), free(keys);
        kvr_attention(expected + (size_t)parts[p].row * heads * dim,
            floats + (size_t)parts[p].row * stride, stride, &kv, tables + parts[p].table_offset, 0,
            parts[p].first, parts[p].count, heads);
    }
    ours = some((size_t)rows * heads * dim, sizeof *ours);
    assert_true(kvr_cuda_attention(
        NULL, ours, qkv, stride, &device, tables, parts, 2, count > 3 ? count : 3, heads));
    same(ours, expected, (size_t)rows * heads * dim, 2 * ONE_ROUNDING);
    free(tables), free(qkv), free(floats), free(kv.data), free(parts);
}

static void attention_and_kv_write_agree(void **state)
{
    static const uint32_t dims[] = {64, 128, 256};
    static const uint32_t ratios[][2] = {{2, 2}, {4, 1}, {3, 1}, {8, 2}};
    static const uint32_t page_sizes[] = {1, 7, 16, 64};
    static const uint32_t spans[][2] = {{0, 1}, {0, 65}, {64, 1}, {63, 2}, {65, 17}, {31, 40},
        {170, 30}}; /* the last walks over more blocks of keys than there are stages */

    (void)state;
    for (uint32_t c = 0; c < 3 * 4 * 7; c++)
        compare_attention((int)c / 2, dims[c % 3], ratios[c / 3 % 4][0], ratios[c / 3 % 4][1],
            page_sizes[(c + c / 12) % 4], spans[c / 12][0], spans[c / 12][1]);
    struct kvr_cuda_kv odd = {NULL, 1, 96, 16};
    assert_false(kvr_cuda_attention(NULL, NULL, NULL, 0, &odd, NULL, NULL, 1, 1, 1));
}

extern const struct kvr_backend kvr_cuda_backend;

/* The whole backend on a small model, against the CPU's, and with a cached prefix against none. */
static void the_backend_agrees_with_the_cpu_s(void **state)
{
    enum { TOKENS = 21, CACHED = 13 };
    const struct kvr_shape *shape = NULL;
    struct kvr_runner *cpu = NULL, *cuda = NULL;
    struct kvr_error error = {0};
    uint32_t tokens[TOKENS], *table = scattered(12, 4);

    (void)state;
    assert_int_equal(kvr_shape_find("tiny", &shape, &error), KVR_OK);
    size_t words = shape->vocabulary;
    float *expected = some(words, sizeof *expected), *whole = some(words, sizeof *whole);
    float *rest = some(words, sizeof *rest), *again = some(words, sizeof *again);
    struct kvr_backend_options options = {
        .shape = shape, .seed = 3, .page_tokens = 5, .pages = 12, .threads = 1};
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 97 % shape->vocabulary;
    struct kvr_step step = {tokens, TOKENS, 0, table, expected};
    struct kvr_step first = {tokens, CACHED, 0, table + 5, NULL};
    struct kvr_step both[] = {{tokens + CACHED, TOKENS - CACHED, CACHED, table + 5, rest},
        {tokens, TOKENS, 0, table, again}};
    begin(2);
    assert_int_equal(kvr_cpu_backend.create(&options, &cpu, &error), KVR_OK);
    assert_int_equal(kvr_cuda_backend.create(&options, &cuda, &error), KVR_OK);
    assert_int_equal(kvr_cpu_backend.run(cpu, &step, 1, &error), KVR_OK);
    step.logits = whole;
    assert_int_equal(kvr_cuda_backend.run(cuda, &step, 1, &error), KVR_OK);
    assert_int_equal(kvr_cuda_backend.run(cuda, &first, 1, &error), KVR_OK);
    assert_int_equal(kvr_cuda_backend.run(cuda, both, 2, &error), KVR_OK);
    no_fault();
    assert_true(distance(whole, expected, words) < 3e-2);
    assert_true(distance(rest, whole, words) < 1e-2);
    assert_memory_equal(again, whole, words * sizeof *whole);
    /* and what a node's smoke test says of it */
    struct kvr_buffer out = {0};
    struct kvr_smoke smoke = {.out = &out};
    struct kvr_bench bench = {.backend = &kvr_cuda_backend,
        .runner = cuda,
        .shape = shape,
        .pages = 4,
        .page_tokens = 5,
        .seed = 3};
    bench.peak_flops = kvr_cuda_backend.matrix_flops(cuda);
    assert_int_equal(kvr_smoke_compute(&smoke, &bench, NULL, 0, 0, &error), KVR_OK);
    kvr_smoke_end(&smoke);
    assert_non_null(strstr(kvr_buffer_text(&out), "against the processor"));
    assert_non_null(strstr(out.data, "0 of 8 checks failed"));
    kvr_buffer_release(&out);
    kvr_cpu_backend.destroy(cpu);
    kvr_cuda_backend.destroy(cuda);
    free(table), free(expected), free(whole), free(rest), free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_have_the_same_bits),
        cmocka_unit_test(embedding_gathers),
        cmocka_unit_test(rms_norm_agrees),
        cmocka_unit_test(head_norms_agree),
        cmocka_unit_test(rope_agrees),
        cmocka_unit_test(swiglu_agrees),
        cmocka_unit_test(logits_agree),
        cmocka_unit_test(attention_and_kv_write_agree),
        cmocka_unit_test(the_backend_agrees_with_the_cpu_s),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
