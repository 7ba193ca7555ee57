/*
 * kvr-send: request lines to real endpoints, open loop, with what came back. The calls are
 * libkvr/net's; here are the options, the schedule, and what is written of each answer.
 */
#include "base/clock.h"
#include "base/grow.h"
#include "base/random.h"
#include "cmd/tool.h"
#include "line/worker.h"
#include "net/ask.h"
#include "net/client.h"
#include "net/endpoints.h"
#include "net/synthesize.h"
#include "token/directory.h"
#include "token/models.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AHEAD_REQUESTS = 4096, AHEAD_BYTES = 64 << 20, POLLED_LIMIT = 64 };

struct settings {
    const char *url, *workers, *model, *body, *tokenizer, *key_file;
    struct kvr_text_list headers;
    double rate, speed, timeout_ms, connect_timeout_ms;
    uint64_t concurrency, retries, max_tokens, block_size, seed;
    bool poisson, synthesize, no_stream, events, intervals;
};

#define AT(member) offsetof(struct settings, member)

static const struct kvr_option where_options[] = {
    {'u', "url", KVR_OPTION_TEXT, AT(url), "URL",
        "sends lines without a worker there, and those whose worker has no url: the endpoint, with "
        "or without /v1",
        NULL, NULL},
    TOOL_OPTION_WORKERS(struct settings),
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
    TOOL_OPTION_BLOCK_SIZE(struct settings, "512"),
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

struct item {
    struct kvr_call call; /* first: one is found from the other */
    struct item *next;
    struct kvr_buffer line; /* the object up to its brace */
    struct kvr_buffer id, worker, url, body;
    double due_ms; /* in kvr_clock_ms(); NaN: as soon as there is room */
    unsigned tries;
    bool under_way;
    struct send *send;
    struct item *before, *after; /* among those under way */
};

struct send {
    struct tool tool;
    struct settings settings;
    struct kvr_client *client;
    struct kvr_ask_options ask;
    struct kvr_models *models;
    struct kvr_synthesizer *synthesizer;
    struct kvr_structure *structure;
    struct kvr_members members;
    struct kvr_buffer scratch, prompt, key;
    struct kvr_endpoints endpoints;
    uint64_t *ids;
    size_t id_capacity;
    struct kvr_random random;
    /* the schedule: those due, in order of arrival */
    struct item *first, *last, *spare, *under_way;
    size_t waiting, waiting_bytes, in_flight;
    double start_ms, first_timestamp, next_due_ms;
    bool started;
    uint64_t sent, failed, late;
    double latest_ms;
};

static const char *find_url(const struct send *send, const struct kvr_buffer *worker)
{
    const char *url = kvr_endpoints_find(&send->endpoints, worker->data, worker->length);

    return url ? url : send->settings.url;
}

/* ---- what is written ---- */

static void write_intervals(const struct item *item, struct kvr_buffer *out)
{
    const double *gaps = (const double *)(const void *)item->call.answer.intervals.data;
    size_t count = item->call.answer.intervals.length / sizeof *gaps;

    kvr_buffer_append_text(out, ",\"itl_ms\":[");
    for (size_t i = 0; i < count; i++) {
        if (i)
            kvr_buffer_append_byte(out, ',');
        kvr_json_write_fixed(out, gaps[i], 3);
    }
    kvr_buffer_append_byte(out, ']');
}

static void write_response(const struct send *send, const struct item *item, struct kvr_buffer *out)
{
    const struct kvr_call *call = &item->call;
    const char *worker = item->worker.length ? item->worker.data : NULL;
    double due_ms = isnan(item->due_ms) ? call->started_ms : item->due_ms;

    kvr_answer_write(&call->answer, call->status, due_ms, call->ended_ms, worker, out);
    kvr_buffer_append_text(out, ",\"late_ms\":");
    kvr_json_write_fixed(out, call->started_ms - due_ms, 3);
    if (item->tries > 1) {
        kvr_buffer_append_text(out, ",\"attempts\":");
        kvr_buffer_append_u64(out, item->tries);
    }
    if (call->failure != KVR_CALL_ANSWERED || call->answer.failed) {
        kvr_buffer_append_text(out, ",\"error\":\"");
        kvr_buffer_append_text(out, call->failure == KVR_CALL_ANSWERED
                                        ? "error in stream"
                                        : kvr_call_failure_name(call->failure));
        kvr_buffer_append_byte(out, '"');
    }
    if (send->settings.intervals)
        write_intervals(item, out);
    kvr_buffer_append_byte(out, '}');
}

static void write_item(struct send *send, struct item *item)
{
    struct kvr_writer *writer = &send->tool.out;
    struct kvr_buffer *out = &writer->buffer;

    kvr_buffer_append(out, item->line.data, item->line.length);
    kvr_line_add(out, "response");
    write_response(send, item, out);
    kvr_line_end(out);
    kvr_writer_line_done(writer);
    if (!send->settings.events)
        return;
    kvr_buffer_append_text(out, "{\"event\":\"done\",\"id\":");
    kvr_buffer_append(out, item->id.data, item->id.length);
    if (item->worker.length) {
        kvr_buffer_append_text(out, ",\"worker\":");
        kvr_json_write_string(out, item->worker.data, item->worker.length);
    }
    kvr_line_add(out, "response");
    write_response(send, item, out);
    kvr_buffer_append_byte(out, '}');
    kvr_writer_line_done(writer);
}

/* ---- items ---- */

static void keep_item(struct send *send, struct item *item)
{
    item->next = send->spare;
    send->spare = item;
}

static struct item *new_item(struct send *send)
{
    struct item *item = send->spare;

    if (item) {
        send->spare = item->next;
        kvr_buffer_clear(&item->line);
        kvr_buffer_clear(&item->id);
        kvr_buffer_clear(&item->worker);
        kvr_buffer_clear(&item->url);
        kvr_buffer_clear(&item->body);
        item->tries = 0;
        return item;
    }
    item = calloc(1, sizeof *item);
    if (item)
        item->send = send;
    return item;
}

static void free_item(struct item *item)
{
    kvr_call_release(&item->call);
    kvr_buffer_release(&item->line);
    kvr_buffer_release(&item->id);
    kvr_buffer_release(&item->worker);
    kvr_buffer_release(&item->url);
    kvr_buffer_release(&item->body);
    free(item);
}

static void call_ended(struct kvr_call *call);

static bool start_item(struct send *send, struct item *item)
{
    struct kvr_error error;
    struct kvr_call *call = &item->call;

    call->url = kvr_buffer_text(&item->url);
    call->body = item->body.data;
    call->body_length = item->body.length;
    call->ended = call_ended;
    call->answer.keep_intervals = send->settings.intervals;
    item->tries++;
    if (kvr_client_start(send->client, call, &error) != KVR_OK) {
        tool_fail(&send->tool, &error);
        return false;
    }
    if (item->tries > 1)
        return true;
    item->before = NULL;
    item->after = send->under_way;
    if (send->under_way)
        send->under_way->before = item;
    send->under_way = item;
    send->in_flight++;
    send->sent++;
    double late_ms = call->started_ms - item->due_ms;
    if (late_ms > 10) {
        send->late++;
        send->latest_ms = late_ms > send->latest_ms ? late_ms : send->latest_ms;
    }
    return true;
}

static void finish_item(struct send *send, struct item *item)
{
    if (item->before)
        item->before->after = item->after;
    else
        send->under_way = item->after;
    if (item->after)
        item->after->before = item->before;
    send->in_flight--;
    send->failed += item->call.status != 200 || item->call.failure != KVR_CALL_ANSWERED;
    write_item(send, item);
    keep_item(send, item);
}

/* Sent again is only what certainly had no effect, or what a worker asked to be sent again. */
static bool may_retry(const struct send *send, const struct item *item)
{
    const struct kvr_call *call = &item->call;

    if (item->tries > send->settings.retries || tool_interrupted())
        return false;
    if (call->status == 429 || call->status == 503)
        return true;
    return !call->any_byte &&
           (call->failure == KVR_CALL_UNREACHED || call->failure == KVR_CALL_BROKEN);
}

static void call_ended(struct kvr_call *call)
{
    struct item *item = (struct item *)call;
    struct send *send = item->send;

    if (may_retry(send, item) && start_item(send, item))
        return;
    finish_item(send, item);
}

/* ---- the schedule ---- */

static void start_due(struct send *send)
{
    double now_ms = kvr_clock_ms();

    while (send->first && send->in_flight < send->settings.concurrency && !tool_interrupted()) {
        struct item *item = send->first;
        if (item->due_ms > now_ms)
            break;
        send->first = item->next;
        if (!send->first)
            send->last = NULL;
        send->waiting--;
        send->waiting_bytes -= item->line.length + item->body.length;
        if (!start_item(send, item))
            keep_item(send, item);
    }
}

/* Waits for whatever comes first: an answer, a request that is due, or a byte of input. True when
 * there is input. */
static bool wait_once(struct send *send, bool input)
{
    struct pollfd polled[POLLED_LIMIT + 1];
    int inputs[POLLED_LIMIT];
    size_t count = 1, input_count = 0;
    int wait_ms = kvr_client_wait_ms(send->client);

    start_due(send);
    if (send->first && send->in_flight < send->settings.concurrency) {
        double left_ms = send->first->due_ms - kvr_clock_ms();
        int due_ms = left_ms <= 0 ? 0 : left_ms > 1e6 ? 1000000 : (int)ceil(left_ms);
        wait_ms = wait_ms < 0 || due_ms < wait_ms ? due_ms : wait_ms;
    }
    if (wait_ms < 0 || wait_ms > 1000)
        wait_ms = 1000;
    int timer_ms = kvr_client_wait_ms(send->client);
    if (timer_ms >= 0 && timer_ms < wait_ms)
        wait_ms = timer_ms;
    polled[0] = (struct pollfd){kvr_client_descriptor(send->client), POLLIN, 0};
    if (input)
        input_count = kvr_source_descriptors(send->tool.source, inputs, POLLED_LIMIT);
    if (input && !input_count)
        return true; /* it is about to be opened */
    for (size_t i = 0; i < input_count; i++)
        polled[count++] = (struct pollfd){inputs[i], POLLIN, 0};
    /* What has ended is on its way before anything is waited for. */
    kvr_writer_flush(&send->tool.out);
    int ready = poll(polled, count, wait_ms);
    kvr_client_step(send->client);
    start_due(send);
    for (size_t i = 1; ready > 0 && i < count; i++)
        if (polled[i].revents)
            return true;
    return false;
}

/* The source is about to wait for its input: so do we, and for all the rest. */
static void before_wait(struct tool *tool)
{
    struct send *send = tool->context;

    while (!tool_interrupted() && !tool->out.closed && !wait_once(send, true))
        ;
}

static bool full(const struct send *send)
{
    return send->waiting >= AHEAD_REQUESTS || send->waiting_bytes >= AHEAD_BYTES;
}

/* When a request is due: by its timestamp, by the rate, or at once. */
static enum kvr_status schedule(
    struct send *send, const struct kvr_line *line, double *due_ms, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, KVR_NAME_TIMESTAMP);
    double timestamp = NAN, now_ms = kvr_clock_ms();

    if (value.type > KVR_NULL && (!kvr_value_double(value, &timestamp) || !isfinite(timestamp)))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'timestamp' is not a number");
    if (send->settings.rate > 0) {
        double step_ms = 1000 / send->settings.rate;
        if (!send->started)
            send->next_due_ms = now_ms;
        send->started = true;
        *due_ms = send->next_due_ms;
        if (send->settings.poisson)
            step_ms *= -log(1 - kvr_random_unit(&send->random));
        send->next_due_ms += step_ms;
        return KVR_OK;
    }
    *due_ms = NAN;
    if (send->settings.speed <= 0 || isnan(timestamp))
        return KVR_OK;
    if (!send->started) {
        send->started = true;
        send->start_ms = now_ms;
        send->first_timestamp = timestamp;
    }
    *due_ms = send->start_ms + (timestamp - send->first_timestamp) / send->settings.speed;
    return KVR_OK;
}

/* ---- lines ---- */

static enum kvr_status make_prompt(
    struct send *send, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_value blocks = kvr_line_get(line, KVR_NAME_HASH_IDS);
    struct kvr_value size = kvr_line_get(line, KVR_NAME_BLOCK_SIZE);
    uint64_t block_tokens = send->settings.block_size, tokens;
    ptrdiff_t count = 0;

    if (size.type > KVR_NULL &&
        (!kvr_value_u64(size, &block_tokens) || !block_tokens || block_tokens > 1 << 24))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'block_size' is no size of a block");
    if (!kvr_value_u64(kvr_line_get(line, KVR_NAME_INPUT_LENGTH), &tokens) || tokens > 1 << 24)
        return kvr_error_set(error, KVR_BAD_INPUT, "--synthesize needs an input_length below 2^24");
    if (blocks.type == KVR_ARRAY) {
        uint64_t *grown =
            kvr_grow(send->ids, &send->id_capacity, kvr_value_u64s_room(blocks), sizeof *grown);
        if (!grown)
            return kvr_error_memory(error);
        send->ids = grown;
        count = kvr_value_u64s(blocks, grown);
    }
    if (count < 0)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "member 'hash_ids' is not an array of whole numbers");
    kvr_buffer_clear(&send->prompt);
    return kvr_synthesize(send->synthesizer, send->ids, (size_t)count, block_tokens, tokens,
        send->tool.lines, &send->prompt, error);
}

/* A line that the router rejected, or had no worker for, is not sent and says so. */
static enum kvr_status not_sent(struct send *send, struct kvr_value route)
{
    static const enum kvr_name dropped[] = {KVR_NAME_RESPONSE};
    struct kvr_buffer *out = &send->tool.out.buffer;
    bool rejected = kvr_value_is(kvr_value_get(route, "reason"), "rejected");

    kvr_line_begin(&send->tool.line, out, dropped, 1);
    kvr_line_add(out, "response");
    kvr_buffer_append_text(out, rejected ? "{\"status\":429}" : "{\"status\":503}");
    kvr_line_end(out);
    kvr_writer_line_done(&send->tool.out);
    return KVR_OK;
}

static enum kvr_status fill_item(
    struct send *send, struct item *item, struct kvr_value worker, struct kvr_error *error)
{
    static const enum kvr_name dropped[] = {KVR_NAME_RESPONSE, KVR_NAME_ID};
    const struct kvr_line *line = &send->tool.line;
    struct kvr_value id = kvr_line_get(line, KVR_NAME_ID);
    struct kvr_text prompt = {0};
    const char *path;
    bool named = id.type > KVR_NULL;

    if (worker.type > KVR_NULL && !kvr_value_string(worker, &item->worker))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'route.worker' is not a name");
    const char *url = find_url(send, &item->worker);
    if (!url)
        return kvr_error_set(error, KVR_BAD_INPUT,
            item->worker.length ? "the worker has no url (-w, worker lines or --url tell it)"
                                : "the line has no route.worker and there is no --url");
    if (item->worker.length)
        kvr_buffer_text(&item->worker);
    if (named) {
        kvr_buffer_append(&item->id, id.text, id.length);
    } else {
        kvr_buffer_clear(&send->scratch);
        kvr_buffer_append_format(
            &send->scratch, "%s:%llu", line->source.file, (unsigned long long)line->source.number);
        kvr_json_write_string(&item->id, send->scratch.data, send->scratch.length);
    }
    enum kvr_status status = KVR_OK;
    if (send->synthesizer) {
        status = make_prompt(send, line, error);
        prompt = (struct kvr_text){send->prompt.data, send->prompt.length};
    }
    if (status == KVR_OK)
        status = kvr_ask_write(&send->ask, line, prompt, &item->body, &path, error);
    if (status == KVR_OK)
        status = schedule(send, line, &item->due_ms, error);
    if (status != KVR_OK)
        return status;
    kvr_ask_url(url, strlen(url), path, &item->url);
    kvr_line_begin(line, &item->line, dropped, named ? 1 : 2);
    if (!named) {
        kvr_line_add(&item->line, "id");
        kvr_buffer_append(&item->line, item->id.data, item->id.length);
    }
    bool lacks = item->line.failed || item->id.failed || !kvr_buffer_text(&item->url);
    return lacks ? kvr_error_memory(error) : KVR_OK;
}

static enum kvr_status request_line(struct send *send, struct kvr_error *error)
{
    struct kvr_value route = kvr_line_get(&send->tool.line, KVR_NAME_ROUTE);
    struct kvr_value worker = kvr_value_get(route, "worker");

    if (worker.type == KVR_NULL)
        return not_sent(send, route);
    struct item *item = new_item(send);
    if (!item)
        return kvr_error_memory(error);
    enum kvr_status status = fill_item(send, item, worker, error);
    if (status != KVR_OK) {
        keep_item(send, item);
        return status;
    }
    item->next = NULL;
    if (send->last)
        send->last->next = item;
    else
        send->first = item;
    send->last = item;
    send->waiting++;
    send->waiting_bytes += item->line.length + item->body.length;
    return KVR_OK;
}

static enum kvr_status event_line(struct send *send, struct kvr_error *error)
{
    struct kvr_worker_description worker;
    enum kvr_status status = KVR_OK;

    if (kvr_value_is(kvr_line_get(&send->tool.line, KVR_NAME_EVENT), "worker")) {
        status = kvr_worker_read(&send->tool.line, &send->scratch, &worker, error);
        if (status == KVR_OK)
            status = kvr_endpoints_set(&send->endpoints, &worker, error);
    }
    if (status == KVR_OK)
        kvr_line_pass(&send->tool.line, &send->tool.out);
    return status;
}

static void send_lines(struct send *send)
{
    struct tool *tool = &send->tool;
    struct kvr_error error = {0};

    tool->context = send;
    tool->before_wait = before_wait;
    while (tool_next(tool) == TOOL_LINE) {
        enum kvr_status status =
            kvr_line_is_event(&tool->line) ? event_line(send, &error) : request_line(send, &error);
        if (status == KVR_BAD_INPUT) {
            tool_bad_line(tool, &error);
        } else if (status != KVR_OK) {
            tool_fail(tool, &error);
            break;
        }
        start_due(send);
        while (full(send) && !tool_interrupted() && !tool->out.closed)
            wait_once(send, false);
    }
    while ((send->first || send->in_flight) && !tool_interrupted() && !tool->out.closed)
        wait_once(send, false);
    while (send->under_way)
        kvr_client_cancel(&send->under_way->call);
}

/* ---- beginning and end ---- */

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

    enum kvr_status status = kvr_models_create(&send->models, &options, error);
    if (status == KVR_OK)
        status = kvr_models_get(send->models, (struct kvr_text){0}, &model, error);
    if (status == KVR_OK)
        status = kvr_synthesizer_create(
            &send->synthesizer, model->tokenizer, send->settings.seed, error);
    kvr_buffer_release(&cache);
    return status;
}

static enum kvr_status begin(struct send *send, struct kvr_error *error)
{
    struct settings *settings = &send->settings;
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
    send->random.state = settings->seed;
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
    return status == KVR_OK ? kvr_client_create(&send->client, &client, error) : status;
}

static void release(struct send *send)
{
    struct item *lists[] = {send->spare, send->first};

    for (size_t i = 0; i < 2; i++) {
        for (struct item *item = lists[i], *next; item; item = next) {
            next = item->next;
            free_item(item);
        }
    }
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
    if (send.late)
        tool_warn(&send.tool,
            "%llu of %llu requests left more than 10 ms after they were due, at worst %.0f ms; "
            "that waiting is in their times",
            (unsigned long long)send.late, (unsigned long long)send.sent, send.latest_ms);
    if (send.failed)
        tool_warn(&send.tool, "%llu of %llu requests failed", (unsigned long long)send.failed,
            (unsigned long long)send.sent);
    release(&send);
    return tool_end(&send.tool);
}
