#include "kernels/line_cached.h"

static struct kvr_value unless_null(struct kvr_value value)
{
    return value.type == KVR_NULL ? (struct kvr_value){0} : value;
}

/* The largest match, or that of one worker. */
static enum kvr_status read_match(
    struct kvr_value match, struct kvr_value worker, uint64_t *tokens, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(match);
    struct kvr_buffer name = {0};
    struct kvr_member member;
    enum kvr_status status = KVR_OK;
    bool named = kvr_value_string(worker, &name);
    const char *text = kvr_buffer_text(&name);

    if (!text)
        status = kvr_error_memory(error);
    while (status == KVR_OK && kvr_next_member(&cursor, &member)) {
        uint64_t count;
        if (named && !kvr_value_is(member.name, text))
            continue;
        if (!kvr_value_u64(member.value, &count))
            status =
                kvr_error_set(error, KVR_BAD_INPUT, "'match' has a number of tokens that is none");
        else if (count > *tokens)
            *tokens = count;
    }
    kvr_buffer_release(&name);
    return status;
}

enum kvr_status kvr_line_cached(
    const struct kvr_line *line, bool *says, uint64_t *tokens, struct kvr_error *error)
{
    struct kvr_value hit = unless_null(kvr_value_get(kvr_line_get(line, KVR_NAME_CACHE), "hit"));
    struct kvr_value route = kvr_line_get(line, KVR_NAME_ROUTE);
    struct kvr_value matched = unless_null(kvr_value_get(route, "matched"));
    struct kvr_value match = kvr_line_get(line, KVR_NAME_MATCH);
    struct kvr_value count = hit.type ? hit : matched;

    *tokens = 0;
    *says = hit.type || matched.type || match.type == KVR_OBJECT;
    if (hit.type == KVR_ABSENT && match.type == KVR_OBJECT)
        return read_match(match, kvr_value_get(route, "worker"), tokens, error);
    if (count.type != KVR_ABSENT && !kvr_value_u64(count, tokens))
        return kvr_error_set(error, KVR_BAD_INPUT, "'%s' is not a number of tokens",
            hit.type ? "cache.hit" : "route.matched");
    return KVR_OK;
}
