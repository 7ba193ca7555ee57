#include "net/kv_event_spec.h"

#include <stdlib.h>
#include <string.h>

enum { POD_LIMIT = 200 }; /* bytes */

void kvr_kv_spec_release(struct kvr_kv_spec *spec)
{
    free(spec->memory);
    memset(spec, 0, sizeof *spec);
}

/* The value of ",key=" in text, cut off from what stands before it. */
static const char *cut_option(char *text, const char *key)
{
    char *at = strstr(text, key);

    if (!at)
        return NULL;
    *at = 0;
    return at + strlen(key);
}

static bool is_endpoint(const char *place)
{
    static const char *const schemes[] = {"tcp://", "ipc://", "inproc://"};

    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t length = strlen(schemes[i]);
        if (strncmp(place, schemes[i], length) == 0) /* @NAME is abstract, and @ alone no name */
            return place[length + (place[length] == '@')];
    }
    return false;
}

enum kvr_status kvr_kv_spec_read(
    const char *text, bool endpoint, struct kvr_kv_spec *spec, struct kvr_error *error)
{
    static const char *const keys[] = {",replay=", ",topic=", ",model="};
    const char **const values[] = {&spec->replay, &spec->topic, &spec->model};
    char *rest;

    memset(spec, 0, sizeof *spec);
    rest = spec->memory = strdup(text);
    if (!rest)
        return kvr_error_memory(error);
    /* The last option first, so that each is cut off from what stands before it. */
    for (;;) {
        size_t last = 3, best = 0;
        for (size_t i = 0; i < 3; i++) {
            const char *at = *values[i] ? NULL : strstr(rest, keys[i]);
            if (at && (size_t)(at - rest) >= best) {
                best = (size_t)(at - rest);
                last = i;
            }
        }
        if (last == 3)
            break;
        *values[last] = cut_option(rest, keys[last]);
    }
    size_t name = strcspn(rest, "=/");
    spec->place = rest;
    if (rest[name] == '=') {
        rest[name] = 0;
        spec->name = rest;
        spec->place = rest + name + 1;
    }
    bool good =
        *spec->place && (!spec->name || *spec->name) && (!spec->replay || *spec->replay) &&
        (!endpoint || (is_endpoint(spec->place) && (!spec->replay || is_endpoint(spec->replay))));
    if (good)
        return KVR_OK;
    kvr_kv_spec_release(spec);
    return kvr_error_set(error, KVR_BAD_USAGE, "'%s' is not %s", text,
        endpoint ? "[NAME=]tcp://HOST:PORT[,replay=tcp://HOST:PORT]" : "[NAME=]FILE[,replay=FILE]");
}

struct kvr_text kvr_kv_topic_pod(struct kvr_text topic)
{
    const struct kvr_text none = {NULL, 0};
    const char *at = topic.text, *end = at + topic.length;

    if (topic.length < 3 || memcmp(at, "kv@", 3) != 0)
        return none;
    at += 3;
    const char *stop = memchr(at, '@', (size_t)(end - at));
    if (!stop || stop == at || stop - at > POD_LIMIT)
        return none;
    for (const char *byte = at; byte < stop; byte++)
        if ((unsigned char)*byte < ' ')
            return none;
    return (struct kvr_text){at, (size_t)(stop - at)};
}
