/*
 * Where long pieces can be cut. Scripts without spaces make pieces of dozens of characters that
 * come once and have to be encoded each time, though nearly every border between two of their
 * characters is one that no token of the vocabulary crosses. Nothing merges across such a border,
 * so the piece may be cut there, and its parts are short and come again: the cache knows them.
 *
 * A token crosses a border if it holds bytes on both sides of it. For every token and every border
 * in it next to a character beyond ASCII, a bit is set for the pair of what the token has of the
 * character before and what it has of the character after: both whole as a rule, but a token may
 * start or end within a character. A border of a text is safe when no bit is set for any such pair.
 * Hashing makes some safe borders look unsafe, never the other way round.
 */
#ifndef KVR_TOKEN_BORDERS_H
#define KVR_TOKEN_BORDERS_H

#include "token/vocabulary.h"

/* Cuts text[start..end), a piece by itself, at its safe borders. ends[] gets where the parts end,
 * `limit` of them at most. Returns how many parts there are, or limit + 1 when there are more. */
size_t kvr_borders_cut(const struct kvr_vocabulary *vocabulary, const uint8_t *text, size_t start,
    size_t end, uint32_t *ends, size_t limit);

/* For the compiler: sets the bits of one token. partial_left has 256 bytes: at the last byte of
 * what a token has of a character that it starts within, bits of how many bytes that may be. */
void kvr_borders_add(
    uint64_t *bits, uint32_t mask, uint8_t *partial_left, const uint8_t *token, size_t length);

#endif
