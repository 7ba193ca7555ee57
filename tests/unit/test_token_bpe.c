/*
 * Both encoders against byte-pair encoding as it is defined, on thousands of small random
 * vocabularies: orderly ones, ones whose merges contradict each other, rank files, and vocabularies
 * of characters with unknown symbols.
 */
#include "base/random.h"
#include "tests/unit/unit.h"
#include "token/bpe.h"
#include "token/merge_queue.h"
#include "token/vocabulary_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 4, TOKEN_LIMIT = 60 };

struct built {
    struct kvr_source source;
    struct kvr_pages image;
    size_t image_bytes;
    struct kvr_vocabulary vocabulary;
};

static void add_token(struct kvr_source *source, uint32_t id, const char *text)
{
    assert_int_equal(kvr_source_add_token(source, id, text, strlen(text), 0, NULL), KVR_OK);
}

static const char *text_of(const struct kvr_source *source, uint32_t id, char out[256])
{
    size_t length = source->tokens[id].length;

    memcpy(out, source->bytes.data + source->tokens[id].offset, length);
    out[length] = '\0';
    return out;
}

/* Letters, then tokens joined from two that there are; where `wild`, further merges for tokens that
 * others already yield, in any order. */
static void build(struct built *built, struct kvr_random *random, bool ranked, bool wild)
{
    uint32_t count = LETTERS,
             wanted = LETTERS + 1 + kvr_random_below(random, TOKEN_LIMIT - LETTERS);
    struct kvr_source *source = &built->source;
    char left[256], right[256];

    memset(built, 0, sizeof *built);
    source->model = ranked || kvr_random_below(random, 2) ? KVR_MODEL_BYTE_BPE : KVR_MODEL_CHAR_BPE;
    source->unknown_id = KVR_NO_TOKEN;
    source->ranked = ranked;
    for (uint32_t i = 0; i < LETTERS; i++)
        add_token(source, i, (char[]){(char)('a' + i), '\0'});
    kvr_source_index(source, NULL);
    for (int tries = 0; count < wanted && tries < 400; tries++) {
        uint32_t l = kvr_random_below(random, count), r = kvr_random_below(random, count);
        if (source->tokens[l].length + source->tokens[r].length > 12)
            continue;
        text_of(source, l, left);
        strcat(left, text_of(source, r, right));
        uint32_t result = kvr_source_find(source, left, strlen(left));
        if (result == KVR_NO_TOKEN) {
            result = count++;
            add_token(source, result, left);
            kvr_source_index(source, NULL);
        } else if (!wild) {
            continue;
        }
        if (!ranked)
            kvr_source_add_merge(source, l, r, result, NULL);
    }
    if (ranked && wild) /* ranks in any order: the texts of two ids change places */
        for (int i = 0; i < 10 && count > LETTERS + 1; i++) {
            uint32_t x = LETTERS + kvr_random_below(random, count - LETTERS);
            uint32_t y = LETTERS + kvr_random_below(random, count - LETTERS);
            struct kvr_source_token token = source->tokens[x];
            source->tokens[x] = source->tokens[y];
            source->tokens[y] = token;
            source->indexed = false;
        }
    for (uint32_t i = 0; wild && !ranked && i < source->merge_count; i++) {
        uint32_t k = kvr_random_below(random, source->merge_count);
        struct kvr_merge merge = source->merges[i];
        source->merges[i] = source->merges[k];
        source->merges[k] = merge;
    }
    assert_int_equal(kvr_source_compile(source, &built->image, &built->image_bytes, NULL), KVR_OK);
    assert_int_equal(
        kvr_vocabulary_attach(&built->vocabulary, built->image.data, built->image_bytes, NULL),
        KVR_OK);
}

static void release(struct built *built)
{
    kvr_source_release(&built->source);
    kvr_pages_release(&built->image);
}

/* The definition: join the pair of lowest rank, the leftmost first, until none is left. */
static size_t reference(const struct kvr_source *source, const char *text, uint32_t *ids)
{
    size_t count = 0;

    for (; text[count]; count++)
        ids[count] = (uint32_t)(text[count] - 'a');
    for (;;) {
        size_t best = SIZE_MAX;
        uint32_t lowest = UINT32_MAX, result = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            uint32_t rank = UINT32_MAX, id = 0;
            if (source->ranked) {
                char both[256], right[256];
                text_of(source, ids[i], both);
                strcat(both, text_of(source, ids[i + 1], right));
                id = kvr_source_find(source, both, strlen(both));
                rank = id;
            }
            for (uint32_t k = 0; !source->ranked && k < source->merge_count; k++)
                if (source->merges[k].left == ids[i] && source->merges[k].right == ids[i + 1]) {
                    rank = k; /* the last of equal pairs counts */
                    id = source->merges[k].result;
                }
            if (rank < lowest) {
                lowest = rank;
                best = i;
                result = id;
            }
        }
        if (best == SIZE_MAX)
            return count;
        ids[best] = result;
        memmove(&ids[best + 1], &ids[best + 2], (count - best - 2) * sizeof *ids);
        count--;
    }
}

static void compare(const struct built *built, struct kvr_bpe_scratch *scratch, const char *text)
{
    struct kvr_ids ids = {0};
    static uint32_t wanted[5000];
    size_t count = reference(&built->source, text, wanted);

    bool irregular = built->vocabulary.header->special_flags & KVR_VOCABULARY_IRREGULAR;
    static const char *const ways[] = {"neighbours", "merging", "runs"};

    for (int way = 0; way < (irregular ? 2 : 3); way++) {
        const uint8_t *piece = (const uint8_t *)text;
        ids.count = 0;
        if (way == 0)
            kvr_bpe_encode(&built->vocabulary, scratch, piece, strlen(text), &ids);
        else if (way == 1)
            kvr_bpe_merge(&built->vocabulary, scratch, piece, strlen(text), &ids);
        else
            assert_true(kvr_bpe_merge_runs(&built->vocabulary, scratch, piece, strlen(text), &ids));
        if (ids.count != count || memcmp(ids.data, wanted, count * sizeof *wanted) != 0) {
            for (uint32_t i = 0; i < built->source.merge_count; i++) {
                char left[256], right[256];
                print_message("merge %s %s\n",
                    text_of(&built->source, built->source.merges[i].left, left),
                    text_of(&built->source, built->source.merges[i].right, right));
            }
            fail_msg("%s by %s: %zu tokens, not %zu", text, ways[way], ids.count, count);
        }
    }
    kvr_ids_release(&ids);
}

static void check(bool ranked, bool wild)
{
    struct kvr_random random = {.state = 11 + ranked * 2u + wild};
    struct kvr_bpe_scratch scratch = {0};
    unsigned irregular = 0;

    for (int round = 0; round < 700; round++) {
        struct built built;
        build(&built, &random, ranked, wild);
        irregular += (built.vocabulary.header->special_flags & KVR_VOCABULARY_IRREGULAR) != 0;
        for (int i = 0; i < 40; i++) {
            char text[80];
            uint32_t length = 1 + kvr_random_below(&random, i % 8 ? 16 : 70);
            for (uint32_t k = 0; k < length; k++)
                text[k] = i % 4 < 2 || !k || !kvr_random_below(&random, 12)
                              ? (char)('a' + kvr_random_below(&random, LETTERS))
                              : text[k - 1];
            text[length] = '\0';
            compare(&built, &scratch, text);
        }
        release(&built);
    }
    kvr_bpe_scratch_release(&scratch);
    if (wild)
        assert_true(irregular > 50);
    else if (!ranked)
        assert_int_equal(irregular, 0);
}

/* Long pieces are merged with a list for each order. */
static void long_pieces(void **state)
{
    struct kvr_random random = {.state = 5};
    struct kvr_bpe_scratch scratch = {0};
    static char text[4500];

    (void)state;
    for (int round = 0; round < 4; round++) {
        struct built built;
        build(&built, &random, false, true);
        for (size_t k = 0; k + 1 < sizeof text; k++)
            text[k] = round < 2 || !k || !kvr_random_below(&random, 12)
                          ? (char)('a' + kvr_random_below(&random, LETTERS))
                          : text[k - 1];
        compare(&built, &scratch, text);
        release(&built);
    }
    kvr_bpe_scratch_release(&scratch);
}

struct pair {
    uint32_t order, place;
};

static void the_queue_gives_the_lowest_order_and_the_leftmost(void **state)
{
    struct kvr_random random = {.state = 6};
    static struct pair pairs[3000];

    (void)state;
    for (int round = 0; round < 20; round++) {
        struct kvr_merge_queue queue = {0};
        uint64_t orders = 1 + kvr_random_below(&random, 40);
        uint32_t order, place;
        size_t count = 0;
        for (int i = 0; i < 3000; i++) {
            if (kvr_random_below(&random, 3)) {
                uint64_t from = round % 2 ? (uint64_t)i : 0; /* from left to right, or anyhow */
                pairs[count] = (struct pair){(uint32_t)kvr_random_below(&random, orders),
                    (uint32_t)(from + kvr_random_below(&random, 50))};
                kvr_merge_queue_push(&queue, pairs[count].order, pairs[count].place);
                count++;
                continue;
            }
            size_t first = 0;
            for (size_t k = 1; k < count; k++)
                if (pairs[k].order < pairs[first].order ||
                    (pairs[k].order == pairs[first].order && pairs[k].place < pairs[first].place))
                    first = k;
            assert_int_equal(kvr_merge_queue_pop(&queue, &order, &place), count > 0);
            if (!count)
                continue;
            assert_int_equal(order, pairs[first].order);
            assert_int_equal(place, pairs[first].place);
            pairs[first] = pairs[--count];
        }
        kvr_merge_queue_release(&queue);
    }
}

static void orderly_merges(void **state)
{
    (void)state;
    check(false, false);
}

static void contradicting_merges(void **state)
{
    (void)state;
    check(false, true);
}

static void orderly_ranks(void **state)
{
    (void)state;
    check(true, false);
}

static void ranks_in_any_order(void **state)
{
    (void)state;
    check(true, true);
}

static void unknown_symbols_are_bytes_or_unknown_or_nothing(void **state)
{
    struct kvr_bpe_scratch scratch = {0};
    struct kvr_ids ids = {0};

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct built built = {0};
        struct kvr_source *source = &built.source;
        source->model = KVR_MODEL_CHAR_BPE;
        source->unknown_id = kind == 1 || kind == 2 ? 2 : KVR_NO_TOKEN;
        source->fuse_unknown = kind == 2;
        source->byte_fallback = kind == 3;
        add_token(source, 0, "a");
        add_token(source, 1, "aa");
        add_token(source, 2, "<unk>");
        for (uint32_t b = 0; kind == 3 && b < 256; b++) {
            char name[8];
            sprintf(name, "<0x%02X>", b);
            assert_int_equal(
                kvr_source_add_token(source, 10 + b, name, 6, KVR_TOKEN_BYTE, NULL), KVR_OK);
        }
        kvr_source_add_merge(source, 0, 0, 1, NULL);
        assert_int_equal(
            kvr_source_compile(source, &built.image, &built.image_bytes, NULL), KVR_OK);
        assert_int_equal(
            kvr_vocabulary_attach(&built.vocabulary, built.image.data, built.image_bytes, NULL),
            KVR_OK);
        ids.count = 0;
        kvr_bpe_encode(&built.vocabulary, &scratch, (const uint8_t *)"a\u00e9\u00e9a", 6, &ids);
        static const uint32_t wanted[4][6] = {
            {1}, {0, 2, 2, 0}, {0, 2, 0}, {0, 10 + 0xc3, 10 + 0xa9, 10 + 0xc3, 10 + 0xa9, 0}};
        static const size_t counts[4] = {1, 4, 3, 6};
        assert_int_equal(ids.count, counts[kind]);
        assert_memory_equal(ids.data, wanted[kind], counts[kind] * sizeof *ids.data);
        kvr_source_release(source);
        kvr_pages_release(&built.image);
    }
    kvr_ids_release(&ids);
    kvr_bpe_scratch_release(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_pieces),
        cmocka_unit_test(the_queue_gives_the_lowest_order_and_the_leftmost),
        cmocka_unit_test(orderly_merges),
        cmocka_unit_test(contradicting_merges),
        cmocka_unit_test(orderly_ranks),
        cmocka_unit_test(ranks_in_any_order),
        cmocka_unit_test(unknown_symbols_are_bytes_or_unknown_or_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
