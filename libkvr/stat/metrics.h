/*
 * The metrics: every number that kvr-stats reports, as one table. A metric is a name, a unit, a
 * sentence, a formula, and a way to compute it from a view: a tally, the time that it covers and
 * the loads of its workers. The run, a worker, a group and a window are all views, so a metric
 * means the same in a table, in --json, in --prom, in --compare and in an alert rule, and the
 * manual page prints this table.
 */
#ifndef KVR_STAT_METRICS_H
#define KVR_STAT_METRICS_H

#include "stat/report.h"

struct kvr_view {
    const struct kvr_sketch_scale *scale;
    const struct kvr_tally *tally;
    double span_ms;                      /* NaN or 0: unknown, rates are NaN */
    const struct kvr_worker_load *loads; /* of the workers that take part, one after the other */
    uint32_t load_count;
};

enum kvr_metric_kind {
    KVR_METRIC_COUNT,        /* counter a */
    KVR_METRIC_SHARE,        /* counter a / counter b */
    KVR_METRIC_RATE,         /* counter a / s */
    KVR_METRIC_MS,           /* counter a, microseconds, in ms */
    KVR_METRIC_QUANTILE,     /* quantile q of sketch a */
    KVR_METRIC_QUANTILE_ALL, /* of the sketches of all kinds from a on */
    KVR_METRIC_FUNCTION,
};

struct kvr_metric {
    const char *name;
    const char *unit; /* as in "ms", "tokens", "1/s"; "ratio" for a share; "" for a plain count */
    int better;       /* 1: more is better, -1: less is, 0: neither */
    enum kvr_metric_kind kind;
    int a, b;
    double q;
    double (*function)(const struct kvr_view *view);
    const char *definition; /* one sentence */
    const char *formula;
};

extern const struct kvr_metric kvr_metrics[];
extern const size_t kvr_metric_count;

/* NULL where there is none. */
const struct kvr_metric *kvr_metric_find(const char *name, size_t length);

/* Its value; NaN where the view cannot say. */
double kvr_metric_value(const struct kvr_metric *metric, const struct kvr_view *view);

/* The same by name; NaN for an unknown name. */
double kvr_metric_named(const struct kvr_view *view, const char *name);

/* Appends what every metric means: for people, or as items of a scdoc manual page. */
void kvr_metrics_describe(bool scdoc, struct kvr_buffer *out);

/* Whether it needs the sketches of a tally. */
static inline bool kvr_metric_needs_sketches(const struct kvr_metric *metric)
{
    return metric->kind >= KVR_METRIC_QUANTILE;
}

/* How evenly `count` amounts are spread: max / mean, standard deviation / mean, and Jain's index
 * (Σx)² / (n·Σx²), which is 1 when all are equal and 1/n when one has all (Jain, Chiu and Hawe,
 * DEC-TR-301, 1984). NaN when there is nothing. */
struct kvr_spread {
    double max_over_mean, variation, jain;
};
struct kvr_spread kvr_spread(const double *amounts, size_t count);

/* ---- views ---- */

/* A view of a finished report and what it points to. */
struct kvr_run_view {
    struct kvr_view view;
    struct kvr_tally total;
    struct kvr_worker_load *loads;
    uint32_t *load_workers; /* the worker of each load, in the order of names */
};

enum kvr_status kvr_run_view_init(
    struct kvr_run_view *run, const struct kvr_report *report, struct kvr_error *error);
void kvr_run_view_release(struct kvr_run_view *run);

/* One worker, or one group, of a report: only its tally is its own. */
struct kvr_view kvr_view_worker(
    const struct kvr_run_view *run, const struct kvr_report *report, uint32_t load);
struct kvr_view kvr_view_tally(const struct kvr_run_view *run, const struct kvr_tally *tally);

/* The sum of some panes; scratch receives the loads and lives as long as the view. */
struct kvr_view kvr_view_pane(const struct kvr_report *report, const struct kvr_pane *pane,
    double span_ms, struct kvr_worker_load *scratch);

#endif
