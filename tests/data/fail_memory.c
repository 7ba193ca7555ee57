/*
 * A library for LD_PRELOAD that makes the allocation number $FAIL_AT of the program itself fail;
 * those of the libraries below it are left alone.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static long left;
static const char *program;

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAIL_AT");

    left = at ? atol(at) : 0;
    program = getenv("FAIL_IN");
}

static int fails(void *caller)
{
    Dl_info info;

    if (left <= 0 || !program || !dladdr(caller, &info) || !info.dli_fname ||
        !strstr(info.dli_fname, program) || --left)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size);
}
