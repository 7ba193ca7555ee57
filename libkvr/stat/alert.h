/*
 * Alert rules over sliding windows in event time.
 *
 * A rule file is JSON, one rule a line; empty lines and lines that start with # say nothing:
 *
 *     {"name":"kv-nearly-full","severity":"warning","each":"worker",
 *      "when":[{"metric":"kv_usage_max","above":0.95}],"for":"2m","hint":"…"}
 *
 *   name      [a-z0-9-]+, unique in the file
 *   severity  info, warning (default) or critical
 *   each      run (default), or worker: looked at for every worker on its own
 *   when      conditions, all of which must hold: a metric (kvr-stats(1)) that is above or below a
 *             number, or that rises or falls by a share of what it was over the time `against`
 *             before the window; "of":"run" in a rule for workers looks at the whole run
 *   against   how far back the baseline reaches (10m)
 *   requests  fewest requests in the window (0), for a baseline in the baseline too
 *   for       how long the conditions must hold without a break (0)
 *   hint      what to do about it
 *
 * Rules are looked at whenever a pane closes (stat/window.h), in event time: the same stream fires
 * the same alerts however fast it is read. A metric that is not known meets no condition. An alert
 * clears at the first window that does not meet its conditions.
 */
#ifndef KVR_STAT_ALERT_H
#define KVR_STAT_ALERT_H

#include "stat/metrics.h"

enum { KVR_RULE_CONDITIONS = 8, KVR_RULES = 256, KVR_ALERT_EVENTS = 1000 };

enum kvr_comparison { KVR_ABOVE, KVR_BELOW, KVR_RISES, KVR_FALLS };

struct kvr_condition {
    const struct kvr_metric *metric;
    enum kvr_comparison comparison;
    double threshold;
    bool of_run;
};

struct kvr_rule {
    char *name, *hint;
    const char *severity;
    bool each_worker;
    struct kvr_condition conditions[KVR_RULE_CONDITIONS];
    size_t condition_count;
    double against_ms, for_ms;
    uint64_t requests;
};

/* One firing, for renderings. */
struct kvr_alert_event {
    uint32_t rule;
    uint32_t worker;                       /* group; UINT32_MAX: the run */
    double since_ms, fired_ms, cleared_ms; /* cleared_ms is NaN while it fires */
    double value, threshold;
};

struct kvr_alert_state {
    double since_ms; /* the conditions hold since then; NaN: they do not */
    bool firing;
    uint32_t event; /* in events; UINT32_MAX: not kept */
};

struct kvr_alerts {
    struct kvr_rule *rules;
    size_t rule_count, rule_capacity;
    struct kvr_report *report;
    struct kvr_alert_state *states; /* rule · (KVR_PANE_WORKERS + 1) + worker + 1, or + 0 */
    struct kvr_alert_event *events;
    size_t event_count, event_capacity;
    uint64_t fired; /* all, also those not kept */
    /* Called with an alert line, a JSON object, when one fires or clears; may be NULL. */
    void (*emit)(void *context, const char *json, size_t length);
    void *context;
    struct kvr_pane window, baseline; /* scratch */
    struct kvr_worker_load *window_loads, *baseline_loads;
    struct kvr_tally worker_tally;
    struct kvr_buffer line;
};

/* All zero bytes is no rules. */
void kvr_alerts_release(struct kvr_alerts *alerts);

/* Reads rules; KVR_BAD_INPUT with "file:line: " and what is wrong. */
enum kvr_status kvr_alerts_read(struct kvr_alerts *alerts, const char *file, const char *text,
    size_t length, struct kvr_error *error);

/* The rules that kvr comes with. */
extern const char kvr_alert_defaults[];
extern const size_t kvr_alert_defaults_length;

/* The longest baseline that a rule needs, for the report's options. */
double kvr_alerts_baseline_ms(const struct kvr_alerts *alerts);

/* Looks at the windows of a report from now on. Both live as long as the other is used. */
enum kvr_status kvr_alerts_watch(
    struct kvr_alerts *alerts, struct kvr_report *report, struct kvr_error *error);

#endif
