/* Walks by positions give what json.h's cursors give, on random JSON. */
#include "base/random.h"
#include "line/json_walk.h"
#include "tests/unit/unit.h"

#include <string.h>

static void space(struct kvr_buffer *out, struct kvr_random *random)
{
    while (kvr_random_below(random, 3) == 0)
        kvr_buffer_append_byte(out, " \n\t\r"[kvr_random_below(random, 4)]);
}

static void write_value(struct kvr_buffer *out, struct kvr_random *random, unsigned depth)
{
    static const char *const scalars[] = {"null", "true", "false", "0", "-1.5e3", "17", "\"\"",
        "\"a, b\"", "\"]}\"", "\"\\\"[\"", "\"\\\\\"", "\"\u4e16 \""};
    bool object = kvr_random_below(random, 2);
    uint32_t count = kvr_random_below(random, 5);

    if (!depth || kvr_random_below(random, 3) == 0) {
        kvr_buffer_append_text(
            out, scalars[kvr_random_below(random, sizeof scalars / sizeof *scalars)]);
        return;
    }
    kvr_buffer_append_byte(out, object ? '{' : '[');
    for (uint32_t i = 0; i < count; i++) {
        space(out, random);
        if (object) {
            kvr_buffer_append_text(out, i % 2 ? "\"name\"" : "\"{\\\"\"");
            space(out, random);
            kvr_buffer_append_byte(out, ':');
            space(out, random);
        }
        write_value(out, random, depth - 1);
        space(out, random);
        if (i + 1 < count)
            kvr_buffer_append_byte(out, ',');
    }
    space(out, random);
    kvr_buffer_append_byte(out, object ? '}' : ']');
}

static void same(struct kvr_value a, struct kvr_value b)
{
    assert_ptr_equal(a.text, b.text);
    assert_int_equal(a.length, b.length);
    assert_int_equal(a.type, b.type);
}

/* Returns how many values there are. */
static size_t compare(struct kvr_value container, struct kvr_json_walk walk)
{
    struct kvr_cursor cursor = kvr_value_open(container);
    struct kvr_member wanted, member;
    bool object = container.type == KVR_OBJECT;
    size_t count = 1;

    if (container.type != KVR_OBJECT && container.type != KVR_ARRAY) {
        assert_false(kvr_json_walk_element(&walk, &member.value));
        assert_false(kvr_json_walk_member(&walk, &member));
        return 1;
    }
    for (;;) {
        bool more =
            object ? kvr_next_member(&cursor, &wanted) : kvr_next_element(&cursor, &wanted.value);
        assert_int_equal(more, object ? kvr_json_walk_member(&walk, &member)
                                      : kvr_json_walk_element(&walk, &member.value));
        if (!more)
            return count;
        if (object)
            same(wanted.name, member.name);
        same(wanted.value, member.value);
        count += compare(wanted.value, kvr_json_walk_into(&walk));
    }
}

static void walks_give_what_cursors_give(void **state)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_random random = {.state = 5};
    struct kvr_buffer text = {0};
    size_t count = 0;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct kvr_value value;
        kvr_buffer_clear(&text);
        space(&text, &random);
        write_value(&text, &random, 5);
        space(&text, &random);
        assert_int_equal(
            kvr_json_check(structure, text.data, text.length, &value, NULL, NULL), KVR_OK);
        count += compare(value, kvr_json_walk_open(structure, text.data, value));
    }
    assert_true(count > 10000);
    kvr_buffer_release(&text);
    kvr_structure_destroy(structure);
}

static void a_walk_opens_anywhere(void **state)
{
    static const char text[] = "{\"a\": [1, [2, 3]], \"b\": {\"c\": [4]}, \"d\": 5}";
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_value value, inner, element;

    (void)state;
    assert_int_equal(kvr_json_check(structure, text, sizeof text - 1, &value, NULL, NULL), KVR_OK);
    inner = kvr_value_get(kvr_value_get(value, "b"), "c");
    struct kvr_json_walk walk = kvr_json_walk_open(structure, text, inner);
    assert_true(kvr_json_walk_element(&walk, &element));
    assert_memory_equal(element.text, "4", 1);
    assert_false(kvr_json_walk_element(&walk, &element));
    walk = kvr_json_walk_open(structure, text, kvr_value_get(value, "missing"));
    assert_false(kvr_json_walk_element(&walk, &element));
    kvr_structure_destroy(structure);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walks_give_what_cursors_give),
        cmocka_unit_test(a_walk_opens_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
