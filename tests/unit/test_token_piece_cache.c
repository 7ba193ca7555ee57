/*
 * The piece cache gives what encoding gives, also when it forgets: more pieces than it has entries,
 * more bytes than its store holds, pieces met again and again in between.
 */
#include "base/random.h"
#include "tests/unit/unit.h"
#include "token/piece_cache.h"
#include "token/vocabulary_source.h"

#include <stdlib.h>
#include <string.h>

enum { LETTERS = 8, KNOWN = 4000, KNOWN_BYTES = 300, ROOM = 3000, BATCH_PIECES = 300 };

struct fixture {
    void *image;
    struct kvr_vocabulary vocabulary;
    struct kvr_piece_cache cache;
    struct kvr_bpe_scratch scratch;
    struct kvr_random random;
    char known[KNOWN][KNOWN_BYTES]; /* pieces that come again */
    size_t known_length[KNOWN];
    struct kvr_ids ids, wanted;
    struct kvr_buffer text;
    uint32_t ends[BATCH_PIECES];
};

/* All bytes, or letters only, and the pairs of neighbours: "ab" "bc" ... "abcd" "bcde" ... */
static void build_vocabulary(struct fixture *f, bool all_bytes)
{
    struct kvr_source source = {.model = KVR_MODEL_BYTE_BPE, .unknown_id = KVR_NO_TOKEN};
    struct kvr_buffer image = {0};
    uint32_t count = 0;
    const char *letters = "abcdefgh";

    for (int byte = 0; byte < 256; byte++)
        if (all_bytes || (byte && strchr(letters, byte)))
            kvr_source_add_token(&source, count++, &(uint8_t){(uint8_t)byte}, 1, 0, NULL);
    for (uint32_t size = 2; size <= 4; size *= 2)
        for (uint32_t i = 0; i + size <= LETTERS; i++)
            kvr_source_add_token(&source, count++, letters + i, size, 0, NULL);
    kvr_source_index(&source, NULL);
    for (uint32_t size = 2; size <= 4; size *= 2)
        for (uint32_t i = 0; i + size <= LETTERS; i++)
            kvr_source_add_merge(&source, kvr_source_find(&source, letters + i, size / 2),
                kvr_source_find(&source, letters + i + size / 2, size / 2),
                kvr_source_find(&source, letters + i, size), NULL);
    assert_int_equal(kvr_source_compile(&source, &image, NULL), KVR_OK);
    f->image = aligned_alloc(64, (image.length + 63) / 64 * 64);
    memcpy(f->image, image.data, image.length);
    assert_int_equal(kvr_vocabulary_attach(&f->vocabulary, f->image, image.length, NULL), KVR_OK);
    assert_true(!(f->vocabulary.header->special_flags & KVR_VOCABULARY_SHORT_MERGES) == !all_bytes);
    kvr_buffer_release(&image);
    kvr_source_release(&source);
}

static size_t random_piece(struct fixture *f, char *out, size_t most)
{
    size_t length = 1 + kvr_random_below(&f->random, most);

    for (size_t i = 0; i < length; i++)
        out[i] = (char)('a' + kvr_random_below(&f->random, LETTERS));
    return length;
}

static void append_piece(struct fixture *f)
{
    char piece[ROOM];
    size_t kind = kvr_random_below(&f->random, 100);

    if (kind < 50) {
        size_t number = kvr_random_below(&f->random, KNOWN);
        kvr_buffer_append(&f->text, f->known[number], f->known_length[number]);
    } else {
        size_t most = kind < 95 ? 16 : kind < 99 ? 100 : ROOM;
        kvr_buffer_append(&f->text, piece, random_piece(f, piece, most));
    }
}

static void check(bool all_bytes)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->random.state = 3;
    build_vocabulary(f, all_bytes);
    assert_true(kvr_piece_cache_init(&f->cache));
    for (size_t i = 0; i < KNOWN; i++)
        f->known_length[i] = random_piece(f, f->known[i], i % 4 ? 16 : KNOWN_BYTES);
    for (int batch = 0; batch < 2000; batch++) {
        size_t start = 0;
        kvr_buffer_clear(&f->text);
        f->ids.count = f->wanted.count = 0;
        for (size_t i = 0; i < BATCH_PIECES; i++) {
            append_piece(f);
            f->ends[i] = (uint32_t)f->text.length;
        }
        const uint8_t *text = (const uint8_t *)f->text.data;
        kvr_encode_pieces(
            &f->vocabulary, &f->cache, text, f->text.length, 0, f->ends, BATCH_PIECES, &f->ids);
        for (size_t i = 0; i < BATCH_PIECES; start = f->ends[i++])
            kvr_bpe_merge(
                &f->vocabulary, &f->scratch, text + start, f->ends[i] - start, &f->wanted);
        assert_int_equal(f->ids.count, f->wanted.count);
        assert_memory_equal(f->ids.data, f->wanted.data, f->wanted.count * sizeof *f->ids.data);
    }
    assert_true(f->cache.written > 2 * KVR_PIECE_STORE_BYTES);
    kvr_piece_cache_release(&f->cache);
    kvr_bpe_scratch_release(&f->scratch);
    kvr_ids_release(&f->ids);
    kvr_ids_release(&f->wanted);
    kvr_buffer_release(&f->text);
    free(f->image);
    free(f);
}

static void cached_pieces_are_as_merged(void **state)
{
    (void)state;
    check(false);
}

static void pieces_merged_side_by_side_are_as_merged(void **state)
{
    (void)state;
    check(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_pieces_are_as_merged),
        cmocka_unit_test(pieces_merged_side_by_side_are_as_merged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
