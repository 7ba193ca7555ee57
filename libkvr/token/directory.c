#include "token/directory.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const endings[] = {".tiktoken", ".tokenizer.json", ".tekken.json", ".json", ""};
static const char *const inside[] = {"/tokenizer.json", "/tekken.json", "/tokenizer.model.tiktoken",
    "/tokenizer.tiktoken", "/tiktoken.model", "/qwen.tiktoken", "/tokenizer.model"};
static const char *const packings[] = {"", ".gz"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool is_file(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static const char *set_path(struct kvr_buffer *path, const char *directory, const char *name,
    const char *ending, const char *packing)
{
    kvr_buffer_clear(path);
    if (directory) {
        kvr_buffer_append_text(path, directory);
        kvr_buffer_append_byte(path, '/');
    }
    kvr_buffer_append_text(path, name);
    kvr_buffer_append_text(path, ending);
    kvr_buffer_append_text(path, packing);
    const char *text = kvr_buffer_text(path);
    return text ? text : "";
}

/* Tries all forms of a name in a directory (NULL: the name is a path itself). */
static bool find_in(const char *directory, const char *name, struct kvr_buffer *path)
{
    for (size_t i = 0; i < COUNT(endings); i++)
        for (size_t k = 0; k < COUNT(packings); k++)
            if (is_file(set_path(path, directory, name, endings[i], packings[k])))
                return true;
    for (size_t i = 0; i < COUNT(inside); i++)
        for (size_t k = 0; k < COUNT(packings); k++)
            if (is_file(set_path(path, directory, name, inside[i], packings[k])))
                return true;
    return false;
}

/* The directories, one after another: calls visit until it says true. */
static bool each_directory(bool (*visit)(const char *directory, void *context), void *context)
{
    const char *list = getenv("KVR_TOKENIZERS"), *home = getenv("HOME");
    const char *cache = getenv("XDG_CACHE_HOME");
    char path[PATH_MAX], self[PATH_MAX];

    while (list && *list) {
        size_t length = strcspn(list, ":");
        if (length && length < sizeof path) {
            memcpy(path, list, length);
            path[length] = '\0';
            if (visit(path, context))
                return true;
        }
        list += length + (list[length] == ':');
    }
    if (cache && *cache)
        snprintf(path, sizeof path, "%s/kvr", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/kvr", home ? home : "");
    if (((cache && *cache) || (home && *home)) && visit(path, context))
        return true;
    if (visit(KVR_DATADIR, context))
        return true;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return false;
    self[length] = '\0';
    static const char *const relative[] = {"../share/kvr", "../../data", "../../../data"};
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < COUNT(relative); i++) {
        if ((size_t)snprintf(path, sizeof path, "%s/%s", self, relative[i]) < sizeof path &&
            visit(path, context))
            return true;
    }
    return false;
}

struct search {
    const char *name;
    struct kvr_buffer *path;
};

static bool search_in(const char *directory, void *context)
{
    struct search *search = context;

    return find_in(directory, search->name, search->path);
}

/* No way out of a directory, and one way to each file in it: no empty, absolute or climbing names,
 * none with a part that is hidden or empty. */
static bool is_safe(const char *name)
{
    for (const char *part = name;; part++) {
        if (*part == '/' || *part == '\0' || *part == '.')
            return false;
        part = strchrnul(part, '/');
        if (!*part)
            return true;
    }
}

/* Why a path, or what stands in this folder under that name, is no vocabulary; KVR_OK where the
 * name is none of both. */
static enum kvr_status explain_path(const char *name, struct kvr_error *error)
{
    struct stat info;
    char shown[200];
    bool there = stat(name, &info) == 0;

    kvr_printable(shown, sizeof shown, name, strlen(name));
    if (!there && strchr(name, '/'))
        return kvr_error_errno(error, KVR_IO, "'%s'", shown);
    if (there && S_ISDIR(info.st_mode))
        return kvr_error_set(
            error, KVR_IO, "'%s' is a folder without tokenizer.json or tekken.json", shown);
    return there ? kvr_error_set(error, KVR_IO, "'%s' is no regular file", shown) : KVR_OK;
}

enum kvr_status kvr_directory_find(
    const char *name, bool trusted, struct kvr_buffer *path, struct kvr_error *error)
{
    struct search search = {name, path};
    char shown[200];

    if (trusted && (strcmp(name, "bytes") == 0 || strcmp(name, "chars") == 0)) {
        set_path(path, NULL, name, "", "");
        return path->failed ? kvr_error_memory(error) : KVR_OK;
    }
    if (trusted && find_in(NULL, name, path))
        return KVR_OK;
    if (is_safe(name) && each_directory(search_in, &search))
        return KVR_OK;
    if (path->failed)
        return kvr_error_memory(error);
    if (trusted && explain_path(name, error) != KVR_OK)
        return KVR_IO;
    return kvr_error_set(error, KVR_IO, "no vocabulary '%s'; --list shows those that there are",
        kvr_printable(shown, sizeof shown, name, strlen(name)));
}

struct listing {
    void (*found)(const char *name, const char *path, bool hidden, void *context);
    void *context;
    struct kvr_buffer seen; /* names, each with its NUL */
};

static bool was_seen(struct listing *listing, const char *name)
{
    const char *p = listing->seen.data, *end = p + listing->seen.length;

    for (; p < end; p += strlen(p) + 1)
        if (strcmp(p, name) == 0)
            return true;
    kvr_buffer_append(&listing->seen, name, strlen(name) + 1);
    return false;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The name that a file of a directory is found by, or false. */
static bool name_of(const char *file, char *name, size_t size)
{
    size_t length = strlen(file);

    if (length > 3 && strcmp(file + length - 3, ".gz") == 0)
        length -= 3;
    for (size_t i = 0; i + 2 < COUNT(endings); i++) {
        size_t ending = strlen(endings[i]);
        if (length > ending && length - ending < size &&
            memcmp(file + length - ending, endings[i], ending) == 0) {
            memcpy(name, file, length - ending);
            name[length - ending] = '\0';
            return true;
        }
    }
    return false;
}

static bool list_in(const char *directory, void *context)
{
    struct listing *listing = context;
    struct dirent **entries;
    struct kvr_buffer path = {0};
    int count = scandir(directory, &entries, NULL, by_name);

    for (int i = 0; i < count; i++) {
        char name[NAME_MAX + 1];
        bool found = name_of(entries[i]->d_name, name, sizeof name) &&
                     is_file(set_path(&path, directory, entries[i]->d_name, "", ""));
        for (size_t k = 0; !found && entries[i]->d_name[0] != '.' && k < 2 * COUNT(inside); k++) {
            snprintf(name, sizeof name, "%s", entries[i]->d_name);
            found = is_file(set_path(&path, directory, name, inside[k / 2], packings[k % 2]));
        }
        if (found)
            listing->found(name, path.data, was_seen(listing, name), listing->context);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    kvr_buffer_release(&path);
    return false;
}

void kvr_directory_list(
    void (*found)(const char *name, const char *path, bool hidden, void *context), void *context)
{
    struct listing listing = {found, context, {0}};

    each_directory(list_in, &listing);
    kvr_buffer_release(&listing.seen);
}

const char *kvr_directory_cache(struct kvr_buffer *path)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    kvr_buffer_clear(path);
    if (cache && *cache) {
        kvr_buffer_append_text(path, cache);
    } else if (home && *home) {
        kvr_buffer_append_text(path, home);
        kvr_buffer_append_text(path, "/.cache");
    } else {
        return NULL;
    }
    if (kvr_buffer_text(path))
        mkdir(path->data, 0777);
    kvr_buffer_append_text(path, "/kvr");
    return kvr_buffer_text(path);
}
