/*
 * Inside of the compiler of vocabularies: finding the pairs (compile_pairs.c), then laying out the
 * image (compile_layout.c).
 */
#ifndef KVR_TOKEN_COMPILE_H
#define KVR_TOKEN_COMPILE_H

#include "token/vocabulary_source.h"

struct kvr_compiler {
    struct kvr_source *source;
    const uint8_t *bytes; /* of the source */
    struct kvr_token_record *records;
    uint8_t *flags;
    struct kvr_ordered_text *order; /* the texts that the model can have; once pairs are found,
                                       only of the tokens that merging can reach */
    uint32_t order_count;
    uint32_t *shorter;        /* by token: the longest other text of `order` that it starts with */
    struct kvr_merge *merges; /* of irregular vocabularies: the full list, open addressing */
    uint32_t merge_slots;
    bool irregular;
};

/* Fills records (but for `shorter`), flags and irregular. `order` and `shorter` are filled, of all
 * texts of the model. */
enum kvr_status kvr_compile_pairs(struct kvr_compiler *compiler, struct kvr_error *error);

/* Lays out the image, whose pages must be empty, from what was found. */
enum kvr_status kvr_compile_layout(struct kvr_compiler *compiler, struct kvr_pages *image,
    size_t *image_bytes, struct kvr_error *error);

#endif
