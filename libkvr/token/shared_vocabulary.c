#include "token/shared_vocabulary.h"

#include "base/grow.h"
#include "base/mapped.h"
#include "token/chat.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

struct kvr_shared_vocabulary {
    char *path;
    struct stat info, config; /* of the file and of the configuration beside it; zeros: none */
    struct kvr_tokenizer *tokenizer;
};

/* Zeros: there is no such file. */
static struct stat look_at(const char *path)
{
    struct stat info = {0};

    if (!path[0] || stat(path, &info) != 0)
        return (struct stat){0};
    return info;
}

static struct stat look_at_config(const char *path)
{
    struct kvr_chat_files beside;

    kvr_chat_find_files(path, &beside);
    return look_at(beside.config);
}

/* Whether nobody has touched a file in between. */
static bool is_as_before(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Whether what was loaded is what lies there now, so that other files may be compared with it. */
static bool is_current(const struct kvr_shared_vocabulary *item)
{
    struct stat info = look_at(item->path), config = look_at_config(item->path);

    return item->info.st_ino && is_as_before(&item->info, &info) &&
           is_as_before(&item->config, &config);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Whether two files, of which information is given, have the same bytes. */
static bool same_bytes(
    const char *a, const struct stat *of_a, const char *b, const struct stat *of_b)
{
    struct kvr_mapped first = {0}, second = {0};

    if (of_a->st_dev == of_b->st_dev && of_a->st_ino == of_b->st_ino)
        return true;
    bool same = of_a->st_size == of_b->st_size && S_ISREG(of_a->st_mode) &&
                S_ISREG(of_b->st_mode) && kvr_mapped_open(&first, a, NULL) == KVR_OK &&
                kvr_mapped_open(&second, b, NULL) == KVR_OK && first.size == second.size &&
                (!first.size || memcmp(first.data, second.data, first.size) == 0);
    kvr_mapped_close(&first);
    kvr_mapped_close(&second);
    return same;
}

static bool is_json(const char *path)
{
    char start[64];
    gzFile file = gzopen(path, "rb");
    int count = file ? gzread(file, start, sizeof start) : 0, at = 0;

    if (file)
        gzclose(file);
    while (at < count && start[at] && strchr("\xef\xbb\xbf \t\r\n", start[at]))
        at++;
    return at < count && start[at] == '{';
}

/* Whether the same bytes mean the same under both names: a tokenizer.json and a tekken.json say
 * what they are; the encoding of a rank file (NAME.json may be one) is told by its name and the
 * configuration beside it. */
static bool same_meaning(const char *a, const char *b)
{
    const char *first = base_name(a), *second = base_name(b);
    struct kvr_chat_files beside_a, beside_b;
    struct stat of_a, of_b;

    if (strstr(first, ".json") && strstr(second, ".json") && is_json(a))
        return !strstr(first, "tekken") == !strstr(second, "tekken");
    if (strcmp(first, second) != 0)
        return false;
    kvr_chat_find_files(a, &beside_a);
    kvr_chat_find_files(b, &beside_b);
    if (!beside_a.config[0] || !beside_b.config[0])
        return !beside_a.config[0] && !beside_b.config[0];
    return stat(beside_a.config, &of_a) == 0 && stat(beside_b.config, &of_b) == 0 &&
           same_bytes(beside_a.config, &of_a, beside_b.config, &of_b);
}

enum kvr_status kvr_shared_vocabulary_get(struct kvr_shared_vocabularies *list, const char *path,
    const char *cache_directory, struct kvr_tokenizer **tokenizer, const char **as,
    struct kvr_error *error)
{
    struct stat info = look_at(path);
    bool is_file = info.st_ino != 0;

    for (size_t i = 0; i < list->count; i++) {
        const struct kvr_shared_vocabulary *item = &list->items[i];
        if (strcmp(item->path, path) == 0 ||
            (is_file && is_current(item) && same_meaning(item->path, path) &&
                same_bytes(item->path, &item->info, path, &info))) {
            *tokenizer = item->tokenizer;
            *as = item->path;
            return KVR_OK;
        }
    }
    void *room = kvr_grow(list->items, &list->capacity, list->count + 1, sizeof *list->items);
    if (!room)
        return kvr_error_memory(error);
    list->items = room;
    struct kvr_shared_vocabulary *item = &list->items[list->count];
    *item = (struct kvr_shared_vocabulary){.path = strdup(path)};
    item->info = info;
    item->config = look_at_config(path);
    enum kvr_status status =
        item->path ? kvr_tokenizer_load(&item->tokenizer, path, cache_directory, error)
                   : kvr_error_memory(error);
    if (status) {
        free(item->path);
        return status;
    }
    list->count++;
    *tokenizer = item->tokenizer;
    *as = item->path;
    return KVR_OK;
}

void kvr_shared_vocabularies_release(struct kvr_shared_vocabularies *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].path);
        kvr_tokenizer_release(list->items[i].tokenizer);
    }
    free(list->items);
    *list = (struct kvr_shared_vocabularies){0};
}
