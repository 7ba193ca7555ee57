/*
 * kvr-serve: an OpenAI-compatible front end that runs a decision pipeline, or decides in process.
 * The work is libkvr/net's; here are the options, the loop, and the signals.
 */
#include "base/clock.h"
#include "cmd/tool.h"
#include "net/serve.h"
#include "route/explain.h"
#include "token/directory.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    const char *listen, *workers, *session, *log, *key_file, *health_path, *events;
    const char *policy, *model, *gpu, *cost_file, *tokenizer, *template_file, *by_model;
    struct kvr_capacity capacity;
    uint64_t block_size, seed, max_body, max_buffered, max_in_flight, max_connections, retries;
    double decision_ms, connect_ms, timeout_ms, client_ms, health_ms, scrape_ms, grace_ms;
    double slo_ttft_ms, ttl_ms, mfu;
    bool log_prompts, no_tokens, escape;
};

#define AT(member) offsetof(struct settings, member)

static const struct kvr_option front_options[] = {
    {'l', "listen", KVR_OPTION_TEXT, AT(listen), "ADDRESS",
        "HOST:PORT, [v6]:PORT, or a PORT of this machine only", "127.0.0.1:8080", NULL},
    {'w', "workers", KVR_OPTION_TEXT, AT(workers), "WORKERS",
        "the workers: URL or NAME=URL separated by commas, or a file of worker lines, which SIGHUP "
        "reads again",
        NULL, "<file>"},
    {0, "session", KVR_OPTION_TEXT, AT(session), "WHERE",
        "the session of a request: header:NAME, cookie:NAME, or an expression on its body; without "
        "it the header x-session-id, else the member user",
        NULL, NULL},
    {0, "log", KVR_OPTION_TEXT, AT(log), "FILE",
        "appends every request as a line with route and response, without its prompt; SIGHUP opens "
        "it anew",
        NULL, "<file>"},
    {0, "log-prompts", KVR_OPTION_FLAG, AT(log_prompts), NULL, "puts prompts into the log", NULL,
        NULL},
    {0, "api-key-file", KVR_OPTION_TEXT, AT(key_file), "FILE",
        "a key a line; requests need one of them as bearer token or x-api-key", NULL, "<file>"},
    {0, "max-body", KVR_OPTION_SIZE, AT(max_body), "SIZE",
        "the largest body of a request, unpacked", "64MiB", NULL},
    {0, "max-buffered", KVR_OPTION_SIZE, AT(max_buffered), "SIZE",
        "all bodies together; what comes beyond is told 503", "1GiB", NULL},
    {0, "max-requests", KVR_OPTION_COUNT, AT(max_in_flight), "N",
        "requests under way; what comes beyond is told 503", "16384", NULL},
    {0, "max-connections", KVR_OPTION_COUNT, AT(max_connections), "N",
        "of clients; what comes beyond is told 503", "65536", NULL},
    {0, "client-timeout", KVR_OPTION_TIME_MS, AT(client_ms), "TIME",
        "a client that neither sends its request nor reads its answer for so long is dropped",
        "60s", NULL},
    {0, "grace", KVR_OPTION_TIME_MS, AT(grace_ms), "TIME",
        "requests under way may take so long after SIGTERM", "60s", NULL},
    {0},
};

static const struct kvr_option worker_options[] = {
    {0, "connect-timeout", KVR_OPTION_TIME_MS, AT(connect_ms), "TIME", "for a connection", "1s",
        NULL},
    {0, "timeout", KVR_OPTION_TIME_MS, AT(timeout_ms), "TIME",
        "for the first byte of an answer, and between two of its bytes", "10m", NULL},
    {0, "retries", KVR_OPTION_COUNT, AT(retries), "N",
        "other workers tried when one cannot be reached or breaks before its answer begins", "2",
        NULL},
    {0, "health-every", KVR_OPTION_TIME_MS, AT(health_ms), "TIME",
        "asks each worker for its health so often; 0: never", "5s", NULL},
    {0, "health-path", KVR_OPTION_TEXT, AT(health_path), "PATH", "where", "/health", NULL},
    {0, "scrape-every", KVR_OPTION_TIME_MS, AT(scrape_ms), "TIME",
        "reads each worker's /metrics so often and tells the decision its load: what others than "
        "this front end send it; 0: never",
        "0", NULL},
    {0, "events", KVR_OPTION_TEXT, AT(events), "ARGUMENTS",
        "runs kvr-events with these, as 'w0=tcp://10.0.0.1:5557,model=m -q': the decision learns "
        "what workers hold from their own events",
        NULL, NULL},
    {0},
};

static const struct kvr_option decision_options[] = {
    {0, "policy", KVR_OPTION_TEXT, AT(policy), "CHAIN",
        "decides in process, see kvr-policies(7); 'list' lists the policies",
        KVR_ROUTE_DEFAULT_POLICY, KVR_ROUTE_POLICY_NAMES "|list|help|*"},
    {0, "decision-timeout", KVR_OPTION_TIME_MS, AT(decision_ms), "TIME",
        "a pipeline that takes longer is not waited for: the least loaded worker gets the request",
        "50ms", NULL},
    TOOL_OPTION_CAPACITY(struct settings,
        "what each worker's cache holds, where no worker line says it; without it, everything",
        NULL),
    {0, "ttl", KVR_OPTION_TIME_MS, AT(ttl_ms), "TIME",
        "a block not placed again for so long is forgotten", NULL, NULL},
    TOOL_OPTION_BLOCK_SIZE(struct settings, "16"),
    {'t', "tokenizer", KVR_OPTION_TEXT, AT(tokenizer), "NAME",
        "the vocabulary: a name (see kvr-tokenize --list), a file, 'bytes' or 'chars'",
        KVR_DEFAULT_TOKENIZER, "<file>"},
    {0, "template", KVR_OPTION_TEXT, AT(template_file), "FILE",
        "the chat template instead of the one beside the vocabulary", NULL, "<file>"},
    {0, "by-model", KVR_OPTION_TEXT, AT(by_model), "MAP",
        "each model has its own vocabulary, see kvr-tokenize(1)", NULL, "auto|*"},
    {0, "no-tokens", KVR_OPTION_FLAG, AT(no_tokens), NULL,
        "does not look into prompts, for policies that need no match", NULL, NULL},
    {0, "escape", KVR_OPTION_FLAG, AT(escape), NULL,
        "the load gate of kvr-route --escape, with its defaults", NULL, NULL},
    {0, "slo-ttft", KVR_OPTION_TIME_MS, AT(slo_ttft_ms), "TIME",
        "rejects (429) a request whose predicted time to first token is longer", NULL, NULL},
    {0, "model", KVR_OPTION_TEXT, AT(model), "MODEL", "of the cost model, see kvr-cost(5)",
        KVR_COST_DEFAULT_MODEL, kvr_model_names},
    {0, "gpu", KVR_OPTION_TEXT, AT(gpu), "GPU", "a worker's GPUs, as h100 or 8xh100",
        KVR_COST_DEFAULT_GPU, kvr_gpu_names},
    {0, "mfu", KVR_OPTION_REAL, AT(mfu), "SHARE",
        "share of the GPU's peak that a prefill reaches; 0: the preset's", "0", NULL},
    {0, "cost", KVR_OPTION_TEXT, AT(cost_file), "FILE",
        "a cost file, as kvr-prefill --calibrate writes it", NULL, "<file>"},
    {0, "seed", KVR_OPTION_COUNT, AT(seed), "N", "for policies with chance", "1", NULL},
    {0},
};

static const struct kvr_program program = {
    .name = "kvr-serve",
    .summary = "an OpenAI-compatible front end that routes by what workers hold",
    .operands = "[-- PIPELINE]",
    .description =
        "Takes HTTP requests, turns each into a request line, asks the pipeline (or decides in "
        "process with --policy), passes the request on to the chosen worker and its answer back as "
        "it comes. -m merges lines for the decision: cache events, loads, other replicas' logs.",
    .examples =
        "kvr-serve -w http://127.0.0.1:8001,http://127.0.0.1:8002 --policy cost\n"
        "kvr-serve -w workers.jsonl --log access.jsonl -- 'kvr-tokenize | kvr-match | kvr-route'\n"
        "curl -X POST http://127.0.0.1:8080/kvr/workers/w0/drain\n",
};

static void say(void *context, bool warning, const char *text)
{
    (void)warning;
    tool_warn(context, "%s", text);
}

static enum kvr_status make_decider(const struct settings *settings, struct kvr_models **models,
    struct kvr_decider **decider, struct kvr_error *error)
{
    struct kvr_buffer cache = {0};
    struct kvr_decider_options options = {
        .desk.match = {.capacity = settings->capacity,
            .block_size = (uint32_t)settings->block_size,
            .ttl_ms = (int64_t)settings->ttl_ms},
        .desk.router = kvr_router_defaults(),
        .annotate = {.chain = kvr_chain_find("kvr"),
            .style_auto = true,
            .block_size = settings->block_size,
            .image_tokens = 1},
    };

    enum kvr_status status = kvr_cost_settle(&options.desk.cost, settings->model, settings->gpu,
        settings->mfu, settings->cost_file, error);
    options.desk.match.kv_bytes_per_token = options.desk.cost.kv_bytes_per_token;
    options.desk.router.policy = settings->policy;
    options.desk.router.seed = settings->seed;
    options.desk.router.escape = settings->escape;
    options.desk.router.slo_ttft_ms = settings->slo_ttft_ms;
    if (status == KVR_OK && !settings->no_tokens) {
        struct kvr_models_options of_models = {.tokenizer = settings->tokenizer,
            .template_file = settings->template_file,
            .by_model = settings->by_model,
            .cache_directory = kvr_directory_cache(&cache)};
        status = kvr_models_create(models, &of_models, error);
        options.models = *models;
    }
    if (status == KVR_OK)
        status = kvr_decider_create(decider, &options, error);
    kvr_buffer_release(&cache);
    return status;
}

/* A URL, HOST:PORT or a PORT is no pipeline: who gives it wants to say where to listen. */
static bool looks_like_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    const char *port = colon ? colon + 1 : text;

    if (strpbrk(text, " |;&<>\t\n"))
        return false;
    return strstr(text, "://") || (*port && !port[strspn(port, "0123456789")]);
}

static enum kvr_status check(const struct settings *settings, const char *const *operands,
    size_t operand_count, struct kvr_error *error)
{
    if (operand_count == 1 && looks_like_address(operands[0]))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "'%s' is no pipeline; --listen says where to listen, -w names workers", operands[0]);
    if (operand_count == 1 && !operands[0][strspn(operands[0], " \t\n")])
        return kvr_error_set(error, KVR_BAD_USAGE, "the pipeline is empty");
    if (operand_count > 1)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "one pipeline, in quotes: -- 'kvr-match | kvr-route'");
    if (!settings->block_size || settings->block_size > 1 << 20)
        return kvr_error_set(error, KVR_BAD_USAGE, "--block-size is out of range");
    if (!(settings->ttl_ms >= 0 && settings->ttl_ms <= (double)KVR_INDEX_MAX_TTL_MS))
        return kvr_error_set(error, KVR_BAD_USAGE, "--ttl is longer than 24 days");
    if (!(settings->decision_ms > 0 && settings->connect_ms > 0 && settings->timeout_ms > 0 &&
            settings->client_ms > 0))
        return kvr_error_set(error, KVR_BAD_USAGE, "a timeout is more than 0");
    if (!settings->max_connections || !settings->max_in_flight || settings->retries > 100)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--max-connections and --max-requests are 1 or more, --retries at most 100");
    if (settings->scrape_ms > 0 && settings->scrape_ms < 10)
        return kvr_error_set(error, KVR_BAD_USAGE, "--scrape-every is 10ms or more, or 0");
    if (settings->health_path[0] != '/')
        return kvr_error_set(error, KVR_BAD_USAGE, "--health-path is a path");
    return KVR_OK;
}

/* The pipeline has options of its own: one given here would be silently without effect. */
static enum kvr_status check_pipeline(const struct settings *settings, struct kvr_error *error)
{
    const struct {
        const char *option;
        bool given;
    } ours[] = {
        {"--policy", strcmp(settings->policy, KVR_ROUTE_DEFAULT_POLICY) != 0},
        {"--tokenizer", strcmp(settings->tokenizer, KVR_DEFAULT_TOKENIZER) != 0},
        {"--template", settings->template_file != NULL},
        {"--by-model", settings->by_model != NULL},
        {"--no-tokens", settings->no_tokens},
        {"--capacity", settings->capacity.amount != 0},
        {"--ttl", settings->ttl_ms > 0},
        {"--escape", settings->escape},
        {"--slo-ttft", settings->slo_ttft_ms > 0},
        {"--model", strcmp(settings->model, KVR_COST_DEFAULT_MODEL) != 0},
        {"--gpu", strcmp(settings->gpu, KVR_COST_DEFAULT_GPU) != 0},
        {"--mfu", settings->mfu != 0},
        {"--cost", settings->cost_file != NULL},
    };

    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ours[i].given)
            return kvr_error_set(error, KVR_BAD_USAGE,
                "%s is for decisions in process; it belongs to the pipeline's programs",
                ours[i].option);
    return KVR_OK;
}

static enum kvr_status serve_until_told(struct tool *tool, const struct settings *settings,
    struct kvr_serve *serve, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;
    double until_ms = 0;

    tool_warn(tool, "listening on port %u", kvr_serve_port(serve));
    if (!settings->workers)
        tool_warn(tool, "no worker yet: -w names them, POST /kvr/workers adds one");
    while (status == KVR_OK) {
        if (tool_signalled(SIGHUP))
            kvr_serve_reload(serve);
        if (tool_interrupted()) {
            if (until_ms <= 0)
                until_ms = kvr_clock_ms() + settings->grace_ms;
            kvr_serve_drain(serve);
            if (kvr_serve_idle(serve) || kvr_clock_ms() >= until_ms)
                break;
        }
        status = kvr_serve_step(serve, 1000, error);
    }
    return status;
}

int main(int argc, char **argv)
{
    static struct settings settings;
    const struct kvr_option_group groups[] = {{"The front", front_options, &settings},
        {"Workers", worker_options, &settings}, {"Decisions", decision_options, &settings}, {0}};
    struct tool tool;
    struct kvr_error error = {0};
    struct kvr_models *models = NULL;
    struct kvr_decider *decider = NULL;
    struct kvr_serve *serve = NULL;

    int begun = tool_begin_without_input(&tool, &program, groups, argc, argv);
    if (begun >= 0)
        return begun;
    if (kvr_route_policies_text(settings.policy, &tool.out.buffer)) {
        tool.out.whole = tool.out.buffer.length;
        return tool_end(&tool);
    }
    tool_catch(SIGHUP);
    enum kvr_status status = check(&settings, tool.operands, tool.operand_count, &error);
    if (status == KVR_OK && tool.operand_count)
        status = check_pipeline(&settings, &error);
    if (status == KVR_OK && !tool.operand_count)
        status = make_decider(&settings, &models, &decider, &error);
    if (status == KVR_OK) {
        struct kvr_serve_options options = {
            .listen = settings.listen,
            .workers = settings.workers,
            .merged = &tool.settings.merge,
            .decider = decider,
            .command = tool.operand_count ? tool.operands[0] : NULL,
            .session = settings.session,
            .log = settings.log,
            .log_prompts = settings.log_prompts,
            .key_file = settings.key_file,
            .health_path = settings.health_path,
            .decision_timeout_ms = settings.decision_ms,
            .connect_timeout_ms = settings.connect_ms,
            .answer_timeout_ms = settings.timeout_ms,
            .client_timeout_ms = settings.client_ms,
            .health_every_ms = settings.health_ms,
            .scrape_every_ms = settings.scrape_ms,
            .events = settings.events,
            .retries = settings.retries,
            .max_body_bytes = settings.max_body,
            .max_buffered_bytes = settings.max_buffered,
            .max_in_flight = settings.max_in_flight,
            .max_connections = settings.max_connections,
            .say = say,
            .context = &tool,
        };
        status = kvr_serve_create(&serve, &options, &error);
    }
    if (status == KVR_OK)
        status = serve_until_told(&tool, &settings, serve, &error);
    if (status != KVR_OK)
        tool_fail(&tool, &error);
    kvr_serve_destroy(serve);
    kvr_decider_destroy(decider);
    kvr_models_destroy(models);
    return tool_end(&tool);
}
