#include "stat/series.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

/* How several series of one name (data-parallel engines, cache sources) become one number. */
enum combine { SUM, MOST };

struct meaning {
    const char *name; /* ':' written as '_', without _total */
    size_t at;        /* the member of kvr_engine_series */
    enum combine combine;
    int rank; /* of two names for one member, the lower rank wins */
};

#define AT(member) offsetof(struct kvr_engine_series, member)

/* llama.cpp counts computed and cached prompt tokens apart: see kvr_series_read(). */
static const struct meaning meanings[] = {
    {"vllm_num_requests_waiting", AT(waiting), SUM, 0},
    {"vllm_num_requests_running", AT(running), SUM, 0},
    {"vllm_kv_cache_usage_perc", AT(kv_usage), MOST, 0},
    {"vllm_gpu_cache_usage_perc", AT(kv_usage), MOST, 1}, /* before 0.11 */
    {"vllm_prefix_cache_queries", AT(prompt_tokens), SUM, 0},
    {"vllm_prefix_cache_hits", AT(cached_tokens), SUM, 0},
    {"sglang_num_queue_reqs", AT(waiting), SUM, 0},
    {"sglang_num_running_reqs", AT(running), SUM, 0},
    {"sglang_token_usage", AT(kv_usage), MOST, 0},
    {"sglang_prompt_tokens", AT(prompt_tokens), SUM, 0},
    {"sglang_cached_tokens", AT(cached_tokens), SUM, 0},
    {"sglang_evicted_tokens", AT(evicted_tokens), SUM, 0},
    {"llamacpp_requests_deferred", AT(waiting), SUM, 0},
    {"llamacpp_requests_processing", AT(running), SUM, 0},
    {"llamacpp_kv_cache_usage_ratio", AT(kv_usage), MOST, 0}, /* older ones have it */
    {"llamacpp_prompt_tokens", AT(prompt_tokens), SUM, 0},
    {"llamacpp_prompt_tokens_cached", AT(cached_tokens), SUM, 0},
    {"tgi_queue_size", AT(waiting), SUM, 0},
    {"tgi_batch_current_size", AT(running), SUM, 0},
    {"dynamo_frontend_queued_requests", AT(waiting), SUM, 0},
    {"dynamo_frontend_inflight_requests", AT(running), SUM, 0},
    /* LMCache beside an engine speaks of the same tokens: only where the engine is silent. */
    {"lmcache_num_requested_tokens", AT(prompt_tokens), SUM, 2},
    {"lmcache_num_hit_tokens", AT(cached_tokens), SUM, 2},
};
enum { MEANINGS = sizeof meanings / sizeof *meanings };

static const char *const ttft_names[] = {"vllm_time_to_first_token_seconds",
    "sglang_time_to_first_token_seconds", "dynamo_frontend_time_to_first_token_seconds"};

static bool ends_with(struct kvr_text name, const char *end)
{
    size_t length = strlen(end);

    return name.length > length && memcmp(name.text + name.length - length, end, length) == 0;
}

static bool same_name(struct kvr_text name, const char *plain)
{
    if (strlen(plain) != name.length)
        return false;
    for (size_t i = 0; i < name.length; i++) {
        if (name.text[i] != plain[i] && !(name.text[i] == ':' && plain[i] == '_'))
            return false;
    }
    return true;
}

/* Every rank of a tensor- or pipeline-parallel engine exports the same numbers. */
static bool is_other_rank(const struct kvr_exposition_sample *sample)
{
    static const char *const names[] = {"tp_rank", "pp_rank"};
    struct kvr_buffer rank = {0};
    bool other = false;

    for (int i = 0; i < 2; i++) {
        kvr_buffer_clear(&rank);
        if (kvr_exposition_label(sample, names[i], &rank))
            other |= rank.length != 1 || rank.data[0] != '0';
    }
    kvr_buffer_release(&rank);
    return other;
}

static bool read_label(const struct kvr_exposition_sample *sample, const char *name, double *number)
{
    struct kvr_buffer text = {0};
    char *rest = NULL;
    bool found = kvr_exposition_label(sample, name, &text) && kvr_buffer_text(&text);

    if (found) {
        *number = strtod(text.data, &rest);
        found = rest != text.data && *rest == '\0';
    }
    kvr_buffer_release(&text);
    return found;
}

static void add_ttft(struct kvr_engine_series *series, const struct kvr_exposition_sample *sample)
{
    double until;
    size_t at = 0;

    if (!read_label(sample, "le", &until) || isnan(until) || !(sample->value >= 0))
        return;
    while (at < series->ttft_count && series->ttft[at].until_s < until)
        at++;
    if (at == series->ttft_count || series->ttft[at].until_s != until) {
        if (series->ttft_count == KVR_TTFT_BUCKETS)
            return;
        memmove(&series->ttft[at + 1], &series->ttft[at],
            (series->ttft_count - at) * sizeof series->ttft[0]);
        series->ttft[at].until_s = until;
        series->ttft[at].count = 0;
        series->ttft_count++;
    }
    series->ttft[at].count += sample->value;
}

bool kvr_series_read(const char *page, size_t length, struct kvr_engine_series *series)
{
    struct kvr_exposition exposition = kvr_exposition_open(page, length);
    struct kvr_exposition_sample sample;
    int ranks[sizeof *series / sizeof(double)];
    bool known = false, computed_only = false;

    memset(series, 0, sizeof *series);
    series->waiting = series->running = series->kv_usage = NAN;
    series->prompt_tokens = series->cached_tokens = series->evicted_tokens = NAN;
    series->capacity_tokens = NAN;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        ranks[i] = 9;
    while (kvr_exposition_next(&exposition, &sample)) {
        struct kvr_text name = sample.name;
        double blocks, block_tokens;
        if (ends_with(name, "_total"))
            name.length -= strlen("_total");
        for (int i = 0; i < 3; i++) {
            struct kvr_text stem = name;
            stem.length -= ends_with(name, "_bucket") ? strlen("_bucket") : 0;
            if (stem.length != name.length && same_name(stem, ttft_names[i]) &&
                !is_other_rank(&sample)) {
                add_ttft(series, &sample);
                known = true;
            }
        }
        if (same_name(name, "vllm_cache_config_info") &&
            read_label(&sample, "num_gpu_blocks", &blocks) &&
            read_label(&sample, "block_size", &block_tokens) && blocks * block_tokens > 0)
            series->capacity_tokens =
                blocks * block_tokens +
                (isnan(series->capacity_tokens) ? 0 : series->capacity_tokens);
        for (int i = 0; i < MEANINGS; i++) {
            const struct meaning *meaning = &meanings[i];
            if (!same_name(name, meaning->name) || !isfinite(sample.value) || sample.value < 0 ||
                is_other_rank(&sample))
                continue;
            double *member = (double *)((char *)series + meaning->at);
            int *rank = &ranks[meaning->at / sizeof(double)];
            if (meaning->rank > *rank)
                break;
            if (meaning->rank < *rank || isnan(*member))
                *member = sample.value;
            else
                *member =
                    meaning->combine == SUM ? *member + sample.value : fmax(*member, sample.value);
            *rank = meaning->rank;
            computed_only |= same_name(name, "llamacpp_prompt_tokens");
            known = true;
            break;
        }
    }
    if (computed_only && !isnan(series->cached_tokens))
        series->prompt_tokens += series->cached_tokens;
    else if (computed_only)
        series->prompt_tokens = NAN; /* without the cached ones it is no share of anything */
    return known;
}

double kvr_series_increase(double before, double now)
{
    return now >= before ? now - before : isnan(before) ? NAN : now;
}

double kvr_series_ttft_ms(
    const struct kvr_engine_series *before, const struct kvr_engine_series *now, double q)
{
    double counts[KVR_TTFT_BUCKETS], all, below = 0;
    size_t count = now->ttft_count;
    bool restarted = before->ttft_count != count;

    for (size_t i = 0; i < count && !restarted; i++)
        restarted = before->ttft[i].until_s != now->ttft[i].until_s ||
                    before->ttft[i].count > now->ttft[i].count;
    for (size_t i = 0; i < count; i++)
        counts[i] = now->ttft[i].count - (restarted ? 0 : before->ttft[i].count);
    all = count ? counts[count - 1] : 0;
    if (!(all > 0))
        return NAN;
    for (size_t i = 0; i < count; i++) {
        double low = i ? now->ttft[i - 1].until_s : 0, high = now->ttft[i].until_s;
        if (counts[i] < q * all) {
            below = counts[i];
            continue;
        }
        if (isinf(high)) /* beyond the last bound: that is all that is known */
            return low * 1e3;
        return (low + (high - low) * (q * all - below) / (counts[i] - below)) * 1e3;
    }
    return NAN;
}
