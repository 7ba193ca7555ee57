/*
 * Escapes of checked JSON strings to what they stand for.
 */
#ifndef KVR_LINE_JSON_UNESCAPE_H
#define KVR_LINE_JSON_UNESCAPE_H

#include <stddef.h>

#define KVR_UNESCAPE_BYTES 64 /* that may be written after the decoded text */

/* Decodes the escape whose backslash is at `at`; writes at most four bytes. Returns what follows
 * it. */
const char *kvr_unescape_one(const char *at, char *out, size_t *size);

/* Decodes the inside of a string to `out`; returns where the text ends there. The plain way is for
 * all processors, and gives the same bytes. */
char *kvr_unescape(const char *at, const char *end, char *out);
char *kvr_unescape_plain(const char *at, const char *end, char *out);

#endif
