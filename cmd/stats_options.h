/* The options of kvr-stats: its settings, and the tables that help and manual are made of. */
#ifndef KVR_CMD_STATS_OPTIONS_H
#define KVR_CMD_STATS_OPTIONS_H

#include "cmd/routing.h"
#include "cmd/tool.h"

struct settings {
    uint64_t block_size, prefixes, worker_limit, group_limit, block_limit, session_limit,
        pending_limit;
    double accuracy, window_ms, late_ms, slo_ttft_ms, mfu, every_ms;
    const char *by, *model, *gpu, *cost_file, *alerts, *metrics;
    const char *html, *plot, *textfile, *scrape;
    uint64_t polls;
    bool brief, no_ceiling, table, json, csv, prometheus, exit_alert, partial, merge, compare;
};

#define AT(member) offsetof(struct settings, member)

static const struct kvr_option measure_options[] = {
    {0, "by", KVR_OPTION_TEXT, AT(by), "EXPRESSION",
        "splits the numbers by the value of a jq expression, as .model or '.route.reason'", NULL,
        NULL},
    {0, "slo-ttft", KVR_OPTION_TIME_MS, AT(slo_ttft_ms), "TIME",
        "the TTFT bound of goodput; a line's own slo_ttft_ms comes first", NULL, NULL},
    {0, "window", KVR_OPTION_TIME_MS, AT(window_ms), "TIME",
        "length of the sliding windows, in event time", "60s", NULL},
    {0, "late", KVR_OPTION_TIME_MS, AT(late_ms), "TIME",
        "how far a line may lag behind the newest and still count in its window", "30s", NULL},
    {0, "accuracy", KVR_OPTION_REAL, AT(accuracy), "SHARE", "relative error of the quantiles",
        "0.01", NULL},
    {0, "prefixes", KVR_OPTION_COUNT, AT(prefixes), "N",
        "lists the N best shared prefixes, and the reuse distance (costs a tree of all blocks)",
        "0", NULL},
    {0, "brief", KVR_OPTION_FLAG, AT(brief), NULL,
        "only hit rate, prefill time saved, TTFT and work, in all and by worker: reads no match "
        "and "
        "no block ids, keeps no windows",
        NULL, NULL},
    {0, "no-ceiling", KVR_OPTION_FLAG, AT(no_ceiling), NULL,
        "does not look at block ids: no ceiling, less memory", NULL, NULL},
    TOOL_OPTION_BLOCK_SIZE(struct settings, "512"),
    {0},
};

static const struct kvr_option cost_options[] = {
    COST_OPTIONS(struct settings),
    {0},
};

static const struct kvr_option render_options[] = {
    {0, "table", KVR_OPTION_FLAG, AT(table), NULL, "a table for people (the default)", NULL, NULL},
    {0, "json", KVR_OPTION_FLAG, AT(json), NULL, "one JSON object", NULL, NULL},
    {0, "csv", KVR_OPTION_FLAG, AT(csv), NULL, "scope,name,metric,unit,value", NULL, NULL},
    {0, "prom", KVR_OPTION_FLAG, AT(prometheus), NULL, "the Prometheus text format", NULL, NULL},
    {0, "textfile", KVR_OPTION_TEXT, AT(textfile), "FILE",
        "writes the Prometheus format to a file, whole or not at all, as node_exporter's textfile "
        "collector wants it",
        NULL, "<file>"},
    {0, "html", KVR_OPTION_TEXT, AT(html), "FILE", "writes one self-contained page with plots",
        NULL, "<file>"},
    {0, "plot", KVR_OPTION_TEXT, AT(plot), "FILE", "draws the plots with gnuplot: .png or .svg",
        NULL, "<file>"},
    {0, "every", KVR_OPTION_TIME_MS, AT(every_ms), "TIME",
        "renders again and again while lines come; the interval of --scrape, 5s there", NULL, NULL},
    {0},
};

static const struct kvr_option scrape_options[] = {
    {0, "scrape", KVR_OPTION_TEXT, AT(scrape), "URL,...",
        "polls the /metrics pages of workers (host:port, a URL, or name=URL), prints load lines "
        "and "
        "counts them; without FILE reads no other input",
        NULL, NULL},
    {0, "polls", KVR_OPTION_COUNT, AT(polls), "N", "ends after N polls; 0: when interrupted", "0",
        NULL},
    {0},
};

static const struct kvr_option alert_options[] = {
    {0, "alerts", KVR_OPTION_TEXT, AT(alerts), "FILE",
        "prints an alert line whenever a rule of the file fires or clears; default: the rules that "
        "kvr comes with. A report follows only where a rendering is asked for",
        NULL, "default|*"},
    {0, "exit-alert", KVR_OPTION_FLAG, AT(exit_alert), NULL,
        "ends with status 4 when an alert fired; without --alerts by the default rules", NULL,
        NULL},
    {0},
};

static const struct kvr_option parts_options[] = {
    {0, "partial", KVR_OPTION_FLAG, AT(partial), NULL,
        "prints the state as one line that --merge reads, instead of a report", NULL, NULL},
    {0, "merge", KVR_OPTION_FLAG, AT(merge), NULL, "reads partials and reports their sum", NULL,
        NULL},
    {0, "compare", KVR_OPTION_FLAG, AT(compare), NULL,
        "reports each file as a run of its own, side by side, and whether differences exceed the "
        "noise",
        NULL, NULL},
    {0, "metrics", KVR_OPTION_TEXT, AT(metrics), "NAME,...",
        "the metrics that --compare shows; help tells all about them", NULL, "help|*"},
    {0},
};

static const struct kvr_option limit_options[] = {
    {0, "max-workers", KVR_OPTION_COUNT, AT(worker_limit), "N",
        "further workers count as one, (other)", "1023", NULL},
    {0, "max-groups", KVR_OPTION_COUNT, AT(group_limit), "N",
        "further values of --by count as one, (other)", "1000", NULL},
    {0, "max-blocks", KVR_OPTION_COUNT, AT(block_limit), "N",
        "with more different blocks the ceiling is left out", "8000000", NULL},
    {0, "max-sessions", KVR_OPTION_COUNT, AT(session_limit), "N",
        "further sessions are neither new nor continued", "4194304", NULL},
    {0, "max-pending", KVR_OPTION_COUNT, AT(pending_limit), "N",
        "requests that wait for their done line", "262144", NULL},
    {0},
};

static const struct kvr_program program = {
    .name = "kvr-stats",
    .summary = "what request and event lines say: hit rates, latencies, alerts, plots",
    .operands = "[FILE...]",
    .description =
        "Reads request and event lines, kvr's own or foreign logs (--from), and answers: is the "
        "cache working, is routing shattering it, who is hurt, what to change. Every metric is "
        "defined in kvr-stats(1).",
    .examples =
        "mkfifo loop; kvr-match -w 8 --loop loop trace.jsonl | kvr-route | tee loop | kvr-stats\n"
        "kvr-stats --json --by .model access.jsonl\n",
};

#undef AT

#endif
