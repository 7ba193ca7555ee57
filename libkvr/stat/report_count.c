/* What one request adds to a report. */
#include "stat/report_private.h"

#include <math.h>

static void add_sample(const struct kvr_report *report, struct kvr_addition *addition,
    enum kvr_sketch_name sketch, double value)
{
    if (!(value >= 0))
        return;
    addition->samples[addition->sample_count++] = (struct kvr_sample){
        sketch, kvr_sketch_bucket(&report->scale, value), value, kvr_sketch_thousandths(value)};
}

/* Adds the samples whose sketch is in the set `sketches`, a bit each. */
static bool apply(const struct kvr_addition *addition, struct kvr_tally *tally, uint32_t sketches)
{
    bool kept = true;

    for (int i = 0; i < KVR_COUNTER_COUNT; i++)
        tally->counters[i] += addition->counters[i];
    for (unsigned i = 0; i < addition->sample_count; i++) {
        const struct kvr_sample *sample = &addition->samples[i];
        if (sketches >> sample->sketch & 1)
            kept &= kvr_sketch_add_known(&tally->sketches[sample->sketch], sample->bucket,
                sample->value, sample->thousandths);
    }
    return kept;
}

static uint64_t microseconds(double ms)
{
    return ms > 0 ? (uint64_t)llrint(fmin(ms, KVR_SKETCH_MOST) * 1e3) : 0;
}

/* Prefill of the whole prompt and what is saved of it when `cached` tokens need none. */
static void prefill_us(
    const struct kvr_report *report, int64_t input, int64_t cached, uint64_t *full, uint64_t *saved)
{
    const struct kvr_cost *cost = &report->options.cost;
    uint64_t rest;

    *full = microseconds(kvr_cost_prefill_ms(cost, (double)input, 0));
    rest = cached > 0
               ? microseconds(kvr_cost_prefill_ms(cost, (double)(input - cached), (double)cached))
               : *full;
    *saved = *full > rest ? *full - rest : 0;
}

void kvr_add_arrival(const struct kvr_report *report, const struct kvr_facts *facts,
    int64_t reusable, struct kvr_addition *addition)
{
    uint64_t *counters = addition->counters, full, saved;
    int64_t input = facts->input_tokens, best = facts->best_tokens, chosen = facts->chosen_tokens;

    counters[KVR_COUNT_REQUESTS] = 1;
    counters[KVR_COUNT_REJECTED] = facts->rejected;
    counters[KVR_COUNT_NEW] = facts->kind == KVR_KIND_NEW;
    counters[KVR_COUNT_CONTINUED] = facts->kind == KVR_KIND_CONTINUED;
    counters[KVR_COUNT_PROMPT_TOKENS] = input > 0 ? (uint64_t)input : 0;
    if (facts->evicted_tokens > 0)
        counters[KVR_COUNT_EVICTED_TOKENS] = (uint64_t)facts->evicted_tokens;
    if (input < 0)
        return;
    if (reusable >= 0) {
        prefill_us(report, input, reusable, &full, &saved);
        counters[KVR_COUNT_CEILING] = 1;
        counters[KVR_COUNT_CEILING_PROMPT_TOKENS] = (uint64_t)input;
        counters[KVR_COUNT_CEILING_TOKENS] = (uint64_t)reusable;
        counters[KVR_COUNT_CEILING_HITS] = reusable > 0;
        counters[KVR_COUNT_CEILING_PREFILL_US] = full;
        counters[KVR_COUNT_CEILING_SAVED_US] = saved;
    }
    if (facts->rejected || !facts->worker.text)
        return;
    if (best < 0) { /* no match: the infinite cache stands for the best worker */
        best = reusable;
        chosen = facts->reused_tokens;
    }
    if (best < 0 || chosen < 0)
        return;
    best = best < input ? best : input;
    chosen = chosen < input ? chosen : input;
    counters[KVR_COUNT_BEST] = 1;
    counters[KVR_COUNT_BEST_PROMPT_TOKENS] = (uint64_t)input;
    counters[KVR_COUNT_BEST_TOKENS] = (uint64_t)best;
    counters[KVR_COUNT_CHOSEN_TOKENS] = (uint64_t)chosen;
    if (best > chosen) {
        counters[KVR_COUNT_REGRET_TOKENS] = (uint64_t)(best - chosen);
        prefill_us(report, input, best, &full, &saved);
        counters[KVR_COUNT_REGRET_US] = saved;
        prefill_us(report, input, chosen, &full, &saved);
        counters[KVR_COUNT_REGRET_US] -=
            saved < counters[KVR_COUNT_REGRET_US] ? saved : counters[KVR_COUNT_REGRET_US];
    }
}

void kvr_add_reuse(
    const struct kvr_report *report, const struct kvr_facts *facts, struct kvr_addition *addition)
{
    uint64_t *counters = addition->counters;
    int64_t input = facts->input_tokens, reused = facts->reused_tokens;

    if (input < 0 || reused < 0 || facts->rejected)
        return;
    counters[KVR_COUNT_KNOWN] = 1;
    counters[KVR_COUNT_KNOWN_TOKENS] = (uint64_t)input;
    counters[KVR_COUNT_REUSED_TOKENS] = (uint64_t)reused;
    counters[KVR_COUNT_HITS] = reused > 0;
    prefill_us(
        report, input, reused, &counters[KVR_COUNT_PREFILL_US], &counters[KVR_COUNT_SAVED_US]);
    if (!report->options.brief)
        add_sample(report, addition, KVR_SKETCH_MATCH, (double)reused);
}

void kvr_add_outcome(
    const struct kvr_report *report, const struct kvr_facts *facts, struct kvr_addition *addition)
{
    uint64_t *counters = addition->counters;
    double ttft_ms = facts->ttft_ms;
    bool failed =
        facts->answered && facts->status >= 0 && (facts->status == 0 || facts->status >= 400);

    counters[KVR_COUNT_ANSWERED] = facts->answered;
    counters[KVR_COUNT_FAILED] = failed;
    counters[KVR_COUNT_OUTPUT_TOKENS] =
        facts->output_tokens > 0 ? (uint64_t)facts->output_tokens : 0;
    double slo_ms = facts->slo_ttft_ms >= 0 ? facts->slo_ttft_ms : report->options.slo_ttft_ms;
    /* Who is rejected or fails has not been served in time. */
    if (slo_ms > 0 && (ttft_ms >= 0 || failed || facts->rejected)) {
        counters[KVR_COUNT_SLO_KNOWN] = 1;
        counters[KVR_COUNT_SLO_MET] = ttft_ms <= slo_ms && !failed && !facts->rejected;
    }
    if (failed)
        return;
    if (facts->measured_tokens >= 0 && facts->chosen_tokens >= 0) {
        counters[KVR_COUNT_PROMISED] = 1;
        counters[KVR_COUNT_PROMISED_TOKENS] = (uint64_t)facts->chosen_tokens;
        counters[KVR_COUNT_KEPT_TOKENS] =
            (uint64_t)(facts->measured_tokens < facts->chosen_tokens ? facts->measured_tokens
                                                                     : facts->chosen_tokens);
    }
    add_sample(report, addition, KVR_SKETCH_TTFT_NEW + facts->kind, ttft_ms);
    if (report->options.brief)
        return;
    add_sample(report, addition, KVR_SKETCH_E2E_NEW + facts->kind, facts->e2e_ms);
    if (facts->output_tokens > 1)
        add_sample(report, addition, KVR_SKETCH_TPOT_NEW + facts->kind,
            (facts->e2e_ms - ttft_ms) / (double)(facts->output_tokens - 1));
    if (ttft_ms > 0 && facts->predicted_ttft_ms >= 0) {
        counters[KVR_COUNT_PREDICTED] = 1;
        counters[KVR_COUNT_PREDICTED_US] = microseconds(facts->predicted_ttft_ms);
        counters[KVR_COUNT_ACTUAL_US] = microseconds(ttft_ms);
        add_sample(report, addition, KVR_SKETCH_PREDICTION_ERROR,
            fabs(facts->predicted_ttft_ms - ttft_ms) / ttft_ms);
    }
}

enum kvr_status kvr_addition_apply(struct kvr_report *report, const struct kvr_addition *addition,
    const struct kvr_report_place *place, struct kvr_error *error)
{
    bool kept = apply(addition, &report->workers[place->worker].tally, UINT32_MAX);

    if (report->options.by)
        kept &= apply(addition, &report->groups[place->group], UINT32_MAX);
    if (place->pane) {
        const uint64_t *counters = addition->counters;
        struct kvr_worker_load *load = kvr_pane_worker(place->pane, place->worker);
        kept &= load && apply(addition, &place->pane->tally, report->windows.sketches);
        if (load) {
            load->requests += counters[KVR_COUNT_REQUESTS];
            load->prompt_tokens += counters[KVR_COUNT_PROMPT_TOKENS];
            load->known_tokens += counters[KVR_COUNT_KNOWN_TOKENS];
            load->reused_tokens += counters[KVR_COUNT_REUSED_TOKENS];
            load->outstanding =
                fmax(load->outstanding, (double)report->workers[place->worker].outstanding);
        }
    }
    if (report->observe)
        kept &= report->observe(report->observe_context, addition, place, 1);
    return kept ? KVR_OK : kvr_error_memory(error);
}

static void take_back(
    const struct kvr_addition *addition, struct kvr_tally *tally, uint32_t sketches)
{
    for (int i = 0; i < KVR_COUNTER_COUNT; i++)
        tally->counters[i] -= addition->counters[i];
    for (unsigned i = 0; i < addition->sample_count; i++) {
        const struct kvr_sample *sample = &addition->samples[i];
        if (sketches >> sample->sketch & 1)
            kvr_sketch_remove_bucket(
                &tally->sketches[sample->sketch], sample->bucket, sample->value);
    }
}

void kvr_addition_take_back(struct kvr_report *report, const struct kvr_addition *addition,
    const struct kvr_report_place *place)
{
    take_back(addition, &report->workers[place->worker].tally, UINT32_MAX);
    if (report->options.by)
        take_back(addition, &report->groups[place->group], UINT32_MAX);
    if (place->pane) {
        struct kvr_worker_load *load = kvr_pane_worker(place->pane, place->worker);
        take_back(addition, &place->pane->tally, report->windows.sketches);
        if (load) {
            load->known_tokens -= addition->counters[KVR_COUNT_KNOWN_TOKENS];
            load->reused_tokens -= addition->counters[KVR_COUNT_REUSED_TOKENS];
        }
    }
    if (report->observe)
        report->observe(report->observe_context, addition, place, -1);
}

static void clear(struct kvr_tally *tally, enum kvr_counter first, enum kvr_counter last)
{
    memset(&tally->counters[first], 0, ((size_t)last - first + 1) * sizeof tally->counters[0]);
}

void kvr_report_clear(struct kvr_report *report, enum kvr_counter first, enum kvr_counter last)
{
    struct kvr_windows *windows = &report->windows;

    for (uint32_t i = 0; i < report->worker_names.count; i++)
        clear(&report->workers[i].tally, first, last);
    for (size_t i = 0; i < report->group_capacity; i++)
        clear(&report->groups[i], first, last);
    for (int64_t i = 0; i <= windows->ring_mask; i++)
        clear(&windows->ring[i].tally, first, last);
    for (uint32_t i = 0; i < windows->history_count; i++)
        clear(&windows->history[i].tally, first, last);
}
