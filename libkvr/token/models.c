#include "token/models.h"
#include "token/directory.h"
#include "token/file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_LIMIT 256

struct entry {
    char *name;                 /* as lines say it; NULL: the default */
    char *tokenizer, *template; /* from the map; NULL: not said */
    bool loaded, looked_up;     /* looked_up: "auto" found nothing, or an alias of the default */
    struct kvr_chat_model *model;
    struct kvr_error failure; /* why loading failed, said for each of its lines */
};

struct kvr_models {
    struct kvr_models_options options;
    pthread_mutex_t lock;
    struct entry entries[MODEL_LIMIT];
    size_t count;
};

static const char *const image_tokens[] = {"<|image_pad|>", "<|image|>", "<image>", "[IMG]",
    "<start_of_image>", "<image_soft_token>", "<|image_1|>", "<|vision_pad|>"};

static void release_model(struct kvr_chat_model *model)
{
    if (!model)
        return;
    kvr_tokenizer_release(model->tokenizer);
    kvr_chat_free(model->chat);
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

static enum kvr_status load_model(struct kvr_chat_model **out, const char *name, bool trusted,
    const char *template, const char *cache_directory, struct kvr_error *error)
{
    struct kvr_chat_model *model = calloc(1, sizeof *model);
    struct kvr_buffer path = {0};
    enum kvr_status status = model ? KVR_OK : kvr_error_memory(error);

    if (!status)
        status = kvr_directory_find(name, trusted, &path, error);
    if (!status)
        status = kvr_tokenizer_load(&model->tokenizer, path.data, cache_directory, error);
    if (status == KVR_BAD_INPUT && strstr(path.data, "tokenizer_config.json"))
        kvr_error_set(error, KVR_BAD_INPUT,
            "'%s' is a configuration; the vocabulary is in the tokenizer.json beside it",
            path.data);
    if (!status) {
        model->bos_id = KVR_NO_TOKEN;
        find_image_token(model);
        status = load_chat(model, path.data, template, error);
    }
    kvr_buffer_release(&path);
    if (status) {
        release_model(model);
        model = NULL;
    }
    *out = model;
    return status;
}

static char *copy_text(struct kvr_value value)
{
    struct kvr_buffer out = {0};

    return kvr_value_string(value, &out) ? kvr_buffer_text(&out) : NULL;
}

static enum kvr_status add_mapped(
    struct kvr_models *models, struct kvr_value item, struct kvr_error *error)
{
    struct kvr_value name = kvr_value_get(item, "model");
    struct kvr_value tokenizer = kvr_value_get(item, "tokenizer");
    struct kvr_value template = kvr_value_get(item, "template");

    if (models->count == MODEL_LIMIT)
        return kvr_error_set(error, KVR_BAD_INPUT, "more than %d models", MODEL_LIMIT - 1);
    if (name.type != KVR_STRING || tokenizer.type != KVR_STRING)
        return kvr_error_set(error, KVR_BAD_INPUT, "a line needs the texts model and tokenizer");
    struct entry *entry = &models->entries[models->count++];
    entry->name = copy_text(name);
    entry->tokenizer = copy_text(tokenizer);
    entry->template = template.type == KVR_STRING ? copy_text(template) : NULL;
    return entry->name && entry->tokenizer ? KVR_OK : kvr_error_memory(error);
}

static enum kvr_status read_map(
    struct kvr_models *models, const char *path, struct kvr_error *error)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_buffer text = {0};
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
            status = add_mapped(models, item, error);
        if (status)
            kvr_error_prefix(error, "%s:%u", path, number);
    }
    kvr_structure_destroy(structure);
    kvr_buffer_release(&text);
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
    pthread_mutex_init(&m->lock, NULL);
    m->count = 1;
    enum kvr_status status = load_model(&m->entries[0].model, options->tokenizer, true,
        options->template_file, options->cache_directory, error);
    if (!status && options->by_model && strcmp(options->by_model, "auto") != 0)
        status = read_map(m, options->by_model, error);
    if (status) {
        kvr_models_destroy(m);
        return status;
    }
    m->entries[0].loaded = true;
    *models = m;
    return KVR_OK;
}

void kvr_models_destroy(struct kvr_models *models)
{
    if (!models)
        return;
    for (size_t i = 0; i < models->count; i++) {
        struct entry *entry = &models->entries[i];
        release_model(entry->model);
        free(entry->name);
        free(entry->tokenizer);
        free(entry->template);
    }
    pthread_mutex_destroy(&models->lock);
    free(models);
}

static struct entry *find_entry(struct kvr_models *models, struct kvr_text name)
{
    for (size_t i = 1; i < models->count; i++)
        if (strlen(models->entries[i].name) == name.length &&
            memcmp(models->entries[i].name, name.text, name.length) == 0)
            return &models->entries[i];
    return NULL;
}

/* With "auto": the vocabulary of the model's name, or of its last part. */
static enum kvr_status load_by_name(
    struct kvr_models *models, struct entry *entry, struct kvr_error *error)
{
    struct kvr_buffer path = {0};
    const char *slash = strrchr(entry->name, '/');
    const char *names[] = {entry->name, slash ? slash + 1 : NULL};
    enum kvr_status status = KVR_OK;

    for (int i = 0; i < 2 && names[i]; i++) {
        if (kvr_directory_find(names[i], false, &path, NULL) == KVR_OK) {
            status = load_model(
                &entry->model, names[i], false, NULL, models->options.cache_directory, error);
            break;
        }
    }
    kvr_buffer_release(&path);
    return status; /* where none was found: no model of its own, the default */
}

static enum kvr_status get_locked(struct kvr_models *models, struct kvr_text name,
    const struct kvr_chat_model **model, struct kvr_error *error)
{
    struct entry *entry = find_entry(models, name);
    bool automatic = strcmp(models->options.by_model, "auto") == 0;

    if (!entry && automatic && models->count < MODEL_LIMIT) {
        entry = &models->entries[models->count];
        entry->name = strndup(name.text, name.length);
        if (!entry->name)
            return kvr_error_memory(error);
        models->count++;
    }
    if (!entry) {
        *model = models->entries[0].model;
        return KVR_OK;
    }
    if (!entry->loaded) {
        entry->loaded = true;
        if (entry->tokenizer)
            load_model(&entry->model, entry->tokenizer, true, entry->template,
                models->options.cache_directory, &entry->failure);
        else
            load_by_name(models, entry, &entry->failure);
    }
    if (entry->failure.status) {
        if (error)
            *error = entry->failure;
        return entry->failure.status;
    }
    *model = entry->model ? entry->model : models->entries[0].model;
    return KVR_OK;
}

enum kvr_status kvr_models_get(struct kvr_models *models, struct kvr_text name,
    const struct kvr_chat_model **model, struct kvr_error *error)
{
    if (!name.text || !models->options.by_model) {
        *model = models->entries[0].model;
        return KVR_OK;
    }
    pthread_mutex_lock(&models->lock);
    enum kvr_status status = get_locked(models, name, model, error);
    pthread_mutex_unlock(&models->lock);
    return status;
}
