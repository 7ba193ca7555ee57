#include "cost/explain.h"

#include <math.h>

void kvr_cost_explain(const struct kvr_cost *cost, double tokens, struct kvr_buffer *out)
{
    static const double shares[] = {0, 0.5, 0.9, 0.99};

    kvr_buffer_append_format(out, "A prompt of %.0f tokens, no queue\n", tokens);
    kvr_buffer_append_text(out, "cached   cached_tokens   new_tokens    ttft_ms\n");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double cached = floor(tokens * shares[i]);
        kvr_buffer_append_format(out, "%4.0f %%   %13.0f   %10.0f   %8.2f\n", shares[i] * 100,
            cached, tokens - cached, kvr_cost_prefill_ms(cost, tokens - cached, cached));
    }
    kvr_buffer_append_format(out,
        "\nDecoding it alone, a token      %9.2f ms\n"
        "64 of them in one batch         %9.2f ms\n"
        "KV of a token                   %9.0f bytes\n"
        "KV that fits beside the weights %9.0f tokens\n"
        "\nMoving its KV takes\n",
        kvr_cost_decode_ms(cost, 1, tokens), kvr_cost_decode_ms(cost, 64, 64 * tokens),
        cost->kv_bytes_per_token, cost->kv_capacity_tokens);
    for (size_t i = 0; i < kvr_link_count; i++)
        kvr_buffer_append_format(out, "%-14s %9.2f ms\n", kvr_links[i].name,
            kvr_cost_transfer_ms(cost, &kvr_links[i], 1, tokens));
}
