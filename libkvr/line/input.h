/*
 * One opened input of a source: a descriptor, gunzipped where it needs to be, cut into lines.
 * For line/source.h, and for programs with an event loop of their own.
 */
#ifndef KVR_LINE_INPUT_H
#define KVR_LINE_INPUT_H

#include "line/source.h"

#include <sys/types.h>

struct kvr_input {
    const char *name;
    int descriptor; /* -1: not open */
    bool regular;   /* reads never wait */
    bool fifo;
    bool ended;            /* no more bytes will come */
    bool started;          /* the first bytes were looked at for gzip and a byte order mark */
    bool skipping;         /* inside a line that is too long */
    void *inflate;         /* z_stream *, for gzip */
    unsigned char *packed; /* compressed bytes waiting for inflate */
    size_t packed_start, packed_end;
    bool inflate_done; /* at the end of a gzip member */
    char *buffer;
    size_t start, scanned, end, capacity; /* start <= scanned <= end: no newline before scanned */
    uint64_t line;                        /* lines begun */
    uint64_t read_bytes;                  /* from the descriptor */
};

/* Opens name ("-" is standard input, a unix socket is connected to). With no_wait a FIFO is opened
 * without waiting for a writer. KVR_END: a signal came while a FIFO's writer was waited for. */
enum kvr_status kvr_input_open(
    struct kvr_input *input, const char *name, bool no_wait, struct kvr_error *error);
void kvr_input_close(struct kvr_input *input);

/* A whole line out of the buffer; false when more bytes are needed or the input has ended. At the
 * end of the input what is left without a newline is a line. A line that is too long gives true
 * with text NULL. */
bool kvr_input_line(struct kvr_input *input, size_t limit, struct kvr_source_line *line);

/* Reads more bytes once. KVR_END: the input has ended (ended is set). KVR_OK with nothing read:
 * interrupted, or a descriptor that does not wait has nothing. */
enum kvr_status kvr_input_fill(struct kvr_input *input, size_t limit, struct kvr_error *error);

#endif
