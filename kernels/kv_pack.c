#include "kernels/kv_pack.h"

#include <stdlib.h>

static const struct kvr_codec_level levels[] = {
    {"fine", {63, 31, 31}},
    {"medium", {16, 8, 8}},
    {"coarse", {8, 4, 4}},
};
const char kvr_codec_level_names[] = "fine|medium|coarse";

enum kvr_status kvr_codec_level_find(
    const char *name, const struct kvr_codec_level **level, struct kvr_error *error)
{
    char shown[64];

    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(levels[i].name, name) == 0) {
            *level = &levels[i];
            return KVR_OK;
        }
    }
    return kvr_error_set(error, KVR_BAD_USAGE,
        "no level '%s' of the KV codec: fine, medium, coarse",
        kvr_printable(shown, sizeof shown, name, strlen(name)));
}

/* The tiles of a prefix, by number. */
struct prefix {
    const struct kvr_kv *kv;
    const uint32_t *page_table;
    uint32_t tokens;
    const struct kvr_codec_level *level;
    uint8_t *room; /* of one tile each, of a batch that begins at tile `begun` */
    size_t tile_room, begun;
    uint32_t *sizes;       /* of the tiles of a batch */
    const uint8_t *bytes;  /* of the tiles to be decoded */
    const uint64_t *begin; /* [tiles + 1] where they lie in it */
    bool *damaged;         /* one a thread */
};

static struct kvr_codec_shape shape_of(const struct kvr_kv *kv, uint32_t tokens)
{
    return (struct kvr_codec_shape){kv->layers, kv->kv_heads, kv->head_dim, tokens};
}

static struct kvr_codec_tile tile_of(const struct prefix *prefix, size_t number)
{
    const struct kvr_kv *kv = prefix->kv;
    size_t place = number / kv->kv_heads, layer = place / 2 % kv->layers;
    uint32_t first = (uint32_t)(place / 2 / kv->layers) * KVR_CODEC_SPAN;
    uint32_t left = prefix->tokens - first;

    return (struct kvr_codec_tile){kv, prefix->page_table, (uint32_t)layer, (uint32_t)(place % 2),
        (uint32_t)(number % kv->kv_heads), first,
        left < KVR_CODEC_SPAN ? left : (uint32_t)KVR_CODEC_SPAN,
        prefix->level ? prefix->level->bins[layer * 3 / kv->layers] : 0};
}

static void encode_job(void *context, size_t number, unsigned thread)
{
    struct prefix *prefix = context;
    struct kvr_codec_tile tile = tile_of(prefix, prefix->begun + number);

    (void)thread;
    prefix->sizes[number] =
        (uint32_t)kvr_codec_encode_tile(&tile, prefix->room + number * prefix->tile_room);
}

enum kvr_status kvr_codec_pack(const struct kvr_kv *kv, const uint32_t *page_table, uint32_t tokens,
    const struct kvr_codec_level *level, struct kvr_crew *crew, struct kvr_buffer *out,
    struct kvr_error *error)
{
    enum { BATCH = 64 };
    uint32_t sizes[BATCH];
    struct prefix prefix = {
        .kv = kv, .page_table = page_table, .tokens = tokens, .level = level, .sizes = sizes};
    const struct kvr_codec_shape shape = shape_of(kv, tokens);
    size_t tiles = kvr_codec_tiles(&shape), table = out->length + KVR_CODEC_HEADER_BYTES;

    if (tokens == 0 || kv->head_dim > KVR_CODEC_DIM)
        return kvr_error_set(error, KVR_BAD_USAGE, "no tokens to pack, or heads too large");
    prefix.tile_room = kvr_codec_tile_room(KVR_CODEC_SPAN, kv->head_dim, KVR_CODEC_BINS);
    if (!kvr_buffer_reserve(out, KVR_CODEC_HEADER_BYTES + 4 * tiles) ||
        !(prefix.room = malloc(BATCH * prefix.tile_room)))
        return kvr_error_memory(error);
    kvr_codec_write_header(&shape, (uint8_t *)out->data + out->length);
    out->length = table + 4 * tiles;
    for (prefix.begun = 0; prefix.begun < tiles && !out->failed; prefix.begun += BATCH) {
        size_t now = tiles - prefix.begun < BATCH ? tiles - prefix.begun : (size_t)BATCH;
        kvr_crew_run(crew, now, encode_job, &prefix);
        for (size_t i = 0; i < now && !out->failed; i++) {
            kvr_codec_put((uint8_t *)out->data + table + 4 * (prefix.begun + i), sizes[i]);
            kvr_buffer_append(out, prefix.room + i * prefix.tile_room, sizes[i]);
        }
    }
    free(prefix.room);
    return out->failed ? kvr_error_memory(error) : KVR_OK;
}

static void decode_job(void *context, size_t number, unsigned thread)
{
    struct prefix *prefix = context;
    struct kvr_codec_tile tile = tile_of(prefix, number);
    uint64_t begin = prefix->begin[number], end = prefix->begin[number + 1];

    if (!kvr_codec_decode_tile(&tile, prefix->bytes + begin, (size_t)(end - begin)))
        prefix->damaged[thread] = true;
}

enum kvr_status kvr_codec_unpack(const struct kvr_kv *kv, const uint32_t *page_table,
    uint32_t max_tokens, const void *bytes, size_t size, struct kvr_crew *crew, uint32_t *tokens,
    struct kvr_error *error)
{
    struct kvr_codec_shape shape = shape_of(kv, max_tokens);
    struct prefix prefix = {.kv = kv, .page_table = page_table};
    const char *wrong = "its heads are too large";
    bool damaged = false;

    if (kv->head_dim <= KVR_CODEC_DIM)
        wrong = kvr_codec_read_header(&shape, bytes, size, NULL);
    if (wrong)
        return kvr_error_set(error, KVR_BAD_INPUT, "the packed KV does not fit: %s", wrong);
    size_t tiles = kvr_codec_tiles(&shape);
    uint64_t *begin = malloc((tiles + 1) * sizeof *begin);
    prefix.damaged = calloc(kvr_crew_threads(crew), sizeof *prefix.damaged);
    if (!begin || !prefix.damaged) {
        free(begin);
        free(prefix.damaged);
        return kvr_error_memory(error);
    }
    shape.tokens = max_tokens;
    kvr_codec_read_header(&shape, bytes, size, begin);
    prefix.tokens = *tokens = shape.tokens;
    prefix.begin = begin;
    prefix.bytes = (const uint8_t *)bytes + KVR_CODEC_HEADER_BYTES + 4 * tiles;
    kvr_crew_run(crew, tiles, decode_job, &prefix);
    for (unsigned i = 0; i < kvr_crew_threads(crew); i++)
        damaged |= prefix.damaged[i];
    free(begin);
    free(prefix.damaged);
    return damaged ? kvr_error_set(error, KVR_BAD_INPUT, "the packed KV is damaged") : KVR_OK;
}
