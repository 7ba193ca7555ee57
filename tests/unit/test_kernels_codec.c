/* The KV codec: what comes back and how far off, what it takes, and damaged bytes. */
#include "kernels/kv_pack.h"
#include "tests/unit/kernel_fixture.h"

static struct kvr_kv pool(
    uint32_t layers, uint32_t heads, uint32_t dim, uint32_t page_tokens, uint32_t pages)
{
    struct kvr_kv kv = {NULL, layers, pages, heads, dim, page_tokens};

    kv.data = some(kvr_kv_size(&kv), sizeof *kv.data);
    memset(kv.data, 0xff, kvr_kv_size(&kv) * sizeof *kv.data);
    return kv;
}

/* Tokens that share `alike` of what they are with their neighbours. */
static void fill(struct kvr_kv *kv, const uint32_t *table, uint32_t tokens, float alike)
{
    struct kvr_random random = {7};
    size_t row = (size_t)2 * kv->kv_heads * kv->head_dim;
    float *common = some_floats(row * kv->layers, 3);
    float *rows = some(row * tokens, sizeof *rows);

    for (uint32_t layer = 0; layer < kv->layers; layer++) {
        for (size_t i = 0; i < row * tokens; i++) {
            float own = (float)(kvr_random_unit(&random) + kvr_random_unit(&random) - 1);
            float loud = (float)(1 + i % row % 7); /* some channels are */
            rows[i] = loud * (alike * common[layer * row + i % row] + (1 - alike) * own);
        }
        kvr_kv_write(kv, table, layer, 0, tokens, rows, rows + row / 2, row);
    }
    free(common), free(rows);
}

/* Normalised error of tokens in two pools or two places. */
static double apart(const struct kvr_kv *a, const uint32_t *a_table, const struct kvr_kv *b,
    const uint32_t *b_table, uint32_t tokens)
{
    double difference = 0, size = 0;

    for (uint32_t i = 0; i < a->layers * 2 * a->kv_heads * tokens; i++) {
        uint32_t token = i % tokens, head = i / tokens % a->kv_heads;
        int value = (int)(i / tokens / a->kv_heads % 2);
        uint32_t layer = i / tokens / a->kv_heads / 2;
        const kvr_bf16 *x = a->data + kvr_kv_at(a, a_table, layer, token, value, head);
        const kvr_bf16 *y = b->data + kvr_kv_at(b, b_table, layer, token, value, head);
        for (uint32_t at = 0; at < a->head_dim; at++) {
            double p = (double)kvr_bf16_value(x[at]), q = (double)kvr_bf16_value(y[at]);
            difference += (p - q) * (p - q);
            size += q * q;
        }
    }
    return sqrt(difference / (size > 0 ? size : 1));
}

struct outcome {
    double error, ratio;
};

static struct outcome there_and_back(const char *name, uint32_t layers, uint32_t heads,
    uint32_t dim, uint32_t page, uint32_t tokens, float alike, unsigned threads)
{
    uint32_t pages = tokens / page + 1, found = 0;
    uint32_t *table = scattered(pages, 5), *other = scattered(pages + 3, 6);
    struct kvr_kv kv = pool(layers, heads, dim, page, pages);
    struct kvr_kv back = pool(layers, heads, dim, page, pages + 3);
    const struct kvr_codec_level *level = NULL;
    struct kvr_buffer packed = {0}, again = {0};
    struct kvr_crew *crew = NULL, *one = NULL;
    struct kvr_error error;

    assert_int_equal(kvr_codec_level_find(name, &level, &error), KVR_OK);
    assert_int_equal(kvr_crew_create(threads, &crew, &error), KVR_OK);
    assert_int_equal(kvr_crew_create(1, &one, &error), KVR_OK);
    fill(&kv, table, tokens, alike);
    assert_int_equal(kvr_codec_pack(&kv, table, tokens, level, crew, &packed, &error), KVR_OK);
    assert_int_equal(kvr_codec_pack(&kv, table, tokens, level, one, &again, &error), KVR_OK);
    assert_int_equal(packed.length, again.length);
    assert_memory_equal(packed.data, again.data, packed.length);
    assert_int_equal(
        kvr_codec_unpack(&back, other, tokens, packed.data, packed.length, crew, &found, &error),
        KVR_OK);
    assert_int_equal(found, tokens);
    double raw = 4.0 * layers * heads * dim * tokens;
    struct outcome outcome = {apart(&back, other, &kv, table, tokens), raw / (double)packed.length};
    kvr_buffer_release(&packed);
    kvr_buffer_release(&again);
    kvr_crew_destroy(crew);
    kvr_crew_destroy(one);
    free(table), free(other), free(kv.data), free(back.data);
    return outcome;
}

static void comes_back_within_the_steps(void **state)
{
    static const uint32_t shapes[][5] = {/* layers, heads, dim, page, tokens */
        {1, 1, 64, 16, 1}, {3, 2, 64, 16, 300}, {2, 1, 128, 7, 256}, {1, 3, 256, 1, 33},
        {1, 1, 1, 4, 17}, {2, 1, 5, 3, 515}, {1, 1, 1024, 64, 40}};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const uint32_t *s = shapes[i];
        /* 63, 16, 8 steps to the largest of a channel, whose root mean square is at least a sixth:
         * half a step at most, the root of a twelfth on the average. */
        static const struct {
            const char *name;
            double bound;
        } levels[] = {{"fine", 0.06}, {"medium", 0.16}, {"coarse", 0.32}};
        double last = 0;
        for (int level = 0; level < 3; level++) {
            struct outcome outcome = there_and_back(
                levels[level].name, s[0], s[1], s[2], s[3], s[4], i % 2 ? 0.9f : 0, 1 + i % 3);
            assert_true(outcome.error <= levels[level].bound);
            assert_true(s[4] < 100 || outcome.error > last);
            last = outcome.error;
        }
    }
}

static void pays(void **state)
{
    struct outcome plain = there_and_back("medium", 3, 2, 128, 16, 1024, 0, 2);
    struct outcome alike = there_and_back("medium", 3, 2, 128, 16, 1024, 0.9f, 2);
    struct outcome coarse = there_and_back("coarse", 3, 2, 128, 16, 1024, 0, 2);

    (void)state;
    assert_true(plain.ratio > 3.5 && plain.ratio < 6);
    assert_true(coarse.ratio > 1.2 * plain.ratio);
    /* neighbours that are alike are closer for no more bytes */
    assert_true(alike.error < 0.4 * plain.error && alike.ratio > 0.8 * plain.ratio);
}

static void odd_numbers_and_nothing(void **state)
{
    static const kvr_bf16 odd[] = {0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f7f, 0xff7f, 1, 0x8000};
    struct kvr_kv kv = pool(1, 1, 8, 16, 2), back = pool(1, 1, 8, 16, 2);
    uint32_t table[] = {1, 0};
    uint8_t bytes[1 << 14];

    (void)state;
    struct kvr_codec_tile tile = {&kv, table, 0, 0, 0, 0, 20, 16};
    memset(kv.data, 0, kvr_kv_size(&kv) * sizeof *kv.data);
    for (int odds = 0; odds < 2; odds++) {
        for (uint32_t token = 0; odds && token < 20; token++)
            kv.data[kvr_kv_at(&kv, table, 0, token, 0, 0) + token % 8] = odd[token * 3 % 8];
        tile.kv = &kv;
        assert_true(kvr_codec_tile_room(20, 8, 16) <= sizeof bytes);
        size_t size = kvr_codec_encode_tile(&tile, bytes);
        tile.kv = &back;
        assert_true(kvr_codec_decode_tile(&tile, bytes, size));
        for (uint32_t token = 0; token < 20; token++) {
            for (uint32_t at = 0; at < 8; at++) {
                float value =
                    kvr_bf16_value(back.data[kvr_kv_at(&back, table, 0, token, 0, 0) + at]);
                assert_true(isfinite(value) && fabsf(value) <= (odds ? 0x1.2p100f : 0));
            }
        }
    }
    free(kv.data), free(back.data);
}

/* Cut anywhere, or any byte changed: an error or some numbers, but in its own pages. */
static void damage_is_told_or_harmless(void **state)
{
    struct kvr_kv kv = pool(2, 1, 16, 16, 3);
    const struct kvr_codec_level *level = NULL;
    struct kvr_buffer packed = {0};
    struct kvr_crew *crew = NULL;
    struct kvr_error error;
    uint32_t table[] = {2, 0}, found, told = 0;

    (void)state;
    assert_int_equal(kvr_codec_level_find("coarse", &level, &error), KVR_OK);
    assert_int_equal(kvr_codec_level_find("rough", &level, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_crew_create(1, &crew, &error), KVR_OK);
    fill(&kv, table, 30, 0.5f);
    assert_int_equal(kvr_codec_pack(&kv, table, 30, level, crew, &packed, &error), KVR_OK);
    for (size_t size = 0; size < packed.length; size++) {
        char *cut = some(size, 1); /* so that the sanitizer sees a read behind its end */
        memcpy(cut, packed.data, size);
        assert_int_equal(
            kvr_codec_unpack(&kv, table, 30, cut, size, crew, &found, &error), KVR_BAD_INPUT);
        free(cut);
    }
    for (size_t at = 0; at < packed.length; at++) {
        packed.data[at] ^= 0x15;
        enum kvr_status status =
            kvr_codec_unpack(&kv, table, 30, packed.data, packed.length, crew, &found, &error);
        assert_true(status == KVR_OK || status == KVR_BAD_INPUT);
        told += status == KVR_BAD_INPUT;
        packed.data[at] ^= 0x15;
    }
    assert_true(told > packed.length / 2);
    for (uint32_t i = 0; i < 2 * 16 * 16; i++) /* page 1 is nobody's */
        assert_int_equal(kv.data[2 * 16 * 16 + i], 0xffff);
    assert_int_equal(
        kvr_codec_unpack(&kv, table, 29, packed.data, packed.length, crew, &found, &error),
        KVR_BAD_INPUT);
    struct kvr_kv other = kv;
    other.head_dim = 8;
    assert_int_equal(
        kvr_codec_unpack(&other, table, 30, packed.data, packed.length, crew, &found, &error),
        KVR_BAD_INPUT);
    kvr_crew_destroy(crew);
    kvr_buffer_release(&packed);
    free(kv.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back_within_the_steps),
        cmocka_unit_test(pays),
        cmocka_unit_test(odd_numbers_and_nothing),
        cmocka_unit_test(damage_is_told_or_harmless),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
