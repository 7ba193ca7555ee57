/*
 * How to decide, and at what cost: the options that kvr-route and kvr-sim (and with the cost model
 * kvr-stats) have in common, so that what is tried in one is said in the same words in the other.
 */
#ifndef KVR_CMD_ROUTING_H
#define KVR_CMD_ROUTING_H

#include "cost/cost.h"
#include "route/router.h"

#include <stddef.h>

/* In a program's settings as the member `routing`. */
struct routing_settings {
    const char *policy, *link, *session;
    bool escape, pull, explain;
    double escape_abs, escape_rel, escape_share;
    double slo_ttft_ms, slo_tbt_ms;
    double compression, drain_ms, load_ttl_ms, lease_ms;
    uint64_t reject_priority, output_tokens, seed;
};

#define ROUTING_AT(settings, member) offsetof(settings, routing.member)

#define ROUTING_OPTIONS_ESCAPE(settings)                                                           \
    {0, "escape", KVR_OPTION_FLAG, ROUTING_AT(settings, escape), NULL,                             \
        "refuses a choice whose load is above the least by both --escape-abs and --escape-rel",    \
        NULL, NULL},                                                                               \
        {0, "escape-abs", KVR_OPTION_REAL, ROUTING_AT(settings, escape_abs), "REQUESTS",           \
            "the absolute part of the gate", "8", NULL},                                           \
        {0, "escape-rel", KVR_OPTION_REAL, ROUTING_AT(settings, escape_rel), "FACTOR",             \
            "the relative part of the gate", "1.5", NULL},                                         \
    {                                                                                              \
        0, "escape-share", KVR_OPTION_REAL, ROUTING_AT(settings, escape_share), "FACTOR",          \
            "with --escape, also refuses a worker with so many times its fair share of recent "    \
            "requests while another idles",                                                        \
            "2", NULL                                                                              \
    }
#define ROUTING_OPTION_REJECT_PRIORITY(settings)                                                   \
    {                                                                                              \
        0, "reject-priority", KVR_OPTION_COUNT, ROUTING_AT(settings, reject_priority), "N",        \
            "never rejects requests of a higher priority", "0", NULL                               \
    }
#define ROUTING_OPTION_PULL(settings)                                                              \
    {                                                                                              \
        0, "pull", KVR_OPTION_FLAG, ROUTING_AT(settings, pull), NULL,                              \
            "fetches KV from a worker that holds more, where that takes less time than computing " \
            "it",                                                                                  \
            NULL, NULL                                                                             \
    }
#define ROUTING_OPTIONS_LINK(settings)                                                             \
    {0, "link", KVR_OPTION_TEXT, ROUTING_AT(settings, link), "LINK",                               \
        "the link between workers: a name of kvr-cost(5) or a bandwidth as 12.5GB/s", "rdma-200",  \
        kvr_link_names},                                                                           \
    {                                                                                              \
        0, "compression", KVR_OPTION_REAL, ROUTING_AT(settings, compression), "FACTOR",            \
            "how many times smaller KV is on that link (CacheGen: 3.5 to 4.3)", "1", NULL          \
    }
#define ROUTING_OPTIONS_PATIENCE(settings)                                                         \
    {0, "drain", KVR_OPTION_TIME_MS, ROUTING_AT(settings, drain_ms), "TIME",                       \
        "a draining worker keeps its open sessions for so long", "60s", NULL},                     \
        {0, "load-ttl", KVR_OPTION_TIME_MS, ROUTING_AT(settings, load_ttl_ms), "TIME",             \
            "a load line counts for so long", "10s", NULL},                                        \
    {                                                                                              \
        0, "lease", KVR_OPTION_TIME_MS, ROUTING_AT(settings, lease_ms), "TIME",                    \
            "a request whose done line never comes counts as load for so long", "10m", NULL        \
    }
#define ROUTING_OPTION_OUTPUT_TOKENS(settings)                                                     \
    {                                                                                              \
        0, "output-tokens", KVR_OPTION_COUNT, ROUTING_AT(settings, output_tokens), "TOKENS",       \
            "stands for an output length that the line does not tell", "256", NULL                 \
    }
#define ROUTING_OPTION_SESSION(settings)                                                           \
    {                                                                                              \
        0, "session", KVR_OPTION_TEXT, ROUTING_AT(settings, session), "EXPRESSION",                \
            "where the session is; without it session, the conversation of chat_id, or user",      \
            NULL, NULL                                                                             \
    }
#define ROUTING_OPTIONS_END(settings)                                                              \
    {0, "seed", KVR_OPTION_COUNT, ROUTING_AT(settings, seed), "N", "for policies with chance",     \
        "1", NULL},                                                                                \
    {                                                                                              \
        0, "explain", KVR_OPTION_FLAG, ROUTING_AT(settings, explain), NULL,                        \
            "adds route.candidates: every candidate's numbers", NULL, NULL                         \
    }

/* settings has const char *model, *gpu, *cost_file and double mfu. */
#define COST_OPTIONS(settings)                                                                     \
    {0, "model", KVR_OPTION_TEXT, offsetof(settings, model), "MODEL",                              \
        "the model, see kvr-cost(5)", KVR_COST_DEFAULT_MODEL, kvr_model_names},                    \
        {0, "gpu", KVR_OPTION_TEXT, offsetof(settings, gpu), "GPU",                                \
            "a worker's GPUs, as h100 or 8xh100", KVR_COST_DEFAULT_GPU, kvr_gpu_names},            \
        {0, "mfu", KVR_OPTION_REAL, offsetof(settings, mfu), "SHARE",                              \
            "share of the GPU's peak that a prefill reaches; 0: the preset's", "0", NULL},         \
    {                                                                                              \
        0, "cost", KVR_OPTION_TEXT, offsetof(settings, cost_file), "FILE",                         \
            "a cost file, as kvr-prefill --calibrate writes it", NULL, "<file>"                    \
    }

/* What the settings say, in router options as kvr_router_defaults() gives them. Fails as
 * kvr_link_read(). */
enum kvr_status routing_read(const struct routing_settings *settings,
    struct kvr_router_options *options, struct kvr_error *error);

#endif
