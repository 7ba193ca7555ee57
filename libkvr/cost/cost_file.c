/*
 * The cost file: one JSON object, described in kvr-cost(5).
 *
 *   {"model":"llama-3.1-8b","gpu":"h200","mfu":0.45,              where to start; may be left out
 *    "prefill":{"overhead_ms":2.1,"token_ms":0.041,"pair_ms":6e-7},
 *    "decode":{"overhead_ms":1.5,"weights_ms":4.8,"expert_weights_ms":0,"expert_miss":0,
 *              "token_ms":3.9e-5},
 *    "kv_bytes_per_token":131072,"kv_capacity_tokens":700000,
 *    "description":{"anything":"for people"}}
 *
 * Each number is one coefficient of struct kvr_cost, so that a table of rows reads and writes all
 * of them.
 */
#include "cost/cost.h"
#include "line/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT_BYTES = 1 << 20 };

static const struct row {
    const char *group; /* NULL: outermost */
    const char *name;
    size_t at;
    double most;
} rows[] = {
    {"prefill", "overhead_ms", offsetof(struct kvr_cost, prefill_overhead_ms), 1e9},
    {"prefill", "token_ms", offsetof(struct kvr_cost, prefill_token_ms), 1e6},
    {"prefill", "pair_ms", offsetof(struct kvr_cost, prefill_pair_ms), 1e3},
    {"decode", "overhead_ms", offsetof(struct kvr_cost, decode_overhead_ms), 1e9},
    {"decode", "weights_ms", offsetof(struct kvr_cost, dense_weights_ms), 1e9},
    {"decode", "expert_weights_ms", offsetof(struct kvr_cost, expert_weights_ms), 1e9},
    {"decode", "expert_miss", offsetof(struct kvr_cost, expert_miss), 1},
    {"decode", "token_ms", offsetof(struct kvr_cost, decode_token_ms), 1e6},
    {NULL, "kv_bytes_per_token", offsetof(struct kvr_cost, kv_bytes_per_token), 1e12},
    {NULL, "kv_capacity_tokens", offsetof(struct kvr_cost, kv_capacity_tokens), 1e15},
};
enum { ROWS = sizeof rows / sizeof *rows };

static double *coefficient(struct kvr_cost *cost, const struct row *row)
{
    return (double *)((char *)cost + row->at);
}

static bool in_group(const struct row *row, const char *group)
{
    return row->group && group ? strcmp(row->group, group) == 0 : row->group == group;
}

static enum kvr_status read_group(
    struct kvr_cost *cost, struct kvr_value object, const char *group, struct kvr_error *error);

/* A member that is a coefficient, or a group of them; false where it is neither. */
static bool read_coefficient(struct kvr_cost *cost, const struct kvr_member *member,
    const char *group, enum kvr_status *status, struct kvr_error *error)
{
    const char *inner = !group && kvr_value_is(member->name, "prefill")  ? "prefill"
                        : !group && kvr_value_is(member->name, "decode") ? "decode"
                                                                         : NULL;

    if (inner) {
        *status = read_group(cost, member->value, inner, error);
        return true;
    }
    for (int i = 0; i < ROWS; i++) {
        double number;
        if (!in_group(&rows[i], group) || !kvr_value_is(member->name, rows[i].name))
            continue;
        if (!kvr_value_double(member->value, &number) || !(number >= 0 && number <= rows[i].most))
            *status = kvr_error_set(error, KVR_BAD_INPUT, "'%s%s%s' is not a number from 0 to %g",
                group ? group : "", group ? "." : "", rows[i].name, rows[i].most);
        else
            *coefficient(cost, &rows[i]) = number;
        return true;
    }
    return false;
}

static enum kvr_status unknown_member(
    const struct kvr_member *member, const char *group, struct kvr_error *error)
{
    char shown[64];

    kvr_printable(shown, sizeof shown, member->name.text + 1, member->name.length - 2);
    return kvr_error_set(error, KVR_BAD_INPUT, "'%s%s%s' is no member of a cost file",
        group ? group : "", group ? "." : "", shown);
}

static enum kvr_status read_group(
    struct kvr_cost *cost, struct kvr_value object, const char *group, struct kvr_error *error)
{
    struct kvr_cursor cursor;
    struct kvr_member member;
    enum kvr_status status = KVR_OK;

    if (object.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "'%s' is not an object", group);
    cursor = kvr_value_open(object);
    while (status == KVR_OK && kvr_next_member(&cursor, &member))
        if (!read_coefficient(cost, &member, group, &status, error))
            return unknown_member(&member, group, error);
    return status;
}

/* A string member as C text in *out; *given tells whether it is there at all. */
static enum kvr_status read_name(struct kvr_value object, const char *name,
    struct kvr_buffer *buffer, const char **out, struct kvr_error *error)
{
    struct kvr_value value = kvr_value_get(object, name);

    *out = NULL;
    if (value.type == KVR_ABSENT)
        return KVR_OK;
    if (!kvr_value_string(value, buffer) || !(*out = kvr_buffer_text(buffer)))
        return kvr_error_set(error, KVR_BAD_INPUT, "'%s' is not a string", name);
    return KVR_OK;
}

/* What the command line says of the preset; a file may say it anew, in part. NULL, 0: defaults. */
struct preset {
    const char *model, *gpu;
    double mfu;
};

/* model, gpu, mfu: the preset to start from, read before any coefficient. */
static enum kvr_status read_preset(struct kvr_cost *cost, struct kvr_value object,
    const struct preset *otherwise, struct kvr_error *error)
{
    struct kvr_buffer model_text = {0}, gpu_text = {0};
    struct kvr_value mfu_value = kvr_value_get(object, "mfu");
    const char *model, *gpu;
    double mfu = 0;

    enum kvr_status status = read_name(object, "model", &model_text, &model, error);
    if (status == KVR_OK)
        status = read_name(object, "gpu", &gpu_text, &gpu, error);
    if (status == KVR_OK && mfu_value.type != KVR_ABSENT &&
        !(kvr_value_double(mfu_value, &mfu) && mfu > 0 && mfu <= 1))
        status = kvr_error_set(error, KVR_BAD_INPUT, "'mfu' is not a number above 0, at most 1");
    if (status == KVR_OK && (model || gpu || mfu > 0)) {
        status = kvr_cost_preset(cost, model ? model : otherwise->model, gpu ? gpu : otherwise->gpu,
            mfu > 0 ? mfu : otherwise->mfu, error);
        if (status != KVR_OK && error)
            status = error->status = KVR_BAD_INPUT;
    }
    kvr_buffer_release(&model_text);
    kvr_buffer_release(&gpu_text);
    return status == KVR_BAD_USAGE ? KVR_BAD_INPUT : status;
}

static enum kvr_status read_object(struct kvr_cost *cost, struct kvr_value object,
    const struct preset *otherwise, struct kvr_error *error)
{
    static const char *const free_names[] = {"model", "gpu", "mfu", "description"};
    struct kvr_cursor cursor;
    struct kvr_member member;
    enum kvr_status status;

    if (object.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "a cost file is one JSON object");
    status = read_preset(cost, object, otherwise, error);
    cursor = kvr_value_open(object);
    while (status == KVR_OK && kvr_next_member(&cursor, &member)) {
        bool known = read_coefficient(cost, &member, NULL, &status, error);
        for (size_t i = 0; i < sizeof free_names / sizeof *free_names; i++)
            known |= kvr_value_is(member.name, free_names[i]);
        if (!known)
            return unknown_member(&member, NULL, error);
    }
    return status;
}

static enum kvr_status read_text(struct kvr_cost *cost, const char *text, size_t length,
    const struct preset *otherwise, struct kvr_error *error)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_cost result = *cost;
    struct kvr_value object;

    if (!structure)
        return kvr_error_memory(error);
    enum kvr_status status = kvr_json_check(structure, text, length, &object, NULL, error);
    if (status == KVR_OK)
        status = read_object(&result, object, otherwise, error);
    if (status == KVR_OK)
        *cost = result;
    kvr_structure_destroy(structure);
    return status;
}

enum kvr_status kvr_cost_read(
    struct kvr_cost *cost, const char *text, size_t length, struct kvr_error *error)
{
    return read_text(cost, text, length, &(struct preset){0}, error);
}

static enum kvr_status load(struct kvr_cost *cost, const char *path, const struct preset *otherwise,
    struct kvr_error *error)
{
    FILE *file = fopen(path, "rb");
    char *text;
    size_t length;

    if (!file)
        return kvr_error_errno(error, KVR_IO, "cannot read %s", path);
    text = malloc(FILE_LIMIT_BYTES + 1);
    if (!text) {
        fclose(file);
        return kvr_error_memory(error);
    }
    length = fread(text, 1, FILE_LIMIT_BYTES + 1, file);
    enum kvr_status status;
    if (ferror(file))
        status = kvr_error_errno(error, KVR_IO, "cannot read %s", path);
    else if (length > FILE_LIMIT_BYTES)
        status = kvr_error_set(error, KVR_BAD_INPUT, "%s: larger than a cost file can be", path);
    else if ((status = read_text(cost, text, length, otherwise, error)) != KVR_OK)
        kvr_error_prefix(error, "%s", path);
    fclose(file);
    free(text);
    return status;
}

enum kvr_status kvr_cost_load(struct kvr_cost *cost, const char *path, struct kvr_error *error)
{
    return load(cost, path, &(struct preset){0}, error);
}

enum kvr_status kvr_cost_settle(struct kvr_cost *cost, const char *model, const char *hardware,
    double mfu, const char *path, struct kvr_error *error)
{
    enum kvr_status status = kvr_cost_preset(cost, model, hardware, mfu, error);

    return status == KVR_OK && path
               ? load(cost, path, &(struct preset){model, hardware, mfu}, error)
               : status;
}

void kvr_cost_write(const struct kvr_cost *cost, struct kvr_buffer *out)
{
    struct kvr_cost copy = *cost;
    const char *open = NULL;

    kvr_buffer_append_byte(out, '{');
    for (int i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        bool opens = row->group && !(open && strcmp(open, row->group) == 0);
        if (open && (opens || !row->group))
            kvr_buffer_append_byte(out, '}');
        if (i)
            kvr_buffer_append_byte(out, ',');
        if (opens)
            kvr_buffer_append_format(out, "\"%s\":{", row->group);
        kvr_buffer_append_format(out, "\"%s\":", row->name);
        kvr_json_write_double(out, *coefficient(&copy, row));
        open = row->group;
    }
    kvr_buffer_append_text(out, "}\n");
}
