#include "token/media.h"

#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 16 };

/* ---- from bytes of the text to tokens ---- */

/* For offsets that grow as a rule. */
struct finder {
    const struct kvr_media_prompt *prompt;
    bool exact; /* the tokens' own bytes are the text */
    size_t offset, token, at;
    unsigned encodings_left;
};

static struct finder finder_begin(const struct kvr_media_prompt *prompt)
{
    size_t total = 0;

    for (size_t i = 0; i < prompt->ids->count; i++)
        total += kvr_tokenizer_token_bytes(prompt->model->tokenizer, prompt->ids->data[i]);
    return (struct finder){
        .prompt = prompt, .exact = total == prompt->text.length, .encodings_left = 64};
}

static void find_by_bytes(struct finder *f, size_t offset)
{
    const struct kvr_ids *ids = f->prompt->ids;

    if (offset < f->offset)
        f->token = f->at = 0;
    while (f->token < ids->count) {
        size_t bytes = kvr_tokenizer_token_bytes(f->prompt->model->tokenizer, ids->data[f->token]);
        if (f->at + bytes > offset)
            break;
        f->at += bytes;
        f->token++;
    }
}

/* A vocabulary that normalises, or adds a space, has tokens of other bytes than the text: it is the
 * first token that the text up to there does not have alike. After some of these the last answer
 * stands for all that comes behind it: too early is the safe side. */
static enum kvr_status find_by_encoding(struct finder *f, size_t offset, struct kvr_error *error)
{
    const struct kvr_ids *ids = f->prompt->ids;
    struct kvr_ids before = {0};
    enum kvr_status status = KVR_OK;

    if (offset < f->offset || (f->encodings_left && offset > f->offset))
        f->token = 0;
    if (f->encodings_left && offset != f->offset) {
        f->encodings_left--;
        status = kvr_encode(
            f->prompt->encoder, f->prompt->text.text, offset, KVR_ENCODE_SPECIAL, &before, error);
        while (f->token < before.count && f->token < ids->count &&
               before.data[f->token] == ids->data[f->token])
            f->token++;
    }
    kvr_ids_release(&before);
    return status;
}

static enum kvr_status find_token(
    struct finder *f, size_t offset, size_t *token, struct kvr_error *error)
{
    size_t count = f->prompt->ids->count;
    enum kvr_status status = KVR_OK;

    if (f->exact)
        find_by_bytes(f, offset);
    else
        status = find_by_encoding(f, offset, error);
    f->offset = offset;
    *token = f->token < count || !f->token ? f->token : f->token - 1;
    return status;
}

/* ---- the places ---- */

static bool place(
    struct kvr_media_places *places, struct kvr_text identifier, size_t start, size_t length)
{
    struct kvr_placed *items =
        kvr_grow(places->items, &places->capacity, places->count + 1, sizeof *items);

    if (!items)
        return false;
    places->items = items;
    /* in order of start, as chains want them: a template may write parts in another order */
    size_t at = places->count++;
    for (; at && items[at - 1].start > start; at--)
        items[at] = items[at - 1];
    items[at] = (struct kvr_placed){identifier, start, length};
    return true;
}

/* Gives the image at ids[at] as many tokens as it takes. */
static bool widen(struct kvr_ids *ids, size_t at, size_t wanted)
{
    if (wanted <= 1)
        return true;
    if (!kvr_ids_reserve(ids, wanted - 1))
        return false;
    memmove(&ids->data[at + wanted], &ids->data[at + 1], (ids->count - at - 1) * sizeof *ids->data);
    for (size_t i = 1; i < wanted; i++)
        ids->data[at + i] = ids->data[at];
    ids->count += wanted - 1;
    return true;
}

/* The next run of the image token from *at on, wide enough; *at goes behind it. */
static bool next_run(
    const struct kvr_media_prompt *prompt, size_t *at, size_t *start, size_t *length)
{
    struct kvr_ids *ids = prompt->ids;
    uint32_t image = prompt->model->image_id;

    while (ids->data[*at] != image)
        ++*at;
    *start = *at;
    if (*at + 1 == ids->count || ids->data[*at + 1] != image)
        if (!widen(ids, *at, prompt->image_tokens))
            return false;
    while (*at < ids->count && ids->data[*at] == image)
        ++*at;
    *length = *at - *start;
    return true;
}

static bool has_run_for_each(const struct kvr_media_prompt *prompt, size_t count)
{
    const struct kvr_ids *ids = prompt->ids;
    uint32_t image = prompt->model->image_id;
    size_t runs = 0;

    if (image == KVR_NO_TOKEN)
        return false;
    for (size_t i = 0; i < ids->count; i++)
        runs += ids->data[i] == image && (!i || ids->data[i - 1] != image);
    return runs == count;
}

/* The identifier of a part is its uuid, as it is in vLLM, else made of its hash. */
static bool make_names(struct kvr_buffer *names, const struct kvr_chat_result *chat)
{
    kvr_buffer_clear(names);
    for (size_t i = 0; i < chat->media_count; i++)
        kvr_buffer_append_format(names, "%016llx", (unsigned long long)chat->media[i].hash);
    return !names->failed;
}

enum kvr_status kvr_media_place(struct kvr_media_places *places,
    const struct kvr_media_prompt *prompt, const struct kvr_chat_result *chat,
    struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;
    struct finder finder;
    size_t at = 0;

    places->count = 0;
    places->without_uuid = false;
    if (!chat->media_count)
        return KVR_OK;
    if (!make_names(&places->names, chat))
        return kvr_error_memory(error);
    bool runs = has_run_for_each(prompt, chat->media_count);
    if (!runs)
        finder = finder_begin(prompt);
    for (size_t i = 0; i < chat->media_count && !status; i++) {
        const struct kvr_chat_media *media = &chat->media[i];
        struct kvr_text name = {places->names.data + NAME_BYTES * i, NAME_BYTES};
        size_t start, length = 1;
        places->without_uuid |= !media->uuid_length;
        if (media->uuid_length)
            name = (struct kvr_text){media->uuid, media->uuid_length};
        if (!runs)
            status = find_token(&finder, media->text_offset, &start, error);
        else if (!next_run(prompt, &at, &start, &length))
            status = kvr_error_memory(error);
        if (!status && !place(places, name, start, length))
            status = kvr_error_memory(error);
    }
    return status;
}

void kvr_media_cut(struct kvr_media_places *places, size_t tokens)
{
    size_t kept = 0;

    for (size_t i = 0; i < places->count; i++) {
        struct kvr_placed placed = places->items[i];
        size_t end = placed.start + placed.length;
        if (end <= tokens)
            continue;
        placed.start = placed.start > tokens ? placed.start - tokens : 0;
        placed.length = end - tokens - placed.start;
        places->items[kept++] = placed;
    }
    places->count = kept;
}

void kvr_media_release(struct kvr_media_places *places)
{
    free(places->items);
    kvr_buffer_release(&places->names);
    memset(places, 0, sizeof *places);
}
