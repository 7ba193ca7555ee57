/*
 * The inside of a loaded tokenizer, shared by the files that load, encode and decode.
 */
#ifndef KVR_TOKEN_TOKENIZER_INTERNAL_H
#define KVR_TOKEN_TOKENIZER_INTERNAL_H

#include "base/pages.h"
#include "line/json.h"
#include "token/added.h"
#include "token/pattern.h"
#include "token/piece_cache.h"
#include "token/pipeline.h"
#include "token/scan.h"
#include "token/tokenizer.h"
#include "token/vocabulary_source.h"

struct kvr_tokenizer {
    struct kvr_pages image;
    size_t image_bytes;
    struct kvr_vocabulary vocabulary;
    struct kvr_pattern **patterns;    /* one a step, NULL where it has none */
    struct kvr_added raw, normalized; /* added tokens, by what they are matched in */
    struct kvr_buffer forms; /* added tokens that are decoded in their normalized form: id (u32),
                                length (u32), text, one after another */
    enum kvr_cache_use cache_use;
    kvr_scanner *scanner; /* the whole pre-tokenization, where one scanner does it */
    bool plain;           /* no normalizer changes anything */
    bool nfc;             /* NFC is the only normalizer */
    bool spaces;          /* KVR_NORMALIZE_SPACES is the only normalizer */
    bool joins;           /* long pieces are cut where no token crosses */
};

static inline const struct kvr_vocabulary_step *kvr_steps(
    const struct kvr_tokenizer *tokenizer, enum kvr_pipeline pipeline, uint32_t *count)
{
    const uint32_t *first = tokenizer->vocabulary.header->step_first;

    *count = first[pipeline + 1] - first[pipeline];
    return tokenizer->vocabulary.steps + first[pipeline];
}

static inline const struct kvr_pattern *kvr_step_pattern(
    const struct kvr_tokenizer *tokenizer, const struct kvr_vocabulary_step *step)
{
    return tokenizer->patterns[step - tokenizer->vocabulary.steps];
}

/* Text cut into pieces: piece i ends at ends[i], where the next one starts. */
struct kvr_pieces {
    struct kvr_buffer text;
    uint32_t *ends;
    size_t count, capacity;
};

void kvr_pieces_release(struct kvr_pieces *pieces);
void kvr_pieces_push(struct kvr_pieces *pieces, size_t end); /* sets text.failed on failure */

/* Applies all normalizers. *text is replaced by what it becomes; spare is scratch. */
enum kvr_status kvr_normalize(const struct kvr_tokenizer *tokenizer, struct kvr_buffer *text,
    struct kvr_buffer *spare, struct kvr_error *error);

/* Applies all pre-tokenizers to pieces, which holds one piece. at_start: the text's start is the
 * start of the whole input. */
enum kvr_status kvr_pretokenize(const struct kvr_tokenizer *tokenizer, struct kvr_pieces *pieces,
    struct kvr_pieces *spare, bool at_start, struct kvr_error *error);

/* Writes U+2581 in the pieces as a space: the form of a folded vocabulary. */
void kvr_fold_pieces(struct kvr_pieces *pieces);

/* Decodes standard base64 into out (room for 3/4 of length); the length, or -1 if it is none. */
ptrdiff_t kvr_base64_decode(const char *text, size_t length, uint8_t *out);

/* Loaders: bytes of a file (not gzipped) into a source. The special tokens of a rank file are those
 * that config, a tokenizer_config.json, lists (NULL text: those known of its encoding). */
enum kvr_status kvr_load_tiktoken(struct kvr_source *source, const char *bytes, size_t length,
    const char *name, struct kvr_text config, struct kvr_error *error);
enum kvr_status kvr_load_huggingface(
    struct kvr_source *source, const char *bytes, size_t length, struct kvr_error *error);
enum kvr_status kvr_load_tekken(
    struct kvr_source *source, const char *bytes, size_t length, struct kvr_error *error);

#endif
