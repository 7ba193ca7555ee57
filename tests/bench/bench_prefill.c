/*
 * A prefill on one thread against OpenBLAS' product of the same depth, in turn, in processor time
 * (which other programs on the machine disturb least): bench_prefill MODEL TOKENS ROUNDS. One line
 * of JSON a round.
 */
#include "base/clock.h"
#include "kernels/backend.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 504, OUTPUTS = 4096, DEPTH = 2048 };

static double sgemm_gflops(const float *x, const float *weights, float *out)
{
    double start = kvr_clock_processor_ms();

    for (int i = 0; i < 5; i++)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, ROWS, OUTPUTS, DEPTH, 1, x, DEPTH,
            weights, DEPTH, 0, out, OUTPUTS);
    return 5 * 2e-6 * ROWS * OUTPUTS * DEPTH / (kvr_clock_processor_ms() - start);
}

int main(int argc, char **argv)
{
    const struct kvr_shape *shape;
    struct kvr_runner *runner;
    struct kvr_error error;
    uint32_t count = argc == 4 ? (uint32_t)atoi(argv[2]) : 0;
    int rounds = argc == 4 ? atoi(argv[3]) : 0;
    float *x = calloc((size_t)ROWS * DEPTH, sizeof *x);
    float *weights = calloc((size_t)OUTPUTS * DEPTH, sizeof *weights);
    float *out = calloc((size_t)ROWS * OUTPUTS, sizeof *out);
    uint32_t *tokens = calloc(count + 1, sizeof *tokens), *table = calloc(count + 1, 4);

    if (count == 0 || !x || !weights || !out || !tokens || !table ||
        kvr_shape_find(argv[1], &shape, &error) != KVR_OK) {
        fprintf(stderr, "usage: bench_prefill MODEL TOKENS ROUNDS\n");
        return 2;
    }
    struct kvr_backend_options options = {
        .shape = shape, .seed = 1, .page_tokens = 16, .pages = count / 16 + 1, .threads = 1};
    if (kvr_cpu_backend.create(&options, &runner, &error) != KVR_OK) {
        fprintf(stderr, "bench_prefill: %s\n", error.text);
        return 4;
    }
    for (size_t i = 0; i < (size_t)OUTPUTS * DEPTH; i++)
        weights[i] = (float)(i % 19) / 19;
    for (size_t i = 0; i < (size_t)ROWS * DEPTH; i++)
        x[i] = (float)(i % 17) / 17;
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = i * 7 % shape->vocabulary;
        table[i] = i;
    }
    openblas_set_num_threads(1);
    struct kvr_step step = {tokens, count, 0, table, NULL};
    for (int round = 0; round < rounds; round++) {
        double sgemm = sgemm_gflops(x, weights, out), start = kvr_clock_processor_ms();
        if (kvr_cpu_backend.run(runner, &step, 1, &error) != KVR_OK)
            return 1;
        double prefill =
            kvr_shape_flops(shape, count, 0) / (kvr_clock_processor_ms() - start) / 1e6;
        printf("{\"bench\":\"prefill\",\"model\":\"%s\",\"tokens\":%u,\"openblas\":\"%s\","
               "\"sgemm_gflops\":%.1f,\"prefill_gflops\":%.1f,\"ratio\":%.2f}\n",
            shape->name, count, openblas_get_corename(), sgemm, prefill, prefill / sgemm);
    }
    kvr_cpu_backend.destroy(runner);
    free(x);
    free(weights);
    free(out);
    free(tokens);
    free(table);
    return 0;
}
