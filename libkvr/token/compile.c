/*
 * Compiling a source: finding, for every token, the one pair that forms it (vocabulary.h says why
 * there is only one), and laying out the tables of the image.
 *
 * Each token's own bytes are encoded once with the full set of merges; the last merge is the pair.
 * A token that does not come out of its own bytes is unreachable (588 tokens of Llama 3 are), and
 * a merge that no token's encoding ends with never happens anywhere (nearly half of the merges
 * that a SentencePiece conversion lists). Rank files have no merges list: there, a pair merges
 * when its concatenation is a token, and the token's id is the rank. Tokens are taken in order of
 * rank, so what can happen inside one is known from those before it: their pairs. Only where these
 * do not suffice are texts looked up.
 *
 * Cost: about 0.5 us a token; tokens are short, so the quadratic scan for the lowest rank wins
 * over a heap. The sum of squared lengths is bounded, so that no file can stall the compiler.
 */
#include "token/borders.h"
#include "token/unicode.h"
#include "token/vocabulary_source.h"

#include <stdio.h>
#include <stdlib.h>

#define WORK_LIMIT UINT64_C(2000000000)
#define AHEAD 16 /* entries of a table asked for before they are written */

struct part {
    uint32_t id, offset, length; /* bytes of the token being encoded */
    uint32_t order, result;      /* of merging with the next part; order 0: does not merge */
};

struct compiler {
    struct kvr_source *source;
    const uint8_t *bytes;
    struct kvr_token_record *records;
    uint8_t *flags;
    struct kvr_merge *slots; /* the full merges list, open addressing */
    uint32_t slot_mask;
    struct part *parts;
    uint64_t *found; /* of rank files: the pairs found so far, left:21 right:21 merged:21 */
    uint32_t found_mask;
    uint64_t *filter;        /* of all pairs that merge, as far as they are known: a bit each */
    uint32_t symbol_of[256]; /* of byte-level models: the token of a byte, or KVR_NO_TOKEN */
    bool by_text;            /* of rank files: look up texts instead of pairs */
    bool irregular;
};

/* Most pairs that are asked for do not merge, and the tables are larger than the caches. */
#define FILTER_BITS (UINT32_C(1) << 21)

static uint32_t filter_bit(uint32_t left, uint32_t right)
{
    return (uint32_t)(kvr_pair_hash(left, right) >> 40) % FILTER_BITS;
}

static void filter_add(struct compiler *c, uint32_t left, uint32_t right)
{
    uint32_t bit = filter_bit(left, right);

    c->filter[bit / 64] |= UINT64_C(1) << bit % 64;
}

static bool filter_has(const struct compiler *c, uint32_t left, uint32_t right)
{
    uint32_t bit = filter_bit(left, right);

    return c->filter[bit / 64] >> bit % 64 & 1;
}

static uint32_t merge_slot(const struct kvr_merge *slots, uint32_t mask, uint32_t l, uint32_t r)
{
    uint32_t slot = kvr_pair_slot(kvr_pair_hash(l, r)) & mask;

    while (slots[slot].order && (slots[slot].left != l || slots[slot].right != r))
        slot = (slot + 1) & mask;
    return slot;
}

static struct kvr_merge *index_merges(
    const struct kvr_merge *merges, uint32_t count, uint32_t *slot_mask)
{
    uint32_t slots = 16;

    while (slots < count * 2)
        slots *= 2;
    struct kvr_merge *table = calloc(slots, sizeof *table);
    if (!table)
        return NULL;
    *slot_mask = slots - 1;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = merge_slot(table, *slot_mask, merges[i].left, merges[i].right);
        table[slot] = merges[i];
        if (!merges[i].order) /* of equal pairs the last counts, as in the reference */
            table[slot].order = i + 1;
    }
    return table;
}

static uint64_t *found_slot(const struct compiler *c, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 21 | right;
    uint32_t slot = kvr_pair_slot(kvr_pair_hash(left, right)) & c->found_mask;

    while (c->found[slot] != UINT64_MAX && c->found[slot] >> 21 != key)
        slot = (slot + 1) & c->found_mask;
    return &c->found[slot];
}

/* Fills order and result of the pair (part, next). */
static void rank_pair(const struct compiler *c, struct part *part, const struct part *next)
{
    part->order = 0;
    if (c->source->ranked) {
        uint32_t id = KVR_NO_TOKEN;
        if (c->by_text) {
            id = kvr_source_find(
                c->source, c->bytes + part->offset, (size_t)part->length + next->length);
        } else if (filter_has(c, part->id, next->id)) {
            uint64_t entry = *found_slot(c, part->id, next->id);
            if (entry != UINT64_MAX)
                id = (uint32_t)(entry & (KVR_TOKEN_LIMIT - 1));
        }
        if (id != KVR_NO_TOKEN) {
            part->order = id + 1;
            part->result = id;
        }
        return;
    }
    if (!filter_has(c, part->id, next->id))
        return;
    const struct kvr_merge *merge =
        &c->slots[merge_slot(c->slots, c->slot_mask, part->id, next->id)];
    if (merge->order) {
        part->order = merge->order;
        part->result = merge->result;
    }
}

static uint32_t find_symbol(const struct compiler *c, const uint8_t *bytes, size_t length)
{
    uint32_t id = kvr_source_find(c->source, bytes, length);

    return id == KVR_NO_TOKEN || c->source->tokens[id].flags & KVR_TOKEN_BYTE ? KVR_NO_TOKEN : id;
}

/* The symbols of a token; 0 when one of them is no token, so that the token cannot be reached. */
static uint32_t split_symbols(const struct compiler *c, const struct kvr_source_token *token)
{
    const uint8_t *end = c->bytes + token->offset + token->length;
    uint32_t count = 0;

    for (uint32_t at = 0; at < token->length;) {
        unsigned length = 1;
        if (c->source->model == KVR_MODEL_CHAR_BPE)
            kvr_utf8_decode(c->bytes + token->offset + at, end, &length);
        uint32_t id = c->source->model == KVR_MODEL_CHAR_BPE
                          ? find_symbol(c, c->bytes + token->offset + at, length)
                          : c->symbol_of[c->bytes[token->offset + at]];
        if (id == KVR_NO_TOKEN)
            return 0;
        c->parts[count++] = (struct part){id, token->offset + at, length, 0, 0};
        at += length;
    }
    return count;
}

/* Two parts are left of a token of a rank file, and their pair is new: it is the token's. */
static void record_pair(
    struct compiler *c, uint32_t id, uint32_t left, uint32_t right, uint32_t order)
{
    c->records[id].left = left;
    c->records[id].right = right;
    c->records[id].order = order;
    c->flags[id] |= KVR_TOKEN_REACHABLE;
    if (c->source->ranked) {
        filter_add(c, left, right);
        *found_slot(c, left, right) = (uint64_t)left << 42 | (uint64_t)right << 21 | id;
    }
}

/* Encodes the token's own bytes and records the merge that ends in it. False: pairs found so far do
 * not lead to it. */
static bool find_pair(struct compiler *c, uint32_t id)
{
    struct part *parts = c->parts;
    uint32_t count = split_symbols(c, &c->source->tokens[id]);

    if (count == 1) {
        if (parts[0].id == id)
            c->flags[id] |= KVR_TOKEN_REACHABLE;
        return true;
    }
    for (uint32_t i = 0; i + 1 < count; i++)
        rank_pair(c, &parts[i], &parts[i + 1]);
    while (count > 1) {
        uint32_t best = UINT32_MAX, lowest = UINT32_MAX;
        for (uint32_t i = 0; i + 1 < count; i++) {
            if (parts[i].order - 1 < lowest) { /* 0 - 1 is the largest: does not merge */
                lowest = parts[i].order - 1;
                best = i;
            }
        }
        if (best == UINT32_MAX && count == 2 && c->source->ranked && !c->by_text) {
            record_pair(c, id, parts[0].id, parts[1].id, id + 1);
            return true;
        }
        if (best == UINT32_MAX)
            return false;
        uint32_t left = parts[best].id, right = parts[best + 1].id, order = parts[best].order;
        parts[best].id = parts[best].result;
        parts[best].length += parts[best + 1].length;
        count--;
        memmove(&parts[best + 1], &parts[best + 2], (count - best - 1) * sizeof *parts);
        if (count == 1) {
            if (parts[0].id == id)
                record_pair(c, id, left, right, order);
            return true;
        }
        if (best + 1 < count)
            rank_pair(c, &parts[best], &parts[best + 1]);
        else
            parts[best].order = 0;
        if (best)
            rank_pair(c, &parts[best - 1], &parts[best]);
    }
    return true;
}

static enum kvr_status find_pairs(struct compiler *c, struct kvr_error *error)
{
    struct kvr_source *source = c->source;
    uint64_t work = 0;
    uint32_t longest = 0;

    for (uint32_t id = 0; id < source->token_count; id++) {
        uint32_t length = source->tokens[id].length;
        work += (uint64_t)length * length;
        longest = length > longest ? length : longest;
    }
    if (work > WORK_LIMIT)
        return kvr_error_set(error, KVR_BAD_INPUT, "the tokens are too long to be a vocabulary");
    uint32_t slots = 16;
    while (slots < source->token_count * 2)
        slots *= 2;
    c->parts = malloc((longest + 1) * sizeof *c->parts);
    c->found = malloc(slots * sizeof *c->found);
    c->filter = calloc(FILTER_BITS / 64, sizeof *c->filter);
    if (!c->parts || !c->found || !c->filter)
        return kvr_error_memory(error);
    memset(c->found, 0xff, slots * sizeof *c->found);
    c->found_mask = slots - 1;
    for (uint32_t i = 0; !source->ranked && i < source->merge_count; i++)
        filter_add(c, source->merges[i].left, source->merges[i].right);
    for (int b = 0; b < 256; b++)
        c->symbol_of[b] = find_symbol(c, &(uint8_t){(uint8_t)b}, 1);
    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_source_token *token = &source->tokens[id];
        c->records[id].left = c->records[id].right = id;
        c->records[id].shorter = KVR_NO_TOKEN;
        c->flags[id] = token->flags & (uint8_t)~KVR_SOURCE_FIRST;
        if (token->length && !(token->flags & (KVR_TOKEN_ADDED | KVR_TOKEN_BYTE)) &&
            token->flags & KVR_SOURCE_FIRST && !find_pair(c, id) && source->ranked) {
            c->by_text = true;
            find_pair(c, id);
            c->by_text = false;
        }
    }
    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_token_record *r = &c->records[id];
        if (r->order &&
            (c->records[r->left].order >= r->order || c->records[r->right].order >= r->order))
            c->irregular = true;
    }
    return KVR_OK;
}

/* A rank file turns out irregular: list every split of every token as a merge. */
static enum kvr_status list_all_splits(struct kvr_source *source, struct kvr_error *error)
{
    const char *bytes = source->bytes.data;

    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_source_token *token = &source->tokens[id];
        for (uint32_t cut = 1; cut < token->length; cut++) {
            uint32_t left = kvr_source_find(source, bytes + token->offset, cut);
            uint32_t right =
                kvr_source_find(source, bytes + token->offset + cut, token->length - cut);
            if (left == KVR_NO_TOKEN || right == KVR_NO_TOKEN)
                continue;
            enum kvr_status status = kvr_source_add_merge(source, left, right, id, error);
            if (status)
                return status;
            source->merges[source->merge_count - 1].order = id + 1;
        }
    }
    return KVR_OK;
}

/* Appends a section at the next multiple of 64. */
static void put(struct kvr_buffer *image, struct kvr_image_header *header, enum kvr_section section,
    const void *data, size_t length)
{
    static const char zeros[64];

    kvr_buffer_append(image, zeros, (64 - image->length % 64) % 64);
    header->section[section].offset = image->length;
    header->section[section].length = length;
    kvr_buffer_append(image, data, length);
}

static bool put_tokens(
    const struct compiler *c, struct kvr_buffer *image, struct kvr_image_header *header)
{
    const struct kvr_source *source = c->source;
    struct kvr_buffer bytes = {0};
    uint32_t *offset = calloc((size_t)source->token_count + 1, sizeof *offset);

    if (!offset)
        return false;
    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_source_token *token = &source->tokens[id];
        kvr_buffer_append(&bytes, source->bytes.data + token->offset, token->length);
        offset[id + 1] = (uint32_t)bytes.length;
        if (token->length > header->longest_token_bytes)
            header->longest_token_bytes = token->length;
    }
    put(image, header, KVR_SECTION_TOKEN_OFFSET, offset,
        ((size_t)source->token_count + 1) * sizeof *offset);
    put(image, header, KVR_SECTION_TOKEN_BYTES, bytes.data, bytes.length);
    put(image, header, KVR_SECTION_TOKEN_FLAGS, c->flags, source->token_count);
    bool ok = !bytes.failed;
    kvr_buffer_release(&bytes);
    free(offset);
    return ok;
}

/* The table of the pairs that happen, one a token. */
static bool put_pairs(
    const struct compiler *c, struct kvr_buffer *image, struct kvr_image_header *header)
{
    struct kvr_pair *pairs = malloc(((size_t)c->source->token_count + 1) * sizeof *pairs);
    struct kvr_pair_bucket *buckets = NULL;
    uint64_t *filter = NULL;
    uint32_t count = 0;

    for (uint32_t id = 0; pairs && id < c->source->token_count; id++) {
        const struct kvr_token_record *r = &c->records[id];
        if (r->order)
            pairs[count++] = (struct kvr_pair){r->left, r->right, id};
    }
    if (pairs)
        buckets = kvr_pair_table_build(
            pairs, count, &header->pair_buckets, &filter, &header->filter_words);
    if (buckets) {
        put(image, header, KVR_SECTION_PAIRS, buckets, header->pair_buckets * sizeof *buckets);
        put(image, header, KVR_SECTION_FILTER, filter, header->filter_words * sizeof *filter);
    }
    free(pairs);
    free(buckets);
    free(filter);
    return buckets != NULL;
}

static bool ids_in_order(const struct compiler *c)
{
    uint32_t last = 0;

    for (uint32_t id = 0; id < c->source->token_count; id++) {
        if (c->records[id].order && c->records[id].order < last)
            return false;
        if (c->records[id].order)
            last = c->records[id].order;
    }
    return true;
}

static bool put_words(
    const struct compiler *c, struct kvr_buffer *image, struct kvr_image_header *header)
{
    const struct kvr_source *source = c->source;
    uint32_t slots = 16;

    while (slots < source->token_count * 2)
        slots *= 2;
    uint64_t *words = malloc(slots * sizeof *words);
    if (!words)
        return false;
    memset(words, 0xff, slots * sizeof *words);
    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_source_token *token = &source->tokens[id];
        if (id + AHEAD < source->token_count)
            __builtin_prefetch(&words[(uint32_t)source->hashes[id + AHEAD] & (slots - 1)]);
        if (!token->length || token->flags & KVR_TOKEN_ADDED ||
            !(source->ignore_merges || c->flags[id] & KVR_TOKEN_REACHABLE) ||
            !(token->flags & KVR_SOURCE_FIRST))
            continue;
        uint64_t hash = source->hashes[id];
        uint32_t slot = (uint32_t)hash & (slots - 1);
        while (words[slot] != UINT64_MAX)
            slot = (slot + 1) & (slots - 1);
        words[slot] = (hash >> 32) << 32 | id;
    }
    header->word_slots = slots;
    put(image, header, KVR_SECTION_WORDS, words, slots * sizeof *words);
    free(words);
    return true;
}

static enum kvr_status put_trie(const struct compiler *c, struct kvr_buffer *image,
    struct kvr_image_header *header, struct kvr_error *error)
{
    const struct kvr_source *source = c->source;
    struct kvr_trie_key *keys = malloc(((size_t)source->token_count + 1) * sizeof *keys);
    struct kvr_buffer units = {0};
    uint32_t count = 0;

    if (!keys)
        return kvr_error_memory(error);
    for (uint32_t id = 0; id < source->token_count; id++)
        if (c->flags[id] & KVR_TOKEN_REACHABLE)
            keys[count++] = (struct kvr_trie_key){.bytes = c->bytes + source->tokens[id].offset,
                .length = source->tokens[id].length,
                .token = id};
    enum kvr_status status = kvr_trie_build(keys, count, &units, error);
    for (uint32_t i = 0; i < count && !status; i++)
        c->records[keys[i].token].shorter = keys[i].shorter;
    header->trie_units = (uint32_t)(units.length / sizeof(uint64_t));
    put(image, header, KVR_SECTION_TRIE, units.data, units.length);
    kvr_buffer_release(&units);
    free(keys);
    return status;
}

static bool put_byte_tables(
    const struct compiler *c, struct kvr_buffer *image, struct kvr_image_header *header)
{
    const struct kvr_source *source = c->source;
    uint32_t byte_ids[256];
    uint8_t *joins = calloc(65536, 1);
    uint32_t *pairs = malloc(65536 * sizeof *pairs);
    bool all = true;

    if (!joins || !pairs) {
        free(joins);
        free(pairs);
        return false;
    }
    memset(pairs, 0xff, 65536 * sizeof *pairs);
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        byte_ids[b] =
            source->model == KVR_MODEL_CHAR_BPE
                ? (source->byte_fallback ? kvr_source_find(source, name, 6) : KVR_NO_TOKEN)
                : kvr_source_find(source, &(uint8_t){(uint8_t)b}, 1);
    }
    for (uint32_t id = 0; id < source->token_count; id++) {
        const uint8_t *bytes = c->bytes + source->tokens[id].offset;
        if (c->flags[id] & KVR_TOKEN_REACHABLE)
            for (uint32_t i = 1; i < source->tokens[id].length; i++)
                joins[bytes[i - 1] << 8 | bytes[i]] = 1;
    }
    for (int b = 0; b < 256; b++)
        all = all && byte_ids[b] != KVR_NO_TOKEN;
    for (uint32_t id = 0; id < source->token_count; id++)
        if (c->records[id].order && source->tokens[id].length == 2) {
            const uint8_t *bytes = c->bytes + source->tokens[id].offset;
            pairs[bytes[0] << 8 | bytes[1]] = id;
        }
    if (all && !c->irregular && source->token_count < KVR_TOKEN_LIMIT &&
        source->model == KVR_MODEL_BYTE_BPE && header->special_flags & KVR_VOCABULARY_IDS_IN_ORDER)
        header->special_flags |= KVR_VOCABULARY_SHORT_MERGES;
    put(image, header, KVR_SECTION_BYTE_IDS, byte_ids, sizeof byte_ids);
    put(image, header, KVR_SECTION_BYTE_PAIRS, pairs, 65536 * sizeof *pairs);
    free(pairs);
    put(image, header, KVR_SECTION_JOINS, joins, 65536);
    free(joins);
    return true;
}

/* The borders that tokens cross; see borders.h. */
static bool put_borders(
    const struct compiler *c, struct kvr_buffer *image, struct kvr_image_header *header)
{
    const struct kvr_source *source = c->source;
    uint8_t partial_left[256] = {0};
    uint32_t bits = 64, count = 0;
    bool cuts = source->model == KVR_MODEL_BYTE_BPE && !c->irregular;

    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_source_token *token = &source->tokens[id];
        bool reachable = c->flags[id] & KVR_TOKEN_REACHABLE;
        bool own = token->length && !(token->flags & (KVR_TOKEN_ADDED | KVR_TOKEN_BYTE));
        for (uint32_t i = 1; reachable && i < token->length; i++)
            count += (c->bytes[token->offset + i] & 0xc0) == 0xc0;
        cuts = cuts && (reachable || !own || !source->ignore_merges);
    }
    while (bits < count * 8 && bits < UINT32_C(1) << 22)
        bits *= 2;
    uint64_t *map = calloc(bits / 64, sizeof *map);
    if (!map)
        return false;
    for (uint32_t id = 0; id < source->token_count; id++)
        if (c->flags[id] & KVR_TOKEN_REACHABLE)
            kvr_borders_add(map, bits - 1, partial_left, c->bytes + source->tokens[id].offset,
                source->tokens[id].length);
    header->border_bits = bits;
    if (cuts)
        header->special_flags |= KVR_VOCABULARY_CUTS;
    put(image, header, KVR_SECTION_BORDERS, map, bits / 8);
    put(image, header, KVR_SECTION_PARTIAL_LEFT, partial_left, sizeof partial_left);
    free(map);
    return true;
}

static void put_pipelines(
    const struct compiler *c, struct kvr_buffer *image, struct kvr_image_header *header)
{
    const struct kvr_source *source = c->source;
    struct kvr_buffer steps = {0};

    for (int i = 0; i < KVR_PIPELINE_COUNT; i++) {
        header->step_first[i + 1] = header->step_first[i] + source->step_count[i];
        kvr_buffer_append(
            &steps, source->steps[i], source->step_count[i] * sizeof(struct kvr_vocabulary_step));
    }
    put(image, header, KVR_SECTION_TEXT, source->text.data, source->text.length);
    put(image, header, KVR_SECTION_STEPS, steps.data, steps.length);
    image->failed |= steps.failed;
    kvr_buffer_release(&steps);
}

static enum kvr_status lay_out(
    struct compiler *c, struct kvr_buffer *image, struct kvr_error *error)
{
    const struct kvr_source *source = c->source;
    struct kvr_image_header header = {
        .magic = {'k', 'v', 'r', 'v', 'o', 'c', 'a', 'b'},
        .header_bytes = sizeof header,
        .model = source->model,
        .token_count = source->token_count,
        .unknown_id = source->unknown_id,
        .special_flags = (source->ignore_merges ? KVR_VOCABULARY_IGNORE_MERGES : 0) |
                         (source->byte_fallback ? KVR_VOCABULARY_BYTE_FALLBACK : 0) |
                         (source->fuse_unknown ? KVR_VOCABULARY_FUSE_UNKNOWN : 0) |
                         (source->folded ? KVR_VOCABULARY_FOLDED : 0) |
                         (c->irregular ? KVR_VOCABULARY_IRREGULAR : 0) |
                         (ids_in_order(c) ? KVR_VOCABULARY_IDS_IN_ORDER : 0),
        .merge_slots = c->irregular ? c->slot_mask + 1 : 1,
    };
    struct kvr_merge none = {0};

    kvr_buffer_append(image, &header, sizeof header);
    if (!put_tokens(c, image, &header) || !put_pairs(c, image, &header) ||
        !put_words(c, image, &header) || !put_byte_tables(c, image, &header) ||
        !put_borders(c, image, &header))
        return kvr_error_memory(error);
    put(image, &header, KVR_SECTION_MERGES, c->irregular ? c->slots : &none,
        header.merge_slots * sizeof none);
    enum kvr_status status = put_trie(c, image, &header, error);
    if (status)
        return status;
    put(image, &header, KVR_SECTION_RECORDS, c->records,
        source->token_count * sizeof *c->records); /* after the trie, which fills `shorter` */
    put_pipelines(c, image, &header);
    if (image->failed)
        return kvr_error_memory(error);
    header.image_bytes = image->length;
    memcpy(image->data, &header, sizeof header);
    return KVR_OK;
}

enum kvr_status kvr_source_compile(
    struct kvr_source *source, struct kvr_buffer *image, struct kvr_error *error)
{
    struct compiler c = {.source = source};
    enum kvr_status status = kvr_source_index(source, error);

    if (status)
        return status;
    c.bytes = (const uint8_t *)source->bytes.data;
    c.records = calloc((size_t)source->token_count + 1, sizeof *c.records);
    c.flags = calloc((size_t)source->token_count + 1, 1);
    c.slots = index_merges(source->merges, source->merge_count, &c.slot_mask);
    if (!c.records || !c.flags || !c.slots)
        status = kvr_error_memory(error);
    if (!status)
        status = find_pairs(&c, error);
    if (!status && c.irregular && source->ranked) {
        status = list_all_splits(source, error);
        free(c.slots);
        c.slots = status ? NULL : index_merges(source->merges, source->merge_count, &c.slot_mask);
        if (!status && !c.slots)
            status = kvr_error_memory(error);
    }
    if (!status)
        status = lay_out(&c, image, error);
    free(c.records);
    free(c.flags);
    free(c.slots);
    free(c.parts);
    free(c.found);
    free(c.filter);
    return status;
}
