/*
 * kvr-send: request lines to real endpoints, open loop, with what came back. When calls leave, and
 * the calls themselves, are libkvr/net's; what is in them and written of them is in send_lines.c;
 * here are the options and the loop.
 */
#include "cmd/send.h"
#include "line/worker.h"
#include "token/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AHEAD_REQUESTS = 4096, AHEAD_BYTES = 64 << 20, POLLED_LIMIT = 64 };

#define AT(member) offsetof(struct send_settings, member)

static const struct kvr_option where_options[] = {
    {'u', "url", KVR_OPTION_TEXT, AT(url), "URL",
        "sends lines without a worker there, and those whose worker has no url: the endpoint, with "
        "or without /v1",
        NULL, NULL},
    TOOL_OPTION_WORKERS(struct send_settings),
    {0, "model", KVR_OPTION_TEXT, AT(model), "NAME", "the model, for lines without one", NULL,
        NULL},
    {'n', "max-tokens", KVR_OPTION_COUNT, AT(max_tokens), "TOKENS",
        "tokens to generate, for lines without output_length", "16", NULL},
    {0, "body", KVR_OPTION_TEXT, AT(body), "JSON",
        "an object whose members go into every request, as {\"temperature\":0,\"ignore_eos\":true}",
        NULL, NULL},
    {'H', "header", KVR_OPTION_LIST, AT(headers), "HEADER",
        "'Name: value' for every request; may be given several times", NULL, NULL},
    {0, "api-key-file", KVR_OPTION_TEXT, AT(key_file), "FILE",
        "its first line is sent as the bearer token", NULL, "<file>"},
    {0, "no-stream", KVR_OPTION_FLAG, AT(no_stream), NULL,
        "asks for whole answers; their ttft_ms is when they came", NULL, NULL},
    {0},
};

static const struct kvr_option when_options[] = {
    {0, "speed", KVR_OPTION_REAL, AT(speed), "FACTOR",
        "timestamps pass so many times faster; 0: as soon as there is room", "1", NULL},
    {0, "rate", KVR_OPTION_REAL, AT(rate), "PER_SECOND",
        "so many requests a second in place of timestamps; 0: timestamps", "0", NULL},
    {0, "poisson", KVR_OPTION_FLAG, AT(poisson), NULL,
        "with --rate, intervals by chance (exponential) in place of even ones", NULL, NULL},
    {0, "concurrency", KVR_OPTION_COUNT, AT(concurrency), "N", "at most so many requests under way",
        "1024", NULL},
    {0, "timeout", KVR_OPTION_TIME_MS, AT(timeout_ms), "TIME", "for a whole answer", "10m", NULL},
    {0, "connect-timeout", KVR_OPTION_TIME_MS, AT(connect_timeout_ms), "TIME", "for a connection",
        "5s", NULL},
    {0, "retries", KVR_OPTION_COUNT, AT(retries), "N",
        "sends again what failed before its first byte, or met 429 or 503", "0", NULL},
    {0},
};

static const struct kvr_option what_options[] = {
    {0, "synthesize", KVR_OPTION_FLAG, AT(synthesize), NULL,
        "makes a prompt from hash_ids and input_length: the same id, the same tokens", NULL, NULL},
    {'t', "tokenizer", KVR_OPTION_TEXT, AT(tokenizer), "NAME",
        "with --synthesize, the worker's vocabulary (see kvr-tokenize --list)",
        KVR_DEFAULT_TOKENIZER, "<file>"},
    TOOL_OPTION_BLOCK_SIZE(struct send_settings, "512"),
    {0, "seed", KVR_OPTION_COUNT, AT(seed), "N", "for --poisson and --synthesize", "1", NULL},
    {0, "events", KVR_OPTION_FLAG, AT(events), NULL, "writes a done line for each request as well",
        NULL, NULL},
    {0, "intervals", KVR_OPTION_FLAG, AT(intervals), NULL,
        "adds response.itl_ms: every time between two content chunks", NULL, NULL},
    {0},
};

static const struct kvr_program program = {
    .name = "kvr-send",
    .summary = "send request lines to real endpoints and measure the answers",
    .operands = "[FILE...]",
    .description =
        "Sends each request line to its route.worker, or to --url, when its timestamp is due, "
        "whether or not earlier ones have been answered, and writes it with `response` as it ends. "
        "Times count from when a request was due, so a sender or a connection limit that runs late "
        "does not hide waiting (coordinated omission).",
    .examples = "kvr-route -w workers.jsonl requests.jsonl | kvr-send | kvr-stats\n"
                "kvr-send --url http://127.0.0.1:8000 --rate 5 --poisson requests.jsonl\n"
                "kvr-send --url http://127.0.0.1:8000 --synthesize -t mistral_v0_1 --speed 4 "
                "trace.jsonl\n",
};

/* The source is about to wait for its input: so do we, and for all the rest. */
static void before_wait(struct tool *tool)
{
    struct send *send = tool->context;
    int inputs[POLLED_LIMIT];

    while (!tool_interrupted() && !tool->out.closed) {
        size_t count = kvr_source_descriptors(tool->source, inputs, POLLED_LIMIT);
        /* What has ended is on its way before anything is waited for. */
        kvr_writer_flush(&tool->out);
        if (!count) { /* it is about to be opened */
            kvr_open_loop_start(&send->loop);
            return;
        }
        if (kvr_open_loop_wait(&send->loop, inputs, count))
            return;
    }
}

static bool goes_on(const struct send *send)
{
    return !tool_interrupted() && !send->tool.out.closed;
}

static void wait_for_answers(struct send *send)
{
    kvr_writer_flush(&send->tool.out);
    kvr_open_loop_wait(&send->loop, NULL, 0);
}

static void send_lines(struct send *send)
{
    struct tool *tool = &send->tool;
    const struct kvr_open_loop *loop = &send->loop;
    struct kvr_error error = {0};

    tool->context = send;
    tool->before_wait = before_wait;
    while (tool_next(tool) == TOOL_LINE) {
        enum kvr_status status =
            kvr_line_is_event(&tool->line) ? send_event(send, &error) : send_request(send, &error);
        if (status == KVR_BAD_INPUT) {
            tool_bad_line(tool, &error);
        } else if (status != KVR_OK) {
            tool_fail(tool, &error);
            break;
        }
        kvr_open_loop_start(&send->loop);
        while ((loop->waiting >= AHEAD_REQUESTS || loop->waiting_bytes >= AHEAD_BYTES) &&
               goes_on(send))
            wait_for_answers(send);
    }
    while (!kvr_open_loop_idle(loop) && goes_on(send))
        wait_for_answers(send);
    kvr_open_loop_cancel(&send->loop);
}

static enum kvr_status read_key(struct send *send, struct kvr_error *error)
{
    char text[1024];
    FILE *file = fopen(send->settings.key_file, "re");

    if (!file)
        return kvr_error_errno(error, KVR_IO, "cannot read %s", send->settings.key_file);
    bool read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    text[read ? strcspn(text, "\r\n") : 0] = '\0';
    if (!text[0])
        return kvr_error_set(error, KVR_BAD_USAGE, "%s: no key", send->settings.key_file);
    kvr_buffer_append_format(&send->key, "Authorization: Bearer %s", text);
    return kvr_buffer_text(&send->key) ? KVR_OK : kvr_error_memory(error);
}

static enum kvr_status begin_synthesis(struct send *send, struct kvr_error *error)
{
    struct kvr_buffer cache = {0};
    struct kvr_models_options options = {
        .tokenizer = send->settings.tokenizer, .cache_directory = kvr_directory_cache(&cache)};
    const struct kvr_chat_model *model;
    bool own;

    enum kvr_status status = kvr_models_create(&send->models, &options, error);
    if (status == KVR_OK)
        status = kvr_models_get(send->models, (struct kvr_text){0}, &model, &own, error);
    if (status == KVR_OK)
        status = kvr_synthesizer_create(
            &send->synthesizer, model->tokenizer, send->settings.seed, error);
    kvr_buffer_release(&cache);
    return status;
}

static enum kvr_status begin(struct send *send, struct kvr_error *error)
{
    struct send_settings *settings = &send->settings;
    struct kvr_client_options client = {
        .connect_timeout_ms = settings->connect_timeout_ms, .timeout_ms = settings->timeout_ms};

    if (!settings->concurrency || settings->concurrency > 100000)
        return kvr_error_set(error, KVR_BAD_USAGE, "--concurrency is 1 to 100000");
    if (!(settings->speed >= 0 && settings->rate >= 0))
        return kvr_error_set(error, KVR_BAD_USAGE, "--speed and --rate are 0 or more");
    if (!settings->block_size || settings->block_size > 1 << 24)
        return kvr_error_set(error, KVR_BAD_USAGE, "--block-size is out of range");
    enum kvr_status status = settings->url ? kvr_endpoint_check(settings->url, error) : KVR_OK;
    for (size_t i = 0; i < settings->headers.count && status == KVR_OK; i++)
        status = kvr_header_check(settings->headers.items[i], error);
    if (status != KVR_OK) {
        error->status = KVR_BAD_USAGE;
        return KVR_BAD_USAGE;
    }
    send->pace = (struct kvr_pace){.rate = settings->rate,
        .poisson = settings->poisson,
        .speed = settings->speed,
        .random.state = settings->seed};
    send->ask = (struct kvr_ask_options){.model = settings->model,
        .max_tokens = settings->max_tokens,
        .stream = !settings->no_stream};
    send->structure = kvr_structure_create();
    if (!send->structure)
        return kvr_error_memory(error);
    if (settings->body && (kvr_json_check(send->structure, settings->body, strlen(settings->body),
                               &send->ask.members, &send->members, error) != KVR_OK ||
                              send->ask.members.type != KVR_OBJECT))
        return kvr_error_set(error, KVR_BAD_USAGE, "--body is no JSON object");
    if (settings->key_file) {
        status = read_key(send, error);
        if (status == KVR_OK && settings->headers.count == KVR_LIST_LIMIT)
            return kvr_error_set(error, KVR_BAD_USAGE, "too many headers");
        settings->headers.items[settings->headers.count++] = send->key.data;
    }
    client.headers = settings->headers.items;
    client.header_count = settings->headers.count;
    if (status == KVR_OK && settings->workers)
        status = kvr_workers_each(settings->workers, kvr_endpoints_set, &send->endpoints, error);
    if (status == KVR_OK && settings->synthesize)
        status = begin_synthesis(send, error);
    if (status == KVR_OK)
        status = kvr_client_create(&send->client, &client, error);
    send->loop = (struct kvr_open_loop){.client = send->client,
        .concurrency = settings->concurrency,
        .retries = settings->retries,
        .stopped = tool_interrupted,
        .ended = send_ended,
        .dropped = send_dropped};
    return status;
}

static void release(struct send *send)
{
    send_items_release(send);
    kvr_client_destroy(send->client);
    kvr_endpoints_release(&send->endpoints);
    free(send->ids);
    kvr_synthesizer_destroy(send->synthesizer);
    kvr_models_destroy(send->models);
    kvr_members_release(&send->members);
    kvr_structure_destroy(send->structure);
    kvr_buffer_release(&send->scratch);
    kvr_buffer_release(&send->prompt);
    kvr_buffer_release(&send->key);
}

int main(int argc, char **argv)
{
    static struct send send;
    const struct kvr_option_group groups[] = {{"Where to", where_options, &send.settings},
        {"When", when_options, &send.settings}, {"What", what_options, &send.settings}, {0}};
    struct kvr_error error = {0};
    int begun = tool_begin(&send.tool, &program, groups, argc, argv);

    if (begun >= 0)
        return begun;
    if (begin(&send, &error) == KVR_OK)
        send_lines(&send);
    else
        tool_fail(&send.tool, &error);
    if (send.loop.late)
        tool_warn(&send.tool,
            "%llu of %llu requests left more than 10 ms after they were due, at worst %.0f ms; "
            "that waiting is in their times",
            (unsigned long long)send.loop.late, (unsigned long long)send.loop.sent,
            send.loop.latest_ms);
    if (send.failed)
        tool_warn(&send.tool, "%llu of %llu requests failed", (unsigned long long)send.failed,
            (unsigned long long)send.loop.sent);
    release(&send);
    return tool_end(&send.tool);
}
