#include "token/directory.h"
#include "token/file.h"

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

/* What stands beside vocabularies and has no name of its own, by a part of the file's. */
static bool is_companion(const char *file)
{
    static const char *const parts[] = {"config.json", "special_tokens_map.json",
        "chat_template.json", "added_tokens.json", "vocab.json", "merges.txt", ".jinja", ".kvv"};

    for (size_t i = 0; i < COUNT(parts); i++)
        if (strstr(file, parts[i]))
            return true;
    return false;
}

/* Whether a file without an ending begins as a vocabulary does: with an object, a rank, or packed.
 * A NOTICE or a LICENSE may stand beside vocabularies, too. */
static bool begins_as_vocabulary(const char *path)
{
    static const char base64[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    char start[512] = "";
    FILE *file = fopen(path, "re");

    if (!file)
        return false;
    size_t length = fread(start, 1, sizeof start - 1, file), word = strspn(start, base64);
    fclose(file);
    return kvr_is_gzip(start, length) || start[strspn(start, " \t\r\n")] == '{' ||
           (word && start[word] == ' ' && strspn(start + word + 1, "0123456789"));
}

/* Tries all forms of a name in a directory (NULL: the name is a path itself, whatever it is). */
static bool find_in(const char *directory, const char *name, struct kvr_buffer *path)
{
    for (size_t i = 0; i < COUNT(endings); i++)
        for (size_t k = 0; k < COUNT(packings); k++)
            if (is_file(set_path(path, directory, name, endings[i], packings[k])) &&
                !(directory && (is_companion(strrchr(path->data, '/')) ||
                                   (!*endings[i] && !begins_as_vocabulary(path->data)))))
                return true;
    for (size_t i = 0; i < COUNT(inside); i++)
        for (size_t k = 0; k < COUNT(packings); k++)
            if (is_file(set_path(path, directory, name, inside[i], packings[k])))
                return true;
    return false;
}

/* XDG_CACHE_HOME, which does not count where it is a relative path: so says its specification. */
static const char *cache_home(void)
{
    const char *cache = getenv("XDG_CACHE_HOME");

    return cache && *cache == '/' ? cache : NULL;
}

/* The directories, one after another: calls visit until it says true. */
static bool each_directory(bool (*visit)(const char *directory, void *context), void *context)
{
    const char *list = getenv("KVR_TOKENIZERS"), *home = getenv("HOME");
    const char *cache = cache_home();
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
    if (cache)
        snprintf(path, sizeof path, "%s/kvr", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/kvr", home ? home : "");
    if ((cache || (home && *home)) && visit(path, context))
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

/* The length of the name that a file of a directory is found by, 0 where there is none: a name with
 * a dot and none of the endings is one of some other file, as a rule. */
static size_t name_length(const char *file)
{
    size_t length = strlen(file);

    if (is_companion(file) || file[0] == '.')
        return 0;
    if (length > 3 && strcmp(file + length - 3, ".gz") == 0)
        length -= 3;
    for (size_t i = 0; i + 1 < COUNT(endings); i++) {
        size_t ending = strlen(endings[i]);
        if (length > ending && memcmp(file + length - ending, endings[i], ending) == 0)
            return length - ending;
    }
    return memchr(file, '.', length) ? 0 : length;
}

static bool has_ending(const char *file, size_t name)
{
    return file[name] && strcmp(file + name, ".gz") != 0;
}

/* Lists a directory, whose names have `prefix` before them. In folders that are no vocabulary there
 * may be some, as ORG/MODEL; not deeper, for nobody names more. */
static void list_folder(struct listing *listing, const char *directory, const char *prefix)
{
    struct dirent **entries;
    struct kvr_buffer path = {0}, name = {0};
    int count = scandir(directory, &entries, NULL, by_name);

    for (int i = 0; i < count; i++) {
        const char *file = entries[i]->d_name;
        size_t length = name_length(file);
        struct stat info;
        bool found = length && is_file(set_path(&path, directory, file, "", "")) &&
                     (has_ending(file, length) || begins_as_vocabulary(path.data));
        bool folder = !found && file[0] != '.' &&
                      stat(set_path(&path, directory, file, "", ""), &info) == 0 &&
                      S_ISDIR(info.st_mode);
        for (size_t k = 0; folder && !found && k < 2 * COUNT(inside); k++)
            found = is_file(set_path(&path, directory, file, inside[k / 2], packings[k % 2]));
        kvr_buffer_clear(&name);
        kvr_buffer_append_text(&name, prefix);
        kvr_buffer_append(&name, file, folder ? strlen(file) : length);
        if (found && kvr_buffer_text(&name))
            listing->found(name.data, path.data, was_seen(listing, name.data), listing->context);
        kvr_buffer_append_byte(&name, '/');
        set_path(&path, directory, file, "", "");
        if (folder && !found && !*prefix && kvr_buffer_text(&name) && !path.failed)
            list_folder(listing, path.data, name.data);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    kvr_buffer_release(&path);
    kvr_buffer_release(&name);
}

static void note_one(const char *name, const char *path, bool hidden, void *context)
{
    (void)name;
    (void)path;
    (void)hidden;
    *(bool *)context = true;
}

static bool has_some(const char *directory, void *context)
{
    bool some = false;
    struct listing listing = {note_one, &some, {0}};

    (void)context;
    list_folder(&listing, directory, "");
    kvr_buffer_release(&listing.seen);
    return some;
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
    kvr_printable(shown, sizeof shown, name, strlen(name));
    if (!each_directory(has_some, NULL))
        return kvr_error_set(error, KVR_IO,
            "no vocabulary '%s': there is none in KVR_TOKENIZERS, in ~/.cache/kvr or "
            "in " KVR_DATADIR,
            shown);
    return kvr_error_set(
        error, KVR_IO, "no vocabulary '%s'; --list shows those that there are", shown);
}

static bool list_in(const char *directory, void *context)
{
    list_folder(context, directory, "");
    return false;
}

void kvr_directory_list(
    void (*found)(const char *name, const char *path, bool hidden, void *context), void *context)
{
    struct listing listing = {found, context, {0}};

    each_directory(list_in, &listing);
    found("bytes", NULL, false, context);
    found("chars", NULL, false, context);
    kvr_buffer_release(&listing.seen);
}

const char *kvr_directory_cache(struct kvr_buffer *path)
{
    const char *cache = cache_home(), *home = getenv("HOME");

    kvr_buffer_clear(path);
    if (cache) {
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
