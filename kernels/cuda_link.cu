#include "kernels/cuda_link.h"

#include <stdlib.h>
#include <string.h>

enum { DEVICES = 16, NCCL_BFLOAT16 = 9, NCCL_SUM = 0 };

struct ncclComm;

struct kvr_cuda_link {
    void *library;
    uint32_t count;
    struct ncclComm *members[DEVICES];
    int (*init_all)(struct ncclComm **members, int count, const int *devices);
    int (*destroy)(struct ncclComm *member);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int operation,
        struct ncclComm *member, cudaStream_t stream);
};

static bool load(struct kvr_cuda_link *link)
{
    const struct {
        const char *name;
        void *place;
    } symbols[] = {
        {"ncclCommInitAll", &link->init_all},
        {"ncclCommDestroy", &link->destroy},
        {"ncclGroupStart", &link->group_start},
        {"ncclGroupEnd", &link->group_end},
        {"ncclAllReduce", &link->all_reduce},
    };

    link->library = kvr_open_library("libnccl.so.2");
    for (size_t i = 0; link->library && i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = kvr_library_symbol(link->library, symbols[i].name);
        if (!symbol)
            return false;
        memcpy(symbols[i].place, &symbol, sizeof symbol);
    }
    return link->library != nullptr;
}

struct kvr_cuda_link *kvr_cuda_link_create(int first, uint32_t count, const char **why)
{
    struct kvr_cuda_link *link = static_cast<struct kvr_cuda_link *>(calloc(1, sizeof *link));
    int devices[DEVICES];

    *why = "out of memory";
    if (!link || count > DEVICES) {
        free(link);
        return nullptr;
    }
    for (uint32_t i = 0; i < count; i++)
        devices[i] = first + static_cast<int>(i);
    *why = "NCCL, libnccl.so.2, is not to be had";
    bool fine = load(link);
    if (fine) {
        *why = "NCCL does not connect the GPUs";
        fine = link->init_all(link->members, static_cast<int>(count), devices) == 0;
    }
    if (!fine) {
        kvr_cuda_link_destroy(link);
        return nullptr;
    }
    link->count = count;
    return link;
}

void kvr_cuda_link_destroy(struct kvr_cuda_link *link)
{
    if (!link)
        return;
    for (uint32_t i = 0; i < link->count; i++)
        link->destroy(link->members[i]);
    free(link); /* the library stays: it has threads of its own */
}

bool kvr_cuda_link_sum(
    struct kvr_cuda_link *link, uint16_t *const *numbers, const cudaStream_t *streams, size_t count)
{
    bool fine = link->group_start() == 0;

    for (uint32_t i = 0; i < link->count; i++)
        fine &= link->all_reduce(numbers[i], numbers[i], count, NCCL_BFLOAT16, NCCL_SUM,
                    link->members[i], streams[i]) == 0;
    return link->group_end() == 0 && fine;
}
