/*
 * second: a block comes in when a second, distinct request asks for it (cache on second sighting).
 *
 * Two mistakes are easy here. A look-up stops at the first missing block, so a rule fed by look-ups
 * sees deep blocks later or never: this one records the whole path of every request. And a request
 * that is looked up twice (retried, asked again by a router, an id twice in one path) is no second
 * request: a sighting counts only from another identity.
 *
 * Memory: two generations of (id, first identity), 16 bytes an id and a byte of map. When the
 * current one holds `window` capacities of ids, the older is dropped and they change places; an id
 * seen again moves to the current one. So a sighting lasts between one and two windows.
 */
#include "base/grow.h"
#include "base/u64_map.h"
#include "cache/admission.h"

struct second_gate {
    struct kvr_gate gate;
    struct kvr_u64_map generations[2]; /* id to identity */
    int current;
    size_t window;
    bool *seen; /* by block of the path just looked at: another request asked for it before */
    size_t seen_size;
};

enum { WINDOW_LEAST = 65536 };

static const uint64_t SEVERAL = UINT64_MAX; /* in place of an identity: seen by two */

static const struct kvr_parameter second_parameters[] = {
    {"window", KVR_PARAMETER_NUMBER, "4", NULL, 0.01, 1e6,
        "ids remembered, in capacities (at least 65536 ids)"},
};

static enum kvr_status second_init(struct kvr_gate *gate, const struct kvr_parameter_value *values,
    uint64_t seed, struct kvr_error *error)
{
    struct second_gate *second = (struct second_gate *)gate;
    double window = values[0].number * gate->capacity;

    (void)seed, (void)error;
    second->window = window < WINDOW_LEAST ? WINDOW_LEAST
                     : window > 1e15       ? (size_t)1e15
                                           : (size_t)window;
    return KVR_OK;
}

static void second_release(struct kvr_gate *gate)
{
    struct second_gate *second = (struct second_gate *)gate;

    kvr_u64_map_release(&second->generations[0]);
    kvr_u64_map_release(&second->generations[1]);
    free(second->seen);
}

/* Records one sighting; *seen: by another request before. False when memory is short. */
static bool sight(struct second_gate *second, uint64_t id, uint64_t identity, bool *seen)
{
    struct kvr_u64_map *now = &second->generations[second->current];
    struct kvr_u64_map *before = &second->generations[!second->current];
    uint64_t *at = kvr_u64_map_find(now, id), earlier = identity;

    if (!at) {
        kvr_u64_map_remove(before, id, &earlier);
        if (now->length >= second->window) {
            kvr_u64_map_clear(before);
            second->current = !second->current;
            now = before;
        }
        at = kvr_u64_map_insert(now, id, NULL);
        if (!at)
            return false;
        *at = earlier;
    }
    *seen = *at != identity;
    if (*seen)
        *at = SEVERAL;
    return true;
}

static enum kvr_status second_look(
    struct kvr_gate *gate, const struct kvr_admission_path *path, struct kvr_error *error)
{
    struct second_gate *second = (struct second_gate *)gate;
    uint64_t identity = path->identity == SEVERAL ? 0 : path->identity;
    bool *seen = kvr_grow(second->seen, &second->seen_size, path->count + 1, sizeof *seen);

    if (!seen)
        return kvr_error_memory(error);
    second->seen = seen;
    for (size_t i = 0; i < path->count; i++)
        if (!sight(second, path->ids[i], identity, &seen[i]))
            return kvr_error_memory(error);
    return KVR_OK;
}

static bool second_admits(struct kvr_gate *gate, const struct kvr_admission_path *path, size_t at)
{
    (void)path;
    return ((struct second_gate *)gate)->seen[at];
}

static bool second_knows(struct kvr_gate *gate, uint64_t id)
{
    struct second_gate *second = (struct second_gate *)gate;

    for (int i = 0; i < 2; i++) {
        const uint64_t *identity = kvr_u64_map_find(&second->generations[i], id);
        if (identity)
            return *identity == SEVERAL;
    }
    return false;
}

static uint64_t second_memory_bytes(const struct kvr_gate *gate)
{
    const struct second_gate *second = (const struct second_gate *)gate;
    uint64_t slots = 0;

    for (int i = 0; i < 2; i++)
        slots += second->generations[i].mask ? second->generations[i].mask + 1 : 0;
    return slots * (sizeof(struct kvr_u64_map_slot) + 1);
}

const struct kvr_admission_rule kvr_admission_second = {
    .name = "second",
    .summary = "blocks that a second, distinct request asks for",
    .source = "cache on second hit: Maggs and Sitaraman, Akamai, CCR 45(3), 2015",
    .parameters = second_parameters,
    .parameter_count = 1,
    .size = sizeof(struct second_gate),
    .init = second_init,
    .release = second_release,
    .look = second_look,
    .admits = second_admits,
    .knows = second_knows,
    .memory_bytes = second_memory_bytes,
};
