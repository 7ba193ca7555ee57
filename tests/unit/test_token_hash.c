/*
 * Block hashes: known answers, and every hash that real engines published ($SHARED/events).
 */
#include "line/json.h"
#include "tests/unit/unit.h"
#include "token/hash.h"
#include "token/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void hex(const uint8_t *bytes, size_t length, char *out)
{
    for (size_t i = 0; i < length; i++)
        sprintf(out + 2 * i, "%02x", bytes[i]);
}

static void sha256_has_its_known_answers(void **state)
{
    static const char *expected[] = {
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"};
    static const char *texts[] = {
        "", "abc", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"};
    uint8_t digest[32];
    char text[65];

    (void)state;
    for (int i = 0; i < 3; i++) {
        kvr_sha256(texts[i], strlen(texts[i]), digest);
        hex(digest, 32, text);
        assert_string_equal(text, expected[i]);
    }
}

static void own_chain_separates_what_differs(void **state)
{
    const struct kvr_chain *chain = kvr_chain_find("kvr");
    struct kvr_chain_settings plain = {0}, lora = {.space.lora = {"a", 1}};
    struct kvr_chain_settings salt = {.space.salt = {"a", 1}};
    const struct kvr_chain_settings *all[] = {&plain, &lora, &salt};
    uint32_t tokens[128];
    uint64_t ids[5];
    struct kvr_placed image = {{"image", 5}, 3, 4};

    (void)state;
    for (uint32_t i = 0; i < 128; i++)
        tokens[i] = i * 7;
    for (int i = 0; i < 3; i++) {
        struct kvr_chain_state s = {0};
        assert_int_equal(chain->begin(all[i], &s, NULL), KVR_OK);
        assert_int_equal(chain->block(all[i], &s, tokens, 16, NULL, 0, NULL), KVR_OK);
        ids[i] = s.id;
        assert_true(s.id < UINT64_C(1) << 53);
        assert_int_equal(
            s.id, kvr_wire_id(kvr_block_hash(kvr_namespace_seed(&all[i]->space), tokens, 16)));
        kvr_chain_release(&s);
    }
    for (size_t start = 3; start < 5; start++) {
        struct kvr_chain_state s = {0};
        image.start = start;
        chain->begin(&plain, &s, NULL);
        assert_int_equal(chain->block(&plain, &s, tokens, 16, &image, 1, NULL), KVR_OK);
        ids[start] = s.id;
        kvr_chain_release(&s);
    }
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++)
            assert_int_not_equal(ids[i], ids[k]);
    /* a block of any size hashes as one piece of memory would */
    assert_int_not_equal(kvr_block_hash(1, tokens, 64), kvr_block_hash(1, tokens, 65));
    assert_int_equal(kvr_namespace_seed(&plain.space), 0);
}

static void unset_seeds_of_xxhash_chains_are_refused(void **state)
{
    const struct kvr_chain *chain = kvr_chain_find("vllm-xxhash_cbor");
    struct kvr_chain_settings settings = {0};
    struct kvr_chain_state s = {0};
    struct kvr_error error;

    (void)state;
    assert_int_equal(chain->begin(&settings, &s, &error), KVR_BAD_USAGE);
    settings.seed = "0";
    assert_int_equal(chain->begin(&settings, &s, &error), KVR_OK);
    kvr_chain_release(&s);
    assert_null(kvr_chain_find("no such chain"));
}

/* Answers of python's xxhash 4.1.0, cbor2 6.3.0 and pickle for 12 tokens in blocks of 4, with LoRA
 * "ad" at "/p", salt "s" and an image "img" at [3, 7). */
struct answer {
    const char *chain;
    enum kvr_extra_style style;
    uint64_t ids[3];
};

#include "tests/unit/token_hash_answers.h"

static void chains_have_the_answers_of_their_libraries(void **state)
{
    const uint32_t tokens[12] = {0, 23, 24, 255, 256, 65535, 65536, 4294967295, 1, 2, 3, 200000};
    const struct kvr_placed image = {{"img", 3}, 3, 4};

    (void)state;
    for (const struct answer *a = answers; a->chain; a++) {
        const struct kvr_chain *chain = kvr_chain_find(a->chain);
        struct kvr_chain_settings settings = {
            .space = {.lora = {"ad", 2}, .salt = {"s", 1}, .lora_path = {"/p", 2}, .lora_id = 7},
            .seed = "42",
            .style = a->style};
        struct kvr_chain_state s = {0};
        bool dynamo = strcmp(a->chain, "dynamo") == 0;
        assert_int_equal(chain->begin(&settings, &s, NULL), KVR_OK);
        for (int block = 0; block < 3; block++) {
            assert_int_equal(
                chain->block(&settings, &s, tokens + 4 * block, 4, &image, !dynamo, NULL), KVR_OK);
            if (s.id != a->ids[block])
                fail_msg("%s, style %d, block %d", a->chain, (int)a->style, block);
        }
        kvr_chain_release(&s);
    }
}

/* Published hashes and the digests that we found for them. */
struct known {
    uint64_t id;
    uint8_t digest[32];
    size_t length;
};

struct stream {
    struct known known[2000];
    size_t count, hashes, skipped;
};

static const struct known *find_known(const struct stream *stream, uint64_t id)
{
    for (size_t i = stream->count; i-- > 0;)
        if (stream->known[i].id == id)
            return &stream->known[i];
    return NULL;
}

/* An id as published: a number (signed or not) or {"$bin": hex}, of which the last eight bytes. */
static uint64_t published_id(struct kvr_value value)
{
    uint64_t id = 0;
    int64_t number;

    if (value.type == KVR_OBJECT) {
        struct kvr_value bin = kvr_value_get(value, "$bin");
        char digits[17] = "";
        memcpy(digits, bin.text + bin.length - 17, 16);
        return strtoull(digits, NULL, 16);
    }
    if (kvr_value_u64(value, &id))
        return id;
    assert_true(kvr_value_i64(value, &number));
    return (uint64_t)number;
}

static struct kvr_text text_of(struct kvr_value value)
{
    struct kvr_text none = {NULL, 0}, text = {value.text + 1, value.length - 2};

    return value.type == KVR_STRING ? text : none;
}

/* What a block's published extra keys say was placed in it. */
static size_t placed_in(struct kvr_value keys, size_t tokens, struct kvr_placed placed[4])
{
    struct kvr_cursor cursor = kvr_value_open(keys);
    struct kvr_value key, identifier, start;
    size_t count = 0;

    while (keys.type == KVR_ARRAY && kvr_next_element(&cursor, &key)) {
        struct kvr_cursor pair = kvr_value_open(key);
        int64_t offset;
        if (key.type != KVR_ARRAY || !kvr_next_element(&pair, &identifier) ||
            !kvr_next_element(&pair, &start))
            continue;
        assert_true(kvr_value_i64(start, &offset));
        size_t at = (size_t)((int64_t)tokens + offset);
        placed[count++] = (struct kvr_placed){text_of(identifier), at, 1000};
    }
    return count;
}

static void check_stored(
    struct stream *stream, const struct kvr_chain *chain, bool vllm, struct kvr_value event)
{
    struct kvr_value parent = kvr_value_get(event, "parent_block_hash");
    struct kvr_value extra = kvr_value_get(event, "extra_keys");
    struct kvr_cursor hashes = kvr_value_open(kvr_value_get(event, "block_hashes"));
    struct kvr_cursor keys = kvr_value_open(extra);
    struct kvr_value list = kvr_value_get(event, "token_ids"), hash, key = {0};
    struct kvr_chain_settings settings = {.seed = "0"};
    struct kvr_chain_state s = {0};
    uint64_t tokens[2048];
    ptrdiff_t count = kvr_value_u64s(list, tokens);

    settings.space.lora = text_of(kvr_value_get(event, "lora_name"));
    if (settings.space.lora.text) /* goes into the hash, but not into the event */
        settings.space.lora_path = (struct kvr_text){"/models/lora/sql", 16};
    settings.space.salt = text_of(kvr_value_get(event, "cache_salt"));
    if (vllm && !settings.space.lora.text && parent.type == KVR_NULL && extra.type == KVR_ARRAY) {
        struct kvr_cursor first = keys, inner;
        if (kvr_next_element(&first, &key) && key.type == KVR_ARRAY) {
            inner = kvr_value_open(key);
            if (kvr_next_element(&inner, &key))
                settings.space.salt = text_of(key);
        }
    }
    assert_int_equal(chain->begin(&settings, &s, NULL), KVR_OK);
    if (parent.type != KVR_NULL) {
        const struct known *known = find_known(stream, published_id(parent));
        if (!known) {
            stream->skipped++;
            kvr_chain_release(&s);
            return;
        }
        kvr_chain_resume(&s, known->digest, known->length, 16);
    }
    for (ptrdiff_t at = 0; at < count && kvr_next_element(&hashes, &hash); at += 16) {
        uint32_t block[16];
        struct kvr_placed placed[4];
        size_t placed_count = 0;
        for (int i = 0; i < 16; i++)
            block[i] = (uint32_t)tokens[at + i];
        if (vllm && extra.type == KVR_ARRAY && kvr_next_element(&keys, &key))
            placed_count = placed_in(key, s.tokens, placed);
        assert_int_equal(
            chain->block(&settings, &s, block, 16, placed, placed_count, NULL), KVR_OK);
        stream->hashes++;
        if (s.id != published_id(hash))
            fail_msg("%s: hash %zu differs", chain->name, stream->hashes);
        assert_true(stream->count < 2000);
        struct known *known = &stream->known[stream->count++];
        known->id = s.id;
        known->length = s.digest_length;
        memcpy(known->digest, s.digest, sizeof s.digest);
    }
    kvr_chain_release(&s);
}

static void check_stream(const char *folder, const char *chain_name, bool vllm, size_t least)
{
    const char *shared = getenv("SHARED");
    struct kvr_structure *structure = kvr_structure_create();
    struct stream *stream = calloc(1, sizeof *stream);
    char path[1000], *line = NULL;
    size_t room = 0;
    ssize_t length;

    snprintf(
        path, sizeof path, "%s/events/%s/expected.ndjson", shared ? shared : "../shared", folder);
    FILE *file = fopen(path, "r");
    if (!file) {
        print_message("%s is missing\n", path);
        free(stream);
        kvr_structure_destroy(structure);
        skip();
    }
    while ((length = getline(&line, &room, file)) > 0) {
        struct kvr_value message, event;
        assert_int_equal(
            kvr_json_check(structure, line, (size_t)length, &message, NULL, NULL), KVR_OK);
        struct kvr_cursor cursor = kvr_value_open(kvr_value_get(message, "events"));
        while (kvr_next_element(&cursor, &event))
            if (kvr_value_is(kvr_value_get(event, "type"), "BlockStored"))
                check_stored(stream, kvr_chain_find(chain_name), vllm, event);
    }
    print_message("%s: %zu hashes, %zu events skipped\n", folder, stream->hashes, stream->skipped);
    assert_true(stream->hashes >= least);
    assert_int_equal(stream->skipped, 0);
    free(line);
    fclose(file);
    free(stream);
    kvr_structure_destroy(structure);
}

static void sglang_streams_hash_alike(void **state)
{
    (void)state;
    check_stream("sglang-0.5.23-radix", "sglang", false, 396);
}

static void vllm_sha256_cbor_streams_hash_alike(void **state)
{
    (void)state;
    check_stream("vllm-0.33.0-sha256_cbor-int", "vllm-sha256_cbor", true, 63);
    check_stream("vllm-0.33.0-sha256_cbor-bytes-dp1", "vllm-sha256_cbor", true, 63);
    /* the same hashes in the layouts of versions that publish extra keys; those before them do not
     * say what else was hashed, and SGLang's before 0.5.23 are these, too, with a sign */
    check_stream("vllm-0.20.2", "vllm-sha256_cbor", true, 63);
    check_stream("vllm-0.24.0", "vllm-sha256_cbor", true, 63);
    check_stream("vllm-0.29.0", "vllm-sha256_cbor", true, 63);
}

static void vllm_pickled_streams_hash_alike(void **state)
{
    (void)state;
    check_stream("vllm-0.33.0-sha256-int", "vllm-sha256", true, 63);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_has_its_known_answers),
        cmocka_unit_test(own_chain_separates_what_differs),
        cmocka_unit_test(unset_seeds_of_xxhash_chains_are_refused),
        cmocka_unit_test(chains_have_the_answers_of_their_libraries),
        cmocka_unit_test(sglang_streams_hash_alike),
        cmocka_unit_test(vllm_sha256_cbor_streams_hash_alike),
        cmocka_unit_test(vllm_pickled_streams_hash_alike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
