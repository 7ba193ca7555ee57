#include "net/endpoints.h"

#include "base/grow.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void kvr_endpoints_release(struct kvr_endpoints *endpoints)
{
    for (size_t i = 0; i < endpoints->count; i++) {
        free(endpoints->items[i].name);
        free(endpoints->items[i].url);
    }
    free(endpoints->items);
    *endpoints = (struct kvr_endpoints){0};
}

enum kvr_status kvr_endpoint_check(const char *url, struct kvr_error *error)
{
    char safe[200];

    if (*url && (!strstr(url, "://") || strncasecmp(url, "http://", 7) == 0 ||
                    strncasecmp(url, "https://", 8) == 0))
        return KVR_OK;
    return kvr_error_set(error, KVR_BAD_INPUT, "'%s' is no URL of http or https",
        kvr_printable(safe, sizeof safe, url, strlen(url)));
}

enum kvr_status kvr_header_check(const char *header, struct kvr_error *error)
{
    size_t name = strcspn(header, ":");

    if (name && header[name] && strcspn(header, "\r\n") == strlen(header) &&
        strcspn(header, " \t") > name)
        return KVR_OK;
    return kvr_error_set(error, KVR_BAD_USAGE, "a header is 'Name: value', on one line");
}

static struct kvr_endpoint *find(
    const struct kvr_endpoints *endpoints, const char *name, size_t length)
{
    for (size_t i = 0; i < endpoints->count; i++)
        if (strlen(endpoints->items[i].name) == length &&
            memcmp(endpoints->items[i].name, name, length) == 0)
            return &endpoints->items[i];
    return NULL;
}

static struct kvr_endpoint *add(
    struct kvr_endpoints *endpoints, const struct kvr_worker_description *worker)
{
    struct kvr_endpoint *grown =
        kvr_grow(endpoints->items, &endpoints->capacity, endpoints->count + 1, sizeof *grown);

    if (!grown)
        return NULL;
    endpoints->items = grown;
    char *name = strndup(worker->name.text, worker->name.length);
    if (!name)
        return NULL;
    grown[endpoints->count] = (struct kvr_endpoint){.name = name};
    return &grown[endpoints->count++];
}

enum kvr_status kvr_endpoints_set(
    void *context, const struct kvr_worker_description *worker, struct kvr_error *error)
{
    struct kvr_endpoints *endpoints = context;

    if (!worker->url.length)
        return KVR_OK;
    char *url = strndup(worker->url.text, worker->url.length);
    if (!url)
        return kvr_error_memory(error);
    enum kvr_status status = kvr_endpoint_check(url, error);
    struct kvr_endpoint *endpoint = find(endpoints, worker->name.text, worker->name.length);
    if (status == KVR_OK && !endpoint) {
        endpoint = add(endpoints, worker);
        status = endpoint ? KVR_OK : kvr_error_memory(error);
    }
    if (status != KVR_OK) {
        free(url);
        return status;
    }
    free(endpoint->url);
    endpoint->url = url;
    return KVR_OK;
}

const char *kvr_endpoints_find(
    const struct kvr_endpoints *endpoints, const char *name, size_t length)
{
    const struct kvr_endpoint *endpoint = find(endpoints, name, length);

    return endpoint ? endpoint->url : NULL;
}
