#include "token/models.h"

#include "base/grow.h"
#include "base/u64_map.h"
#include "token/directory.h"
#include "token/file.h"
#include "token/shared_vocabulary.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Names that "auto" has met; more, and all are forgotten (the models stay): names come from
 * clients, and there is no end to those that mean nothing. */
enum { NAME_LIMIT = 4096 };

/* A model and what makes it: two names of a map with the same two files are one model. */
struct loaded {
    char *path, *template; /* template NULL: what stands beside the vocabulary */
    struct kvr_chat_model *model;
};

struct entry {
    char *name; /* as lines say it */
    size_t length;
    unsigned line;                      /* of the map */
    const struct kvr_chat_model *model; /* NULL: none of its own */
    struct kvr_error
        *failure; /* why loading failed, said for each of its lines; NULL: it did not */
};

struct kvr_models {
    struct kvr_models_options options;
    char *by_model, *cache_directory; /* own copies of the options that later names need */
    pthread_mutex_t lock;
    const struct kvr_chat_model *common; /* of lines without a model of their own */
    struct kvr_shared_vocabularies vocabularies;
    struct loaded *loaded;
    size_t loaded_count, loaded_capacity;
    struct entry *entries;
    size_t count, capacity;
    struct kvr_u64_map
        by_name; /* hash of a name (of that and so many more as are taken) -> entry */
};

static const char *const image_tokens[] = {"<|image_pad|>", "<|image|>", "<image>", "[IMG]",
    "<start_of_image>", "<image_soft_token>", "<|image_1|>", "<|vision_pad|>"};

static void release_model(struct kvr_chat_model *model)
{
    if (!model)
        return;
    kvr_chat_free(model->chat); /* the tokenizer is shared */
    free(model);
}

/* The BOS token that a configuration wants before prompts (add_bos_token). */
static enum kvr_status read_bos(
    struct kvr_chat_model *model, const char *path, struct kvr_error *error)
{
    const char *bos = kvr_chat_token(model->chat, "bos_token");
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_buffer text = {0};
    struct kvr_value config;
    enum kvr_status status =
        structure ? kvr_read_file(path, &text, error) : kvr_error_memory(error);

    if (!status)
        status = kvr_json_check(structure, text.data, text.length, &config, NULL, error)
                     ? kvr_error_prefix(error, "'%s'", path)
                     : KVR_OK;
    if (!status && bos && kvr_value_get(config, "add_bos_token").type == KVR_TRUE)
        model->bos_id = kvr_tokenizer_added(model->tokenizer, bos, strlen(bos));
    kvr_structure_destroy(structure);
    kvr_buffer_release(&text);
    return status;
}

/* Where the post-processor puts this token before texts itself, nothing else has to. */
static void drop_doubled_bos(struct kvr_chat_model *model)
{
    if (kvr_tokenizer_first(model->tokenizer) == model->bos_id)
        model->bos_id = KVR_NO_TOKEN;
}

static void find_image_token(struct kvr_chat_model *model)
{
    model->image_id = KVR_NO_TOKEN;
    for (size_t i = 0; i < sizeof image_tokens / sizeof *image_tokens; i++) {
        model->image_id =
            kvr_tokenizer_added(model->tokenizer, image_tokens[i], strlen(image_tokens[i]));
        if (model->image_id != KVR_NO_TOKEN)
            return;
    }
}

/* The template beside the vocabulary, or the one named: a template or a tokenizer_config.json. */
static enum kvr_status load_chat(struct kvr_chat_model *model, const char *vocabulary,
    const char *template, struct kvr_error *error)
{
    struct kvr_chat_files files;
    bool is_config = template && strstr(template, "tokenizer_config.json");

    if (template && !*template)
        return kvr_error_set(error, KVR_BAD_USAGE, "the template's file name is empty");
    kvr_chat_find_files(vocabulary, &files);
    struct kvr_chat_paths paths = {
        .config = is_config         ? template
                  : files.config[0] ? files.config
                                    : NULL,
        .source = template && !is_config          ? template
                  : files.source[0] && !is_config ? files.source
                                                  : NULL,
        .special_map = files.special_map,
        .named = template ? NULL : files.named,
    };
    enum kvr_status status = kvr_chat_load_files(&model->chat, &paths, error);
    /* beside a vocabulary there may be none; who names a file wants its template */
    if (!status && template && !kvr_chat_has_template(model->chat))
        status =
            kvr_error_set(error, KVR_BAD_INPUT, "'%s': there is no chat_template in it", template);
    if (!status && paths.config)
        status = read_bos(model, paths.config, error);
    drop_doubled_bos(model);
    return status;
}

static void tell(const struct kvr_models *models, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void tell(const struct kvr_models *models, const char *format, ...)
{
    char text[1200];
    va_list arguments;

    if (!models->options.tell)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    models->options.tell(models->options.context, text);
}

static void tell_loaded(const struct kvr_models *models, const struct kvr_chat_model *model,
    const char *path, const char *as, const char *template)
{
    static const char *const uses[] = {
        [KVR_CACHE_NONE] = "read without a cache",
        [KVR_CACHE_READ] = "read from the cache",
        [KVR_CACHE_KEPT] = "compiled and kept in the cache",
        [KVR_CACHE_REFUSED] = "compiled; the cache cannot be written",
    };
    struct kvr_chat_files files;

    if (!models->options.tell)
        return;
    kvr_chat_find_files(path, &files);
    if (!template)
        template = files.source[0] ? files.source : files.config;
    bool shared = strcmp(path, as) != 0;
    tell(models, "vocabulary '%.400s': %u ids, %s%.400s%s; %s%.400s%s", path,
        kvr_tokenizer_size(model->tokenizer),
        shared ? "the same as '" : uses[kvr_tokenizer_cache_use(model->tokenizer)],
        shared ? as : "", shared ? "'" : "",
        kvr_chat_has_template(model->chat) ? "chat template '" : "no chat template",
        kvr_chat_has_template(model->chat) ? template : "",
        kvr_chat_has_template(model->chat) ? "'" : "");
}

/* Loads a vocabulary file and its chat, template NULL: its own. */
static enum kvr_status load_model(struct kvr_models *models, struct kvr_chat_model **out,
    const char *path, const char *template, struct kvr_error *error)
{
    struct kvr_chat_model *model = calloc(1, sizeof *model);
    enum kvr_status status = model ? KVR_OK : kvr_error_memory(error);
    const char *as;

    if (!status)
        status = kvr_shared_vocabulary_get(&models->vocabularies, path,
            models->options.cache_directory, &model->tokenizer, &as, error);
    if (status == KVR_BAD_INPUT && strstr(path, "tokenizer_config.json"))
        kvr_error_set(error, KVR_BAD_INPUT,
            "'%s' is a configuration; the vocabulary is in the tokenizer.json beside it", path);
    if (!status) {
        model->bos_id = KVR_NO_TOKEN;
        find_image_token(model);
        status = load_chat(model, path, template, error);
    }
    if (status) {
        release_model(model);
        model = NULL;
    } else {
        tell_loaded(models, model, path, as, template);
    }
    *out = model;
    return status;
}

/* The model of a file and a template, loaded if it is not yet. */
static enum kvr_status share_model(struct kvr_models *models, const char *path,
    const char *template, const struct kvr_chat_model **model, struct kvr_error *error)
{
    for (size_t i = 0; i < models->loaded_count; i++) {
        const struct loaded *other = &models->loaded[i];
        if (strcmp(other->path, path) == 0 && !other->template == !template &&
            (!template || strcmp(other->template, template) == 0)) {
            *model = other->model;
            return KVR_OK;
        }
    }
    void *room = kvr_grow(
        models->loaded, &models->loaded_capacity, models->loaded_count + 1, sizeof *models->loaded);
    if (!room)
        return kvr_error_memory(error);
    models->loaded = room;
    struct loaded *item = &models->loaded[models->loaded_count];
    *item = (struct loaded){strdup(path), template ? strdup(template) : NULL, NULL};
    enum kvr_status status = item->path && (item->template || !template)
                                 ? load_model(models, &item->model, path, template, error)
                                 : kvr_error_memory(error);
    if (status) {
        free(item->path);
        free(item->template);
        return status;
    }
    models->loaded_count++;
    *model = item->model;
    return KVR_OK;
}

/* The same for what a person named: a file, or a name that is looked up. */
static enum kvr_status named_model(struct kvr_models *models, const char *name,
    const char *template, const struct kvr_chat_model **model, struct kvr_error *error)
{
    struct kvr_buffer path = {0};
    enum kvr_status status = kvr_directory_find(name, true, &path, error);

    if (!status)
        status = share_model(models, path.data, template, model, error);
    kvr_buffer_release(&path);
    return status;
}

/* ---- names ---- */

static struct entry *find_entry(
    const struct kvr_models *models, struct kvr_text name, uint64_t *key)
{
    uint64_t *index;

    *key = XXH3_64bits(name.text, name.length);
    for (; (index = kvr_u64_map_find(&models->by_name, *key)); ++*key) {
        struct entry *entry = &models->entries[*index];
        if (entry->length == name.length && memcmp(entry->name, name.text, name.length) == 0)
            return entry;
    }
    return NULL;
}

/* Adds a name that find_entry() did not find; key is what it said. */
static struct entry *add_entry(
    struct kvr_models *models, struct kvr_text name, uint64_t key, struct kvr_error *error)
{
    void *room =
        kvr_grow(models->entries, &models->capacity, models->count + 1, sizeof *models->entries);
    uint64_t *index = NULL;

    if (room) {
        models->entries = room;
        struct entry *entry = &models->entries[models->count];
        *entry = (struct entry){.name = strndup(name.text, name.length), .length = name.length};
        if (entry->name)
            index = kvr_u64_map_insert(&models->by_name, key, NULL);
        if (index) {
            *index = models->count++;
            return entry;
        }
        free(entry->name);
    }
    kvr_error_memory(error);
    return NULL;
}

static void forget_names(struct kvr_models *models)
{
    for (size_t i = 0; i < models->count; i++) {
        free(models->entries[i].name);
        free(models->entries[i].failure);
    }
    models->count = 0;
    kvr_u64_map_clear(&models->by_name);
}

/* ---- the map ---- */

static enum kvr_status add_mapped(struct kvr_models *models, struct kvr_value item, unsigned line,
    struct kvr_buffer texts[3], struct kvr_error *error)
{
    static const char *const members[] = {"model", "tokenizer", "template"};
    struct kvr_text parts[3] = {{0}};
    uint64_t key;

    for (int i = 0; i < 3; i++) {
        struct kvr_value value = kvr_value_get(item, members[i]);
        kvr_buffer_clear(&texts[i]);
        if (i == 2 && kvr_value_missing(value))
            break;
        if (value.type != KVR_STRING)
            return kvr_error_set(error, KVR_BAD_INPUT,
                "a line needs the texts model and tokenizer, and may have the text template");
        if (!kvr_value_string(value, &texts[i]) || !kvr_buffer_text(&texts[i]))
            return kvr_error_memory(error);
        parts[i] = (struct kvr_text){texts[i].data, texts[i].length};
    }
    struct entry *entry = find_entry(models, parts[0], &key);
    if (entry)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "its model is that of line %u, too", entry->line);
    entry = add_entry(models, parts[0], key, error);
    if (!entry)
        return KVR_NO_MEMORY;
    entry->line = line;
    return named_model(models, parts[1].text, parts[2].text, &entry->model, error);
}

static enum kvr_status read_map(
    struct kvr_models *models, const char *path, struct kvr_error *error)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_buffer text = {0}, texts[3] = {{0}};
    unsigned number = 0;
    enum kvr_status status =
        structure ? kvr_read_file(path, &text, error) : kvr_error_memory(error);

    for (size_t at = 0; !status && at < text.length;) {
        const char *line = text.data + at, *newline = memchr(line, '\n', text.length - at);
        size_t length = newline ? (size_t)(newline - line) : text.length - at;
        struct kvr_value item;
        at += length + 1;
        number++;
        if (strspn(line, " \t\r") >= length)
            continue;
        status = kvr_json_check(structure, line, length, &item, NULL, error);
        if (!status)
            status = add_mapped(models, item, number, texts, error);
        if (status)
            kvr_error_prefix(error, "%s:%u", path, number);
    }
    kvr_structure_destroy(structure);
    kvr_buffer_release(&text);
    for (int i = 0; i < 3; i++)
        kvr_buffer_release(&texts[i]);
    return status;
}

enum kvr_status kvr_models_create(
    struct kvr_models **models, const struct kvr_models_options *options, struct kvr_error *error)
{
    struct kvr_models *m = calloc(1, sizeof *m);

    *models = NULL;
    if (!m)
        return kvr_error_memory(error);
    m->options = *options;
    m->options.by_model = m->by_model = options->by_model ? strdup(options->by_model) : NULL;
    m->options.cache_directory = m->cache_directory =
        options->cache_directory ? strdup(options->cache_directory) : NULL;
    pthread_mutex_init(&m->lock, NULL);
    enum kvr_status status =
        !m->by_model != !options->by_model || !m->cache_directory != !options->cache_directory
            ? kvr_error_memory(error)
            : KVR_OK;
    if (!status)
        status = named_model(m, options->tokenizer, options->template_file, &m->common, error);
    if (!status && options->by_model && strcmp(options->by_model, "auto") != 0)
        status = read_map(m, options->by_model, error);
    if (status) {
        kvr_models_destroy(m);
        return status;
    }
    *models = m;
    return KVR_OK;
}

void kvr_models_destroy(struct kvr_models *models)
{
    if (!models)
        return;
    forget_names(models);
    free(models->entries);
    kvr_u64_map_release(&models->by_name);
    for (size_t i = 0; i < models->loaded_count; i++) {
        release_model(models->loaded[i].model);
        free(models->loaded[i].path);
        free(models->loaded[i].template);
    }
    free(models->loaded);
    kvr_shared_vocabularies_release(&models->vocabularies);
    pthread_mutex_destroy(&models->lock);
    free(models->by_model);
    free(models->cache_directory);
    free(models);
}

/* With "auto": the vocabulary of the model's name, or of its last part; where there is none, the
 * entry has no model of its own. A vocabulary that cannot be used fails each of its lines. */
static void load_by_name(struct kvr_models *models, struct entry *entry)
{
    const char *slash = strrchr(entry->name, '/');
    const char *names[] = {entry->name, slash ? slash + 1 : NULL};
    struct kvr_buffer path = {0};
    struct kvr_error error;
    bool found = false;

    for (int i = 0; i < 2 && names[i] && !found && strlen(entry->name) == entry->length; i++)
        found = kvr_directory_find(names[i], false, &path, NULL) == KVR_OK;
    if (found && share_model(models, path.data, NULL, &entry->model, &error)) {
        /* of a file, not of the line */
        error.status = error.status == KVR_BAD_INPUT ? KVR_IO : error.status;
        entry->failure = malloc(sizeof *entry->failure);
        if (entry->failure)
            *entry->failure = error;
    }
    if (!found)
        tell(models, "model '%.400s' has no vocabulary of its own", entry->name);
    kvr_buffer_release(&path);
}

static enum kvr_status get_locked(struct kvr_models *models, struct kvr_text name,
    const struct kvr_chat_model **model, bool *own, struct kvr_error *error)
{
    uint64_t key;
    struct entry *entry = find_entry(models, name, &key);

    if (!entry && strcmp(models->options.by_model, "auto") == 0) {
        if (models->count == NAME_LIMIT) {
            forget_names(models);
            find_entry(models, name, &key);
        }
        entry = add_entry(models, name, key, error);
        if (!entry)
            return KVR_NO_MEMORY;
        load_by_name(models, entry);
    }
    if (entry && entry->failure) {
        if (error)
            *error = *entry->failure;
        return entry->failure->status;
    }
    *own = entry && entry->model;
    if (*own)
        *model = entry->model;
    return KVR_OK;
}

enum kvr_status kvr_models_get(struct kvr_models *models, struct kvr_text name,
    const struct kvr_chat_model **model, bool *own, struct kvr_error *error)
{
    *model = models->common;
    *own = true;
    if (!name.text || !models->options.by_model)
        return KVR_OK;
    pthread_mutex_lock(&models->lock);
    enum kvr_status status = get_locked(models, name, model, own, error);
    pthread_mutex_unlock(&models->lock);
    return status;
}
