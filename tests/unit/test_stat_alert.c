/* Every shipped rule on a stream that must fire it and on one that is close and must not; rule
 * files that are wrong. */
#include "tests/unit/stat_fixture.h"

#include "stat/alert.h"

#include <stdio.h>

/* What a stretch of the stream is like; the base is a healthy cluster. */
struct phase {
    double rate; /* requests/s */
    double reuse, reuse_of_last_worker;
    double ttft_new_ms, ttft_continued_ms;
    int slow_every;   /* every n-th request takes 1,000 ms more; 0: none */
    double predicted; /* times the actual TTFT */
    int workers;
    int hot_of_8; /* so many of eight requests go to w0, the rest round-robin */
    double kv_usage[4];
    double evictions; /* a second */
};

static const struct phase base = {.rate = 2,
    .reuse = 0.5,
    .reuse_of_last_worker = 0.5,
    .ttft_new_ms = 100,
    .ttft_continued_ms = 60,
    .predicted = 1,
    .workers = 4,
    .kv_usage = {0.5, 0.5, 0.5, 0.5},
    .evictions = 0.6};

struct seen {
    char names[64][64]; /* "name:state" */
    size_t count;
    bool hints;
};

static void emit(void *context, const char *json, size_t length)
{
    struct seen *seen = context;
    char text[1024], name[48] = "", state[16] = "";

    assert_true(length < sizeof text);
    memcpy(text, json, length);
    text[length] = '\0';
    const char *at = strstr(text, "\"name\":\"");
    assert_non_null(at);
    sscanf(at, "\"name\":\"%47[^\"]\",\"state\":\"%15[^\"]\"", name, state);
    seen->hints &= strstr(text, "\"hint\":\"") != NULL;
    if (seen->count < 64)
        snprintf(seen->names[seen->count++], sizeof seen->names[0], "%s:%s", name, state);
}

static bool has(const struct seen *seen, const char *name, const char *state)
{
    char wanted[96];

    snprintf(wanted, sizeof wanted, "%s:%s", name, state);
    for (size_t i = 0; i < seen->count; i++) {
        if (strcmp(seen->names[i], wanted) == 0)
            return true;
    }
    return false;
}

static void feed_request(
    struct kvr_report *report, const struct phase *phase, int number, double now_ms)
{
    int worker = number % 8 < phase->hot_of_8 ? 0 : number % phase->workers;
    bool continued = number % 2;
    double reuse = worker == phase->workers - 1 ? phase->reuse_of_last_worker : phase->reuse;
    double ttft = continued ? phase->ttft_continued_ms : phase->ttft_new_ms;
    char line[512];

    if (phase->slow_every && number % phase->slow_every == 0)
        ttft += 1000;
    snprintf(line, sizeof line,
        "{\"id\":%d,\"timestamp\":%.3f,\"input_length\":1000,\"turn\":%d,\"route\":{\"worker\":"
        "\"w%d\",\"reason\":\"cache-match\",\"ttft_ms\":%.3f},\"response\":{\"status\":200,"
        "\"ttft_ms\":%.3f,\"cached_tokens\":%.0f}}",
        number, now_ms, continued ? 2 : 1, worker, ttft * phase->predicted, ttft, reuse * 1000);
    assert_int_equal(feed(report, line), KVR_OK);
}

static void feed_second(
    struct kvr_report *report, const struct phase *phase, double now_ms, double *evictions)
{
    char line[256];

    for (int worker = 0; worker < phase->workers; worker++) {
        snprintf(line, sizeof line,
            "{\"event\":\"load\",\"timestamp\":%.3f,\"worker\":\"w%d\",\"kv_usage\":%g}", now_ms,
            worker, phase->kv_usage[worker]);
        assert_int_equal(feed(report, line), KVR_OK);
    }
    for (*evictions += phase->evictions; *evictions >= 1; *evictions -= 1) {
        for (int i = 0; i < 2; i++) {
            snprintf(line, sizeof line,
                "{\"event\":\"%s\",\"timestamp\":%.3f,\"worker\":\"w0\",\"hash_ids\":[7]}",
                i ? "removed" : "stored", now_ms);
            assert_int_equal(feed(report, line), KVR_OK);
        }
    }
}

/* 15 minutes as the base is, 8 minutes of `changed`, 5 minutes of the base again. */
static void run(struct seen *seen, const struct phase *changed, int changed_minutes)
{
    struct kvr_report_options options = plain_options();
    struct kvr_alerts alerts = {.emit = emit, .context = seen};
    struct kvr_report *report;
    struct kvr_error error;
    double evictions = 0, requests = 0;
    int number = 0;

    memset(seen, 0, sizeof *seen);
    seen->hints = true;
    assert_int_equal(
        kvr_alerts_read(&alerts, "default", kvr_alert_defaults, kvr_alert_defaults_length, &error),
        KVR_OK);
    options.baseline_ms = kvr_alerts_baseline_ms(&alerts);
    options.late_ms = 0;
    assert_int_equal(kvr_report_create(&report, &options, NULL), KVR_OK);
    assert_int_equal(kvr_alerts_watch(&alerts, report, NULL), KVR_OK);
    for (int second = 0; second < (20 + changed_minutes) * 60; second++) {
        bool is_changed = second >= 15 * 60 && second < (15 + changed_minutes) * 60;
        const struct phase *phase = is_changed ? changed : &base;
        feed_second(report, phase, second * 1e3, &evictions);
        for (requests += phase->rate; requests >= 1; requests -= 1)
            feed_request(report, phase, number++, second * 1e3);
    }
    assert_int_equal(kvr_report_finish(report, NULL), KVR_OK);
    kvr_alerts_release(&alerts);
    kvr_report_destroy(report);
}

static void check(
    const char *rule, const struct phase *firing, const struct phase *quiet, int quiet_minutes)
{
    struct seen seen;

    run(&seen, firing, 8);
    if (!has(&seen, rule, "firing"))
        fail_msg("%s does not fire", rule);
    if (!has(&seen, rule, "cleared"))
        fail_msg("%s does not clear", rule);
    assert_true(seen.hints);
    run(&seen, quiet, quiet_minutes);
    if (has(&seen, rule, "firing"))
        fail_msg("%s fires where it should not", rule);
}

static void test_quiet_base(void **state)
{
    struct seen seen;

    (void)state;
    run(&seen, &base, 8);
    if (seen.count)
        fail_msg("a healthy stream fires %s", seen.names[0]);
}

static void test_hit_rate_falls_under_load(void **state)
{
    struct phase firing = base, quiet = base;

    (void)state;
    firing.reuse = firing.reuse_of_last_worker = 0.2;
    firing.rate = 3;
    quiet.reuse = quiet.reuse_of_last_worker = 0.2; /* falls, but not under load */
    check("hit-rate-falls-under-load", &firing, &quiet, 8);
}

static void test_worker_full(void **state)
{
    struct phase firing = base, quiet = base;

    (void)state;
    for (int i = 0; i < 4; i++) {
        firing.kv_usage[i] = i ? 0.2 : 0.95;
        quiet.kv_usage[i] = i ? 0.6 : 0.95; /* the peers are busy too */
    }
    check("worker-full-while-peers-idle", &firing, &quiet, 8);
}

static void test_routing_skew(void **state)
{
    struct phase firing = base, quiet = base;

    (void)state;
    firing.hot_of_8 = 8;
    quiet.hot_of_8 = 4;
    check("routing-skew", &firing, &quiet, 8);
}

static void test_kv_nearly_full(void **state)
{
    struct phase firing = base, quiet = base;

    (void)state;
    firing.kv_usage[1] = 0.97;
    quiet.kv_usage[1] = 0.97; /* not for long */
    check("kv-nearly-full", &firing, &quiet, 1);
}

static void test_eviction_spike(void **state)
{
    struct phase firing = base, quiet = base;

    (void)state;
    firing.evictions = 3;
    quiet.evictions = 1.5;
    check("eviction-spike", &firing, &quiet, 8);
}

static void test_continuations(void **state)
{
    struct phase firing = base, quiet = base;

    (void)state;
    firing.ttft_continued_ms = 130;
    quiet.ttft_continued_ms = 95;
    check("continuations-slower-than-new", &firing, &quiet, 8);
}

static void test_matches_shrink(void **state)
{
    struct phase firing = base, quiet = base;

    (void)state;
    firing.reuse = firing.reuse_of_last_worker = 0.3;
    quiet.reuse = quiet.reuse_of_last_worker = 0.4;
    check("matches-shrink", &firing, &quiet, 8);
}

static void test_slow_tail(void **state)
{
    struct phase firing = base, quiet = base;

    (void)state;
    firing.slow_every = 20;
    quiet.slow_every = 20; /* the tail is as slow, but hits are few: another story */
    quiet.reuse = quiet.reuse_of_last_worker = 0.2;
    check("high-hit-rate-slow-tail", &firing, &quiet, 8);
}

static void test_predictions(void **state)
{
    struct phase firing = base, quiet = base;

    (void)state;
    firing.predicted = 2.5;
    quiet.predicted = 1.5;
    check("predictions-drift", &firing, &quiet, 8);
}

static void test_never_hits(void **state)
{
    struct phase firing = base, quiet = base;

    (void)state;
    firing.rate = quiet.rate = 8; /* a quarter each is enough to judge one worker */
    firing.reuse_of_last_worker = 0;
    quiet.reuse_of_last_worker = 0.01;
    check("worker-never-hits", &firing, &quiet, 8);
}

static void test_rule_files(void **state)
{
    static const char *const bad[] = {
        "{",
        "[]",
        "{\"name\":\"x\"}",
        "{\"name\":\"X\",\"when\":[{\"metric\":\"requests\",\"above\":1}]}",
        "{\"when\":[{\"metric\":\"requests\",\"above\":1}]}",
        "{\"name\":\"x\",\"when\":[]}",
        "{\"name\":\"x\",\"when\":[{\"metric\":\"no_such\",\"above\":1}]}",
        "{\"name\":\"x\",\"when\":[{\"metric\":\"requests\"}]}",
        "{\"name\":\"x\",\"when\":[{\"metric\":\"requests\",\"above\":1,\"below\":2}]}",
        "{\"name\":\"x\",\"when\":[{\"metric\":\"requests\",\"above\":\"1\"}]}",
        "{\"name\":\"x\",\"when\":[{\"metric\":\"requests\",\"above\":1,\"of\":\"me\"}]}",
        "{\"name\":\"x\",\"when\":[{\"metric\":\"requests\",\"above\":1}],\"for\":\"soon\"}",
        "{\"name\":\"x\",\"when\":[{\"metric\":\"requests\",\"above\":1}],\"each\":\"pod\"}",
        "{\"name\":\"x\",\"when\":[{\"metric\":\"requests\",\"above\":1}],\"severity\":\"high\"}",
        "{\"name\":\"x\",\"when\":[{\"metric\":\"requests\",\"above\":1}],\"color\":\"red\"}",
        ("{\"name\":\"x\",\"when\":[{\"metric\":\"requests\",\"above\":1}]}\n"
         "{\"name\":\"x\",\"when\":[{\"metric\":\"requests\",\"above\":1}]}"),
    };
    static const char good[] =
        "# a remark\n\n  {\"name\":\"a-1\",\"when\":[{\"metric\":\"requests\",\"above\":1}],"
        "\"for\":500}\r\n{\"name\":\"b\",\"each\":\"worker\",\"severity\":\"critical\",\"when\":["
        "{\"metric\":\"token_hit_rate\",\"falls\":0.5},{\"metric\":\"requests\",\"below\":9,"
        "\"of\":\"run\"}],\"against\":\"3m\",\"requests\":7,\"hint\":\"h\"}";
    struct kvr_error error;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kvr_alerts alerts = {0};
        if (kvr_alerts_read(&alerts, "rules", bad[i], strlen(bad[i]), &error) != KVR_BAD_INPUT)
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(strncmp(error.text, "rules:", 6), 0);
        kvr_alerts_release(&alerts);
    }
    struct kvr_alerts alerts = {0};
    assert_int_equal(kvr_alerts_read(&alerts, "rules", good, strlen(good), &error), KVR_OK);
    assert_int_equal(alerts.rule_count, 2);
    assert_true(alerts.rules[0].for_ms == 500);
    assert_true(alerts.rules[1].each_worker && alerts.rules[1].conditions[1].of_run);
    assert_true(kvr_alerts_baseline_ms(&alerts) == 180e3);
    kvr_alerts_release(&alerts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet_base),
        cmocka_unit_test(test_hit_rate_falls_under_load),
        cmocka_unit_test(test_worker_full),
        cmocka_unit_test(test_routing_skew),
        cmocka_unit_test(test_kv_nearly_full),
        cmocka_unit_test(test_eviction_spike),
        cmocka_unit_test(test_continuations),
        cmocka_unit_test(test_matches_shrink),
        cmocka_unit_test(test_slow_tail),
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_never_hits),
        cmocka_unit_test(test_rule_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
