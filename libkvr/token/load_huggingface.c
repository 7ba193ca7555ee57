/*
 * Hugging Face tokenizer.json with a BPE model: vocabulary and added tokens here, merges in
 * load_merges.c, the steps around the model in load_steps.c.
 *
 * A byte-level file writes each byte as a printable character (0x20 as U+0120 "Ġ"); tokens are
 * turned back into bytes, and text then needs no such alphabet. A SentencePiece-style file turns
 * spaces into U+2581; such a source is folded (vocabulary_source.h).
 */
#include "base/u64_map.h"
#include "token/alphabet.h"
#include "token/load_merges.h"
#include "token/load_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Characters with U+2581 as a space. False: there is a space, which no text has any more. */
static bool fold(const char *text, size_t length, struct kvr_buffer *out)
{
    const char *end = text + length;

    if (!kvr_buffer_reserve(out, length + 1))
        return true; /* as said by out->failed */
    char *to = out->data + out->length;
    while (text < end) {
        if (*text == ' ')
            return false;
        if (*text == '\xe2' && end - text >= 3 && text[1] == '\x96' && text[2] == '\x81') {
            *to++ = ' ';
            text += 3;
        } else {
            *to++ = *text++;
        }
    }
    out->length = (size_t)(to - out->data);
    return true;
}

bool kvr_load_token_bytes(
    const struct kvr_source *source, const char *text, size_t length, struct kvr_buffer *out)
{
    if (source->model == KVR_MODEL_BYTE_BPE)
        return kvr_bytes_from_alphabet(text, length, out);
    if (source->folded)
        return fold(text, length, out);
    kvr_buffer_append(out, text, length);
    return true;
}

/* The text, and where its structure stands. */
struct file {
    const struct kvr_structure *structure;
    const char *text;
};

static bool is_byte_token(const char *text, size_t length)
{
    return length == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>';
}

static enum kvr_status add_model_token(struct kvr_source *source, struct kvr_text text, uint64_t id,
    struct kvr_buffer *scratch, struct kvr_error *error)
{
    uint8_t flags = 0;
    const char *bytes = text.text;
    size_t length = text.length;

    kvr_buffer_clear(scratch);
    if (source->byte_fallback && is_byte_token(text.text, text.length)) {
        flags = KVR_TOKEN_BYTE;
    } else if (kvr_load_token_bytes(source, text.text, text.length, scratch)) {
        bytes = scratch->data;
        length = scratch->length;
    } else {
        flags = KVR_TOKEN_ADDED; /* never from the model; decoded as it is written */
    }
    return scratch->failed ? kvr_error_memory(error)
                           : kvr_source_add_token(source, id, bytes, length, flags, error);
}

/* Adds all members of model.vocab, or, where lasts (hash of a name -> its last member's number) are
 * given, these alone. */
static enum kvr_status add_members(struct kvr_source *source, const struct file *file,
    struct kvr_value vocab, struct kvr_u64_map *lasts, struct kvr_buffer scratch[2],
    struct kvr_error *error)
{
    struct kvr_json_walk walk = kvr_json_walk_open(file->structure, file->text, vocab);
    struct kvr_member member;

    for (uint64_t number = 0; kvr_json_walk_member(&walk, &member); number++) {
        struct kvr_text text;
        uint64_t id;
        if (!kvr_value_text(member.name, &scratch[0], &text))
            return kvr_error_memory(error);
        if (!kvr_value_u64(member.value, &id))
            return kvr_error_set(error, KVR_BAD_INPUT, "an id of model.vocab is no number");
        if (lasts && *kvr_u64_map_find(lasts, XXH3_64bits(text.text, text.length)) != number)
            continue;
        enum kvr_status status = add_model_token(source, text, id, &scratch[1], error);
        if (status)
            return status;
    }
    return KVR_OK;
}

static enum kvr_status find_lasts(const struct file *file, struct kvr_value vocab,
    struct kvr_u64_map *lasts, struct kvr_buffer *scratch, struct kvr_error *error)
{
    struct kvr_json_walk walk = kvr_json_walk_open(file->structure, file->text, vocab);
    struct kvr_member member;

    for (uint64_t number = 0; kvr_json_walk_member(&walk, &member); number++) {
        struct kvr_text text;
        uint64_t *last = NULL;
        if (kvr_value_text(member.name, scratch, &text))
            last = kvr_u64_map_insert(lasts, XXH3_64bits(text.text, text.length), NULL);
        if (!last)
            return kvr_error_memory(error);
        *last = number;
    }
    return KVR_OK;
}

/* To the reference the vocabulary is a map: of members of one name the last counts, and the ids of
 * those before are nobody's. Such names are found by two tokens of one id, or by the index; only
 * then is the vocabulary read again. */
static enum kvr_status load_vocabulary(struct kvr_source *source, const struct file *file,
    struct kvr_value vocab, struct kvr_buffer scratch[2], struct kvr_error *error)
{
    struct kvr_u64_map lasts = {0};

    if (vocab.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "model.vocab is no object");
    kvr_source_expect(source, vocab.length / 20, vocab.length / 2);
    enum kvr_status status = add_members(source, file, vocab, NULL, scratch, error);
    if (!status)
        status = kvr_source_index(source, error);
    if (status ? status != KVR_BAD_INPUT : !source->repeated)
        return status;
    kvr_source_forget_tokens(source);
    status = find_lasts(file, vocab, &lasts, &scratch[0], error);
    if (!status)
        status = add_members(source, file, vocab, &lasts, scratch, error);
    kvr_u64_map_release(&lasts);
    return status;
}

/* Added tokens while they are loaded. Their ids are what the reference makes of them, whatever the
 * file says: that of the model's token of this text, or the next free one, counted from the number
 * of the model's tokens. Of tokens of the same text the last one's flags count. */
struct adding {
    uint64_t next;
    struct kvr_u64_map known; /* hash of a text -> id:32, number of its step or 0:32 */
    struct kvr_buffer scratch;
};

static uint64_t *know(struct adding *adding, struct kvr_text text, bool *is_new)
{
    return kvr_u64_map_insert(&adding->known, XXH3_64bits(text.text, text.length), is_new);
}

/* The model's tokens that no text gives are known by what is written. */
static enum kvr_status begin_adding(
    const struct kvr_source *source, struct adding *adding, struct kvr_error *error)
{
    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_source_token *token = &source->tokens[id];
        struct kvr_text text = {source->bytes.data + token->offset, token->length};
        adding->next += token->flags & KVR_TOKEN_PRESENT;
        if (!(token->flags & KVR_TOKEN_ADDED))
            continue;
        uint64_t *known = know(adding, text, NULL);
        if (!known)
            return kvr_error_memory(error);
        *known = (uint64_t)id << 32;
    }
    return KVR_OK;
}

/* What is known of an added token, its id first of all. */
static uint64_t *find_added(
    const struct kvr_source *source, struct adding *adding, struct kvr_text text)
{
    bool is_new;
    uint64_t *known = know(adding, text, &is_new), id = adding->next;

    if (known && is_new) {
        kvr_buffer_clear(&adding->scratch);
        if (kvr_load_token_bytes(source, text.text, text.length, &adding->scratch)) {
            uint32_t own = kvr_source_find(source, adding->scratch.data, adding->scratch.length);
            id = own == KVR_NO_TOKEN ? id : own;
        }
        *known = id << 32;
    }
    if (known && *known >> 32 >= adding->next)
        adding->next = (*known >> 32) + 1;
    return known;
}

/* Adds an added token with its flags, or changes those of the one before it with this text. */
static enum kvr_status add_added(struct kvr_source *source, struct adding *adding,
    struct kvr_text text, struct kvr_vocabulary_step step, struct kvr_error *error)
{
    uint64_t *known = find_added(source, adding, text);
    uint8_t flags = step.flags & KVR_ADDED_SPECIAL ? KVR_TOKEN_SPECIAL : 0;
    enum kvr_status status = KVR_OK;

    if (!known)
        return kvr_error_memory(error);
    uint32_t id = (uint32_t)(*known >> 32), number = (uint32_t)*known;
    step.a = (int32_t)id;
    if (id < source->token_count && source->tokens[id].flags & KVR_TOKEN_PRESENT) {
        source->tokens[id].flags |= flags;
    } else {
        /* of the byte-level alphabet these are decoded to bytes by the reference, too */
        kvr_buffer_clear(&adding->scratch);
        bool bytes = source->model == KVR_MODEL_BYTE_BPE &&
                     kvr_load_token_bytes(source, text.text, text.length, &adding->scratch);
        status = kvr_source_add_token(source, id, bytes ? adding->scratch.data : text.text,
            bytes ? adding->scratch.length : text.length, flags | KVR_TOKEN_ADDED, error);
    }
    if (number) {
        struct kvr_vocabulary_step *before = &source->steps[KVR_ADDED][number - 1];
        before->flags = step.flags | (before->flags & KVR_ADDED_SPECIAL);
    } else if (!status) {
        status =
            kvr_source_add_step(source, KVR_ADDED, step, text.text, text.length, NULL, 0, error);
        *known |= source->step_count[KVR_ADDED];
    }
    return status;
}

static enum kvr_status load_added(
    struct kvr_source *source, struct kvr_value list, struct kvr_error *error)
{
    static const struct {
        const char *name;
        uint32_t flag;
    } flags[] = {{"special", KVR_ADDED_SPECIAL}, {"single_word", KVR_ADDED_SINGLE_WORD},
        {"lstrip", KVR_ADDED_LSTRIP}, {"rstrip", KVR_ADDED_RSTRIP},
        {"normalized", KVR_ADDED_NORMALIZED}};
    struct kvr_cursor cursor = kvr_value_open(list);
    struct kvr_buffer scratch = {0};
    struct adding adding = {0};
    struct kvr_value item;
    enum kvr_status status = begin_adding(source, &adding, error);

    if (!status && !kvr_value_missing(list) && list.type != KVR_ARRAY)
        status = kvr_error_set(error, KVR_BAD_INPUT, "added_tokens is no list");
    while (list.type == KVR_ARRAY && !status && kvr_next_element(&cursor, &item)) {
        struct kvr_text text;
        uint64_t id;
        struct kvr_vocabulary_step step = {0};
        if (!kvr_value_text(kvr_value_get(item, "content"), &scratch, &text) ||
            !kvr_value_u64(kvr_value_get(item, "id"), &id) || id >= KVR_TOKEN_LIMIT) {
            status = kvr_error_set(error, KVR_BAD_INPUT, "an added token lacks content or id");
            break;
        }
        if (!text.length)
            continue;
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            if (kvr_value_true(kvr_value_get(item, flags[i].name)))
                step.flags |= flags[i].flag;
        status = add_added(source, &adding, text, step, error);
    }
    kvr_u64_map_release(&adding.known);
    kvr_buffer_release(&adding.scratch);
    kvr_buffer_release(&scratch);
    return status;
}

/* The members of a model, gathered in one pass: its vocabulary and merges are megabytes. */
struct model {
    struct kvr_value type, vocab, merges, unknown, byte_fallback, fuse_unknown, ignore_merges;
    struct kvr_value dropout, prefix, suffix;
};

static void gather_model(const struct file *file, struct kvr_value value, struct model *model)
{
    const struct {
        const char *name;
        struct kvr_value *at;
    } wanted[] = {{"type", &model->type}, {"vocab", &model->vocab}, {"merges", &model->merges},
        {"unk_token", &model->unknown}, {"byte_fallback", &model->byte_fallback},
        {"fuse_unk", &model->fuse_unknown}, {"ignore_merges", &model->ignore_merges},
        {"dropout", &model->dropout}, {"continuing_subword_prefix", &model->prefix},
        {"end_of_word_suffix", &model->suffix}};
    struct kvr_json_walk walk = kvr_json_walk_open(file->structure, file->text, value);
    struct kvr_member member;

    memset(model, 0, sizeof *model);
    while (value.type == KVR_OBJECT && kvr_json_walk_member(&walk, &member))
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (kvr_value_is(member.name, wanted[i].name))
                *wanted[i].at = member.value;
}

/* A member that must be absent, null or empty. */
static enum kvr_status refuse(struct kvr_value value, const char *name, struct kvr_error *error)
{
    if (value.type <= KVR_FALSE || (value.type == KVR_STRING && value.length == 2) ||
        (value.type == KVR_NUMBER && value.text[0] == '0' && value.length <= 3))
        return KVR_OK;
    return kvr_error_set(error, KVR_UNSUPPORTED, "a BPE model with %s", name);
}

/* Whether every text has tokens without unk_token: then it need not be there. */
static bool needs_no_unknown(const struct kvr_source *source)
{
    bool all = source->model == KVR_MODEL_BYTE_BPE || source->byte_fallback;

    for (int byte = 0; byte < 256 && all; byte++) {
        char name[8] = {(char)byte};
        size_t length = 1;
        if (source->model != KVR_MODEL_BYTE_BPE)
            length = (size_t)snprintf(name, sizeof name, "<0x%02X>", byte);
        all = kvr_source_find(source, name, length) != KVR_NO_TOKEN;
    }
    return all;
}

static enum kvr_status load_model(struct kvr_source *source, const struct file *file,
    struct kvr_value value, struct kvr_error *error)
{
    struct kvr_buffer scratch[2] = {{0}};
    struct model model;
    struct kvr_text text;

    if (value.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "no 'model' in this tokenizer.json");
    gather_model(file, value, &model);
    if (model.type.type != KVR_ABSENT ? !kvr_value_is(model.type, "BPE")
                                      : model.merges.type == KVR_ABSENT)
        return kvr_error_type(error, "model", model.type);
    enum kvr_status status = refuse(model.dropout, "dropout", error);
    if (!status)
        status = refuse(model.prefix, "continuing_subword_prefix", error);
    if (!status)
        status = refuse(model.suffix, "end_of_word_suffix", error);
    if (status)
        return status;
    source->byte_fallback = kvr_value_true(model.byte_fallback);
    source->fuse_unknown = kvr_value_true(model.fuse_unknown);
    source->ignore_merges = kvr_value_true(model.ignore_merges);
    status = load_vocabulary(source, file, model.vocab, scratch, error);
    if (!status && model.merges.type != KVR_ARRAY)
        status = kvr_error_set(error, KVR_BAD_INPUT, "model.merges is no array");
    if (!status)
        status = kvr_load_merges(
            source, kvr_json_walk_open(file->structure, file->text, model.merges), error);
    if (!status && model.unknown.type == KVR_STRING &&
        kvr_value_text(model.unknown, &scratch[0], &text)) {
        source->unknown_id = kvr_source_find(source, text.text, text.length);
        if (source->unknown_id == KVR_NO_TOKEN && !needs_no_unknown(source))
            status = kvr_error_set(error, KVR_BAD_INPUT, "unk_token is not in the vocabulary");
    }
    kvr_buffer_release(&scratch[0]);
    kvr_buffer_release(&scratch[1]);
    return status;
}

enum kvr_status kvr_load_huggingface(
    struct kvr_source *source, const char *bytes, size_t length, struct kvr_error *error)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct file file = {structure, bytes};
    struct kvr_members members = {0};
    struct kvr_value value;

    if (!structure)
        return kvr_error_memory(error);
    enum kvr_status status = kvr_json_check(structure, bytes, length, &value, &members, error);
    struct kvr_steps_members steps = {
        .normalizer = kvr_load_member(&members, "normalizer"),
        .pre_tokenizer = kvr_load_member(&members, "pre_tokenizer"),
        .decoder = kvr_load_member(&members, "decoder"),
        .post_processor = kvr_load_member(&members, "post_processor"),
    };
    if (!status)
        status = kvr_load_steps(source, &steps, error); /* these tell the kind of model */
    if (!status)
        status = load_model(source, &file, kvr_load_member(&members, "model"), error);
    if (!status)
        status = load_added(source, kvr_load_member(&members, "added_tokens"), error);
    if (!status)
        kvr_load_fast_spaces(source);
    kvr_members_release(&members);
    kvr_structure_destroy(structure);
    return status;
}
