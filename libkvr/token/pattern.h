/*
 * Split patterns in general: regular expressions as tokenizers write them. PCRE2 compiles them;
 * they are run by a walker that no text makes slow (pattern_walk.h), or by PCRE2 where it cannot.
 *
 * Its classes are ours. PCRE2 of a distribution carries an older Unicode, and \s, \w and the syntax
 * of classes differ between engines, so classes and \p{..}, \s, \d, \w, \h with their opposites are
 * rewritten as lists of code points from the Unicode 16.0 tables before compiling: with classes in
 * classes and && as Oniguruma has them. As there, ^ and $ match at each line, (?m) lets a dot match
 * newlines, {,3} is {0,3}, and X{1,3}+ is (?:X{1,3})+, not X{1,3} that gives nothing back. What the
 * rewriting does not know is an error that names it.
 */
#ifndef KVR_TOKEN_PATTERN_H
#define KVR_TOKEN_PATTERN_H

#include "base/buffer.h"
#include "base/error.h"
#include "token/pattern_walk.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_pattern;

enum kvr_status kvr_pattern_compile(
    struct kvr_pattern **pattern, const char *text, size_t length, struct kvr_error *error);
void kvr_pattern_release(struct kvr_pattern *pattern);

/* Whether the walker can run it (for tests). */
bool kvr_pattern_has_program(const struct kvr_pattern *pattern);

/* A map for kvr_byte_in() of the bytes that matches start with; NULL where one may be empty, or
 * nothing is known. */
const uint64_t *kvr_pattern_starts(const struct kvr_pattern *pattern);

/* A search of one text, from match to match. All zero bytes is ready for kvr_search_text(); what it
 * allocates is kept for the next text, until release. */
struct kvr_search {
    const struct kvr_pattern *pattern;
    const char *text;
    size_t length;
    void *match_data;
    struct kvr_walk walk;
    size_t looked; /* bytes that PCRE2 looked at again, of a pattern without a program */
};

/* Turns to text[0, length), UTF-8, which must stay as it is while it is searched. */
void kvr_search_text(
    struct kvr_search *search, const struct kvr_pattern *pattern, const char *text, size_t length);
void kvr_search_release(struct kvr_search *search);

/* The first match that starts at `from` or later into *start, *stop; *found says whether there is
 * one. A match may be empty, but not at last_stop, where the match before this one ended (SIZE_MAX:
 * there was none). text before `from` is seen by look-behinds. Time is in proportion to the text,
 * for all its matches together; a pattern that would take longer is KVR_BAD_INPUT, which names it.
 */
enum kvr_status kvr_search_next(struct kvr_search *search, size_t from, size_t last_stop,
    bool *found, size_t *start, size_t *stop, struct kvr_error *error);

/* The rewritten expression (for tests). */
enum kvr_status kvr_pattern_rewrite(
    const char *text, size_t length, struct kvr_buffer *out, struct kvr_error *error);

#endif
