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

enum kind { SOME_BYTES, ALL_BYTES, KANA };
enum { LETTERS = 8, KNOWN = 4000, KNOWN_BYTES = 300, ROOM = 6000, BATCH_PIECES = 300 };

struct fixture {
    enum kind kind;
    struct kvr_pages image;
    struct kvr_vocabulary vocabulary;
    struct kvr_piece_cache cache;
    struct kvr_bpe_scratch scratch;
    struct kvr_random random;
    char known[KNOWN][KNOWN_BYTES + 2]; /* pieces that come again */
    size_t known_length[KNOWN];
    struct kvr_ids ids, wanted;
    struct kvr_buffer text;
    uint32_t ends[BATCH_PIECES];
};

/* Single bytes and then, in order of their merges, tokens: `text` and how much of it the left one
 * of its pair has. */
static const struct token {
    const char *text;
    size_t left;
} letters[] = {{"ab", 1}, {"bc", 1}, {"cd", 1}, {"de", 1}, {"ef", 1}, {"fg", 1}, {"gh", 1},
    {"abcd", 2}, {"bcde", 2}, {"cdef", 2}, {"defg", 2}, {"efgh", 2}},
  /* characters of three bytes; some pairs of them; and what has only a part of a character, at its
     end and at its start */
    kana[] = {{"\xe3\x81", 2 - 1}, {"\u3042", 2}, {"\u3044", 2}, {"\u3046", 2}, {"\u3048", 2},
        {"\u304a", 2}, {"\u304b", 2}, {"\u304d", 2}, {"\u304f", 2}, {"\u3042\u3044", 3},
        {"\u3044\u3048", 3}, {"\u304f\u3042\u3044", 3}, {"\u3046\xe3\x81", 3}, {"\x8d\u304b", 1}};

static void build_vocabulary(struct fixture *f)
{
    struct kvr_source source = {.model = KVR_MODEL_BYTE_BPE, .unknown_id = KVR_NO_TOKEN};
    size_t image_bytes;
    const struct token *tokens = f->kind == KANA ? kana : letters;
    size_t token_count =
        f->kind == KANA ? sizeof kana / sizeof *kana : sizeof letters / sizeof *letters;
    uint32_t count = 0;

    for (int byte = 0; byte < 256; byte++)
        if (f->kind != SOME_BYTES || (byte >= 'a' && byte <= 'h'))
            kvr_source_add_token(&source, count++, &(uint8_t){(uint8_t)byte}, 1, 0, NULL);
    for (size_t i = 0; i < token_count; i++)
        kvr_source_add_token(&source, count++, tokens[i].text, strlen(tokens[i].text), 0, NULL);
    kvr_source_index(&source, NULL);
    for (size_t i = 0; i < token_count; i++) {
        const char *text = tokens[i].text;
        size_t length = strlen(text), left = tokens[i].left;
        kvr_source_add_merge(&source, kvr_source_find(&source, text, left),
            kvr_source_find(&source, text + left, length - left),
            kvr_source_find(&source, text, length), NULL);
    }
    assert_int_equal(kvr_source_compile(&source, &f->image, &image_bytes, NULL), KVR_OK);
    assert_int_equal(
        kvr_vocabulary_attach(&f->vocabulary, f->image.data, image_bytes, NULL), KVR_OK);
    uint32_t flags = f->vocabulary.header->special_flags;
    assert_true(!(flags & KVR_VOCABULARY_SHORT_MERGES) == (f->kind == SOME_BYTES));
    assert_true(flags & KVR_VOCABULARY_CUTS || f->kind == SOME_BYTES);
    kvr_source_release(&source);
}

static size_t random_piece(struct fixture *f, char *out, size_t most)
{
    size_t length = 1 + kvr_random_below(&f->random, most);

    if (f->kind == KANA) {
        for (size_t i = 0; i < length; i += 3)
            memcpy(out + i, kana[1 + kvr_random_below(&f->random, LETTERS)].text, 3);
        length = (length + 2) / 3 * 3;
        if (kvr_random_below(&f->random, 20) == 0) /* not UTF-8 */
            out[kvr_random_below(&f->random, length)] = (char)kvr_random_below(&f->random, 256);
        return length;
    }
    for (size_t i = 0; i < length; i++)
        out[i] = (char)('a' + kvr_random_below(&f->random, LETTERS));
    return length;
}

static void append_piece(struct fixture *f)
{
    char piece[ROOM + 2];
    size_t kind = kvr_random_below(&f->random, 100);

    if (kind < 50) {
        size_t number = kvr_random_below(&f->random, KNOWN);
        kvr_buffer_append(&f->text, f->known[number], f->known_length[number]);
    } else {
        size_t most = kind < 95 ? 16 : kind < 99 ? 100 : ROOM;
        kvr_buffer_append(&f->text, piece, random_piece(f, piece, most));
    }
}

static void check(enum kind kind)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->random.state = 3;
    f->kind = kind;
    build_vocabulary(f);
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
    assert_true(f->cache.written > (f->kind == KANA ? 1 : 2) * (uint64_t)KVR_PIECE_STORE_BYTES);
    kvr_piece_cache_release(&f->cache);
    kvr_bpe_scratch_release(&f->scratch);
    kvr_ids_release(&f->ids);
    kvr_ids_release(&f->wanted);
    kvr_buffer_release(&f->text);
    kvr_pages_release(&f->image);
    free(f);
}

static void cached_pieces_are_as_merged(void **state)
{
    (void)state;
    check(SOME_BYTES);
}

static void pieces_merged_side_by_side_are_as_merged(void **state)
{
    (void)state;
    check(ALL_BYTES);
}

static void pieces_cut_at_borders_are_as_merged(void **state)
{
    (void)state;
    check(KANA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_pieces_are_as_merged),
        cmocka_unit_test(pieces_merged_side_by_side_are_as_merged),
        cmocka_unit_test(pieces_cut_at_borders_are_as_merged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
