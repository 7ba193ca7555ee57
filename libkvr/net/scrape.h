/*
 * Polling the /metrics pages of workers over HTTP, all at once, and saying what they say as event
 * lines: `load` for each worker that answers, `worker` with state down when one stops to answer and
 * active when it is back.
 *
 * A load line has, beside waiting, running and kv_usage, what came since the poll before:
 * prompt_tokens, cached_tokens, evicted_tokens, ttft_p50_ms, ttft_p99_ms (from the engine's own
 * histogram, so as coarse as its buckets). Members whose series a page lacks are left out; a
 * counter that went down was reset by a restart and counts from 0.
 */
#ifndef KVR_NET_SCRAPE_H
#define KVR_NET_SCRAPE_H

#include "base/buffer.h"

struct kvr_scraper;

enum { KVR_SCRAPE_TARGETS = 1024 };

/*
 * targets is "URL,URL,…", each "http://host:port/metrics" or shorter: "host:port" stands for it;
 * "name=URL" names the worker, else it is host:port. KVR_BAD_USAGE. A page may take timeout_ms.
 */
enum kvr_status kvr_scraper_create(
    struct kvr_scraper **scraper, const char *targets, double timeout_ms, struct kvr_error *error);
void kvr_scraper_destroy(struct kvr_scraper *scraper);

/* Asks every worker once and waits for all answers; emit() gets each line without a newline, in the
 * order of the targets. now_ms stamps them. */
enum kvr_status kvr_scraper_poll(struct kvr_scraper *scraper, double now_ms,
    enum kvr_status (*emit)(void *context, const char *line, size_t length), void *context,
    struct kvr_error *error);

/* How many workers the last poll got an answer from, and how many there are. */
void kvr_scraper_answers(const struct kvr_scraper *scraper, size_t *answered, size_t *targets);

#endif
