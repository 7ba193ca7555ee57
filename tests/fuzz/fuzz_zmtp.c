/* Any bytes from a peer, in any pieces: messages within the bytes that came, or the end of the
 * connection; what is kept stays within the budget. Input: a byte of how it is cut, then the bytes.
 */
#include "net/zmtp.h"

#include <stdlib.h>

enum { LIMIT = 1000 };

static void require(bool truth)
{
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_zmtp_budget budget = {0, 1 << 20};
    struct kvr_zmtp_reader reader = {.limit = LIMIT, .budget = &budget};
    struct kvr_frame frames[KVR_MESSAGE_FRAMES];
    const char *why = NULL;
    size_t at = 1, step = size ? 1 + data[0] : 1, count, room;

    for (;;) {
        enum kvr_zmtp_piece piece = kvr_zmtp_reader_next(&reader, frames, &count, &why);
        if (piece == KVR_ZMTP_BROKEN) {
            require(why != NULL);
            break;
        }
        if (piece == KVR_ZMTP_MORE) {
            if (at >= size)
                break;
            require(kvr_zmtp_reader_room(&reader, &room) && room);
            size_t some = size - at < step ? size - at : step;
            some = some < room ? some : room;
            memcpy(reader.bytes.data + reader.bytes.length, data + at, some);
            reader.bytes.length += some;
            at += some;
            require(reader.bytes.length <= 2 * LIMIT + 256 + KVR_ZMTP_CHUNK);
            continue;
        }
        size_t total = 0;
        require(count >= 1 && count <= KVR_MESSAGE_FRAMES);
        for (size_t i = 0; i < count; i++) {
            const uint8_t *from = (const uint8_t *)reader.bytes.data;
            require(frames[i].data >= from &&
                    frames[i].data + frames[i].size <= from + reader.bytes.length);
            total += frames[i].size;
        }
        require(total <= LIMIT);
    }
    kvr_zmtp_reader_release(&reader);
    require(budget.used == 0);
    return 0;
}
