#include "token/added.h"

#include <stdlib.h>

void kvr_added_release(struct kvr_added *added)
{
    kvr_buffer_release(&added->units);
    memset(added, 0, sizeof *added);
}

static int compare_keys(const void *a, const void *b)
{
    const struct kvr_trie_key *x = a, *y = b;
    uint32_t shared = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->bytes, y->bytes, shared);

    if (!order)
        order = (x->length > y->length) - (x->length < y->length);
    return order ? order : (x->token > y->token) - (x->token < y->token);
}

/* Of added tokens with the same text the first counts. */
static uint32_t drop_repeated(struct kvr_trie_key *keys, uint32_t count)
{
    uint32_t kept = 0;

    qsort(keys, count, sizeof *keys, compare_keys);
    for (uint32_t i = 0; i < count; i++)
        if (!kept || keys[kept - 1].length != keys[i].length ||
            memcmp(keys[kept - 1].bytes, keys[i].bytes, keys[i].length) != 0)
            keys[kept++] = keys[i];
    return kept;
}

enum kvr_status kvr_added_build(
    struct kvr_added *added, struct kvr_trie_key *keys, uint32_t count, struct kvr_error *error)
{
    int starts = 0;

    memset(added, 0, sizeof *added);
    count = drop_repeated(keys, count);
    added->count = count;
    added->only_start = -1;
    for (uint32_t i = 0; i < count; i++)
        added->starts[keys[i].bytes[0]] = true;
    for (int byte = 0; byte < 256; byte++) {
        if (added->starts[byte]) {
            added->only_start = byte;
            starts++;
        }
    }
    if (starts != 1)
        added->only_start = -1;
    return kvr_trie_build(keys, count, &added->units, error);
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
