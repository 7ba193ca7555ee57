/*
 * What the formats of foreign logs share: one request line, built member by member, and times as
 * logs write them. Internal to line/.
 */
#ifndef KVR_LINE_FORMAT_RECORD_H
#define KVR_LINE_FORMAT_RECORD_H

#include "line/json.h"

#include <math.h>

/* One request as a log tells it. NaN, -1 and absent values: the log does not say. */
struct kvr_format_record {
    double timestamp_ms, ttft_ms, e2e_ms;
    int64_t input_length, output_length, cached_tokens, turn;
    int64_t status;                      /* HTTP; -1: no response is known */
    struct kvr_value id, session, model; /* strings or numbers, copied as they are written */
    struct kvr_text worker;              /* plain text; empty: not known */
};

static inline struct kvr_format_record kvr_format_record(void)
{
    return (struct kvr_format_record){.timestamp_ms = NAN,
        .ttft_ms = NAN,
        .e2e_ms = NAN,
        .input_length = -1,
        .output_length = -1,
        .cached_tokens = -1,
        .turn = -1,
        .status = -1};
}

/* Appends it as a line with its newline: id, timestamp, lengths, model, session, turn, route.worker
 * where the worker is known, response where a status is. */
void kvr_format_write(const struct kvr_format_record *record, struct kvr_buffer *out);

/* A whole number, also one in quotes or written 12.0; -1 for anything else. */
int64_t kvr_format_integer(struct kvr_value value);

/* A number, also one in quotes; NaN for anything else. */
double kvr_format_number(struct kvr_value value);

/*
 * A moment in ms since 1970: ISO 8601 text ("2026-01-31T10:00:00.123456Z", with a blank for the T,
 * with +01:00 or no zone, which is UTC), or a number of seconds. NaN for anything else.
 */
double kvr_format_moment_ms(struct kvr_value value);

#endif
