/* The values of an event's fields, each checked for its type. */
#include "base/grow.h"
#include "net/kv_event_private.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define BLOCK_SIZE_LIMIT (UINT64_C(1) << 20)
#define NAME_LIMIT 1024 /* bytes of a LoRA's name, a salt, a type */

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

const char *kvr_kv_read_fields(struct kvr_kv_decoder *decoder, struct kvr_kv_event *event)
{
    struct kvr_msgpack parent = event->fields[KVR_KV_PARENT_BLOCK_HASH];
    struct kvr_text medium, locality;
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
    /* Said by one worker of what another, or a store that they share, holds. */
    if (read_text(event, KVR_KV_LOCALITY, &locality) && locality.length == 6 &&
        strncasecmp(locality.text, "remote", 6) == 0)
        event->medium = KVR_MEDIUM_REMOTE;
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
