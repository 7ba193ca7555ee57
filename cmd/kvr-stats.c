/*
 * kvr-stats: what the lines say, as numbers. Counting is libkvr/stat's; here are the options, the
 * loop over lines, and the choice of renderings.
 */
#include "cmd/tool.h"
#include "stat/render.h"

#include <stdio.h>

struct settings {
    uint64_t block_size, prefixes, worker_limit, group_limit, block_limit, session_limit,
        pending_limit;
    double accuracy, window_ms, late_ms, slo_ttft_ms, mfu;
    const char *by, *model, *gpu, *cost_file;
    bool no_ceiling, table, json, csv, prometheus;
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
        "how far a line may lag behind the newest and still count in its window", "5s", NULL},
    {0, "accuracy", KVR_OPTION_REAL, AT(accuracy), "SHARE", "relative error of the quantiles",
        "0.01", NULL},
    {0, "prefixes", KVR_OPTION_COUNT, AT(prefixes), "N",
        "lists the N best shared prefixes, and the reuse distance (costs a tree of all blocks)",
        "0", NULL},
    {0, "no-ceiling", KVR_OPTION_FLAG, AT(no_ceiling), NULL,
        "does not look at block ids: no ceiling, less memory", NULL, NULL},
    TOOL_OPTION_BLOCK_SIZE(struct settings, "512"),
    {0},
};

static const struct kvr_option cost_options[] = {
    {0, "model", KVR_OPTION_TEXT, AT(model), "MODEL",
        "the model whose prefill time is saved, see kvr-cost(5)", KVR_COST_DEFAULT_MODEL, NULL},
    {0, "gpu", KVR_OPTION_TEXT, AT(gpu), "GPU", "a worker's GPUs, as h100 or 8xh100",
        KVR_COST_DEFAULT_GPU, NULL},
    {0, "mfu", KVR_OPTION_REAL, AT(mfu), "SHARE",
        "share of the GPU's peak that a prefill reaches; 0: the preset's", "0", NULL},
    {0, "cost", KVR_OPTION_TEXT, AT(cost_file), "FILE",
        "a cost file, as kvr-prefill --calibrate writes it", NULL, "<file>"},
    {0},
};

static const struct kvr_option render_options[] = {
    {0, "table", KVR_OPTION_FLAG, AT(table), NULL, "a table for people (the default)", NULL, NULL},
    {0, "json", KVR_OPTION_FLAG, AT(json), NULL, "one JSON object", NULL, NULL},
    {0, "csv", KVR_OPTION_FLAG, AT(csv), NULL, "scope,name,metric,unit,value", NULL, NULL},
    {0, "prom", KVR_OPTION_FLAG, AT(prometheus), NULL, "the Prometheus text format", NULL, NULL},
    {0},
};

static const struct kvr_option limit_options[] = {
    {0, "max-workers", KVR_OPTION_COUNT, AT(worker_limit), "N",
        "further workers count as one, (other)", "1023", NULL},
    {0, "max-groups", KVR_OPTION_COUNT, AT(group_limit), "N",
        "further values of --by count as one, (other)", "1000", NULL},
    {0, "max-blocks", KVR_OPTION_COUNT, AT(block_limit), "N",
        "with more different blocks the ceiling is left out", "16777216", NULL},
    {0, "max-sessions", KVR_OPTION_COUNT, AT(session_limit), "N",
        "further sessions are neither new nor continued", "4194304", NULL},
    {0, "max-pending", KVR_OPTION_COUNT, AT(pending_limit), "N",
        "requests that wait for their done line", "1048576", NULL},
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
    .examples = "kvr-match -w 8 trace.jsonl | kvr-route | kvr-stats\n"
                "kvr-stats --json --by .model access.ndjson\n",
};

static enum kvr_status make_report(const struct settings *settings, struct kvr_expression **by,
    struct kvr_report **report, struct kvr_error *error)
{
    struct kvr_report_options options;
    enum kvr_status status = kvr_report_defaults(&options, error);

    if (status == KVR_OK)
        status =
            kvr_cost_preset(&options.cost, settings->model, settings->gpu, settings->mfu, error);
    if (status == KVR_OK && settings->cost_file)
        status = kvr_cost_load(&options.cost, settings->cost_file, error);
    if (status == KVR_OK && settings->by)
        status = kvr_expression_create(by, settings->by, error);
    if (status != KVR_OK)
        return status;
    options.by = *by;
    options.accuracy = settings->accuracy;
    options.block_tokens = settings->block_size;
    options.window_ms = settings->window_ms;
    options.late_ms = settings->late_ms;
    options.slo_ttft_ms = settings->slo_ttft_ms;
    options.worker_limit =
        settings->worker_limit > 1000000 ? 1000000 : (uint32_t)settings->worker_limit;
    options.group_limit =
        settings->group_limit > 1000000 ? 1000000 : (uint32_t)settings->group_limit;
    options.block_limit = settings->block_limit;
    options.session_limit = settings->session_limit;
    options.pending_limit = settings->pending_limit;
    options.ceiling = !settings->no_ceiling;
    options.prefixes = settings->prefixes != 0;
    return kvr_report_create(report, &options, error);
}

int main(int argc, char **argv)
{
    static struct settings settings;
    struct kvr_expression *by = NULL;
    struct kvr_report *report = NULL;
    struct kvr_run_view run = {0};
    struct kvr_error error = {0};
    struct tool tool;
    const struct kvr_option_group groups[] = {{"Measures", measure_options, &settings},
        {"Cost", cost_options, &settings}, {"Renderings", render_options, &settings},
        {"Limits", limit_options, &settings}, {0}};
    int begun = tool_begin(&tool, &program, groups, argc, argv);

    if (begun >= 0)
        return begun;
    if (make_report(&settings, &by, &report, &error) != KVR_OK) {
        tool_fail(&tool, &error);
        return tool_end(&tool);
    }
    while (tool_next(&tool) == TOOL_LINE) {
        enum kvr_status status = kvr_report_line(report, &tool.line, &error);
        if (status == KVR_BAD_INPUT) {
            tool_bad_line(&tool, &error);
        } else if (status != KVR_OK) {
            tool_fail(&tool, &error);
            break;
        }
    }
    if (kvr_report_finish(report, &error) != KVR_OK ||
        kvr_run_view_init(&run, report, &error) != KVR_OK)
        tool_fail(&tool, &error);
    struct kvr_render render = {.report = report,
        .run = &run,
        .by = settings.by,
        .prefixes = settings.prefixes,
        .bad_lines = tool.bad_lines};
    if (settings.json) {
        kvr_render_json(&render, &tool.out.buffer);
        kvr_writer_line_done(&tool.out);
    } else {
        kvr_render_table(&render, &tool.out.buffer);
        tool.out.whole = tool.out.buffer.length;
    }
    kvr_run_view_release(&run);
    kvr_report_destroy(report);
    kvr_expression_destroy(by);
    return tool_end(&tool);
}
