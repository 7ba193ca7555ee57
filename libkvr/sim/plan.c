#include "sim/plan.h"

#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

enum { PADDING = 64 }; /* the parser may look a little past the end */

struct kvr_sim_planned {
    double time_ms;
    struct kvr_source_line source;
    char *text;
};

void kvr_sim_plan_release(struct kvr_sim_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        free(plan->lines[i].text);
    free(plan->lines);
    if (plan->line.structure)
        kvr_line_release(&plan->line);
    memset(plan, 0, sizeof *plan);
}

enum kvr_status kvr_sim_plan_add(
    struct kvr_sim_plan *plan, const struct kvr_line *line, double time_ms, struct kvr_error *error)
{
    struct kvr_sim_planned *lines =
        kvr_grow(plan->lines, &plan->size, plan->count + 1, sizeof *lines);
    char *text = calloc(1, line->object.length + PADDING);

    if (lines)
        plan->lines = lines;
    if (!lines || !text) {
        free(text);
        return kvr_error_memory(error);
    }
    memcpy(text, line->object.text, line->object.length);
    size_t at = plan->count++;
    for (; at > plan->next && lines[at - 1].time_ms > time_ms; at--)
        lines[at] = lines[at - 1];
    lines[at] = (struct kvr_sim_planned){time_ms, line->source, text};
    lines[at].source.text = text;
    lines[at].source.length = line->object.length;
    return KVR_OK;
}

enum kvr_status kvr_sim_plan_due(struct kvr_sim_plan *plan, double until_ms,
    const struct kvr_line **line, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    if (plan->next == plan->count || !(plan->lines[plan->next].time_ms <= until_ms))
        return KVR_END;
    if (!plan->line.structure)
        status = kvr_line_init(&plan->line, error);
    if (status == KVR_OK)
        status = kvr_line_parse(&plan->line, &plan->lines[plan->next].source, error);
    plan->next++;
    *line = &plan->line;
    return status;
}
