/* Any text as a policy chain: refused with a reason, or a router that answers. */
#include "route/router.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kvr_cost cost = {.prefill_token_ms = 1, .kv_bytes_per_token = 1};
    struct kvr_router_options options = kvr_router_defaults();
    struct kvr_router *router;
    struct kvr_error error = {0};
    char *text = strndup((const char *)data, size);

    if (!text)
        return 0;
    options.policy = text;
    if (kvr_router_create(&options, &cost, &router, &error) == KVR_OK) {
        uint64_t block = 5;
        uint32_t worker;
        struct kvr_route_match match = {.worker = 1, .tokens = 7};
        struct kvr_route_request request = {.input_tokens = 10,
            .block_ids = &block,
            .block_count = 1,
            .block_tokens = 10,
            .session = 3,
            .matches = &match,
            .match_count = 1};
        struct kvr_route_decision decision;
        for (char name = 'a'; name < 'd'; name++)
            kvr_fleet_join(kvr_router_fleet(router), &name, 1, &worker, NULL);
        for (int i = 0; i < 3; i++, request.now_ms += 10)
            if (kvr_router_decide(router, &request, &decision, &error) == KVR_OK &&
                decision.worker >= 3)
                abort();
        kvr_router_destroy(router);
    } else if (!error.text[0]) {
        abort();
    }
    free(text);
    return 0;
}
