/*
 * Tokens: text to ids and back, exactly as the reference tokenizers do (Unicode 16.0 tables).
 *
 * A kvr_tokenizer is a loaded vocabulary: immutable, for any number of threads. A kvr_encoder is
 * the working memory of one thread: a bounded cache of pieces and their ids, and buffers. It must
 * not outlive its tokenizer.
 *
 * Accepted files, gzip or not: tiktoken rank files (told apart by the number of ranks, o200k's two
 * encodings by name), Hugging Face tokenizer.json with a BPE model, Mistral's tekken.json. A type
 * of step that is not known is an error that names it, never a wrong token.
 */
#ifndef KVR_TOKEN_TOKENIZER_H
#define KVR_TOKEN_TOKENIZER_H

#include "base/buffer.h"
#include "base/error.h"
#include "token/bpe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_tokenizer;
struct kvr_encoder;

/* Loads a vocabulary file. "bytes" and "chars" (ids are bytes, or code points) are no files.
 * cache_directory, if not NULL, keeps the compiled form between runs; failing to write there is
 * no failure. The file is known again by path, size, time and inode. */
enum kvr_status kvr_tokenizer_load(struct kvr_tokenizer **tokenizer, const char *path,
    const char *cache_directory, struct kvr_error *error);

/* The same from bytes in memory; `name` is what the file is called (it tells encodings apart). */
enum kvr_status kvr_tokenizer_parse(struct kvr_tokenizer **tokenizer, const void *bytes,
    size_t length, const char *name, struct kvr_error *error);

/* What kvr_tokenizer_load() did with cache_directory. */
enum kvr_cache_use { KVR_CACHE_NONE, KVR_CACHE_READ, KVR_CACHE_KEPT, KVR_CACHE_REFUSED };
enum kvr_cache_use kvr_tokenizer_cache_use(const struct kvr_tokenizer *tokenizer);

void kvr_tokenizer_release(struct kvr_tokenizer *tokenizer);

/* One more than the largest id. */
uint32_t kvr_tokenizer_size(const struct kvr_tokenizer *tokenizer);

/* Length in bytes of what the vocabulary has for an id; 0 where it has none. */
size_t kvr_tokenizer_token_bytes(const struct kvr_tokenizer *tokenizer, uint32_t id);

/* The token that the post-processor puts before every text, or KVR_NO_TOKEN. */
uint32_t kvr_tokenizer_first(const struct kvr_tokenizer *tokenizer);

/* The id of an added or special token by its text, or KVR_NO_TOKEN. */
uint32_t kvr_tokenizer_added(
    const struct kvr_tokenizer *tokenizer, const char *text, size_t length);

enum kvr_status kvr_encoder_new(
    struct kvr_encoder **encoder, const struct kvr_tokenizer *tokenizer, struct kvr_error *error);
void kvr_encoder_release(struct kvr_encoder *encoder);

enum kvr_encode_flag {
    KVR_ENCODE_SPECIAL = 1,  /* text of special tokens is these tokens (rendered templates) */
    KVR_ENCODE_NO_ADDED = 2, /* no added token is matched at all */
    KVR_ENCODE_MODEL = 4,    /* add what the model's post-processor adds (a BOS token) */
};

/* Appends the ids of `length` bytes of text to *ids. Without flags, text that looks like a special
 * token is plain text, while added tokens that are not special are matched, as the reference does.
 * Fails with KVR_NO_MEMORY, or KVR_BAD_INPUT for a text of 4 GiB or a pattern that gives up. */
enum kvr_status kvr_encode(struct kvr_encoder *encoder, const char *text, size_t length,
    unsigned flags, struct kvr_ids *ids, struct kvr_error *error);

/* Appends the text of ids. skip_special leaves special tokens out. An id that the vocabulary lacks
 * is KVR_BAD_INPUT. Bytes are given as they are, also where they are not UTF-8. */
enum kvr_status kvr_decode(const struct kvr_tokenizer *tokenizer, const uint32_t *ids, size_t count,
    bool skip_special, struct kvr_buffer *text, struct kvr_error *error);

#endif
