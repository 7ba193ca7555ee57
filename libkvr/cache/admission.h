/*
 * Admission: which blocks a cache takes in at all. One small file a rule, one interface, one table
 * (admission_table.c).
 *
 * A rule is told of every request's whole path, however far the look-up got, and is then asked
 * about its missing blocks one by one, first to last. In a prefix tree the first refusal ends the
 * request's insertion, because a block without its parent can never be found.
 */
#ifndef KVR_CACHE_ADMISSION_H
#define KVR_CACHE_ADMISSION_H

#include "base/error.h"
#include "base/parameter.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KVR_ADMISSION_PARAMETERS_MOST = 4 };

/* One request as a rule sees it. */
struct kvr_admission_path {
    const uint64_t *ids;
    size_t count;
    size_t hit;      /* blocks found: the leading run, or in plain semantics all found */
    uint64_t tokens; /* of the prompt */
    uint32_t block_tokens;
    uint64_t identity; /* equal for the same request asked again, else different */
};

struct kvr_admission_rule;

/* The first member of every rule's own struct. */
struct kvr_gate {
    const struct kvr_admission_rule *rule;
    uint32_t capacity; /* of the cache, blocks */
};

struct kvr_admission_rule {
    const char *name;
    const char *summary; /* one line for --help, no full stop */
    const char *source;
    const struct kvr_parameter *parameters;
    size_t parameter_count;
    size_t size; /* of the rule's struct */

    /* Any may be NULL. */
    enum kvr_status (*init)(struct kvr_gate *gate, const struct kvr_parameter_value *values,
        uint64_t seed, struct kvr_error *error);
    void (*release)(struct kvr_gate *gate);
    /* A request's path was looked up. Makes what room the rule's memory needs. */
    enum kvr_status (*look)(
        struct kvr_gate *gate, const struct kvr_admission_path *path, struct kvr_error *error);
    /* May block `at` of the path just looked at come in? NULL: yes. */
    bool (*admits)(struct kvr_gate *gate, const struct kvr_admission_path *path, size_t at);
    /* May id come in, asked outside of a request: a block that comes down from the tier above. NULL
     * with admits: the rule cannot tell. */
    bool (*knows)(struct kvr_gate *gate, uint64_t id);
    /* Is id worth the block that would have to go? NULL: yes. */
    bool (*prefers)(struct kvr_gate *gate, uint64_t id, uint64_t victim);
    uint64_t (*memory_bytes)(const struct kvr_gate *gate);
};

extern const struct kvr_admission_rule *const kvr_admission_rules[];
extern const size_t kvr_admission_rule_count;

const struct kvr_admission_rule *kvr_admission_find(const char *name, size_t length);

enum kvr_status kvr_gate_create(const struct kvr_admission_rule *rule, uint32_t capacity,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_gate **out,
    struct kvr_error *error);
void kvr_gate_destroy(struct kvr_gate *gate);

#endif
