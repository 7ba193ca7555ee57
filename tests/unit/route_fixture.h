/* A router under test: workers w0, w1, …, requests in one line each. */
#ifndef KVR_TESTS_ROUTE_FIXTURE_H
#define KVR_TESTS_ROUTE_FIXTURE_H

#include "route/router.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

/* A cost model for hand computation: 1 ms a new token, and so 1 ms a decode step of one. */
static const struct kvr_cost one_ms_a_token = {
    .prefill_token_ms = 1,
    .kv_bytes_per_token = 1000,
};

static inline struct kvr_router *fixture_router_with(
    const struct kvr_router_options *options, uint32_t workers)
{
    struct kvr_router *router;
    struct kvr_error error = {0};

    if (kvr_router_create(options, &one_ms_a_token, &router, &error) != KVR_OK)
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < workers; i++) {
        char name[16];
        uint32_t worker;
        snprintf(name, sizeof name, "w%u", i);
        assert_int_equal(
            kvr_fleet_join(kvr_router_fleet(router), name, strlen(name), &worker, &error), KVR_OK);
        assert_int_equal(worker, i);
    }
    return router;
}

static inline struct kvr_router *fixture_router(const char *policy, uint32_t workers)
{
    struct kvr_router_options options = kvr_router_defaults();

    options.policy = policy;
    return fixture_router_with(&options, workers);
}

/* One decision on a request; without a length it has 100 tokens. */
static inline struct kvr_route_decision fixture_decide(
    struct kvr_router *router, const struct kvr_route_request *request)
{
    struct kvr_route_request copy = *request;
    struct kvr_route_decision decision;

    if (!copy.input_tokens)
        copy.input_tokens = 100;
    assert_int_equal(kvr_router_decide(router, &copy, &decision, NULL), KVR_OK);
    return decision;
}

/* Makes a worker look loaded with so many requests of one token, by its own report. */
static inline void fixture_load(struct kvr_router *router, uint32_t worker, uint32_t requests)
{
    struct kvr_load_report report = {.waiting = requests, .kv_usage = NAN, .tokens = requests};

    kvr_fleet_report(kvr_router_fleet(router), worker, &report);
}

#define REQUEST(...) (&(struct kvr_route_request){__VA_ARGS__})
#define MATCHES(...)                                                                               \
    .matches = (struct kvr_route_match[]){__VA_ARGS__},                                            \
    .match_count =                                                                                 \
        sizeof((struct kvr_route_match[]){__VA_ARGS__}) / sizeof(struct kvr_route_match)

#endif
