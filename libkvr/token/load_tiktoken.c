/*
 * tiktoken rank files: "base64 rank" lines. The file says neither split pattern nor special
 * tokens; both are public facts of each encoding. The number of ranks tells which one it is (a
 * renamed file is still known), except o200k_harmony, which shares the ranks of o200k_base.
 */
#include "token/tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

struct special {
    const char *text;
    uint32_t id;
};

struct encoding {
    const char *name;
    uint32_t ranks; /* lines of its file */
    enum kvr_scan scan;
    bool nfc;
    const struct special *specials; /* ends with NULL */
    const char *numbered;           /* further specials: "<|extra_%u|>" from number_first ... */
    uint32_t numbered_id, numbered_count;
};

static const struct special gpt2[] = {{"<|endoftext|>", 50256}, {NULL, 0}};
static const struct special p50k_edit[] = {{"<|endoftext|>", 50256}, {"<|fim_prefix|>", 50281},
    {"<|fim_middle|>", 50282}, {"<|fim_suffix|>", 50283}, {NULL, 0}};
static const struct special cl100k[] = {{"<|endoftext|>", 100257}, {"<|fim_prefix|>", 100258},
    {"<|fim_middle|>", 100259}, {"<|fim_suffix|>", 100260}, {"<|endofprompt|>", 100276}, {NULL, 0}};
static const struct special o200k[] = {
    {"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}, {NULL, 0}};
static const struct special harmony[] = {{"<|startoftext|>", 199998}, {"<|endoftext|>", 199999},
    {"<|reserved_200000|>", 200000}, {"<|reserved_200001|>", 200001}, {"<|return|>", 200002},
    {"<|constrain|>", 200003}, {"<|reserved_200004|>", 200004}, {"<|channel|>", 200005},
    {"<|start|>", 200006}, {"<|end|>", 200007}, {"<|message|>", 200008},
    {"<|reserved_200009|>", 200009}, {"<|reserved_200010|>", 200010},
    {"<|reserved_200011|>", 200011}, {"<|call|>", 200012}, {NULL, 0}};
static const struct special llama3[] = {{"<|begin_of_text|>", 128000}, {"<|end_of_text|>", 128001},
    {"<|reserved_special_token_0|>", 128002}, {"<|reserved_special_token_1|>", 128003},
    {"<|finetune_right_pad_id|>", 128004}, {"<|reserved_special_token_2|>", 128005},
    {"<|start_header_id|>", 128006}, {"<|end_header_id|>", 128007}, {"<|eom_id|>", 128008},
    {"<|eot_id|>", 128009}, {"<|python_tag|>", 128010}, {NULL, 0}};
static const struct special qwen[] = {
    {"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}, {NULL, 0}};

static const struct encoding encodings[] = {
    {"p50k_edit", 50280, KVR_SCAN_GPT2, false, p50k_edit, NULL, 0, 0},
    {"p50k_base", 50280, KVR_SCAN_GPT2, false, gpt2, NULL, 0, 0},
    {"r50k_base", 50256, KVR_SCAN_GPT2, false, gpt2, NULL, 0, 0},
    {"cl100k_base", 100256, KVR_SCAN_CL100K, false, cl100k, NULL, 0, 0},
    {"o200k_harmony", 199998, KVR_SCAN_O200K, false, harmony, "<|reserved_%u|>", 200013, 1075},
    {"o200k_base", 199998, KVR_SCAN_O200K, false, o200k, NULL, 0, 0},
    {"llama3", 128000, KVR_SCAN_LLAMA3, false, llama3, "<|reserved_special_token_%u|>", 128011,
        245},
    {"qwen", 151643, KVR_SCAN_QWEN2, true, qwen, "<|extra_%u|>", 151646, 205},
};
#define ENCODING_COUNT (sizeof encodings / sizeof *encodings)

/* What the numbers in the names of numbered specials start with. */
static uint32_t first_number(const struct encoding *encoding)
{
    return encoding->specials == harmony ? 200013 : encoding->specials == llama3 ? 3 : 0;
}

/* The encoding of so many ranks; where several have them, the one that the name contains, else the
 * last. */
static const struct encoding *find_encoding(uint32_t ranks, const char *name)
{
    const struct encoding *found = NULL;

    for (size_t i = 0; i < ENCODING_COUNT; i++) {
        if (encodings[i].ranks != ranks)
            continue;
        found = &encodings[i];
        if (strstr(name, found->name))
            break;
        if (found->specials == harmony && strstr(name, "harmony"))
            break;
    }
    return found;
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

ptrdiff_t kvr_base64_decode(const char *text, size_t length, uint8_t *out)
{
    size_t count = 0;
    uint32_t bits = 0;

    if (length % 4)
        return -1;
    while (length && text[length - 1] == '=' && length % 4 != 2)
        length--;
    for (size_t i = 0; i < length; i++) {
        int value = base64_value(text[i]);
        if (value < 0)
            return -1;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 != 0)
            out[count++] = (uint8_t)(bits >> (i % 4 == 1 ? 4 : i % 4 == 2 ? 2 : 0));
    }
    return (ptrdiff_t)count;
}

/* One line: base64, a space, the rank. */
static enum kvr_status read_line(struct kvr_source *source, const char *line, size_t length,
    uint64_t number, struct kvr_error *error)
{
    const char *space = memchr(line, ' ', length);
    uint8_t token[3072];
    uint64_t rank = 0;

    if (!space || space + 1 == line + length)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "line %llu is not 'base64 rank'", (unsigned long long)number);
    for (const char *p = space + 1; p < line + length; p++) {
        if (*p < '0' || *p > '9' || rank > KVR_TOKEN_LIMIT)
            return kvr_error_set(error, KVR_BAD_INPUT, "line %llu has no rank that can be",
                (unsigned long long)number);
        rank = rank * 10 + (uint64_t)(*p - '0');
    }
    size_t encoded = (size_t)(space - line);
    ptrdiff_t count = encoded / 4 * 3 < sizeof token ? kvr_base64_decode(line, encoded, token) : -1;
    if (count <= 0)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "line %llu has no token in base64", (unsigned long long)number);
    enum kvr_status status = kvr_source_add_token(source, rank, token, (size_t)count, 0, error);
    return status ? kvr_error_prefix(error, "line %llu", (unsigned long long)number) : KVR_OK;
}

static enum kvr_status add_special(
    struct kvr_source *source, const char *text, uint32_t id, struct kvr_error *error)
{
    enum kvr_status status = kvr_source_add_token(
        source, id, text, strlen(text), KVR_TOKEN_ADDED | KVR_TOKEN_SPECIAL, error);

    if (status)
        return status;
    struct kvr_step step = {.flags = KVR_ADDED_SPECIAL, .a = (int32_t)id};
    return kvr_source_add_step(source, KVR_ADDED, step, text, strlen(text), NULL, 0, error);
}

static enum kvr_status add_encoding(
    struct kvr_source *source, const struct encoding *encoding, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;
    struct kvr_step scan = {.kind = KVR_PRETOKENIZE_SCAN, .a = encoding->scan};
    struct kvr_step nfc = {.kind = KVR_NORMALIZE_NFC};
    struct kvr_step bytes = {.kind = KVR_DECODE_BYTES};

    for (const struct special *s = encoding->specials; s->text && !status; s++)
        status = add_special(source, s->text, s->id, error);
    for (uint32_t i = 0; i < encoding->numbered_count && !status; i++) {
        char text[64];
        snprintf(text, sizeof text, encoding->numbered, first_number(encoding) + i);
        status = add_special(source, text, encoding->numbered_id + i, error);
    }
    if (!status && encoding->nfc)
        status = kvr_source_add_step(source, KVR_NORMALIZERS, nfc, NULL, 0, NULL, 0, error);
    if (!status)
        status = kvr_source_add_step(source, KVR_PRETOKENIZERS, scan, NULL, 0, NULL, 0, error);
    if (!status)
        status = kvr_source_add_step(source, KVR_DECODERS, bytes, NULL, 0, NULL, 0, error);
    return status;
}

enum kvr_status kvr_load_tiktoken(struct kvr_source *source, const char *bytes, size_t length,
    const char *name, struct kvr_error *error)
{
    uint32_t ranks = 0;
    uint64_t number = 0;

    source->model = KVR_MODEL_BYTE_BPE;
    source->ranked = source->ignore_merges = true;
    source->unknown_id = KVR_NO_TOKEN;
    for (size_t at = 0; at < length;) {
        const char *line = bytes + at, *newline = memchr(line, '\n', length - at);
        size_t size = newline ? (size_t)(newline - line) : length - at;
        at += size + 1;
        number++;
        if (size && line[size - 1] == '\r')
            size--;
        if (!size)
            continue;
        enum kvr_status status = read_line(source, line, size, number, error);
        if (status)
            return status;
        ranks++;
    }
    const struct encoding *encoding = find_encoding(ranks, name);
    if (!encoding)
        return kvr_error_set(error, KVR_UNSUPPORTED,
            "a rank file of %u ranks belongs to no known encoding (truncated?)", (unsigned)ranks);
    return add_encoding(source, encoding, error);
}
