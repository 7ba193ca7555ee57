/*
 * The state file.
 *
 *   "KVRINDEX" | version | flags | seed | now | workers | pairs        48 bytes
 *   per worker, in order of id:
 *     name length | block size | exact | 0 | capacity tokens | capacity blocks | records | name, 0s
 *     records, oldest first: key | 8 bytes of stamp and parent, or of copies
 *   XXH3-64 of everything before
 *
 * Numbers are little-endian, the parts multiples of 8 bytes. The checksum is verified before a
 * byte is believed, and counts are still checked against the size, so that a file that somebody
 * made to fit the checksum can give a wrong index but nothing worse.
 */
#include "base/buffer.h"
#include "cache/index_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define STATE_VERSION 1u
#define CHUNK_BYTES ((size_t)1 << 20)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the state file is little-endian");

static const char magic[8] = {'K', 'V', 'R', 'I', 'N', 'D', 'E', 'X'};

enum state_flag {
    STATE_TTL = 1,  /* stamps mean something */
    STATE_WALK = 2, /* there may be holes */
};

struct state_header {
    char magic[8];
    uint32_t version;
    uint32_t flags;
    uint64_t seed;
    int64_t now_ms;
    uint64_t workers;
    uint64_t pairs;
};

struct state_worker {
    uint32_t name_length;
    uint32_t block_size;
    uint32_t exact;
    uint32_t zero;
    uint64_t capacity_tokens;
    uint64_t capacity_blocks;
    uint64_t records;
};

struct state_record {
    uint64_t key;
    uint64_t rest;
};

/* ---- saving ---- */

struct writer {
    int file;
    bool failed;
    struct kvr_buffer buffer;
    XXH3_state_t *sum;
};

static void write_out(struct writer *writer)
{
    const char *at = writer->buffer.data;
    size_t left = writer->buffer.length;

    while (left && !writer->failed) {
        ssize_t done = write(writer->file, at, left);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            writer->failed = true;
            return;
        }
        at += done;
        left -= (size_t)done;
    }
    kvr_buffer_clear(&writer->buffer);
}

static void put(struct writer *writer, const void *bytes, size_t length)
{
    if (writer->failed)
        return;
    XXH3_64bits_update(writer->sum, bytes, length);
    kvr_buffer_append(&writer->buffer, bytes, length);
    if (writer->buffer.failed) {
        errno = ENOMEM;
        writer->failed = true;
    } else if (writer->buffer.length >= CHUNK_BYTES) {
        write_out(writer);
    }
}

static void put_worker(
    struct writer *writer, const struct kvr_index *index, const struct kvr_index_worker *worker)
{
    static const char zeros[8];
    struct state_worker head = {worker->name_length, worker->block_size, worker->exact, 0,
        worker->capacity_tokens, worker->capacity_blocks, worker->count};

    put(writer, &head, sizeof head);
    put(writer, worker->name, worker->name_length);
    put(writer, zeros, -worker->name_length & 7);
    for (uint32_t record = worker->oldest; record; record = index->use[record].newer) {
        struct state_record line = {index->block[record].key, 0};
        memcpy(&line.rest, index->use[record].copies, sizeof line.rest);
        put(writer, &line, sizeof line);
    }
}

static void put_index(struct writer *writer, const struct kvr_index *index)
{
    struct state_header header = {.version = STATE_VERSION,
        .flags = (index->options.ttl_ms ? STATE_TTL : 0) | (index->walk ? STATE_WALK : 0),
        .seed = index->options.seed,
        .now_ms = index->time_known ? index->now_ms : INT64_MIN,
        .workers = index->names_used,
        .pairs = index->slots_taken};
    uint64_t sum;

    memcpy(header.magic, magic, sizeof magic);
    put(writer, &header, sizeof header);
    for (uint32_t i = 0; i < index->worker_top; i++)
        if (index->workers[i].name)
            put_worker(writer, index, &index->workers[i]);
    sum = XXH3_64bits_digest(writer->sum);
    put(writer, &sum, sizeof sum);
    write_out(writer);
}

static enum kvr_status no_file(struct kvr_error *error, const char *path)
{
    return kvr_error_set(error, KVR_IO, "'%s' is no regular file", path);
}

/* Writes a new file beside `path`, which is no link, and puts it in its place. */
static enum kvr_status replace(
    const struct kvr_index *index, const char *path, mode_t mode, struct kvr_error *error)
{
    struct writer writer = {.file = -1};
    struct kvr_buffer name = {0};
    enum kvr_status status = KVR_OK;

    kvr_buffer_append_format(&name, "%s.%ld.new", path, (long)getpid());
    writer.sum = XXH3_createState();
    if (!kvr_buffer_text(&name) || !writer.sum) {
        kvr_buffer_release(&name);
        XXH3_freeState(writer.sum);
        return kvr_error_memory(error);
    }
    XXH3_64bits_reset(writer.sum);
    writer.file = open(name.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (writer.file < 0) {
        status = kvr_error_errno(error, KVR_IO, "cannot write '%s'", name.data);
    } else {
        put_index(&writer, index);
        if (!writer.failed && fchmod(writer.file, mode) != 0)
            writer.failed = true;
        if (!writer.failed && fsync(writer.file) != 0)
            writer.failed = true;
        if (close(writer.file) != 0)
            writer.failed = true;
        if (writer.failed || rename(name.data, path) != 0) {
            status = kvr_error_errno(error, KVR_IO, "cannot write '%s'", path);
            unlink(name.data);
        }
    }
    kvr_buffer_release(&writer.buffer);
    kvr_buffer_release(&name);
    XXH3_freeState(writer.sum);
    return status;
}

enum kvr_status kvr_index_save(
    const struct kvr_index *index, const char *path, struct kvr_error *error)
{
    struct stat old;
    bool exists = stat(path, &old) == 0;
    enum kvr_status status;

    if (exists && !S_ISREG(old.st_mode))
        return no_file(error, path); /* a device or FIFO shall not be replaced by a file */
    char *target = exists ? realpath(path, NULL) : NULL; /* a link stays one */
    status = replace(index, target ? target : path, exists ? old.st_mode & 0777 : 0600, error);
    free(target);
    return status;
}

/* ---- loading ---- */

struct reader {
    const char *at;
    size_t left;
};

/* The next `length` bytes, or NULL when there are not so many. */
static const void *take(struct reader *reader, size_t length)
{
    const char *at = reader->at;

    if (length > reader->left)
        return NULL;
    reader->at += length;
    reader->left -= length;
    return at;
}

static enum kvr_status broken(struct kvr_error *error, const char *name)
{
    return kvr_error_set(error, KVR_BAD_INPUT, "'%s' is damaged", name);
}

static enum kvr_status load_records(struct kvr_index *index, uint32_t id, uint64_t count,
    struct reader *from, const char *name, struct kvr_error *error)
{
    struct kvr_index_worker *worker = &index->workers[id];

    for (uint64_t i = 0; i < count; i++) {
        const void *bytes = take(from, sizeof(struct state_record));
        struct state_record line;
        uint32_t record;
        bool fresh;
        if (!bytes)
            return broken(error, name);
        memcpy(&line, bytes, sizeof line);
        while (!kvr_index_room(index))
            if (!kvr_index_give_up_one(index))
                return kvr_error_set(error, KVR_NO_MEMORY,
                    "'%s' does not fit into the memory bound of the prefix index", name);
        record = kvr_index_insert(index, line.key, id, &fresh);
        if (!fresh)
            return broken(error, name);
        memcpy(index->use[record].copies, &line.rest, sizeof line.rest);
        kvr_index_link_newest(index, worker, record);
    }
    kvr_index_watch_expiry(index, id);
    return KVR_OK;
}

static enum kvr_status load_worker(
    struct kvr_index *index, struct reader *from, const char *name, struct kvr_error *error)
{
    const void *bytes = take(from, sizeof(struct state_worker));
    struct state_worker head;
    const char *text;
    uint32_t id, known = index->names_used;
    enum kvr_status status;

    if (!bytes)
        return broken(error, name);
    memcpy(&head, bytes, sizeof head);
    if (head.name_length > KVR_INDEX_MAX_NAME_BYTES ||
        head.records > from->left / sizeof(struct state_record) || head.exact > 1 ||
        (head.records && !head.block_size))
        return broken(error, name);
    text = take(from, (head.name_length + 7u) & ~7u);
    if (!text)
        return broken(error, name);
    status = kvr_index_worker(index, text, head.name_length, &id, error);
    if (status == KVR_NO_MEMORY)
        return status;
    if (status != KVR_OK || index->names_used == known)
        return broken(error, name);
    if (head.block_size) {
        struct kvr_blocks blocks = {.block_size = head.block_size};
        kvr_index_bind_block_size(index, id, &blocks, NULL);
    }
    index->workers[id].exact = head.exact;
    status = load_records(index, id, head.records, from, name, error);
    if (status == KVR_OK)
        kvr_index_worker_capacity(index, id, head.capacity_tokens, head.capacity_blocks);
    return status;
}

static enum kvr_status load_index(
    struct kvr_index *index, struct reader *from, const char *name, struct kvr_error *error)
{
    const void *bytes = take(from, sizeof(struct state_header));
    struct state_header header;
    uint64_t sum;

    if (!bytes || memcmp(bytes, magic, sizeof magic) != 0)
        return kvr_error_set(error, KVR_BAD_INPUT, "'%s' is no state of a prefix index", name);
    memcpy(&header, bytes, sizeof header);
    if (header.version != STATE_VERSION)
        return kvr_error_set(error, KVR_BAD_INPUT, "'%s' has version %u, not %u", name,
            header.version, STATE_VERSION);
    if (from->left < sizeof sum)
        return broken(error, name);
    from->left -= sizeof sum;
    memcpy(&sum, from->at + from->left, sizeof sum);
    if (XXH3_64bits(bytes, sizeof header + from->left) != sum)
        return broken(error, name);
    if (!(header.flags & STATE_TTL) != !index->options.ttl_ms)
        return kvr_error_set(error, KVR_BAD_INPUT, "'%s' was saved %s a time to live", name,
            header.flags & STATE_TTL ? "with" : "without");
    index->options.seed = header.seed;
    if (header.now_ms != INT64_MIN) {
        index->now_ms = header.now_ms;
        index->time_known = true;
    }
    for (uint64_t i = 0; i < header.workers; i++) {
        enum kvr_status status = load_worker(index, from, name, error);
        if (status != KVR_OK)
            return status;
    }
    index->walk = (header.flags & STATE_WALK) && index->slots_taken;
    return from->left ? broken(error, name) : KVR_OK;
}

enum kvr_status kvr_index_load_bytes(struct kvr_index *index, const void *data, size_t size,
    const char *name, struct kvr_error *error)
{
    struct reader from = {data, size};
    uint64_t seed = index->options.seed;
    enum kvr_status status;

    kvr_index_reset(index);
    status = load_index(index, &from, name, error);
    if (status != KVR_OK) {
        kvr_index_reset(index);
        index->options.seed = seed;
    }
    return status;
}

enum kvr_status kvr_index_load(struct kvr_index *index, const char *path, struct kvr_error *error)
{
    struct kvr_buffer content = {0};
    enum kvr_status status = KVR_OK;
    struct stat kind;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO shall not hold us up */

    kvr_index_reset(index);
    if (file < 0)
        return kvr_error_errno(error, KVR_IO, "cannot read '%s'", path);
    if (fstat(file, &kind) != 0 || !S_ISREG(kind.st_mode))
        status = no_file(error, path); /* it might never end */
    while (status == KVR_OK) {
        ssize_t done;
        if (!kvr_buffer_reserve(&content, CHUNK_BYTES)) {
            status = kvr_error_memory(error);
            break;
        }
        done = read(file, content.data + content.length, CHUNK_BYTES);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            status = kvr_error_errno(error, KVR_IO, "cannot read '%s'", path);
        if (done <= 0)
            break;
        content.length += (size_t)done;
    }
    close(file);
    if (status == KVR_OK)
        status = kvr_index_load_bytes(index, content.data, content.length, path, error);
    kvr_buffer_release(&content);
    return status;
}
