/* kvr-send's settings and state; send_lines.c makes calls of lines, and lines of what came back. */
#ifndef KVR_CMD_SEND_H
#define KVR_CMD_SEND_H

#include "cmd/tool.h"
#include "net/ask.h"
#include "net/endpoints.h"
#include "net/open_loop.h"
#include "net/synthesize.h"
#include "token/models.h"

struct send_settings {
    const char *url, *workers, *model, *body, *tokenizer, *key_file;
    struct kvr_text_list headers;
    double rate, speed, timeout_ms, connect_timeout_ms;
    uint64_t concurrency, retries, max_tokens, block_size, seed;
    bool poisson, synthesize, no_stream, events, intervals;
};

/* A request line on its way. */
struct send_item {
    struct kvr_due_call due; /* first: one is found from the other */
    struct send *send;
    struct send_item *next; /* among the spare ones */
    struct kvr_buffer line; /* the object up to its brace */
    struct kvr_buffer id, worker, url, body;
};

struct send {
    struct tool tool;
    struct send_settings settings;
    struct kvr_client *client;
    struct kvr_open_loop loop;
    struct kvr_pace pace;
    struct kvr_ask_options ask;
    struct kvr_models *models;
    struct kvr_synthesizer *synthesizer;
    struct kvr_structure *structure;
    struct kvr_members members;
    struct kvr_buffer scratch, prompt, key;
    struct kvr_endpoints endpoints;
    uint64_t *ids;
    size_t id_capacity;
    struct send_item *spare;
    uint64_t failed;
};

/* Puts the request line just read into the loop, or writes it where it is not to be sent. */
enum kvr_status send_request(struct send *send, struct kvr_error *error);

/* Learns from the event line just read and passes it on. */
enum kvr_status send_event(struct send *send, struct kvr_error *error);

/* What the loop tells: the line of an answered call is written, that of one that could not be made
 * is not. */
void send_ended(struct kvr_due_call *due);
void send_dropped(struct kvr_due_call *due, const struct kvr_error *error);

/* Frees the items, none of which may be under way. */
void send_items_release(struct send *send);

#endif
