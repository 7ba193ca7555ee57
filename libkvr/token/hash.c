#include "token/hash.h"
#include "token/sha256.h"

#include <endian.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

const char kvr_vllm_default_seed[] = "vllm-none-hash";

static void put_u64(struct kvr_buffer *out, uint64_t number)
{
    number = htole64(number);
    kvr_buffer_append(out, &number, sizeof number);
}

/* Tokens, four bytes each, the lowest first. One copy where memory has them so: what the hash reads
 * as words of eight bytes must not have been written as words of four just before. */
static inline void copy_tokens(uint32_t *to, const uint32_t *tokens, size_t count)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(to, tokens, count * sizeof *to);
#else
    for (size_t i = 0; i < count; i++)
        to[i] = htole32(tokens[i]);
#endif
}

static void put_tokens(struct kvr_buffer *out, const uint32_t *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t token = htole32(tokens[i]);
        kvr_buffer_append(out, &token, sizeof token);
    }
}

static uint64_t get_u64(const uint8_t *bytes)
{
    uint64_t number;

    memcpy(&number, bytes, sizeof number);
    return le64toh(number);
}

static void set_u64(uint8_t *bytes, uint64_t number)
{
    number = htole64(number);
    memcpy(bytes, &number, sizeof number);
}

static uint64_t xxh3(const struct kvr_buffer *bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes->data, bytes->length, seed);
}

uint64_t kvr_namespace_seed(const struct kvr_namespace *space)
{
    const struct kvr_text parts[] = {space->model, space->lora, space->salt};
    XXH3_state_t state;
    uint64_t length;

    if (!parts[0].text && !parts[1].text && !parts[2].text)
        return 0;
    XXH3_64bits_reset(&state);
    for (int i = 0; i < 3; i++) {
        length = htole64(parts[i].text ? parts[i].length + 1 : 0);
        XXH3_64bits_update(&state, &length, sizeof length);
        if (parts[i].text)
            XXH3_64bits_update(&state, parts[i].text, parts[i].length);
    }
    return XXH3_64bits_digest(&state);
}

/* The usual block, with its length known where it is compiled. */
__attribute__((flatten)) static uint64_t hash_sixteen(uint64_t parent, const uint32_t *tokens)
{
    uint32_t bytes[2 + 16];
    uint64_t first = htole64(parent);

    memcpy(bytes, &first, sizeof first);
    copy_tokens(bytes + 2, tokens, 16);
    return XXH3_64bits(bytes, sizeof bytes);
}

uint64_t kvr_block_hash(uint64_t parent, const uint32_t *tokens, size_t count)
{
    XXH3_state_t state;
    uint64_t first = htole64(parent);

    if (count == 16)
        return hash_sixteen(parent, tokens);
    if (count <= 64) { /* one piece of memory, no streaming */
        uint32_t bytes[2 + 64];
        memcpy(bytes, &first, sizeof first);
        copy_tokens(bytes + 2, tokens, count);
        return XXH3_64bits(bytes, sizeof first + count * sizeof *bytes);
    }
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, &first, sizeof first);
    for (size_t i = 0; i < count; i++) {
        uint32_t token = htole32(tokens[i]);
        XXH3_64bits_update(&state, &token, sizeof token);
    }
    return XXH3_64bits_digest(&state);
}

/* The next placed content that reaches into tokens [start, end), from *index on. */
static const struct kvr_placed *next_placed(
    const struct kvr_placed *placed, size_t count, size_t start, size_t end, size_t *index)
{
    for (; *index < count && placed[*index].start < end; ++*index)
        if (placed[*index].start + placed[*index].length > start)
            return &placed[(*index)++];
    return NULL;
}

static enum kvr_status own_begin(const struct kvr_chain_settings *settings,
    struct kvr_chain_state *state, struct kvr_error *error)
{
    (void)error;
    set_u64(state->digest, kvr_namespace_seed(&settings->space));
    state->digest_length = 8;
    return KVR_OK;
}

static enum kvr_status own_block(const struct kvr_chain_settings *settings,
    struct kvr_chain_state *state, const uint32_t *tokens, size_t count,
    const struct kvr_placed *placed, size_t placed_count, struct kvr_error *error)
{
    size_t end = state->tokens + count, index = 0;
    const struct kvr_placed *item = next_placed(placed, placed_count, state->tokens, end, &index);
    uint64_t hash;

    (void)settings;
    if (!item) {
        hash = kvr_block_hash(get_u64(state->digest), tokens, count);
    } else {
        kvr_buffer_clear(&state->scratch);
        kvr_buffer_append(&state->scratch, state->digest, 8);
        put_tokens(&state->scratch, tokens, count);
        for (; item; item = next_placed(placed, placed_count, state->tokens, end, &index)) {
            put_u64(&state->scratch, XXH3_64bits(item->identifier.text, item->identifier.length));
            put_u64(&state->scratch, (uint64_t)item->start - state->tokens);
        }
        if (state->scratch.failed)
            return kvr_error_memory(error);
        hash = xxh3(&state->scratch, 0);
    }
    set_u64(state->digest, hash);
    state->id = kvr_wire_id(hash);
    state->tokens = end;
    return KVR_OK;
}

static enum kvr_status sglang_begin(const struct kvr_chain_settings *settings,
    struct kvr_chain_state *state, struct kvr_error *error)
{
    static const char salted[] = "sglang-cache-salt-v1"; /* with its NUL */
    const struct kvr_text salt = settings->space.salt;

    if (!salt.text)
        return KVR_OK;
    kvr_buffer_clear(&state->scratch);
    kvr_buffer_append(&state->scratch, salted, sizeof salted);
    kvr_buffer_append(&state->scratch, salt.text, salt.length);
    if (state->scratch.failed)
        return kvr_error_memory(error);
    kvr_sha256(state->scratch.data, state->scratch.length, state->digest);
    state->digest_length = 32;
    return KVR_OK;
}

static enum kvr_status sglang_block(const struct kvr_chain_settings *settings,
    struct kvr_chain_state *state, const uint32_t *tokens, size_t count,
    const struct kvr_placed *placed, size_t placed_count, struct kvr_error *error)
{
    (void)settings, (void)placed, (void)placed_count; /* its tokens of content differ instead */
    kvr_buffer_clear(&state->scratch);
    kvr_buffer_append(&state->scratch, state->digest, state->digest_length);
    put_tokens(&state->scratch, tokens, count);
    if (state->scratch.failed)
        return kvr_error_memory(error);
    kvr_sha256(state->scratch.data, state->scratch.length, state->digest);
    state->digest_length = 32;
    state->id = __builtin_bswap64(get_u64(state->digest));
    state->tokens += count;
    return KVR_OK;
}

#define DYNAMO_SEED 1337

static enum kvr_status dynamo_begin(const struct kvr_chain_settings *settings,
    struct kvr_chain_state *state, struct kvr_error *error)
{
    (void)settings, (void)state, (void)error;
    return KVR_OK;
}

static enum kvr_status dynamo_block(const struct kvr_chain_settings *settings,
    struct kvr_chain_state *state, const uint32_t *tokens, size_t count,
    const struct kvr_placed *placed, size_t placed_count, struct kvr_error *error)
{
    const struct kvr_namespace *space = &settings->space;
    uint64_t seed = DYNAMO_SEED, pair[2];
    size_t end = state->tokens + count, index = 0, first;
    const struct kvr_placed *item;

    if (space->lora.text && space->lora.length)
        seed += XXH3_64bits_withSeed(space->lora.text, space->lora.length, 0);
    if (space->salt.text && space->salt.length)
        seed += XXH3_64bits_withSeed(space->salt.text, space->salt.length, 1);
    kvr_buffer_clear(&state->scratch);
    put_tokens(&state->scratch, tokens, count);
    first = state->scratch.length;
    while ((item = next_placed(placed, placed_count, state->tokens, end, &index))) {
        /* sorted: an insertion sort over the few contents of a block */
        uint64_t hash = XXH3_64bits(item->identifier.text, item->identifier.length);
        put_u64(&state->scratch, hash);
        for (size_t at = state->scratch.length - 8; !state->scratch.failed && at > first; at -= 8) {
            uint8_t *here = (uint8_t *)state->scratch.data + at;
            uint64_t before = get_u64(here - 8);
            if (before <= hash)
                break;
            set_u64(here, before);
            set_u64(here - 8, hash);
        }
    }
    if (state->scratch.failed)
        return kvr_error_memory(error);
    uint64_t hash = xxh3(&state->scratch, seed);
    if (state->digest_length) {
        pair[0] = htole64(get_u64(state->digest));
        pair[1] = htole64(hash);
        hash = XXH3_64bits_withSeed(pair, sizeof pair, DYNAMO_SEED);
    }
    set_u64(state->digest, hash);
    state->digest_length = 8;
    state->id = hash;
    state->tokens = end;
    return KVR_OK;
}

/*
 * vLLM's tuples are written by one of two encoders, for which the shape of the data is the same.
 * Pickle remembers objects: a tag that occurs again is a reference. Other texts are taken to be
 * objects of their own, as they are in vLLM (one feature of a request lies in one place).
 */
struct encoder {
    struct kvr_buffer *out;
    bool pickle;
    unsigned memo;
    int tags[3]; /* memo index of "lora", "mm", "cache_salt"; -1: not yet */
};

static void put_big(struct kvr_buffer *out, uint64_t number, unsigned bytes)
{
    while (bytes--)
        kvr_buffer_append_byte(out, (char)(number >> 8 * bytes));
}

static void put_little(struct kvr_buffer *out, uint64_t number, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        kvr_buffer_append_byte(out, (char)(number >> 8 * i));
}

static void cbor_head(struct kvr_buffer *out, unsigned major, uint64_t number)
{
    unsigned kind = number < 24 ? 0 : number < 256 ? 1 : number < 65536 ? 2 : number >> 32 ? 8 : 4;
    unsigned low = kind == 0   ? (unsigned)number
                   : kind == 1 ? 24
                   : kind == 2 ? 25
                   : kind == 4 ? 26
                               : 27;

    kvr_buffer_append_byte(out, (char)(major << 5 | low));
    put_big(out, number, kind);
}

static void memoize(struct encoder *e)
{
    kvr_buffer_append_byte(e->out, (char)0x94);
    e->memo++;
}

static void put_bytes(struct encoder *e, const uint8_t *bytes, size_t length)
{
    if (e->pickle) {
        kvr_buffer_append_byte(e->out, 'C');
        kvr_buffer_append_byte(e->out, (char)length);
    } else {
        cbor_head(e->out, 2, length);
    }
    kvr_buffer_append(e->out, bytes, length);
    if (e->pickle)
        memoize(e);
}

static void put_text(struct encoder *e, struct kvr_text text)
{
    if (!e->pickle) {
        cbor_head(e->out, 3, text.length);
    } else if (text.length < 256) {
        kvr_buffer_append_byte(e->out, (char)0x8c);
        put_little(e->out, text.length, 1);
    } else {
        kvr_buffer_append_byte(e->out, 'X');
        put_little(e->out, text.length, 4);
    }
    kvr_buffer_append(e->out, text.text, text.length);
    if (e->pickle)
        memoize(e);
}

static void put_number(struct encoder *e, int64_t number)
{
    if (!e->pickle) {
        cbor_head(e->out, number < 0, number < 0 ? (uint64_t)(-1 - number) : (uint64_t)number);
    } else if (number >= 0 && number < 256) {
        kvr_buffer_append_byte(e->out, 'K');
        put_little(e->out, (uint64_t)number, 1);
    } else if (number >= 0 && number < 65536) {
        kvr_buffer_append_byte(e->out, 'M');
        put_little(e->out, (uint64_t)number, 2);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        kvr_buffer_append_byte(e->out, 'J');
        put_little(e->out, (uint64_t)number, 4);
    } else { /* LONG1: the shortest two's complement */
        unsigned bytes = 5;
        while (bytes < 8 && (number >> (8 * bytes - 1) != 0 && number >> (8 * bytes - 1) != -1))
            bytes++;
        kvr_buffer_append_byte(e->out, (char)0x8a);
        kvr_buffer_append_byte(e->out, (char)bytes);
        put_little(e->out, (uint64_t)number, bytes);
    }
}

static void open_tuple(struct encoder *e, size_t count)
{
    if (!e->pickle)
        cbor_head(e->out, 4, count);
    else if (count > 3)
        kvr_buffer_append_byte(e->out, '(');
}

static void close_tuple(struct encoder *e, size_t count)
{
    if (!e->pickle)
        return;
    kvr_buffer_append_byte(e->out, count == 0 ? ')' : count > 3 ? 't' : (char)(0x84 + count));
    if (count)
        memoize(e);
}

enum tag { TAG_LORA, TAG_MM, TAG_SALT };

static void put_tag(struct encoder *e, enum tag tag)
{
    static const struct kvr_text names[] = {{"lora", 4}, {"mm", 2}, {"cache_salt", 10}};

    if (e->pickle && e->tags[tag] >= 0) {
        kvr_buffer_append_byte(e->out, 'h');
        put_little(e->out, (uint64_t)e->tags[tag], 1);
        return;
    }
    e->tags[tag] = (int)e->memo;
    put_text(e, names[tag]);
}

static void put_lora(struct encoder *e, const struct kvr_chain_settings *s)
{
    const struct kvr_text none = {"", 0};

    switch (s->style) {
    case KVR_EXTRA_TAGGED:
        open_tuple(e, 3);
        put_tag(e, TAG_LORA);
        put_text(e, s->space.lora);
        put_text(e, s->space.lora_path.text ? s->space.lora_path : none);
        close_tuple(e, 3);
        break;
    case KVR_EXTRA_PLAIN:
        put_text(e, s->space.lora);
        break;
    case KVR_EXTRA_LEGACY:
        put_number(e, (int64_t)s->space.lora_id);
        break;
    }
}

static void put_placed(struct encoder *e, const struct kvr_chain_settings *s,
    const struct kvr_placed *item, int64_t start)
{
    if (s->style == KVR_EXTRA_LEGACY) {
        put_text(e, item->identifier);
        return;
    }
    size_t count = s->style == KVR_EXTRA_TAGGED ? 3 : 2;
    open_tuple(e, count);
    if (count == 3)
        put_tag(e, TAG_MM);
    put_text(e, item->identifier);
    put_number(e, start);
    close_tuple(e, count);
}

static void put_salt(struct encoder *e, const struct kvr_chain_settings *s)
{
    bool tagged = s->style == KVR_EXTRA_TAGGED;

    if (tagged) {
        open_tuple(e, 2);
        put_tag(e, TAG_SALT);
    }
    put_text(e, s->space.salt);
    if (tagged)
        close_tuple(e, 2);
}

/* The extra keys of a block, or None. */
static void put_extra(struct encoder *e, const struct kvr_chain_settings *s,
    const struct kvr_chain_state *state, size_t count, const struct kvr_placed *placed,
    size_t placed_count)
{
    size_t end = state->tokens + count, index = 0, keys = 0;
    bool lora = s->space.lora.text, salt = s->space.salt.text && state->tokens == 0;
    const struct kvr_placed *item;

    while (next_placed(placed, placed_count, state->tokens, end, &index))
        keys++;
    keys += (size_t)lora + salt;
    if (!keys) {
        kvr_buffer_append_byte(e->out, e->pickle ? 'N' : (char)0xf6);
        return;
    }
    open_tuple(e, keys);
    if (lora)
        put_lora(e, s);
    index = 0;
    while ((item = next_placed(placed, placed_count, state->tokens, end, &index)))
        put_placed(e, s, item, (int64_t)item->start - (int64_t)state->tokens);
    if (salt)
        put_salt(e, s);
    close_tuple(e, keys);
}

static void encoder_begin(struct encoder *e, struct kvr_chain_state *state, bool pickle)
{
    kvr_buffer_clear(&state->scratch);
    *e = (struct encoder){.out = &state->scratch, .pickle = pickle, .tags = {-1, -1, -1}};
    if (pickle) /* protocol 5 and one frame, whose length is set at the end */
        kvr_buffer_append(e->out, "\x80\x05\x95\0\0\0\0\0\0\0\0", 11);
}

#define PICKLE_FRAME 60000 /* from 64 KiB on Python cuts frames, which we do not imitate */

static enum kvr_status finish(
    struct encoder *e, struct kvr_chain_state *state, bool sha256, struct kvr_error *error)
{
    struct kvr_buffer *out = e->out;

    if (e->pickle)
        kvr_buffer_append_byte(out, '.');
    if (out->failed)
        return kvr_error_memory(error);
    if (e->pickle) {
        if (out->length > PICKLE_FRAME)
            return kvr_error_set(error, KVR_UNSUPPORTED, "pickled hashes of blocks this long");
        set_u64((uint8_t *)out->data + 3, out->length - 11);
    }
    state->digest_length = sha256 ? 32 : 16;
    if (sha256) {
        kvr_sha256(out->data, out->length, state->digest);
    } else {
        XXH128_canonical_t canonical;
        XXH128_canonicalFromHash(&canonical, XXH3_128bits(out->data, out->length));
        memcpy(state->digest, canonical.digest, 16);
    }
    state->id = __builtin_bswap64(get_u64(state->digest + state->digest_length - 8));
    return KVR_OK;
}

static enum kvr_status vllm_begin(const struct kvr_chain_settings *settings,
    struct kvr_chain_state *state, bool pickle, bool sha256, struct kvr_error *error)
{
    const char *seed = settings->seed ? settings->seed : kvr_vllm_default_seed;
    struct encoder e;

    if (!sha256 && !settings->seed)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "vLLM's xxhash chains start from a random seed unless PYTHONHASHSEED is set: give it");
    encoder_begin(&e, state, pickle);
    put_text(&e, (struct kvr_text){seed, strlen(seed)});
    return finish(&e, state, sha256, error);
}

static enum kvr_status vllm_block(const struct kvr_chain_settings *settings,
    struct kvr_chain_state *state, const uint32_t *tokens, size_t count,
    const struct kvr_placed *placed, size_t placed_count, bool pickle, bool sha256,
    struct kvr_error *error)
{
    struct encoder e;

    encoder_begin(&e, state, pickle);
    open_tuple(&e, 3);
    put_bytes(&e, state->digest, state->digest_length);
    open_tuple(&e, count);
    for (size_t i = 0; i < count; i++)
        put_number(&e, tokens[i]);
    close_tuple(&e, count);
    put_extra(&e, settings, state, count, placed, placed_count);
    close_tuple(&e, 3);
    state->tokens += count;
    return finish(&e, state, sha256, error);
}

#define VLLM_CHAIN(name, pickle, sha256)                                                           \
    static enum kvr_status name##_begin(const struct kvr_chain_settings *settings,                 \
        struct kvr_chain_state *state, struct kvr_error *error)                                    \
    {                                                                                              \
        return vllm_begin(settings, state, pickle, sha256, error);                                 \
    }                                                                                              \
    static enum kvr_status name##_block(const struct kvr_chain_settings *settings,                 \
        struct kvr_chain_state *state, const uint32_t *tokens, size_t count,                       \
        const struct kvr_placed *placed, size_t placed_count, struct kvr_error *error)             \
    {                                                                                              \
        return vllm_block(                                                                         \
            settings, state, tokens, count, placed, placed_count, pickle, sha256, error);          \
    }

VLLM_CHAIN(sha256_cbor, false, true)
VLLM_CHAIN(xxhash_cbor, false, false)
VLLM_CHAIN(sha256_pickle, true, true)
VLLM_CHAIN(xxhash_pickle, true, false)

const struct kvr_chain kvr_chains[] = {
    {"kvr", "kvr's own: XXH3, 53 bits", own_begin, own_block},
    {"vllm-sha256_cbor", "vLLM --prefix-caching-hash-algo sha256_cbor", sha256_cbor_begin,
        sha256_cbor_block},
    {"vllm-xxhash_cbor", "vLLM --prefix-caching-hash-algo xxhash_cbor", xxhash_cbor_begin,
        xxhash_cbor_block},
    {"vllm-sha256", "vLLM's default, which hashes pickled tuples", sha256_pickle_begin,
        sha256_pickle_block},
    {"vllm-xxhash", "vLLM --prefix-caching-hash-algo xxhash", xxhash_pickle_begin,
        xxhash_pickle_block},
    {"sglang", "SGLang's event hashes, as unsigned 64-bit numbers", sglang_begin, sglang_block},
    {"dynamo", "NVIDIA Dynamo's sequence hashes", dynamo_begin, dynamo_block},
    {NULL, NULL, NULL, NULL},
};

const struct kvr_chain *kvr_chain_find(const char *name)
{
    for (const struct kvr_chain *chain = kvr_chains; chain->name; chain++)
        if (strcmp(chain->name, name) == 0)
            return chain;
    return NULL;
}

void kvr_chain_release(struct kvr_chain_state *state)
{
    kvr_buffer_release(&state->scratch);
    memset(state, 0, sizeof *state);
}

void kvr_chain_resume(
    struct kvr_chain_state *state, const uint8_t *digest, size_t length, size_t tokens)
{
    memcpy(state->digest, digest, length);
    state->digest_length = length;
    state->tokens = tokens;
}
