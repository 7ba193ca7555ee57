/*
 * Sets of code points: what a character class of a pattern stands for. The surrogates are in no
 * set, also not in an inverted one: UTF-8 has none and PCRE2 refuses them.
 */
#ifndef KVR_TOKEN_CODEPOINTS_H
#define KVR_TOKEN_CODEPOINTS_H

#include "base/buffer.h"
#include "token/unicode_tables.h"

#include <stdbool.h>
#include <stdint.h>

struct kvr_codepoints {
    uint64_t words[0x110000 / 64];
};

/* An empty set, freed with free(); NULL without memory. */
struct kvr_codepoints *kvr_codepoints_new(void);

void kvr_codepoints_add_range(struct kvr_codepoints *set, uint32_t first, uint32_t last);
void kvr_codepoints_add(struct kvr_codepoints *set, const struct kvr_codepoints *other);
void kvr_codepoints_keep(struct kvr_codepoints *set, const struct kvr_codepoints *other);
void kvr_codepoints_invert(struct kvr_codepoints *set);

/* Adds the characters of general categories (KVR_CATEGORY_BIT()s). */
void kvr_codepoints_add_categories(struct kvr_codepoints *set, uint32_t categories);

/* Adds those of a property as patterns name them: a general category ("L", "Lu", "Letter"), a
 * script ("Han"), or our own names: Rust_Word, what \w is in Rust, and Tokenizers_Mark, _Number and
 * _Punctuation, what StripAccents, Digits and Punctuation of Hugging Face's tokenizers take for
 * these, whose tables are of other versions of Unicode. False: not known. */
bool kvr_codepoints_add_property(struct kvr_codepoints *set, const char *name);

/* A script, or a Tokenizers_ name; NULL where the name is not known. */
const struct kvr_unicode_script *kvr_script_find(const char *name);

bool kvr_script_has(const struct kvr_unicode_script *script, uint32_t character);

/* Word characters: as Oniguruma's \w in tokenizer.json files has them outside of classes, as it has
 * them in classes, or as Rust's regex. */
enum kvr_word { KVR_WORD_ONIGURUMA, KVR_WORD_UNICODE, KVR_WORD_RUST };
void kvr_codepoints_add_word(struct kvr_codepoints *set, enum kvr_word word);

/* Appends the members in PCRE2's class syntax, without brackets. */
void kvr_codepoints_append(const struct kvr_codepoints *set, struct kvr_buffer *out);

#endif
