/* The steps around the model of a tokenizer.json. */
#ifndef KVR_TOKEN_LOAD_STEPS_H
#define KVR_TOKEN_LOAD_STEPS_H

#include "line/json.h"
#include "token/tokenizer_internal.h"

/* The last outermost member of that name; none: type KVR_ABSENT. */
struct kvr_value kvr_load_member(const struct kvr_members *members, const char *name);

struct kvr_steps_members {
    struct kvr_value normalizer, pre_tokenizer, decoder, post_processor;
};

/* Loads all four, and sets source->model and source->folded by them. */
enum kvr_status kvr_load_steps(
    struct kvr_source *source, const struct kvr_steps_members *members, struct kvr_error *error);

/* After the added tokens are loaded: a fast form of what SentencePiece-style files do to spaces. */
void kvr_load_fast_spaces(struct kvr_source *source);

/* KVR_UNSUPPORTED: "the WHAT type 'TYPE'". */
enum kvr_status kvr_error_type(struct kvr_error *error, const char *what, struct kvr_value type);

/* Adds a pattern as a split, or the scanner that stands for it. */
enum kvr_status kvr_add_split(struct kvr_source *source, const char *pattern, size_t length,
    struct kvr_vocabulary_step step, struct kvr_error *error);

#endif
