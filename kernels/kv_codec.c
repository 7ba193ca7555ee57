/* One tile of the KV codec, one lane after the other: what kv_codec.cu does with a warp. */
#include "kernels/kv_pack.h"

#include <math.h>

enum { SYMBOLS = 2 * KVR_CODEC_BINS + 1, ONE = 1 << KVR_CODEC_BITS, NONE = 0xffff };

/* What is known of the channels of a tile, and where its tokens lie. */
struct channels {
    kvr_bf16 *row[KVR_CODEC_SPAN];
    float anchor_step[KVR_CODEC_DIM], anchor_inverse[KVR_CODEC_DIM];
    float step[KVR_CODEC_DIM], inverse[KVR_CODEC_DIM];
    uint16_t rank[KVR_CODEC_DIM]; /* among those predicted */
    bool predicted[KVR_CODEC_DIM];
    uint32_t predicted_count;
};

static void put16(uint8_t *to, uint32_t number)
{
    to[0] = (uint8_t)number;
    to[1] = (uint8_t)(number >> 8);
}

static void put32(uint8_t *to, uint32_t number)
{
    put16(to, number & 0xffff);
    put16(to + 2, number >> 16);
}

static uint32_t get16(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8;
}

static uint32_t get32(const uint8_t *from)
{
    return get16(from) | get16(from + 2) << 16;
}

static void find_rows(const struct kvr_codec_tile *tile, struct channels *channels)
{
    for (uint32_t i = 0; i < tile->tokens; i++)
        channels->row[i] = tile->kv->data + kvr_kv_at(tile->kv, tile->page_table, tile->layer,
                                                tile->first + i, (int)tile->value, tile->head);
}

static float number(kvr_bf16 bits)
{
    float value = (bits & 0x7f80) == 0x7f80 ? 0 : kvr_bf16_value(bits);

    value = value > 0x1p100f ? 0x1p100f : value;
    return value < -0x1p100f ? -0x1p100f : value;
}

/* The least bfloat16 of which `bins` reach `most`; 0 where nothing is worth a step. */
static kvr_bf16 step_of(float most, uint32_t bins)
{
    float step = most / (float)bins;
    uint32_t word;

    if (!(step >= 0x1p-60f))
        return 0;
    memcpy(&word, &step, sizeof word);
    return (kvr_bf16)((word + 0xffff) >> 16);
}

static void set_step(kvr_bf16 bits, float *step, float *inverse)
{
    *step = kvr_bf16_value(bits);
    *inverse = *step > 0 ? 1 / *step : 0;
}

/* To nearest, ties to even: adding and taking away 1.5 · 2^23 leaves no fraction. */
static int divide(float value, float inverse, int bins)
{
    float steps = value * inverse, most = (float)bins;

    steps = steps > most ? most : steps;
    steps = steps < -most ? -most : steps;
    return (int)((steps + 12582912.0f) - 12582912.0f);
}

/* The anchor of a token's group, as the decoder has it. */
static float anchor_at(const struct channels *channels, uint32_t token, uint32_t at)
{
    int steps = divide(number(channels->row[token - token % KVR_CODEC_GROUP][at]),
        channels->anchor_inverse[at], KVR_CODEC_ANCHOR_BINS);

    return (float)steps * channels->anchor_step[at];
}

/* Settles steps and predictions of all channels. */
static void study(const struct kvr_codec_tile *tile, struct channels *channels)
{
    float most[KVR_CODEC_DIM] = {0}, left_most[KVR_CODEC_DIM] = {0};
    float plain[KVR_CODEC_DIM] = {0}, left[KVR_CODEC_DIM] = {0};
    uint32_t dim = tile->kv->head_dim;

    for (uint32_t token = 0; token < tile->tokens; token++) {
        for (uint32_t at = 0; at < dim; at++) {
            float size = fabsf(number(channels->row[token][at]));
            most[at] = size > most[at] ? size : most[at];
            plain[at] += size;
        }
    }
    for (uint32_t at = 0; at < dim; at++)
        set_step(step_of(most[at], KVR_CODEC_ANCHOR_BINS), &channels->anchor_step[at],
            &channels->anchor_inverse[at]);
    for (uint32_t token = 0; token < tile->tokens; token++) {
        if (token % KVR_CODEC_GROUP == 0)
            continue;
        for (uint32_t at = 0; at < dim; at++) {
            float rest = fabsf(number(channels->row[token][at]) - anchor_at(channels, token, at));
            left[at] += rest;
            left_most[at] = rest > left_most[at] ? rest : left_most[at];
        }
    }
    channels->predicted_count = 0;
    for (uint32_t at = 0; at < dim; at++) {
        channels->predicted[at] = left[at] < plain[at];
        channels->rank[at] = (uint16_t)channels->predicted_count;
        channels->predicted_count += channels->predicted[at];
        set_step(step_of(channels->predicted[at] ? left_most[at] : most[at], tile->bins),
            &channels->step[at], &channels->inverse[at]);
    }
}

static kvr_bf16 upper(float step)
{
    return kvr_bf16_round(step); /* exact: it is one */
}

static void write_head(
    const struct kvr_codec_tile *tile, const struct channels *channels, uint8_t *out)
{
    uint32_t dim = tile->kv->head_dim, count = channels->predicted_count;
    const struct kvr_codec_places places = kvr_codec_places(tile->tokens, dim, tile->bins, count);

    memset(out, 0, places.words);
    out[4] = (uint8_t)tile->bins;
    put16(out + 6, count);
    for (uint32_t at = 0; at < dim; at++) {
        put16(out + places.steps + (size_t)2 * at, upper(channels->step[at]));
        if (!channels->predicted[at])
            continue;
        out[places.predicted + at / 8] |= (uint8_t)(1u << at % 8);
        put16(out + places.anchor_steps + (size_t)2 * channels->rank[at],
            upper(channels->anchor_step[at]));
        for (uint32_t token = 0; token < tile->tokens; token += KVR_CODEC_GROUP)
            out[places.anchors + token / KVR_CODEC_GROUP * count + channels->rank[at]] =
                (uint8_t)divide(number(channels->row[token][at]), channels->anchor_inverse[at],
                    KVR_CODEC_ANCHOR_BINS);
    }
}

/* The symbols of all tokens and channels, NONE where there is none, and how often each comes. */
static void find_symbols(const struct kvr_codec_tile *tile, const struct channels *channels,
    uint16_t *symbols, uint32_t *frequency)
{
    uint32_t dim = tile->kv->head_dim;
    int bins = (int)tile->bins;

    for (uint32_t token = 0; token < tile->tokens; token++) {
        for (uint32_t at = 0; at < dim; at++, symbols++) {
            float value = number(channels->row[token][at]);
            *symbols = NONE;
            if (channels->predicted[at]) {
                if (token % KVR_CODEC_GROUP == 0)
                    continue;
                value -= anchor_at(channels, token, at);
            }
            *symbols = (uint16_t)(divide(value, channels->inverse[at], bins) + bins);
            frequency[*symbols]++;
        }
    }
}

size_t kvr_codec_encode_tile(const struct kvr_codec_tile *tile, uint8_t *out)
{
    uint32_t dim = tile->kv->head_dim, symbols = 2 * tile->bins + 1, total = tile->tokens * dim;
    uint32_t frequency[SYMBOLS] = {0}, start[SYMBOLS + 1] = {0}, state[KVR_CODEC_LANES];
    uint16_t symbol_of[KVR_CODEC_SPAN * KVR_CODEC_DIM];
    struct channels channels;
    uint32_t coded = 0;

    find_rows(tile, &channels);
    study(tile, &channels);
    write_head(tile, &channels, out);
    const struct kvr_codec_places places =
        kvr_codec_places(tile->tokens, dim, tile->bins, channels.predicted_count);
    find_symbols(tile, &channels, symbol_of, frequency);
    for (uint32_t i = 0; i < symbols; i++)
        coded += frequency[i];
    if (coded == 0)
        frequency[tile->bins] = 1;
    kvr_codec_normalise(frequency, symbols);
    for (uint32_t i = 0; i < symbols; i++) {
        put16(out + places.frequencies + (size_t)2 * i, frequency[i]);
        start[i + 1] = start[i] + frequency[i];
    }
    for (uint32_t lane = 0; lane < KVR_CODEC_LANES; lane++)
        state[lane] = KVR_CODEC_LOW;
    /* Backward, and words from the end of the room, which is where a word a symbol would end. */
    uint8_t *end = out + places.words + (size_t)2 * total, *word = end;
    for (uint32_t i = total; i-- > 0;) {
        uint32_t *x = &state[i % KVR_CODEC_LANES], symbol = symbol_of[i];
        if (symbol == NONE)
            continue;
        uint32_t share = frequency[symbol];
        if (*x >= (uint64_t)share << (32 - KVR_CODEC_BITS)) {
            put16(word -= 2, *x & 0xffff);
            *x >>= 16;
        }
        *x = (*x / share << KVR_CODEC_BITS) + *x % share + start[symbol];
    }
    uint32_t words = (uint32_t)(end - word) / 2;
    memmove(out + places.words, word, (size_t)2 * words);
    if (words % 2)
        put16(out + places.words + (size_t)2 * words, 0);
    put32(out, words);
    for (uint32_t lane = 0; lane < KVR_CODEC_LANES; lane++)
        put32(out + KVR_CODEC_STATES + (size_t)4 * lane, state[lane]);
    return kvr_codec_tile_bytes(tile->tokens, dim, tile->bins, channels.predicted_count, words);
}

/* Reads the head of a tile. False: it is not one. */
static bool read_head(const struct kvr_codec_tile *tile, const uint8_t *bytes, size_t size,
    struct channels *channels, struct kvr_codec_places *places)
{
    uint32_t dim = tile->kv->head_dim, counted = 0, bins, count, words;

    if (size < 8)
        return false;
    words = get32(bytes), bins = bytes[4], count = get16(bytes + 6);
    if (bins == 0 || bins > KVR_CODEC_BINS || count > dim || words > tile->tokens * dim ||
        bytes[5] != 0 || size != kvr_codec_tile_bytes(tile->tokens, dim, bins, count, words))
        return false;
    *places = kvr_codec_places(tile->tokens, dim, bins, count);
    for (uint32_t at = 0; at < dim; at++) {
        channels->predicted[at] = bytes[places->predicted + at / 8] >> at % 8 & 1;
        channels->rank[at] = (uint16_t)counted;
        counted += channels->predicted[at];
        kvr_bf16 step = (kvr_bf16)get16(bytes + places->steps + (size_t)2 * at), anchor = 0;
        if (counted > count)
            return false;
        if (channels->predicted[at])
            anchor = (kvr_bf16)get16(bytes + places->anchor_steps + (size_t)2 * channels->rank[at]);
        if (step >= 0x7f80 || anchor >= 0x7f80) /* negative, or not finite */
            return false;
        channels->step[at] = kvr_bf16_value(step);
        channels->anchor_step[at] = kvr_bf16_value(anchor);
    }
    channels->predicted_count = count;
    return counted == count;
}

bool kvr_codec_decode_tile(const struct kvr_codec_tile *tile, const uint8_t *bytes, size_t size)
{
    uint32_t dim = tile->kv->head_dim, total = tile->tokens * dim, sum = 0;
    uint32_t frequency[SYMBOLS], start[SYMBOLS], state[KVR_CODEC_LANES];
    struct kvr_codec_places places;
    struct channels channels;
    uint8_t symbol_of[ONE];

    if (!read_head(tile, bytes, size, &channels, &places))
        return false;
    find_rows(tile, &channels);
    uint32_t bins = bytes[4], words = get32(bytes), used = 0, count = channels.predicted_count;
    for (uint32_t i = 0; i < 2 * bins + 1; i++) {
        frequency[i] = get16(bytes + places.frequencies + (size_t)2 * i);
        if (frequency[i] > ONE - sum)
            return false;
        memset(symbol_of + sum, (int)i, frequency[i]);
        start[i] = sum;
        sum += frequency[i];
    }
    if (sum != ONE)
        return false;
    for (uint32_t lane = 0; lane < KVR_CODEC_LANES; lane++) {
        state[lane] = get32(bytes + KVR_CODEC_STATES + (size_t)4 * lane);
        if (state[lane] < KVR_CODEC_LOW)
            return false;
    }
    const int8_t *anchors = (const int8_t *)bytes + places.anchors;
    for (uint32_t i = 0; i < total; i++) {
        uint32_t *x = &state[i % KVR_CODEC_LANES], token = i / dim, at = i % dim;
        float value = 0;
        if (channels.predicted[at])
            value = (float)anchors[token / KVR_CODEC_GROUP * count + channels.rank[at]] *
                    channels.anchor_step[at];
        if (!channels.predicted[at] || token % KVR_CODEC_GROUP != 0) {
            uint32_t place = *x % ONE, symbol = symbol_of[place];
            *x = frequency[symbol] * (*x / ONE) + place - start[symbol];
            if (*x < KVR_CODEC_LOW) {
                if (used == words)
                    return false;
                *x = *x << 16 | get16(bytes + places.words + (size_t)2 * used++);
            }
            value += (float)((int)symbol - (int)bins) * channels.step[at];
        }
        channels.row[token][at] = kvr_bf16_round(value);
    }
    for (uint32_t lane = 0; lane < KVR_CODEC_LANES; lane++)
        if (state[lane] != KVR_CODEC_LOW)
            return false;
    return used == words;
}
