/* Reading --tier. */
#include "cache/tiers.h"

#include <string.h>

/* policy and admission are read by their own tables, bandwidth by the size reader; the rest is
 * like any other parameter. */
static const struct kvr_parameter tier_parameters[] = {
    {"write", KVR_PARAMETER_CHOICE, "back", "through second back", 0, 0,
        "when blocks come down: when stored above, when first reused above, when evicted above"},
    {"promote", KVR_PARAMETER_CHOICE, "always", "always second never", 0, 0,
        "whether a hit brings a block up"},
    {"exclusive", KVR_PARAMETER_FLAG, "off", NULL, 0, 1, "a promoted block leaves this tier"},
    {"latency", KVR_PARAMETER_DURATION, "0", NULL, 0, 1e9, "of one load"},
    {"compression", KVR_PARAMETER_NUMBER, "1", NULL, 0.01, 1000,
        "how many times smaller blocks are here"},
};

enum { TIER_WRITE, TIER_PROMOTE, TIER_EXCLUSIVE, TIER_LATENCY, TIER_COMPRESSION, TIER_COUNT };

void kvr_tier_describe(struct kvr_buffer *out)
{
    kvr_buffer_append_text(out, "  policy=lru  which block goes first (an eviction policy)\n"
                                "  admission=always  which blocks come in (an admission rule)\n"
                                "  bandwidth=0  of loading, as 50GB/s; 0: no time\n");
    kvr_parameter_describe(tier_parameters, TIER_COUNT, out);
}

static bool has_prefix(struct kvr_text_piece piece, const char *prefix)
{
    return piece.length >= strlen(prefix) && !memcmp(piece.text, prefix, strlen(prefix));
}

static struct kvr_text_piece after(struct kvr_text_piece piece, const char *prefix)
{
    return (struct kvr_text_piece){piece.text + strlen(prefix), piece.length - strlen(prefix)};
}

static enum kvr_status read_bandwidth(
    struct kvr_text_piece piece, double *bytes_per_s, struct kvr_error *error)
{
    char text[64];
    uint64_t bytes;

    if (piece.length > 2 && !memcmp(piece.text + piece.length - 2, "/s", 2))
        piece.length -= 2;
    if (piece.length >= sizeof text)
        return kvr_error_set(error, KVR_BAD_USAGE, "a bandwidth looks like 50GB/s");
    memcpy(text, piece.text, piece.length);
    text[piece.length] = '\0';
    enum kvr_status status = kvr_quantity_size(text, &bytes, error);
    if (status != KVR_OK)
        return kvr_error_prefix(error, "bandwidth");
    *bytes_per_s = (double)bytes;
    return KVR_OK;
}

static enum kvr_status read_parameters(
    struct kvr_text_piece parameters, struct kvr_tier *tier, struct kvr_error *error)
{
    struct kvr_parameter_value values[TIER_COUNT];
    struct kvr_text_piece rest = parameters, piece;
    enum kvr_status status = kvr_parameter_defaults(tier_parameters, TIER_COUNT, values, error);

    while (status == KVR_OK && parameters.length && kvr_list_next(&rest, ',', &piece)) {
        if (has_prefix(piece, "policy="))
            status = kvr_choice_policy(
                after(piece, "policy="), &tier->policy, tier->policy_values, error);
        else if (has_prefix(piece, "admission="))
            status = kvr_choice_admission(
                after(piece, "admission="), &tier->admission, tier->admission_values, error);
        else if (has_prefix(piece, "bandwidth="))
            status = read_bandwidth(after(piece, "bandwidth="), &tier->bytes_per_s, error);
        else
            status = kvr_parameter_read(
                tier_parameters, TIER_COUNT, piece.text, piece.length, values, error);
    }
    tier->write = (enum kvr_tier_write)values[TIER_WRITE].integer;
    tier->promote = (enum kvr_tier_promote)values[TIER_PROMOTE].integer;
    tier->exclusive = values[TIER_EXCLUSIVE].integer;
    tier->latency_ms = values[TIER_LATENCY].number;
    tier->compression = values[TIER_COMPRESSION].number;
    return status;
}

enum kvr_status kvr_tier_read(const char *text, struct kvr_tier *tier, struct kvr_error *error)
{
    struct kvr_text_piece whole = {text, strlen(text)}, head, parameters;
    char capacity[64];

    memset(tier, 0, sizeof *tier);
    enum kvr_status status = kvr_choice_split(whole, &head, &parameters, error);
    if (status != KVR_OK)
        return status;
    const char *equals = memchr(head.text, '=', head.length);
    size_t name = equals ? (size_t)(equals - head.text) : 0;
    int medium = 0;
    while (medium < KVR_MEDIUM_COUNT &&
           (strlen(kvr_medium_name((enum kvr_medium)medium)) != name ||
               memcmp(kvr_medium_name((enum kvr_medium)medium), text, name) != 0))
        medium++;
    if (!equals || medium == KVR_MEDIUM_COUNT || head.length - name - 1 >= sizeof capacity)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "a tier is gpu, cpu, disk or remote and its capacity, as cpu=200GiB, not '%.60s'",
            text);
    tier->medium = (enum kvr_medium)medium;
    memcpy(capacity, equals + 1, head.length - name - 1);
    capacity[head.length - name - 1] = '\0';
    status = kvr_quantity_capacity(capacity, &tier->capacity, error);
    if (status == KVR_OK)
        status = kvr_choice_policy(
            (struct kvr_text_piece){"lru", 3}, &tier->policy, tier->policy_values, error);
    if (status == KVR_OK)
        status = kvr_choice_admission(
            (struct kvr_text_piece){"always", 6}, &tier->admission, tier->admission_values, error);
    if (status == KVR_OK)
        status = read_parameters(parameters, tier, error);
    return status == KVR_OK ? KVR_OK : kvr_error_prefix(error, "tier '%.*s'", (int)name, text);
}
