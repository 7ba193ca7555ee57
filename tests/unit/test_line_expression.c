#include "line/expression.h"
#include "tests/unit/unit.h"

#include <stdio.h>

static struct kvr_line line;
static struct kvr_error error;

static void parse(const char *text)
{
    struct kvr_source_line source = {.text = text, .length = strlen(text)};

    assert_int_equal(kvr_line_parse(&line, &source, &error), KVR_OK);
}

static void expect(const char *text, const char *expression_text, const char *result, bool native)
{
    struct kvr_expression *expression;
    struct kvr_value value;
    char found[128] = "";

    parse(text);
    assert_int_equal(kvr_expression_create(&expression, expression_text, &error), KVR_OK);
    if (kvr_expression_is_native(expression) != native)
        fail_msg("'%s' is %snative", expression_text, native ? "not " : "");
    assert_int_equal(kvr_expression_evaluate(expression, &line, &value, &error), KVR_OK);
    if (value.type != KVR_ABSENT)
        snprintf(found, sizeof found, "%.*s", (int)value.length, value.text);
    assert_string_equal(found, result);
    kvr_expression_destroy(expression);
}

static void plain_paths_run_in_place(void **state)
{
    static const char text[] =
        "{\"a\":{\"b c\":[10,{\"d\":12345678901234567890}]},\"n\":null,\"m\":\"x\"}";

    (void)state;
    expect(text, ".m", "\"x\"", true);
    expect(text, ".a[\"b c\"][1].d", "12345678901234567890", true);
    expect(text, ".a.x", "", true);
    expect(text, ".n // .m", "\"x\"", true);
    expect(text, " .x // .n ", "null", true);
    expect(text, ".a[\"b c\"][7]", "", true);
    expect(text, ".m.x", "", true);
    expect(text, ".", text, true);
}

static void everything_else_runs_in_jq(void **state)
{
    static const char text[] = "{\"turn\":2,\"s\":\"a-b\",\"l\":[1,2]}";

    (void)state;
    expect(text, ".turn > 1", "true", false);
    expect(text, ".s | split(\"-\") | .[0]", "\"a\"", false);
    expect(text, ".l[]", "1", false);
    expect(text, "empty", "", false);
    expect(text, ".x // \"none\"", "\"none\"", false);
}

static void mistakes_have_words(void **state)
{
    struct kvr_expression *expression;
    struct kvr_value value;

    (void)state;
    assert_int_equal(kvr_expression_create(&expression, ".a | nosuch", &error), KVR_BAD_USAGE);
    assert_non_null(strstr(error.text, "nosuch"));
    assert_null(expression);
    assert_int_equal(kvr_expression_create(&expression, ".prompt + 1", &error), KVR_OK);
    parse("{\"prompt\":\"a secret\"}");
    assert_int_equal(kvr_expression_evaluate(expression, &line, &value, &error), KVR_BAD_INPUT);
    assert_null(strstr(error.text, "secret"));
    kvr_expression_destroy(expression);
}

static enum kvr_status collect(void *context, const char *json, size_t length)
{
    kvr_buffer_append(context, json, length);
    kvr_buffer_append_byte(context, ';');
    return KVR_OK;
}

static void a_program_gives_all_its_results(void **state)
{
    static const char text[] = "{\"requests\":[{\"a\":1},{\"a\":2}]}";
    struct kvr_expression *expression;
    struct kvr_buffer out = {0};

    (void)state;
    assert_int_equal(kvr_expression_create_program(&expression, ".requests[]", &error), KVR_OK);
    assert_int_equal(
        kvr_expression_each(expression, text, strlen(text), collect, &out, &error), KVR_OK);
    assert_string_equal(kvr_buffer_text(&out), "{\"a\":1};{\"a\":2};");
    kvr_expression_destroy(expression);
    kvr_buffer_clear(&out);
    assert_int_equal(kvr_expression_create_program(&expression, ".", &error), KVR_OK);
    assert_int_equal(
        kvr_expression_each(expression, "{\"a\":1", 6, collect, &out, &error), KVR_BAD_INPUT);
    assert_int_equal(kvr_expression_each(expression, "{}", 2, collect, &out, &error), KVR_OK);
    assert_string_equal(kvr_buffer_text(&out), "{};");
    kvr_expression_destroy(expression);
    kvr_buffer_release(&out);
}

static int set_up(void **state)
{
    (void)state;
    return kvr_line_init(&line, &error) != KVR_OK;
}

static int tear_down(void **state)
{
    (void)state;
    kvr_line_release(&line);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_paths_run_in_place),
        cmocka_unit_test(everything_else_runs_in_jq),
        cmocka_unit_test(mistakes_have_words),
        cmocka_unit_test(a_program_gives_all_its_results),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
