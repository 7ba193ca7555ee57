/*
 * Foreign records to stream lines: --from FORMAT. A format is one file with a struct of functions
 * and one row in the table of format.c.
 *
 * Ownership: convert() appends whole lines, each ended by a newline, to out; the caller parses them
 * like any other line. Formats keep what they need between the lines of a file in their state.
 */
#ifndef KVR_LINE_FORMAT_H
#define KVR_LINE_FORMAT_H

#include "line/line.h"

struct kvr_format {
    const char *name;
    const char *summary; /* one sentence for help and manual */
    /* Bytes of state that begin() and convert() get, zeroed at creation. */
    size_t state_bytes;
    /* The record is one JSON object (line is parsed), not text (only line->source is set). */
    bool json;
    /* A new input begins; may be NULL. */
    enum kvr_status (*begin)(void *state, const char *file, struct kvr_error *error);
    enum kvr_status (*convert)(
        void *state, const struct kvr_line *line, struct kvr_buffer *out, struct kvr_error *error);
    /* Frees what the state holds; may be NULL. */
    void (*release)(void *state);
};

/* All formats, ended by NULL. "kvr" is the first and has no convert(): lines are taken as they are.
 */
extern const struct kvr_format *const kvr_formats[];

/* NULL when there is none of that name. */
const struct kvr_format *kvr_format_find(const char *name);

/* "kvr|mooncake|...": the values of an option row. */
#define KVR_FORMAT_NAMES                                                                           \
    "kvr|mooncake|bailian|azure|ragpulse|agent|aiperf|vllm-bench|sglang|litellm|nginx"

#endif
