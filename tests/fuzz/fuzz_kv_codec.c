/*
 * Any bytes as a packed prefix of a small model, behind a byte that says which. What is taken is
 * packed anew and must come back the same. Bytes too few to be a prefix are made one: the first ask
 * for numbers that are packed, the others change single bytes of that.
 */
#include "kernels/kv_pack.h"

#include <stdlib.h>

enum { LAYERS = 2, HEADS = 1, DIM = 12, PAGE = 4, PAGES = 8, TOKENS = 20 };
enum { NUMBERS = LAYERS * PAGES * 2 * HEADS * PAGE * DIM };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void unpack(const struct kvr_kv *kv, struct kvr_crew *crew, const void *bytes, size_t size)
{
    static const uint32_t table[] = {6, 0, 3, 2, 5};
    const struct kvr_codec_level *level;
    struct kvr_buffer packed = {0};
    struct kvr_error error;
    uint32_t tokens = 0;

    if (kvr_codec_unpack(kv, table, TOKENS, bytes, size, crew, &tokens, &error) == KVR_OK) {
        if (tokens == 0 || tokens > TOKENS ||
            kvr_codec_level_find("medium", &level, &error) != KVR_OK ||
            kvr_codec_pack(kv, table, tokens, level, crew, &packed, &error) != KVR_OK ||
            kvr_codec_unpack(
                kv, table, tokens, packed.data, packed.length, crew, &tokens, &error) != KVR_OK)
            abort();
    }
    kvr_buffer_release(&packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t table[] = {6, 0, 3, 2, 5};
    static kvr_bf16 numbers[NUMBERS];
    const struct kvr_kv kv = {numbers, LAYERS, PAGES, HEADS, DIM, PAGE};
    const struct kvr_codec_level *level;
    struct kvr_buffer packed = {0};
    struct kvr_crew *crew;
    struct kvr_error error;

    if (size < 2 || kvr_crew_create(1, &crew, &error) != KVR_OK)
        return 0;
    if (data[0] % 2 == 0) {
        unpack(&kv, crew, data + 1, size - 1);
    } else if (kvr_codec_level_find(data[0] & 2 ? "fine" : "coarse", &level, &error) == KVR_OK) {
        for (size_t i = 0; i < NUMBERS; i++)
            numbers[i] = (kvr_bf16)(data[1 + i * 7 % (size - 1)] << 8 | data[1 + i % (size - 1)]);
        if (kvr_codec_pack(&kv, table, 1 + data[1] % TOKENS, level, crew, &packed, &error) !=
            KVR_OK)
            abort();
        for (size_t i = 2; i + 2 < size && i < 20; i += 3)
            packed.data[(data[i] << 8 | data[i + 1]) % packed.length] ^= (char)data[i + 2];
        unpack(&kv, crew, packed.data, packed.length);
    }
    kvr_buffer_release(&packed);
    kvr_crew_destroy(crew);
    return 0;
}
