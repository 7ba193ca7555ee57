/*
 * Prompts for traces that have none: text whose tokens follow the block ids, so that a worker's
 * cache meets the trace's true prefix structure. The same id gives the same text, a request's
 * prompt has exactly input_length tokens (those that the model puts in front of a prompt included),
 * and two prompts share exactly as many blocks as their ids do.
 *
 * How: from the vocabulary are taken words that are one token each, written as a space and small
 * letters. The pre-tokenizers in use cut before such a space and no merge crosses it, so a text of
 * n such words has n tokens wherever it stands; each word is tried before it is used, and the whole
 * prompt is counted once more at the end. Word j of block b is chosen by a hash of (seed, b, j).
 */
#ifndef KVR_NET_SYNTHESIZE_H
#define KVR_NET_SYNTHESIZE_H

#include "token/tokenizer.h"

struct kvr_synthesizer;

/* The tokenizer must outlive it. KVR_UNSUPPORTED for a vocabulary without such words. */
enum kvr_status kvr_synthesizer_create(struct kvr_synthesizer **synthesizer,
    const struct kvr_tokenizer *tokenizer, uint64_t seed, struct kvr_error *error);
void kvr_synthesizer_destroy(struct kvr_synthesizer *synthesizer);

/*
 * Appends a prompt of `tokens` tokens: `count` blocks of block_tokens, the last one cut short where
 * the blocks are longer than the prompt. Tokens beyond the blocks are chosen by `own`, which should
 * differ from request to request. KVR_BAD_INPUT for a prompt shorter than what the model puts in
 * front; KVR_UNSUPPORTED where the count does not come out exactly.
 */
enum kvr_status kvr_synthesize(struct kvr_synthesizer *synthesizer, const uint64_t *ids,
    size_t count, uint64_t block_tokens, uint64_t tokens, uint64_t own, struct kvr_buffer *prompt,
    struct kvr_error *error);

#endif
