#include "token/file.h"
#include "base/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK = 1 << 20 };

/* The last four bytes say how much the last member unpacks to: as a rule all there is. It is only a
 * guess for the first room, so nothing is lost where it is wrong. */
static void guess_room(const uint8_t *bytes, size_t length, struct kvr_buffer *out)
{
    if (out->data || length < 18)
        return;
    const uint8_t *end = bytes + length - 4;
    uint64_t size =
        end[0] | (uint64_t)end[1] << 8 | (uint64_t)end[2] << 16 | (uint64_t)end[3] << 24;
    if (size > KVR_FILE_LIMIT || size / 1032 > length) /* what deflate can do at most */
        return;
    out->data = kvr_pages_malloc((size_t)size + CHUNK);
    out->capacity = out->data ? (size_t)size + CHUNK : 0;
}

enum kvr_status kvr_gunzip(
    const void *bytes, size_t length, struct kvr_buffer *out, struct kvr_error *error)
{
    z_stream z = {.next_in = (void *)(uintptr_t)bytes, .avail_in = (uInt)length};
    size_t before = out->length;
    int result = Z_OK;

    if (length > KVR_FILE_LIMIT)
        return kvr_error_set(error, KVR_BAD_INPUT, "larger than 1 GiB");
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return kvr_error_memory(error);
    guess_room(bytes, length, out);
    while (result == Z_OK && out->length - before <= KVR_FILE_LIMIT &&
           kvr_buffer_reserve(out, CHUNK)) {
        z.next_out = (Bytef *)out->data + out->length;
        z.avail_out = CHUNK;
        result = inflate(&z, Z_NO_FLUSH);
        out->length += CHUNK - z.avail_out;
        if (result == Z_STREAM_END && z.avail_in > 1 && kvr_is_gzip(z.next_in, z.avail_in))
            result = inflateReset(&z); /* another member */
    }
    inflateEnd(&z);
    if (out->failed)
        return kvr_error_memory(error);
    if (out->length - before > KVR_FILE_LIMIT)
        return kvr_error_set(error, KVR_BAD_INPUT, "unpacks to more than 1 GiB");
    return result == Z_STREAM_END ? KVR_OK
                                  : kvr_error_set(error, KVR_BAD_INPUT, "damaged gzip data");
}

enum kvr_status kvr_read_descriptor(int descriptor, struct kvr_buffer *out, struct kvr_error *error)
{
    struct stat info;
    size_t room = 1 << 16;

    if (fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode)) {
        if (info.st_size > (off_t)KVR_FILE_LIMIT)
            return kvr_error_set(error, KVR_BAD_INPUT, "larger than 1 GiB");
        room = (size_t)info.st_size + 1; /* one more: the end shows without growing */
    }
    if (!out->data && (out->data = kvr_pages_malloc(room)))
        out->capacity = room;
    for (;;) {
        if (out->length > KVR_FILE_LIMIT)
            return kvr_error_set(error, KVR_BAD_INPUT, "larger than 1 GiB");
        if (!kvr_buffer_reserve(out, room))
            return kvr_error_memory(error);
        ssize_t count = read(descriptor, out->data + out->length, out->capacity - out->length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return kvr_error_errno(error, KVR_IO, "reading");
        if (!count)
            return KVR_OK;
        out->length += (size_t)count;
        room = out->capacity > out->length ? 1 : 1 << 16;
    }
}

enum kvr_status kvr_read_file(const char *path, struct kvr_buffer *out, struct kvr_error *error)
{
    struct kvr_buffer packed = {0};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);

    if (descriptor < 0)
        return kvr_error_errno(error, KVR_IO, "'%s'", path);
    enum kvr_status status = kvr_read_descriptor(descriptor, &packed, error);
    close(descriptor);
    if (!status && kvr_is_gzip(packed.data, packed.length))
        status = kvr_gunzip(packed.data, packed.length, out, error);
    else if (!status)
        kvr_buffer_append(out, packed.data, packed.length);
    if (!status && out->failed)
        status = kvr_error_memory(error);
    kvr_buffer_release(&packed);
    if (status)
        kvr_error_prefix(error, "'%s'", path);
    return status;
}
