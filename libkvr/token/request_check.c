#include "token/request_check.h"

static bool is_name(struct kvr_value value)
{
    return kvr_value_missing(value) || value.type == KVR_STRING || value.type == KVR_NUMBER;
}

static enum kvr_status check_lora(struct kvr_value lora, struct kvr_error *error)
{
    uint64_t number;

    if (lora.type != KVR_OBJECT)
        return is_name(lora) ? KVR_OK
                             : kvr_line_wrong_type("lora", "a name or an object with one", error);
    struct kvr_value name = kvr_value_get(lora, "name"), path = kvr_value_get(lora, "path");
    struct kvr_value id = kvr_value_get(lora, "id");
    if (kvr_value_missing(name) && kvr_value_missing(id))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'lora' has neither name nor id");
    if (!is_name(name))
        return kvr_line_wrong_type("lora.name", "a name", error);
    if (!kvr_value_missing(path) && path.type != KVR_STRING)
        return kvr_line_wrong_type("lora.path", "a text", error);
    if (!kvr_value_missing(id) && !kvr_value_u64(id, &number))
        return kvr_line_wrong_type("lora.id", "a whole number", error);
    return KVR_OK;
}

enum kvr_status kvr_request_check_namespace(const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_value size = kvr_line_get(line, KVR_NAME_BLOCK_SIZE);
    uint64_t number;

    if (!kvr_value_missing(size) && (!kvr_value_u64(size, &number) || !number))
        return kvr_line_wrong_type("block_size", "a whole number from 1 on", error);
    if (!is_name(kvr_line_get(line, KVR_NAME_MODEL)))
        return kvr_line_wrong_type("model", "a name", error);
    if (!is_name(kvr_line_get(line, KVR_NAME_SALT)))
        return kvr_line_wrong_type("salt", "a text", error);
    if (!is_name(kvr_line_get(line, KVR_NAME_CACHE_SALT)))
        return kvr_line_wrong_type("cache_salt", "a text", error);
    return check_lora(kvr_line_get(line, KVR_NAME_LORA), error);
}

static bool is_flag(struct kvr_value value)
{
    return kvr_value_missing(value) || value.type == KVR_TRUE || value.type == KVR_FALSE;
}

enum kvr_status kvr_request_check_text(const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_value most = kvr_line_get(line, KVR_NAME_TRUNCATE_PROMPT_TOKENS);
    int64_t number;

    if (!is_flag(kvr_line_get(line, KVR_NAME_ADD_SPECIAL_TOKENS)))
        return kvr_line_wrong_type("add_special_tokens", "true or false", error);
    if (!kvr_value_missing(most) && (!kvr_value_i64(most, &number) || number < -1))
        return kvr_line_wrong_type("truncate_prompt_tokens", "a whole number from -1 on", error);
    return KVR_OK;
}

static bool is_list_of_objects(struct kvr_value value)
{
    struct kvr_cursor cursor = kvr_value_open(value);
    struct kvr_value element;

    if (value.type != KVR_ARRAY)
        return false;
    while (kvr_next_element(&cursor, &element))
        if (element.type != KVR_OBJECT)
            return false;
    return true;
}

enum kvr_status kvr_request_check_chat(const struct kvr_line *line, struct kvr_error *error)
{
    static const enum kvr_name lists[] = {KVR_NAME_MESSAGES, KVR_NAME_TOOLS, KVR_NAME_DOCUMENTS};
    static const enum kvr_name flags[] = {
        KVR_NAME_ADD_GENERATION_PROMPT, KVR_NAME_CONTINUE_FINAL_MESSAGE};
    struct kvr_value arguments = kvr_line_get(line, KVR_NAME_CHAT_TEMPLATE_KWARGS);
    struct kvr_value effort = kvr_line_get(line, KVR_NAME_REASONING_EFFORT);

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct kvr_value list = kvr_line_get(line, lists[i]);
        if (!kvr_value_missing(list) && !is_list_of_objects(list))
            return kvr_line_wrong_type(kvr_name_text(lists[i]), "a list of objects", error);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!is_flag(kvr_line_get(line, flags[i])))
            return kvr_line_wrong_type(kvr_name_text(flags[i]), "true or false", error);
    if (!kvr_value_missing(effort) && effort.type != KVR_STRING)
        return kvr_line_wrong_type("reasoning_effort", "a text", error);
    if (!kvr_value_missing(arguments) && arguments.type != KVR_OBJECT)
        return kvr_line_wrong_type("chat_template_kwargs", "an object", error);
    return KVR_OK;
}
