/*
 * Hugging Face tokenizer.json with a BPE model: vocabulary, merges and added tokens here, the steps
 * around the model in load_steps.c.
 *
 * A byte-level file writes each byte as a printable character (0x20 as U+0120 "Ġ"); tokens are
 * turned back into bytes, and text then needs no such alphabet. A SentencePiece-style file turns
 * spaces into U+2581; such a source is folded (vocabulary_source.h).
 */
#include "token/load_steps.h"
#include "token/unicode.h"

#include <stdlib.h>
#include <string.h>

/* The byte that a character of the byte-level alphabet stands for, or -1. */
static int byte_of(uint32_t character)
{
    if ((character >= 33 && character <= 126) || (character >= 161 && character <= 172) ||
        (character >= 174 && character <= 255))
        return (int)character;
    if (character < 256 || character >= 256 + 68)
        return -1;
    uint32_t index = character - 256; /* 0..32, 127..160, 173 in order */
    return index < 33 ? (int)index : index < 67 ? (int)(127 + index - 33) : 173;
}

/* Turns a token as written into the bytes that text has. False: no text can give this token. */
static bool token_bytes(
    const struct kvr_source *source, const char *text, size_t length, struct kvr_buffer *out)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + length;
    unsigned size;

    kvr_buffer_clear(out);
    if (source->model == KVR_MODEL_BYTE_BPE) {
        for (; p < end; p += size) {
            int byte = byte_of(kvr_utf8_decode(p, end, &size));
            if (byte < 0)
                return false;
            kvr_buffer_append_byte(out, (char)byte);
        }
        return true;
    }
    for (; p < end; p += size) {
        uint32_t character = kvr_utf8_decode(p, end, &size);
        if (source->folded && character == ' ')
            return false;
        if (source->folded && character == 0x2581)
            kvr_buffer_append_byte(out, ' ');
        else
            kvr_buffer_append(out, p, size);
    }
    return true;
}

static bool is_byte_token(const char *text, size_t length)
{
    return length == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>';
}

static enum kvr_status load_vocabulary(struct kvr_source *source, struct kvr_value vocab,
    struct kvr_buffer scratch[2], struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(vocab);
    struct kvr_member member;

    if (vocab.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "model.vocab is no object");
    while (kvr_next_member(&cursor, &member)) {
        struct kvr_text text;
        uint64_t id;
        if (!kvr_value_text(member.name, &scratch[0], &text))
            return kvr_error_memory(error);
        if (!kvr_value_u64(member.value, &id))
            return kvr_error_set(error, KVR_BAD_INPUT, "an id of model.vocab is no number");
        uint8_t flags = 0;
        const char *bytes = text.text;
        size_t length = text.length;
        if (source->byte_fallback && is_byte_token(text.text, text.length)) {
            flags = KVR_TOKEN_BYTE;
        } else if (token_bytes(source, text.text, text.length, &scratch[1])) {
            bytes = scratch[1].data;
            length = scratch[1].length;
        } else {
            flags = KVR_TOKEN_ADDED; /* never from the model; decoded as it is written */
        }
        enum kvr_status status = kvr_source_add_token(source, id, bytes, length, flags, error);
        if (status)
            return status;
    }
    return KVR_OK;
}

/* "left right", or ["left", "right"]. */
static enum kvr_status read_merge(struct kvr_value merge, struct kvr_buffer scratch[2],
    struct kvr_text parts[2], struct kvr_error *error)
{
    if (merge.type == KVR_ARRAY) {
        struct kvr_cursor cursor = kvr_value_open(merge);
        struct kvr_value left, right, more;
        if (kvr_next_element(&cursor, &left) && kvr_next_element(&cursor, &right) &&
            !kvr_next_element(&cursor, &more) && kvr_value_text(left, &scratch[0], &parts[0]) &&
            kvr_value_text(right, &scratch[1], &parts[1]))
            return KVR_OK;
    } else if (kvr_value_text(merge, &scratch[0], &parts[0])) {
        const char *space = memchr(parts[0].text, ' ', parts[0].length);
        if (space &&
            !memchr(space + 1, ' ', parts[0].length - (size_t)(space + 1 - parts[0].text))) {
            parts[1].text = space + 1;
            parts[1].length = parts[0].length - (size_t)(space + 1 - parts[0].text);
            parts[0].length = (size_t)(space - parts[0].text);
            return KVR_OK;
        }
    }
    return kvr_error_set(error, KVR_BAD_INPUT, "a merge is not two tokens");
}

static enum kvr_status load_merges(
    struct kvr_source *source, struct kvr_value merges, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(merges);
    struct kvr_buffer scratch[2] = {{0}}, bytes[2] = {{0}};
    struct kvr_value merge;
    uint32_t number = 0;
    enum kvr_status status = kvr_source_index(source, error);

    if (!status && merges.type != KVR_ARRAY)
        status = kvr_error_set(error, KVR_BAD_INPUT, "model.merges is no array");
    for (; !status && kvr_next_element(&cursor, &merge); number++) {
        struct kvr_text parts[2];
        status = read_merge(merge, scratch, parts, error);
        if (status || !token_bytes(source, parts[0].text, parts[0].length, &bytes[0]) ||
            !token_bytes(source, parts[1].text, parts[1].length, &bytes[1]))
            continue; /* such a token never meets another */
        uint32_t left = kvr_source_find(source, bytes[0].data, bytes[0].length);
        uint32_t right = kvr_source_find(source, bytes[1].data, bytes[1].length);
        kvr_buffer_append(&bytes[0], bytes[1].data, bytes[1].length);
        uint32_t result = kvr_source_find(source, bytes[0].data, bytes[0].length);
        if (left == KVR_NO_TOKEN || right == KVR_NO_TOKEN || result == KVR_NO_TOKEN)
            status = kvr_error_set(error, KVR_BAD_INPUT,
                "merge %u is of tokens that the vocabulary lacks", (unsigned)number + 1);
        else
            status = kvr_source_add_merge(source, left, right, result, error);
    }
    for (int i = 0; i < 2; i++) {
        kvr_buffer_release(&scratch[i]);
        kvr_buffer_release(&bytes[i]);
    }
    return status;
}

/* The id of an added token: that of the model's token of this text, where there is one, comes
 * before the one that the file gives. */
static uint64_t added_id(
    const struct kvr_source *source, struct kvr_text text, uint64_t id, struct kvr_buffer *scratch)
{
    uint32_t own = KVR_NO_TOKEN;

    if (token_bytes(source, text.text, text.length, scratch))
        own = kvr_source_find(source, scratch->data, scratch->length);
    return own == KVR_NO_TOKEN ? id : own;
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
    struct kvr_buffer scratch = {0}, bytes = {0};
    struct kvr_value item;
    enum kvr_status status = KVR_OK;

    while (list.type == KVR_ARRAY && !status && kvr_next_element(&cursor, &item)) {
        struct kvr_text text;
        uint64_t id;
        struct kvr_step step = {0};
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
        id = added_id(source, text, id, &bytes);
        step.a = (int32_t)id;
        uint8_t token_flags = step.flags & KVR_ADDED_SPECIAL ? KVR_TOKEN_SPECIAL : 0;
        if (id < source->token_count && source->tokens[id].flags & KVR_TOKEN_PRESENT)
            source->tokens[id].flags |= token_flags;
        else if (source->model == KVR_MODEL_BYTE_BPE &&
                 token_bytes(source, text.text, text.length, &bytes))
            status = kvr_source_add_token(/* the reference decodes these by the alphabet, too */
                source, id, bytes.data, bytes.length, token_flags | KVR_TOKEN_ADDED, error);
        else
            status = kvr_source_add_token(
                source, id, text.text, text.length, token_flags | KVR_TOKEN_ADDED, error);
        if (!status)
            status = kvr_source_add_step(
                source, KVR_ADDED, step, text.text, text.length, NULL, 0, error);
    }
    kvr_buffer_release(&scratch);
    kvr_buffer_release(&bytes);
    return status;
}

/* The members of a model, gathered in one pass: its vocabulary and merges are megabytes. */
struct model {
    struct kvr_value type, vocab, merges, unknown, byte_fallback, fuse_unknown, ignore_merges;
    struct kvr_value dropout, prefix, suffix;
};

static void gather_model(struct kvr_value value, struct model *model)
{
    const struct {
        const char *name;
        struct kvr_value *at;
    } wanted[] = {{"type", &model->type}, {"vocab", &model->vocab}, {"merges", &model->merges},
        {"unk_token", &model->unknown}, {"byte_fallback", &model->byte_fallback},
        {"fuse_unk", &model->fuse_unknown}, {"ignore_merges", &model->ignore_merges},
        {"dropout", &model->dropout}, {"continuing_subword_prefix", &model->prefix},
        {"end_of_word_suffix", &model->suffix}};
    struct kvr_cursor cursor = kvr_value_open(value);
    struct kvr_member member;

    memset(model, 0, sizeof *model);
    while (value.type == KVR_OBJECT && kvr_next_member(&cursor, &member))
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

static enum kvr_status load_model(
    struct kvr_source *source, struct kvr_value value, struct kvr_error *error)
{
    struct kvr_buffer scratch[2] = {{0}};
    struct model model;
    struct kvr_text text;

    if (value.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "no 'model' in this tokenizer.json");
    gather_model(value, &model);
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
    status = load_vocabulary(source, model.vocab, scratch, error);
    if (!status)
        status = load_merges(source, model.merges, error);
    if (!status && model.unknown.type == KVR_STRING &&
        kvr_value_text(model.unknown, &scratch[0], &text)) {
        source->unknown_id = kvr_source_find(source, text.text, text.length);
        if (source->unknown_id == KVR_NO_TOKEN)
            status = kvr_error_set(error, KVR_BAD_INPUT, "unk_token is not in the vocabulary");
    }
    kvr_buffer_release(&scratch[0]);
    kvr_buffer_release(&scratch[1]);
    return status;
}

/* An outermost member of the file. */
static struct kvr_value member_of(const struct kvr_members *members, const char *name)
{
    struct kvr_value none = {0};

    for (size_t i = members->count; i-- > 0;)
        if (kvr_value_is(members->items[i].name, name))
            return members->items[i].value;
    return none;
}

enum kvr_status kvr_load_huggingface(
    struct kvr_source *source, const char *bytes, size_t length, struct kvr_error *error)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_members members = {0};
    struct kvr_value file;

    if (!structure)
        return kvr_error_memory(error);
    enum kvr_status status = kvr_json_check(structure, bytes, length, &file, &members, error);
    kvr_structure_destroy(structure);
    struct kvr_steps_members steps = {
        .normalizer = member_of(&members, "normalizer"),
        .pre_tokenizer = member_of(&members, "pre_tokenizer"),
        .decoder = member_of(&members, "decoder"),
        .post_processor = member_of(&members, "post_processor"),
    };
    if (!status)
        status = kvr_load_steps(source, &steps, error); /* these tell the kind of model */
    if (!status)
        status = load_model(source, member_of(&members, "model"), error);
    if (!status)
        status = load_added(source, member_of(&members, "added_tokens"), error);
    kvr_members_release(&members);
    return status;
}
