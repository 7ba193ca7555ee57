#include "line/session.h"

#include <xxhash.h>

void kvr_session_reader_release(struct kvr_session_reader *reader)
{
    kvr_expression_destroy(reader->expression);
    kvr_u64_map_release(&reader->conversations);
    *reader = (struct kvr_session_reader){0};
}

uint64_t kvr_value_identity(struct kvr_value value)
{
    bool quoted = value.type == KVR_STRING;

    if (kvr_value_missing(value))
        return 0;
    uint64_t hash = XXH3_64bits(value.text + quoted, quoted ? value.length - 2 : value.length);
    return hash ? hash : 1;
}

bool kvr_line_names_session(const struct kvr_line *line)
{
    return !kvr_names_nobody(kvr_line_get(line, KVR_NAME_SESSION)) ||
           !kvr_names_nobody(kvr_line_get(line, KVR_NAME_CHAT_ID));
}

bool kvr_names_parent(struct kvr_value parent)
{
    double number;

    return !kvr_names_nobody(parent) && !(kvr_value_double(parent, &number) && number < 0);
}

/* Without memory for the map the conversation counts as new with its next turn. */
static uint64_t conversation(struct kvr_session_reader *reader, const struct kvr_line *line)
{
    struct kvr_value parent = kvr_line_get(line, KVR_NAME_PARENT_CHAT_ID);
    uint64_t own = kvr_value_identity(kvr_line_get(line, KVR_NAME_CHAT_ID)), first = own;

    if (kvr_value_missing(parent))
        return own;
    if (kvr_names_parent(parent)) {
        uint64_t asked = kvr_value_identity(parent);
        const uint64_t *known = kvr_u64_map_find(&reader->conversations, asked);
        first = known ? *known : asked;
    }
    if (reader->conversations.length >= KVR_CONVERSATIONS_MOST)
        kvr_u64_map_clear(&reader->conversations);
    uint64_t *slot = kvr_u64_map_insert(&reader->conversations, own, NULL);
    if (slot)
        *slot = first;
    return first;
}

enum kvr_status kvr_session_read(struct kvr_session_reader *reader, const struct kvr_line *line,
    uint64_t *session, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, KVR_NAME_SESSION);

    *session = 0;
    if (reader->expression) {
        enum kvr_status status = kvr_expression_evaluate(reader->expression, line, &value, error);
        if (status != KVR_OK)
            return status;
    } else if (kvr_names_nobody(value)) {
        if (!kvr_names_nobody(kvr_line_get(line, KVR_NAME_CHAT_ID))) {
            *session = conversation(reader, line);
            return KVR_OK;
        }
        value = kvr_line_get(line, KVR_NAME_USER);
    }
    if (!kvr_names_nobody(value))
        *session = kvr_value_identity(value);
    return KVR_OK;
}
