#include "base/random.h"
#include "base/u64_map.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

static void agrees_with_a_plain_array_under_random_use(void **state)
{
    enum { KEYS = 512, STEPS = 200000 };
    static uint64_t value[KEYS];
    static bool present[KEYS];
    struct kvr_u64_map map = {0};
    struct kvr_random random = {7};
    size_t length = 0;

    (void)state;
    for (int step = 0; step < STEPS; step++) {
        uint32_t key = kvr_random_below(&random, KEYS);
        bool inserted;
        uint64_t removed, *found;

        switch (kvr_random_below(&random, 3)) {
        case 0:
            found = kvr_u64_map_insert(&map, key, &inserted);
            assert_non_null(found);
            assert_int_equal(inserted, !present[key]);
            length += inserted;
            present[key] = true;
            value[key] = *found = kvr_random_u64(&random);
            break;
        case 1:
            assert_int_equal(kvr_u64_map_remove(&map, key, &removed), present[key]);
            if (present[key]) {
                assert_int_equal(removed, value[key]);
                length--;
            }
            present[key] = false;
            break;
        default:
            found = kvr_u64_map_find(&map, key);
            assert_int_equal(found != NULL, present[key]);
            if (found)
                assert_int_equal(*found, value[key]);
        }
        assert_int_equal(map.length, length);
    }
    kvr_u64_map_release(&map);
}

static void an_empty_map_finds_and_removes_nothing(void **state)
{
    struct kvr_u64_map map = {0};

    (void)state;
    assert_null(kvr_u64_map_find(&map, 0));
    assert_false(kvr_u64_map_remove(&map, 0, NULL));
    *kvr_u64_map_insert(&map, 0, NULL) = 5;
    kvr_u64_map_clear(&map);
    assert_null(kvr_u64_map_find(&map, 0));
    assert_int_equal(map.length, 0);
    kvr_u64_map_release(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_plain_array_under_random_use),
        cmocka_unit_test(an_empty_map_finds_and_removes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
