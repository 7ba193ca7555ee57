/*
 * Engine events to kvr's: hashes of the engine become kvr's chained ids.
 *
 * Engines hash as they like (SHA-256 of pickle, of CBOR, XXH3, with secrets), so one engine's hash
 * cannot be computed from another's. But a stored event carries the tokens of its blocks and the
 * hash of the block before, which is enough to compute any chain: kvr's hash of a block is that of
 * its parent, looked up by the engine's hash, continued with the tokens. So a table maps engine
 * hash -> (kvr hash, namespace, references in each medium) for what the worker holds now.
 * - The namespace (LoRA, salt) is the first block's and goes on to its children.
 * - A hash may be stored several times (vLLM does not merge equal blocks) and is gone when it was
 *   removed as often; each gives a line. An entry without references leaves the table.
 * - A block whose parent is not in the table has no kvr hash; it is counted, never guessed. The
 *   same for a block without tokens (offloaded ones) that is not in the table.
 * - Only full attention can be reused by prefix: other groups are left out and counted. vLLM from
 *   0.23 says of which kind a group is; before, group 0 counts.
 * Cost: one look-up a block, one XXH3 of the block's tokens; 32 bytes a slot of the table.
 */
#ifndef KVR_NET_KV_EVENT_TRANSLATE_H
#define KVR_NET_KV_EVENT_TRANSLATE_H

#include "net/kv_event.h"
#include "net/kv_event_table.h"

/* A namespace with its block size. */
struct kvr_kv_space {
    struct kvr_text model, lora, salt; /* text NULL: none */
    uint32_t block_size;               /* 0: not said; only in native runs without tokens */
    uint64_t seed;                     /* of kvr's chain */
    uint64_t holders;                  /* entries in it; 0: free */
    uint64_t key;                      /* what it is found by */
    size_t bytes;
};

/* Blocks that came or went together. Borrowed for the call. */
struct kvr_kv_run {
    const char *worker;
    enum kvr_medium medium;
    const uint64_t *ids; /* kvr's on the wire, or the engine's */
    size_t count;
    bool has_parent; /* of a stored run; each further id is the child of the one before */
    uint64_t parent;
    const uint32_t *tokens; /* of a stored run, count * block_size of them; NULL: not kept */
    size_t token_count;
    const struct kvr_kv_space *space;
};

/* Where they go. */
struct kvr_kv_sink {
    void *context;
    void (*stored)(void *context, const struct kvr_kv_run *run);
    void (*removed)(void *context, const struct kvr_kv_run *run);
    /* The worker's cache is empty, or what is known of it void. reason: NULL for the engine's own
     * word, else a short name. */
    void (*cleared)(void *context, const char *worker, const char *reason);
};

#define KVR_KV_COUNTS(row)                                                                         \
    row(events, "events") row(stored_blocks, "blocks stored") row(removed_blocks,                  \
        "blocks removed") row(cleared, "cleared by the engine") row(bad_events, "bad events")      \
        row(unknown_events, "events of unknown types") row(other_group_blocks,                     \
            "blocks of other than full attention") row(orphans, "blocks with an unknown parent")   \
            row(tokenless_blocks, "blocks without tokens, not known before")                       \
                row(unknown_removed, "removed blocks not known before")                            \
                    row(clashes, "blocks of one hash with other content")                          \
                        row(over_memory_blocks, "blocks left out for memory")                      \
                            row(unknown_media, "events of an unknown medium, taken as remote")

struct kvr_kv_counts {
#define KVR_KV_COUNT_ROW(name, text) uint64_t name;
    KVR_KV_COUNTS(KVR_KV_COUNT_ROW)
#undef KVR_KV_COUNT_ROW
};

struct kvr_kv_translator_options {
    const char *worker; /* its name; kept by pointer */
    const char *model;  /* of the namespace; NULL: none. Kept by pointer */
    bool native;        /* ids are the engine's hashes */
    bool tokens;        /* runs carry their tokens */
    bool shared;        /* others tell of this worker too: what is cleared is told as removed */
};

struct kvr_kv_translator;

enum kvr_status kvr_kv_translator_create(struct kvr_kv_translator **translator,
    const struct kvr_kv_translator_options *options, struct kvr_kv_memory *memory,
    const struct kvr_kv_sink *sink, struct kvr_error *error);
void kvr_kv_translator_destroy(struct kvr_kv_translator *translator);

/*
 * Translates all events of a batch and hands its runs to the sink. KVR_BAD_INPUT tells that some
 * event was bad (the first one's fault is in error); the others are done. KVR_NO_MEMORY only where
 * room for an event's own lists is missing.
 */
enum kvr_status kvr_kv_translate(
    struct kvr_kv_translator *translator, struct kvr_kv_batch *batch, struct kvr_error *error);

/* Forgets everything, and tells the sink; of a shared worker that each block is removed. */
void kvr_kv_translator_clear(struct kvr_kv_translator *translator, const char *reason);

const struct kvr_kv_counts *kvr_kv_translator_counts(const struct kvr_kv_translator *translator);
/* Distinct blocks held. */
size_t kvr_kv_translator_blocks(const struct kvr_kv_translator *translator);

#endif
