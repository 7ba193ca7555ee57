/* Time of this machine, and time of a stream. Everything that simulates or replays takes its time
 * from its caller. */
#ifndef KVR_BASE_CLOCK_H
#define KVR_BASE_CLOCK_H

#include <stdbool.h>

/* Milliseconds of a clock that only goes forward; its zero is arbitrary. */
double kvr_clock_ms(void);

/* Milliseconds since 1970 in UTC. */
double kvr_clock_wall_ms(void);

/* Milliseconds of processor time that this process has used. */
double kvr_clock_processor_ms(void);

/*
 * The time of a stream, which never runs backwards, from timestamps of its lines, which may: by a
 * little where the lines of several sources are interleaved, and time stands still then. A step
 * back by more than KVR_CLOCK_JITTER_MS, or one ahead by more than KVR_CLOCK_LEAP_MS, is another
 * clock: a second trace behind the first, a wrong line. Time stands still for that step and goes
 * on with the steps that follow, so that nothing that waits for its end waits for ever.
 * All zero bytes is a clock that has not begun.
 */
#define KVR_CLOCK_JITTER_MS 60e3
#define KVR_CLOCK_LEAP_MS 1e13 /* three centuries: a first step from 0 to the present is none */

struct kvr_stream_clock {
    double now_ms;
    double shift_ms; /* from the lines' clock to this one */
    bool started;
};

/* The time at a line with this timestamp. One that is not finite does not move it. */
double kvr_stream_clock_follow(struct kvr_stream_clock *clock, double timestamp_ms);

#endif
