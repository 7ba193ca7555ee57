#include "line/format.h"

extern const struct kvr_format kvr_format_bailian, kvr_format_azure, kvr_format_ragpulse,
    kvr_format_agent, kvr_format_aiperf, kvr_format_vllm_bench, kvr_format_sglang,
    kvr_format_litellm, kvr_format_nginx;

static const struct kvr_format kvr_format_kvr = {
    .name = "kvr", .summary = "lines of kvr-stream(7) as they are", .json = true};
static const struct kvr_format kvr_format_mooncake = {
    .name = "mooncake", .summary = "Mooncake traces: kvr's own base, as they are", .json = true};

const struct kvr_format *const kvr_formats[] = {&kvr_format_kvr, &kvr_format_mooncake,
    &kvr_format_bailian, &kvr_format_azure, &kvr_format_ragpulse, &kvr_format_agent,
    &kvr_format_aiperf, &kvr_format_vllm_bench, &kvr_format_sglang, &kvr_format_litellm,
    &kvr_format_nginx, NULL};

const struct kvr_format *kvr_format_find(const char *name)
{
    for (size_t i = 0; kvr_formats[i]; i++) {
        if (strcmp(kvr_formats[i]->name, name) == 0)
            return kvr_formats[i];
    }
    return NULL;
}
