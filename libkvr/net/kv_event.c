#include "net/kv_event.h"

#include "base/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define BLOCK_SIZE_LIMIT (UINT64_C(1) << 20)
#define NAME_LIMIT 1024 /* bytes of a LoRA's name, a salt, a type */

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
static bool take_member(struct kvr_kv_batch *batch, struct kvr_msgpack *reader, int place)
{
    struct kvr_msgpack from = *reader;
    struct kvr_msgpack_value value;

    if (!kvr_msgpack_skip(reader))
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

enum kvr_status kvr_kv_batch_read(
    struct kvr_frame payload, struct kvr_kv_batch *batch, struct kvr_error *error)
{
    struct kvr_msgpack reader = {payload.data, payload.data + payload.size};
    struct kvr_msgpack_value root, name;

    memset(batch, 0, sizeof *batch);
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
        if (!take_member(batch, &reader, place))
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

static void set_field(
    struct kvr_kv_event *event, const struct kvr_msgpack_value *name, struct kvr_msgpack piece)
{
    for (int field = 0; field < KVR_KV_FIELD_COUNT; field++) {
        if (field_names[field].length == name->length &&
            memcmp(field_names[field].text, name->bytes, name->length) == 0) {
            event->fields[field] = piece;
            return;
        }
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

/* Passes over a field's value. Tokens are most of a message: they are read on the way, and *tokens
 * told where they are. */
static bool pass_field(struct kvr_kv_decoder *decoder, struct kvr_kv_event *event,
    struct kvr_msgpack *reader, bool tokens)
{
    struct kvr_msgpack ahead = *reader;
    struct kvr_msgpack_value value;

    if (!tokens || !kvr_msgpack_next(&ahead, &value) || value.type != KVR_MSGPACK_ARRAY)
        return kvr_msgpack_skip(reader);
    uint32_t *grown = kvr_grow(
        decoder->tokens, &decoder->token_room, value.length ? value.length : 1, sizeof *grown);
    if (!grown)
        return kvr_msgpack_skip(reader);
    decoder->tokens = grown;
    event->tokens = grown;
    if (kvr_msgpack_u32s(reader, grown, &event->token_count))
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
        if (is_text(&name, "type")) {
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

/* ---- values ---- */

static uint64_t number_of_bytes(const uint8_t *bytes, size_t length)
{
    uint64_t number = 0;

    for (size_t i = length > 8 ? length - 8 : 0; i < length; i++)
        number = number << 8 | bytes[i];
    return number;
}

/* Digits, or 0x and hexadecimal ones, that fit; else a hash of the text. */
static uint64_t number_of_text(const char *text, size_t length)
{
    char digits[24];
    char *end;

    if (length && length < sizeof digits && text[0] >= '0' && text[0] <= '9') {
        memcpy(digits, text, length);
        digits[length] = 0;
        bool hexadecimal = length > 2 && digits[0] == '0' && (digits[1] | 32) == 'x';
        if (hexadecimal ? length <= 18
                        : length <= 19 || strcmp(digits, "18446744073709551615") <= 0) {
            uint64_t number = strtoull(digits, &end, hexadecimal ? 16 : 10);
            if (!*end)
                return number;
        }
    }
    return XXH3_64bits(text, length);
}

static bool key_of(const struct kvr_msgpack_value *value, uint64_t *key)
{
    switch (value->type) {
    case KVR_MSGPACK_UNSIGNED:
    case KVR_MSGPACK_NEGATIVE:
        *key = value->number;
        return true;
    case KVR_MSGPACK_BYTES:
        *key = number_of_bytes(value->bytes, value->length);
        return value->length > 0;
    case KVR_MSGPACK_TEXT:
        *key = number_of_text((const char *)value->bytes, value->length);
        return value->length > 0;
    default:
        return false;
    }
}

bool kvr_kv_hash(struct kvr_msgpack *reader, uint64_t *key)
{
    struct kvr_msgpack_value value;

    return kvr_msgpack_next(reader, &value) && key_of(&value, key);
}

static bool read_hashes(struct kvr_kv_decoder *decoder, struct kvr_kv_event *event)
{
    struct kvr_msgpack reader = event->fields[KVR_KV_BLOCK_HASHES];
    struct kvr_msgpack_value value;
    uint32_t count = 1;

    if (!reader.at)
        return true;
    if ((*reader.at & 0xf0) == 0x90 || *reader.at == 0xdc || *reader.at == 0xdd) {
        kvr_msgpack_next(&reader, &value);
        count = value.length;
    } else if (*reader.at == 0xa0 && event->type == KVR_KV_PUT) {
        return true; /* Mooncake: "" is none */
    }
    uint64_t *grown =
        kvr_grow(decoder->hashes, &decoder->hash_room, count ? count : 1, sizeof *grown);
    if (!grown)
        return false;
    decoder->hashes = grown;
    for (uint32_t i = 0; i < count; i++)
        if (!kvr_kv_hash(&reader, &grown[i]))
            return false;
    event->hashes = grown;
    event->hash_count = count;
    return true;
}

/* Text of a field; false for another type and for one that is too long. */
static bool read_text(
    const struct kvr_kv_event *event, enum kvr_kv_field field, struct kvr_text *to)
{
    struct kvr_msgpack reader = event->fields[field];
    struct kvr_msgpack_value value;

    *to = (struct kvr_text){NULL, 0};
    if (!reader.at)
        return true;
    kvr_msgpack_next(&reader, &value);
    if ((value.type != KVR_MSGPACK_TEXT && value.type != KVR_MSGPACK_BYTES) ||
        value.length > NAME_LIMIT)
        return false;
    *to = (struct kvr_text){(const char *)value.bytes, value.length};
    return true;
}

static bool read_number(
    const struct kvr_kv_event *event, enum kvr_kv_field field, bool *given, uint64_t *number)
{
    struct kvr_msgpack reader = event->fields[field];
    struct kvr_msgpack_value value;

    *given = reader.at != NULL;
    if (!*given)
        return true;
    kvr_msgpack_next(&reader, &value);
    *number = value.number;
    return value.type == KVR_MSGPACK_UNSIGNED || value.type == KVR_MSGPACK_NEGATIVE;
}

bool kvr_kv_medium(struct kvr_text name, enum kvr_medium *medium)
{
    static const struct {
        const char *prefix;
        enum kvr_medium medium;
    } media[] = {{"gpu", KVR_MEDIUM_GPU}, {"device", KVR_MEDIUM_GPU}, {"hbm", KVR_MEDIUM_GPU},
        {"cuda", KVR_MEDIUM_GPU}, {"cpu", KVR_MEDIUM_CPU}, {"host", KVR_MEDIUM_CPU},
        {"dram", KVR_MEDIUM_CPU}, {"disk", KVR_MEDIUM_DISK}, {"local_disk", KVR_MEDIUM_DISK},
        {"ssd", KVR_MEDIUM_DISK}, {"nvme", KVR_MEDIUM_DISK}, {"file", KVR_MEDIUM_DISK},
        {"fs", KVR_MEDIUM_DISK}, {"storage", KVR_MEDIUM_DISK}, {"remote", KVR_MEDIUM_REMOTE},
        {"external", KVR_MEDIUM_REMOTE}, {"shared", KVR_MEDIUM_REMOTE}, {"obj", KVR_MEDIUM_REMOTE},
        {"p2p", KVR_MEDIUM_REMOTE}, {"memory", KVR_MEDIUM_REMOTE}};

    *medium = name.length ? KVR_MEDIUM_REMOTE : KVR_MEDIUM_GPU;
    for (size_t i = 0; i < sizeof media / sizeof *media; i++) {
        size_t length = strlen(media[i].prefix);
        if (name.length >= length && strncasecmp(name.text, media[i].prefix, length) == 0) {
            *medium = media[i].medium;
            return true;
        }
    }
    return !name.length;
}

/* LoRA by its name; engines before it was sent give a number, and its digits stand for it. */
static bool read_lora(struct kvr_kv_event *event)
{
    uint64_t number;
    bool given;

    if (!read_text(event, KVR_KV_LORA_NAME, &event->lora) ||
        !read_number(event, KVR_KV_LORA_ID, &given, &number))
        return false;
    if (!event->lora.text && given) {
        struct kvr_buffer text = {event->digits, 0, sizeof event->digits, false};
        kvr_buffer_append_u64(&text, number);
        event->lora = (struct kvr_text){event->digits, text.length};
    }
    return true;
}

static bool read_replicas(struct kvr_kv_event *event)
{
    struct kvr_msgpack reader = event->fields[KVR_KV_REPLICAS];
    struct kvr_msgpack_value list, pair, kind;

    if (!reader.at)
        return event->type != KVR_KV_UPDATED;
    if (!kvr_msgpack_next(&reader, &list) || list.type != KVR_MSGPACK_ARRAY)
        return false;
    for (uint32_t i = 0; i < list.length; i++) {
        struct kvr_msgpack inside = reader;
        enum kvr_medium medium;
        if (!kvr_msgpack_skip(&reader) || !kvr_msgpack_next(&inside, &pair) ||
            pair.type != KVR_MSGPACK_ARRAY || !pair.length || !kvr_msgpack_next(&inside, &kind) ||
            kind.type != KVR_MSGPACK_TEXT)
            return false;
        event->medium_unknown |=
            !kvr_kv_medium((struct kvr_text){(const char *)kind.bytes, kind.length}, &medium);
        event->media |= 1u << medium;
    }
    return true;
}

static const char *read_mooncake(struct kvr_kv_event *event)
{
    struct kvr_text key;

    if (!read_text(event, KVR_KV_MOONCAKE_KEY, &key) || !key.text)
        return "an event without its key";
    event->object = XXH3_64bits(key.text, key.length);
    if (!read_replicas(event))
        return "replicas that are no list of pairs";
    if (!read_text(event, KVR_KV_MODEL_NAME, &event->model))
        return "a model that is no name";
    if (!event->model.length)
        event->model.text = NULL;
    return NULL;
}

/* What is wrong with the fields, or NULL. */
static const char *read_fields(struct kvr_kv_decoder *decoder, struct kvr_kv_event *event)
{
    struct kvr_msgpack parent = event->fields[KVR_KV_PARENT_BLOCK_HASH];
    struct kvr_text medium;
    bool given;

    if (!read_hashes(decoder, event))
        return "block_hashes that are no list of hashes";
    if (event->type <= KVR_KV_REMOVED && !event->fields[KVR_KV_BLOCK_HASHES].at)
        return "an event without block_hashes";
    event->has_parent = parent.at && !(*parent.at == 0xa0 && event->type == KVR_KV_PUT);
    if (event->has_parent && !kvr_kv_hash(&parent, &event->parent))
        return "a parent_block_hash that is no hash";
    if (event->fields[KVR_KV_TOKEN_IDS].at && !event->tokens)
        return "token_ids that are no list of tokens";
    if (!read_number(event, KVR_KV_BLOCK_SIZE, &given, &event->block_size) ||
        event->block_size > BLOCK_SIZE_LIMIT)
        return "a block_size out of range";
    if (!read_number(event, KVR_KV_GROUP_IDX, &event->has_group, &event->group))
        return "a group_idx that is no number";
    if (!read_text(event, KVR_KV_MEDIUM, &medium))
        return "a medium that is no name";
    event->medium_unknown = !kvr_kv_medium(medium, &event->medium);
    if (!read_lora(event))
        return "a LoRA that is no name";
    if (!read_text(event, KVR_KV_CACHE_SALT, &event->salt))
        return "a salt that is no text";
    if (!read_text(event, KVR_KV_SPEC_KIND, &event->kind))
        return "a kind of attention that is no text";
    event->sliding = event->fields[KVR_KV_SPEC_SLIDING_WINDOW].at != NULL;
    if (event->type == KVR_KV_PUT || event->type == KVR_KV_UPDATED)
        return read_mooncake(event);
    return NULL;
}

void kvr_kv_decoder_release(struct kvr_kv_decoder *decoder)
{
    free(decoder->hashes);
    free(decoder->tokens);
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
    const char *wrong = read_fields(decoder, event);
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
