/*
 * The prefix index inside another program: tokens to chained block ids, placements learned, the
 * longest reusable prefix found on each worker.
 *
 *     cc examples/embed.c $(pkg-config --cflags --libs kvr) -o build/embed && build/embed
 */
#include "cache/index.h"
#include "token/hash.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK_TOKENS = 16, BLOCKS = 8, PROMPT_TOKENS = BLOCK_TOKENS * BLOCKS };

/* The ids of a prompt's full blocks; each depends on all before it. */
static size_t chain(const uint32_t *tokens, size_t count, uint64_t *ids)
{
    uint64_t hash = kvr_namespace_seed(&(struct kvr_namespace){0});
    size_t blocks = count / BLOCK_TOKENS;

    for (size_t i = 0; i < blocks; i++) {
        hash = kvr_block_hash(hash, tokens + i * BLOCK_TOKENS, BLOCK_TOKENS);
        ids[i] = kvr_wire_id(hash);
    }
    return blocks;
}

int main(void)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    const char *workers[] = {"w0", "w1"};
    const struct kvr_index_match *matches;
    struct kvr_error error = {0};
    struct kvr_index *index;
    uint32_t prompts[3][PROMPT_TOKENS];
    uint64_t ids[BLOCKS];

    /* Two prompts that differ from the first token on, and one that is the first half of the
     * second: a conversation that goes on another way. */
    for (uint32_t i = 0; i < PROMPT_TOKENS; i++) {
        prompts[0][i] = i;
        prompts[1][i] = 1000 + i;
        prompts[2][i] = i < PROMPT_TOKENS / 2 ? 1000 + i : i;
    }
    options.capacity_tokens = 100000;
    if (kvr_index_create(&index, &options, &error) != KVR_OK) {
        fprintf(stderr, "embed: %s\n", error.text);
        return kvr_status_exit(error.status);
    }
    uint64_t space = kvr_index_space(index, NULL, 0, NULL, 0, NULL, 0, BLOCK_TOKENS);
    for (int i = 0; i < 2; i++) {
        struct kvr_blocks blocks = {
            space, ids, chain(prompts[i], PROMPT_TOKENS, ids), BLOCK_TOKENS};
        uint32_t worker;

        if (kvr_index_worker(index, workers[i], strlen(workers[i]), &worker, &error) != KVR_OK ||
            kvr_index_place(index, worker, i, &blocks, NULL, &error) != KVR_OK) {
            fprintf(stderr, "embed: %s\n", error.text);
            kvr_index_destroy(index);
            return kvr_status_exit(error.status);
        }
    }
    struct kvr_blocks blocks = {space, ids, chain(prompts[2], PROMPT_TOKENS, ids), BLOCK_TOKENS};
    size_t count = kvr_index_find(index, 2, &blocks, &matches);
    for (size_t i = 0; i < count; i++)
        printf("%s holds %u of %u tokens\n", kvr_index_worker_name(index, matches[i].worker),
            matches[i].blocks * BLOCK_TOKENS, PROMPT_TOKENS);
    kvr_index_destroy(index);
    return 0;
}
