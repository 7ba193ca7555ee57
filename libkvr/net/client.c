#include "net/client.h"

#include "base/clock.h"

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS_AT_ONCE = 64, IDLE_HANDLES = 256 };

struct kvr_client {
    CURLM *multi;
    struct curl_slist *headers;
    struct kvr_client_options options;
    int epoll;
    double timer_ms; /* when libcurl wants to be called; NaN: never */
    CURL *idle[IDLE_HANDLES];
    size_t idle_count;
};

const char *kvr_call_failure_name(enum kvr_call_failure failure)
{
    static const char *const names[] = {
        "answered", "unreached", "broken", "timed out", "cancelled"};

    return names[failure];
}

static int socket_wanted(CURL *handle, curl_socket_t descriptor, int what, void *context, void *old)
{
    struct kvr_client *client = context;
    struct epoll_event event = {.data.fd = descriptor};

    (void)handle;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(client->epoll, EPOLL_CTL_DEL, descriptor, NULL);
        curl_multi_assign(client->multi, descriptor, NULL);
        return 0;
    }
    event.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    epoll_ctl(client->epoll, old ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, descriptor, &event);
    curl_multi_assign(client->multi, descriptor, client);
    return 0;
}

static int timer_wanted(CURLM *multi, long timeout_ms, void *context)
{
    struct kvr_client *client = context;

    (void)multi;
    client->timer_ms = timeout_ms < 0 ? NAN : kvr_clock_ms() + (double)timeout_ms;
    return 0;
}

enum kvr_status kvr_client_create(
    struct kvr_client **out, const struct kvr_client_options *options, struct kvr_error *error)
{
    struct kvr_client *client = calloc(1, sizeof *client);

    if (!client)
        return kvr_error_memory(error);
    client->options = *options;
    client->timer_ms = NAN;
    client->epoll = epoll_create1(EPOLL_CLOEXEC);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    client->multi = curl_multi_init();
    /* Chunked uploads and "Expect: 100-continue" would cost a round trip that no engine wants. */
    client->headers = curl_slist_append(NULL, "Expect:");
    struct curl_slist *grown = curl_slist_append(client->headers, "Content-Type: application/json");
    for (size_t i = 0; grown && i < options->header_count; i++)
        grown = curl_slist_append(grown, options->headers[i]);
    if (client->epoll < 0 || !client->multi || !client->headers || !grown) {
        kvr_client_destroy(client);
        return kvr_error_memory(error);
    }
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, socket_wanted);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, timer_wanted);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    *out = client;
    return KVR_OK;
}

void kvr_client_destroy(struct kvr_client *client)
{
    if (!client)
        return;
    for (size_t i = 0; i < client->idle_count; i++)
        curl_easy_cleanup(client->idle[i]);
    curl_multi_cleanup(client->multi);
    curl_slist_free_all(client->headers);
    if (client->epoll >= 0)
        close(client->epoll);
    free(client);
    curl_global_cleanup();
}

/* The first bytes: only now is it known whether a stream comes. */
static void begin_answer(struct kvr_call *call)
{
    const char *type = NULL;

    curl_easy_getinfo(call->handle, CURLINFO_CONTENT_TYPE, &type);
    kvr_answer_begin(&call->answer, type && strncasecmp(type, "text/event-stream", 17) == 0);
    call->begun = true;
}

static size_t bytes_came(char *bytes, size_t one, size_t length, void *context)
{
    struct kvr_call *call = context;

    (void)one;
    if (!call->begun)
        begin_answer(call);
    call->any_byte = true;
    kvr_answer_feed(&call->answer, bytes, length, kvr_clock_ms());
    return length;
}

static void set_options(struct kvr_client *client, struct kvr_call *call, CURL *handle)
{
    curl_easy_setopt(handle, CURLOPT_PRIVATE, call);
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(handle, CURLOPT_TCP_NODELAY, 1L);
    if (!getenv("no_proxy") && !getenv("NO_PROXY"))
        curl_easy_setopt(handle, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1,[::1]");
    curl_easy_setopt(
        handle, CURLOPT_CONNECTTIMEOUT_MS, (long)ceil(client->options.connect_timeout_ms));
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, (long)ceil(client->options.timeout_ms));
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, client->headers);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, bytes_came);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, NULL);
    if (call->body) {
        curl_easy_setopt(handle, CURLOPT_POSTFIELDS, call->body);
        curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_length);
    } else {
        curl_easy_setopt(handle, CURLOPT_HTTPGET, 1L);
    }
}

enum kvr_status kvr_client_start(
    struct kvr_client *client, struct kvr_call *call, struct kvr_error *error)
{
    bool keeps = call->answer.keep_intervals;
    if (!call->answer.structure && kvr_answer_init(&call->answer, error) != KVR_OK)
        return error->status;
    call->answer.keep_intervals = keeps;
    CURL *handle = client->idle_count ? client->idle[--client->idle_count] : curl_easy_init();
    if (!handle)
        return kvr_error_memory(error);
    call->client = client;
    call->handle = handle;
    call->status = 0;
    call->begun = call->any_byte = false;
    call->failure = KVR_CALL_ANSWERED;
    call->error[0] = '\0';
    kvr_answer_begin(&call->answer, false);
    set_options(client, call, handle);
    call->started_ms = kvr_clock_ms();
    if (curl_easy_setopt(handle, CURLOPT_URL, call->url) != CURLE_OK ||
        curl_multi_add_handle(client->multi, handle) != CURLM_OK) {
        curl_easy_cleanup(handle);
        call->handle = NULL;
        return kvr_error_set(error, KVR_BAD_INPUT, "cannot call '%s'", call->url);
    }
    return KVR_OK;
}

static enum kvr_call_failure failure_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return KVR_CALL_ANSWERED;
    case CURLE_OPERATION_TIMEDOUT:
        return KVR_CALL_TIMED_OUT;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
        return KVR_CALL_UNREACHED;
    default:
        return KVR_CALL_BROKEN;
    }
}

/* The handle leaves the multi and waits for its next call, which keeps its buffers. */
static void end_call(struct kvr_call *call, enum kvr_call_failure failure)
{
    struct kvr_client *client = call->client;
    long status = 0;

    call->ended_ms = kvr_clock_ms();
    curl_easy_getinfo(call->handle, CURLINFO_RESPONSE_CODE, &status);
    call->status = (unsigned)status;
    call->failure = failure;
    if (failure == KVR_CALL_ANSWERED)
        kvr_answer_end(&call->answer, call->ended_ms);
    curl_multi_remove_handle(client->multi, call->handle);
    if (client->idle_count < IDLE_HANDLES) {
        curl_easy_reset(call->handle);
        client->idle[client->idle_count++] = call->handle;
    } else {
        curl_easy_cleanup(call->handle);
    }
    call->handle = NULL;
    call->ended(call);
}

void kvr_client_cancel(struct kvr_call *call)
{
    if (call->handle)
        end_call(call, KVR_CALL_CANCELLED);
}

void kvr_call_release(struct kvr_call *call)
{
    if (call->answer.structure)
        kvr_answer_release(&call->answer);
}

int kvr_client_descriptor(const struct kvr_client *client)
{
    return client->epoll;
}

int kvr_client_wait_ms(const struct kvr_client *client)
{
    if (isnan(client->timer_ms))
        return -1;
    double left_ms = client->timer_ms - kvr_clock_ms();
    return left_ms <= 0 ? 0 : left_ms > 1e6 ? 1000000 : (int)ceil(left_ms);
}

static void end_calls(struct kvr_client *client)
{
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(client->multi, &left))) {
        struct kvr_call *call = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        snprintf(call->error, sizeof call->error, "%s", code ? curl_easy_strerror(code) : "");
        end_call(call, failure_of(code));
    }
}

void kvr_client_step(struct kvr_client *client)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    int running;

    if (!isnan(client->timer_ms) && client->timer_ms <= kvr_clock_ms()) {
        client->timer_ms = NAN;
        curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    int count = epoll_wait(client->epoll, events, EVENTS_AT_ONCE, 0);
    for (int i = 0; i < count; i++) {
        unsigned what = events[i].events;
        int flags = (what & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
                    (what & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                    (what & EPOLLERR ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(client->multi, events[i].data.fd, flags, &running);
    }
    end_calls(client);
}
