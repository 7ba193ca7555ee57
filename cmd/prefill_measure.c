/* What kvr-prefill measures in place of reading lines. */
#include "base/grow.h"
#include "base/random.h"
#include "cmd/prefill.h"
#include "kernels/measure_codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What one GPU computes, or the processor. A GPU that cannot be set up is a failed check. */
static enum kvr_status smoke_device(struct prefill *prefill, struct kvr_smoke *smoke,
    const struct kvr_gpu_state *gpu, struct kvr_error *error)
{
    const struct prefill_settings *settings = &prefill->settings;
    struct kvr_bench *bench = &prefill->bench;

    enum kvr_status status = prefill_start(prefill, error);
    if (status == KVR_OK)
        status =
            kvr_smoke_compute(smoke, bench, gpu, settings->expect * 1e12, settings->seconds, error);
    if (bench->runner)
        bench->backend->destroy(bench->runner);
    bench->runner = NULL;
    if (gpu && (status == KVR_UNSUPPORTED || status == KVR_IO)) {
        kvr_smoke_check(smoke, false, "computing", NAN, "not to be had", error->text);
        status = KVR_OK;
    }
    return status;
}

/* The GPUs: what NVML says of each, what each computes, and what went wrong meanwhile. */
static enum kvr_status smoke_gpus(
    struct prefill *prefill, struct kvr_smoke *smoke, struct kvr_error *error)
{
    const bool all = prefill->settings.all_gpus;
    const struct kvr_backend *backend;
    struct kvr_gpu_state gpus[GPUS_MOST];
    struct kvr_nvml *nvml = NULL;
    uint32_t count = 0;
    bool watched = false;

    enum kvr_status status = kvr_nvml_open(&nvml, &count, error);
    if (status != KVR_OK)
        return status;
    count = all ? (count < GPUS_MOST ? count : (uint32_t)GPUS_MOST) : 1;
    for (uint32_t i = 0; i < count; i++) {
        watched |= kvr_nvml_watch(nvml, i);
        kvr_nvml_read(nvml, i, &gpus[i]);
        kvr_smoke_gpu(smoke, &gpus[i], i);
    }
    prefill->settings.backend = "cuda";
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0); /* which is NVML's */
    status = kvr_plugin_load(&backend, error);
    for (uint32_t i = 0; status == KVR_OK && i < count; i++) {
        smoke->numbered = all;
        smoke->number = prefill->device_number = i;
        if (!gpus[i].lost)
            status = smoke_device(prefill, smoke, &gpus[i], error);
    }
    if (status == KVR_OK && watched)
        kvr_smoke_xids(smoke, nvml);
    kvr_nvml_close(nvml);
    return status;
}

static enum kvr_status run_smoke(struct prefill *prefill, struct kvr_error *error)
{
    struct kvr_smoke smoke = {.out = &prefill->tool.out.buffer, .tap = prefill->settings.tap};
    bool processor = strcmp(prefill->settings.backend, "cpu") == 0;

    enum kvr_status status =
        processor ? smoke_device(prefill, &smoke, NULL, error) : smoke_gpus(prefill, &smoke, error);
    if (smoke.checks > 0)
        kvr_smoke_end(&smoke);
    if (smoke.failed > 0)
        prefill->tool.status = 1;
    return status;
}

/* The token_ids of the inputs in a row, --tokens of them at most; numbers without any. */
static enum kvr_status read_prompt(
    struct prefill *prefill, uint32_t *count, struct kvr_error *error)
{
    uint32_t most = (uint32_t)prefill->settings.tokens;
    uint32_t *tokens = kvr_grow(prefill->tokens, &prefill->token_size, most, sizeof *tokens);

    if (!tokens)
        return kvr_error_memory(error);
    prefill->tokens = tokens;
    *count = prefill->tool.operand_count > 0 ? 0 : most;
    for (uint32_t i = 0; i < *count; i++)
        tokens[i] = (uint32_t)(kvr_mix64(i) % prefill->bench.shape->vocabulary);
    while (*count < most && tool_next(&prefill->tool) == TOOL_LINE) {
        struct kvr_value ids = kvr_line_get(&prefill->tool.line, KVR_NAME_TOKEN_IDS);
        if (ids.type != KVR_ARRAY)
            continue;
        uint64_t *given =
            kvr_grow(prefill->given, &prefill->given_size, kvr_value_u64s_room(ids), sizeof *given);
        if (!given)
            return kvr_error_memory(error);
        prefill->given = given;
        ptrdiff_t found = kvr_value_u64s(ids, given);
        for (ptrdiff_t i = 0; i < found && *count < most; i++)
            tokens[(*count)++] = (uint32_t)(given[i] % prefill->bench.shape->vocabulary);
    }
    return *count >= 2 ? KVR_OK
                       : kvr_error_set(error, KVR_BAD_INPUT, "the files have no 'token_ids'");
}

/* Appends what the codec does, as an object. */
static enum kvr_status measure_codec(struct prefill *prefill, struct kvr_error *error)
{
    const struct kvr_codec_level *level;
    struct kvr_codec_measure measured;
    uint32_t count = 0;

    enum kvr_status status = kvr_codec_level_find(prefill->settings.codec, &level, error);
    if (status == KVR_OK)
        status = read_prompt(prefill, &count, error);
    if (status == KVR_OK)
        status =
            kvr_measure_codec(&prefill->bench, prefill->tokens, count, level, &measured, error);
    if (status == KVR_OK)
        kvr_codec_measure_write(&measured, level->name, &prefill->bench, &prefill->tool.out.buffer);
    return status;
}

/* A cost file, with what the codec does in its description where that is asked for. */
static enum kvr_status calibrate(struct prefill *prefill, struct kvr_error *error)
{
    static const char end[] = "}}\n";
    struct kvr_buffer *out = &prefill->tool.out.buffer;
    enum kvr_status status =
        kvr_measure_cost(&prefill->bench, (uint32_t)prefill->settings.tokens, out, error);

    if (status != KVR_OK || !prefill->settings.codec)
        return status;
    out->length -= sizeof end - 1;
    kvr_buffer_append_text(out, ",\"kv_codec\":");
    status = measure_codec(prefill, error);
    kvr_buffer_append_text(out, end);
    return status;
}

enum kvr_status prefill_measure(struct prefill *prefill, struct kvr_error *error)
{
    const struct prefill_settings *settings = &prefill->settings;
    struct kvr_buffer *out = &prefill->tool.out.buffer;

    if (strcmp(settings->backend, "model") == 0)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--backend model measures nothing; kvr-route --explain-cost prints what it predicts");
    if (settings->smoke)
        return run_smoke(prefill, error);
    if (settings->tokens == 0 || settings->tokens > UINT32_MAX / 4)
        return kvr_error_set(error, KVR_BAD_USAGE, "--tokens is out of range");
    enum kvr_status status = prefill_start(prefill, error);
    if (status == KVR_OK && settings->table)
        status = kvr_measure_table(&prefill->bench, (uint32_t)settings->tokens, out, error);
    if (status == KVR_OK && settings->calibrate)
        status = calibrate(prefill, error);
    if (status == KVR_OK && settings->codec && !settings->calibrate) {
        kvr_buffer_append_text(out, "{\"kv_codec\":");
        status = measure_codec(prefill, error);
        kvr_buffer_append_text(out, "}\n");
    }
    if (status != KVR_OK)
        kvr_buffer_clear(out);
    return status;
}
