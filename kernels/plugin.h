/*
 * The CUDA backend as a plug-in, libkvr_cuda.so, and NVIDIA's management library: both loaded when
 * asked for, so that a program that never meets a GPU links neither.
 */
#ifndef KVR_KERNELS_PLUGIN_H
#define KVR_KERNELS_PLUGIN_H

#include "kernels/backend.h"

/* Loads the plug-in: it stands beside the program, in ../lib/kvr of it, or where the loader looks.
 * KVR_UNSUPPORTED says what is missing: the driver, or the plug-in. */
enum kvr_status kvr_plugin_load(const struct kvr_backend **backend, struct kvr_error *error);

struct kvr_gpu_state {
    char name[96], driver[96];
    double memory_bytes, free_bytes;
    uint64_t uncorrected_errors; /* ECC, volatile */
    bool has_ecc;                /* else the GPU has none or it is off */
    uint32_t celsius;
};

/* GPUs of this machine as NVML lists them; at most `most` are filled in. KVR_UNSUPPORTED where
 * there is no library, no driver or no GPU. */
enum kvr_status kvr_gpu_states(
    struct kvr_gpu_state *gpus, uint32_t most, uint32_t *count, struct kvr_error *error);

#endif
