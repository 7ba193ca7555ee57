#include "net/kv_event_extra.h"

#include <string.h>

bool kvr_kv_extra_open(const struct kvr_kv_event *event, struct kvr_kv_extra *extra)
{
    struct kvr_msgpack_value value;

    extra->list = event->fields[KVR_KV_EXTRA_KEYS];
    extra->left = 0;
    extra->placed_count = 0;
    extra->salt = (struct kvr_text){NULL, 0};
    if (!extra->list.at)
        return true;
    if (!kvr_msgpack_next(&extra->list, &value) || value.type != KVR_MSGPACK_ARRAY)
        return false;
    extra->left = value.length;
    return true;
}

static struct kvr_text text_of(const struct kvr_msgpack_value *value)
{
    return (struct kvr_text){(const char *)value->bytes, value->length};
}

static bool same(struct kvr_text a, struct kvr_text b)
{
    return a.text && b.text && a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

static bool place(struct kvr_kv_extra *extra, struct kvr_text identifier, int64_t start)
{
    if (extra->placed_count == KVR_KV_PLACED_LIMIT || start > INT32_MAX || start < INT32_MIN)
        return false;
    extra->placed[extra->placed_count++] =
        (struct kvr_placed){identifier, KVR_KV_EXTRA_BASE + (size_t)start, KVR_KV_EXTRA_BASE};
    return true;
}

static bool number_of(const struct kvr_msgpack_value *value, int64_t *number)
{
    *number = (int64_t)value->number;
    return value->type == KVR_MSGPACK_NEGATIVE ||
           (value->type == KVR_MSGPACK_UNSIGNED && value->number <= INT64_MAX);
}

static bool is(const struct kvr_msgpack_value *value, const char *text)
{
    return value->type == KVR_MSGPACK_TEXT && value->length == strlen(text) &&
           memcmp(value->bytes, text, value->length) == 0;
}

/* ("mm", identifier, start) and its like, or (identifier, start). */
static bool take_list(struct kvr_kv_extra *extra, struct kvr_msgpack inside, uint32_t length,
    struct kvr_text whole, bool first)
{
    struct kvr_msgpack_value parts[3] = {{0}};
    int64_t start;

    for (uint32_t i = 0; i < length && i < 3; i++) {
        struct kvr_msgpack at = inside;
        if (!kvr_msgpack_skip(&inside))
            return false;
        kvr_msgpack_next(&at, &parts[i]);
    }
    if (length >= 2 && is(&parts[0], "lora"))
        return true;
    if (length >= 2 && is(&parts[0], "cache_salt") && parts[1].type == KVR_MSGPACK_TEXT) {
        if (first)
            extra->salt = text_of(&parts[1]);
        return true;
    }
    if (length == 3 && is(&parts[0], "mm") && parts[1].type == KVR_MSGPACK_TEXT &&
        number_of(&parts[2], &start))
        return place(extra, text_of(&parts[1]), start);
    if (length == 2 && parts[0].type == KVR_MSGPACK_TEXT && number_of(&parts[1], &start))
        return place(extra, text_of(&parts[0]), start);
    return place(extra, whole, 0);
}

/* Typed keys of vLLM: {"type": "mm", "modality", "hash", "block_offset"}, {"type": "lora", "name"},
 * {"type": "cache_salt", "salt"}, {"type": "prompt_embeds", "hash"}, {"type": "legacy", "value"}.
 */
static bool take_map(struct kvr_kv_extra *extra, struct kvr_msgpack inside, uint32_t length,
    struct kvr_text whole, bool first)
{
    struct kvr_msgpack_value type = {0}, name, hash = {0}, salt = {0}, offset = {0};
    struct kvr_text content = whole;
    int64_t start;

    for (uint32_t i = 0; i < length; i++) {
        struct kvr_msgpack key = inside;
        if (!kvr_msgpack_skip(&inside))
            return false;
        struct kvr_msgpack value = inside;
        if (!kvr_msgpack_skip(&inside))
            return false;
        struct kvr_text piece = {(const char *)value.at, (size_t)(inside.at - value.at)};
        kvr_msgpack_next(&key, &name);
        if (is(&name, "type")) {
            kvr_msgpack_next(&value, &type);
        } else if (is(&name, "hash")) {
            kvr_msgpack_next(&value, &hash);
            content = piece;
        } else if (is(&name, "salt")) {
            kvr_msgpack_next(&value, &salt);
        } else if (is(&name, "block_offset")) {
            kvr_msgpack_next(&value, &offset);
        } else if (is(&name, "value")) {
            content = piece;
        }
    }
    if (is(&type, "lora"))
        return true;
    if (is(&type, "cache_salt") && salt.type == KVR_MSGPACK_TEXT) {
        if (first)
            extra->salt = text_of(&salt);
        return true;
    }
    if (is(&type, "mm") && hash.type == KVR_MSGPACK_TEXT && number_of(&offset, &start))
        return place(extra, text_of(&hash), start);
    return place(extra, content, 0); /* as the same content without a type */
}

bool kvr_kv_extra_next(const struct kvr_kv_event *event, bool first, struct kvr_kv_extra *extra)
{
    struct kvr_msgpack_value keys, key;

    extra->placed_count = 0;
    extra->salt = (struct kvr_text){NULL, 0};
    if (!extra->left)
        return true;
    extra->left--;
    if (!kvr_msgpack_next(&extra->list, &keys))
        return false;
    if (keys.type == KVR_MSGPACK_NIL)
        return true;
    if (keys.type != KVR_MSGPACK_ARRAY)
        return false;
    for (uint32_t i = 0; i < keys.length; i++) {
        struct kvr_msgpack inside = extra->list;
        if (!kvr_msgpack_skip(&extra->list))
            return false;
        struct kvr_text whole = {(const char *)inside.at, (size_t)(extra->list.at - inside.at)};
        kvr_msgpack_next(&inside, &key);
        bool taken = true;
        if (key.type == KVR_MSGPACK_ARRAY)
            taken = take_list(extra, inside, key.length, whole, first);
        else if (key.type == KVR_MSGPACK_MAP)
            taken = take_map(extra, inside, key.length, whole, first);
        else if (key.type == KVR_MSGPACK_TEXT && same(text_of(&key), event->lora))
            continue;
        else if (key.type == KVR_MSGPACK_TEXT && first && !extra->salt.text)
            extra->salt = text_of(&key);
        else if (key.type == KVR_MSGPACK_TEXT)
            taken = place(extra, text_of(&key), 0);
        else if (key.type != KVR_MSGPACK_NIL)
            taken = place(extra, whole, 0);
        if (!taken)
            return false;
    }
    return true;
}
