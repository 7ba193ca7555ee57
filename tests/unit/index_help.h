/* What the tests of the prefix index share. */
#ifndef KVR_TESTS_INDEX_HELP_H
#define KVR_TESTS_INDEX_HELP_H

#include "base/random.h"
#include "cache/index.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline struct kvr_index *new_index(const struct kvr_index_options *options)
{
    struct kvr_index *index;

    assert_int_equal(kvr_index_create(&index, options, NULL), KVR_OK);
    return index;
}

static inline uint32_t new_worker(struct kvr_index *index, unsigned number)
{
    char name[16];
    uint32_t worker;

    snprintf(name, sizeof name, "w%u", number);
    assert_int_equal(kvr_index_worker(index, name, strlen(name), &worker, NULL), KVR_OK);
    return worker;
}

static inline struct kvr_blocks blocks_of(
    const struct kvr_index *index, const uint64_t *ids, size_t count)
{
    return (struct kvr_blocks){
        kvr_index_space(index, NULL, 0, NULL, 0, NULL, 0, 16), ids, count, 16};
}

/*
 * A request of a random tree: a node's id is a hash of its parent and a small choice. With
 * `chained` false, ids are small numbers in any order, duplicates and all.
 */
static inline size_t random_request(
    struct kvr_random *random, bool chained, size_t longest, uint64_t *ids)
{
    size_t count = 1 + kvr_random_below(random, (uint32_t)longest);
    uint64_t parent = 0;

    for (size_t i = 0; i < count; i++) {
        /* Mostly the same way down, so that requests share long prefixes. */
        uint64_t choice = kvr_random_below(random, 12) ? 0 : 1 + kvr_random_below(random, 3);
        parent = chained ? kvr_mix64(parent * 4 + choice + 1) : kvr_random_below(random, 60);
        ids[i] = parent;
    }
    return count;
}

#endif
