/* Prompts made for block ids: exact lengths, shared exactly as far as the ids are. */
#include "net/synthesize.h"
#include "tests/unit/unit.h"
#include "token/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void prompt_ids(struct kvr_synthesizer *synthesizer, struct kvr_encoder *encoder,
    const uint64_t *blocks, size_t count, uint64_t block, uint64_t tokens, uint64_t own,
    struct kvr_ids *ids)
{
    struct kvr_buffer prompt = {0};
    struct kvr_error error = {0};

    enum kvr_status status =
        kvr_synthesize(synthesizer, blocks, count, block, tokens, own, &prompt, &error);
    if (status != KVR_OK)
        fail_msg("%s", error.text);
    ids->count = 0;
    assert_int_equal(
        kvr_encode(encoder, prompt.data, prompt.length, KVR_ENCODE_MODEL, ids, &error), KVR_OK);
    assert_int_equal(ids->count, tokens);
    kvr_buffer_release(&prompt);
}

static size_t common(const struct kvr_ids *a, const struct kvr_ids *b)
{
    size_t count = 0;

    while (count < a->count && count < b->count && a->data[count] == b->data[count])
        count++;
    return count;
}

static void check_vocabulary(const char *path)
{
    const uint64_t first[] = {46, 47, 48}, second[] = {46, 47, 99};
    struct kvr_tokenizer *tokenizer;
    struct kvr_encoder *encoder;
    struct kvr_synthesizer *synthesizer;
    struct kvr_ids a = {0}, b = {0};
    struct kvr_error error = {0};

    if (access(path, R_OK) != 0)
        skip();
    assert_int_equal(kvr_tokenizer_load(&tokenizer, path, NULL, &error), KVR_OK);
    assert_int_equal(kvr_encoder_new(&encoder, tokenizer, &error), KVR_OK);
    if (kvr_synthesizer_create(&synthesizer, tokenizer, 1, &error) != KVR_OK)
        fail_msg("%s", error.text);
    prompt_ids(synthesizer, encoder, first, 3, 512, 1536, 1, &a);
    prompt_ids(synthesizer, encoder, second, 3, 512, 1536, 2, &b);
    assert_in_range(common(&a, &b), 1024, 1030); /* the next word may be the same by chance */
    prompt_ids(synthesizer, encoder, first, 3, 512, 1100, 3, &b);
    assert_int_equal(common(&a, &b), 1100);
    prompt_ids(synthesizer, encoder, first, 1, 512, 700, 3, &a);
    prompt_ids(synthesizer, encoder, first, 1, 512, 700, 4, &b);
    assert_in_range(common(&a, &b), 512, 518);
    prompt_ids(synthesizer, encoder, first, 0, 512, 5, 4, &b);
    for (uint64_t tokens = 2; tokens < 60; tokens++)
        prompt_ids(synthesizer, encoder, first, 3, 16, tokens, tokens, &a);
    struct kvr_buffer prompt = {0};
    assert_int_equal(
        kvr_synthesize(synthesizer, first, 1, 16, 0, 1, &prompt, &error), KVR_BAD_INPUT);
    kvr_synthesizer_destroy(synthesizer);
    kvr_encoder_release(encoder);
    kvr_tokenizer_release(tokenizer);
    kvr_ids_release(&a);
    kvr_ids_release(&b);
}

static void exact_with_cl100k(void **state)
{
    (void)state;
    check_vocabulary("data/cl100k_base.tiktoken.gz");
}

static void check_shared(const char *name)
{
    const char *shared = getenv("SHARED");
    char path[4096];

    snprintf(path, sizeof path, "%s/tokenizers/%s", shared ? shared : "../shared", name);
    check_vocabulary(path);
}

static void exact_with_mistral_whose_spaces_are_letters(void **state)
{
    (void)state;
    check_shared("mistral_v0_1.tokenizer.json.gz");
}

static void exact_with_qwen(void **state)
{
    (void)state;
    check_shared("qwen3.tokenizer.json.gz");
}

static void a_vocabulary_without_words_is_refused(void **state)
{
    struct kvr_tokenizer *tokenizer;
    struct kvr_synthesizer *synthesizer;
    struct kvr_error error = {0};

    (void)state;
    assert_int_equal(kvr_tokenizer_load(&tokenizer, "bytes", NULL, &error), KVR_OK);
    assert_int_equal(kvr_synthesizer_create(&synthesizer, tokenizer, 1, &error), KVR_UNSUPPORTED);
    kvr_tokenizer_release(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_with_cl100k),
        cmocka_unit_test(exact_with_mistral_whose_spaces_are_letters),
        cmocka_unit_test(exact_with_qwen),
        cmocka_unit_test(a_vocabulary_without_words_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
