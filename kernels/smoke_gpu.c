#include "kernels/smoke.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* The preset whose name stands in the GPU's, as h200 in "NVIDIA H200"; NULL: none. */
static const struct kvr_gpu *preset_of(const char *name)
{
    for (size_t i = 0; i < kvr_gpu_count; i++)
        if (strcasestr(name, kvr_gpus[i].name))
            return &kvr_gpus[i];
    return NULL;
}

/* Bytes that the name promises: "80GB" in it, else its preset's; 0: nothing. */
static double promised_bytes(const char *name)
{
    const struct kvr_gpu *preset = preset_of(name);

    for (const char *at = name; *at; at++) {
        char *end;
        if (!isdigit((unsigned char)*at) || (at > name && isalnum((unsigned char)at[-1])))
            continue;
        double number = strtod(at, &end);
        if (strncasecmp(end, "GB", 2) == 0)
            return number * 1e9;
    }
    return preset ? preset->memory_bytes : 0;
}

static void check_memory(struct kvr_smoke *smoke, const struct kvr_gpu_state *gpu, uint32_t number)
{
    double promised = promised_bytes(gpu->name);
    char name[64], remark[256], safe[96], missing[64] = "";

    snprintf(name, sizeof name, "gpu %u memory", number);
    kvr_printable(safe, sizeof safe, gpu->name, strlen(gpu->name));
    bool passes = gpu->memory_bytes > 0 && gpu->memory_bytes >= 0.9 * promised;
    if (!passes && promised > 0)
        snprintf(missing, sizeof missing, ", %.4g GiB expected", promised / 0x1p30);
    snprintf(remark, sizeof remark, "%s, driver %.40s, %.1f GiB free%s", safe, gpu->driver,
        gpu->free_bytes / 0x1p30, missing);
    kvr_smoke_check(smoke, passes, name, gpu->memory_bytes / 0x1p30, "GiB", remark);
}

static void check_faults(struct kvr_smoke *smoke, const struct kvr_gpu_state *gpu, uint32_t number)
{
    enum { RETIRED_MOST = 60 }; /* from here on NVIDIA takes a card back */
    char name[64], remark[96];

    snprintf(name, sizeof name, "gpu %u ecc", number);
    kvr_smoke_check(smoke, gpu->uncorrected_errors == 0, name,
        gpu->has_ecc ? (double)gpu->uncorrected_errors : NAN, gpu->has_ecc ? "errors" : "off",
        "uncorrected since the last reset");
    if (gpu->has_remapped) {
        snprintf(name, sizeof name, "gpu %u remapped rows", number);
        snprintf(remark, sizeof remark, "for uncorrected errors%s%s",
            gpu->remap_failed ? ", a replacement failed" : "",
            gpu->remap_pending ? ", one waits for a reset" : "");
        kvr_smoke_check(smoke, !gpu->remap_failed && !gpu->remap_pending, name, gpu->remapped_rows,
            "rows", remark);
    }
    if (gpu->has_retired) {
        snprintf(name, sizeof name, "gpu %u retired pages", number);
        kvr_smoke_check(smoke, gpu->retired_pages <= RETIRED_MOST && !gpu->retired_pending, name,
            gpu->retired_pages, "pages",
            gpu->retired_pending ? "for double bit errors, more wait for a reset"
                                 : "for double bit errors");
    }
}

void kvr_smoke_gpu(struct kvr_smoke *smoke, const struct kvr_gpu_state *gpu, uint32_t number)
{
    char name[64], remark[96];

    if (gpu->lost) {
        snprintf(name, sizeof name, "gpu %u", number);
        kvr_smoke_check(smoke, false, name, NAN, "lost", "NVML lists it and cannot tell about it");
        return;
    }
    check_memory(smoke, gpu, number);
    check_faults(smoke, gpu, number);
    snprintf(name, sizeof name, "gpu %u temperature", number);
    kvr_smoke_check(smoke, gpu->celsius <= 90, name, gpu->celsius > 0 ? gpu->celsius : NAN,
        gpu->celsius > 0 ? "C" : "unknown", "");
    if (gpu->link_width > 0 && gpu->width_now > 0) {
        snprintf(name, sizeof name, "gpu %u pcie", number);
        snprintf(remark, sizeof remark, "of %u that it can be, generation %u", gpu->link_width,
            gpu->link_generation);
        kvr_smoke_check(
            smoke, gpu->width_now >= gpu->link_width, name, gpu->width_now, "lanes", remark);
    }
}

void kvr_smoke_xids(struct kvr_smoke *smoke, struct kvr_nvml *nvml)
{
    enum { TOLD = 16 }; /* a GPU in trouble has many, and the first ones say what it is */
    uint64_t xid = 0;
    uint32_t number = 0, count = 0;
    char name[64];

    smoke->numbered = false;
    for (; count < TOLD && kvr_nvml_next_xid(nvml, &xid, &number); count++) {
        snprintf(name, sizeof name, "gpu %u xid", number);
        kvr_smoke_check(smoke, false, name, (double)xid, "xid", "a critical error meanwhile");
    }
    if (count == 0)
        kvr_smoke_check(smoke, true, "xid", 0, "errors", "critical, while this ran");
}
