/*
 * Lines into requests of the virtual cluster.
 *
 * The base of a request is its line as the cluster sends it to a decision: without what earlier
 * tools said of it (match, tiers, route, cache, response), with an id, and with the virtual time of
 * its arrival as timestamp where that is another. Both ways of deciding, in process and by real
 * programs, start from the same base.
 *
 * Continuations. A request is a later turn when it says so (turn above 1, a parent_chat_id), when
 * its session or chat_id has been there before, and in lines that have none of these when its block
 * ids say so (lineage.h).
 */
#ifndef KVR_SIM_ITEM_H
#define KVR_SIM_ITEM_H

#include "sim/cluster.h"
#include "sim/desk.h"
#include "sim/lineage.h"

/* A request with what belongs to it; its own memory. */
struct kvr_sim_item {
    struct kvr_sim_request request; /* first: one is found from the other */
    struct kvr_desk_request desk;   /* without matches */
    uint64_t *ids;                  /* of the prompt, then of the output, then folded ones */
    uint64_t fold;                  /* of the namespace into request.ids by xor; 0: none */
    bool has_blocks, continuation;
    double timestamp_ms;                 /* as the line has it; NaN: none */
    struct kvr_buffer base, line;        /* the line sent to a decision, and what it became */
    size_t id_at, id_length;             /* of `id` in base */
    struct kvr_sim_item *before, *after; /* for whoever keeps them in a list */
};

struct kvr_sim_reader {
    uint32_t block_tokens;   /* for lines without block_size */
    uint64_t default_output; /* tokens, for lines without output_length */
    bool derive_sessions;    /* add `session` from the block ids to lines without one */
    bool tell_turns; /* fill in item->continuation; as with derive_sessions, every block and session
                        of the trace is remembered for it */
    struct kvr_expression *session; /* --session; or NULL */
    /* private */
    struct kvr_matcher *matcher;
    struct kvr_fleet fleet;
    struct kvr_route_reader route;
    struct kvr_line line;
    struct kvr_lineage lineage;
    struct kvr_u64_map sessions;
    struct kvr_buffer scratch;
    uint64_t requests; /* bases made */
};

/* Fill in the options of a zeroed reader first; release frees the expression too. */
enum kvr_status kvr_sim_reader_init(struct kvr_sim_reader *reader, struct kvr_error *error);
void kvr_sim_reader_release(struct kvr_sim_reader *reader);

/* The timestamp of a line; NaN: none. KVR_BAD_INPUT where it is no number. */
enum kvr_status kvr_sim_timestamp(
    const struct kvr_line *line, double *timestamp_ms, struct kvr_error *error);

/* Appends the base of a request line, or an event line with its new timestamp. now_ms: what the
 * timestamp is to be; NaN leaves it. */
enum kvr_status kvr_sim_base(struct kvr_sim_reader *reader, const struct kvr_line *line,
    double now_ms, struct kvr_buffer *out, struct kvr_error *error);

/*
 * A new item from a request line that arrives at now_ms (NaN: at its timestamp, or at 0).
 * KVR_BAD_INPUT where a member has the wrong type. The item is the caller's.
 */
enum kvr_status kvr_sim_item_create(struct kvr_sim_reader *reader, const struct kvr_line *line,
    double now_ms, struct kvr_sim_item **item, struct kvr_error *error);
void kvr_sim_item_destroy(struct kvr_sim_item *item);

/* Reads lengths and blocks from text in place of what the item had: programs of a pipeline may have
 * added them. */
enum kvr_status kvr_sim_item_reread(struct kvr_sim_reader *reader, struct kvr_sim_item *item,
    const char *text, size_t length, struct kvr_error *error);

/* Ids of a worker's cache as the index takes them, see struct kvr_desk_request. */
struct kvr_blocks kvr_sim_blocks(const struct kvr_sim_reader *reader, const struct kvr_sim *sim,
    uint32_t worker, const uint64_t *ids, size_t count);

/* Puts the time in place of the timestamp of a line of ours. */
enum kvr_status kvr_sim_stamp(
    struct kvr_sim_reader *reader, struct kvr_buffer *line, double now_ms, struct kvr_error *error);

#endif
