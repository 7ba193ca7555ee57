#include "sim/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLICY_LIMIT = 64, POLICY_BYTES = 512, RATE_LIMIT = 64, HALVINGS = 6 };

struct policies {
    char names[POLICY_LIMIT][POLICY_BYTES];
    size_t count, width;
};

static enum kvr_status read_policies(
    const struct kvr_sim_sweep *sweep, struct policies *policies, struct kvr_error *error)
{
    const char *at = sweep->policies;
    int depth = 0;

    policies->count = 0;
    policies->width = strlen("policy");
    for (const char *end = at;; end++) {
        depth += (*end == '(') - (*end == ')');
        if (*end && !(*end == ',' && depth <= 0 && sweep->several))
            continue;
        while (*at == ' ')
            at++;
        size_t length = (size_t)(end - at);
        while (length && at[length - 1] == ' ')
            length--;
        if (length == 0 || length >= POLICY_BYTES || policies->count == POLICY_LIMIT)
            return kvr_error_set(error, KVR_BAD_USAGE,
                "policies are 1 to %d chains, separated by commas, each below %d bytes",
                POLICY_LIMIT, POLICY_BYTES);
        memcpy(policies->names[policies->count], at, length);
        policies->names[policies->count++][length] = '\0';
        if (length > policies->width)
            policies->width = length;
        at = end + 1;
        if (!*end)
            return KVR_OK;
    }
}

static enum kvr_status run(const struct kvr_sim_sweep *sweep, const struct kvr_sim_trace *trace,
    const char *policy, double rate, struct kvr_sim_outcome *outcome, struct kvr_error *error)
{
    struct kvr_desk_options desk = *sweep->study.desk;
    struct kvr_sim_study study = sweep->study;

    desk.router.policy = policy;
    study.desk = &desk;
    study.pace.rate = rate;
    return kvr_sim_study_run(&study, trace, outcome, error);
}

enum kvr_status kvr_sim_compare(
    const struct kvr_sim_sweep *sweep, const struct kvr_sim_trace *trace, struct kvr_error *error)
{
    struct policies *policies = malloc(sizeof *policies);
    enum kvr_status status =
        policies ? read_policies(sweep, policies, error) : kvr_error_memory(error);

    if (status == KVR_OK && !sweep->json)
        kvr_sim_table_head(sweep->out, policies->width);
    for (size_t i = 0; status == KVR_OK && i < policies->count; i++) {
        struct kvr_sim_outcome outcome;
        status = run(sweep, trace, policies->names[i], sweep->study.pace.rate, &outcome, error);
        if (status != KVR_OK)
            break;
        if (sweep->json) {
            kvr_sim_report_write(&outcome.report, policies->names[i], sweep->study.pace.rate,
                outcome.skew, sweep->out);
            kvr_buffer_append_byte(sweep->out, '\n');
        } else {
            kvr_sim_table_row(
                &outcome.report, policies->names[i], policies->width, outcome.skew, sweep->out);
        }
        kvr_sim_report_release(&outcome.report);
    }
    free(policies);
    return status;
}

struct rates {
    double values[RATE_LIMIT];
    size_t count;
};

static enum kvr_status read_rates(const char *text, struct rates *rates, struct kvr_error *error)
{
    double from = NAN, to = NAN, step = NAN;
    int used = 0;

    if (sscanf(text, "rate=%lf:%lf%n", &from, &to, &used) != 2)
        used = 0;
    if (used && text[used] == ':') {
        int more = 0;
        if (sscanf(text + used, ":%lf%n", &step, &more) == 1)
            used += more;
    } else {
        step = (to - from) / 7;
    }
    if (!used || text[used] || !(from > 0 && to >= from && to <= 1e6) ||
        !(step > 0 || (to == from && step == 0)))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--sweep is rate=FROM:TO or rate=FROM:TO:STEP with 0 < FROM <= TO");
    rates->count = 0;
    for (double rate = from; rate <= to * (1 + 1e-9); rate = from + step * (double)rates->count) {
        if (rates->count == RATE_LIMIT)
            return kvr_error_set(
                error, KVR_BAD_USAGE, "--sweep takes at most %d steps", RATE_LIMIT);
        rates->values[rates->count++] = rate;
        if (step == 0)
            break;
    }
    return KVR_OK;
}

struct point {
    double share, goodput, per_s; /* within the SLO; of these a second; arrivals a second */
};

static enum kvr_status measure(const struct kvr_sim_sweep *sweep, const struct kvr_sim_trace *trace,
    const char *policy, double rate, struct point *point, struct kvr_error *error)
{
    struct kvr_sim_outcome outcome;
    enum kvr_status status = run(sweep, trace, policy, rate, &outcome, error);

    if (status != KVR_OK)
        return status;
    point->share = kvr_sim_good_share(&outcome.report);
    point->goodput = kvr_sim_goodput(&outcome.report);
    point->per_s = point->goodput / point->share;
    if (sweep->json) {
        kvr_sim_report_write(&outcome.report, policy, rate, outcome.skew, sweep->out);
        kvr_buffer_append_byte(sweep->out, '\n');
    }
    kvr_sim_report_release(&outcome.report);
    return KVR_OK;
}

/* The highest rate between one that meets the SLO and one that does not. */
static enum kvr_status halve(const struct kvr_sim_sweep *sweep, const struct kvr_sim_trace *trace,
    const char *policy, double meets, double misses, double *rate, struct point *best,
    struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    for (int i = 0; status == KVR_OK && i < HALVINGS; i++) {
        struct point point;
        double middle = (meets + misses) / 2;
        status = measure(sweep, trace, policy, middle, &point, error);
        if (status == KVR_OK && point.share >= sweep->slo_share) {
            meets = middle;
            *best = point;
        } else {
            misses = middle;
        }
    }
    *rate = meets;
    return status;
}

static enum kvr_status sweep_policy(const struct kvr_sim_sweep *sweep,
    const struct kvr_sim_trace *trace, const struct rates *rates, const char *policy, size_t width,
    struct kvr_error *error)
{
    struct point points[RATE_LIMIT], best = {0};
    enum kvr_status status = KVR_OK;
    double rate = NAN;
    size_t last = SIZE_MAX;

    for (size_t i = 0; status == KVR_OK && i < rates->count; i++) {
        status = measure(sweep, trace, policy, rates->values[i], &points[i], error);
        if (status == KVR_OK && points[i].share >= sweep->slo_share)
            last = i;
    }
    if (status == KVR_OK && last != SIZE_MAX) {
        best = points[last];
        rate = rates->values[last];
        if (last + 1 < rates->count)
            status =
                halve(sweep, trace, policy, rate, rates->values[last + 1], &rate, &best, error);
    }
    if (status != KVR_OK || sweep->json)
        return status;
    kvr_buffer_append_format(sweep->out, "%-*s", (int)width, policy);
    for (size_t i = 0; i < rates->count; i++)
        kvr_buffer_append_format(sweep->out, " %6.1f%%", points[i].share * 100);
    if (last == SIZE_MAX)
        kvr_buffer_append_format(sweep->out, "   below %.3g\n", rates->values[0]);
    else
        kvr_buffer_append_format(sweep->out, " %s%8.3f %10.2f %9.2f\n",
            last + 1 == rates->count ? ">=" : "  ", rate, best.per_s, best.goodput);
    return status;
}

enum kvr_status kvr_sim_sweep(
    const struct kvr_sim_sweep *sweep, const struct kvr_sim_trace *trace, struct kvr_error *error)
{
    struct policies *policies = malloc(sizeof *policies);
    struct rates rates;
    enum kvr_status status =
        policies ? read_policies(sweep, policies, error) : kvr_error_memory(error);

    if (status == KVR_OK)
        status = read_rates(sweep->rates, &rates, error);
    if (status == KVR_OK && !sweep->json) {
        kvr_buffer_append_format(sweep->out, "%-*s", (int)policies->width, "in SLO at rate");
        for (size_t i = 0; i < rates.count; i++)
            kvr_buffer_append_format(sweep->out, " %7.3g", rates.values[i]);
        kvr_buffer_append_format(
            sweep->out, " %10s %10s %9s\n", "highest", "requests/s", "goodput/s");
    }
    for (size_t i = 0; status == KVR_OK && i < policies->count; i++)
        status = sweep_policy(sweep, trace, &rates, policies->names[i], policies->width, error);
    free(policies);
    return status;
}
