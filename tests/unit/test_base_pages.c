#include "base/pages.h"
#include "tests/unit/unit.h"

#include <string.h>

static void pages_grow_keep_their_content_and_start_as_zeros(void **state)
{
    struct kvr_pages pages = {0};
    size_t filled = 0;

    (void)state;
    /* Over the border where arrays move to huge pages, at 32 MiB. */
    for (size_t want = 1; want < (size_t)100 << 20; want = want * 3 + 4000) {
        unsigned char *data;
        assert_true(kvr_pages_grow(&pages, want));
        assert_true(pages.size_bytes >= want);
        assert_int_equal(pages.size_bytes, kvr_pages_round(want));
        data = pages.data;
        for (size_t i = 0; i < filled; i += 1001)
            assert_int_equal(data[i], 7);
        for (size_t i = filled; i < pages.size_bytes; i += 511)
            assert_int_equal(data[i], 0);
        memset(data, 7, pages.size_bytes);
        filled = pages.size_bytes;
    }
    assert_true(kvr_pages_grow(&pages, 5));
    assert_int_equal(pages.size_bytes, filled);
    kvr_pages_release(&pages);
    assert_null(pages.data);
    assert_int_equal(pages.size_bytes, 0);
}

static void what_cannot_be_had_changes_nothing(void **state)
{
    struct kvr_pages pages = {0};

    (void)state;
    assert_true(kvr_pages_grow(&pages, 5000));
    memset(pages.data, 3, 5000);
    assert_false(kvr_pages_grow(&pages, SIZE_MAX));
    assert_false(kvr_pages_grow(&pages, SIZE_MAX / 2));
    assert_int_equal(pages.size_bytes, 8192);
    assert_int_equal(((unsigned char *)pages.data)[4999], 3);
    kvr_pages_release(&pages);
    kvr_pages_release(&pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_grow_keep_their_content_and_start_as_zeros),
        cmocka_unit_test(what_cannot_be_had_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
