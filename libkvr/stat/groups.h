/*
 * Names to small numbers, with a bound: the workers, reasons or --by values of a run. When the
 * bound is reached, every further name is group 0, which is called KVR_GROUP_OTHER and whose use
 * is counted: nothing is dropped silently and memory stays bounded.
 */
#ifndef KVR_STAT_GROUPS_H
#define KVR_STAT_GROUPS_H

#include "line/json.h"

#define KVR_GROUP_OTHER "(other)"
#define KVR_GROUP_NONE "(none)"

enum { KVR_GROUP_NAME_BYTES = 200 }; /* a longer name is cut there, with its hash behind */

struct kvr_groups {
    struct kvr_group {
        char *name; /* decoded, terminated, no control characters */
        size_t length;
        uint64_t hash;
    } * items; /* items[0] is KVR_GROUP_OTHER */
    uint32_t count, limit;
    size_t capacity;
    uint32_t *slots; /* 1 + group, 0: empty; a power of two of them, at most half full */
    uint32_t mask;
    uint32_t last; /* the group found last: streams repeat themselves */
};

/* limit groups at most besides group 0. */
enum kvr_status kvr_groups_init(struct kvr_groups *groups, uint32_t limit, struct kvr_error *error);
void kvr_groups_release(struct kvr_groups *groups);

/* The group of a plain name; made where it is new and there is room, else 0. *group is always set.
 * KVR_NO_MEMORY. */
enum kvr_status kvr_groups_find(struct kvr_groups *groups, const char *name, size_t length,
    uint32_t *group, struct kvr_error *error);

/* The same for the inside of a JSON string, which may have escapes. */
enum kvr_status kvr_groups_find_json(
    struct kvr_groups *groups, struct kvr_text inside, uint32_t *group, struct kvr_error *error);

/* Without making it; UINT32_MAX when there is none. */
uint32_t kvr_groups_look(const struct kvr_groups *groups, const char *name, size_t length);

/* Numbers of the groups in the order of their names, runs of digits by their value (w2 before
 * w10), group 0 left out. order has room for count. Returns how many there are. */
uint32_t kvr_groups_sorted(const struct kvr_groups *groups, uint32_t *order);

#endif
