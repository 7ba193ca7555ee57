/*
 * Where vocabularies are: the directories of KVR_TOKENIZERS (separated by ':'), the user's
 * ~/.cache/kvr (or $XDG_CACHE_HOME/kvr), the share/kvr that kvr was installed with, and data/
 * beside a build. In each of them NAME may be, gzip or not,
 *
 *     NAME.tiktoken   NAME.tokenizer.json   NAME.tekken.json   NAME.json   NAME   or a folder NAME
 *     with tokenizer.json, tekken.json or tokenizer.model.tiktoken inside, also as ORG/NAME
 *
 * Templates stand beside them: see kvr_chat_find_files().
 */
#ifndef KVR_TOKEN_DIRECTORY_H
#define KVR_TOKEN_DIRECTORY_H

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>

#define KVR_DEFAULT_TOKENIZER "cl100k_base"

/* Puts the path of vocabulary `name` into *path (terminated, cleared first). A name that exists as
 * a file is that file, unless `trusted` is false: a name that comes from data is only looked up,
 * and one with a leading "/", or a part that is empty or begins with a ".", is not found. KVR_IO
 * where there is none. */
enum kvr_status kvr_directory_find(
    const char *name, bool trusted, struct kvr_buffer *path, struct kvr_error *error);

/* Calls found(name, path, context) for every vocabulary in the directories, in order; one that an
 * earlier directory or form of the name hides is given too, with hidden set. At the end "bytes" and
 * "chars", which have no path (NULL). */
void kvr_directory_list(
    void (*found)(const char *name, const char *path, bool hidden, void *context), void *context);

/* The directory for compiled vocabularies (made if need be), or NULL where there is no home. */
const char *kvr_directory_cache(struct kvr_buffer *path);

#endif
