#include "base/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SMALL_PAGE_BYTES ((size_t)4096)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define HUGE_MALLOC_BYTES ((size_t)512 << 10)  /* from here on a huge page is worth its clearing */
#define HUGE_FROM_BYTES (16 * HUGE_PAGE_BYTES) /* so that rounding costs little */

size_t kvr_pages_round(size_t bytes)
{
    size_t unit = bytes >= HUGE_FROM_BYTES ? HUGE_PAGE_BYTES : SMALL_PAGE_BYTES;

    if (bytes > SIZE_MAX - unit)
        return SIZE_MAX;
    return (bytes + unit - 1) & ~(unit - 1);
}

/* Address space of `bytes` that starts on a huge page; nothing is mapped there that counts. */
static void *reserve_aligned(size_t bytes)
{
    uintptr_t start, aligned;
    char *space = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (space == MAP_FAILED)
        return MAP_FAILED;
    start = (uintptr_t)space;
    aligned = (start + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1);
    if (aligned > start)
        munmap(space, aligned - start);
    if (HUGE_PAGE_BYTES - (aligned - start))
        munmap((char *)aligned + bytes, HUGE_PAGE_BYTES - (aligned - start));
    return (void *)aligned;
}

static void *map_new(size_t bytes, bool huge)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *at = NULL, *data;

    if (huge || bytes >= HUGE_FROM_BYTES) {
        at = reserve_aligned(bytes);
        if (at == MAP_FAILED)
            return MAP_FAILED;
        flags |= MAP_FIXED;
    }
    data = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (data == MAP_FAILED && at)
        munmap(at, bytes);
    return data;
}

static void *map_larger(void *old, size_t old_bytes, size_t bytes)
{
    void *at, *data = mremap(old, old_bytes, bytes, 0);

    if (data != MAP_FAILED)
        return data;
    if (bytes < HUGE_FROM_BYTES)
        return mremap(old, old_bytes, bytes, MREMAP_MAYMOVE);
    at = reserve_aligned(bytes);
    if (at == MAP_FAILED)
        return MAP_FAILED;
    data = mremap(old, old_bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    if (data == MAP_FAILED)
        munmap(at, bytes);
    return data;
}

bool kvr_pages_grow(struct kvr_pages *pages, size_t bytes)
{
    void *data;

    if (bytes <= pages->size_bytes)
        return true;
    bool early = pages->random && !pages->data && bytes >= 2 * HUGE_PAGE_BYTES;
    bytes = early ? (bytes + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1) : kvr_pages_round(bytes);
    if (bytes > SIZE_MAX - 2 * HUGE_PAGE_BYTES)
        return false;
    data = early         ? map_new(bytes, true)
           : pages->data ? map_larger(pages->data, pages->size_bytes, bytes)
                         : map_new(bytes, false);
    if (data == MAP_FAILED)
        return false;
    /* Advice only: where huge pages are switched off nothing is lost but speed. */
    if (early || bytes >= HUGE_FROM_BYTES)
        (void)madvise(data, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    /* One call for the new pages instead of a fault for each of them. */
    (void)madvise((char *)data + pages->size_bytes, bytes - pages->size_bytes, MADV_POPULATE_WRITE);
#endif
    pages->data = data;
    pages->size_bytes = bytes;
    return true;
}

void kvr_pages_release(struct kvr_pages *pages)
{
    if (pages->data)
        munmap(pages->data, pages->size_bytes);
    pages->data = NULL;
    pages->size_bytes = 0;
}

void *kvr_pages_malloc(size_t bytes)
{
    if (bytes < HUGE_MALLOC_BYTES || bytes > SIZE_MAX - HUGE_PAGE_BYTES)
        return malloc(bytes);
    bytes = (bytes + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1);
    void *data = aligned_alloc(HUGE_PAGE_BYTES, bytes);
    if (data)
        (void)madvise(data, bytes, MADV_HUGEPAGE);
    return data;
}

void kvr_pages_advise(void *data, size_t bytes)
{
    uintptr_t start = ((uintptr_t)data + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)data + bytes) & ~(HUGE_PAGE_BYTES - 1);

    if (start < end)
        (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
}
