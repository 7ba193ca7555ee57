/*
 * The kernels of the KV codec, executed on the processor, against its plain reference: the same
 * bytes, the same numbers, and the same word on damaged bytes.
 */
#include "kernels/backend.h"
#include "kernels/cuda_operations.h"
#include "kernels/kv_pack.h"
#include "tests/cuda_host.h"
#include "tests/unit/kernel_fixture.h"

static void no_fault(void)
{
    if (cuda_host_fault())
        fail_msg("%s", cuda_host_fault());
}

struct pool {
    struct kvr_kv kv;
    struct kvr_cuda_codec codec;
    uint32_t *table, tiles;
    size_t room_bytes;
};

static struct pool make(
    uint32_t layers, uint32_t heads, uint32_t dim, uint32_t page, uint32_t tokens, uint64_t seed)
{
    uint32_t pages = tokens / page + 2;
    struct pool pool = {
        .kv = {NULL, layers, pages, heads, dim, page}, .table = scattered(pages, seed)};

    pool.kv.data = some(kvr_kv_size(&pool.kv), sizeof *pool.kv.data);
    memset(pool.kv.data, 0xff, kvr_kv_size(&pool.kv) * sizeof *pool.kv.data);
    pool.codec = (struct kvr_cuda_codec){
        {pool.kv.data, heads, dim, page}, pool.table, layers, pages, tokens, {31, 8, 127}};
    pool.tiles = (tokens + KVR_CODEC_SPAN - 1) / KVR_CODEC_SPAN * layers * 2 * heads;
    pool.room_bytes = kvr_codec_tile_room(KVR_CODEC_SPAN, dim, KVR_CODEC_BINS);
    return pool;
}

static void discard(struct pool *pool)
{
    free(pool->kv.data);
    free(pool->table);
}

/* Channels of many sizes, some that keep what they are from token to token, and odd numbers. */
static void fill(struct pool *pool)
{
    static const kvr_bf16 odd[] = {0x7f80, 0x7fc0, 0x7f7f, 0xff7f, 1, 0};
    const struct kvr_kv *kv = &pool->kv;
    struct kvr_random random = {11};

    for (uint32_t row = 0; row < kv->layers * 2 * kv->kv_heads * pool->codec.tokens; row++) {
        uint32_t token = row % pool->codec.tokens, head = row / pool->codec.tokens % kv->kv_heads;
        uint32_t place = row / pool->codec.tokens / kv->kv_heads;
        kvr_bf16 *to =
            kv->data + kvr_kv_at(kv, pool->table, place / 2, token, (int)(place % 2), head);
        for (uint32_t at = 0; at < kv->head_dim; at++) {
            double own = kvr_random_unit(&random) - 0.5;
            double value = at % 3 ? own * (1 + at % 5) : 4 + 0.3 * own;
            to[at] = kvr_bf16_round((float)value);
            if (place == 1 && head == 0 && kvr_random_below(&random, 50) == 0)
                to[at] = odd[kvr_random_below(&random, 6)];
        }
    }
}

static struct kvr_codec_tile tile_of(const struct pool *pool, uint32_t number)
{
    uint32_t place = number / pool->kv.kv_heads, layer = place / 2 % pool->kv.layers;
    uint32_t first = place / 2 / pool->kv.layers * KVR_CODEC_SPAN;
    uint32_t left = pool->codec.tokens - first;

    return (struct kvr_codec_tile){&pool->kv, pool->table, layer, place % 2,
        number % pool->kv.kv_heads, first, left < KVR_CODEC_SPAN ? left : KVR_CODEC_SPAN,
        pool->codec.bins[layer * 3 / pool->kv.layers]};
}

static void compare(
    int order, uint32_t layers, uint32_t heads, uint32_t dim, uint32_t page, uint32_t tokens)
{
    struct pool pool = make(layers, heads, dim, page, tokens, 3);
    struct pool ours = make(layers, heads, dim, page, tokens, 4);
    struct pool theirs = make(layers, heads, dim, page, tokens, 4);
    uint8_t *rooms = some(pool.tiles, pool.room_bytes), *packed = some(pool.tiles, pool.room_bytes);
    uint8_t *expected = some(1, pool.room_bytes);
    uint32_t *sizes = some(pool.tiles, sizeof *sizes), *damaged = some(pool.tiles, sizeof *damaged);
    uint64_t *begin = some(pool.tiles + 1, sizeof *begin);

    fill(&pool);
    memset(rooms, 0xff, pool.tiles * pool.room_bytes);
    cuda_host_begin((enum cuda_host_order)(order % 3));
    for (uint32_t i = 0; i < pool.tiles; i += 2) /* in batches, as the backend does */
        kvr_cuda_codec_encode(NULL, &pool.codec, i, pool.tiles - i < 2 ? 1 : 2,
            rooms + i * pool.room_bytes, pool.room_bytes, sizes + i);
    no_fault();
    for (uint32_t i = 0; i < pool.tiles; i++) {
        struct kvr_codec_tile tile = tile_of(&pool, i);
        size_t size = kvr_codec_encode_tile(&tile, expected);
        assert_int_equal(sizes[i], size);
        assert_memory_equal(rooms + i * pool.room_bytes, expected, size);
        memcpy(packed + begin[i], expected, size);
        begin[i + 1] = begin[i] + size;
        tile = tile_of(&theirs, i);
        assert_true(kvr_codec_decode_tile(&tile, expected, size));
    }
    kvr_cuda_codec_decode(NULL, &ours.codec, pool.tiles, packed, begin, damaged);
    no_fault();
    for (uint32_t i = 0; i < pool.tiles; i++)
        assert_int_equal(damaged[i], 0);
    assert_memory_equal(ours.kv.data, theirs.kv.data, kvr_kv_size(&ours.kv) * sizeof *ours.kv.data);
    discard(&pool), discard(&ours), discard(&theirs);
    free(rooms), free(packed), free(expected), free(sizes), free(damaged), free(begin);
}

static void codec_has_the_same_bits(void **state)
{
    static const uint32_t shapes[][5] = {/* layers, heads, dim, page, tokens */
        {1, 1, 64, 16, 1}, {3, 2, 64, 16, 40}, {1, 1, 128, 7, 300}, {1, 1, 256, 64, 33},
        {2, 1, 5, 3, 21}, {1, 1, 33, 1, 50}};

    (void)state;
    for (int order = 0; order < 3; order++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            compare(order, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], shapes[i][4]);
}

static void both_say_the_same_of_damage(void **state)
{
    struct pool pool = make(1, 1, 33, 16, 20, 3);
    uint8_t *bytes = some(1, pool.room_bytes);
    struct kvr_codec_tile tile = tile_of(&pool, 0);
    uint32_t told = 0;

    (void)state;
    fill(&pool);
    size_t size = kvr_codec_encode_tile(&tile, bytes);
    cuda_host_begin(CUDA_HOST_FORWARD);
    for (size_t at = 0; at <= size; at++) {
        uint64_t *begin = some(2, sizeof *begin);
        uint32_t *damaged = some(1, sizeof *damaged);
        begin[1] = at < size ? size : size - 4;
        if (at < size)
            bytes[at] ^= 0x51;
        uint8_t *exact = some(1, begin[1]); /* so that a sanitizer sees a read behind its end */
        memcpy(exact, bytes, begin[1]);
        bool fine = kvr_codec_decode_tile(&tile, exact, begin[1]);
        kvr_cuda_codec_decode(NULL, &pool.codec, 1, exact, begin, damaged);
        assert_int_equal(*damaged, !fine);
        told += *damaged;
        bytes[at] ^= 0x51;
        free(exact), free(begin), free(damaged);
    }
    no_fault();
    assert_true(told > size / 4);
    free(bytes);
    discard(&pool);
}

extern const struct kvr_backend kvr_cuda_backend;

/* What the backend packs of KV that it computed is what the processor packs of the same pages; and
 * comes back through the backend into others; copied pages are the pages. */
static void the_backend_packs_what_it_holds(void **state)
{
    enum { TOKENS = 19, PAGE = 5, PAGES = 12, USED = 4 };
    const struct kvr_backend *cuda = &kvr_cuda_backend;
    const struct kvr_codec_level *level = NULL;
    const struct kvr_shape *shape = NULL;
    struct kvr_copy_rates rates = {0};
    struct kvr_runner *runner = NULL;
    struct kvr_buffer expected = {0};
    struct kvr_crew *crew = NULL;
    struct kvr_error error = {0};
    uint32_t tokens[TOKENS], there[USED] = {7, 2, 11, 0}, back[USED] = {3, 4, 9, 1}, found = 0;
    uint32_t straight[USED] = {0, 1, 2, 3}, outside[USED] = {1, 2, PAGES, 3};
    uint8_t *bytes = NULL;
    size_t size = 0;

    (void)state;
    cuda_host_begin(CUDA_HOST_SHUFFLED);
    assert_int_equal(kvr_shape_find("tiny", &shape, &error), KVR_OK);
    assert_int_equal(kvr_codec_level_find("medium", &level, &error), KVR_OK);
    assert_int_equal(kvr_crew_create(1, &crew, &error), KVR_OK);
    struct kvr_backend_options options = {
        .shape = shape, .seed = 3, .page_tokens = PAGE, .pages = PAGES};
    assert_int_equal(cuda->create(&options, &runner, &error), KVR_OK);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 91 % shape->vocabulary;
    struct kvr_step step = {tokens, TOKENS, 0, there, NULL};
    assert_int_equal(cuda->run(runner, &step, 1, &error), KVR_OK);
    size_t page = (size_t)shape->layers * 2 * shape->kv_heads * PAGE * shape->head_dim;
    kvr_bf16 *ours = some(USED * page, sizeof *ours), *theirs = some(USED * page, sizeof *ours);
    assert_int_equal(cuda->copy_pages(runner, there, USED, ours, true, &error), KVR_OK);
    struct kvr_kv kv = {some(USED * page, sizeof *ours), shape->layers, USED, shape->kv_heads,
        shape->head_dim, PAGE};
    size_t part = page / shape->layers; /* host: pages outermost; a pool: layers */
    for (uint32_t i = 0; i < USED; i++)
        for (uint32_t layer = 0; layer < shape->layers; layer++)
            memcpy(kv.data + (layer * USED + i) * part, ours + i * page + layer * part,
                part * sizeof *ours);
    assert_int_equal(kvr_codec_pack(&kv, straight, TOKENS, level, crew, &expected, &error), KVR_OK);
    assert_int_equal(cuda->pack(runner, there, TOKENS, level, &bytes, &size, &error), KVR_OK);
    assert_int_equal(size, expected.length);
    assert_memory_equal(bytes, expected.data, size);
    assert_int_equal(cuda->unpack(runner, back, TOKENS, bytes, size, &found, &error), KVR_OK);
    assert_int_equal(found, TOKENS);
    no_fault();
    /* the processor's way back, laid out as the host's copy */
    assert_int_equal(
        kvr_codec_unpack(&kv, straight, TOKENS, bytes, size, crew, &found, &error), KVR_OK);
    assert_int_equal(cuda->copy_pages(runner, back, USED, theirs, true, &error), KVR_OK);
    for (uint32_t token = 0; token < TOKENS; token++)
        for (uint32_t row = 0; row < shape->layers * 2 * shape->kv_heads; row++)
            assert_memory_equal(
                theirs + token / PAGE * page + (row * PAGE + token % PAGE) * shape->head_dim,
                kv.data + kvr_kv_at(&kv, straight, row / 2 / shape->kv_heads, token,
                              (int)(row / shape->kv_heads % 2), row % shape->kv_heads),
                shape->head_dim * sizeof *theirs);
    /* pages in, pages out; nonsense is told */
    assert_int_equal(cuda->copy_pages(runner, back, USED, ours, false, &error), KVR_OK);
    assert_int_equal(cuda->copy_pages(runner, back, USED, theirs, true, &error), KVR_OK);
    assert_memory_equal(ours, theirs, USED * page * sizeof *ours);
    assert_int_equal(cuda->copy_pages(runner, outside, USED, ours, false, &error), KVR_BAD_USAGE);
    bytes[size - 5] ^= 1;
    assert_int_equal(
        cuda->unpack(runner, back, TOKENS, bytes, size, &found, &error), KVR_BAD_INPUT);
    assert_int_equal(
        cuda->unpack(runner, back, TOKENS - 1, bytes, size, &found, &error), KVR_BAD_INPUT);
    assert_int_equal(cuda->copy_rates(runner, &rates, &error), KVR_OK);
    assert_true(rates.to_host > 0 && rates.from_host > 0 && rates.on_device > 0);
    cuda->destroy(runner);
    kvr_crew_destroy(crew);
    kvr_buffer_release(&expected);
    free(bytes), free(ours), free(theirs), free(kv.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codec_has_the_same_bits),
        cmocka_unit_test(both_say_the_same_of_damage),
        cmocka_unit_test(the_backend_packs_what_it_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
