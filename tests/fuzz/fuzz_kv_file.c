/* Any bytes as a file of messages: read to their end or refused, and what is read is written again
 * the same. */
#include "net/kv_event_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LIMIT = 1 << 16, MESSAGES = 10000 };

static void require(bool truth)
{
    if (!truth)
        abort();
}

/* A reader of bytes in memory. */
static struct kvr_kv_reader *reader_of(int descriptor, const void *data, size_t size)
{
    struct kvr_kv_reader *reader = NULL;
    char path[64];

    require(write(descriptor, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    require(kvr_kv_reader_open(&reader, path, LIMIT, NULL) == KVR_OK);
    return reader;
}

static bool same(const struct kvr_kv_record *a, const struct kvr_kv_record *b)
{
    if (a->frame_count != b->frame_count || strcmp(a->source, b->source) != 0)
        return false;
    for (size_t i = 0; i < a->frame_count; i++)
        if (a->frames[i].size != b->frames[i].size ||
            memcmp(a->frames[i].data, b->frames[i].data, a->frames[i].size) != 0)
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int first = memfd_create("first", 0), second = memfd_create("second", 0);
    struct kvr_buffer written = {0};
    struct kvr_kv_record record, again;
    struct kvr_error error = {0};
    enum kvr_status status;
    int count = 0;

    require(first >= 0 && second >= 0);
    struct kvr_kv_reader *reader = reader_of(first, data, size);
    kvr_kv_record_begin(&written);
    while (count < MESSAGES && (status = kvr_kv_reader_next(reader, &record, &error)) == KVR_OK) {
        kvr_kv_record_append(&written, &record);
        count++;
    }
    kvr_kv_reader_close(reader);
    struct kvr_kv_reader *original;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", first);
    require(kvr_kv_reader_open(&original, path, LIMIT, NULL) == KVR_OK);
    reader = reader_of(second, written.data, written.length);
    for (int i = 0; i < count; i++) {
        require(kvr_kv_reader_next(original, &record, &error) == KVR_OK);
        require(kvr_kv_reader_next(reader, &again, &error) == KVR_OK);
        require(same(&record, &again));
    }
    require(kvr_kv_reader_next(reader, &again, &error) == KVR_END);
    kvr_kv_reader_close(reader);
    kvr_kv_reader_close(original);
    kvr_buffer_release(&written);
    close(first);
    close(second);
    return 0;
}
