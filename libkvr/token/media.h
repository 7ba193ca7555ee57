/*
 * Where the images of rendered messages stand among the tokens, for block ids that tell one image
 * from another (struct kvr_placed of hash.h).
 *
 * Each run of the model's image token is one image, in order. Where the counts do not agree, or the
 * token is not known, content counts from where its part was rendered; where the part was left out,
 * from where its message was: an engine puts the placeholders that a template leaves out at the
 * start of the message's text. What stands before, a system prompt as a rule, is then shared.
 */
#ifndef KVR_TOKEN_MEDIA_H
#define KVR_TOKEN_MEDIA_H

#include "token/hash.h"
#include "token/models.h"

/* Where a part stands: in the text, then among the tokens. */
struct kvr_media_spot {
    size_t at, part;
};

struct kvr_media_places {
    struct kvr_placed *items; /* in order of start */
    size_t count, capacity;
    struct kvr_media_spot *spots; /* scratch */
    size_t spot_capacity;
    bool without_uuid;       /* some part has none */
    struct kvr_buffer names; /* made up for parts that have none */
};

struct kvr_media_prompt {
    const struct kvr_chat_model *model;
    struct kvr_encoder *encoder;
    struct kvr_text text;
    struct kvr_ids *ids; /* of the text; an image that is one token gets image_tokens of them */
    size_t image_tokens;
};

/* Fills *places, which is valid until the chat's next rendering. Fails where memory is short. */
enum kvr_status kvr_media_place(struct kvr_media_places *places,
    const struct kvr_media_prompt *prompt, const struct kvr_chat_result *chat,
    struct kvr_error *error);

/* The prompt has lost so many tokens at its start. */
void kvr_media_cut(struct kvr_media_places *places, size_t tokens);

void kvr_media_release(struct kvr_media_places *places);

#endif
