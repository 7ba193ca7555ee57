/*
 * kvr-sim: a virtual cluster of inference workers. The cluster is libkvr/sim's; here are the
 * options and three things to do with it: simulate lines, compare policies, sweep the rate.
 */
#include "cmd/routing.h"
#include "cmd/tool.h"
#include "sim/plan.h"
#include "sim/stage.h"
#include "sim/sweep.h"

#include <math.h>
#include <string.h>

struct settings {
    struct routing_settings routing;
    const char *workers, *engine, *compare, *sweep;
    const char *model, *gpu, *cost_file;
    struct kvr_text_list tiers;
    struct kvr_capacity capacity;
    uint64_t block_size, engine_block, batch_tokens, batch_requests, retries, closed, decoders;
    double rate, load_every_ms, timeout_ms, slo_gap_ms, slo_share, mfu;
    bool events, reject, derive_sessions, json, summary, stream_kv, cache_events;
};

#define AT(member) offsetof(struct settings, member)

static const struct kvr_option cluster_options[] = {
    TOOL_OPTION_WORKERS(struct settings),
    {0, "decoders", KVR_OPTION_COUNT, AT(decoders), "N",
        "the last N workers only decode, the others only prefill", "0", NULL},
    TOOL_OPTION_CAPACITY(struct settings,
        "KV memory of a worker, where no worker line says it; without it, what the model leaves "
        "free on the GPU",
        NULL),
    {0, "engine", KVR_OPTION_TEXT, AT(engine), "ENGINE",
        "how a worker manages its prefix cache: block (leaf LRU), vllm, sglang, with parameters as "
        "sglang(strategy=lfu); see kvr-engines(7)",
        "block", "block|vllm|sglang|*"},
    {0, "engine-block", KVR_OPTION_COUNT, AT(engine_block), "TOKENS",
        "tokens in a block of the engine; 0: as the first request's", "0", NULL},
    {0, "tier", KVR_OPTION_LIST, AT(tiers), "MEDIUM=CAPACITY[@LINK]",
        "memory below the device: cpu=4000000, disk=1TiB@nvme5, or remote=... for one that all "
        "workers share; several times",
        NULL, NULL},
    {0, "batch-tokens", KVR_OPTION_COUNT, AT(batch_tokens), "TOKENS",
        "tokens that one engine step computes at most; longer prompts are cut into chunks", "8192",
        NULL},
    {0, "batch-requests", KVR_OPTION_COUNT, AT(batch_requests), "N",
        "requests that run in one worker at most", "256", NULL},
    ROUTING_OPTIONS_LINK(struct settings),
    {0, "stream-kv", KVR_OPTION_FLAG, AT(stream_kv), NULL,
        "KV leaves for the decode worker layer by layer while the prompt is computed, not when it "
        "is",
        NULL, NULL},
    {0, "retries", KVR_OPTION_COUNT, AT(retries), "N",
        "times that a request is decided again after its worker failed", "1", NULL},
    COST_OPTIONS(struct settings),
    {0},
};

static const struct kvr_option load_options[] = {
    {0, "rate", KVR_OPTION_REAL, AT(rate), "FACTOR", "arrivals so many times as fast as the trace",
        "1", NULL},
    {0, "closed", KVR_OPTION_COUNT, AT(closed), "N",
        "closed loop: the next request arrives when fewer than N are inside; 0: open", "0", NULL},
    ROUTING_OPTION_OUTPUT_TOKENS(struct settings),
    TOOL_OPTION_BLOCK_SIZE(struct settings, "512"),
    {0, "derive-sessions", KVR_OPTION_FLAG, AT(derive_sessions), NULL,
        "adds `session` to lines that name none, from their block ids", NULL, NULL},
    {0, "load-every", KVR_OPTION_TIME_MS, AT(load_every_ms), "TIME",
        "tells a load line of each worker so often while requests are inside; 0: never", "0", NULL},
    {0, "cache-events", KVR_OPTION_FLAG, AT(cache_events), NULL,
        "tells the decisions what the workers' caches store and remove, instead of letting them "
        "guess "
        "from placements",
        NULL, NULL},
    {0, "slo-ttft", KVR_OPTION_TIME_MS, AT(routing.slo_ttft_ms), "TIME",
        "goal for the time to first token, of goodput and of --reject", NULL, NULL},
    {0, "slo-tbt", KVR_OPTION_TIME_MS, AT(routing.slo_tbt_ms), "TIME",
        "goal for a request's mean time between tokens", NULL, NULL},
    {0, "slo-gap", KVR_OPTION_TIME_MS, AT(slo_gap_ms), "TIME",
        "goal for the longest time between two of its tokens", NULL, NULL},
    {0},
};

static const struct kvr_option output_options[] = {
    {0, "events", KVR_OPTION_FLAG, AT(events), NULL,
        "also writes done, load, stored, removed and cleared lines", NULL, NULL},
    {0, "summary", KVR_OPTION_FLAG, AT(summary), NULL,
        "one line of the table of --compare instead of request lines", NULL, NULL},
    {0, "compare", KVR_OPTION_TEXT, AT(compare), "CHAIN,CHAIN...",
        "simulates each of these policies and prints one table", NULL, NULL},
    {0, "sweep", KVR_OPTION_TEXT, AT(sweep), "rate=FROM:TO[:STEP]",
        "simulates each policy at these rates, prints the share within the SLO, and finds the "
        "highest rate that meets it",
        NULL, NULL},
    {0, "slo-share", KVR_OPTION_REAL, AT(slo_share), "SHARE",
        "a rate meets the SLO when this share of the requests does", "0.9", NULL},
    {0, "json", KVR_OPTION_FLAG, AT(json), NULL, "NDJSON instead of a table", NULL, NULL},
    {0},
};

static const struct kvr_option routing_options[] = {
    {0, "policy", KVR_OPTION_TEXT, AT(routing.policy), "CHAIN",
        "decides in process by this policy, see kvr-policies(7)", KVR_ROUTE_DEFAULT_POLICY,
        KVR_ROUTE_POLICY_NAMES "|*"},
    {0, "reject", KVR_OPTION_FLAG, AT(reject), NULL,
        "rejects what is predicted to miss --slo-ttft or --slo-tbt", NULL, NULL},
    ROUTING_OPTION_REJECT_PRIORITY(struct settings),
    ROUTING_OPTIONS_ESCAPE(struct settings),
    ROUTING_OPTION_PULL(struct settings),
    ROUTING_OPTIONS_PATIENCE(struct settings),
    ROUTING_OPTION_SESSION(struct settings),
    ROUTING_OPTIONS_END(struct settings),
    {0, "decision-timeout", KVR_OPTION_TIME_MS, AT(timeout_ms), "TIME",
        "waits so long for each answer of a pipeline", "10s", NULL},
    {0},
};

static const struct kvr_program program = {
    .name = "kvr-sim",
    .summary = "simulate a cluster of inference workers behind a routing policy",
    .operands = "[-- PIPELINE] [FILE...]",
    .description =
        "Lets the requests of a trace arrive in virtual time at workers that are simulated "
        "iteration by iteration, and writes each request with `route`, `cache` and `response`. "
        "Decisions come from the pipeline given after --, real programs driven in lock step, or "
        "from --policy in process: the same bytes either way.",
    .examples =
        "kvr-sim -w 8 --policy cost trace.jsonl\n"
        "kvr-sim -w 8 -- 'kvr-match | kvr-route --policy cost' trace.jsonl\n"
        "kvr-sim -w 8 --slo-ttft 2s --compare round-robin,session,cache-aware,cost trace.jsonl\n"
        "kvr-sim -w 8 --slo-ttft 2s --compare round-robin,cost --sweep rate=0.5:4 trace.jsonl\n",
};

/* Everything that the three tasks need, made from the settings once. */
struct setup {
    struct settings settings;
    struct tool tool;
    struct kvr_sim_options sim;
    struct kvr_desk_options desk;
    struct kvr_parameter_value engine_values[KVR_ENGINE_PARAMETERS_MOST];
    struct kvr_sim_reader reader;
    struct kvr_sim_plan plan;
    struct kvr_stage *stage;    /* of lines */
    struct kvr_sim_trace trace; /* of studies */
    const char *command;
    uint32_t workers; /* joined so far */
    bool request_seen, worker_seen;
};

static enum kvr_status read_tier(const char *text, double kv_bytes, double compression,
    struct kvr_sim_tier_options *tier, struct kvr_error *error)
{
    static const char *const links[KVR_MEDIUM_COUNT] = {NULL, "pcie5", "nvme4", "rdma-200"};
    const char *equals = strchr(text, '='), *at = equals ? strchr(equals, '@') : NULL;
    struct kvr_capacity capacity;
    char amount[64];

    tier->medium = KVR_MEDIUM_GPU;
    for (int medium = KVR_MEDIUM_CPU; equals && medium < KVR_MEDIUM_COUNT; medium++) {
        const char *name = kvr_medium_name((enum kvr_medium)medium);
        if (strlen(name) == (size_t)(equals - text) && memcmp(name, text, strlen(name)) == 0)
            tier->medium = (enum kvr_medium)medium;
    }
    size_t length = equals ? (at ? (size_t)(at - equals - 1) : strlen(equals + 1)) : 0;
    if (tier->medium == KVR_MEDIUM_GPU || length == 0 || length >= sizeof amount)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--tier '%s' is not cpu=, disk= or remote= with a capacity", text);
    memcpy(amount, equals + 1, length);
    amount[length] = '\0';
    enum kvr_status status = kvr_quantity_capacity(amount, &capacity, error);
    if (status == KVR_OK && capacity.unit == KVR_BLOCKS)
        status = kvr_error_set(error, KVR_BAD_USAGE, "a tier's capacity is tokens or bytes");
    if (status == KVR_OK)
        status = kvr_capacity_blocks(&capacity, 1, kv_bytes, &tier->capacity_tokens, error);
    if (status == KVR_OK)
        status = kvr_link_read(at ? at + 1 : links[tier->medium], &tier->link, error);
    tier->compression = tier->medium == KVR_MEDIUM_REMOTE ? compression : 1;
    return status;
}

static enum kvr_status make_cost(struct setup *setup, struct kvr_error *error)
{
    const struct settings *settings = &setup->settings;
    struct kvr_cost *cost = &setup->sim.cost;
    enum kvr_status status = kvr_cost_settle(
        cost, settings->model, settings->gpu, settings->mfu, settings->cost_file, error);

    if (status != KVR_OK)
        return status;
    if (settings->capacity.amount)
        return kvr_capacity_blocks(&settings->capacity,
            settings->capacity.unit == KVR_BLOCKS ? settings->block_size : 1,
            cost->kv_bytes_per_token, &setup->sim.capacity_tokens, error);
    if (!(cost->kv_capacity_tokens >= 1))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "%s leaves no memory for KV on %s; give -c, or more GPUs", settings->model,
            settings->gpu);
    setup->sim.capacity_tokens = (uint64_t)cost->kv_capacity_tokens;
    return KVR_OK;
}

static enum kvr_status make_sim(struct setup *setup, struct kvr_error *error)
{
    const struct settings *settings = &setup->settings;
    struct kvr_sim_options *sim = &setup->sim;

    *sim = kvr_sim_defaults();
    enum kvr_status status = make_cost(setup, error);
    if (status == KVR_OK)
        status = kvr_engine_read(settings->engine, &sim->engine, setup->engine_values, error);
    if (status == KVR_OK)
        status = kvr_link_read(settings->routing.link, &sim->link, error);
    if (status == KVR_OK && settings->tiers.count > KVR_SIM_TIER_LIMIT)
        status = kvr_error_set(error, KVR_BAD_USAGE, "more than %d tiers", KVR_SIM_TIER_LIMIT);
    for (size_t i = 0; status == KVR_OK && i < settings->tiers.count; i++)
        status = read_tier(settings->tiers.items[i], sim->cost.kv_bytes_per_token,
            settings->routing.compression, &sim->tiers[i], error);
    if (status == KVR_OK && settings->engine_block > 1 << 30)
        status = kvr_error_set(error, KVR_BAD_USAGE, "--engine-block is out of range");
    if (status != KVR_OK)
        return status;
    sim->engine_values = setup->engine_values;
    sim->block_tokens = (uint32_t)settings->engine_block;
    sim->batch_tokens = settings->batch_tokens;
    sim->batch_requests = settings->batch_requests;
    sim->tier_count = settings->tiers.count;
    sim->compression = settings->routing.compression;
    sim->streams_kv = settings->stream_kv;
    sim->retries = settings->retries > 1000 ? 1000 : (uint32_t)settings->retries;
    sim->load_every_ms = settings->load_every_ms;
    sim->interrupted = tool_interrupted;
    sim->seed = settings->routing.seed;
    return KVR_OK;
}

static enum kvr_status make_desk(struct setup *setup, struct kvr_error *error)
{
    const struct settings *settings = &setup->settings;
    struct kvr_router_options *router = &setup->desk.router;

    setup->desk.cost = setup->sim.cost;
    setup->desk.match = (struct kvr_match_options){.block_size = (uint32_t)settings->block_size,
        .kv_bytes_per_token = setup->sim.cost.kv_bytes_per_token};
    *router = kvr_router_defaults();
    enum kvr_status status = routing_read(&settings->routing, router, error);
    if (!settings->reject)
        router->slo_ttft_ms = router->slo_tbt_ms = 0; /* goals, no bounds */
    return status;
}

static enum kvr_status make_setup(struct setup *setup, struct kvr_error *error)
{
    const struct settings *settings = &setup->settings;
    bool compares = settings->compare || settings->sweep || settings->summary;

    if (settings->block_size == 0 || settings->block_size > 1 << 30)
        return kvr_error_set(error, KVR_BAD_USAGE, "--block-size is out of range");
    if (!(settings->rate >= 1e-6 && settings->rate <= 1e6))
        return kvr_error_set(error, KVR_BAD_USAGE, "--rate is from 1e-6 to 1e6");
    if (settings->reject &&
        !(settings->routing.slo_ttft_ms > 0 || settings->routing.slo_tbt_ms > 0))
        return kvr_error_set(error, KVR_BAD_USAGE, "--reject needs --slo-ttft or --slo-tbt");
    if (settings->sweep && (settings->closed || !(settings->routing.slo_ttft_ms > 0)))
        return kvr_error_set(error, KVR_BAD_USAGE, "--sweep needs an open loop and --slo-ttft");
    if (setup->command && compares)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--compare, --sweep and --summary decide in process; no pipeline goes with them");
    enum kvr_status status = make_sim(setup, error);
    if (status == KVR_OK)
        status = make_desk(setup, error);
    if (status != KVR_OK)
        return status;
    setup->reader.block_tokens = (uint32_t)settings->block_size;
    setup->reader.default_output = settings->routing.output_tokens;
    setup->reader.derive_sessions = settings->derive_sessions;
    if (settings->routing.session)
        status = kvr_expression_create(&setup->reader.session, settings->routing.session, error);
    return status == KVR_OK ? kvr_sim_reader_init(&setup->reader, error) : status;
}

/* ── workers ── */

struct joining {
    struct setup *setup;
    uint32_t expected;
    enum kvr_status (*join)(
        void *to, const struct kvr_worker_description *worker, struct kvr_error *error);
    void *to;
};

static enum kvr_status count_worker(
    void *context, const struct kvr_worker_description *worker, struct kvr_error *error)
{
    (void)worker;
    (void)error;
    ((struct joining *)context)->expected++;
    return KVR_OK;
}

static enum kvr_status join_worker(
    void *context, const struct kvr_worker_description *worker, struct kvr_error *error)
{
    struct joining *joining = context;
    struct setup *setup = joining->setup;
    struct kvr_worker_description whole = *worker;
    uint64_t decoders = setup->settings.decoders;

    if (!whole.capacity.amount) {
        whole.capacity = (struct kvr_capacity){setup->sim.capacity_tokens, KVR_TOKENS};
    } else if (whole.capacity.unit == KVR_BYTES) {
        enum kvr_status status = kvr_capacity_blocks(
            &whole.capacity, 1, setup->sim.cost.kv_bytes_per_token, &whole.capacity.amount, error);
        if (status != KVR_OK)
            return status;
        whole.capacity.unit = KVR_TOKENS;
    }
    if (decoders)
        whole.role =
            setup->workers + decoders >= joining->expected ? KVR_ROLE_DECODE : KVR_ROLE_PREFILL;
    setup->workers++;
    return joining->join(joining->to, &whole, error);
}

static enum kvr_status join_workers(struct setup *setup,
    enum kvr_status (*join)(
        void *to, const struct kvr_worker_description *worker, struct kvr_error *error),
    void *to, struct kvr_error *error)
{
    struct joining joining = {setup, 0, join, to};
    const char *argument = setup->settings.workers;

    if (!argument)
        return KVR_OK;
    enum kvr_status status = kvr_workers_each(argument, count_worker, &joining, error);
    if (status == KVR_OK && setup->settings.decoders >= joining.expected &&
        setup->settings.decoders)
        return kvr_error_set(error, KVR_BAD_USAGE, "--decoders leaves no worker for prefill");
    return status == KVR_OK ? kvr_workers_each(argument, join_worker, &joining, error) : status;
}

/* ── lines ── */

static enum kvr_status join_stage(
    void *to, const struct kvr_worker_description *worker, struct kvr_error *error)
{
    return kvr_stage_join(to, worker, error);
}

typedef enum kvr_status take_line(
    struct setup *setup, const struct kvr_line *line, struct kvr_error *error);

/* Gives take() the merged worker lines whose time has come. */
static enum kvr_status take_due(
    struct setup *setup, double time_ms, take_line *take, struct kvr_error *error)
{
    const struct kvr_line *due;
    enum kvr_status status;

    while ((status = kvr_sim_plan_due(&setup->plan, time_ms, &due, error)) == KVR_OK) {
        setup->worker_seen = true;
        status = take(setup, due, error);
        if (status == KVR_BAD_INPUT) {
            kvr_error_prefix(error, "%s:%lu", due->source.file, due->source.number);
            tool_bad_foreign_line(&setup->tool, error);
        } else if (status != KVR_OK) {
            return status;
        }
    }
    return status == KVR_END ? KVR_OK : status;
}

/* Gives take() every line of the input. */
static enum kvr_status each_line(struct setup *setup, take_line *take, struct kvr_error *error)
{
    struct tool *tool = &setup->tool;
    const struct kvr_line *line = &tool->line;
    enum kvr_status status = KVR_OK;

    while (status == KVR_OK && tool_next(tool) == TOOL_LINE) {
        double time_ms;
        status = kvr_sim_timestamp(line, &time_ms, error);
        if (status == KVR_OK && line->source.merged && kvr_line_is_event(line) && !isnan(time_ms)) {
            status = kvr_sim_plan_add(&setup->plan, line, time_ms, error);
        } else if (status == KVR_OK) {
            status = take_due(setup, time_ms, take, error);
            if (status == KVR_OK)
                status = take(setup, line, error);
            setup->request_seen |= !kvr_line_is_event(line);
            setup->worker_seen |= kvr_value_is(kvr_line_get(line, KVR_NAME_EVENT), "worker");
        }
        if (status == KVR_BAD_INPUT) {
            tool_bad_line(tool, error);
            status = KVR_OK;
        }
    }
    return status == KVR_OK && !tool_interrupted() ? take_due(setup, INFINITY, take, error)
                                                   : status;
}

static enum kvr_status take_stage(
    struct setup *setup, const struct kvr_line *line, struct kvr_error *error)
{
    return kvr_stage_line(setup->stage, line, error);
}

static enum kvr_status simulate(struct setup *setup, struct kvr_error *error)
{
    const struct settings *settings = &setup->settings;
    const struct kvr_stage_options options = {
        .sim = &setup->sim,
        .desk = setup->command ? NULL : &setup->desk,
        .command = setup->command,
        .patience_ms = settings->timeout_ms,
        .events = settings->events,
        .cache_events = settings->cache_events,
        .pace = {.rate = settings->rate, .closed = settings->closed},
    };

    enum kvr_status status =
        kvr_stage_create(&options, &setup->reader, &setup->tool.out, &setup->stage, error);
    if (status == KVR_OK)
        status = join_workers(setup, join_stage, setup->stage, error);
    if (status == KVR_OK)
        status = each_line(setup, take_stage, error);
    if (status == KVR_OK && !tool_interrupted())
        status = kvr_stage_end(setup->stage, error);
    kvr_stage_destroy(setup->stage);
    return status;
}

/* ── studies ── */

static enum kvr_status join_trace(
    void *to, const struct kvr_worker_description *worker, struct kvr_error *error)
{
    return kvr_sim_trace_change(to, worker, true, true, NAN, error);
}

static enum kvr_status take_study(
    struct setup *setup, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_sim_trace *trace = &setup->trace;
    struct kvr_worker_description worker;
    struct kvr_sim_item *item;
    double timestamp_ms;

    if (!kvr_line_is_event(line)) {
        enum kvr_status status = kvr_sim_item_create(&setup->reader, line, NAN, &item, error);
        return status == KVR_OK ? kvr_sim_trace_add(trace, item, error) : status;
    }
    if (!kvr_value_is(kvr_line_get(line, KVR_NAME_EVENT), "worker"))
        return KVR_OK;
    enum kvr_status status = kvr_worker_read(line, &setup->reader.scratch, &worker, error);
    if (status == KVR_OK)
        status = kvr_sim_timestamp(line, &timestamp_ms, error);
    return status == KVR_OK
               ? kvr_sim_trace_change(trace, &worker,
                     !kvr_value_missing(kvr_line_get(line, KVR_NAME_ROLE)),
                     !kvr_value_missing(kvr_line_get(line, KVR_NAME_WEIGHT)), timestamp_ms, error)
               : status;
}

static enum kvr_status study(struct setup *setup, struct kvr_error *error)
{
    const struct settings *settings = &setup->settings;
    struct tool *tool = &setup->tool;
    const struct kvr_sim_sweep sweep = {
        .study = {.sim = &setup->sim,
            .desk = &setup->desk,
            .reader = &setup->reader,
            .cache_events = settings->cache_events,
            .pace = {.rate = settings->rate, .closed = settings->closed},
            .slo = {settings->routing.slo_ttft_ms, settings->routing.slo_tbt_ms,
                settings->slo_gap_ms}},
        .policies = settings->compare ? settings->compare : settings->routing.policy,
        .several = settings->compare != NULL,
        .rates = settings->sweep,
        .slo_share = settings->slo_share,
        .json = settings->json,
        .out = &tool->out.buffer,
    };

    setup->reader.tell_turns = true;
    enum kvr_status status = join_workers(setup, join_trace, &setup->trace, error);
    if (status == KVR_OK)
        status = each_line(setup, take_study, error);
    if (status == KVR_OK && !tool_interrupted() && setup->trace.count)
        status = settings->sweep ? kvr_sim_sweep(&sweep, &setup->trace, error)
                                 : kvr_sim_compare(&sweep, &setup->trace, error);
    if (status == KVR_OK)
        tool->out.whole = tool->out.buffer.length;
    kvr_sim_trace_release(&setup->trace);
    return status;
}

/* The pipeline is what follows "--"; the rest of the command line is as everywhere. */
static const char *take_pipeline(int *argc, char **argv)
{
    for (int i = 1; i + 1 < *argc; i++) {
        if (strcmp(argv[i], "--") != 0)
            continue;
        const char *pipeline = argv[i + 1];
        for (int j = i + 2; j <= *argc; j++)
            argv[j - 1] = argv[j];
        (*argc)--;
        return pipeline;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static struct setup setup;
    const struct kvr_option_group groups[] = {{"Cluster", cluster_options, &setup.settings},
        {"Load", load_options, &setup.settings}, {"Output", output_options, &setup.settings},
        {"Decisions", routing_options, &setup.settings}, {0}};
    struct kvr_error error = {0};

    setup.command = take_pipeline(&argc, argv);
    int begun = tool_begin(&setup.tool, &program, groups, argc, argv);
    if (begun >= 0)
        return begun;
    const struct settings *settings = &setup.settings;
    enum kvr_status status = make_setup(&setup, &error);
    if (status == KVR_OK)
        status = settings->compare || settings->sweep || settings->summary
                     ? study(&setup, &error)
                     : simulate(&setup, &error);
    if (status != KVR_OK)
        tool_fail(&setup.tool, &error);
    else if (setup.request_seen && !setup.worker_seen && !settings->workers)
        tool_warn(&setup.tool, "no worker, so every request failed: -w 8 makes eight");
    kvr_sim_plan_release(&setup.plan);
    kvr_sim_reader_release(&setup.reader);
    return tool_end(&setup.tool);
}
