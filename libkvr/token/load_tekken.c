/*
 * Mistral's tekken.json: ranks as in tiktoken, the split pattern beside them, and special tokens in
 * front: the id of a rank is rank + number of special tokens. Files before version 7 do not list
 * their special tokens; they have the fixed list below.
 */
#include "line/json_walk.h"
#include "token/load_steps.h"

#include <stdio.h>
#include <string.h>

#define TOKEN_BYTES 3072 /* as written, and more than enough */

/* The text, its outermost members, and where its structure stands. */
struct file {
    struct kvr_structure *structure;
    const char *text;
    struct kvr_members members;
};

static const char *const old_specials[] = {"<unk>", "<s>", "</s>", "[INST]", "[/INST]",
    "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]",
    "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"};

static enum kvr_status add_special(struct kvr_source *source, uint64_t id, const char *text,
    size_t length, struct kvr_error *error)
{
    struct kvr_vocabulary_step step = {.flags = KVR_ADDED_SPECIAL, .a = (int32_t)id};
    enum kvr_status status =
        kvr_source_add_token(source, id, text, length, KVR_TOKEN_ADDED | KVR_TOKEN_SPECIAL, error);

    return status ? status
                  : kvr_source_add_step(source, KVR_ADDED, step, text, length, NULL, 0, error);
}

static enum kvr_status add_specials(
    struct kvr_source *source, struct kvr_value list, uint64_t count, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(list);
    struct kvr_buffer scratch = {0};
    struct kvr_value item;
    enum kvr_status status = KVR_OK;

    while (list.type == KVR_ARRAY && !status && kvr_next_element(&cursor, &item)) {
        struct kvr_text text;
        uint64_t rank;
        if (!kvr_value_text(kvr_value_get(item, "token_str"), &scratch, &text) ||
            !kvr_value_u64(kvr_value_get(item, "rank"), &rank) || rank >= count || !text.length)
            status = kvr_error_set(error, KVR_BAD_INPUT, "a special token lacks rank or token_str");
        else
            status = add_special(source, rank, text.text, text.length, error);
    }
    for (uint64_t id = 0; id < count && !status; id++) {
        char name[40];
        if (id < source->token_count && source->tokens[id].flags & KVR_TOKEN_PRESENT)
            continue;
        snprintf(name, sizeof name, "<SPECIAL_%llu>", (unsigned long long)id);
        const char *text = list.type != KVR_ARRAY && id < sizeof old_specials / sizeof *old_specials
                               ? old_specials[id]
                               : name;
        status = add_special(source, id, text, strlen(text), error);
    }
    kvr_buffer_release(&scratch);
    return status;
}

/* The rank and the text of a token. False: it lacks one of them. */
static bool read_rank(const struct kvr_json_walk *walk, struct kvr_value item,
    struct kvr_value *encoded, uint64_t *rank)
{
    struct kvr_json_walk inner = kvr_json_walk_into(walk);
    struct kvr_value number = {0};
    struct kvr_member member;

    *encoded = number;
    while (item.type == KVR_OBJECT && kvr_json_walk_member(&inner, &member)) {
        if (kvr_value_is(member.name, "rank"))
            number = member.value;
        else if (kvr_value_is(member.name, "token_bytes"))
            *encoded = member.value;
    }
    return encoded->type == KVR_STRING && encoded->length <= TOKEN_BYTES &&
           kvr_value_u64(number, rank) && *rank < KVR_TOKEN_LIMIT;
}

static enum kvr_status add_ranks(struct kvr_source *source, struct kvr_json_walk walk,
    uint64_t specials, uint64_t limit, struct kvr_error *error)
{
    struct kvr_value item, encoded;
    uint64_t number = 0, rank;

    for (; number < limit && kvr_json_walk_element(&walk, &item); number++) {
        uint8_t token[TOKEN_BYTES];
        if (!read_rank(&walk, item, &encoded, &rank))
            return kvr_error_set(error, KVR_BAD_INPUT, "a token lacks rank or token_bytes");
        ptrdiff_t length = kvr_base64_decode(encoded.text + 1, encoded.length - 2, token);
        if (length <= 0)
            return kvr_error_set(error, KVR_BAD_INPUT, "token_bytes are no base64");
        enum kvr_status status =
            kvr_source_add_token(source, rank + specials, token, (size_t)length, 0, error);
        if (status)
            return status;
    }
    if (number < limit)
        return kvr_error_set(error, KVR_BAD_INPUT, "the vocabulary has %llu tokens of %llu",
            (unsigned long long)number, (unsigned long long)limit);
    return KVR_OK;
}

static enum kvr_status load(struct kvr_source *source, const struct file *file,
    struct kvr_buffer *scratch, struct kvr_error *error)
{
    struct kvr_value config = kvr_load_member(&file->members, "config");
    struct kvr_value list = kvr_load_member(&file->members, "special_tokens");
    struct kvr_value vocab = kvr_load_member(&file->members, "vocab");
    struct kvr_vocabulary_step bytes = {.kind = KVR_DECODE_BYTES}, step = {0};
    struct kvr_vocabulary_step begin = {.kind = KVR_POST_TOKEN, .a = 1},
                               text = {.kind = KVR_POST_TEXT};
    struct kvr_text pattern;
    uint64_t size, specials;
    enum kvr_status status;

    if (!kvr_value_text(kvr_value_get(config, "pattern"), scratch, &pattern) ||
        !kvr_value_u64(kvr_value_get(config, "default_vocab_size"), &size) ||
        !kvr_value_u64(kvr_value_get(config, "default_num_special_tokens"), &specials) ||
        specials >= size || size > KVR_TOKEN_LIMIT)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "config lacks pattern, vocabulary size or special tokens");
    source->model = KVR_MODEL_BYTE_BPE;
    source->ranked = source->ignore_merges = true;
    enum kvr_scan scan = kvr_scan_find(pattern.text, pattern.length);
    if (scan != KVR_SCAN_NONE) {
        step = (struct kvr_vocabulary_step){.kind = KVR_PRETOKENIZE_SCAN, .a = (int32_t)scan};
        status = kvr_source_add_step(source, KVR_PRETOKENIZERS, step, NULL, 0, NULL, 0, error);
    } else {
        status = kvr_add_split(source, pattern.text, pattern.length, step, error);
    }
    if (!status)
        status = add_specials(source, list, specials, error);
    if (!status && vocab.type != KVR_ARRAY)
        status = kvr_error_set(error, KVR_BAD_INPUT, "no 'vocab' in this tekken.json");
    if (!status)
        status = add_ranks(source, kvr_json_walk_open(file->structure, file->text, vocab), specials,
            size - specials, error);
    if (!status)
        status = kvr_source_add_step(source, KVR_DECODERS, bytes, NULL, 0, NULL, 0, error);
    if (!status)
        status = kvr_source_add_step(source, KVR_POSTPROCESSORS, begin, NULL, 0, NULL, 0, error);
    if (!status)
        status = kvr_source_add_step(source, KVR_POSTPROCESSORS, text, NULL, 0, NULL, 0, error);
    return status;
}

enum kvr_status kvr_load_tekken(
    struct kvr_source *source, const char *bytes, size_t length, struct kvr_error *error)
{
    struct file file = {.structure = kvr_structure_create(), .text = bytes};
    struct kvr_buffer scratch = {0};
    struct kvr_value value;

    if (!file.structure)
        return kvr_error_memory(error);
    enum kvr_status status =
        kvr_json_check(file.structure, bytes, length, &value, &file.members, error);
    if (!status)
        status = load(source, &file, &scratch, error);
    kvr_structure_destroy(file.structure);
    kvr_members_release(&file.members);
    kvr_buffer_release(&scratch);
    return status;
}
