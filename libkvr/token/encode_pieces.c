/*
 * The loop that all text goes through, a batch of pieces at a time. What waits for memory is asked
 * for by the batch, and read when it has come:
 *
 *   keys of all pieces        their lines of the cache are asked for
 *   look-up of all pieces     what is missing asks for its second line, and for the word it may be
 *   long missing pieces       are cut where no token crosses; the parts are looked up like pieces
 *   all that is missing now   is found as a word, or merged, many side by side, and remembered
 *   ids of all pieces         in their order
 */
#include "token/borders.h"
#include "token/piece_entry.h"

#define BATCH 1024
#define PARTS 1024
#define MERGED_PIECES 256 /* at a time */
#define MERGED_BYTES 4096

struct work {
    struct kvr_piece_key keys[BATCH], parts[PARTS];
    struct kvr_piece_key *missing[BATCH + PARTS], *longs[BATCH];
    size_t missing_count, long_count, part_count;
};

/* Of a piece's first 16 bytes those that it has, and what stands for its length. */
struct shape {
    uint64_t low_mask, high_mask, tag, unused;
};

#define LONG_TAG (UINT64_C(0xff) << 56)
#define LOW(n)                                                                                     \
    {                                                                                              \
        (UINT64_C(1) << (n)*8) - 1, 0, UINT64_C(n) << 56, 0                                        \
    }
#define HIGH(n)                                                                                    \
    {                                                                                              \
        UINT64_MAX, (UINT64_C(1) << ((n)-8) * 8) - 1, UINT64_C(n) << 56, 0                         \
    }

static const struct shape shapes[17] = {LOW(0), LOW(1), LOW(2), LOW(3), LOW(4), LOW(5), LOW(6),
    LOW(7), HIGH(8), HIGH(9), HIGH(10), HIGH(11), HIGH(12), HIGH(13), HIGH(14), HIGH(15),
    {UINT64_MAX, UINT64_MAX, LONG_TAG, 0}};

/* Keys of `count` pieces that follow each other; their lines are asked for. */
static void make_keys(struct kvr_piece_cache *cache, const uint8_t *text, size_t length,
    size_t start, const uint32_t *ends, size_t count, struct kvr_piece_key *keys)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = ends[i] - start;
        struct kvr_piece_key *key = &keys[i];
        uint64_t words[2] = {0, 0};
        key->start = (uint32_t)start;
        key->length = (uint32_t)size;
        if (size <= 16) {
            const struct shape *shape = &shapes[size];
            if (start + 16 <= length)
                memcpy(words, text + start, 16);
            else
                memcpy(words, text + start, size);
            key->low = words[0] & shape->low_mask;
            words[1] &= shape->high_mask;
            key->hash = kvr_piece_hash(key->low, words[1]);
            key->high = words[1] | shape->tag;
        } else {
            memcpy(&words[1], text + start, 8);
            key->hash = key->low = kvr_piece_hash_of(text + start, size);
            key->high = words[1] | LONG_TAG;
        }
        __builtin_prefetch(kvr_piece_line(cache, key));
        start = ends[i];
    }
}

/* What the cache has for each key. For what it lacks the next places to look are asked for, and
 * the key is put with the missing ones, or, of more than `most` bytes, with the long ones. */
static void look_up(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    struct work *work, struct kvr_piece_key *keys, size_t count, uint32_t most)
{
    for (size_t i = 0; i < count; i++) {
        struct kvr_piece_key *key = &keys[i];
        struct kvr_piece_entry *line = kvr_piece_line(cache, key);
        bool first = kvr_piece_is(&line[0], key), second = kvr_piece_is(&line[1], key);
        key->found = line[second].found;
        if (!(first | second)) {
            key->found.count = KVR_PIECE_MISSING;
            __builtin_prefetch(kvr_piece_second_line(cache, key));
            __builtin_prefetch(&v->words[(uint32_t)key->hash & v->word_mask]);
            if (key->length <= most)
                work->missing[work->missing_count++] = key;
            else
                work->longs[work->long_count++] = key;
        } else if (!key->found.met) {
            line[second].found.met = 1;
        }
    }
}

/* Whether a missing piece is in its second place of the cache, or a word. */
static bool find_long(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, struct kvr_piece_key *key)
{
    const uint8_t *piece = text + key->start;

    kvr_piece_look_further(cache, key);
    if (key->found.count != KVR_PIECE_MISSING)
        return true;
    uint32_t id = kvr_word_find(v, key->hash, piece, key->length);
    if (id != KVR_NO_TOKEN)
        kvr_piece_remember(cache, key, piece, &id, 1);
    return id != KVR_NO_TOKEN;
}

/* Finds the long pieces that the cache has in their second place or that are words, cuts the
 * others and looks up their parts. A piece that nothing cuts is one of the missing, if it is short
 * enough to be merged with them. One of too many parts is left as it is. */
static void cut_long(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, size_t length, struct work *work)
{
    bool cuts = v->header->special_flags & KVR_VOCABULARY_CUTS;

    for (size_t i = 0; i < work->long_count; i++) {
        struct kvr_piece_key *key = work->longs[i];
        uint32_t ends[PARTS];
        if (find_long(v, cache, text, key))
            continue;
        size_t room = PARTS - work->part_count, count = 1;
        if (cuts && !room)
            continue;
        if (cuts)
            count = kvr_borders_cut(v, text, key->start, key->start + key->length, ends, room);
        if (count == 1 && key->length <= KVR_SHORT_SYMBOLS) {
            work->missing[work->missing_count++] = key;
        } else if (count == 1) {
            key->found.count = KVR_PIECE_WHOLE;
        } else if (count <= room) {
            key->found.count = KVR_PIECE_CUT;
            key->found.ids[0] = (uint32_t)work->part_count;
            key->found.ids[1] = (uint32_t)count;
            make_keys(cache, text, length, key->start, ends, count, work->parts + work->part_count);
            work->part_count += count;
        }
    }
    work->long_count = 0;
    look_up(v, cache, work, work->parts, work->part_count, KVR_SHORT_SYMBOLS);
    for (size_t i = 0; i < work->long_count; i++)
        if (!find_long(v, cache, text, work->longs[i]))
            work->longs[i]->found.count = KVR_PIECE_WHOLE;
}

/* Merges pieces side by side. */
static void merge(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, struct kvr_piece_key **keys, size_t count)
{
    struct kvr_short_piece pieces[MERGED_PIECES];
    uint32_t ids[MERGED_BYTES];

    for (size_t done = 0; done < count;) {
        size_t taken = 0, bytes = 0;
        for (; done + taken < count && taken < MERGED_PIECES; taken++) {
            const struct kvr_piece_key *key = keys[done + taken];
            if (bytes + key->length > MERGED_BYTES)
                break;
            pieces[taken] =
                (struct kvr_short_piece){text + key->start, key->length, ids + bytes, 0};
            bytes += key->length;
        }
        kvr_short_merge(v, pieces, taken);
        for (size_t i = 0; i < taken; i++) {
            struct kvr_piece_key *key = keys[done + i];
            kvr_piece_remember(cache, key, text + key->start, pieces[i].ids, pieces[i].id_count);
        }
        done += taken;
    }
}

/* Finds the ids of all that is missing. */
static void find_missing(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, struct work *work)
{
    bool merges = v->header->special_flags & KVR_VOCABULARY_SHORT_MERGES;
    uint32_t words[BATCH + PARTS];
    size_t left = 0;

    for (size_t i = 0; i < work->missing_count; i++) {
        struct kvr_piece_key *key = work->missing[i];
        kvr_piece_look_further(cache, key);
        words[i] = KVR_NO_TOKEN;
        if (key->found.count == KVR_PIECE_MISSING)
            words[i] = kvr_word_candidate(v, key->hash);
        if (words[i] != KVR_NO_TOKEN)
            __builtin_prefetch(&v->token_offset[words[i]]);
    }
    for (size_t i = 0; i < work->missing_count; i++)
        if (words[i] != KVR_NO_TOKEN)
            __builtin_prefetch(v->token_bytes + v->token_offset[words[i]]);
    for (size_t i = 0; i < work->missing_count; i++) {
        struct kvr_piece_key *key = work->missing[i];
        const uint8_t *piece = text + key->start;
        if (key->found.count != KVR_PIECE_MISSING)
            continue;
        uint32_t id = kvr_word_find(v, key->hash, piece, key->length);
        if (id != KVR_NO_TOKEN)
            kvr_piece_remember(cache, key, piece, &id, 1);
        else if (merges)
            work->missing[left++] = key;
        else
            key->found.count = KVR_PIECE_WHOLE;
    }
    merge(v, cache, text, work->missing, left);
}

/* Encodes a piece that is too long for a batch in the parts that borders make of it. False: there
 * are no borders. */
static bool encode_cut(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, size_t length, size_t start, size_t end, struct kvr_ids *ids)
{
    uint32_t ends[PARTS];
    bool cut = false;

    while (start < end) {
        size_t count = kvr_borders_cut(v, text, start, end, ends, PARTS);
        bool more = count > PARTS;
        if (!more && count == 1 && !cut)
            return false;
        cut = true;
        count -= more;
        kvr_encode_pieces(v, cache, text, length, start, ends, count, ids);
        start = ends[count - 1];
    }
    return true;
}

/* Encodes a piece whose ids no one has found yet. */
static void encode_missing(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, size_t length, struct kvr_piece_key *key, struct kvr_ids *ids)
{
    size_t first = ids->count;

    if (key->found.count == KVR_PIECE_WHOLE || !(v->header->special_flags & KVR_VOCABULARY_CUTS) ||
        !encode_cut(v, cache, text, length, key->start, key->start + key->length, ids))
        kvr_bpe_encode(v, &cache->scratch, text + key->start, key->length, ids);
    if (!ids->failed)
        kvr_piece_remember(cache, key, text + key->start, ids->data + first, ids->count - first);
}

/* Appends the ids of a piece, wherever they are. */
static void push(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache, const uint8_t *text,
    size_t length, struct work *work, struct kvr_piece_key *key, struct kvr_ids *ids)
{
    const struct kvr_piece_record *record = NULL;

    if (key->found.count <= KVR_SHORT_IDS) {
        if (kvr_ids_reserve(ids, KVR_SHORT_IDS))
            memcpy(ids->data + ids->count, key->found.ids, sizeof key->found.ids);
        ids->count += ids->failed ? 0 : key->found.count;
        return;
    }
    if (key->found.count == KVR_PIECE_CUT) {
        size_t first = ids->count, count = key->found.ids[1];
        struct kvr_piece_key *parts = work->parts + key->found.ids[0];
        for (size_t i = 0; i < count; i++)
            push(v, cache, text, length, work, &parts[i], ids);
        if (!ids->failed)
            kvr_piece_remember(
                cache, key, text + key->start, ids->data + first, ids->count - first);
        return;
    }
    if (key->found.count == KVR_PIECE_STORED)
        record = kvr_piece_record_of(cache, key, text + key->start);
    if (!record) {
        encode_missing(v, cache, text, length, key, ids);
    } else if (kvr_ids_reserve(ids, record->count)) {
        memcpy(ids->data + ids->count, kvr_piece_record_ids(record),
            record->count * sizeof *ids->data);
        ids->count += record->count;
    }
}

void kvr_encode_pieces(const struct kvr_vocabulary *v, struct kvr_piece_cache *cache,
    const uint8_t *text, size_t length, size_t start, const uint32_t *ends, size_t count,
    struct kvr_ids *ids)
{
    struct work work;

    for (size_t done = 0; done < count && !ids->failed;) {
        size_t batch = count - done < BATCH ? count - done : BATCH;
        struct kvr_piece_key *keys = work.keys;
        work.missing_count = work.long_count = work.part_count = 0;
        make_keys(cache, text, length, start, ends + done, batch, keys);
        look_up(v, cache, &work, keys, batch, 16);
        if (work.long_count)
            cut_long(v, cache, text, length, &work);
        if (work.missing_count)
            find_missing(v, cache, text, &work);
        done += batch;
        start = ends[done - 1];
        for (size_t i = 0; i < batch; i++) {
            /* room for all four words of `found`, whatever they are */
            if (!kvr_ids_reserve(ids, (batch - i) * 4))
                return;
            uint32_t *out = ids->data + ids->count;
            for (; i < batch && keys[i].found.count <= KVR_SHORT_IDS; i++) {
                memcpy(out, &keys[i].found, sizeof keys[i].found);
                out += keys[i].found.count;
            }
            ids->count = (size_t)(out - ids->data);
            if (i < batch)
                push(v, cache, text, length, &work, &keys[i], ids);
        }
    }
}
