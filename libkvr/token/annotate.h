/*
 * Request lines in, request lines with tokens out: what kvr-tokenize does to one line.
 *
 * The content of a line is its token_ids, else its messages (rendered with the model's template),
 * else its prompt: a text, a list of token ids, or a list of one of these. Added, in this order:
 * `prompt` (render), `token_ids` (ids), `input_length`, `hash_ids`, `block_size`, and `approximate`
 * where messages were joined for want of a template, or the default vocabulary stands for a model's
 * unasked. Where tokens are cut off, token_ids, or a
 * prompt of ids, that the line had are cut too. Lines without content, and event lines, pass as
 * they are.
 */
#ifndef KVR_TOKEN_ANNOTATE_H
#define KVR_TOKEN_ANNOTATE_H

#include "line/line.h"
#include "token/hash.h"
#include "token/models.h"

struct kvr_annotate_options {
    const struct kvr_chain *chain;
    const char *seed; /* of vLLM's chains */
    enum kvr_extra_style style;
    bool style_auto; /* vLLM's style for messages with parts that only its API knows, else
                        messages as they are */
    enum kvr_chat_style chat_style; /* where not */
    uint64_t block_size;            /* tokens; for lines that have none */
    uint64_t truncate;              /* keeps so many tokens from the start; 0: all */
    uint64_t image_tokens;          /* that an image takes where the template has one placeholder */
    bool ids;                       /* add token_ids */
    bool count;                     /* input_length only */
    bool decode;                    /* token ids to prompt instead; other lines pass */
    bool skip_special;              /* of decode: without special tokens */
    bool render;                    /* add the rendered text as prompt */
    bool special;                   /* special-token text in prompts is special tokens */
    bool no_added;                  /* no added token at all is found in prompts */
    bool default_is_guess;          /* nobody asked for the default vocabulary: what it does for
                                       models that are not known is approximate */
    bool no_bos;                    /* do not add what the model adds to a prompt */
    bool config_bos;                /* add what add_bos_token of the configuration asks for, too */
};

struct kvr_annotator;

/* One a thread; models must outlive it. */
enum kvr_status kvr_annotator_create(struct kvr_annotator **annotator, struct kvr_models *models,
    const struct kvr_annotate_options *options, struct kvr_error *error);
void kvr_annotator_destroy(struct kvr_annotator *annotator);

/* Appends the line's text (without newline) to *out. On failure out is as it was. */
enum kvr_status kvr_annotate(struct kvr_annotator *annotator, const struct kvr_line *line,
    struct kvr_buffer *out, struct kvr_error *error);

/* Request lines so far. */
struct kvr_annotate_counts {
    uint64_t tokenized;    /* that had something to tokenize */
    uint64_t approximate;  /* of these, messages joined for want of a template */
    uint64_t guessed;      /* of a model that is not known, with the default's tokens */
    uint64_t strict;       /* that a template refused as they are, with what only an API defines */
    uint64_t beyond_vllm;  /* whose vLLM ids match none of vLLM's, as the line lacks a LoRA's path
                              (or id), or an image's uuid */
    uint64_t without_text; /* that had neither that nor hash_ids */
};

struct kvr_annotate_counts kvr_annotator_counts(const struct kvr_annotator *annotator);

#endif
