#include "line/session.h"
#include "tests/unit/unit.h"

#include <stdio.h>

static struct kvr_line line;
static struct kvr_error error;
static struct kvr_session_reader reader;

static uint64_t session_of(const char *text)
{
    struct kvr_source_line source = {.text = text, .length = strlen(text)};
    uint64_t session = 1234;

    assert_int_equal(kvr_line_parse(&line, &source, &error), KVR_OK);
    assert_int_equal(kvr_session_read(&reader, &line, &session, &error), KVR_OK);
    return session;
}

static void the_first_that_names_somebody(void **state)
{
    (void)state;
    uint64_t a = session_of("{\"session\":\"a\",\"chat_id\":\"b\",\"user\":\"c\"}");
    assert_int_not_equal(a, 0);
    assert_int_equal(session_of("{\"session\":\"a\"}"), a);
    assert_int_equal(session_of("{\"session\":\"\",\"chat_id\":null,\"user\":\"a\"}"), a);
    assert_int_equal(session_of("{\"chat_id\":\"a\",\"user\":\"c\"}"), a);
    assert_int_equal(session_of("{\"user\":7}"), session_of("{\"session\":\"7\"}"));
    assert_int_equal(session_of("{}"), 0);
    assert_int_equal(session_of("{\"session\":\"\",\"chat_id\":\"\",\"user\":\"\"}"), 0);
    assert_int_equal(session_of("{\"session\":null,\"user\":null}"), 0);
}

static void a_chain_of_chats_is_one_conversation(void **state)
{
    (void)state;
    uint64_t first = session_of("{\"chat_id\":1,\"parent_chat_id\":-1}");
    assert_int_equal(session_of("{\"chat_id\":2,\"parent_chat_id\":1}"), first);
    assert_int_equal(session_of("{\"chat_id\":3,\"parent_chat_id\":\"2\"}"), first);
    assert_int_not_equal(session_of("{\"chat_id\":4,\"parent_chat_id\":-1}"), first);
    assert_int_not_equal(session_of("{\"chat_id\":5,\"parent_chat_id\":\"\"}"), first);
    /* A parent that was never seen still makes its children one. */
    uint64_t orphan = session_of("{\"chat_id\":11,\"parent_chat_id\":10}");
    assert_int_equal(session_of("{\"chat_id\":12,\"parent_chat_id\":11}"), orphan);
    assert_int_equal(session_of("{\"chat_id\":13,\"parent_chat_id\":10}"), orphan);
}

static void an_expression_stands_for_the_rule(void **state)
{
    (void)state;
    assert_int_equal(kvr_expression_create(&reader.expression, ".x", &error), KVR_OK);
    uint64_t x = session_of("{\"x\":\"a\",\"session\":\"b\"}");
    assert_int_not_equal(x, 0);
    assert_int_equal(session_of("{\"x\":\"\",\"session\":\"b\"}"), 0);
    assert_int_equal(session_of("{\"session\":\"b\"}"), 0);
    kvr_expression_destroy(reader.expression);
    reader.expression = NULL;
    assert_int_equal(session_of("{\"session\":\"a\"}"), x);
}

static void the_map_of_chats_is_bounded(void **state)
{
    char text[96];

    (void)state;
    for (int i = 0; i < KVR_CONVERSATIONS_MOST + 5; i++) {
        snprintf(text, sizeof text, "{\"chat_id\":%d,\"parent_chat_id\":-1}", i + 100);
        session_of(text);
    }
    assert_true(reader.conversations.length < KVR_CONVERSATIONS_MOST);
}

int main(void)
{
    assert_int_equal(kvr_line_init(&line, &error), KVR_OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_names_somebody),
        cmocka_unit_test(a_chain_of_chats_is_one_conversation),
        cmocka_unit_test(an_expression_stands_for_the_rule),
        cmocka_unit_test(the_map_of_chats_is_bounded),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kvr_session_reader_release(&reader);
    kvr_line_release(&line);
    return failed;
}
