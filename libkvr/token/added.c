#include "token/added.h"

#include <stdlib.h>

void kvr_added_release(struct kvr_added *added)
{
    kvr_buffer_release(&added->units);
    memset(added, 0, sizeof *added);
}

/* Those of the texts in order that are not the same as the one before, which has the lower number.
 */
static uint32_t drop_repeated(struct kvr_ordered_text *order, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (!i || order[i].shared < order[i].length || order[i - 1].length != order[i].length)
            order[kept++] = order[i];
    return kept;
}

enum kvr_status kvr_added_build(struct kvr_added *added, const uint8_t *bytes,
    const struct kvr_source_token *texts, uint32_t count, struct kvr_error *error)
{
    struct kvr_ordered_text *order = malloc(((size_t)count + 1) * sizeof *order);
    int starts = 0;

    memset(added, 0, sizeof *added);
    added->only_start = -1;
    for (uint32_t i = 0; order && i < count; i++) {
        if (!texts[i].length)
            continue;
        order[added->count++].id = i;
        added->starts[bytes[texts[i].offset]] = true;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (added->starts[byte]) {
            added->only_start = byte;
            starts++;
        }
    }
    if (starts != 1)
        added->only_start = -1;
    enum kvr_status status = KVR_OK;
    if (!order || !kvr_text_order(order, added->count, bytes, texts))
        status = kvr_error_memory(error);
    if (!status) {
        added->count = drop_repeated(order, added->count);
        status = kvr_trie_build(order, added->count, bytes, texts, &added->units, error);
    }
    free(order);
    return status;
}

/* The longest text that stands at `from`; its length in *size. */
static uint32_t match_at(
    const struct kvr_added *added, const uint8_t *text, size_t from, size_t length, size_t *size)
{
    const uint64_t *trie = (const uint64_t *)(const void *)added->units.data;
    uint64_t unit = trie[0];
    uint32_t found = KVR_NO_TOKEN;

    for (size_t at = from; at < length; at++) {
        unit = trie[KVR_TRIE_BASE(unit) ^ text[at]];
        if (KVR_TRIE_LABEL(unit) != text[at])
            break;
        if (KVR_TRIE_TOKEN(unit) != KVR_NO_TOKEN) {
            found = KVR_TRIE_TOKEN(unit);
            *size = at + 1 - from;
        }
    }
    return found;
}

uint32_t kvr_added_find(const struct kvr_added *added, const uint8_t *text, size_t from,
    size_t length, size_t *start, size_t *stop)
{
    if (!added->count)
        return KVR_NO_TOKEN;
    for (size_t at = from; at < length; at++) {
        size_t size = 0;
        if (added->only_start >= 0) {
            const uint8_t *next = memchr(text + at, added->only_start, length - at);
            if (!next)
                return KVR_NO_TOKEN;
            at = (size_t)(next - text);
        } else if (!added->starts[text[at]]) {
            continue;
        }
        uint32_t found = match_at(added, text, at, length, &size);
        if (found != KVR_NO_TOKEN) {
            *start = at;
            *stop = at + size;
            return found;
        }
    }
    return KVR_NO_TOKEN;
}
