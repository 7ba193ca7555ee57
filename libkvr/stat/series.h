/*
 * What the /metrics pages of engines and gateways say about one worker, whatever they call it:
 * vLLM, SGLang, llama.cpp, TGI, LMCache and Dynamo. The names are one table; they are compared
 * without `_total` and with ':' and '_' taken for one another, since versions and exporters differ
 * in both.
 */
#ifndef KVR_STAT_SERIES_H
#define KVR_STAT_SERIES_H

#include "stat/exposition.h"

enum { KVR_TTFT_BUCKETS = 64 };

/* NaN: the page has no such series. Counters are since the engine's start. */
struct kvr_engine_series {
    double waiting, running;
    double kv_usage; /* 0 to 1; the fullest engine's where a page has several */
    double prompt_tokens, cached_tokens;
    double evicted_tokens;
    double capacity_tokens;
    struct {
        double until_s;       /* the bucket's upper bound */
        double count;         /* cumulative */
    } ttft[KVR_TTFT_BUCKETS]; /* rising bounds, the last is infinite */
    size_t ttft_count;
};

/* False when the page has no series that is known here. KVR_NO_MEMORY leaves it as false. */
bool kvr_series_read(const char *page, size_t length, struct kvr_engine_series *series);

/* What was added between two readings of a counter; a smaller value than before is a restart, and
 * all of it is new. NaN when either is. */
double kvr_series_increase(double before, double now);

/* A quantile of what came between two readings of the TTFT histogram, interpolated inside its
 * bucket as Prometheus does; NaN when nothing came. In ms. */
double kvr_series_ttft_ms(
    const struct kvr_engine_series *before, const struct kvr_engine_series *now, double q);

#endif
