#include "tests/cuda_host.h"

#include <stdlib.h>
#include <ucontext.h>

enum { THREADS_MOST = 1024, STACK_BYTES = 128 << 10, LANE_BYTES = 64, GUARD_BYTES = 256 };

dim3 threadIdx, blockIdx, blockDim, gridDim;
unsigned char *cuda_host_shared;

namespace
{

/* Where a fibre stands: it runs, waits for its warp or its block, or has returned. */
enum waiting { RUNS, WARP, BLOCK, ENDED };

struct fibre {
    ucontext_t context;
    unsigned char *stack;
    waiting state;
    const void *place;
    dim3 index;
};

fibre fibres[THREADS_MOST];
unsigned char lanes[THREADS_MOST][LANE_BYTES];
ucontext_t scheduler;
unsigned running, count;
void (*body)(const void *);
const void *body_context;
cuda_host_order order;
uint64_t chance = 1;
const char *fault;

void found(const char *what)
{
    if (!fault)
        fault = what;
}

void fibre_main()
{
    body(body_context);
    fibres[running].state = ENDED;
    swapcontext(&fibres[running].context, &scheduler);
}

void wait(waiting state, const void *place)
{
    fibre &self = fibres[running];

    self.state = state;
    self.place = place;
    swapcontext(&self.context, &scheduler);
    threadIdx = self.index;
}

/* Frees fibres first .. end − 1 where all of them that live wait for the same. False: not yet. */
bool release(unsigned first, unsigned end, waiting state)
{
    const void *place = nullptr;
    unsigned waits = 0, ended = 0;

    for (unsigned i = first; i < end; i++) {
        ended += fibres[i].state == ENDED;
        if (fibres[i].state != state)
            continue;
        if (waits++ && strcmp(static_cast<const char *>(place),
                           static_cast<const char *>(fibres[i].place)) != 0)
            found("threads wait for one another in different places");
        place = fibres[i].place;
    }
    if (waits == 0 || waits + ended < end - first)
        return false;
    if (ended > 0)
        found("a barrier that some threads never reach");
    for (unsigned i = first; i < end; i++)
        if (fibres[i].state == state)
            fibres[i].state = RUNS;
    return true;
}

void shuffle(unsigned *numbers)
{
    for (unsigned i = 0; i < count; i++)
        numbers[i] = order == CUDA_HOST_BACKWARD ? count - 1 - i : i;
    for (unsigned i = count; order == CUDA_HOST_SHUFFLED && i > 1; i--) {
        chance = chance * 6364136223846793005u + 1442695040888963407u;
        unsigned other = static_cast<unsigned>(chance >> 33) % i, kept = numbers[i - 1];
        numbers[i - 1] = numbers[other];
        numbers[other] = kept;
    }
}

void start(unsigned number)
{
    fibre &fibre = fibres[number];

    if (!fibre.stack)
        fibre.stack = static_cast<unsigned char *>(malloc(STACK_BYTES));
    if (!fibre.stack)
        abort();
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack;
    fibre.context.uc_stack.ss_size = STACK_BYTES;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, fibre_main, 0);
    fibre.state = RUNS;
    fibre.index = dim3(
        number % blockDim.x, number / blockDim.x % blockDim.y, number / blockDim.x / blockDim.y);
}

/* One block: rounds in which every fibre that can run does, until all have returned. */
void run_block()
{
    static unsigned numbers[THREADS_MOST];

    for (unsigned i = 0; i < count; i++)
        start(i);
    for (;;) {
        bool progress = false;
        unsigned ended = 0;
        unsigned warp = THREADS_MOST;
        shuffle(numbers);
        for (unsigned i = 0; i < count; i++) {
            running = numbers[i];
            if (fibres[running].state != RUNS)
                continue;
            if (order != CUDA_HOST_SHUFFLED && warp != THREADS_MOST && running / 32 != warp)
                break; /* one warp goes as far as it can before the next */
            warp = running / 32;
            progress = true;
            threadIdx = fibres[running].index;
            swapcontext(&scheduler, &fibres[running].context);
        }
        for (unsigned i = 0; i < count; i += 32)
            progress |= release(i, i + 32 < count ? i + 32 : count, WARP);
        progress |= release(0, count, BLOCK);
        for (unsigned i = 0; i < count; i++)
            ended += fibres[i].state == ENDED;
        if (ended == count)
            return;
        if (!progress) {
            found("threads wait for each other for ever");
            return;
        }
    }
}

} // namespace

void cuda_host_begin(enum cuda_host_order wanted)
{
    order = wanted;
    fault = nullptr;
}

const char *cuda_host_fault(void)
{
    return fault;
}

void cuda_host_block_barrier(const void *place)
{
    wait(BLOCK, place);
}

void cuda_host_warp_barrier(const void *place)
{
    wait(WARP, place);
}

unsigned char *cuda_host_lane(unsigned lane)
{
    return lanes[running / 32 * 32 + lane];
}

void cuda_host_run(
    dim3 grid, dim3 block, size_t shared_bytes, void (*function)(const void *), const void *context)
{
    count = block.x * block.y * block.z;
    if (count > THREADS_MOST || count == 0) {
        found("a block of no threads or too many");
        return;
    }
    body = function;
    body_context = context;
    gridDim = grid;
    blockDim = block;
    size_t padded = (shared_bytes + 15) / 16 * 16;
    cuda_host_shared = static_cast<unsigned char *>(aligned_alloc(16, padded + GUARD_BYTES));
    if (!cuda_host_shared)
        abort();
    for (unsigned z = 0; z < grid.z; z++) {
        for (unsigned y = 0; y < grid.y; y++) {
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = dim3(x, y, z);
                memset(cuda_host_shared, 0xff, padded + GUARD_BYTES);
                run_block();
                for (size_t i = shared_bytes; i < padded + GUARD_BYTES; i++)
                    if (cuda_host_shared[i] != 0xff)
                        found("a write behind the end of shared memory");
            }
        }
    }
    free(cuda_host_shared);
    cuda_host_shared = nullptr;
}

cublasStatus_t cublasGemmEx(cublasHandle_t, int a_form, int b_form, int m, int n, int k,
    const void *alpha, const void *a, int a_type, int a_stride, const void *b, int b_type,
    int b_stride, const void *beta, void *c, int c_type, int c_stride, int compute, int)
{
    const uint16_t *left = static_cast<const uint16_t *>(a);
    const uint16_t *right = static_cast<const uint16_t *>(b);
    uint16_t *out = static_cast<uint16_t *>(c);
    float one, zero;

    memcpy(&one, alpha, sizeof one);
    memcpy(&zero, beta, sizeof zero);
    if (a_form != CUBLAS_OP_T || b_form != CUBLAS_OP_N || a_type != CUDA_R_16BF ||
        b_type != CUDA_R_16BF || c_type != CUDA_R_16BF || compute != CUBLAS_COMPUTE_32F ||
        one < 1 || one > 1 || zero < 0 || zero > 0 || a_stride < k || b_stride < k || c_stride < m)
        return 7;
    for (int column = 0; column < n; column++) {
        for (int row = 0; row < m; row++) {
            float sum = 0;
            for (int i = 0; i < k; i++)
                sum += __uint_as_float(static_cast<uint32_t>(left[row * a_stride + i]) << 16) *
                       __uint_as_float(static_cast<uint32_t>(right[column * b_stride + i]) << 16);
            uint32_t word = __float_as_uint(sum);
            out[column * c_stride + row] =
                static_cast<uint16_t>((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}
