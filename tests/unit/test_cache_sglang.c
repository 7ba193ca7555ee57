/*
 * The sglang engine against a slow model of its rules: a tree of plain nodes, every choice made by
 * looking at all of it.
 */
#include "unit.h"

#include "engine_fuzz.h"

enum { LRU, LFU, SLRU, PRIORITY, FIFO, MRU, FILO, TLRU };
enum { THROUGH, SELECTIVE, BACK };

struct node {
    struct node *parent, **children;
    size_t child_count;
    struct id_list key;
    uint64_t access, creation, deepest, twofold_since; /* 0: not listed as twofold */
    int64_t hits, priority, locks, pins;
    bool device, host;
};

struct request {
    bool used;
    struct id_list chain;
    size_t prompt_pages, inserted;
    uint64_t own, from_tree, tokens;
    struct node *node;
    int64_t priority;
};

struct model {
    struct kvr_cache base;
    struct kvr_cache_sink sink;
    int64_t strategy, protected_hits, threshold, next, write, load_back;
    bool total, checkpoint, has_host, quiet;
    uint64_t size, pages, host_pages, free, host_free, clock, listed;
    uint64_t hits[2], live;
    struct node root;
    struct request requests[32];
};

static enum kvr_status model_create(const struct kvr_engine_options *options,
    const struct kvr_parameter_value *values, struct kvr_cache **out, struct kvr_error *error)
{
    (void)error;
    struct model *model = calloc(1, sizeof *model);
    model->sink = *options->sink;
    model->strategy = values[0].integer;
    model->protected_hits = values[1].integer;
    model->threshold = values[2].integer;
    model->next = values[3].integer;
    model->total = values[4].integer == 0;
    model->checkpoint = values[5].integer == 1;
    model->write = values[7].integer;
    model->load_back = values[8].integer;
    model->size = options->block_tokens;
    model->free = model->pages = options->capacity_blocks;
    model->host_free = model->host_pages = (uint64_t)((double)model->pages * values[6].number);
    model->has_host = model->host_pages > 0;
    model->root.device = true;
    *out = &model->base;
    return KVR_OK;
}

/* ── choosing ── */

static uint64_t depth(const struct node *node)
{
    uint64_t sum = 0;
    for (; node; node = node->parent)
        sum += node->key.count;
    return sum;
}

static bool device_leaf(const struct model *model, const struct node *node)
{
    if (node == &model->root || !node->device || node->locks)
        return false;
    for (size_t i = 0; i < node->child_count; i++)
        if (node->children[i]->device)
            return false;
    return true;
}

static bool host_leaf(const struct model *model, const struct node *node)
{
    return node != &model->root && !node->device && node->host && !node->locks &&
           !node->child_count;
}

static void key_of(const struct model *model, const struct node *node, double key[2])
{
    key[0] = 0;
    key[1] = (double)node->access;
    if (model->strategy == LFU)
        key[0] = (double)node->hits;
    if (model->strategy == SLRU)
        key[0] = node->hits >= model->protected_hits;
    if (model->strategy == PRIORITY)
        key[0] = (double)node->priority;
    if (model->strategy == FIFO)
        key[1] = (double)node->creation;
    if (model->strategy == MRU)
        key[1] = -(double)node->access;
    if (model->strategy == FILO)
        key[1] = -(double)node->creation;
    if (model->strategy == TLRU) {
        double budget =
            (double)(node->deepest * model->size) + (double)model->next - (double)model->threshold;
        double rest = (double)((depth(node) - node->key.count) * model->size);
        key[0] = rest >= (budget < 0 ? 0 : budget) ? -1 : 0;
    }
}

/* The leaf, of the kind that is asked for, with the smallest key at or below a node. */
static struct node *smallest(const struct model *model, struct node *node,
    bool (*leaf)(const struct model *, const struct node *))
{
    struct node *best = leaf(model, node) ? node : NULL;
    for (size_t i = 0; i < node->child_count; i++) {
        struct node *other = smallest(model, node->children[i], leaf);
        double a[2], b[2];
        if (!other)
            continue;
        key_of(model, other, a);
        if (best)
            key_of(model, best, b);
        if (!best || a[0] < b[0] || (a[0] == b[0] && a[1] < b[1]))
            best = other;
    }
    return best;
}

/* ── telling ── */

static void removed(struct model *model, enum kvr_medium medium, const struct node *node)
{
    if (!model->quiet)
        model->sink.removed(model->sink.context, medium, node->key.items, node->key.count);
}

static void stored(struct model *model, enum kvr_medium medium, const struct node *node)
{
    const struct id_list *above = &node->parent->key;
    model->sink.stored(model->sink.context, medium,
        above->count ? &above->items[above->count - 1] : NULL, node->key.items, node->key.count);
}

/* ── the tree ── */

static struct node *new_node(struct model *model, struct node *parent)
{
    struct node *node = calloc(1, sizeof *node);
    node->access = node->creation = ++model->clock;
    node->parent = parent;
    return node;
}

static void adopt(struct node *parent, struct node *child)
{
    parent->children =
        realloc(parent->children, (parent->child_count + 1) * sizeof *parent->children);
    parent->children[parent->child_count++] = child;
}

static void disown(struct node *parent, const struct node *child)
{
    for (size_t i = 0; i < parent->child_count; i++)
        if (parent->children[i] == child)
            parent->children[i] = parent->children[--parent->child_count];
}

static void discard(struct node *node)
{
    disown(node->parent, node);
    id_free(&node->key);
    free(node->children);
    free(node);
}

static void note_twofold(struct model *model, struct node *node)
{
    if (!model->has_host || model->write != BACK)
        return;
    if (!node->device || !node->host)
        node->twofold_since = 0;
    else if (!node->twofold_since)
        node->twofold_since = ++model->listed;
}

static struct node *split(struct model *model, struct node *lower, size_t length)
{
    struct node *upper = new_node(model, lower->parent);
    for (size_t i = 0; i < length; i++)
        id_push(&upper->key, lower->key.items[i]);
    for (size_t i = length; i < lower->key.count; i++)
        lower->key.items[i - length] = lower->key.items[i];
    lower->key.count -= length;
    upper->hits = lower->hits;
    upper->priority = lower->priority;
    upper->locks = lower->locks;
    upper->device = lower->device;
    upper->host = lower->host;
    upper->deepest = lower->deepest;
    if (model->has_host)
        upper->creation = lower->creation;
    disown(lower->parent, lower);
    adopt(upper->parent, upper);
    lower->parent = upper;
    adopt(upper, lower);
    note_twofold(model, upper);
    return upper;
}

static struct node *child_of(const struct node *node, uint64_t id)
{
    for (size_t i = 0; i < node->child_count; i++)
        if (node->children[i]->key.items[0] == id)
            return node->children[i];
    return NULL;
}

static size_t common(const struct node *node, const uint64_t *ids, size_t count)
{
    size_t i = 0;
    while (i < count && i < node->key.count && node->key.items[i] == ids[i])
        i++;
    return i;
}

static struct node *match(
    struct model *model, const uint64_t *ids, size_t count, bool touch, size_t *matched)
{
    struct node *node = &model->root, *child;
    *matched = 0;
    uint64_t now = touch && count ? ++model->clock : 0;
    while (*matched < count && (child = child_of(node, ids[*matched]))) {
        size_t length = common(child, ids + *matched, count - *matched);
        if (touch)
            child->access = now;
        *matched += length;
        if (length < child->key.count)
            return split(model, child, length);
        node = child;
    }
    return node;
}

static void lock(struct model *model, struct node *node, int by)
{
    for (; node != &model->root; node = node->parent)
        node->locks += by;
}

/* ── the host ── */

static void drop_host_leaf(struct model *model, struct node *node)
{
    removed(model, KVR_MEDIUM_CPU, node);
    model->host_free += node->key.count;
    discard(node);
}

static struct node *next_twofold(struct node *node, uint64_t after)
{
    struct node *best = node->twofold_since > after ? node : NULL;
    for (size_t i = 0; i < node->child_count; i++) {
        struct node *other = next_twofold(node->children[i], after);
        if (other && (!best || other->twofold_since < best->twofold_since))
            best = other;
    }
    return best;
}

static bool copy_to_host(struct model *model, struct node *node)
{
    uint64_t length = node->key.count;
    if (model->host_free < length) {
        uint64_t needed = length - model->host_free, gone = 0;
        for (int pass = 0; pass < 2 && model->write == BACK; pass++) {
            struct node *twofold;
            for (uint64_t after = 0;
                 gone < needed && (twofold = next_twofold(&model->root, after));) {
                after = twofold->twofold_since;
                if (!twofold->device || !twofold->host) {
                    twofold->twofold_since = 0;
                } else if (pass || !device_leaf(model, twofold)) {
                    removed(model, KVR_MEDIUM_CPU, twofold);
                    twofold->host = false;
                    twofold->twofold_since = 0;
                    model->host_free += twofold->key.count;
                    gone += twofold->key.count;
                }
            }
        }
        struct node *leaf;
        while (gone < needed && (leaf = smallest(model, &model->root, host_leaf))) {
            gone += leaf->key.count;
            drop_host_leaf(model, leaf);
        }
        if (gone < needed)
            return false;
    }
    node->host = true;
    model->host_free -= length;
    stored(model, KVR_MEDIUM_CPU, node);
    note_twofold(model, node);
    return true;
}

/* True when all above is on the host by now. */
static bool back_up(struct model *model, struct node *node)
{
    if (node == &model->root || node->host)
        return true;
    return back_up(model, node->parent) && copy_to_host(model, node);
}

static void leave_device(struct model *model, struct node *node)
{
    removed(model, KVR_MEDIUM_GPU, node);
    model->free += node->key.count;
    node->device = false;
    if (!node->host)
        discard(node);
}

static void evict(struct model *model, uint64_t count)
{
    struct node *leaf;
    uint64_t gone = 0;
    while (gone < count && (leaf = smallest(model, &model->root, device_leaf))) {
        gone += leaf->key.count;
        if (model->has_host && model->write == BACK && !leaf->host && !copy_to_host(model, leaf))
            assert_int_equal(leaf->child_count, 0);
        leave_device(model, leaf);
    }
}

static uint64_t pages_on_host_only(const struct node *node)
{
    return node->device ? 0 : node->key.count + pages_on_host_only(node->parent);
}

static void bring_to_device(struct model *model, struct node *node)
{
    if (node->device)
        return;
    bring_to_device(model, node->parent);
    node->device = true;
    model->free -= node->key.count;
    stored(model, KVR_MEDIUM_GPU, node);
}

static bool load_back(struct model *model, struct node *node)
{
    uint64_t pages = pages_on_host_only(node);
    if (pages * model->size < (uint64_t)model->load_back)
        return false;
    lock(model, node, 1);
    if (model->free < pages)
        evict(model, pages - model->free);
    bool room = model->free >= pages;
    struct node *device = node;
    while (!device->device)
        device = device->parent;
    if (room) {
        bring_to_device(model, node);
        for (struct node *at = node; at != device; at = at->parent)
            note_twofold(model, at);
    }
    lock(model, node, -1);
    return room;
}

/* ── insert ── */

static void count_hit(struct model *model, struct node *node)
{
    if (model->has_host && model->write == BACK)
        return;
    node->hits++;
    if (model->has_host && !node->host && node->hits >= (model->write == THROUGH ? 1 : 2))
        back_up(model, node);
}

static struct node *insert(struct model *model, const uint64_t *ids, size_t count, int64_t priority,
    size_t inserted, uint64_t *taken)
{
    struct node *node = &model->root, *child;
    size_t done = 0;
    uint64_t now = ++model->clock;
    *taken = 0;
    while (done < count && (child = child_of(node, ids[done]))) {
        size_t length = common(child, ids + done, count - done);
        child->access = now;
        if (length < child->key.count)
            child = split(model, child, length);
        if (child->priority < priority)
            child->priority = priority;
        if (!child->device) {
            child->device = true;
            *taken += length;
            note_twofold(model, child);
            stored(model, KVR_MEDIUM_GPU, child);
        }
        done += length;
        if (done > inserted)
            count_hit(model, child);
        node = child;
    }
    if (done < count) {
        child = new_node(model, node);
        child->priority = priority;
        child->device = true;
        for (size_t i = done; i < count; i++)
            id_push(&child->key, ids[i]);
        adopt(node, child);
        for (struct node *at = child; at; at = at->parent)
            if (at->deepest < count)
                at->deepest = count;
        *taken += count - done;
        stored(model, KVR_MEDIUM_GPU, child);
        if (count > inserted)
            count_hit(model, child);
        node = child;
    }
    return node;
}

/* ── requests ── */

static struct node *give(struct model *model, struct request *mine, size_t count)
{
    uint64_t taken;
    struct node *node =
        insert(model, mine->chain.items, count, mine->priority, mine->inserted, &taken);
    uint64_t given = count - mine->from_tree;
    model->free += given - taken;
    mine->own -= given;
    mine->from_tree = count;
    mine->inserted = count;
    return node;
}

static enum kvr_status model_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    uint64_t prompt = request->input_tokens, size = model->size;
    uint32_t handle = 0;
    while (model->requests[handle].used)
        handle++;
    struct request *mine = &model->requests[handle];
    mine->chain.count = 0;
    for (size_t i = 0; i < request->id_count; i++)
        id_push(&mine->chain, request->ids[i]);
    for (size_t i = 0; i < request->output_id_count; i++)
        id_push(&mine->chain, request->output_ids[i]);
    size_t hit, limit = prompt ? (size_t)((prompt - 1) / size) : 0;
    struct node *node = match(model, mine->chain.items, limit, true, &hit);
    uint64_t on_host = pages_on_host_only(node);
    if (on_host && !load_back(model, node)) {
        hit -= on_host;
        on_host = 0;
        while (!node->device)
            node = node->parent;
    }
    lock(model, node, 1);
    uint64_t tokens = prompt + (model->total ? request->output_tokens : 0);
    uint64_t need = (tokens + size - 1) / size - hit;
    if (model->free < need)
        evict(model, need - model->free);
    if (model->free < need) {
        lock(model, node, -1);
        return KVR_OK;
    }
    model->free -= need;
    mine->used = true;
    mine->own = need;
    mine->from_tree = hit;
    mine->inserted = 0;
    mine->tokens = prompt;
    mine->priority = request->priority;
    mine->node = node;
    mine->prompt_pages = (size_t)(prompt / size);
    if (model->checkpoint && mine->prompt_pages > hit) {
        mine->node = give(model, mine, mine->prompt_pages);
        lock(model, mine->node, 1);
        lock(model, node, -1);
    }
    admission->admitted = true;
    admission->live = handle;
    model->hits[0] += admission->hit_blocks[0] = hit - on_host;
    model->hits[1] += admission->hit_blocks[1] = on_host;
    model->live++;
    return KVR_OK;
}

static enum kvr_status model_output(struct kvr_cache *base, uint32_t handle, uint64_t tokens,
    uint64_t *made, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    struct request *mine = &model->requests[handle];
    for (*made = 0; *made < tokens; ++*made) {
        if (mine->tokens == (mine->own + mine->from_tree) * model->size) {
            if (!model->free)
                evict(model, 1);
            if (!model->free)
                break;
            model->free--;
            mine->own++;
        }
        mine->tokens++;
    }
    return KVR_OK;
}

static enum kvr_status model_finish(
    struct kvr_cache *base, uint32_t handle, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    struct request *mine = &model->requests[handle];
    size_t full = (size_t)(mine->tokens / model->size);
    uint64_t taken;
    if (full > mine->chain.count)
        full = mine->chain.count;
    if (full)
        give(model, mine, full);
    if (model->checkpoint && mine->prompt_pages && mine->prompt_pages < full)
        insert(model, mine->chain.items, mine->prompt_pages, mine->priority + 1, mine->prompt_pages,
            &taken);
    model->free += mine->own;
    lock(model, mine->node, -1);
    mine->used = false;
    model->live--;
    return KVR_OK;
}

static enum kvr_status model_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    (void)pin, (void)error;
    struct model *model = (struct model *)base;
    struct node *node = match(model, ids, count, false, pinned);
    node->pins += node != &model->root;
    lock(model, node, 1);
    return KVR_OK;
}

static enum kvr_status model_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    (void)error;
    struct model *model = (struct model *)base;
    size_t matched;
    struct node *node = match(model, ids, count, false, &matched);
    if (node->pins) {
        node->pins--;
        lock(model, node, -1);
    }
    return KVR_OK;
}

static bool any_lock(const struct node *node)
{
    bool any = node->locks != 0;
    for (size_t i = 0; i < node->child_count; i++)
        any = any || any_lock(node->children[i]);
    return any;
}

static void model_clear(struct kvr_cache *base)
{
    struct model *model = (struct model *)base;
    struct node *leaf;
    model->quiet = !any_lock(&model->root);
    for (;;) {
        if ((leaf = smallest(model, &model->root, host_leaf)))
            drop_host_leaf(model, leaf);
        else if ((leaf = smallest(model, &model->root, device_leaf)))
            leave_device(model, leaf);
        else
            break;
    }
    if (model->quiet) {
        model->sink.cleared(model->sink.context, KVR_MEDIUM_GPU);
        if (model->has_host)
            model->sink.cleared(model->sink.context, KVR_MEDIUM_CPU);
    }
    model->quiet = false;
}

static void model_stats(const struct kvr_cache *base, struct kvr_cache_stats *stats)
{
    const struct model *model = (const struct model *)base;
    stats->free_blocks = model->free;
    stats->live = model->live;
    stats->hit_blocks[0] = model->hits[0];
    stats->hit_blocks[1] = model->hits[1];
}

static void visit_below(
    const struct node *node, enum kvr_medium medium, kvr_cache_visit *visit, void *context)
{
    if (medium == KVR_MEDIUM_GPU ? node->device : medium == KVR_MEDIUM_CPU && node->host)
        for (size_t i = 0; i < node->key.count; i++)
            visit(context, node->key.items[i]);
    for (size_t i = 0; i < node->child_count; i++)
        visit_below(node->children[i], medium, visit, context);
}

static void model_resident(
    const struct kvr_cache *base, enum kvr_medium medium, kvr_cache_visit *visit, void *context)
{
    visit_below(&((const struct model *)base)->root, medium, visit, context);
}

static void model_destroy(struct kvr_cache *base)
{
    struct model *model = (struct model *)base;
    for (size_t i = 0; i < 32; i++)
        id_free(&model->requests[i].chain);
    while (model->root.child_count) {
        struct node *node = model->root.children[0];
        while (node->child_count)
            node = node->children[0];
        discard(node);
    }
    free(model->root.children);
    free(model);
}

static struct kvr_engine model_engine = {
    .name = "model of sglang",
    .create = model_create,
    .admit = model_admit,
    .output = model_output,
    .finish = model_finish,
    .pin = model_pin,
    .unpin = model_unpin,
    .clear = model_clear,
    .stats = model_stats,
    .resident = model_resident,
    .destroy = model_destroy,
};

static void fuzz(const char *tier, uint64_t seeds, uint64_t salt)
{
    static const char *const strategies[] = {
        "lru", "lfu", "slru", "priority", "fifo", "mru", "filo", "tlru"};
    const struct kvr_engine *engine = kvr_engine_find("sglang");
    model_engine.parameters = engine->parameters;
    model_engine.parameter_count = engine->parameter_count;
    for (uint64_t seed = salt; seed < salt + seeds; seed++) {
        struct kvr_random random = {seed * 7919};
        char parameters[200];
        snprintf(parameters, sizeof parameters,
            "strategy=%s,reserve=%s,insert=%s,tlru-threshold=%u,tlru-next=%u%s",
            strategies[seed % 8], kvr_random_below(&random, 2) ? "total" : "prompt",
            kvr_random_below(&random, 2) ? "finish" : "checkpoint", kvr_random_below(&random, 100),
            kvr_random_below(&random, 40), tier);
        struct fuzz_plan plan = {
            .engines = {engine, &model_engine},
            .parameters = parameters,
            .capacity_blocks = 1 + kvr_random_below(&random, seed % 3 ? 50 : 10),
            .block_tokens = 1 + kvr_random_below(&random, 16),
            .live_most = kvr_random_below(&random, 7),
            .longest_blocks = 1 + kvr_random_below(&random, 14),
            .steps = 400,
            .pins = seed % 2,
            .clears = seed % 5 == 0,
            .loose_ids = seed % 3 == 1,
            .seed = seed,
        };
        fuzz_engines(&plan);
    }
}

static void equals_the_model(void **state)
{
    (void)state;
    fuzz("", 240, 1);
}

static void equals_the_model_writing_through(void **state)
{
    (void)state;
    fuzz(",host-ratio=2,load-back=0", 80, 1000);
    fuzz(",host-ratio=0.7,load-back=20", 80, 2000);
}

static void equals_the_model_writing_selectively(void **state)
{
    (void)state;
    fuzz(",host-ratio=1,write=write_through_selective", 160, 3000);
}

static void equals_the_model_writing_back(void **state)
{
    (void)state;
    fuzz(",host-ratio=2,write=write_back", 80, 4000);
    fuzz(",host-ratio=0.5,write=write_back,load-back=1", 160, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_model),
        cmocka_unit_test(equals_the_model_writing_through),
        cmocka_unit_test(equals_the_model_writing_selectively),
        cmocka_unit_test(equals_the_model_writing_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
