#include "base/clock.h"

#include <time.h>

static double read_ms(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

double kvr_clock_ms(void)
{
    return read_ms(CLOCK_MONOTONIC);
}

double kvr_clock_wall_ms(void)
{
    return read_ms(CLOCK_REALTIME);
}

double kvr_clock_processor_ms(void)
{
    return read_ms(CLOCK_PROCESS_CPUTIME_ID);
}
