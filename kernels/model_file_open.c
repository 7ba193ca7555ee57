#include "base/grow.h"
#include "kernels/model_file_private.h"
#include "kernels/safetensors.h"
#include "token/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES_MOST = 4096, CONFIG_MOST = 16 << 20 };

void kvr_model_file_close(struct kvr_model_file *file)
{
    if (!file)
        return;
    kvr_gguf_release(&file->gguf);
    for (size_t i = 0; i < file->mapped_count; i++)
        kvr_mapped_close(&file->mapped[i]);
    free(file->mapped);
    free(file->layers);
    free(file->name);
    free(file);
}

static enum kvr_status read_gguf(
    struct kvr_model_file *file, const void *bytes, size_t size, struct kvr_error *error)
{
    enum kvr_status status = kvr_gguf_read(&file->gguf, bytes, size, error);

    if (status == KVR_OK)
        status = kvr_model_config_gguf(&file->config, &file->gguf, error);
    return status == KVR_OK ? kvr_model_file_settle(file, true, error) : status;
}

static enum kvr_status read_config(struct kvr_model_file *file, const char *text, size_t length,
    struct kvr_structure *structure, struct kvr_error *error)
{
    struct kvr_value object;

    if (length > CONFIG_MOST)
        return kvr_error_set(error, KVR_BAD_INPUT, "config.json is larger than 16 MiB");
    enum kvr_status status = kvr_json_check(structure, text, length, &object, NULL, error);
    if (status != KVR_OK)
        return kvr_error_prefix(error, "config.json");
    return kvr_model_config_json(&file->config, object, error);
}

/* Ends an open: hands the file over, or closes it. */
static enum kvr_status finish(struct kvr_model_file *file, const char *name, enum kvr_status status,
    struct kvr_model_file **out)
{
    file->config.shape.name = name;
    if (status == KVR_OK)
        *out = file;
    else
        kvr_model_file_close(file);
    return status;
}

enum kvr_status kvr_model_file_gguf(const char *name, const void *bytes, size_t size,
    struct kvr_model_file **out, struct kvr_error *error)
{
    struct kvr_model_file *file = calloc(1, sizeof *file);

    if (!file)
        return kvr_error_memory(error);
    return finish(file, name, read_gguf(file, bytes, size, error), out);
}

enum kvr_status kvr_model_file_safetensors(const char *name, const char *config,
    size_t config_length, const void *bytes, size_t size, struct kvr_model_file **out,
    struct kvr_error *error)
{
    struct kvr_model_file *file = calloc(1, sizeof *file);
    struct kvr_structure *structure = kvr_structure_create();
    enum kvr_status status = file && structure ? KVR_OK : kvr_error_memory(error);

    if (status == KVR_OK)
        status = read_config(file, config, config_length, structure, error);
    if (status == KVR_OK)
        status = kvr_safetensors_read(&file->gguf.tensors, bytes, size, structure, error);
    if (status == KVR_OK)
        status = kvr_model_file_settle(file, false, error);
    kvr_structure_destroy(structure);
    return file ? finish(file, name, status, out) : status;
}

/* Maps one more file of the model. */
static enum kvr_status map(struct kvr_model_file *file, const char *path, struct kvr_error *error)
{
    struct kvr_mapped *mapped =
        kvr_grow(file->mapped, &file->mapped_capacity, file->mapped_count + 1, sizeof *mapped);

    if (!mapped)
        return kvr_error_memory(error);
    file->mapped = mapped;
    enum kvr_status status = kvr_mapped_open(&mapped[file->mapped_count], path, error);
    if (status == KVR_OK)
        file->mapped_count++;
    return status;
}

/* "FOLDER/name"; the folder of `path`, or path itself where it is one. */
static bool beside(
    struct kvr_buffer *out, const char *path, bool is_folder, const char *name, size_t length)
{
    const char *slash = strrchr(path, '/');

    kvr_buffer_clear(out);
    if (is_folder)
        kvr_buffer_append_format(out, "%s/", path);
    else if (slash)
        kvr_buffer_append(out, path, (size_t)(slash + 1 - path));
    kvr_buffer_append(out, name, length);
    return kvr_buffer_text(out) != NULL;
}

/* One more file of safetensors: mapped, its tensors listed. */
static enum kvr_status add_file(struct kvr_model_file *file, const char *path,
    struct kvr_structure *structure, struct kvr_error *error)
{
    char shown[128];
    enum kvr_status status = map(file, path, error);

    if (status != KVR_OK)
        return status;
    const struct kvr_mapped *mapped = &file->mapped[file->mapped_count - 1];
    status =
        kvr_safetensors_read(&file->gguf.tensors, mapped->data, mapped->size, structure, error);
    if (status != KVR_OK)
        kvr_error_prefix(error, "'%s'", kvr_printable(shown, sizeof shown, path, strlen(path)));
    return status;
}

/* The name of a file in the index' own folder. */
static bool read_name(struct kvr_value value, struct kvr_buffer *name)
{
    kvr_buffer_clear(name);
    return kvr_value_string(value, name) && kvr_buffer_text(name) && name->length > 0 &&
           strlen(name->data) == name->length && !strchr(name->data, '/');
}

/* Names that were met, terminated. */
struct names {
    struct kvr_buffer *items;
    size_t count, capacity;
};

/* Takes the name over unless it is there already. */
static enum kvr_status add_name(
    struct names *names, struct kvr_buffer *name, bool *is_new, struct kvr_error *error)
{
    *is_new = false;
    for (size_t i = names->count; i-- > 0;)
        if (strcmp(names->items[i].data, name->data) == 0)
            return KVR_OK;
    if (names->count == FILES_MOST)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "the index names more than %d files", FILES_MOST);
    struct kvr_buffer *items =
        kvr_grow(names->items, &names->capacity, names->count + 1, sizeof *items);
    if (!items)
        return kvr_error_memory(error);
    names->items = items;
    items[names->count++] = *name;
    *name = (struct kvr_buffer){0};
    *is_new = true;
    return KVR_OK;
}

/* The files that an index names, each once. */
static enum kvr_status add_indexed(struct kvr_model_file *file, const char *path, bool is_folder,
    struct kvr_value index, struct kvr_structure *structure, struct kvr_error *error)
{
    struct kvr_value files = kvr_value_get(index, "weight_map");
    struct kvr_cursor cursor = kvr_value_open(files);
    struct kvr_buffer name = {0}, full = {0};
    struct names names = {0};
    struct kvr_member member;
    enum kvr_status status = KVR_OK;
    bool is_new = false;

    if (files.type != KVR_OBJECT)
        status = kvr_error_set(error, KVR_BAD_INPUT, "the index has no 'weight_map'");
    while (status == KVR_OK && kvr_next_member(&cursor, &member)) {
        if (!read_name(member.value, &name))
            status = kvr_error_set(
                error, KVR_BAD_INPUT, "the index names a file that is not in its own folder");
        else
            status = add_name(&names, &name, &is_new, error);
        if (status != KVR_OK || !is_new)
            continue;
        const struct kvr_buffer *added = &names.items[names.count - 1];
        status = beside(&full, path, is_folder, added->data, added->length)
                     ? add_file(file, full.data, structure, error)
                     : kvr_error_memory(error);
    }
    for (size_t i = 0; i < names.count; i++)
        kvr_buffer_release(&names.items[i]);
    free(names.items);
    kvr_buffer_release(&name);
    kvr_buffer_release(&full);
    return status;
}

static bool exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0;
}

static bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);

    return length >= tail && strcmp(path + length - tail, ending) == 0;
}

/* The text of a file that was found beside the weights, where a FIFO could wait for ever. */
static enum kvr_status read_beside(
    const char *path, struct kvr_buffer *text, struct kvr_error *error)
{
    struct stat info;
    char shown[128];

    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return kvr_error_set(error, KVR_IO, "'%s' is no regular file",
            kvr_printable(shown, sizeof shown, path, strlen(path)));
    return kvr_read_file(path, text, error);
}

/* A folder, an index, or one file of safetensors. */
static enum kvr_status open_safetensors(struct kvr_model_file *file, const char *path,
    bool is_folder, struct kvr_structure *structure, struct kvr_error *error)
{
    static const char config_name[] = "config.json", one[] = "model.safetensors",
                      index_name[] = "model.safetensors.index.json";
    struct kvr_buffer config = {0}, index = {0}, weights = {0}, text = {0};
    bool is_index = ends_with(path, ".index.json");
    struct kvr_value object;
    enum kvr_status status = KVR_OK;

    bool named = beside(&config, path, is_folder, config_name, sizeof config_name - 1) &&
                 beside(&index, path, is_folder, index_name, sizeof index_name - 1) &&
                 beside(&weights, path, is_folder, one, sizeof one - 1);
    if (!named)
        status = kvr_error_memory(error);
    if (status == KVR_OK && is_folder)
        is_index = exists(index.data);
    else if (status == KVR_OK) {
        struct kvr_buffer *own = is_index ? &index : &weights;
        kvr_buffer_clear(own);
        kvr_buffer_append_text(own, path);
        if (!kvr_buffer_text(own))
            status = kvr_error_memory(error);
    }
    if (status == KVR_OK)
        status = read_beside(config.data, &text, error);
    if (status == KVR_OK)
        status = read_config(file, text.data, text.length, structure, error);
    kvr_buffer_clear(&text);
    if (status == KVR_OK && is_index)
        status = read_beside(index.data, &text, error);
    if (status == KVR_OK && is_index) {
        status = kvr_json_check(structure, text.data, text.length, &object, NULL, error);
        if (status == KVR_OK) {
            /* The values point into text; the structure is used again. */
            status = add_indexed(file, path, is_folder, object, structure, error);
        }
    } else if (status == KVR_OK) {
        status = add_file(file, weights.data, structure, error);
    }
    kvr_buffer_release(&config);
    kvr_buffer_release(&index);
    kvr_buffer_release(&weights);
    kvr_buffer_release(&text);
    return status == KVR_OK ? kvr_model_file_settle(file, false, error) : status;
}

static enum kvr_status open_either(
    struct kvr_model_file *file, const char *path, struct kvr_error *error)
{
    struct kvr_structure *structure;
    struct stat info;
    bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    enum kvr_status status = KVR_OK;

    if (!is_folder) {
        status = map(file, path, error);
        if (status != KVR_OK)
            return status;
        if (kvr_is_gguf(file->mapped[0].data, file->mapped[0].size))
            return read_gguf(file, file->mapped[0].data, file->mapped[0].size, error);
        kvr_mapped_close(&file->mapped[--file->mapped_count]);
    }
    if (!(structure = kvr_structure_create()))
        return kvr_error_memory(error);
    status = open_safetensors(file, path, is_folder, structure, error);
    kvr_structure_destroy(structure);
    return status;
}

enum kvr_status kvr_model_file_open(
    const char *path, struct kvr_model_file **out, struct kvr_error *error)
{
    struct kvr_model_file *file = calloc(1, sizeof *file);
    size_t length = strlen(path);
    char shown[128];

    if (!file)
        return kvr_error_memory(error);
    while (length > 1 && path[length - 1] == '/')
        length--;
    const char *slash = memrchr(path, '/', length);
    const char *base = slash && length > 1 ? slash + 1 : path;
    file->name = strndup(base, (size_t)(path + length - base));
    enum kvr_status status = file->name ? open_either(file, path, error) : kvr_error_memory(error);
    kvr_printable(shown, sizeof shown, path, strlen(path));
    if (status != KVR_OK && status != KVR_IO && status != KVR_NO_MEMORY)
        kvr_error_prefix(error, "'%s'", shown);
    return finish(file, file->name, status, out);
}
