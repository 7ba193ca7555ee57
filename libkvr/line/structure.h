/*
 * Where JSON's structure stands in a text: simdjson's first stage behind one C interface.
 *
 * simdjson finds, with vector instructions chosen at run time, every structural character outside
 * strings ({ } [ ] : ,), every opening quote, and the first byte of every other scalar, and checks
 * that the text is UTF-8, has no raw control bytes inside strings and closes its strings. What it
 * does not check in that stage (grammar, numbers, escapes) is line/json.c's work. We take only the
 * first stage, because our lines are passed on as they are: a second copy of each value, which its
 * parsers make, would cost more than all the rest.
 */
#ifndef KVR_LINE_STRUCTURE_H
#define KVR_LINE_STRUCTURE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kvr_structure; /* grows with the longest text seen: about 4 bytes a byte of text */

struct kvr_structure *kvr_structure_create(void); /* NULL when memory is short */
void kvr_structure_destroy(struct kvr_structure *structure);

/*
 * *positions then holds *count offsets into text in rising order, and after them one that equals
 * length; valid until the next call. text need not be padded. Fails with KVR_BAD_INPUT (what is
 * wrong with the text) or KVR_NO_MEMORY. length is below 4 GiB.
 */
enum kvr_status kvr_structure_find(struct kvr_structure *structure, const char *text, size_t length,
    const uint32_t **positions, size_t *count, struct kvr_error *error);

/* The positions that the last call of kvr_structure_find() found, all of them right. */
const uint32_t *kvr_structure_positions(const struct kvr_structure *structure, size_t *count);

#ifdef __cplusplus
}
#endif

#endif
