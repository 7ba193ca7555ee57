/*
 * Loading: telling a file's format, compiling, the compiled cache, and what follows from an image.
 */
#include "token/chat.h"
#include "token/file.h"
#include "token/image_cache.h"
#include "token/tokenizer_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* What people have instead of a vocabulary, by how it starts. */
static const struct {
    const char *start, *what;
} mistaken[] = {
    {"version https://git-lfs", "a pointer of Git LFS, not the file that it stands for"},
    {"GGUF", "a GGUF model: its vocabulary is not read from there"},
    {"<", "a page of HTML or XML"},
};

static enum kvr_status check_kind(const char *bytes, size_t length, struct kvr_error *error)
{
    for (size_t i = 0; i < sizeof mistaken / sizeof *mistaken; i++) {
        size_t size = strlen(mistaken[i].start);
        if (length > size && memcmp(bytes, mistaken[i].start, size) == 0)
            return kvr_error_set(error, KVR_UNSUPPORTED, "this is %s", mistaken[i].what);
    }
    /* a protocol buffer of SentencePiece begins with its first piece, <unk> or <pad> */
    if (length > 64 && bytes[0] == '\n' && bytes[2] == '\n' && memchr(bytes, '\0', 64))
        return kvr_error_set(error, KVR_UNSUPPORTED,
            "this is a SentencePiece model: the model's tokenizer.json says the same");
    return KVR_OK;
}

/* A vocabulary file, and for rank files the tokenizer_config.json beside it (NULL: none). */
struct files {
    const char *bytes;
    size_t length;
    const char *name;
    struct kvr_text config;
};

static enum kvr_status load_source(
    struct kvr_source *source, const struct files *files, struct kvr_error *error)
{
    const char *bytes = files->bytes;
    size_t length = files->length, at = 0;
    enum kvr_status status = check_kind(bytes, length, error);

    if (status)
        return status;
    if (length >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        at = 3;
    while (at < length &&
           (bytes[at] == ' ' || bytes[at] == '\n' || bytes[at] == '\r' || bytes[at] == '\t'))
        at++;
    if (at == length)
        return kvr_error_set(error, KVR_BAD_INPUT, "the vocabulary is empty");
    if (bytes[at] != '{')
        return kvr_load_tiktoken(source, bytes, length, files->name, files->config, error);
    if (strstr(files->name, "tekken") ||
        memmem(bytes + at, length - at > 400 ? 400 : length - at, "\"num_vocab_tokens\"", 18))
        return kvr_load_tekken(source, bytes + at, length - at, error);
    return kvr_load_huggingface(source, bytes + at, length - at, error);
}

/* Whether a step's text is a regular expression. */
static bool has_pattern(enum kvr_pipeline pipeline, const struct kvr_vocabulary_step *step)
{
    switch (pipeline) {
    case KVR_NORMALIZERS:
        return step->kind == KVR_NORMALIZE_REPLACE && step->a;
    case KVR_PRETOKENIZERS:
        return step->kind == KVR_PRETOKENIZE_SPLIT && !(step->b & 2);
    case KVR_DECODERS:
        return step->kind == KVR_DECODE_REPLACE && step->a;
    default:
        return false;
    }
}

static enum kvr_status compile_patterns(struct kvr_tokenizer *t, struct kvr_error *error)
{
    const struct kvr_vocabulary *v = &t->vocabulary;
    uint32_t total = v->header->step_first[KVR_PIPELINE_COUNT];
    enum kvr_status status = KVR_OK;

    t->patterns = calloc((size_t)total + 1, sizeof *t->patterns);
    if (!t->patterns)
        return kvr_error_memory(error);
    for (int pipeline = 0; pipeline < KVR_PIPELINE_COUNT; pipeline++) {
        uint32_t count;
        const struct kvr_vocabulary_step *steps = kvr_steps(t, (enum kvr_pipeline)pipeline, &count);
        for (uint32_t i = 0; i < count && !status; i++) {
            const struct kvr_vocabulary_step *s = &steps[i];
            if (pipeline == KVR_PRETOKENIZERS && s->kind == KVR_PRETOKENIZE_SCAN &&
                (uint32_t)s->a >= KVR_SCAN_COUNT)
                status = kvr_error_set(error, KVR_BAD_INPUT, "a damaged compiled vocabulary");
            else if (has_pattern((enum kvr_pipeline)pipeline, s))
                status = kvr_pattern_compile(
                    &t->patterns[s - v->steps], v->text + s->text, s->text_length, error);
        }
    }
    return status;
}

/* The reference decodes a token that is matched in normalized text as that text. */
static void keep_form(
    struct kvr_tokenizer *t, const struct kvr_vocabulary_step *step, const struct kvr_buffer *text)
{
    uint32_t head[2] = {(uint32_t)step->a, (uint32_t)text->length};

    if (text->length == step->text_length &&
        memcmp(text->data, t->vocabulary.text + step->text, text->length) == 0)
        return;
    kvr_buffer_append(&t->forms, head, sizeof head);
    kvr_buffer_append(&t->forms, text->data, text->length);
}

/* Builds one of the two matchers of added tokens. */
static enum kvr_status build_added(
    struct kvr_tokenizer *t, bool normalized, struct kvr_added *added, struct kvr_error *error)
{
    uint32_t count;
    const struct kvr_vocabulary_step *steps = kvr_steps(t, KVR_ADDED, &count);
    struct kvr_source_token *texts = calloc((size_t)count + 1, sizeof *texts);
    struct kvr_buffer bytes = {0}, text = {0}, spare = {0};
    enum kvr_status status = texts ? KVR_OK : kvr_error_memory(error);

    for (uint32_t i = 0; i < count && !status; i++) {
        if (!(steps[i].flags & KVR_ADDED_NORMALIZED) == normalized)
            continue;
        kvr_buffer_clear(&text);
        kvr_buffer_append(&text, t->vocabulary.text + steps[i].text, steps[i].text_length);
        if (normalized) {
            status = kvr_normalize(t, &text, &spare, error);
            if (!status)
                keep_form(t, &steps[i], &text);
        }
        if (!status && bytes.length + text.length > UINT32_MAX / 2)
            status = kvr_error_set(error, KVR_BAD_INPUT, "the added tokens are longer than 2 GiB");
        texts[i].offset = (uint32_t)bytes.length;
        texts[i].length = (uint32_t)text.length;
        kvr_buffer_append(&bytes, text.data, text.length);
        if (!status && (text.failed || bytes.failed))
            status = kvr_error_memory(error);
    }
    if (!status)
        status = kvr_added_build(added, (const uint8_t *)bytes.data, texts, count, error);
    kvr_buffer_release(&bytes);
    kvr_buffer_release(&text);
    kvr_buffer_release(&spare);
    free(texts);
    return status;
}

static enum kvr_status check_ids(const struct kvr_tokenizer *t, struct kvr_error *error)
{
    enum kvr_pipeline with_ids[] = {KVR_ADDED, KVR_POSTPROCESSORS};

    for (int k = 0; k < 2; k++) {
        uint32_t count;
        const struct kvr_vocabulary_step *steps = kvr_steps(t, with_ids[k], &count);
        for (uint32_t i = 0; i < count; i++)
            if (steps[i].a < 0 || (uint32_t)steps[i].a >= KVR_TOKEN_LIMIT)
                return kvr_error_set(error, KVR_BAD_INPUT, "a token id that cannot be");
    }
    return KVR_OK;
}

/* Everything that follows from an image that is attached. */
static enum kvr_status finish(struct kvr_tokenizer *t, struct kvr_error *error)
{
    const struct kvr_image_header *h = t->vocabulary.header;
    uint32_t normalizers, splits;
    const struct kvr_vocabulary_step *n = kvr_steps(t, KVR_NORMALIZERS, &normalizers);
    const struct kvr_vocabulary_step *p = kvr_steps(t, KVR_PRETOKENIZERS, &splits);
    bool all_bytes = h->special_flags & KVR_VOCABULARY_BYTE_FALLBACK;
    enum kvr_status status = check_ids(t, error);

    for (int b = 0; b < 256; b++)
        all_bytes = all_bytes && t->vocabulary.byte_ids[b] != KVR_NO_TOKEN;
    t->plain = !normalizers;
    t->nfc = normalizers == 1 && n[0].kind == KVR_NORMALIZE_NFC;
    t->spaces = normalizers == 1 && n[0].kind == KVR_NORMALIZE_SPACES;
    t->joins = h->model == KVR_MODEL_CHAR_BPE && all_bytes &&
               !(h->special_flags & KVR_VOCABULARY_IGNORE_MERGES);
    if (!status)
        status = compile_patterns(t, error);
    if (!status && h->model == KVR_MODEL_BYTE_BPE && splits == 1 &&
        p[0].kind == KVR_PRETOKENIZE_SCAN)
        t->scanner = kvr_scan_kinds[p[0].a].scan;
    if (!status)
        status = build_added(t, false, &t->raw, error);
    if (!status)
        status = build_added(t, true, &t->normalized, error);
    return status;
}

static enum kvr_status compile(
    struct kvr_tokenizer *t, struct kvr_source *source, struct kvr_error *error)
{
    enum kvr_status status = kvr_source_compile(source, &t->image, &t->image_bytes, error);

    if (!status)
        kvr_vocabulary_attach_own(&t->vocabulary, t->image.data);
    return status;
}

static enum kvr_status parse(
    struct kvr_tokenizer **tokenizer, struct files files, struct kvr_error *error)
{
    struct kvr_source source = {.unknown_id = KVR_NO_TOKEN};
    struct kvr_buffer unpacked = {0};
    const char *slash = strrchr(files.name, '/');
    enum kvr_status status = KVR_OK;

    *tokenizer = calloc(1, sizeof **tokenizer);
    if (!*tokenizer)
        return kvr_error_memory(error);
    (*tokenizer)->image.random = true;
    if (strcmp(files.name, "bytes") == 0 || strcmp(files.name, "chars") == 0) {
        source.model = files.name[0] == 'b' ? KVR_MODEL_BYTES : KVR_MODEL_CHARS;
    } else {
        if (kvr_is_gzip(files.bytes, files.length)) {
            status = kvr_gunzip(files.bytes, files.length, &unpacked, error);
            files.bytes = unpacked.data;
            files.length = unpacked.length;
        }
        files.name = slash ? slash + 1 : files.name;
        if (!status)
            status = load_source(&source, &files, error);
    }
    if (!status)
        status = compile(*tokenizer, &source, error);
    if (!status)
        status = finish(*tokenizer, error);
    kvr_source_release(&source);
    kvr_buffer_release(&unpacked);
    if (status) {
        kvr_tokenizer_release(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}

enum kvr_status kvr_tokenizer_parse(struct kvr_tokenizer **tokenizer, const void *bytes,
    size_t length, const char *name, struct kvr_error *error)
{
    return parse(tokenizer, (struct files){bytes, length, name, {NULL, 0}}, error);
}

/* From the compiled cache; KVR_END where it has none that is right. */
static enum kvr_status load_compiled(struct kvr_tokenizer **tokenizer, const char *directory,
    const struct kvr_image_key *key, struct kvr_error *error)
{
    struct kvr_tokenizer *t = calloc(1, sizeof *t);

    if (!t)
        return kvr_error_memory(error);
    t->image.random = true;
    if (!kvr_image_cache_read(directory, key, &t->image, &t->image_bytes) ||
        kvr_vocabulary_attach(&t->vocabulary, t->image.data, t->image_bytes, NULL) ||
        finish(t, NULL)) {
        kvr_tokenizer_release(t);
        return KVR_END;
    }
    t->cache_use = KVR_CACHE_READ;
    *tokenizer = t;
    return KVR_OK;
}

enum kvr_status kvr_tokenizer_load(struct kvr_tokenizer **tokenizer, const char *path,
    const char *cache_directory, struct kvr_error *error)
{
    struct kvr_buffer file = {0}, config = {0};
    struct kvr_image_key key;
    struct kvr_chat_files beside;
    struct stat info;

    if (strcmp(path, "bytes") == 0 || strcmp(path, "chars") == 0)
        return kvr_tokenizer_parse(tokenizer, NULL, 0, path, error);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &info) != 0) {
        kvr_error_errno(error, KVR_IO, "'%s'", path);
        if (descriptor >= 0)
            close(descriptor);
        return KVR_IO;
    }
    bool regular = S_ISREG(info.st_mode) && info.st_size > 0;
    kvr_image_key_of(&key, path, &info);
    /* rank files say nothing of special tokens: the configuration does, and is part of the key */
    beside.config[0] = '\0';
    if (!strstr(path, ".json"))
        kvr_chat_find_files(path, &beside);
    if (beside.config[0] && kvr_read_file(beside.config, &config, NULL) == KVR_OK)
        key.id ^= XXH3_64bits(config.data, config.length);
    if (regular && cache_directory &&
        load_compiled(tokenizer, cache_directory, &key, error) == KVR_OK) {
        kvr_buffer_release(&config);
        close(descriptor);
        return KVR_OK;
    }
    enum kvr_status status = kvr_read_descriptor(descriptor, &file, error);
    close(descriptor);
    if (!status)
        status = parse(tokenizer,
            (struct files){file.data, file.length, path, {config.data, config.length}}, error);
    if (!status && regular && cache_directory)
        (*tokenizer)->cache_use = kvr_image_cache_store(cache_directory, &key,
                                      (*tokenizer)->image.data, (*tokenizer)->image_bytes)
                                      ? KVR_CACHE_KEPT
                                      : KVR_CACHE_REFUSED;
    kvr_buffer_release(&file);
    kvr_buffer_release(&config);
    if (status)
        kvr_error_prefix(error, "vocabulary '%s'", path);
    return status;
}

enum kvr_cache_use kvr_tokenizer_cache_use(const struct kvr_tokenizer *tokenizer)
{
    return tokenizer->cache_use;
}

void kvr_tokenizer_release(struct kvr_tokenizer *t)
{
    if (!t)
        return;
    if (t->patterns)
        for (uint32_t i = 0; i < t->vocabulary.header->step_first[KVR_PIPELINE_COUNT]; i++)
            kvr_pattern_release(t->patterns[i]);
    free(t->patterns);
    kvr_added_release(&t->raw);
    kvr_added_release(&t->normalized);
    kvr_buffer_release(&t->forms);
    kvr_pages_release(&t->image);
    free(t);
}

uint32_t kvr_tokenizer_size(const struct kvr_tokenizer *tokenizer)
{
    uint32_t model = tokenizer->vocabulary.header->model;

    return model == KVR_MODEL_BYTES   ? 256
           : model == KVR_MODEL_CHARS ? 0x110000
                                      : tokenizer->vocabulary.header->token_count;
}

uint32_t kvr_tokenizer_added(const struct kvr_tokenizer *tokenizer, const char *text, size_t length)
{
    uint32_t count;
    const struct kvr_vocabulary_step *steps = kvr_steps(tokenizer, KVR_ADDED, &count);

    for (uint32_t i = 0; i < count; i++)
        if (steps[i].text_length == length &&
            memcmp(tokenizer->vocabulary.text + steps[i].text, text, length) == 0)
            return (uint32_t)steps[i].a;
    return KVR_NO_TOKEN;
}

uint32_t kvr_tokenizer_first(const struct kvr_tokenizer *tokenizer)
{
    uint32_t count;
    const struct kvr_vocabulary_step *steps = kvr_steps(tokenizer, KVR_POSTPROCESSORS, &count);

    return count && steps[0].kind == KVR_POST_TOKEN ? (uint32_t)steps[0].a : KVR_NO_TOKEN;
}

size_t kvr_tokenizer_token_bytes(const struct kvr_tokenizer *tokenizer, uint32_t id)
{
    const struct kvr_vocabulary *v = &tokenizer->vocabulary;

    return id < v->header->token_count ? kvr_token_length(v, id) : 0;
}
