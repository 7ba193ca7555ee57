#include "cmd/routing.h"

enum kvr_status routing_read(const struct routing_settings *settings,
    struct kvr_router_options *options, struct kvr_error *error)
{
    options->policy = settings->policy;
    options->seed = settings->seed;
    options->escape = settings->escape;
    options->escape_abs = settings->escape_abs;
    options->escape_rel = settings->escape_rel;
    options->escape_share = settings->escape_share;
    options->slo_ttft_ms = settings->slo_ttft_ms;
    options->slo_tbt_ms = settings->slo_tbt_ms;
    options->reject_priority =
        settings->reject_priority > INT32_MAX ? INT32_MAX : (int32_t)settings->reject_priority;
    options->pull = settings->pull;
    options->compression = settings->compression;
    options->default_output_tokens = (double)settings->output_tokens;
    options->load_ttl_ms = settings->load_ttl_ms;
    options->lease_ms = settings->lease_ms;
    options->drain_ms = settings->drain_ms;
    options->explain = settings->explain;
    return kvr_link_read(settings->link, &options->link, error);
}
