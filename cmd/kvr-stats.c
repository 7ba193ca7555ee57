/*
 * kvr-stats: what the lines say, as numbers. Counting is libkvr/stat's; here are the loop over
 * lines and the choice of renderings; the options are in stats_options.h.
 */
#include "base/clock.h"
#include "cmd/stats_options.h"
#include "net/scrape.h"
#include "stat/compare.h"
#include "stat/output.h"
#include "stat/partial.h"
#include "stat/render.h"

#include <math.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

/* All that a run holds. */
struct work {
    struct tool tool;
    struct settings settings;
    struct kvr_expression *by;
    struct kvr_alerts alerts;
    struct kvr_report *report;
    struct kvr_scraper *scraper;
    struct kvr_line scraped;
    struct kvr_compared runs[KVR_COMPARED_RUNS];
    size_t run_count;
};

static enum kvr_status read_alerts(struct work *work, struct kvr_error *error)
{
    const char *file = work->settings.alerts;
    struct kvr_buffer text = {0};

    if (!file || strcmp(file, "default") == 0)
        return kvr_alerts_read(
            &work->alerts, "default", kvr_alert_defaults, kvr_alert_defaults_length, error);
    enum kvr_status status = kvr_read_whole(file, &text, error);
    if (status == KVR_OK)
        status = kvr_alerts_read(&work->alerts, file, text.data, text.length, error);
    kvr_buffer_release(&text);
    return status;
}

static enum kvr_status make_report(
    struct work *work, struct kvr_report **report, struct kvr_error *error)
{
    const struct settings *settings = &work->settings;
    struct kvr_report_options options;
    enum kvr_status status = kvr_report_defaults(&options, error);

    if (status == KVR_OK)
        status = kvr_cost_settle(&options.cost, settings->model, settings->gpu, settings->mfu,
            settings->cost_file, error);
    if (status == KVR_OK && settings->by && !work->by)
        status = kvr_expression_create(&work->by, settings->by, error);
    if (status != KVR_OK)
        return status;
    options.by = work->by;
    options.accuracy = settings->accuracy;
    options.block_tokens = settings->block_size;
    options.window_ms = settings->window_ms;
    options.late_ms = settings->late_ms;
    options.baseline_ms = kvr_alerts_baseline_ms(&work->alerts);
    options.slo_ttft_ms = settings->slo_ttft_ms;
    options.worker_limit =
        settings->worker_limit < 1000000 ? (uint32_t)settings->worker_limit : 1000000;
    options.group_limit =
        settings->group_limit < 1000000 ? (uint32_t)settings->group_limit : 1000000;
    options.block_limit = settings->block_limit;
    options.session_limit = settings->session_limit;
    options.pending_limit = settings->pending_limit;
    options.brief = settings->brief;
    options.ceiling = !settings->no_ceiling && !settings->brief;
    options.prefixes = settings->prefixes != 0;
    return kvr_report_create(report, &options, error);
}

static void print_line(void *context, const char *json, size_t length)
{
    struct work *work = context;

    kvr_buffer_append(&work->tool.out.buffer, json, length);
    kvr_writer_line_done(&work->tool.out);
}

/* A line of the scraper: counted and passed on. */
static enum kvr_status take_scraped(void *context, const char *text, size_t length)
{
    struct work *work = context;
    struct kvr_source_line source = {.text = text, .length = length, .file = "scrape"};
    struct kvr_error error;
    enum kvr_status status = kvr_line_parse(&work->scraped, &source, &error);

    if (status == KVR_OK)
        status = kvr_report_line(work->report, &work->scraped, &error);
    print_line(context, text, length);
    return status;
}

static bool wants_rendering(const struct settings *settings)
{
    return settings->table || settings->json || settings->csv || settings->prometheus;
}

/* The renderings that were asked for; of those to standard output at most one. */
static enum kvr_status render(struct work *work, struct kvr_error *error)
{
    const struct settings *settings = &work->settings;
    struct kvr_writer *out = &work->tool.out;
    struct kvr_buffer text = {0};
    struct kvr_run_view run;
    enum kvr_status status = kvr_run_view_init(&run, work->report, error);
    struct kvr_render render = {.report = work->report,
        .run = &run,
        .alerts = work->alerts.rule_count ? &work->alerts : NULL,
        .by = settings->by,
        .prefixes = settings->prefixes < 1000 ? settings->prefixes : 1000,
        .live = settings->every_ms > 0,
        .bad_lines = work->tool.bad_lines};

    if (status == KVR_OK && settings->html) {
        status = kvr_render_html(&render, &text, error);
        if (status == KVR_OK)
            status = kvr_write_atomically(settings->html, &text, error);
        kvr_buffer_clear(&text);
    }
    if (status == KVR_OK && settings->plot) {
        status = kvr_render_gnuplot(&render, settings->plot, &text, error);
        if (status == KVR_OK)
            status = kvr_run_gnuplot(&text, error);
        kvr_buffer_clear(&text);
    }
    if (status == KVR_OK && settings->textfile) {
        kvr_render_prometheus(&render, &text);
        status = kvr_write_atomically(settings->textfile, &text, error);
    }
    if (status == KVR_OK) {
        if (settings->json) {
            kvr_render_json(&render, &out->buffer);
            kvr_writer_line_done(out);
        } else if (settings->csv) {
            kvr_render_csv(&render, &out->buffer);
        } else if (settings->prometheus) {
            kvr_render_prometheus(&render, &out->buffer);
        } else if (settings->table || !(settings->alerts || settings->scrape)) {
            if (settings->every_ms > 0 && isatty(out->descriptor))
                kvr_buffer_append_text(&out->buffer, "\033[H\033[2J");
            kvr_render_table(&render, &out->buffer);
        }
        out->whole = out->buffer.length;
    }
    kvr_run_view_release(&run);
    kvr_buffer_release(&text);
    return status;
}

/* What --every asks for, and one poll. */
static enum kvr_status poll_and_render(struct work *work, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    if (work->scraper)
        status =
            kvr_scraper_poll(work->scraper, floor(kvr_clock_wall_ms()), take_scraped, work, error);
    if (status == KVR_OK && work->settings.every_ms > 0)
        status = render(work, error);
    kvr_writer_flush(&work->tool.out);
    return status;
}

/* Nothing but polls, every so often. */
static enum kvr_status scrape(struct work *work, struct kvr_error *error)
{
    double every_ms = work->settings.every_ms > 0 ? work->settings.every_ms : 5000;
    enum kvr_status status = KVR_OK;

    for (uint64_t poll = 1; status == KVR_OK && !tool_interrupted(); poll++) {
        double due_ms = kvr_clock_ms() + every_ms;
        status = poll_and_render(work, error);
        if (work->tool.out.closed || (work->settings.polls && poll >= work->settings.polls))
            break;
        while (!tool_interrupted() && kvr_clock_ms() < due_ms) {
            double left_ms = fmin(due_ms - kvr_clock_ms(), 100);
            usleep((useconds_t)(fmax(left_ms, 0.1) * 1e3));
        }
    }
    return status;
}

/* The lines of all files into one report. */
static enum kvr_status read_lines(struct work *work, struct kvr_error *error)
{
    struct tool *tool = &work->tool;
    enum kvr_status status = KVR_OK;

    for (;;) {
        enum tool_result result = tool_next(tool);
        if (result == TOOL_END)
            return KVR_OK;
        if (result == TOOL_SIGNAL) {
            if (tool_signalled(SIGALRM))
                status = poll_and_render(work, error);
        } else if (work->settings.merge) {
            status = kvr_partial_merge(work->report, &tool->line, work->settings.by, error);
        } else {
            status = kvr_report_line(work->report, &tool->line, error);
        }
        if (status == KVR_BAD_INPUT)
            tool_bad_line(tool, error);
        else if (status != KVR_OK)
            return status;
    }
}

/* A run for every operand, also for one without lines. */
static enum kvr_status make_runs(struct work *work, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    if (work->tool.operand_count > KVR_COMPARED_RUNS)
        return kvr_error_set(error, KVR_BAD_USAGE, "more than %d runs", KVR_COMPARED_RUNS);
    while (work->run_count < work->tool.operand_count && status == KVR_OK) {
        struct kvr_compared *run = &work->runs[work->run_count];
        run->name = work->tool.operands[work->run_count++];
        if (strcmp(run->name, "-") == 0)
            run->name = "stdin";
        status = make_report(work, &run->report, error);
        if (status == KVR_OK)
            status = kvr_replicates_watch(&run->replicates, run->report, error);
    }
    return status;
}

/* Whether the line comes from the run's operand. Names are kept by pointer, so that a file that is
 * named twice is two runs. */
static bool comes_from(const struct kvr_compared *run, const struct kvr_source_line *line)
{
    return line->file == run->name ||
           (strcmp(run->name, "stdin") == 0 && strcmp(line->file, "stdin") == 0);
}

/* One report a file; they are read in their order. */
static enum kvr_status read_runs(struct work *work, struct kvr_error *error)
{
    struct tool *tool = &work->tool;
    size_t at = 0;

    enum kvr_status status = make_runs(work, error);
    while (status == KVR_OK && tool_next(tool) == TOOL_LINE) {
        while (at + 1 < work->run_count && !comes_from(&work->runs[at], &tool->line.source))
            at++;
        status = kvr_report_line(work->runs[at].report, &tool->line, error);
        if (status == KVR_BAD_INPUT) {
            tool_bad_line(tool, error);
            status = KVR_OK;
        }
    }
    return status;
}

static enum kvr_status compare_runs(struct work *work, struct kvr_error *error)
{
    const struct kvr_metric *metrics[64];
    struct kvr_writer *out = &work->tool.out;

    if (work->tool.operand_count < 2)
        return kvr_error_set(error, KVR_BAD_USAGE, "--compare needs two files or more");
    if (work->tool.settings.merge.count)
        return kvr_error_set(error, KVR_BAD_USAGE, "--compare takes its runs as files, not by -m");
    enum kvr_status status = kvr_metrics_read(work->settings.metrics, metrics, 64, error);
    if (status == KVR_OK)
        status = read_runs(work, error);
    if (work->tool.unopened) /* nothing can be said of a run that could not be read */
        return status;
    for (size_t i = 0; i < work->run_count && status == KVR_OK; i++) {
        status = kvr_report_finish(work->runs[i].report, error);
        if (status == KVR_OK)
            status = kvr_run_view_init(&work->runs[i].run, work->runs[i].report, error);
    }
    if (status != KVR_OK || !work->run_count)
        return status;
    kvr_render_compared(work->runs, work->run_count, metrics, work->settings.json, &out->buffer);
    if (work->settings.json)
        kvr_writer_line_done(out);
    out->whole = out->buffer.length;
    return KVR_OK;
}

static void wake_every(double ms)
{
    struct itimerval timer = {
        .it_interval = {(time_t)(ms / 1e3), (suseconds_t)fmod(ms * 1e3, 1e6)}};

    timer.it_value = timer.it_interval;
    tool_catch(SIGALRM);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static enum kvr_status report_stream(struct work *work, struct kvr_error *error)
{
    const struct settings *settings = &work->settings;
    enum kvr_status status = KVR_OK;

    if (settings->alerts || settings->exit_alert)
        status = read_alerts(work, error);
    if (status == KVR_OK)
        status = make_report(work, &work->report, error);
    if (status == KVR_OK && work->alerts.rule_count) {
        status = kvr_alerts_watch(&work->alerts, work->report, error);
        if (settings->alerts) {
            work->alerts.emit = print_line;
            work->alerts.context = work;
        }
    }
    if (status == KVR_OK && settings->scrape)
        status = kvr_scraper_create(&work->scraper, settings->scrape, 4000, error);
    if (status == KVR_OK && settings->scrape)
        status = kvr_line_init(&work->scraped, error);
    bool only_polls =
        settings->scrape && !work->tool.operand_count && !work->tool.settings.merge.count;
    double every_ms = settings->scrape && !(settings->every_ms > 0) ? 5000 : settings->every_ms;
    if (status == KVR_OK && only_polls) {
        status = scrape(work, error);
    } else if (status == KVR_OK) {
        if (every_ms > 0)
            wake_every(every_ms);
        status = read_lines(work, error);
        if (every_ms > 0)
            wake_every(0);
    }
    if (status == KVR_OK && tool_opened_nothing(&work->tool) && !settings->scrape)
        return KVR_OK;
    if (status == KVR_OK)
        status = kvr_report_finish(work->report, error);
    if (status == KVR_OK && settings->merge && !settings->partial)
        status = kvr_partial_settle(work->report, error);
    if (status != KVR_OK)
        return status;
    if (!settings->partial)
        return render(work, error);
    kvr_partial_write(work->report, settings->by, &work->tool.out.buffer);
    kvr_writer_line_done(&work->tool.out);
    return KVR_OK;
}

static enum kvr_status check_settings(const struct settings *settings, struct kvr_error *error)
{
    if (settings->table + settings->json + settings->csv + settings->prometheus > 1)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "only one of --table, --json, --csv, --prom at a time");
    if (settings->partial + settings->compare > 1 || settings->merge + settings->compare > 1)
        return kvr_error_set(error, KVR_BAD_USAGE, "--compare reads runs, not partials");
    if ((settings->merge || settings->compare) && settings->scrape)
        return kvr_error_set(error, KVR_BAD_USAGE, "--scrape and reading partials do not mix");
    if ((settings->partial || settings->merge || settings->compare) &&
        (settings->alerts || settings->exit_alert))
        return kvr_error_set(error, KVR_BAD_USAGE, "alerts need the whole stream in order");
    if (settings->partial && wants_rendering(settings))
        return kvr_error_set(error, KVR_BAD_USAGE, "--partial is no report: render with --merge");
    if (settings->brief &&
        (settings->alerts || settings->exit_alert || settings->prefixes || settings->partial ||
            settings->merge || settings->html || settings->plot))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--brief keeps too little for alerts, prefixes, partials and plots");
    if (settings->every_ms > 0 && settings->every_ms < 10)
        return kvr_error_set(error, KVR_BAD_USAGE, "--every is shorter than 10 ms");
    return KVR_OK;
}

static void release(struct work *work)
{
    for (size_t i = 0; i < work->run_count; i++) {
        kvr_run_view_release(&work->runs[i].run);
        kvr_replicates_release(&work->runs[i].replicates);
        kvr_report_destroy(work->runs[i].report);
    }
    kvr_report_destroy(work->report);
    kvr_scraper_destroy(work->scraper);
    if (work->scraped.structure)
        kvr_line_release(&work->scraped);
    kvr_alerts_release(&work->alerts);
    kvr_expression_destroy(work->by);
}

int main(int argc, char **argv)
{
    static struct work work;
    struct kvr_error error = {0};
    const struct kvr_option_group groups[] = {{"Measures", measure_options, &work.settings},
        {"Cost", cost_options, &work.settings}, {"Renderings", render_options, &work.settings},
        {"Scraping", scrape_options, &work.settings}, {"Alerts", alert_options, &work.settings},
        {"Parts and comparisons", parts_options, &work.settings},
        {"Limits", limit_options, &work.settings}, {0}};
    int begun = tool_begin(&work.tool, &program, groups, argc, argv);

    if (begun >= 0)
        return begun;
    enum kvr_status status = check_settings(&work.settings, &error);
    const char *metrics = work.settings.metrics;
    if (metrics && (strcmp(metrics, "help") == 0 || strcmp(metrics, "scdoc") == 0)) {
        kvr_metrics_describe(*metrics == 's', &work.tool.out.buffer);
        work.tool.out.whole = work.tool.out.buffer.length;
        return tool_end(&work.tool);
    }
    if (status == KVR_OK)
        status = work.settings.compare ? compare_runs(&work, &error) : report_stream(&work, &error);
    if (status != KVR_OK)
        tool_fail(&work.tool, &error);
    bool alerted = work.settings.exit_alert && work.alerts.fired;
    release(&work);
    int ended = tool_end(&work.tool);
    return alerted && ended == 0 ? 4 : ended;
}
