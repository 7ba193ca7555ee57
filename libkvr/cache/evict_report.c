/* The cache member, the JSON summary and the table. */
#include "cache/evict_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Numbers that people read: at most six decimals, no exponent, no trailing zeros. */
static void append_number(struct kvr_buffer *out, double number)
{
    kvr_append_decimal(out, number, 6);
}

void kvr_append_decimal(struct kvr_buffer *out, double number, int decimals)
{
    char text[400];
    int length = snprintf(text, sizeof text, "%.*f", decimals, isfinite(number) ? number : 0.0);

    while (decimals && length > 0 && text[length - 1] == '0')
        length--;
    if (decimals && length > 0 && text[length - 1] == '.')
        length--;
    kvr_buffer_append(out, text, (size_t)length);
}

static void append_u64(struct kvr_buffer *out, const char *name, uint64_t number)
{
    kvr_buffer_append_byte(out, '"');
    kvr_buffer_append_text(out, name);
    kvr_buffer_append_text(out, "\":");
    kvr_buffer_append_u64(out, number);
}

static void append_u64_next(struct kvr_buffer *out, const char *name, uint64_t number)
{
    kvr_buffer_append_byte(out, ',');
    append_u64(out, name, number);
}

static void append_double_next(struct kvr_buffer *out, const char *name, double number)
{
    kvr_buffer_append_text(out, ",\"");
    kvr_buffer_append_text(out, name);
    kvr_buffer_append_text(out, "\":");
    append_number(out, number);
}

void kvr_evict_write_result(const struct kvr_evict_result *result, struct kvr_buffer *out)
{
    kvr_buffer_append_byte(out, '{');
    append_u64(out, "hit", result->hit_tokens);
    for (int i = 0; i < KVR_MEDIUM_COUNT; i++)
        if (i == KVR_MEDIUM_GPU || result->replay.hit_tokens[i])
            append_u64_next(out, kvr_medium_name((enum kvr_medium)i), result->replay.hit_tokens[i]);
    append_u64_next(out, "evicted", result->evicted_tokens);
    if (result->several_tiers) {
        append_double_next(out, "load_ms", result->times.load_ms);
        append_double_next(out, "loaded_prefill_ms", result->times.loaded_prefill_ms);
        append_u64_next(out, "recomputed", result->times.recomputed_tokens);
    }
    if (result->replay.rejected)
        kvr_buffer_append_text(out, ",\"rejected\":true");
    if (result->replay.truncated)
        kvr_buffer_append_text(out, ",\"truncated\":true");
    kvr_buffer_append_byte(out, '}');
}

static uint64_t sum(const uint64_t numbers[KVR_MEDIUM_COUNT])
{
    uint64_t total = 0;

    for (int i = 0; i < KVR_MEDIUM_COUNT; i++)
        total += numbers[i];
    return total;
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static void append_tiers(struct kvr_buffer *out, const struct kvr_evict_totals *totals)
{
    const struct kvr_cache_stats *stats = &totals->stats;
    bool first = true;

    kvr_buffer_append_text(out, ",\"tiers\":{");
    for (int i = 0; i < KVR_MEDIUM_COUNT; i++) {
        if (!stats->capacity_blocks[i])
            continue;
        kvr_buffer_append_format(
            out, "%s\"%s\":{", first ? "" : ",", kvr_medium_name((enum kvr_medium)i));
        append_u64(out, "capacity_blocks", stats->capacity_blocks[i]);
        append_u64_next(out, "hits", stats->hit_blocks[i]);
        append_u64_next(out, "hit_tokens", stats->hit_tokens[i]);
        append_u64_next(out, "insertions", stats->inserted_blocks[i]);
        append_u64_next(out, "evictions", stats->evicted_blocks[i]);
        append_u64_next(out, "resident", stats->resident_blocks[i]);
        append_u64_next(out, "written_bytes", (uint64_t)llround(totals->written_bytes[i]));
        kvr_buffer_append_byte(out, '}');
        first = false;
    }
    kvr_buffer_append_byte(out, '}');
    append_double_next(out, "load_ms", totals->times.load_ms);
    append_double_next(out, "loaded_prefill_ms", totals->times.loaded_prefill_ms);
    append_u64_next(out, "recomputed_tokens", totals->times.recomputed_tokens);
}

static void append_totals(struct kvr_buffer *out, const struct kvr_evict_totals *totals)
{
    const struct kvr_cache_stats *stats = &totals->stats;
    uint64_t hits = sum(stats->hit_blocks), tokens = sum(stats->hit_tokens);

    append_u64(out, "requests", totals->requests);
    append_u64_next(out, "rejected", totals->rejected);
    append_u64_next(out, "truncated", totals->truncated);
    append_u64_next(out, "accesses", totals->accesses);
    append_u64_next(out, "hits", hits);
    append_u64_next(out, "misses", totals->accesses > hits ? totals->accesses - hits : 0);
    append_double_next(out, "block_hit_rate", ratio((double)hits, (double)totals->accesses));
    append_u64_next(out, "prompt_tokens", stats->prompt_tokens);
    append_u64_next(out, "hit_tokens", tokens);
    append_double_next(out, "token_hit_rate", ratio((double)tokens, (double)stats->prompt_tokens));
    append_u64_next(out, "insertions", sum(stats->inserted_blocks));
    append_u64_next(out, "evictions", sum(stats->evicted_blocks));
    append_u64_next(out, "refused", totals->refused);
    append_u64_next(out, "expired", totals->expired);
    append_u64_next(out, "resident", sum(stats->resident_blocks));
    append_u64_next(out, "capacity_blocks", sum(stats->capacity_blocks));
    append_u64_next(out, "free_blocks", stats->free_blocks);
    append_u64_next(out, "written_bytes", (uint64_t)llround(totals->written_bytes[0]));
    append_double_next(out, "prefill_ms", totals->prefill_ms);
    append_double_next(out, "saved_prefill_ms", totals->saved_ms);
    append_u64_next(out, "memory_bytes", stats->memory_bytes);
    if (totals->has_tiers)
        append_tiers(out, totals);
}

static void append_setup(struct kvr_buffer *out, const struct kvr_evict_setup *setup)
{
    kvr_buffer_append_format(out, "\"engine\":\"%s\"", setup->engine->name);
    if (setup->engine == &kvr_engine_block && !setup->tier_count)
        kvr_buffer_append_format(out, ",\"policy\":\"%s\",\"admission\":\"%s\"",
            setup->policy->name, setup->admission->name);
    if (setup->block_tokens)
        append_u64_next(out, "block_size", setup->block_tokens);
    kvr_buffer_append_byte(out, ',');
}

void kvr_evict_write_json(const struct kvr_evict *evict, struct kvr_buffer *out)
{
    struct kvr_evict_totals totals;
    const char *name;

    kvr_evict_totals(evict, evict->lane_count, &totals, NULL);
    kvr_buffer_append_byte(out, '{');
    append_setup(out, &evict->setup);
    append_totals(out, &totals);
    if (evict->lane_count > 1) {
        kvr_buffer_append_text(out, ",\"workers\":{");
        for (size_t i = 0; i < evict->lane_count; i++) {
            kvr_evict_totals(evict, i, &totals, &name);
            kvr_buffer_append_format(out, "%s\"%s\":{", i ? "," : "", name);
            append_totals(out, &totals);
            kvr_buffer_append_byte(out, '}');
        }
        kvr_buffer_append_byte(out, '}');
    }
    kvr_buffer_append_byte(out, '}');
}

static void append_row(
    struct kvr_buffer *out, const char *name, const struct kvr_evict_totals *totals)
{
    const struct kvr_cache_stats *stats = &totals->stats;
    char printable[25];

    kvr_printable(printable, sizeof printable, name, strlen(name));
    kvr_buffer_append_format(out,
        "%-24s %9llu %11llu %11llu %6.2f%% %6.2f%% %11llu %10llu %12.1f\n", printable,
        (unsigned long long)totals->requests, (unsigned long long)totals->accesses,
        (unsigned long long)sum(stats->hit_blocks),
        100 * ratio((double)sum(stats->hit_blocks), (double)totals->accesses),
        100 * ratio((double)sum(stats->hit_tokens), (double)stats->prompt_tokens),
        (unsigned long long)sum(stats->evicted_blocks), (unsigned long long)totals->rejected,
        totals->saved_ms / 1000);
}

void kvr_evict_write_table(const struct kvr_evict *evict, struct kvr_buffer *out)
{
    struct kvr_evict_totals totals;
    const char *name;

    kvr_buffer_append_format(out, "%-24s %9s %11s %11s %7s %7s %11s %10s %12s\n", "worker",
        "requests", "blocks", "hits", "blocks%", "tokens%", "evicted", "rejected", "saved s");
    for (size_t i = 0; i < evict->lane_count; i++) {
        kvr_evict_totals(evict, i, &totals, &name);
        append_row(out, name, &totals);
    }
    kvr_evict_totals(evict, evict->lane_count, &totals, NULL);
    if (evict->lane_count > 1)
        append_row(out, "all", &totals);
    if (!totals.has_tiers)
        return;
    kvr_buffer_append_format(out, "\n%-8s %12s %12s %16s %12s %12s %14s\n", "tier", "capacity",
        "hits", "hit tokens", "stored", "evicted", "written GiB");
    for (int i = 0; i < KVR_MEDIUM_COUNT; i++)
        if (totals.stats.capacity_blocks[i])
            kvr_buffer_append_format(out, "%-8s %12llu %12llu %16llu %12llu %12llu %14.2f\n",
                kvr_medium_name((enum kvr_medium)i),
                (unsigned long long)totals.stats.capacity_blocks[i],
                (unsigned long long)totals.stats.hit_blocks[i],
                (unsigned long long)totals.stats.hit_tokens[i],
                (unsigned long long)totals.stats.inserted_blocks[i],
                (unsigned long long)totals.stats.evicted_blocks[i],
                totals.written_bytes[i] / 1073741824.0);
    kvr_buffer_append_format(out,
        "loading took %.1f s in place of %.1f s of prefill; %llu tokens were computed again, for "
        "loading them would take longer\n",
        totals.times.load_ms / 1000, totals.times.loaded_prefill_ms / 1000,
        (unsigned long long)totals.times.recomputed_tokens);
}
