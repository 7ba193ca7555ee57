/*
 * Runs of blocks as event lines of kvr-stream(7):
 *     {"event":"stored","worker":"w0","hash_ids":[…],"parent":…,"block_size":16,"medium":"gpu"}
 * with the namespace's members where it has any, and token_ids where runs carry them.
 */
#ifndef KVR_NET_KV_EVENT_LINES_H
#define KVR_NET_KV_EVENT_LINES_H

#include "line/writer.h"
#include "net/kv_event_translate.h"

/* A sink that writes to `writer`, which must outlive it. */
struct kvr_kv_sink kvr_kv_line_sink(struct kvr_writer *writer);

#endif
