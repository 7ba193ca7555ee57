#include "net/kv_event_translate.h"

#include "base/grow.h"
#include "net/kv_event_extra.h"
#include "net/kv_event_space.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    RUN_LIMIT = 4096,       /* blocks that are told together */
    TOKENS_LIMIT = 1 << 20, /* the same for their tokens */
    TEXT_LIMIT = 1024,      /* bytes of a salt */
    GROUP_LIMIT = 64,       /* groups whose kind is kept */
    LOOK_AHEAD = 8,         /* blocks whose slots are fetched ahead */
    REFERENCES = 65535,     /* to a block in a medium, at most */
};

enum run_kind { RUN_NONE, RUN_STORED, RUN_REMOVED };

struct kvr_kv_translator {
    struct kvr_kv_translator_options options;
    struct kvr_kv_sink sink;
    struct kvr_kv_table blocks;  /* engine's hash -> kvr's */
    struct kvr_kv_table objects; /* Mooncake's key -> engine's hash, media in references */
    struct kvr_kv_spaces spaces;
    struct kvr_kv_memory *memory;
    struct kvr_kv_counts counts;
    uint32_t block_size;                /* the last one that an event gave; 0: none has */
    uint64_t full_groups, other_groups; /* bits: what kind each is known to be */
    struct kvr_chain_state chain;       /* for blocks with content */
    /* the run under way */
    enum run_kind kind;
    uint32_t space;
    struct kvr_kv_run run; /* its lists are the memory's */
};

enum kvr_status kvr_kv_translator_create(struct kvr_kv_translator **translator,
    const struct kvr_kv_translator_options *options, struct kvr_kv_memory *memory,
    const struct kvr_kv_sink *sink, struct kvr_error *error)
{
    struct kvr_kv_translator *made = calloc(1, sizeof *made);

    *translator = made;
    if (!made)
        return kvr_error_memory(error);
    made->options = *options;
    made->sink = *sink;
    made->memory = memory;
    kvr_kv_table_init(&made->blocks, memory);
    kvr_kv_table_init(&made->objects, memory);
    kvr_kv_spaces_init(&made->spaces, memory);
    return KVR_OK;
}

void kvr_kv_translator_destroy(struct kvr_kv_translator *translator)
{
    if (!translator)
        return;
    kvr_kv_table_release(&translator->blocks);
    kvr_kv_table_release(&translator->objects);
    kvr_kv_spaces_release(&translator->spaces);
    kvr_chain_release(&translator->chain);
    free(translator);
}

const struct kvr_kv_counts *kvr_kv_translator_counts(const struct kvr_kv_translator *translator)
{
    return &translator->counts;
}

size_t kvr_kv_translator_blocks(const struct kvr_kv_translator *translator)
{
    return translator->blocks.length;
}

/* ---- runs ---- */

static void end_run(struct kvr_kv_translator *t)
{
    struct kvr_kv_run *run = &t->run;

    if (t->kind == RUN_NONE || !run->count) {
        t->kind = RUN_NONE;
        return;
    }
    run->worker = t->options.worker;
    run->ids = t->memory->ids;
    run->tokens = t->options.tokens && t->kind == RUN_STORED ? t->memory->tokens : NULL;
    run->space = kvr_kv_spaces_get(&t->spaces, t->space);
    if (t->kind == RUN_STORED)
        t->sink.stored(t->sink.context, run);
    else
        t->sink.removed(t->sink.context, run);
    t->kind = RUN_NONE;
}

/* Goes on with the run under way where one like this is, else begins one. */
static void begin_run(struct kvr_kv_translator *t, enum run_kind kind, enum kvr_medium medium,
    uint32_t space, bool has_parent, uint64_t parent)
{
    struct kvr_kv_run *run = &t->run;
    bool goes_on =
        t->kind == kind && run->medium == medium && t->space == space && run->count &&
        run->count < RUN_LIMIT &&
        (kind == RUN_REMOVED || (has_parent && t->memory->ids[run->count - 1] == parent));

    if (goes_on)
        return;
    end_run(t);
    *run = (struct kvr_kv_run){.medium = medium, .has_parent = has_parent, .parent = parent};
    t->kind = kind;
    t->space = space;
}

/* One more block. A run that has become long ends, and another goes on from it. */
static bool add_to_run(
    struct kvr_kv_translator *t, uint64_t id, const uint32_t *tokens, size_t token_count)
{
    struct kvr_kv_memory *memory = t->memory;
    struct kvr_kv_run *run = &t->run;

    if (run->count >= RUN_LIMIT || run->token_count >= TOKENS_LIMIT) {
        enum run_kind kind = t->kind;
        enum kvr_medium medium = run->medium;
        uint64_t last = memory->ids[run->count - 1];
        end_run(t);
        begin_run(t, kind, medium, t->space, kind == RUN_STORED, last);
    }
    uint64_t *ids = kvr_grow(memory->ids, &memory->id_room, run->count + 1, sizeof *ids);
    if (!ids)
        return false;
    memory->ids = ids;
    if (t->options.tokens && token_count) {
        uint32_t *room = kvr_grow(
            memory->tokens, &memory->token_room, run->token_count + token_count, sizeof *room);
        if (!room)
            return false;
        memory->tokens = room;
        memcpy(room + run->token_count, tokens, token_count * sizeof *tokens);
        run->token_count += token_count;
    }
    ids[run->count++] = id;
    return true;
}

static uint64_t wire(const struct kvr_kv_translator *t, uint64_t key, uint64_t hash)
{
    return t->options.native ? key : kvr_wire_id(hash);
}

/* ---- groups ---- */

/* Whether the text has the part, in any case of its letters. */
static bool has(struct kvr_text text, const char *part)
{
    size_t length = strlen(part);

    for (size_t i = 0; text.text && i + length <= text.length; i++)
        if (strncasecmp(text.text + i, part, length) == 0)
            return true;
    return false;
}

/* Whether the event's blocks can be reused by prefix alone. */
static bool full_attention(struct kvr_kv_translator *t, const struct kvr_kv_event *event)
{
    uint64_t bit = event->has_group && event->group < GROUP_LIMIT ? UINT64_C(1) << event->group : 0;

    if (event->kind.text || event->sliding) {
        bool full = event->kind.text && !has(event->kind, "sliding") &&
                    (has(event->kind, "full") || has(event->kind, "mla"));
        t->full_groups = full ? t->full_groups | bit : t->full_groups & ~bit;
        t->other_groups = full ? t->other_groups & ~bit : t->other_groups | bit;
        return full;
    }
    if (t->full_groups & bit)
        return true;
    return !event->has_group || (event->group == 0 && !(t->other_groups & bit));
}

/* ---- blocks ---- */

static void drop_space(struct kvr_kv_translator *t, uint32_t space)
{
    if (kvr_kv_spaces_get(&t->spaces, space)->holders)
        return;
    if (t->space == space)
        end_run(t);
    kvr_kv_spaces_drop(&t->spaces, space);
}

static void forget(struct kvr_kv_translator *t, struct kvr_kv_entry *entry)
{
    uint32_t space = entry->space;

    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
        if (entry->references[medium])
            return;
    kvr_kv_table_remove(&t->blocks, entry);
    kvr_kv_spaces_get(&t->spaces, space)->holders--;
    drop_space(t, space);
}

/* One more reference. False: there are too many. */
static bool refer(struct kvr_kv_translator *t, struct kvr_kv_entry *entry, enum kvr_medium medium)
{
    if (entry->references[medium] == REFERENCES) {
        t->counts.over_memory_blocks++;
        return false;
    }
    entry->references[medium]++;
    t->counts.stored_blocks++;
    return true;
}

static void remove_block(struct kvr_kv_translator *t, uint64_t key, enum kvr_medium medium)
{
    struct kvr_kv_entry *entry = kvr_kv_table_find(&t->blocks, key);

    if (!entry || !entry->references[medium]) {
        t->counts.unknown_removed++;
        return;
    }
    begin_run(t, RUN_REMOVED, medium, entry->space, false, 0);
    add_to_run(t, wire(t, key, entry->hash), NULL, 0);
    t->counts.removed_blocks++;
    entry->references[medium]--;
    forget(t, entry);
}

/* kvr's hash of a block whose parent has `hash`. */
static uint64_t hash_block(struct kvr_kv_translator *t, uint64_t hash,
    const struct kvr_kv_extra *extra, const uint32_t *tokens, size_t count)
{
    struct kvr_chain_settings settings = {0};
    uint64_t digest = htole64(hash);

    if (!extra->placed_count)
        return kvr_block_hash(hash, tokens, count);
    kvr_chain_resume(&t->chain, (const uint8_t *)&digest, sizeof digest, KVR_KV_EXTRA_BASE);
    if (kvr_chains[0].block(&settings, &t->chain, tokens, count, extra->placed, extra->placed_count,
            NULL) != KVR_OK)
        return ~hash; /* no memory: some hash that nothing else has */
    memcpy(&digest, t->chain.digest, sizeof digest);
    return le64toh(digest);
}

/* Where a stored event goes on from: its parent's, or its own namespace. 0: it cannot be told. */
static uint32_t find_space(struct kvr_kv_translator *t, const struct kvr_kv_event *event,
    uint32_t block_size, struct kvr_text salt, uint64_t *hash)
{
    const struct kvr_kv_entry *parent =
        event->has_parent ? kvr_kv_table_find(&t->blocks, event->parent) : NULL;
    const char *model = t->options.model;
    struct kvr_kv_space wanted = {
        .model =
            event->model.text ? event->model : (struct kvr_text){model, model ? strlen(model) : 0},
        .lora = event->lora,
        .salt = event->salt.text ? event->salt : salt,
        .block_size = block_size,
    };

    if (parent && kvr_kv_spaces_get(&t->spaces, parent->space)->block_size == block_size) {
        *hash = parent->hash;
        return parent->space;
    }
    if (event->has_parent && !t->options.native) {
        t->counts.orphans += event->hash_count;
        return 0;
    }
    uint32_t space = kvr_kv_spaces_find(&t->spaces, &wanted);
    if (space)
        *hash = kvr_kv_spaces_get(&t->spaces, space)->seed;
    else
        t->counts.over_memory_blocks += event->hash_count;
    return space;
}

/* Blocks without tokens (offloaded): those that are known already come to one more medium. */
static void store_known(struct kvr_kv_translator *t, const struct kvr_kv_event *event)
{
    for (size_t i = 0; i < event->hash_count; i++) {
        uint64_t key = event->hashes[i];
        struct kvr_kv_entry *entry = kvr_kv_table_find(&t->blocks, key);
        if (!entry) {
            t->counts.tokenless_blocks++;
            continue;
        }
        if (!refer(t, entry, event->medium))
            continue;
        /* What came before it is not said: each block stands alone. */
        end_run(t);
        begin_run(t, RUN_STORED, event->medium, entry->space, false, 0);
        add_to_run(t, wire(t, key, entry->hash), NULL, 0);
        end_run(t);
    }
}

/* One block of a stored event. False: no more of the event can be kept. */
static bool store_block(struct kvr_kv_translator *t, uint64_t key, uint64_t hash, uint32_t space,
    enum kvr_medium medium, const uint32_t *tokens, size_t token_count)
{
    bool inserted;
    struct kvr_kv_entry *entry = kvr_kv_table_insert(&t->blocks, key, space, &inserted);

    if (!entry)
        return false;
    if (inserted) {
        entry->hash = hash;
        kvr_kv_spaces_get(&t->spaces, space)->holders++;
    } else if (entry->hash != hash || entry->space != space) {
        t->counts.clashes++;
        return true;
    }
    if (refer(t, entry, medium))
        add_to_run(t, wire(t, key, hash), tokens, token_count);
    return true;
}

static const char *store_blocks(struct kvr_kv_translator *t, const struct kvr_kv_event *event,
    enum kvr_medium medium, uint32_t block_size)
{
    struct kvr_kv_extra extra;
    bool first = !event->has_parent;
    uint64_t hash = 0;

    if (!kvr_kv_extra_open(event, &extra) || !kvr_kv_extra_next(event, first, &extra) ||
        extra.salt.length > TEXT_LIMIT)
        return "extra_keys that cannot be understood";
    uint32_t space = find_space(t, event, block_size, extra.salt, &hash);
    if (!space)
        return NULL;
    begin_run(t, RUN_STORED, medium, space, event->has_parent, wire(t, event->parent, hash));
    const char *wrong = NULL;
    for (size_t i = 0; i < event->hash_count; i++) {
        const uint32_t *tokens = event->token_count ? event->tokens + i * block_size : NULL;
        size_t token_count = event->token_count ? block_size : 0;
        if (i + LOOK_AHEAD < event->hash_count)
            kvr_kv_table_prefetch(&t->blocks, event->hashes[i + LOOK_AHEAD]);
        if (i && !kvr_kv_extra_next(event, false, &extra)) {
            wrong = "extra_keys that cannot be understood";
            break;
        }
        hash =
            t->options.native ? event->hashes[i] : hash_block(t, hash, &extra, tokens, token_count);
        if (!store_block(t, event->hashes[i], hash, space, medium, tokens, token_count)) {
            t->counts.over_memory_blocks += event->hash_count - i;
            break;
        }
    }
    drop_space(t, space);
    return wrong;
}

/* What is wrong with the event, or NULL. */
static const char *stored(struct kvr_kv_translator *t, const struct kvr_kv_event *event)
{
    uint64_t block_size = event->block_size;

    if (!full_attention(t, event)) {
        t->counts.other_group_blocks += event->hash_count;
        return NULL;
    }
    t->counts.unknown_media += event->medium_unknown;
    if (!event->hash_count)
        return NULL;
    bool known = kvr_kv_table_find(&t->blocks, event->hashes[0]) != NULL;
    if (!event->token_count && (known || !t->options.native)) {
        store_known(t, event);
        return NULL;
    }
    if (!block_size && event->token_count % event->hash_count == 0)
        block_size = event->token_count / event->hash_count;
    if (event->token_count && (!block_size || event->token_count != event->hash_count * block_size))
        return "token_ids that are not block_size for each block";
    if (block_size)
        t->block_size = (uint32_t)block_size;
    else
        block_size = t->block_size; /* a store that knows only keys; 0: nobody said */
    return store_blocks(t, event, event->medium, (uint32_t)block_size);
}

static void removed(struct kvr_kv_translator *t, const struct kvr_kv_event *event)
{
    if (!full_attention(t, event)) {
        t->counts.other_group_blocks += event->hash_count;
        return;
    }
    t->counts.unknown_media += event->medium_unknown;
    for (size_t i = 0; i < event->hash_count; i++) {
        if (i + LOOK_AHEAD < event->hash_count)
            kvr_kv_table_prefetch(&t->blocks, event->hashes[i + LOOK_AHEAD]);
        remove_block(t, event->hashes[i], event->medium);
    }
}

/* ---- Mooncake ---- */

/* The replicas of an object that we know are now in these media. */
static void update_object(struct kvr_kv_translator *t, struct kvr_kv_entry *object, unsigned media)
{
    uint64_t key = object->hash;
    unsigned were = 0;

    for (int m = 0; m < KVR_MEDIUM_COUNT; m++) {
        were |= (unsigned)(object->references[m] != 0) << m;
        object->references[m] = media >> m & 1;
    }
    if (!media)
        kvr_kv_table_remove(&t->objects, object);
    for (int m = 0; m < KVR_MEDIUM_COUNT; m++) {
        struct kvr_kv_entry *block = kvr_kv_table_find(&t->blocks, key);
        if (!block || !(media >> m & 1) || were >> m & 1 || !refer(t, block, m))
            continue;
        end_run(t);
        begin_run(t, RUN_STORED, m, block->space, false, 0);
        add_to_run(t, wire(t, key, block->hash), NULL, 0);
        end_run(t);
    }
    for (int m = 0; m < KVR_MEDIUM_COUNT; m++)
        if (were >> m & 1 && !(media >> m & 1))
            remove_block(t, key, m);
}

static const char *put(struct kvr_kv_translator *t, struct kvr_kv_event *event)
{
    struct kvr_kv_entry *object = kvr_kv_table_find(&t->objects, event->object);
    bool inserted;

    t->counts.unknown_media += event->medium_unknown;
    if (object) {
        update_object(t, object, event->media);
        return NULL;
    }
    if (event->hash_count != 1 || (!event->token_count && !t->options.native))
        return "an object without a block's hash or tokens";
    uint64_t key = event->hashes[0], orphans = t->counts.orphans;
    size_t block_size = event->token_count ? event->token_count : event->block_size;
    if (!block_size || block_size > UINT32_MAX)
        return "a block_size out of range";
    for (int m = 0; m < KVR_MEDIUM_COUNT && t->counts.orphans == orphans; m++) {
        if (!(event->media >> m & 1))
            continue;
        uint64_t before = t->counts.stored_blocks;
        const char *wrong = store_blocks(t, event, m, (uint32_t)block_size);
        if (wrong)
            return wrong;
        if (t->counts.stored_blocks == before)
            continue;
        object = kvr_kv_table_insert(&t->objects, event->object, 1, &inserted);
        if (!object) {
            remove_block(t, key, m);
            t->counts.over_memory_blocks++;
            return NULL;
        }
        object->hash = key;
        object->references[m] = 1;
    }
    return NULL;
}

/* ---- clearing ---- */

static int by_key(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* All blocks of one medium go; others may be in it too. False: no memory to do it. */
static bool clear_medium(struct kvr_kv_translator *t, enum kvr_medium medium)
{
    uint64_t *keys = calloc(t->blocks.length + 1, sizeof *keys);
    const struct kvr_kv_entry *entry;
    size_t count = 0;

    if (!keys)
        return false;
    for (size_t i = 0; t->blocks.slots && i <= t->blocks.mask; i++)
        if (t->blocks.slots[i].space && t->blocks.slots[i].references[medium])
            keys[count++] = t->blocks.slots[i].key;
    qsort(keys, count, sizeof *keys, by_key);
    for (size_t i = 0; i < count; i++)
        while ((entry = kvr_kv_table_find(&t->blocks, keys[i])) && entry->references[medium])
            remove_block(t, keys[i], medium);
    free(keys);
    return true;
}

/* ---- batches ---- */

static const char *apply(struct kvr_kv_translator *t, struct kvr_kv_event *event)
{
    struct kvr_kv_entry *object;

    t->counts.events++;
    switch (event->type) {
    case KVR_KV_STORED:
        return stored(t, event);
    case KVR_KV_REMOVED:
        removed(t, event);
        return NULL;
    case KVR_KV_CLEARED:
        /* Where it says of what, only that. */
        if ((!event->fields[KVR_KV_MEDIUM].at && event->medium == KVR_MEDIUM_GPU) ||
            !clear_medium(t, event->medium))
            kvr_kv_translator_clear(t, NULL);
        t->counts.cleared++;
        return NULL;
    case KVR_KV_PUT:
        return put(t, event);
    case KVR_KV_UPDATED:
        object = kvr_kv_table_find(&t->objects, event->object);
        if (object)
            update_object(t, object, event->media);
        else
            t->counts.unknown_removed++;
        return NULL;
    case KVR_KV_OTHER:
        t->counts.unknown_events++;
    }
    return NULL;
}

enum kvr_status kvr_kv_translate(
    struct kvr_kv_translator *translator, struct kvr_kv_batch *batch, struct kvr_error *error)
{
    struct kvr_kv_event event;
    struct kvr_error own = {0};
    enum kvr_status status, worst = KVR_OK;

    while ((status = kvr_kv_event_next(batch, &translator->memory->decoder, &event, &own)) !=
           KVR_END) {
        if (status == KVR_OK) {
            const char *wrong = apply(translator, &event);
            if (!wrong)
                continue;
            status = kvr_error_set(&own, KVR_BAD_INPUT, "%s", wrong);
        }
        translator->counts.bad_events++;
        if (worst == KVR_OK && error)
            *error = own;
        worst = status;
    }
    end_run(translator);
    kvr_kv_memory_trim(translator->memory);
    return worst;
}

static int by_space_and_key(const void *a, const void *b)
{
    const struct kvr_kv_entry *const *x = a, *const *y = b;

    if ((*x)->space != (*y)->space)
        return (*x)->space < (*y)->space ? -1 : 1;
    return (*x)->key < (*y)->key ? -1 : (*x)->key > (*y)->key;
}

/* Everything that was told of this worker goes, and nothing that others told. In an order that does
 * not depend on the table's secret. */
static void tell_all_removed(struct kvr_kv_translator *t)
{
    const struct kvr_kv_table *blocks = &t->blocks;
    const struct kvr_kv_entry **entries = calloc(blocks->length + 1, sizeof *entries);
    size_t count = 0;

    for (size_t i = 0; entries && blocks->slots && i <= blocks->mask; i++)
        if (blocks->slots[i].space)
            entries[count++] = &blocks->slots[i];
    if (entries)
        qsort(entries, count, sizeof *entries, by_space_and_key);
    else /* no memory to be exact: all that anyone knows of the worker is void */
        t->sink.cleared(t->sink.context, t->options.worker, "rebuild");
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
        for (size_t i = 0; i < count; i++)
            for (unsigned copy = 0; copy < entries[i]->references[medium]; copy++) {
                begin_run(t, RUN_REMOVED, medium, entries[i]->space, false, 0);
                add_to_run(t, wire(t, entries[i]->key, entries[i]->hash), NULL, 0);
            }
    end_run(t);
    free(entries);
}

void kvr_kv_translator_clear(struct kvr_kv_translator *translator, const char *reason)
{
    end_run(translator);
    if (translator->options.shared)
        tell_all_removed(translator);
    kvr_kv_table_release(&translator->blocks);
    kvr_kv_table_release(&translator->objects);
    kvr_kv_spaces_release(&translator->spaces);
    if (!translator->options.shared)
        translator->sink.cleared(translator->sink.context, translator->options.worker, reason);
}
