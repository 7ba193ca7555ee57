/* The merges list of a tokenizer.json. */
#ifndef KVR_TOKEN_LOAD_MERGES_H
#define KVR_TOKEN_LOAD_MERGES_H

#include "line/json_walk.h"
#include "token/vocabulary_source.h"

/* Appends the bytes that text has for a token as it is written. False, and nothing appended: no
 * text can give this token. */
bool kvr_load_token_bytes(
    const struct kvr_source *source, const char *text, size_t length, struct kvr_buffer *out);

/* Loads the merges of an array, after the tokens. */
enum kvr_status kvr_load_merges(
    struct kvr_source *source, struct kvr_json_walk merges, struct kvr_error *error);

#endif
