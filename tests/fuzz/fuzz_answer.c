/*
 * Any bytes as an answer. The first byte says whether it is a stream, the second how it is cut. A
 * stream gives the same events whole and cut in pieces.
 */
#include "net/answer.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_event(void *context, const char *data, size_t length)
{
    kvr_buffer_append(context, data, length);
    kvr_buffer_append_byte(context, '\0');
}

static void feed_cut(const char *bytes, size_t size, size_t step, struct kvr_buffer *events)
{
    struct kvr_sse sse;

    kvr_sse_init(&sse, 1 << 16);
    for (size_t at = 0; at < size; at += step)
        if (kvr_sse_feed(&sse, bytes + at, size - at < step ? size - at : step, add_event, events,
                NULL) != KVR_OK)
            break;
    kvr_sse_release(&sse);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_buffer whole = {0}, cut = {0}, out = {0};
    struct kvr_answer answer;
    struct kvr_error error;

    if (size < 2)
        return 0;
    const char *bytes = (const char *)data + 2;
    size_t step = 1 + data[1] % 64, length = size - 2;
    feed_cut(bytes, length, length + 1, &whole);
    feed_cut(bytes, length, step, &cut);
    if (length < 1 << 16 && (whole.length != cut.length ||
                                (cut.length && memcmp(whole.data, cut.data, cut.length) != 0)))
        abort();
    if (kvr_answer_init(&answer, &error) != KVR_OK)
        return 0;
    answer.keep_intervals = true;
    kvr_answer_begin(&answer, data[0] & 1);
    for (size_t at = 0; at < length; at += step)
        kvr_answer_feed(&answer, bytes + at, length - at < step ? length - at : step, (double)at);
    kvr_answer_end(&answer, (double)length);
    kvr_answer_write(&answer, 200, 0, (double)length, "w", &out);
    kvr_answer_release(&answer);
    kvr_buffer_release(&whole);
    kvr_buffer_release(&cut);
    kvr_buffer_release(&out);
    return 0;
}
