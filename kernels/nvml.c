#include "kernels/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { WATCHED = 64, UNCORRECTED = 1, VOLATILE = 0, DOUBLE_BIT = 1, XID_EVENT = 8, WAIT_MS = 200 };

/* The part of NVML's interface that is used here; its functions return 0 for success. */
struct memory_info {
    unsigned long long total, free, used;
};

struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct kvr_nvml {
    void *library;
    uint32_t count;
    void *events; /* the set that watched GPUs tell */
    void *watched[WATCHED];
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver)(char *text, unsigned length);
    int (*get_count)(unsigned *count);
    int (*handle)(unsigned index, void **device);
    int (*name)(void *device, char *text, unsigned length);
    int (*memory)(void *device, struct memory_info *info);
    /* may be NULL */
    int (*errors)(void *device, int kind, int counter, unsigned long long *count);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*retired)(void *device, int cause, unsigned *count, unsigned long long *addresses);
    int (*retired_pending)(void *device, int *pending);
    int (*remapped)(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
        unsigned *failed);
    int (*most_generation)(void *device, unsigned *generation);
    int (*most_width)(void *device, unsigned *width);
    int (*width)(void *device, unsigned *width);
    int (*event_set)(void **set);
    int (*event_free)(void *set);
    int (*event_register)(void *device, unsigned long long types, void *set);
    int (*event_wait)(void *set, struct event *event, unsigned wait_ms);
};

static bool load(struct kvr_nvml *nvml)
{
    const struct {
        const char *name;
        void *place;
        bool needed;
    } symbols[] = {
        {"nvmlInit_v2", &nvml->init, true},
        {"nvmlShutdown", &nvml->shutdown, true},
        {"nvmlSystemGetDriverVersion", &nvml->driver, true},
        {"nvmlDeviceGetCount_v2", &nvml->get_count, true},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->handle, true},
        {"nvmlDeviceGetName", &nvml->name, true},
        {"nvmlDeviceGetMemoryInfo", &nvml->memory, true},
        {"nvmlDeviceGetTotalEccErrors", &nvml->errors, false},
        {"nvmlDeviceGetTemperature", &nvml->temperature, false},
        {"nvmlDeviceGetRetiredPages", &nvml->retired, false},
        {"nvmlDeviceGetRetiredPagesPendingStatus", &nvml->retired_pending, false},
        {"nvmlDeviceGetRemappedRows", &nvml->remapped, false},
        {"nvmlDeviceGetMaxPcieLinkGeneration", &nvml->most_generation, false},
        {"nvmlDeviceGetMaxPcieLinkWidth", &nvml->most_width, false},
        {"nvmlDeviceGetCurrPcieLinkWidth", &nvml->width, false},
        {"nvmlEventSetCreate", &nvml->event_set, false},
        {"nvmlEventSetFree", &nvml->event_free, false},
        {"nvmlDeviceRegisterEvents", &nvml->event_register, false},
        {"nvmlEventSetWait_v2", &nvml->event_wait, false},
    };

    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(nvml->library, symbols[i].name);
        if (!symbol && symbols[i].needed)
            return false;
        memcpy(symbols[i].place, &symbol, sizeof symbol);
    }
    return true;
}

enum kvr_status kvr_nvml_open(struct kvr_nvml **out, uint32_t *count, struct kvr_error *error)
{
    struct kvr_nvml *nvml = calloc(1, sizeof *nvml);
    enum kvr_status status = KVR_OK;
    unsigned there = 0;

    if (!nvml)
        return kvr_error_memory(error);
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library)
        status = kvr_error_set(error, KVR_UNSUPPORTED, "no GPU: the driver's %s", dlerror());
    else if (!load(nvml) || nvml->init() != 0)
        status = kvr_error_set(error, KVR_UNSUPPORTED, "no GPU: NVML does not start");
    if (status != KVR_OK) {
        if (nvml->library)
            dlclose(nvml->library);
        free(nvml);
        return status;
    }
    if (nvml->get_count(&there) != 0 || there == 0) {
        kvr_nvml_close(nvml);
        return kvr_error_set(error, KVR_UNSUPPORTED, "no GPU: NVML lists none");
    }
    nvml->count = *count = there;
    *out = nvml;
    return KVR_OK;
}

void kvr_nvml_close(struct kvr_nvml *nvml)
{
    if (!nvml)
        return;
    if (nvml->events && nvml->event_free)
        nvml->event_free(nvml->events);
    nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}

static void read_memory_faults(
    const struct kvr_nvml *nvml, void *device, struct kvr_gpu_state *state)
{
    unsigned long long errors = 0;
    unsigned pages = 0, corrected = 0;
    int pending = 0;

    if (nvml->errors && nvml->errors(device, UNCORRECTED, VOLATILE, &errors) == 0) {
        state->has_ecc = true;
        state->uncorrected_errors = errors;
    }
    if (nvml->remapped && nvml->remapped(device, &corrected, &state->remapped_rows,
                              &state->remap_pending, &state->remap_failed) == 0)
        state->has_remapped = true;
    /* asked for the number alone, it says that there was no room for the addresses: 7 */
    int answer = nvml->retired ? nvml->retired(device, DOUBLE_BIT, &pages, NULL) : 1;
    if (answer == 0 || answer == 7) {
        state->has_retired = true;
        state->retired_pages = pages;
        if (nvml->retired_pending && nvml->retired_pending(device, &pending) == 0)
            state->retired_pending = pending != 0;
    }
}

static void read_one(int (*function)(void *, unsigned *), void *device, uint32_t *number)
{
    unsigned found = 0;

    *number = function && function(device, &found) == 0 ? found : 0;
}

void kvr_nvml_read(struct kvr_nvml *nvml, uint32_t number, struct kvr_gpu_state *state)
{
    struct memory_info memory;
    unsigned celsius = 0;
    void *device;

    *state = (struct kvr_gpu_state){0};
    if (nvml->driver(state->driver, sizeof state->driver) != 0 ||
        nvml->handle(number, &device) != 0 ||
        nvml->name(device, state->name, sizeof state->name) != 0 ||
        nvml->memory(device, &memory) != 0) {
        state->lost = true;
        return;
    }
    state->memory_bytes = (double)memory.total;
    state->free_bytes = (double)memory.free;
    if (nvml->temperature && nvml->temperature(device, 0, &celsius) == 0)
        state->celsius = celsius;
    read_memory_faults(nvml, device, state);
    read_one(nvml->most_generation, device, &state->link_generation);
    read_one(nvml->most_width, device, &state->link_width);
    read_one(nvml->width, device, &state->width_now);
}

bool kvr_nvml_watch(struct kvr_nvml *nvml, uint32_t number)
{
    void *device;

    if (!nvml->event_set || !nvml->event_free || !nvml->event_register || !nvml->event_wait ||
        number >= WATCHED)
        return false;
    if (!nvml->events && nvml->event_set(&nvml->events) != 0) {
        nvml->events = NULL;
        return false;
    }
    if (nvml->handle(number, &device) != 0 ||
        nvml->event_register(device, XID_EVENT, nvml->events) != 0)
        return false;
    nvml->watched[number] = device;
    return true;
}

bool kvr_nvml_next_xid(struct kvr_nvml *nvml, uint64_t *xid, uint32_t *number)
{
    struct event event = {0};

    if (!nvml->events || nvml->event_wait(nvml->events, &event, WAIT_MS) != 0)
        return false;
    *xid = event.data;
    for (*number = 0; *number + 1 < WATCHED && nvml->watched[*number] != event.device;)
        ++*number;
    return true;
}
