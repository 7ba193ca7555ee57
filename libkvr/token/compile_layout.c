/*
 * Laying out the image of a vocabulary. How large each section is follows from what was found, so
 * that all memory is asked for once and every table is written where it stays.
 */
#include "token/borders.h"
#include "token/compile.h"

#include <stdio.h>
#include <stdlib.h>

#define AHEAD 16 /* entries of a table asked for before they are written */

/* What the sections are made of, and the image as it is filled. */
struct layout {
    const struct kvr_compiler *c;
    struct kvr_image_header header;
    struct kvr_pair *pairs; /* those that happen, one a token */
    uint32_t pair_count;
    struct kvr_buffer trie;
    char *image;
};

static void *section_of(const struct layout *l, enum kvr_section section)
{
    return l->image + l->header.section[section].offset;
}

static bool gather_pairs(struct layout *l)
{
    const struct kvr_compiler *c = l->c;

    l->pairs = kvr_pages_malloc(((size_t)c->source->token_count + 1) * sizeof *l->pairs);
    if (!l->pairs)
        return false;
    for (uint32_t id = 0; id < c->source->token_count; id++) {
        const struct kvr_halves *h = &c->halves[id];
        if (h->left != id)
            l->pairs[l->pair_count++] = (struct kvr_pair){h->left, h->right, id};
    }
    return kvr_pair_table_size(
        l->pairs, l->pair_count, &l->header.pair_buckets, &l->header.filter_words);
}

static bool ids_in_order(const struct kvr_compiler *c)
{
    uint32_t last = 0;

    for (uint32_t id = 0; id < c->source->token_count; id++) {
        uint32_t order = kvr_compiled_order(c, id);
        if (order && order < last)
            return false;
        last = order ? order : last;
    }
    return true;
}

/* Sizes that the texts decide, and whether pieces may be cut; see borders.h. */
static void measure_texts(struct layout *l, size_t *text_bytes)
{
    const struct kvr_compiler *c = l->c;
    const struct kvr_source *source = c->source;
    bool cuts = source->model == KVR_MODEL_BYTE_BPE && !c->irregular;
    uint32_t borders = 0;

    *text_bytes = 0;
    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_source_token *token = &source->tokens[id];
        const uint8_t *bytes = c->bytes + token->offset;
        bool reachable = c->flags[id] & KVR_TOKEN_REACHABLE;
        bool own = token->length && !(token->flags & (KVR_TOKEN_ADDED | KVR_TOKEN_BYTE));
        for (uint32_t i = 1; reachable && i < token->length; i++)
            borders += (bytes[i] & 0xc0) == 0xc0;
        cuts = cuts && (reachable || !own || !source->ignore_merges);
        *text_bytes += token->length;
        if (token->length > l->header.longest_token_bytes)
            l->header.longest_token_bytes = token->length;
    }
    l->header.border_bits = 64;
    while (l->header.border_bits < borders * 8 && l->header.border_bits < UINT32_C(1) << 22)
        l->header.border_bits *= 2;
    if (cuts)
        l->header.special_flags |= KVR_VOCABULARY_CUTS;
}

/* Decides where every section lies. Each starts at a multiple of 64. */
static void place_sections(struct layout *l, size_t text_bytes)
{
    const struct kvr_source *source = l->c->source;
    struct kvr_image_header *h = &l->header;
    size_t end = sizeof *h, steps = 0;

    for (int i = 0; i < KVR_PIPELINE_COUNT; i++) {
        steps += source->step_count[i];
        h->step_first[i + 1] = (uint32_t)steps;
    }
    const struct {
        enum kvr_section section;
        size_t length;
    } sections[KVR_SECTION_COUNT] = {
        {KVR_SECTION_TOKEN_OFFSET, ((size_t)source->token_count + 1) * sizeof(uint32_t)},
        {KVR_SECTION_TOKEN_BYTES, text_bytes},
        {KVR_SECTION_TOKEN_FLAGS, source->token_count},
        {KVR_SECTION_PAIRS, h->pair_buckets * sizeof(struct kvr_pair_bucket)},
        {KVR_SECTION_FILTER, h->filter_words * sizeof(uint64_t)},
        {KVR_SECTION_WORDS, h->word_slots * sizeof(uint64_t)},
        {KVR_SECTION_BYTE_IDS, 256 * sizeof(uint32_t)},
        {KVR_SECTION_BYTE_PAIRS, 65536 * sizeof(uint32_t)},
        {KVR_SECTION_JOINS, 65536},
        {KVR_SECTION_BORDERS, h->border_bits / 8},
        {KVR_SECTION_PARTIAL_LEFT, 256},
        {KVR_SECTION_MERGES, h->merge_slots * sizeof(struct kvr_merge)},
        {KVR_SECTION_TRIE, l->trie.length},
        {KVR_SECTION_RECORDS, source->token_count * sizeof(struct kvr_token_record)},
        {KVR_SECTION_TEXT, source->text.length},
        {KVR_SECTION_STEPS, steps * sizeof(struct kvr_vocabulary_step)},
    };
    for (int i = 0; i < KVR_SECTION_COUNT; i++) {
        end = (end + 63) / 64 * 64;
        h->section[sections[i].section].offset = end;
        h->section[sections[i].section].length = sections[i].length;
        end += sections[i].length;
    }
    h->image_bytes = end;
}

static void fill_tokens(struct layout *l)
{
    const struct kvr_source *source = l->c->source;
    uint32_t *offset = section_of(l, KVR_SECTION_TOKEN_OFFSET), end = 0;
    char *bytes = section_of(l, KVR_SECTION_TOKEN_BYTES);

    offset[0] = 0;
    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_source_token *token = &source->tokens[id];
        if (token->length)
            memcpy(bytes + end, source->bytes.data + token->offset, token->length);
        end += token->length;
        offset[id + 1] = end;
    }
    memcpy(section_of(l, KVR_SECTION_TOKEN_FLAGS), l->c->flags, source->token_count);
}

static void fill_words(struct layout *l)
{
    const struct kvr_source *source = l->c->source;
    uint32_t slots = l->header.word_slots;
    uint64_t *words = section_of(l, KVR_SECTION_WORDS);

    memset(words, 0xff, slots * sizeof *words);
    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_source_token *token = &source->tokens[id];
        if (id + AHEAD < source->token_count && token[AHEAD].flags & KVR_SOURCE_FIRST)
            __builtin_prefetch(&words[(uint32_t)source->hashes[id + AHEAD] & (slots - 1)], 1);
        if (!token->length || token->flags & KVR_TOKEN_ADDED ||
            !(source->ignore_merges || l->c->flags[id] & KVR_TOKEN_REACHABLE) ||
            !(token->flags & KVR_SOURCE_FIRST))
            continue;
        uint64_t hash = source->hashes[id];
        uint32_t slot = (uint32_t)hash & (slots - 1);
        while (words[slot] != UINT64_MAX)
            slot = (slot + 1) & (slots - 1);
        words[slot] = (hash >> 32) << 32 | id;
    }
}

static void fill_byte_ids(struct layout *l)
{
    const struct kvr_source *source = l->c->source;
    uint32_t *byte_ids = section_of(l, KVR_SECTION_BYTE_IDS);
    bool all = true;

    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        byte_ids[b] =
            source->model == KVR_MODEL_CHAR_BPE
                ? (source->byte_fallback ? kvr_source_find(source, name, 6) : KVR_NO_TOKEN)
                : kvr_source_find(source, &(uint8_t){(uint8_t)b}, 1);
        all = all && byte_ids[b] != KVR_NO_TOKEN;
    }
    if (all && !l->c->irregular && source->token_count < KVR_TOKEN_LIMIT &&
        source->model == KVR_MODEL_BYTE_BPE &&
        l->header.special_flags & KVR_VOCABULARY_IDS_IN_ORDER)
        l->header.special_flags |= KVR_VOCABULARY_SHORT_MERGES;
}

/* What tokens have side by side: bytes, pairs of bytes that are a token, borders of characters. */
static void fill_neighbours(struct layout *l)
{
    const struct kvr_compiler *c = l->c;
    const struct kvr_source *source = c->source;
    uint32_t *pairs = section_of(l, KVR_SECTION_BYTE_PAIRS);
    uint8_t *joins = section_of(l, KVR_SECTION_JOINS);
    uint64_t *borders = section_of(l, KVR_SECTION_BORDERS);
    uint8_t *partial_left = section_of(l, KVR_SECTION_PARTIAL_LEFT);

    memset(pairs, 0xff, 65536 * sizeof *pairs);
    for (uint32_t id = 0; id < source->token_count; id++) {
        const uint8_t *bytes = c->bytes + source->tokens[id].offset;
        uint32_t length = source->tokens[id].length;
        uint8_t all = 0;
        if (!(c->flags[id] & KVR_TOKEN_REACHABLE))
            continue;
        for (uint32_t i = 1; i < length; i++) {
            joins[bytes[i - 1] << 8 | bytes[i]] = 1;
            all |= bytes[i - 1] | bytes[i];
        }
        if (all & 0x80) /* there are no borders between two characters of ASCII */
            kvr_borders_add(borders, l->header.border_bits - 1, partial_left, bytes, length);
        if (length == 2 && c->halves[id].left != id)
            pairs[bytes[0] << 8 | bytes[1]] = id;
    }
}

static void fill_records(struct layout *l)
{
    const struct kvr_compiler *c = l->c;
    struct kvr_token_record *records = section_of(l, KVR_SECTION_RECORDS);

    for (uint32_t id = 0; id < c->source->token_count; id++)
        records[id] = (struct kvr_token_record){
            .left = c->halves[id].left,
            .right = c->halves[id].right,
            .order = kvr_compiled_order(c, id),
            .shorter = c->flags[id] & KVR_TOKEN_REACHABLE ? c->shorter[id] : KVR_NO_TOKEN,
        };
}

static void fill_steps(struct layout *l)
{
    const struct kvr_source *source = l->c->source;
    struct kvr_vocabulary_step *steps = section_of(l, KVR_SECTION_STEPS);

    for (int i = 0; i < KVR_PIPELINE_COUNT; i++)
        if (source->step_count[i])
            memcpy(steps + l->header.step_first[i], source->steps[i],
                source->step_count[i] * sizeof *steps);
    if (source->text.length)
        memcpy(section_of(l, KVR_SECTION_TEXT), source->text.data, source->text.length);
}

static void fill(struct layout *l)
{
    const struct kvr_compiler *c = l->c;

    fill_tokens(l);
    kvr_pair_table_fill(l->pairs, l->pair_count, section_of(l, KVR_SECTION_PAIRS),
        l->header.pair_buckets, section_of(l, KVR_SECTION_FILTER), l->header.filter_words);
    fill_words(l);
    fill_byte_ids(l);
    fill_neighbours(l);
    if (c->irregular)
        memcpy(section_of(l, KVR_SECTION_MERGES), c->merges.data,
            c->merge_slots * sizeof(struct kvr_merge));
    memcpy(section_of(l, KVR_SECTION_TRIE), l->trie.data, l->trie.length);
    fill_records(l);
    fill_steps(l);
    memcpy(l->image, &l->header, sizeof l->header);
}

enum kvr_status kvr_compile_layout(
    struct kvr_compiler *c, struct kvr_pages *image, size_t *image_bytes, struct kvr_error *error)
{
    const struct kvr_source *source = c->source;
    struct layout l = {
        .c = c,
        .header =
            {
                .magic = {'k', 'v', 'r', 'v', 'o', 'c', 'a', 'b'},
                .header_bytes = sizeof l.header,
                .model = source->model,
                .token_count = source->token_count,
                .unknown_id = source->unknown_id,
                .special_flags = (source->ignore_merges ? KVR_VOCABULARY_IGNORE_MERGES : 0) |
                                 (source->byte_fallback ? KVR_VOCABULARY_BYTE_FALLBACK : 0) |
                                 (source->fuse_unknown ? KVR_VOCABULARY_FUSE_UNKNOWN : 0) |
                                 (source->folded ? KVR_VOCABULARY_FOLDED : 0) |
                                 (c->irregular ? KVR_VOCABULARY_IRREGULAR : 0) |
                                 (ids_in_order(c) ? KVR_VOCABULARY_IDS_IN_ORDER : 0),
                .merge_slots = c->irregular ? c->merge_slots : 1,
                .word_slots = 16,
            },
    };
    size_t text_bytes;
    enum kvr_status status =
        kvr_trie_build(c->order, c->order_count, c->bytes, source->tokens, &l.trie, error);

    if (!status && !gather_pairs(&l))
        status = kvr_error_memory(error);
    if (!status) {
        while (l.header.word_slots < source->token_count * 2)
            l.header.word_slots *= 2;
        l.header.trie_units = (uint32_t)(l.trie.length / sizeof(uint64_t));
        measure_texts(&l, &text_bytes);
        place_sections(&l, text_bytes);
        if (kvr_pages_grow(image, l.header.image_bytes)) {
            l.image = image->data;
            fill(&l);
            *image_bytes = l.header.image_bytes;
        } else {
            status = kvr_error_memory(error);
        }
    }
    free(l.pairs);
    kvr_buffer_release(&l.trie);
    return status;
}
