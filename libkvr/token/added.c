#include "token/added.h"

#include <stdlib.h>

#define LONG_TEXT 48 /* bytes */

void kvr_added_release(struct kvr_added *added)
{
    kvr_buffer_release(&added->units);
    kvr_backward_release(&added->backward);
    memset(added, 0, sizeof *added);
}

enum kvr_status kvr_added_build(struct kvr_added *added, const uint8_t *bytes,
    const struct kvr_source_token *texts, uint32_t count, struct kvr_error *error)
{
    struct kvr_ordered_text *order = malloc(((size_t)count + 1) * sizeof *order);
    uint32_t longest = 0;
    int starts = 0;

    memset(added, 0, sizeof *added);
    added->only_start = -1;
    for (uint32_t i = 0; order && i < count; i++) {
        if (!texts[i].length)
            continue;
        order[added->count++].id = i;
        added->starts[bytes[texts[i].offset]] = true;
        longest = texts[i].length > longest ? texts[i].length : longest;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (added->starts[byte]) {
            added->only_start = byte;
            starts++;
        }
    }
    if (starts != 1)
        added->only_start = -1;
    added->is_long = longest > LONG_TEXT;
    if (added->is_long) {
        free(order);
        return kvr_backward_build(&added->backward, bytes, texts, count, error);
    }
    enum kvr_status status = KVR_OK;
    if (!order || !kvr_text_order(order, added->count, bytes, texts))
        status = kvr_error_memory(error);
    if (!status) {
        added->count = kvr_text_order_unique(order, added->count);
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

uint32_t kvr_added_find(const struct kvr_added *added, struct kvr_backward_matches *matches,
    const uint8_t *text, size_t from, size_t length, size_t *start, size_t *stop)
{
    if (!added->count)
        return KVR_NO_TOKEN;
    if (added->is_long)
        return kvr_backward_find(&added->backward, matches, text, from, length, start, stop);
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
