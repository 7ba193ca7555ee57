#include "stat/alert.h"

#include "base/grow.h"

#include <math.h>
#include <stdlib.h>

enum { STATES_A_RULE = KVR_PANE_WORKERS + 1 };

/* A view of one worker in a pane, made of the few numbers that windows keep of each. */
static struct kvr_view worker_view(
    struct kvr_alerts *alerts, const struct kvr_view *all, const struct kvr_worker_load *load)
{
    uint64_t *counters = alerts->worker_tally.counters;

    memset(counters, 0, sizeof alerts->worker_tally.counters);
    counters[KVR_COUNT_REQUESTS] = load->requests;
    counters[KVR_COUNT_PROMPT_TOKENS] = load->prompt_tokens;
    counters[KVR_COUNT_KNOWN_TOKENS] = load->known_tokens;
    counters[KVR_COUNT_REUSED_TOKENS] = load->reused_tokens;
    counters[KVR_COUNT_EVICTED_BLOCKS] = load->evicted_blocks;
    return (struct kvr_view){all->scale, &alerts->worker_tally, all->span_ms, load, 1};
}

static double value_in(struct kvr_alerts *alerts, const struct kvr_condition *condition,
    const struct kvr_view *all, const struct kvr_worker_load *load)
{
    if (!load || condition->of_run)
        return kvr_metric_value(condition->metric, all);
    struct kvr_view view = worker_view(alerts, all, load);
    return kvr_metric_value(condition->metric, &view);
}

static bool holds(enum kvr_comparison comparison, double value, double base, double threshold)
{
    switch (comparison) {
    case KVR_ABOVE:
        return value > threshold;
    case KVR_BELOW:
        return value < threshold;
    case KVR_RISES:
        return base >= 0 && value > base * (1 + threshold) && value > 0;
    case KVR_FALLS:
        return base > 0 && value < base * (1 - threshold);
    }
    return false;
}

/* Whether all conditions hold; *value is what the first one looked at. */
static bool conditions_hold(struct kvr_alerts *alerts, const struct kvr_rule *rule,
    const struct kvr_view *window, const struct kvr_worker_load *load,
    const struct kvr_view *baseline, const struct kvr_worker_load *base_load, double *value)
{
    bool all = true, against = false;

    for (size_t i = 0; i < rule->condition_count; i++)
        against |= rule->conditions[i].comparison >= KVR_RISES;
    uint64_t requests = load ? load->requests : window->tally->counters[KVR_COUNT_REQUESTS];
    uint64_t before = !against    ? requests
                      : base_load ? base_load->requests
                                  : baseline->tally->counters[KVR_COUNT_REQUESTS];
    for (size_t i = 0; i < rule->condition_count; i++) {
        const struct kvr_condition *condition = &rule->conditions[i];
        double now = value_in(alerts, condition, window, load);
        double base = condition->comparison >= KVR_RISES
                          ? value_in(alerts, condition, baseline, base_load)
                          : NAN;
        if (i == 0)
            *value = now;
        all &= holds(condition->comparison, now, base, condition->threshold);
    }
    return all && requests >= rule->requests && before >= rule->requests;
}

static void write_alert(struct kvr_alerts *alerts, const struct kvr_rule *rule, const char *state,
    uint32_t worker, double value, double since_ms, double now_ms)
{
    struct kvr_buffer *out = &alerts->line;

    if (!alerts->emit)
        return;
    kvr_buffer_clear(out);
    kvr_buffer_append_text(out, "{\"event\":\"alert\",\"timestamp\":");
    kvr_json_write_fixed(out, now_ms, 3);
    kvr_buffer_append_text(out, ",\"name\":");
    kvr_json_write_string(out, rule->name, strlen(rule->name));
    kvr_buffer_append_format(out, ",\"state\":\"%s\",\"severity\":\"%s\"", state, rule->severity);
    if (worker != UINT32_MAX) {
        const struct kvr_group *group = &alerts->report->worker_names.items[worker];
        kvr_buffer_append_text(out, ",\"worker\":");
        kvr_json_write_string(out, group->name, group->length);
    }
    kvr_buffer_append_format(
        out, ",\"metric\":\"%s\",\"value\":", rule->conditions[0].metric->name);
    kvr_json_write_fixed(out, value, 6);
    kvr_buffer_append_format(out, ",\"condition\":\"%s\",\"threshold\":",
        (const char *const[]){"above", "below", "rises", "falls"}[rule->conditions[0].comparison]);
    kvr_json_write_fixed(out, rule->conditions[0].threshold, 6);
    kvr_buffer_append_text(out, ",\"since\":");
    kvr_json_write_fixed(out, since_ms, 3);
    if (rule->hint) {
        kvr_buffer_append_text(out, ",\"hint\":");
        kvr_json_write_string(out, rule->hint, strlen(rule->hint));
    }
    kvr_buffer_append_byte(out, '}');
    if (!out->failed)
        alerts->emit(alerts->context, out->data, out->length);
}

static enum kvr_status step(struct kvr_alerts *alerts, uint32_t index, uint32_t worker, bool hold,
    double value, double now_ms, struct kvr_error *error)
{
    const struct kvr_rule *rule = &alerts->rules[index];
    struct kvr_alert_state *state =
        &alerts->states[index * STATES_A_RULE + (worker == UINT32_MAX ? 0 : worker + 1)];

    if (!hold) {
        if (state->firing) {
            write_alert(alerts, rule, "cleared", worker, value, state->since_ms, now_ms);
            if (state->event != UINT32_MAX)
                alerts->events[state->event].cleared_ms = now_ms;
        }
        state->firing = false;
        state->since_ms = NAN;
        return KVR_OK;
    }
    if (isnan(state->since_ms))
        state->since_ms = now_ms;
    if (state->firing || now_ms - state->since_ms < rule->for_ms)
        return KVR_OK;
    state->firing = true;
    state->event = UINT32_MAX;
    alerts->fired++;
    if (alerts->event_count < KVR_ALERT_EVENTS) {
        struct kvr_alert_event *events = kvr_grow(
            alerts->events, &alerts->event_capacity, alerts->event_count + 1, sizeof *events);
        if (!events)
            return kvr_error_memory(error);
        alerts->events = events;
        state->event = (uint32_t)alerts->event_count;
        events[alerts->event_count++] = (struct kvr_alert_event){
            index, worker, state->since_ms, now_ms, NAN, value, rule->conditions[0].threshold};
    }
    write_alert(alerts, rule, "firing", worker, value, state->since_ms, now_ms);
    return KVR_OK;
}

/* Sums the baseline of one rule; rules of the same length share it. */
static bool sum_baseline(struct kvr_alerts *alerts, double against_ms, int64_t pane, bool sketches)
{
    const struct kvr_windows *windows = &alerts->report->windows;
    int64_t start = pane - KVR_WINDOW_PANES + 1;

    kvr_pane_clear(&alerts->baseline);
    return kvr_windows_sum(windows, start - (int64_t)ceil(against_ms / windows->pane_ms), start,
        sketches, &alerts->baseline);
}

static enum kvr_status on_close(void *context, int64_t pane, struct kvr_error *error)
{
    struct kvr_alerts *alerts = context;
    struct kvr_report *report = alerts->report;
    const struct kvr_windows *windows = &report->windows;
    double window_ms = windows->pane_ms * KVR_WINDOW_PANES;
    double now_ms = (double)(pane + 1) * windows->pane_ms, summed_ms = -1;
    enum kvr_status status = KVR_OK;
    struct kvr_view baseline = {0};

    kvr_pane_clear(&alerts->window);
    if (!kvr_windows_sum(windows, pane - KVR_WINDOW_PANES + 1, pane + 1, true, &alerts->window))
        return kvr_error_memory(error);
    struct kvr_view window =
        kvr_view_pane(report, &alerts->window, window_ms, alerts->window_loads);
    for (uint32_t i = 0; i < alerts->rule_count && status == KVR_OK; i++) {
        const struct kvr_rule *rule = &alerts->rules[i];
        double value = NAN;
        if (rule->against_ms != summed_ms) {
            if (!sum_baseline(alerts, rule->against_ms, pane, true))
                return kvr_error_memory(error);
            summed_ms = rule->against_ms;
            /* A young stream has less past than the rule asks for. */
            double start_ms = now_ms - window_ms;
            double past_ms = fmin(rule->against_ms, start_ms - windows->oldest_ms);
            baseline = kvr_view_pane(report, &alerts->baseline, past_ms, alerts->baseline_loads);
        }
        if (!rule->each_worker) {
            bool hold = conditions_hold(alerts, rule, &window, NULL, &baseline, NULL, &value);
            status = step(alerts, i, UINT32_MAX, hold, value, now_ms, error);
            continue;
        }
        uint32_t load = 0;
        for (uint32_t worker = 1;
             worker < report->worker_names.count && worker < KVR_PANE_WORKERS && status == KVR_OK;
             worker++) {
            if (worker == report->no_worker)
                continue;
            if (report->workers[worker].state == KVR_WORKER_DOWN) {
                status = step(alerts, i, worker, false, NAN, now_ms, error);
                continue;
            }
            bool hold = conditions_hold(alerts, rule, &window, &window.loads[load], &baseline,
                &baseline.loads[load], &value);
            load++;
            status = step(alerts, i, worker, hold, value, now_ms, error);
        }
    }
    return status;
}

enum kvr_status kvr_alerts_watch(
    struct kvr_alerts *alerts, struct kvr_report *report, struct kvr_error *error)
{
    size_t states = alerts->rule_count * STATES_A_RULE;

    alerts->report = report;
    alerts->states = malloc((states + 1) * sizeof *alerts->states);
    alerts->window_loads = calloc(KVR_PANE_WORKERS, sizeof *alerts->window_loads);
    alerts->baseline_loads = calloc(KVR_PANE_WORKERS, sizeof *alerts->baseline_loads);
    if (!alerts->states || !alerts->window_loads || !alerts->baseline_loads)
        return kvr_error_memory(error);
    for (size_t i = 0; i < states; i++)
        alerts->states[i] = (struct kvr_alert_state){.since_ms = NAN};
    report->windows.on_close = on_close;
    report->windows.sketches = UINT32_MAX;
    report->windows.context = alerts;
    return KVR_OK;
}
