/*
 * kvr-evict: replays request lines through caches, one a worker, and says what would have been hit
 * and evicted. The caches are libkvr/cache's; here are the options and the loop over lines.
 */
#include "cmd/evict.h"

#include <string.h>
#include <unistd.h>

#define AT(member) offsetof(struct evict_settings, member)

static const struct kvr_option cache_options[] = {
    TOOL_OPTION_CAPACITY(struct evict_settings,
        "of each worker's cache: tokens, blocks (10000b) or bytes (40GiB); 1M tokens where not "
        "given "
        "(--advise: the knee)",
        NULL),
    TOOL_OPTION_BLOCK_SIZE(struct evict_settings, NULL),
    {0, "engine", KVR_OPTION_TEXT, AT(engine), "ENGINE",
        "whose cache, with its parameters in parentheses, as 'sglang(strategy=lfu)'; 'help' lists "
        "engines, policies, admission rules and tier parameters",
        "block", "block|vllm|sglang|lmcache|mooncake|help|*"},
    {0, "policy", KVR_OPTION_TEXT, AT(policy), "POLICY",
        "block engine: which block goes first, as 'value(first=0.2)'", "lru",
        EVICT_POLICY_NAMES "|*"},
    {0, "admission", KVR_OPTION_TEXT, AT(admission), "RULE",
        "block engine: which blocks come in, as 'min-length(tokens=2048)'", "always",
        EVICT_ADMISSION_NAMES "|*"},
    {0, "outputs", KVR_OPTION_FLAG, AT(outputs), NULL,
        "block engine: blocks that outputs fill are cached too (output_hash_ids)", NULL, NULL},
    {0, "no-pin-path", KVR_OPTION_FLAG, AT(plain), NULL,
        "block engine: every block is an object of its own, as in other simulators", NULL, NULL},
    {0, "live", KVR_OPTION_COUNT, AT(live), "K",
        "so many earlier requests are still running when the next one comes", "0", NULL},
    {0, "skip-last-token", KVR_OPTION_FLAG, AT(skip_last_token), NULL,
        "the last output token gets no KV slot, as in engines in service", NULL, NULL},
    {0, "seed", KVR_OPTION_COUNT, AT(seed), "N", "for policies with chance", "1", NULL},
    {0},
};

static const struct kvr_option protect_options[] = {
    {0, "pin", KVR_OPTION_TEXT, AT(pin), "EXPRESSION",
        "pins the prefix of requests for which it is true; a number pins so many tokens", NULL,
        NULL},
    {0, "pool", KVR_OPTION_TEXT, AT(pool), "shared=SHARE",
        "keeps a share of the cache for blocks that several sessions use", NULL, NULL},
    {0, "quota", KVR_OPTION_LIST, AT(quotas), "TENANT=SHARE",
        "a tenant's blocks fill at most so much of the cache; '*' is every other tenant", NULL,
        NULL},
    {0, "tenant", KVR_OPTION_TEXT, AT(tenant), "EXPRESSION", "who the tenant of a request is",
        ".user", NULL},
    {0, "session", KVR_OPTION_TEXT, AT(session), "EXPRESSION",
        "where the session is; without it session, the conversation of chat_id, or user", NULL,
        NULL},
    {0},
};

static const struct kvr_option tier_options[] = {
    {0, "tier", KVR_OPTION_LIST, AT(tiers), "TIER",
        "a tier, the fastest first, as --tier gpu=40GiB --tier "
        "'cpu=200GiB(bandwidth=50GB/s,write=back)'",
        NULL, NULL},
    {0, "model", KVR_OPTION_TEXT, AT(model), "MODEL",
        "whose KV takes bytes and whose prefill takes time, see kvr-cost(5)",
        KVR_COST_DEFAULT_MODEL, kvr_model_names},
    {0, "gpu", KVR_OPTION_TEXT, AT(gpu), "GPU", "a worker's GPUs, as h100 or 8xh100",
        KVR_COST_DEFAULT_GPU, kvr_gpu_names},
    {0, "mfu", KVR_OPTION_REAL, AT(mfu), "SHARE",
        "share of the GPU's peak that a prefill reaches; 0: the preset's", "0", NULL},
    {0, "cost", KVR_OPTION_TEXT, AT(cost_file), "FILE",
        "a cost file, as kvr-prefill --calibrate writes it", NULL, "<file>"},
    {0},
};

static const struct kvr_option answer_options[] = {
    {0, "json", KVR_OPTION_FLAG, AT(json), NULL,
        "one summary object instead of lines (or one a row of --sweep and --curve)", NULL, NULL},
    {0, "table", KVR_OPTION_FLAG, AT(table), NULL,
        "a summary for people instead of lines, as on a terminal", NULL, NULL},
    {0, "events", KVR_OPTION_FLAG, AT(events), NULL,
        "each request line is followed by its stored and removed lines", NULL, NULL},
    {0, "free-queue", KVR_OPTION_FLAG, AT(free_queue), NULL,
        "at the end, each worker's free queue as an event line (vllm), the next block to be taken "
        "first",
        NULL, NULL},
    {0, "worker", KVR_OPTION_TEXT, AT(worker), "NAME",
        "the worker's name in event lines where requests are not routed", "w0", NULL},
    {0, "sweep", KVR_OPTION_TEXT, AT(sweep), "GRID",
        "a table of many caches, as 'policy=lru,sieve size=10k:10M:x2 admission=always,second'",
        NULL, NULL},
    {0, "curve", KVR_OPTION_FLAG, AT(curve), NULL,
        "the hit rate of leaf LRU at every capacity, in one pass", NULL, NULL},
    {0, "sample", KVR_OPTION_REAL, AT(sample), "SHARE",
        "the curve looks at a share of the sessions and states the error", "1", NULL},
    {0, "points", KVR_OPTION_COUNT, AT(points), "N",
        "the curve has so many rows for each doubling of the capacity; 0: a row for every capacity",
        "2", NULL},
    {0, "advise", KVR_OPTION_FLAG, AT(advise), NULL,
        "what to pin, the admission rule and the size, with what each gains on this trace", NULL,
        NULL},
    {'j', "threads", KVR_OPTION_COUNT, AT(threads), "N", "of --sweep and --advise; 0: one a core",
        "0", NULL},
    {0},
};

static const struct kvr_program program = {
    .name = "kvr-evict",
    .summary = "replay requests through KV caches: hits, evictions, sizes, policies",
    .operands = "[FILE...]",
    .description =
        "Sends every request line through the cache of its worker (route.worker; one cache where "
        "lines are not routed) and adds `cache`: the tokens found. Acts on pin, unpin and worker "
        "lines, passes all events on. On a terminal, or with --json, --sweep, --curve, --advise, "
        "it answers instead of passing lines on.",
    .examples = "kvr-evict -c 10000b --json trace.jsonl\n"
                "kvr-evict --engine vllm -c 1M -b 16 --live 3 --events trace.jsonl\n"
                "kvr-evict --sweep 'policy=lru,s3fifo,value size=1M:16M:x2' trace.jsonl\n"
                "kvr-evict --curve trace.jsonl\n"
                "kvr-evict --tier gpu=10GiB --tier 'cpu=100GiB(bandwidth=25GB/s)' --json "
                "trace.jsonl\n",
};

/* --pin: how many tokens of the line's prefix are pinned. */
static enum kvr_status pinned_tokens(struct kvr_expression *pin, const struct kvr_line *line,
    uint64_t *tokens, struct kvr_error *error)
{
    struct kvr_value value;
    enum kvr_status status = kvr_expression_evaluate(pin, line, &value, error);

    *tokens = 0;
    if (status != KVR_OK || !kvr_value_true(value))
        return status;
    if (value.type != KVR_NUMBER)
        *tokens = UINT64_MAX;
    else if (!kvr_value_u64(value, tokens))
        return kvr_error_set(error, KVR_BAD_INPUT, "--pin gives no number of tokens");
    return KVR_OK;
}

static enum kvr_status serve(
    struct tool *tool, struct evict_program *evict, bool quiet, struct kvr_error *error)
{
    static const enum kvr_name dropped[] = {KVR_NAME_CACHE};
    struct kvr_buffer *out = &tool->out.buffer;
    struct kvr_request_view view;
    struct kvr_evict_result result;
    uint64_t tokens = 0;

    enum kvr_status status = kvr_request_read(&evict->reader, &tool->line, &view, error);
    evict->has_time = evict->has_time || view.has_time;
    if (status == KVR_OK && view.worker.type == KVR_NULL) {
        if (!quiet)
            kvr_line_pass(&tool->line, &tool->out); /* nobody served it */
        return KVR_OK;
    }
    if (status == KVR_OK && evict->pin)
        status = pinned_tokens(evict->pin, &tool->line, &tokens, error);
    if (status == KVR_OK && tokens)
        status = kvr_evict_pin_request(evict->evict, &view, tokens, error);
    if (status == KVR_OK)
        status = kvr_evict_request(evict->evict, &view, &result, error);
    if (status != KVR_OK || quiet)
        return status;
    kvr_line_begin(&tool->line, out, dropped, 1);
    kvr_line_add(out, "cache");
    kvr_evict_write_result(&result, out);
    kvr_line_end(out);
    kvr_writer_line_done(&tool->out);
    return KVR_OK;
}

static enum kvr_status act(
    struct tool *tool, struct evict_program *evict, bool quiet, struct kvr_error *error)
{
    enum kvr_status status = kvr_evict_event(evict->evict, &tool->line, error);

    if (status == KVR_OK && !quiet)
        kvr_line_pass(&tool->line, &tool->out);
    return status;
}

static void write_events(struct tool *tool, struct evict_program *evict)
{
    kvr_evict_write_events(evict->evict, &tool->out.buffer);
    tool->out.whole = tool->out.buffer.length;
}

/* Whether it came to the end of what could be read. */
static bool replay(struct tool *tool, struct evict_program *evict, bool quiet)
{
    struct kvr_error error = {0};

    while (tool_next(tool) == TOOL_LINE) {
        enum kvr_status status = kvr_line_is_event(&tool->line) ? act(tool, evict, quiet, &error)
                                                                : serve(tool, evict, quiet, &error);
        if (status == KVR_OK && evict->settings->events)
            write_events(tool, evict);
        if (status == KVR_BAD_INPUT) {
            tool_bad_line(tool, &error);
        } else if (status != KVR_OK) {
            tool_fail(tool, &error);
            return false;
        }
    }
    if (tool_opened_nothing(tool))
        return false;
    if (evict->setup.policy->in_time && !evict->has_time)
        tool_warn(tool, "no line has a timestamp: nothing can have expired");
    if (kvr_evict_finish(evict->evict, &error) != KVR_OK) {
        tool_fail(tool, &error);
        return false;
    }
    if (evict->settings->free_queue) {
        kvr_evict_write_free_queues(evict->evict, &tool->out.buffer);
        tool->out.whole = tool->out.buffer.length;
    }
    return true;
}

static void summarise(struct tool *tool, struct evict_program *evict)
{
    if (evict->settings->json) {
        kvr_evict_write_json(evict->evict, &tool->out.buffer);
        kvr_buffer_append_byte(&tool->out.buffer, '\n');
    } else {
        kvr_evict_write_table(evict->evict, &tool->out.buffer);
    }
    tool->out.whole = tool->out.buffer.length;
}

int main(int argc, char **argv)
{
    static struct evict_settings settings;
    const struct kvr_option_group groups[] = {{"Cache", cache_options, &settings},
        {"Protection", protect_options, &settings}, {"Tiers and cost", tier_options, &settings},
        {"Answers", answer_options, &settings}, {0}};
    struct tool tool;
    struct evict_program evict = {.settings = &settings};
    struct kvr_error error = {0};

    int begun = tool_begin(&tool, &program, groups, argc, argv);
    if (begun >= 0)
        return begun;
    if (!strcmp(settings.engine, "help")) {
        evict_describe(&tool.out.buffer);
        tool.out.whole = tool.out.buffer.length;
        return tool_end(&tool);
    }
    settings.table = settings.table || (!settings.json && !settings.events &&
                                           !tool.settings.output && isatty(STDOUT_FILENO));
    enum kvr_status status = evict_prepare(&evict, &error);
    if (status == KVR_OK && evict.needs_trace)
        status = evict_answer(&tool, &evict, &error);
    else if (status == KVR_OK)
        status = kvr_evict_create(&evict.evict, &evict.setup, &evict.reader, &error);
    if (status != KVR_OK) {
        tool_fail(&tool, &error);
    } else if (!evict.needs_trace) {
        bool quiet = settings.json || settings.table;
        if (replay(&tool, &evict, quiet) && quiet)
            summarise(&tool, &evict);
    }
    evict_release(&evict);
    return tool_end(&tool);
}
