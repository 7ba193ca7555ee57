/*
 * Reading what a model brings along for its chats: template and special tokens.
 */
#include "token/chat_internal.h"

#include <stdlib.h>
#include <string.h>

struct reading {
    struct kvr_chat *chat;
    const struct kvr_chat_texts *texts;
    const char *path; /* of the file that is being read */
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
        } else if (kvr_template_text_is(name, "extra_special_tokens") &&
                   entry->value.type == VALUE_DICT) {
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
    return at < length && (text[at] == '"' || text[at] == '}');
}

/* special_tokens_map.json, where the configuration is one of before added_tokens_decoder, as
 * transformers has it; else the map says nothing that the configuration does not. Later tokens of a
 * name come before earlier ones. */
static bool read_special_map(struct run *run, struct reading *reading, const struct dict *config)
{
    const struct kvr_chat_json map = reading->texts->special_map.text;

    if (!map.data || kvr_dict_find_name(config, "added_tokens_decoder"))
        return true;
    reading->path = reading->texts->special_map.path;
    struct value value = read_object(run, reading, map.data, map.length, "special_tokens_map.json");
    return !reading->status && add_tokens(reading, value.dict);
}

/* The member chat_template of a chat_template.json. */
static void read_template_file(
    struct run *run, struct reading *reading, struct kvr_chat_json source)
{
    struct value file =
        read_object(run, reading, source.data, source.length, "the chat template file");
    const struct value *found =
        reading->status ? NULL : kvr_dict_find_name(file.dict, "chat_template");

    if (!reading->status && !found)
        reading->status =
            kvr_error_set(reading->error, KVR_BAD_INPUT, "there is no member 'chat_template'");
    if (found)
        add_templates(reading, *found);
}

static void read_parts(struct run *run, void *state)
{
    struct reading *reading = state;
    const struct kvr_chat_texts *texts = reading->texts;
    const struct kvr_chat_json configuration = texts->config.text, source = texts->source.text;
    struct value config = kvr_dict_value(kvr_dict_new(run, 0));

    reading->path = texts->config.path;
    if (configuration.data)
        config = read_object(
            run, reading, configuration.data, configuration.length, "the tokenizer configuration");
    if (reading->status || !add_tokens(reading, config.dict) ||
        !read_special_map(run, reading, config.dict))
        return;
    reading->path = texts->source.path;
    if (source.data && is_json(source.data, source.length))
        read_template_file(run, reading, source);
    else if (source.data)
        add_template(reading, "default", 7, source.data, source.length);
    for (size_t i = 0; i < texts->named_count && !reading->status; i++) {
        const struct kvr_chat_text_named *named = &texts->named[i];
        reading->path = named->path.data;
        add_template(reading, named->name, strlen(named->name),
            named->bytes.data ? named->bytes.data : "", named->bytes.length);
    }
    /* templates in files of their own stand for all that the configuration has */
    if (reading->status || reading->chat->template_count || source.data)
        return;
    reading->path = texts->config.path;
    const struct value *templates = kvr_dict_find_name(config.dict, "chat_template");
    if (templates)
        add_templates(reading, *templates);
}

enum kvr_status kvr_chat_read_texts(
    struct kvr_chat **out, const struct kvr_chat_texts *texts, struct kvr_error *error)
{
    struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
    struct reading reading = {.texts = texts, .error = error};
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
    if (reading.status && reading.path)
        kvr_error_prefix(error, "'%s'", reading.path);
    if (reading.status)
        kvr_chat_free(reading.chat);
    else
        *out = reading.chat;
    return reading.status;
}

enum kvr_status kvr_chat_read(struct kvr_chat **out, const char *config, size_t config_length,
    const char *source, size_t source_length, struct kvr_error *error)
{
    struct kvr_chat_texts texts = {
        .config = {NULL, {config, config_length}}, .source = {NULL, {source, source_length}}};

    return kvr_chat_read_texts(out, &texts, error);
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
