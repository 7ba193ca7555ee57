#include "base/options.h"

#include <stdlib.h>

#define EACH_OPTION(group, option)                                                                 \
    for (const struct kvr_option *option = (group)->options; option->name; option++)

static enum kvr_status refuse_value(
    const struct kvr_option *option, const char *text, struct kvr_error *error)
{
    struct kvr_buffer choices = {0};

    for (const char *at = option->values; *at; at++) {
        if (*at == '|')
            kvr_buffer_append_text(&choices, ", ");
        else
            kvr_buffer_append_byte(&choices, *at);
    }
    const char *list = kvr_buffer_text(&choices);
    enum kvr_status status =
        kvr_error_set(error, KVR_BAD_USAGE, "'%s' is not one of: %s", text, list ? list : "");
    kvr_buffer_release(&choices);
    return status;
}

static bool value_allowed(const char *values, const char *text)
{
    size_t length = strlen(text);

    if (!values || *values == '<')
        return true;
    for (const char *at = values; at;) {
        const char *end = strchrnul(at, '|');
        size_t size = (size_t)(end - at);
        if ((size == 1 && *at == '*') || (size == length && memcmp(at, text, size) == 0))
            return true;
        at = *end ? end + 1 : NULL;
    }
    return false;
}

static enum kvr_status store(const struct kvr_option_group *group, const struct kvr_option *option,
    const char *text, struct kvr_error *error)
{
    char *place = (char *)group->settings + option->at;

    if (option->kind != KVR_OPTION_FLAG && !value_allowed(option->values, text))
        return refuse_value(option, text, error);
    switch (option->kind) {
    case KVR_OPTION_FLAG:
        *(bool *)place = true;
        return KVR_OK;
    case KVR_OPTION_TEXT:
        *(const char **)place = text;
        return KVR_OK;
    case KVR_OPTION_LIST: {
        struct kvr_text_list *list = (struct kvr_text_list *)place;
        if (list->count == KVR_LIST_LIMIT)
            return kvr_error_set(error, KVR_BAD_USAGE, "given more than %d times", KVR_LIST_LIMIT);
        list->items[list->count++] = text;
        return KVR_OK;
    }
    case KVR_OPTION_COUNT:
        return kvr_quantity_count(text, (uint64_t *)place, error);
    case KVR_OPTION_REAL:
        return kvr_quantity_real(text, (double *)place, error);
    case KVR_OPTION_TIME_MS:
        return kvr_quantity_time_ms(text, (double *)place, error);
    case KVR_OPTION_SIZE:
        return kvr_quantity_size(text, (uint64_t *)place, error);
    case KVR_OPTION_CAPACITY:
        return kvr_quantity_capacity(text, (struct kvr_capacity *)place, error);
    }
    return KVR_OK;
}

struct found {
    const struct kvr_option_group *group;
    const struct kvr_option *option;
};

/* An exact name, or the only name that starts with what was given. */
static enum kvr_status find_long(const struct kvr_option_group *groups, const char *name,
    size_t length, struct found *found, struct kvr_error *error)
{
    const char *other = NULL;

    found->option = NULL;
    for (const struct kvr_option_group *group = groups; group->title; group++) {
        EACH_OPTION(group, option)
        {
            if (strncmp(option->name, name, length) != 0)
                continue;
            if (!found->option)
                *found = (struct found){group, option};
            else if (!other)
                other = option->name;
            if (option->name[length] == '\0') {
                *found = (struct found){group, option};
                return KVR_OK;
            }
        }
    }
    if (!found->option)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "there is no option '--%.*s'", (int)length, name);
    if (other)
        return kvr_error_set(error, KVR_BAD_USAGE, "option '--%.*s' could be '--%s' or '--%s'",
            (int)length, name, found->option->name, other);
    return KVR_OK;
}

static bool find_letter(const struct kvr_option_group *groups, char letter, struct found *found)
{
    for (const struct kvr_option_group *group = groups; group->title; group++) {
        EACH_OPTION(group, option)
        {
            if (option->letter == letter) {
                *found = (struct found){group, option};
                return true;
            }
        }
    }
    return false;
}

static enum kvr_status set_defaults(const struct kvr_option_group *groups, struct kvr_error *error)
{
    for (const struct kvr_option_group *group = groups; group->title; group++) {
        EACH_OPTION(group, option)
        {
            if (option->initial && option->kind != KVR_OPTION_LIST &&
                store(group, option, option->initial, error) != KVR_OK)
                return kvr_error_prefix(error, "default of '--%s'", option->name);
        }
    }
    return KVR_OK;
}

static enum kvr_status wish_for_help(
    const char *format, enum kvr_options_wish *wish, struct kvr_error *error)
{
    static const struct {
        const char *name;
        enum kvr_options_wish wish;
    } formats[] = {{"scdoc", KVR_WISH_MANUAL}, {"bash", KVR_WISH_BASH}, {"zsh", KVR_WISH_ZSH},
        {"fish", KVR_WISH_FISH}};

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(format, formats[i].name) == 0) {
            *wish = formats[i].wish;
            return KVR_OK;
        }
    }
    return kvr_error_set(
        error, KVR_BAD_USAGE, "'--help=%s': not one of scdoc, bash, zsh, fish", format);
}

enum kvr_status kvr_options_parse(const struct kvr_option_group *groups, int argc, char **argv,
    const char **operands, size_t *operand_count, enum kvr_options_wish *wish,
    struct kvr_error *error)
{
    enum kvr_status status = set_defaults(groups, error);
    bool options_ended = false;

    *operand_count = 0;
    *wish = KVR_WISH_WORK;
    for (int i = 1; status == KVR_OK && i < argc; i++) {
        char *word = argv[i];
        struct found found = {0};

        if (options_ended || word[0] != '-' || word[1] == '\0') {
            operands[(*operand_count)++] = word;
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (word[1] == '-') {
            char *equals = strchr(word, '=');
            size_t length = equals ? (size_t)(equals - word - 2) : strlen(word + 2);
            if (strcmp(word, "--help") == 0 || strcmp(word, "--version") == 0) {
                *wish = word[2] == 'h' ? KVR_WISH_HELP : KVR_WISH_VERSION;
                return KVR_OK;
            }
            if (strncmp(word, "--help=", 7) == 0)
                return wish_for_help(word + 7, wish, error);
            status = find_long(groups, word + 2, length, &found, error);
            if (status != KVR_OK)
                return status;
            if (found.option->kind == KVR_OPTION_FLAG && equals)
                return kvr_error_set(
                    error, KVR_BAD_USAGE, "option '--%s' takes no argument", found.option->name);
            if (found.option->kind != KVR_OPTION_FLAG && !equals && ++i == argc)
                return kvr_error_set(error, KVR_BAD_USAGE, "option '--%s' needs an argument (%s)",
                    found.option->name, found.option->argument);
            status = store(found.group, found.option, equals ? equals + 1 : argv[i], error);
            if (status != KVR_OK)
                kvr_error_prefix(error, "--%s", found.option->name);
        } else {
            for (char *letter = word + 1; status == KVR_OK && *letter; letter++) {
                const char *argument = NULL;
                if (*letter == 'h' || *letter == 'V') {
                    *wish = *letter == 'h' ? KVR_WISH_HELP_SHORT : KVR_WISH_VERSION;
                    return KVR_OK;
                }
                if (!find_letter(groups, *letter, &found)) {
                    char shown[8];
                    return kvr_error_set(error, KVR_BAD_USAGE, "there is no option '-%s'",
                        kvr_printable(shown, sizeof shown, letter, 1));
                }
                if (found.option->kind != KVR_OPTION_FLAG) {
                    argument = letter[1] ? letter + 1 : ++i < argc ? argv[i] : NULL;
                    if (!argument)
                        return kvr_error_set(error, KVR_BAD_USAGE,
                            "option '-%c' needs an argument (%s)", *letter, found.option->argument);
                }
                status = store(found.group, found.option, argument, error);
                if (status != KVR_OK)
                    kvr_error_prefix(error, "-%c", *letter);
                if (argument)
                    break;
            }
        }
    }
    return status;
}
