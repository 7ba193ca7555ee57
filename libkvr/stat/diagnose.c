#include "stat/diagnose.h"

#include <math.h>

struct kvr_diagnosis kvr_diagnose(const struct kvr_view *view, bool has_match)
{
    const uint64_t *counters = view->tally->counters;
    struct kvr_diagnosis diagnosis = {.ceiling = kvr_metric_named(view, "ceiling_token_hit_rate"),
        .best = kvr_metric_named(view, "best_token_hit_rate"),
        .kept = kvr_metric_named(view, "kept_rate"),
        .kv_usage = kvr_metric_named(view, "kv_usage_max"),
        .evicted_unused = kvr_metric_named(view, "evicted_unused_rate"),
        .router = NAN,
        .cache = NAN,
        .workers = view->load_count};
    double prompt = (double)counters[KVR_COUNT_BEST_PROMPT_TOKENS];

    diagnosis.chosen = prompt > 0 ? (double)counters[KVR_COUNT_CHOSEN_TOKENS] / prompt : NAN;
    if (!has_match) /* best stands for the ceiling: nobody knows who held what */
        diagnosis.best = NAN;
    /* One cache alone leaves a router nothing to choose: what it lost, it lost itself. */
    double reused = kvr_metric_named(view, "token_hit_rate");
    if (view->load_count <= 1 && !has_match && !isnan(reused))
        diagnosis.best = diagnosis.chosen = reused;
    else if (diagnosis.best > 0)
        diagnosis.router = diagnosis.chosen / diagnosis.best;
    if (diagnosis.ceiling > 0 && !isnan(diagnosis.best))
        diagnosis.cache = fmin(diagnosis.best / diagnosis.ceiling, 1);
    double could = fmax(diagnosis.ceiling, diagnosis.best);
    if (could < 0.05) {
        diagnosis.verdict = KVR_VERDICT_LITTLE_TO_SHARE;
        return diagnosis;
    }
    bool router = diagnosis.router < KVR_DIAGNOSIS_GOOD &&
                  diagnosis.best - diagnosis.chosen > KVR_DIAGNOSIS_MATTERS;
    bool cache = (diagnosis.cache < KVR_DIAGNOSIS_GOOD &&
                     diagnosis.ceiling - diagnosis.best > KVR_DIAGNOSIS_MATTERS) ||
                 (diagnosis.kept < KVR_DIAGNOSIS_GOOD &&
                     (1 - diagnosis.kept) * diagnosis.chosen > KVR_DIAGNOSIS_MATTERS);
    if (isnan(diagnosis.router) && isnan(diagnosis.cache) && isnan(diagnosis.kept))
        diagnosis.verdict = KVR_VERDICT_UNKNOWN;
    else if (router && cache)
        diagnosis.verdict = KVR_VERDICT_BOTH;
    else if (router)
        diagnosis.verdict = KVR_VERDICT_ROUTER;
    else if (cache)
        diagnosis.verdict = KVR_VERDICT_CACHE;
    else
        diagnosis.verdict = KVR_VERDICT_FINE;
    return diagnosis;
}

const char *kvr_verdict_name(enum kvr_verdict verdict)
{
    static const char *const names[] = {"unknown", "little-to-share", "fine",
        "router-shattering-locality", "cache-thrashing", "router-and-cache"};

    return names[verdict];
}

static void add_percent(struct kvr_buffer *out, const char *format, double share)
{
    if (!isnan(share))
        kvr_buffer_append_format(out, format, share * 100);
}

/* What a verdict would need and this stream does not tell. */
static void add_wants(const struct kvr_diagnosis *diagnosis, struct kvr_buffer *out)
{
    const char *between = ": needs ";

    if (isnan(diagnosis->ceiling)) {
        kvr_buffer_append_format(out, "%sblock ids (kvr-tokenize)", between);
        between = ", ";
    }
    if (isnan(diagnosis->best)) {
        kvr_buffer_append_format(out, "%swhat each worker held (kvr-match)", between);
        between = ", ";
    }
    if (!diagnosis->workers)
        kvr_buffer_append_format(out, "%sthe worker chosen (route.worker)", between);
}

void kvr_diagnosis_text(const struct kvr_diagnosis *diagnosis, struct kvr_buffer *out)
{
    static const char *const sentences[] = {
        "cannot tell",
        "little to share: routing and caching cannot gain much on these prompts",
        "router fine, cache fine",
        "router shattering locality, cache fine: prompts go to workers that hold less than others",
        "router fine, cache thrashing: what is reusable is gone before it is reused",
        "router shattering locality and cache thrashing",
    };

    kvr_buffer_append_text(out, sentences[diagnosis->verdict]);
    if (diagnosis->verdict == KVR_VERDICT_UNKNOWN)
        add_wants(diagnosis, out);
    add_percent(out, "; reusable at best %.1f %%", diagnosis->ceiling);
    add_percent(out, ", held by the best worker %.1f %%", diagnosis->best);
    add_percent(out, ", by the chosen one %.1f %%", diagnosis->chosen);
    add_percent(out, "; the router keeps %.0f %% of what is held", diagnosis->router);
    add_percent(out, ", caches keep %.0f %% of what was seen", diagnosis->cache);
    add_percent(out, ", workers kept %.0f %% of what was matched", diagnosis->kept);
    add_percent(out, "; KV use up to %.0f %%", diagnosis->kv_usage);
    add_percent(out, ", %.0f %% of evicted blocks never reused", diagnosis->evicted_unused);
}
