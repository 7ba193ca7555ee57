/*
 * Split patterns in general: a regular expression as tokenizers write them, run by PCRE2's JIT.
 *
 * Its classes are ours. PCRE2 of a distribution carries an older Unicode, and \s differs between
 * engines, so \p{..}, \P{..}, \s, \S, \d, \D, \w, \W are rewritten as lists of code points from
 * the Unicode 16.0 tables before compiling. What the rewriting does not know is an error.
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

/* The first match in text[from, length) into *start, *stop; *found says whether there is one. An
 * empty match is passed over. text must be UTF-8; text before `from` is seen by look-behinds. */
enum kvr_status kvr_pattern_find(const struct kvr_pattern *pattern, const char *text, size_t from,
    size_t length, bool *found, size_t *start, size_t *stop, struct kvr_error *error);

/* The rewritten expression (for tests). */
enum kvr_status kvr_pattern_rewrite(
    const char *text, size_t length, struct kvr_buffer *out, struct kvr_error *error);

#endif
