#include "route/chain.h"

#include <stdlib.h>
#include <string.h>

static const char *skip_spaces(const char *text)
{
    return text + strspn(text, " \t\n");
}

static enum kvr_status no_such_policy(const char *name, size_t length, struct kvr_error *error)
{
    struct kvr_buffer names = {0};
    char shown[64];

    for (size_t i = 0; i < kvr_route_policy_count; i++)
        kvr_buffer_append_format(&names, "%s%s", i ? ", " : "", kvr_route_policies[i]->name);
    const char *list = kvr_buffer_text(&names);
    kvr_printable(shown, sizeof shown, name, length);
    if (length)
        kvr_error_set(
            error, KVR_BAD_USAGE, "no policy '%s'; there are %s", shown, list ? list : "");
    else
        kvr_error_set(
            error, KVR_BAD_USAGE, "a policy's name is missing; there are %s", list ? list : "");
    kvr_buffer_release(&names);
    return KVR_BAD_USAGE;
}

/* One link at *text; moves *text behind it and the spaces after. */
static enum kvr_status read_link(struct kvr_route_link *link, const char **text,
    const struct kvr_cost *cost, uint64_t seed, struct kvr_error *error)
{
    const char *name = *text, *parameters = "";
    size_t length = strcspn(name, " \t\n(>"), parameter_length = 0;

    link->policy = kvr_route_policy_find(name, length);
    if (!link->policy)
        return no_such_policy(name, length, error);
    *text = skip_spaces(name + length);
    if (**text == '(') {
        parameters = *text + 1;
        parameter_length = strcspn(parameters, ")");
        if (parameters[parameter_length] != ')')
            return kvr_error_set(
                error, KVR_BAD_USAGE, "policy '%s': the ')' is missing", link->policy->name);
        *text = skip_spaces(parameters + parameter_length + 1);
        parameters = skip_spaces(parameters);
        parameter_length = strcspn(parameters, ")");
    }

    const struct kvr_parameter *table = link->policy->parameters;
    size_t count = link->policy->parameter_count;
    enum kvr_status status = kvr_parameter_defaults(table, count, link->values, error);
    if (status == KVR_OK)
        status =
            kvr_parameter_read(table, count, parameters, parameter_length, link->values, error);
    if (status != KVR_OK)
        return kvr_error_prefix(error, "policy '%s'", link->policy->name);

    struct kvr_route_setup setup = {link->values, cost, seed};
    link->state = calloc(1, link->policy->state_size + 1);
    if (!link->state)
        return kvr_error_memory(error);
    status = link->policy->init ? link->policy->init(link->state, &setup, error) : KVR_OK;
    if (status != KVR_OK) {
        free(link->state);
        return kvr_error_prefix(error, "policy '%s'", link->policy->name);
    }
    return KVR_OK;
}

enum kvr_status kvr_route_chain_read(struct kvr_route_chain *chain, const char *text,
    const struct kvr_cost *cost, uint64_t seed, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    chain->count = 0;
    text = skip_spaces(text);
    while (status == KVR_OK) {
        if (chain->count == KVR_ROUTE_CHAIN_LIMIT) {
            status = kvr_error_set(
                error, KVR_BAD_USAGE, "more than %d policies in a chain", KVR_ROUTE_CHAIN_LIMIT);
            break;
        }
        status = read_link(&chain->links[chain->count], &text, cost, seed + chain->count, error);
        if (status != KVR_OK)
            break;
        chain->count++;
        if (*text == '\0')
            return KVR_OK;
        if (*text != '>') {
            char shown[32];
            status = kvr_error_set(error, KVR_BAD_USAGE, "expected '>' before '%s'",
                kvr_printable(shown, sizeof shown, text, strlen(text)));
            break;
        }
        text = skip_spaces(text + 1);
    }
    kvr_route_chain_release(chain);
    return status;
}

void kvr_route_chain_release(struct kvr_route_chain *chain)
{
    for (uint32_t i = 0; i < chain->count; i++) {
        struct kvr_route_link *link = &chain->links[i];
        if (link->policy->release)
            link->policy->release(link->state);
        free(link->state);
    }
    chain->count = 0;
}
