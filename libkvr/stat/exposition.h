/*
 * The Prometheus text exposition format, as far as reading loads needs it: samples with their
 * labels. Comments, blank lines and lines that are no samples are passed over; nothing is copied.
 */
#ifndef KVR_STAT_EXPOSITION_H
#define KVR_STAT_EXPOSITION_H

#include "base/buffer.h"
#include "line/json.h"

struct kvr_exposition_sample {
    struct kvr_text name;
    struct kvr_text labels; /* what stands between the braces */
    double value;           /* may be NaN or infinite */
};

struct kvr_exposition {
    const char *at, *end;
    uint64_t bad_lines; /* passed over so far that were neither sample nor comment */
};

static inline struct kvr_exposition kvr_exposition_open(const char *text, size_t length)
{
    return (struct kvr_exposition){text, text + length, 0};
}

bool kvr_exposition_next(struct kvr_exposition *exposition, struct kvr_exposition_sample *sample);

/* The value of a label, its escapes undone, appended to out. False when there is none of the name.
 */
bool kvr_exposition_label(
    const struct kvr_exposition_sample *sample, const char *name, struct kvr_buffer *out);

#endif
