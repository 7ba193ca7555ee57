/*
 * A cache engine: the KV cache of one worker, managed as one named system manages it.
 *
 * An engine is a struct of functions and one line in engine_table.c. Three programs drive the same
 * functions: kvr-evict replays a trace with K live requests (replay.h), kvr-sim steps requests
 * token by token in virtual time, and both can stand in for a worker by printing the events.
 *
 *     admit ──► output ──► output … ──► finish      the life of one request
 *       │                                  │
 *       └─ no room: finish a live one and try again, or reject
 *
 * Units. A block is block_tokens tokens of one cache; every count of blocks is in that unit. Ids
 * are chained: equal ids mean an equal block after an equal prefix, so a chain is found by its last
 * id. The namespace (model, LoRA, salt) is already folded into the ids.
 *
 * Time is the caller's, in ms, and never runs backwards; only engines with leases, pins or ages
 * look at it.
 *
 * Ownership and threads: kvr_cache_create() makes a cache, kvr_cache_destroy() frees it; the
 * request, its ids and the parameter values are the caller's and may go when the call returns. One
 * thread at a time a cache; caches share nothing. In steady state no call allocates: an array grows
 * only when a request is larger, or more are live, than ever before.
 *
 * Failure: a status other than KVR_OK (memory, a wrong argument) is not the cache's answer: "no
 * room" is an answer and comes back in the result with KVR_OK.
 */
#ifndef KVR_CACHE_ENGINE_H
#define KVR_CACHE_ENGINE_H

#include "base/error.h"
#include "base/parameter.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvr_medium {
    KVR_MEDIUM_GPU,
    KVR_MEDIUM_CPU,
    KVR_MEDIUM_DISK,
    KVR_MEDIUM_REMOTE,
    KVR_MEDIUM_COUNT,
};

/* "gpu", "cpu", "disk", "remote": the stream's names. */
const char *kvr_medium_name(enum kvr_medium medium);

/*
 * A request as a cache sees it. Blocks of the prompt: ids[i] is a full block exactly when
 * (i + 1) * block_tokens <= input_tokens; an id after these names the partial block at the prompt's
 * end (Mooncake's traces have it), which only `block` caches. output_ids go on after the last
 * full prompt block that has an id: the first is the block that the prompt's tail and the first
 * output tokens fill. A block past the last id exists but can never be found again.
 */
struct kvr_cache_request {
    const uint64_t *ids;
    size_t id_count;
    const uint64_t *output_ids;
    size_t output_id_count;
    uint64_t input_tokens;
    uint64_t output_tokens; /* those that get a KV slot, see replay.h; a bound for output() */
    uint32_t block_tokens;  /* tokens an id */
    int32_t priority;       /* larger is kept longer, where the engine looks at it */
    double time_ms;
};

/* The ids that name full prompt blocks. */
static inline size_t kvr_cache_full_ids(const struct kvr_cache_request *request)
{
    uint64_t full = request->input_tokens / request->block_tokens;
    return full < request->id_count ? (size_t)full : request->id_count;
}

/*
 * What happened, told in the exact order in which it happened, from inside the call that caused it.
 * The callbacks must not call back into the cache; the ids are valid during the call only. With
 * duplicates (vLLM) an id may be stored several times and is gone when removed as often.
 */
struct kvr_cache_sink {
    void *context;
    /* ids left the medium, in this order */
    void (*removed)(void *context, enum kvr_medium medium, const uint64_t *ids, size_t count);
    /* ids came to the medium, each the child of the one before; parent is that of the first, NULL
     * where the chain starts here */
    void (*stored)(void *context, enum kvr_medium medium, const uint64_t *parent,
        const uint64_t *ids, size_t count);
    /* the medium was emptied by clear() */
    void (*cleared)(void *context, enum kvr_medium medium);
};

struct kvr_engine_options {
    uint64_t capacity_blocks; /* of the engine's first medium; at least 1, below 2^31 */
    uint32_t block_tokens;    /* at least 1 */
    uint64_t seed;            /* for engines with chance */
    /* one value for each parameter of the engine, in its order; NULL: the defaults */
    const struct kvr_parameter_value *values;
    const struct kvr_cache_sink *sink; /* copied; NULL, or NULL members: not told */
};

/* admit()'s answer. Not admitted: too little room now; no block of any live request was touched. */
struct kvr_admission {
    bool admitted;
    uint32_t live; /* the handle for output() and finish() */
    /* the prefix found, by the medium that held it; together a leading run of the prompt */
    uint64_t hit_blocks[KVR_MEDIUM_COUNT];
    uint64_t hit_tokens[KVR_MEDIUM_COUNT];
};

struct kvr_pin {
    double time_ms;     /* now */
    double duration_ms; /* the pin falls off after it; 0 means the engine's own, or for ever */
    bool soft;          /* may be evicted when nothing else can (Mooncake store) */
};

struct kvr_cache_stats {
    uint64_t admitted;      /* requests that admit() said yes to */
    uint64_t prompt_blocks; /* full blocks of their prompts that had an id */
    uint64_t prompt_tokens;
    uint64_t hit_blocks[KVR_MEDIUM_COUNT];
    uint64_t hit_tokens[KVR_MEDIUM_COUNT];
    uint64_t inserted_blocks[KVR_MEDIUM_COUNT]; /* = evicted + cleared + resident */
    uint64_t evicted_blocks[KVR_MEDIUM_COUNT];
    uint64_t cleared_blocks[KVR_MEDIUM_COUNT];
    uint64_t resident_blocks[KVR_MEDIUM_COUNT]; /* with an id, findable, duplicates counted */
    uint64_t capacity_blocks[KVR_MEDIUM_COUNT];
    uint64_t free_blocks;  /* of the first medium: what new blocks can be made of without evicting
                              (SGLang) or that no live request holds (vLLM) */
    uint64_t live;         /* requests admitted and not finished */
    uint64_t memory_bytes; /* what the engine's own bookkeeping takes now */
};

struct kvr_cache;
struct kvr_regrouped;

typedef void kvr_cache_visit(void *context, uint64_t id);
typedef void kvr_cache_visit_free(void *context, bool has_id, uint64_t id);

struct kvr_engine {
    const char *name;
    const char *summary;         /* one line for --help, no full stop */
    uint32_t usual_block_tokens; /* what the system itself is commonly run with; 0: as the trace */
    const struct kvr_parameter *parameters;
    size_t parameter_count;

    /* See the wrappers below for what each does. */
    enum kvr_status (*create)(const struct kvr_engine_options *options,
        const struct kvr_parameter_value *values, struct kvr_cache **out, struct kvr_error *error);
    enum kvr_status (*admit)(struct kvr_cache *cache, const struct kvr_cache_request *request,
        struct kvr_admission *admission, struct kvr_error *error);
    enum kvr_status (*output)(struct kvr_cache *cache, uint32_t live, uint64_t tokens,
        uint64_t *made, struct kvr_error *error);
    enum kvr_status (*finish)(struct kvr_cache *cache, uint32_t live, struct kvr_error *error);
    enum kvr_status (*pin)(struct kvr_cache *cache, const uint64_t *ids, size_t count,
        const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error); /* NULL: has no pins */
    enum kvr_status (*unpin)(
        struct kvr_cache *cache, const uint64_t *ids, size_t count, struct kvr_error *error);
    void (*clear)(struct kvr_cache *cache);
    void (*stats)(const struct kvr_cache *cache, struct kvr_cache_stats *stats);
    void (*resident)(const struct kvr_cache *cache, enum kvr_medium medium, kvr_cache_visit *visit,
        void *context);
    void (*walk_free)(const struct kvr_cache *cache, kvr_cache_visit_free *visit,
        void *context); /* NULL: has no free queue */
    void (*destroy)(struct kvr_cache *cache);
};

/* The first member of every engine's own struct; kvr_cache_create() fills it after create(). */
struct kvr_cache {
    const struct kvr_engine *engine;
    uint32_t block_tokens;
    struct kvr_regrouped *regrouped; /* made when a request first needs it */
};

/* The engines, in the order in which help lists them. */
extern const struct kvr_engine *const kvr_engines[];
extern const size_t kvr_engine_count;

/* NULL where no engine has the name. */
const struct kvr_engine *kvr_engine_find(const char *name);

enum { KVR_ENGINE_PARAMETERS_MOST = 32 }; /* no engine has more */

/* Reads what a user writes for an engine: "NAME" or "NAME(parameter=value,...)". Fills
 * values[0 … KVR_ENGINE_PARAMETERS_MOST-1] from the engine's defaults and the text. KVR_BAD_USAGE
 * says which engines or parameters there are. */
enum kvr_status kvr_engine_read(const char *text, const struct kvr_engine **engine,
    struct kvr_parameter_value *values, struct kvr_error *error);

/* Makes an empty cache. KVR_BAD_USAGE for a capacity or parameter out of range, KVR_NO_MEMORY. */
enum kvr_status kvr_cache_create(const struct kvr_engine *engine,
    const struct kvr_engine_options *options, struct kvr_cache **out, struct kvr_error *error);

/* NULL is allowed. Live requests need not be finished. Sends no events. */
void kvr_cache_destroy(struct kvr_cache *cache);

/* Looks the prompt up, makes room, and takes what the request needs from the start. Where it is not
 * admitted the cache is as before, but for evictions that the real engine lets stand (SGLang). A
 * request whose ids stand for more or fewer tokens than a block of the cache is regrouped first
 * (regroup.h); KVR_BAD_INPUT where neither size is a multiple of the other. */
enum kvr_status kvr_cache_admit(struct kvr_cache *cache, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error);

/* The live request generates `tokens` more. *made < tokens: out of blocks after so many; finish
 * another live request and call again for the rest, or stop. */
static inline enum kvr_status kvr_cache_output(struct kvr_cache *cache, uint32_t live,
    uint64_t tokens, uint64_t *made, struct kvr_error *error)
{
    return cache->engine->output(cache, live, tokens, made, error);
}

/* The request ended (or is preempted): what it holds stays findable but may now be evicted. */
static inline enum kvr_status kvr_cache_finish(
    struct kvr_cache *cache, uint32_t live, struct kvr_error *error)
{
    return cache->engine->finish(cache, live, error);
}

/* Protects the leading run of ids that is resident now; *pinned says how many that is. Pins nest:
 * as many unpins as pins. KVR_UNSUPPORTED where the engine has none. */
enum kvr_status kvr_cache_pin(struct kvr_cache *cache, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error);
enum kvr_status kvr_cache_unpin(
    struct kvr_cache *cache, const uint64_t *ids, size_t count, struct kvr_error *error);

/* Forgets every id that no live request holds and no pin protects. */
void kvr_cache_clear(struct kvr_cache *cache);

void kvr_cache_stats(const struct kvr_cache *cache, struct kvr_cache_stats *stats);

/* Each resident id, in no order that means anything but the same for the same history; an id that
 * is there twice is visited twice. */
void kvr_cache_resident(
    const struct kvr_cache *cache, enum kvr_medium medium, kvr_cache_visit *visit, void *context);

/* The free queue from the next block to be taken to the last; false where the engine has none. */
bool kvr_cache_walk_free(const struct kvr_cache *cache, kvr_cache_visit_free *visit, void *context);

#endif
