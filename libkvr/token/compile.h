/*
 * Inside of the compiler of vocabularies: finding the pairs (compile_pairs.c), then laying out the
 * image (compile_layout.c).
 */
#ifndef KVR_TOKEN_COMPILE_H
#define KVR_TOKEN_COMPILE_H

#include "token/vocabulary_source.h"

/* The pair that forms a token; the token itself twice: it has none. */
struct kvr_halves {
    uint32_t left, right;
};

struct kvr_compiler {
    struct kvr_source *source;
    const uint8_t *bytes;      /* of the source */
    struct kvr_halves *halves; /* by token */
    uint32_t *orders;          /* by token, as in a record; NULL for rank files: see below */
    uint8_t *flags;
    struct kvr_ordered_text *order; /* the texts that the model can have; once pairs are found,
                                       only of the tokens that merging can reach */
    uint32_t order_count;
    uint32_t *shorter;       /* by token: the longest other text of `order` that it starts with */
    struct kvr_pages merges; /* of irregular vocabularies: struct kvr_merge, the full list, open
                                addressing */
    uint32_t merge_slots;
    bool irregular;
};

/* As in a record: 1 + the rank of the merge that forms the token, or 0. In rank files that is the
 * token's id. */
static inline uint32_t kvr_compiled_order(const struct kvr_compiler *c, uint32_t id)
{
    if (c->orders)
        return c->orders[id];
    return c->halves[id].left == id ? 0 : id + 1;
}

/* Fills halves, orders, flags and irregular. They are as of tokens without pairs, and `order` and
 * `shorter` are of all texts of the model. */
enum kvr_status kvr_compile_pairs(struct kvr_compiler *compiler, struct kvr_error *error);

/* Lays out the image, whose pages must be empty, from what was found. */
enum kvr_status kvr_compile_layout(struct kvr_compiler *compiler, struct kvr_pages *image,
    size_t *image_bytes, struct kvr_error *error);

#endif
