/*
 * Split patterns in general: a regular expression as tokenizers write them, run by PCRE2's JIT.
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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_pattern;

enum kvr_status kvr_pattern_compile(
    struct kvr_pattern **pattern, const char *text, size_t length, struct kvr_error *error);
void kvr_pattern_release(struct kvr_pattern *pattern);

/* The first match in text[from, length) into *start, *stop; *found says whether there is one. A
 * match may be empty, but not at last_stop, where the match before this one ended (SIZE_MAX: there
 * was none). text must be UTF-8; text before `from` is seen by look-behinds. */
enum kvr_status kvr_pattern_find(const struct kvr_pattern *pattern, const char *text, size_t from,
    size_t length, size_t last_stop, bool *found, size_t *start, size_t *stop,
    struct kvr_error *error);

/* The rewritten expression (for tests). */
enum kvr_status kvr_pattern_rewrite(
    const char *text, size_t length, struct kvr_buffer *out, struct kvr_error *error);

#endif
