/*
 * The KV codec (kv_codec.h) with a warp for a tile and a lane for each of its 32 states. The
 * channels of a tile are shared out among the lanes while steps and predictions are settled, then
 * the symbols, 32 neighbours at a time, are. Words are taken and given by ballot: the lanes that
 * need one stand in the order of their numbers.
 *
 * Products and quotients are those of kv_codec.c to the bit: a product that is rounded is kept out
 * of any fused sum by __fmul_rn, the others are exact.
 */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

enum { LANES = KVR_CODEC_LANES, SYMBOLS = 2 * KVR_CODEC_BINS + 1, ONE = 1 << KVR_CODEC_BITS };

/* What a warp works with, in shared memory; the arrays of channels follow. */
struct desk {
    uint32_t frequency[SYMBOLS + 1], start[SYMBOLS + 1];
    uint8_t symbol_of[ONE];
};

/* One of the arrays of `dim` numbers behind the desk. */
enum array { MOST, LEFT_MOST, PLAIN, LEFT, ANCHOR_STEP, ANCHOR_INVERSE, STEP, INVERSE, ARRAYS };

struct tile {
    uint16_t *base; /* of the layer */
    const uint32_t *page_table;
    float *arrays;
    uint32_t value, head, first, tokens, bins, dim, heads, page_tokens;
};

static __device__ __forceinline__ struct tile tile_of(
    const struct kvr_cuda_codec &codec, uint32_t number, float *arrays)
{
    uint32_t place = number / codec.kv.kv_heads, layer = place / 2 % codec.layers;
    uint32_t first = place / 2 / codec.layers * KVR_CODEC_SPAN, left = codec.tokens - first;
    size_t numbers = static_cast<size_t>(codec.pages) * 2 * codec.kv.kv_heads *
                     codec.kv.page_tokens * codec.kv.head_dim;

    return tile{codec.kv.layer + layer * numbers, codec.page_table, arrays, place % 2,
        number % codec.kv.kv_heads, first,
        left < KVR_CODEC_SPAN ? left : static_cast<uint32_t>(KVR_CODEC_SPAN),
        codec.bins[layer * 3 / codec.layers], codec.kv.head_dim, codec.kv.kv_heads,
        codec.kv.page_tokens};
}

static __device__ __forceinline__ uint16_t *row_of(const struct tile &tile, uint32_t token)
{
    uint32_t at = tile.first + token;
    size_t page = tile.page_table[at / tile.page_tokens];

    return tile.base + (((page * 2 + tile.value) * tile.heads + tile.head) * tile.page_tokens +
                           at % tile.page_tokens) *
                           tile.dim;
}

static __device__ __forceinline__ float *array_of(const struct tile &tile, enum array which)
{
    return tile.arrays + which * tile.dim;
}

static __device__ __forceinline__ float number(uint16_t bits)
{
    float value = (bits & 0x7f80) == 0x7f80 ? 0 : bf16_value(bits);

    value = value > 0x1p100f ? 0x1p100f : value;
    return value < -0x1p100f ? -0x1p100f : value;
}

static __device__ __forceinline__ uint16_t step_of(float most, uint32_t bins)
{
    float step = most / static_cast<float>(bins);

    return step >= 0x1p-60f ? static_cast<uint16_t>((__float_as_uint(step) + 0xffffu) >> 16)
                            : static_cast<uint16_t>(0);
}

static __device__ __forceinline__ int divide(float value, float inverse, int bins)
{
    float steps = __fmul_rn(value, inverse), most = static_cast<float>(bins);

    steps = steps > most ? most : steps;
    steps = steps < -most ? -most : steps;
    return static_cast<int>(rintf(steps));
}

static __device__ __forceinline__ float anchor_at(
    const struct tile &tile, const uint16_t *anchor, uint32_t at)
{
    int steps =
        divide(number(anchor[at]), array_of(tile, ANCHOR_INVERSE)[at], KVR_CODEC_ANCHOR_BINS);

    return static_cast<float>(steps) * array_of(tile, ANCHOR_STEP)[at];
}

static __device__ __forceinline__ void set_step(
    const struct tile &tile, enum array step, enum array inverse, uint32_t at, uint16_t bits)
{
    float value = bf16_value(bits);

    array_of(tile, step)[at] = value;
    array_of(tile, inverse)[at] = value > 0 ? 1.0f / value : 0;
}

/* Steps of all channels; those of a predicted one are left in LEFT < PLAIN. A lane reads what it
 * wrote itself: no barrier. */
static __device__ void study(const struct tile &tile, uint32_t lane)
{
    float *most = array_of(tile, MOST), *left_most = array_of(tile, LEFT_MOST);
    float *plain = array_of(tile, PLAIN), *left = array_of(tile, LEFT);

    for (uint32_t at = lane; at < tile.dim; at += LANES)
        most[at] = left_most[at] = plain[at] = left[at] = 0;
    for (uint32_t token = 0; token < tile.tokens; token++) {
        const uint16_t *row = row_of(tile, token);
        for (uint32_t at = lane; at < tile.dim; at += LANES) {
            float size = fabsf(number(row[at]));
            most[at] = size > most[at] ? size : most[at];
            plain[at] += size;
        }
    }
    for (uint32_t at = lane; at < tile.dim; at += LANES)
        set_step(tile, ANCHOR_STEP, ANCHOR_INVERSE, at, step_of(most[at], KVR_CODEC_ANCHOR_BINS));
    const uint16_t *anchor = nullptr;
    for (uint32_t token = 0; token < tile.tokens; token++) {
        const uint16_t *row = row_of(tile, token);
        if (token % KVR_CODEC_GROUP == 0) {
            anchor = row;
            continue;
        }
        for (uint32_t at = lane; at < tile.dim; at += LANES) {
            float rest = fabsf(number(row[at]) - anchor_at(tile, anchor, at));
            left[at] += rest;
            left_most[at] = rest > left_most[at] ? rest : left_most[at];
        }
    }
    for (uint32_t at = lane; at < tile.dim; at += LANES)
        set_step(tile, STEP, INVERSE, at,
            step_of(left[at] < plain[at] ? left_most[at] : most[at], tile.bins));
}

static __device__ __forceinline__ bool predicted(const struct tile &tile, uint32_t at)
{
    return array_of(tile, LEFT)[at] < array_of(tile, PLAIN)[at];
}

/* Writes all that stands before the frequencies and behind them up to the words; returns how many
 * channels are predicted. */
static __device__ uint32_t write_head(const struct tile &tile, uint32_t lane, uint8_t *out)
{
    uint32_t count = 0;

    for (uint32_t base = 0; base < tile.dim; base += LANES)
        count += __popc(__ballot_sync(~0u, base + lane < tile.dim && predicted(tile, base + lane)));
    const struct kvr_codec_places places =
        kvr_codec_places(tile.tokens, tile.dim, tile.bins, count);
    for (uint32_t i = lane; i < places.words / 4; i += LANES)
        reinterpret_cast<uint32_t *>(out)[i] = 0;
    __syncwarp();
    if (lane == 0) {
        out[4] = static_cast<uint8_t>(tile.bins);
        *reinterpret_cast<uint16_t *>(out + 6) = static_cast<uint16_t>(count);
    }
    uint32_t before = 0;
    for (uint32_t base = 0; base < tile.dim; base += LANES) {
        uint32_t at = base + lane;
        bool is = at < tile.dim && predicted(tile, at);
        uint32_t all = __ballot_sync(~0u, is);
        uint32_t rank = before + __popc(all & ((1u << lane) - 1));
        before += __popc(all);
        if (lane == 0)
            *reinterpret_cast<uint32_t *>(out + places.predicted + base / 8) = all;
        if (at < tile.dim)
            reinterpret_cast<uint16_t *>(out + places.steps)[at] =
                bf16_round(array_of(tile, STEP)[at]);
        if (!is)
            continue;
        reinterpret_cast<uint16_t *>(out + places.anchor_steps)[rank] =
            bf16_round(array_of(tile, ANCHOR_STEP)[at]);
        for (uint32_t token = 0; token < tile.tokens; token += KVR_CODEC_GROUP)
            out[places.anchors + token / KVR_CODEC_GROUP * count + rank] =
                static_cast<uint8_t>(divide(number(row_of(tile, token)[at]),
                    array_of(tile, ANCHOR_INVERSE)[at], KVR_CODEC_ANCHOR_BINS));
    }
    return count;
}

static __device__ __forceinline__ bool symbol_at(
    const struct tile &tile, uint32_t i, uint32_t *symbol)
{
    uint32_t token = i / tile.dim, at = i % tile.dim;
    float value = number(row_of(tile, token)[at]);

    if (predicted(tile, at)) {
        if (token % KVR_CODEC_GROUP == 0)
            return false;
        value -= anchor_at(tile, row_of(tile, token - token % KVR_CODEC_GROUP), at);
    }
    int bins = static_cast<int>(tile.bins);
    *symbol = static_cast<uint32_t>(divide(value, array_of(tile, INVERSE)[at], bins) + bins);
    return true;
}

/* Counts symbols, and settles and writes their frequencies. */
static __device__ void count_symbols(
    const struct tile &tile, uint32_t lane, struct desk *desk, uint8_t *frequencies)
{
    uint32_t symbols = 2 * tile.bins + 1, total = tile.tokens * tile.dim, symbol, some = 0;

    for (uint32_t i = lane; i < symbols; i += LANES)
        desk->frequency[i] = 0;
    __syncwarp();
    for (uint32_t i = lane; i < total; i += LANES) {
        if (symbol_at(tile, i, &symbol)) {
            atomicAdd(&desk->frequency[symbol], 1u);
            some = 1;
        }
    }
    some = __ballot_sync(~0u, some);
    if (lane == 0) {
        if (some == 0)
            desk->frequency[tile.bins] = 1;
        kvr_codec_normalise(desk->frequency, symbols);
        desk->start[0] = 0;
        for (uint32_t i = 0; i < symbols; i++)
            desk->start[i + 1] = desk->start[i] + desk->frequency[i];
    }
    __syncwarp();
    for (uint32_t i = lane; i < symbols; i += LANES)
        reinterpret_cast<uint16_t *>(frequencies)[i] = static_cast<uint16_t>(desk->frequency[i]);
}

static __global__ void encode(struct kvr_cuda_codec codec, uint32_t first_tile, uint8_t *rooms,
    size_t room_bytes, uint32_t *sizes)
{
    KVR_SHARED(struct desk, desk);
    const uint32_t lane = threadIdx.x;
    const struct tile tile =
        tile_of(codec, first_tile + blockIdx.x, reinterpret_cast<float *>(desk + 1));
    uint8_t *out = rooms + blockIdx.x * room_bytes;

    study(tile, lane);
    __syncwarp(); /* from here on lanes read what others settled */
    uint32_t count = write_head(tile, lane, out);
    const struct kvr_codec_places places =
        kvr_codec_places(tile.tokens, tile.dim, tile.bins, count);
    count_symbols(tile, lane, desk, out + places.frequencies);
    uint32_t total = tile.tokens * tile.dim, x = KVR_CODEC_LOW, symbol = 0;
    uint16_t *words = reinterpret_cast<uint16_t *>(out + places.words);
    uint32_t at = total; /* where the words begin so far */
    for (uint32_t row = (total + LANES - 1) / LANES; row-- > 0;) {
        uint32_t i = row * LANES + lane;
        bool coded = i < total && symbol_at(tile, i, &symbol);
        uint32_t share = coded ? desk->frequency[symbol] : 1;
        bool gives = coded && x >= static_cast<uint64_t>(share) << (32 - KVR_CODEC_BITS);
        uint32_t all = __ballot_sync(~0u, gives);
        at -= __popc(all);
        if (gives) {
            words[at + __popc(all & ((1u << lane) - 1))] = static_cast<uint16_t>(x);
            x >>= 16;
        }
        if (coded)
            x = (x / share << KVR_CODEC_BITS) + x % share + desk->start[symbol];
    }
    reinterpret_cast<uint32_t *>(out + KVR_CODEC_STATES)[lane] = x;
    __syncwarp();
    uint32_t used = total - at;
    for (uint32_t i = 0; i < used; i += LANES) { /* down to their place, 32 at a time */
        uint16_t word = i + lane < used ? words[at + i + lane] : static_cast<uint16_t>(0);
        __syncwarp();
        if (i + lane < used)
            words[i + lane] = word;
    }
    if (lane == 0) {
        if (used % 2)
            words[used] = 0;
        *reinterpret_cast<uint32_t *>(out) = used;
        sizes[blockIdx.x] = static_cast<uint32_t>(
            kvr_codec_tile_bytes(tile.tokens, tile.dim, tile.bins, count, used));
    }
}

/* The head of a tile into the desk and the arrays: steps, and in LEFT the rank among the predicted
 * or −1. False for some lane where the bytes are no tile. */
static __device__ bool read_head(struct tile &tile, uint32_t lane, const uint8_t *bytes,
    uint64_t size, struct desk *desk, struct kvr_codec_places *places, uint32_t *words,
    uint32_t *count)
{
    if (size < 8 || reinterpret_cast<uintptr_t>(bytes) % 4 != 0)
        return false;
    *words = *reinterpret_cast<const uint32_t *>(bytes);
    *count = *reinterpret_cast<const uint16_t *>(bytes + 6);
    tile.bins = bytes[4];
    if (tile.bins == 0 || tile.bins > KVR_CODEC_BINS || *count > tile.dim ||
        *words > tile.tokens * tile.dim || bytes[5] != 0 ||
        size != kvr_codec_tile_bytes(tile.tokens, tile.dim, tile.bins, *count, *words))
        return false;
    *places = kvr_codec_places(tile.tokens, tile.dim, tile.bins, *count);
    const uint16_t *frequencies = reinterpret_cast<const uint16_t *>(bytes + places->frequencies);
    bool fine = true;
    if (lane == 0) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < 2 * tile.bins + 1; i++) {
            desk->frequency[i] = frequencies[i];
            desk->start[i] = sum;
            sum += frequencies[i]; /* 255 of them stay far below 2^32 */
        }
        fine = sum == ONE;
    }
    uint32_t before = 0;
    for (uint32_t base = 0; base < tile.dim; base += LANES) {
        uint32_t at = base + lane;
        uint32_t all = *reinterpret_cast<const uint32_t *>(bytes + places->predicted + base / 8);
        if (tile.dim - base < LANES)
            all &= (1u << (tile.dim - base)) - 1;
        uint32_t rank = before + __popc(all & ((1u << lane) - 1));
        before += __popc(all);
        if (before > *count)
            return false; /* all lanes see the same bits */
        if (at >= tile.dim)
            continue;
        uint16_t step = reinterpret_cast<const uint16_t *>(bytes + places->steps)[at], anchor = 0;
        bool is = all >> lane & 1;
        if (is)
            anchor = reinterpret_cast<const uint16_t *>(bytes + places->anchor_steps)[rank];
        fine &= step < 0x7f80 && anchor < 0x7f80;
        array_of(tile, STEP)[at] = bf16_value(step);
        array_of(tile, ANCHOR_STEP)[at] = bf16_value(anchor);
        array_of(tile, LEFT)[at] = is ? static_cast<float>(rank) : -1.0f;
    }
    return fine && before == *count;
}

static __global__ void decode(
    struct kvr_cuda_codec codec, const uint8_t *bytes, const uint64_t *begin, uint32_t *damaged)
{
    KVR_SHARED(struct desk, desk);
    const uint32_t lane = threadIdx.x;
    struct tile tile = tile_of(codec, blockIdx.x, reinterpret_cast<float *>(desk + 1));
    const uint8_t *from = bytes + begin[blockIdx.x];
    struct kvr_codec_places places = {};
    uint32_t words = 0, count = 0, used = 0;

    bool bad = !read_head(
        tile, lane, from, begin[blockIdx.x + 1] - begin[blockIdx.x], desk, &places, &words, &count);
    uint32_t x = bad ? 0 : reinterpret_cast<const uint32_t *>(from + KVR_CODEC_STATES)[lane];
    bad |= x < KVR_CODEC_LOW;
    if (__ballot_sync(~0u, bad)) {
        damaged[blockIdx.x] = 1; /* by all lanes the same */
        return;
    }
    for (uint32_t i = lane; i < 2 * tile.bins + 1; i += LANES)
        for (uint32_t place = 0; place < desk->frequency[i]; place++)
            desk->symbol_of[desk->start[i] + place] = static_cast<uint8_t>(i);
    __syncwarp();
    const uint16_t *word = reinterpret_cast<const uint16_t *>(from + places.words);
    const int8_t *anchors = reinterpret_cast<const int8_t *>(from + places.anchors);
    uint32_t total = tile.tokens * tile.dim;
    for (uint32_t row = 0; row < (total + LANES - 1) / LANES; row++) {
        uint32_t i = row * LANES + lane, token = i / tile.dim, at = i % tile.dim;
        float rank = i < total ? array_of(tile, LEFT)[at] : 0, value = 0;
        if (i < total && rank >= 0)
            value = static_cast<float>(
                        anchors[token / KVR_CODEC_GROUP * count + static_cast<uint32_t>(rank)]) *
                    array_of(tile, ANCHOR_STEP)[at];
        if (i < total && (rank < 0 || token % KVR_CODEC_GROUP != 0)) {
            uint32_t place = x % ONE, symbol = desk->symbol_of[place];
            x = desk->frequency[symbol] * (x / ONE) + place - desk->start[symbol];
            value += static_cast<float>(static_cast<int>(symbol) - static_cast<int>(tile.bins)) *
                     array_of(tile, STEP)[at];
        }
        uint32_t all = __ballot_sync(~0u, x < KVR_CODEC_LOW);
        if (x < KVR_CODEC_LOW) {
            uint32_t next = used + __popc(all & ((1u << lane) - 1));
            bad |= next >= words;
            x = x << 16 | (next < words ? word[next] : KVR_CODEC_LOW - 1u);
        }
        used += __popc(all);
        if (i < total)
            row_of(tile, token)[at] = bf16_round(value);
    }
    bad |= x != KVR_CODEC_LOW || used != words;
    if (__ballot_sync(~0u, bad))
        damaged[blockIdx.x] = 1;
}

static size_t desk_bytes(const struct kvr_cuda_codec *codec)
{
    return sizeof(struct desk) + ARRAYS * sizeof(float) * codec->kv.head_dim;
}

void kvr_cuda_codec_encode(kvr_stream stream, const struct kvr_cuda_codec *codec,
    uint32_t first_tile, uint32_t tiles, uint8_t *rooms, size_t room_bytes, uint32_t *sizes)
{
    if (tiles > 0)
        KVR_LAUNCH(encode, tiles, LANES, desk_bytes(codec), stream, *codec, first_tile, rooms,
            room_bytes, sizes);
}

void kvr_cuda_codec_decode(kvr_stream stream, const struct kvr_cuda_codec *codec, uint32_t tiles,
    const uint8_t *bytes, const uint64_t *begin, uint32_t *damaged)
{
    if (tiles > 0)
        KVR_LAUNCH(decode, tiles, LANES, desk_bytes(codec), stream, *codec, bytes, begin, damaged);
}
