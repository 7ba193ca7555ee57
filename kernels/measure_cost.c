/*
 * The calibration: which prefills and decode steps are measured, and how they become the
 * coefficients of a cost file.
 *
 * Prefill is measured over new tokens n and cached tokens c and fitted to overhead + token·n +
 * pair·n·(c + n/2). Decode steps are measured over batch and context and fitted to overhead +
 * max(arithmetic, memory), see cost/fit.h. Every sample stands in the description beside what the
 * fit says of it, so that the file says how far it can be trusted. Copies are reported in the
 * description, as the cost model takes links by name or bandwidth.
 */
#include "cost/fit.h"
#include "kernels/measure.h"
#include "line/json.h"

#include <math.h>

enum { SAMPLES = 16 };

struct samples {
    struct {
        uint32_t a, b; /* new and cached tokens, or sequences and context */
        double time_ms;
    } prefill[SAMPLES], decode[SAMPLES];
    size_t prefills, decodes;
};

static enum kvr_status take_samples(const struct kvr_bench *bench, uint32_t tokens,
    struct samples *samples, struct kvr_error *error)
{
    static const uint32_t batches[] = {1, 4, 16};
    enum kvr_status status = KVR_OK;

    for (uint32_t part = 16; status == KVR_OK && part >= 1; part /= 4) {
        for (uint32_t cached = 0; status == KVR_OK && cached <= tokens; cached += tokens / 2) {
            uint32_t fresh = tokens / part, at = (uint32_t)samples->prefills++;
            samples->prefill[at].a = fresh;
            samples->prefill[at].b = cached;
            status =
                kvr_measure_prefill(bench, fresh, cached, &samples->prefill[at].time_ms, error);
        }
    }
    for (size_t i = 0; status == KVR_OK && i < sizeof batches / sizeof *batches; i++) {
        for (uint32_t part = 16; status == KVR_OK && part >= 1; part /= 4) {
            uint32_t context = tokens / part, at = (uint32_t)samples->decodes;
            if (context / bench->page_tokens + 1 > bench->pages / batches[i])
                continue;
            samples->decode[at].a = batches[i];
            samples->decode[at].b = context;
            status =
                kvr_measure_decode(bench, batches[i], context, &samples->decode[at].time_ms, error);
            samples->decodes++;
        }
    }
    return status;
}

/* Fits; the errors are relative. */
static void fit(const struct samples *samples, struct kvr_cost *cost, double *prefill_error,
    double *decode_error)
{
    struct kvr_fit_row rows[SAMPLES];
    struct kvr_decode_sample steps[SAMPLES];
    double x[KVR_FIT_TERMS];

    for (size_t i = 0; i < samples->prefills; i++) {
        double n = samples->prefill[i].a, c = samples->prefill[i].b;
        rows[i] = (struct kvr_fit_row){{1, n, n * (c + n / 2)}, samples->prefill[i].time_ms};
    }
    kvr_fit(rows, samples->prefills, x, prefill_error);
    cost->prefill_overhead_ms = x[0];
    cost->prefill_token_ms = x[1];
    cost->prefill_pair_ms = x[2];
    for (size_t i = 0; i < samples->decodes; i++)
        steps[i] = (struct kvr_decode_sample){samples->decode[i].a,
            (double)samples->decode[i].a * samples->decode[i].b, samples->decode[i].time_ms};
    *decode_error = kvr_fit_decode(cost, steps, samples->decodes);
}

static void write_samples(
    const struct samples *samples, const struct kvr_cost *cost, bool decode, struct kvr_buffer *out)
{
    size_t count = decode ? samples->decodes : samples->prefills;

    kvr_buffer_append_text(out, decode ? ",\"decode\":[" : ",\"prefill\":[");
    for (size_t i = 0; i < count; i++) {
        double a = decode ? samples->decode[i].a : samples->prefill[i].a;
        double b = decode ? samples->decode[i].b : samples->prefill[i].b;
        double time_ms = decode ? samples->decode[i].time_ms : samples->prefill[i].time_ms;
        double fitted =
            decode ? kvr_cost_decode_ms(cost, a, a * b) : kvr_cost_prefill_ms(cost, a, b);
        kvr_buffer_append_format(out, "%s{\"%s\":%.0f,\"%s\":%.0f,\"ms\":", i ? "," : "",
            decode ? "sequences" : "new", a, decode ? "context" : "cached", b);
        kvr_json_write_fixed(out, time_ms, 4);
        kvr_buffer_append_text(out, ",\"fitted_ms\":");
        kvr_json_write_fixed(out, fitted, 4);
        kvr_buffer_append_byte(out, '}');
    }
    kvr_buffer_append_byte(out, ']');
}

static void write_number(struct kvr_buffer *out, const char *name, double number, int decimals)
{
    kvr_buffer_append_format(out, ",\"%s\":", name);
    kvr_json_write_fixed(out, number, decimals);
}

enum kvr_status kvr_measure_cost(
    const struct kvr_bench *bench, uint32_t tokens, struct kvr_buffer *out, struct kvr_error *error)
{
    struct kvr_cost cost = {0};
    struct samples samples = {0};
    const char *device = bench->backend->device(bench->runner);
    double prefill_error, decode_error, write_rate = 0, read_rate = 0, kv_out = 0, kv_in = 0;
    struct kvr_copy_rates rates = {0};

    if (tokens < 64 || tokens > UINT32_MAX / 2)
        return kvr_error_set(error, KVR_BAD_USAGE, "a calibration takes at least 64 tokens");
    /* What can be refused comes before what takes minutes. */
    enum kvr_status status = KVR_OK;
    if (bench->directory)
        status = kvr_measure_disk(bench->directory, &write_rate, &read_rate, error);
    if (status == KVR_OK)
        status = take_samples(bench, tokens, &samples, error);
    if (status == KVR_OK)
        status = bench->backend->copy_rates(bench->runner, &rates, error);
    if (status == KVR_OK)
        status = kvr_measure_kv_copy(bench, &kv_out, &kv_in, error);
    if (status != KVR_OK)
        return status;
    fit(&samples, &cost, &prefill_error, &decode_error);
    cost.kv_bytes_per_token = kvr_shape_kv_bytes_per_token(bench->shape);
    cost.kv_capacity_tokens = (double)bench->pages * bench->page_tokens;
    size_t start = out->length;
    kvr_cost_write(&cost, out);
    if (out->failed || out->length < start + 2)
        return kvr_error_memory(error);
    out->length -= 2; /* "}\n": the description follows */
    kvr_buffer_append_text(out, ",\"description\":{\"model\":");
    kvr_json_write_string(out, bench->shape->name, strlen(bench->shape->name));
    kvr_buffer_append_format(out, ",\"backend\":\"%s\",\"device\":", bench->backend->name);
    kvr_json_write_string(out, device, strlen(device));
    write_number(out, "peak_tflops", bench->peak_flops / 1e12, 4);
    write_number(out, "prefill_fit_error", prefill_error, 4);
    write_number(out, "decode_fit_error", decode_error, 4);
    write_number(out, "memory_copy_gb_per_s", kvr_measure_copy() / 1e9, 2);
    if (rates.to_host > 0) {
        write_number(out, "device_copy_gb_per_s", rates.on_device / 1e9, 2);
        write_number(out, "to_host_gb_per_s", rates.to_host / 1e9, 2);
        write_number(out, "from_host_gb_per_s", rates.from_host / 1e9, 2);
    }
    write_number(out, "kv_to_host_gb_per_s", kv_out / 1e9, 3);
    write_number(out, "kv_from_host_gb_per_s", kv_in / 1e9, 3);
    if (bench->directory) {
        write_number(out, "disk_write_gb_per_s", write_rate / 1e9, 3);
        write_number(out, "disk_read_gb_per_s", read_rate / 1e9, 3);
    }
    write_samples(&samples, &cost, false, out);
    write_samples(&samples, &cost, true, out);
    kvr_buffer_append_text(out, "}}\n");
    return out->failed ? kvr_error_memory(error) : KVR_OK;
}
