/*
 * Texts made to be slow: a megabyte of one letter, of spaces, of letters without a space, of
 * ideographs, of combining marks, ... The bound is generous, for machines that do other work too;
 * what it catches is time that grows with the square of the text.
 */
#include "base/random.h"
#include "tests/unit/unit.h"
#include "token/alphabet.h"
#include "token/tokenizer.h"
#include "token/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEXT_BYTES = 1 << 20 };

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A megabyte of characters from [first, last], in order of chance, or all the same. */
static size_t fill(char *text, uint32_t first, uint32_t last)
{
    struct kvr_random random = {.state = first};
    size_t length = 0;

    while (length + 4 <= TEXT_BYTES)
        length += kvr_utf8_encode(
            first + kvr_random_below(&random, last - first + 1), (uint8_t *)text + length);
    return length;
}

static void check_vocabulary(const char *path)
{
    static const uint32_t ranges[][2] = {{'a', 'a'}, {' ', ' '}, {'a', 'z'}, {'\n', '\n'},
        {'1', '1'}, {'!', '!'}, {'-', '-'}, {'/', '/'}, {'#', '#'}, {'\'', '\''}, {'<', '<'},
        {0, 0}, {0x4e00, 0x9fa5}, {0x300, 0x34e}, {0x301, 0x301}, {0xe01, 0xe2e}, {0xac00, 0xd7a3},
        {0x1100, 0x11ff}, {0x1f600, 0x1f600}, {0xe000, 0xf8ff}};
    struct kvr_tokenizer *tokenizer;
    struct kvr_encoder *encoder;
    struct kvr_error error;
    struct kvr_ids ids = {0};
    char *text = malloc(TEXT_BYTES + 4);

    if (kvr_tokenizer_load(&tokenizer, path, NULL, &error)) {
        free(text);
        print_message("%s\n", error.text);
        skip();
    }
    assert_int_equal(kvr_encoder_new(&encoder, tokenizer, &error), KVR_OK);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        size_t length = fill(text, ranges[i][0], ranges[i][1]);
        double began = cpu_seconds();
        ids.count = 0;
        assert_int_equal(
            kvr_encode(encoder, text, length, KVR_ENCODE_SPECIAL, &ids, &error), KVR_OK);
        double seconds = cpu_seconds() - began;
        struct kvr_buffer back = {0};
        assert_int_equal(kvr_decode(tokenizer, ids.data, ids.count, false, &back, &error), KVR_OK);
        if (strstr(path, "cl100k"))
            assert_true(back.length == length && memcmp(back.data, text, length) == 0);
        kvr_buffer_release(&back);
        if (seconds > 1)
            fail_msg("a megabyte of U+%04X to U+%04X takes %.2f s", (unsigned)ranges[i][0],
                (unsigned)ranges[i][1], seconds);
    }
    kvr_ids_release(&ids);
    kvr_encoder_release(encoder);
    kvr_tokenizer_release(tokenizer);
    free(text);
}

static void no_text_is_slow_with_cl100k(void **state)
{
    (void)state;
    check_vocabulary("data/cl100k_base.tiktoken.gz");
}

static void check_shared(const char *name)
{
    const char *shared = getenv("SHARED");
    char path[1000];

    snprintf(path, sizeof path, "%s/tokenizers/%s", shared ? shared : "../shared", name);
    check_vocabulary(path);
}

static void no_text_is_slow_with_qwen3(void **state)
{
    (void)state;
    check_shared("qwen3.tokenizer.json.gz");
}

static void no_text_is_slow_with_mistral(void **state)
{
    (void)state;
    check_shared("mistral_v0_1.tokenizer.json.gz");
}

/* A tokenizer.json of single bytes, with a split pattern and one added token. */
static void write_vocabulary(struct kvr_buffer *out, const char *pattern, const char *added)
{
    kvr_buffer_append_format(out,
        "{\"added_tokens\":[{\"id\":256,\"special\":true,%s}],\"normalizer\":null,\"pre_"
        "tokenizer\":"
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
        "\"%s\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
        added, pattern);
    for (int byte = 0; byte < 256; byte++) {
        struct kvr_buffer letter = {0};
        char c = (char)byte;
        kvr_bytes_to_alphabet(&c, 1, &letter);
        const char *escape = c == '"' || c == '\\' ? "\\" : "";
        kvr_buffer_append_format(
            out, "%s\"%s%s\":%d", byte ? "," : "", escape, kvr_buffer_text(&letter), byte);
        kvr_buffer_release(&letter);
    }
    kvr_buffer_append_text(out, "}}}");
}

/* Patterns whose matches fail far ahead, added tokens that others begin like, or that strip. */
static void no_text_is_slow_with_steps_that_look_far(void **state)
{
    static const char plain[] = "\"content\":\"<s>\"",
                      strips[] = "\"content\":\"  \",\"lstrip\":true,\"rstrip\":true";
    static const struct {
        const char *pattern, *added, *unit;
    } cases[] = {
        {"(?=(\\\\d{3})+(?!\\\\d))", plain, "1"},
        {"\\\\d{1,3}(?=(?:\\\\d{3})*\\\\b)", plain, "7"},
        {"\\\\s+!|.", plain, " "},
        {"[^!]*!|.", plain, "ab"},
        {"(\\\\w+)+!|.", plain, "a"},
        {".", strips, " "},
        {".", NULL, "-"},
    };
    char *text = malloc(TEXT_BYTES + 1), dashes[2100];

    (void)state;
    assert_non_null(text);
    snprintf(dashes, sizeof dashes, "\"content\":\"%0*d|\"", 2000, 0);
    for (char *c = dashes; *c; c++)
        *c = *c == '0' ? '-' : *c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_buffer file = {0};
        struct kvr_tokenizer *tokenizer;
        struct kvr_encoder *encoder;
        struct kvr_error error;
        struct kvr_ids ids = {0};
        write_vocabulary(&file, cases[i].pattern, cases[i].added ? cases[i].added : dashes);
        if (kvr_tokenizer_parse(&tokenizer, file.data, file.length, "tokenizer.json", &error))
            fail_msg("%s", error.text);
        assert_int_equal(kvr_encoder_new(&encoder, tokenizer, &error), KVR_OK);
        for (size_t k = 0; k < TEXT_BYTES; k++)
            text[k] = cases[i].unit[k % strlen(cases[i].unit)];
        text[TEXT_BYTES] = 'x';
        double began = cpu_seconds();
        if (kvr_encode(encoder, text, TEXT_BYTES + 1, KVR_ENCODE_SPECIAL, &ids, &error))
            fail_msg("%s", error.text);
        if (cpu_seconds() - began > 1)
            fail_msg(
                "%s on '%s' takes %.2f s", cases[i].pattern, cases[i].unit, cpu_seconds() - began);
        /* "  " with all spaces about it is one token, then comes the letter */
        assert_int_equal(ids.count, cases[i].added == strips ? 2 : TEXT_BYTES + 1);
        kvr_ids_release(&ids);
        kvr_encoder_release(encoder);
        kvr_tokenizer_release(tokenizer);
        kvr_buffer_release(&file);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_is_slow_with_cl100k),
        cmocka_unit_test(no_text_is_slow_with_qwen3),
        cmocka_unit_test(no_text_is_slow_with_mistral),
        cmocka_unit_test(no_text_is_slow_with_steps_that_look_far),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
