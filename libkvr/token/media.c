#include "token/media.h"

#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 16 };

/* ---- from bytes of the text to tokens ---- */

/* Where the tokens' bytes are the text, offsets come in order and all of them take one walk. */
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

static int by_place(const void *a, const void *b)
{
    const struct kvr_media_spot *first = a, *second = b;

    if (first->at != second->at)
        return first->at < second->at ? -1 : 1;
    return first->part < second->part ? -1 : first->part > second->part;
}

static void sort(struct kvr_media_spot *spots, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (by_place(&spots[i - 1], &spots[i]) > 0) {
            qsort(spots, count, sizeof *spots, by_place);
            return;
        }
}

/* Makes spots of the parts' tokens, in order. A template may write parts in any order. It takes a
 * second sorting as parts of one token stay in the order of the messages. Places found by encoding
 * depend on the order of asking, which is that of the messages. */
static enum kvr_status find_spots(struct kvr_media_spot *spots,
    const struct kvr_media_prompt *prompt, const struct kvr_chat_result *chat,
    struct kvr_error *error)
{
    struct finder finder = finder_begin(prompt);
    size_t count = chat->media_count;
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; i < count; i++)
        spots[i] = (struct kvr_media_spot){chat->media[i].text_offset, i};
    if (finder.exact)
        sort(spots, count);
    for (size_t i = 0; i < count && !status; i++)
        status = find_token(&finder, spots[i].at, &spots[i].at, error);
    if (!status)
        sort(spots, count);
    return status;
}

/* ---- runs of the image token ---- */

static bool starts_run(const struct kvr_ids *ids, size_t at, uint32_t image)
{
    return ids->data[at] == image && (!at || ids->data[at - 1] != image);
}

static bool is_single(const struct kvr_ids *ids, size_t at, uint32_t image)
{
    return starts_run(ids, at, image) && (at + 1 == ids->count || ids->data[at + 1] != image);
}

/* Gives each image that is one token as many as it takes: from the end on, so that no token moves
 * more than once. */
static bool widen_singles(struct kvr_ids *ids, uint32_t image, size_t wanted)
{
    size_t singles = 0, more;

    if (wanted <= 1)
        return true;
    for (size_t i = 0; i < ids->count; i++)
        singles += is_single(ids, i, image);
    if (__builtin_mul_overflow(singles, wanted - 1, &more) || !kvr_ids_reserve(ids, more))
        return false;
    size_t to = ids->count + more;
    /* to - i is what singles before i add: with none, all is in its place */
    for (size_t i = ids->count; to > i; i--) {
        size_t copies = is_single(ids, i - 1, image) ? wanted : 1;
        uint32_t id = ids->data[i - 1];
        while (copies--)
            ids->data[--to] = id;
    }
    ids->count += more;
    return true;
}

/* The next run of the image token from `at` on; returns where it ends. */
static size_t next_run(const struct kvr_ids *ids, uint32_t image, size_t at, size_t *start)
{
    while (ids->data[at] != image)
        at++;
    *start = at;
    while (at < ids->count && ids->data[at] == image)
        at++;
    return at;
}

static bool has_run_for_each(const struct kvr_media_prompt *prompt, size_t count)
{
    const struct kvr_ids *ids = prompt->ids;
    uint32_t image = prompt->model->image_id;
    size_t runs = 0;

    if (image == KVR_NO_TOKEN)
        return false;
    for (size_t i = 0; i < ids->count; i++)
        runs += starts_run(ids, i, image);
    return runs == count;
}

/* ---- the places ---- */

/* For the identifiers of parts without one of their own. */
static bool make_names(struct kvr_buffer *names, const struct kvr_chat_result *chat)
{
    kvr_buffer_clear(names);
    for (size_t i = 0; i < chat->media_count; i++)
        kvr_buffer_append_format(names, "%016llx", (unsigned long long)chat->media[i].hash);
    return !names->failed;
}

/* The identifier of a part is its uuid, as it is in vLLM, else made of its hash. */
static void place(struct kvr_media_places *places, const struct kvr_chat_result *chat, size_t part,
    size_t start, size_t length)
{
    const struct kvr_chat_media *media = &chat->media[part];
    struct kvr_text name = {places->names.data + NAME_BYTES * part, NAME_BYTES};

    if (media->uuid_length)
        name = (struct kvr_text){media->uuid, media->uuid_length};
    else
        places->without_uuid = true;
    places->items[places->count++] = (struct kvr_placed){name, start, length};
}

static bool make_room(struct kvr_media_places *places, size_t count)
{
    struct kvr_placed *items =
        kvr_grow(places->items, &places->capacity, count, sizeof *places->items);

    if (!items)
        return false;
    places->items = items;
    struct kvr_media_spot *spots =
        kvr_grow(places->spots, &places->spot_capacity, count, sizeof *places->spots);
    if (!spots)
        return false;
    places->spots = spots;
    return true;
}

enum kvr_status kvr_media_place(struct kvr_media_places *places,
    const struct kvr_media_prompt *prompt, const struct kvr_chat_result *chat,
    struct kvr_error *error)
{
    size_t count = chat->media_count;
    uint32_t image = prompt->model->image_id;

    places->count = 0;
    places->without_uuid = false;
    if (!count)
        return KVR_OK;
    if (!make_names(&places->names, chat) || !make_room(places, count))
        return kvr_error_memory(error);
    if (!has_run_for_each(prompt, count)) {
        enum kvr_status status = find_spots(places->spots, prompt, chat, error);
        for (size_t i = 0; i < count && !status; i++)
            place(places, chat, places->spots[i].part, places->spots[i].at, 1);
        return status;
    }
    if (!widen_singles(prompt->ids, image, prompt->image_tokens))
        return kvr_error_memory(error);
    for (size_t i = 0, at = 0, start; i < count; i++) {
        at = next_run(prompt->ids, image, at, &start);
        place(places, chat, i, start, at - start);
    }
    return KVR_OK;
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
    free(places->spots);
    kvr_buffer_release(&places->names);
    memset(places, 0, sizeof *places);
}
