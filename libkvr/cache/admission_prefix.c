/*
 * prefix-aware: a request may extend what it hit by as much again, and by at least `head` blocks.
 *
 * Reuse of a prefix is the evidence for more reuse behind it. A prompt never seen before leaves
 * only its head in the cache; when it, or one that starts as it does, comes back, the hit on the
 * head proves the prefix and lets in `growth` times as much as was hit. A conversation that goes on
 * is cached in full after a few turns, a burst of unique long prompts takes `head` blocks each. The
 * cached head is the only memory that this needs.
 */
#include "cache/admission.h"

struct prefix_gate {
    struct kvr_gate gate;
    double growth;
    uint64_t head;
};

static const struct kvr_parameter prefix_parameters[] = {
    {"head", KVR_PARAMETER_INTEGER, "4", NULL, 1, 1e9, "blocks that any request may add"},
    {"growth", KVR_PARAMETER_NUMBER, "4", NULL, 0, 1e6, "blocks added for each block hit"},
};

static enum kvr_status prefix_init(struct kvr_gate *gate, const struct kvr_parameter_value *values,
    uint64_t seed, struct kvr_error *error)
{
    (void)seed, (void)error;
    ((struct prefix_gate *)gate)->head = (uint64_t)values[0].integer;
    ((struct prefix_gate *)gate)->growth = values[1].number;
    return KVR_OK;
}

static bool prefix_admits(struct kvr_gate *gate, const struct kvr_admission_path *path, size_t at)
{
    struct prefix_gate *prefix = (struct prefix_gate *)gate;
    double extension = prefix->growth * (double)path->hit;

    if (extension < (double)prefix->head)
        extension = (double)prefix->head;
    return (double)at < (double)path->hit + extension;
}

const struct kvr_admission_rule kvr_admission_prefix_aware = {
    .name = "prefix-aware",
    .summary = "as much behind a hit prefix as was hit, and a head of any prompt",
    .source = "kvr",
    .parameters = prefix_parameters,
    .parameter_count = 2,
    .size = sizeof(struct prefix_gate),
    .init = prefix_init,
    .admits = prefix_admits,
};
