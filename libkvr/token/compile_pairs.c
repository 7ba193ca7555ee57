/*
 * Finding, for every token, the one pair that forms it (vocabulary.h says why there is only one).
 *
 * The definition: a token's own bytes are encoded with the full set of merges; the last merge is
 * the pair. A token that does not come out of its own bytes is unreachable (588 tokens of Llama 3
 * are), and a merge that no token's encoding ends with never happens anywhere (nearly half of the
 * merges that a SentencePiece conversion lists). Rank files have no merges list: there, a pair
 * merges when its concatenation is a token, and the token's id is the rank. Tokens are taken in
 * order of rank, so what can happen inside one is known from those before it: their pairs. Only
 * where these do not suffice are texts looked up.
 *
 * The short cut: the last merge of a token joins two tokens whose pairs are known, and a pair is
 * the right one exactly when nothing merges across the seam of its halves before they are whole.
 * That is what compatible() in bpe.c asks, a few questions at the seam, where encoding asks one for
 * every two neighbours again and again. Merges are tried in their order, so that the halves of each
 * are known if they can be; tokens of rank files are tried with the tokens that they start with,
 * the longest first. The proof needs every pair inside the halves to come after the pairs of its
 * own halves, so it ends where the first token breaks that order, and whatever it does not settle
 * is encoded.
 *
 * Cost: about 0.1 us a token by the short cut, 0.3 us by encoding; tokens are short, so the
 * quadratic scan for the lowest rank wins over a heap. The sum of squared lengths is bounded, so
 * that no file can stall the compiler.
 */
#include "token/compile.h"
#include "token/unicode.h"

#include <stdlib.h>

#define WORK_LIMIT UINT64_C(2000000000)
#define TRIES 4   /* of halves for a token of a rank file */
#define GUESSES 2 /* of them for which memory is asked ahead */
#define STEP 8    /* tokens between asking and reading */
#define RING 64   /* a power of two above seven steps */

struct part {
    uint32_t id, offset, length; /* bytes of the token being encoded */
    uint32_t order, result;      /* of merging with the next part; order 0: does not merge */
};

struct search {
    struct kvr_compiler *c;
    struct kvr_source *source;
    struct kvr_halves *halves;
    struct part *parts;
    struct kvr_pages pages;
    uint32_t *slots; /* by pair: of entry_bits 1 + number of the merge, of rank files 1 + the token;
                        above them bits of the hash; 0: empty */
    uint32_t slot_mask, entry_bits;
    uint64_t *filter;        /* of all pairs that merge, as far as they are known: a bit each */
    uint32_t symbol_of[256]; /* of byte-level models: the token of a byte, or KVR_NO_TOKEN */
    bool by_text;            /* of rank files: look up texts instead of pairs */
    bool orderly;            /* every pair so far comes after those of its halves */
};

/* What a pair merges to. Order 0: to nothing. */
struct outcome {
    uint32_t order, result;
};

/* Most pairs that are asked for do not merge, and the tables are larger than the caches. */
#define FILTER_BITS (UINT32_C(1) << 21)

static inline uint32_t filter_bit(uint64_t hash)
{
    return (uint32_t)(hash >> 40) % FILTER_BITS;
}

/* The slot of a pair, or the free one where it would be. */
static inline uint32_t *pair_slot(
    const struct search *s, uint32_t left, uint32_t right, uint64_t hash)
{
    uint32_t slot = kvr_pair_slot(hash) & s->slot_mask;
    uint32_t tag = (uint32_t)(hash >> 32) >> s->entry_bits;

    for (; s->slots[slot]; slot = (slot + 1) & s->slot_mask) {
        if (s->slots[slot] >> s->entry_bits != tag)
            continue;
        uint32_t number = (s->slots[slot] & ((UINT32_C(1) << s->entry_bits) - 1)) - 1;
        const uint32_t *pair =
            s->source->ranked ? &s->halves[number].left : &s->source->merges[number].left;
        if (pair[0] == left && pair[1] == right)
            break;
    }
    return &s->slots[slot];
}

static inline struct outcome find_merge(const struct search *s, uint32_t left, uint32_t right)
{
    uint64_t hash = kvr_pair_hash(left, right);
    uint32_t bit = filter_bit(hash);

    if (!(s->filter[bit / 64] >> bit % 64 & 1))
        return (struct outcome){0, 0};
    uint32_t entry = *pair_slot(s, left, right, hash) & ((UINT32_C(1) << s->entry_bits) - 1);
    return (struct outcome){
        entry, s->source->ranked || !entry ? entry - 1 : s->source->merges[entry - 1].result};
}

/* Of equal pairs the last counts, as in the reference. */
static void enter_pair(struct search *s, uint32_t left, uint32_t right, uint32_t entry)
{
    uint64_t hash = kvr_pair_hash(left, right);
    uint32_t bit = filter_bit(hash);

    *pair_slot(s, left, right, hash) =
        (uint32_t)(hash >> 32) >> s->entry_bits << s->entry_bits | entry;
    s->filter[bit / 64] |= UINT64_C(1) << bit % 64;
}

/* Fills order and result of the pair (part, next). */
static void rank_pair(const struct search *s, struct part *part, const struct part *next)
{
    if (s->by_text) {
        uint32_t id = kvr_source_find(
            s->source, s->c->bytes + part->offset, (size_t)part->length + next->length);
        part->order = id == KVR_NO_TOKEN ? 0 : id + 1;
        part->result = id;
        return;
    }
    struct outcome outcome = find_merge(s, part->id, next->id);
    part->order = outcome.order;
    part->result = outcome.result;
}

static uint32_t find_symbol(const struct search *s, const uint8_t *bytes, size_t length)
{
    uint32_t id = kvr_source_find(s->source, bytes, length);

    return id == KVR_NO_TOKEN || s->source->tokens[id].flags & KVR_TOKEN_BYTE ? KVR_NO_TOKEN : id;
}

/* The symbols of a token; 0 when one of them is no token, so that the token cannot be reached. */
static uint32_t split_symbols(const struct search *s, const struct kvr_source_token *token)
{
    const uint8_t *bytes = s->c->bytes + token->offset;
    uint32_t count = 0;

    for (uint32_t at = 0; at < token->length;) {
        unsigned length = 1;
        if (s->source->model == KVR_MODEL_CHAR_BPE)
            kvr_utf8_decode(bytes + at, bytes + token->length, &length);
        uint32_t id = s->source->model == KVR_MODEL_CHAR_BPE ? find_symbol(s, bytes + at, length)
                                                             : s->symbol_of[bytes[at]];
        if (id == KVR_NO_TOKEN)
            return 0;
        s->parts[count++] = (struct part){id, token->offset + at, length, 0, 0};
        at += length;
    }
    return count;
}

static void record_pair(
    struct search *s, uint32_t id, uint32_t left, uint32_t right, uint32_t order)
{
    s->halves[id] = (struct kvr_halves){left, right};
    if (s->c->orders)
        s->c->orders[id] = order;
    s->c->flags[id] |= KVR_TOKEN_REACHABLE;
    if (s->source->ranked)
        enter_pair(s, left, right, id + 1);
}

/* Encodes the token's own bytes and records the merge that ends in it. False: pairs found so far do
 * not lead to it. */
static bool encode_token(struct search *s, uint32_t id)
{
    struct part *parts = s->parts;
    uint32_t count = split_symbols(s, &s->source->tokens[id]);

    if (count == 1) {
        if (parts[0].id == id)
            s->c->flags[id] |= KVR_TOKEN_REACHABLE;
        return true;
    }
    for (uint32_t i = 0; i + 1 < count; i++)
        rank_pair(s, &parts[i], &parts[i + 1]);
    while (count > 1) {
        uint32_t best = UINT32_MAX, lowest = UINT32_MAX;
        for (uint32_t i = 0; i + 1 < count; i++) {
            if (parts[i].order - 1 < lowest) { /* 0 - 1 is the largest: does not merge */
                lowest = parts[i].order - 1;
                best = i;
            }
        }
        /* two parts are left of a token of a rank file, and their pair is new: it is the token's */
        if (best == UINT32_MAX && count == 2 && s->source->ranked && !s->by_text) {
            record_pair(s, id, parts[0].id, parts[1].id, id + 1);
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
                record_pair(s, id, left, right, order);
            return true;
        }
        if (best + 1 < count)
            rank_pair(s, &parts[best], &parts[best + 1]);
        else
            parts[best].order = 0;
        if (best)
            rank_pair(s, &parts[best - 1], &parts[best]);
    }
    return true;
}

/* Whether two tokens whose pairs are known stay side by side until both are whole; see bpe.c. */
static bool seam_holds(const struct search *s, uint32_t x, uint32_t y)
{
    uint32_t left = kvr_compiled_order(s->c, x), right = kvr_compiled_order(s->c, y);

    while (left | right) {
        uint32_t limit;
        if (left > right) {
            limit = left;
            x = s->halves[x].right;
            left = kvr_compiled_order(s->c, x);
        } else {
            limit = right + 1;
            y = s->halves[y].left;
            right = kvr_compiled_order(s->c, y);
        }
        uint32_t order = find_merge(s, x, y).order;
        if (order && order < limit)
            return false;
    }
    return true;
}

/* Tokens of one symbol need no merge. */
static void mark_symbols(struct search *s)
{
    const struct kvr_source *source = s->source;

    for (uint32_t i = 0; i < s->c->order_count; i++) {
        const struct kvr_ordered_text *text = &s->c->order[i];
        unsigned length = 1;
        if (source->model == KVR_MODEL_CHAR_BPE && text->length > 1 && text->length <= 4) {
            const uint8_t *bytes = s->c->bytes + source->tokens[text->id].offset;
            kvr_utf8_decode(bytes, bytes + text->length, &length);
        }
        if (length == text->length)
            s->c->flags[text->id] |= KVR_TOKEN_REACHABLE;
    }
}

static inline void ask_pair(const struct search *s, uint32_t merge)
{
    if (merge >= s->source->merge_count)
        return;
    const struct kvr_merge *m = &s->source->merges[merge];
    __builtin_prefetch(&s->slots[kvr_pair_slot(kvr_pair_hash(m->left, m->right)) & s->slot_mask]);
    __builtin_prefetch(&s->halves[m->left]);
    __builtin_prefetch(&s->halves[m->right]);
}

/* Tries the merges in their order. */
static void try_merges(struct search *s)
{
    const struct kvr_source *source = s->source;
    const uint8_t *flags = s->c->flags;

    for (uint32_t i = 0; i < source->merge_count; i++) {
        const struct kvr_merge *merge = &source->merges[i];
        ask_pair(s, i + STEP);
        if (!(flags[merge->left] & flags[merge->right] & KVR_TOKEN_REACHABLE) ||
            flags[merge->result] & KVR_TOKEN_REACHABLE ||
            !kvr_source_is_own(&source->tokens[merge->result]))
            continue;
        /* no character may come of two halves of one */
        if (source->model == KVR_MODEL_CHAR_BPE &&
            (s->c->bytes[source->tokens[merge->right].offset] & 0xc0) == 0x80)
            continue;
        if (find_merge(s, merge->left, merge->right).order == i + 1 &&
            seam_holds(s, merge->left, merge->right))
            record_pair(s, merge->result, merge->left, merge->right, i + 1);
    }
}

/* The first halves to try for a token of a rank file. */
struct guess {
    uint32_t left;  /* none, or one to pass over */
    uint32_t right; /* the token that is likely, or none */
    uint64_t hash;  /* of the text of the right half */
};

/* The next token that a text starts with, and that comes before `id`. */
static inline uint32_t next_left(const struct search *s, uint32_t left, uint32_t id)
{
    do
        left = s->c->shorter[left];
    while (left != KVR_NO_TOKEN && left >= id);
    return left;
}

/* What a guess will need is asked for in phases, each a few tokens before the next, so that nobody
 * waits for memory. First the token itself, behind the one that was guessed before it. */
static inline void guess_left(const struct search *s, uint32_t id, uint32_t before, struct guess *g)
{
    g->right = KVR_NO_TOKEN;
    g->left = before == KVR_NO_TOKEN ? before : next_left(s, before, id);
    if (g->left == KVR_NO_TOKEN)
        return;
    __builtin_prefetch(&s->source->tokens[g->left]);
    __builtin_prefetch(&s->c->shorter[g->left]);
}

/* Where the text of the right half may be found. */
static inline void ask_slot(const struct search *s, uint32_t id, struct guess *g)
{
    if (g->left == KVR_NO_TOKEN)
        return;
    const struct kvr_source_token *token = &s->source->tokens[id];
    uint32_t length = s->source->tokens[g->left].length;
    g->hash = kvr_source_hash(s->c->bytes + token->offset + length, token->length - length);
    kvr_source_ask_slot(s->source, g->hash);
    __builtin_prefetch(&s->halves[g->left]);
}

static inline void ask_right(const struct search *s, struct guess *g)
{
    if (g->left != KVR_NO_TOKEN)
        g->right = kvr_source_ask_token(s->source, g->hash);
}

static inline void ask_text(const struct search *s, const struct guess *g)
{
    if (g->right == KVR_NO_TOKEN)
        return;
    __builtin_prefetch(&s->halves[g->right]);
    __builtin_prefetch(&s->c->flags[g->right]);
    __builtin_prefetch(s->c->bytes + s->source->tokens[g->right].offset);
}

/* The tokens next to the seam, and where the pair would be entered. */
static inline void ask_seam(const struct search *s, const struct guess *g)
{
    if (g->right == KVR_NO_TOKEN)
        return;
    uint64_t hash = kvr_pair_hash(g->left, g->right);
    __builtin_prefetch(&s->halves[s->halves[g->left].right]);
    __builtin_prefetch(&s->halves[s->halves[g->right].left]);
    __builtin_prefetch(&s->slots[kvr_pair_slot(hash) & s->slot_mask], 1);
}

/* Those behind them. */
static inline void ask_behind(const struct search *s, const struct guess *g)
{
    if (g->right == KVR_NO_TOKEN)
        return;
    __builtin_prefetch(&s->halves[s->halves[s->halves[g->left].right].right]);
    __builtin_prefetch(&s->halves[s->halves[s->halves[g->right].left].left]);
}

/* Tries the halves of a token of a rank file. False: none was found. */
static bool try_halves(struct search *s, uint32_t id, const struct guess guesses[GUESSES])
{
    const struct kvr_source *source = s->source;
    const struct kvr_source_token *token = &source->tokens[id];
    const uint8_t *bytes = s->c->bytes + token->offset, *flags = s->c->flags;
    uint32_t left = next_left(s, id, id);

    for (int tries = 0; tries < TRIES && left != KVR_NO_TOKEN; tries++) {
        uint32_t length = source->tokens[left].length, rest = token->length - length;
        uint64_t hash =
            tries < GUESSES ? guesses[tries].hash : kvr_source_hash(bytes + length, rest);
        uint32_t right = kvr_source_find_hashed(source, hash, bytes + length, rest);
        if (right < id && flags[left] & flags[right] & KVR_TOKEN_REACHABLE &&
            seam_holds(s, left, right)) {
            record_pair(s, id, left, right, id + 1);
            return true;
        }
        left = next_left(s, left, id);
    }
    return false;
}

/* Settles a token of a rank file, after those of lower rank. */
static void settle(struct search *s, uint32_t id, const struct guess guesses[GUESSES])
{
    if (!kvr_source_is_own(&s->source->tokens[id]) || (s->orderly && try_halves(s, id, guesses)) ||
        encode_token(s, id))
        return;
    s->by_text = true;
    encode_token(s, id);
    s->by_text = false;
    /* a pair that others led to, of higher rank perhaps */
    s->orderly = s->orderly && s->halves[id].left == id;
}

static void find_by_rank(struct search *s)
{
    struct guess ring[RING][GUESSES];
    uint32_t count = s->source->token_count;

    for (uint32_t i = 0; i < RING; i++)
        for (int k = 0; k < GUESSES; k++)
            ring[i][k] = (struct guess){.left = KVR_NO_TOKEN, .right = KVR_NO_TOKEN};
    for (uint32_t next = 0; next < count + 7 * STEP; next++) {
        struct guess *g = ring[next % RING];
        bool own = next < count && kvr_source_is_own(&s->source->tokens[next]);
        guess_left(s, next, own ? next : KVR_NO_TOKEN, &g[0]);
        uint32_t id = next - STEP; /* below zero there are guesses of nothing */
        g = ring[id % RING];
        ask_slot(s, id, &g[0]);
        guess_left(s, id, g[0].left, &g[1]);
        id -= STEP;
        g = ring[id % RING];
        ask_right(s, &g[0]);
        ask_slot(s, id, &g[1]);
        g = ring[(id -= STEP) % RING];
        ask_text(s, &g[0]);
        ask_right(s, &g[1]);
        g = ring[(id -= STEP) % RING];
        ask_seam(s, &g[0]);
        ask_text(s, &g[1]);
        g = ring[(id -= STEP) % RING];
        ask_behind(s, &g[0]);
        ask_seam(s, &g[1]);
        g = ring[(id -= STEP) % RING];
        ask_behind(s, &g[1]);
        id -= STEP;
        if (id < count)
            settle(s, id, ring[id % RING]);
    }
}

static void find_by_merges(struct search *s)
{
    const struct kvr_source *source = s->source;

    for (uint32_t i = 0; i < source->merge_count; i++) {
        ask_pair(s, i + STEP);
        enter_pair(s, source->merges[i].left, source->merges[i].right, i + 1);
    }
    mark_symbols(s);
    try_merges(s);
    for (uint32_t id = 0; id < source->token_count; id++)
        if (!(s->c->flags[id] & KVR_TOKEN_REACHABLE) && kvr_source_is_own(&source->tokens[id]))
            encode_token(s, id);
}

static enum kvr_status prepare(struct search *s, struct kvr_error *error)
{
    const struct kvr_source *source = s->source;
    uint64_t work = 0;
    uint32_t longest = 0, pairs = source->ranked ? source->token_count : source->merge_count;
    uint32_t slots = 16;

    for (uint32_t id = 0; id < source->token_count; id++) {
        uint32_t length = source->tokens[id].length;
        work += (uint64_t)length * length;
        longest = length > longest ? length : longest;
    }
    if (work > WORK_LIMIT)
        return kvr_error_set(error, KVR_BAD_INPUT, "the tokens are too long to be a vocabulary");
    while (slots < pairs * 2)
        slots *= 2;
    s->parts = malloc((longest + 1) * sizeof *s->parts);
    s->pages.random = true;
    s->filter = calloc(FILTER_BITS / 64, sizeof *s->filter);
    if (!s->parts || !s->filter || !kvr_pages_grow(&s->pages, slots * sizeof *s->slots))
        return kvr_error_memory(error);
    s->slots = s->pages.data;
    s->slot_mask = slots - 1;
    s->entry_bits = 32 - (uint32_t)__builtin_clz(pairs | 1);
    for (int b = 0; b < 256; b++)
        s->symbol_of[b] = find_symbol(s, &(uint8_t){(uint8_t)b}, 1);
    return KVR_OK;
}

enum kvr_status kvr_compile_pairs(struct kvr_compiler *compiler, struct kvr_error *error)
{
    struct search s = {.c = compiler,
        .source = compiler->source,
        .halves = compiler->halves,
        .orderly = compiler->source->model == KVR_MODEL_BYTE_BPE};
    enum kvr_status status = prepare(&s, error);

    if (!status && s.source->ranked)
        find_by_rank(&s);
    else if (!status)
        find_by_merges(&s);
    for (uint32_t id = 0; id < s.source->token_count; id++) {
        uint32_t order = kvr_compiled_order(compiler, id);
        if (order && (kvr_compiled_order(compiler, s.halves[id].left) >= order ||
                         kvr_compiled_order(compiler, s.halves[id].right) >= order))
            compiler->irregular = true;
    }
    free(s.parts);
    kvr_pages_release(&s.pages);
    free(s.filter);
    return status;
}
