/*
 * Request lines as caches see them: from the members of a line to struct kvr_cache_request.
 *
 * The namespace (model, LoRA, salt) is folded into the ids: ids of the first namespace seen stay as
 * they are, those of the n-th get n in the eleven bits that the wire leaves free (ids are below
 * 2^53), so a cache keeps them apart and kvr_request_wire_id() gives the wire's id back for event
 * lines. A foreign id of 2^53 or more in a later namespace is hashed to 53 bits first.
 */
#ifndef KVR_CACHE_REQUEST_LINE_H
#define KVR_CACHE_REQUEST_LINE_H

#include "base/clock.h"
#include "base/u64_map.h"
#include "cache/block_cache.h"
#include "line/session.h"

enum { KVR_NAMESPACES_MOST = 2047 };

/* Zero it, fill in the options, release it at the end. */
struct kvr_request_reader {
    uint32_t block_tokens; /* for lines without block_size */
    struct kvr_session_reader session;
    struct kvr_expression *tenant; /* NULL: no tenants */
    bool wants_session;            /* else sessions are not looked at */
    /* private */
    uint64_t *ids, *output_ids;
    size_t id_size, output_id_size;
    struct kvr_u64_map namespaces;
    struct kvr_stream_clock clock;
    char **namespace_texts; /* by number: ,"model":"x","lora":"y" as the lines write them */
    size_t namespace_text_count, namespace_text_size;
};

/* What a line says; ids point into the reader and live until the next call. */
struct kvr_request_view {
    struct kvr_cache_request request;
    struct kvr_block_tags tags; /* identity and session; tenant is the program's to set */
    struct kvr_value tenant;    /* the tenant's name as written; KVR_ABSENT: none */
    struct kvr_value worker;    /* route.worker; KVR_ABSENT or KVR_NULL: not routed */
    bool has_blocks;            /* the line has hash_ids */
    bool has_time;
};

void kvr_request_reader_release(struct kvr_request_reader *reader);

/* KVR_BAD_INPUT where a member has the wrong type, KVR_NO_MEMORY. Without input_length the blocks
 * count as full. */
enum kvr_status kvr_request_read(struct kvr_request_reader *reader, const struct kvr_line *line,
    struct kvr_request_view *view, struct kvr_error *error);

/* The ids of a pin, stored or removed line, folded like those of requests; valid until the next
 * call. */
enum kvr_status kvr_request_read_ids(struct kvr_request_reader *reader, const struct kvr_line *line,
    const uint64_t **ids, size_t *count, struct kvr_error *error);

static inline uint64_t kvr_request_wire_id(const struct kvr_request_reader *reader, uint64_t id)
{
    return reader->namespaces.length > 1 && id >> 53 ? id & (((uint64_t)1 << 53) - 1) : id;
}

/* The members of a folded id's namespace, each with a comma before it; "" for a plain one. */
const char *kvr_request_namespace_text(const struct kvr_request_reader *reader, uint64_t id);

#endif
