#include "net/serve_private.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

void serve_say(struct kvr_serve *serve, bool warning, const char *format, ...)
{
    char text[700];
    va_list arguments;

    if (!serve->options.say)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    serve->options.say(serve->options.context, warning, text);
}

/* ---- listening ---- */

static enum kvr_status find_address(
    const char *listen, struct addrinfo **found, struct kvr_error *error)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    char host[256] = "127.0.0.1";
    const char *colon = strrchr(listen, ':'), *port = colon ? colon + 1 : listen;

    if (colon) {
        const char *start = listen, *end = colon;
        if (*start == '[' && end > start + 1 && end[-1] == ']')
            start++, end--;
        if ((size_t)(end - start) >= sizeof host || end == start)
            return kvr_error_set(error, KVR_BAD_USAGE, "--listen: no address in '%s'", listen);
        snprintf(host, sizeof host, "%.*s", (int)(end - start), start);
    }
    if (!*port || strspn(port, "0123456789") != strlen(port) || strlen(port) > 5 ||
        atoi(port) > 65535 || getaddrinfo(host, port, &hints, found) != 0)
        return kvr_error_set(error, KVR_BAD_USAGE, "--listen: no address '%s'", listen);
    return KVR_OK;
}

/* Two generations may listen at once (SO_REUSEPORT), so that one takes over from the other. */
static enum kvr_status start_listening(struct kvr_serve *serve, struct kvr_error *error)
{
    struct addrinfo *found = NULL;
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    int one = 1;

    enum kvr_status status = find_address(serve->options.listen, &found, error);
    if (status != KVR_OK)
        return status;
    int descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool opened = kvr_listener_open(&serve->listener, &serve->reactor, descriptor, guest_accept);
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    bool listens = opened && bind(descriptor, found->ai_addr, found->ai_addrlen) == 0 &&
                   listen(descriptor, 4096) == 0;
    freeaddrinfo(found);
    if (!listens)
        return kvr_error_errno(error, KVR_IO, "cannot listen on %s", serve->options.listen);
    if (getsockname(descriptor, (struct sockaddr *)&own, &size) == 0)
        serve->port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                                      : ((struct sockaddr_in *)&own)->sin_port);
    return KVR_OK;
}

/* As many descriptors as the system gives; two a request and one a waiting client. */
static void raise_limit(struct kvr_serve *serve)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        serve->options.max_connections > limit.rlim_cur * 3 / 4)
        serve->options.max_connections = limit.rlim_cur * 3 / 4;
}

/* ---- beginning and end ---- */

static enum kvr_status read_session(struct kvr_serve *serve, struct kvr_error *error)
{
    const char *session = serve->options.session;
    char *to = serve->session_header;
    size_t size = sizeof serve->session_header;

    snprintf(to, size, "x-session-id");
    if (!session)
        return KVR_OK;
    if (strncmp(session, "cookie:", 7) == 0) {
        to = serve->session_cookie;
        size = sizeof serve->session_cookie;
    } else if (strncmp(session, "header:", 7) != 0) {
        return kvr_expression_create(&serve->session, session, error);
    }
    session += 7;
    if (!*session || strlen(session) >= size)
        return kvr_error_set(error, KVR_BAD_USAGE, "--session: no name, or a long one");
    for (size_t i = 0; i <= strlen(session); i++) /* header names have no case, cookies have */
        to[i] = to == serve->session_header && session[i] >= 'A' && session[i] <= 'Z'
                    ? (char)(session[i] + 32)
                    : session[i];
    return KVR_OK;
}

static enum kvr_status open_log(struct kvr_serve *serve, struct kvr_error *error)
{
    if (!serve->options.log)
        return KVR_OK;
    int descriptor =
        open(serve->options.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0640);
    if (descriptor < 0)
        return kvr_error_errno(error, KVR_IO, "cannot write %s", serve->options.log);
    kvr_writer_init(&serve->log, descriptor);
    serve->logs = true;
    serve->log_failed = false;
    return KVR_OK;
}

static enum kvr_status begin(struct kvr_serve *serve, struct kvr_error *error)
{
    uint32_t boot = 0;

    enum kvr_status status = kvr_reactor_init(&serve->reactor, error);
    if (status == KVR_OK)
        status = kvr_upstream_init(&serve->upstream, &serve->reactor, error);
    if (status == KVR_OK)
        status = kvr_line_init(&serve->line, error);
    if (status != KVR_OK)
        return status;
    serve->upstream.connect_timeout_ms = serve->options.connect_timeout_ms;
    serve->upstream.answer_timeout_ms = serve->options.answer_timeout_ms;
    serve->upstream.stall_timeout_ms = serve->options.answer_timeout_ms;
    serve->upstream.changed = fleet_changed;
    serve->upstream.context = serve;
    if (getrandom(&boot, sizeof boot, GRND_NONBLOCK) < 0)
        boot = (uint32_t)getpid();
    snprintf(serve->boot, sizeof serve->boot, "kvr-%08x-", boot);
    serve->chance.state = boot;
    serve->scratch = malloc(SERVE_SCRATCH_BYTES);
    if (!serve->scratch)
        return kvr_error_memory(error);
    raise_limit(serve);
    status = read_session(serve, error);
    if (status == KVR_OK && serve->options.key_file)
        status = admin_read_keys(serve, error);
    if (status == KVR_OK)
        status = open_log(serve, error);
    if (status == KVR_OK)
        status = fleet_load(serve, error);
    if (status == KVR_OK && !serve->options.decider)
        status = serve_begin_pipeline(serve, error);
    if (status == KVR_OK)
        status = feeds_open(serve, error);
    if (status == KVR_OK && serve->options.health_every_ms > 0) {
        serve->health_timer.due = fleet_check_health;
        kvr_reactor_set(&serve->reactor, &serve->health_timer,
            serve->reactor.now_ms + serve->options.health_every_ms);
    }
    if (status == KVR_OK && serve->options.scrape_every_ms > 0) {
        serve->scrape_timer.due = fleet_scrape;
        kvr_reactor_set(&serve->reactor, &serve->scrape_timer, serve->reactor.now_ms);
    }
    return status == KVR_OK ? start_listening(serve, error) : status;
}

enum kvr_status kvr_serve_create(
    struct kvr_serve **out, const struct kvr_serve_options *options, struct kvr_error *error)
{
    struct kvr_serve *serve = calloc(1, sizeof *serve);

    if (!serve)
        return kvr_error_memory(error);
    serve->options = *options;
    serve->reactor.epoll = -1;
    serve->listener.watch.descriptor = -1;
    serve->log.descriptor = -1;
    enum kvr_status status = begin(serve, error);
    if (status != KVR_OK) {
        kvr_serve_destroy(serve);
        return status;
    }
    *out = serve;
    return KVR_OK;
}

void kvr_serve_destroy(struct kvr_serve *serve)
{
    struct kvr_error ignored;

    if (!serve)
        return;
    kvr_listener_close(&serve->listener);
    while (serve->guests)
        guest_drop(serve->guests);
    kvr_pipe_destroy(serve->pipeline);
    serve->pipeline = NULL;
    admin_release(serve);
    fleet_release(serve);
    feeds_release(serve);
    while (serve->spare) {
        struct call *call = serve->spare;
        serve->spare = call->next;
        call_destroy(call);
    }
    kvr_upstream_release(&serve->upstream);
    if (serve->log.descriptor >= 0)
        kvr_writer_close(&serve->log, &ignored);
    kvr_reactor_release(&serve->reactor);
    if (serve->line.structure)
        kvr_line_release(&serve->line);
    kvr_expression_destroy(serve->session);
    kvr_u64_map_release(&serve->deciding);
    kvr_gauges_release(&serve->gauges);
    kvr_buffer_release(&serve->build);
    kvr_buffer_release(&serve->done);
    free(serve->keys);
    free(serve->scratch);
    free(serve);
}

unsigned kvr_serve_port(const struct kvr_serve *serve)
{
    return serve->port;
}

/* Lines go out together, before anything is waited for. A full disk loses lines, never requests. */
static void flush_log(struct kvr_serve *serve)
{
    struct kvr_writer *log = &serve->log;

    size_t lines = 0;
    if (!serve->logs || !log->whole)
        return;
    for (const char *at = log->buffer.data, *end = at + log->whole;
         (at = memchr(at, '\n', (size_t)(end - at))); at++)
        lines++;
    if (log->error.status == KVR_OK && !log->closed)
        kvr_writer_flush(log);
    if (log->error.status == KVR_OK && !log->closed)
        return;
    serve->gauges.log_lost += lines;
    log->buffer.length = log->whole = 0;
    if (!serve->log_failed)
        serve_say(serve, true, "%s: %s; lines are lost until SIGHUP", serve->options.log,
            log->closed ? "nobody reads it" : log->error.text);
    serve->log_failed = true;
}

enum kvr_status kvr_serve_step(struct kvr_serve *serve, double most_ms, struct kvr_error *error)
{
    if (serve->pipeline)
        kvr_pipe_flush(serve->pipeline);
    if (!kvr_reactor_step(&serve->reactor, most_ms))
        return kvr_error_errno(error, KVR_IO, "cannot wait for events");
    flush_log(serve);
    if (serve->failure.status != KVR_OK && error)
        *error = serve->failure;
    return serve->failure.status;
}

void kvr_serve_reload(struct kvr_serve *serve)
{
    struct kvr_error error;

    if (fleet_load(serve, &error) != KVR_OK)
        serve_say(serve, true, "the workers stay as they were: %s", error.text);
    if (!serve->options.log)
        return;
    flush_log(serve);
    kvr_writer_close(&serve->log, &error);
    serve->logs = false;
    if (open_log(serve, &error) != KVR_OK)
        serve_say(serve, true, "%s", error.text);
}

void kvr_serve_drain(struct kvr_serve *serve)
{
    struct guest *next;

    if (serve->draining)
        return;
    serve->draining = true;
    kvr_listener_close(&serve->listener);
    for (struct guest *guest = serve->guests; guest; guest = next) {
        next = guest->next;
        if (!guest->call && !guest->in.length && guest->out_sent == guest->out.length)
            guest_drop(guest);
        else
            guest->closing = true;
    }
}

bool kvr_serve_idle(const struct kvr_serve *serve)
{
    return serve->guest_count == 0;
}
