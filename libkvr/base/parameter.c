#include "base/parameter.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    double factor;
};

static const struct unit integer_units[] = {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {0}};
static const struct unit number_units[] = {{"", 1}, {"%", 0.01}, {0}};
static const struct unit duration_units[] = {
    {"", 1}, {"us", 1e-3}, {"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 36e5}, {"d", 864e5}, {0}};

/* A decimal number and a unit; false where it is none. strtod alone would take hex, inf and nan. */
static bool read_scaled(const char *text, const struct unit *units, double *value)
{
    size_t digits = strspn(text + (*text == '-'), "0123456789.");
    if (!digits)
        return false;
    char *end;
    if (strchr(text, 'x') || strchr(text, 'X'))
        return false;
    *value = strtod(text, &end);
    for (; units->name; units++) {
        if (!strcmp(end, units->name)) {
            *value *= units->factor;
            return isfinite(*value);
        }
    }
    return false;
}

static bool read_choice(const char *choices, const char *text, int64_t *index)
{
    size_t length = strlen(text);
    *index = 0;
    while (*choices) {
        size_t word = strcspn(choices, " ");
        if (word == length && !memcmp(choices, text, word))
            return true;
        choices += word + (choices[word] == ' ');
        ++*index;
    }
    return false;
}

static enum kvr_status read_value(const struct kvr_parameter *parameter, const char *text,
    struct kvr_parameter_value *value, struct kvr_error *error)
{
    char shown[64];
    kvr_printable(shown, sizeof shown, text, strlen(text));
    double number = 0;
    bool good = false;
    const char *kind = "a number";
    switch (parameter->kind) {
    case KVR_PARAMETER_INTEGER:
        kind = "a whole number";
        good = read_scaled(text, integer_units, &number) && number == floor(number) &&
               fabs(number) < 9e15;
        value->integer = good ? (int64_t)number : 0;
        break;
    case KVR_PARAMETER_NUMBER:
        good = read_scaled(text, number_units, &number);
        break;
    case KVR_PARAMETER_DURATION:
        kind = "a time in ms or with a unit (us, ms, s, m, h, d)";
        good = read_scaled(text, duration_units, &number);
        break;
    case KVR_PARAMETER_FLAG: {
        static const char words[] = "off on false true no yes 0 1";
        if (!read_choice(words, text, &value->integer))
            return kvr_error_set(error, KVR_BAD_USAGE, "'%s' of parameter '%s' is not on or off",
                shown, parameter->name);
        value->integer &= 1;
        return KVR_OK;
    }
    case KVR_PARAMETER_CHOICE:
        if (!read_choice(parameter->choices, text, &value->integer))
            return kvr_error_set(error, KVR_BAD_USAGE, "'%s' of parameter '%s' is not one of: %s",
                shown, parameter->name, parameter->choices);
        return KVR_OK;
    }
    if (!good)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "'%s' of parameter '%s' is not %s", shown, parameter->name, kind);
    if (number < parameter->least || number > parameter->most)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "'%s' of parameter '%s' is not between %.15g and %.15g", shown, parameter->name,
            parameter->least, parameter->most);
    value->number = number;
    return KVR_OK;
}

enum kvr_status kvr_parameter_defaults(const struct kvr_parameter *table, size_t count,
    struct kvr_parameter_value *values, struct kvr_error *error)
{
    memset(values, 0, count * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        enum kvr_status status = read_value(&table[i], table[i].initial, &values[i], error);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

enum kvr_status kvr_parameter_read(const struct kvr_parameter *table, size_t count,
    const char *text, size_t length, struct kvr_parameter_value *values, struct kvr_error *error)
{
    size_t at = 0;
    while (at < length) {
        const char *comma = memchr(text + at, ',', length - at);
        size_t end = comma ? (size_t)(comma - text) : length;
        char item[128];
        if (end - at >= sizeof item || memchr(text + at, 0, end - at)) {
            char shown[64];
            kvr_printable(shown, sizeof shown, text + at, end - at);
            return kvr_error_set(error, KVR_BAD_USAGE, "the parameter '%s…' is too long", shown);
        }
        memcpy(item, text + at, end - at);
        item[end - at] = 0;
        at = end + 1;
        char *name = item + strspn(item, " \t");
        for (size_t last = strlen(name); last && isspace((unsigned char)name[last - 1]);)
            name[--last] = 0;
        char *value = strchr(name, '=');
        if (value)
            *value++ = 0;
        size_t i = 0;
        while (i < count && strcmp(table[i].name, name))
            i++;
        if (i == count) {
            char shown[64];
            struct kvr_buffer known = {0};
            for (size_t k = 0; k < count; k++)
                kvr_buffer_append_format(&known, "%s%s", k ? ", " : "", table[k].name);
            const char *names = kvr_buffer_text(&known);
            kvr_printable(shown, sizeof shown, name, strlen(name));
            enum kvr_status status =
                kvr_error_set(error, KVR_BAD_USAGE, "there is no parameter '%s' (there are: %s)",
                    shown, names && *names ? names : "none");
            kvr_buffer_release(&known);
            return status;
        }
        if (!value && table[i].kind != KVR_PARAMETER_FLAG)
            return kvr_error_set(
                error, KVR_BAD_USAGE, "the parameter '%s' needs a value", table[i].name);
        enum kvr_status status = read_value(&table[i], value ? value : "on", &values[i], error);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

void kvr_parameter_describe(const struct kvr_parameter *table, size_t count, struct kvr_buffer *out)
{
    for (size_t i = 0; i < count; i++) {
        size_t before = out->length;
        kvr_buffer_append_format(out, "  %s=%s", table[i].name, table[i].initial);
        do
            kvr_buffer_append_byte(out, ' ');
        while (!out->failed && out->length - before < 28);
        kvr_buffer_append_text(out, table[i].help);
        if (table[i].choices)
            kvr_buffer_append_format(out, " (%s)", table[i].choices);
        kvr_buffer_append_byte(out, '\n');
    }
}
