/*
 * Where lines come from: the files named, or standard input, one after the other, with other files,
 * FIFOs and sockets merged in as they arrive, whole lines interleaved.
 *
 * - gzip is recognised by its first bytes, in any input, several members in one file too.
 * - A byte order mark at the start of an input, and a carriage return before a newline, are no part
 *   of a line. The last line needs no newline. A line of nothing but whitespace is skipped.
 * - A line longer than the limit is a bad line: reported with its number, passed over, never kept
 *   in memory.
 * - A merged regular file is read whole before the first line of the main input: it has already
 *   arrived. A merged FIFO or socket is looked at whenever a main line is asked for; a FIFO whose
 *   writers left waits for new ones. When the main input ends, what the merged ones have at hand is
 *   still delivered, then the source ends.
 * - Before a read that may wait, before_wait() is called: the place to flush output.
 *
 * Ownership: a line's text is valid until the next call. Memory: one buffer an input, as large as
 * its longest line up to the limit.
 */
#ifndef KVR_LINE_SOURCE_H
#define KVR_LINE_SOURCE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_source;

struct kvr_source_options {
    const char *const *files; /* names; "-" is standard input; none: standard input */
    size_t file_count;
    const char *const *merged; /* -m */
    size_t merged_count;
    size_t line_limit_bytes;            /* 0: 64 MiB */
    void (*before_wait)(void *context); /* may be NULL */
    void *context;
};

struct kvr_source_line {
    const char *text; /* no newline */
    size_t length;
    const char *file; /* as it was named; "stdin" for standard input */
    uint64_t number;  /* from 1 */
    bool merged;      /* it came from a merged input */
};

/* Nothing is opened yet; names are kept by pointer and must outlive the source. */
enum kvr_status kvr_source_create(
    struct kvr_source **source, const struct kvr_source_options *options, struct kvr_error *error);
void kvr_source_destroy(struct kvr_source *source);

/*
 * The next line. KVR_END when there is none. KVR_BAD_INPUT: one bad line (line->file and number say
 * which) or the rest of one bad gzip file was passed over. KVR_IO: an input could not be opened or
 * read and is left out. After either the next call goes on. A signal that arrives while the source
 * waits makes it return KVR_END when *stop is set, see kvr_source_stop_when().
 */
enum kvr_status kvr_source_next(
    struct kvr_source *source, struct kvr_source_line *line, struct kvr_error *error);

/* Ends the source early as soon as *stop is non-zero (set by a signal handler). */
void kvr_source_stop_when(struct kvr_source *source, const volatile int *stop);

/* The descriptors whose next bytes the source waits for after before_wait(): for programs that wait
 * for other things as well, in before_wait(). At most `room` are written; returns how many, 0 where
 * the next file is about to be opened: nothing is to be waited for then. */
size_t kvr_source_descriptors(const struct kvr_source *source, int *descriptors, size_t room);

/* How many inputs, main and merged ones, could be opened so far. */
size_t kvr_source_opened(const struct kvr_source *source);

/* Bytes read from the main inputs so far (compressed bytes for gzip), and their sum where all are
 * regular files, else 0. For progress. */
void kvr_source_progress(const struct kvr_source *source, uint64_t *read, uint64_t *total);

#endif
