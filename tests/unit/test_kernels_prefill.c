/*
 * A whole prefill on the CPU: against the plain operations put together, and the laws that a paged
 * cache has to keep, bit for bit.
 */
#include "kernels/backend.h"
#include "kernels/prefix_store.h"
#include "kernels/weight.h"
#include "tests/unit/kernel_fixture.h"

#include <string.h>

enum { SEED = 11, POOL_TOKENS = 2048 };

static struct kvr_runner *start(const struct kvr_shape *shape, uint32_t page, uint32_t threads)
{
    struct kvr_backend_options options = {.shape = shape,
        .seed = SEED,
        .page_tokens = page,
        .pages = POOL_TOKENS / page + 8,
        .threads = threads};
    struct kvr_runner *runner = NULL;
    struct kvr_error error;

    assert_int_equal(kvr_cpu_backend.create(&options, &runner, &error), KVR_OK);
    return runner;
}

static const struct kvr_shape *tiny(void)
{
    const struct kvr_shape *shape = NULL;

    assert_int_equal(kvr_shape_find("TINY", &shape, NULL), KVR_OK);
    return shape;
}

static uint32_t *some_tokens(uint32_t count, uint64_t seed)
{
    struct kvr_random random = {seed};
    uint32_t *tokens = some(count, sizeof *tokens);

    for (uint32_t i = 0; i < count; i++)
        tokens[i] = kvr_random_below(&random, tiny()->vocabulary);
    return tokens;
}

static void run(struct kvr_runner *runner, const struct kvr_step *steps, size_t count)
{
    struct kvr_error error = {0};

    assert_int_equal(kvr_cpu_backend.run(runner, steps, count, &error), KVR_OK);
}

/* Every page holds NaN: what is read without having been written shows in the logits. */
static void poison(struct kvr_runner *runner)
{
    struct kvr_kv *kv = kvr_cpu_kv(runner);

    memset(kv->data, 0xff, kvr_kv_size(kv) * sizeof *kv->data);
}

static kvr_bf16 *tensor(enum kvr_weight_kind kind, uint32_t layer, size_t outputs, size_t k)
{
    struct kvr_weight_stream stream = kvr_weight_stream(SEED, kind, layer, (uint32_t)k);
    kvr_bf16 *weights = some(outputs * k, sizeof *weights);

    if (k == 1)
        for (size_t i = 0; i < outputs; i++)
            weights[i] = kvr_bf16_round(kvr_weight_norm_value(&stream, i));
    else
        kvr_weight_fill(&stream, 0, outputs * k, weights);
    return weights;
}

static void norm(float *out, float *residual, const float *added, enum kvr_weight_kind kind,
    uint32_t layer, size_t rows, size_t width, const struct kvr_shape *shape)
{
    kvr_bf16 *weights = tensor(kind, layer, width, 1);

    kvr_rms_norm(out, residual, added, weights, rows, width, shape->norm_epsilon);
    free(weights);
}

static void multiply(float *out, const float *x, enum kvr_weight_kind kind, uint32_t layer,
    size_t rows, size_t outputs, size_t k)
{
    kvr_bf16 *weights = tensor(kind, layer, outputs, k);

    for (size_t row = 0; row < rows; row++)
        kvr_logits(out + row * outputs, x + row * k, weights, outputs, k);
    free(weights);
}

/* The transformer as its papers have it, from the plain operations alone. */
static void reference(float *logits, const struct kvr_shape *s, const uint32_t *tokens, size_t n)
{
    size_t heads = (size_t)s->heads * s->head_dim, kv_heads = (size_t)s->kv_heads * s->head_dim;
    size_t width = heads + 2 * kv_heads, hidden = s->hidden, inner = s->inner;
    float *x = some(n * hidden, sizeof *x), *h = some(n * hidden, sizeof *h);
    float *update = some(n * hidden, sizeof *x), *qkv = some(n * width, sizeof *qkv);
    float *attended = some(n * heads, sizeof *x), *both = some(n * 2 * inner, sizeof *x);
    float *active = some(n * inner, sizeof *x), *turns = some(n * s->head_dim, sizeof *x);
    uint32_t *positions = some(n, sizeof *positions), table[] = {0};
    struct kvr_kv kv = {NULL, s->layers, 1, s->kv_heads, s->head_dim, (uint32_t)n};

    kv.data = some(kvr_kv_size(&kv), sizeof *kv.data);
    for (uint32_t i = 0; i < n; i++)
        positions[i] = i;
    kvr_rope_turns(turns, positions, n, s->head_dim, s->rope_theta, NULL);
    kvr_bf16 *embedding = tensor(KVR_WEIGHT_EMBEDDING, 0, s->vocabulary, hidden);
    kvr_embed(x, embedding, tokens, n, hidden);
    for (uint32_t layer = 0; layer < s->layers; layer++) {
        norm(h, x, layer ? update : NULL, KVR_WEIGHT_ATTENTION_NORM, layer, n, hidden, s);
        multiply(qkv, h, KVR_WEIGHT_QKV, layer, n, width, hidden);
        for (size_t row = 0; row < n; row++) {
            float *query = qkv + row * width, *key = query + heads;
            norm(query, query, NULL, KVR_WEIGHT_QUERY_NORM, layer, s->heads, s->head_dim, s);
            norm(key, key, NULL, KVR_WEIGHT_KEY_NORM, layer, s->kv_heads, s->head_dim, s);
        }
        kvr_rope(qkv, width, turns, n, s->heads + s->kv_heads, s->head_dim);
        kvr_kv_write(&kv, table, layer, 0, n, qkv + heads, qkv + heads + kv_heads, width);
        kvr_attention(attended, qkv, width, &kv, table, layer, 0, n, s->heads);
        multiply(update, attended, KVR_WEIGHT_OUT, layer, n, hidden, heads);
        norm(h, x, update, KVR_WEIGHT_INNER_NORM, layer, n, hidden, s);
        multiply(both, h, KVR_WEIGHT_GATE_UP, layer, n, 2 * inner, hidden);
        kvr_swiglu(active, both, n, inner);
        multiply(update, active, KVR_WEIGHT_DOWN, layer, n, hidden, inner);
    }
    norm(h, x, update, KVR_WEIGHT_FINAL_NORM, 0, n, hidden, s);
    kvr_logits(logits, h + (n - 1) * hidden, embedding, s->vocabulary, hidden);
    free(x), free(h), free(update), free(qkv), free(attended), free(both), free(active);
    free(turns), free(positions), free(kv.data), free(embedding);
}

static void a_prefill_is_the_plain_operations_put_together(void **state)
{
    const struct kvr_shape *shape = tiny();
    uint32_t *tokens = some_tokens(70, 1), *table = scattered(8, 3);
    float *expected = some(shape->vocabulary, sizeof *expected);
    float *logits = some(shape->vocabulary, sizeof *logits);
    struct kvr_runner *runner = start(shape, 16, 2);
    struct kvr_step step = {tokens, 70, 0, table, logits};

    (void)state;
    reference(expected, shape, tokens, 70);
    run(runner, &step, 1);
    /* The pages round keys and values to eight bits; both do, and rarely differ by one step. */
    assert_true(distance(logits, expected, shape->vocabulary) < 2e-3);
    kvr_cpu_backend.destroy(runner);
    free(tokens), free(table), free(expected), free(logits);
}

static void a_cached_prefix_changes_no_bit(void **state)
{
    static const uint32_t pages[] = {1, 5, 16, 64, 1024};
    static const uint32_t splits[] = {1, 15, 16, 63, 64, 65, 200, 503, 504, 505, 698, 699};
    const uint32_t total = 700;
    const struct kvr_shape *shape = tiny();
    uint32_t *tokens = some_tokens(total, 2);
    size_t bytes = shape->vocabulary * sizeof(float);
    float *expected = some(shape->vocabulary, sizeof *expected), *logits = some(1, bytes);

    (void)state;
    for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
        struct kvr_runner *runner = start(shape, pages[p], 1 + (uint32_t)p % 3);
        uint32_t *table = scattered(POOL_TOKENS / pages[p] + 8, p);
        for (size_t s = 0; s < sizeof splits / sizeof *splits; s++) {
            uint32_t cached = splits[s];
            struct kvr_step whole = {tokens, total, 0, table, logits};
            struct kvr_step prefix = {tokens, cached, 0, table, NULL};
            struct kvr_step rest = {tokens + cached, total - cached, cached, table, logits};
            poison(runner);
            if (p == 0 && s == 0) {
                run(runner, &whole, 1);
                memcpy(expected, logits, bytes);
                assert_true(isfinite(expected[0]) && expected[0] != expected[1]);
                poison(runner);
            }
            run(runner, &prefix, 1);
            run(runner, &rest, 1);
            assert_memory_equal(logits, expected, bytes);
        }
        kvr_cpu_backend.destroy(runner);
        free(table);
    }
    free(tokens), free(expected), free(logits);
}

/* Three sequences, two of which share a prefix and its pages, in any order and any batch. */
static void the_order_and_company_of_requests_change_no_bit(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    const struct kvr_shape *shape = tiny();
    struct kvr_runner *runner = start(shape, 16, 2);
    uint32_t *prefix = some_tokens(160, 1), *table = scattered(POOL_TOKENS / 16, 8);
    uint32_t tables[3][64];
    size_t bytes = shape->vocabulary * sizeof(float);
    float *logits[3], *alone[3];
    struct kvr_step steps[3], first = {prefix, 160, 0, tables[0], NULL};

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t cached = i < 2 ? 160 : 0, count = 100 + 250 * i;
        logits[i] = some(1, bytes);
        alone[i] = some(1, bytes);
        for (uint32_t page = 0; page < 64; page++)
            tables[i][page] = i < 2 && page < 10 ? table[page] : table[10 + i * 39 + page % 39];
        steps[i] =
            (struct kvr_step){some_tokens(count, 40 + i), count, cached, tables[i], alone[i]};
    }
    for (int batched = 0; batched < 2; batched++) {
        for (size_t o = 0; o < 3; o++) {
            struct kvr_step turned[3];
            for (int i = 0; i < 3; i++) {
                turned[i] = steps[orders[o][i]];
                if (batched || o > 0)
                    turned[i].logits = logits[orders[o][i]];
            }
            poison(runner);
            run(runner, &first, 1);
            for (int i = 0; i < (batched ? 1 : 3); i++)
                run(runner, turned + i, batched ? 3 : 1);
            for (int i = 0; i < 3 && (batched || o > 0); i++)
                assert_memory_equal(logits[i], alone[i], bytes);
        }
    }
    assert_true(memcmp(alone[0], alone[1], bytes) != 0);
    for (int i = 0; i < 3; i++)
        free((void *)steps[i].tokens), free(logits[i]), free(alone[i]);
    kvr_cpu_backend.destroy(runner);
    free(prefix), free(table);
}

static void nothing_is_written_outside_a_sequence_s_pages(void **state)
{
    const struct kvr_shape *shape = tiny();
    struct kvr_runner *runner = start(shape, 16, 2);
    struct kvr_kv *kv = kvr_cpu_kv(runner);
    uint32_t *tokens = some_tokens(40, 3), table[] = {7, 2, 9};
    struct kvr_step step = {tokens, 20, 20, table, NULL};

    (void)state;
    poison(runner);
    run(runner, &step, 1);
    for (uint32_t page = 0; page < kv->pages; page++) {
        for (uint32_t slot = 0; slot < 16; slot++) {
            bool ours = (page == 2 && slot >= 4) || (page == 9 && slot < 8);
            uint32_t lookup[] = {page};
            kvr_bf16 value = kv->data[kvr_kv_at(kv, lookup, 0, slot, 1, 1)];
            assert_int_equal(value != 0xffff, ours);
        }
    }
    kvr_cpu_backend.destroy(runner);
    free(tokens);
}

static void what_cannot_be_run_is_refused(void **state)
{
    const struct kvr_shape *shape = tiny(), *huge = NULL;
    struct kvr_runner *runner = start(shape, 16, 1), *other = NULL;
    struct kvr_error error;
    uint32_t bad_token[] = {1000}, good_token[] = {999}, bad_page[] = {100000}, page[] = {0};
    struct kvr_step steps[] = {{bad_token, 1, 0, page, NULL}, {good_token, 1, 0, bad_page, NULL},
        {good_token, 0, 0, page, NULL}};

    (void)state;
    assert_int_equal(kvr_cpu_backend.run(runner, &steps[0], 1, &error), KVR_BAD_INPUT);
    assert_int_equal(kvr_cpu_backend.run(runner, &steps[1], 1, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_cpu_backend.run(runner, &steps[2], 1, &error), KVR_BAD_USAGE);
    kvr_cpu_backend.destroy(runner);
    assert_int_equal(kvr_shape_find("llama-3.1-405b", &huge, &error), KVR_OK);
    struct kvr_backend_options options = {
        .shape = huge, .seed = SEED, .page_tokens = 16, .pages = UINT32_MAX, .threads = 1};
    assert_int_equal(kvr_cpu_backend.create(&options, &other, &error), KVR_UNSUPPORTED);
    options = (struct kvr_backend_options){
        .shape = shape, .seed = SEED, .page_tokens = 0, .pages = 8, .threads = 1};
    assert_int_equal(kvr_cpu_backend.create(&options, &other, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_shape_find("mixtral-8x7b", &huge, &error), KVR_BAD_USAGE);
    assert_non_null(strstr(error.text, "llama-3.1-8b"));
}

/* 4 pages of 16 and blocks of 32: two slots. */
static void a_prefix_store_takes_what_is_oldest(void **state)
{
    struct kvr_prefix_store *store = NULL;
    struct kvr_error error;
    const uint32_t *table;
    uint32_t cached;
    const uint64_t first[] = {1, 2}, twice[] = {5, 5}, other[] = {3};

    (void)state;
    assert_int_equal(kvr_prefix_store_create(4, 16, 24, &store, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_prefix_store_create(1, 16, 32, &store, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_prefix_store_create(4, 16, 32, &store, &error), KVR_OK);
    assert_int_equal(
        kvr_prefix_store_take(store, first, 2, 65, &table, &cached, &error), KVR_BAD_INPUT);
    for (uint32_t expected = 0; expected <= 63; expected += 63) {
        assert_int_equal(
            kvr_prefix_store_take(store, first, 2, 64, &table, &cached, &error), KVR_OK);
        assert_int_equal(cached, expected);
        assert_int_equal(table[0] / 2 + table[2] / 2, 1);
        assert_int_equal(table[0] % 2, 0);
        assert_int_equal(table[1], table[0] + 1);
    }
    /* One new block takes the place of the prefix' end. */
    assert_int_equal(kvr_prefix_store_take(store, other, 1, 32, &table, &cached, &error), KVR_OK);
    assert_int_equal(cached, 0);
    assert_int_equal(kvr_prefix_store_take(store, first, 2, 64, &table, &cached, &error), KVR_OK);
    assert_int_equal(cached, 32);
    /* An id that comes twice never gives one page to two blocks. */
    for (uint32_t expected = 0; expected <= 32; expected += 32) {
        assert_int_equal(
            kvr_prefix_store_take(store, twice, 2, 64, &table, &cached, &error), KVR_OK);
        assert_int_equal(cached, expected);
        assert_int_not_equal(table[0], table[2]);
    }
    kvr_prefix_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefill_is_the_plain_operations_put_together),
        cmocka_unit_test(a_cached_prefix_changes_no_bit),
        cmocka_unit_test(the_order_and_company_of_requests_change_no_bit),
        cmocka_unit_test(nothing_is_written_outside_a_sequence_s_pages),
        cmocka_unit_test(what_cannot_be_run_is_refused),
        cmocka_unit_test(a_prefix_store_takes_what_is_oldest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
