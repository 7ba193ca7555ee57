#include "net/scrape.h"

#include "line/line.h"
#include "stat/series.h"

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE_MOST = 16 << 20 };

struct target {
    char *url, *worker;
    CURL *handle;
    struct kvr_buffer page;
    struct kvr_engine_series before;
    bool has_before, answered, is_down;
};

struct kvr_scraper {
    CURLM *multi;
    struct target *targets;
    size_t count;
    struct kvr_buffer line;
};

static size_t keep_page(char *data, size_t size, size_t count, void *context)
{
    struct target *target = context;

    if (target->page.length + size * count > PAGE_MOST)
        return 0; /* ends the transfer as failed */
    kvr_buffer_append(&target->page, data, size * count);
    return target->page.failed ? 0 : size * count;
}

/* host:port out of a URL: what stands between "//" and the next slash. */
static char *host_of(const char *url)
{
    const char *host = strstr(url, "//");

    host = host ? host + 2 : url;
    const char *at = strpbrk(host, "@/?"); /* a password in a URL is no name for a worker */
    if (at && *at == '@')
        host = at + 1;
    return strndup(host, strcspn(host, "/?"));
}

static enum kvr_status add_target(struct kvr_scraper *scraper, const char *text, size_t length,
    double timeout_ms, struct kvr_error *error)
{
    struct target *target = &scraper->targets[scraper->count];
    const char *equals = memchr(text, '=', length);
    const char *slash = memchr(text, '/', length);
    char safe[200];

    if (equals && (!slash || equals < slash) && equals > text) {
        target->worker = strndup(text, (size_t)(equals - text));
        length -= (size_t)(equals + 1 - text);
        text = equals + 1;
    }
    char *rest = strndup(text, length);
    if (!rest)
        return kvr_error_memory(error);
    scraper->count++;
    bool has_scheme = strstr(rest, "://") != NULL;
    const char *host = has_scheme ? strstr(rest, "://") + 3 : rest;
    if (!*host || *host == '/' ||
        asprintf(&target->url, "%s%s%s", has_scheme ? "" : "http://", rest,
            strchr(host, '/') ? "" : "/metrics") < 0) {
        target->url = NULL;
        kvr_error_set(error, KVR_BAD_USAGE, "'%s' is no URL to scrape",
            kvr_printable(safe, sizeof safe, rest, strlen(rest)));
        free(rest);
        return KVR_BAD_USAGE;
    }
    free(rest);
    if (!target->worker)
        target->worker = host_of(target->url);
    target->handle = curl_easy_init();
    if (!target->worker || !target->handle)
        return kvr_error_memory(error);
    CURL *handle = target->handle;
    curl_easy_setopt(handle, CURLOPT_URL, target->url);
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, keep_page);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, target);
    curl_easy_setopt(handle, CURLOPT_PRIVATE, target);
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(handle, CURLOPT_ACCEPT_ENCODING, "");
    curl_easy_setopt(handle, CURLOPT_USERAGENT, "kvr-stats/" KVR_VERSION);
    return KVR_OK;
}

enum kvr_status kvr_scraper_create(
    struct kvr_scraper **result, const char *targets, double timeout_ms, struct kvr_error *error)
{
    struct kvr_scraper *scraper = calloc(1, sizeof *scraper);
    enum kvr_status status = KVR_OK;
    size_t most = 1;

    *result = NULL;
    for (const char *at = targets; *at; at++)
        most += *at == ',';
    if (most > KVR_SCRAPE_TARGETS) {
        free(scraper);
        return kvr_error_set(
            error, KVR_BAD_USAGE, "more than %d workers to scrape", KVR_SCRAPE_TARGETS);
    }
    if (scraper) {
        scraper->targets = calloc(most, sizeof *scraper->targets);
        scraper->multi = curl_multi_init();
    }
    if (!scraper || !scraper->targets || !scraper->multi) {
        kvr_scraper_destroy(scraper);
        return kvr_error_memory(error);
    }
    while (status == KVR_OK) {
        size_t length = strcspn(targets, ",");
        status = add_target(scraper, targets, length, timeout_ms, error);
        targets += length;
        if (!*targets)
            break;
        targets++;
    }
    if (status != KVR_OK)
        kvr_scraper_destroy(scraper);
    else
        *result = scraper;
    return status;
}

void kvr_scraper_destroy(struct kvr_scraper *scraper)
{
    if (!scraper)
        return;
    for (size_t i = 0; i < scraper->count; i++) {
        curl_easy_cleanup(scraper->targets[i].handle);
        free(scraper->targets[i].url);
        free(scraper->targets[i].worker);
        kvr_buffer_release(&scraper->targets[i].page);
    }
    free(scraper->targets);
    curl_multi_cleanup(scraper->multi);
    kvr_buffer_release(&scraper->line);
    free(scraper);
}

static void begin_line(
    struct kvr_buffer *line, const char *event, const struct target *target, double now_ms)
{
    kvr_buffer_clear(line);
    kvr_buffer_append_format(line, "{\"event\":\"%s\",\"timestamp\":", event);
    kvr_json_write_fixed(line, now_ms, 0);
    kvr_buffer_append_text(line, ",\"worker\":");
    kvr_json_write_string(line, target->worker, strlen(target->worker));
}

static void add_number(struct kvr_buffer *line, const char *name, double number)
{
    if (!isfinite(number))
        return;
    kvr_line_add(line, name);
    kvr_json_write_fixed(line, number, 6);
}

static void write_state(
    struct kvr_scraper *scraper, const struct target *target, const char *state, double now_ms)
{
    begin_line(&scraper->line, "worker", target, now_ms);
    kvr_buffer_append_format(&scraper->line, ",\"state\":\"%s\"", state);
    if (target->has_before && target->before.capacity_tokens > 0)
        kvr_buffer_append_format(
            &scraper->line, ",\"capacity\":%.0f", target->before.capacity_tokens);
    kvr_line_end(&scraper->line);
}

static void write_load(struct kvr_scraper *scraper, const struct target *target,
    const struct kvr_engine_series *now, double now_ms)
{
    const struct kvr_engine_series *before = &target->before;
    struct kvr_buffer *line = &scraper->line;

    begin_line(line, "load", target, now_ms);
    add_number(line, "waiting", now->waiting);
    add_number(line, "running", now->running);
    add_number(line, "kv_usage", now->kv_usage);
    if (target->has_before) {
        add_number(
            line, "prompt_tokens", kvr_series_increase(before->prompt_tokens, now->prompt_tokens));
        add_number(
            line, "cached_tokens", kvr_series_increase(before->cached_tokens, now->cached_tokens));
        add_number(line, "evicted_tokens",
            kvr_series_increase(before->evicted_tokens, now->evicted_tokens));
        add_number(line, "ttft_p50_ms", kvr_series_ttft_ms(before, now, 0.5));
        add_number(line, "ttft_p99_ms", kvr_series_ttft_ms(before, now, 0.99));
    }
    kvr_line_end(line);
}

static enum kvr_status tell(struct kvr_scraper *scraper, struct target *target, double now_ms,
    enum kvr_status (*emit)(void *context, const char *line, size_t length), void *context)
{
    struct kvr_engine_series now;
    bool readable =
        target->answered && kvr_series_read(target->page.data, target->page.length, &now);
    bool was_known = target->has_before || target->is_down;
    enum kvr_status status = KVR_OK;

    if (!readable) {
        if (!target->is_down) {
            target->is_down = true;
            write_state(scraper, target, "down", now_ms);
            status = emit(context, scraper->line.data, scraper->line.length);
        }
        return status;
    }
    struct kvr_engine_series before = target->before;
    bool had_before = target->has_before;
    if (target->is_down || !was_known) {
        target->is_down = false;
        target->before = now; /* for the capacity */
        target->has_before = true;
        write_state(scraper, target, "active", now_ms);
        target->before = before;
        target->has_before = had_before;
        status = emit(context, scraper->line.data, scraper->line.length);
    }
    if (status == KVR_OK) {
        write_load(scraper, target, &now, now_ms);
        status = emit(context, scraper->line.data, scraper->line.length);
    }
    target->before = now;
    target->has_before = true;
    return status;
}

enum kvr_status kvr_scraper_poll(struct kvr_scraper *scraper, double now_ms,
    enum kvr_status (*emit)(void *context, const char *line, size_t length), void *context,
    struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;
    CURLMsg *message;
    int running = 0, left;

    for (size_t i = 0; i < scraper->count; i++) {
        struct target *target = &scraper->targets[i];
        kvr_buffer_clear(&target->page);
        target->answered = false;
        curl_multi_add_handle(scraper->multi, target->handle);
    }
    /* Every transfer has its own timeout, so this ends. */
    do {
        if (curl_multi_perform(scraper->multi, &running) != CURLM_OK)
            break;
        while ((message = curl_multi_info_read(scraper->multi, &left))) {
            struct target *target = NULL;
            if (message->msg != CURLMSG_DONE)
                continue;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&target);
            target->answered = message->data.result == CURLE_OK && target->page.length > 0;
        }
    } while (running && curl_multi_poll(scraper->multi, NULL, 0, 200, NULL) == CURLM_OK);
    for (size_t i = 0; i < scraper->count; i++)
        curl_multi_remove_handle(scraper->multi, scraper->targets[i].handle);
    for (size_t i = 0; i < scraper->count && status == KVR_OK; i++)
        status = tell(scraper, &scraper->targets[i], now_ms, emit, context);
    if (status == KVR_OK && scraper->line.failed)
        status = kvr_error_memory(error);
    return status;
}

void kvr_scraper_answers(const struct kvr_scraper *scraper, size_t *answered, size_t *targets)
{
    *answered = 0;
    *targets = scraper->count;
    for (size_t i = 0; i < scraper->count; i++)
        *answered += scraper->targets[i].answered;
}
