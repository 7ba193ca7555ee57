/* What the virtual cluster has to say, as text of kvr-stream(7). */
#ifndef KVR_SIM_TELL_H
#define KVR_SIM_TELL_H

#include "sim/item.h"

/* The value of `cache`: {"hit":…,"gpu":…,…,"evicted":…}, as kvr-evict's, with what was pulled. */
void kvr_sim_tell_cache(const struct kvr_sim_request *request, struct kvr_buffer *out);

/* The value of `response`. */
void kvr_sim_tell_response(
    const struct kvr_sim *sim, const struct kvr_sim_request *request, struct kvr_buffer *out);

/* Each replaces *out by one event line without newline. */
void kvr_sim_tell_done(const struct kvr_sim *sim, const struct kvr_sim_item *item, double now_ms,
    struct kvr_buffer *out);
void kvr_sim_tell_load(const struct kvr_sim *sim, uint32_t worker, double now_ms,
    const struct kvr_sim_load *load, struct kvr_buffer *out);
void kvr_sim_tell_worker(const struct kvr_worker_description *worker, struct kvr_buffer *out);

/*
 * Caches see ids with the namespace folded in; event lines name the namespace and the id as the
 * trace has it. What was folded is remembered, once for each block, only where there are
 * namespaces.
 */
struct kvr_sim_spaces {
    struct kvr_u64_map by_id;   /* folded id → the number of its space */
    struct kvr_buffer *members; /* by space: `,"model":"…"` and the like */
    uint64_t *folds;
    size_t count, members_size, folds_size;
    struct kvr_u64_map by_fold;
    bool failed;
};

void kvr_sim_spaces_release(struct kvr_sim_spaces *spaces);
void kvr_sim_spaces_note(
    struct kvr_sim_spaces *spaces, const struct kvr_line *line, const struct kvr_sim_item *item);

/* Each replaces *out by event lines, more than one only where namespaces are mixed, with newlines
 * between but none at the end. */
void kvr_sim_tell_stored(const struct kvr_sim *sim, const struct kvr_sim_spaces *spaces,
    uint32_t worker, enum kvr_medium medium, double now_ms, const uint64_t *parent,
    const uint64_t *ids, size_t count, struct kvr_buffer *out);
void kvr_sim_tell_removed(const struct kvr_sim *sim, const struct kvr_sim_spaces *spaces,
    uint32_t worker, enum kvr_medium medium, double now_ms, const uint64_t *ids, size_t count,
    struct kvr_buffer *out);
void kvr_sim_tell_cleared(const struct kvr_sim *sim, uint32_t worker, enum kvr_medium medium,
    double now_ms, struct kvr_buffer *out);

#endif
