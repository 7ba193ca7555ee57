/* What the renderings share. */
#include "stat/render.h"

#include <math.h>

const double kvr_render_quantiles[] = {0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99};
const size_t kvr_render_quantile_count = sizeof kvr_render_quantiles / sizeof *kvr_render_quantiles;

const struct kvr_latency kvr_latencies[3] = {{KVR_SKETCH_TTFT_NEW, "ttft_ms", "TTFT"},
    {KVR_SKETCH_TPOT_NEW, "tpot_ms", "TPOT"}, {KVR_SKETCH_E2E_NEW, "e2e_ms", "end to end"}};

const char *const kvr_kind_names[KVR_KIND_COUNT] = {"new", "continued", "unknown"};

size_t kvr_render_match_bars(const struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale,
    struct kvr_match_bar bars[KVR_MATCH_BARS])
{
    double until = 64;
    size_t count = 1;

    bars[0] = (struct kvr_match_bar){0, sketch->zeros};
    if (sketch->count == 0)
        return 0;
    for (uint64_t seen = sketch->zeros; seen < sketch->count && count < KVR_MATCH_BARS;
         until *= 2, count++) {
        /* Half a bucket of room: a power of two itself belongs to its own bar. */
        uint64_t below = count + 1 == KVR_MATCH_BARS ? sketch->count
                                                     : kvr_sketch_count_until(sketch, scale, until);
        bars[count] = (struct kvr_match_bar){until, below - seen};
        seen = below;
    }
    return count;
}
