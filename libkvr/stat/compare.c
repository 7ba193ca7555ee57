#include "stat/compare.h"

#include "stat/report_private.h"

#include <math.h>
#include <stdlib.h>

unsigned kvr_replicate_weight(uint64_t unit, unsigned r)
{
    /* The distribution function of Poisson(1), in 2^-32: 1/e, 2/e, 2.5/e, … */
    static const uint32_t until[] = {1580030168u, 3160060337u, 3950075421u, 4213413783u,
        4279248373u, 4292415291u, 4294609777u, 4294923276u, 4294962463u, 4294966817u};
    uint32_t chance = (uint32_t)(kvr_mix64(unit + (r + 1) * 0x9e3779b97f4a7c15u) >> 32);
    unsigned weight = 0;

    while (weight < sizeof until / sizeof *until && chance >= until[weight])
        weight++;
    return weight;
}

static bool add_weighted(struct kvr_replicates *replicates, unsigned r, unsigned weight,
    const struct kvr_addition *addition, uint32_t worker, int sign)
{
    struct kvr_tally *tally = &replicates->tallies[r];
    bool kept = true;

    for (int i = 0; i < KVR_COUNTER_COUNT; i++)
        tally->counters[i] += (uint64_t)sign * weight * addition->counters[i];
    for (unsigned i = 0; i < addition->sample_count; i++) {
        const struct kvr_sample *sample = &addition->samples[i];
        struct kvr_sketch *sketch = &tally->sketches[sample->sketch];
        if (sign > 0) {
            kept &= kvr_sketch_add_bucket(sketch, sample->bucket, sample->value, weight);
            continue;
        }
        for (unsigned time = 0; time < weight; time++)
            kvr_sketch_remove_bucket(sketch, sample->bucket, sample->value);
    }
    if (worker < KVR_COMPARED_WORKERS) {
        struct kvr_worker_load *load = &replicates->loads[r * KVR_COMPARED_WORKERS + worker];
        uint64_t times = (uint64_t)sign * weight;
        load->requests += times * addition->counters[KVR_COUNT_REQUESTS];
        load->prompt_tokens += times * addition->counters[KVR_COUNT_PROMPT_TOKENS];
        load->known_tokens += times * addition->counters[KVR_COUNT_KNOWN_TOKENS];
        load->reused_tokens += times * addition->counters[KVR_COUNT_REUSED_TOKENS];
    }
    return kept;
}

static bool observe(void *context, const struct kvr_addition *addition,
    const struct kvr_report_place *place, int sign)
{
    struct kvr_replicates *replicates = context;
    bool kept = true;

    for (unsigned r = 0; r < KVR_REPLICATES; r++) {
        unsigned weight = kvr_replicate_weight(place->unit, r);
        if (weight)
            kept &= add_weighted(replicates, r, weight, addition, place->worker, sign);
    }
    return kept;
}

enum kvr_status kvr_replicates_watch(
    struct kvr_replicates *replicates, struct kvr_report *report, struct kvr_error *error)
{
    replicates->report = report;
    replicates->tallies = calloc(KVR_REPLICATES, sizeof *replicates->tallies);
    replicates->loads =
        calloc((size_t)KVR_REPLICATES * KVR_COMPARED_WORKERS, sizeof *replicates->loads);
    if (!replicates->tallies || !replicates->loads)
        return kvr_error_memory(error);
    report->observe = observe;
    report->observe_context = replicates;
    return KVR_OK;
}

void kvr_replicates_release(struct kvr_replicates *replicates)
{
    for (unsigned r = 0; r < KVR_REPLICATES && replicates->tallies; r++)
        kvr_tally_release(&replicates->tallies[r]);
    free(replicates->tallies);
    free(replicates->loads);
    memset(replicates, 0, sizeof *replicates);
}

/* A metric in one replicate; what the replicates do not count (events, KV use) has no noise here.
 */
static double replicate_value(
    const struct kvr_metric *metric, const struct kvr_compared *compared, unsigned r)
{
    const struct kvr_run_view *run = &compared->run;
    struct kvr_worker_load loads[KVR_COMPARED_WORKERS];
    uint32_t count = 0;

    for (uint32_t i = 0; i < run->view.load_count; i++) {
        uint32_t worker = run->load_workers[i];
        if (worker < KVR_COMPARED_WORKERS && count < KVR_COMPARED_WORKERS)
            loads[count++] = compared->replicates.loads[r * KVR_COMPARED_WORKERS + worker];
    }
    struct kvr_view view = {run->view.scale, &compared->replicates.tallies[r], run->view.span_ms,
        loads, run->view.load_count <= KVR_COMPARED_WORKERS ? count : 0};
    return kvr_metric_value(metric, &view);
}

static int compare_doubles(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;

    return (first > second) - (first < second);
}

struct kvr_difference kvr_compare(const struct kvr_metric *metric, const struct kvr_compared *first,
    const struct kvr_compared *other)
{
    struct kvr_difference difference = {.low = NAN, .high = NAN};
    double differences[KVR_REPLICATES];
    size_t count = 0;

    difference.value =
        kvr_metric_value(metric, &other->run.view) - kvr_metric_value(metric, &first->run.view);
    for (unsigned r = 0; r < KVR_REPLICATES; r++) {
        double value = replicate_value(metric, other, r) - replicate_value(metric, first, r);
        if (!isnan(value))
            differences[count++] = value;
    }
    if (count < KVR_REPLICATES / 2 || isnan(difference.value))
        return difference;
    qsort(differences, count, sizeof *differences, compare_doubles);
    difference.low = differences[(size_t)(0.025 * (double)(count - 1))];
    difference.high = differences[count - 1 - (size_t)(0.025 * (double)(count - 1))];
    difference.beyond_noise = difference.low > 0 || difference.high < 0;
    return difference;
}

enum kvr_status kvr_metrics_read(
    const char *text, const struct kvr_metric **metrics, size_t most, struct kvr_error *error)
{
    size_t count = 0;

    if (!text)
        text = "requests,token_hit_rate,request_hit_rate,time_saved_rate,regret_rate,ttft_p50_ms,"
               "ttft_p99_ms,ttft_new_p50_ms,ttft_continued_p50_ms,tpot_p50_ms,e2e_p50_ms,"
               "goodput_share,rejected_rate,load_skew,load_jain";
    while (*text) {
        size_t length = strcspn(text, ",");
        const struct kvr_metric *metric = kvr_metric_find(text, length);
        char safe[100];
        if (!metric)
            return kvr_error_set(error, KVR_BAD_USAGE, "there is no metric '%s'",
                kvr_printable(safe, sizeof safe, text, length));
        if (count + 1 >= most)
            return kvr_error_set(error, KVR_BAD_USAGE, "more than %zu metrics", most - 1);
        metrics[count++] = metric;
        text += length + (text[length] == ',');
    }
    metrics[count] = NULL;
    return KVR_OK;
}
