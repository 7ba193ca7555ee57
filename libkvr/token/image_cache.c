#include "token/image_cache.h"
#include "token/vocabulary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Of the layout and of what loaders make of a file; any change of these: one more. */
#define IMAGE_VERSION 7

void kvr_image_key_of(struct kvr_image_key *key, const char *path, const struct stat *info)
{
    char *real = realpath(path, NULL);
    const char *name = real ? real : path;
    /* who unpacks files may set their time of change as he likes, but not this one */
    uint64_t place[] = {(uint64_t)info->st_ino, (uint64_t)info->st_dev,
        (uint64_t)info->st_ctim.tv_sec, (uint64_t)info->st_ctim.tv_nsec};

    *key = (struct kvr_image_key){
        .path_hash = XXH3_64bits(name, strlen(name)),
        .bytes = (uint64_t)info->st_size,
        .mtime_ns =
            (uint64_t)info->st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)info->st_mtim.tv_nsec,
        .id = XXH3_64bits(place, sizeof place),
    };
    free(real);
}

static uint64_t checksum(const void *image, size_t length)
{
    size_t skip = sizeof(struct kvr_image_header);

    return XXH3_64bits((const char *)image + skip, length - skip);
}

static void file_name(
    char *out, size_t size, const char *directory, const struct kvr_image_key *key)
{
    snprintf(out, size, "%s/compiled-%016" PRIx64 ".kvv", directory, key->path_hash);
}

static bool read_all(int descriptor, char *bytes, size_t length)
{
    while (length) {
        ssize_t count = read(descriptor, bytes, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        bytes += count;
        length -= (size_t)count;
    }
    return true;
}

bool kvr_image_cache_read(
    const char *directory, const struct kvr_image_key *key, struct kvr_pages *pages, size_t *length)
{
    char name[4096];
    struct stat info;
    bool whole = false;

    file_name(name, sizeof name, directory, key);
    int descriptor = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait */
    if (descriptor < 0)
        return false;
    /* only our own file, or root's, is trusted */
    if (fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) &&
        (info.st_uid == geteuid() || info.st_uid == 0) &&
        (size_t)info.st_size > sizeof(struct kvr_image_header)) {
        *length = (size_t)info.st_size;
        whole = kvr_pages_grow(pages, *length) && read_all(descriptor, pages->data, *length);
    }
    close(descriptor);
    const struct kvr_image_header *h = pages->data;
    if (whole && memcmp(h->magic, "kvrvocab", 8) == 0 && h->version == IMAGE_VERSION &&
        h->source_bytes == key->bytes && h->source_mtime_ns == key->mtime_ns &&
        h->source_id == key->id && h->checksum == checksum(pages->data, *length))
        return true;
    kvr_pages_release(pages);
    return false;
}

static int write_all(int descriptor, const char *bytes, size_t length)
{
    while (length) {
        ssize_t count = write(descriptor, bytes, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return -1;
        bytes += count;
        length -= (size_t)count;
    }
    return 0;
}

bool kvr_image_cache_store(
    const char *directory, const struct kvr_image_key *key, const void *image, size_t length)
{
    struct kvr_image_header header;
    char name[4096], temporary[4128];

    memcpy(&header, image, sizeof header);
    header.version = IMAGE_VERSION;
    header.source_bytes = key->bytes;
    header.source_mtime_ns = key->mtime_ns;
    header.source_id = key->id;
    header.checksum = checksum(image, length);
    mkdir(directory, 0777);
    file_name(name, sizeof name, directory, key);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", name);
    int descriptor = mkostemp(temporary, O_CLOEXEC);
    if (descriptor < 0)
        return false;
    int failed = write_all(descriptor, (const char *)&header, sizeof header) ||
                 write_all(descriptor, (const char *)image + sizeof header, length - sizeof header);
    failed |= close(descriptor) != 0;
    failed = failed || rename(temporary, name) != 0;
    if (failed)
        unlink(temporary);
    return !failed;
}
