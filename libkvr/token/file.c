#include "token/file.h"
#include "base/pages.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK = 1 << 20 };

/* The last four bytes say how much the last member unpacks to: as a rule all there is. It is only a
 * guess for the first room, so nothing is lost where it is wrong. Returns the guess, or 0. */
static size_t guess_room(const uint8_t *bytes, size_t length, struct kvr_buffer *out)
{
    if (out->data || length < 18)
        return 0;
    const uint8_t *end = bytes + length - 4;
    uint64_t size =
        end[0] | (uint64_t)end[1] << 8 | (uint64_t)end[2] << 16 | (uint64_t)end[3] << 24;
    if (size > KVR_FILE_LIMIT || size / 1032 > length) /* what deflate can do at most */
        return 0;
    out->data = kvr_pages_malloc((size_t)size + CHUNK);
    out->capacity = out->data ? (size_t)size + CHUNK : 0;
    return out->data ? (size_t)size : 0;
}

/*
 * libdeflate unpacks what lies in memory as a whole, in half of zlib's time, which is a fifth of
 * the time that a vocabulary takes to load. Nothing needs it: it is looked for when a large file
 * comes, and whatever it does not take (several members, damage, another size than the end says) is
 * left to zlib, which starts anew.
 */
struct libdeflate_decompressor;

static bool unpack_at_once(const uint8_t *bytes, size_t length, size_t size, struct kvr_buffer *out)
{
    struct libdeflate_decompressor *(*create)(void);
    int (*unpack)(
        struct libdeflate_decompressor *, const void *, size_t, void *, size_t, size_t *, size_t *);
    void (*destroy)(struct libdeflate_decompressor *);
    void *library = dlopen("libdeflate.so.0", RTLD_NOW | RTLD_LOCAL);
    size_t used = 0, made = 0;
    bool done = false;

    if (!library)
        return false;
    *(void **)&create = dlsym(library, "libdeflate_alloc_decompressor");
    *(void **)&unpack = dlsym(library, "libdeflate_gzip_decompress_ex");
    *(void **)&destroy = dlsym(library, "libdeflate_free_decompressor");
    struct libdeflate_decompressor *decompressor = create && unpack && destroy ? create() : NULL;
    if (decompressor) {
        done = unpack(decompressor, bytes, length, out->data, size, &used, &made) == 0 &&
               !(length - used > 1 && kvr_is_gzip(bytes + used, length - used));
        destroy(decompressor);
    }
    dlclose(library);
    out->length = done ? made : 0;
    return done;
}

enum kvr_status kvr_gunzip(
    const void *bytes, size_t length, struct kvr_buffer *out, struct kvr_error *error)
{
    z_stream z = {.next_in = (void *)(uintptr_t)bytes, .avail_in = (uInt)length};
    size_t before = out->length;
    int result = Z_OK;

    if (length > KVR_FILE_LIMIT)
        return kvr_error_set(error, KVR_BAD_INPUT, "larger than 1 GiB");
    size_t size = guess_room(bytes, length, out);
    const uint8_t *header = bytes; /* zlib checks what few headers have */
    if (size >= CHUNK && !(header[3] & 0xe2) && unpack_at_once(header, length, size, out))
        return KVR_OK;
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return kvr_error_memory(error);
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
