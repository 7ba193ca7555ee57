#include "base/quantity.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    double factor;
};

/* A number and the rest of the text after it. Hexadecimal, inf and nan are not amounts. */
static bool read_number(const char *text, double *number, const char **rest)
{
    char *end;

    if ((*text < '0' || *text > '9') && *text != '.')
        return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        return false;
    errno = 0;
    *number = strtod(text, &end);
    *rest = end;
    return end != text && errno == 0 && isfinite(*number);
}

static bool find_unit(const struct unit *units, const char *name, double *factor)
{
    for (; units->name; units++) {
        if (strcmp(units->name, name) == 0) {
            *factor = units->factor;
            return true;
        }
    }
    return false;
}

enum kvr_status kvr_quantity_count(const char *text, uint64_t *count, struct kvr_error *error)
{
    char *end;

    errno = 0;
    *count = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return kvr_error_set(error, KVR_BAD_USAGE, "'%s' is not a whole number", text);
    return KVR_OK;
}

enum kvr_status kvr_quantity_real(const char *text, double *number, struct kvr_error *error)
{
    const char *rest = text;
    bool negative = *text == '-';

    if (!read_number(text + negative, number, &rest) || *rest)
        return kvr_error_set(error, KVR_BAD_USAGE, "'%s' is not a number", text);
    if (negative)
        *number = -*number;
    return KVR_OK;
}

enum kvr_status kvr_quantity_time_ms(const char *text, double *time_ms, struct kvr_error *error)
{
    static const struct unit units[] = {{"", 1}, {"ms", 1}, {"us", 1e-3}, {"ns", 1e-6}, {"s", 1e3},
        {"m", 60e3}, {"min", 60e3}, {"h", 3600e3}, {"d", 86400e3}, {NULL, 0}};
    const char *rest = text;
    double factor;

    if (!read_number(text, time_ms, &rest) || !find_unit(units, rest, &factor))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "'%s' is not a time (a number, then us, ms, s, m, h or d; ms if none)", text);
    *time_ms *= factor;
    return KVR_OK;
}

static bool read_bytes(const char *text, double *bytes)
{
    static const struct unit units[] = {{"B", 1}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6},
        {"GB", 1e9}, {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
        {"TiB", 1099511627776.0}, {NULL, 0}};
    const char *rest = text;
    double factor;

    if (!read_number(text, bytes, &rest) || !find_unit(units, rest, &factor))
        return false;
    *bytes *= factor;
    return *bytes < 9e18;
}

enum kvr_status kvr_quantity_size(const char *text, uint64_t *bytes, struct kvr_error *error)
{
    double number;

    if (kvr_quantity_count(text, bytes, NULL) == KVR_OK)
        return KVR_OK;
    if (!read_bytes(text, &number))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "'%s' is not a size (a number, then kB, MB, GB, TB, KiB, MiB, GiB or TiB)", text);
    *bytes = (uint64_t)number;
    return KVR_OK;
}

enum kvr_status kvr_quantity_capacity(
    const char *text, struct kvr_capacity *capacity, struct kvr_error *error)
{
    static const struct unit units[] = {
        {"", 1}, {"b", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"kb", 1e3}, {"Mb", 1e6}, {NULL, 0}};
    const char *rest = text;
    double number, factor;

    if (read_bytes(text, &number)) {
        capacity->unit = KVR_BYTES;
        factor = 1;
    } else if (read_number(text, &number, &rest) && find_unit(units, rest, &factor)) {
        size_t length = strlen(rest);
        capacity->unit = length && rest[length - 1] == 'b' ? KVR_BLOCKS : KVR_TOKENS;
    } else {
        return kvr_error_set(error, KVR_BAD_USAGE,
            "'%s' is not a capacity (tokens; blocks with b; bytes with MB, GB, TB, MiB, GiB, TiB)",
            text);
    }
    number *= factor;
    if (!(number >= 1 && number < 9e18))
        return kvr_error_set(error, KVR_BAD_USAGE, "capacity '%s' is out of range", text);
    capacity->amount = (uint64_t)number;
    return KVR_OK;
}

enum kvr_status kvr_capacity_blocks(const struct kvr_capacity *capacity, uint64_t block_tokens,
    double kv_bytes_per_token, uint64_t *blocks, struct kvr_error *error)
{
    switch (capacity->unit) {
    case KVR_BLOCKS:
        *blocks = capacity->amount;
        return KVR_OK;
    case KVR_TOKENS:
        *blocks = capacity->amount / block_tokens;
        return KVR_OK;
    case KVR_BYTES:
        break;
    }
    if (!(kv_bytes_per_token > 0))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "a capacity in bytes needs a model, whose KV bytes per token are known (--model)");
    *blocks = (uint64_t)((double)capacity->amount / kv_bytes_per_token) / block_tokens;
    return KVR_OK;
}
