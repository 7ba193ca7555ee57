/*
 * Block hashes: what makes a prefix of tokens one number. A block's id depends on its tokens and,
 * through its parent's hash, on everything before it; equal ids mean an equal prefix.
 *
 * The chain of kvr (name "kvr") is
 *     h[-1] = kvr_namespace_seed(model, lora, salt)
 *     h[i]  = XXH3-64(h[i-1] : u64 LE, tokens of block i : u32 LE each, placed content)
 * where the content that begins or lies in the block (an image behind placeholder tokens) adds, in
 * order, XXH3-64(its identifier) : u64 LE and its start relative to the block : i64 LE. An id on
 * the wire is kvr_wire_id(h): 53 bits, which every JSON reader keeps.
 *
 * The other chains give the ids that engines publish themselves, so that streams can be compared:
 * - vllm-sha256_cbor, vllm-xxhash_cbor, vllm-sha256, vllm-xxhash: hash((parent, tokens, extra)) of
 *   canonical CBOR, or of Python's pickle (protocol 5), by SHA-256 or XXH3-128; the id is the last
 *   eight bytes. The first parent, NONE_HASH, is the same hash of a seed text: PYTHONHASHSEED where
 *   that is set. Where it is not, SHA-256 chains have a fixed text in 0.33 (kvr_vllm_default_seed);
 *   older versions and XXH3 chains draw 32 random bytes a process, and nobody can follow them.
 *   extra holds LoRA, multimodal content and (first block only) cache salt, written as:
 *     KVR_EXTRA_TAGGED (0.33): ("lora", name, path), ("mm", identifier, start), ("cache_salt",
 * salt) KVR_EXTRA_PLAIN (0.12 to 0.29 at least): name, (identifier, start), salt KVR_EXTRA_LEGACY
 * (0.9 to 0.11): LoRA's integer id, identifier, salt
 * - sglang: SHA-256(parent's digest, tokens : u32 LE each); a salted namespace starts from
 *   SHA-256("sglang-cache-salt-v1\0" salt); the id is the first eight bytes, big endian. LoRA is no
 *   part of its event hashes.
 * - dynamo: XXH3-64 of a block's tokens with a seed of 1337 plus hashes of LoRA and salt, chained
 *   by XXH3-64(parent, block; seed 1337).
 * Sources: vLLM 0.33 v1/core/kv_cache_utils.py and utils/hashing.py, SGLang mem_cache, Dynamo's
 * lib/tokens; checked against captured event streams in tests/unit/test_token_hash.c.
 */
#ifndef KVR_TOKEN_HASH_H
#define KVR_TOKEN_HASH_H

#include "base/buffer.h"
#include "base/error.h"
#include "line/json.h"

#include <stddef.h>
#include <stdint.h>

/* A namespace; text NULL where it has no such part. */
struct kvr_namespace {
    struct kvr_text model, lora, salt;
    struct kvr_text lora_path; /* only vLLM's tagged keys look at it */
    uint64_t lora_id;          /* only vLLM's legacy keys look at it */
};

/* 0 for a namespace without parts. Otherwise XXH3-64 over model, lora, salt in this order, each as
 * its length + 1 (0: absent) : u64 LE and its bytes. */
uint64_t kvr_namespace_seed(const struct kvr_namespace *space);

/* The 53 bits of a hash that go on the wire. */
static inline uint64_t kvr_wire_id(uint64_t hash)
{
    return hash >> 11;
}

enum kvr_extra_style { KVR_EXTRA_TAGGED, KVR_EXTRA_PLAIN, KVR_EXTRA_LEGACY };

/* Content that stands for placeholder tokens. */
struct kvr_placed {
    struct kvr_text identifier; /* hash or name of the content */
    size_t start, length;       /* tokens */
};

struct kvr_chain_settings {
    struct kvr_namespace space;
    const char *seed; /* vLLM: PYTHONHASHSEED; NULL: not set */
    enum kvr_extra_style style;
};

extern const char kvr_vllm_default_seed[];

/* Where a chain stands: the digest of the last block, or of the parent of the first. */
struct kvr_chain_state {
    uint8_t digest[32];
    size_t digest_length; /* 0: none yet (sglang, dynamo) */
    size_t tokens;        /* hashed so far */
    uint64_t id;          /* of the last block; on the wire for "kvr", else as the engine gives it,
                             signed ids as their 64 bits */
    struct kvr_buffer scratch;
};

struct kvr_chain {
    const char *name, *help;
    enum kvr_status (*begin)(const struct kvr_chain_settings *settings,
        struct kvr_chain_state *state, struct kvr_error *error);
    /* Hashes one full block. placed: the content of the whole text, in order of start. */
    enum kvr_status (*block)(const struct kvr_chain_settings *settings,
        struct kvr_chain_state *state, const uint32_t *tokens, size_t count,
        const struct kvr_placed *placed, size_t placed_count, struct kvr_error *error);
};

extern const struct kvr_chain kvr_chains[]; /* ends with a NULL name; the first is "kvr" */

const struct kvr_chain *kvr_chain_find(const char *name);

void kvr_chain_release(struct kvr_chain_state *state);

/* One step of the "kvr" chain without settings and state: for streams that are translated. */
uint64_t kvr_block_hash(uint64_t parent, const uint32_t *tokens, size_t count);

/* The digest of a block as the state has it, set from outside (an event's own parent hash). */
void kvr_chain_resume(
    struct kvr_chain_state *state, const uint8_t *digest, size_t length, size_t tokens);

#endif
