/* The operations of a prefill: weights, shapes, the fast forms against the plain ones. */
#include "kernels/attention_tiled.h"
#include "kernels/shape.h"
#include "kernels/weight.h"
#include "tests/unit/kernel_fixture.h"

#include <string.h>

static void weights_are_a_function_of_their_place(void **state)
{
    struct kvr_weight_stream stream = kvr_weight_stream(7, KVR_WEIGHT_DOWN, 3, 4096);
    kvr_bf16 whole[1000], piece[1000];
    double sum = 0, squares = 0;

    (void)state;
    kvr_weight_fill(&stream, 0, 1000, whole);
    for (size_t at = 0; at < 1000; at += 37) {
        kvr_weight_fill(&stream, at, 1000 - at, piece);
        assert_memory_equal(piece, whole + at, (1000 - at) * sizeof *piece);
    }
    for (size_t i = 0; i < 1000; i++) {
        float value = kvr_weight_value(&stream, i);
        assert_true(value == kvr_bf16_value(whole[i]));
        sum += value;
        squares += (double)value * value;
    }
    assert_true(fabs(sum / 1000) < 0.002);
    assert_true(squares / 1000 > 0.25 / 4096 * 0.9 && squares / 1000 < 1.1 / 4096);
}

/* These bits are the contract between machines and devices. */
static void weights_have_known_bits(void **state)
{
    static const struct {
        uint64_t seed;
        enum kvr_weight_kind kind;
        uint32_t layer, fan_in;
        uint64_t index;
    } places[] = {{0, KVR_WEIGHT_EMBEDDING, 0, 256, 0}, {1, KVR_WEIGHT_QKV, 2, 4096, 12345},
        {1, KVR_WEIGHT_QKV, 3, 4096, 12345}, {99, KVR_WEIGHT_DOWN, 31, 14336, 58720255}};
    static const float expected[] = {
        -57.0f / 4096, 205.0f / 16384, 215.0f / 16384, -145.0f / 32768};

    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct kvr_weight_stream stream =
            kvr_weight_stream(places[i].seed, places[i].kind, places[i].layer, places[i].fan_in);
        assert_true(kvr_weight_value(&stream, places[i].index) == expected[i]);
    }
}

static void shapes_have_the_parameters_of_the_presets(void **state)
{
    size_t compared = 0;

    (void)state;
    for (size_t i = 0; i < kvr_shape_count; i++) {
        const struct kvr_shape *shape = &kvr_shapes[i];
        const struct kvr_model *model = kvr_model_find(shape->name);
        assert_int_equal(shape->heads % shape->kv_heads, 0);
        assert_int_equal(shape->head_dim % 32, 0);
        if (!model)
            continue;
        compared++;
        assert_true(kvr_shape_parameters(shape) == model->parameters);
        assert_true(kvr_shape_kv_bytes_per_token(shape) == kvr_model_kv_bytes_per_token(model));
    }
    assert_int_equal(compared, 9);
}

static void gemm_multiplies(void **state)
{
    static const size_t rows[] = {1, 2, 5, 11, 12, 13, 24, 30, 252, 260};
    static const size_t outputs[] = {1, 31, 32, 33, 160};
    static const size_t ks[] = {1, 64, 513};
    struct kvr_tile tiles[3];
    struct kvr_crew *crew;
    struct kvr_error error;

    (void)state;
    assert_int_equal(kvr_crew_create(2, &crew, &error), KVR_OK);
    for (size_t number = kvr_tiles(tiles), t = 0; t < number; t++) {
        for (size_t c = 0; c < 150; c++) {
            size_t m = rows[c % 10], n = outputs[c / 10 % 5], k = ks[c / 50];
            float *x = some_floats(m * k, c), *out = some(m * n, sizeof *out);
            float *expected = some(m * n, sizeof *out), *alone = some(n, sizeof *out);
            kvr_bf16 *weights = some_halves(n * k, c + 1000);
            kvr_bf16 *halves = some(kvr_gemm_packed_size(n, k), sizeof *halves);
            float *floats = some(kvr_gemm_packed_size(n, k), sizeof *floats);
            float *again = some(m * n, sizeof *again);
            const struct kvr_packed packed = {halves, NULL}, wide = {NULL, floats};
            for (size_t i = 0; i < n * k; i++) {
                halves[kvr_gemm_packed_at(i / k, i % k, k)] = weights[i];
                floats[kvr_gemm_packed_at(i / k, i % k, k)] = kvr_bf16_value(weights[i]);
            }
            for (size_t row = 0; row < m; row++)
                kvr_logits(expected + row * n, x + row * k, weights, n, k);
            kvr_gemm(crew, &tiles[t], out, x, m, packed, n, k);
            for (size_t i = 0; i < m * n; i++)
                assert_true(fabs(out[i] - expected[i]) < 1e-4);
            /* the same weights kept in floats give the same bits, */
            kvr_gemm(crew, &tiles[t], again, x, m, wide, n, k);
            assert_memory_equal(again, out, m * n * sizeof *out);
            /* and a row alone has the bits that it has in company */
            for (size_t row = 0; row < m; row += 7) {
                kvr_gemm(crew, &tiles[t], alone, x + row * k, 1, packed, n, k);
                assert_memory_equal(alone, out + row * n, n * sizeof *alone);
            }
            free(x);
            free(out);
            free(expected);
            free(alone);
            free(weights);
            free(halves);
            free(floats);
            free(again);
        }
    }
    kvr_crew_destroy(crew);
}

/* One sequence with `first` cached tokens and `count` new ones; unused slots hold NaN. */
static void compare_attention(const struct kvr_tile *tile, uint32_t dim, uint32_t heads,
    uint32_t kv_heads, uint32_t page_tokens, uint32_t first, uint32_t count)
{
    uint32_t end = first + count, pages = end / page_tokens + 3;
    struct kvr_kv kv = {NULL, 2, pages, kv_heads, dim, page_tokens};
    uint32_t *table = scattered(pages, first * 31 + count);
    float *keys = some_floats((size_t)end * kv_heads * dim, 5);
    float *values = some_floats((size_t)end * kv_heads * dim, 6);
    float *queries = some_floats((size_t)count * heads * dim, 7);
    float *out = some((size_t)count * heads * dim, sizeof *out);
    float *expected = some((size_t)count * heads * dim, sizeof *out);
    float *scratch = some(kvr_attention_scratch(dim), sizeof *scratch);
    float *wide = NULL, *again = some((size_t)count * heads * dim, sizeof *out);
    uint32_t tokens = kvr_attention_tile_tokens(heads, kv_heads);
    size_t stride = (size_t)heads * dim;

    kv.data = some(kvr_kv_size(&kv), sizeof *kv.data);
    memset(kv.data, 0xff, kvr_kv_size(&kv) * sizeof *kv.data);
    for (size_t i = 0; i < (size_t)count * stride; i++)
        queries[i] *= 6; /* so that some weights are large and some nothing */
    kvr_kv_write(&kv, table, 1, 0, end, keys, values, (size_t)kv_heads * dim);
    kvr_attention(expected, queries, stride, &kv, table, 1, first, count, heads);
    wide = some(kvr_kv_size(&kv), sizeof *wide);
    for (size_t i = 0; i < kvr_kv_size(&kv); i++)
        wide[i] = kvr_bf16_value(kv.data[i]);
    for (int floats = 0; floats < 2; floats++)
        for (uint32_t at = 0; at < count; at += tokens)
            for (uint32_t head = 0; head < kv_heads; head++)
                kvr_attention_tile(tile, scratch, (floats ? again : out) + at * stride,
                    queries + at * stride, stride, &kv, floats ? wide : NULL, table, 1, first + at,
                    count - at < tokens ? count - at : tokens, heads, head);
    assert_true(distance(out, expected, (size_t)count * stride) < 2e-6);
    assert_memory_equal(out, again, (size_t)count * stride * sizeof *out);
    free(wide);
    free(again);
    free(keys);
    free(values);
    free(queries);
    free(out);
    free(expected);
    free(scratch);
    free(table);
    free(kv.data);
}

static void attention_agrees_with_its_reference(void **state)
{
    static const uint32_t dims[] = {64, 128, 256};
    static const uint32_t ratios[][2] = {{1, 1}, {4, 1}, {6, 2}, {16, 1}};
    static const uint32_t page_sizes[] = {1, 7, 16, 64};
    static const uint32_t spans[][2] = {
        {0, 1}, {0, 65}, {1, 63}, {63, 2}, {64, 1}, {65, 17}, {130, 5}, {31, 100}};
    struct kvr_tile tiles[3];
    size_t number = kvr_tiles(tiles);

    (void)state;
    for (size_t c = 0; c < 3 * 4 * 4 * 8; c++)
        compare_attention(&tiles[c % number], dims[c % 3], ratios[c / 3 % 4][0],
            ratios[c / 3 % 4][1], page_sizes[c / 12 % 4], spans[c / 48][0], spans[c / 48][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_a_function_of_their_place),
        cmocka_unit_test(weights_have_known_bits),
        cmocka_unit_test(shapes_have_the_parameters_of_the_presets),
        cmocka_unit_test(gemm_multiplies),
        cmocka_unit_test(attention_agrees_with_its_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
