/*
 * What NVIDIA's management library, libnvidia-ml.so.1, says of the GPUs of this machine. Loaded
 * when asked for. Functions that an older driver does not have leave their members as unknown.
 */
#ifndef KVR_KERNELS_NVML_H
#define KVR_KERNELS_NVML_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct kvr_gpu_state {
    bool lost; /* NVML lists it and cannot tell about it; nothing else is known then */
    char name[96], driver[96];
    double memory_bytes, free_bytes;
    bool has_ecc;                /* else the GPU has none or it is off */
    uint64_t uncorrected_errors; /* ECC, since the driver was loaded */
    bool has_retired;            /* pages taken out of use for double bit errors (to Volta) */
    uint32_t retired_pages, retired_pending;
    bool has_remapped; /* rows of memory replaced by spare ones (from Ampere) */
    uint32_t remapped_rows, remap_pending, remap_failed; /* rows: for uncorrected errors */
    uint32_t celsius;                                    /* 0: unknown */
    uint32_t link_generation, link_width;                /* PCIe, the most that both ends can do */
    uint32_t width_now;                                  /* 0 in these: unknown */
};

struct kvr_nvml;

/* KVR_UNSUPPORTED where there is no library, no driver or no GPU; *count says how many. */
enum kvr_status kvr_nvml_open(struct kvr_nvml **nvml, uint32_t *count, struct kvr_error *error);
void kvr_nvml_close(struct kvr_nvml *nvml);

/* number: below the count. */
void kvr_nvml_read(struct kvr_nvml *nvml, uint32_t number, struct kvr_gpu_state *state);

/* Has the driver tell of critical errors (Xid) of a GPU from now on; false where it does not. */
bool kvr_nvml_watch(struct kvr_nvml *nvml, uint32_t number);

/* The next Xid of a watched GPU since then, with its GPU's number; false: there is none. */
bool kvr_nvml_next_xid(struct kvr_nvml *nvml, uint64_t *xid, uint32_t *number);

#endif
