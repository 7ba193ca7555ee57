/* The working memory of an encoder. */
#ifndef KVR_TOKEN_ENCODE_H
#define KVR_TOKEN_ENCODE_H

#include "token/tokenizer_internal.h"

struct kvr_encoder {
    const struct kvr_tokenizer *tokenizer;
    struct kvr_piece_cache cache;
    struct kvr_buffer normalized, spare;
    struct kvr_pieces pieces, spare_pieces;
};

#endif
