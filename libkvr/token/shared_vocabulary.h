/*
 * Loaded vocabularies, each once. Fleets have many names for one vocabulary: aliases of a model,
 * and a folder for each LoRA with a copy of its base model's tokenizer.json. A loaded one is read
 * only and serves all of them, and all threads; so a file is loaded only if no file that was loaded
 * says the same: the same file by device and inode, or one of the same bytes. The name counts where
 * it tells encodings apart, and so does the configuration beside a rank file.
 */
#ifndef KVR_TOKEN_SHARED_VOCABULARY_H
#define KVR_TOKEN_SHARED_VOCABULARY_H

#include "token/tokenizer.h"

struct kvr_shared_vocabularies {
    struct kvr_shared_vocabulary *items;
    size_t count, capacity;
};

/* Gives the vocabulary of a file that kvr_directory_find() found, or of "bytes" or "chars"; owned
 * by the list. *as: the path of the file that was loaded for it, another one or this. Fails as
 * kvr_tokenizer_load() does. */
enum kvr_status kvr_shared_vocabulary_get(struct kvr_shared_vocabularies *list, const char *path,
    const char *cache_directory, struct kvr_tokenizer **tokenizer, const char **as,
    struct kvr_error *error);

void kvr_shared_vocabularies_release(struct kvr_shared_vocabularies *list);

#endif
