/* How many tokens of a request line's prompt are cached, as the line itself says. */
#ifndef KVR_KERNELS_LINE_CACHED_H
#define KVR_KERNELS_LINE_CACHED_H

#include "line/line.h"

/*
 * cache.hit; else match of the worker in route (the best worker's where it is not routed); else
 * route.matched. null says nothing. *says: whether the line has any of these; *tokens is 0 where it
 * has none. KVR_BAD_INPUT where what counts is no number of tokens.
 */
enum kvr_status kvr_line_cached(
    const struct kvr_line *line, bool *says, uint64_t *tokens, struct kvr_error *error);

#endif
