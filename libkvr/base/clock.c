#include "base/clock.h"

#include <math.h>
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

double kvr_stream_clock_follow(struct kvr_stream_clock *clock, double timestamp_ms)
{
    if (!isfinite(timestamp_ms))
        return clock->now_ms;
    double step_ms = timestamp_ms + clock->shift_ms - clock->now_ms;
    bool small = step_ms >= -KVR_CLOCK_JITTER_MS || !clock->started;
    if (!small || fabs(step_ms) > KVR_CLOCK_LEAP_MS)
        clock->shift_ms = clock->now_ms - timestamp_ms;
    else if (step_ms > 0 || !clock->started)
        clock->now_ms += step_ms;
    clock->started = true;
    return clock->now_ms;
}
