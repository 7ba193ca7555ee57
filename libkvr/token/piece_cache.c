#include "token/piece_cache.h"

#include <stdlib.h>
#include <sys/mman.h>

#define BATCH 64

bool kvr_piece_cache_init(struct kvr_piece_cache *cache)
{
    size_t short_bytes = KVR_SHORT_LINES * sizeof *cache->lines;
    size_t long_bytes = KVR_LONG_ENTRIES * sizeof *cache->longs;
    void *memory = mmap(NULL, short_bytes + long_bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* zero pages, touched as they are needed */

    memset(cache, 0, sizeof *cache);
    if (memory == MAP_FAILED)
        return false;
    cache->lines = memory;
    cache->longs = (void *)((char *)memory + short_bytes);
    return true;
}

void kvr_piece_cache_release(struct kvr_piece_cache *cache)
{
    if (cache->lines)
        munmap(cache->lines,
            KVR_SHORT_LINES * sizeof *cache->lines + KVR_LONG_ENTRIES * sizeof *cache->longs);
    kvr_bpe_scratch_release(&cache->scratch);
    memset(cache, 0, sizeof *cache);
}

struct key {
    uint64_t low, high, hash;
    uint32_t start, length;
};

static const uint64_t low_masks[17] = {0, 0xff, 0xffff, 0xffffff, 0xffffffff, 0xffffffffff,
    0xffffffffffff, 0xffffffffffffff, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
    UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

/* Encodes a piece that is no token, from the long entries or anew. */
static void encode_parts(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    uint64_t hash, const uint8_t *piece, size_t length, struct kvr_ids *ids)
{
    struct kvr_long_piece *entry = &cache->longs[(hash >> 40) % KVR_LONG_ENTRIES];
    size_t first = ids->count;

    if (entry->hash == hash && entry->length == length &&
        memcmp(entry->bytes, piece, length) == 0) {
        if (kvr_ids_reserve(ids, KVR_LONG_IDS)) {
            memcpy(ids->data + first, entry->ids, sizeof entry->ids);
            ids->count += entry->count;
        }
        return;
    }
    kvr_bpe_encode(v, &cache->scratch, piece, length, ids);
    if (length <= KVR_LONG_BYTES &&
        (length > KVR_SHORT_BYTES || ids->count - first > KVR_SHORT_IDS) &&
        ids->count - first <= KVR_LONG_IDS && !ids->failed) {
        entry->hash = hash;
        entry->length = (uint16_t)length;
        entry->count = (uint16_t)(ids->count - first);
        memcpy(entry->bytes, piece, length);
        memcpy(entry->ids, ids->data + first, entry->count * sizeof *ids->data);
    }
}

static void encode_missing(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, struct key key, struct kvr_ids *ids)
{
    const uint8_t *piece = text + key.start;
    size_t first = ids->count;
    uint64_t hash = key.length > KVR_SHORT_BYTES ? kvr_piece_hash_of(piece, key.length) : key.hash;
    uint32_t id = kvr_word_find(v, hash, piece, key.length);

    if (id != KVR_NO_TOKEN)
        kvr_ids_push(ids, id);
    else
        encode_parts(v, cache, hash, piece, key.length, ids);
    if (key.length <= KVR_SHORT_BYTES && ids->count - first <= KVR_SHORT_IDS && !ids->failed) {
        struct kvr_short_piece *line = cache->lines[(key.hash >> 40) % KVR_SHORT_LINES];
        line[1] = line[0];
        line[0] = (struct kvr_short_piece){.low = key.low,
            .high = key.high,
            .length = (uint16_t)key.length,
            .count = (uint16_t)(ids->count - first)};
        memcpy(line[0].ids, ids->data + first, line[0].count * sizeof *ids->data);
    }
}

void kvr_encode_pieces(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, size_t length, size_t start, const uint32_t *ends, size_t count,
    struct kvr_ids *ids)
{
    struct key keys[BATCH];

    for (size_t done = 0; done < count && !ids->failed;) {
        size_t batch = count - done < BATCH ? count - done : BATCH;
        for (size_t i = 0; i < batch; i++) {
            size_t end = ends[done + i], size = end - start;
            struct key *key = &keys[i];
            key->start = (uint32_t)start;
            key->length = (uint32_t)size;
            if (size <= KVR_SHORT_BYTES) {
                uint64_t words[2] = {0, 0};
                if (start + 16 <= length) {
                    memcpy(words, text + start, 16);
                    words[0] &= low_masks[size];
                    words[1] &= low_masks[size < 8 ? 0 : size - 8];
                } else {
                    memcpy(words, text + start, size);
                }
                key->low = words[0];
                key->high = words[1];
                key->hash = kvr_piece_hash(words[0], words[1], size);
                __builtin_prefetch(cache->lines[(key->hash >> 40) % KVR_SHORT_LINES]);
            }
            start = end;
        }
        done += batch;
        if (!kvr_ids_reserve(ids, batch * KVR_SHORT_IDS))
            return;
        for (size_t i = 0; i < batch; i++) {
            const struct key *key = &keys[i];
            if (key->length <= KVR_SHORT_BYTES) {
                const struct kvr_short_piece *e = cache->lines[(key->hash >> 40) % KVR_SHORT_LINES];
                if (e->low != key->low || e->high != key->high || e->length != key->length)
                    e++;
                if (e->low == key->low && e->high == key->high && e->length == key->length) {
                    memcpy(ids->data + ids->count, e->ids, sizeof e->ids);
                    ids->count += e->count;
                    continue;
                }
            }
            encode_missing(v, cache, text, *key, ids);
            if (!kvr_ids_reserve(ids, (batch - i) * KVR_SHORT_IDS))
                return;
        }
    }
}
