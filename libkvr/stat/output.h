/*
 * Renderings into files: written whole or not at all, and pictures through gnuplot.
 */
#ifndef KVR_STAT_OUTPUT_H
#define KVR_STAT_OUTPUT_H

#include "base/buffer.h"

/* Writes text beside `path` and renames it over: a reader sees the old file or the new one.
 * "-" is standard output. KVR_IO. */
enum kvr_status kvr_write_atomically(
    const char *path, const struct kvr_buffer *text, struct kvr_error *error);

/* Reads a whole file of at most 16 MiB. KVR_IO, KVR_NO_MEMORY, KVR_BAD_INPUT when it is larger. */
enum kvr_status kvr_read_whole(const char *path, struct kvr_buffer *text, struct kvr_error *error);

/* Runs gnuplot with a script on its standard input. KVR_UNSUPPORTED when it is not installed,
 * KVR_IO when it fails, with what it said. */
enum kvr_status kvr_run_gnuplot(const struct kvr_buffer *script, struct kvr_error *error);

#endif
