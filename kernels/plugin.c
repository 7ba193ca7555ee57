#include "kernels/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* Loads a library relative to the folder of the program. */
static void *load_beside(const char *place)
{
    char path[2 * PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", path, PATH_BYTES);

    if (length <= 0 || length >= PATH_BYTES)
        return NULL;
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash)
        return NULL;
    snprintf(slash + 1, PATH_BYTES, "%s", place);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

enum kvr_status kvr_plugin_load(const struct kvr_backend **backend, struct kvr_error *error)
{
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        return kvr_error_set(error, KVR_UNSUPPORTED, "no CUDA: the driver's %s", dlerror());
    void *library = load_beside("libkvr_cuda.so");
    if (!library)
        library = load_beside("../lib/kvr/libkvr_cuda.so");
    if (!library)
        library = dlopen("libkvr_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return kvr_error_set(error, KVR_UNSUPPORTED,
            "no CUDA backend: %s (it is built where nvcc is found)", dlerror());
    *backend = dlsym(library, "kvr_cuda_backend");
    if (!*backend)
        return kvr_error_set(error, KVR_UNSUPPORTED, "libkvr_cuda.so is of another kvr");
    return KVR_OK;
}
