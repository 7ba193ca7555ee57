#include "sim/cluster_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct kvr_sim_options kvr_sim_defaults(void)
{
    return (struct kvr_sim_options){
        .engine = kvr_engine_find("block"),
        .tier_engine = kvr_engine_find("block"),
        .batch_tokens = 8192,
        .batch_requests = 256,
        .link = *kvr_link_find("rdma-200"),
        .compression = 1,
        .retries = 1,
        .seed = 1,
    };
}

enum kvr_status kvr_sim_create(const struct kvr_sim_options *options,
    const struct kvr_sim_calls *calls, struct kvr_sim **out, struct kvr_error *error)
{
    if (options->batch_requests < 1 || options->batch_requests > 1 << 20)
        return kvr_error_set(error, KVR_BAD_USAGE, "a batch has between 1 and 1048576 requests");
    if (options->batch_tokens <= options->batch_requests || options->batch_tokens > 1 << 30)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "the tokens of a step are more than its requests and at most 2^30");
    if (!(options->compression >= 1 && options->compression <= 1000))
        return kvr_error_set(error, KVR_BAD_USAGE, "a compression is not in 1 … 1000");
    if (!(options->load_every_ms >= 0))
        return kvr_error_set(error, KVR_BAD_USAGE, "a period is not negative");
    struct kvr_sim *sim = calloc(1, sizeof *sim);
    if (!sim)
        return kvr_error_memory(error);
    sim->options = *options;
    sim->calls = *calls;
    sim->failed_last = &sim->failed_first;
    sim->next_load_ms = INFINITY;
    *out = sim;
    return KVR_OK;
}

void kvr_sim_destroy(struct kvr_sim *sim)
{
    if (!sim)
        return;
    for (uint32_t i = 0; i < sim->count; i++)
        kvr_sim_member_destroy(sim->members[i]);
    kvr_sim_tiers_release(&sim->shared);
    kvr_u64_map_release(&sim->by_name);
    free(sim->members);
    free(sim->heap);
    free(sim->moving);
    free(sim);
}

uint32_t kvr_sim_worker_count(const struct kvr_sim *sim)
{
    return sim->count;
}

const char *kvr_sim_worker_name(const struct kvr_sim *sim, uint32_t worker)
{
    return sim->members[worker]->name;
}

uint32_t kvr_sim_worker_block_tokens(const struct kvr_sim *sim, uint32_t worker)
{
    const struct kvr_sim_member *member = sim->members[worker];

    return member->block_tokens ? (uint32_t)member->block_tokens : sim->options.block_tokens;
}

struct kvr_sim_worker_counts kvr_sim_worker_totals(const struct kvr_sim *sim, uint32_t worker)
{
    const struct kvr_sim_worker *engine = sim->members[worker]->engine;

    return engine ? *kvr_sim_worker_counts(engine) : (struct kvr_sim_worker_counts){0};
}

uint64_t kvr_sim_inside(const struct kvr_sim *sim)
{
    return sim->inside;
}

double kvr_sim_now_ms(const struct kvr_sim *sim)
{
    return sim->now_ms;
}

static bool on_prefilled(void *context, struct kvr_sim_request *request, double now_ms)
{
    struct kvr_sim *sim = ((struct kvr_sim_member *)context)->sim;
    struct kvr_error error;

    if (request->result.decode_worker == KVR_SIM_NOBODY)
        return false;
    double copy_ms = kvr_cost_transfer_ms(&sim->options.cost, &sim->options.link,
        sim->options.compression, (double)request->input_tokens);
    double end_ms = now_ms + copy_ms;
    if (sim->options.streams_kv)
        end_ms = fmax(now_ms + sim->options.link.latency_ms, request->sequence.began_ms + copy_ms);
    enum kvr_status status = kvr_sim_move_begin(sim, request, end_ms, &error);
    if (status != KVR_OK)
        kvr_sim_keep_failure(sim, status, &error);
    return status == KVR_OK;
}

static void finish(
    struct kvr_sim *sim, struct kvr_sim_request *request, enum kvr_sim_status status, double now_ms)
{
    struct kvr_sim_result *result = &request->result;
    struct kvr_error error = {0};

    result->status = status;
    result->end_ms = now_ms;
    if (status != KVR_SIM_OK) {
        result->recomputed += request->sequence.kept;
        memset(result->cached, 0, sizeof result->cached);
        result->pulled = 0;
        result->first_token_ms = NAN;
    }
    sim->inside--;
    kvr_sim_keep_failure(
        sim, sim->calls.finished(sim->calls.context, request, now_ms, &error), &error);
}

static void on_left(
    void *context, struct kvr_sim_request *request, enum kvr_sim_status status, double now_ms)
{
    finish(((struct kvr_sim_member *)context)->sim, request, status, now_ms);
}

static struct kvr_sim_worker_calls engine_calls(struct kvr_sim_member *member)
{
    return (struct kvr_sim_worker_calls){
        .context = member, .prefilled = on_prefilled, .left = on_left};
}

static void queue_failed(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    struct kvr_sim_result *result = &request->result;

    result->recomputed += request->sequence.kept;
    request->sequence.kept = 0;
    memset(result->cached, 0, sizeof result->cached);
    result->pulled = 0;
    result->first_token_ms = NAN;
    result->longest_gap_ms = 0;
    result->worker = result->decode_worker = KVR_SIM_NOBODY;
    request->next_failed = NULL;
    *sim->failed_last = request;
    sim->failed_last = &request->next_failed;
}

static bool known(const struct kvr_sim *sim, uint32_t worker)
{
    return worker == KVR_SIM_NOBODY || worker < sim->count;
}

static enum kvr_status place(
    struct kvr_sim *sim, struct kvr_sim_request *request, struct kvr_error *error)
{
    struct kvr_sim_decision decision = {KVR_SIM_NOBODY, false, KVR_SIM_NOBODY, KVR_SIM_NOBODY, 0};
    struct kvr_sim_result *result = &request->result;

    result->attempts++;
    enum kvr_status status =
        sim->calls.decide(sim->calls.context, request, sim->now_ms, &decision, error);
    if (status != KVR_OK)
        return status;
    if (!known(sim, decision.worker) || !known(sim, decision.decode_worker) ||
        !known(sim, decision.pull_from))
        return kvr_error_set(error, KVR_BAD_INPUT, "a decision names a worker that is not there");
    if (decision.worker == KVR_SIM_NOBODY) {
        finish(
            sim, request, decision.rejected ? KVR_SIM_REJECTED : KVR_SIM_UNAVAILABLE, sim->now_ms);
        return KVR_OK;
    }
    /* Only now: a pipeline may have cut the prompt into blocks. */
    if (!sim->options.block_tokens)
        sim->options.block_tokens = request->block_tokens;
    struct kvr_sim_member *member = sim->members[decision.worker];
    if (member->state == KVR_WORKER_DOWN) {
        queue_failed(sim, request);
        return KVR_OK;
    }
    if (!member->engine) {
        status = kvr_sim_make_engine(sim, member, engine_calls(member), error);
        if (status != KVR_OK)
            return status;
    }
    result->worker = decision.worker;
    result->decode_worker =
        decision.decode_worker == decision.worker ? KVR_SIM_NOBODY : decision.decode_worker;
    request->pull_from = decision.pull_from;
    request->pull_tokens = decision.pull_from == KVR_SIM_NOBODY ? 0 : decision.pull_tokens;
    request->sequence.kept = 0;
    kvr_sim_worker_submit(member->engine, request, false, sim->now_ms);
    kvr_sim_agenda_update(sim, member->number);
    return KVR_OK;
}

/* Failed requests are decided again in the order in which they failed. */
static enum kvr_status retry(struct kvr_sim *sim, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    while (status == KVR_OK && sim->failed_first) {
        struct kvr_sim_request *request = sim->failed_first;
        sim->failed_first = request->next_failed;
        if (!sim->failed_first)
            sim->failed_last = &sim->failed_first;
        if (request->result.attempts > sim->options.retries)
            finish(sim, request, KVR_SIM_UNAVAILABLE, sim->now_ms);
        else
            status = place(sim, request, error);
    }
    return status;
}

static enum kvr_status settle_accounts(
    struct kvr_sim *sim, enum kvr_status status, struct kvr_error *error)
{
    if (status == KVR_OK)
        status = retry(sim, error);
    if (status == KVR_OK && sim->status != KVR_OK) {
        status = sim->status;
        *error = sim->error;
    }
    return status;
}

/* A copy has ended: memory is free on one side, and the decode starts on the other. */
static enum kvr_status end_move(struct kvr_sim *sim, struct kvr_error *error)
{
    struct kvr_sim_request *request = kvr_sim_move_take(sim);
    struct kvr_sim_member *from = sim->members[request->result.worker];
    struct kvr_sim_member *to = sim->members[request->result.decode_worker];

    sim->now_ms = fmax(sim->now_ms, request->move_end_ms);
    enum kvr_status status = kvr_sim_worker_release(from->engine, request, sim->now_ms, error);
    kvr_sim_agenda_update(sim, from->number);
    if (status == KVR_OK && to->state == KVR_WORKER_DOWN) {
        queue_failed(sim, request);
        return status;
    }
    if (status == KVR_OK && !to->engine)
        status = kvr_sim_make_engine(sim, to, engine_calls(to), error);
    if (status != KVR_OK)
        return status;
    kvr_sim_worker_submit(to->engine, request, true, sim->now_ms);
    kvr_sim_agenda_update(sim, to->number);
    return status;
}

static enum kvr_status step_worker(struct kvr_sim *sim, struct kvr_error *error)
{
    uint32_t number = sim->heap[0];

    sim->now_ms = fmax(sim->now_ms, kvr_sim_wake_ms(sim, number));
    enum kvr_status status = kvr_sim_worker_step(sim->members[number]->engine, error);
    kvr_sim_agenda_update(sim, number);
    return status;
}

static enum kvr_status report_loads(struct kvr_sim *sim, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    sim->now_ms = fmax(sim->now_ms, sim->next_load_ms);
    double due_ms = sim->next_load_ms + sim->options.load_every_ms;
    /* A period below what a double can tell at this time: no report would ever be the last. */
    sim->next_load_ms = due_ms > sim->next_load_ms ? due_ms : INFINITY;
    for (uint32_t i = 0; status == KVR_OK && sim->calls.load && i < sim->count; i++) {
        struct kvr_sim_load load = {0};
        if (sim->members[i]->state == KVR_WORKER_DOWN)
            continue;
        if (sim->members[i]->engine)
            kvr_sim_worker_load(sim->members[i]->engine, &load);
        status = sim->calls.load(sim->calls.context, i, sim->now_ms, &load, error);
    }
    return status;
}

/* When the next of these happens. Reports alone never keep the cluster going. */
static double next_ms(const struct kvr_sim *sim)
{
    double wake = sim->count ? kvr_sim_wake_ms(sim, sim->heap[0]) : INFINITY;

    return sim->moving_count ? fmin(wake, sim->moving[0]->move_end_ms) : wake;
}

static enum kvr_status happen(struct kvr_sim *sim, double next, struct kvr_error *error)
{
    enum kvr_status status;

    if (sim->options.interrupted && sim->options.interrupted())
        return kvr_error_set(error, KVR_IO, "interrupted");
    if (sim->next_load_ms <= next)
        status = report_loads(sim, error);
    else if (sim->moving_count && sim->moving[0]->move_end_ms == next)
        status = end_move(sim, error);
    else
        status = step_worker(sim, error);
    return settle_accounts(sim, status, error);
}

enum kvr_status kvr_sim_next(struct kvr_sim *sim, struct kvr_error *error)
{
    double next = next_ms(sim);

    return next < INFINITY ? happen(sim, next, error) : KVR_END;
}

enum kvr_status kvr_sim_advance(struct kvr_sim *sim, double time_ms, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    while (status == KVR_OK) {
        if (!sim->inside)
            sim->next_load_ms = INFINITY; /* nothing to report in the gap */
        double next = fmin(next_ms(sim), sim->next_load_ms);
        if (!(next < time_ms))
            break;
        status = happen(sim, next, error);
    }
    sim->now_ms = fmax(sim->now_ms, time_ms);
    return status;
}

enum kvr_status kvr_sim_submit(
    struct kvr_sim *sim, struct kvr_sim_request *request, struct kvr_error *error)
{
    enum kvr_status status = kvr_sim_advance(sim, request->arrival_ms, error);

    if (status != KVR_OK)
        return status;
    request->input_tokens = request->input_tokens ? request->input_tokens : 1;
    request->output_tokens = request->output_tokens ? request->output_tokens : 1;
    if (request->input_tokens > UINT32_MAX || request->output_tokens > UINT32_MAX)
        return kvr_error_set(error, KVR_BAD_INPUT, "a request of 2^32 tokens or more");
    request->result = (struct kvr_sim_result){
        .worker = KVR_SIM_NOBODY,
        .decode_worker = KVR_SIM_NOBODY,
        .first_token_ms = NAN,
    };
    request->sequence.kept = 0;
    if (sim->options.load_every_ms > 0 && !sim->inside)
        sim->next_load_ms = sim->now_ms + sim->options.load_every_ms;
    sim->inside++;
    return settle_accounts(sim, place(sim, request, error), error);
}

enum kvr_status kvr_sim_change_worker(struct kvr_sim *sim, double now_ms,
    const struct kvr_worker_description *worker, bool has_role, bool has_weight,
    struct kvr_error *error)
{
    struct kvr_sim_member *member = NULL;
    enum kvr_status status = kvr_sim_advance(sim, now_ms, error);

    if (status == KVR_OK)
        status = kvr_sim_join(sim, &worker->name, &member, error);
    if (status != KVR_OK)
        return status;
    if (has_weight && !(worker->weight > 0 && worker->weight <= 1e6))
        return kvr_error_set(error, KVR_BAD_INPUT, "a worker's weight is above 0, at most 1e6");
    if (has_weight) {
        member->weight = worker->weight;
        if (member->engine)
            kvr_sim_worker_set_weight(member->engine, worker->weight);
    }
    if (has_role)
        member->role = worker->role;
    if (!member->engine && worker->capacity.amount)
        member->capacity = worker->capacity;
    if (!member->engine && worker->block_size)
        member->block_tokens = worker->block_size;
    if (member->block_tokens > 1 << 30)
        return kvr_error_set(error, KVR_BAD_INPUT, "a block of 2^30 tokens or more");
    bool dies = worker->state == KVR_WORKER_DOWN && member->state != KVR_WORKER_DOWN;
    member->state = worker->state;
    if (dies && member->engine) {
        struct kvr_sim_request *failed, *next;
        status = kvr_sim_worker_kill(member->engine, sim->now_ms, &failed, error);
        kvr_sim_agenda_update(sim, member->number);
        for (; failed; failed = next) {
            next = failed->next_failed;
            kvr_sim_move_forget(sim, failed);
            queue_failed(sim, failed);
        }
    }
    return settle_accounts(sim, status, error);
}
