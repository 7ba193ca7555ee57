/*
 * GPUs that add up what each computed of the same rows: NCCL, loaded when more than one is asked
 * for, so that the plug-in does not need it otherwise.
 */
#ifndef KVR_KERNELS_CUDA_LINK_H
#define KVR_KERNELS_CUDA_LINK_H

#include "kernels/device.cuh"

struct kvr_cuda_link;

/* Devices `first` .. first + count − 1 of this process; *why says what is missing where it is
 * NULL. */
struct kvr_cuda_link *kvr_cuda_link_create(int first, uint32_t count, const char **why);
void kvr_cuda_link_destroy(struct kvr_cuda_link *link);

/* numbers[i][count] of every device becomes the sum over the devices, in bfloat16, on its stream.
 */
bool kvr_cuda_link_sum(struct kvr_cuda_link *link, uint16_t *const *numbers,
    const cudaStream_t *streams, size_t count);

#endif
