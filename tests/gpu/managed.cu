/* What the tests of the kernels need on a real GPU: memory that both sides see, and the GPU's own
 * word on faults. Kernels are waited for (CUDA_LAUNCH_BLOCKING=1). */
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
void *kvr_gpu_memory(size_t bytes);
void kvr_gpu_free(void *memory);
void cuda_host_begin(int order);
const char *cuda_host_fault(void);
}

void *kvr_gpu_memory(size_t bytes)
{
    void *memory = nullptr;

    if (cudaMallocManaged(&memory, bytes > 0 ? bytes : 1) != cudaSuccess)
        return nullptr;
    return memset(memory, 0, bytes);
}

void kvr_gpu_free(void *memory)
{
    cudaPointerAttributes attributes;

    if (memory && cudaPointerGetAttributes(&attributes, memory) == cudaSuccess &&
        attributes.type == cudaMemoryTypeManaged)
        cudaFree(memory);
    else
        free(memory);
}

/* The order of threads is the GPU's. */
void cuda_host_begin(int)
{
    cudaGetLastError();
}

const char *cuda_host_fault(void)
{
    cudaError_t error = cudaDeviceSynchronize();

    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
