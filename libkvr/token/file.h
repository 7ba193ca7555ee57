/* Reading whole files of vocabularies, configurations and templates. */
#ifndef KVR_TOKEN_FILE_H
#define KVR_TOKEN_FILE_H

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>

#define KVR_FILE_LIMIT ((size_t)1 << 30) /* bytes, packed or not */

/* Whether bytes start as gzip does. */
static inline bool kvr_is_gzip(const void *bytes, size_t length)
{
    const unsigned char *magic = bytes;

    return length >= 2 && magic[0] == 0x1f && magic[1] == 0x8b;
}

/* Appends what gzip bytes unpack to. KVR_BAD_INPUT when they are damaged or unpack to too much. */
enum kvr_status kvr_gunzip(
    const void *bytes, size_t length, struct kvr_buffer *out, struct kvr_error *error);

/* Appends the rest of an open file as it is. */
enum kvr_status kvr_read_descriptor(
    int descriptor, struct kvr_buffer *out, struct kvr_error *error);

/* Appends a named file, unpacked where it is gzip. Messages name the file. */
enum kvr_status kvr_read_file(const char *path, struct kvr_buffer *out, struct kvr_error *error);

#endif
