/*
 * tiktoken rank files: "base64 rank" lines. The file says neither split pattern nor special
 * tokens; both are public facts of each encoding. The number of ranks tells which one it is (a
 * renamed file is still known), except o200k_harmony, which shares the ranks of o200k_base. Special
 * tokens that a tokenizer_config.json beside the file lists (Kimi, GLM) come before those known
 * here.
 */
#include "token/load_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct special {
    const char *text;
    uint32_t id;
};

/* `count` special tokens: of ids from `id` on, with numbers from `number` on in their texts. */
struct numbered {
    const char *format;
    uint32_t id, number, count;
};

struct encoding {
    const char *name;
    uint32_t ranks; /* lines of its file */
    enum kvr_scan scan;
    const char *pattern; /* where no scanner stands for it */
    bool nfc;
    const struct special *specials;  /* ends with NULL */
    const struct numbered *numbered; /* ends with NULL; may be NULL */
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
    {"<|reserved_200011|>", 200011}, {"<|call|>", 200012}, {"<|endofprompt|>", 200018}, {NULL, 0}};
static const struct special llama3[] = {{"<|begin_of_text|>", 128000}, {"<|end_of_text|>", 128001},
    {"<|reserved_special_token_0|>", 128002}, {"<|reserved_special_token_1|>", 128003},
    {"<|finetune_right_pad_id|>", 128004}, {"<|reserved_special_token_2|>", 128005},
    {"<|start_header_id|>", 128006}, {"<|end_header_id|>", 128007}, {"<|eom_id|>", 128008},
    {"<|eot_id|>", 128009}, {"<|python_tag|>", 128010}, {NULL, 0}};
static const struct special qwen[] = {
    {"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}, {NULL, 0}};
static const struct special qwen3_5[] = {{"<|endoftext|>", 248044}, {"<|im_start|>", 248045},
    {"<|im_end|>", 248046}, {"<|object_ref_start|>", 248047}, {"<|object_ref_end|>", 248048},
    {"<|box_start|>", 248049}, {"<|box_end|>", 248050}, {"<|quad_start|>", 248051},
    {"<|quad_end|>", 248052}, {"<|vision_start|>", 248053}, {"<|vision_end|>", 248054},
    {"<|vision_pad|>", 248055}, {"<|image_pad|>", 248056}, {"<|video_pad|>", 248057},
    {"<tool_call>", 248058}, {"</tool_call>", 248059}, {"<|fim_prefix|>", 248060},
    {"<|fim_middle|>", 248061}, {"<|fim_suffix|>", 248062}, {"<|fim_pad|>", 248063},
    {"<|repo_name|>", 248064}, {"<|file_sep|>", 248065}, {"<tool_response>", 248066},
    {"</tool_response>", 248067}, {"<think>", 248068}, {"</think>", 248069},
    {"<|audio_start|>", 248070}, {"<|audio_end|>", 248071}, {"<tts_pad>", 248072},
    {"<tts_text_bos>", 248073}, {"<tts_text_eod>", 248074}, {"<tts_text_bos_single>", 248075},
    {"<|audio_pad|>", 248076}, {NULL, 0}};

static const struct special llama4[] = {{"<|begin_of_text|>", 200000}, {"<|end_of_text|>", 200001},
    {"<|fim_prefix|>", 200002}, {"<|fim_middle|>", 200003}, {"<|fim_suffix|>", 200004},
    {"<|header_start|>", 200005}, {"<|header_end|>", 200006}, {"<|eom|>", 200007},
    {"<|eot|>", 200008}, {"<|step|>", 200009},
    {"<|text_post_train_reserved_special_token_0|>", 200010},
    {"<|text_post_train_reserved_special_token_1|>", 200011},
    {"<|text_post_train_reserved_special_token_2|>", 200012},
    {"<|text_post_train_reserved_special_token_3|>", 200013},
    {"<|text_post_train_reserved_special_token_4|>", 200014},
    {"<|text_post_train_reserved_special_token_5|>", 200015}, {"<|python_start|>", 200016},
    {"<|python_end|>", 200017}, {"<|finetune_right_pad|>", 200018}, {"<|image_start|>", 200080},
    {"<|image_end|>", 200081}, {"<|vision_reserved_special_token_0|>", 200082},
    {"<|vision_reserved_special_token_1|>", 200083}, {"<|tile_x_separator|>", 200084},
    {"<|tile_y_separator|>", 200085}, {"<|vision_reserved_special_token_2|>", 200086},
    {"<|vision_reserved_special_token_3|>", 200087},
    {"<|vision_reserved_special_token_4|>", 200088},
    {"<|vision_reserved_special_token_5|>", 200089}, {"<|image|>", 200090},
    {"<|vision_reserved_special_token_6|>", 200091}, {"<|patch|>", 200092},
    {"<|reasoning_reserved_special_token_0|>", 201134},
    {"<|reasoning_reserved_special_token_1|>", 201135},
    {"<|reasoning_reserved_special_token_2|>", 201136},
    {"<|reasoning_reserved_special_token_3|>", 201137},
    {"<|reasoning_reserved_special_token_4|>", 201138},
    {"<|reasoning_reserved_special_token_5|>", 201139},
    {"<|reasoning_reserved_special_token_6|>", 201140},
    {"<|reasoning_reserved_special_token_7|>", 201141}, {"<|reasoning_thinking_start|>", 201142},
    {"<|reasoning_thinking_end|>", 201143}, {NULL, 0}};
static const struct special glm4[] = {{"<|endoftext|>", 151329}, {"[MASK]", 151330},
    {"[gMASK]", 151331}, {"[sMASK]", 151332}, {"<sop>", 151333}, {"<eop>", 151334},
    {"<|system|>", 151335}, {"<|user|>", 151336}, {"<|assistant|>", 151337},
    {"<|observation|>", 151338}, {"<|begin_of_image|>", 151339}, {"<|end_of_image|>", 151340},
    {"<|begin_of_video|>", 151341}, {"<|end_of_video|>", 151342}, {NULL, 0}};
static const struct special kimi[] = {{"[BOS]", 163584}, {"[EOS]", 163585}, {"<|im_end|>", 163586},
    {"<|im_user|>", 163587}, {"<|im_assistant|>", 163588}, {"<|start_header_id|>", 163590},
    {"<|end_header_id|>", 163591}, {"[EOT]", 163593}, {"<|im_system|>", 163594},
    {"<|tool_calls_section_begin|>", 163595}, {"<|tool_calls_section_end|>", 163596},
    {"<|tool_call_begin|>", 163597}, {"<|tool_call_argument_begin|>", 163598},
    {"<|tool_call_end|>", 163599}, {"<|im_middle|>", 163601}, {"[UNK]", 163838}, {"[PAD]", 163839},
    {NULL, 0}};

/* o200k's pattern for letters that are not Han, which stand alone. */
#define NOT_HAN "\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define WORD_START "[^\\r\\n\\p{L}\\p{N}]?"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define KIMI_PATTERN                                                                               \
    "[\\p{Han}]+|" WORD_START "[\\p{Lu}\\p{Lt}" NOT_HAN "*[\\p{Ll}" NOT_HAN "+" CONTRACTION        \
    "|" WORD_START "[\\p{Lu}\\p{Lt}" NOT_HAN "+[\\p{Ll}" NOT_HAN "*" CONTRACTION                   \
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct numbered harmony_numbered[] = {
    {"<|reserved_%u|>", 200013, 200013, 1075}, {NULL, 0, 0, 0}};
static const struct numbered llama3_numbered[] = {
    {"<|reserved_special_token_%u|>", 128011, 3, 245}, {NULL, 0, 0, 0}};
static const struct numbered llama4_numbered[] = {
    {"<|text_post_train_reserved_special_token_%u|>", 200019, 8, 61},
    {"<|vision_reserved_special_token_%u|>", 200093, 7, 1041},
    {"<|reserved_special_token_%u|>", 201144, 0, 904}, {NULL, 0, 0, 0}};
static const struct numbered qwen_numbered[] = {{"<|extra_%u|>", 151646, 0, 205}, {NULL, 0, 0, 0}};

static const struct encoding encodings[] = {
    {"p50k_edit", 50280, KVR_SCAN_GPT2, NULL, false, p50k_edit, NULL},
    {"p50k_base", 50280, KVR_SCAN_GPT2, NULL, false, gpt2, NULL},
    {"r50k_base", 50256, KVR_SCAN_GPT2, NULL, false, gpt2, NULL},
    {"cl100k_base", 100256, KVR_SCAN_CL100K, NULL, false, cl100k, NULL},
    {"o200k_harmony", 199998, KVR_SCAN_O200K, NULL, false, harmony, harmony_numbered},
    {"o200k_base", 199998, KVR_SCAN_O200K, NULL, false, o200k, NULL},
    {"llama3", 128000, KVR_SCAN_LLAMA3, NULL, false, llama3, llama3_numbered},
    {"llama4", 200000, KVR_SCAN_O200K, NULL, false, llama4, llama4_numbered},
    {"qwen", 151643, KVR_SCAN_QWEN2, NULL, true, qwen, qwen_numbered},
    {"qwen3.5", 248044, KVR_SCAN_QWEN3_5, NULL, true, qwen3_5, NULL},
    {"glm4", 151329, KVR_SCAN_LLAMA3, NULL, false, glm4, NULL},
    {"kimi", 163584, KVR_SCAN_NONE, KIMI_PATTERN, false, kimi, NULL},
};
#define ENCODING_COUNT (sizeof encodings / sizeof *encodings)

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

#define NO 255

/* The six bits that a character stands for. */
static const uint8_t base64_values[256] = {NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, 62, NO, NO, NO, 63, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, NO, NO, NO, NO,
    NO, NO, NO, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
    23, 24, 25, NO, NO, NO, NO, NO, NO, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40,
    41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO};

ptrdiff_t kvr_base64_decode(const char *text, size_t length, uint8_t *out)
{
    const uint8_t *in = (const uint8_t *)text, *v = base64_values;
    uint32_t bits = 0, wrong = 0;
    size_t count = 0;

    if (length % 4)
        return -1;
    while (length && text[length - 1] == '=' && length % 4 != 2)
        length--;
    for (; length >= 4; length -= 4, in += 4) {
        wrong |= v[in[0]] | v[in[1]] | v[in[2]] | v[in[3]];
        bits = (uint32_t)v[in[0]] << 18 | (uint32_t)v[in[1]] << 12 | (uint32_t)v[in[2]] << 6 |
               v[in[3]];
        out[count++] = (uint8_t)(bits >> 16);
        out[count++] = (uint8_t)(bits >> 8);
        out[count++] = (uint8_t)bits;
    }
    if (length >= 2) {
        wrong |= v[in[0]] | v[in[1]];
        out[count++] = (uint8_t)(v[in[0]] << 2 | v[in[1]] >> 4);
    }
    if (length == 3) {
        wrong |= v[in[2]];
        out[count++] = (uint8_t)(v[in[1]] << 4 | v[in[2]] >> 2);
    }
    return wrong & 0xc0 ? -1 : (ptrdiff_t)count;
}

static const char no_vocabulary[] =
    "this is no vocabulary: neither JSON nor lines of a token in base64 and its rank";

/* One line: base64, a space, the rank. */
static enum kvr_status read_line(struct kvr_source *source, const char *line, size_t length,
    uint64_t number, struct kvr_error *error)
{
    const char *space = memchr(line, ' ', length);
    uint8_t token[3072];
    uint64_t rank = 0;

    if (!space || space + 1 == line + length)
        return number == 1 ? kvr_error_set(error, KVR_BAD_INPUT, "%s", no_vocabulary)
                           : kvr_error_set(error, KVR_BAD_INPUT, "line %llu is not 'base64 rank'",
                                 (unsigned long long)number);
    for (const char *p = space + 1; p < line + length; p++) {
        if (*p < '0' || *p > '9' || rank > KVR_TOKEN_LIMIT)
            return number == 1 ? kvr_error_set(error, KVR_BAD_INPUT, "%s", no_vocabulary)
                               : kvr_error_set(error, KVR_BAD_INPUT,
                                     "line %llu has no number as its rank, or one above %u",
                                     (unsigned long long)number, KVR_TOKEN_LIMIT);
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

/* An id may have several texts: the first is what it is decoded to. */
static enum kvr_status add_special_text(struct kvr_source *source, const char *text, size_t length,
    uint32_t id, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    if (id >= source->token_count || !(source->tokens[id].flags & KVR_TOKEN_PRESENT))
        status = kvr_source_add_token(
            source, id, text, length, KVR_TOKEN_ADDED | KVR_TOKEN_SPECIAL, error);
    if (status)
        return status;
    struct kvr_vocabulary_step step = {.flags = KVR_ADDED_SPECIAL, .a = (int32_t)id};
    return kvr_source_add_step(source, KVR_ADDED, step, text, length, NULL, 0, error);
}

static enum kvr_status add_special(
    struct kvr_source *source, const char *text, uint32_t id, struct kvr_error *error)
{
    return add_special_text(source, text, strlen(text), id, error);
}

/* Special tokens as known of the encoding. */
static enum kvr_status add_known(
    struct kvr_source *source, const struct encoding *encoding, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    for (const struct special *s = encoding->specials; s->text && !status; s++)
        status = add_special(source, s->text, s->id, error);
    for (const struct numbered *n = encoding->numbered; n && n->format; n++)
        for (uint32_t i = 0; i < n->count && !status; i++) {
            char text[64];
            snprintf(text, sizeof text, n->format, (unsigned)(n->number + i));
            status = add_special(source, text, n->id + i, error);
        }
    return status;
}

/* "added_tokens_decoder": {"ID": {"content": ...}, ...} of a configuration. *count: how many. */
static enum kvr_status add_configured(
    struct kvr_source *source, struct kvr_text config, uint32_t *count, struct kvr_error *error)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_buffer scratch[2] = {{0}};
    struct kvr_value file = {0};
    struct kvr_member member;
    enum kvr_status status = structure ? KVR_OK : kvr_error_memory(error);

    *count = 0;
    if (!status)
        status = kvr_json_check(structure, config.text, config.length, &file, NULL, error);
    struct kvr_value list = kvr_value_get(file, "added_tokens_decoder");
    struct kvr_cursor cursor = kvr_value_open(list);
    while (!status && list.type == KVR_OBJECT && kvr_next_member(&cursor, &member)) {
        struct kvr_text text;
        uint64_t id = KVR_TOKEN_LIMIT;
        const char *name = kvr_value_string(member.name, &scratch[0]) /* appends */
                               ? kvr_buffer_text(&scratch[0])
                               : NULL;
        if (name)
            id = strtoull(name, NULL, 10);
        kvr_buffer_clear(&scratch[0]);
        if (!kvr_value_text(kvr_value_get(member.value, "content"), &scratch[1], &text) ||
            !text.length || id >= KVR_TOKEN_LIMIT)
            status = kvr_error_set(
                error, KVR_BAD_INPUT, "an entry of added_tokens_decoder lacks id or content");
        else if (id >= source->token_count || !(source->tokens[id].flags & KVR_TOKEN_PRESENT))
            status = add_special_text(source, text.text, text.length, (uint32_t)id, error);
        (*count)++;
    }
    kvr_buffer_release(&scratch[0]);
    kvr_buffer_release(&scratch[1]);
    kvr_structure_destroy(structure);
    return status ? kvr_error_prefix(error, "tokenizer_config.json") : KVR_OK;
}

static enum kvr_status add_encoding(struct kvr_source *source, const struct encoding *encoding,
    struct kvr_text config, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;
    struct kvr_vocabulary_step scan = {.kind = KVR_PRETOKENIZE_SCAN, .a = encoding->scan};
    struct kvr_vocabulary_step nfc = {.kind = KVR_NORMALIZE_NFC};
    struct kvr_vocabulary_step bytes = {.kind = KVR_DECODE_BYTES}, split = {0};
    uint32_t configured = 0;

    if (config.text)
        status = add_configured(source, config, &configured, error);
    if (!status && !configured)
        status = add_known(source, encoding, error);
    /* Kimi's other ids are named by their number */
    for (uint32_t i = 0; encoding->specials == kimi && i < 256 && !status; i++) {
        uint32_t id = encoding->ranks + i;
        char text[64];
        if (id < source->token_count && source->tokens[id].flags & KVR_TOKEN_PRESENT)
            continue;
        snprintf(text, sizeof text, "<|reserved_token_%u|>", (unsigned)id);
        status = add_special(source, text, id, error);
    }
    if (!status && encoding->nfc)
        status = kvr_source_add_step(source, KVR_NORMALIZERS, nfc, NULL, 0, NULL, 0, error);
    if (!status && encoding->pattern)
        status = kvr_add_split(source, encoding->pattern, strlen(encoding->pattern), split, error);
    else if (!status)
        status = kvr_source_add_step(source, KVR_PRETOKENIZERS, scan, NULL, 0, NULL, 0, error);
    if (!status)
        status = kvr_source_add_step(source, KVR_DECODERS, bytes, NULL, 0, NULL, 0, error);
    return status;
}

enum kvr_status kvr_load_tiktoken(struct kvr_source *source, const char *bytes, size_t length,
    const char *name, struct kvr_text config, struct kvr_error *error)
{
    uint32_t ranks = 0;
    uint64_t number = 0;

    source->model = KVR_MODEL_BYTE_BPE;
    source->ranked = source->ignore_merges = true;
    source->unknown_id = KVR_NO_TOKEN;
    kvr_source_expect(source, length / 16, length / 2);
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
    return add_encoding(source, encoding, config, error);
}
