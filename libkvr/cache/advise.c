#include "cache/advise.h"

#include "base/grow.h"

#include <string.h>

enum { SMOOTHING_BLOCKS = 4 }; /* a prefix of one block is not worth a pin of its own */

static const double MOST[2] = {0.90, 0.99};
static const double PINNED_SHARE = 0.25;

void kvr_advice_release(struct kvr_advice *advice)
{
    kvr_sweep_release(&advice->sweep);
    free(advice->pinned_ids);
    memset(advice, 0, sizeof *advice);
}

/* ── size ── */

static enum kvr_status advise_size(
    struct kvr_advice *advice, uint64_t capacity_blocks, struct kvr_error *error)
{
    struct kvr_curve_options options = {.block_tokens = advice->sweep.block_tokens, .sample = 1};
    struct kvr_curve_totals totals;
    struct kvr_curve_point point;
    struct kvr_curve *curve;
    const struct kvr_trace *trace = &advice->sweep.traces[0];

    /* several workers: the busiest one, which is the first to need the room */
    for (size_t i = 1; i < advice->sweep.trace_count; i++)
        if (advice->sweep.traces[i].id_count > trace->id_count)
            trace = &advice->sweep.traces[i];
    enum kvr_status status = kvr_curve_create(&curve, &options, error);
    if (status != KVR_OK)
        return status;
    for (size_t i = 0; i < trace->request_count && status == KVR_OK; i++) {
        const struct kvr_trace_request *request = &trace->requests[i];
        status = kvr_curve_add(curve, trace->ids + request->first, request->count,
            request->input_tokens, request->session, error);
    }
    if (status == KVR_OK) {
        kvr_curve_totals(curve, &totals);
        kvr_curve_point(curve, totals.footprint_blocks, &point);
        advice->limit_rate = point.token_hit_rate;
        advice->knee_blocks = kvr_curve_knee(curve);
        kvr_curve_point(curve, advice->knee_blocks, &point);
        advice->knee_rate = point.token_hit_rate;
        for (int i = 0; i < 2; i++) {
            advice->most_blocks[i] = kvr_curve_capacity_for(curve, MOST[i]);
            kvr_curve_point(curve, advice->most_blocks[i], &point);
            advice->most_rate[i] = point.token_hit_rate;
        }
        advice->capacity_blocks = capacity_blocks ? capacity_blocks : advice->knee_blocks;
    }
    kvr_curve_destroy(curve);
    return status;
}

/* ── pins ── */

/* The tree of all blocks of a trace, parents before children. */
struct tree {
    struct node {
        uint32_t parent, depth; /* depth: blocks up to this one */
        uint32_t requests;
        bool pinned;
        uint64_t lost;  /* tokens computed again */
        size_t request; /* one that has it, for its ids */
    } * nodes;          /* node 0 is the root of all */
    size_t count, size;
    struct kvr_u64_map numbers;
};

static enum kvr_status add_request(struct tree *tree, const struct kvr_trace *trace, size_t request,
    uint64_t hits, struct kvr_error *error)
{
    const struct kvr_trace_request *asked = &trace->requests[request];
    uint32_t parent = 0;

    for (uint32_t i = 0; i < asked->count; i++) {
        bool is_new;
        uint64_t *number =
            kvr_u64_map_insert(&tree->numbers, trace->ids[asked->first + i], &is_new);
        if (!number)
            return kvr_error_memory(error);
        if (is_new) {
            struct node *nodes = kvr_grow(tree->nodes, &tree->size, tree->count + 1, sizeof *nodes);
            if (!nodes)
                return kvr_error_memory(error);
            tree->nodes = nodes;
            *number = tree->count;
            nodes[tree->count++] =
                (struct node){.parent = parent, .depth = i + 1, .request = request};
        } else if (i >= hits) {
            tree->nodes[*number].lost += trace->block_tokens;
        }
        if (tree->nodes[*number].parent != parent)
            break; /* such ids are no chain */
        tree->nodes[*number].requests++;
        parent = (uint32_t)*number;
    }
    return KVR_OK;
}

static enum kvr_status build_tree(
    struct tree *tree, const struct kvr_trace *trace, uint64_t capacity, struct kvr_error *error)
{
    struct kvr_block_options options = {
        .capacity_blocks = capacity, .block_tokens = trace->block_tokens};
    struct kvr_cache *cache;

    tree->nodes = kvr_grow(NULL, &tree->size, 1, sizeof *tree->nodes);
    if (!tree->nodes)
        return kvr_error_memory(error);
    tree->nodes[tree->count++] = (struct node){.pinned = true};
    enum kvr_status status = kvr_block_cache_create(&options, &cache, error);
    if (status != KVR_OK)
        return status;
    for (size_t i = 0; i < trace->request_count && status == KVR_OK; i++) {
        uint64_t hits = 0;
        status = kvr_trace_serve(trace, i, cache, &hits, NULL, error);
        if (status == KVR_OK)
            status = add_request(tree, trace, i, hits, error);
    }
    kvr_cache_destroy(cache);
    return status;
}

/* The unpinned node whose path loses most a block that must be pinned for it; 0: none loses. */
static uint32_t best_prefix(const struct tree *tree, uint64_t *sums, uint32_t *costs, uint64_t room)
{
    uint32_t best = 0;
    double most = 0;

    for (size_t i = 1; i < tree->count; i++) {
        const struct node *node = &tree->nodes[i];
        sums[i] = sums[node->parent] + (node->pinned ? 0 : node->lost);
        costs[i] = costs[node->parent] + !node->pinned;
        double value = (double)sums[i] / (costs[i] + SMOOTHING_BLOCKS);
        if (node->lost && !node->pinned && costs[i] <= room && value > most) {
            most = value;
            best = (uint32_t)i;
        }
    }
    return best;
}

static enum kvr_status choose_pins(
    struct kvr_advice *advice, const struct kvr_trace *trace, struct kvr_error *error)
{
    struct tree tree = {0};
    uint64_t room = (uint64_t)(PINNED_SHARE * (double)advice->capacity_blocks);
    enum kvr_status status = build_tree(&tree, trace, advice->capacity_blocks, error);
    uint64_t *sums = calloc(tree.count + 1, sizeof *sums);
    uint32_t *costs = calloc(tree.count + 1, sizeof *costs), best;

    if (status == KVR_OK && (!sums || !costs))
        status = kvr_error_memory(error);
    while (status == KVR_OK && advice->pin_count < KVR_ADVISE_PINS_MOST &&
           (best = best_prefix(&tree, sums, costs, room))) {
        const struct node *node = &tree.nodes[best];
        struct kvr_advised_pin *pin = &advice->pins[advice->pin_count++];
        *pin = (struct kvr_advised_pin){trace->ids + trace->requests[node->request].first,
            node->depth, node->requests, sums[best]};
        room -= costs[best];
        for (uint32_t at = best; at; at = tree.nodes[at].parent)
            tree.nodes[at].pinned = true;
    }
    free(sums);
    free(costs);
    free(tree.nodes);
    kvr_u64_map_release(&tree.numbers);
    return status;
}

static enum kvr_status add_pin_cells(struct kvr_advice *advice, struct kvr_error *error)
{
    size_t total = 0, used = 0, next = 1;

    for (size_t i = 0; i < advice->pin_count; i++)
        total += advice->pins[i].count;
    advice->pinned_ids = malloc((total + 1) * sizeof *advice->pinned_ids);
    if (!advice->pinned_ids)
        return kvr_error_memory(error);
    for (size_t i = 0; i < advice->pin_count; i++) {
        memcpy(advice->pinned_ids + used, advice->pins[i].ids,
            advice->pins[i].count * sizeof *advice->pinned_ids);
        used += advice->pins[i].count;
        if (i + 1 != next && i + 1 != advice->pin_count)
            continue;
        struct kvr_sweep_cell *cell;
        enum kvr_status status = kvr_sweep_add(&advice->sweep, (struct kvr_text_piece){"lru", 3},
            (struct kvr_text_piece){"always", 6}, advice->capacity_blocks, 0, &cell, error);
        if (status != KVR_OK)
            return status;
        cell->pins = advice->pinned_ids;
        cell->pin_count = used;
        next *= 2;
    }
    return KVR_OK;
}

/* ── policies and rules ── */

static struct kvr_text_piece piece_of(const char *text)
{
    return (struct kvr_text_piece){text, strlen(text)};
}

static enum kvr_status add_cell(
    struct kvr_advice *advice, const char *policy, const char *admission, struct kvr_error *error)
{
    return kvr_sweep_add(&advice->sweep, piece_of(policy), piece_of(admission),
        advice->capacity_blocks, 0, NULL, error);
}

static enum kvr_status add_cells(struct kvr_advice *advice, struct kvr_error *error)
{
    enum kvr_status status = add_cell(advice, "lru", "always", error);

    advice->policy_first = advice->sweep.cell_count;
    for (size_t i = 0; i < kvr_policy_count && status == KVR_OK; i++)
        if (!kvr_policies[i]->in_time && strcmp(kvr_policies[i]->name, "lru") &&
            strcmp(kvr_policies[i]->name, "belady") && strcmp(kvr_policies[i]->name, "random"))
            status = add_cell(advice, kvr_policies[i]->name, "always", error);
    advice->policy_end = advice->rule_first = advice->sweep.cell_count;
    for (size_t i = 1; i < kvr_admission_rule_count && status == KVR_OK; i++)
        status = add_cell(advice, "lru", kvr_admission_rules[i]->name, error);
    advice->rule_end = advice->pin_first = advice->sweep.cell_count;
    if (status == KVR_OK)
        status = add_pin_cells(advice, error);
    advice->pin_end = advice->sweep.cell_count;
    return status;
}

bool kvr_advice_better(const struct kvr_sweep_cell *cell, const struct kvr_sweep_cell *than)
{
    if (cell->saved_ms != than->saved_ms)
        return cell->saved_ms > than->saved_ms;
    return cell->hit_tokens > than->hit_tokens;
}

enum kvr_status kvr_advise(struct kvr_advice *advice, const struct kvr_sweep *sweep,
    uint64_t capacity_blocks, struct kvr_error *error)
{
    memset(advice, 0, sizeof *advice);
    advice->sweep = *sweep;
    if (!sweep->trace_count || !sweep->traces[0].request_count)
        return kvr_error_set(error, KVR_BAD_INPUT, "no requests: nothing to advise on");
    enum kvr_status status = advise_size(advice, capacity_blocks, error);
    for (size_t i = 0; i < sweep->trace_count && status == KVR_OK && !advice->pin_count; i++)
        status = choose_pins(advice, &sweep->traces[i], error);
    if (status == KVR_OK)
        status = add_cells(advice, error);
    if (status == KVR_OK)
        status = kvr_sweep_run(&advice->sweep, error);
    if (status != KVR_OK)
        return status;
    const struct kvr_sweep_cell *cells = advice->sweep.cells;
    const struct kvr_sweep_cell *best = &cells[0];
    size_t pins = 1;
    for (size_t i = advice->pin_first; i < advice->pin_end; i++, pins *= 2)
        if (kvr_advice_better(&cells[i], best)) {
            best = &cells[i];
            advice->pin_best = i;
            advice->pins_advised = pins < advice->pin_count ? pins : advice->pin_count;
        }
    return KVR_OK;
}
