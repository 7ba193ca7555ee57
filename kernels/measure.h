/*
 * Measuring a backend: prefills, decode steps, copies, and what they come to as a cost file.
 *
 * A time is that of the fastest of `repeats` runs, after one run that does not count; the clock is
 * the machine's, started before the call and stopped when the results are there. Rates are decimal
 * (1 GB is 10^9 bytes); a copy of n bytes counts as n.
 */
#ifndef KVR_KERNELS_MEASURE_H
#define KVR_KERNELS_MEASURE_H

#include "kernels/backend.h"

/* A runner with its pool, and what is needed to make work for it. */
struct kvr_bench {
    const struct kvr_backend *backend;
    struct kvr_runner *runner;
    const struct kvr_shape *shape;
    uint32_t pages, page_tokens, repeats;
    uint64_t seed;         /* of the runner's weights */
    double peak_flops;     /* what one large matrix product reached; 0: not measured */
    const char *directory; /* for the disk's rate; NULL: not measured */
};

/* FLOP/s that OpenBLAS reaches in single precision with so many threads: the CPU backend's
 * yardstick for MFU. Takes about half a second. */
double kvr_measure_sgemm_flops(unsigned threads);

/* Bytes a second of copying 64 MiB in memory on one thread. 0 when memory is short. */
double kvr_measure_copy(void);

/* Bytes a second written (with fsync) and read again (with the page cache dropped as far as the
 * system does it) through a file of 64 MiB in a directory; the file has no name. KVR_IO. */
enum kvr_status kvr_measure_disk(const char *directory, double *write_bytes_per_s,
    double *read_bytes_per_s, struct kvr_error *error);

/* Bytes a second of the first pages of the pool, up to 64 MiB, out to the host's memory (that
 * is not pinned) and in again, as they are; KVR_NO_MEMORY, or what the backend says. */
enum kvr_status kvr_measure_kv_copy(
    const struct kvr_bench *bench, double *to_host, double *from_host, struct kvr_error *error);

/* New tokens on top of cached ones. The cached part is not computed first: time does not depend on
 * what the pages hold. KVR_BAD_USAGE where the pool is too small. */
enum kvr_status kvr_measure_prefill(const struct kvr_bench *bench, uint32_t new_tokens,
    uint32_t cached_tokens, double *time_ms, struct kvr_error *error);

/* One token each for `sequences` sequences that have `context` tokens each. */
enum kvr_status kvr_measure_decode(const struct kvr_bench *bench, uint32_t sequences,
    uint32_t context, double *time_ms, struct kvr_error *error);

/* Appends the table of 0, 50, 90 and 99 % cached, measured, beside 2 · P · n at the peak rate. */
enum kvr_status kvr_measure_table(const struct kvr_bench *bench, uint32_t tokens,
    struct kvr_buffer *out, struct kvr_error *error);

/* Measures prompts of up to `tokens` tokens, fits, and appends a cost file with the samples and
 * the errors of the fit in its description. */
enum kvr_status kvr_measure_cost(const struct kvr_bench *bench, uint32_t tokens,
    struct kvr_buffer *out, struct kvr_error *error);

#endif
