/*
 * A file mapped read-only: its bytes without a copy, read from the disk as they are touched. Who
 * cuts the file short while it is mapped ends the program with a SIGBUS, as with every mapping.
 */
#ifndef KVR_BASE_MAPPED_H
#define KVR_BASE_MAPPED_H

#include "base/error.h"

struct kvr_mapped {
    const unsigned char *data; /* NULL where the file is empty or none is open */
    size_t size;
};

/* A regular file. KVR_IO where it cannot be opened or mapped or is no regular file; the message
 * names it. */
enum kvr_status kvr_mapped_open(
    struct kvr_mapped *mapped, const char *path, struct kvr_error *error);
void kvr_mapped_close(struct kvr_mapped *mapped);

#endif
