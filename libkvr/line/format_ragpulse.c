/*
 * RAGPulse traces. A record names its pieces of content by id (system prompt, passages, history,
 * web search, user input, in the order in which they stand in the prompt), and ids of content say
 * nothing about what stands before it: they must be chained before equal ids mean an equal prefix.
 *
 * The files beside the trace (1_sys_prompt.jsonl … 5_web_search.jsonl, .gz too) say how many tokens
 * each piece has. With them the prompt is laid out token by token and cut into blocks of 16, as an
 * engine cuts it: a block's id chains every piece, and place in that piece, that the block covers.
 * The handful of template tokens that input_length has beyond the pieces belong to the tail. Where
 * the lengths are not to be had (standard input), each piece is one block and block_size is the
 * mean piece length of the record: prefixes stay right, their lengths become estimates.
 */
#include "base/u64_map.h"
#include "line/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

enum { PARTS = 5, BLOCK_TOKENS = 16, LENGTH_LIMIT = 1 << 24 };

static const struct part {
    const char *member; /* of the record's hash_ids */
    const char *file;   /* that lists lengths */
    const char *id;     /* member of that file's lines */
} parts[PARTS] = {
    {"sys_prompt", "1_sys_prompt.jsonl", "sys_prompt_id"},
    {"passages_ids", "2_passages.jsonl", "passage_id"},
    {"history", "3_history.jsonl", "history_id"},
    {"web_search", "5_web_search.jsonl", "web_search_id"},
    {"user_input", "4_user_input.jsonl", "user_input_id"},
};

struct state {
    struct kvr_u64_map lengths[PARTS]; /* content id -> tokens */
    bool have_lengths;
    uint64_t *ids; /* scratch: the content ids of one part */
    size_t ids_capacity;
    struct kvr_buffer hashes; /* scratch: the record's chained ids as text */
};

static enum kvr_status load_part(
    struct kvr_u64_map *lengths, const struct part *part, const char *path, struct kvr_error *error)
{
    struct kvr_source_options options = {.files = &path, .file_count = 1};
    struct kvr_source_line text = {0};
    struct kvr_source *source = NULL;
    struct kvr_line line = {0};
    uint64_t id, length;

    enum kvr_status status = kvr_source_create(&source, &options, error);
    if (status == KVR_OK)
        status = kvr_line_init(&line, error);
    while (status == KVR_OK) {
        status = kvr_source_next(source, &text, error);
        if (status == KVR_OK)
            status = kvr_line_parse(&line, &text, error);
        if (status != KVR_OK)
            break;
        if (!kvr_value_u64(kvr_line_find(&line, part->id), &id) ||
            !kvr_value_u64(kvr_line_find(&line, "token_length"), &length) ||
            length > LENGTH_LIMIT) {
            status = kvr_error_set(error, KVR_BAD_INPUT, "no '%s' and 'token_length'", part->id);
            break;
        }
        uint64_t *place = kvr_u64_map_insert(lengths, id, NULL);
        if (place)
            *place = length;
        else
            status = kvr_error_memory(error);
    }
    if (status == KVR_BAD_INPUT)
        kvr_error_prefix(error, "%s:%lu", path, text.number);
    kvr_source_destroy(source);
    if (line.structure)
        kvr_line_release(&line);
    return status == KVR_END ? KVR_OK : status;
}

static enum kvr_status begin(void *state_pointer, const char *file, struct kvr_error *error)
{
    struct state *state = state_pointer;
    const char *slash = strrchr(file, '/');
    int folder = slash ? (int)(slash - file + 1) : 0;

    state->have_lengths = true;
    for (int i = 0; i < PARTS; i++) {
        char path[4096];
        kvr_u64_map_clear(&state->lengths[i]);
        for (int packed = 0; packed < 2; packed++) {
            int length = snprintf(
                path, sizeof path, "%.*s%s%s", folder, file, parts[i].file, packed ? ".gz" : "");
            if (length < (int)sizeof path && access(path, R_OK) == 0)
                break;
            if (packed)
                state->have_lengths = false;
        }
        if (!state->have_lengths)
            return KVR_OK;
        enum kvr_status status = load_part(&state->lengths[i], &parts[i], path, error);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

/* The chain over pieces of content, cut into blocks. */
struct chain {
    uint64_t hash;
    uint64_t filled; /* tokens in the block that is being filled */
    struct kvr_buffer *out;
    uint64_t blocks;
};

static void mix(struct chain *chain, uint64_t kind, uint64_t id, uint64_t offset)
{
    uint64_t words[4] = {chain->hash, kind, id, offset};

    chain->hash = XXH3_64bits(words, sizeof words);
}

static void write_block(struct chain *chain)
{
    if (chain->blocks++)
        kvr_buffer_append_byte(chain->out, ',');
    kvr_buffer_append_u64(chain->out, chain->hash >> 11); /* 53 bits on the wire */
    chain->filled = 0;
}

/* Adds one piece of `tokens` tokens: every block that it touches depends on it. */
static void add_tokens(struct chain *chain, uint64_t kind, uint64_t id, uint64_t tokens)
{
    for (uint64_t offset = 0; offset < tokens;) {
        uint64_t take = BLOCK_TOKENS - chain->filled;
        if (take > tokens - offset)
            take = tokens - offset;
        mix(chain, kind, id, offset << 8 | take);
        offset += take;
        chain->filled += take;
        if (chain->filled == BLOCK_TOKENS)
            write_block(chain);
    }
}

/* The content ids of one part into state->ids; -1 when the member is no array of ids. */
static ptrdiff_t read_ids(struct state *state, struct kvr_value list, bool *no_memory)
{
    size_t room = kvr_value_u64s_room(list);

    if (list.type == KVR_ABSENT)
        return 0;
    if (room > state->ids_capacity) {
        uint64_t *ids = realloc(state->ids, room * sizeof *ids);
        if (!ids) {
            *no_memory = true;
            return -1;
        }
        state->ids = ids;
        state->ids_capacity = room;
    }
    return kvr_value_u64s(list, state->ids);
}

static enum kvr_status add_pieces(struct state *state, struct kvr_value contents,
    struct chain *chain, uint64_t *pieces, struct kvr_error *error)
{
    bool no_memory = false;

    for (uint64_t i = 0; i < PARTS; i++) {
        ptrdiff_t count = read_ids(state, kvr_value_get(contents, parts[i].member), &no_memory);
        if (no_memory)
            return kvr_error_memory(error);
        if (count < 0)
            return kvr_error_set(
                error, KVR_BAD_INPUT, "hash_ids.%s is not a list of ids", parts[i].member);
        for (ptrdiff_t j = 0; j < count; j++) {
            const uint64_t *tokens = NULL;
            ++*pieces;
            if (state->have_lengths) {
                tokens = kvr_u64_map_find(&state->lengths[i], state->ids[j]);
                if (!tokens)
                    return kvr_error_set(error, KVR_BAD_INPUT, "content id %lu is not in %s",
                        state->ids[j], parts[i].file);
                add_tokens(chain, i, state->ids[j], *tokens);
            } else {
                mix(chain, i, state->ids[j], 0);
                write_block(chain);
            }
        }
    }
    return KVR_OK;
}

/* A number that may stand in quotes, as this trace's timestamps do. */
static bool read_seconds(struct kvr_value value, double *seconds)
{
    if (value.type == KVR_STRING)
        value = (struct kvr_value){value.text + 1, value.length - 2, KVR_NUMBER};
    if (value.length == 0 || value.text[strspn(value.text, "+-.0123456789eE")] != '"')
        return value.type == KVR_NUMBER && kvr_value_double(value, seconds) &&
               strspn(value.text, "+-.0123456789eE") >= value.length;
    return kvr_value_double(value, seconds);
}

static enum kvr_status convert(void *state_pointer, const struct kvr_line *line,
    struct kvr_buffer *out, struct kvr_error *error)
{
    struct state *state = state_pointer;
    struct kvr_value contents = kvr_line_get(line, KVR_NAME_HASH_IDS);
    struct kvr_value session = kvr_line_find(line, "session_id");
    struct kvr_value output = kvr_line_get(line, KVR_NAME_OUTPUT_LENGTH);
    struct chain chain = {.out = &state->hashes};
    uint64_t input_length, pieces = 0;
    double seconds;

    if (!kvr_value_u64(kvr_line_get(line, KVR_NAME_INPUT_LENGTH), &input_length))
        return kvr_error_set(error, KVR_BAD_INPUT, "input_length is not a whole number");
    if (!read_seconds(kvr_line_get(line, KVR_NAME_TIMESTAMP), &seconds))
        return kvr_error_set(error, KVR_BAD_INPUT, "timestamp is not a number");
    if (contents.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "hash_ids is not an object of content ids");
    kvr_buffer_clear(&state->hashes);
    enum kvr_status status = add_pieces(state, contents, &chain, &pieces, error);
    if (status != KVR_OK)
        return status;
    uint64_t block_size = BLOCK_TOKENS;
    if (!state->have_lengths && pieces)
        block_size = (input_length + pieces - 1) / pieces;
    kvr_buffer_append_text(out, "{\"timestamp\":");
    kvr_json_write_fixed(out, seconds * 1e3, 3);
    kvr_buffer_append_format(out, ",\"input_length\":%lu", input_length);
    if (output.type == KVR_NUMBER) {
        kvr_buffer_append_text(out, ",\"output_length\":");
        kvr_buffer_append(out, output.text, output.length);
    }
    if (session.type != KVR_ABSENT) {
        kvr_buffer_append_text(out, ",\"session\":");
        kvr_buffer_append(out, session.text, session.length);
    }
    kvr_buffer_append_format(
        out, ",\"block_size\":%lu,\"hash_ids\":[", block_size ? block_size : 1);
    kvr_buffer_append(out, state->hashes.data, state->hashes.length);
    kvr_buffer_append_text(out, "]}\n");
    return state->hashes.failed ? kvr_error_memory(error) : KVR_OK;
}

static void release(void *state_pointer)
{
    struct state *state = state_pointer;

    for (int i = 0; i < PARTS; i++)
        kvr_u64_map_release(&state->lengths[i]);
    free(state->ids);
    kvr_buffer_release(&state->hashes);
}

const struct kvr_format kvr_format_ragpulse = {
    .name = "ragpulse",
    .summary =
        "RAGPulse traces: content ids chained into blocks of 16 tokens by the lengths beside "
        "the trace",
    .state_bytes = sizeof(struct state),
    .json = true,
    .begin = begin,
    .convert = convert,
    .release = release,
};
