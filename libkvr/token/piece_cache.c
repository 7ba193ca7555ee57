#include "token/piece_cache.h"
#include "token/borders.h"

#define BATCH 1024
#define GROUP 32 /* pieces merged side by side */

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

/* A piece of the batch, and what the cache has for it; found.length 0: nothing. */
struct key {
    uint64_t low, high, hash;
    uint32_t start, length;
    struct kvr_piece_ids found;
};

/* A record of the store; the bytes of a long piece follow, up to a multiple of 4, then the ids. */
struct record {
    uint32_t count, length;
};

static const uint64_t low_masks[17] = {0, 0xff, 0xffff, 0xffffff, 0xffffffff, 0xffffffffff,
    0xffffffffffff, 0xffffffffffffff, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
    UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

static inline struct kvr_piece_entry *line_of(
    const struct kvr_piece_cache *cache, const struct key *key)
{
    return cache->lines[key->hash >> (64 - KVR_PIECE_LINES_LOG)];
}

/* `length` of the entry of a piece. */
static inline uint32_t entry_length(uint32_t length)
{
    return length <= KVR_SHORT_BYTES ? length : KVR_PIECE_LONG | length;
}

/* The record that an entry names, if it is still there and for this piece. */
static const struct record *record_of(const struct kvr_piece_cache *cache,
    const struct kvr_piece_ids *found, const uint8_t *piece, uint32_t length)
{
    uint64_t position = (uint64_t)found->ids[1] << 32 | found->ids[0];
    const struct record *record = (const void *)(cache->store + position % KVR_PIECE_STORE_BYTES);

    if (cache->written - position > KVR_PIECE_STORE_BYTES)
        return NULL;
    if (length > KVR_SHORT_BYTES &&
        (record->length != length || memcmp(record + 1, piece, length) != 0))
        return NULL;
    return record;
}

/* Stores what a piece became and returns its position. */
static uint64_t store_record(struct kvr_piece_cache *cache, const uint8_t *piece, uint32_t length,
    const uint32_t *ids, size_t count)
{
    uint32_t kept = length > KVR_SHORT_BYTES ? length : 0, padded = (kept + 3) & ~UINT32_C(3);
    size_t bytes = sizeof(struct record) + padded + count * sizeof *ids;
    size_t at = (size_t)(cache->written % KVR_PIECE_STORE_BYTES);

    bytes = (bytes + 7) & ~(size_t)7;
    if (at + bytes > KVR_PIECE_STORE_BYTES) { /* a record lies in one piece */
        cache->written += KVR_PIECE_STORE_BYTES - at;
        at = 0;
    }
    struct record *record = (void *)(cache->store + at);
    *record = (struct record){(uint32_t)count, kept};
    memcpy(record + 1, piece, kept);
    memcpy((uint8_t *)(record + 1) + padded, ids, count * sizeof *ids);
    uint64_t position = cache->written;
    cache->written += bytes;
    return position;
}

static inline bool is_piece(
    const struct kvr_piece_entry *entry, const struct key *key, uint32_t length)
{
    return !((entry->low ^ key->low) | (entry->high ^ key->high) | (entry->found.length ^ length));
}

/* The other line that a piece may lie in. */
static inline struct kvr_piece_entry *second_line_of(
    const struct kvr_piece_cache *cache, const struct key *key)
{
    return cache->lines[key->hash >> (64 - KVR_PIECE_LINES_LOG) ^ 1];
}

/* Looks once more where look_up() found nothing: the batch may have brought the piece twice, or it
 * is in its second line. */
static void look_further(struct kvr_piece_cache *cache, struct key *key)
{
    struct kvr_piece_entry *lines[] = {line_of(cache, key), second_line_of(cache, key)};
    uint32_t length = entry_length(key->length);

    for (int i = 0; i < 4; i++)
        if (is_piece(&lines[i / 2][i % 2], key, length)) {
            lines[i / 2][i % 2].found.met = 1;
            key->found = lines[i / 2][i % 2].found;
        }
}

/* The place for a new entry: that which it has (a batch may bring it twice), an empty one of its
 * lines, else one that was not met again. Where all
 * were, those of its own line have to be met anew. */
static struct kvr_piece_entry *place_for(
    struct kvr_piece_cache *cache, const struct key *key, uint32_t length)
{
    struct kvr_piece_entry *line = line_of(cache, key), *other = second_line_of(cache, key);
    struct kvr_piece_entry *places[] = {&line[0], &line[1], &other[0], &other[1]};

    for (int i = 0; i < 4; i++)
        if (!places[i]->found.length || is_piece(places[i], key, length))
            return places[i];
    for (int i = 0; i < 4; i++)
        if (!places[i]->found.met)
            return places[i];
    line[0].found.met = line[1].found.met = 0;
    return &line[key->hash & 1];
}

/* Gives a piece an entry, which key->found then is. */
static void remember(struct kvr_piece_cache *cache, struct key *key, const uint8_t *piece,
    const uint32_t *ids, size_t count)
{
    struct kvr_piece_entry entry = {.low = key->low, .high = key->high};

    entry.found.length = (uint16_t)entry_length(key->length);
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
    *place_for(cache, key, entry.found.length) = entry;
    key->found = entry.found;
}

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

/* Encodes a piece that the cache had not when the batch was looked up. */
static void encode_missing(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, struct key *key, struct kvr_ids *ids)
{
    const uint8_t *piece = text + key->start;
    size_t first = ids->count;
    uint32_t id = kvr_word_find(v, key->hash, piece, key->length);

    if (id != KVR_NO_TOKEN)
        kvr_ids_push(ids, id);
    else if (key->length <= KVR_SHORT_BYTES || !(v->header->special_flags & KVR_VOCABULARY_CUTS) ||
             !encode_cut(v, cache, piece, key->length, ids))
        kvr_bpe_encode(v, &cache->scratch, piece, key->length, ids);
    if (!ids->failed)
        remember(cache, key, piece, ids->data + first, ids->count - first);
}

/* Keys of a batch; their lines are asked for. */
static void make_keys(struct kvr_piece_cache *cache, const uint8_t *text, size_t length,
    size_t start, const uint32_t *ends, size_t batch, struct key *keys)
{
    for (size_t i = 0; i < batch; i++) {
        size_t size = ends[i] - start;
        struct key *key = &keys[i];
        uint64_t words[2] = {0, 0};
        key->start = (uint32_t)start;
        key->length = (uint32_t)size;
        if (size <= KVR_SHORT_BYTES) {
            if (start + 16 <= length) {
                memcpy(words, text + start, 16);
                words[0] &= low_masks[size];
                words[1] &= low_masks[size < 8 ? 0 : size - 8];
            } else {
                memcpy(words, text + start, size);
            }
            key->hash = kvr_piece_hash(words[0], words[1]);
        } else {
            key->hash = words[0] = kvr_piece_hash_of(text + start, size);
            memcpy(&words[1], text + start, 8);
        }
        key->low = words[0];
        key->high = words[1];
        __builtin_prefetch(line_of(cache, key));
        start = ends[i];
    }
}

/* Whether a piece is merged as a whole: longer ones may be cut, where characters beyond ASCII
 * meet. */
static bool is_short(const uint8_t *piece, size_t length)
{
    uint64_t words[4];

    if (length <= KVR_SHORT_BYTES || length > KVR_SHORT_SYMBOLS)
        return length <= KVR_SHORT_BYTES;
    memcpy(words, piece, 16);
    memcpy(words + 2, piece + length - 16, 16);
    return !((words[0] | words[1] | words[2] | words[3]) & UINT64_C(0x8080808080808080));
}

/* What the cache has for each key; for what it lacks the next place to look is asked for. Returns
 * how many short pieces these are. */
static size_t look_up(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, struct key *keys, size_t batch, struct key **missing)
{
    size_t count = 0;

    for (size_t i = 0; i < batch; i++) {
        struct key *key = &keys[i];
        struct kvr_piece_entry *line = line_of(cache, key);
        uint32_t length = entry_length(key->length);
        bool second = is_piece(&line[1], key, length);
        key->found = line[second].found;
        if (!second && !is_piece(&line[0], key, length)) {
            key->found.length = 0;
            __builtin_prefetch(second_line_of(cache, key));
            __builtin_prefetch(&v->words[(uint32_t)key->hash & v->word_mask]);
            missing[count] = key;
            count += is_short(text + key->start, key->length);
        } else if (!key->found.met) {
            line[second].found.met = 1;
        }
    }
    return count;
}

/* Merges the pieces of a group side by side. */
static void merge_group(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, struct kvr_short_merge *merges, struct key **group, size_t count)
{
    uint32_t ids[KVR_SHORT_SYMBOLS];

    kvr_short_merge_run(v, merges, count);
    for (size_t i = 0; i < count; i++) {
        size_t id_count = kvr_short_merge_ids(&merges[i], ids);
        remember(cache, group[i], text + group[i]->start, ids, id_count);
    }
}

/* Finds the ids of short pieces that the cache lacks, all of a batch at once: what one has to wait
 * for comes from memory while the others are looked at. */
static void find_missing(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, struct key **missing, size_t count)
{
    struct kvr_short_merge merges[GROUP];
    struct key *group[GROUP];
    uint32_t words[BATCH];
    size_t grouped = 0;

    for (size_t i = 0; i < count; i++) {
        look_further(cache, missing[i]);
        words[i] =
            missing[i]->found.length ? KVR_NO_TOKEN : kvr_word_candidate(v, missing[i]->hash);
        if (words[i] != KVR_NO_TOKEN)
            __builtin_prefetch(&v->token_offset[words[i]]);
    }
    for (size_t i = 0; i < count; i++)
        if (words[i] != KVR_NO_TOKEN)
            __builtin_prefetch(v->token_bytes + v->token_offset[words[i]]);
    for (size_t i = 0; i < count; i++) {
        struct key *key = missing[i];
        const uint8_t *piece = text + key->start;
        if (key->found.length)
            continue;
        uint32_t id = kvr_word_find(v, key->hash, piece, key->length);
        if (id != KVR_NO_TOKEN) {
            remember(cache, key, piece, &id, 1);
            continue;
        }
        group[grouped] = key;
        kvr_short_merge_begin(v, &merges[grouped++], piece, key->length);
        if (grouped == GROUP) {
            merge_group(v, cache, text, merges, group, grouped);
            grouped = 0;
        }
    }
    merge_group(v, cache, text, merges, group, grouped);
}

/* The ids of a piece that lie in the store, or that are still to be found. */
static void encode_rest(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, struct key *key, struct kvr_ids *ids)
{
    const uint8_t *piece = text + key->start;
    const struct record *record = NULL;

    if (!key->found.length)
        look_further(cache, key);
    if (key->found.length && key->found.count != KVR_PIECE_STORED) {
        if (kvr_ids_reserve(ids, KVR_SHORT_IDS))
            memcpy(ids->data + ids->count, key->found.ids, sizeof key->found.ids);
        ids->count += ids->failed ? 0 : key->found.count;
        return;
    }
    if (key->found.length)
        record = record_of(cache, &key->found, piece, key->length);
    if (!record) {
        encode_missing(v, cache, text, key, ids);
    } else if (kvr_ids_reserve(ids, record->count)) {
        memcpy(ids->data + ids->count,
            (const uint8_t *)(record + 1) + ((record->length + 3) & ~UINT32_C(3)),
            record->count * sizeof *ids->data);
        ids->count += record->count;
    }
}

void kvr_encode_pieces(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, size_t length, size_t start, const uint32_t *ends, size_t count,
    struct kvr_ids *ids)
{
    struct key keys[BATCH], *missing[BATCH];
    bool short_merges = v->header->special_flags & KVR_VOCABULARY_SHORT_MERGES;

    for (size_t done = 0; done < count && !ids->failed;) {
        size_t batch = count - done < BATCH ? count - done : BATCH;
        make_keys(cache, text, length, start, ends + done, batch, keys);
        size_t lacking = look_up(v, cache, text, keys, batch, missing);
        if (lacking && short_merges)
            find_missing(v, cache, text, missing, lacking);
        done += batch;
        start = ends[done - 1];
        for (size_t i = 0; i < batch; i++) {
            /* room for all four words of `found`, whatever they are */
            if (!kvr_ids_reserve(ids, (batch - i) * 4))
                return;
            uint32_t *out = ids->data + ids->count;
            for (; i < batch && keys[i].found.length && keys[i].found.count <= KVR_SHORT_IDS; i++) {
                memcpy(out, &keys[i].found, sizeof keys[i].found);
                out += keys[i].found.count;
            }
            ids->count = (size_t)(out - ids->data);
            if (i < batch)
                encode_rest(v, cache, text, &keys[i], ids);
        }
    }
}
