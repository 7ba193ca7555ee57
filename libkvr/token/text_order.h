/*
 * The texts of tokens in alphabetical order (of bytes). In that order the texts that a text starts
 * with stand before it, and what it shares with its neighbour says where they part: the compiler
 * finds prefixes so, and lays out the trie in one pass.
 */
#ifndef KVR_TOKEN_TEXT_ORDER_H
#define KVR_TOKEN_TEXT_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* A text: a piece of a pool of bytes. */
struct kvr_source_token {
    uint32_t offset, length;
    uint8_t flags; /* enum kvr_token_flag */
};

/* A text in order: its number, the bytes at its start that the one before it has, too, and all of
 * its bytes. */
struct kvr_ordered_text {
    uint32_t id, shared, length;
};

/* Puts `count` texts in order, equal ones by id: on entry each id names one of `tokens`, then they
 * are in order and all is filled. False when memory is short. */
bool kvr_text_order(struct kvr_ordered_text *order, uint32_t count, const uint8_t *bytes,
    const struct kvr_source_token *tokens);

/* Leaves out the texts whose flags lack `flag`; returns how many are left. */
uint32_t kvr_text_order_keep(
    struct kvr_ordered_text *order, uint32_t count, const uint8_t *flags, uint8_t flag);

/* Leaves out the texts that are the same as the one before, which has the lower number; returns how
 * many are left. */
uint32_t kvr_text_order_unique(struct kvr_ordered_text *order, uint32_t count);

/* For each text in order stores, at shorter[id], the id of the longest other one that it starts
 * with, or KVR_NO_TOKEN. False when memory is short. */
bool kvr_text_order_shorter(
    const struct kvr_ordered_text *order, uint32_t count, uint32_t *shorter);

#endif
