#include "base/grow.h"
#include "net/kv_event_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum kvr_status bad(struct kvr_error *error, const char *what)
{
    return kvr_error_set(error, KVR_BAD_INPUT, "%s", what);
}

/* ---- messages ---- */

static bool all_ones(struct kvr_frame frame)
{
    return frame.size == 8 && memcmp(frame.data, "\xff\xff\xff\xff\xff\xff\xff\xff", 8) == 0;
}

enum kvr_status kvr_kv_message_read(const struct kvr_frame *frames, size_t count,
    struct kvr_kv_message *message, struct kvr_error *error)
{
    memset(message, 0, sizeof *message);
    if (count < 2)
        return bad(error, "a message of less than two frames");
    const struct kvr_frame sequence = frames[count - 2], payload = frames[count - 1];
    if (all_ones(sequence) || all_ones(payload)) {
        message->end = true;
        return KVR_OK;
    }
    if (sequence.size != 8)
        return bad(error, "a message without a sequence number of 8 bytes");
    for (int i = 0; i < 8; i++)
        message->sequence = message->sequence << 8 | sequence.data[i];
    if (count > 2)
        message->topic =
            (struct kvr_text){(const char *)frames[count - 3].data, frames[count - 3].size};
    message->payload = payload;
    return KVR_OK;
}

/* ---- batches ---- */

static bool whole_number(const struct kvr_msgpack_value *value, uint64_t *number)
{
    *number = value->number;
    return value->type == KVR_MSGPACK_UNSIGNED;
}

/* One member of a batch, by place or by name. */
static bool take_member(struct kvr_kv_batch *batch, struct kvr_kv_decoder *decoder,
    struct kvr_msgpack *reader, int place)
{
    struct kvr_msgpack from = *reader;
    struct kvr_msgpack_value value;

    if (!kvr_msgpack_walk(reader, &decoder->tokens))
        return false;
    kvr_msgpack_next(&from, &value);
    switch (place) {
    case 0:
        if (value.type == KVR_MSGPACK_REAL)
            batch->time_s = value.real;
        else if (value.type == KVR_MSGPACK_UNSIGNED)
            batch->time_s = (double)value.number;
        return true;
    case 1:
        if (value.type != KVR_MSGPACK_ARRAY)
            return false;
        batch->events = (struct kvr_msgpack){from.at, reader->at};
        batch->left = value.length;
        return true;
    case 2:
        batch->has_rank = whole_number(&value, &batch->rank);
        return true;
    case 3:
        batch->has_epoch = whole_number(&value, &batch->epoch);
        return true;
    default:
        return true;
    }
}

static bool is_text(const struct kvr_msgpack_value *value, const char *text)
{
    return value->type == KVR_MSGPACK_TEXT && value->length == strlen(text) &&
           memcmp(value->bytes, text, value->length) == 0;
}

static int place_of(const struct kvr_msgpack_value *name)
{
    static const struct {
        const char *name;
        int place;
    } names[] = {{"ts", 0}, {"events", 1}, {"data_parallel_rank", 2}, {"attn_dp_rank", 2},
        {"dp_rank", 2}, {"epoch", 3}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_text(name, names[i].name))
            return names[i].place;
    return -1;
}

enum kvr_status kvr_kv_batch_read(struct kvr_frame payload, struct kvr_kv_decoder *decoder,
    struct kvr_kv_batch *batch, struct kvr_error *error)
{
    struct kvr_msgpack reader = {payload.data, payload.data + payload.size};
    struct kvr_msgpack_value root, name;

    memset(batch, 0, sizeof *batch);
    decoder->tokens.count = decoder->tokens.list_count = decoder->next_list = 0;
    if (!payload.size || !kvr_msgpack_next(&reader, &root) ||
        (root.type != KVR_MSGPACK_ARRAY && root.type != KVR_MSGPACK_MAP))
        return bad(error, "a payload that is no msgpack array");
    for (uint32_t i = 0; i < root.length; i++) {
        int place = i < 3 ? (int)i : -1;
        if (root.type == KVR_MSGPACK_MAP) {
            struct kvr_msgpack key = reader;
            if (!kvr_msgpack_skip(&reader) || !kvr_msgpack_next(&key, &name))
                return bad(error, "a payload that is cut off");
            place = place_of(&name);
        }
        if (!take_member(batch, decoder, &reader, place))
            return bad(error,
                place == 1 ? "a payload without a list of events" : "a payload that is cut off");
    }
    if (!batch->events.at)
        return bad(error, "a payload without a list of events");
    return KVR_OK;
}

/* ---- fields ---- */

static const struct {
    const char *text;
    size_t length;
} field_names[] = {
#define FIELD_NAME(name, text) {text, sizeof text - 1},
    KVR_KV_FIELDS(FIELD_NAME)
#undef FIELD_NAME
};

/* Names that Mooncake's master gives to fields that others have too; the others' come first, where
 * an event has both. */
static const struct {
    const char *text;
    enum kvr_kv_field field;
} other_names[] = {{"seq_hashes", KVR_KV_BLOCK_HASHES}, {"object_key", KVR_KV_BLOCK_HASHES},
    {"parent_hash", KVR_KV_PARENT_BLOCK_HASH}, {"additional_salt", KVR_KV_CACHE_SALT}};

static bool is_list(uint8_t first)
{
    return (first & 0xf0) == 0x90 || first == 0xdc || first == 0xdd;
}

static void set_field(
    struct kvr_kv_event *event, const struct kvr_msgpack_value *name, struct kvr_msgpack piece)
{
    for (int field = 0; field < KVR_KV_FIELD_COUNT; field++) {
        if (field_names[field].length == name->length &&
            memcmp(field_names[field].text, name->bytes, name->length) == 0) {
            if (*piece.at != 0x90 || !event->fields[field].at) /* no hashes, but a key */
                event->fields[field] = piece;
            return;
        }
    }
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++) {
        struct kvr_msgpack *to = &event->fields[other_names[i].field];
        bool some = is_list(*piece.at) && *piece.at != 0x90;
        bool better = !to->at || *to->at == 0x90 || (some && !is_list(*to->at));
        if (better && is_text(name, other_names[i].text))
            *to = piece;
    }
}

/* The fields of events that are arrays, in order, without the type before them. */
static const uint8_t stored_order[] = {KVR_KV_BLOCK_HASHES, KVR_KV_PARENT_BLOCK_HASH,
    KVR_KV_TOKEN_IDS, KVR_KV_BLOCK_SIZE, KVR_KV_LORA_ID, KVR_KV_MEDIUM, KVR_KV_LORA_NAME,
    KVR_KV_EXTRA_KEYS, KVR_KV_GROUP_IDX, KVR_KV_SPEC_KIND, KVR_KV_SPEC_SLIDING_WINDOW,
    KVR_KV_LOCALITY, KVR_KV_OWNERSHIP, KVR_KV_SESSION_ID, KVR_KV_LOOKAHEAD_TOKEN_IDS};
static const uint8_t removed_order[] = {
    KVR_KV_BLOCK_HASHES, KVR_KV_MEDIUM, KVR_KV_GROUP_IDX, KVR_KV_LOCALITY, KVR_KV_OWNERSHIP};
static const uint8_t put_order[] = {KVR_KV_MOONCAKE_KEY, KVR_KV_REPLICAS, KVR_KV_MODEL_NAME,
    KVR_KV_BLOCK_SIZE, KVR_KV_BLOCK_HASHES, KVR_KV_PARENT_BLOCK_HASH, KVR_KV_TOKEN_IDS};
static const uint8_t updated_order[] = {KVR_KV_MOONCAKE_KEY, KVR_KV_REPLICAS};

static const struct event_type {
    const char *name;
    enum kvr_kv_type type;
    const uint8_t *order;
    size_t count;
} event_types[] = {
    {"BlockStored", KVR_KV_STORED, stored_order, sizeof stored_order},
    {"BlockRemoved", KVR_KV_REMOVED, removed_order, sizeof removed_order},
    {"AllBlocksCleared", KVR_KV_CLEARED, NULL, 0},
    {"BlockStoreEvent", KVR_KV_PUT, put_order, sizeof put_order},
    {"BlockUpdateEvent", KVR_KV_UPDATED, updated_order, sizeof updated_order},
    {"RemoveAllEvent", KVR_KV_CLEARED, NULL, 0},
    {"stored", KVR_KV_STORED, NULL, 0},
    {"removed", KVR_KV_REMOVED, NULL, 0},
    {"cleared", KVR_KV_CLEARED, NULL, 0},
    {"", KVR_KV_OTHER, NULL, 0},
};

static const struct event_type *type_named(struct kvr_text name)
{
    const struct event_type *type = event_types;

    while (type->name[0] &&
           (strlen(type->name) != name.length || memcmp(type->name, name.text, name.length) != 0))
        type++;
    return type;
}

/* Tokens where the engine predicts several at a time (SGLang with EAGLE): each with the one that
 * follows it, [[a, b], [b, c], ...]. The block is that of the first ones. */
static bool read_pairs(struct kvr_msgpack *reader, uint32_t *tokens, size_t *count)
{
    struct kvr_msgpack at = *reader;
    struct kvr_msgpack_value list, pair, token;

    *count = 0;
    if (!kvr_msgpack_next(&at, &list) || list.type != KVR_MSGPACK_ARRAY)
        return false;
    for (uint32_t i = 0; i < list.length; i++) {
        struct kvr_msgpack inside = at;
        if (!kvr_msgpack_skip(&at) || !kvr_msgpack_next(&inside, &pair) ||
            pair.type != KVR_MSGPACK_ARRAY || !pair.length || !kvr_msgpack_next(&inside, &token) ||
            token.type != KVR_MSGPACK_UNSIGNED || token.number > UINT32_MAX)
            return false;
        tokens[i] = (uint32_t)token.number;
    }
    *count = list.length;
    *reader = at;
    return true;
}

/* The list that was kept when the batch was found whole, if it was. */
static const struct kvr_msgpack_list *kept_list(struct kvr_kv_decoder *decoder, const uint8_t *at)
{
    const struct kvr_msgpack_numbers *kept = &decoder->tokens;

    while (decoder->next_list < kept->list_count && kept->lists[decoder->next_list].start < at)
        decoder->next_list++;
    if (decoder->next_list == kept->list_count || kept->lists[decoder->next_list].start != at)
        return NULL;
    return &kept->lists[decoder->next_list];
}

/* Passes over a field's value; tokens are read on the way. */
static bool pass_field(struct kvr_kv_decoder *decoder, struct kvr_kv_event *event,
    struct kvr_msgpack *reader, bool tokens)
{
    struct kvr_msgpack_numbers *kept = &decoder->tokens;
    struct kvr_msgpack ahead = *reader;
    struct kvr_msgpack_value value;

    if (!tokens || !kvr_msgpack_next(&ahead, &value) || value.type != KVR_MSGPACK_ARRAY)
        return kvr_msgpack_skip(reader);
    const struct kvr_msgpack_list *list = kept_list(decoder, reader->at);
    if (list) {
        event->tokens = kept->numbers + list->first;
        event->token_count = list->count;
        reader->at = list->end;
        return true;
    }
    /* Behind those that were kept. */
    uint32_t *grown =
        kvr_grow(kept->numbers, &kept->room, kept->count + value.length + 1, sizeof *grown);
    if (!grown)
        return kvr_msgpack_skip(reader);
    kept->numbers = grown;
    event->tokens = grown + kept->count;
    if (kvr_msgpack_u32s(reader, grown + kept->count, &event->token_count) ||
        read_pairs(reader, grown + kept->count, &event->token_count))
        return true;
    event->tokens = NULL;
    return kvr_msgpack_skip(reader);
}

static void set_type(struct kvr_kv_event *event, const struct kvr_msgpack_value *name)
{
    event->name = (struct kvr_text){(const char *)name->bytes, name->length};
    event->type = type_named(event->name)->type;
}

static bool list_array(struct kvr_kv_decoder *decoder, struct kvr_kv_event *event,
    struct kvr_msgpack *reader, uint32_t length)
{
    struct kvr_msgpack_value name;

    if (!length || !kvr_msgpack_next(reader, &name) || name.type != KVR_MSGPACK_TEXT)
        return false;
    set_type(event, &name);
    const struct event_type *type = type_named(event->name);
    for (uint32_t i = 1; i < length; i++) {
        const uint8_t *from = reader->at;
        bool tokens = i <= type->count && type->order[i - 1] == KVR_KV_TOKEN_IDS;
        if (!pass_field(decoder, event, reader, tokens))
            return false;
        if (i <= type->count && *from != 0xc0)
            event->fields[type->order[i - 1]] = (struct kvr_msgpack){from, reader->at};
    }
    return true;
}

static bool list_map(struct kvr_kv_decoder *decoder, struct kvr_kv_event *event,
    struct kvr_msgpack *reader, uint32_t length)
{
    struct kvr_msgpack_value name, value;
    bool typed = false;

    for (uint32_t i = 0; i < length; i++) {
        struct kvr_msgpack key = *reader;
        if (!kvr_msgpack_skip(reader) || !kvr_msgpack_next(&key, &name))
            return false;
        struct kvr_msgpack piece = *reader;
        if (!pass_field(decoder, event, reader, is_text(&name, "token_ids")))
            return false;
        piece.end = reader->at;
        if (name.type != KVR_MSGPACK_TEXT)
            continue;
        if (is_text(&name, "type") || (!typed && is_text(&name, "event_type"))) {
            struct kvr_msgpack at = piece;
            kvr_msgpack_next(&at, &value);
            if (value.type != KVR_MSGPACK_TEXT)
                return false;
            set_type(event, &value);
            typed = true;
            continue;
        }
        if (*piece.at != 0xc0)
            set_field(event, &name, piece);
    }
    return typed;
}

void kvr_kv_decoder_release(struct kvr_kv_decoder *decoder)
{
    free(decoder->hashes);
    kvr_msgpack_numbers_release(&decoder->tokens);
    memset(decoder, 0, sizeof *decoder);
}

enum kvr_status kvr_kv_event_next(struct kvr_kv_batch *batch, struct kvr_kv_decoder *decoder,
    struct kvr_kv_event *event, struct kvr_error *error)
{
    struct kvr_msgpack reader = batch->events;
    struct kvr_msgpack_value value;
    bool listed;

    if (!batch->left)
        return KVR_END;
    memset(event, 0, offsetof(struct kvr_kv_event, digits));
    batch->left--;
    event->whole = reader;
    if (!kvr_msgpack_next(&reader, &value))
        return batch->left = 0, bad(error, "an event that is cut off");
    if (value.type == KVR_MSGPACK_ARRAY) {
        listed = list_array(decoder, event, &reader, value.length);
    } else if (value.type == KVR_MSGPACK_MAP) {
        listed = list_map(decoder, event, &reader, value.length);
    } else {
        listed = value.type == KVR_MSGPACK_TEXT;
        if (listed)
            set_type(event, &value);
    }
    if (listed)
        batch->events.at = reader.at;
    else
        kvr_msgpack_skip(&batch->events); /* which the batch was found to have */
    event->whole.end = batch->events.at;
    if (!listed)
        return bad(error, "an event without a type");
    if (event->type == KVR_KV_OTHER)
        return KVR_OK;
    const char *wrong = kvr_kv_read_fields(decoder, event);
    return wrong ? bad(error, wrong) : KVR_OK;
}

/* ---- as JSON ---- */

static void json_member(struct kvr_buffer *out, const char *name)
{
    kvr_buffer_append_byte(out, ',');
    kvr_json_write_string(out, name, strlen(name));
    kvr_buffer_append_byte(out, ':');
}

bool kvr_kv_event_json(const struct kvr_kv_event *event, struct kvr_buffer *out)
{
    const struct event_type *type = type_named(event->name);
    struct kvr_msgpack reader = event->whole;
    struct kvr_msgpack_value value;
    size_t before = out->length;
    bool whole = kvr_msgpack_next(&reader, &value);
    char place[32];

    if (whole && value.type == KVR_MSGPACK_MAP)
        return reader = event->whole, kvr_msgpack_json(&reader, out);
    kvr_buffer_append_text(out, "{\"type\":");
    kvr_json_write_string(out, event->name.text, event->name.length);
    if (whole && value.type == KVR_MSGPACK_ARRAY) {
        whole = kvr_msgpack_skip(&reader);
        for (uint32_t i = 1; whole && i < value.length; i++) {
            snprintf(place, sizeof place, "field_%u", i);
            json_member(out, i <= type->count ? field_names[type->order[i - 1]].text : place);
            whole = kvr_msgpack_json(&reader, out);
        }
    }
    kvr_buffer_append_byte(out, '}');
    if (!whole || out->failed)
        out->length = before;
    return whole && !out->failed;
}
