/* Event streams however they are cut, and what answers say of themselves. */
#include "net/answer.h"
#include "tests/unit/unit.h"

#include <math.h>

static void add_event(void *context, const char *data, size_t length)
{
    kvr_buffer_append_byte(context, '[');
    kvr_buffer_append(context, data, length);
    kvr_buffer_append_byte(context, ']');
}

/* The events of a text that comes `step` bytes at a time. */
static void check_events(const char *text, const char *events)
{
    for (size_t step = 1; step <= strlen(text); step++) {
        struct kvr_buffer seen = {0};
        struct kvr_sse sse;
        kvr_sse_init(&sse, 1000);
        for (size_t at = 0; at < strlen(text); at += step) {
            size_t left = strlen(text) - at;
            assert_int_equal(
                kvr_sse_feed(&sse, text + at, left < step ? left : step, add_event, &seen, NULL),
                KVR_OK);
        }
        kvr_buffer_append_byte(&seen, '\0');
        assert_string_equal(seen.data, events);
        kvr_buffer_release(&seen);
        kvr_sse_release(&sse);
    }
}

static void events_end_at_blank_lines_however_cut(void **state)
{
    (void)state;
    check_events("data: a\n\ndata:b\n\n", "[a][b]");
    check_events("data: a\r\n\r\ndata: b\r\rdata: c\n\n", "[a][b][c]");
    check_events("\xef\xbb\xbf"
                 "data: a\n\n",
        "[a]");
    check_events(": comment\nevent: x\nid: 7\ndata: one\ndata: two\n\n", "[one\ntwo]");
    check_events("data\n\ndatab: no\n\ndata:  two spaces\n\n", "[][ two spaces]");
    check_events("data: never ended\n", "");
    check_events("\n\n\n", "");
}

static void an_event_over_the_limit_is_refused(void **state)
{
    struct kvr_sse sse;
    struct kvr_error error;
    struct kvr_buffer seen = {0};

    (void)state;
    kvr_sse_init(&sse, 10);
    assert_int_equal(
        kvr_sse_feed(&sse, "data: 0123456789", 16, add_event, &seen, &error), KVR_BAD_INPUT);
    kvr_sse_reset(&sse);
    assert_int_equal(kvr_sse_feed(&sse, "data: 1\n\n", 9, add_event, &seen, &error), KVR_OK);
    assert_int_equal(seen.length, 3);
    kvr_sse_release(&sse);
    kvr_buffer_release(&seen);
}

static void feed(struct kvr_answer *answer, const char *text, double now_ms)
{
    kvr_answer_feed(answer, text, strlen(text), now_ms);
}

static void the_first_content_chunk_is_not_the_role(void **state)
{
    struct kvr_answer answer;
    struct kvr_error error;

    (void)state;
    assert_int_equal(kvr_answer_init(&answer, &error), KVR_OK);
    answer.keep_intervals = true;
    kvr_answer_begin(&answer, true);
    feed(&answer, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        1);
    assert_true(isnan(answer.first_ms));
    feed(&answer, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", 5);
    feed(&answer, "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"b\"}}]}\n\n", 7);
    feed(&answer, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}\n\n", 12);
    feed(&answer,
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,"
        "\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n",
        13);
    kvr_answer_end(&answer, 13);
    assert_true(answer.first_ms == 5 && answer.last_ms == 12 && answer.longest_gap_ms == 5);
    assert_int_equal(answer.chunks, 3);
    assert_int_equal(answer.intervals.length, 2 * sizeof(double));
    assert_int_equal(answer.cached_tokens, 8);
    assert_true(answer.ended && !answer.failed);
    struct kvr_buffer out = {0};
    kvr_answer_write(&answer, 200, 1, 13, "w0", &out);
    assert_string_equal(kvr_buffer_text(&out),
        "{\"status\":200,\"ttft_ms\":4,\"e2e_ms\":12,\"tpot_ms\":3.5,\"max_gap_ms\":5,"
        "\"input_length\":9,\"output_length\":3,\"cached_tokens\":8,\"worker\":\"w0\"");
    kvr_buffer_release(&out);
    kvr_answer_release(&answer);
}

struct whole {
    const char *body;
    int64_t prompt, output, cached;
};

static void usage_is_read_as_each_engine_writes_it(void **state)
{
    static const struct whole cases[] = {
        {"{\"choices\":[{\"text\":\"x\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}",
            5, 2, -1},
        {"{\"text\":\"x\",\"meta_info\":{\"prompt_tokens\":5,\"completion_tokens\":2,"
         "\"cached_tokens\":4}}",
            5, 2, 4},
        {"{\"output\":[{}],\"usage\":{\"input_tokens\":5,\"output_tokens\":2,"
         "\"input_tokens_details\":{\"cached_tokens\":3}}}",
            5, 2, 3},
        {"{\"choices\":[{}],\"timings\":{\"cache_n\":7}}", -1, -1, 7},
        {"not JSON", -1, -1, -1},
        {"[1]", -1, -1, -1},
        {"{\"usage\":{\"prompt_tokens\":-3,\"completion_tokens\":\"x\"}}", -1, -1, -1},
    };
    struct kvr_answer answer;
    struct kvr_error error;

    (void)state;
    assert_int_equal(kvr_answer_init(&answer, &error), KVR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvr_answer_begin(&answer, false);
        feed(&answer, cases[i].body, 1);
        kvr_answer_end(&answer, 2);
        assert_int_equal(answer.prompt_tokens, cases[i].prompt);
        assert_int_equal(answer.output_tokens, cases[i].output);
        assert_int_equal(answer.cached_tokens, cases[i].cached);
    }
    kvr_answer_release(&answer);
}

static void an_error_inside_a_stream_is_a_failure(void **state)
{
    struct kvr_answer answer;
    struct kvr_error error;

    (void)state;
    assert_int_equal(kvr_answer_init(&answer, &error), KVR_OK);
    kvr_answer_begin(&answer, true);
    feed(&answer, "data: {\"error\":{\"message\":\"out of memory\"}}\n\n", 1);
    assert_true(answer.failed);
    kvr_answer_release(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_end_at_blank_lines_however_cut),
        cmocka_unit_test(an_event_over_the_limit_is_refused),
        cmocka_unit_test(the_first_content_chunk_is_not_the_role),
        cmocka_unit_test(usage_is_read_as_each_engine_writes_it),
        cmocka_unit_test(an_error_inside_a_stream_is_a_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
