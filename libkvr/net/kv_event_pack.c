#include "net/kv_event_publish.h"

#include "base/grow.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

/* Of one event: readers bound their messages. At least one block, though. */
enum { TOKENS_LIMIT = 1 << 17, HASHES_LIMIT = 1 << 15 };

struct content {
    struct kvr_text medium, lora, salt;
    size_t id_count, token_count;
    uint64_t block_size, parent;
    bool has_parent;
    size_t first, count; /* of the ids: those of the event under way */
};

struct kvr_kv_packer {
    bool array;
    msgpack_sbuffer events, payload;
    msgpack_packer packer;
    size_t count;
    uint64_t *ids, *tokens;
    size_t id_room, token_room;
    struct kvr_buffer lora, salt;
    struct content content; /* of the line under way */
};

enum kvr_status kvr_kv_packer_create(
    struct kvr_kv_packer **packer, bool array, struct kvr_error *error)
{
    *packer = calloc(1, sizeof **packer);
    if (!*packer)
        return kvr_error_memory(error);
    (*packer)->array = array;
    msgpack_sbuffer_init(&(*packer)->events);
    msgpack_sbuffer_init(&(*packer)->payload);
    msgpack_packer_init(&(*packer)->packer, &(*packer)->events, msgpack_sbuffer_write);
    return KVR_OK;
}

void kvr_kv_packer_destroy(struct kvr_kv_packer *packer)
{
    if (!packer)
        return;
    msgpack_sbuffer_destroy(&packer->events);
    msgpack_sbuffer_destroy(&packer->payload);
    free(packer->ids);
    free(packer->tokens);
    kvr_buffer_release(&packer->lora);
    kvr_buffer_release(&packer->salt);
    free(packer);
}

size_t kvr_kv_packed(const struct kvr_kv_packer *packer, size_t *bytes)
{
    *bytes = packer->count ? packer->events.size : 0;
    return packer->count;
}

/* ---- lines ---- */

static enum kvr_status wrong(enum kvr_name name, const char *kind, struct kvr_error *error)
{
    return kvr_error_set(error, KVR_BAD_INPUT, "member '%s' is not %s", kvr_name_text(name), kind);
}

static bool missing(struct kvr_value value)
{
    return value.type <= KVR_NULL;
}

/* An array of numbers into memory of its own. */
static bool numbers(struct kvr_value value, uint64_t **to, size_t *room, size_t *count)
{
    uint64_t *grown = kvr_grow(*to, room, kvr_value_u64s_room(value), sizeof *grown);

    if (!grown)
        return false;
    *to = grown;
    ptrdiff_t read = kvr_value_u64s(value, grown);
    *count = read < 0 ? 0 : (size_t)read;
    return read >= 0;
}

static enum kvr_status read_content(struct kvr_kv_packer *packer, const struct kvr_line *line,
    uint64_t block_size, bool stored, struct content *content, struct kvr_error *error)
{
    static const char *const media[] = {"GPU", "CPU", "DISK", "EXTERNAL"};
    struct kvr_value value = kvr_line_get(line, KVR_NAME_HASH_IDS);

    memset(content, 0, sizeof *content);
    content->block_size = block_size;
    content->medium = (struct kvr_text){"GPU", 3};
    if (!numbers(value, &packer->ids, &packer->id_room, &content->id_count))
        return wrong(KVR_NAME_HASH_IDS, "an array of whole numbers", error);
    value = kvr_line_get(line, KVR_NAME_MEDIUM);
    if (!missing(value)) {
        bool known = false;
        for (int i = 0; i < KVR_MEDIUM_COUNT; i++) {
            if (!kvr_value_is(value, kvr_medium_name(i)))
                continue;
            content->medium = (struct kvr_text){media[i], strlen(media[i])};
            known = true;
        }
        if (!known)
            return wrong(KVR_NAME_MEDIUM, "gpu, cpu, disk or remote", error);
    }
    value = kvr_line_get(line, KVR_NAME_BLOCK_SIZE);
    if (!missing(value) && (!kvr_value_u64(value, &content->block_size) || !content->block_size ||
                               content->block_size > UINT32_MAX))
        return wrong(KVR_NAME_BLOCK_SIZE, "a whole number above 0", error);
    if (!stored)
        return KVR_OK;
    value = kvr_line_get(line, KVR_NAME_PARENT);
    content->has_parent = !missing(value);
    if (content->has_parent && !kvr_value_u64(value, &content->parent))
        return wrong(KVR_NAME_PARENT, "a whole number", error);
    value = kvr_line_get(line, KVR_NAME_LORA);
    if (!missing(value) && !kvr_value_text(value, &packer->lora, &content->lora))
        return wrong(KVR_NAME_LORA, "a string", error);
    value = kvr_line_get(line, KVR_NAME_SALT);
    if (!missing(value) && !kvr_value_text(value, &packer->salt, &content->salt))
        return wrong(KVR_NAME_SALT, "a string", error);
    value = kvr_line_get(line, KVR_NAME_TOKEN_IDS);
    if (!missing(value) &&
        (!numbers(value, &packer->tokens, &packer->token_room, &content->token_count) ||
            content->token_count != content->id_count * content->block_size))
        return wrong(KVR_NAME_TOKEN_IDS, "block_size tokens for each of hash_ids", error);
    return KVR_OK;
}

/* ---- msgpack ---- */

static void pack_text(msgpack_packer *packer, struct kvr_text text)
{
    if (!text.text) {
        msgpack_pack_nil(packer);
        return;
    }
    msgpack_pack_str(packer, text.length);
    msgpack_pack_str_body(packer, text.text, text.length);
}

static void pack_name(const struct kvr_kv_packer *kv, msgpack_packer *packer, const char *name)
{
    if (!kv->array)
        pack_text(packer, (struct kvr_text){name, strlen(name)});
}

/* The head of an event: an array's length and type, or a map's. */
static void pack_head(
    const struct kvr_kv_packer *kv, msgpack_packer *packer, const char *type, size_t fields)
{
    if (kv->array)
        msgpack_pack_array(packer, fields + 1);
    else
        msgpack_pack_map(packer, fields + 1);
    pack_name(kv, packer, "type");
    pack_text(packer, (struct kvr_text){type, strlen(type)});
}

static void pack_ids(
    const struct kvr_kv_packer *kv, msgpack_packer *packer, const struct content *content)
{
    pack_name(kv, packer, "block_hashes");
    msgpack_pack_array(packer, content->count);
    for (size_t i = 0; i < content->count; i++)
        msgpack_pack_uint64(packer, kv->ids[content->first + i]);
}

/* Token `place` of a block that has none: the 15 high bits of a splitmix64 step. */
static uint64_t made_up(uint64_t id, uint64_t place)
{
    uint64_t z = id + (place + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) >> 49;
}

static void pack_tokens(
    const struct kvr_kv_packer *kv, msgpack_packer *packer, const struct content *content)
{
    pack_name(kv, packer, "token_ids");
    msgpack_pack_array(packer, content->count * content->block_size);
    for (size_t i = content->first; i < content->first + content->count; i++)
        for (size_t j = 0; j < content->block_size; j++)
            msgpack_pack_uint64(packer, content->token_count
                                            ? kv->tokens[i * content->block_size + j]
                                            : made_up(kv->ids[i], j));
}

/* LoRA in every block, the salt in a prompt's first. */
static void pack_extra(
    const struct kvr_kv_packer *kv, msgpack_packer *packer, const struct content *content)
{
    pack_name(kv, packer, "extra_keys");
    msgpack_pack_array(packer, content->count);
    for (size_t i = content->first; i < content->first + content->count; i++) {
        bool salted = content->salt.text && i == 0 && !content->has_parent;
        size_t keys = (content->lora.text ? 1 : 0) + (salted ? 1 : 0);
        if (!keys) {
            msgpack_pack_nil(packer);
            continue;
        }
        msgpack_pack_array(packer, keys);
        if (content->lora.text)
            pack_text(packer, content->lora);
        if (salted)
            pack_text(packer, content->salt);
    }
}

static void pack_stored(
    const struct kvr_kv_packer *kv, msgpack_packer *packer, const struct content *content)
{
    pack_head(kv, packer, "BlockStored", 10);
    pack_ids(kv, packer, content);
    pack_name(kv, packer, "parent_block_hash");
    if (content->first)
        msgpack_pack_uint64(packer, kv->ids[content->first - 1]);
    else if (content->has_parent)
        msgpack_pack_uint64(packer, content->parent);
    else
        msgpack_pack_nil(packer);
    pack_tokens(kv, packer, content);
    pack_name(kv, packer, "block_size");
    msgpack_pack_uint64(packer, content->block_size);
    pack_name(kv, packer, "lora_id");
    msgpack_pack_nil(packer);
    pack_name(kv, packer, "medium");
    pack_text(packer, content->medium);
    pack_name(kv, packer, "lora_name");
    pack_text(packer, content->lora);
    pack_extra(kv, packer, content);
    pack_name(kv, packer, "group_idx");
    msgpack_pack_uint64(packer, 0);
    pack_name(kv, packer, "kv_cache_spec_kind");
    pack_text(packer, (struct kvr_text){"full_attention", 14});
}

static void pack_removed(
    const struct kvr_kv_packer *kv, msgpack_packer *packer, const struct content *content)
{
    pack_head(kv, packer, "BlockRemoved", 3);
    pack_ids(kv, packer, content);
    pack_name(kv, packer, "medium");
    pack_text(packer, content->medium);
    pack_name(kv, packer, "group_idx");
    msgpack_pack_uint64(packer, 0);
}

enum kvr_status kvr_kv_pack_line(struct kvr_kv_packer *packer, const struct kvr_line *line,
    uint64_t block_size, size_t *next, bool *taken, struct kvr_error *error)
{
    struct kvr_value event = kvr_line_get(line, KVR_NAME_EVENT);
    bool stored = kvr_value_is(event, "stored"), removed = kvr_value_is(event, "removed");
    struct content *content = &packer->content;
    size_t first = *next, most = HASHES_LIMIT;

    *next = 0;
    *taken = stored || removed || kvr_value_is(event, "cleared");
    if (!*taken)
        return KVR_OK;
    if ((stored || removed) && !first) {
        enum kvr_status status = read_content(packer, line, block_size, stored, content, error);
        if (status != KVR_OK)
            return status;
    }
    if (stored && content->block_size > TOKENS_LIMIT / HASHES_LIMIT)
        most = content->block_size < TOKENS_LIMIT ? TOKENS_LIMIT / content->block_size : 1;
    content->first = first;
    content->count = content->id_count - first < most ? content->id_count - first : most;
    if (!packer->count)
        msgpack_sbuffer_clear(&packer->events);
    if (stored)
        pack_stored(packer, &packer->packer, content);
    else if (removed)
        pack_removed(packer, &packer->packer, content);
    else
        pack_head(packer, &packer->packer, "AllBlocksCleared", 0);
    packer->count++;
    if ((stored || removed) && first + content->count < content->id_count)
        *next = first + content->count;
    return KVR_OK;
}

enum kvr_status kvr_kv_pack_end(struct kvr_kv_packer *packer, double time_s, uint64_t rank,
    struct kvr_frame *payload, struct kvr_error *error)
{
    msgpack_packer outer;
    bool whole;

    msgpack_sbuffer_clear(&packer->payload);
    msgpack_packer_init(&outer, &packer->payload, msgpack_sbuffer_write);
    whole =
        msgpack_pack_array(&outer, 3) == 0 && msgpack_pack_double(&outer, time_s) == 0 &&
        msgpack_pack_array(&outer, packer->count) == 0 &&
        msgpack_sbuffer_write(&packer->payload, packer->events.data, packer->events.size) == 0 &&
        msgpack_pack_uint64(&outer, rank) == 0;
    packer->count = 0;
    msgpack_sbuffer_clear(&packer->events);
    *payload = (struct kvr_frame){(const uint8_t *)packer->payload.data, packer->payload.size};
    return whole ? KVR_OK : kvr_error_memory(error);
}
