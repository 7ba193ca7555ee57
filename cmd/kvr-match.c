/*
 * kvr-match: adds `match`, the prefix that each worker could reuse, to every request line. What is
 * known comes from placements and cache events (libkvr/cache/match.h); here are the options, the
 * loop over lines, and the loop through other programs and back.
 */
#include "cache/audit.h"
#include "cache/feedback.h"
#include "cmd/tool.h"
#include "cost/cost.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPEN_LOOP_REQUESTS = 5000 }; /* so many without a placement: the user must know */

struct settings {
    const char *workers, *loop, *against, *state, *model;
    uint64_t block_size, top, min_tokens, max_memory;
    struct kvr_capacity capacity;
    double ttl_ms, loop_timeout_ms;
    bool tiers, audit;
};

#define AT(member) offsetof(struct settings, member)

static const struct kvr_option options[] = {
    TOOL_OPTION_WORKERS(struct settings),
    TOOL_OPTION_CAPACITY(struct settings,
        "what each worker's cache holds, where no worker line says it; without it, everything",
        NULL),
    TOOL_OPTION_BLOCK_SIZE(struct settings, "512"),
    {0, "ttl", KVR_OPTION_TIME_MS, AT(ttl_ms), "TIME",
        "a block not placed again for so long is forgotten", NULL, NULL},
    {0, "tiers", KVR_OPTION_FLAG, AT(tiers), NULL,
        "also adds `tiers`: where the tokens of each match lie (gpu, cpu, disk, remote)", NULL,
        NULL},
    {0, "loop", KVR_OPTION_TEXT, AT(loop), "FIFO",
        "brings the routed lines back; waits for each request's placement before the next", NULL,
        "<file>"},
    {0, "loop-timeout", KVR_OPTION_TIME_MS, AT(loop_timeout_ms), "TIME",
        "waits for a placement for so long, then goes on without", "10s", NULL},
    {0, "against", KVR_OPTION_TEXT, AT(against), "WHAT",
        "matches against each worker of the fleet, or any: whatever was seen before", "fleet",
        "fleet|any"},
    {0, "top", KVR_OPTION_COUNT, AT(top), "N",
        "only the N longest matches, longest first; 0: all, in order of worker", "0", NULL},
    {0, "min", KVR_OPTION_COUNT, AT(min_tokens), "TOKENS", "leaves shorter matches out", "0", NULL},
    {0, "max-memory", KVR_OPTION_SIZE, AT(max_memory), "SIZE",
        "bounds the whole index: the worker that holds most forgets first", "4GiB", NULL},
    {0, "state", KVR_OPTION_TEXT, AT(state), "FILE",
        "loads the index at the start, saves it at the end and on SIGUSR1", NULL, "<file>"},
    {0, "audit", KVR_OPTION_FLAG, AT(audit), NULL,
        "keeps the mirror of placements beside workers' cache events, and ends with an audit line: "
        "how far it was off",
        NULL, NULL},
    {0, "model", KVR_OPTION_TEXT, AT(model), "MODEL",
        "the model of a capacity in bytes, see kvr-cost(5)", NULL, kvr_model_names},
    {0},
};

static const struct kvr_program program = {
    .name = "kvr-match",
    .summary = "find the longest reusable prefix on every worker",
    .operands = "[FILE...]",
    .description =
        "Adds `match` to every request line: for each worker the tokens of the prompt that its "
        "cache holds. Workers' caches are mirrored from placements (lines with route.worker, from "
        "the input, --loop or -m) or exactly from their stored, removed and cleared events.",
    .examples = "jq -c '.route = {worker: .server}' log.jsonl | kvr-match -c 3000000 | kvr-stats\n"
                "kvr-match --against any trace.jsonl\n"
                "mkfifo loop; kvr-match -w 8 --loop loop trace.jsonl | kvr-route | tee loop\n",
};

struct match {
    struct tool tool;
    struct settings settings;
    struct kvr_matcher *matcher;
    struct kvr_audit *audit; /* NULL without --audit */
    uint64_t requests;
    bool warned_open, warned_no_blocks;
    struct kvr_feedback *feedback; /* --loop */
};

/* ---- lines ---- */

/* A first request has nothing to match; when a second has passed and nothing was learned, nothing
 * will be, and a pipeline that lacks its loop looks as if caches were useless. */
static void warn_of_open_loop(struct match *match)
{
    if (match->requests < 2 || match->warned_open || kvr_matcher_learned(match->matcher))
        return;
    tool_warn(&match->tool,
        "%lu requests have passed and no placement came back: nothing can match. Lines with "
        "route.worker, --loop, -m or cache events tell what workers hold; --against any needs none",
        (unsigned long)match->requests);
    match->warned_open = true;
}

static void warn_once(struct match *match, const struct kvr_match_request *request)
{
    if (!request->has_blocks && !match->warned_no_blocks) {
        tool_warn(&match->tool, "requests without hash_ids match nothing (kvr-tokenize adds them)");
        match->warned_no_blocks = true;
    }
    if (++match->requests == OPEN_LOOP_REQUESTS)
        warn_of_open_loop(match);
}

static enum kvr_status request_line(struct match *match, struct kvr_error *error)
{
    static const enum kvr_name dropped[] = {KVR_NAME_MATCH, KVR_NAME_TIERS};
    struct tool *tool = &match->tool;
    struct kvr_match_request request;
    enum kvr_status status = kvr_match_read(match->matcher, &tool->line, &request, error);

    if (status != KVR_OK)
        return status;
    if (tool->line.source.merged && request.routed)
        return kvr_match_learn(match->matcher, &request, error);
    if (match->audit)
        status = kvr_audit_request(match->audit, match->matcher, &request, &tool->line, error);
    if (status != KVR_OK)
        return status;
    kvr_line_begin(&tool->line, &tool->out.buffer, dropped, match->settings.tiers ? 2 : 1);
    kvr_line_add(&tool->out.buffer, "match");
    kvr_match_write(match->matcher, &request, &tool->out.buffer);
    kvr_line_end(&tool->out.buffer);
    if (!match->settings.loop)
        status = kvr_match_learn(match->matcher, &request, error);
    if (status != KVR_OK)
        return status;
    warn_once(match, &request);
    kvr_writer_line_done(&tool->out);
    if (match->feedback)
        kvr_feedback_await(match->feedback, kvr_line_get(&tool->line, KVR_NAME_ID));
    return KVR_OK;
}

static void save(struct match *match)
{
    struct kvr_error error = {0};

    if (match->settings.state &&
        kvr_index_save(kvr_matcher_index(match->matcher), match->settings.state, &error) != KVR_OK)
        tool_fail(&match->tool, &error);
}

static enum kvr_status list_workers(struct match *match, struct kvr_error *error)
{
    struct kvr_writer *out = &match->tool.out;
    enum kvr_status status =
        kvr_matcher_workers(match->matcher, match->settings.workers, &out->buffer, error);

    if (status == KVR_OK)
        out->whole = out->buffer.length;
    else
        out->buffer.length = out->whole;
    return status;
}

static void act_on_signals(struct match *match)
{
    struct kvr_error error = {0};

    if (tool_signalled(SIGUSR1))
        save(match);
    if (tool_signalled(SIGHUP) && match->settings.workers && list_workers(match, &error) != KVR_OK)
        tool_warn(&match->tool, "the workers stay as they were: %s", error.text);
}

/* With --audit cache events are not for the mirror. */
static enum kvr_status event_line(struct match *match, struct kvr_error *error)
{
    const struct kvr_line *line = &match->tool.line;
    enum kvr_status status = KVR_OK;
    bool cache_event = false;

    if (match->audit)
        status = kvr_audit_event(match->audit, line, &cache_event, error);
    if (status == KVR_OK && !cache_event)
        status = kvr_match_event(match->matcher, line, error);
    if (status == KVR_OK)
        kvr_line_pass(line, &match->tool.out);
    return status;
}

static void end_audit(struct match *match)
{
    struct kvr_buffer text = {0};

    if (!match->audit || tool_opened_nothing(&match->tool))
        return;
    kvr_audit_write(match->audit, &match->tool.out.buffer);
    kvr_writer_line_done(&match->tool.out);
    kvr_audit_table(match->audit, &text);
    if (match->tool.settings.verbose && kvr_buffer_text(&text))
        fputs(text.data, stderr);
    kvr_buffer_release(&text);
}

static void match_lines(struct match *match)
{
    struct tool *tool = &match->tool;
    struct kvr_error error = {0};
    enum tool_result result;

    while ((result = tool_next(tool)) != TOOL_END) {
        enum kvr_status status;
        act_on_signals(match);
        if (result == TOOL_SIGNAL)
            continue;
        if (kvr_line_is_event(&tool->line)) {
            status = event_line(match, &error);
        } else {
            status = request_line(match, &error);
        }
        if (status == KVR_BAD_INPUT) {
            tool_bad_line(tool, &error);
        } else if (status != KVR_OK) {
            tool_fail(tool, &error);
            break;
        }
    }
}

/* ---- beginning ---- */

static enum kvr_status read_settings(
    const struct settings *settings, struct kvr_match_options *to, struct kvr_error *error)
{
    struct kvr_cost cost = {0};
    bool any = strcmp(settings->against, "any") == 0;

    if (settings->block_size == 0 || settings->block_size > UINT32_MAX)
        return kvr_error_set(error, KVR_BAD_USAGE, "--block-size is out of range");
    if (!(settings->ttl_ms >= 0 && settings->ttl_ms <= (double)KVR_INDEX_MAX_TTL_MS))
        return kvr_error_set(error, KVR_BAD_USAGE, "--ttl is longer than 24 days");
    if (any && settings->audit)
        return kvr_error_set(error, KVR_BAD_USAGE, "--against any has no mirrors to audit");
    if (any && (settings->workers || settings->loop))
        return kvr_error_set(error, KVR_BAD_USAGE, "--against any has no workers and no loop");
    if (settings->model) {
        enum kvr_status status =
            kvr_cost_preset(&cost, settings->model, KVR_COST_DEFAULT_GPU, 0, error);
        if (status != KVR_OK)
            return status;
    }
    *to = (struct kvr_match_options){
        .capacity = settings->capacity,
        .block_size = (uint32_t)settings->block_size,
        .kv_bytes_per_token = cost.kv_bytes_per_token,
        .ttl_ms = (int64_t)settings->ttl_ms,
        .max_memory_bytes = settings->max_memory,
        .top = settings->top,
        .min_tokens = settings->min_tokens,
        .any = any,
        .tiers = settings->tiers,
    };
    if (settings->ttl_ms > 0 && to->ttl_ms == 0)
        to->ttl_ms = 1;
    return KVR_OK;
}

/* A state that cannot be used is worth a warning and a cold start, never a failure. */
static void load_state(struct match *match)
{
    const char *path = match->settings.state;
    struct kvr_error error = {0};

    if (!path || access(path, F_OK) != 0)
        return;
    enum kvr_status loaded = kvr_index_load(kvr_matcher_index(match->matcher), path, &error);
    enum kvr_status fits = kvr_matcher_loaded(match->matcher, loaded == KVR_OK ? &error : NULL);
    if (loaded != KVR_OK || fits != KVR_OK)
        tool_warn(&match->tool, "starting cold: %s", error.text);
}

/* kvr-sim names the way back of the pipelines that it runs, so that they need not. */
static void take_loop_of_environment(struct settings *settings)
{
    const char *loop = getenv("KVR_LOOP");

    if (!settings->loop && loop && *loop && strcmp(settings->against, "any") != 0)
        settings->loop = loop;
}

static void say(void *context, const struct kvr_error *error)
{
    struct tool *tool = context;

    if (error->status == KVR_OK)
        tool_warn(tool, "%s", error->text);
    else if (error->status == KVR_BAD_INPUT)
        tool_bad_foreign_line(tool, error);
    else
        tool_fail(tool, error);
}

static enum kvr_status open_loop(struct match *match, struct kvr_error *error)
{
    struct kvr_feedback_options to = {
        .name = match->settings.loop,
        .timeout_ms = match->settings.loop_timeout_ms,
        .line_limit_bytes = match->tool.settings.line_limit_bytes,
        .out = &match->tool.out,
        .say = say,
        .context = &match->tool,
        .interrupted = tool_interrupted,
    };

    return kvr_feedback_open(&match->feedback, match->matcher, &to, error);
}

static enum kvr_status begin(struct match *match, struct kvr_error *error)
{
    const struct settings *settings = &match->settings;
    struct kvr_match_options to;

    take_loop_of_environment(&match->settings);
    enum kvr_status status = read_settings(settings, &to, error);

    tool_catch(SIGUSR1);
    tool_catch(SIGHUP);
    if (status == KVR_OK)
        status = kvr_matcher_create(&match->matcher, &to, error);
    if (status == KVR_OK && settings->audit)
        status = kvr_audit_create(&match->audit, &to, error);
    if (status != KVR_OK)
        return status;
    load_state(match);
    if (settings->loop)
        status = open_loop(match, error);
    if (status == KVR_OK && settings->workers)
        status = list_workers(match, error);
    return status;
}

int main(int argc, char **argv)
{
    static struct match match;
    const struct kvr_option_group groups[] = {{"Matching", options, &match.settings}, {0}};
    struct kvr_error error = {0};
    int begun = tool_begin(&match.tool, &program, groups, argc, argv);

    if (begun >= 0)
        return begun;
    if (begin(&match, &error) == KVR_OK) {
        match_lines(&match);
        end_audit(&match);
        if (match.feedback) {
            tool_close_output(&match.tool);
            kvr_feedback_drain(match.feedback);
        } else if (match.settings.workers && !match.warned_no_blocks && !tool_interrupted()) {
            warn_of_open_loop(&match);
        }
        save(&match);
    } else {
        tool_fail(&match.tool, &error);
    }
    kvr_feedback_close(match.feedback);
    kvr_audit_destroy(match.audit);
    kvr_matcher_destroy(match.matcher);
    return tool_end(&match.tool);
}
