#include "kernels/measure.h"
#include "base/clock.h"

#include <cblas.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { COPY_BYTES = 64 << 20 };

double kvr_measure_sgemm_flops(unsigned threads)
{
    enum { M = 504, N = 2048, K = 2048 };
    float *a = calloc((size_t)M * K, sizeof *a), *b = calloc((size_t)N * K, sizeof *b);
    float *c = calloc((size_t)M * N, sizeof *c);
    double best = 0, begun = kvr_clock_ms();

    for (size_t i = 0; a && i < (size_t)M * K; i++)
        a[i] = (float)(i % 17) / 17;
    for (size_t i = 0; b && i < (size_t)N * K; i++)
        b[i] = (float)(i % 19) / 19;
    openblas_set_num_threads((int)threads);
    for (int run = 0; a && b && c && run < 100; run++) {
        double start = kvr_clock_ms();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, M, N, K, 1, a, K, b, K, 0, c, N);
        double rate = 2.0 * M * N * K / (kvr_clock_ms() - start) * 1e3;
        best = rate > best ? rate : best;
        if (run >= 2 && kvr_clock_ms() - begun > 500)
            break;
    }
    free(a);
    free(b);
    free(c);
    return best;
}

double kvr_measure_copy(void)
{
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    double best = 0;

    for (int run = 0; from && to && run < 5; run++) {
        memset(from, run, COPY_BYTES);
        double start = kvr_clock_ms();
        memcpy(to, from, COPY_BYTES);
        __asm__ volatile("" : : "r"(to) : "memory"); /* the copy is wanted */
        double rate = COPY_BYTES / (kvr_clock_ms() - start) * 1e3;
        best = run > 0 && rate > best ? rate : best;
    }
    free(from);
    free(to);
    return best;
}

enum kvr_status kvr_measure_kv_copy(
    const struct kvr_bench *bench, double *to_host, double *from_host, struct kvr_error *error)
{
    double page_bytes = kvr_shape_kv_bytes_per_token(bench->shape) * bench->page_tokens;
    double fit = COPY_BYTES / page_bytes;
    uint32_t count = fit < 1 ? 1 : fit < bench->pages ? (uint32_t)fit : bench->pages;
    uint32_t *pages = calloc(count, sizeof *pages);
    char *host = malloc((size_t)(page_bytes * count));
    enum kvr_status status = pages && host ? KVR_OK : kvr_error_memory(error);

    *to_host = *from_host = 0;
    for (uint32_t i = 0; pages && i < count; i++)
        pages[i] = i;
    for (uint32_t run = 0; status == KVR_OK && run < 2 * (bench->repeats + 1); run++) {
        bool out = run % 2 == 0; /* so that what goes in is what was there */
        double start = kvr_clock_ms();
        status = bench->backend->copy_pages(bench->runner, pages, count, host, out, error);
        double rate = page_bytes * count / (kvr_clock_ms() - start) * 1e3;
        double *best = out ? to_host : from_host;
        *best = run >= 2 && rate > *best ? rate : *best;
    }
    free(pages);
    free(host);
    return status;
}

/* All of a file written or read once; a short count or an error is false. */
static bool pass(int file, char *bytes, bool writes)
{
    for (size_t at = 0; at < COPY_BYTES;) {
        ssize_t moved = writes ? pwrite(file, bytes + at, COPY_BYTES - at, (off_t)at)
                               : pread(file, bytes + at, COPY_BYTES - at, (off_t)at);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return false;
        at += (size_t)moved;
    }
    return !writes || fsync(file) == 0;
}

enum kvr_status kvr_measure_disk(const char *directory, double *write_bytes_per_s,
    double *read_bytes_per_s, struct kvr_error *error)
{
    struct kvr_buffer path = {0};
    char *bytes = malloc(COPY_BYTES), *name;
    enum kvr_status status = KVR_OK;
    int file = -1;

    kvr_buffer_append_format(&path, "%s/kvr-prefill-XXXXXX", directory);
    name = kvr_buffer_text(&path);
    if (!bytes || !name) {
        status = kvr_error_memory(error);
    } else if ((file = mkostemp(name, O_CLOEXEC)) < 0) {
        status = kvr_error_errno(error, KVR_IO, "cannot write into %s", directory);
    } else {
        unlink(name);
        memset(bytes, 0x5a, COPY_BYTES);
        double start = kvr_clock_ms();
        bool fine = pass(file, bytes, true);
        double between = kvr_clock_ms();
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        double again = kvr_clock_ms();
        fine = fine && pass(file, bytes, false);
        *write_bytes_per_s = COPY_BYTES / (between - start) * 1e3;
        *read_bytes_per_s = COPY_BYTES / (kvr_clock_ms() - again) * 1e3;
        if (!fine)
            status = kvr_error_errno(error, KVR_IO, "cannot write 64 MiB into %s", directory);
        close(file);
    }
    free(bytes);
    kvr_buffer_release(&path);
    return status;
}

/* Runs the steps once for nothing and `repeats` times for the clock. */
static enum kvr_status time_steps(const struct kvr_bench *bench, const struct kvr_step *steps,
    size_t count, double *time_ms, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    *time_ms = 0;
    for (uint32_t run = 0; status == KVR_OK && run <= bench->repeats; run++) {
        double start = kvr_clock_ms();
        status = bench->backend->run(bench->runner, steps, count, error);
        double taken = kvr_clock_ms() - start;
        if (run > 0 && (run == 1 || taken < *time_ms))
            *time_ms = taken;
    }
    return status;
}

static enum kvr_status too_small(const struct kvr_bench *bench, struct kvr_error *error)
{
    return kvr_error_set(error, KVR_BAD_USAGE,
        "this takes more than the KV cache of %llu tokens; see --capacity",
        (unsigned long long)bench->pages * bench->page_tokens);
}

enum kvr_status kvr_measure_prefill(const struct kvr_bench *bench, uint32_t new_tokens,
    uint32_t cached_tokens, double *time_ms, struct kvr_error *error)
{
    uint64_t total = (uint64_t)new_tokens + cached_tokens;
    uint64_t pages = (total + bench->page_tokens - 1) / bench->page_tokens;
    if (new_tokens == 0 || pages > bench->pages)
        return too_small(bench, error);
    uint32_t *tokens = calloc(new_tokens, sizeof *tokens);
    uint32_t *table = calloc(pages, sizeof *table);
    enum kvr_status status = KVR_OK;

    if (!tokens || !table) {
        status = kvr_error_memory(error);
    } else {
        for (uint32_t i = 0; i < new_tokens; i++)
            tokens[i] = i * 7 % bench->shape->vocabulary;
        for (uint32_t i = 0; i < pages; i++)
            table[i] = i;
        struct kvr_step step = {tokens, new_tokens, cached_tokens, table, NULL};
        status = time_steps(bench, &step, 1, time_ms, error);
    }
    free(tokens);
    free(table);
    return status;
}

enum kvr_status kvr_measure_decode(const struct kvr_bench *bench, uint32_t sequences,
    uint32_t context, double *time_ms, struct kvr_error *error)
{
    uint32_t pages = context / bench->page_tokens + 1;
    if (sequences == 0 || pages > bench->pages / sequences)
        return too_small(bench, error);
    uint32_t *table = calloc((size_t)pages * sequences, sizeof *table);
    struct kvr_step *steps = calloc(sequences, sizeof *steps);
    static const uint32_t token = 1;
    enum kvr_status status = KVR_OK;

    if (!table || !steps) {
        status = kvr_error_memory(error);
    } else {
        for (uint32_t i = 0; i < pages * sequences; i++)
            table[i] = i;
        for (uint32_t i = 0; i < sequences; i++)
            steps[i] = (struct kvr_step){&token, 1, context, table + (size_t)i * pages, NULL};
        status = time_steps(bench, steps, sequences, time_ms, error);
    }
    free(table);
    free(steps);
    return status;
}

enum kvr_status kvr_measure_table(
    const struct kvr_bench *bench, uint32_t tokens, struct kvr_buffer *out, struct kvr_error *error)
{
    static const double shares[] = {0, 0.5, 0.9, 0.99};
    double parameters = kvr_shape_parameters(bench->shape), whole_ms = 0, time_ms;

    kvr_buffer_append_format(out,
        "%s, %u tokens, on %s: %s\n2Pn: 2 x parameters x new tokens at %.2f TFLOP/s, the rate of "
        "one large matrix product here\ncached   cached_tokens   new_tokens   measured_ms    "
        "2Pn_ms   TFLOP/s    MFU   speedup\n",
        bench->shape->name, tokens, bench->backend->name, bench->backend->device(bench->runner),
        bench->peak_flops / 1e12);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        uint32_t cached = (uint32_t)(tokens * shares[i]), fresh = tokens - cached;
        enum kvr_status status = kvr_measure_prefill(bench, fresh, cached, &time_ms, error);
        if (status != KVR_OK)
            return status;
        whole_ms = i == 0 ? time_ms : whole_ms;
        double rate = kvr_shape_flops(bench->shape, fresh, cached) / time_ms * 1e3;
        kvr_buffer_append_format(out,
            "%4.0f %%   %13u   %10u   %11.2f   %7.2f   %7.3f   %4.2f   %6.1fx\n", shares[i] * 100,
            cached, fresh, time_ms, 2 * parameters * fresh / bench->peak_flops * 1e3, rate / 1e12,
            rate / bench->peak_flops, whole_ms / time_ms);
    }
    return KVR_OK;
}
