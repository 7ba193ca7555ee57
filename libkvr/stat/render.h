/*
 * A finished report as text. All renderings show the same metrics by the same names
 * (stat/metrics.h); a number that is not known is left out, null or empty, never 0.
 */
#ifndef KVR_STAT_RENDER_H
#define KVR_STAT_RENDER_H

#include "stat/alert.h"
#include "stat/metrics.h"

struct kvr_render {
    const struct kvr_report *report;
    const struct kvr_run_view *run;
    const struct kvr_alerts *alerts; /* NULL: no rules */
    const char *by;                  /* text of the --by expression; NULL: none */
    size_t prefixes;                 /* how many of the top prefixes */
    bool live;                       /* the stream goes on: the table shows its last window too */
    uint64_t bad_lines;
};

/* For people: sections with bars, at most 100 columns. */
void kvr_render_table(const struct kvr_render *render, struct kvr_buffer *out);

/* One JSON object without a newline. */
void kvr_render_json(const struct kvr_render *render, struct kvr_buffer *out);

/* scope,name,metric,unit,value: one row a number. */
void kvr_render_csv(const struct kvr_render *render, struct kvr_buffer *out);

/* The Prometheus text exposition format. */
void kvr_render_prometheus(const struct kvr_render *render, struct kvr_buffer *out);

/* A self-contained page with the plots as inline SVG, light or dark as its reader prefers. */
enum kvr_status kvr_render_html(
    const struct kvr_render *render, struct kvr_buffer *out, struct kvr_error *error);

/* A gnuplot script with its data that draws the same plots into `file` (.png or .svg).
 * KVR_BAD_USAGE for another suffix. */
enum kvr_status kvr_render_gnuplot(const struct kvr_render *render, const char *file,
    struct kvr_buffer *out, struct kvr_error *error);

/* What renderings share: quantiles that are shown, and the bounds of the match-length histogram. */
extern const double kvr_render_quantiles[];
extern const size_t kvr_render_quantile_count;

/* A histogram of the reused tokens: bounds are 0 and powers of two from 64 on. */
struct kvr_match_bar {
    double until; /* tokens; the bar counts values above the bar before */
    uint64_t count;
};
enum { KVR_MATCH_BARS = 24 };
size_t kvr_render_match_bars(const struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale,
    struct kvr_match_bar bars[KVR_MATCH_BARS]);

/* The window that ends with the newest pane, into an empty pane; its view, whose loads are scratch,
 * KVR_PANE_WORKERS of them. False when there is no timestamp yet, or memory is short. */
bool kvr_last_window(const struct kvr_report *report, struct kvr_pane *sum,
    struct kvr_worker_load *scratch, struct kvr_view *view);

/*
 * How far match lengths moved: the first tenth of the history against the last one. distance is the
 * largest difference of the two distribution functions (Kolmogorov and Smirnov's), from 0, the
 * same, to 1. False when the history is too short or a side has fewer than 20 requests.
 */
struct kvr_drift {
    double before_p50, after_p50, distance;
};
bool kvr_match_drift(const struct kvr_report *report, struct kvr_drift *drift);

/* The distribution function of a sketch as at most `most` points with rising values. */
struct kvr_cdf_point {
    double value, share; /* this share of the values is at most value */
};
size_t kvr_render_cdf(const struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale,
    struct kvr_cdf_point *points, size_t most);

/* Where a logarithmic TTFT axis begins: what 99.9 % of the requests exceed. */
double kvr_render_cdf_start(const struct kvr_view *view);

/* The history cut into at most `most` steps of equal length, for plots. */
struct kvr_render_step {
    double start; /* in units of the axis since the first timestamp */
    double hit_rate, request_rate;
};
struct kvr_timeline {
    struct kvr_render_step *steps;
    double *heat; /* step · worker_count + worker: from 0 to 1, NaN: nothing known */
    size_t step_count;
    uint32_t worker_count;      /* of the heat map: the first workers by name */
    const char *heat_text;      /* what the heat is */
    const char *unit;           /* "s", "min" or "h" */
    double step_length, length; /* in that unit */
};
enum { KVR_HEAT_WORKERS = 48 };
enum kvr_status kvr_timeline_make(struct kvr_timeline *timeline, const struct kvr_render *render,
    size_t most, struct kvr_error *error);
void kvr_timeline_release(struct kvr_timeline *timeline);

/* A name that fits into so many characters (at most 60): its begin and its end around an ellipsis
 * where it is longer, since names of a fleet differ at their ends. */
enum { KVR_SHORT_NAME_BYTES = 256 };
void kvr_render_short_name(char text[KVR_SHORT_NAME_BYTES], const char *name, unsigned characters);

/* The three measures that are split by new and continued, and the three kinds. */
struct kvr_latency {
    enum kvr_sketch_name first;
    const char *name; /* "ttft_ms" */
    const char *text; /* "TTFT" */
};
extern const struct kvr_latency kvr_latencies[3];
extern const char *const kvr_kind_names[KVR_KIND_COUNT];

#endif
