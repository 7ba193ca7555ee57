/* Time of this machine. Everything that simulates or replays takes its time from its caller. */
#ifndef KVR_BASE_CLOCK_H
#define KVR_BASE_CLOCK_H

/* Milliseconds of a clock that only goes forward; its zero is arbitrary. */
double kvr_clock_ms(void);

/* Milliseconds since 1970 in UTC. */
double kvr_clock_wall_ms(void);

/* Milliseconds of processor time that this process has used. */
double kvr_clock_processor_ms(void);

#endif
