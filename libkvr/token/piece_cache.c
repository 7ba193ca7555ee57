#include "token/piece_entry.h"

_Static_assert(sizeof(struct kvr_piece_entry) == 32, "two entries make a cache line");

bool kvr_piece_cache_init(struct kvr_piece_cache *cache)
{
    size_t line_bytes = sizeof *cache->lines << KVR_PIECE_LINES_LOG;

    memset(cache, 0, sizeof *cache);
    cache->pages.random = true;
    if (!kvr_pages_grow(&cache->pages, line_bytes + KVR_PIECE_STORE_BYTES))
        return false;
    cache->lines = cache->pages.data;
    cache->store = (uint8_t *)cache->pages.data + line_bytes;
    return true;
}

void kvr_piece_cache_release(struct kvr_piece_cache *cache)
{
    kvr_pages_release(&cache->pages);
    kvr_bpe_scratch_release(&cache->scratch);
    memset(cache, 0, sizeof *cache);
}

void kvr_piece_look_further(struct kvr_piece_cache *cache, struct kvr_piece_key *key)
{
    struct kvr_piece_entry *lines[] = {
        kvr_piece_line(cache, key), kvr_piece_second_line(cache, key)};

    for (int i = 0; i < 4; i++)
        if (kvr_piece_is(&lines[i / 2][i % 2], key)) {
            lines[i / 2][i % 2].found.met = 1;
            key->found = lines[i / 2][i % 2].found;
            return;
        }
}

/* Stores what a piece became and returns its position. */
static uint64_t store_record(struct kvr_piece_cache *cache, const uint8_t *piece, uint32_t length,
    const uint32_t *ids, size_t count)
{
    uint32_t kept = length > KVR_SHORT_BYTES ? length : 0, padded = (kept + 3) & ~UINT32_C(3);
    size_t bytes = sizeof(struct kvr_piece_record) + padded + count * sizeof *ids;
    size_t at = (size_t)(cache->written % KVR_PIECE_STORE_BYTES);

    bytes = (bytes + 7) & ~(size_t)7;
    if (at + bytes > KVR_PIECE_STORE_BYTES) { /* a record lies in one piece */
        cache->written += KVR_PIECE_STORE_BYTES - at;
        at = 0;
    }
    struct kvr_piece_record *record = (void *)(cache->store + at);
    *record = (struct kvr_piece_record){(uint32_t)count, kept};
    memcpy(record + 1, piece, kept);
    memcpy((uint8_t *)(record + 1) + padded, ids, count * sizeof *ids);
    uint64_t position = cache->written;
    cache->written += bytes;
    return position;
}

/* The place for a new entry: that which it has (a batch may bring it twice), an empty one of its
 * lines, else one that was not met again. Where all were, those of its own line have to be met
 * anew. */
static struct kvr_piece_entry *place_for(
    struct kvr_piece_cache *cache, const struct kvr_piece_key *key)
{
    struct kvr_piece_entry *line = kvr_piece_line(cache, key);
    struct kvr_piece_entry *other = kvr_piece_second_line(cache, key);
    struct kvr_piece_entry *places[] = {&line[0], &line[1], &other[0], &other[1]};

    for (int i = 0; i < 4; i++)
        if (!places[i]->high || kvr_piece_is(places[i], key))
            return places[i];
    for (int i = 0; i < 4; i++)
        if (!places[i]->found.met)
            return places[i];
    line[0].found.met = line[1].found.met = 0;
    return &line[key->hash & 1];
}

void kvr_piece_remember(struct kvr_piece_cache *cache, struct kvr_piece_key *key,
    const uint8_t *piece, const uint32_t *ids, size_t count)
{
    struct kvr_piece_entry entry = {.low = key->low, .high = key->high};

    if (key->length <= KVR_SHORT_BYTES && count <= KVR_SHORT_IDS) {
        entry.found.count = (uint8_t)count;
        memcpy(entry.found.ids, ids, count * sizeof *ids);
    } else {
        if (key->length > KVR_LONG_BYTES)
            return;
        entry.found.count = KVR_PIECE_STORED;
        uint64_t position = store_record(cache, piece, key->length, ids, count);
        entry.found.ids[0] = (uint32_t)position;
        entry.found.ids[1] = (uint32_t)(position >> 32);
    }
    *place_for(cache, key) = entry;
    key->found = entry.found;
}
