/*
 * How the CUDA backend puts its kernels together, executed on the processor: graphs, several GPUs,
 * 8 bits. The runtime, cuBLASLt and NCCL are those of tests/cuda_host_runtime.h.
 */
#include "kernels/backend.h"
#include "kernels/cuda_operations.h"
#include "tests/cuda_host.h"
#include "tests/unit/kernel_fixture.h"

extern const struct kvr_backend kvr_cuda_backend;

enum { PAGE = 5, PAGES = 12, TOKENS = 21 };

static const struct kvr_shape *tiny(void)
{
    const struct kvr_shape *shape = NULL;

    assert_int_equal(kvr_shape_find("tiny", &shape, NULL), KVR_OK);
    return shape;
}

static void no_fault(void)
{
    if (cuda_host_fault())
        fail_msg("%s", cuda_host_fault());
}

static struct kvr_backend_options options_of(void)
{
    return (struct kvr_backend_options){
        .shape = tiny(), .seed = 3, .page_tokens = PAGE, .pages = PAGES};
}

static struct kvr_runner *start(const struct kvr_backend_options *options)
{
    struct kvr_runner *runner = NULL;
    struct kvr_error error = {0};

    if (kvr_cuda_backend.create(options, &runner, &error) != KVR_OK)
        fail_msg("%s", error.text);
    no_fault();
    return runner;
}

static void run(struct kvr_runner *runner, const struct kvr_step *steps, size_t count)
{
    struct kvr_error error = {0};

    if (kvr_cuda_backend.run(runner, steps, count, &error) != KVR_OK)
        fail_msg("%s", error.text);
    no_fault();
}

static void fill(uint32_t *tokens, uint32_t count, uint32_t factor)
{
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = i * factor % tiny()->vocabulary;
}

static unsigned times(const char *log, const char *name)
{
    unsigned count = 0;

    for (size_t length = strlen(name); (log = strstr(log, name)); log += length)
        count++;
    return count;
}

/* Prompts of several lengths and steps, with graphs and without: the same kernels in the same
 * order, the same bits, and one start for all of them from the second time on. */
static void graphs_do_the_same(void **state)
{
    static const uint32_t spans[][2] = {/* first, count */
        {0, 13}, {13, 1}, {14, 1}, {0, 9}, {9, 1}, {0, 21}, {10, 11}};
    const uint32_t words = tiny()->vocabulary, *table = (const uint32_t[]){7, 2, 11, 0, 5};
    struct kvr_backend_options options = options_of();
    struct kvr_runner *graphs, *eager;
    uint32_t tokens[TOKENS];
    float *ours = some(words, sizeof *ours), *expected = some(words, sizeof *ours);
    unsigned launches = 0;

    (void)state;
    fill(tokens, TOKENS, 97);
    cuda_host_begin(CUDA_HOST_FORWARD);
    graphs = start(&options);
    options.eager = true;
    eager = start(&options);
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        struct kvr_step step = {tokens + spans[i][0], spans[i][1], spans[i][0], table, expected};
        cuda_host_begin(CUDA_HOST_FORWARD);
        run(eager, &step, 1);
        assert_int_equal(cuda_host_graph_launches(), 0);
        char *log = strdup(cuda_host_log());
        assert_non_null(log);
        assert_int_equal(times(log, "product"), 4 * tiny()->layers);
        assert_int_equal(times(log, "attend"), tiny()->layers);
        cuda_host_begin(CUDA_HOST_FORWARD);
        step.logits = ours;
        run(graphs, &step, 1);
        assert_string_equal(cuda_host_log(), log);
        launches += cuda_host_graph_launches();
        assert_true(cuda_host_graph_launches() <= 1);
        assert_memory_equal(ours, expected, words * sizeof *ours);
        free(log);
    }
    /* sizes 16, 1, 32: seven chunks, four of them of a size that was there before */
    assert_int_equal(launches, 4);
    kvr_cuda_backend.destroy(graphs);
    kvr_cuda_backend.destroy(eager);
    free(ours), free(expected);
}

/* Larger page tables move the array that the graphs read: they are made anew. */
static void graphs_outlive_what_they_read(void **state)
{
    struct kvr_backend_options options = options_of();
    const uint32_t words = tiny()->vocabulary,
                   table[PAGES] = {7, 2, 11, 0, 5, 1, 3, 4, 6, 8, 9, 10};
    float *ours = some(words, sizeof *ours), *expected = some(words, sizeof *ours);
    uint32_t tokens[57];
    struct kvr_runner *runner;

    (void)state;
    fill(tokens, 57, 31);
    cuda_host_begin(CUDA_HOST_BACKWARD);
    runner = start(&options);
    struct kvr_step small = {tokens, 1, 0, table, expected};
    struct kvr_step large = {tokens, 57, 0, table, NULL};
    run(runner, &small, 1);
    small.logits = ours;
    run(runner, &small, 1);
    assert_int_equal(cuda_host_graph_launches(), 1);
    run(runner, &large, 1);
    run(runner, &small, 1); /* not a graph: it was forgotten */
    assert_int_equal(cuda_host_graph_launches(), 1);
    run(runner, &small, 1);
    assert_int_equal(cuda_host_graph_launches(), 2);
    assert_memory_equal(ours, expected, words * sizeof *ours);
    kvr_cuda_backend.destroy(runner);
    free(ours), free(expected);
}

/* Thirteen rows are padded to sixteen: no page but the step's own changes. */
static void padding_writes_into_nobodys_page(void **state)
{
    struct kvr_backend_options options = options_of();
    const uint32_t all[PAGES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, table[] = {7, 2, 11};
    size_t page = (size_t)tiny()->layers * 2 * tiny()->kv_heads * PAGE * tiny()->head_dim;
    kvr_bf16 *before = some(PAGES * page, sizeof *before);
    kvr_bf16 *after = some(PAGES * page, sizeof *after);
    struct kvr_error error;
    struct kvr_runner *runner;
    uint32_t tokens[13];

    (void)state;
    fill(tokens, 13, 7);
    cuda_host_begin(CUDA_HOST_SHUFFLED);
    runner = start(&options);
    struct kvr_step step = {tokens, 13, 0, table, NULL};
    assert_int_equal(kvr_cuda_backend.copy_pages(runner, all, PAGES, before, true, &error), KVR_OK);
    for (int round = 0; round < 2; round++) /* without and with a graph */
        run(runner, &step, 1);
    assert_int_equal(kvr_cuda_backend.copy_pages(runner, all, PAGES, after, true, &error), KVR_OK);
    for (uint32_t i = 0; i < PAGES; i++) {
        bool own = i == 7 || i == 2 || i == 11;
        assert_int_equal(memcmp(before + i * page, after + i * page, page * 2) != 0, own);
    }
    kvr_cuda_backend.destroy(runner);
    free(before), free(after);
}

/* More steps than logits at a time, all of one token, against each alone. */
static void many_steps_have_their_own_logits(void **state)
{
    enum { STEPS = 19 };
    struct kvr_backend_options options = options_of();
    const uint32_t words = tiny()->vocabulary;
    float *together = some((size_t)STEPS * words, sizeof *together);
    float *alone = some(words, sizeof *alone);
    struct kvr_step steps[STEPS];
    uint32_t tokens[STEPS], tables[STEPS];
    struct kvr_runner *runner;

    (void)state;
    options.pages = STEPS;
    fill(tokens, STEPS, 53);
    cuda_host_begin(CUDA_HOST_FORWARD);
    runner = start(&options);
    for (uint32_t i = 0; i < STEPS; i++) {
        tables[i] = STEPS - 1 - i;
        steps[i] = (struct kvr_step){
            &tokens[i], 1, 0, &tables[i], i == 3 ? NULL : together + (size_t)i * words};
    }
    run(runner, steps, STEPS);
    for (uint32_t i = 0; i < STEPS; i += 6) {
        struct kvr_step step = steps[i];
        step.logits = alone;
        run(runner, &step, 1);
        if (i != 3)
            assert_memory_equal(alone, together + (size_t)i * words, words * sizeof *alone);
    }
    kvr_cuda_backend.destroy(runner);
    free(together), free(alone);
}

static void two_gpus_do_what_one_does(void **state)
{
    struct kvr_backend_options options = options_of();
    const uint32_t words = tiny()->vocabulary, table[] = {7, 2, 11, 0, 5};
    float *one = some(words, sizeof *one), *two = some(words, sizeof *two);
    float *later = some(words, sizeof *two);
    struct kvr_runner *runner = NULL;
    struct kvr_error error = {0};
    uint32_t tokens[TOKENS];
    uint8_t *bytes = NULL;
    size_t size;

    (void)state;
    fill(tokens, TOKENS, 97);
    cuda_host_set_devices(2, 90);
    cuda_host_begin(CUDA_HOST_FORWARD);
    struct kvr_step whole = {tokens, TOKENS, 0, table, one};
    struct kvr_step parts[] = {
        {tokens, 13, 0, table, NULL}, {tokens + 13, TOKENS - 13, 13, table, later}};
    runner = start(&options);
    run(runner, &whole, 1);
    kvr_cuda_backend.destroy(runner);
    options.gpus = 2;
    runner = start(&options);
    cuda_host_begin(CUDA_HOST_FORWARD);
    whole.logits = two;
    run(runner, &whole, 1);
    assert_int_equal(times(cuda_host_log(), "sum"), 2 * tiny()->layers);
    assert_int_equal(times(cuda_host_log(), "attend"), 2 * tiny()->layers);
    assert_int_equal(times(cuda_host_log(), "multiply"), 1);
    run(runner, &parts[0], 1);
    run(runner, &parts[1], 1);
    /* sums of halves are rounded once more than a whole one */
    assert_true(distance(two, one, words) < 1e-2);
    assert_true(distance(later, two, words) < 1e-2);
    assert_non_null(strstr(kvr_cuda_backend.device(runner), "2x "));
    const struct kvr_codec_level level = {"", {8, 8, 8}};
    assert_int_equal(
        kvr_cuda_backend.pack(runner, table, 5, &level, &bytes, &size, &error), KVR_UNSUPPORTED);
    kvr_cuda_backend.destroy(runner);
    runner = NULL;
    options.gpus = 3; /* two key heads are not for three */
    assert_int_equal(kvr_cuda_backend.create(&options, &runner, &error), KVR_BAD_USAGE);
    options.gpus = 2;
    options.device = 1; /* there is no third */
    assert_int_equal(kvr_cuda_backend.create(&options, &runner, &error), KVR_UNSUPPORTED);
    options.gpus = 1;
    runner = start(&options); /* the second alone */
    whole.logits = two;
    run(runner, &whole, 1);
    assert_memory_equal(one, two, words * sizeof *one);
    kvr_cuda_backend.destroy(runner);
    cuda_host_set_devices(0, 90);
    assert_int_equal(kvr_cuda_backend.create(&options, &runner, &error), KVR_UNSUPPORTED);
    cuda_host_set_devices(1, 90);
    free(one), free(two), free(later);
}

static void eight_bits_round_to_the_nearest(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = kvr_bf16_value((kvr_bf16)bits), best = INFINITY;
        uint8_t code = kvr_fp8_round(value);
        if (isnan(value)) {
            assert_true(isnan(kvr_fp8_value(code)));
            continue;
        }
        float clamped = fminf(fmaxf(value, -448), 448);
        for (int i = 0; i < 256; i++)
            if (i % 128 != 127)
                best = fminf(best, fabsf(kvr_fp8_value((uint8_t)i) - clamped));
        assert_true(fabsf(kvr_fp8_value(code) - clamped) == best);
        assert_true(signbit(kvr_fp8_value(code)) == signbit(value) || code % 128 == 0);
    }
    /* ties to even */
    assert_int_equal(kvr_fp8_round(17), kvr_fp8_round(16));
    assert_int_equal(kvr_fp8_round(19), kvr_fp8_round(20));
    assert_int_equal(kvr_fp8_round(0x1p-10f), 0);
    assert_int_equal(kvr_fp8_round(3 * 0x1p-10f), 2);
}

static void eight_bits_have_the_same_bits(void **state)
{
    static const size_t counts[] = {1, 255, 256, 5000};

    (void)state;
    for (int c = 0; c < 12; c++) {
        size_t count = counts[c / 3];
        kvr_bf16 *x = some_halves(count, 5);
        uint8_t *ours = some(count, 1);
        float scale[2] = {NAN, NAN}, most = 0;
        if (c < 3)
            x[0] = 0;
        for (size_t i = 0; i < count; i++)
            most = fmaxf(most, fabsf(kvr_bf16_value(x[i])));
        cuda_host_begin((enum cuda_host_order)(c % 3));
        kvr_cuda_fp8(NULL, ours, scale, x, count);
        no_fault();
        assert_true(scale[0] == (most > 0 ? most / 448 : 1));
        for (size_t i = 0; i < count; i++)
            assert_int_equal(
                ours[i], kvr_fp8_round(kvr_bf16_value(x[i]) * (most > 0 ? 448 / most : 1)));
        free(x), free(ours);
    }
}

static void products_in_eight_bits(void **state)
{
    struct kvr_backend_options options = options_of();
    const uint32_t words = tiny()->vocabulary, table[] = {7, 2, 11, 0, 5};
    float *full = some(words, sizeof *full), *eight = some(words, sizeof *eight);
    struct kvr_runner *runner = NULL;
    struct kvr_error error = {0};
    uint32_t tokens[TOKENS];

    (void)state;
    fill(tokens, TOKENS, 97);
    cuda_host_begin(CUDA_HOST_FORWARD);
    struct kvr_step step = {tokens, TOKENS, 0, table, full};
    runner = start(&options);
    run(runner, &step, 1);
    run(runner, &step, 1);
    assert_int_equal(cuda_host_plans(), 4); /* one for each width, made once */
    kvr_cuda_backend.destroy(runner);
    options.fp8 = true;
    runner = start(&options);
    cuda_host_begin(CUDA_HOST_FORWARD);
    step.logits = eight;
    run(runner, &step, 1);
    assert_int_equal(times(cuda_host_log(), "shrink"), 4 * tiny()->layers);
    /* three bits of fraction: 2^-4 at most in each factor, a third of it on the average */
    double error_of = distance(eight, full, words);
    assert_true(error_of > 1e-3 && error_of < 0.15);
    kvr_cuda_backend.destroy(runner);
    cuda_host_set_devices(1, 80);
    assert_int_equal(kvr_cuda_backend.create(&options, &runner, &error), KVR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "8-bit"));
    cuda_host_set_devices(1, 90);
    free(full), free(eight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_do_the_same),
        cmocka_unit_test(graphs_outlive_what_they_read),
        cmocka_unit_test(padding_writes_into_nobodys_page),
        cmocka_unit_test(many_steps_have_their_own_logits),
        cmocka_unit_test(two_gpus_do_what_one_does),
        cmocka_unit_test(eight_bits_round_to_the_nearest),
        cmocka_unit_test(eight_bits_have_the_same_bits),
        cmocka_unit_test(products_in_eight_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
