/* What the processor that runs us can do beyond what we are compiled for. */
#ifndef KVR_BASE_PROCESSOR_H
#define KVR_BASE_PROCESSOR_H

#include <stdbool.h>

/* Functions for processors whose vectors of 64 bytes can leave bytes out (AVX-512 VBMI2: servers
 * since 2019 of Intel and 2022 of AMD), to be called where kvr_leaves_bytes_out() says so. */
#if defined(__x86_64__) && defined(__GNUC__)
#define KVR_HAS_BYTE_VECTORS 1
#define KVR_BYTE_VECTORS                                                                           \
    __attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vbmi2,popcnt,bmi")))
#endif

static inline bool kvr_leaves_bytes_out(void)
{
#ifdef KVR_HAS_BYTE_VECTORS
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vbmi2");
#else
    return false;
#endif
}

#endif
