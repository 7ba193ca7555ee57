#include "net/kv_event_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

enum { FIRST_SLOTS = 64, HUGE_PAGE_BYTES = 2 << 20, KEPT_ELEMENTS = 1 << 18, RESIZE_AHEAD = 16 };

/* Drawn once; no answer depends on it. */
static uint64_t secret;
static pthread_once_t secret_once = PTHREAD_ONCE_INIT;

static void draw_secret(void)
{
    if (getrandom(&secret, sizeof secret, GRND_NONBLOCK) != (ssize_t)sizeof secret)
        secret = (uint64_t)time(NULL) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline uint64_t mix(uint64_t key)
{
    key = (key ^ secret) * UINT64_C(0xff51afd7ed558ccd);
    key = (key ^ key >> 32 ^ secret) * UINT64_C(0xc4ceb9fe1a85ec53);
    return key ^ key >> 29;
}

void kvr_kv_memory_release(struct kvr_kv_memory *memory)
{
    kvr_kv_decoder_release(&memory->decoder);
    free(memory->ids);
    free(memory->tokens);
    memory->ids = NULL;
    memory->tokens = NULL;
    memory->id_room = memory->token_room = 0;
}

void kvr_kv_memory_trim(struct kvr_kv_memory *memory)
{
    if (memory->decoder.hash_room > KEPT_ELEMENTS || memory->decoder.tokens.room > KEPT_ELEMENTS ||
        memory->decoder.tokens.list_room > KEPT_ELEMENTS || memory->id_room > KEPT_ELEMENTS ||
        memory->token_room > KEPT_ELEMENTS)
        kvr_kv_memory_release(memory);
}

void kvr_kv_table_init(struct kvr_kv_table *table, struct kvr_kv_memory *memory)
{
    memset(table, 0, sizeof *table);
    table->memory = memory;
    pthread_once(&secret_once, draw_secret);
}

static size_t bytes_of(const struct kvr_kv_table *table)
{
    return table->slots ? (table->mask + 1) * sizeof *table->slots : 0;
}

void kvr_kv_table_release(struct kvr_kv_table *table)
{
    table->memory->used -= bytes_of(table);
    free(table->slots);
    kvr_kv_table_init(table, table->memory);
}

void kvr_kv_table_prefetch(const struct kvr_kv_table *table, uint64_t key)
{
    if (!table->slots)
        return;
    const struct kvr_kv_entry *slot = &table->slots[mix(key) & table->mask];
    __builtin_prefetch(slot, 1);
    __builtin_prefetch(slot + 2, 1); /* the next line: it is where long searches end */
}

struct kvr_kv_entry *kvr_kv_table_find(const struct kvr_kv_table *table, uint64_t key)
{
    if (!table->slots)
        return NULL;
    for (size_t at = mix(key) & table->mask;; at = (at + 1) & table->mask) {
        struct kvr_kv_entry *entry = &table->slots[at];
        if (!entry->space)
            return NULL;
        if (entry->key == key)
            return entry;
    }
}

/* Large tables on large pages: look-ups are at random, so most would miss the TLB too. */
static void *zeroed(size_t bytes)
{
    void *memory;

    if (bytes < 2 * HUGE_PAGE_BYTES)
        return calloc(1, bytes);
    if (posix_memalign(&memory, HUGE_PAGE_BYTES, bytes) != 0)
        return NULL;
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memset(memory, 0, bytes);
}

static bool resize(struct kvr_kv_table *table, size_t slots)
{
    size_t old_bytes = bytes_of(table), new_bytes = slots * sizeof *table->slots;
    struct kvr_kv_entry *old = table->slots;
    size_t old_slots = old ? table->mask + 1 : 0;

    if (new_bytes > old_bytes && new_bytes - old_bytes > table->memory->limit - table->memory->used)
        return false;
    struct kvr_kv_entry *fresh = zeroed(new_bytes);
    if (!fresh)
        return false;
    table->slots = fresh;
    table->mask = slots - 1;
    for (size_t i = 0; i < old_slots; i++) {
        if (i + RESIZE_AHEAD < old_slots)
            __builtin_prefetch(&fresh[mix(old[i + RESIZE_AHEAD].key) & table->mask], 1);
        if (!old[i].space)
            continue;
        size_t at = mix(old[i].key) & table->mask;
        while (fresh[at].space)
            at = (at + 1) & table->mask;
        fresh[at] = old[i];
    }
    free(old);
    table->memory->used = table->memory->used - old_bytes + new_bytes;
    return true;
}

/* The slot of key, or the free one where it would go. */
static struct kvr_kv_entry *probe(const struct kvr_kv_table *table, uint64_t key)
{
    size_t at = mix(key) & table->mask;

    while (table->slots[at].space && table->slots[at].key != key)
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

struct kvr_kv_entry *kvr_kv_table_insert(
    struct kvr_kv_table *table, uint64_t key, uint32_t space, bool *inserted)
{
    struct kvr_kv_entry *slot = table->slots ? probe(table, key) : NULL;

    *inserted = false;
    if (slot && slot->space)
        return slot;
    size_t slots = table->slots ? table->mask + 1 : 0;
    if ((table->length + 1) * 4 > slots * 3) {
        if (resize(table, slots ? 2 * slots : FIRST_SLOTS))
            slot = probe(table, key);
        else if ((table->length + 1) * 8 > slots * 7) /* filled further, but never quite */
            return NULL;
    }
    *slot = (struct kvr_kv_entry){.key = key, .space = space};
    table->length++;
    *inserted = true;
    return slot;
}

void kvr_kv_table_remove(struct kvr_kv_table *table, struct kvr_kv_entry *entry)
{
    size_t hole = (size_t)(entry - table->slots), at = hole;

    for (;;) {
        at = (at + 1) & table->mask;
        if (!table->slots[at].space)
            break;
        size_t home = mix(table->slots[at].key) & table->mask;
        /* An entry may move into the hole unless its home lies behind it. */
        if (((at - home) & table->mask) >= ((at - hole) & table->mask)) {
            table->slots[hole] = table->slots[at];
            hole = at;
        }
    }
    table->slots[hole].space = 0;
    table->length--;
    size_t slots = table->mask + 1;
    if (!table->length)
        kvr_kv_table_release(table);
    else if (slots > FIRST_SLOTS && table->length < slots / 8)
        resize(table, slots / 2); /* a failure only costs memory */
}
