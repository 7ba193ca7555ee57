#include "token/piece_cache.h"
#include "token/borders.h"

#define BATCH 64

bool kvr_piece_cache_init(struct kvr_piece_cache *cache)
{
    size_t short_bytes = KVR_SHORT_LINES * sizeof *cache->lines;

    memset(cache, 0, sizeof *cache);
    cache->pages.random = true;
    if (!kvr_pages_grow(
            &cache->pages, short_bytes + KVR_LONG_ENTRIES * sizeof(struct kvr_long_piece)))
        return false;
    cache->lines = cache->pages.data;
    cache->longs = (void *)((char *)cache->pages.data + short_bytes);
    return true;
}

void kvr_piece_cache_release(struct kvr_piece_cache *cache)
{
    kvr_pages_release(&cache->pages);
    kvr_bpe_scratch_release(&cache->scratch);
    memset(cache, 0, sizeof *cache);
}

/* A piece of the batch: first its key, then, if the cache has it, its ids. */
struct key {
    uint64_t low, high, hash;
    uint32_t start, length;
    uint32_t ids[KVR_SHORT_IDS];
    uint32_t count; /* of ids; MISSING: not in the short lines */
};

#define MISSING UINT32_MAX

static const uint64_t low_masks[17] = {0, 0xff, 0xffff, 0xffffff, 0xffffffff, 0xffffffffff,
    0xffffffffffff, 0xffffffffffffff, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
    UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

#define CUT_LIMIT 64 /* parts of a piece at a time */

/* Encodes a piece in the parts that safe borders make of it. False: there is none. */
static bool encode_cut(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *piece, size_t length, struct kvr_ids *ids)
{
    uint32_t ends[CUT_LIMIT];
    size_t count = 0, start = 0, cuts = 0;

    for (size_t at = 1; at < length; at++) {
        if (!kvr_border_is_safe(v, piece, at, length))
            continue;
        ends[count++] = (uint32_t)at;
        cuts++;
        if (count == CUT_LIMIT) {
            kvr_encode_pieces(v, cache, piece, length, start, ends, count, ids);
            start = at;
            count = 0;
        }
    }
    if (!cuts)
        return false;
    ends[count++] = (uint32_t)length;
    kvr_encode_pieces(v, cache, piece, length, start, ends, count, ids);
    return true;
}

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
    if (length <= KVR_SHORT_BYTES || !(v->header->special_flags & KVR_VOCABULARY_CUTS) ||
        !encode_cut(v, cache, piece, length, ids))
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
    const uint8_t *text, const struct key *key, struct kvr_ids *ids)
{
    const uint8_t *piece = text + key->start;
    size_t first = ids->count;
    uint32_t id = kvr_word_find(v, key->hash, piece, key->length);

    if (id != KVR_NO_TOKEN)
        kvr_ids_push(ids, id);
    else
        encode_parts(v, cache, key->hash, piece, key->length, ids);
    if (key->length <= KVR_SHORT_BYTES && ids->count - first <= KVR_SHORT_IDS && !ids->failed) {
        struct kvr_short_piece *line = cache->lines[(key->hash >> 40) % KVR_SHORT_LINES];
        line[1] = (struct kvr_short_piece){.low = key->low,
            .high = key->high,
            .length = (uint16_t)key->length,
            .count = (uint16_t)(ids->count - first)};
        memcpy(line[1].ids, ids->data + first, line[1].count * sizeof *ids->data);
    }
}

/* Keys of a batch; their lines are asked for. */
static void make_keys(struct kvr_piece_cache *cache, const uint8_t *text, size_t length,
    size_t start, const uint32_t *ends, size_t batch, struct key *keys)
{
    for (size_t i = 0; i < batch; i++) {
        size_t size = ends[i] - start;
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
        } else {
            key->hash = kvr_piece_hash_of(text + start, size);
        }
        start = ends[i];
    }
}

static inline bool is_piece(const struct kvr_short_piece *entry, const struct key *key)
{
    return entry->low == key->low && entry->high == key->high && entry->length == key->length;
}

/* What the cache has for each key; for the others the next places to look are asked for. */
static void look_up(
    const struct kvr_vocabulary *v, struct kvr_piece_cache *cache, struct key *keys, size_t batch)
{
    for (size_t i = 0; i < batch; i++) {
        struct key *key = &keys[i];
        if (key->length <= KVR_SHORT_BYTES) {
            struct kvr_short_piece *line = cache->lines[(key->hash >> 40) % KVR_SHORT_LINES];
            if (is_piece(&line[0], key)) {
                memcpy(key->ids, line[0].ids, sizeof key->ids);
                key->count = line[0].count;
                continue;
            }
            if (is_piece(&line[1], key)) {
                struct kvr_short_piece found = line[1];
                memcpy(key->ids, found.ids, sizeof key->ids);
                key->count = found.count;
                line[1] = line[0];
                line[0] = found;
                continue;
            }
        }
        key->count = MISSING;
        __builtin_prefetch(&v->words[(uint32_t)key->hash & v->word_mask]);
        __builtin_prefetch(&cache->longs[(key->hash >> 40) % KVR_LONG_ENTRIES]);
    }
}

void kvr_encode_pieces(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, size_t length, size_t start, const uint32_t *ends, size_t count,
    struct kvr_ids *ids)
{
    struct key keys[BATCH];

    for (size_t done = 0; done < count && !ids->failed;) {
        size_t batch = count - done < BATCH ? count - done : BATCH;
        make_keys(cache, text, length, start, ends + done, batch, keys);
        look_up(v, cache, keys, batch);
        done += batch;
        start = ends[done - 1];
        if (!kvr_ids_reserve(ids, batch * KVR_SHORT_IDS))
            return;
        for (size_t i = 0; i < batch; i++) {
            if (keys[i].count != MISSING) {
                memcpy(ids->data + ids->count, keys[i].ids, sizeof keys[i].ids);
                ids->count += keys[i].count;
                continue;
            }
            encode_missing(v, cache, text, &keys[i], ids);
            if (!kvr_ids_reserve(ids, (batch - i) * KVR_SHORT_IDS))
                return;
        }
    }
}
