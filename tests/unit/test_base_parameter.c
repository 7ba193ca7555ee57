#include "unit.h"

#include "base/parameter.h"

static const struct kvr_parameter table[] = {
    {"size", KVR_PARAMETER_INTEGER, "10k", NULL, 1, 1e9, "how many"},
    {"ratio", KVR_PARAMETER_NUMBER, "0.9", NULL, 0, 1, "how full"},
    {"ttl", KVR_PARAMETER_DURATION, "30s", NULL, 0, 1e12, "how long"},
    {"fast", KVR_PARAMETER_FLAG, "off", NULL, 0, 0, "whether"},
    {"order", KVR_PARAMETER_CHOICE, "lru", "lru lfu fifo", 0, 0, "which first"},
};
enum { COUNT = sizeof table / sizeof *table };

static void defaults_are_read(void **state)
{
    (void)state;
    struct kvr_parameter_value v[COUNT];
    assert_int_equal(kvr_parameter_defaults(table, COUNT, v, NULL), KVR_OK);
    assert_int_equal(v[0].integer, 10000);
    assert_true(v[1].number == 0.9);
    assert_true(v[2].number == 30000);
    assert_int_equal(v[3].integer, 0);
    assert_int_equal(v[4].integer, 0);
}

static void text_is_read_over_them(void **state)
{
    (void)state;
    static const char text[] = "size=2M, ratio=30%,ttl=1.5m,fast,order=fifo";
    struct kvr_parameter_value v[COUNT];
    struct kvr_error error = {0};
    kvr_parameter_defaults(table, COUNT, v, NULL);
    if (kvr_parameter_read(table, COUNT, text, sizeof text - 1, v, &error) != KVR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(v[0].integer, 2000000);
    assert_true(v[1].number == 0.3);
    assert_true(v[2].number == 90000);
    assert_int_equal(v[3].integer, 1);
    assert_int_equal(v[4].integer, 2);
    assert_int_equal(kvr_parameter_read(table, COUNT, "", 0, v, &error), KVR_OK);
    assert_int_equal(kvr_parameter_read(table, COUNT, "fast=no", 7, v, &error), KVR_OK);
    assert_int_equal(v[3].integer, 0);
}

static void wrong_text_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"sise=1", "there is no parameter 'sise' (there are: size, ratio, ttl, fast, order)"},
        {"size", "the parameter 'size' needs a value"},
        {"size=0", "'0' of parameter 'size' is not between 1 and 1000000000"},
        {"size=1.5", "'1.5' of parameter 'size' is not a whole number"},
        {"size=0x10", "'0x10' of parameter 'size' is not a whole number"},
        {"ratio=nan", "'nan' of parameter 'ratio' is not a number"},
        {"ttl=5w",
            "'5w' of parameter 'ttl' is not a time in ms or with a unit (us, ms, s, m, h, d)"},
        {"fast=maybe", "'maybe' of parameter 'fast' is not on or off"},
        {"order=mru", "'mru' of parameter 'order' is not one of: lru lfu fifo"},
        {"order=l", "'l' of parameter 'order' is not one of: lru lfu fifo"},
        {"fast,,size=1", "there is no parameter '' (there are: size, ratio, ttl, fast, order)"},
        {"\x1b[1m=1",
            "there is no parameter '\\x1b[1m' (there are: size, ratio, ttl, fast, order)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_parameter_value v[COUNT];
        struct kvr_error error = {0};
        kvr_parameter_defaults(table, COUNT, v, NULL);
        assert_int_equal(
            kvr_parameter_read(table, COUNT, cases[i].text, strlen(cases[i].text), v, &error),
            KVR_BAD_USAGE);
        assert_string_equal(error.text, cases[i].says);
    }
}

static void the_table_describes_itself(void **state)
{
    (void)state;
    struct kvr_buffer out = {0};
    kvr_parameter_describe(table + 3, 2, &out);
    assert_string_equal(kvr_buffer_text(&out),
        "  fast=off                  whether\n"
        "  order=lru                 which first (lru lfu fifo)\n");
    kvr_buffer_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_read),
        cmocka_unit_test(text_is_read_over_them),
        cmocka_unit_test(wrong_text_is_named),
        cmocka_unit_test(the_table_describes_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
