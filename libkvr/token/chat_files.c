/*
 * The files that a model brings along for its chats: where they stand, and their texts.
 */
#include "token/chat_internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { FILE_BYTES_LIMIT = 64 << 20 };

/* gzread passes files through that are not compressed. */
static enum kvr_status read_file(const char *path, struct kvr_buffer *out, struct kvr_error *error)
{
    gzFile file = gzopen(path, "rb");
    enum kvr_status status = KVR_OK;
    int got = 0;
    if (!file)
        return kvr_error_errno(error, KVR_IO, "'%s'", path);
    do {
        if (!kvr_buffer_reserve(out, 65536)) {
            status = kvr_error_memory(error);
            break;
        }
        got = gzread(file, out->data + out->length, 65536);
        if (got > 0)
            out->length += (size_t)got;
        if (out->length > FILE_BYTES_LIMIT)
            status = kvr_error_set(
                error, KVR_BAD_INPUT, "'%s': more than %d bytes", path, FILE_BYTES_LIMIT);
    } while (got > 0 && !status);
    if (got < 0 && !status) {
        int number;
        gzerror(file, &number);
        status = number == Z_ERRNO ? kvr_error_errno(error, KVR_IO, "'%s'", path)
                                   : kvr_error_set(error, KVR_IO, "'%s': damaged gzip data", path);
    }
    if (gzclose(file) != Z_OK && !status)
        status = kvr_error_set(error, KVR_IO, "'%s': cut short", path);
    return status;
}

/* FIFOs and devices beside a vocabulary are none of its files: to read them could wait for ever.
 * What is not there, or is a folder, is told when it is read. */
static bool may_be_read(const char *path)
{
    struct stat info;

    return stat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
}

/* Puts the first of PREFIX + names[i] (+ ".gz") that is there into out. */
static void first_file(char *out, size_t size, const char *prefix, int prefix_length,
    const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (int zipped = 0; zipped < 2; zipped++) {
            int length = snprintf(
                out, size, "%.*s%s%s", prefix_length, prefix, names[i], zipped ? ".gz" : "");
            if (length > 0 && (size_t)length < size && access(out, R_OK) == 0 && may_be_read(out))
                return;
        }
    }
    out[0] = 0;
}

void kvr_chat_find_files(const char *vocabulary_path, struct kvr_chat_files *files)
{
    static const char *const configs[] = {"tokenizer_config.json"};
    static const char *const sources[] = {"chat_template.jinja", "chat_template.json"};
    static const char *const maps[] = {"special_tokens_map.json"};
    const char *slash = strrchr(vocabulary_path, '/');
    const char *name = slash ? slash + 1 : vocabulary_path;
    const char *dot = strstr(name, ".tokenizer.json");
    /* "DIR/NAME." of DIR/NAME.tokenizer.json, or of DIR/NAME.anything, then "DIR/". */
    int own = (int)((dot ? dot : name + strcspn(name, ".")) - vocabulary_path);
    int directory = (int)(name - vocabulary_path);
    bool only_one = strncmp(name, "tokenizer.", 10) == 0 || strncmp(name, "tekken.", 7) == 0 ||
                    strncmp(name, "tiktoken.", 9) == 0 || strcmp(name, "qwen.tiktoken") == 0;

    memset(files, 0, sizeof *files);
    if (vocabulary_path[own] == '.' && own > directory) {
        first_file(files->config, sizeof files->config, vocabulary_path, own + 1, configs, 1);
        first_file(files->source, sizeof files->source, vocabulary_path, own + 1, sources, 2);
        first_file(
            files->special_map, sizeof files->special_map, vocabulary_path, own + 1, maps, 1);
    }
    if (files->config[0] || files->source[0] || !only_one)
        return;
    first_file(files->config, sizeof files->config, vocabulary_path, directory, configs, 1);
    first_file(files->source, sizeof files->source, vocabulary_path, directory, sources, 2);
    first_file(files->special_map, sizeof files->special_map, vocabulary_path, directory, maps, 1);
    snprintf(files->named, sizeof files->named, "%.*sadditional_chat_templates", directory,
        vocabulary_path);
    if (access(files->named, R_OK | X_OK) != 0)
        files->named[0] = 0;
}

/* The name of a template by its file's, "NAME.jinja" with or without ".gz". */
static char *template_name(const char *file)
{
    const char *end = strstr(file, ".jinja");

    return end && end > file && (!end[6] || strcmp(end + 6, ".gz") == 0)
               ? strndup(file, (size_t)(end - file))
               : NULL;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Reads the templates of a folder. */
static enum kvr_status read_named(
    const char *folder, struct kvr_chat_texts *texts, struct kvr_error *error)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, by_name);
    enum kvr_status status = KVR_OK;

    if (count < 0)
        return kvr_error_errno(error, KVR_IO, "'%s'", folder);
    texts->named = calloc((size_t)count + 1, sizeof *texts->named);
    if (!texts->named)
        status = kvr_error_memory(error);
    for (int i = 0; i < count; i++) {
        char *name = status ? NULL : template_name(entries[i]->d_name);
        if (name) {
            struct kvr_chat_text_named *text = &texts->named[texts->named_count++];
            text->name = name;
            kvr_buffer_append_format(&text->path, "%s/%s", folder, entries[i]->d_name);
            if (!kvr_buffer_text(&text->path))
                status = kvr_error_memory(error);
            else if (may_be_read(text->path.data))
                status = read_file(text->path.data, &text->bytes, error);
            else
                status = kvr_error_set(error, KVR_IO, "'%s' is no regular file", text->path.data);
        }
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* Reads one of the files, if it is named, into *text, which lies in *bytes. */
static enum kvr_status read_one(
    const char *path, struct kvr_buffer *bytes, struct kvr_chat_text *text, struct kvr_error *error)
{
    if (!path || !path[0])
        return KVR_OK;
    enum kvr_status status = read_file(path, bytes, error);
    if (!status && !kvr_buffer_text(bytes))
        status = kvr_error_memory(error);
    *text = (struct kvr_chat_text){path, {bytes->data, bytes->length}};
    return status;
}

enum kvr_status kvr_chat_load_files(
    struct kvr_chat **out, const struct kvr_chat_paths *paths, struct kvr_error *error)
{
    struct kvr_buffer bytes[3] = {{0}};
    struct kvr_chat_texts texts = {0};

    *out = NULL;
    enum kvr_status status = read_one(paths->config, &bytes[0], &texts.config, error);
    if (!status)
        status = read_one(paths->source, &bytes[1], &texts.source, error);
    if (!status)
        status = read_one(paths->special_map, &bytes[2], &texts.special_map, error);
    if (!status && paths->named && paths->named[0])
        status = read_named(paths->named, &texts, error);
    if (!status)
        status = kvr_chat_read_texts(out, &texts, error);
    for (size_t i = 0; i < texts.named_count; i++) {
        free(texts.named[i].name);
        kvr_buffer_release(&texts.named[i].path);
        kvr_buffer_release(&texts.named[i].bytes);
    }
    free(texts.named);
    for (int i = 0; i < 3; i++)
        kvr_buffer_release(&bytes[i]);
    return status;
}

enum kvr_status kvr_chat_load(struct kvr_chat **out, const char *config_path,
    const char *template_path, struct kvr_error *error)
{
    struct kvr_chat_paths paths = {.config = config_path, .source = template_path};

    return kvr_chat_load_files(out, &paths, error);
}
