/* What the files of the front end share. */
#ifndef KVR_NET_SERVE_PRIVATE_H
#define KVR_NET_SERVE_PRIVATE_H

#include "base/u64_map.h"
#include "line/expression.h"
#include "line/input.h"
#include "net/answer.h"
#include "net/gauges.h"
#include "net/listener.h"
#include "net/pipeline.h"
#include "net/serve.h"
#include "net/upstream.h"

enum {
    SERVE_SCRATCH_BYTES = 128 * 1024,
    SERVE_NEXT_BYTES = 64 * 1024, /* of requests that wait behind one under way */
    SERVE_OUT_HIGH = 256 * 1024,  /* more waits for the client: the worker is held back */
    SERVE_OUT_LOW = 64 * 1024,
    SERVE_HEAD_TIMEOUT_MS = 30000,
    SERVE_KEEP_TIMEOUT_MS = 75000,
    SERVE_KEYS = 64,
};

struct call;

/* A client's connection. */
struct guest {
    struct kvr_watch watch; /* first: one is found from the other */
    struct kvr_serve *serve;
    struct guest *next, *previous;
    struct kvr_timer timer;
    double deadline_ms;
    struct kvr_buffer in; /* the head of the request, and what came with it; stable during a call */
    struct kvr_buffer later; /* what came behind the request under way */
    struct kvr_buffer out;
    size_t out_sent;
    size_t in_seen; /* of in, without a whole head or a line that ends behind it */
    struct call *call;
    bool local;   /* it comes from this machine */
    bool closing; /* when out is written */
    bool busy;    /* inside go_on() */
    bool rests;   /* it waits for a next request and holds no buffers */
};

enum call_state { CALL_BODY, CALL_DECIDING, CALL_WAITING, CALL_PROXYING };

/* One request. */
struct call {
    struct kvr_exchange exchange; /* first: one is found from the other */
    struct kvr_serve *serve;
    struct guest *guest; /* NULL: the client is gone */
    struct call *next;   /* in the pool */
    enum call_state state;
    struct kvr_http_head head;
    struct kvr_http_body framing;
    struct kvr_buffer body;
    size_t counted_bytes;   /* of body, in serve->buffered_bytes */
    struct kvr_timer timer; /* of the decision, or of the next try */
    struct kvr_answer answer;
    uint64_t number;
    double begun_ms, sent_ms, first_ms;
    bool generates;    /* it has a request line and a decision */
    bool was_answered; /* by the decision, maybe with a worker that cannot be used */
    bool told;         /* the decision's side counts it until done */
    bool head_sent, chunks, counts_answer;
    unsigned tries;
    uint64_t tried;
    struct kvr_buffer id;      /* text, terminated */
    struct kvr_buffer request; /* the line for the decision */
    size_t content_at;
    struct kvr_buffer line; /* of the log, open at its end */
    struct kvr_buffer head_out;
    struct kvr_decide_verdict verdict;
    struct kvr_upstream_worker *chosen;
    const char *reason;
    struct gathering *gathering; /* of models, see serve_admin.c */
};

struct serve_key {
    char text[256];
    size_t length;
};

struct merged_input {
    struct kvr_watch watch; /* first */
    struct kvr_serve *serve;
    struct kvr_input input;
};

struct kvr_serve {
    struct kvr_serve_options options;
    struct kvr_reactor reactor;
    struct kvr_upstream upstream;
    struct kvr_listener listener;
    struct kvr_timer health_timer, scrape_timer, merge_timer;
    unsigned port;
    bool draining;
    struct guest *guests;
    size_t guest_count, call_count;
    uint64_t loads_of_fleet; /* readings of -w */
    uint64_t buffered_bytes;
    struct call *spare;
    size_t spare_count;
    char *scratch;
    struct kvr_line line;
    struct kvr_buffer build, done;
    struct kvr_expression *session;
    char session_header[64], session_cookie[64];
    struct serve_key *keys;
    size_t key_count;
    struct kvr_writer log;
    bool logs, log_failed;
    char boot[16]; /* makes ids of two lives differ */
    uint64_t last_number;
    struct kvr_random_state {
        uint64_t state;
    } chance;
    struct kvr_gauges gauges;
    struct kvr_error failure; /* what it cannot go on after, for kvr_serve_step() */
    struct kvr_pipe *pipeline;
    struct kvr_u64_map deciding; /* number → struct call *, for the pipeline */
    size_t late_count;           /* of them are late, see serve_decision.c */
    struct merged_input *merged;
    size_t merged_count;
    uint64_t merged_lines, event_lines;
    struct kvr_pipe *events; /* kvr-events */
    char *events_command;
    struct probe *probes;
    struct question *questions; /* for models, under way */
};

void serve_say(struct kvr_serve *serve, bool warning, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* serve_decision.c: the pipeline's answers. A request went on without its decision; when that
 * comes, the pipeline learns where it went. */
void serve_expect_late(
    struct kvr_serve *serve, uint64_t number, const struct kvr_upstream_worker *backend);
enum kvr_status serve_begin_pipeline(struct kvr_serve *serve, struct kvr_error *error);

/* serve_guest.c: connections of clients */
void guest_accept(struct kvr_watch *watch, unsigned events);
void guest_drop(struct guest *guest);
void guest_flush(struct guest *guest);
/* The call has been answered: the connection goes on with the next request, or closes. */
void guest_call_ended(struct guest *guest, bool keeps);

/* serve_call.c: the life of a request */
struct call *call_new(struct kvr_serve *serve, struct guest *guest);
/* Puts it back into the pool; its exchange is cancelled. */
void call_free(struct call *call);
void call_destroy(struct call *call);
/* Its body is whole. */
void call_begin(struct call *call);
void call_client_gone(struct call *call);
void call_decided(struct call *call, const struct kvr_decide_verdict *verdict);
/* No decision came: the least loaded worker takes it. */
void call_fallback(struct call *call);
/* The answer is whole in the guest's buffer. */
void call_end(struct call *call, unsigned status, bool keeps);

/* serve_reply.c: answers of our own. The first is an error. */
void call_refuse(struct call *call, unsigned status, const char *why);
void call_answer(struct call *call, unsigned status, const char *type, const char *extra,
    const char *body, size_t length);
/* Appends the headers that every answer has: id, worker, reason, connection. */
void call_write_common(struct call *call, struct kvr_buffer *out);
const char *http_reason(unsigned status);

/* serve_note.c: everything that is to be noted about a call that is over. failure: NULL where it
 * was answered. */
void call_note_end(struct call *call, unsigned status, const char *failure);

/* serve_request.c: bodies to request lines */
enum request_kind {
    REQUEST_OTHER,
    REQUEST_CHAT,
    REQUEST_COMPLETION,
    REQUEST_EMBEDDING,
    REQUEST_RESPONSE,
    REQUEST_GENERATE
};
enum request_kind request_kind(const struct kvr_http_head *head);
enum kvr_status request_write(struct call *call, enum request_kind kind, struct kvr_error *error);
enum kvr_status request_gunzip(struct call *call, struct kvr_error *error);

/* serve_responses.c: instructions, input, tools and effort of /v1/responses as members of a chat;
 * nothing where there are none. */
void responses_write(const struct kvr_line *body, struct kvr_buffer *out);

/* serve_admin.c: what is asked of the front end itself. True when it was. */
bool admin_answer(struct call *call);
bool admin_allows(const struct call *call);
/* The client of a call that gathers models is gone. */
void admin_forget(struct call *call);
void admin_release(struct kvr_serve *serve);
enum kvr_status admin_read_keys(struct kvr_serve *serve, struct kvr_error *error);

/* serve_fleet.c: workers, their health, and what the decision is told */
enum kvr_status fleet_load(struct kvr_serve *serve, struct kvr_error *error);
void fleet_changed(void *context, struct kvr_upstream_worker *backend);
/* As its state is now. */
void fleet_tell(struct kvr_serve *serve, struct kvr_upstream_worker *backend);
void fleet_tell_all(struct kvr_serve *serve);
void fleet_tell_line(struct kvr_serve *serve, const char *text, size_t length);
void fleet_check_health(struct kvr_timer *timer);
void fleet_scrape(struct kvr_timer *timer);
void fleet_release(struct kvr_serve *serve);

/* serve_feeds.c: -m and --events */
enum kvr_status feeds_open(struct kvr_serve *serve, struct kvr_error *error);
void feeds_release(struct kvr_serve *serve);

#endif
