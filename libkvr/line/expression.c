#include "line/expression.h"

#include <jq.h>
#include <stdlib.h>

enum { STEP_LIMIT = 32, PATH_LIMIT = 8 };

struct step {
    char *name; /* NULL: an index into an array */
    size_t index;
};

struct path {
    struct step steps[STEP_LIMIT];
    size_t count;
};

struct kvr_expression {
    struct path paths[PATH_LIMIT]; /* alternatives, tried in order */
    size_t path_count;             /* 0: not native */
    jq_state *jq;
    struct kvr_error jq_error; /* what the compiler said */
    struct kvr_buffer result;
};

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t");
}

static bool is_word(char byte, bool first)
{
    return byte == '_' || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (!first && byte >= '0' && byte <= '9');
}

static bool add_step(struct path *path, const char *name, size_t length, size_t index)
{
    if (path->count == STEP_LIMIT)
        return false;
    struct step *step = &path->steps[path->count];
    step->name = name ? strndup(name, length) : NULL;
    step->index = index;
    if (name && !step->name)
        return false;
    path->count++;
    return true;
}

/* A bracket with a plain string or a small index; NULL for anything else, which is jq's. */
static const char *parse_bracket(struct path *path, const char *at)
{
    const char *end;

    if (*++at == '"') {
        at++;
        end = at + strcspn(at, "\"\\");
        if (*end != '"' || !add_step(path, at, (size_t)(end - at), 0))
            return NULL;
        end++;
    } else {
        size_t digits = strspn(at, "0123456789");
        if (digits == 0 || digits > 9 || !add_step(path, NULL, 0, strtoul(at, NULL, 10)))
            return NULL;
        end = at + digits;
    }
    return *end == ']' ? end + 1 : NULL;
}

static const char *parse_path(struct path *path, const char *at)
{
    if (*at != '.')
        return NULL;
    if (!is_word(at[1], true) && at[1] != '[' && at[1] != '"')
        return at + 1; /* the identity */
    while (*at == '.' || *at == '[') {
        if (*at == '.')
            at++;
        if (is_word(*at, true)) {
            const char *start = at;
            while (is_word(*at, false))
                at++;
            if (!add_step(path, start, (size_t)(at - start), 0))
                return NULL;
        } else if (*at == '[') {
            at = parse_bracket(path, at);
            if (!at)
                return NULL;
        } else {
            return NULL;
        }
    }
    return at;
}

static void release_paths(struct kvr_expression *expression)
{
    for (size_t i = 0; i < PATH_LIMIT; i++) {
        for (size_t j = 0; j < expression->paths[i].count; j++)
            free(expression->paths[i].steps[j].name);
        expression->paths[i].count = 0;
    }
    expression->path_count = 0;
}

static bool parse_native(struct kvr_expression *expression, const char *at)
{
    for (;;) {
        if (expression->path_count == PATH_LIMIT)
            return false;
        at = parse_path(&expression->paths[expression->path_count++], skip_space(at));
        if (!at)
            return false;
        at = skip_space(at);
        if (*at == '\0')
            return true;
        if (at[0] != '/' || at[1] != '/')
            return false;
        at += 2;
    }
}

static void keep_jq_error(void *context, jv message)
{
    struct kvr_error *error = context;

    if (error->status == KVR_OK && jv_get_kind(message) == JV_KIND_STRING) {
        const char *text = jv_string_value(message);
        const char *prefix = "jq: error: ";
        if (strncmp(text, prefix, strlen(prefix)) == 0)
            text += strlen(prefix);
        kvr_error_set(error, KVR_BAD_USAGE, "%.*s", (int)strcspn(text, "\n"), text);
    }
    jv_free(message);
}

static enum kvr_status create(
    struct kvr_expression **result, const char *text, bool field, struct kvr_error *error)
{
    struct kvr_expression *expression = calloc(1, sizeof *expression);

    *result = NULL;
    if (!expression)
        return kvr_error_memory(error);
    if (field && parse_native(expression, text)) {
        *result = expression;
        return KVR_OK;
    }
    release_paths(expression);
    expression->jq = jq_init();
    if (!expression->jq) {
        free(expression);
        return kvr_error_memory(error);
    }
    jq_set_error_cb(expression->jq, keep_jq_error, &expression->jq_error);
    if (!jq_compile(expression->jq, text)) {
        enum kvr_status status = kvr_error_set(error, KVR_BAD_USAGE,
            "jq does not understand '%s': %s", text, expression->jq_error.text);
        kvr_expression_destroy(expression);
        return status;
    }
    *result = expression;
    return KVR_OK;
}

enum kvr_status kvr_expression_create(
    struct kvr_expression **expression, const char *text, struct kvr_error *error)
{
    return create(expression, text, true, error);
}

enum kvr_status kvr_expression_create_program(
    struct kvr_expression **expression, const char *text, struct kvr_error *error)
{
    return create(expression, text, false, error);
}

void kvr_expression_destroy(struct kvr_expression *expression)
{
    if (!expression)
        return;
    release_paths(expression);
    jq_teardown(&expression->jq);
    kvr_buffer_release(&expression->result);
    free(expression);
}

bool kvr_expression_is_native(const struct kvr_expression *expression)
{
    return expression->path_count != 0;
}

static struct kvr_value follow(const struct path *path, const struct kvr_line *line)
{
    struct kvr_value value = line->object;

    for (size_t i = 0; i < path->count && value.type != KVR_ABSENT; i++) {
        const struct step *step = &path->steps[i];
        if (step->name) {
            value = i == 0 ? kvr_line_find(line, step->name) : kvr_value_get(value, step->name);
            continue;
        }
        struct kvr_cursor cursor = {NULL, NULL};
        if (value.type == KVR_ARRAY)
            cursor = kvr_value_open(value);
        value.type = KVR_ABSENT;
        for (size_t left = step->index + 1; left > 0; left--) {
            if (!kvr_next_element(&cursor, &value)) {
                value.type = KVR_ABSENT;
                break;
            }
        }
    }
    return value;
}

/* What jq raised, without the text of the line that it may quote: prompts never reach a message. */
static enum kvr_status raised(jv result, struct kvr_error *error)
{
    jv message = jv_invalid_get_msg(result);

    if (jv_get_kind(message) == JV_KIND_STRING) {
        const char *text = jv_string_value(message);
        size_t length = strcspn(text, "(\"\n");
        while (length && text[length - 1] == ' ')
            length--;
        kvr_error_set(error, KVR_BAD_INPUT, "the jq expression fails: %.*s", (int)length, text);
    } else {
        kvr_error_set(error, KVR_BAD_INPUT, "the jq expression fails");
    }
    jv_free(message);
    return KVR_BAD_INPUT;
}

/* The next result of a started program as compact JSON in expression->result; KVR_END after the
 * last one. */
static enum kvr_status next_result(struct kvr_expression *expression, struct kvr_error *error)
{
    jv result = jq_next(expression->jq);

    if (!jv_is_valid(result)) {
        if (jv_invalid_has_msg(jv_copy(result)))
            return raised(result, error);
        jv_free(result);
        return KVR_END;
    }
    jv text = jv_dump_string(result, 0);
    kvr_buffer_clear(&expression->result);
    kvr_buffer_append(
        &expression->result, jv_string_value(text), (size_t)jv_string_length_bytes(jv_copy(text)));
    jv_free(text);
    return kvr_buffer_text(&expression->result) ? KVR_OK : kvr_error_memory(error);
}

/* Why jq could not read a text; its own words quote the text. */
static enum kvr_status unreadable(const char *text, size_t length, struct kvr_error *error)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_value value;
    enum kvr_status status = structure
                                 ? kvr_json_check(structure, text, length, &value, NULL, error)
                                 : kvr_error_memory(error);

    kvr_structure_destroy(structure);
    return status != KVR_OK ? status
                            : kvr_error_set(error, KVR_BAD_INPUT, "jq cannot read the line");
}

static enum kvr_status start(
    struct kvr_expression *expression, const char *text, size_t length, struct kvr_error *error)
{
    if (length > INT32_MAX)
        return kvr_error_set(error, KVR_BAD_INPUT, "too long for a jq expression");
    jv input = jv_parse_sized(text, (int)length);
    if (!jv_is_valid(input)) {
        jv_free(input);
        return unreadable(text, length, error);
    }
    jq_start(expression->jq, input, 0);
    return KVR_OK;
}

static enum kvr_type type_of_result(char first)
{
    switch (first) {
    case 'n':
        return KVR_NULL;
    case 'f':
        return KVR_FALSE;
    case 't':
        return KVR_TRUE;
    case '"':
        return KVR_STRING;
    case '[':
        return KVR_ARRAY;
    case '{':
        return KVR_OBJECT;
    default:
        return KVR_NUMBER;
    }
}

enum kvr_status kvr_expression_evaluate(struct kvr_expression *expression,
    const struct kvr_line *line, struct kvr_value *value, struct kvr_error *error)
{
    *value = (struct kvr_value){NULL, 0, KVR_ABSENT};
    if (expression->path_count) {
        for (size_t i = 0; i < expression->path_count; i++) {
            *value = follow(&expression->paths[i], line);
            if (kvr_value_true(*value))
                break;
        }
        return KVR_OK;
    }
    enum kvr_status status = start(expression, line->object.text, line->object.length, error);
    if (status == KVR_OK)
        status = next_result(expression, error);
    if (status == KVR_OK)
        *value = (struct kvr_value){expression->result.data, expression->result.length,
            type_of_result(expression->result.data[0])};
    return status == KVR_END ? KVR_OK : status;
}

enum kvr_status kvr_expression_each(struct kvr_expression *expression, const char *text,
    size_t length, enum kvr_status (*emit)(void *context, const char *json, size_t length),
    void *context, struct kvr_error *error)
{
    enum kvr_status status = start(expression, text, length, error);

    while (status == KVR_OK) {
        status = next_result(expression, error);
        if (status == KVR_OK)
            status = emit(context, expression->result.data, expression->result.length);
    }
    return status == KVR_END ? KVR_OK : status;
}
