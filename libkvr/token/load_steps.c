#include "token/load_steps.h"

#include <stdlib.h>
#include <string.h>

#define NESTING 16 /* sequences in sequences */
#define MARK "\u2581"

typedef enum kvr_status load_one(struct kvr_source *source, struct kvr_value item,
    struct kvr_buffer scratch[2], struct kvr_error *error);

enum kvr_status kvr_error_type(struct kvr_error *error, const char *what, struct kvr_value type)
{
    char shown[64];

    if (type.type != KVR_STRING)
        return kvr_error_set(error, KVR_BAD_INPUT, "a %s without a type", what);
    return kvr_error_set(error, KVR_UNSUPPORTED, "the %s type '%s' is not supported", what,
        kvr_printable(shown, sizeof shown, type.text + 1, type.length - 2));
}

/* A step, or a Sequence of steps under the member `list`. */
static enum kvr_status load_list(struct kvr_source *source, struct kvr_value item, const char *list,
    load_one *one, unsigned depth, struct kvr_buffer scratch[2], struct kvr_error *error)
{
    if (item.type <= KVR_NULL)
        return KVR_OK;
    if (depth > NESTING)
        return kvr_error_set(error, KVR_BAD_INPUT, "sequences nested too deep");
    if (!kvr_value_is(kvr_value_get(item, "type"), "Sequence"))
        return one(source, item, scratch, error);
    struct kvr_cursor cursor = kvr_value_open(kvr_value_get(item, list));
    struct kvr_value inner;
    enum kvr_status status = KVR_OK;
    if (kvr_value_get(item, list).type != KVR_ARRAY)
        return kvr_error_set(error, KVR_BAD_INPUT, "a Sequence without '%s'", list);
    while (!status && kvr_next_element(&cursor, &inner))
        status = load_list(source, inner, list, one, depth + 1, scratch, error);
    return status;
}

static enum kvr_status add(struct kvr_source *source, enum kvr_pipeline pipeline, uint32_t kind,
    int32_t a, int32_t b, struct kvr_error *error)
{
    struct kvr_vocabulary_step step = {.kind = kind, .a = a, .b = b};

    return kvr_source_add_step(source, pipeline, step, NULL, 0, NULL, 0, error);
}

/* {"String": ...} or {"Regex": ...}, or a plain string. */
static bool read_pattern(
    struct kvr_value pattern, struct kvr_buffer *scratch, struct kvr_text *text, bool *regex)
{
    struct kvr_value value = kvr_value_get(pattern, "Regex");

    *regex = value.type == KVR_STRING;
    if (!*regex)
        value = pattern.type == KVR_STRING ? pattern : kvr_value_get(pattern, "String");
    return kvr_value_text(value, scratch, text);
}

static enum kvr_status load_replace(struct kvr_source *source, enum kvr_pipeline pipeline,
    uint32_t kind, struct kvr_value item, struct kvr_buffer scratch[2], struct kvr_error *error)
{
    struct kvr_text pattern, content;
    bool regex;

    if (!read_pattern(kvr_value_get(item, "pattern"), &scratch[0], &pattern, &regex) ||
        !kvr_value_text(kvr_value_get(item, "content"), &scratch[1], &content))
        return kvr_error_set(error, KVR_BAD_INPUT, "a Replace without pattern or content");
    struct kvr_vocabulary_step step = {.kind = kind, .a = regex};
    return kvr_source_add_step(
        source, pipeline, step, pattern.text, pattern.length, content.text, content.length, error);
}

static enum kvr_status load_normalizer(struct kvr_source *source, struct kvr_value item,
    struct kvr_buffer scratch[2], struct kvr_error *error)
{
    static const struct {
        const char *name;
        enum kvr_normalizer kind;
    } simple[] = {{"NFC", KVR_NORMALIZE_NFC}, {"NFD", KVR_NORMALIZE_NFD},
        {"NFKC", KVR_NORMALIZE_NFKC}, {"NFKD", KVR_NORMALIZE_NFKD},
        {"StripAccents", KVR_NORMALIZE_STRIP_ACCENTS}};
    struct kvr_value type = kvr_value_get(item, "type");
    struct kvr_text text;

    for (size_t i = 0; i < sizeof simple / sizeof *simple; i++)
        if (kvr_value_is(type, simple[i].name))
            return add(source, KVR_NORMALIZERS, simple[i].kind, 0, 0, error);
    if (kvr_value_is(type, "Replace"))
        return load_replace(source, KVR_NORMALIZERS, KVR_NORMALIZE_REPLACE, item, scratch, error);
    if (kvr_value_is(type, "Prepend") &&
        kvr_value_text(kvr_value_get(item, "prepend"), &scratch[0], &text)) {
        struct kvr_vocabulary_step step = {.kind = KVR_NORMALIZE_PREPEND};
        return kvr_source_add_step(
            source, KVR_NORMALIZERS, step, text.text, text.length, NULL, 0, error);
    }
    if (kvr_value_is(type, "Strip"))
        return add(source, KVR_NORMALIZERS, KVR_NORMALIZE_STRIP,
            kvr_value_true(kvr_value_get(item, "strip_left")),
            kvr_value_true(kvr_value_get(item, "strip_right")), error);
    if (kvr_value_is(type, "Precompiled") &&
        kvr_value_get(item, "precompiled_charsmap").length <= 4)
        return KVR_OK; /* null or "": changes nothing */
    return kvr_error_type(error, "normalizer", type);
}

static const char *const behaviours[] = {
    [KVR_SPLIT_ISOLATED] = "Isolated",
    [KVR_SPLIT_REMOVED] = "Removed",
    [KVR_SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
    [KVR_SPLIT_WITH_NEXT] = "MergedWithNext",
    [KVR_SPLIT_CONTIGUOUS] = "Contiguous",
};

static enum kvr_status read_behaviour(
    struct kvr_value item, int32_t *behaviour, struct kvr_error *error)
{
    struct kvr_value value = kvr_value_get(item, "behavior");

    *behaviour = KVR_SPLIT_ISOLATED;
    if (value.type <= KVR_NULL)
        return KVR_OK;
    for (int i = 0; i < (int)(sizeof behaviours / sizeof *behaviours); i++) {
        if (kvr_value_is(value, behaviours[i])) {
            *behaviour = i;
            return KVR_OK;
        }
    }
    return kvr_error_type(error, "split behavior", value);
}

enum kvr_status kvr_add_split(struct kvr_source *source, const char *pattern, size_t length,
    struct kvr_vocabulary_step step, struct kvr_error *error)
{
    step.kind = KVR_PRETOKENIZE_SPLIT;
    return kvr_source_add_step(source, KVR_PRETOKENIZERS, step, pattern, length, NULL, 0, error);
}

static enum kvr_status add_pattern(struct kvr_source *source, const char *pattern,
    enum kvr_behaviour behaviour, bool inverted, struct kvr_error *error)
{
    struct kvr_vocabulary_step step = {.a = (int32_t)behaviour, .b = inverted};

    return kvr_add_split(source, pattern, strlen(pattern), step, error);
}

static enum kvr_status load_split(struct kvr_source *source, struct kvr_value item,
    struct kvr_buffer scratch[2], struct kvr_error *error)
{
    struct kvr_text pattern;
    struct kvr_vocabulary_step step = {0};
    bool regex;
    enum kvr_status status = read_behaviour(item, &step.a, error);

    if (status)
        return status;
    if (!read_pattern(kvr_value_get(item, "pattern"), &scratch[0], &pattern, &regex))
        return kvr_error_set(error, KVR_BAD_INPUT, "a Split without a pattern");
    step.b = (kvr_value_true(kvr_value_get(item, "invert")) ? 1 : 0) | (regex ? 0 : 2);
    return kvr_add_split(source, pattern.text, pattern.length, step, error);
}

static enum kvr_status load_metaspace(struct kvr_source *source, enum kvr_pipeline pipeline,
    uint32_t kind, struct kvr_value item, struct kvr_buffer scratch[2], struct kvr_error *error)
{
    struct kvr_value scheme = kvr_value_get(item, "prepend_scheme");
    struct kvr_value split = kvr_value_get(item, "split"),
                     old = kvr_value_get(item, "add_prefix_space");
    struct kvr_text mark = {MARK, sizeof MARK - 1};
    struct kvr_vocabulary_step step = {.kind = kind, .a = 1, .b = split.type != KVR_FALSE};

    if (kvr_value_get(item, "replacement").type == KVR_STRING)
        kvr_value_text(kvr_value_get(item, "replacement"), &scratch[0], &mark);
    if (scheme.type == KVR_STRING)
        step.a = kvr_value_is(scheme, "first") ? 2 : kvr_value_is(scheme, "always") ? 1 : 0;
    else if (old.type == KVR_FALSE)
        step.a = 0;
    if (mark.length != sizeof MARK - 1 || memcmp(mark.text, MARK, mark.length) != 0)
        return kvr_error_set(error, KVR_UNSUPPORTED, "a Metaspace whose replacement is not U+2581");
    source->folded |= pipeline == KVR_PRETOKENIZERS;
    return kvr_source_add_step(source, pipeline, step, mark.text, mark.length, NULL, 0, error);
}

#define PUNCTUATION "\\p{Tokenizers_Punctuation}"

static enum kvr_status load_byte_level(
    struct kvr_source *source, struct kvr_value item, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    if (source->model == KVR_MODEL_BYTE_BPE) /* what the first one wrote is text for the second */
        status = add(source, KVR_PRETOKENIZERS, KVR_PRETOKENIZE_TO_ALPHABET, 0, 0, error);
    source->model = KVR_MODEL_BYTE_BPE;
    if (!status && kvr_value_get(item, "add_prefix_space").type != KVR_FALSE)
        status = add(source, KVR_PRETOKENIZERS, KVR_PRETOKENIZE_PREFIX, 0, 0, error);
    if (!status && kvr_value_get(item, "use_regex").type != KVR_FALSE)
        status = add(source, KVR_PRETOKENIZERS, KVR_PRETOKENIZE_SCAN, KVR_SCAN_GPT2, 0, error);
    return status;
}

static enum kvr_status load_pretokenizer(struct kvr_source *source, struct kvr_value item,
    struct kvr_buffer scratch[2], struct kvr_error *error)
{
    struct kvr_value type = kvr_value_get(item, "type");
    int32_t behaviour;

    if (kvr_value_is(type, "ByteLevel"))
        return load_byte_level(source, item, error);
    if (source->model == KVR_MODEL_BYTE_BPE) {
        /* what follows sees the alphabet of bytes instead of text */
        source->model = KVR_MODEL_CHARS;
        enum kvr_status status =
            add(source, KVR_PRETOKENIZERS, KVR_PRETOKENIZE_TO_ALPHABET, 0, 0, error);
        if (status)
            return status;
    }
    if (kvr_value_is(type, "Split"))
        return load_split(source, item, scratch, error);
    if (kvr_value_is(type, "Digits"))
        return add_pattern(source, "\\p{Tokenizers_Number}",
            kvr_value_true(kvr_value_get(item, "individual_digits")) ? KVR_SPLIT_ISOLATED
                                                                     : KVR_SPLIT_CONTIGUOUS,
            false, error);
    if (kvr_value_is(type, "Punctuation")) {
        enum kvr_status status = read_behaviour(item, &behaviour, error);
        return status
                   ? status
                   : add_pattern(source, PUNCTUATION, (enum kvr_behaviour)behaviour, false, error);
    }
    if (kvr_value_is(type, "Whitespace"))
        return add_pattern(source, "\\p{Rust_Word}+|[^\\p{Rust_Word}\\s]+", KVR_SPLIT_REMOVED, true,
            error); /* this step is Rust's regex, not Oniguruma's as in Split */
    if (kvr_value_is(type, "WhitespaceSplit"))
        return add_pattern(source, "\\s", KVR_SPLIT_REMOVED, false, error);
    if (kvr_value_is(type, "BertPreTokenizer")) {
        enum kvr_status status = add_pattern(source, "\\s", KVR_SPLIT_REMOVED, false, error);
        return status ? status : add_pattern(source, PUNCTUATION, KVR_SPLIT_ISOLATED, false, error);
    }
    if (kvr_value_is(type, "CharDelimiterSplit")) {
        struct kvr_text text;
        struct kvr_vocabulary_step step = {.a = KVR_SPLIT_REMOVED, .b = 2};
        if (!kvr_value_text(kvr_value_get(item, "delimiter"), &scratch[0], &text))
            return kvr_error_set(error, KVR_BAD_INPUT, "a CharDelimiterSplit without delimiter");
        return kvr_add_split(source, text.text, text.length, step, error);
    }
    if (kvr_value_is(type, "Metaspace"))
        return load_metaspace(
            source, KVR_PRETOKENIZERS, KVR_PRETOKENIZE_METASPACE, item, scratch, error);
    return kvr_error_type(error, "pre-tokenizer", type);
}

static enum kvr_status load_decoder(struct kvr_source *source, struct kvr_value item,
    struct kvr_buffer scratch[2], struct kvr_error *error)
{
    struct kvr_value type = kvr_value_get(item, "type");

    if (kvr_value_is(type, "ByteLevel"))
        return add(source, KVR_DECODERS, KVR_DECODE_BYTES, 0, 0, error);
    if (kvr_value_is(type, "ByteFallback"))
        return add(source, KVR_DECODERS, KVR_DECODE_BYTE_FALLBACK, 0, 0, error);
    if (kvr_value_is(type, "Fuse"))
        return add(source, KVR_DECODERS, KVR_DECODE_FUSE, 0, 0, error);
    if (kvr_value_is(type, "Replace"))
        return load_replace(source, KVR_DECODERS, KVR_DECODE_REPLACE, item, scratch, error);
    if (kvr_value_is(type, "Metaspace"))
        return load_metaspace(source, KVR_DECODERS, KVR_DECODE_METASPACE, item, scratch, error);
    if (kvr_value_is(type, "BPEDecoder")) {
        struct kvr_text suffix;
        struct kvr_vocabulary_step step = {.kind = KVR_DECODE_SUFFIX};
        if (!kvr_value_text(kvr_value_get(item, "suffix"), &scratch[0], &suffix))
            return kvr_error_set(error, KVR_BAD_INPUT, "a BPEDecoder without suffix");
        return kvr_source_add_step(
            source, KVR_DECODERS, step, suffix.text, suffix.length, NULL, 0, error);
    }
    if (kvr_value_is(type, "Strip")) {
        struct kvr_text text;
        uint64_t start = 0, stop = 0;
        kvr_value_u64(kvr_value_get(item, "start"), &start);
        kvr_value_u64(kvr_value_get(item, "stop"), &stop);
        if (!kvr_value_text(kvr_value_get(item, "content"), &scratch[0], &text) ||
            start > 1000000 || stop > 1000000)
            return kvr_error_set(error, KVR_BAD_INPUT, "a Strip decoder without content");
        struct kvr_vocabulary_step step = {
            .kind = KVR_DECODE_STRIP, .a = (int32_t)start, .b = (int32_t)stop};
        return kvr_source_add_step(
            source, KVR_DECODERS, step, text.text, text.length, NULL, 0, error);
    }
    return kvr_error_type(error, "decoder", type);
}

/* The ids of a special token of a template. */
static enum kvr_status add_template_token(struct kvr_source *source, struct kvr_value item,
    struct kvr_value special, struct kvr_buffer scratch[2], struct kvr_error *error)
{
    struct kvr_value name = kvr_value_get(special, "id"), id;
    struct kvr_text text;
    enum kvr_status status = KVR_OK;
    uint64_t number;

    if (!kvr_value_text(name, &scratch[0], &text))
        return kvr_error_set(error, KVR_BAD_INPUT, "a template's special token has no id");
    kvr_buffer_append_byte(&scratch[1], '\0');
    kvr_buffer_clear(&scratch[1]);
    kvr_buffer_append(&scratch[1], text.text, text.length);
    const char *key = kvr_buffer_text(&scratch[1]);
    if (!key)
        return kvr_error_memory(error);
    struct kvr_value ids =
        kvr_value_get(kvr_value_get(kvr_value_get(item, "special_tokens"), key), "ids");
    if (ids.type != KVR_ARRAY)
        return kvr_error_set(error, KVR_BAD_INPUT, "a template's special token has no ids");
    struct kvr_cursor cursor = kvr_value_open(ids);
    while (!status && kvr_next_element(&cursor, &id)) {
        if (!kvr_value_u64(id, &number) || number >= KVR_TOKEN_LIMIT)
            return kvr_error_set(error, KVR_BAD_INPUT, "a template's id is out of range");
        status = add(source, KVR_POSTPROCESSORS, KVR_POST_TOKEN, (int32_t)number, 0, error);
    }
    return status;
}

/* ["token", id] */
static enum kvr_status add_pair(
    struct kvr_source *source, struct kvr_value pair, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(pair);
    struct kvr_value text, id;
    uint64_t number;

    if (pair.type != KVR_ARRAY || !kvr_next_element(&cursor, &text) ||
        !kvr_next_element(&cursor, &id) || !kvr_value_u64(id, &number) || number >= KVR_TOKEN_LIMIT)
        return kvr_error_set(error, KVR_BAD_INPUT, "a post-processor without cls or sep");
    return add(source, KVR_POSTPROCESSORS, KVR_POST_TOKEN, (int32_t)number, 0, error);
}

static enum kvr_status load_postprocessor(struct kvr_source *source, struct kvr_value item,
    struct kvr_buffer scratch[2], struct kvr_error *error)
{
    struct kvr_value type = kvr_value_get(item, "type"), part;
    enum kvr_status status = KVR_OK;

    if (kvr_value_is(type, "ByteLevel"))
        return KVR_OK;
    if (kvr_value_is(type, "BertProcessing") || kvr_value_is(type, "RobertaProcessing")) {
        status = add_pair(source, kvr_value_get(item, "cls"), error);
        if (!status)
            status = add(source, KVR_POSTPROCESSORS, KVR_POST_TEXT, 0, 0, error);
        return status ? status : add_pair(source, kvr_value_get(item, "sep"), error);
    }
    if (!kvr_value_is(type, "TemplateProcessing"))
        return kvr_error_type(error, "post-processor", type);
    struct kvr_value single = kvr_value_get(item, "single");
    struct kvr_cursor cursor = kvr_value_open(single);
    if (single.type != KVR_ARRAY)
        return kvr_error_set(error, KVR_BAD_INPUT, "a TemplateProcessing without 'single'");
    while (!status && kvr_next_element(&cursor, &part)) {
        struct kvr_value special = kvr_value_get(part, "SpecialToken");
        if (special.type == KVR_OBJECT)
            status = add_template_token(source, item, special, scratch, error);
        else
            status = add(source, KVR_POSTPROCESSORS, KVR_POST_TEXT, 0, 0, error);
    }
    return status;
}

static bool text_is(
    const struct kvr_source *source, uint32_t offset, uint32_t length, const char *text)
{
    return length == strlen(text) && memcmp(source->text.data + offset, text, length) == 0;
}

/* Whether a normalizer writes spaces as ▁: the tokens of such a file are folded. */
static bool replaces_space(const struct kvr_source *source, const struct kvr_vocabulary_step *step)
{
    return step->kind == KVR_NORMALIZE_REPLACE && !step->a &&
           text_is(source, step->text, step->text_length, " ") &&
           text_is(source, step->other, step->other_length, MARK);
}

/* Spaces to ▁, and ▁ before the text, as the whole of normalizing and splitting: text stays as it
 * is. Not where an added token that is matched in normalized text takes the spaces around it: it
 * takes ' ' there, and ▁ not. */
void kvr_load_fast_spaces(struct kvr_source *source)
{
    struct kvr_vocabulary_step *n = source->steps[KVR_NORMALIZERS],
                               *p = source->steps[KVR_PRETOKENIZERS];
    const struct kvr_vocabulary_step *added = source->steps[KVR_ADDED];
    uint32_t *splits = &source->step_count[KVR_PRETOKENIZERS];
    bool replaced = false, prepended = false, other = false;

    for (uint32_t i = 0; i < source->step_count[KVR_NORMALIZERS]; i++) {
        if (!replaced && replaces_space(source, &n[i]))
            replaced = true;
        else if (n[i].kind == KVR_NORMALIZE_PREPEND && !prepended &&
                 text_is(source, n[i].text, n[i].text_length, MARK))
            prepended = true;
        else
            other = true;
    }
    for (uint32_t i = 0; i < source->step_count[KVR_ADDED]; i++)
        other |= added[i].flags & KVR_ADDED_NORMALIZED &&
                 added[i].flags & (KVR_ADDED_LSTRIP | KVR_ADDED_RSTRIP);
    /* a split at spaces finds none once they are replaced (Gemma 3) */
    if (replaced && !other && *splits == 1 && p[0].kind == KVR_PRETOKENIZE_SPLIT && p[0].b & 2 &&
        text_is(source, p[0].text, p[0].text_length, " ") && !(p[0].b & 1))
        *splits = 0;
    if (replaced && !other && !*splits) {
        n[0] = (struct kvr_vocabulary_step){.kind = KVR_NORMALIZE_SPACES, .a = prepended};
        source->step_count[KVR_NORMALIZERS] = 1;
    }
}

/* Puts the scanners of known patterns in place of these. */
static void find_scanners(struct kvr_source *source)
{
    struct kvr_vocabulary_step *p = source->steps[KVR_PRETOKENIZERS];
    uint32_t *splits = &source->step_count[KVR_PRETOKENIZERS];

    for (uint32_t first = 0; first < *splits; first++) {
        for (uint32_t last = first; last < *splits && last < first + 4; last++) {
            /* matches alone, or all but them removed: the same where a pattern leaves no gap */
            bool keeps_matches = p[last].a == KVR_SPLIT_REMOVED && p[last].b == 1 && last == first;
            bool isolates = p[last].a == KVR_SPLIT_ISOLATED && p[last].b == 0;
            if (p[last].kind != KVR_PRETOKENIZE_SPLIT || !(isolates || keeps_matches))
                break;
            char joined[2048];
            size_t length = 0;
            for (uint32_t i = first; i <= last && length + p[i].text_length + 1 < sizeof joined;
                 i++) {
                if (i > first)
                    joined[length++] = '\n';
                memcpy(joined + length, source->text.data + p[i].text, p[i].text_length);
                length += p[i].text_length;
            }
            enum kvr_scan scan = kvr_scan_find(joined, length);
            if (scan == KVR_SCAN_NONE)
                continue;
            p[first] =
                (struct kvr_vocabulary_step){.kind = KVR_PRETOKENIZE_SCAN, .a = (int32_t)scan};
            memmove(&p[first + 1], &p[last + 1], (*splits - last - 1) * sizeof *p);
            *splits -= last - first;
            break;
        }
    }
}

struct kvr_value kvr_load_member(const struct kvr_members *members, const char *name)
{
    struct kvr_value none = {0};

    for (size_t i = members->count; i-- > 0;)
        if (kvr_value_is(members->items[i].name, name))
            return members->items[i].value;
    return none;
}

enum kvr_status kvr_load_steps(
    struct kvr_source *source, const struct kvr_steps_members *members, struct kvr_error *error)
{
    struct kvr_buffer scratch[2] = {{0}};

    source->model = KVR_MODEL_CHAR_BPE;
    enum kvr_status status =
        load_list(source, members->normalizer, "normalizers", load_normalizer, 0, scratch, error);
    if (!status)
        status = load_list(
            source, members->pre_tokenizer, "pretokenizers", load_pretokenizer, 0, scratch, error);
    if (!status && source->model == KVR_MODEL_CHARS) { /* steps after ByteLevel */
        source->model = KVR_MODEL_BYTE_BPE;
        status = add(source, KVR_PRETOKENIZERS, KVR_PRETOKENIZE_FROM_ALPHABET, 0, 0, error);
    }
    if (!status)
        status = load_list(source, members->decoder, "decoders", load_decoder, 0, scratch, error);
    if (!status)
        status = load_list(
            source, members->post_processor, "processors", load_postprocessor, 0, scratch, error);
    for (uint32_t i = 0; i < source->step_count[KVR_NORMALIZERS]; i++)
        source->folded |= replaces_space(source, &source->steps[KVR_NORMALIZERS][i]);
    if (!status)
        find_scanners(source);
    if (!status && source->folded && source->model == KVR_MODEL_BYTE_BPE)
        status = kvr_error_set(error, KVR_UNSUPPORTED, "byte-level tokens with U+2581 for spaces");
    kvr_buffer_release(&scratch[0]);
    kvr_buffer_release(&scratch[1]);
    return status;
}
