/*
 * NVML for tests, of as many GPUs as $GPUS says, called $NAME. $FAULTS names what is wrong, each
 * with the GPU that has it, as "ecc1 xid0": ecc, retired, pending, remap, memory, hot, narrow,
 * lost, xid.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 16, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15 };

struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

static long devices[DEVICES];
static int watched[DEVICES];

static int number_of(void *device)
{
    return (int)((long *)device - devices);
}

static int has(const char *fault, int number)
{
    const char *faults = getenv("FAULTS");
    char wanted[32];

    snprintf(wanted, sizeof wanted, "%s%d", fault, number);
    return faults && strstr(faults, wanted) != NULL;
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "580.1");
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = getenv("GPUS") ? (unsigned)atoi(getenv("GPUS")) : 1;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &devices[index];
    return 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned size)
{
    if (has("lost", number_of(device)))
        return GPU_IS_LOST;
    snprintf(text, size, "%s 80GB", getenv("NAME") ? getenv("NAME") : "Mock\033[2J");
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    memory[0] = has("memory", number_of(device)) ? 60ull << 30 : 80ull << 30;
    memory[1] = memory[0] - (1ull << 30);
    memory[2] = 1ull << 30;
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    (void)sensor;
    *celsius = has("hot", number_of(device)) ? 95 : 40;
    return 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count)
{
    *count = has("ecc", number_of(device)) && kind == 1 && counter == 0 ? 3 : 0;
    return 0;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetRetiredPages(
    void *device, int cause, unsigned *count, unsigned long long *addresses)
{
    (void)addresses;
    if (cause != 1 || *count != 0)
        return 2;
    *count = has("retired", number_of(device)) ? 61 : 0;
    return *count ? INSUFFICIENT_SIZE : 0;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *device, int *pending)
{
    *pending = has("pending", number_of(device));
    return 0;
}

int nvmlDeviceGetRemappedRows(
    void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    *corrected = 4;
    *uncorrected = 2;
    *pending = 0;
    *failed = has("remap", number_of(device));
    return 0;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation)
{
    (void)device;
    *generation = getenv("GENERATION") ? (unsigned)atoi(getenv("GENERATION")) : 0;
    return *generation ? 0 : 3;
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *width)
{
    (void)device;
    *width = 16;
    return 0;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *width)
{
    *width = has("narrow", number_of(device)) ? 8 : 16;
    return 0;
}

int nvmlEventSetCreate(void **set)
{
    *set = watched;
    return 0;
}

int nvmlEventSetFree(void *set)
{
    (void)set;
    return 0;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
    if (types != 8 || set != watched)
        return 2;
    watched[number_of(device)] = 1;
    return 0;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned wait_ms)
{
    (void)wait_ms;
    for (int i = 0; set == watched && i < DEVICES; i++) {
        if (!watched[i] || !has("xid", i))
            continue;
        watched[i] = 0;
        *event = (struct event){&devices[i], 8, 79, 0, 0};
        return 0;
    }
    return TIMEOUT;
}
#endif
