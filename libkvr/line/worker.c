#include "line/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One of three words; false when value is a string but none of them. */
static bool read_word(struct kvr_value value, const char *const words[3], int *word)
{
    *word = 0;
    if (value.type == KVR_ABSENT || value.type == KVR_NULL)
        return true;
    for (int i = 0; i < 3; i++) {
        if (kvr_value_is(value, words[i])) {
            *word = i;
            return true;
        }
    }
    return false;
}

/* Decodes a string to the end of scratch. The offset is kept, because scratch may move. */
static bool read_text(
    struct kvr_value value, struct kvr_buffer *scratch, size_t *start, size_t *length)
{
    *start = scratch->length;
    if (!kvr_value_string(value, scratch))
        return false;
    *length = scratch->length - *start;
    return true;
}

static enum kvr_status check_name(struct kvr_text name, const char *member, struct kvr_error *error)
{
    if (name.length == 0)
        return kvr_error_set(error, KVR_BAD_INPUT, "member '%s' is not a name", member);
    if (name.length > KVR_WORKER_NAME_BYTES_MOST || memchr(name.text, '\0', name.length))
        return kvr_error_set(error, KVR_BAD_INPUT,
            "member '%s' is not a name of at most %d bytes without NUL", member,
            KVR_WORKER_NAME_BYTES_MOST);
    return KVR_OK;
}

enum kvr_status kvr_worker_name(struct kvr_value value, const char *member,
    struct kvr_buffer *scratch, struct kvr_text *name, struct kvr_error *error)
{
    if (!kvr_value_text(value, scratch, name))
        name->length = 0;
    return check_name(*name, member, error);
}

enum kvr_status kvr_worker_check(
    struct kvr_value value, const char *member, struct kvr_error *error)
{
    struct kvr_buffer scratch = {0};
    struct kvr_text name;

    if (value.type == KVR_STRING && value.length > 2 &&
        value.length - 2 <= KVR_WORKER_NAME_BYTES_MOST && !memchr(value.text, '\\', value.length))
        return KVR_OK;
    enum kvr_status status = kvr_worker_name(value, member, &scratch, &name, error);
    kvr_buffer_release(&scratch);
    return status;
}

static enum kvr_status read_capacity(
    struct kvr_value value, struct kvr_capacity *capacity, struct kvr_error *error)
{
    struct kvr_buffer text = {0};
    enum kvr_status status = KVR_OK;

    if (value.type == KVR_STRING) {
        kvr_value_string(value, &text);
        const char *string = kvr_buffer_text(&text);
        if (!string)
            status = kvr_error_memory(error);
        else if (kvr_quantity_capacity(string, capacity, error) != KVR_OK)
            status = kvr_error_set(error, KVR_BAD_INPUT, "member 'capacity' is not a capacity");
        kvr_buffer_release(&text);
    } else if (value.type != KVR_ABSENT && value.type != KVR_NULL &&
               !kvr_value_u64(value, &capacity->amount)) {
        status = kvr_error_set(error, KVR_BAD_INPUT, "member 'capacity' is not a whole number");
    }
    return status;
}

enum kvr_status kvr_worker_read(const struct kvr_line *line, struct kvr_buffer *scratch,
    struct kvr_worker_description *worker, struct kvr_error *error)
{
    static const char *const states[] = {"active", "draining", "down"};
    static const char *const roles[] = {"both", "prefill", "decode"};
    struct kvr_value url = kvr_line_get(line, KVR_NAME_URL);
    struct kvr_value weight = kvr_line_get(line, KVR_NAME_WEIGHT);
    struct kvr_value block_size = kvr_line_get(line, KVR_NAME_BLOCK_SIZE);
    size_t name_start, name_length, url_start = 0, url_length = 0;
    int state, role;

    memset(worker, 0, sizeof *worker);
    kvr_buffer_clear(scratch);
    if (!read_text(kvr_line_get(line, KVR_NAME_WORKER), scratch, &name_start, &name_length))
        name_start = name_length = 0;
    enum kvr_status status =
        check_name((struct kvr_text){scratch->data + name_start, name_length}, "worker", error);
    if (status != KVR_OK)
        return status;
    if (url.type != KVR_ABSENT && url.type != KVR_NULL &&
        !read_text(url, scratch, &url_start, &url_length))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'url' is not a string");
    if (!read_word(kvr_line_get(line, KVR_NAME_STATE), states, &state))
        return kvr_error_set(
            error, KVR_BAD_INPUT, "member 'state' is not active, draining or down");
    if (!read_word(kvr_line_get(line, KVR_NAME_ROLE), roles, &role))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'role' is not both, prefill or decode");
    worker->state = (enum kvr_worker_state)state;
    worker->role = (enum kvr_worker_role)role;
    worker->weight = 1;
    if (weight.type != KVR_ABSENT && weight.type != KVR_NULL &&
        (!kvr_value_double(weight, &worker->weight) || !(worker->weight > 0)))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'weight' is not a number above 0");
    if (block_size.type != KVR_ABSENT && block_size.type != KVR_NULL &&
        (!kvr_value_u64(block_size, &worker->block_size) || worker->block_size == 0))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'block_size' is not a number above 0");
    worker->name = (struct kvr_text){scratch->data + name_start, name_length};
    worker->url = (struct kvr_text){scratch->data + url_start, url_length};
    return read_capacity(kvr_line_get(line, KVR_NAME_CAPACITY), &worker->capacity, error);
}

static enum kvr_status each_in_file(const char *file,
    enum kvr_status (*each)(
        void *context, const struct kvr_worker_description *worker, struct kvr_error *error),
    void *context, struct kvr_error *error)
{
    struct kvr_source_options options = {.files = &file, .file_count = 1};
    struct kvr_worker_description worker;
    struct kvr_source_line text = {0};
    struct kvr_source *source = NULL;
    struct kvr_buffer scratch = {0};
    struct kvr_line line = {0};

    enum kvr_status status = kvr_source_create(&source, &options, error);
    if (status == KVR_OK)
        status = kvr_line_init(&line, error);
    while (status == KVR_OK) {
        status = kvr_source_next(source, &text, error);
        if (status == KVR_OK)
            status = kvr_line_parse(&line, &text, error);
        if (status == KVR_OK && !kvr_value_is(kvr_line_get(&line, KVR_NAME_EVENT), "worker"))
            status = kvr_error_set(error, KVR_BAD_INPUT, "not a worker line");
        if (status == KVR_OK)
            status = kvr_worker_read(&line, &scratch, &worker, error);
        if (status == KVR_BAD_INPUT)
            kvr_error_prefix(error, "%s:%lu", file, text.number);
        if (status == KVR_OK)
            status = each(context, &worker, error);
    }
    kvr_source_destroy(source);
    if (line.structure)
        kvr_line_release(&line);
    kvr_buffer_release(&scratch);
    return status == KVR_END ? KVR_OK : status;
}

/* A mistyped number or file shall not become a worker of that name. */
static bool looks_like_no_name(const char *argument)
{
    static const char *const ends[] = {".json", ".jsonl", ".ndjson", ".gz", ".txt"};
    size_t length = strlen(argument);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);
        if (length > end && strcmp(argument + length - end, ends[i]) == 0)
            return true;
    }
    return *argument == '-' || *argument == '+';
}

enum kvr_status kvr_workers_each(const char *argument,
    enum kvr_status (*each)(
        void *context, const struct kvr_worker_description *worker, struct kvr_error *error),
    void *context, struct kvr_error *error)
{
    struct kvr_worker_description worker = {.weight = 1};
    enum kvr_status status = KVR_OK;

    if (*argument && argument[strspn(argument, "0123456789")] == '\0') {
        uint64_t count;
        status = kvr_quantity_count(argument, &count, error);
        if (status == KVR_OK && count > 1000000)
            status = kvr_error_set(error, KVR_BAD_USAGE, "more than 1,000,000 workers");
        if (status == KVR_OK && count == 0)
            status = kvr_error_set(error, KVR_BAD_USAGE, "a fleet of 0 workers");
        for (uint64_t i = 0; status == KVR_OK && i < count; i++) {
            char name[24];
            worker.name.text = name;
            worker.name.length = (size_t)snprintf(name, sizeof name, "w%lu", i);
            status = each(context, &worker, error);
        }
        return status;
    }
    if (strchr(argument, '/') || access(argument, F_OK) == 0)
        return each_in_file(argument, each, context, error);
    if (looks_like_no_name(argument))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "'%s' is no number of workers, no list of names, and no file that is there", argument);
    for (const char *at = argument; status == KVR_OK && at;) {
        const char *comma = strchrnul(at, ',');
        worker.name = (struct kvr_text){at, (size_t)(comma - at)};
        if (worker.name.length == 0)
            return kvr_error_set(error, KVR_BAD_USAGE, "an empty worker name in '%s'", argument);
        status = each(context, &worker, error);
        at = *comma ? comma + 1 : NULL;
    }
    return status;
}
