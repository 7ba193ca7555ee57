#include "stat/prefixes.h"

#include "base/grow.h"
#include "stat/ceiling.h"

#include <stdlib.h>

enum { FIRST_TIMES = 1 << 16, SAMPLE_BYTES = 100 };

void kvr_prefixes_release(struct kvr_prefixes *prefixes)
{
    kvr_u64_map_release(&prefixes->index);
    free(prefixes->nodes);
    free(prefixes->sums);
    kvr_buffer_release(&prefixes->samples);
    kvr_sketch_release(&prefixes->distances);
    prefixes->nodes = NULL;
    prefixes->sums = NULL;
    prefixes->count = prefixes->capacity = 0;
    prefixes->times = prefixes->now = 0;
}

static void sums_add(struct kvr_prefixes *prefixes, uint32_t time, uint32_t change)
{
    for (; time <= prefixes->times; time += time & -time)
        prefixes->sums[time] += change;
}

static uint32_t sums_until(const struct kvr_prefixes *prefixes, uint32_t time)
{
    uint32_t sum = 0;

    for (; time; time -= time & -time)
        sum += prefixes->sums[time];
    return sum;
}

struct timed {
    uint32_t time, node;
};

static int compare_times(const void *a, const void *b)
{
    const struct timed *first = a, *second = b;

    return (first->time > second->time) - (first->time < second->time);
}

/* Numbers the last accesses 1 … count in their order, with as many free times again. */
static bool renumber(struct kvr_prefixes *prefixes)
{
    uint32_t times = FIRST_TIMES;

    while (times < prefixes->count * 2 + 2)
        times *= 2;
    struct timed *order = malloc((prefixes->count + 1) * sizeof *order);
    uint32_t *sums = calloc((size_t)times + 1, sizeof *sums);
    if (!order || !sums) {
        free(order);
        free(sums);
        return false;
    }
    free(prefixes->sums);
    prefixes->sums = sums;
    prefixes->times = times;
    for (uint32_t i = 0; i < prefixes->count; i++)
        order[i] = (struct timed){prefixes->nodes[i].time, i};
    qsort(order, prefixes->count, sizeof *order, compare_times);
    prefixes->now = 0;
    for (uint32_t i = 0; i < prefixes->count; i++) {
        struct kvr_prefix_node *node = &prefixes->nodes[order[i].node];
        if (node->time) {
            node->time = ++prefixes->now;
            sums_add(prefixes, node->time, 1);
        }
    }
    free(order);
    return true;
}

/* One use of a node: its distance, then it is the latest. */
static bool touch(
    struct kvr_prefixes *prefixes, const struct kvr_sketch_scale *scale, uint32_t index)
{
    if (prefixes->now >= prefixes->times && !renumber(prefixes))
        return false;
    struct kvr_prefix_node *node = &prefixes->nodes[index];
    bool kept = true;
    prefixes->accesses++;
    if (node->time) {
        uint32_t all = sums_until(prefixes, prefixes->now);
        uint32_t distance = all - sums_until(prefixes, node->time);
        kept = kvr_sketch_add(&prefixes->distances, scale, distance);
        sums_add(prefixes, node->time, -1u);
    } else {
        prefixes->first_uses++;
    }
    node->time = ++prefixes->now;
    sums_add(prefixes, node->time, 1);
    return kept;
}

enum kvr_status kvr_prefixes_request(struct kvr_prefixes *prefixes,
    const struct kvr_sketch_scale *scale, const uint64_t *ids, size_t count, uint64_t name_space,
    uint64_t block_tokens, uint64_t prompt_tokens, const char *id, size_t id_length, int worker,
    struct kvr_error *error)
{
    uint64_t sample = UINT64_MAX;
    uint32_t parent = 0;

    if (worker >= KVR_PREFIX_WORKERS)
        worker = KVR_PREFIX_WORKERS - 1;
    for (size_t i = 0; i < count && !prefixes->full; i++) {
        bool is_new;
        uint64_t key = kvr_ceiling_key(ids[i], name_space);
        uint64_t *place = kvr_u64_map_insert(&prefixes->index, key, &is_new);
        if (!place)
            return kvr_error_memory(error);
        if (is_new) {
            if (prefixes->count >= prefixes->limit) {
                prefixes->full = true;
                kvr_prefixes_release(prefixes);
                return KVR_OK;
            }
            struct kvr_prefix_node *nodes =
                kvr_grow(prefixes->nodes, &prefixes->capacity, prefixes->count + 1, sizeof *nodes);
            if (!nodes)
                return kvr_error_memory(error);
            prefixes->nodes = nodes;
            if (sample == UINT64_MAX) {
                sample = prefixes->samples.length;
                kvr_buffer_append(&prefixes->samples, id, id_length < SAMPLE_BYTES ? id_length : 0);
                kvr_buffer_append_byte(&prefixes->samples, '\0');
            }
            uint64_t tokens = (i + 1) * block_tokens;
            tokens = tokens < prompt_tokens ? tokens : prompt_tokens;
            *place = prefixes->count++;
            nodes[*place] = (struct kvr_prefix_node){.key = key,
                .parent = parent,
                .tokens = tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX,
                .sample = sample};
        }
        uint32_t index = (uint32_t)*place;
        prefixes->nodes[index].requests++;
        if (worker >= 0)
            prefixes->nodes[index].workers |= 1ull << worker;
        parent = index + 1;
        if (!touch(prefixes, scale, index))
            return kvr_error_memory(error);
    }
    return prefixes->samples.failed ? kvr_error_memory(error) : KVR_OK;
}

static bool better(const struct kvr_prefix_node *a, const struct kvr_prefix_node *b)
{
    double first = (double)a->tokens * (a->requests - 1),
           second = (double)b->tokens * (b->requests - 1);

    return first != second ? first > second : a->key < b->key;
}

size_t kvr_prefixes_top(const struct kvr_prefixes *prefixes, size_t most, uint32_t *top)
{
    uint32_t *largest_child = calloc(prefixes->count + 1, sizeof *largest_child);
    size_t found = 0;

    if (!largest_child || most == 0) {
        free(largest_child);
        return 0;
    }
    for (size_t i = 0; i < prefixes->count; i++) {
        const struct kvr_prefix_node *node = &prefixes->nodes[i];
        if (largest_child[node->parent] < node->requests)
            largest_child[node->parent] = node->requests;
    }
    for (uint32_t i = 0; i < prefixes->count; i++) {
        const struct kvr_prefix_node *node = &prefixes->nodes[i];
        if (node->requests < 2 || largest_child[i + 1] >= node->requests)
            continue;
        if (found == most && !better(node, &prefixes->nodes[top[found - 1]]))
            continue;
        size_t at = found < most ? found++ : found - 1;
        for (; at > 0 && better(node, &prefixes->nodes[top[at - 1]]); at--)
            top[at] = top[at - 1];
        top[at] = i;
    }
    free(largest_child);
    return found;
}
