/*
 * Reading what a model brings along for its chats: template and special tokens.
 */
#include "token/chat_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { FILE_BYTES_LIMIT = 64 << 20 };

/* ---- files ---- */

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
    if (got < 0 && !status)
        status = kvr_error_set(error, KVR_IO, "'%s': unreadable", path);
    if (gzclose(file) != Z_OK && !status)
        status = kvr_error_set(error, KVR_IO, "'%s': cut short", path);
    return status;
}

enum kvr_status kvr_chat_load(struct kvr_chat **out, const char *config_path,
    const char *template_path, struct kvr_error *error)
{
    struct kvr_buffer config = {0};
    struct kvr_buffer source = {0};
    const char *blamed = NULL;
    enum kvr_status status = KVR_OK;
    *out = NULL;
    if (config_path)
        status = read_file(config_path, &config, error);
    if (!status && template_path)
        status = read_file(template_path, &source, error);
    if (!status) {
        blamed = template_path ? template_path : config_path;
        status = kvr_chat_read(out, config_path ? kvr_buffer_text(&config) : NULL, config.length,
            template_path ? kvr_buffer_text(&source) : NULL, source.length, error);
        if (status && error && blamed)
            kvr_error_prefix(error, "'%s'", blamed);
    }
    kvr_buffer_release(&config);
    kvr_buffer_release(&source);
    return status;
}

/* Puts the first of PREFIX + names[i] (+ ".gz") that is there into out. */
static void first_file(char *out, size_t size, const char *prefix, int prefix_length,
    const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (int zipped = 0; zipped < 2; zipped++) {
            int length = snprintf(
                out, size, "%.*s%s%s", prefix_length, prefix, names[i], zipped ? ".gz" : "");
            if (length > 0 && (size_t)length < size && access(out, R_OK) == 0)
                return;
        }
    }
    out[0] = 0;
}

void kvr_chat_find_files(const char *vocabulary_path, struct kvr_chat_files *files)
{
    static const char *const configs[] = {"tokenizer_config.json"};
    static const char *const sources[] = {"chat_template.jinja", "chat_template.json"};
    const char *slash = strrchr(vocabulary_path, '/');
    const char *name = slash ? slash + 1 : vocabulary_path;
    const char *dot = strstr(name, ".tokenizer.json");
    /* "DIR/NAME." of DIR/NAME.tokenizer.json, or of DIR/NAME.anything, then "DIR/". */
    int own = (int)((dot ? dot : name + strcspn(name, ".")) - vocabulary_path);
    int directory = (int)(name - vocabulary_path);
    files->config[0] = files->source[0] = 0;
    if (vocabulary_path[own] == '.' && own > directory) {
        first_file(files->config, sizeof files->config, vocabulary_path, own + 1, configs, 1);
        first_file(files->source, sizeof files->source, vocabulary_path, own + 1, sources, 2);
    }
    bool only_one = strncmp(name, "tokenizer.", 10) == 0 || strncmp(name, "tekken.", 7) == 0 ||
                    strncmp(name, "tiktoken.", 9) == 0 || strcmp(name, "qwen.tiktoken") == 0;
    if (files->config[0] || files->source[0] || !only_one)
        return;
    first_file(files->config, sizeof files->config, vocabulary_path, directory, configs, 1);
    first_file(files->source, sizeof files->source, vocabulary_path, directory, sources, 2);
}

/* ---- reading ---- */

struct reading {
    struct kvr_chat *chat;
    const char *config;
    size_t config_length;
    const char *source;
    size_t source_length;
    struct kvr_error *error;
    enum kvr_status status;
};

static char *copy_text(const char *data, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy) {
        if (length)
            memcpy(copy, data, length);
        copy[length] = 0;
    }
    return copy;
}

static bool add_template(struct reading *reading, const char *name, size_t name_length,
    const char *source, size_t length)
{
    struct kvr_chat *chat = reading->chat;
    struct kvr_chat_named *named;
    struct kvr_chat_named *grown =
        realloc(chat->templates, (chat->template_count + 1) * sizeof *grown);
    if (!grown) {
        reading->status = kvr_error_memory(reading->error);
        return false;
    }
    chat->templates = grown;
    named = &grown[chat->template_count];
    named->name = copy_text(name, name_length);
    if (!named->name) {
        reading->status = kvr_error_memory(reading->error);
        return false;
    }
    reading->status = kvr_template_compile(&named->compiled, source, length, reading->error);
    if (reading->status) {
        free(named->name);
        return false;
    }
    named->parts_in_vllm = kvr_chat_parts_in_vllm(named->compiled);
    named->parts_in_sglang = kvr_chat_parts_in_sglang(named->compiled);
    chat->template_count++;
    return true;
}

/* "chat_template": a string, or [{"name": ..., "template": ...}], or {"name": "template"}. */
static bool add_templates(struct reading *reading, struct value value)
{
    if (value.type == VALUE_TEXT)
        return add_template(reading, "default", 7, value.text->data, value.text->length);
    if (value.type == VALUE_DICT) {
        for (size_t i = 0; i < value.dict->count; i++) {
            const struct entry *entry = &value.dict->entries[i];
            if (entry->key.type == VALUE_TEXT && entry->value.type == VALUE_TEXT &&
                !add_template(reading, entry->key.text->data, entry->key.text->length,
                    entry->value.text->data, entry->value.text->length))
                return false;
        }
        return true;
    }
    if (value.type == VALUE_LIST) {
        for (size_t i = 0; i < value.list->count; i++) {
            struct value item = value.list->items[i];
            const struct value *name =
                item.type == VALUE_DICT ? kvr_dict_find_name(item.dict, "name") : NULL;
            const struct value *source =
                item.type == VALUE_DICT ? kvr_dict_find_name(item.dict, "template") : NULL;
            if (!name || !source || name->type != VALUE_TEXT || source->type != VALUE_TEXT) {
                reading->status = kvr_error_set(reading->error, KVR_BAD_INPUT,
                    "'chat_template' holds something other than names and templates");
                return false;
            }
            if (!add_template(reading, name->text->data, name->text->length, source->text->data,
                    source->text->length))
                return false;
        }
        return true;
    }
    if (value.type == VALUE_NONE)
        return true;
    reading->status = kvr_error_set(
        reading->error, KVR_BAD_INPUT, "'chat_template' is neither a string nor a list");
    return false;
}

static bool add_token(struct reading *reading, const struct text *name, struct value value)
{
    struct kvr_chat *chat = reading->chat;
    void *grown;
    if (value.type == VALUE_DICT) {
        const struct value *content = kvr_dict_find_name(value.dict, "content");
        value = content ? *content : kvr_none();
    }
    if (value.type != VALUE_TEXT)
        return true;
    grown = realloc(chat->tokens, (chat->token_count + 1) * sizeof *chat->tokens);
    if (grown) {
        chat->tokens = grown;
        chat->tokens[chat->token_count].name = copy_text(name->data, name->length);
        chat->tokens[chat->token_count].text = copy_text(value.text->data, value.text->length);
        chat->token_count++;
    }
    if (!grown || !chat->tokens[chat->token_count - 1].name ||
        !chat->tokens[chat->token_count - 1].text) {
        reading->status = kvr_error_memory(reading->error);
        return false;
    }
    return true;
}

/* The named tokens, and those of a model's own ("image_token", or all of extra_special_tokens). */
static bool add_tokens(struct reading *reading, const struct dict *config)
{
    for (size_t i = 0; i < config->count; i++) {
        const struct entry *entry = &config->entries[i];
        const struct text *name = entry->key.text;
        if (name->length > 6 && memcmp(name->data + name->length - 6, "_token", 6) == 0) {
            if (!add_token(reading, name, entry->value))
                return false;
        } else if (kvr_text_is(name, "extra_special_tokens") && entry->value.type == VALUE_DICT) {
            for (size_t j = 0; j < entry->value.dict->count; j++)
                if (!add_token(reading, entry->value.dict->entries[j].key.text,
                        entry->value.dict->entries[j].value))
                    return false;
        }
    }
    return true;
}

static struct value read_object(
    struct run *run, struct reading *reading, const char *text, size_t length, const char *what)
{
    struct value value = kvr_json_read(run, text, length, true);
    if (value.type != VALUE_DICT) {
        reading->status =
            kvr_error_set(reading->error, KVR_BAD_INPUT, "%s is no JSON object", what);
        value = kvr_dict_value(kvr_dict_new(run, 0));
    }
    return value;
}

static bool is_json(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length &&
           (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t'))
        at++;
    if (at == length || text[at] != '{')
        return false;
    for (at++; at < length &&
               (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t');
         at++)
        ;
    return at < length && text[at] == '"';
}

static void read_parts(struct run *run, void *state)
{
    struct reading *reading = state;
    struct value config = kvr_dict_value(kvr_dict_new(run, 0));
    const struct value *source;
    if (reading->config)
        config = read_object(
            run, reading, reading->config, reading->config_length, "the tokenizer configuration");
    if (reading->status || !add_tokens(reading, config.dict))
        return;
    if (reading->source && is_json(reading->source, reading->source_length)) {
        struct value file = read_object(
            run, reading, reading->source, reading->source_length, "the chat template file");
        source = reading->status ? NULL : kvr_dict_find_name(file.dict, "chat_template");
        if (!reading->status && !source)
            reading->status =
                kvr_error_set(reading->error, KVR_BAD_INPUT, "there is no member 'chat_template'");
        if (source)
            add_templates(reading, *source);
        return;
    }
    if (reading->source) {
        add_template(reading, "default", 7, reading->source, reading->source_length);
        return;
    }
    source = kvr_dict_find_name(config.dict, "chat_template");
    if (source)
        add_templates(reading, *source);
}

enum kvr_status kvr_chat_read(struct kvr_chat **out, const char *config, size_t config_length,
    const char *source, size_t source_length, struct kvr_error *error)
{
    struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
    struct reading reading = {.config = config,
        .config_length = config_length,
        .source = source,
        .source_length = source_length,
        .error = error};
    struct kvr_buffer nothing = {0};
    *out = NULL;
    reading.chat = calloc(1, sizeof *reading.chat);
    if (!run || !reading.chat) {
        kvr_template_run_free(run);
        free(reading.chat);
        return kvr_error_memory(error);
    }
    kvr_run_reset(&run->run);
    run->run.out = &nothing;
    if (!kvr_run_protect(&run->run, read_parts, &reading))
        reading.status = kvr_error_set(error, run->run.status, "%s", run->run.message);
    kvr_template_run_free(run);
    if (reading.status)
        kvr_chat_free(reading.chat);
    else
        *out = reading.chat;
    return reading.status;
}

void kvr_chat_free(struct kvr_chat *chat)
{
    if (!chat)
        return;
    for (size_t i = 0; i < chat->template_count; i++) {
        free(chat->templates[i].name);
        kvr_template_free(chat->templates[i].compiled);
    }
    for (size_t i = 0; i < chat->token_count; i++) {
        free(chat->tokens[i].name);
        free(chat->tokens[i].text);
    }
    free(chat->templates);
    free(chat->tokens);
    free(chat);
}

bool kvr_chat_has_template(const struct kvr_chat *chat)
{
    return chat->template_count;
}

const char *kvr_chat_token(const struct kvr_chat *chat, const char *name)
{
    for (size_t i = chat->token_count; i--;)
        if (strcmp(chat->tokens[i].name, name) == 0)
            return chat->tokens[i].text;
    return NULL;
}
