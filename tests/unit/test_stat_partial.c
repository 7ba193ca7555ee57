/* Partials of random splits, merged in any order, are the whole; what cannot be is named. */
#include "tests/unit/stat_fixture.h"

#include "stat/partial.h"

#include <stdio.h>
#include <stdlib.h>

enum { LINES = 600, SESSIONS = 40, WORKERS = 5, PARTS = 4 };

struct stream {
    char *lines[LINES];
    int session[LINES], worker[LINES];
};

/* Conversations that grow turn by turn; with `shared` they all begin with the same two blocks. */
static void make_stream(struct stream *stream, uint64_t seed, bool shared)
{
    struct kvr_random random = {seed};
    int turns[SESSIONS] = {0};

    for (int i = 0; i < LINES; i++) {
        char text[1024], ids[512] = "";
        int session = (int)kvr_random_below(&random, SESSIONS), turn = turns[session]++;
        int worker = session % WORKERS, blocks = 3 + turn, used = 0;
        int input = blocks * 100 - (int)kvr_random_below(&random, 99);
        int matched = turn ? (blocks - 1) * 100 - 100 : 0;
        for (int block = 0; block < blocks && used < 480; block++)
            used += snprintf(ids + used, sizeof ids - (size_t)used, "%s%d", block ? "," : "",
                block == blocks - 1   ? 1000000 + i /* a partial block is like no other */
                : shared && block < 2 ? block + 1
                                      : 1000 * (session + 1) + block);
        snprintf(text, sizeof text,
            "{\"id\":%d,\"timestamp\":%d,\"input_length\":%d,\"hash_ids\":[%s],\"session\":\"s%d\","
            "\"match\":{\"w%d\":%d},\"route\":{\"worker\":\"w%d\",\"reason\":\"%s\",\"matched\":%d,"
            "\"ttft_ms\":%.3f},\"response\":{\"status\":%d,\"ttft_ms\":%.3f,\"e2e_ms\":%.3f,"
            "\"output_length\":%d,\"cached_tokens\":%d}}",
            i, i * 37, input, ids, session, worker, matched, worker,
            kvr_random_below(&random, 3) ? "cache-match" : "escape", matched,
            10 + kvr_random_unit(&random) * 500, kvr_random_below(&random, 20) ? 200 : 503,
            10 + kvr_random_unit(&random) * 500, 600 + kvr_random_unit(&random) * 5000,
            1 + (int)kvr_random_below(&random, 300),
            matched - (int)kvr_random_below(&random, (uint32_t)matched / 2 + 1));
        stream->lines[i] = strdup(text);
        assert_non_null(stream->lines[i]);
        stream->session[i] = session;
        stream->worker[i] = worker;
    }
}

static void free_stream(struct stream *stream)
{
    for (int i = 0; i < LINES; i++)
        free(stream->lines[i]);
}

static struct kvr_report_options options_with(struct kvr_expression **by)
{
    struct kvr_report_options options = plain_options();

    assert_int_equal(kvr_expression_create(by, ".route.reason", NULL), KVR_OK);
    options.by = *by;
    options.slo_ttft_ms = 200;
    return options;
}

static enum kvr_status merge_text(struct kvr_report *report, const char *text, size_t length)
{
    struct kvr_source_line source = {.text = text, .length = length, .file = "test"};
    struct kvr_line line;
    struct kvr_error error;

    assert_int_equal(kvr_line_init(&line, NULL), KVR_OK);
    enum kvr_status status = kvr_line_parse(&line, &source, &error);
    if (status == KVR_OK)
        status = kvr_partial_merge(report, &line, ".route.reason", &error);
    kvr_line_release(&line);
    return status;
}

static bool same_sketch(const struct kvr_sketch *a, const struct kvr_sketch *b)
{
    if (a->count != b->count || a->zeros != b->zeros || a->sum_thousandths != b->sum_thousandths)
        return false;
    if (a->count && (a->least != b->least || a->most != b->most))
        return false;
    for (int64_t bucket = -5000; bucket < 5000; bucket++) {
        int64_t x = bucket - a->first, y = bucket - b->first;
        if ((x >= 0 && x < a->length ? a->counts[x] : 0) !=
            (y >= 0 && y < b->length ? b->counts[y] : 0))
            return false;
    }
    return true;
}

/* Everything but what `skip` names, counters from KVR_COUNT_CEILING to …SAVED_US. */
static void check_same(const struct kvr_tally *whole, const struct kvr_tally *merged,
    bool skip_ceiling, bool skip_kinds)
{
    for (int i = 0; i < KVR_COUNTER_COUNT; i++) {
        bool ceiling = i >= KVR_COUNT_CEILING && i <= KVR_COUNT_CEILING_SAVED_US;
        bool kind = i == KVR_COUNT_NEW || i == KVR_COUNT_CONTINUED;
        if ((skip_ceiling && ceiling) || (skip_kinds && kind))
            continue;
        if (whole->counters[i] != merged->counters[i])
            fail_msg("%s is %lu, not %lu", kvr_counter_text((enum kvr_counter)i),
                merged->counters[i], whole->counters[i]);
    }
    for (int i = 0; i < KVR_SKETCH_COUNT; i++) {
        if (skip_kinds && i <= KVR_SKETCH_E2E_UNKNOWN)
            continue;
        if (!same_sketch(&whole->sketches[i], &merged->sketches[i]))
            fail_msg("%s differs", kvr_sketch_text((enum kvr_sketch_name)i));
    }
    for (int i = 0; i <= KVR_SKETCH_E2E_UNKNOWN && skip_kinds; i += KVR_KIND_COUNT) {
        struct kvr_sketch all[2] = {{0}, {0}};
        kvr_tally_all_kinds(whole, (enum kvr_sketch_name)i, &all[0]);
        kvr_tally_all_kinds(merged, (enum kvr_sketch_name)i, &all[1]);
        assert_true(same_sketch(&all[0], &all[1]));
        kvr_sketch_release(&all[0]);
        kvr_sketch_release(&all[1]);
    }
}

static void name_it(void *context, const char *name, const char *why)
{
    struct kvr_buffer *names = context;

    assert_true(*why);
    kvr_buffer_append_text(names, name);
    kvr_buffer_append_byte(names, ';');
}

enum split { BY_SESSION, BY_WORKER, BY_CHANCE };

static void check_split(enum split split, bool shared, uint64_t seed, bool in_two_steps)
{
    struct kvr_expression *by;
    struct kvr_report_options options = options_with(&by);
    struct kvr_random random = {seed};
    struct kvr_buffer partials[PARTS] = {{0}}, names = {0};
    struct kvr_report *whole, *merged, *parts[PARTS];
    struct stream stream;

    make_stream(&stream, seed, shared);
    assert_int_equal(kvr_report_create(&whole, &options, NULL), KVR_OK);
    assert_int_equal(kvr_report_create(&merged, &options, NULL), KVR_OK);
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(kvr_report_create(&parts[i], &options, NULL), KVR_OK);
    for (int i = 0; i < LINES; i++) {
        int part = split == BY_SESSION  ? stream.session[i] * 7 % PARTS
                   : split == BY_WORKER ? stream.worker[i] % PARTS
                                        : (int)kvr_random_below(&random, PARTS);
        assert_int_equal(feed(whole, stream.lines[i]), KVR_OK);
        assert_int_equal(feed(parts[part], stream.lines[i]), KVR_OK);
    }
    assert_int_equal(kvr_report_finish(whole, NULL), KVR_OK);
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(kvr_report_finish(parts[i], NULL), KVR_OK);
        kvr_partial_write(parts[i], ".route.reason", &partials[i]);
        assert_false(partials[i].failed);
    }
    if (in_two_steps) { /* the last two become one partial first */
        struct kvr_report *between;
        assert_int_equal(kvr_report_create(&between, &options, NULL), KVR_OK);
        for (int i = 2; i < PARTS; i++)
            assert_int_equal(merge_text(between, partials[i].data, partials[i].length), KVR_OK);
        kvr_buffer_clear(&partials[2]);
        kvr_buffer_clear(&partials[3]);
        kvr_partial_write(between, ".route.reason", &partials[2]);
        kvr_report_destroy(between);
    }
    uint32_t start = kvr_random_below(&random, PARTS);
    for (uint32_t i = 0; i < PARTS; i++) {
        const struct kvr_buffer *partial = &partials[(start + i) % PARTS];
        if (partial->length)
            assert_int_equal(merge_text(merged, partial->data, partial->length), KVR_OK);
    }
    assert_int_equal(kvr_partial_settle(merged, NULL), KVR_OK);
    assert_int_equal(merged->merged_parts, PARTS);

    bool skip_kinds = split == BY_CHANCE, skip_ceiling = shared || split == BY_CHANCE;
    struct kvr_tally totals[2] = {{{0}, {{0}}}, {{0}, {{0}}}};
    assert_true(kvr_report_total(whole, &totals[0]) && kvr_report_total(merged, &totals[1]));
    check_same(&totals[0], &totals[1], skip_ceiling, skip_kinds);
    /* The ceiling in tokens survives any split. */
    assert_int_equal(
        totals[0].counters[KVR_COUNT_CEILING_TOKENS], totals[1].counters[KVR_COUNT_CEILING_TOKENS]);
    assert_int_equal(totals[0].counters[KVR_COUNT_CEILING_PROMPT_TOKENS],
        totals[1].counters[KVR_COUNT_CEILING_PROMPT_TOKENS]);
    for (uint32_t i = 1; i < whole->worker_names.count; i++) {
        const struct kvr_group *name = &whole->worker_names.items[i];
        uint32_t there = kvr_groups_look(&merged->worker_names, name->name, name->length);
        assert_true(there != UINT32_MAX);
        check_same(
            &whole->workers[i].tally, &merged->workers[there].tally, skip_ceiling, skip_kinds);
    }
    for (uint32_t i = 1; i < whole->group_names.count; i++) {
        const struct kvr_group *name = &whole->group_names.items[i];
        uint32_t there = kvr_groups_look(&merged->group_names, name->name, name->length);
        assert_true(there != UINT32_MAX);
        check_same(&whole->groups[i], &merged->groups[there], skip_ceiling, skip_kinds);
    }
    for (uint32_t i = 1; i < whole->reason_names.count; i++) {
        const struct kvr_group *name = &whole->reason_names.items[i];
        uint32_t there = kvr_groups_look(&merged->reason_names, name->name, name->length);
        assert_int_equal(whole->reasons[i], merged->reasons[there]);
    }
    kvr_report_left_out(merged, name_it, &names);
    kvr_buffer_append_byte(&names, '\0');
    assert_int_equal(strstr(names.data, "ceiling_request_hit_rate") != NULL, skip_ceiling);
    assert_int_equal(strstr(names.data, "kind of conversation") != NULL, skip_kinds);
    assert_non_null(strstr(names.data, "windows"));

    for (int i = 0; i < 2; i++)
        kvr_tally_release(&totals[i]);
    for (int i = 0; i < PARTS; i++) {
        kvr_report_destroy(parts[i]);
        kvr_buffer_release(&partials[i]);
    }
    kvr_buffer_release(&names);
    kvr_report_destroy(whole);
    kvr_report_destroy(merged);
    kvr_expression_destroy(by);
    free_stream(&stream);
}

static void test_by_session(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        check_split(BY_SESSION, false, seed, seed % 2);
        check_split(BY_SESSION, true, seed, seed % 2);
    }
}

static void test_by_worker(void **state)
{
    (void)state;
    for (uint64_t seed = 11; seed <= 15; seed++)
        check_split(BY_WORKER, false, seed, seed % 2);
}

static void test_by_chance(void **state)
{
    (void)state;
    for (uint64_t seed = 21; seed <= 25; seed++) {
        check_split(BY_CHANCE, false, seed, seed % 2);
        check_split(BY_CHANCE, true, seed, seed % 2);
    }
}

/* Event lines: exact where a worker's lines are together, left out by name where they are not. */
static void test_events(void **state)
{
    static const char *const lines[] = {
        "{\"event\":\"stored\",\"timestamp\":0,\"worker\":\"w0\",\"hash_ids\":[1,2]}",
        "{\"id\":1,\"timestamp\":10,\"input_length\":100,\"hash_ids\":[1],\"match\":{\"w0\":100},"
        "\"route\":{\"worker\":\"w0\",\"reason\":\"x\"}}",
        "{\"event\":\"removed\",\"timestamp\":50,\"worker\":\"w0\",\"hash_ids\":[1,2]}",
        "{\"event\":\"stored\",\"timestamp\":0,\"worker\":\"w1\",\"hash_ids\":[7]}",
        "{\"event\":\"worker\",\"worker\":\"w1\",\"state\":\"draining\"}",
        "{\"id\":2,\"timestamp\":60,\"input_length\":100,\"hash_ids\":[7],\"match\":{\"w0\":50},"
        "\"route\":{\"worker\":\"w1\",\"reason\":\"x\"}}",
        "{\"event\":\"removed\",\"timestamp\":90,\"worker\":\"w1\",\"hash_ids\":[7]}",
    };
    struct kvr_expression *by;
    struct kvr_report_options options = options_with(&by);

    (void)state;
    /* Cut between the workers, and in the midst of w0's lines. */
    for (size_t cut = 1; cut <= 3; cut += 2) {
        struct kvr_report *merged, *parts[2] = {report_of(&options, lines, cut),
                                       report_of(&options, lines + cut, 7 - cut)};
        struct kvr_buffer names = {0};
        assert_int_equal(kvr_report_create(&merged, &options, NULL), KVR_OK);
        for (int i = 1; i >= 0; i--) {
            struct kvr_buffer text = {0};
            kvr_partial_write(parts[i], ".route.reason", &text);
            assert_int_equal(merge_text(merged, text.data, text.length), KVR_OK);
            kvr_buffer_release(&text);
            kvr_report_destroy(parts[i]);
        }
        assert_int_equal(kvr_partial_settle(merged, NULL), KVR_OK);
        kvr_report_left_out(merged, name_it, &names);
        kvr_buffer_append_byte(&names, '\0');
        uint32_t w0 = kvr_groups_look(&merged->worker_names, "w0", 2);
        uint32_t w1 = kvr_groups_look(&merged->worker_names, "w1", 2);
        const uint64_t *first = merged->workers[w0].tally.counters;
        const uint64_t *second = merged->workers[w1].tally.counters;
        assert_int_equal(first[KVR_COUNT_EVICTED_BLOCKS], cut == 3 ? 2 : 0);
        assert_int_equal(first[KVR_COUNT_EVICTED_UNUSED], cut == 3 ? 1 : 0);
        assert_int_equal(second[KVR_COUNT_EVICTED_BLOCKS], 1);
        assert_int_equal(merged->workers[w1].state, KVR_WORKER_DRAINING);
        assert_int_equal(strstr(names.data, "evicted blocks") != NULL, cut == 1);
        assert_non_null(strstr(names.data, "regret")); /* w1 was draining */
        kvr_buffer_release(&names);
        kvr_report_destroy(merged);
    }
    kvr_expression_destroy(by);
}

/* A partial that was made otherwise, or is none, changes nothing. */
static void test_refused(void **state)
{
    static const char *const lines[] = {
        "{\"input_length\":100,\"route\":{\"worker\":\"w0\",\"reason\":\"x\",\"matched\":50}}"};
    struct kvr_expression *by;
    struct kvr_report_options options = options_with(&by), other = options;
    struct kvr_buffer text = {0};
    struct kvr_report *report = report_of(&options, lines, 1), *merged;

    (void)state;
    kvr_partial_write(report, ".route.reason", &text);
    other.accuracy = 0.02;
    assert_int_equal(kvr_report_create(&merged, &other, NULL), KVR_OK);
    assert_int_equal(merge_text(merged, text.data, text.length), KVR_BAD_INPUT);
    kvr_report_destroy(merged);
    assert_int_equal(kvr_report_create(&merged, &options, NULL), KVR_OK);
    assert_int_equal(merge_text(merged, "{\"input_length\":1}", 18), KVR_BAD_INPUT);
    /* Broken in its last part: nothing of the parts before is added. */
    char *broken = strdup(kvr_buffer_text(&text));
    char *last = strstr(broken, "\"reasons\":{");
    assert_non_null(last);
    strcpy(last, "\"reasons\":{\"x\":[]}}");
    assert_int_equal(merge_text(merged, broken, strlen(broken)), KVR_BAD_INPUT);
    free(broken);
    struct kvr_tally total = {{0}, {{0}}};
    assert_true(kvr_report_total(merged, &total));
    assert_int_equal(total.counters[KVR_COUNT_REQUESTS], 0);
    kvr_tally_release(&total);
    kvr_report_destroy(merged);
    kvr_report_destroy(report);
    kvr_buffer_release(&text);
    kvr_expression_destroy(by);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_session),
        cmocka_unit_test(test_by_worker),
        cmocka_unit_test(test_by_chance),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
