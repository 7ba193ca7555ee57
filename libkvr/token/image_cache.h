/*
 * Compiled vocabularies on disk: DIRECTORY/compiled-HASH.kvv, HASH from the path of the source. A
 * file is written under another name and renamed, so a reader sees a whole one or none. It counts
 * only if its header names the source's size, time and inode and its checksum is right; anything
 * else is as if it were not there.
 */
#ifndef KVR_TOKEN_IMAGE_CACHE_H
#define KVR_TOKEN_IMAGE_CACHE_H

#include "base/pages.h"

#include <stddef.h>
#include <stdint.h>

struct stat;

struct kvr_image_key {
    uint64_t path_hash, bytes, mtime_ns, id;
};

void kvr_image_key_of(struct kvr_image_key *key, const char *path, const struct stat *info);

/* Reads the image of that key into *pages, which must be empty. False where there is none. */
bool kvr_image_cache_read(const char *directory, const struct kvr_image_key *key,
    struct kvr_pages *pages, size_t *length);

/* Stores a copy of the image; false where that fails. Makes the directory if its parent exists. */
bool kvr_image_cache_store(
    const char *directory, const struct kvr_image_key *key, const void *image, size_t length);

#endif
