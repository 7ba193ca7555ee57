/*
 * A GPU for tests on any machine: CUDA kernels compiled as C++ and executed by the processor, so
 * that a wrong index, a wrong fragment or a missing barrier fails where there is no GPU.
 *
 * Blocks run one after the other. The threads of a block are fibres: each runs until it meets a
 * barrier or a warp primitive, then the next one runs. Three orders are offered, because a missing
 * barrier shows only when the reader runs before the writer: the first warp as far as a barrier of
 * the block lets it, then the next; the same from the last warp and thread; all threads shuffled
 * and in step. Shared memory is filled with 0xff, which is a NaN in float and bfloat16, before
 * every block, and a guard behind it tells writes past its end. Faults that are found (a barrier
 * that not all threads reach, shuffles between threads that are not in the same place, more shared
 * memory than was asked for) are kept and told by cuda_host_fault().
 *
 * What it does not show: races between blocks, and between warps that the three orders miss;
 * speed; alignment beyond what the compiler's sanitizer checks; L1 coherence. compute-sanitizer is
 * for these.
 *
 * Fragments of mma.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"), lane = 4·g + t, two
 * bfloat16 numbers a register, the lower half first:
 *     a0: row g,     columns 2t, 2t + 1       b0: rows 2t, 2t + 1, column g
 *     a1: row g + 8, columns 2t, 2t + 1       b1: rows 2t + 8, 2t + 9, column g
 *     a2: row g,     columns 2t + 8, 2t + 9   d0, d1: row g, columns 2t, 2t + 1
 *     a3: row g + 8, columns 2t + 8, 2t + 9   d2, d3: row g + 8, the same
 * ldmatrix.x2.trans: lanes 0 to 7 name the rows of the first 8×8 matrix, 8 to 15 those of the
 * second; lane 4·g + t receives of each the numbers at rows 2t and 2t + 1 of column g.
 */
#ifndef KVR_TESTS_CUDA_HOST_H
#define KVR_TESTS_CUDA_HOST_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum cuda_host_order { CUDA_HOST_FORWARD, CUDA_HOST_BACKWARD, CUDA_HOST_SHUFFLED };

/* Of the threads in all launches from now on; forgets faults. */
void cuda_host_begin(enum cuda_host_order order);

/* The first fault since then, or NULL. */
const char *cuda_host_fault(void);

#ifdef __cplusplus
}

#define __global__
#define __device__
#define __forceinline__ inline

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;
extern unsigned char *cuda_host_shared;

#define KVR_SHARED(type, name) type *name = reinterpret_cast<type *>(cuda_host_shared)
#define KVR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
    ((void)(stream), cuda_host_launch(grid, block, shared_bytes, [=]() { kernel(__VA_ARGS__); }))

/* Runs body(context) once for every thread of every block. */
void cuda_host_run(
    dim3 grid, dim3 block, size_t shared_bytes, void (*body)(const void *), const void *context);

template <typename Body>
static inline void cuda_host_launch(dim3 grid, dim3 block, size_t shared_bytes, Body body)
{
    cuda_host_run(
        grid, block, shared_bytes,
        [](const void *context) { (*static_cast<const Body *>(context))(); }, &body);
}

/* Waits for the block or the warp; `place` tells the calls of the program apart. */
void cuda_host_block_barrier(const void *place);
void cuda_host_warp_barrier(const void *place);

/* 64 bytes of each lane of the running warp that the others may read between warp barriers. */
unsigned char *cuda_host_lane(unsigned lane);

#define __syncthreads() cuda_host_block_barrier(__func__)

static inline float __uint_as_float(uint32_t word)
{
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline uint32_t __float_as_uint(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

static inline float rsqrtf(float value)
{
    return 1 / sqrtf(value);
}

static inline float __shfl_xor_sync(unsigned, float value, int distance)
{
    unsigned lane = threadIdx.x % 32;
    float result;

    memcpy(cuda_host_lane(lane), &value, sizeof value);
    cuda_host_warp_barrier("shuffle");
    memcpy(&result, cuda_host_lane(lane ^ static_cast<unsigned>(distance)), sizeof result);
    cuda_host_warp_barrier("shuffled");
    return result;
}

#define __syncwarp() cuda_host_warp_barrier("warp")

static inline uint32_t __ballot_sync(unsigned, bool said)
{
    uint32_t all = 0;

    *cuda_host_lane(threadIdx.x % 32) = said;
    cuda_host_warp_barrier("ballot");
    for (unsigned lane = 0; lane < 32; lane++)
        all |= static_cast<uint32_t>(*cuda_host_lane(lane)) << lane;
    cuda_host_warp_barrier("balloted");
    return all;
}

static inline uint32_t __popc(uint32_t word)
{
    return static_cast<uint32_t>(__builtin_popcount(word));
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline uint32_t atomicAdd(uint32_t *number, uint32_t added)
{
    *number += added;
    return *number - added;
}

static inline double cuda_host_half(uint32_t pair, unsigned which)
{
    return __uint_as_float((which ? pair >> 16 : pair & 0xffffu) << 16);
}

static inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    unsigned lane = threadIdx.x % 32, group = lane / 4, t = lane % 4;
    unsigned char *own = cuda_host_lane(lane);

    memcpy(own, a, sizeof a);
    memcpy(own + sizeof a, b, sizeof b);
    cuda_host_warp_barrier("mma");
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = group + 8 * (i / 2), column = 2 * t + i % 2;
        double sum = static_cast<double>(d[i]);
        for (unsigned k = 0; k < 16; k++) {
            uint32_t left[4], right[2];
            memcpy(left, cuda_host_lane(row % 8 * 4 + k % 8 / 2), sizeof left);
            memcpy(right, cuda_host_lane(column * 4 + k % 8 / 2) + sizeof left, sizeof right);
            sum += cuda_host_half(left[row / 8 + 2 * (k / 8)], k % 2) *
                   cuda_host_half(right[k / 8], k % 2);
        }
        d[i] = static_cast<float>(sum);
    }
    cuda_host_warp_barrier("mma done");
}

static inline void load_transposed(uint32_t (&b)[2], const uint16_t *row)
{
    unsigned lane = threadIdx.x % 32, group = lane / 4, t = lane % 4;

    memcpy(cuda_host_lane(lane), &row, sizeof row);
    cuda_host_warp_barrier("load");
    for (unsigned i = 0; i < 2; i++) {
        const uint16_t *first, *second;
        memcpy(&first, cuda_host_lane(8 * i + 2 * t), sizeof first);
        memcpy(&second, cuda_host_lane(8 * i + 2 * t + 1), sizeof second);
        b[i] = first[group] | static_cast<uint32_t>(second[group]) << 16;
    }
    cuda_host_warp_barrier("loaded");
}

/*
 * The part of the runtime and of cuBLAS that the backend uses. The device's memory is the
 * processor's, new memory is NaN, and streams do their work at once.
 */
typedef int cudaError_t, cudaMemcpyKind;
typedef struct CUstream_st *cudaStream_t;
typedef int cublasHandle_t, cublasStatus_t;
enum {
    cudaSuccess = 0,
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_OP_N = 0,
    CUBLAS_OP_T = 1,
    CUDA_R_16BF = 14,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_GEMM_DEFAULT = -1,
};

struct cudaDeviceProp {
    char name[256];
};

template <typename Kernel> static inline cudaError_t cudaFuncSetAttribute(Kernel, int, int)
{
    return cudaSuccess;
}

template <typename Type> static inline cudaError_t cudaMalloc(Type **memory, size_t bytes)
{
    *memory = static_cast<Type *>(malloc(bytes));
    if (*memory)
        memset(static_cast<void *>(*memory), 0xff, bytes);
    return *memory ? cudaSuccess : 2;
}

static inline cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

static inline cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, int, cudaStream_t)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}

static inline cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
    size_t from_pitch, size_t width, size_t height, int, cudaStream_t)
{
    for (size_t i = 0; i < height; i++)
        memcpy(static_cast<char *>(to) + i * to_pitch,
            static_cast<const char *>(from) + i * from_pitch, width);
    return cudaSuccess;
}

static inline cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    *memory = malloc(bytes);
    return *memory ? cudaSuccess : 2;
}

static inline cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return cudaSuccess;
}

static inline cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    *stream = nullptr;
    return cudaSuccess;
}

static inline cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}

static inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}

static inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

static inline const char *cudaGetErrorString(cudaError_t)
{
    return "the processor in the place of a GPU failed";
}

static inline cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int)
{
    strcpy(properties->name, "processor in the place of a GPU");
    return cudaSuccess;
}

static inline cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = static_cast<size_t>(1) << 28;
    return cudaSuccess;
}

static inline cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static inline cublasStatus_t cublasDestroy(cublasHandle_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

static inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

/* Column-major c[m][n] = aᵀ · b in bfloat16, the one form that is used here. */
cublasStatus_t cublasGemmEx(cublasHandle_t handle, int a_form, int b_form, int m, int n, int k,
    const void *alpha, const void *a, int a_type, int a_stride, const void *b, int b_type,
    int b_stride, const void *beta, void *c, int c_type, int c_stride, int compute, int algorithm);
#endif
#endif
