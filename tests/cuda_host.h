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
 * ldmatrix.x4: lanes 8·j to 8·j + 7 name the rows of the 8×8 matrix j; lane 4·g + t receives of
 * each the numbers 2t and 2t + 1 of row g, or with .trans those at rows 2t and 2t + 1 of column g.
 *
 * cp.async: the destination is NaN from the start of a copy on, and what it brings is there only
 * when its thread waits for its group; so a read before that gets NaN. A thread that ends without
 * having waited for all its copies is a fault.
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

/* What was done on streams since then (kernels, products, copies, sums), in order, a name and a
 * space each; what a graph does stands there each time that it does it. */
const char *cuda_host_log(void);

/* How many graphs were started since then. */
unsigned cuda_host_graph_launches(void);

/* How many plans for products were made since then: calls of cuBLASLt's heuristic. */
unsigned cuda_host_plans(void);

/* GPUs that this machine pretends to have from now on, and their capability (as 90); at the
 * start $CUDA_HOST_DEVICES, else 1, and 90. */
void cuda_host_set_devices(int count, int capability);

#ifdef __cplusplus
}

/* Keeps the first fault. */
void cuda_host_found(const char *what);

#include "tests/cuda_host_runtime.h"

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
    cuda_host_start(#kernel, stream, grid, block, shared_bytes, kernel, __VA_ARGS__)

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

/* A kernel on a stream. Its arguments are taken now, as a graph starts it again and again. */
template <typename... Parameters, typename... Arguments>
static inline void cuda_host_start(const char *name, cudaStream_t stream, dim3 grid, dim3 block,
    size_t shared_bytes, void (*kernel)(Parameters...), Arguments... arguments)
{
    std::tuple<Parameters...> values(arguments...);

    cuda_host_submit(name, stream, [=]() {
        cuda_host_launch(grid, block, shared_bytes, [=]() { std::apply(kernel, values); });
    });
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

static inline float power_of_two(float value)
{
    return exp2f(value);
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

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline uint32_t atomicMax(uint32_t *number, uint32_t other)
{
    uint32_t before = *number;
    *number = before > other ? before : other;
    return before;
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

/* Register j of a lane: two numbers of row g of matrix j, or of column g where it is transposed. */
static inline void cuda_host_load(uint32_t (&b)[4], const uint16_t *row, bool transposed)
{
    unsigned lane = threadIdx.x % 32, group = lane / 4, t = lane % 4;

    if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
        cuda_host_found("a row of a matrix that is not aligned");
    memcpy(cuda_host_lane(lane), &row, sizeof row);
    cuda_host_warp_barrier(transposed ? "load transposed" : "load");
    for (unsigned i = 0; i < 4; i++) {
        const uint16_t *first, *second;
        memcpy(&first, cuda_host_lane(8 * i + (transposed ? 2 * t : group)), sizeof first);
        memcpy(&second, cuda_host_lane(8 * i + (transposed ? 2 * t + 1 : group)), sizeof second);
        b[i] = first[transposed ? group : 2 * t] |
               static_cast<uint32_t>(second[transposed ? group : 2 * t + 1]) << 16;
    }
    cuda_host_warp_barrier("loaded");
}

static inline void load_matrices(uint32_t (&b)[4], const uint16_t *row)
{
    cuda_host_load(b, row, false);
}

static inline void load_transposed(uint32_t (&b)[4], const uint16_t *row)
{
    cuda_host_load(b, row, true);
}

/* Of the running thread: what it has started, in groups. */
void cuda_host_copy(void *to, const void *from, bool there);
void cuda_host_copies_begun();
void cuda_host_copies_done_but(unsigned groups);

static inline void copy_16_bytes(void *to, const void *from, bool there)
{
    cuda_host_copy(to, from, there);
}

static inline void copies_begun()
{
    cuda_host_copies_begun();
}

template <unsigned groups> static inline void copies_done_but()
{
    cuda_host_copies_done_but(groups);
}

#endif
#endif
