/*
 * A worker for tests and benchmarks: an OpenAI-compatible server in one thread, with a prompt cache
 * that counts, and faults on demand. Loopback only.
 *
 *   mock-worker [OPTION...] PORT...      port 0: any; each port is printed on a line of its own
 *     --tokens N      tokens of an answer (4)         --first MS   before its first byte (0)
 *     --gap MS        between tokens of a stream (0)  --prefill US a token of prompt not cached (0)
 *     --no-cache      the prompt cache is off         --name MODEL (mock)
 *     --hold          streams stop after their first token, whole answers before they begin, until
 *                     GET /release: what must happen meanwhile needs no clock
 *     --fault KIND[:N]  for the first N generations (all): reset (closes without an answer), break
 *                       (closes within it), silent (never answers), garbage, twice (conflicting
 *                       lengths), or a status such as 500
 *
 * A token is four bytes of the request's body text. GET /counts tells what was seen; POST
 * /fault/KIND[:N] changes the fault, GET /hold and /release what is held.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PROMPTS = 64, PROMPT_BYTES = 1 << 16, PORTS = 64 };

struct connection {
    int descriptor;
    bool listens, armed; /* armed: told when it can be written to */
    char *in;
    size_t length, capacity;
    char *out;
    size_t out_length, out_sent, out_capacity;
    /* a generation under way */
    bool generates, streams, chat, silent, breaks, ends;
    unsigned tokens_left;
    size_t prompt_tokens, cached_tokens;
    double next_ms;
    struct connection *next, *previous;
};

static struct {
    unsigned tokens;
    double first_ms, gap_ms, prefill_us;
    bool cache, holds;
    const char *name;
    char fault[32];
    long fault_left;
} settings = {.tokens = 4, .cache = true, .name = "mock", .fault_left = -1};

static struct {
    unsigned long requests, generations, cancelled, accepted, cached_tokens, prompt_tokens, unknown;
} counts;

static char *prompts[PROMPTS];
static size_t prompt_lengths[PROMPTS], prompt_turn;
static struct connection *generating;
static int epoll;

static double now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void put(struct connection *connection, const char *bytes, size_t length)
{
    if (connection->out_length + length > connection->out_capacity) {
        connection->out_capacity = (connection->out_length + length) * 2;
        connection->out = realloc(connection->out, connection->out_capacity);
        if (!connection->out)
            exit(3);
    }
    memcpy(connection->out + connection->out_length, bytes, length);
    connection->out_length += length;
}

static void leave_generation(struct connection *connection)
{
    if (!connection->generates)
        return;
    connection->generates = false;
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        generating = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
}

static void drop(struct connection *connection)
{
    if (connection->generates)
        counts.cancelled++;
    leave_generation(connection);
    close(connection->descriptor);
    free(connection->in);
    free(connection->out);
    free(connection);
}

/* False when the connection is gone. */
static bool flush(struct connection *connection)
{
    while (connection->out_sent < connection->out_length) {
        ssize_t sent = send(connection->descriptor, connection->out + connection->out_sent,
            connection->out_length - connection->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0) {
            drop(connection);
            return false;
        }
        connection->out_sent += (size_t)sent;
    }
    bool left = connection->out_sent < connection->out_length;
    if (!left)
        connection->out_sent = connection->out_length = 0;
    if (!left && connection->ends) {
        drop(connection);
        return false;
    }
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLRDHUP | (left ? EPOLLOUT : 0u), .data.ptr = connection};
    if (left != connection->armed) /* most never wait: no system call then */
        epoll_ctl(epoll, EPOLL_CTL_MOD, connection->descriptor, &event);
    connection->armed = left;
    return true;
}

static void reply(struct connection *connection, int status, const char *type, const char *body)
{
    char head[256];
    int length = snprintf(head, sizeof head,
        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s\r\n", status,
        status == 200 ? "OK" : "Error", type, strlen(body),
        status == 429 || status == 503 ? "Retry-After: 1\r\n" : "");

    put(connection, head, (size_t)length);
    put(connection, body, strlen(body));
}

static void chunk(struct connection *connection, const char *text)
{
    char size[32];

    put(connection, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", strlen(text)));
    put(connection, text, strlen(text));
    put(connection, "\r\n", 2);
}

static void usage(const struct connection *connection, char *text, size_t size)
{
    snprintf(text, size,
        "\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%u,\"total_tokens\":%zu,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%zu}}",
        connection->prompt_tokens, settings.tokens, connection->prompt_tokens + settings.tokens,
        connection->cached_tokens);
}

static void whole_answer(struct connection *connection)
{
    char body[1024], used[256];

    usage(connection, used, sizeof used);
    snprintf(body, sizeof body,
        "{\"id\":\"mock-1\",\"object\":\"%s\",\"created\":1,\"model\":\"%s\",\"choices\":[{"
        "\"index\":0,%s,\"finish_reason\":\"stop\"}],%s}",
        connection->chat ? "chat.completion" : "text_completion", settings.name,
        connection->chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"ok\"}"
                         : "\"text\":\"ok\"",
        used);
    reply(connection, 200, "application/json", body);
}

/* One step of an answer: its head and first token, or the next one. */
static void advance(struct connection *connection)
{
    char event[512], used[256];

    if (connection->silent ||
        (settings.holds && (!connection->streams || connection->tokens_left < settings.tokens))) {
        connection->next_ms = now_ms() + 3600e3;
        return;
    }
    if (!connection->streams) {
        if (connection->breaks) {
            put(connection, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"id\"", 46);
            connection->ends = true;
        } else {
            whole_answer(connection);
        }
        leave_generation(connection);
        return;
    }
    if (connection->tokens_left == settings.tokens) {
        static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                   "Transfer-Encoding: chunked\r\n\r\n";
        put(connection, head, sizeof head - 1);
        if (connection->chat)
            chunk(connection, "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
                              "\"content\":\"\"}}]}\n\n");
    }
    do {
        snprintf(event, sizeof event, "data: {\"model\":\"%s\",\"choices\":[{\"index\":0,%s}]}\n\n",
            settings.name,
            connection->chat ? "\"delta\":{\"content\":\" token\"}" : "\"text\":\" token\"");
        chunk(connection, event);
        connection->tokens_left--;
        if (connection->breaks && connection->tokens_left + 2 <= settings.tokens) {
            connection->ends = true;
            leave_generation(connection);
            return;
        }
    } while (
        connection->tokens_left && settings.gap_ms <= 0 && !connection->breaks && !settings.holds);
    connection->next_ms = now_ms() + settings.gap_ms;
    if (connection->tokens_left)
        return;
    usage(connection, used, sizeof used);
    snprintf(event, sizeof event, "data: {\"choices\":[],%s}\n\ndata: [DONE]\n\n", used);
    chunk(connection, event);
    chunk(connection, ""); /* the last one: size 0, then its empty line */
    leave_generation(connection);
}

/* The longest start that an earlier prompt has in common with this one; then it is one of them. */
static size_t look_in_cache(const char *text, size_t length)
{
    size_t longest = 0;

    if (!settings.cache)
        return 0;
    if (length > PROMPT_BYTES)
        length = PROMPT_BYTES;
    for (size_t i = 0; i < PROMPTS; i++) {
        size_t common = 0, most = prompt_lengths[i] < length ? prompt_lengths[i] : length;
        while (common < most && prompts[i][common] == text[common])
            common++;
        longest = common > longest ? common : longest;
    }
    size_t turn = prompt_turn++ % PROMPTS;
    char *kept = realloc(prompts[turn], length + 1);
    if (!kept)
        exit(3);
    memcpy(kept, text, length);
    prompts[turn] = kept;
    prompt_lengths[turn] = length;
    return longest;
}

static void hold(bool holds)
{
    settings.holds = holds;
    for (struct connection *at = generating; at && !holds; at = at->next)
        at->next_ms = 0;
}

static bool take_fault(void)
{
    if (!settings.fault[0] || settings.fault_left == 0)
        return false;
    if (settings.fault_left > 0)
        settings.fault_left--;
    return true;
}

static void set_fault(const char *text, size_t length)
{
    snprintf(settings.fault, sizeof settings.fault, "%.*s", (int)length, text);
    char *colon = strchr(settings.fault, ':');
    settings.fault_left = colon ? strtol(colon + 1, NULL, 10) : -1;
    if (colon)
        *colon = '\0';
    if (strcmp(settings.fault, "none") == 0)
        settings.fault[0] = '\0';
}

static void generate(struct connection *connection, const char *body, size_t length, bool chat)
{
    const char *name = chat ? "\"messages\"" : "\"prompt\"";
    const char *prompt = memmem(body, length, name, strlen(name));
    size_t bytes = prompt ? length - (size_t)(prompt - body) : length;
    char *ends[] = {"\"stream", "\"max_tokens\"", "\"model\""};

    prompt = prompt ? prompt : body;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *end = memmem(prompt, bytes, ends[i], strlen(ends[i]));
        bytes = end ? (size_t)(end - prompt) : bytes;
    }
    counts.generations++;
    connection->chat = chat;
    connection->streams =
        memmem(body, length, "\"stream\":true", 13) || memmem(body, length, "\"stream\": true", 14);
    connection->silent = connection->breaks = false;
    if (take_fault()) {
        int status = atoi(settings.fault);
        if (status) {
            reply(
                connection, status, "application/json", "{\"error\":{\"message\":\"on demand\"}}");
            return;
        }
        static const char garbage[] = "what is this?\r\n\r\n";
        static const char twice[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n"
                                    "\r\n{}";
        if (strcmp(settings.fault, "garbage") == 0)
            put(connection, garbage, sizeof garbage - 1);
        else if (strcmp(settings.fault, "twice") == 0)
            put(connection, twice, sizeof twice - 1);
        connection->silent = strcmp(settings.fault, "silent") == 0;
        connection->breaks = strcmp(settings.fault, "break") == 0;
        if (!connection->silent && !connection->breaks) {
            connection->ends = true;
            return;
        }
    }
    connection->prompt_tokens = bytes / 4;
    connection->cached_tokens = look_in_cache(prompt, bytes) / 4;
    counts.prompt_tokens += connection->prompt_tokens;
    counts.cached_tokens += connection->cached_tokens;
    connection->tokens_left = settings.tokens;
    connection->generates = true;
    connection->previous = NULL;
    connection->next = generating;
    if (generating)
        generating->previous = connection;
    generating = connection;
    double prefill_ms =
        settings.prefill_us / 1e3 * (double)(connection->prompt_tokens - connection->cached_tokens);
    double wait_ms = settings.first_ms + prefill_ms;
    connection->next_ms = now_ms() + wait_ms;
    if (wait_ms <= 0)
        advance(connection);
}

static void show_counts(struct connection *connection)
{
    char body[512];

    snprintf(body, sizeof body,
        "{\"requests\":%lu,\"generations\":%lu,\"cancelled\":%lu,\"accepted\":%lu,"
        "\"prompt_tokens\":%lu,\"cached_tokens\":%lu,\"unknown\":%lu}",
        counts.requests, counts.generations, counts.cancelled, counts.accepted,
        counts.prompt_tokens, counts.cached_tokens, counts.unknown);
    reply(connection, 200, "application/json", body);
}

static bool path_is(const char *path, const char *name)
{
    size_t length = strlen(name);

    return strncmp(path, name, length) == 0 && (path[length] == ' ' || path[length] == '?');
}

static void answer(struct connection *connection, const char *head, const char *body, size_t length)
{
    const char *path = strchr(head, ' ');
    char text[512];

    counts.requests++;
    path = path ? path + 1 : "";
    if (path_is(path, "/v1/chat/completions")) {
        generate(connection, body, length, true);
    } else if (path_is(path, "/v1/completions") || path_is(path, "/generate") ||
               path_is(path, "/v1/responses") || path_is(path, "/v1/embeddings")) {
        generate(connection, body, length, false);
    } else if (path_is(path, "/v1/models")) {
        snprintf(text, sizeof text,
            "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":"
            "\"model\"}]}",
            settings.name);
        reply(connection, 200, "application/json", text);
    } else if (path_is(path, "/counts")) {
        show_counts(connection);
    } else if (strncmp(path, "/fault/", 7) == 0) {
        set_fault(path + 7, strcspn(path + 7, " "));
        reply(connection, 200, "application/json", "{}");
    } else if (path_is(path, "/hold") || path_is(path, "/release")) {
        hold(path_is(path, "/hold"));
        reply(connection, 200, "application/json", "{}");
    } else if (path_is(path, "/metrics")) {
        unsigned running = 0;
        for (const struct connection *at = generating; at; at = at->next)
            running++;
        snprintf(text, sizeof text,
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running %u\n"
            "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 0\n"
            "# TYPE vllm:prefix_cache_queries_total counter\nvllm:prefix_cache_queries_total %lu\n"
            "# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total %lu\n",
            running, counts.prompt_tokens, counts.cached_tokens);
        reply(connection, 200, "text/plain", text);
    } else if (path_is(path, "/echo")) {
        size_t head_length = (size_t)(body - head);
        char *echoed = strndup(head, head_length);
        reply(connection, 200, "text/plain", echoed ? echoed : "");
        free(echoed);
    } else if (path_is(path, "/health") || path_is(path, "/tokenize")) {
        reply(connection, 200, "application/json", "{}");
    } else {
        counts.unknown++;
        reply(connection, 404, "application/json", "{\"error\":{\"message\":\"not found\"}}");
    }
}

/* One request out of what has come; false when it is not whole. Bodies have a Content-Length. */
static bool take_request(struct connection *connection)
{
    connection->in[connection->length] = '\0';
    char *end = memmem(connection->in, connection->length, "\r\n\r\n", 4);
    size_t body = 0;

    if (!end)
        return false;
    size_t head = (size_t)(end - connection->in) + 4;
    for (char *at = connection->in; at < end; at = strchr(at, '\n') + 1)
        if (strncasecmp(at, "content-length:", 15) == 0)
            body = strtoul(at + 15, NULL, 10);
    if (connection->length < head + body)
        return false;
    answer(connection, connection->in, connection->in + head, body);
    memmove(connection->in, connection->in + head + body, connection->length - head - body);
    connection->length -= head + body;
    return true;
}

static void read_more(struct connection *connection)
{
    if (connection->length + 65536 >= connection->capacity) {
        connection->capacity = connection->capacity * 2 + 131072;
        connection->in = realloc(connection->in, connection->capacity + 1);
        if (!connection->in)
            exit(3);
    }
    ssize_t got = read(connection->descriptor, connection->in + connection->length,
        connection->capacity - connection->length);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        drop(connection);
        return;
    }
    connection->length += (size_t)got;
    while (!connection->generates && !connection->ends && take_request(connection))
        ;
    flush(connection);
}

static void take_connections(const struct connection *listener)
{
    int descriptor, one = 1;

    while ((descriptor = accept4(listener->descriptor, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *connection = calloc(1, sizeof *connection);
        if (!connection)
            exit(3);
        counts.accepted++;
        connection->descriptor = descriptor;
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = connection};
        epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
    }
}

static void listen_on(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
        .sin_port = htons((unsigned short)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, descriptor = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct connection *listener = calloc(1, sizeof *listener);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = listener};

    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!listener || bind(descriptor, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(descriptor, 4096) != 0) {
        perror("mock-worker");
        exit(3);
    }
    getsockname(descriptor, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    listener->descriptor = descriptor;
    listener->listens = true;
    epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

static void run_timers(void)
{
    double now = now_ms();

    for (struct connection *at = generating, *next; at; at = next) {
        next = at->next;
        if (at->next_ms > now)
            continue;
        advance(at);
        while (!at->generates && !at->ends && take_request(at))
            ;
        flush(at);
    }
}

static int wait_ms(void)
{
    double least = -1, now = generating ? now_ms() : 0;

    for (struct connection *at = generating; at; at = at->next) {
        double left = at->next_ms - now < 0 ? 0 : at->next_ms - now;
        least = least < 0 || left < least ? left : least;
    }
    return least < 0 ? -1 : (int)least + 1;
}

static void read_option(const char *name, const char *value)
{
    if (strcmp(name, "--tokens") == 0)
        settings.tokens = (unsigned)atoi(value);
    else if (strcmp(name, "--first") == 0)
        settings.first_ms = atof(value);
    else if (strcmp(name, "--gap") == 0)
        settings.gap_ms = atof(value);
    else if (strcmp(name, "--prefill") == 0)
        settings.prefill_us = atof(value);
    else if (strcmp(name, "--name") == 0)
        settings.name = value;
    else if (strcmp(name, "--fault") == 0)
        set_fault(value, strlen(value));
    else
        exit(2);
}

int main(int argc, char **argv)
{
    struct epoll_event events[256];

    signal(SIGPIPE, SIG_IGN);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--no-cache") == 0)
            settings.cache = false;
        else if (strcmp(argv[i], "--hold") == 0)
            settings.holds = true;
        else if (argv[i][0] == '-' && i + 1 < argc)
            read_option(argv[i], argv[i + 1]), i++;
        else
            listen_on(atoi(argv[i]));
    }
    for (;;) {
        int count = epoll_wait(epoll, events, 256, wait_ms());
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection->listens)
                take_connections(connection);
            else if (events[i].events & EPOLLIN)
                read_more(connection);
            else if (events[i].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
                drop(connection);
            else if (events[i].events & EPOLLOUT)
                flush(connection);
        }
        run_timers();
    }
}
