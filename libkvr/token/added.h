/*
 * Finding added tokens ("<|im_start|>") in text: leftmost, the longest of those that start there.
 * Text is passed over at memory speed: only bytes that start some token are looked at.
 */
#ifndef KVR_TOKEN_ADDED_H
#define KVR_TOKEN_ADDED_H

#include "token/added_backward.h"

struct kvr_added {
    struct kvr_buffer units; /* a trie whose tokens are the caller's numbers */
    bool starts[256];        /* bytes that some text starts with */
    int only_start;          /* the byte, if there is only one; else -1 */
    uint32_t count;
    bool is_long;                 /* some text is long: the trie is not used, but: */
    struct kvr_backward backward; /* see added_backward.h */
};

void kvr_added_release(struct kvr_added *added);

/* Builds from `count` texts, pieces of bytes; a match gives the number of a text. Empty texts match
 * nothing; of equal ones the first counts. */
enum kvr_status kvr_added_build(struct kvr_added *added, const uint8_t *bytes,
    const struct kvr_source_token *texts, uint32_t count, struct kvr_error *error);

/* The first match at or after `from`: its number, with *start and *stop; KVR_NO_TOKEN: none, or
 * matches->failed. *matches is zero at a text's start, and the caller's to release. */
uint32_t kvr_added_find(const struct kvr_added *added, struct kvr_backward_matches *matches,
    const uint8_t *text, size_t from, size_t length, size_t *start, size_t *stop);

#endif
