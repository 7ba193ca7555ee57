/* What kvr_advise() found, as JSON and for people. */
#include "cache/advise.h"
#include "cache/evict.h"

#include <math.h>
#include <string.h>

static const double WORTH = 0.005;

static double gib(const struct kvr_advice *advice, uint64_t blocks)
{
    return (double)blocks * advice->sweep.block_tokens * advice->sweep.kv_bytes_per_token /
           1073741824.0;
}

static double rate(const struct kvr_sweep_cell *cell)
{
    return cell->prompt_tokens ? (double)cell->hit_tokens / (double)cell->prompt_tokens : 0;
}

/* The best cell of [first, end); NULL where none beats the base by more than WORTH of its hits:
 * less is not worth a change. */
static const struct kvr_sweep_cell *best_of(
    const struct kvr_advice *advice, size_t first, size_t end)
{
    const struct kvr_sweep_cell *cells = advice->sweep.cells, *best = &cells[0];

    for (size_t i = first; i < end; i++)
        if (!cells[i].policy->needs_future && kvr_advice_better(&cells[i], best))
            best = &cells[i];
    double gain = (double)best->hit_tokens - (double)cells[0].hit_tokens;
    return gain > WORTH * (double)cells[0].hit_tokens ? best : NULL;
}

/* ── JSON ── */

static void append_real(struct kvr_buffer *out, const char *name, double number)
{
    kvr_buffer_append_format(out, "\"%s\":", name);
    kvr_append_decimal(out, number, 6);
}

static void append_size(struct kvr_buffer *out, const struct kvr_advice *advice, const char *name,
    uint64_t blocks, double hit_rate)
{
    kvr_buffer_append_format(out, "\"%s\":{\"blocks\":%llu,\"tokens\":%llu,\"bytes\":%llu,", name,
        (unsigned long long)blocks, (unsigned long long)(blocks * advice->sweep.block_tokens),
        (unsigned long long)llround(gib(advice, blocks) * 1073741824.0));
    append_real(out, "token_hit_rate", hit_rate);
    kvr_buffer_append_byte(out, '}');
}

static void append_cell(
    struct kvr_buffer *out, const struct kvr_advice *advice, const struct kvr_sweep_cell *cell)
{
    const struct kvr_sweep_cell *base = &advice->sweep.cells[0];

    kvr_buffer_append_format(
        out, "{\"policy\":\"%s\",\"admission\":\"%s\",", cell->policy_text, cell->admission_text);
    append_real(out, "token_hit_rate", rate(cell));
    kvr_buffer_append_format(
        out, ",\"gain_tokens\":%lld,", (long long)cell->hit_tokens - (long long)base->hit_tokens);
    append_real(out, "gain_prefill_ms", cell->saved_ms - base->saved_ms);
    kvr_buffer_append_byte(out, '}');
}

static void append_cells(struct kvr_buffer *out, const struct kvr_advice *advice, const char *name,
    size_t first, size_t end)
{
    kvr_buffer_append_format(out, ",\"%s\":[", name);
    for (size_t i = first; i < end; i++) {
        if (i > first)
            kvr_buffer_append_byte(out, ',');
        append_cell(out, advice, &advice->sweep.cells[i]);
    }
    kvr_buffer_append_byte(out, ']');
}

static void append_pins(const struct kvr_advice *advice, const struct kvr_request_reader *reader,
    struct kvr_buffer *out)
{
    kvr_buffer_append_text(out, ",\"pins\":[");
    for (size_t i = 0; i < advice->pins_advised; i++) {
        const struct kvr_advised_pin *pin = &advice->pins[i];
        kvr_buffer_append_format(out,
            "%s{\"tokens\":%llu,\"requests\":%llu,\"lost_tokens\":%llu,\"hash_ids\":[",
            i ? "," : "", (unsigned long long)(pin->count * advice->sweep.block_tokens),
            (unsigned long long)pin->requests, (unsigned long long)pin->lost_tokens);
        for (size_t j = 0; j < pin->count; j++) {
            if (j)
                kvr_buffer_append_byte(out, ',');
            kvr_buffer_append_u64(out, kvr_request_wire_id(reader, pin->ids[j]));
        }
        kvr_buffer_append_text(out, "]}");
    }
    kvr_buffer_append_byte(out, ']');
}

void kvr_advice_write_json(const struct kvr_advice *advice, const struct kvr_request_reader *reader,
    struct kvr_buffer *out)
{
    const struct kvr_sweep_cell *cells = advice->sweep.cells;

    kvr_buffer_append_byte(out, '{');
    append_size(out, advice, "capacity", advice->capacity_blocks, rate(&cells[0]));
    kvr_buffer_append_byte(out, ',');
    append_size(out, advice, "knee", advice->knee_blocks, advice->knee_rate);
    kvr_buffer_append_byte(out, ',');
    append_size(out, advice, "for_90_percent", advice->most_blocks[0], advice->most_rate[0]);
    kvr_buffer_append_byte(out, ',');
    append_size(out, advice, "for_99_percent", advice->most_blocks[1], advice->most_rate[1]);
    kvr_buffer_append_byte(out, ',');
    append_real(out, "limit_token_hit_rate", advice->limit_rate);
    append_cells(out, advice, "policies", advice->policy_first, advice->policy_end);
    append_cells(out, advice, "admissions", advice->rule_first, advice->rule_end);
    append_pins(advice, reader, out);
    kvr_buffer_append_text(out, ",\"pins_gain\":");
    append_cell(out, advice, &cells[advice->pin_best]);
    kvr_buffer_append_text(out, "}\n");
}

/* ── text ── */

static void size_row(struct kvr_buffer *out, const struct kvr_advice *advice, const char *name,
    uint64_t blocks, double hit_rate)
{
    kvr_buffer_append_format(out, "  %-26s %12llu blocks %14llu tokens %10.2f GiB   %6.2f%%\n",
        name, (unsigned long long)blocks, (unsigned long long)(blocks * advice->sweep.block_tokens),
        gib(advice, blocks), 100 * hit_rate);
}

static void cell_rows(
    struct kvr_buffer *out, const struct kvr_advice *advice, size_t first, size_t end, bool rules)
{
    const struct kvr_sweep_cell *base = &advice->sweep.cells[0];

    for (size_t i = first; i < end; i++) {
        const struct kvr_sweep_cell *cell = &advice->sweep.cells[i];
        kvr_buffer_append_format(out, "  %-26s %6.2f%%  %+14lld tokens  %+10.1f s of prefill%s\n",
            rules ? cell->admission_text : cell->policy_text, 100 * rate(cell),
            (long long)cell->hit_tokens - (long long)base->hit_tokens,
            (cell->saved_ms - base->saved_ms) / 1000,
            cell->policy->needs_future ? "  (the ceiling: knows the future)" : "");
    }
}

void kvr_advice_write_text(const struct kvr_advice *advice, struct kvr_buffer *out)
{
    const struct kvr_sweep_cell *cells = advice->sweep.cells, *policy, *rule;

    kvr_buffer_append_text(out, "SIZE (leaf LRU, per worker; last column: share of tokens hit)\n");
    size_row(out, advice, "advised about", advice->capacity_blocks, rate(&cells[0]));
    size_row(out, advice, "knee of the curve", advice->knee_blocks, advice->knee_rate);
    size_row(out, advice, "for 90% of all hits", advice->most_blocks[0], advice->most_rate[0]);
    size_row(out, advice, "for 99% of all hits", advice->most_blocks[1], advice->most_rate[1]);
    kvr_buffer_append_format(out, "  no size hits more than %.2f%%\n\n", 100 * advice->limit_rate);
    kvr_buffer_append_text(out, "EVICTION (with admission always, against lru)\n");
    cell_rows(out, advice, advice->policy_first, advice->policy_end, false);
    policy = best_of(advice, advice->policy_first, advice->policy_end);
    kvr_buffer_append_format(out, "  advice: %s\n\n", policy ? policy->policy_text : "keep lru");
    kvr_buffer_append_text(out, "ADMISSION (with lru, against always)\n");
    cell_rows(out, advice, advice->rule_first, advice->rule_end, true);
    rule = best_of(advice, advice->rule_first, advice->rule_end);
    kvr_buffer_append_format(out, "  advice: %s\n\n", rule ? rule->admission_text : "keep always");
    kvr_buffer_append_text(out, "PINS (with lru and always)\n");
    for (size_t i = 0; i < advice->pins_advised && i < 10; i++)
        kvr_buffer_append_format(out,
            "  %6zu blocks up to id %-20llu %8llu requests, %12llu tokens computed again\n",
            advice->pins[i].count,
            (unsigned long long)advice->pins[i].ids[advice->pins[i].count - 1],
            (unsigned long long)advice->pins[i].requests,
            (unsigned long long)advice->pins[i].lost_tokens);
    if (advice->pins_advised > 10)
        kvr_buffer_append_format(out, "  … %zu more, see --json\n", advice->pins_advised - 10);
    if (advice->pin_best)
        kvr_buffer_append_format(out,
            "  advice: pin these %zu prefixes: %+lld tokens, %+.1f s of prefill\n",
            advice->pins_advised,
            (long long)cells[advice->pin_best].hit_tokens - (long long)cells[0].hit_tokens,
            (cells[advice->pin_best].saved_ms - cells[0].saved_ms) / 1000);
    else
        kvr_buffer_append_text(out, "  advice: no pin gains anything\n");
}
