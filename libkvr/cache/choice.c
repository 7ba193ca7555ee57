#include "cache/choice.h"

#include <stdio.h>
#include <string.h>

bool kvr_list_next(struct kvr_text_piece *rest, char separator, struct kvr_text_piece *piece)
{
    const char *at = rest->text, *end = rest->text + rest->length;
    int depth = 0;

    if (!rest->text)
        return false;
    for (; at < end && (depth || *at != separator); at++)
        depth += (*at == '(') - (*at == ')' && depth);
    *piece = (struct kvr_text_piece){rest->text, (size_t)(at - rest->text)};
    *rest = at < end ? (struct kvr_text_piece){at + 1, (size_t)(end - at - 1)}
                     : (struct kvr_text_piece){NULL, 0};
    while (piece->length && *piece->text == ' ')
        piece->text++, piece->length--;
    while (piece->length && piece->text[piece->length - 1] == ' ')
        piece->length--;
    return true;
}

enum kvr_status kvr_choice_split(struct kvr_text_piece text, struct kvr_text_piece *name,
    struct kvr_text_piece *parameters, struct kvr_error *error)
{
    const char *open = text.length ? memchr(text.text, '(', text.length) : NULL;

    *name = text;
    *parameters = (struct kvr_text_piece){"", 0};
    if (!open)
        return KVR_OK;
    name->length = (size_t)(open - text.text);
    while (name->length && name->text[name->length - 1] == ' ')
        name->length--;
    if (text.text[text.length - 1] != ')')
        return kvr_error_set(error, KVR_BAD_USAGE, "'%.*s' lacks its closing parenthesis",
            (int)text.length, text.text);
    *parameters =
        (struct kvr_text_piece){open + 1, (size_t)(text.text + text.length - 1 - (open + 1))};
    return KVR_OK;
}

static enum kvr_status read_values(struct kvr_text_piece name, const struct kvr_parameter *table,
    size_t count, struct kvr_text_piece parameters, struct kvr_parameter_value *values,
    struct kvr_error *error)
{
    enum kvr_status status = kvr_parameter_defaults(table, count, values, error);

    if (status == KVR_OK)
        status =
            kvr_parameter_read(table, count, parameters.text, parameters.length, values, error);
    return status == KVR_OK ? KVR_OK
                            : kvr_error_prefix(error, "'%.*s'", (int)name.length, name.text);
}

/* "no policy 'x'; there are lru, fifo, ..." */
static enum kvr_status unknown(const char *kind, struct kvr_text_piece name,
    const char *(*name_of)(size_t), size_t count, struct kvr_error *error)
{
    char list[400];
    size_t used = 0;

    list[0] = '\0';
    for (size_t i = 0; i < count && used < sizeof list - 1; i++) {
        int wrote = snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", name_of(i));
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    return kvr_error_set(error, KVR_BAD_USAGE, "no %s '%.*s'; there are %s", kind,
        (int)(name.length < 40 ? name.length : 40), name.text, list);
}

static const char *policy_name(size_t i)
{
    return kvr_policies[i]->name;
}

static const char *admission_name(size_t i)
{
    return kvr_admission_rules[i]->name;
}

enum kvr_status kvr_choice_policy(struct kvr_text_piece text, const struct kvr_policy **policy,
    struct kvr_parameter_value values[KVR_POLICY_PARAMETERS_MOST], struct kvr_error *error)
{
    struct kvr_text_piece name, parameters;
    enum kvr_status status = kvr_choice_split(text, &name, &parameters, error);

    if (status != KVR_OK)
        return status;
    *policy = kvr_policy_find(name.text, name.length);
    if (!*policy)
        return unknown("eviction policy", name, policy_name, kvr_policy_count, error);
    return read_values(
        name, (*policy)->parameters, (*policy)->parameter_count, parameters, values, error);
}

enum kvr_status kvr_choice_admission(struct kvr_text_piece text,
    const struct kvr_admission_rule **rule,
    struct kvr_parameter_value values[KVR_ADMISSION_PARAMETERS_MOST], struct kvr_error *error)
{
    struct kvr_text_piece name, parameters;
    enum kvr_status status = kvr_choice_split(text, &name, &parameters, error);

    if (status != KVR_OK)
        return status;
    *rule = kvr_admission_find(name.text, name.length);
    if (!*rule)
        return unknown("admission rule", name, admission_name, kvr_admission_rule_count, error);
    return read_values(
        name, (*rule)->parameters, (*rule)->parameter_count, parameters, values, error);
}
