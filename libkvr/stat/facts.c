#include "stat/facts.h"

#include "line/session.h"
#include "line/worker.h"
#include "stat/scan.h"

#include <math.h>
#include <xxhash.h>

/* Beyond this no count of tokens is meant; keeps every later sum and product in range. */
#define TOKENS_MOST 1000000000000

static enum kvr_status read_tokens(
    struct kvr_value value, const char *name, int64_t *tokens, struct kvr_error *error)
{
    uint64_t number;

    if (value.type <= KVR_NULL)
        return KVR_OK;
    if (!kvr_value_u64(value, &number) || number > TOKENS_MOST)
        return kvr_error_set(error, KVR_BAD_INPUT, "%s is not a number of tokens", name);
    *tokens = (int64_t)number;
    return KVR_OK;
}

static enum kvr_status read_ms(
    struct kvr_value value, const char *name, double *ms, struct kvr_error *error)
{
    if (value.type <= KVR_NULL)
        return KVR_OK;
    if (!kvr_value_double(value, ms)) {
        *ms = NAN;
        return kvr_error_set(error, KVR_BAD_INPUT, "%s is not a number", name);
    }
    return KVR_OK;
}

static struct kvr_text text_of(struct kvr_value value)
{
    if (value.type != KVR_STRING)
        return (struct kvr_text){NULL, 0};
    return (struct kvr_text){value.text + 1, value.length - 2};
}

/* The worker that a member names, as it is written; null names none. */
static enum kvr_status read_worker(
    struct kvr_value value, const char *name, struct kvr_text *worker, struct kvr_error *error)
{
    *worker = text_of(value);
    return value.type == KVR_NULL ? KVR_OK : kvr_worker_check(value, name, error);
}

static inline enum kvr_status scanned_tokens(
    const struct kvr_scanned *member, const char *name, int64_t *tokens, struct kvr_error *error)
{
    if (member->plain && !member->decimals && member->digits <= TOKENS_MOST) {
        *tokens = (int64_t)member->digits;
        return KVR_OK;
    }
    return read_tokens(member->value, name, tokens, error);
}

static inline enum kvr_status scanned_ms(
    const struct kvr_scanned *member, const char *name, double *ms, struct kvr_error *error)
{
    if (member->plain) {
        *ms = kvr_scanned_number(member);
        return KVR_OK;
    }
    return read_ms(member->value, name, ms, error);
}

enum kvr_status kvr_facts_read_response(
    struct kvr_value response, struct kvr_facts *facts, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(response);
    enum kvr_status status = KVR_OK;
    struct kvr_scanned member;

    if (response.type == KVR_NULL)
        return KVR_OK;
    if (response.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "response is not an object");
    facts->answered = true;
    while (status == KVR_OK && kvr_scan_member(&cursor, &member)) {
        if (KVR_TEXT_IS(member.name, "ttft_ms")) {
            status = scanned_ms(&member, "response.ttft_ms", &facts->ttft_ms, error);
        } else if (KVR_TEXT_IS(member.name, "e2e_ms")) {
            status = scanned_ms(&member, "response.e2e_ms", &facts->e2e_ms, error);
        } else if (KVR_TEXT_IS(member.name, "cached_tokens")) {
            status =
                scanned_tokens(&member, "response.cached_tokens", &facts->measured_tokens, error);
        } else if (KVR_TEXT_IS(member.name, "output_length")) {
            status =
                scanned_tokens(&member, "response.output_length", &facts->output_tokens, error);
        } else if (KVR_TEXT_IS(member.name, "status")) {
            if (member.plain && !member.decimals)
                facts->status = (int64_t)member.digits;
            else if (member.value.type > KVR_NULL && !kvr_value_i64(member.value, &facts->status))
                status =
                    kvr_error_set(error, KVR_BAD_INPUT, "response.status is not a whole number");
        } else if (KVR_TEXT_IS(member.name, "worker") && !facts->worker.text) {
            status = read_worker(member.value, "response.worker", &facts->worker, error);
        }
    }
    return status;
}

static enum kvr_status read_route(
    struct kvr_value route, struct kvr_facts *facts, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(route);
    enum kvr_status status = KVR_OK;
    struct kvr_scanned member;

    if (route.type <= KVR_NULL)
        return KVR_OK;
    if (route.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "route is not an object");
    facts->routed = true;
    while (status == KVR_OK && kvr_scan_member(&cursor, &member)) {
        if (KVR_TEXT_IS(member.name, "worker")) {
            status = read_worker(member.value, "route.worker", &facts->worker, error);
            facts->rejected = member.value.type == KVR_NULL;
        } else if (KVR_TEXT_IS(member.name, "reason")) {
            facts->reason = text_of(member.value);
        } else if (KVR_TEXT_IS(member.name, "matched")) {
            status = scanned_tokens(&member, "route.matched", &facts->chosen_tokens, error);
        } else if (KVR_TEXT_IS(member.name, "ttft_ms")) {
            status = scanned_ms(&member, "route.ttft_ms", &facts->predicted_ttft_ms, error);
        }
    }
    return status;
}

/* Names are compared as written; where one was written with an escape, decoded. */
static bool same_name(struct kvr_text a, struct kvr_text b)
{
    if (a.length == b.length && (a.length == 0 || a.text[a.length - 1] == b.text[b.length - 1]) &&
        memcmp(a.text, b.text, a.length) == 0)
        return true;
    if (!memchr(a.text, '\\', a.length) && !memchr(b.text, '\\', b.length))
        return false;
    struct kvr_buffer texts[2] = {{0}, {0}};
    struct kvr_value values[2] = {
        {a.text - 1, a.length + 2, KVR_STRING}, {b.text - 1, b.length + 2, KVR_STRING}};
    bool same =
        kvr_value_string(values[0], &texts[0]) && kvr_value_string(values[1], &texts[1]) &&
        texts[0].length == texts[1].length &&
        (texts[0].length == 0 || memcmp(texts[0].data, texts[1].data, texts[0].length) == 0);
    kvr_buffer_release(&texts[0]);
    kvr_buffer_release(&texts[1]);
    return same;
}

static enum kvr_status read_match(struct kvr_value match, kvr_facts_active *active, void *context,
    struct kvr_facts *facts, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(match);
    int64_t best = 0, chosen = 0;
    struct kvr_scanned member;

    if (match.type <= KVR_NULL)
        return KVR_OK;
    if (match.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "match is not an object");
    while (kvr_scan_member(&cursor, &member)) {
        int64_t tokens = 0;
        if (scanned_tokens(&member, "match", &tokens, error) != KVR_OK)
            return error->status;
        bool is_chosen = facts->worker.text && same_name(member.name, facts->worker);
        if (is_chosen)
            chosen = tokens;
        if (tokens > best && (is_chosen || !active || active(context, member.name)))
            best = tokens;
    }
    facts->best_tokens = best;
    if (facts->worker.text)
        facts->chosen_tokens = chosen;
    return KVR_OK;
}

static enum kvr_status read_cache(
    struct kvr_value cache, struct kvr_facts *facts, struct kvr_error *error)
{
    int64_t hit = -1;

    if (cache.type != KVR_OBJECT)
        return KVR_OK;
    enum kvr_status status = read_tokens(
        kvr_value_get(cache, "evicted"), "cache.evicted", &facts->evicted_tokens, error);
    if (status == KVR_OK)
        status = read_tokens(kvr_value_get(cache, "hit"), "cache.hit", &hit, error);
    if (facts->measured_tokens < 0)
        facts->measured_tokens = hit;
    return status;
}

/* Later turns say so by their number or by their parent. */
static void read_kind(const struct kvr_line *line, struct kvr_facts *facts)
{
    struct kvr_value turn = kvr_line_get(line, KVR_NAME_TURN);
    struct kvr_value parent = kvr_line_get(line, KVR_NAME_PARENT_CHAT_ID);
    double number;

    facts->kind = KVR_KIND_UNKNOWN;
    if (kvr_value_double(turn, &number)) {
        facts->kind = number > 1 ? KVR_KIND_CONTINUED : KVR_KIND_NEW;
    } else if (parent.type != KVR_ABSENT) {
        facts->kind = kvr_names_parent(parent) ? KVR_KIND_CONTINUED : KVR_KIND_NEW;
    }
}

uint64_t kvr_facts_name_space(const struct kvr_line *line)
{
    static const enum kvr_name names[] = {KVR_NAME_MODEL, KVR_NAME_LORA, KVR_NAME_SALT};
    uint64_t hash = 0;

    for (unsigned i = 0; i < 3; i++) {
        uint64_t part = kvr_value_identity(kvr_line_get(line, names[i]));
        if (part) {
            uint64_t words[3] = {hash, i, part};
            hash = XXH3_64bits(words, sizeof words);
        }
    }
    return hash;
}

/* More than the prompt cannot have been reused. */
static void settle_reuse(struct kvr_facts *facts)
{
    facts->reused_tokens =
        facts->measured_tokens >= 0 ? facts->measured_tokens : facts->chosen_tokens;
    if (facts->input_tokens >= 0 && facts->reused_tokens > facts->input_tokens)
        facts->reused_tokens = facts->input_tokens;
}

enum kvr_status kvr_facts_read(const struct kvr_line *line, bool brief,
    uint64_t default_block_tokens, kvr_facts_active *active, void *context, struct kvr_facts *facts,
    struct kvr_error *error)
{
    struct kvr_value response = kvr_line_get(line, KVR_NAME_RESPONSE);
    struct kvr_value size = kvr_line_get(line, KVR_NAME_BLOCK_SIZE);

    *facts = (struct kvr_facts){.timestamp_ms = NAN,
        .input_tokens = -1,
        .output_tokens = -1,
        .measured_tokens = -1,
        .chosen_tokens = -1,
        .best_tokens = -1,
        .ttft_ms = NAN,
        .e2e_ms = NAN,
        .predicted_ttft_ms = NAN,
        .slo_ttft_ms = NAN,
        .status = -1,
        .block_tokens = default_block_tokens};
    enum kvr_status status =
        read_ms(kvr_line_get(line, KVR_NAME_TIMESTAMP), "timestamp", &facts->timestamp_ms, error);
    if (status == KVR_OK)
        status = read_tokens(
            kvr_line_get(line, KVR_NAME_INPUT_LENGTH), "input_length", &facts->input_tokens, error);
    if (status == KVR_OK)
        status = read_tokens(kvr_line_get(line, KVR_NAME_OUTPUT_LENGTH), "output_length",
            &facts->output_tokens, error);
    if (status == KVR_OK)
        status = read_ms(
            kvr_line_get(line, KVR_NAME_SLO_TTFT_MS), "slo_ttft_ms", &facts->slo_ttft_ms, error);
    if (status == KVR_OK)
        status = read_route(kvr_line_get(line, KVR_NAME_ROUTE), facts, error);
    if (status == KVR_OK && response.type != KVR_ABSENT)
        status = kvr_facts_read_response(response, facts, error);
    if (brief || status != KVR_OK) {
        facts->kind = KVR_KIND_UNKNOWN;
        settle_reuse(facts);
        return status;
    }
    status = read_match(kvr_line_get(line, KVR_NAME_MATCH), active, context, facts, error);
    if (status == KVR_OK)
        status = read_cache(kvr_line_get(line, KVR_NAME_CACHE), facts, error);
    if (status != KVR_OK)
        return status;
    if (size.type > KVR_NULL && (!kvr_value_u64(size, &facts->block_tokens) ||
                                    facts->block_tokens == 0 || facts->block_tokens > UINT32_MAX))
        return kvr_error_set(error, KVR_BAD_INPUT, "block_size is not a number of tokens");
    read_kind(line, facts);
    settle_reuse(facts);
    return KVR_OK;
}
