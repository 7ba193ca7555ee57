/*
 * kvr-prefill: runs the prefill of each request line and adds `prefill`; or measures the machine.
 * The work is done in kernels/; here is what a line asks for, and what is written.
 */
#include "base/clock.h"
#include "base/grow.h"
#include "base/random.h"
#include "cmd/prefill_options.h"
#include "kernels/line_cached.h"

#include <stdlib.h>

/* What a line asks for. */
struct work {
    struct kvr_request_view view;
    uint64_t tokens, said; /* prompt; cached as the line says */
    bool says;
};

static enum kvr_status read_work(
    struct prefill *prefill, struct work *work, struct kvr_error *error)
{
    const struct kvr_line *line = &prefill->tool.line;
    const char *cached = prefill->settings.cached;
    enum kvr_status status = kvr_request_read(&prefill->reader, line, &work->view, error);

    if (status == KVR_OK && (cached[0] == 'a' || cached[0] == 'l'))
        status = kvr_line_cached(line, &work->says, &work->said, error);
    if (status != KVR_OK)
        return status;
    work->tokens = work->view.request.input_tokens;
    struct kvr_value ids = kvr_line_get(line, KVR_NAME_TOKEN_IDS);
    if (ids.type != KVR_ABSENT && ids.type != KVR_NULL) {
        uint64_t *given =
            kvr_grow(prefill->given, &prefill->given_size, kvr_value_u64s_room(ids), sizeof *given);
        if (!given)
            return kvr_error_memory(error);
        prefill->given = given;
        ptrdiff_t count = ids.type == KVR_ARRAY ? kvr_value_u64s(ids, given) : -1;
        if (count < 0)
            return kvr_error_set(error, KVR_BAD_INPUT, "'token_ids' is not a list of tokens");
        work->tokens = (uint64_t)count;
    }
    if (work->tokens == 0)
        return kvr_error_set(error, KVR_BAD_INPUT, "the prompt has no tokens: no input_length");
    if (work->said >= work->tokens)
        work->said = work->tokens - 1;
    return KVR_OK;
}

/* The prompt: token_ids (modulo the vocabulary where the weights are random), else tokens drawn
 * from the block's id, so that equal blocks have equal tokens. */
static enum kvr_status fill_tokens(
    struct prefill *prefill, const struct work *work, struct kvr_error *error)
{
    const struct kvr_cache_request *request = &work->view.request;
    uint32_t vocabulary = prefill->bench.shape->vocabulary;
    bool given = kvr_line_get(&prefill->tool.line, KVR_NAME_TOKEN_IDS).type == KVR_ARRAY;
    uint32_t *tokens =
        kvr_grow(prefill->tokens, &prefill->token_size, work->tokens, sizeof *tokens);

    if (!tokens)
        return kvr_error_memory(error);
    prefill->tokens = tokens;
    for (uint64_t i = 0; i < work->tokens; i++) {
        uint64_t block = i / request->block_tokens;
        if (given && prefill->file && prefill->given[i] >= vocabulary)
            return kvr_error_set(error, KVR_BAD_INPUT,
                "token %llu is not in the model's vocabulary of %u",
                (unsigned long long)prefill->given[i], vocabulary);
        uint64_t id = block < request->id_count ? request->ids[block] : 0;
        tokens[i] = given ? (uint32_t)(prefill->given[i] % vocabulary)
                          : (uint32_t)(kvr_mix64(kvr_mix64(id) + i) % vocabulary);
    }
    return KVR_OK;
}

static enum kvr_status open_store(
    struct prefill *prefill, uint32_t block_tokens, struct kvr_error *error)
{
    const struct kvr_bench *bench = &prefill->bench;

    if (prefill->store && prefill->block_tokens != block_tokens)
        return kvr_error_set(error, KVR_BAD_INPUT,
            "block_size %u after %u: the KV cache has blocks of one size", block_tokens,
            prefill->block_tokens);
    if (prefill->store)
        return KVR_OK;
    prefill->block_tokens = block_tokens;
    enum kvr_status status = kvr_prefix_store_create(
        bench->pages, bench->page_tokens, block_tokens, &prefill->store, error);
    /* An impossible block size is the line's fault where the line says it. */
    bool line_says = block_tokens != prefill->settings.block_size;
    return status == KVR_BAD_USAGE && line_says ? error->status = KVR_BAD_INPUT : status;
}

static enum kvr_status run_line(struct prefill *prefill, const struct work *work, uint32_t *cached,
    double *time_ms, struct kvr_error *error)
{
    const struct kvr_cache_request *request = &work->view.request;
    const struct kvr_bench *bench = &prefill->bench;
    bool own =
        prefill->settings.cached[0] == 'o' || (prefill->settings.cached[0] == 'a' && !work->says);
    const uint32_t *table;

    /* The store names blocks when it gives them: whatever can be wrong with the line comes first.
     */
    if (work->tokens > (uint64_t)bench->pages * bench->page_tokens)
        return kvr_error_set(error, KVR_BAD_INPUT,
            "a prompt of %llu tokens does not fit into a KV cache of %llu",
            (unsigned long long)work->tokens,
            (unsigned long long)bench->pages * bench->page_tokens);
    enum kvr_status status = fill_tokens(prefill, work, error);
    if (status == KVR_OK)
        status = open_store(prefill, request->block_tokens, error);
    if (status == KVR_OK)
        status = kvr_prefix_store_take(prefill->store, request->ids, own ? request->id_count : 0,
            work->tokens, &table, cached, error);
    if (status != KVR_OK)
        return status;
    if (!own)
        *cached = (uint32_t)work->said;
    struct kvr_step step = {prefill->tokens + *cached, (uint32_t)(work->tokens - *cached), *cached,
        table, prefill->logits};
    tool_long_work(&prefill->tool, true);
    double start = kvr_clock_ms();
    status = bench->backend->run(bench->runner, &step, 1, error);
    *time_ms = kvr_clock_ms() - start;
    tool_long_work(&prefill->tool, false);
    return status;
}

static void write_top(struct prefill *prefill, size_t count)
{
    struct kvr_buffer *out = &prefill->tool.out.buffer;

    kvr_buffer_append_text(out, ",\"top\":[");
    for (size_t i = 0; i < count; i++) {
        kvr_buffer_append_format(
            out, "%s{\"id\":%u,\"logprob\":", i ? "," : "", prefill->top[i].token);
        kvr_json_write_fixed(out, prefill->top[i].log_probability, 6);
        kvr_buffer_append_byte(out, '}');
    }
    kvr_buffer_append_byte(out, ']');
}

/* flops: of the prefill where the shape is known, else 0. top: likeliest tokens found. */
static void write_prefill(struct prefill *prefill, double time_ms, uint64_t fresh, uint64_t cached,
    double flops, size_t top)
{
    static const enum kvr_name dropped[] = {KVR_NAME_PREFILL};
    struct kvr_buffer *out = &prefill->tool.out.buffer;
    bool runs = prefill->bench.runner != NULL;

    kvr_line_begin(&prefill->tool.line, out, dropped, 1);
    kvr_line_add(out, "prefill");
    kvr_buffer_append_text(out, "{\"ms\":");
    kvr_json_write_fixed(out, time_ms, 3);
    kvr_buffer_append_format(out, ",\"tokens\":%llu,\"cached\":%llu", (unsigned long long)fresh,
        (unsigned long long)cached);
    if (flops > 0) {
        kvr_buffer_append_text(out, ",\"tflops\":");
        kvr_json_write_fixed(out, flops / time_ms / 1e9, 4);
    }
    if (flops > 0 && prefill->bench.peak_flops > 0) {
        kvr_buffer_append_text(out, ",\"mfu\":");
        kvr_json_write_fixed(out, flops / time_ms * 1e3 / prefill->bench.peak_flops, 3);
    }
    kvr_buffer_append_format(
        out, ",\"backend\":\"%s\",\"device\":", runs ? prefill->bench.backend->name : "model");
    kvr_json_write_string(out, prefill->device, strlen(prefill->device));
    if (prefill->logits)
        write_top(prefill, top);
    kvr_buffer_append_byte(out, '}');
    kvr_line_end(out);
    kvr_writer_line_done(&prefill->tool.out);
}

static enum kvr_status prefill_line(struct prefill *prefill, struct kvr_error *error)
{
    struct work work = {0};
    uint32_t cached = 0;
    double time_ms = 0;
    size_t top = 0;

    enum kvr_status status = read_work(prefill, &work, error);
    if (status != KVR_OK)
        return status;
    if (prefill->bench.runner) {
        const struct kvr_shape *shape = prefill->bench.shape;
        status = run_line(prefill, &work, &cached, &time_ms, error);
        if (status == KVR_OK && prefill->logits &&
            !(top = kvr_likely_find(
                  prefill->logits, shape->vocabulary, prefill->top, prefill->settings.top)))
            status = kvr_error_set(error, KVR_BAD_INPUT, "the logits are not finite numbers");
        if (status == KVR_OK)
            write_prefill(prefill, time_ms, work.tokens - cached, cached,
                kvr_shape_flops(shape, (double)(work.tokens - cached), cached), top);
        return status;
    }
    uint64_t fresh = work.tokens - work.said;
    time_ms = kvr_cost_prefill_ms(&prefill->cost, (double)fresh, (double)work.said);
    write_prefill(prefill, time_ms, fresh, work.said, 0, 0);
    return KVR_OK;
}

/* A request that no worker got has no prefill. */
static bool rejected(const struct kvr_line *line)
{
    struct kvr_value route = kvr_line_get(line, KVR_NAME_ROUTE);

    return kvr_value_get(route, "worker").type == KVR_NULL;
}

static void prefill_lines(struct prefill *prefill)
{
    struct tool *tool = &prefill->tool;
    struct kvr_error error = {0};

    while (tool_next(tool) == TOOL_LINE) {
        if (kvr_line_is_event(&tool->line) || rejected(&tool->line)) {
            kvr_line_pass(&tool->line, &tool->out);
            continue;
        }
        enum kvr_status status = prefill_line(prefill, &error);
        if (status == KVR_BAD_INPUT) {
            tool_bad_line(tool, &error);
        } else if (status != KVR_OK) {
            tool_fail(tool, &error);
            break;
        }
    }
}

static int prefill_main(struct prefill *prefill)
{
    const struct prefill_settings *settings = &prefill->settings;
    struct kvr_error error = {0};
    enum kvr_status status = prefill_check(&prefill->settings, &error);

    if (status == KVR_OK && prefill_measures(settings)) {
        tool_long_work(&prefill->tool, true);
        status = prefill_measure(prefill, &error);
        tool_long_work(&prefill->tool, false);
        prefill->tool.out.whole = prefill->tool.out.buffer.length;
    } else if (status == KVR_OK) {
        prefill->reader.block_tokens = (uint32_t)settings->block_size;
        status = strcmp(settings->backend, "model") == 0 ? prefill_read_cost(prefill, &error)
                                                         : prefill_start(prefill, &error);
        if (status == KVR_OK)
            prefill_lines(prefill);
    }
    if (status != KVR_OK)
        tool_fail(&prefill->tool, &error);
    if (prefill->bench.runner)
        prefill->bench.backend->destroy(prefill->bench.runner);
    kvr_prefix_store_destroy(prefill->store);
    kvr_request_reader_release(&prefill->reader);
    kvr_model_file_close(prefill->file);
    free(prefill->logits);
    free(prefill->top);
    free(prefill->tokens);
    free(prefill->given);
    return tool_end(&prefill->tool);
}

int main(int argc, char **argv)
{
    static struct prefill prefill;
    const struct kvr_option_group groups[] = {{"Prefill", run_options, &prefill.settings},
        {"Measuring", measure_options, &prefill.settings},
        {"Cost model", cost_options, &prefill.settings}, {0}};

    int begun = tool_begin(&prefill.tool, &program, groups, argc, argv);
    return begun >= 0 ? begun : prefill_main(&prefill);
}
