/* What the tests of kernels/ share: numbers from a seed, and how far two arrays are apart. */
#ifndef KVR_TESTS_KERNEL_FIXTURE_H
#define KVR_TESTS_KERNEL_FIXTURE_H

#include "base/random.h"
#include "kernels/operations.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* On a GPU (make check-gpu) the tests' arrays are memory that both sides see. */
#ifdef KVR_TEST_ON_GPU
void *kvr_gpu_memory(size_t bytes);
void kvr_gpu_free(void *memory);
#define free kvr_gpu_free
#else
#define kvr_gpu_memory(bytes) calloc(1, bytes)
#endif

/* Zeros. */
static inline void *some(size_t count, size_t size)
{
    void *array = kvr_gpu_memory((count ? count : 1) * size);

    assert_non_null(array);
    return array;
}

/* The numbers of an array of the test's own, where a kernel can read them. */
static inline void *some_of(const void *numbers, size_t bytes)
{
    return memcpy(some(1, bytes), numbers, bytes);
}

/* Uniform in (−1, 1). */
static inline float *some_floats(size_t count, uint64_t seed)
{
    struct kvr_random random = {seed};
    float *array = some(count, sizeof *array);

    for (size_t i = 0; i < count; i++)
        array[i] = (float)(2 * kvr_random_unit(&random) - 1);
    return array;
}

static inline kvr_bf16 *some_halves(size_t count, uint64_t seed)
{
    float *floats = some_floats(count, seed);
    kvr_bf16 *array = some(count, sizeof *array);

    for (size_t i = 0; i < count; i++)
        array[i] = kvr_bf16_round(floats[i]);
    free(floats);
    return array;
}

/* Normalised error: √(Σ (a − b)² / Σ b²), a NaN anywhere gives a NaN. */
static inline double distance(const float *a, const float *b, size_t count)
{
    double difference = 0, size = 0;

    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(difference / (size > 0 ? size : 1));
}

/* Page tables of a pool in which neighbours in a sequence are not neighbours in memory. */
static inline uint32_t *scattered(uint32_t pages, uint64_t seed)
{
    struct kvr_random random = {seed};
    uint32_t *table = some(pages, sizeof *table);

    for (uint32_t i = 0; i < pages; i++)
        table[i] = i;
    for (uint32_t i = pages; i > 1; i--) {
        uint32_t other = kvr_random_below(&random, i), kept = table[i - 1];
        table[i - 1] = table[other];
        table[other] = kept;
    }
    return table;
}

#endif
