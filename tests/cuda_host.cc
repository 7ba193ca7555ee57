#undef _FORTIFY_SOURCE /* whose longjmp() knows no fibres */
#include "tests/cuda_host.h"

#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum {
    THREADS_MOST = 1024,
    STACK_BYTES = 128 << 10,
    LANE_BYTES = 64,
    GUARD_BYTES = 256,
    COPIES_MOST = 512
};

dim3 threadIdx, blockIdx, blockDim, gridDim;
unsigned char *cuda_host_shared;

void cuda_host_runtime_begin();

namespace
{

/* Where a fibre stands: it runs, waits for its warp or its block, or has returned. */
enum waiting { RUNS, WARP, BLOCK, ENDED };

/* Asynchronous copies that a thread has started and not waited for, the oldest first. */
struct copies {
    struct {
        void *to;
        const void *from;
        unsigned group;
    } copy[COPIES_MOST];
    unsigned count, group; /* group: of those that begin now */
};

/* A fibre is made once and serves one thread after the other. Contexts are only for its first
 * entry, as every change of one asks the kernel for the signal mask. The address sanitizer is told
 * which stack comes next. */
struct fibre {
    ucontext_t context;
    jmp_buf jump;
    bool made;
    void *fake_stack; /* the sanitizer's */
    copies copying;
    unsigned char *stack;
    waiting state;
    const void *place;
    dim3 index;
};

fibre fibres[THREADS_MOST];
unsigned char lanes[THREADS_MOST][LANE_BYTES];
jmp_buf scheduler_jump;
[[maybe_unused]] void *scheduler_fake_stack;
[[maybe_unused]] const void *scheduler_stack;
[[maybe_unused]] size_t scheduler_stack_bytes;
unsigned running, count;
void (*body)(const void *);
const void *body_context;
cuda_host_order order;
uint64_t chance = 1;
const char *fault;

void found(const char *what)
{
    cuda_host_found(what);
}

/* Before and after a change of stacks. */
void changing([[maybe_unused]] void **fake_stack, [[maybe_unused]] const void *stack,
    [[maybe_unused]] size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#endif
}

void changed([[maybe_unused]] void *fake_stack, [[maybe_unused]] const void **stack,
    [[maybe_unused]] size_t *bytes)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake_stack, stack, bytes);
#endif
}

void leave(fibre &self)
{
    changing(&self.fake_stack, scheduler_stack, scheduler_stack_bytes);
    if (!_setjmp(self.jump))
        _longjmp(scheduler_jump, 1);
    changed(self.fake_stack, &scheduler_stack, &scheduler_stack_bytes);
}

void fibre_main()
{
    changed(nullptr, &scheduler_stack, &scheduler_stack_bytes);
    for (;;) {
        body(body_context);
        if (fibres[running].copying.count > 0)
            found("copies that are not waited for");
        fibres[running].state = ENDED;
        leave(fibres[running]);
    }
}

void make(fibre &fibre)
{
    if (!fibre.stack)
        fibre.stack = static_cast<unsigned char *>(malloc(STACK_BYTES));
    if (!fibre.stack)
        abort();
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack;
    fibre.context.uc_stack.ss_size = STACK_BYTES;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, fibre_main, 0);
}

void enter(fibre &fibre)
{
    const bool first = !fibre.made;

    if (first)
        make(fibre);
    fibre.made = true;
    changing(&scheduler_fake_stack, fibre.stack, STACK_BYTES);
    if (!_setjmp(scheduler_jump)) {
        if (first)
            setcontext(&fibre.context);
        _longjmp(fibre.jump, 1);
    }
    changed(scheduler_fake_stack, nullptr, nullptr);
}

void wait(waiting state, const void *place)
{
    fibre &self = fibres[running];

    self.state = state;
    self.place = place;
    leave(self);
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
        if (waits++ && place != fibres[i].place &&
            strcmp(static_cast<const char *>(place), static_cast<const char *>(fibres[i].place)) !=
                0)
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

void start(unsigned number)
{
    fibre &fibre = fibres[number];

    fibre.copying.count = fibre.copying.group = 0;
    fibre.state = RUNS;
    fibre.index = dim3(
        number % blockDim.x, number / blockDim.x % blockDim.y, number / blockDim.x / blockDim.y);
}

void go_on(unsigned number)
{
    running = number;
    threadIdx = fibres[number].index;
    enter(fibres[number]);
}

/* Each warp as far as it comes without the block, the first or the last warp and thread first. */
bool run_warps()
{
    const unsigned warps = (count + 31) / 32;
    bool progress = false;

    for (unsigned i = 0; i < warps; i++) {
        const unsigned first = 32 * (order == CUDA_HOST_BACKWARD ? warps - 1 - i : i);
        const unsigned size = first + 32 < count ? 32 : count - first;
        do {
            for (unsigned j = 0; j < size; j++) {
                unsigned number = first + (order == CUDA_HOST_BACKWARD ? size - 1 - j : j);
                if (fibres[number].state != RUNS)
                    continue;
                progress = true;
                go_on(number);
            }
        } while (release(first, first + size, WARP));
    }
    return progress;
}

/* All threads one step in an order of chance. */
bool run_shuffled()
{
    static unsigned numbers[THREADS_MOST];
    bool progress = false;

    for (unsigned i = 0; i < count; i++)
        numbers[i] = i;
    for (unsigned i = count; i > 1; i--) {
        chance = chance * 6364136223846793005u + 1442695040888963407u;
        unsigned other = static_cast<unsigned>(chance >> 33) % i, kept = numbers[i - 1];
        numbers[i - 1] = numbers[other];
        numbers[other] = kept;
    }
    for (unsigned i = 0; i < count; i++) {
        if (fibres[numbers[i]].state != RUNS)
            continue;
        progress = true;
        go_on(numbers[i]);
    }
    for (unsigned i = 0; i < count; i += 32)
        progress |= release(i, i + 32 < count ? i + 32 : count, WARP);
    return progress;
}

/* One block: rounds in which every fibre that can run does, until all have returned. */
void run_block()
{
    for (unsigned i = 0; i < count; i++)
        start(i);
    for (;;) {
        bool progress = order == CUDA_HOST_SHUFFLED ? run_shuffled() : run_warps();
        unsigned ended = 0;
        for (unsigned i = 0; i < count; i++)
            ended += fibres[i].state == ENDED;
        if (ended == count)
            return;
        if (release(0, count, BLOCK) || progress)
            continue;
        found("threads wait for each other for ever");
        for (unsigned i = 0; i < count; i++)
            fibres[i].made &= fibres[i].state == ENDED;
        return;
    }
}

} // namespace

void cuda_host_begin(enum cuda_host_order wanted)
{
    order = wanted;
    fault = nullptr;
    cuda_host_runtime_begin();
}

void cuda_host_found(const char *what)
{
    if (!fault)
        fault = what;
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

void cuda_host_copy(void *to, const void *from, bool there)
{
    copies &own = fibres[running].copying;

    if (reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
        (there && reinterpret_cast<uintptr_t>(from) % 16 != 0))
        found("a copy of 16 bytes that is not aligned");
    if (own.count == COPIES_MOST) {
        found("more copies under way than the tests can follow");
        return;
    }
    memset(to, 0xff, 16);
    own.copy[own.count++] = {to, there ? from : nullptr, own.group};
}

void cuda_host_copies_begun()
{
    fibres[running].copying.group++;
}

void cuda_host_copies_done_but(unsigned groups)
{
    copies &own = fibres[running].copying;
    unsigned done = 0;

    for (; done < own.count && own.copy[done].group + groups < own.group; done++) {
        if (own.copy[done].from)
            memcpy(own.copy[done].to, own.copy[done].from, 16);
        else
            memset(own.copy[done].to, 0, 16);
    }
    for (unsigned i = done; i < own.count; i++)
        own.copy[i - done] = own.copy[i];
    own.count -= done;
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
