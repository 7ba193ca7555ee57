/*
 * Added tokens with long texts. Looking at each place how far a text goes on there takes as many
 * steps a byte as the texts are long, and a page of dashes may be the start of one everywhere. So
 * where a text is long, all places of a block are told the longest text that starts there in one
 * pass from its end: the automaton of Aho and Corasick (1975) over the texts written backwards.
 */
#ifndef KVR_TOKEN_ADDED_BACKWARD_H
#define KVR_TOKEN_ADDED_BACKWARD_H

#include "token/vocabulary_source.h"

/* A state is a unit of the trie, the root is 0. All zero bytes: there is none. */
struct kvr_backward {
    struct kvr_buffer units;
    uint32_t *fallback; /* by state: the longest state that its end is */
    uint32_t *found;    /* by state: the number of the longest text that ends there, or NO_TOKEN */
    uint32_t *lengths;  /* of the texts */
    uint32_t longest;   /* bytes of the longest one */
};

/* What is known of a text that is searched from its start to its end. All zero bytes is ready. */
struct kvr_backward_matches {
    uint64_t *items; /* place:32 number:32, the last place first */
    size_t count, capacity;
    size_t block_end; /* places before it are known */
    bool failed;      /* memory was short */
};

/* `texts` are those of `bytes`, of which empty ones match nothing, and of equal ones the first. */
enum kvr_status kvr_backward_build(struct kvr_backward *backward, const uint8_t *bytes,
    const struct kvr_source_token *texts, uint32_t count, struct kvr_error *error);
void kvr_backward_release(struct kvr_backward *backward);

/* As kvr_added_find(). `from` never goes back. */
uint32_t kvr_backward_find(const struct kvr_backward *backward,
    struct kvr_backward_matches *matches, const uint8_t *text, size_t from, size_t length,
    size_t *start, size_t *stop);

static inline void kvr_backward_matches_release(struct kvr_backward_matches *matches)
{
    free(matches->items);
}

#endif
