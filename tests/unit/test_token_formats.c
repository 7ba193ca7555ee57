/*
 * Small tokenizer.json files of every kind (tests/data/token/make_cases.py) and what the reference
 * made of texts with them: ids in three variants, and the text decoded.
 */
#include "line/json.h"
#include "tests/unit/unit.h"
#include "token/file.h"
#include "token/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static bool same_ids(struct kvr_value expected, const struct kvr_ids *ids)
{
    uint64_t numbers[4096];

    assert_true(kvr_value_u64s_room(expected) < 4096);
    if (kvr_value_u64s(expected, numbers) != (ptrdiff_t)ids->count)
        return false;
    for (size_t i = 0; i < ids->count; i++)
        if (numbers[i] != ids->data[i])
            return false;
    return true;
}

static size_t check_case(const struct kvr_tokenizer *tokenizer, struct kvr_encoder *encoder,
    const char *name, struct kvr_value item)
{
    static const unsigned flags[] = {KVR_ENCODE_SPECIAL, KVR_ENCODE_SPECIAL | KVR_ENCODE_MODEL, 0};
    struct kvr_cursor cursor = kvr_value_open(item);
    struct kvr_value text, expected;
    struct kvr_buffer bytes = {0}, decoded = {0}, wanted = {0};
    struct kvr_ids ids = {0};
    struct kvr_error error;
    size_t wrong = 0;

    assert_true(kvr_next_element(&cursor, &text) && kvr_value_string(text, &bytes));
    for (int i = 0; i < 3; i++) {
        ids.count = 0;
        assert_true(kvr_next_element(&cursor, &expected));
        if (kvr_encode(encoder, bytes.data, bytes.length, flags[i], &ids, &error))
            fail_msg("%s: %s", name, error.text);
        if (!same_ids(expected, &ids)) {
            print_message("%s, variant %d: %.*s\n  wanted %.*s\n  got", name, i, (int)text.length,
                text.text, (int)expected.length, expected.text);
            for (size_t k = 0; k < ids.count; k++)
                print_message(" %u", ids.data[k]);
            print_message("\n");
            wrong++;
        }
        if (i == 0)
            assert_int_equal(
                kvr_decode(tokenizer, ids.data, ids.count, false, &decoded, &error), KVR_OK);
    }
    assert_true(kvr_next_element(&cursor, &expected) && kvr_value_string(expected, &wanted));
    /* bytes that are no text come out as they are here, as U+FFFD there */
    bool broken = memmem(wanted.data, wanted.length, "\ufffd", 3);
    if (!wrong && !broken &&
        (decoded.length != wanted.length ||
            (wanted.length && memcmp(decoded.data, wanted.data, wanted.length) != 0))) {
        print_message("%s: %.*s is decoded as '%s', not '%s'\n", name, (int)text.length, text.text,
            kvr_buffer_text(&decoded), kvr_buffer_text(&wanted));
        wrong++;
    }
    kvr_ids_release(&ids);
    kvr_buffer_release(&bytes);
    kvr_buffer_release(&decoded);
    kvr_buffer_release(&wanted);
    return wrong;
}

static size_t check_format(struct kvr_value line)
{
    struct kvr_tokenizer *tokenizer;
    struct kvr_encoder *encoder;
    struct kvr_buffer file = {0}, name = {0};
    struct kvr_error error;
    struct kvr_cursor cases = kvr_value_open(kvr_value_get(line, "cases"));
    struct kvr_value item;
    size_t wrong = 0;

    assert_true(kvr_value_string(kvr_value_get(line, "name"), &name));
    assert_true(kvr_value_string(kvr_value_get(line, "tokenizer"), &file));
    if (kvr_tokenizer_parse(&tokenizer, file.data, file.length, "x.json", &error))
        fail_msg("%s: %s", kvr_buffer_text(&name), error.text);
    assert_int_equal(kvr_encoder_new(&encoder, tokenizer, &error), KVR_OK);
    while (kvr_next_element(&cases, &item))
        wrong += check_case(tokenizer, encoder, kvr_buffer_text(&name), item);
    kvr_encoder_release(encoder);
    kvr_tokenizer_release(tokenizer);
    kvr_buffer_release(&file);
    kvr_buffer_release(&name);
    return wrong;
}

static void every_format_is_read_as_the_reference_reads_it(void **state)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_buffer lines = {0};
    struct kvr_error error;
    size_t formats = 0, wrong = 0;

    (void)state;
    if (kvr_read_file("tests/data/token/formats.ndjson.gz", &lines, &error))
        fail_msg("%s", error.text);
    for (size_t at = 0; at < lines.length;) {
        const char *line = lines.data + at;
        size_t length = (size_t)((const char *)memchr(line, '\n', lines.length - at) - line);
        struct kvr_value value;
        at += length + 1;
        assert_int_equal(kvr_json_check(structure, line, length, &value, NULL, &error), KVR_OK);
        wrong += check_format(value);
        formats++;
    }
    kvr_buffer_release(&lines);
    kvr_structure_destroy(structure);
    assert_true(formats >= 63);
    assert_int_equal(wrong, 0);
}

/* To the reference model.vocab is a map: of a name's members the last counts, and the ids of those
 * before are free for others. Checked against tokenizers 0.23.3, which gives the added token the
 * number of names, whatever has that id. */
static void the_last_member_of_a_name_counts(void **state)
{
    static const struct {
        const char *members;
        uint32_t ids[3]; /* of ab, c and the added token */
    } cases[] = {
        {"\"ab\":2,\"c\":3", {2, 3, 4}}, {"\"ab\":2,\"c\":3,\"ab\":4", {4, 3, 4}},
        {"\"ab\":4,\"c\":3,\"ab\":2", {2, 3, 4}}, {"\"ab\":2,\"ab\":2,\"c\":3", {2, 3, 4}},
        {"\"ab\":2,\"\\u0061b\":3,\"c\":2", {3, 2, 4}},
        {"\"ab\":4294967295,\"ab\":3,\"c\":2", {3, 2, 4}},
        {"\"ab\":2,\"c\":2", {0}}, /* two names of one id: refused */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_tokenizer *tokenizer;
        struct kvr_encoder *encoder;
        struct kvr_error error;
        struct kvr_buffer file = {0};
        struct kvr_ids ids = {0};
        kvr_buffer_append_format(&file,
            "{\"added_tokens\":[{\"id\":4,\"content\":\"+\"}],\"model\":{\"type\":\"BPE\","
            "\"vocab\":{\"a\":0,\"b\":1,%s},\"merges\":[\"a b\"]}}",
            cases[i].members);
        enum kvr_status status =
            kvr_tokenizer_parse(&tokenizer, file.data, file.length, "x.json", &error);
        kvr_buffer_release(&file);
        if (!cases[i].ids[0]) {
            assert_int_equal(status, KVR_BAD_INPUT);
            assert_string_equal(error.text, "two tokens have the id 2");
            continue;
        }
        if (status)
            fail_msg("%s: %s", cases[i].members, error.text);
        assert_int_equal(kvr_encoder_new(&encoder, tokenizer, &error), KVR_OK);
        assert_int_equal(kvr_encode(encoder, "abc+", 4, KVR_ENCODE_SPECIAL, &ids, &error), KVR_OK);
        assert_int_equal(ids.count, 3);
        assert_memory_equal(ids.data, cases[i].ids, sizeof cases[i].ids);
        kvr_ids_release(&ids);
        kvr_encoder_release(encoder);
        kvr_tokenizer_release(tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_is_read_as_the_reference_reads_it),
        cmocka_unit_test(the_last_member_of_a_name_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
