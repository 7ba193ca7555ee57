#include "base/buffer.h"
#include "base/digits.h"
#include "tests/unit/unit.h"

#include <stdio.h>

static void appends_grow_and_keep_what_was_there(void **state)
{
    struct kvr_buffer buffer = {0};

    (void)state;
    for (int i = 0; i < 1000; i++) {
        kvr_buffer_append_u64(&buffer, (uint64_t)i);
        kvr_buffer_append_byte(&buffer, ' ');
    }
    assert_false(buffer.failed);
    assert_memory_equal(buffer.data, "0 1 2 3 ", 8);
    assert_string_equal(kvr_buffer_text(&buffer) + buffer.length - 8, "998 999 ");
    kvr_buffer_release(&buffer);
}

static void u64_limits_are_written_exactly(void **state)
{
    struct kvr_buffer buffer = {0};

    (void)state;
    kvr_buffer_append_u64(&buffer, 0);
    kvr_buffer_append_byte(&buffer, ',');
    kvr_buffer_append_u64(&buffer, UINT64_MAX);
    assert_string_equal(kvr_buffer_text(&buffer), "0,18446744073709551615");
    for (uint64_t power = 1; power; power = power > UINT64_MAX / 10 ? 0 : power * 10) {
        const uint64_t around[] = {power - 1, power, power + 1, power * 7 + power / 3};
        for (size_t i = 0; i < 4; i++) {
            char expected[32];
            snprintf(expected, sizeof expected, "%llu", (unsigned long long)around[i]);
            kvr_buffer_clear(&buffer);
            kvr_buffer_append_u64(&buffer, around[i]);
            assert_string_equal(kvr_buffer_text(&buffer), expected);
        }
    }
    kvr_buffer_release(&buffer);
}

static void lists_are_written_as_single_numbers(void **state)
{
    struct kvr_buffer list = {0}, single = {0};
    uint32_t numbers[3000];
    uint64_t wide[600];
    size_t count = 0;

    (void)state;
    for (uint64_t power = 1; power <= UINT32_MAX; power *= 10)
        for (uint64_t i = 0; i < 100; i++)
            for (uint64_t number = power * (i + 1) - i % 3, k = 0; k < 2; k++, number += power / 3)
                if (number <= UINT32_MAX && count < 3000)
                    numbers[count++] = (uint32_t)number;
    assert_in_range(count, 1500, 3000);
    kvr_buffer_append_u32s(&list, numbers, 0);
    assert_int_equal(list.length, 0);
    kvr_buffer_append_u32s(&list, numbers, count);
    for (size_t i = 0; i < count; i++)
        kvr_buffer_append_format(&single, i ? ",%u" : "%u", (unsigned)numbers[i]);
    assert_string_equal(kvr_buffer_text(&list), kvr_buffer_text(&single));
    kvr_buffer_clear(&list);
    kvr_buffer_clear(&single);
    for (size_t i = 0; i < 600; i++) { /* of every length up to 20 digits */
        wide[i] = (UINT64_MAX - i * 977) >> (i * 7 % 64);
        kvr_buffer_append_format(&single, i ? ",%llu" : "%llu", (unsigned long long)wide[i]);
    }
    kvr_buffer_append_u64s(&list, wide, 0);
    assert_int_equal(list.length, 0);
    kvr_buffer_append_u64s(&list, wide, 600);
    assert_string_equal(kvr_buffer_text(&list), kvr_buffer_text(&single));
    for (uint32_t i = 0; i < 10000; i++) { /* every half of eight digits, and of six */
        uint32_t some[3] = {i, i * 10000 + (9999 - i), i * 100 + (i * 7 + i / 100) % 100};
        char expected[48];
        snprintf(expected, sizeof expected, "%u,%u,%u", some[0], some[1], some[2]);
        kvr_buffer_clear(&list);
        kvr_buffer_append_u32s(&list, some, 3);
        assert_string_equal(kvr_buffer_text(&list), expected);
    }
    kvr_buffer_release(&list);
    kvr_buffer_release(&single);
}

static void eight_at_a_time_or_one_lists_are_the_same(void **state)
{
    enum { COUNT = 4096 };
    static char one[COUNT * KVR_NUMBER_BYTES + KVR_LIST_BYTES], eight[sizeof one];
    static uint32_t numbers[COUNT];
    uint64_t chance = 7;

    (void)state;
    for (int most = 0; most < 40;
         most++) { /* shorter and longer ones mixed, in lists of any length */
        size_t count = COUNT - (size_t)(most * 13 % 17);
        for (size_t i = 0; i < count; i++) {
            chance = chance * 6364136223846793005U + 1442695040888963407U;
            uint32_t limit = most < 30 ? 1000000 : UINT32_MAX;
            numbers[i] = (uint32_t)(chance >> 32) % limit >> chance % 20;
        }
        char *end = kvr_put_u32s(eight, numbers, count);
        char *expected = kvr_put_u32s_plain(one, numbers, count);
        assert_int_equal(end - eight, expected - one);
        assert_memory_equal(eight, one, (size_t)(end - eight));
    }
    for (uint32_t first = 0; first < 1000000;
         first += COUNT) { /* each number that has six digits */
        for (uint32_t i = 0; i < COUNT; i++)
            numbers[i] = first + i;
        char *end = kvr_put_u32s(eight, numbers, COUNT);
        char *expected = kvr_put_u32s_plain(one, numbers, COUNT);
        assert_int_equal(end - eight, expected - one);
        assert_memory_equal(eight, one, (size_t)(end - eight));
    }
}

static void a_failed_append_is_remembered_and_changes_nothing(void **state)
{
    struct kvr_buffer buffer = {0};

    (void)state;
    kvr_buffer_append_text(&buffer, "kept");
    assert_false(kvr_buffer_reserve(&buffer, SIZE_MAX - 2));
    assert_true(buffer.failed);
    assert_int_equal(buffer.length, 4);
    assert_null(kvr_buffer_text(&buffer));
    kvr_buffer_clear(&buffer);
    kvr_buffer_append_format(&buffer, "%s-%d", "again", 7);
    assert_string_equal(kvr_buffer_text(&buffer), "again-7");
    kvr_buffer_release(&buffer);
}

static void control_bytes_never_reach_a_terminal(void **state)
{
    char out[32];

    (void)state;
    assert_string_equal(kvr_printable(out, sizeof out, "a\x1b[2J\n", 6), "a\\x1b[2J\\x0a");
    assert_string_equal(kvr_printable(out, 4, "\x01", 1), "");
    assert_string_equal(kvr_printable(out, 5, "\x01z", 2), "\\x01");
    /* CSI as one character of two bytes, a turn of direction, and bytes that are no UTF-8. */
    assert_string_equal(kvr_printable(out, sizeof out, "\xc2\x9b", 2), "\\xc2\\x9b");
    assert_string_equal(kvr_printable(out, sizeof out, "\xe2\x80\xae", 3), "\\xe2\\x80\\xae");
    assert_string_equal(
        kvr_printable(out, sizeof out, "\x9b\xe9z\xe2\x82", 5), "\\x9b\\xe9z\\xe2\\x82");
    /* Whole characters, or none. */
    assert_string_equal(
        kvr_printable(out, sizeof out, "\xc3\xa9\xe2\x82\xac", 5), "\xc3\xa9\xe2\x82\xac");
    assert_string_equal(kvr_printable(out, 5, "\xc3\xa9\xe2\x82\xac", 5), "\xc3\xa9");
}

static void errors_carry_context_and_exit_status(void **state)
{
    struct kvr_error error;

    (void)state;
    assert_int_equal(
        kvr_error_set(&error, KVR_BAD_INPUT, "member '%s' is missing", "id"), KVR_BAD_INPUT);
    kvr_error_prefix(&error, "%s:%d", "trace", 3);
    assert_string_equal(error.text, "trace:3: member 'id' is missing");
    assert_int_equal(kvr_status_exit(error.status), 1);
    assert_int_equal(kvr_status_exit(KVR_BAD_USAGE), 2);
    assert_int_equal(kvr_status_exit(KVR_IO), 3);
    assert_int_equal(kvr_error_set(NULL, KVR_IO, "no place for text"), KVR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_grow_and_keep_what_was_there),
        cmocka_unit_test(u64_limits_are_written_exactly),
        cmocka_unit_test(lists_are_written_as_single_numbers),
        cmocka_unit_test(eight_at_a_time_or_one_lists_are_the_same),
        cmocka_unit_test(a_failed_append_is_remembered_and_changes_nothing),
        cmocka_unit_test(control_bytes_never_reach_a_terminal),
        cmocka_unit_test(errors_carry_context_and_exit_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
