/*
 * kvr-route: reads request lines, decides which worker gets each, and adds `route`. The decisions
 * are libkvr/route's; here are the options and the loop over lines.
 */
#include "cmd/routing.h"
#include "cmd/tool.h"
#include "cost/explain.h"
#include "route/explain.h"
#include "route/stream.h"

#include <stdio.h>

enum { NOWHERE_REQUESTS = 100 }; /* so many without any worker: the user must know */

struct settings {
    struct routing_settings routing;
    const char *workers, *model, *gpu, *cost_file;
    uint64_t block_size, tokens;
    bool explain_cost;
    double mfu;
};

#define AT(member) offsetof(struct settings, member)

static const struct kvr_option routing_options[] = {
    TOOL_OPTION_WORKERS(struct settings),
    {0, "policy", KVR_OPTION_TEXT, AT(routing.policy), "CHAIN",
        "policies asked in turn, as 'session(ttl=10m) > cost'; 'list' lists them, 'help' tells all "
        "about them",
        KVR_ROUTE_DEFAULT_POLICY, KVR_ROUTE_POLICY_NAMES "|list|help|*"},
    ROUTING_OPTIONS_ESCAPE(struct settings),
    {0, "slo-ttft", KVR_OPTION_TIME_MS, AT(routing.slo_ttft_ms), "TIME",
        "rejects a request whose predicted time to first token is longer; its own slo_ttft_ms "
        "comes "
        "first",
        NULL, NULL},
    {0, "slo-tbt", KVR_OPTION_TIME_MS, AT(routing.slo_tbt_ms), "TIME",
        "rejects a request whose predicted time between tokens is longer", NULL, NULL},
    ROUTING_OPTION_REJECT_PRIORITY(struct settings),
    ROUTING_OPTION_PULL(struct settings),
    ROUTING_OPTIONS_LINK(struct settings),
    ROUTING_OPTIONS_PATIENCE(struct settings),
    ROUTING_OPTION_OUTPUT_TOKENS(struct settings),
    ROUTING_OPTION_SESSION(struct settings),
    TOOL_OPTION_BLOCK_SIZE(struct settings, "512"),
    ROUTING_OPTIONS_END(struct settings),
    {0},
};

static const struct kvr_option cost_options[] = {
    COST_OPTIONS(struct settings),
    {0, "explain-cost", KVR_OPTION_FLAG, AT(explain_cost), NULL,
        "prints what the cost model says of a prompt, and ends", NULL, NULL},
    {'n', "tokens", KVR_OPTION_COUNT, AT(tokens), "TOKENS", "the prompt of --explain-cost", "4096",
        NULL},
    {0},
};

static const struct kvr_program program = {
    .name = "kvr-route",
    .summary = "choose a worker for each request, and say why",
    .operands = "[FILE...]",
    .description =
        "Adds `route` to every request line: the worker, the reason, and the prediction. Reads "
        "`match` (kvr-match) where a line has it; acts on worker, load and done lines; passes "
        "everything on. Request lines from -m that are routed already are another router's "
        "placements: learned, not passed on.",
    .examples = "mkfifo loop; kvr-match -w 8 --loop loop trace.jsonl | kvr-route | tee loop\n"
                "kvr-route -w 4 --policy 'session(ttl=30m) > least-loaded' requests.jsonl\n"
                "kvr-route --explain-cost --model llama-3.1-70b --gpu 8xh100 -n 4096\n",
};

static enum kvr_status make_router(const struct settings *settings, const struct kvr_cost *cost,
    struct kvr_router **router, struct kvr_error *error)
{
    struct kvr_router_options options = kvr_router_defaults();
    enum kvr_status status = routing_read(&settings->routing, &options, error);

    if (status != KVR_OK)
        return status;
    return kvr_router_create(&options, cost, router, error);
}

static enum kvr_status add_worker(
    void *context, const struct kvr_worker_description *worker, struct kvr_error *error)
{
    return kvr_route_worker(context, worker, true, true, error);
}

static enum kvr_status make_reader(const struct settings *settings, const struct kvr_cost *cost,
    struct kvr_router *router, struct kvr_route_reader *reader, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    if (settings->block_size == 0 || settings->block_size > UINT32_MAX)
        return kvr_error_set(error, KVR_BAD_USAGE, "--block-size is out of range");
    *reader = (struct kvr_route_reader){
        .fleet = kvr_router_fleet(router),
        .block_tokens = (uint32_t)settings->block_size,
        .kv_bytes_per_token = cost->kv_bytes_per_token,
        .reads_blocks = kvr_router_reads_blocks(router),
    };
    if (settings->routing.session)
        status =
            kvr_expression_create(&reader->session.expression, settings->routing.session, error);
    if (status == KVR_OK && settings->workers)
        status = kvr_workers_each(settings->workers, add_worker, reader, error);
    return status;
}

/* What a request line becomes. Statuses other than KVR_OK and KVR_BAD_INPUT end the program. */
static enum kvr_status route_line(struct tool *tool, struct kvr_router *router,
    struct kvr_route_reader *reader, bool explain, struct kvr_error *error)
{
    static const enum kvr_name dropped[] = {KVR_NAME_ROUTE};
    struct kvr_route_request request;
    struct kvr_route_decision decision;
    struct kvr_buffer *out = &tool->out.buffer;
    uint32_t routed = KVR_NO_WORKER, decoder, count = 0;

    enum kvr_status status = kvr_route_read(reader, &tool->line, &request, error);
    if (status == KVR_OK && tool->line.source.merged)
        status = kvr_route_read_routed(reader, &tool->line, &routed, &decoder, error);
    if (status != KVR_OK)
        return status;
    if (routed != KVR_NO_WORKER)
        return kvr_router_learn(router, &request, routed, decoder, error);
    status = kvr_router_decide(router, &request, &decision, error);
    if (status != KVR_OK)
        return status;
    const struct kvr_route_candidate *candidates =
        explain ? kvr_router_explain(router, &count) : NULL;
    kvr_line_begin(&tool->line, out, dropped, 1);
    kvr_line_add(out, "route");
    kvr_route_write(reader->fleet, &decision, candidates, count, out);
    kvr_line_end(out);
    kvr_writer_line_done(&tool->out);
    return KVR_OK;
}

static void warn_of_no_worker(struct tool *tool, uint64_t requests)
{
    tool_warn(tool,
        "%lu requests have passed and no worker is known: -w names them, so do worker lines and "
        "match",
        (unsigned long)requests);
}

static void route_lines(
    struct tool *tool, struct kvr_router *router, struct kvr_route_reader *reader, bool explain)
{
    struct kvr_error error = {0};
    uint64_t nowhere = 0; /* requests while no worker is known */

    while (tool_next(tool) == TOOL_LINE) {
        bool event = kvr_line_is_event(&tool->line);
        enum kvr_status status = event ? kvr_route_event(reader, &tool->line, &error)
                                       : route_line(tool, router, reader, explain, &error);
        /* Names may come with a later line. */
        if (!event && !reader->fleet->count && ++nowhere == NOWHERE_REQUESTS)
            warn_of_no_worker(tool, nowhere);
        if (status == KVR_OK && event) {
            kvr_line_pass(&tool->line, &tool->out);
        } else if (status == KVR_BAD_INPUT) {
            tool_bad_line(tool, &error);
        } else if (status != KVR_OK) {
            tool_fail(tool, &error);
            break;
        }
    }
    if (nowhere && nowhere < NOWHERE_REQUESTS && !reader->fleet->count)
        warn_of_no_worker(tool, nowhere);
}

int main(int argc, char **argv)
{
    static struct settings settings;
    const struct kvr_option_group groups[] = {
        {"Routing", routing_options, &settings}, {"Cost model", cost_options, &settings}, {0}};
    struct tool tool;
    struct kvr_error error = {0};
    struct kvr_cost cost;
    struct kvr_router *router = NULL;
    struct kvr_route_reader reader = {0};

    int begun = tool_begin(&tool, &program, groups, argc, argv);
    if (begun >= 0)
        return begun;
    enum kvr_status status = kvr_cost_settle(
        &cost, settings.model, settings.gpu, settings.mfu, settings.cost_file, &error);
    if (status == KVR_OK && kvr_route_policies_text(settings.routing.policy, &tool.out.buffer)) {
        tool.out.whole = tool.out.buffer.length;
        return tool_end(&tool);
    }
    if (status == KVR_OK && settings.explain_cost) {
        kvr_cost_explain(&cost, (double)settings.tokens, &tool.out.buffer);
        tool.out.whole = tool.out.buffer.length;
        return tool_end(&tool);
    }
    if (status == KVR_OK)
        status = make_router(&settings, &cost, &router, &error);
    if (status == KVR_OK)
        status = make_reader(&settings, &cost, router, &reader, &error);
    if (status == KVR_OK)
        route_lines(&tool, router, &reader, settings.routing.explain);
    else
        tool_fail(&tool, &error);
    kvr_route_reader_release(&reader);
    kvr_router_destroy(router);
    return tool_end(&tool);
}
