/*
 * The scanners against the patterns that they stand for, run by PCRE2 over the same tables; the
 * general path with every behaviour of a split; and Unicode's own examples of normal forms.
 */
#include "base/random.h"
#include "tests/unit/unit.h"
#include "token/normalize.h"
#include "token/pattern.h"
#include "token/scan.h"
#include "token/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Characters that split patterns tell apart, and some that they once got wrong. */
static const uint32_t characters[] = {'a', 'b', 'z', 'A', 'Z', 's', 't', 'd', 'm', 'l', 'e', 'r',
    'v', 'S', 'L', 'R', 'E', 'V', '\'', '\'', '\'', ' ', ' ', ' ', ' ', '\n', '\n', '\r', '\t',
    '\v', '\f', '0', '1', '9', '.', ',', '!', '-', '_', '/', '/', '(', ')', '$', '+', '<', '>', '^',
    '`', '|', '~', '\0', 1, 0x1f, 0x7f, 0x85, 0xa0, 0xa7, 0xaa, 0xad, 0xb2, 0xb5, 0xbc, 0xdf, 0xe9,
    0xc9, 0x17f, 0x1c5, 0x2b0, 0x300, 0x301, 0x345, 0x370, 0x3a9, 0x434, 0x414, 0x488, 0x5d0, 0x5b0,
    0x627, 0x660, 0x903, 0x915, 0x94d, 0x966, 0xe01, 0xe31, 0xe50, 0x1680, 0x180e, 0x1fbe, 0x2003,
    0x200b, 0x200d, 0x2028, 0x2029, 0x202f, 0x2060, 0x20ac, 0x2160, 0x2460, 0x3000, 0x3001, 0x3007,
    0x3040, 0x3042, 0x30a0, 0x30fb, 0x30fc, 0x30ff, 0x3100, 0x4dff, 0x4e00, 0x9fa5, 0x9fa6, 0xac00,
    0xe000, 0xfe0f, 0xfeff, 0xfffd, 0xffff, 0x10400, 0x10428, 0x1d7ce, 0x1f600, 0x1f1e6, 0x1f3fb,
    0x20000, 0x2fa1d, 0x378, 0x1c89, 0x1c8a, 0xa7cb, 0x10d4a, 0x10d70, 0x1e5d0, 0x16d40, 0xe0001,
    0xe0100, 0x10ffff};

#define CHARACTER_COUNT (sizeof characters / sizeof *characters)

/* Text with runs, as texts have them. In plain text nine characters of ten are ASCII, or letters of
 * two bytes. */
static size_t random_text(struct kvr_random *random, bool plain, uint8_t *out, size_t room)
{
    static const uint32_t letters[] = {0xe9, 0xc9, 0xd7, 0xf7, 0xdf, 0xff, 0x100, 0x131, 0x138,
        0x149, 0x17f, 0x1bb, 0x1c5, 0x24f, 0x2bf, 0x400, 0x42f, 0x430, 0x45f, 0x460, 0x461, 0x47f,
        0x482, 0x4c0, 0x4ff, 0xb7, 0x97};
    size_t length = 0, wanted = kvr_random_below(random, room - 16);

    while (length < wanted) {
        uint32_t character = characters[kvr_random_below(random, CHARACTER_COUNT)];
        if (plain && kvr_random_below(random, 10))
            character = kvr_random_below(random, 8)
                            ? characters[kvr_random_below(random, 55)]
                            : letters[kvr_random_below(random, sizeof letters / sizeof *letters)];
        uint64_t run = kvr_random_below(random, 4) ? 1 : 1 + kvr_random_below(random, 5);
        if (kvr_random_below(random, 3) == 0)
            character = characters[kvr_random_below(random, 32)];
        while (run-- && length < wanted)
            length += kvr_utf8_encode(character, out + length);
    }
    return length;
}

struct splitter {
    struct kvr_pattern *patterns[4];
    size_t count;
};

static void open_splitter(struct splitter *splitter, const char *pattern)
{
    struct kvr_error error;

    splitter->count = 0;
    while (*pattern) {
        const char *end = strstr(pattern, "}\n"), *other = strstr(pattern, "]+\n");
        size_t length = strlen(pattern), skip = 0;
        if (splitter->count == 0 && end) { /* the joints of DeepSeek's three splits */
            length = (size_t)(end + 1 - pattern);
            skip = 1;
        } else if (splitter->count == 1 && other) {
            length = (size_t)(other + 2 - pattern);
            skip = 1;
        }
        if (kvr_pattern_compile(&splitter->patterns[splitter->count++], pattern, length, &error))
            fail_msg("%s", error.text);
        pattern += length + skip;
    }
}

/* The ends of the pieces of one segment by pattern `level` and those after it. */
static void split(const struct splitter *splitter, size_t level, const char *text, size_t length,
    size_t base, uint32_t *ends, size_t *count)
{
    size_t at = 0, start, stop;
    bool found;

    if (level == splitter->count) {
        if (length)
            ends[(*count)++] = (uint32_t)(base + length);
        return;
    }
    while (at < length) {
        struct kvr_search search = {0};
        kvr_search_text(&search, splitter->patterns[level], text, length);
        assert_int_equal(kvr_search_next(&search, at, at, &found, &start, &stop, NULL), KVR_OK);
        kvr_search_release(&search);
        if (!found)
            break;
        split(splitter, level + 1, text + at, start - at, base + at, ends, count);
        split(splitter, level + 1, text + start, stop - start, base + start, ends, count);
        at = stop;
    }
    split(splitter, level + 1, text + at, length - at, base + at, ends, count);
}

static void show(const char *name, const uint8_t *text, size_t length, size_t at)
{
    print_message("%s at byte %zu of:", name, at);
    for (size_t i = 0; i < length; i++)
        print_message(text[i] > 32 && text[i] < 127 ? " %c" : " %02x", text[i]);
    print_message("\n");
}

static void scanners_split_as_their_patterns(void **state)
{
    struct kvr_random random = {.state = 7};
    uint8_t text[220];
    uint32_t wanted[256], ends[512];

    (void)state;
    for (int kind = KVR_SCAN_NONE + 1; kind < KVR_SCAN_COUNT; kind++) {
        struct splitter splitter;
        open_splitter(&splitter, kvr_scan_kinds[kind].pattern);
        assert_int_equal(splitter.count, kind == KVR_SCAN_DEEPSEEK3 ? 3 : 1);
        for (int round = 0; round < 12000; round++) {
            bool plain = round % 8 >= 4;
            size_t length =
                random_text(&random, plain, text, plain || round % 4 == 0 ? sizeof text : 60);
            size_t wanted_count = 0, count = 0, at = 0, more;
            split(&splitter, 0, (const char *)text, length, 0, wanted, &wanted_count);
            /* in portions of three, to see that a scan goes on where it stopped; or as a whole,
             * which lets blocks of 64 bytes be scanned at once */
            size_t portion = round % 2 ? 3 : 128;
            while ((more = kvr_scan_kinds[kind].scan(text, length, &at, ends + count, portion)))
                count += more;
            for (size_t i = 0; i < wanted_count || i < count; i++) {
                if (i >= count || i >= wanted_count || ends[i] != wanted[i]) {
                    show(kvr_scan_kinds[kind].name, text, length, i ? ends[i - 1] : 0);
                    print_message("the piece ends at %u, not at %u\n", i < count ? ends[i] : 0,
                        i < wanted_count ? wanted[i] : 0);
                    fail_msg("%s differs from its pattern", kvr_scan_kinds[kind].name);
                }
            }
        }
        for (size_t i = 0; i < splitter.count; i++)
            kvr_pattern_release(splitter.patterns[i]);
    }
}

static void scanners_cover_malformed_text(void **state)
{
    struct kvr_random random = {.state = 9};
    uint8_t text[64];
    uint32_t ends[64];

    (void)state;
    for (int round = 0; round < 20000; round++) {
        size_t length = 1 + kvr_random_below(&random, sizeof text), at = 0;
        for (size_t i = 0; i < length; i++)
            text[i] = (uint8_t)(kvr_random_below(&random, 2) ? 0x80 + kvr_random_below(&random, 128)
                                                             : kvr_random_below(&random, 128));
        for (int kind = KVR_SCAN_NONE; kind < KVR_SCAN_COUNT; kind++) {
            at = 0;
            size_t count = kvr_scan_kinds[kind].scan(text, length, &at, ends, 64), before = 0;
            assert_int_equal(at, length);
            assert_int_equal(ends[count - 1], length);
            for (size_t i = 0; i < count; before = ends[i++])
                assert_true(ends[i] > before);
        }
    }
}

static void expect_rewrite_error(const char *pattern, const char *what)
{
    struct kvr_buffer out = {0};
    struct kvr_error error = {0};

    assert_int_not_equal(kvr_pattern_rewrite(pattern, strlen(pattern), &out, &error), KVR_OK);
    assert_non_null(strstr(error.text, what));
    kvr_buffer_release(&out);
}

static void patterns_that_are_not_known_are_refused(void **state)
{
    (void)state;
    expect_rewrite_error("\\p{Emoji}+", "'Emoji'");
    expect_rewrite_error("\\p{L", "not closed");
    expect_rewrite_error("[abc", "not closed");
    expect_rewrite_error("a\\", "backslash");
    expect_rewrite_error("\\k", "'\\k'");
    expect_rewrite_error("[[:alpha:]]", "'[:alpha:]'");
    expect_rewrite_error("[z-a]", "backwards");
    expect_rewrite_error("[a&&[b]", "not closed");
    expect_rewrite_error("[[[[[[[[[[[[[[[[[[a]]]]]]]]]]]]]]]]]]", "nested too deep");
    expect_rewrite_error("\\x{110000}", "escape");
}

static void long_matches_need_no_large_stack(void **state)
{
    static const char pattern[] = "(a|aa)+$";
    size_t length = 1000000, start = 1, stop = 0;
    char *text = malloc(length);
    struct kvr_pattern *compiled;
    bool found = false;

    (void)state;
    assert_non_null(text);
    memset(text, 'a', length);
    assert_int_equal(kvr_pattern_compile(&compiled, pattern, strlen(pattern), NULL), KVR_OK);
    struct kvr_search search = {0};
    kvr_search_text(&search, compiled, text, length);
    assert_int_equal(kvr_search_next(&search, 0, SIZE_MAX, &found, &start, &stop, NULL), KVR_OK);
    kvr_search_release(&search);
    assert_true(found);
    assert_int_equal(start, 0);
    assert_int_equal(stop, length);
    kvr_pattern_release(compiled);
    free(text);
}

static void expect_form(enum kvr_normal_form form, const char *text, const char *wanted)
{
    struct kvr_buffer out = {0};

    kvr_normal_form(form, (const uint8_t *)text, strlen(text), &out);
    assert_string_equal(kvr_buffer_text(&out), wanted);
    kvr_buffer_release(&out);
}

static void normal_forms_have_unicode_s_answers(void **state)
{
    (void)state;
    expect_form(KVR_NFC, "plain", "plain");
    expect_form(KVR_NFC, "e\u0301x", "\u00e9x");
    expect_form(KVR_NFD, "\u00e9x", "e\u0301x");
    expect_form(KVR_NFC, "\u212b", "\u00c5");
    expect_form(KVR_NFC, "a\u0323\u0307", "\u1ea1\u0307"); /* marks in order of their class */
    expect_form(KVR_NFC, "a\u0307\u0323", "\u1ea1\u0307");
    expect_form(KVR_NFC, "a\u0315\u0300\u05ae\u0300b", "\u00e0\u05ae\u0300\u0315b");
    expect_form(KVR_NFC, "\u1e9b\u0323", "\u1e9b\u0323");
    expect_form(KVR_NFKC, "\u1e9b\u0323", "\u1e69");
    expect_form(KVR_NFKC, "\ufb01\u2460\uff21", "fi1A");
    expect_form(KVR_NFKD, "\uac01", "\u1100\u1161\u11a8");
    expect_form(KVR_NFC, "\u1100\u1161\u11a8", "\uac01");
    expect_form(KVR_NFC, "\u0958", "\u0915\u093c"); /* excluded from composition */
    expect_form(KVR_NFC, "\u0344", "\u0308\u0301");
    expect_form(KVR_NFC, "x\xff\xcc y", "x\xff\xcc y"); /* malformed bytes stay */
    assert_true(kvr_is_nfc((const uint8_t *)"\u00e9\u4e00", 5));
    assert_false(kvr_is_nfc((const uint8_t *)"e\u0301", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scanners_split_as_their_patterns),
        cmocka_unit_test(scanners_cover_malformed_text),
        cmocka_unit_test(patterns_that_are_not_known_are_refused),
        cmocka_unit_test(long_matches_need_no_large_stack),
        cmocka_unit_test(normal_forms_have_unicode_s_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
