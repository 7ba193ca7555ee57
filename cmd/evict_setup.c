/* kvr-evict's options read into what the library takes. */
#include "cmd/evict.h"
#include "line/worker.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CAPACITY_TOKENS = 1000000, DEFAULT_BLOCK_TOKENS = 512 };

static struct kvr_text_piece piece_of(const char *text)
{
    return (struct kvr_text_piece){text, strlen(text)};
}

/* "0.3" or "30%", above 0 and at most 1. */
static enum kvr_status read_share(
    const char *text, const char *option, double *share, struct kvr_error *error)
{
    char *end;

    *share = strtod(text, &end);
    if (end != text && *end == '%') {
        *share /= 100;
        end++;
    }
    if (end == text || *end || !(*share > 0 && *share <= 1))
        return kvr_error_set(
            error, KVR_BAD_USAGE, "%s: '%.40s' is not a share such as 30%%", option, text);
    return KVR_OK;
}

static enum kvr_status read_quotas(struct evict_program *evict, struct kvr_error *error)
{
    const struct kvr_text_list *list = &evict->settings->quotas;

    for (size_t i = 0; i < list->count; i++) {
        struct kvr_text_piece rest = piece_of(list->items[i]), piece;
        while (kvr_list_next(&rest, ',', &piece)) {
            const char *equals = memrchr(piece.text, '=', piece.length);
            char share[32];
            size_t length = equals ? (size_t)(piece.text + piece.length - equals - 1) : 0;
            if (!equals || equals == piece.text || length >= sizeof share)
                return kvr_error_set(
                    error, KVR_BAD_USAGE, "--quota: '%.40s' is not TENANT=SHARE", list->items[i]);
            if (evict->setup.quota_count == KVR_QUOTAS_MOST)
                return kvr_error_set(error, KVR_BAD_USAGE, "more than %d quotas", KVR_QUOTAS_MOST);
            struct kvr_quota *quota = &evict->quotas[evict->setup.quota_count++];
            quota->tenant = (struct kvr_text_piece){piece.text, (size_t)(equals - piece.text)};
            memcpy(share, equals + 1, length);
            share[length] = '\0';
            enum kvr_status status = read_share(share, "--quota", &quota->share, error);
            if (status != KVR_OK)
                return status;
        }
    }
    evict->setup.quotas = evict->quotas;
    return KVR_OK;
}

static enum kvr_status read_tiers(struct evict_program *evict, struct kvr_error *error)
{
    const struct kvr_text_list *list = &evict->settings->tiers;

    if (list->count > KVR_MEDIUM_COUNT)
        return kvr_error_set(error, KVR_BAD_USAGE, "more than %d tiers", KVR_MEDIUM_COUNT);
    for (size_t i = 0; i < list->count; i++) {
        enum kvr_status status = kvr_tier_read(list->items[i], &evict->tiers[i], error);
        if (status != KVR_OK)
            return status;
    }
    evict->setup.tiers = evict->tiers;
    evict->setup.tier_count = list->count;
    return KVR_OK;
}

static enum kvr_status read_cost(struct evict_program *evict, struct kvr_error *error)
{
    const struct evict_settings *settings = evict->settings;
    enum kvr_status status = kvr_cost_settle(
        &evict->cost, settings->model, settings->gpu, settings->mfu, settings->cost_file, error);

    evict->setup.prefill =
        (struct kvr_prefill_cost){evict->cost.prefill_token_ms, evict->cost.prefill_pair_ms};
    evict->setup.kv_bytes_per_token = evict->cost.kv_bytes_per_token;
    return status;
}

static enum kvr_status read_choices(struct evict_program *evict, struct kvr_error *error)
{
    const struct evict_settings *settings = evict->settings;
    struct kvr_evict_setup *setup = &evict->setup;
    enum kvr_status status =
        kvr_engine_read(settings->engine, &setup->engine, evict->engine_values, error);

    if (status == KVR_OK)
        status = kvr_choice_policy(
            piece_of(settings->policy), &setup->policy, evict->policy_values, error);
    if (status == KVR_OK)
        status = kvr_choice_admission(
            piece_of(settings->admission), &setup->admission, evict->admission_values, error);
    setup->engine_values = evict->engine_values;
    setup->policy_values = evict->policy_values;
    setup->admission_values = evict->admission_values;
    if (status == KVR_OK && settings->pool) {
        if (strncmp(settings->pool, "shared=", 7))
            return kvr_error_set(error, KVR_BAD_USAGE, "--pool is shared=SHARE");
        status = read_share(settings->pool + 7, "--pool", &setup->pool_shared, error);
    }
    if (status == KVR_OK && setup->engine == &kvr_engine_block && strchr(settings->engine, '('))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "the block engine's parameters are options here: --policy, --admission, --outputs, "
            "--no-pin-path, --pool");
    if (status == KVR_OK && setup->engine != &kvr_engine_block &&
        (strcmp(settings->policy, "lru") || strcmp(settings->admission, "always") ||
            settings->plain || settings->pool || settings->outputs || settings->pin))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--policy, --admission, --outputs, --no-pin-path, --pin and --pool are the block "
            "engine's; give engine '%s' its own parameters, see --engine help",
            setup->engine->name);
    return status;
}

static enum kvr_status read_expressions(struct evict_program *evict, struct kvr_error *error)
{
    const struct evict_settings *settings = evict->settings;
    enum kvr_status status = KVR_OK;

    if (settings->pin)
        status = kvr_expression_create(&evict->pin, settings->pin, error);
    if (status == KVR_OK && settings->session)
        status = kvr_expression_create(&evict->reader.session.expression, settings->session, error);
    if (status == KVR_OK && settings->quotas.count)
        status = kvr_expression_create(&evict->reader.tenant, settings->tenant, error);
    evict->reader.wants_session = settings->pool || settings->sample < 1 || settings->sweep;
    return status;
}

enum kvr_status evict_prepare(struct evict_program *evict, struct kvr_error *error)
{
    const struct evict_settings *settings = evict->settings;
    struct kvr_evict_setup *setup = &evict->setup;

    if (settings->block_size > 1 << 30)
        return kvr_error_set(error, KVR_BAD_USAGE, "--block-size is out of range");
    if (settings->points > 64 || settings->threads > 256)
        return kvr_error_set(error, KVR_BAD_USAGE, "--points is at most 64, --threads 256");
    if (settings->live >= 1 << 20)
        return kvr_error_set(error, KVR_BAD_USAGE, "--live is below 2^20");
    evict->reader.block_tokens =
        settings->block_size ? (uint32_t)settings->block_size : DEFAULT_BLOCK_TOKENS;
    setup->block_tokens = (uint32_t)settings->block_size;
    setup->capacity = settings->capacity;
    evict->capacity_given = settings->capacity.amount != 0;
    if (!evict->capacity_given)
        setup->capacity = (struct kvr_capacity){DEFAULT_CAPACITY_TOKENS, KVR_TOKENS};
    setup->plain = settings->plain;
    setup->outputs = settings->outputs;
    setup->seed = settings->seed;
    setup->live = (uint32_t)settings->live;
    setup->skip_last_token = settings->skip_last_token;
    setup->events = settings->events;
    setup->worker = settings->worker;
    if (!*setup->worker || strlen(setup->worker) > KVR_WORKER_NAME_BYTES_MOST)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "--worker is not 1 to %d bytes", KVR_WORKER_NAME_BYTES_MOST);
    enum kvr_status status = read_choices(evict, error);
    if (status == KVR_OK)
        status = read_quotas(evict, error);
    if (status == KVR_OK)
        status = read_tiers(evict, error);
    if (status == KVR_OK)
        status = read_cost(evict, error);
    if (status == KVR_OK)
        status = read_expressions(evict, error);
    if (status != KVR_OK)
        return status;
    if (settings->curve + settings->advise + (settings->sweep != NULL) > 1)
        return kvr_error_set(error, KVR_BAD_USAGE, "one of --sweep, --curve, --advise at a time");
    bool summary = settings->json || settings->table;
    bool whole =
        settings->curve || settings->advise || settings->sweep || setup->policy->needs_future;
    if (whole &&
        (settings->live || settings->outputs || settings->events || settings->pin ||
            settings->quotas.count || settings->tiers.count || setup->engine != &kvr_engine_block))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--sweep, --curve, --advise and offline policies replay the block engine alone: leave "
            "out --engine, --live, --outputs, --events, --pin, --quota and --tier");
    if (settings->plain && (settings->curve || settings->advise))
        return kvr_error_set(
            error, KVR_BAD_USAGE, "--curve and --advise are about the prefix tree");
    if (setup->policy->needs_future && !summary && !settings->sweep)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "policy '%s' must know the whole trace: it works with --json, --table and --sweep",
            setup->policy->name);
    evict->needs_trace = whole;
    return KVR_OK;
}

void evict_release(struct evict_program *evict)
{
    kvr_evict_destroy(evict->evict);
    kvr_expression_destroy(evict->pin);
    kvr_request_reader_release(&evict->reader);
}

static void describe(struct kvr_buffer *out, const char *name, const char *summary,
    const struct kvr_parameter *parameters, size_t count)
{
    kvr_buffer_append_format(out, "%s\n    %s\n", name, summary);
    struct kvr_buffer rows = {0};
    kvr_parameter_describe(parameters, count, &rows);
    for (const char *row = kvr_buffer_text(&rows); row && *row;) {
        const char *end = strchrnul(row, '\n');
        kvr_buffer_append_format(out, "    %.*s\n", (int)(end - row), row);
        row = *end ? end + 1 : end;
    }
    kvr_buffer_release(&rows);
}

void evict_describe(struct kvr_buffer *out)
{
    kvr_buffer_append_text(out, "ENGINES (--engine)\n\n");
    for (size_t i = 0; i < kvr_engine_count; i++)
        describe(out, kvr_engines[i]->name, kvr_engines[i]->summary, kvr_engines[i]->parameters,
            kvr_engines[i]->parameter_count);
    kvr_buffer_append_text(out, "\nEVICTION POLICIES (--policy)\n\n");
    for (size_t i = 0; i < kvr_policy_count; i++)
        describe(out, kvr_policies[i]->name, kvr_policies[i]->summary, kvr_policies[i]->parameters,
            kvr_policies[i]->parameter_count);
    kvr_buffer_append_text(out, "\nADMISSION RULES (--admission)\n\n");
    for (size_t i = 0; i < kvr_admission_rule_count; i++)
        describe(out, kvr_admission_rules[i]->name, kvr_admission_rules[i]->summary,
            kvr_admission_rules[i]->parameters, kvr_admission_rules[i]->parameter_count);
    kvr_buffer_append_text(out, "\nTIER PARAMETERS (--tier 'MEDIUM=CAPACITY(…)')\n\n");
    kvr_tier_describe(out);
}
