#include "line/json_unescape.h"
#include "line/line.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct kvr_structure *structure;

static enum kvr_status check_length(const char *text, size_t length, struct kvr_value *value)
{
    struct kvr_error error;

    return kvr_json_check(structure, text, length, value, NULL, &error);
}

static struct kvr_value parsed(const char *text)
{
    struct kvr_value value;

    assert_int_equal(check_length(text, strlen(text), &value), KVR_OK);
    return value;
}

static void accepts_what_rfc_8259_accepts(void **state)
{
    static const char *const texts[] = {"{}", "[]", " { } ", "[ ]", "0", "-0", "-1.5e+10", "1E5",
        "\"\"", "true", "false", "null", "[1]", "[1,2]", "[1 , 2]", "[[[]]]",
        "{\"a\":{\"b\":[1,{}]}}", "{\"a\":1,\"a\":2}", "\"\\u0000\\ud83d\\ude00\\ud800\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\t[1,\r\n2]\n", "\"\xf0\x9f\x98\x80\"", "\"\x7f\"",
        "12345678901234567890123456789", "[1.0,true,null,\"x\",{}]", "{\"\":0}", "\"a,b]c}\""};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct kvr_value value;
        if (check_length(texts[i], strlen(texts[i]), &value) != KVR_OK)
            fail_msg("refused: %s", texts[i]);
    }
}

static void refuses_everything_else(void **state)
{
    static const char *const texts[] = {"", " ", "{", "}", "[", "]", "[1,]", "[,1]", "[1 2]",
        "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{,}", "{a:1}", "{'a':1}", "{1:2}", "01", "-", "+1",
        ".5", "1.", "1e", "1e+", "0x10", "1 2", "[1]]", "{}{}", "tru", "True", "nul", "nulll",
        "NaN", "Infinity", "\"", "\"\\x\"", "\"\\u12g4\"", "\"\\u123\"", "\"a\"b", "\"a\" \"b\"",
        "[\"a\"1]", "[12\"a\"]", "\"\x01\"", "\"\n\"", "\"\xff\"", "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"", "[1}", "{\"a\":1]", "[1,2,3,,4]", "[1,02]", "[0,00.5]", "[-]", "[1,2",
        "{\"a\":[1,2}", "[1:2]", "{\"a\",1}", "[\"a\":1]", "\\", "[1,\\n2]", "/* */ 1", "[1]x",
        "truefalse", "1,2"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct kvr_value value;
        if (check_length(texts[i], strlen(texts[i]), &value) == KVR_OK)
            fail_msg("accepted: %s", texts[i]);
    }
    struct kvr_value value;
    assert_int_equal(check_length("[1]\0", 4, &value), KVR_BAD_INPUT);
    assert_int_equal(check_length("[\0]", 3, &value), KVR_BAD_INPUT);
    assert_int_equal(check_length("\"\0\"", 3, &value), KVR_BAD_INPUT);
}

static void depth_is_bounded(void **state)
{
    char text[2 * KVR_JSON_DEPTH + 8];
    struct kvr_value value;

    (void)state;
    memset(text, '[', KVR_JSON_DEPTH);
    memset(text + KVR_JSON_DEPTH, ']', KVR_JSON_DEPTH);
    assert_int_equal(check_length(text, 2 * KVR_JSON_DEPTH, &value), KVR_OK);
    memset(text, '[', KVR_JSON_DEPTH + 1);
    memset(text + KVR_JSON_DEPTH + 1, ']', KVR_JSON_DEPTH + 1);
    assert_int_equal(check_length(text, 2 * KVR_JSON_DEPTH + 2, &value), KVR_BAD_INPUT);
}

static void integers_are_exact_to_64_bits(void **state)
{
    static const struct {
        const char *text;
        bool is_u64, is_i64;
        uint64_t u64;
        int64_t i64;
    } rows[] = {
        {"0", true, true, 0, 0},
        {"-0", true, true, 0, 0},
        {"18446744073709551615", true, false, UINT64_MAX, 0},
        {"18446744073709551616", false, false, 0, 0},
        {"9223372036854775807", true, true, INT64_MAX, INT64_MAX},
        {"-9223372036854775808", false, true, 0, INT64_MIN},
        {"-9223372036854775809", false, false, 0, 0},
        {"9007199254740993", true, true, 9007199254740993, 9007199254740993},
        {"1e3", true, true, 1000, 1000},
        {"2.0", true, true, 2, 2},
        {"1.5e1", true, true, 15, 15},
        {"100e-2", true, true, 1, 1},
        {"1.5", false, false, 0, 0},
        {"1e-1", false, false, 0, 0},
        {"1e400", false, false, 0, 0},
        {"0e999999999999", true, true, 0, 0},
        {"100000000000000000000000e-4", true, false, 10000000000000000000u, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kvr_value value = parsed(rows[i].text);
        uint64_t u64 = 0;
        int64_t i64 = 0;
        if (kvr_value_u64(value, &u64) != rows[i].is_u64 || (rows[i].is_u64 && u64 != rows[i].u64))
            fail_msg("u64 of %s", rows[i].text);
        if (kvr_value_i64(value, &i64) != rows[i].is_i64 || (rows[i].is_i64 && i64 != rows[i].i64))
            fail_msg("i64 of %s", rows[i].text);
    }
    uint64_t number;
    assert_false(kvr_value_u64(parsed("\"1\""), &number));
    assert_false(kvr_value_u64(parsed("true"), &number));
}

static void arrays_of_integers(void **state)
{
    uint64_t numbers[32];

    (void)state;
    struct kvr_value value = parsed("[1,2 , 3,\t18446744073709551615,1e2 ]");
    assert_int_equal(kvr_value_u64s(value, numbers), 5);
    assert_true(numbers[3] == UINT64_MAX);
    assert_int_equal(numbers[4], 100);
    assert_int_equal(kvr_value_u64s(parsed("[]"), numbers), 0);
    assert_int_equal(kvr_value_u64s(parsed("[ ]"), numbers), 0);
    assert_int_equal(kvr_value_u64s(parsed("[1,-1]"), numbers), -1);
    assert_int_equal(kvr_value_u64s(parsed("[1,\"2\"]"), numbers), -1);
    assert_int_equal(kvr_value_u64s(parsed("[1,[2]]"), numbers), -1);
    assert_int_equal(kvr_value_u64s(parsed("[18446744073709551616]"), numbers), -1);
    assert_int_equal(kvr_value_u64s(parsed("{\"a\":1}"), numbers), -1);
}

static void strings_are_decoded(void **state)
{
    struct kvr_buffer out = {0};

    (void)state;
    assert_true(
        kvr_value_string(parsed("\"a\\n\\u00e9\\ud83d\\ude00\\ud800x\\udc00\\\\\\/\""), &out));
    assert_string_equal(
        kvr_buffer_text(&out), "a\n\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbdx\xef\xbf\xbd\\/");
    kvr_buffer_release(&out);
    assert_true(kvr_value_is(parsed("\"h\\u0061sh\""), "hash"));
    assert_false(kvr_value_is(parsed("\"hash\""), "has"));
    assert_false(kvr_value_is(parsed("\"has\""), "hash"));
    assert_false(kvr_value_is(parsed("\"has\\u0000\""), "has"));
}

/* A string of plain runs and escapes in `raw`, what it says in `meant`; false where an escape in it
 * is none. Written without any of what checks and decodes strings. */
static bool random_string(unsigned *seed, char *raw, size_t *raw_length, char *meant, size_t *size)
{
    static const struct {
        const char *escape, *meaning;
    } escapes[] = {{"\\n", "\n"}, {"\\n", "\n"}, {"\\\"", "\""}, {"\\\\", "\\"}, {"\\\\", "\\"},
        {"\\t", "\t"}, {"\\/", "/"}, {"\\b", "\b"}, {"\\f", "\f"}, {"\\r", "\r"}, {"\\u0041", "A"},
        {"\\u00e9", "\xc3\xa9"}, {"\\u20AC", "\xe2\x82\xac"},
        {"\\ud83d\\ude00", "\xf0\x9f\x98\x80"}, {"\\uD800", "\xef\xbf\xbd"}, {"\\x", NULL},
        {"\\u00g0", NULL}, {"\\u12\\n", NULL}};
    enum { GOOD = 15, ALL = sizeof escapes / sizeof *escapes };
    char *to = raw, *out = meant;
    bool good = true, dense = rand_r(seed) % 4 == 0;

    *to++ = '"';
    for (int parts = rand_r(seed) % 12; parts > 0; parts--) {
        for (int run = dense ? 0 : rand_r(seed) % 80; run > 0; run--)
            *to++ = *out++ = "nutx/b 0"[rand_r(seed) % 8];
        for (int count = rand_r(seed) % (dense ? 40 : 3); count > 0; count--) {
            int which = rand_r(seed) % (rand_r(seed) % 50 ? GOOD : ALL);
            to = stpcpy(to, escapes[which].escape);
            if (escapes[which].meaning)
                out = stpcpy(out, escapes[which].meaning);
            else
                good = false;
        }
    }
    *to++ = '"';
    *raw_length = (size_t)(to - raw);
    *size = (size_t)(out - meant);
    return good;
}

static void escapes_at_every_place_are_checked_and_decoded(void **state)
{
    enum { MOST = 8192 };
    struct kvr_buffer text = {0};
    char *meant = malloc(MOST), *plain = malloc(MOST + KVR_UNESCAPE_BYTES);
    unsigned seed = 20261129;
    int bad = 0;

    (void)state;
    assert_non_null(meant);
    assert_non_null(plain);
    for (int i = 0; i < 30000; i++) {
        char *raw = malloc(MOST); /* as long as the string at last, so that checkers see its end */
        size_t length, size;
        struct kvr_value value;
        assert_non_null(raw);
        bool good = random_string(&seed, raw, &length, meant, &size);
        assert_true(length < MOST);
        raw = realloc(raw, length);
        assert_non_null(raw);
        assert_int_equal(check_length(raw, length, &value), good ? KVR_OK : KVR_BAD_INPUT);
        bad += !good;
        kvr_buffer_clear(&text);
        kvr_buffer_append_text(&text, "kept");
        if (good) {
            assert_true(kvr_value_string(value, &text));
            assert_int_equal(text.length, size + 4);
            assert_memory_equal(text.data, "kept", 4);
            assert_memory_equal(text.data + 4, meant, size);
            memset(plain, 0, MOST);
            char *end = kvr_unescape_plain(raw + 1, raw + length - 1, plain);
            assert_int_equal(end - plain, size);
            assert_memory_equal(plain, meant, size);
        }
        free(raw);
    }
    assert_in_range(bad, 100, 15000);
    kvr_buffer_release(&text);
    free(meant);
    free(plain);
}

static void strings_are_written_so_that_they_read_back(void **state)
{
    struct kvr_buffer out = {0};
    static const char text[] = "q\"b\\n\n\x01\x1f\x7f\xc3\xa9\xff.\xc3";

    (void)state;
    kvr_json_write_string(&out, text, sizeof text - 1);
    assert_string_equal(kvr_buffer_text(&out),
        "\"q\\\"b\\\\n\\n\\u0001\\u001f\x7f\xc3\xa9\xef\xbf\xbd.\xef\xbf\xbd\"");
    parsed(out.data);
    kvr_buffer_release(&out);
}

/* Pieces whose written form is known, in texts that end anywhere. */
static void texts_of_any_length_are_written_exactly(void **state)
{
    static const struct {
        const char *text, *written;
    } pieces[] = {{"plain text of some length", "plain text of some length"}, {"a", "a"},
        {"\x7f", "\x7f"}, {"\"", "\\\""}, {"\\", "\\\\"}, {"\n", "\\n"}, {"\t", "\\t"},
        {"\r", "\\r"}, {"\b", "\\b"}, {"\f", "\\f"}, {"\x01", "\\u0001"}, {"\x1f", "\\u001f"},
        {"\xc3\xa9", "\xc3\xa9"}, {"\xe4\xb8\xad\xe6\x96\x87", "\xe4\xb8\xad\xe6\x96\x87"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"}, {"\xff", "\xef\xbf\xbd"}};
    struct kvr_buffer text = {0}, wanted = {0}, out = {0};
    unsigned seed = 5;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        size_t count = (size_t)rand_r(&seed) % (round % 100 ? 30 : 3000);
        size_t kinds = round % 3 ? sizeof pieces / sizeof *pieces : 2;
        kvr_buffer_clear(&text);
        kvr_buffer_clear(&wanted);
        kvr_buffer_clear(&out);
        kvr_buffer_append_byte(&wanted, '"');
        for (size_t i = 0; i < count; i++) {
            size_t which = (size_t)rand_r(&seed) % kinds;
            kvr_buffer_append_text(&text, pieces[which].text);
            kvr_buffer_append_text(&wanted, pieces[which].written);
        }
        kvr_buffer_append_byte(&wanted, '"');
        char *exact = malloc(text.length + 1); /* so that checkers see its end */
        assert_non_null(exact);
        if (text.length)
            memcpy(exact, text.data, text.length);
        exact = realloc(exact, text.length ? text.length : 1);
        kvr_json_write_string(&out, exact, text.length);
        assert_int_equal(out.length, wanted.length);
        assert_memory_equal(out.data, wanted.data, wanted.length);
        free(exact);
    }
    kvr_buffer_release(&text);
    kvr_buffer_release(&wanted);
    kvr_buffer_release(&out);
}

/* As many U+FFFD as bytes.decode(errors="replace") of Python 3.11 has. */
static void broken_text_is_replaced_as_elsewhere(void **state)
{
    static const struct {
        const char *text, *wanted;
    } rows[] = {{"\xec\xb1.", "?."}, {"\xec\xb1", "?"}, {"\xe0\x80.", "??."},
        {"\xed\xa0\x80", "???"}, {"\xf0\x90\x80.", "?."}, {"\xf4\x90\x80\x80", "????"},
        {"\xf1\x80\x80", "?"}, {"\xc2", "?"}, {"\xc0\xaf", "??"}, {"\xf0\x8f\x80", "???"},
        {"\xe4\xb8\xe4\xb8\xad", "?\xe4\xb8\xad"}, {"\xf0\x9f\xf0\x9f\x98", "??"},
        {"\x80\xbf", "??"}, {"\xff\xc3\xa9", "?\xc3\xa9"}};
    struct kvr_buffer out = {0}, wanted = {0};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kvr_buffer_clear(&out);
        kvr_buffer_clear(&wanted);
        kvr_buffer_append_byte(&wanted, '"');
        for (const char *at = rows[i].wanted; *at; at++)
            kvr_buffer_append(&wanted, *at == '?' ? "\xef\xbf\xbd" : at, *at == '?' ? 3 : 1);
        kvr_buffer_append_byte(&wanted, '"');
        kvr_json_write_string(&out, rows[i].text, strlen(rows[i].text));
        assert_string_equal(kvr_buffer_text(&out), kvr_buffer_text(&wanted));
    }
    kvr_buffer_release(&out);
    kvr_buffer_release(&wanted);
}

static void doubles_are_written_shortest(void **state)
{
    static const struct {
        double number;
        const char *text;
    } rows[] = {{0, "0"}, {-0.0, "0"}, {1, "1"}, {0.1, "0.1"}, {1.0 / 3, "0.3333333333333333"},
        {1e300, "1e+300"}, {123456789012, "123456789012"}, {5e-324, "4.94065645841247e-324"},
        {-2.5, "-2.5"}, {INFINITY, "null"}};
    struct kvr_buffer out = {0};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kvr_buffer_clear(&out);
        kvr_json_write_double(&out, rows[i].number);
        assert_string_equal(kvr_buffer_text(&out), rows[i].text);
    }
    kvr_buffer_clear(&out);
    kvr_json_write_fixed(&out, 12.3456, 3);
    kvr_buffer_append_byte(&out, ' ');
    kvr_json_write_fixed(&out, -0.0001, 3);
    kvr_buffer_append_byte(&out, ' ');
    kvr_json_write_fixed(&out, -7.05, 3);
    kvr_buffer_append_byte(&out, ' ');
    kvr_json_write_fixed(&out, 41, 3);
    assert_string_equal(kvr_buffer_text(&out), "12.346 0 -7.05 41");
    kvr_buffer_release(&out);
}

static void nested_access(void **state)
{
    struct kvr_value value = parsed("{\"a\":[1,{\"b\":\"x]}\"}],\"a\" : {\"c\": [true, null]} }");
    struct kvr_value a = kvr_value_get(value, "a");

    (void)state;
    assert_int_equal(a.type, KVR_OBJECT); /* the last of two wins */
    struct kvr_value c = kvr_value_get(a, "c");
    struct kvr_cursor cursor = kvr_value_open(c);
    struct kvr_value element;
    assert_true(kvr_next_element(&cursor, &element));
    assert_int_equal(element.type, KVR_TRUE);
    assert_true(kvr_next_element(&cursor, &element));
    assert_int_equal(element.type, KVR_NULL);
    assert_false(kvr_next_element(&cursor, &element));
    assert_int_equal(kvr_value_get(value, "b").type, KVR_ABSENT);
    assert_int_equal(kvr_value_get(c, "b").type, KVR_ABSENT);
}

static struct kvr_line line;

static const char *spliced(const char *text, struct kvr_buffer *out)
{
    static const enum kvr_name dropped[] = {KVR_NAME_MATCH};
    struct kvr_source_line source = {
        .text = text, .length = strlen(text), .file = "x", .number = 1};
    struct kvr_error error;

    assert_int_equal(kvr_line_parse(&line, &source, &error), KVR_OK);
    kvr_buffer_clear(out);
    kvr_line_begin(&line, out, dropped, 1);
    kvr_line_add(out, "match");
    kvr_buffer_append_text(out, "7");
    kvr_line_end(out);
    return kvr_buffer_text(out);
}

static void members_are_spliced_in_at_the_end(void **state)
{
    struct kvr_buffer out = {0};
    struct kvr_error error;

    (void)state;
    assert_int_equal(kvr_line_init(&line, &error), KVR_OK);
    assert_string_equal(spliced("{}", &out), "{\"match\":7}");
    assert_string_equal(spliced(" { } ", &out), "{\"match\":7}");
    assert_string_equal(spliced("{\"a\": 1.50 }", &out), "{\"a\": 1.50,\"match\":7}");
    assert_string_equal(spliced("{\"match\":{\"w0\":3}}", &out), "{\"match\":7}");
    assert_string_equal(
        spliced("{\"a\":1,\"match\":{},\"b\":[2, 3]}", &out), "{\"a\":1,\"b\":[2, 3],\"match\":7}");
    assert_string_equal(
        spliced("{\"match\":1,\"m\\u0061tch\":2,\"z\":\"}\"}", &out), "{\"z\":\"}\",\"match\":7}");
    assert_string_equal(spliced("{\"n\":9007199254740993,\"n\":1E+2}", &out),
        "{\"n\":9007199254740993,\"n\":1E+2,\"match\":7}");
    kvr_line_release(&line);
    kvr_buffer_release(&out);
}

static void names_are_found_by_number(void **state)
{
    static const char text[] =
        "{\"hash_ids\":[1],\"xhash_ids\":2,\"hash\\u005fids\":[3],\"event\":\"done\"}";
    struct kvr_source_line source = {.text = text, .length = strlen(text)};
    struct kvr_error error;

    (void)state;
    assert_int_equal(kvr_line_init(&line, &error), KVR_OK);
    assert_int_equal(kvr_line_parse(&line, &source, &error), KVR_OK);
    struct kvr_value value = kvr_line_get(&line, KVR_NAME_HASH_IDS);
    assert_int_equal(value.length, 3);
    assert_memory_equal(value.text, "[3]", 3);
    assert_true(kvr_line_is_event(&line));
    assert_int_equal(kvr_line_get(&line, KVR_NAME_ROUTE).type, KVR_ABSENT);
    for (unsigned i = 0; i < KVR_NAME_COUNT; i++) {
        char one[64];
        int length = snprintf(one, sizeof one, "{\"%s\":1}", kvr_name_text((enum kvr_name)i));
        source = (struct kvr_source_line){.text = one, .length = (size_t)length};
        assert_int_equal(kvr_line_parse(&line, &source, &error), KVR_OK);
        assert_int_equal(kvr_line_get(&line, (enum kvr_name)i).type, KVR_NUMBER);
    }
    kvr_line_release(&line);
}

static void random_texts_never_disagree_with_themselves(void **state)
{
    static const char alphabet[] = "{}[]:,\"\\ 0123.eE-tfnu\xc3\xa9";
    char text[40];
    unsigned seed = 7;

    (void)state;
    for (int round = 0; round < 200000; round++) {
        size_t length = (size_t)rand_r(&seed) % sizeof text;
        struct kvr_value value;
        for (size_t i = 0; i < length; i++)
            text[i] = alphabet[(size_t)rand_r(&seed) % (sizeof alphabet - 1)];
        if (check_length(text, length, &value) != KVR_OK)
            continue;
        char copy[sizeof text];
        memcpy(copy, value.text, value.length);
        struct kvr_value again;
        assert_int_equal(check_length(copy, value.length, &again), KVR_OK);
        assert_int_equal(again.length, value.length);
        assert_int_equal(again.type, value.type);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_what_rfc_8259_accepts),
        cmocka_unit_test(refuses_everything_else),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(integers_are_exact_to_64_bits),
        cmocka_unit_test(arrays_of_integers),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(escapes_at_every_place_are_checked_and_decoded),
        cmocka_unit_test(strings_are_written_so_that_they_read_back),
        cmocka_unit_test(texts_of_any_length_are_written_exactly),
        cmocka_unit_test(broken_text_is_replaced_as_elsewhere),
        cmocka_unit_test(doubles_are_written_shortest),
        cmocka_unit_test(nested_access),
        cmocka_unit_test(members_are_spliced_in_at_the_end),
        cmocka_unit_test(names_are_found_by_number),
        cmocka_unit_test(random_texts_never_disagree_with_themselves),
    };
    structure = kvr_structure_create();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kvr_structure_destroy(structure);
    return failed;
}
