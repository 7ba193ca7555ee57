#include "kernels/measure_codec.h"
#include "base/clock.h"
#include "line/json.h"

#include <math.h>
#include <stdlib.h>

enum { COMPARED = 16 };

struct trial {
    const struct kvr_bench *bench;
    const uint32_t *tokens;
    uint32_t *exact, *ours; /* page tables of the same prompt: as it was, and unpacked */
    uint32_t pages;
    kvr_bf16 *exact_kv, *our_kv;
    float *exact_logits, *our_logits;
};

static enum kvr_status step(const struct trial *trial, const uint32_t *table, uint32_t first,
    uint32_t count, float *logits, struct kvr_error *error)
{
    struct kvr_step step = {trial->tokens + first, count, first, table, logits};

    return trial->bench->backend->run(trial->bench->runner, &step, 1, error);
}

/* Packs and unpacks, the first time for nothing. */
static enum kvr_status time_codec(const struct trial *trial, const struct kvr_codec_level *level,
    struct kvr_codec_measure *measure, struct kvr_error *error)
{
    const struct kvr_bench *bench = trial->bench;
    double pack_ms = INFINITY, unpack_ms = INFINITY;
    enum kvr_status status = KVR_OK;

    for (uint32_t run = 0; status == KVR_OK && run <= bench->repeats; run++) {
        uint8_t *bytes = NULL;
        size_t size = 0;
        uint32_t found = 0;
        double start = kvr_clock_ms();
        status = bench->backend->pack(
            bench->runner, trial->exact, measure->prefix_tokens, level, &bytes, &size, error);
        double between = kvr_clock_ms();
        if (status == KVR_OK)
            status = bench->backend->unpack(
                bench->runner, trial->ours, measure->prefix_tokens, bytes, size, &found, error);
        double end = kvr_clock_ms();
        free(bytes);
        measure->bytes = (double)size;
        if (run == 0)
            continue;
        pack_ms = fmin(pack_ms, between - start);
        unpack_ms = fmin(unpack_ms, end - between);
    }
    measure->pack_bytes_per_s = measure->raw_bytes / pack_ms * 1e3;
    measure->unpack_bytes_per_s = measure->raw_bytes / unpack_ms * 1e3;
    return status;
}

static double share(double difference, double size)
{
    return size > 0 ? sqrt(difference / size) : 0;
}

/* The codec takes numbers that are not finite for 0, and no error could be told of them. */
static enum kvr_status not_finite(const char *what, struct kvr_error *error)
{
    return kvr_error_set(error, KVR_BAD_INPUT, "the %s are not finite numbers", what);
}

/* Keys and values of the prefix alone: what lies behind it in the last page is nobody's. */
static enum kvr_status compare_kv(
    const struct trial *trial, struct kvr_codec_measure *measure, struct kvr_error *error)
{
    const struct kvr_shape *shape = trial->bench->shape;
    const uint32_t page_tokens = trial->bench->page_tokens;
    double difference[2] = {0}, size[2] = {0};
    size_t at = 0;

    for (uint32_t page = 0; page < trial->pages; page++) {
        for (uint32_t row = 0; row < shape->layers * 2 * shape->kv_heads; row++) {
            uint32_t value = row / shape->kv_heads % 2;
            for (uint32_t token = 0; token < page_tokens; token++, at += shape->head_dim) {
                if (page * page_tokens + token >= measure->prefix_tokens)
                    continue;
                for (uint32_t i = 0; i < shape->head_dim; i++) {
                    double exact = (double)kvr_bf16_value(trial->exact_kv[at + i]);
                    double off = (double)kvr_bf16_value(trial->our_kv[at + i]) - exact;
                    difference[value] += off * off;
                    size[value] += exact * exact;
                }
            }
        }
    }
    if (!isfinite(size[0]) || !isfinite(size[1]))
        return not_finite("model's keys and values", error);
    measure->key_error = share(difference[0], size[0]);
    measure->value_error = share(difference[1], size[1]);
    measure->error = share(difference[0] + difference[1], size[0] + size[1]);
    return KVR_OK;
}

static double log_total(const float *logits, size_t words, size_t *top)
{
    double most = -INFINITY, sum = 0;

    for (size_t i = 0; i < words; i++) {
        if ((double)logits[i] > most) {
            most = (double)logits[i];
            *top = i;
        }
    }
    for (size_t i = 0; i < words; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

/* One more token on both; sums up what differs. */
static enum kvr_status compare_logits(const struct trial *trial, struct kvr_codec_measure *measure,
    double *difference, double *size, struct kvr_error *error)
{
    size_t words = trial->bench->shape->vocabulary, exact_top = 0, our_top = 0;
    double exact_total = log_total(trial->exact_logits, words, &exact_top);
    double our_total = log_total(trial->our_logits, words, &our_top);

    for (size_t i = 0; i < words; i++) {
        double exact = (double)trial->exact_logits[i], ours = (double)trial->our_logits[i];
        *difference += (ours - exact) * (ours - exact);
        *size += exact * exact;
        measure->divergence += exp(exact - exact_total) * (exact - exact_total - ours + our_total);
    }
    if (!isfinite(exact_total) || !isfinite(our_total) || !isfinite(*difference))
        return not_finite("logits", error);
    measure->same_top += exact_top == our_top;
    measure->compared++;
    return KVR_OK;
}

static enum kvr_status run_trial(struct trial *trial, const struct kvr_codec_level *level,
    uint32_t count, struct kvr_codec_measure *measure, struct kvr_error *error)
{
    const struct kvr_bench *bench = trial->bench;
    double difference = 0, size = 0;

    enum kvr_status status = step(trial, trial->exact, 0, measure->prefix_tokens, NULL, error);
    if (status == KVR_OK)
        status = time_codec(trial, level, measure, error);
    if (status == KVR_OK)
        status = bench->backend->copy_pages(
            bench->runner, trial->exact, trial->pages, trial->exact_kv, true, error);
    if (status == KVR_OK)
        status = bench->backend->copy_pages(
            bench->runner, trial->ours, trial->pages, trial->our_kv, true, error);
    if (status == KVR_OK)
        status = compare_kv(trial, measure, error);
    for (uint32_t at = measure->prefix_tokens; status == KVR_OK && at < count; at++) {
        status = step(trial, trial->exact, at, 1, trial->exact_logits, error);
        if (status == KVR_OK)
            status = step(trial, trial->ours, at, 1, trial->our_logits, error);
        if (status == KVR_OK)
            status = compare_logits(trial, measure, &difference, &size, error);
    }
    measure->logits_error = share(difference, size);
    measure->divergence /= measure->compared ? measure->compared : 1;
    return status;
}

enum kvr_status kvr_measure_codec(const struct kvr_bench *bench, const uint32_t *tokens,
    uint32_t count, const struct kvr_codec_level *level, struct kvr_codec_measure *measure,
    struct kvr_error *error)
{
    uint32_t behind = count / 4 < COMPARED ? (count + 3) / 4 : (uint32_t)COMPARED;
    uint32_t all_pages = count / bench->page_tokens + 1;
    double token_bytes = kvr_shape_kv_bytes_per_token(bench->shape);
    struct trial trial = {.bench = bench, .tokens = tokens};

    if (count < 2 || all_pages > bench->pages / 2)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "%u tokens are too few, or twice them more than the KV cache of %llu; see --capacity",
            count, (unsigned long long)bench->pages * bench->page_tokens);
    *measure = (struct kvr_codec_measure){.prefix_tokens = count - behind};
    measure->raw_bytes = token_bytes * measure->prefix_tokens;
    trial.pages = (measure->prefix_tokens - 1) / bench->page_tokens + 1;
    size_t page_bytes = (size_t)token_bytes * bench->page_tokens;
    size_t logits_bytes = bench->shape->vocabulary * sizeof(float);
    trial.exact = calloc(2 * (size_t)all_pages, sizeof *trial.exact);
    trial.exact_kv = malloc(2 * page_bytes * trial.pages);
    trial.exact_logits = malloc(2 * logits_bytes);
    enum kvr_status status = KVR_OK;
    if (trial.exact && trial.exact_kv && trial.exact_logits) {
        for (uint32_t i = 0; i < 2 * all_pages; i++)
            trial.exact[i] = i;
        trial.ours = trial.exact + all_pages;
        trial.our_kv = trial.exact_kv + page_bytes * trial.pages / sizeof *trial.our_kv;
        trial.our_logits = trial.exact_logits + bench->shape->vocabulary;
        status = run_trial(&trial, level, count, measure, error);
    } else {
        status = kvr_error_memory(error);
    }
    free(trial.exact);
    free(trial.exact_kv);
    free(trial.exact_logits);
    return status;
}

static void write_number(struct kvr_buffer *out, const char *name, double number, int decimals)
{
    kvr_buffer_append_format(out, ",\"%s\":", name);
    kvr_json_write_fixed(out, number, decimals);
}

void kvr_codec_measure_write(const struct kvr_codec_measure *measure, const char *level,
    const struct kvr_bench *bench, struct kvr_buffer *out)
{
    const char *device = bench->backend->device(bench->runner);

    kvr_buffer_append_format(out, "{\"level\":\"%s\",\"model\":", level);
    kvr_json_write_string(out, bench->shape->name, strlen(bench->shape->name));
    kvr_buffer_append_format(out, ",\"tokens\":%u", measure->prefix_tokens);
    write_number(out, "raw_bytes", measure->raw_bytes, 0);
    write_number(out, "bytes", measure->bytes, 0);
    write_number(out, "ratio", measure->raw_bytes / measure->bytes, 3);
    write_number(out, "pack_mb_per_s", measure->pack_bytes_per_s / 1e6, 1);
    write_number(out, "unpack_mb_per_s", measure->unpack_bytes_per_s / 1e6, 1);
    write_number(out, "error", measure->error, 5);
    write_number(out, "key_error", measure->key_error, 5);
    write_number(out, "value_error", measure->value_error, 5);
    kvr_buffer_append_format(out, ",\"logits\":{\"tokens\":%u", measure->compared);
    write_number(out, "error", measure->logits_error, 5);
    write_number(out, "divergence", measure->divergence, 6);
    write_number(out, "same_top",
        (double)measure->same_top / (measure->compared ? measure->compared : 1), 4);
    kvr_buffer_append_format(out, "},\"backend\":\"%s\",\"device\":", bench->backend->name);
    kvr_json_write_string(out, device, strlen(device));
    kvr_buffer_append_byte(out, '}');
}
