/*
 * Who a request line belongs to: the session, by the one rule that routing, caches, simulation and
 * statistics share.
 *
 * A line's session is what --session says; without it the member session, else the conversation of
 * chat_id, else user. "" and null name nobody: logs write them for a user or a session that they
 * do not know, and those have nothing in common.
 *
 * In the Bailian traces every request has a chat_id of its own and names in parent_chat_id the one
 * it continues, so the first of the chain stands for all of it. The map of chat_ids is bounded:
 * when it is full it starts again, and conversations then open count as new.
 */
#ifndef KVR_LINE_SESSION_H
#define KVR_LINE_SESSION_H

#include "base/u64_map.h"
#include "line/expression.h"

enum { KVR_CONVERSATIONS_MOST = 1 << 20 };

/* Zero it, fill in the expression, release it at the end. */
struct kvr_session_reader {
    struct kvr_expression *expression; /* --session, owned; NULL: the rule above */
    /* private */
    struct kvr_u64_map conversations; /* chat_id → the chat_id that its conversation began with */
};

void kvr_session_reader_release(struct kvr_session_reader *reader);

/* The line's session as a hash, 0 where it has none. Fails as kvr_expression_evaluate() does. */
enum kvr_status kvr_session_read(struct kvr_session_reader *reader, const struct kvr_line *line,
    uint64_t *session, struct kvr_error *error);

/* A hash of what a value names, never 0; 0 for an absent or null value. The number 7 and the string
 * "7" are one; an escape and the character that it stands for are two. */
uint64_t kvr_value_identity(struct kvr_value value);

/* Whether a value names nobody: absent, null or "". */
static inline bool kvr_names_nobody(struct kvr_value value)
{
    return value.type <= KVR_NULL || (value.type == KVR_STRING && value.length == 2);
}

/* Whether the line itself says whose it is, by session or chat_id. */
bool kvr_line_names_session(const struct kvr_line *line);

/* Whether a parent_chat_id names a parent: -1 (Bailian's mark of a first turn), null and "" are
 * none. */
bool kvr_names_parent(struct kvr_value parent);

#endif
