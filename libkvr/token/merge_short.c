/*
 * Short pieces are merged after all. A walk down the trie is a chain of look-ups in megabytes; what
 * merging reads lies in a few hundred KiB: a table of byte pairs, the filters, the hot pairs. For
 * some 32 symbols that outweighs its quadratic search for the lowest order. Ids stand for orders
 * here (KVR_VOCABULARY_IDS_IN_ORDER), so a pair's token is all that need be known of it.
 *
 * Symbols are a list between two ends, 0 and count + 1, which merge with nothing. keys[i] is what
 * symbol i and its neighbour merge to, and i below it, so that the lowest of the keys, which a
 * fixed number of steps without branches finds, is the next merge, the leftmost among equals.
 *
 * Each merge asks for two new pairs and has to wait for them: for a word of the filter each, then
 * for a bucket of the table. So many pieces are at work side by side, in rounds of two passes: one
 * reads the buckets, merges and asks for the words; the next reads these and asks for the buckets.
 * By the time a piece has its turn again, what it asked for has come. A piece that is done gives
 * its place to the next.
 */
#include "token/bpe.h"

#define NO_KEY INT32_MAX
#define AT_BITS 6
#define SIDE_BY_SIDE 32

/* A piece that is being merged. */
struct merge {
    uint32_t tokens[KVR_SHORT_SYMBOLS + 2];
    int32_t keys[KVR_SHORT_SYMBOLS + 2];
    uint8_t next[KVR_SHORT_SYMBOLS + 2], previous[KVR_SHORT_SYMBOLS + 2];
    uint32_t count; /* of symbols at the start */
    uint32_t at;    /* of the last merge, 0 before the first. What it and its neighbours merge to is
                       still to be looked for, as: */
    uint64_t before, after;
    struct kvr_pair_place before_place, after_place; /* and to be read from here */
    struct kvr_short_piece *piece;
};

_Static_assert(KVR_PAIR_ID_BITS + AT_BITS < 31, "keys are positive");

/* Without a condition: KVR_NO_TOKEN, all ones, gives NO_KEY. */
static inline int32_t key_of(uint32_t merged, uint32_t at)
{
    return (int32_t)(((merged << AT_BITS | at) | -(merged >> 31)) & INT32_MAX);
}

/* The lowest of 16 keys. */
static inline int32_t lowest_of(const int32_t *keys)
{
#ifdef __SSE2__
    const __m128i *vectors = (const __m128i *)(const void *)keys;
#define LOWER(a, b)                                                                                \
    _mm_or_si128(                                                                                  \
        _mm_and_si128(_mm_cmplt_epi32(a, b), a), _mm_andnot_si128(_mm_cmplt_epi32(a, b), b))
    __m128i a = _mm_loadu_si128(vectors), b = _mm_loadu_si128(vectors + 1);
    __m128i c = _mm_loadu_si128(vectors + 2), d = _mm_loadu_si128(vectors + 3);
    a = LOWER(a, b);
    c = LOWER(c, d);
    a = LOWER(a, c);
    b = _mm_shuffle_epi32(a, 0x4e);
    a = LOWER(a, b);
    b = _mm_shuffle_epi32(a, 0xb1);
    return _mm_cvtsi128_si32(LOWER(a, b));
#undef LOWER
#else
    int32_t lowest = NO_KEY;
    for (int i = 0; i < 16; i++)
        lowest = keys[i] < lowest ? keys[i] : lowest;
    return lowest;
#endif
}

#define TEN(n) n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8, n + 9
static const uint8_t numbers[] = {255, TEN(0), TEN(10), TEN(20), TEN(30)};

static void begin(
    const struct kvr_vocabulary *v, struct merge *m, struct kvr_short_piece *short_piece)
{
    const uint8_t *piece = short_piece->bytes;
    uint32_t length = short_piece->length;

    m->piece = short_piece;
    for (uint32_t i = 0; i < (length <= 16 ? 16 : KVR_SHORT_SYMBOLS); i++)
        m->keys[i + 1] = NO_KEY;
    memcpy(m->previous, numbers, sizeof m->previous);
    memcpy(m->next, numbers + 2, sizeof m->next);
    m->tokens[1] = v->byte_ids[piece[0]];
    for (uint32_t i = 1; i < length; i++) {
        m->tokens[i + 1] = v->byte_ids[piece[i]];
        m->keys[i] = key_of(v->byte_pairs[piece[i - 1] << 8 | piece[i]], i);
    }
    m->tokens[0] = m->tokens[length + 1] = v->header->token_count; /* merges with nothing */
    m->count = length;
    m->at = 0;
}

static inline int32_t lower(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Reads the pairs that were asked for, merges and asks for those that follow. False: nothing merges
 * any more. The keys that are new are compared by themselves: a vector that has just been written
 * in part is slow to read. */
static bool advance(const struct kvr_vocabulary *v, struct merge *m)
{
    int32_t lowest = lowest_of(m->keys + 1);

    if (m->count > 16)
        lowest = lower(lowest, lowest_of(m->keys + 17));
    if (m->at) {
        uint32_t left = m->previous[m->at];
        int32_t before = key_of(kvr_pair_at(&m->before_place, &v->pairs), left);
        int32_t after = key_of(kvr_pair_at(&m->after_place, &v->pairs), m->at);
        m->keys[left] = before;
        m->keys[m->at] = after;
        lowest = lower(lowest, lower(before, after));
    }
    if (lowest == NO_KEY)
        return false;
    uint32_t at = (uint32_t)lowest & ((1u << AT_BITS) - 1), merged = (uint32_t)lowest >> AT_BITS;
    uint32_t left = m->previous[at], right = m->next[at], end = m->next[right];
    m->at = at;
    m->tokens[at] = merged;
    m->next[at] = (uint8_t)end;
    m->previous[end] = (uint8_t)at;
    m->keys[left] = m->keys[at] = m->keys[right] = NO_KEY;
    m->before = kvr_pair_ask(&v->pairs, m->tokens[left], merged);
    m->after = kvr_pair_ask(&v->pairs, merged, m->tokens[end]);
    return true;
}

static void finish(const struct merge *m)
{
    uint32_t count = 0;

    for (uint32_t at = 1; at <= m->count; at = m->next[at])
        m->piece->ids[count++] = m->tokens[at];
    m->piece->id_count = count;
}

void kvr_short_merge(const struct kvr_vocabulary *v, struct kvr_short_piece *pieces, size_t count)
{
    struct merge merges[SIDE_BY_SIDE];
    uint8_t turns[SIDE_BY_SIDE];
    size_t active = 0, begun = 0;

    for (; begun < count && active < SIDE_BY_SIDE; active++) {
        turns[active] = (uint8_t)active;
        begin(v, &merges[active], &pieces[begun++]);
    }
    while (active) {
        size_t left = 0;
        for (size_t i = 0; i < active; i++) {
            struct merge *m = &merges[turns[i]];
            turns[left] = turns[i];
            if (advance(v, m)) {
                left++;
                continue;
            }
            finish(m);
            if (begun < count) {
                begin(v, m, &pieces[begun++]);
                left++;
            }
        }
        active = left;
        for (size_t i = 0; i < active; i++) {
            struct merge *m = &merges[turns[i]];
            if (!m->at)
                continue;
            m->before_place = kvr_pair_place_of(&v->pairs, m->before);
            m->after_place = kvr_pair_place_of(&v->pairs, m->after);
        }
    }
}
