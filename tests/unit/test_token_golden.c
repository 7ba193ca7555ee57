/*
 * Every line of $SHARED/golden: what the reference tokenizers gave for a text must come out here,
 * in each of the variants that a line has.
 */
#include "line/json.h"
#include "tests/unit/unit.h"
#include "token/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct vocabulary {
    const char *name, *file;
};

static const struct vocabulary vocabularies[] = {
    {"cl100k_base", "cl100k_base.tiktoken.gz"},
    {"o200k_base", "o200k_base.tiktoken.gz"},
    {"r50k_base", "r50k_base.tiktoken.gz"},
    {"qwen3", "qwen3.tokenizer.json.gz"},
    {"deepseek_v3", "deepseek_v3.tokenizer.json.gz"},
    {"mistral_v0_1", "mistral_v0_1.tokenizer.json.gz"},
};

static const char *shared(void)
{
    const char *path = getenv("SHARED");

    return path ? path : "../shared";
}

/* Reads a line of any length, without its newline. */
static bool read_line(gzFile file, struct kvr_buffer *line)
{
    kvr_buffer_clear(line);
    for (;;) {
        assert_true(kvr_buffer_reserve(line, 1 << 16));
        if (!gzgets(file, line->data + line->length, 1 << 16))
            return line->length > 0;
        line->length += strlen(line->data + line->length);
        if (line->data[line->length - 1] == '\n') {
            line->length--;
            return true;
        }
    }
}

/* Compares ids with the member `name` of a line; true where it has none. */
static bool agrees(struct kvr_value line, const char *name, const struct kvr_ids *ids)
{
    struct kvr_value expected = kvr_value_get(line, name);
    if (expected.type == KVR_ABSENT)
        return true;
    uint64_t *numbers = malloc(kvr_value_u64s_room(expected) * sizeof *numbers);
    ptrdiff_t count = kvr_value_u64s(expected, numbers);
    bool same = (size_t)count == ids->count;
    for (size_t i = 0; same && i < ids->count; i++)
        same = numbers[i] == ids->data[i];
    free(numbers);
    return same;
}

struct variant {
    const char *name;
    unsigned flags;
};

static const struct variant tiktoken_variants[] = {
    {"ids", 0}, {"ids_special", KVR_ENCODE_SPECIAL}, {NULL, 0}};
static const struct variant huggingface_variants[] = {{"ids", KVR_ENCODE_SPECIAL},
    {"ids_nospecial", 0}, {"ids_plain", KVR_ENCODE_NO_ADDED},
    {"ids_bos", KVR_ENCODE_SPECIAL | KVR_ENCODE_MODEL}, {NULL, 0}};

static size_t check_line(struct kvr_encoder *encoder, const char *vocabulary, unsigned number,
    struct kvr_value line, const struct variant *variants)
{
    struct kvr_buffer text = {0};
    struct kvr_ids ids = {0};
    struct kvr_error error;
    size_t wrong = 0;

    assert_true(kvr_value_string(kvr_value_get(line, "text"), &text));
    for (const struct variant *v = variants; v->name; v++) {
        ids.count = 0;
        enum kvr_status status =
            kvr_encode(encoder, text.data, text.length, v->flags, &ids, &error);
        if (status)
            print_message("%s line %u %s: %s\n", vocabulary, number, v->name, error.text);
        else if (agrees(line, v->name, &ids))
            continue;
        else
            print_message("%s line %u: %s differ: %.120s\n", vocabulary, number, v->name,
                text.length < 120 ? line.text : "(long)");
        wrong++;
    }
    kvr_ids_release(&ids);
    kvr_buffer_release(&text);
    return wrong;
}

static void check_vocabulary(const struct vocabulary *v)
{
    char path[1000];
    struct kvr_error error = {0};
    struct kvr_tokenizer *tokenizer;
    struct kvr_encoder *encoder;
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_buffer line = {0};
    unsigned number = 0;
    size_t wrong = 0;

    snprintf(path, sizeof path, "%s/golden/%s.jsonl.gz", shared(), v->name);
    gzFile file = gzopen(path, "rb");
    if (!file) {
        print_message("%s is missing\n", path);
        skip();
    }
    snprintf(path, sizeof path, "%s/tokenizers/%s", shared(), v->file);
    if (kvr_tokenizer_load(&tokenizer, path, NULL, &error))
        fail_msg("%s", error.text);
    assert_int_equal(kvr_encoder_new(&encoder, tokenizer, &error), KVR_OK);
    while (read_line(file, &line)) {
        struct kvr_value value;
        number++;
        if (kvr_json_check(structure, line.data, line.length, &value, NULL, &error))
            fail_msg("%s: %s", v->name, error.text);
        wrong += check_line(encoder, v->name, number, value,
            strstr(v->file, ".tiktoken") ? tiktoken_variants : huggingface_variants);
    }
    gzclose(file);
    kvr_encoder_release(encoder);
    kvr_tokenizer_release(tokenizer);
    kvr_structure_destroy(structure);
    kvr_buffer_release(&line);
    assert_true(number > 800);
    assert_int_equal(wrong, 0);
}

#define TEST(name, index)                                                                          \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        check_vocabulary(&vocabularies[index]);                                                    \
    }
TEST(cl100k_base_is_exact, 0)
TEST(o200k_base_is_exact, 1)
TEST(r50k_base_is_exact, 2)
TEST(qwen3_is_exact, 3)
TEST(deepseek_v3_is_exact, 4)
TEST(mistral_v0_1_is_exact, 5)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cl100k_base_is_exact),
        cmocka_unit_test(o200k_base_is_exact),
        cmocka_unit_test(r50k_base_is_exact),
        cmocka_unit_test(qwen3_is_exact),
        cmocka_unit_test(deepseek_v3_is_exact),
        cmocka_unit_test(mistral_v0_1_is_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
