/*
 * SGLang's radix cache (0.5.23): a tree whose leaves are whole runs of pages.
 *
 * The problem. Where vLLM evicts block by block, SGLang evicts leaf by leaf: one request's unshared
 * tail goes as one. What is a leaf depends on history: a node is split where a later request parted
 * from it, so the same contents may be evicted in different portions. An exact model must therefore
 * keep the tree, its splits and the times at which each node was touched.
 *
 * The life of a request here.
 *   admit   matches the prompt but for its last token (one token must be computed), locks the path,
 *           loads back what only the host tier has, and takes pages for what is missing, evicting
 *           leaves where too few are free. `reserve=total` takes the output's pages at once, as the
 *           recorded runs of the real cache do; `reserve=prompt` takes them as they fill.
 *   output  counts tokens, takes pages.
 *   finish  inserts all full pages, frees those that the tree had by then and the partial last one,
 *           unlocks. `insert=checkpoint` does as the scheduler in service: the prompt is inserted
 * as soon as it is computed (so that a concurrent request hits it), and at the end the leaf is cut
 * at the prompt's end, whose priority is one higher, so that outputs go first.
 *
 * A refused admission leaves the evictions that it caused: SGLang has no way back from them.
 *
 * The tree is sglang_tree.c, the host tier sglang_host.c.
 */
#include "cache/handles.h"
#include "cache/sglang_tree.h"

#include <string.h>

struct live {
    uint64_t *chain; /* all ids, prompt and output */
    size_t chain_count, chain_capacity;
    size_t prompt_pages; /* of the chain: full pages of the prompt */
    size_t inserted;     /* this many ids were inserted by this request before */
    uint64_t in_tree;    /* leading pages that the tree owns and the lock keeps there */
    uint64_t held;       /* pages of the request's own */
    uint64_t tokens;
    uint32_t node; /* locked */
    int32_t priority;
    bool used;
};

struct sglang {
    struct kvr_cache base;
    struct sglang_tree tree;
    bool reserve_total, checkpoint;
    uint64_t load_back_tokens;
    struct live *live;
    struct kvr_handles handles;
    uint64_t live_bytes; /* of the live requests' chains */
};

enum {
    STRATEGY,
    PROTECTED,
    TLRU_THRESHOLD,
    TLRU_NEXT,
    RESERVE,
    INSERT,
    HOST_RATIO,
    WRITE,
    LOAD_BACK,
    PARAMETERS
};

static const struct kvr_parameter parameters[PARAMETERS] = {
    [STRATEGY] = {"strategy", KVR_PARAMETER_CHOICE, "lru",
        "lru lfu slru priority fifo mru filo tlru", 0, 0, "which leaf is evicted first"},
    [PROTECTED] = {"protected", KVR_PARAMETER_INTEGER, "2", NULL, 0, 4e9,
        "slru: hits from which a node is protected"},
    [TLRU_THRESHOLD] = {"tlru-threshold", KVR_PARAMETER_INTEGER, "0", NULL, 0, 1e12,
        "tlru: tokens that a prefill may compute within its latency goal"},
    [TLRU_NEXT] = {"tlru-next", KVR_PARAMETER_INTEGER, "0", NULL, 0, 1e12,
        "tlru: tokens that a conversation's next turn is expected to add"},
    [RESERVE] = {"reserve", KVR_PARAMETER_CHOICE, "total", "total prompt", 0, 0,
        "pages taken at admission: prompt and output, or the prompt's"},
    [INSERT] = {"insert", KVR_PARAMETER_CHOICE, "finish", "finish checkpoint", 0, 0,
        "into the tree when done, or the prompt as soon as it is computed"},
    [HOST_RATIO] = {"host-ratio", KVR_PARAMETER_NUMBER, "0", NULL, 0, 1000,
        "host pool (HiCache) as a multiple of the device's; 0: none; the engine's own: 2"},
    [WRITE] = {"write", KVR_PARAMETER_CHOICE, "write_through",
        "write_through write_through_selective write_back", 0, 0,
        "copied to the host at the first hit, at the second, or when evicted"},
    [LOAD_BACK] = {"load-back", KVR_PARAMETER_INTEGER, "10", NULL, 0, 1e12,
        "tokens below which a host hit is not loaded back"},
};

static void sglang_destroy(struct kvr_cache *base)
{
    struct sglang *cache = (struct sglang *)base;
    for (size_t i = 0; i < cache->handles.size; i++)
        free(cache->live[i].chain);
    free(cache->live);
    free(cache->handles.unused);
    sglang_tree_release(&cache->tree);
    free(cache);
}

static enum kvr_status sglang_create(const struct kvr_engine_options *options,
    const struct kvr_parameter_value *values, struct kvr_cache **out, struct kvr_error *error)
{
    struct sglang *cache = calloc(1, sizeof *cache);
    if (!cache)
        return kvr_error_memory(error);
    struct sglang_tree *tree = &cache->tree;
    tree->strategy = (enum sglang_strategy)values[STRATEGY].integer;
    tree->protected_hits = (uint32_t)values[PROTECTED].integer;
    tree->tail_budget_tokens = values[TLRU_THRESHOLD].integer;
    tree->next_prompt_tokens = values[TLRU_NEXT].integer;
    tree->write = (enum sglang_write)values[WRITE].integer;
    tree->page_tokens = options->block_tokens;
    tree->pages = options->capacity_blocks;
    tree->host_pages = (uint64_t)((double)options->capacity_blocks * values[HOST_RATIO].number);
    tree->has_host = tree->host_pages > 0;
    if (options->sink)
        tree->sink = *options->sink;
    cache->reserve_total = values[RESERVE].integer == 0;
    cache->checkpoint = values[INSERT].integer == 1;
    cache->load_back_tokens = (uint64_t)values[LOAD_BACK].integer;
    enum kvr_status status = KVR_OK;
    if (tree->host_pages >= (uint64_t)1 << 31)
        status = kvr_error_set(error, KVR_BAD_USAGE, "a host pool of %llu pages is too large",
            (unsigned long long)tree->host_pages);
    else
        status = sglang_tree_init(tree, error);
    if (status != KVR_OK) {
        sglang_destroy(&cache->base);
        return status;
    }
    *out = &cache->base;
    return KVR_OK;
}

/* Copies the ids that the request can fill. */
static enum kvr_status copy_chain(struct sglang *cache, struct live *live,
    const struct kvr_cache_request *request, struct kvr_error *error)
{
    size_t full = kvr_cache_full_ids(request);
    uint64_t reach = (request->input_tokens + request->output_tokens) / request->block_tokens;
    uint64_t wanted = (uint64_t)full + request->output_id_count;
    live->chain_count = (size_t)(reach < wanted ? reach : wanted);
    size_t before = live->chain_capacity;
    uint64_t *chain =
        kvr_grow(live->chain, &live->chain_capacity, live->chain_count, sizeof *chain);
    if (!chain)
        return kvr_error_memory(error);
    live->chain = chain;
    cache->live_bytes += (live->chain_capacity - before) * sizeof *chain;
    size_t prompt = full < live->chain_count ? full : live->chain_count;
    if (prompt)
        memcpy(chain, request->ids, prompt * sizeof *chain);
    if (live->chain_count > prompt)
        memcpy(chain + prompt, request->output_ids, (live->chain_count - prompt) * sizeof *chain);
    uint64_t inside = request->input_tokens / request->block_tokens;
    live->prompt_pages = inside < live->chain_count ? (size_t)inside : live->chain_count;
    return KVR_OK;
}

/* Gives the tree the request's first `count` ids: pages that it had already come free. */
static uint32_t give(struct sglang *cache, struct live *live, size_t count)
{
    size_t adopted;
    uint32_t node =
        sglang_insert(&cache->tree, live->chain, count, live->priority, live->inserted, &adopted);
    cache->tree.free += count - live->in_tree - adopted;
    live->held -= count - live->in_tree;
    live->in_tree = count;
    if (live->inserted < count)
        live->inserted = count;
    return node;
}

static enum kvr_status sglang_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    struct sglang *cache = (struct sglang *)base;
    struct sglang_tree *tree = &cache->tree;
    uint32_t size = tree->page_tokens, handle;
    struct live *slots = kvr_handles_take(&cache->handles, cache->live, sizeof *slots, &handle);
    if (!slots)
        return kvr_error_memory(error);
    cache->live = slots;
    struct live *live = &slots[handle];
    enum kvr_status status = copy_chain(cache, live, request, error);
    if (status == KVR_OK)
        status = sglang_tree_reserve(tree, live->chain_count, error);
    if (status != KVR_OK) {
        kvr_handles_give(&cache->handles, handle);
        return status;
    }

    /* the longest prefix, at least one token short of the prompt; of it, what the host alone has */
    uint64_t limit = request->input_tokens ? (request->input_tokens - 1) / size : 0;
    size_t hit, host_hit = 0;
    uint32_t node = sglang_match(
        tree, live->chain, limit < live->chain_count ? (size_t)limit : live->chain_count, &hit);
    if (!tree->nodes[node].device) {
        uint32_t device = node;
        for (; !tree->nodes[device].device; device = tree->nodes[device].parent)
            host_hit += tree->nodes[device].length;
        uint64_t least = cache->load_back_tokens / size + (cache->load_back_tokens % size != 0);
        sglang_lock(tree, device);
        if (!sglang_load_back(tree, node, least)) {
            hit -= host_hit;
            host_hit = 0;
            node = device;
        }
        sglang_unlock(tree, device);
    }
    sglang_lock(tree, node);

    uint64_t tokens = request->input_tokens + (cache->reserve_total ? request->output_tokens : 0);
    uint64_t need = tokens / size + (tokens % size != 0) - hit;
    if (tree->free < need)
        sglang_evict(tree, need - tree->free);
    if (tree->free < need) {
        sglang_unlock(tree, node);
        kvr_handles_give(&cache->handles, handle);
        return KVR_OK;
    }
    tree->free -= need;
    live->held = need;
    live->in_tree = hit;
    live->inserted = 0;
    live->node = node;
    live->tokens = request->input_tokens;
    live->priority = request->priority;
    live->used = true;
    if (cache->checkpoint && live->prompt_pages > hit) {
        live->node = give(cache, live, live->prompt_pages);
        sglang_lock(tree, live->node);
        sglang_unlock(tree, node);
    }

    admission->admitted = true;
    admission->live = handle;
    admission->hit_blocks[KVR_MEDIUM_GPU] = hit - host_hit;
    admission->hit_blocks[KVR_MEDIUM_CPU] = host_hit;
    struct kvr_cache_stats *stats = &tree->stats;
    for (int medium = 0; medium <= KVR_MEDIUM_CPU; medium++) {
        admission->hit_tokens[medium] = admission->hit_blocks[medium] * size;
        stats->hit_blocks[medium] += admission->hit_blocks[medium];
        stats->hit_tokens[medium] += admission->hit_tokens[medium];
    }
    stats->admitted++;
    stats->live++;
    stats->prompt_blocks += kvr_cache_full_ids(request);
    stats->prompt_tokens += request->input_tokens;
    return KVR_OK;
}

static struct live *find_live(struct sglang *cache, uint32_t handle, struct kvr_error *error)
{
    if (handle < cache->handles.size && cache->live[handle].used)
        return &cache->live[handle];
    kvr_error_set(error, KVR_BAD_INPUT, "no live request has the handle %u", handle);
    return NULL;
}

static enum kvr_status sglang_output(struct kvr_cache *base, uint32_t handle, uint64_t tokens,
    uint64_t *made, struct kvr_error *error)
{
    struct sglang *cache = (struct sglang *)base;
    struct sglang_tree *tree = &cache->tree;
    struct live *live = find_live(cache, handle, error);
    *made = 0;
    if (!live)
        return KVR_BAD_INPUT;
    while (*made < tokens) {
        uint64_t room = (live->in_tree + live->held) * tree->page_tokens - live->tokens;
        if (!room) {
            if (!tree->free)
                sglang_evict(tree, 1);
            if (!tree->free)
                break;
            tree->free--;
            live->held++;
            room = tree->page_tokens;
        }
        uint64_t step = tokens - *made < room ? tokens - *made : room;
        live->tokens += step;
        *made += step;
    }
    return KVR_OK;
}

static enum kvr_status sglang_finish(
    struct kvr_cache *base, uint32_t handle, struct kvr_error *error)
{
    struct sglang *cache = (struct sglang *)base;
    struct sglang_tree *tree = &cache->tree;
    struct live *live = find_live(cache, handle, error);
    if (!live)
        return KVR_BAD_INPUT;
    enum kvr_status status = sglang_tree_reserve(tree, live->chain_count, error);
    if (status != KVR_OK)
        return status;
    uint64_t full = live->tokens / tree->page_tokens;
    size_t count = full < live->chain_count ? (size_t)full : live->chain_count;
    if (count)
        give(cache, live, count);
    if (cache->checkpoint && live->prompt_pages && live->prompt_pages < count) {
        size_t adopted;
        int32_t above = live->priority < INT32_MAX ? live->priority + 1 : INT32_MAX;
        sglang_insert(tree, live->chain, live->prompt_pages, above, live->prompt_pages, &adopted);
    }
    tree->free += live->held;
    sglang_unlock(tree, live->node);
    live->used = false;
    kvr_handles_give(&cache->handles, handle);
    tree->stats.live--;
    return KVR_OK;
}

/* A pin is a lock, as a live request's. SGLang itself has none; they end by unpin only. */
static enum kvr_status sglang_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    (void)pin;
    struct sglang *cache = (struct sglang *)base;
    enum kvr_status status = sglang_tree_reserve(&cache->tree, 0, error);
    if (status != KVR_OK)
        return status;
    uint32_t node = sglang_find(&cache->tree, ids, count, pinned);
    if (node) {
        cache->tree.nodes[node].pins++;
        sglang_lock(&cache->tree, node);
    }
    return KVR_OK;
}

static enum kvr_status sglang_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    struct sglang *cache = (struct sglang *)base;
    enum kvr_status status = sglang_tree_reserve(&cache->tree, 0, error);
    if (status != KVR_OK)
        return status;
    size_t matched;
    /* The pinned end is a node's end still, though perhaps of ids fewer than these. */
    for (uint32_t node = sglang_find(&cache->tree, ids, count, &matched); node;
         node = cache->tree.nodes[node].parent) {
        if (cache->tree.nodes[node].pins) {
            cache->tree.nodes[node].pins--;
            sglang_unlock(&cache->tree, node);
            break;
        }
    }
    return KVR_OK;
}

static void sglang_clear(struct kvr_cache *base)
{
    struct sglang *cache = (struct sglang *)base;
    struct sglang_tree *tree = &cache->tree;
    bool partly = false;
    for (uint32_t i = 1; i < tree->node_count && !partly; i++)
        partly = tree->nodes[i].length && tree->nodes[i].locks;
    struct kvr_cache_stats before = tree->stats;
    tree->quiet = !partly;
    sglang_drop_all(tree);
    tree->quiet = false;
    for (int medium = 0; medium <= tree->has_host; medium++) {
        uint64_t gone = before.resident_blocks[medium] - tree->stats.resident_blocks[medium];
        tree->stats.evicted_blocks[medium] = before.evicted_blocks[medium];
        tree->stats.cleared_blocks[medium] = before.cleared_blocks[medium] + gone;
        if (!partly && tree->sink.cleared)
            tree->sink.cleared(tree->sink.context, (enum kvr_medium)medium);
    }
}

static void sglang_stats(const struct kvr_cache *base, struct kvr_cache_stats *stats)
{
    const struct sglang *cache = (const struct sglang *)base;
    const struct sglang_tree *tree = &cache->tree;
    *stats = tree->stats;
    stats->capacity_blocks[KVR_MEDIUM_GPU] = tree->pages;
    stats->capacity_blocks[KVR_MEDIUM_CPU] = tree->host_pages;
    stats->free_blocks = tree->free;
    stats->memory_bytes =
        sizeof *cache + tree->node_capacity * sizeof *tree->nodes +
        tree->cell_capacity * sizeof *tree->cells + tree->bucket_count * sizeof *tree->buckets +
        kvr_order_bytes(&tree->leaves[0]) + kvr_order_bytes(&tree->leaves[1]) +
        tree->path_capacity * sizeof *tree->path + tree->told_capacity * sizeof *tree->told +
        kvr_handles_bytes(&cache->handles, sizeof *cache->live) + cache->live_bytes;
}

static void sglang_resident(
    const struct kvr_cache *base, enum kvr_medium medium, kvr_cache_visit *visit, void *context)
{
    const struct sglang_tree *tree = &((const struct sglang *)base)->tree;
    for (uint32_t i = 1; i < tree->node_count; i++) {
        const struct sglang_node *node = &tree->nodes[i];
        if (!(medium == KVR_MEDIUM_GPU ? node->device : medium == KVR_MEDIUM_CPU && node->host))
            continue;
        uint32_t cell = node->first;
        for (uint32_t k = 0; k < node->length; k++, cell = tree->cells[cell].next)
            visit(context, tree->cells[cell].id);
    }
}

const struct kvr_engine kvr_engine_sglang = {
    .name = "sglang",
    .summary = "SGLang's radix tree: whole leaves evicted, with its host tier (HiCache)",
    .parameters = parameters,
    .parameter_count = PARAMETERS,
    .create = sglang_create,
    .admit = sglang_admit,
    .output = sglang_output,
    .finish = sglang_finish,
    .pin = sglang_pin,
    .unpin = sglang_unpin,
    .clear = sglang_clear,
    .stats = sglang_stats,
    .resident = sglang_resident,
    .destroy = sglang_destroy,
};
