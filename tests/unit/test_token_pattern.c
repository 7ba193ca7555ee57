/*
 * Split patterns: whichever engine runs them, they give what PCRE2 gives when it sees all of the
 * text, and no text makes a pattern take more than its share of steps.
 */
#include "base/random.h"
#include "tests/unit/unit.h"
#include "token/pattern.h"
#include "token/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The reference: PCRE2, interpreted, with the whole text before it. */
static pcre2_code *compile_reference(const char *pattern)
{
    struct kvr_buffer rewritten = {0};
    int number;
    PCRE2_SIZE offset;

    assert_int_equal(kvr_pattern_rewrite(pattern, strlen(pattern), &rewritten, NULL), KVR_OK);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)kvr_buffer_text(&rewritten), rewritten.length,
        PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NO_AUTO_POSSESS, &number, &offset, NULL);
    kvr_buffer_release(&rewritten);
    return code;
}

struct match {
    size_t start, stop;
};

/* All matches one after another, as splits take them. Returns how many; -1: the limit was met. */
static int all_by_reference(
    const pcre2_code *code, const char *text, size_t length, struct match *matches, int capacity)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    size_t from = 0, last_stop = SIZE_MAX;
    int count = 0;

    pcre2_set_match_limit(context, 200000);
    while (from <= length && count >= 0 && count < capacity) {
        int result =
            pcre2_match(code, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK, data, context);
        if (result == PCRE2_ERROR_NOMATCH)
            break;
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(data);
        if (result < 0) {
            count = -1;
        } else if (range[0] == range[1] && range[1] == last_stop) {
            unsigned size = 1;
            if (from < length)
                kvr_utf8_decode(
                    (const uint8_t *)text + from, (const uint8_t *)text + length, &size);
            from += size;
        } else {
            matches[count++] = (struct match){range[0], range[1]};
            from = last_stop = range[1];
        }
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    return count;
}

static int all_by_search(const struct kvr_pattern *pattern, const char *text, size_t length,
    struct match *matches, int capacity)
{
    struct kvr_search search = {0};
    struct kvr_error error;
    size_t last_stop = SIZE_MAX, at = 0;
    bool found = true;
    int count = 0;

    kvr_search_text(&search, pattern, text, length);
    while (count < capacity) {
        if (kvr_search_next(&search, at, last_stop, &found, &matches[count].start,
                &matches[count].stop, &error))
            fail_msg("%s", error.text);
        if (!found)
            break;
        at = last_stop = matches[count++].stop;
    }
    kvr_search_release(&search);
    return count;
}

static size_t random_text(struct kvr_random *random, char *text, size_t most)
{
    static const char *const characters[] = {"a", "b", "a", "b", "A", " ", " ", "1", "!", "\n", "é",
        "\u0301", "的", "\u017f", "\u212a", "😀", "'", "s", "\u00a0", "\r"};
    size_t length = 0, wanted = 1 + kvr_random_below(random, most - 8);

    while (length < wanted) {
        const char *character =
            characters[kvr_random_below(random, sizeof characters / sizeof *characters)];
        size_t size = strlen(character);
        size_t times = kvr_random_below(random, 8)    ? 1
                       : kvr_random_below(random, 10) ? kvr_random_below(random, 9)
                                                      : kvr_random_below(random, 200);
        while (times-- && length + size <= most) {
            memcpy(text + length, character, size);
            length += size;
        }
    }
    return length;
}

static void append_random_pattern(struct kvr_random *random, struct kvr_buffer *out, int depth)
{
    static const char *const atoms[] = {"a", "b", "\\s", "\\p{L}", "\\w", "[^ab]", ".", "1", "\\S",
        "[\\p{M}a]", "(?i:s)", "(?i:k|'s)", "(?i:[^k])", "(?i:[a-k])", "(?i:É)", " ", "é",
        "(?!\\S)", "$", "^", "\\b", "(?<=a)", "(?<!\\s)", "[a-z&&[^b]]", "\\n", "\\A", "\\z", "\\B",
        "(?<=ab|\\s)"};
    static const char *const repeats[] = {"", "", "", "", "*", "+", "?", "*?", "+?", "??", "++",
        "*+", "?+", "{2}", "{1,3}", "{2,}", "{0,2}?", "{1,2}"};
    static const char *const groups[] = {"(?:", "(", "(?=", "(?!", "(?>", "(?i:", "(?:", "(?s:"};
    uint64_t parts = 1 + kvr_random_below(random, 4);

    while (parts--) {
        if (depth && kvr_random_below(random, 3) == 0) {
            kvr_buffer_append_text(
                out, groups[kvr_random_below(random, sizeof groups / sizeof *groups)]);
            append_random_pattern(random, out, depth - 1);
            if (kvr_random_below(random, 2)) {
                kvr_buffer_append_byte(out, '|');
                append_random_pattern(random, out, depth - 1);
            }
            kvr_buffer_append_byte(out, ')');
        } else {
            kvr_buffer_append_text(
                out, atoms[kvr_random_below(random, sizeof atoms / sizeof *atoms)]);
        }
        kvr_buffer_append_text(
            out, repeats[kvr_random_below(random, sizeof repeats / sizeof *repeats)]);
    }
}

static void compare(const char *shown, const struct match *wanted, int wanted_count,
    const struct match *got, int count, const char *text, size_t length)
{
    for (int i = 0; i < wanted_count || i < count; i++) {
        if (i < count && i < wanted_count && got[i].start == wanted[i].start &&
            got[i].stop == wanted[i].stop)
            continue;
        print_message("pattern %s\ntext", shown);
        for (size_t k = 0; k < length; k++)
            print_message(text[k] > 32 && text[k] < 127 ? "%c" : "\\x%02x", (uint8_t)text[k]);
        print_message("\n");
        fail_msg("match %d is [%zd, %zd), not [%zd, %zd)", i,
            i < count ? (ssize_t)got[i].start : -1, i < count ? (ssize_t)got[i].stop : -1,
            i < wanted_count ? (ssize_t)wanted[i].start : -1,
            i < wanted_count ? (ssize_t)wanted[i].stop : -1);
    }
}

static void check_pattern(struct kvr_random *random, const char *shown, int rounds)
{
    enum { MOST = 700 };
    struct match wanted[MOST * 2], got[MOST * 2];
    struct kvr_pattern *pattern;
    char text[MOST + 8];
    pcre2_code *reference = compile_reference(shown);

    if (!reference || kvr_pattern_compile(&pattern, shown, strlen(shown), NULL)) {
        pcre2_code_free(reference);
        return; /* a look behind of no fixed length, say */
    }
    for (int round = 0; round < rounds; round++) {
        size_t length = random_text(random, text, round % 3 ? 60 : MOST);
        int count = all_by_reference(reference, text, length, wanted, MOST * 2);
        if (count < 0)
            continue;
        int own = all_by_search(pattern, text, length, got, MOST * 2);
        compare(shown, wanted, count, got, own, text, length);
    }
    pcre2_code_free(reference);
    kvr_pattern_release(pattern);
}

static void random_patterns_match_as_pcre2_matches(void **state)
{
    struct kvr_random random = {.state = 11};
    struct kvr_buffer pattern = {0};

    (void)state;
    for (int round = 0; round < 700; round++) {
        kvr_buffer_clear(&pattern);
        append_random_pattern(&random, &pattern, 3);
        if (kvr_random_below(&random, 2)) {
            kvr_buffer_append_byte(&pattern, '|');
            append_random_pattern(&random, &pattern, 2);
        }
        check_pattern(&random, kvr_buffer_text(&pattern), 9);
    }
    kvr_buffer_release(&pattern);
}

/* Patterns of models beyond those that have a scanner, and some that no model should have. */
static const char *const patterns[] = {
    "\\s+$",
    "\\s?\\p{L}+",
    "(?=(\\d{3})+(?!\\d))",
    "\\d{1,3}(?=(?:\\d{3})*\\b)",
    "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?:\\P{N}|$))",
    "[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    " ?[^(\\s|[.,!?…。，、।۔،])]+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lo}&&[^\\p{Han}]]+"
    "(?i:'s|'t)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "\\w+!",
    "(\\w+)+!|.",
    "(?=.*\\d)\\w|.",
    "[^!]*!|.",
    "\\S+?;|\\s",
    "\\p{L}*\\p{M}*\\p{L}*\\p{M}*;|.",
    "(?>\\w+)!|\\s++x|.",
    "(?:a|b|ab)+c|(?i)S+K?",
    "(?:\\w+?\\s?)*?!|\\d",
    "(?:\\w*\\s?)*!|.",
    "(?:a*|(?:b*\\s*)*)*1|(?:\\s??\\w*?)*?!|.",
    "((?i:É)*1{0,1}?)?+\\p{L}[^ab]++", /* the second way of what is optional is not for what follows
                                        */
    "(?i:'s|'t)|\\s{512}(?!\\S)|\\s{16}(?!\\S)|\\s|(?i)\\p{Lu}(?-i:\\p{Lu})|.",
    "^",
    "$|^\\w",
};

static void patterns_of_models_match_as_pcre2_matches(void **state)
{
    struct kvr_random random = {.state = 12};

    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        check_pattern(&random, patterns[i], 60);
}

static bool has_new_case(uint32_t c)
{
    return c == 0x19b || c == 0x264 || c == 0x1c89 || c == 0x1c8a || (c >= 0xa7cb && c <= 0xa7dc) ||
           (c >= 0x10d50 && c <= 0x10d85);
}

/* Over all characters that had cases in Unicode 14, as PCRE2 may have it: those that (?i) lets
 * match are PCRE2's. */
static void case_is_pcre2_s(void **state)
{
    static const char *const shown[] = {"(?i:s)", "(?i:[^k])", "(?i:[\\p{Lu}])", "(?i:[^\\P{L}])",
        "(?i:\\p{Lu})", "(?i:[\u03b9\u01c5\u24d0\u2160])", "(?i:[a-m])", "(?i:\u00b5)",
        "(?i:[^\u1e9e\u00e5])"};
    size_t length = 0;
    uint8_t *text = malloc(0x110000 * 4);
    struct match *wanted = malloc(0x110000 * sizeof *wanted), *got = malloc(0x110000 * sizeof *got);

    (void)state;
    assert_true(text && wanted && got);
    for (uint32_t c = 0; c < 0x110000; c++)
        if ((c < 0xd800 || c > 0xdfff) && !has_new_case(c))
            length += kvr_utf8_encode(c, text + length);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        struct kvr_pattern *pattern;
        pcre2_code *reference = compile_reference(shown[i]);
        assert_int_equal(kvr_pattern_compile(&pattern, shown[i], strlen(shown[i]), NULL), KVR_OK);
        pcre2_jit_compile(reference, PCRE2_JIT_COMPLETE);
        int count = all_by_reference(reference, (char *)text, length, wanted, 0x110000);
        assert_true(count > 0);
        assert_int_equal(all_by_search(pattern, (const char *)text, length, got, 0x110000), count);
        assert_memory_equal(wanted, got, (size_t)count * sizeof *wanted);
        pcre2_code_free(reference);
        kvr_pattern_release(pattern);
    }
    free(text);
    free(wanted);
    free(got);
}

/* PCRE2 refuses what takes more than 64 KiB, as a group of classes does that is repeated. */
static void a_pattern_may_be_too_large_for_pcre2(void **state)
{
    static const char large[] = "(?:\\p{L}\\p{M}*){1,90}!|.", same[] = "(?:[ab]\\x{301}*){1,90}!|.";
    struct kvr_random random = {.state = 13};
    struct kvr_pattern *patterns_of[2];
    struct match matches[2][2000];
    char text[800];

    (void)state;
    assert_int_equal(kvr_pattern_compile(&patterns_of[0], large, strlen(large), NULL), KVR_OK);
    assert_int_equal(kvr_pattern_compile(&patterns_of[1], same, strlen(same), NULL), KVR_OK);
    for (int round = 0; round < 40; round++) {
        size_t length = 0;
        while (length < 700) {
            const char *part = (const char *[]){"a", "b", "a", "\u0301", "1", "b", "a",
                "!"}[kvr_random_below(&random, round % 2 ? 8 : 4)];
            memcpy(text + length, part, strlen(part));
            length += strlen(part);
        }
        text[length++] = '!';
        int count = all_by_search(patterns_of[0], text, length, matches[0], 2000);
        assert_int_equal(all_by_search(patterns_of[1], text, length, matches[1], 2000), count);
        assert_memory_equal(matches[0], matches[1], (size_t)count * sizeof **matches);
    }
    kvr_pattern_release(patterns_of[0]);
    kvr_pattern_release(patterns_of[1]);
}

static uint64_t steps_of(const struct kvr_pattern *pattern, const char *shown, const char *unit,
    size_t length, const char *end)
{
    struct kvr_search search = {0};
    struct kvr_error error;
    size_t size = strlen(unit), last_stop = SIZE_MAX, at = 0, start;
    char *text = malloc(length + 8);
    bool found = true;

    assert_non_null(text);
    for (size_t i = 0; i < length; i++)
        text[i] = unit[i % size];
    memcpy(text + length, end, strlen(end));
    kvr_search_text(&search, pattern, text, length + strlen(end));
    while (found) {
        if (kvr_search_next(&search, at, last_stop, &found, &start, &at, &error))
            fail_msg("%s on '%s': %s", shown, unit, error.text);
        last_stop = at;
    }
    uint64_t steps = search.walk.steps;
    kvr_search_release(&search);
    free(text);
    return steps;
}

/* Twice the text, twice the steps: not four times. */
static void steps_grow_with_the_text(void **state)
{
    static const char *const units[] = {"a", " ", "1", "A", "aA", "a ", "  \n ", "\u0301",
        "e\u0301", "的", "\u00a0", "'s", "!", "ab12 ", "\r\n", "1a"};
    enum { ONCE = 6000 }; /* whole characters of all units */
    struct kvr_pattern *pattern;

    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        assert_int_equal(
            kvr_pattern_compile(&pattern, patterns[i], strlen(patterns[i]), NULL), KVR_OK);
        assert_true(kvr_pattern_has_program(pattern));
        for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
            for (int end = 0; end < 3; end++) {
                const char *ends[] = {"", "x", " "};
                uint64_t once = steps_of(pattern, patterns[i], units[k], ONCE, ends[end]);
                uint64_t twice = steps_of(pattern, patterns[i], units[k], ONCE * 2, ends[end]);
                if (twice > once * 5 / 2 + 1000)
                    fail_msg("%s on '%s': %llu steps, with twice the text %llu", patterns[i],
                        units[k], (unsigned long long)once, (unsigned long long)twice);
            }
        }
        kvr_pattern_release(pattern);
    }
}

static void a_pattern_that_takes_too_many_steps_is_named(void **state)
{
    static const char shown[] = "(?:a+?)+?(?:a+?)+?(?:(a+?)(?=(?:a+?)+?b)|a)+?c";
    struct kvr_pattern *pattern;
    struct kvr_search search = {0};
    struct kvr_error error = {0};
    static char text[200000];
    size_t start, stop;
    bool found;

    (void)state;
    memset(text, 'a', sizeof text);
    assert_int_equal(kvr_pattern_compile(&pattern, shown, strlen(shown), NULL), KVR_OK);
    kvr_search_text(&search, pattern, text, sizeof text);
    if (kvr_search_next(&search, 0, SIZE_MAX, &found, &start, &stop, &error) == KVR_OK)
        assert_false(found);
    else
        assert_non_null(strstr(error.text, "(?:a+?)"));
    kvr_search_release(&search);
    kvr_pattern_release(pattern);
}

/* Options alone are a group of all that follows them in the group around them, as Oniguruma reads
 * them. What it matches was compared with tokenizers 0.23.3. */
static void options_alone_take_the_alternatives_behind_them(void **state)
{
    static const char *const cases[][2] = {
        {"a(?i)b|c", "a(?i:b|c)"},
        {"(?:a(?i)b|c)d|e", "(?:a(?i:b|c))d|e"},
        {"a(?i)b(?-i)c|d", "a(?i:b(?-i:c|d))"},
        {"^(?m)a|.", "^(?s:a|.)"},
        {"a|b(?i-m)c|(d)", "a|b(?i-s:c|(d))"},
        {"(?=a(?i)b|c)+", "(?=a(?i:b|c))+"},
        {"a(?x) b # [ ( \n | c+ +", "a(?:b|(?:c+)+)"},
        {"(?x: a [ b] )\\ c (?-x: d) # (", "(?:a[\\x{20}\\x{62}])\\x{20}c (?-: d) # ("},
        /* where an alternative starts, it is the same as it stands */
        {"(?i)a|b", "(?i)a|b"},
        {"(?i)(?m)a|b", "(?i)(?s)a|b"},
        {"a|(?i)b|c", "a|(?i)b|c"},
        {"(?<=(?i)a|b)(c)|(?:(?i)d|e)", "(?<=(?i)a|b)(c)|(?:(?i)d|e)"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_buffer out = {0};
        assert_int_equal(kvr_pattern_rewrite(cases[i][0], strlen(cases[i][0]), &out, NULL), KVR_OK);
        assert_string_equal(kvr_buffer_text(&out), cases[i][1]);
        kvr_buffer_release(&out);
    }
}

/* What Oniguruma reads and cannot be run here is not supported; what nobody reads is damaged. */
static void a_pattern_that_cannot_be_run_is_named(void **state)
{
    static const struct {
        const char *pattern, *text;
        enum kvr_status status;
    } cases[] = {
        {"(?:ab){40000}|a",
            "the split pattern '(?:ab){40000}|a' is not supported: ", KVR_UNSUPPORTED},
        {"a{70000}", "the split pattern 'a{70000}' is not supported: ", KVR_UNSUPPORTED},
        {"(?<=a+)b", "the split pattern '(?<=a+)b' is not supported: ", KVR_UNSUPPORTED},
        {"a|(?~b)", "the group '(?~' of a split pattern is not supported", KVR_UNSUPPORTED},
        {"a(", "a split pattern: ", KVR_BAD_INPUT},
        {"a|*", "a split pattern: ", KVR_BAD_INPUT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *shown = cases[i].pattern;
        struct kvr_pattern *pattern;
        struct kvr_error error;
        assert_int_equal(
            kvr_pattern_compile(&pattern, shown, strlen(shown), &error), cases[i].status);
        error.text[strlen(cases[i].text)] = '\0'; /* without PCRE2's words */
        assert_string_equal(error.text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_patterns_match_as_pcre2_matches),
        cmocka_unit_test(patterns_of_models_match_as_pcre2_matches),
        cmocka_unit_test(case_is_pcre2_s),
        cmocka_unit_test(a_pattern_may_be_too_large_for_pcre2),
        cmocka_unit_test(steps_grow_with_the_text),
        cmocka_unit_test(a_pattern_that_takes_too_many_steps_is_named),
        cmocka_unit_test(options_alone_take_the_alternatives_behind_them),
        cmocka_unit_test(a_pattern_that_cannot_be_run_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
