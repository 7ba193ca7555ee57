/* What a report cannot say, by name. */
#include "stat/report.h"

void kvr_report_left_out(const struct kvr_report *report,
    void (*each)(void *context, const char *name, const char *why), void *context)
{
    const struct kvr_report_options *options = &report->options;
    const char *merged = report->left_out.data;

    if (options->brief) {
        each(context, "ceiling, regret, match lengths, kinds, other latencies, windows",
            "not asked for (--brief)");
        return;
    }
    if (report->ceiling.full)
        each(context, "ceiling", "more different blocks than --max-blocks");
    if (report->ceiling.full && report->ceiling_stands_in)
        each(context, "best_token_hit_rate and regret", "without match they stand on the ceiling");
    if (!options->ceiling && !report->merged_parts)
        each(context, "ceiling", "not asked for (--no-ceiling)");
    if (options->prefixes && report->prefixes.full)
        each(context, "prefixes", "more different blocks than --max-blocks");
    if (report->sessions_full)
        each(context, "kind of conversation", "more sessions than --max-sessions");
    if (report->residents_full)
        each(context, "occupancy and eviction age", "more stored blocks than --max-blocks");
    if (report->forgotten)
        each(context, "outcome of some requests",
            "more were waiting for their done line than --max-pending");
    for (size_t at = 0; at < report->left_out.length;) {
        const char *name = merged + at, *why = name + strlen(name) + 1;
        each(context, name, why);
        at = (size_t)(why + strlen(why) + 1 - merged);
    }
}
