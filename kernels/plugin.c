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

/* The part of NVML's interface that is used here; its functions return 0 for success. */
struct memory_info {
    unsigned long long total, free, used;
};

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver)(char *text, unsigned length);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, void **device);
    int (*name)(void *device, char *text, unsigned length);
    int (*memory)(void *device, struct memory_info *info);
    int (*errors)(void *device, int kind, int counter, unsigned long long *count);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
};

static bool load_nvml(void *library, struct nvml *nvml)
{
    const struct {
        const char *name;
        void *place;
    } symbols[] = {
        {"nvmlInit_v2", &nvml->init},
        {"nvmlShutdown", &nvml->shutdown},
        {"nvmlSystemGetDriverVersion", &nvml->driver},
        {"nvmlDeviceGetCount_v2", &nvml->count},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->handle},
        {"nvmlDeviceGetName", &nvml->name},
        {"nvmlDeviceGetMemoryInfo", &nvml->memory},
        {"nvmlDeviceGetTotalEccErrors", &nvml->errors},
        {"nvmlDeviceGetTemperature", &nvml->temperature},
    };

    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol)
            return false;
        memcpy(symbols[i].place, &symbol, sizeof symbol);
    }
    return true;
}

static bool read_gpu(const struct nvml *nvml, unsigned index, struct kvr_gpu_state *gpu)
{
    enum { UNCORRECTED = 1, VOLATILE = 0 };
    unsigned long long errors = 0;
    struct memory_info memory;
    unsigned celsius = 0;
    void *device;

    *gpu = (struct kvr_gpu_state){0};
    if (nvml->driver(gpu->driver, sizeof gpu->driver) != 0 || nvml->handle(index, &device) != 0 ||
        nvml->name(device, gpu->name, sizeof gpu->name) != 0 || nvml->memory(device, &memory) != 0)
        return false;
    gpu->memory_bytes = (double)memory.total;
    gpu->free_bytes = (double)memory.free;
    gpu->has_ecc = nvml->errors(device, UNCORRECTED, VOLATILE, &errors) == 0;
    gpu->uncorrected_errors = errors;
    if (nvml->temperature(device, 0, &celsius) == 0)
        gpu->celsius = celsius;
    return true;
}

enum kvr_status kvr_gpu_states(
    struct kvr_gpu_state *gpus, uint32_t most, uint32_t *count, struct kvr_error *error)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct nvml nvml;
    unsigned there = 0;

    *count = 0;
    if (!library)
        return kvr_error_set(error, KVR_UNSUPPORTED, "no GPU: the driver's %s", dlerror());
    if (!load_nvml(library, &nvml) || nvml.init() != 0) {
        dlclose(library);
        return kvr_error_set(error, KVR_UNSUPPORTED, "no GPU: NVML does not start");
    }
    enum kvr_status status = KVR_OK;
    if (nvml.count(&there) != 0 || there == 0)
        status = kvr_error_set(error, KVR_UNSUPPORTED, "no GPU: NVML lists none");
    for (unsigned i = 0; status == KVR_OK && i < there && i < most; i++) {
        if (read_gpu(&nvml, i, &gpus[i]))
            *count = i + 1;
        else
            status = kvr_error_set(error, KVR_UNSUPPORTED, "NVML does not tell about GPU %u", i);
    }
    nvml.shutdown();
    dlclose(library);
    return status;
}
