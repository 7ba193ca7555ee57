/*
 * What the kernels need of a GPU beyond CUDA C++, in one place: bfloat16, the warp's sums, the
 * tensor core's 16×8×16 product, the matrix loads and asynchronous copies, and how a kernel is
 * started.
 *
 * Without nvcc the same sources are compiled for the processor: tests/cuda_host.h then takes the
 * place of the hardware, thread by thread, and documents the fragment layouts that it follows.
 */
#ifndef KVR_KERNELS_DEVICE_CUH
#define KVR_KERNELS_DEVICE_CUH

#include <stdint.h>

#ifdef __CUDACC__
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

static inline void *kvr_open_library(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static inline void *kvr_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

#define KVR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
/* The block's dynamic shared memory as an array. */
#define KVR_SHARED(type, name)                                                                     \
    extern __shared__ __align__(16) unsigned char kvr_shared_memory[];                             \
    type *name = reinterpret_cast<type *>(kvr_shared_memory)

/* d[16][8] += a[16][16] · b[16][8], bfloat16 in, float out. */
static __device__ __forceinline__ void mma_16x8x16(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8×8 matrices of shared memory: lane i names row i % 8 of matrix i / 8; register j is matrix
 * j's. */
static __device__ __forceinline__ void load_matrices(uint32_t (&b)[4], const uint16_t *row)
{
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(address)
                 : "memory");
}

/* The same, each matrix transposed. */
static __device__ __forceinline__ void load_transposed(uint32_t (&b)[4], const uint16_t *row)
{
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(address)
                 : "memory");
}

/* Starts to copy 16 bytes into shared memory past the registers; where they are not there, zeros
 * come and nothing is read. What was started since the last copies_begun() is a group; a thread
 * waits until all its groups but the newest `groups` are done, and the block with a barrier for
 * those of others. */
static __device__ __forceinline__ void copy_16_bytes(void *to, const void *from, bool there)
{
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
                 :
                 : "r"(address), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copies_begun()
{
    asm volatile("cp.async.commit_group;\n" : : : "memory");
}

template <int groups> static __device__ __forceinline__ void copies_done_but()
{
    asm volatile("cp.async.wait_group %0;\n" : : "n"(groups) : "memory");
}

/* 2^value by the special function unit; −∞ gives 0. */
static __device__ __forceinline__ float power_of_two(float value)
{
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(value));
    return result;
}
#else
#include "tests/cuda_host.h"
#endif

static __device__ __forceinline__ float bf16_value(uint16_t bits)
{
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

/* To nearest even. */
static __device__ __forceinline__ uint16_t bf16_round(float value)
{
    uint32_t word = __float_as_uint(value);

    if ((word & 0x7fffffffu) > 0x7f800000u)
        return static_cast<uint16_t>(word >> 16 | 0x40u);
    return static_cast<uint16_t>((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
}

/* Two of them in a register, the first in the lower half. */
static __device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
#ifdef __CUDACC__
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return static_cast<uint32_t>(bf16_round(low)) | static_cast<uint32_t>(bf16_round(high)) << 16;
#endif
}

/* Eight bfloat16 numbers in one 16-byte access. */
struct alignas(16) eight {
    uint16_t number[8];
};

static __device__ __forceinline__ float warp_sum(float value)
{
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

#endif
