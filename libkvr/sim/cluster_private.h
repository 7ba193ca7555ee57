/* What the parts of the cluster share: cluster.c (requests and time), agenda.c (what happens next),
 * member.c (workers and their engines). */
#ifndef KVR_SIM_CLUSTER_PRIVATE_H
#define KVR_SIM_CLUSTER_PRIVATE_H

#include "base/u64_map.h"
#include "sim/cluster.h"

/* A worker as the cluster knows it. Its engine is made when the size of a block is known. */
struct kvr_sim_member {
    struct kvr_sim *sim;
    uint32_t number;
    char *name;
    enum kvr_worker_state state;
    enum kvr_worker_role role;
    double weight;
    struct kvr_capacity capacity;
    uint64_t block_tokens;
    struct kvr_sim_worker *engine;
    struct kvr_sim_tiers tiers;
    struct kvr_u64_map resident; /* on the device; kept only once a pull has asked for it */
    bool watches;
    uint32_t heap_at;
};

struct kvr_sim {
    struct kvr_sim_options options;
    struct kvr_sim_calls calls;
    struct kvr_sim_member **members; /* each allocated on its own: engines point at them */
    uint32_t count;
    size_t size;
    struct kvr_u64_map by_name;
    uint32_t *heap; /* worker numbers by wake-up */
    size_t heap_size;
    struct kvr_sim_request **moving; /* KV copies under way, a heap by move_end_ms */
    size_t moving_count, moving_size;
    uint64_t moves;
    struct kvr_sim_tiers shared;
    struct kvr_sim_request *failed_first, **failed_last; /* to be decided again */
    uint64_t inside;
    double now_ms, next_load_ms;
    enum kvr_status status; /* of a call back from inside an engine */
    struct kvr_error error;
};

/* agenda.c */
double kvr_sim_wake_ms(const struct kvr_sim *sim, uint32_t number);
/* A worker joins the heap, which has room. */
void kvr_sim_agenda_add(struct kvr_sim *sim, uint32_t number);
/* To be called whenever a worker's wake-up has changed. */
void kvr_sim_agenda_update(struct kvr_sim *sim, uint32_t number);
enum kvr_status kvr_sim_move_begin(
    struct kvr_sim *sim, struct kvr_sim_request *request, double end_ms, struct kvr_error *error);
/* Takes out the move that ends first. */
struct kvr_sim_request *kvr_sim_move_take(struct kvr_sim *sim);
/* The copy of a request whose worker died comes to nothing; one that is not there is no error. */
void kvr_sim_move_forget(struct kvr_sim *sim, const struct kvr_sim_request *request);

/* member.c */
enum kvr_status kvr_sim_join(struct kvr_sim *sim, const struct kvr_text *name,
    struct kvr_sim_member **out, struct kvr_error *error);
void kvr_sim_member_destroy(struct kvr_sim_member *member);
/* Makes the member's engine, which will tell `calls` of its requests (pullable is filled in). */
enum kvr_status kvr_sim_make_engine(struct kvr_sim *sim, struct kvr_sim_member *member,
    struct kvr_sim_worker_calls calls, struct kvr_error *error);
/* Keeps the first failure from inside an engine's call, to be returned once it is over. */
void kvr_sim_keep_failure(
    struct kvr_sim *sim, enum kvr_status status, const struct kvr_error *error);

#endif
