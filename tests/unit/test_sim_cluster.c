/* The virtual cluster: queues by hand, a naive step-by-step engine as oracle, conservation,
 * determinism, failures, pools. */
#include "unit.h"

#include "base/random.h"
#include "sim/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Decides round-robin or as told, and checks that every request comes back once. */
struct desk {
    struct kvr_sim *sim;
    uint32_t next, decoder, fixed;
    uint32_t pull_from;
    bool rejects;
    uint64_t decided, finished, computed, recomputed, cached;
    uint64_t by_status[600];
    uint64_t digest;
};

static enum kvr_status desk_decide(void *context, struct kvr_sim_request *request, double now_ms,
    struct kvr_sim_decision *decision, struct kvr_error *error)
{
    struct desk *desk = context;

    (void)error;
    assert_true(now_ms >= request->arrival_ms);
    desk->decided++;
    decision->rejected = desk->rejects;
    if (desk->rejects)
        return KVR_OK;
    decision->worker = desk->fixed != KVR_SIM_NOBODY
                           ? desk->fixed
                           : desk->next++ % kvr_sim_worker_count(desk->sim);
    decision->decode_worker = desk->decoder;
    decision->pull_from = desk->pull_from;
    decision->pull_tokens = desk->pull_from == KVR_SIM_NOBODY ? 0 : request->input_tokens;
    return KVR_OK;
}

static enum kvr_status desk_finished(
    void *context, struct kvr_sim_request *request, double now_ms, struct kvr_error *error)
{
    struct desk *desk = context;
    const struct kvr_sim_result *result = &request->result;

    (void)error;
    assert_null(request->context); /* not back yet */
    request->context = desk;
    desk->finished++;
    desk->by_status[result->status]++;
    desk->recomputed += result->recomputed;
    if (result->status == KVR_SIM_OK) {
        uint64_t cached = kvr_sim_cached_tokens(request);
        assert_true(cached < request->input_tokens);
        assert_true(result->first_token_ms >= request->arrival_ms);
        assert_true(now_ms >= result->first_token_ms);
        desk->cached += cached;
        desk->computed += request->input_tokens - cached;
    }
    desk->digest = kvr_mix64(desk->digest ^ (uint64_t)(now_ms * 1e6));
    return KVR_OK;
}

/* 1 ms a prompt token, nothing else: service times are known. */
static struct kvr_cost plain_cost(void)
{
    return (struct kvr_cost){.prefill_token_ms = 1, .kv_bytes_per_token = 1000};
}

static struct kvr_sim_options plain_options(const char *engine)
{
    struct kvr_sim_options options = kvr_sim_defaults();

    options.engine = kvr_engine_find(engine);
    assert_non_null(options.engine);
    options.cost = plain_cost();
    options.capacity_tokens = 1 << 20;
    options.block_tokens = 16;
    return options;
}

static struct kvr_sim *open_sim(
    const struct kvr_sim_options *options, struct desk *desk, uint32_t workers)
{
    const struct kvr_sim_calls calls = {
        .context = desk, .decide = desk_decide, .finished = desk_finished};
    struct kvr_error error = {0};
    struct kvr_sim *sim = NULL;

    *desk = (struct desk){
        .decoder = KVR_SIM_NOBODY, .fixed = KVR_SIM_NOBODY, .pull_from = KVR_SIM_NOBODY};
    assert_int_equal(kvr_sim_create(options, &calls, &sim, &error), KVR_OK);
    desk->sim = sim;
    for (uint32_t i = 0; i < workers; i++) {
        char name[16];
        struct kvr_worker_description worker = {.weight = 1};
        worker.name = (struct kvr_text){name, (size_t)snprintf(name, sizeof name, "w%u", i)};
        assert_int_equal(kvr_sim_change_worker(sim, 0, &worker, false, false, &error), KVR_OK);
    }
    return sim;
}

static void change(struct kvr_sim *sim, double now_ms, const char *name,
    enum kvr_worker_state state, double weight)
{
    struct kvr_worker_description worker = {
        .name = {name, strlen(name)}, .state = state, .weight = weight};
    struct kvr_error error = {0};

    assert_int_equal(kvr_sim_change_worker(sim, now_ms, &worker, false, true, &error), KVR_OK);
}

static void submit(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    struct kvr_error error = {0};

    if (kvr_sim_submit(sim, request, &error) != KVR_OK)
        fail_msg("%s", error.text);
}

static void drain(struct kvr_sim *sim)
{
    struct kvr_error error = {0};
    enum kvr_status status;

    while ((status = kvr_sim_next(sim, &error)) == KVR_OK)
        ;
    if (status != KVR_END)
        fail_msg("%s", error.text);
    assert_int_equal(kvr_sim_inside(sim), 0);
}

static uint64_t computed_by_workers(const struct kvr_sim *sim)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < kvr_sim_worker_count(sim); i++)
        sum += kvr_sim_worker_totals(sim, i).computed_tokens;
    return sum;
}

static struct kvr_sim_request plain_request(double arrival_ms, uint64_t input, uint64_t output)
{
    return (struct kvr_sim_request){.arrival_ms = arrival_ms,
        .input_tokens = input,
        .output_tokens = output,
        .block_tokens = 16};
}

/* One at a time, 100 ms each: start = max(arrival, end of the one before), by hand. */
static void queue_of_one_by_hand(void **state)
{
    static const double arrivals[] = {0, 10, 50, 350, 351, 900};
    static const double ends[] = {100, 200, 300, 450, 550, 1000};
    struct kvr_sim_options options = plain_options("vllm");
    struct kvr_sim_request requests[6];
    struct desk desk;

    (void)state;
    options.batch_requests = 1;
    struct kvr_sim *sim = open_sim(&options, &desk, 1);
    for (size_t i = 0; i < 6; i++) {
        requests[i] = plain_request(arrivals[i], 100, 1);
        submit(sim, &requests[i]);
    }
    drain(sim);
    for (size_t i = 0; i < 6; i++) {
        assert_float_equal(requests[i].result.end_ms, ends[i], 1e-9);
        assert_float_equal(requests[i].result.first_token_ms, ends[i], 1e-9);
        assert_int_equal(requests[i].result.status, KVR_SIM_OK);
    }
    kvr_sim_destroy(sim);
}

/* M/D/1: with Poisson arrivals of load rho and service S the mean wait is rho·S / (2·(1 − rho))
 * (Pollaczek-Khinchine). 400,000 requests; the tolerance is five standard errors or so. */
static void queue_of_one_is_m_d_1(void **state)
{
    enum { REQUESTS = 400000 };
    static const struct {
        double rho, mean_wait, tolerance;
    } cases[] = {{0.5, 50, 1}, {0.8, 200, 8}};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        struct kvr_sim_options options = plain_options("vllm");
        struct kvr_sim_request *requests = calloc(REQUESTS, sizeof *requests);
        struct kvr_random random = {c + 1};
        double now_ms = 0, waits = 0;
        struct desk desk;

        options.batch_requests = 1;
        struct kvr_sim *sim = open_sim(&options, &desk, 1);
        for (size_t i = 0; i < REQUESTS; i++) {
            now_ms += -log1p(-kvr_random_unit(&random)) * 100 / cases[c].rho;
            requests[i] = plain_request(now_ms, 100, 1);
            submit(sim, &requests[i]);
        }
        drain(sim);
        for (size_t i = 0; i < REQUESTS; i++)
            waits += requests[i].result.end_ms - requests[i].arrival_ms - 100;
        assert_float_equal(waits / REQUESTS, cases[c].mean_wait, cases[c].tolerance);
        kvr_sim_destroy(sim);
        free(requests);
    }
}

/*
 * The oracle: the same engine, step by step, with no cache, no memory limit and nothing clever:
 * every step walks all requests.
 */
struct naive {
    double arrival_ms, first_ms, end_ms, last_ms, gap_ms;
    uint64_t input, output, done, made;
};

static void run_naive(const struct kvr_sim_options *options, struct naive *requests, size_t count)
{
    double now_ms = 0;
    size_t left = count, arrived = 0;

    while (left) {
        double prefill_ms = 0;
        uint64_t context = 0, decoding = 0, admitted = 0;
        uint64_t chunks[2000] = {0};
        bool decodes[2000] = {false};
        while (arrived < count && requests[arrived].arrival_ms <= now_ms)
            arrived++;
        for (size_t i = 0; i < arrived; i++) {
            struct naive *request = &requests[i];
            if (request->made == 0 || request->made == request->output)
                continue;
            decodes[i] = true;
            decoding++;
            context += request->input + request->made - 1;
        }
        uint64_t budget = options->batch_tokens - decoding;
        admitted = decoding;
        for (size_t i = 0; i < arrived; i++) {
            struct naive *request = &requests[i];
            if (request->made || !budget || admitted == options->batch_requests)
                continue;
            admitted++;
            chunks[i] = request->input - request->done;
            chunks[i] = chunks[i] < budget ? chunks[i] : budget;
            budget -= chunks[i];
            prefill_ms += kvr_cost_prefill_compute_ms(
                &options->cost, (double)chunks[i], (double)request->done);
        }
        if (!admitted) {
            now_ms = requests[arrived].arrival_ms;
            continue;
        }
        now_ms += kvr_cost_step_ms(&options->cost, prefill_ms, (double)decoding, (double)context);
        for (size_t i = 0; i < arrived; i++) {
            struct naive *request = &requests[i];
            request->done += chunks[i];
            if (decodes[i] || (chunks[i] && request->done == request->input)) {
                if (request->made++ == 0)
                    request->first_ms = now_ms;
                else
                    request->gap_ms = fmax(request->gap_ms, now_ms - request->last_ms);
                request->last_ms = now_ms;
                if (request->made == request->output) {
                    request->end_ms = now_ms;
                    left--;
                }
            }
        }
    }
}

static void runs_equal_steps(void **state)
{
    enum { REQUESTS = 300 };
    static const char *const models[] = {"llama-3.1-8b", "qwen3-30b-a3b"};

    (void)state;
    for (size_t m = 0; m < 2; m++) {
        struct kvr_sim_options options = plain_options("vllm");
        struct kvr_sim_request requests[REQUESTS];
        static struct naive naive[REQUESTS];
        struct kvr_random random = {m + 7};
        struct kvr_error error = {0};
        struct desk desk;
        double now_ms = 0;

        assert_int_equal(kvr_cost_preset(&options.cost, models[m], "h100", 0, &error), KVR_OK);
        options.batch_tokens = 2048;
        options.batch_requests = 32;
        options.block_tokens = 512;
        struct kvr_sim *sim = open_sim(&options, &desk, 1);
        for (size_t i = 0; i < REQUESTS; i++) {
            now_ms += kvr_random_unit(&random) * 200;
            uint64_t input = 1 + kvr_random_below(&random, 6000);
            uint64_t output = 1 + kvr_random_below(&random, 400);
            requests[i] = plain_request(now_ms, input, output);
            naive[i] = (struct naive){.arrival_ms = now_ms, .input = input, .output = output};
            submit(sim, &requests[i]);
        }
        drain(sim);
        run_naive(&options, naive, REQUESTS);
        for (size_t i = 0; i < REQUESTS; i++) {
            assert_float_equal(requests[i].result.first_token_ms, naive[i].first_ms, 1e-5);
            assert_float_equal(requests[i].result.end_ms, naive[i].end_ms, 1e-5);
            assert_float_equal(requests[i].result.longest_gap_ms, naive[i].gap_ms, 1e-5);
        }
        struct kvr_sim_worker_counts counts = kvr_sim_worker_totals(sim, 0);
        assert_true(counts.runs < counts.steps / 2);
        kvr_sim_destroy(sim);
    }
}

/* Random conversations that share prefixes, in memory that is far too small, on workers that die
 * and return. */
static uint64_t random_life(const char *engine, uint64_t seed, uint64_t *preemptions)
{
    enum { REQUESTS = 1500, CHAINS = 40, BLOCKS = 64 };
    struct kvr_sim_options options = plain_options(engine);
    struct kvr_sim_request *requests = calloc(REQUESTS, sizeof *requests);
    static uint64_t ids[CHAINS][BLOCKS];
    struct kvr_random random = {seed};
    struct kvr_error error = {0};
    struct desk desk;
    double now_ms = 0;

    for (size_t chain = 0; chain < CHAINS; chain++)
        for (size_t i = 0; i < BLOCKS; i++)
            ids[chain][i] = i < 4 ? i + 1 : 1000 * (chain + 1) + i;
    assert_int_equal(kvr_cost_preset(&options.cost, NULL, NULL, 0, &error), KVR_OK);
    options.capacity_tokens = 3000;
    options.batch_requests = 24;
    options.batch_tokens = 512;
    options.retries = 2;
    struct kvr_sim *sim = open_sim(&options, &desk, 4);
    for (size_t i = 0; i < REQUESTS; i++) {
        now_ms += kvr_random_unit(&random) * 12;
        requests[i] = plain_request(
            now_ms, 1 + kvr_random_below(&random, 1024), kvr_random_below(&random, 300));
        if (kvr_random_below(&random, 200) == 0)
            requests[i].input_tokens = 5000; /* can never fit */
        requests[i].ids = ids[kvr_random_below(&random, CHAINS)];
        requests[i].id_count =
            requests[i].input_tokens > 1024 ? BLOCKS : (requests[i].input_tokens + 15) / 16;
        submit(sim, &requests[i]);
        if (i % 100 == 50)
            change(sim, now_ms, "w1", KVR_WORKER_DOWN, 1);
        if (i % 100 == 70)
            change(sim, now_ms, "w1", KVR_WORKER_ACTIVE, 1 + (double)(i % 3));
    }
    drain(sim);
    assert_int_equal(desk.finished, REQUESTS);
    for (size_t i = 0; i < REQUESTS; i++)
        assert_ptr_equal(requests[i].context, &desk);
    /* Tokens in = computed + cached, and what was computed twice is told. */
    assert_int_equal(computed_by_workers(sim), desk.computed + desk.recomputed);
    assert_true(desk.cached > 0);
    assert_true(desk.by_status[KVR_SIM_TOO_LARGE] > 0);
    assert_true(desk.by_status[KVR_SIM_OK] > REQUESTS * 3 / 4);
    *preemptions = 0;
    for (uint32_t i = 0; i < 4; i++)
        *preemptions += kvr_sim_worker_totals(sim, i).preemptions;
    uint64_t digest = desk.digest;
    kvr_sim_destroy(sim);
    free(requests);
    return digest;
}

static void conservation_and_determinism(void **state)
{
    (void)state;
    for (size_t i = 0; i < kvr_engine_count; i++) {
        uint64_t preemptions, again;
        uint64_t first = random_life(kvr_engines[i]->name, 5, &preemptions);
        /* sglang takes the memory for the whole output at admission */
        assert_true((preemptions > 0) == (strcmp(kvr_engines[i]->name, "sglang") != 0));
        assert_int_equal(random_life(kvr_engines[i]->name, 5, &again), first);
        assert_int_equal(again, preemptions);
        assert_int_not_equal(random_life(kvr_engines[i]->name, 6, &again), first);
    }
}

/* Two prompts of 160 tokens with 1 ms a token; the second shares 128 tokens with the first. */
static void cached_prefix_is_skipped(void **state)
{
    static const uint64_t first[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    static const uint64_t second[] = {1, 2, 3, 4, 5, 6, 7, 8, 19, 20};

    (void)state;
    for (size_t i = 0; i < kvr_engine_count; i++) {
        struct kvr_sim_options options = plain_options(kvr_engines[i]->name);
        struct kvr_sim_request requests[3];
        struct desk desk;
        struct kvr_sim *sim = open_sim(&options, &desk, 1);

        for (size_t r = 0; r < 3; r++) {
            requests[r] = plain_request(1000.0 * (double)r, 160, 1);
            requests[r].ids = r == 1 ? second : first;
            requests[r].id_count = 10;
            submit(sim, &requests[r]);
        }
        drain(sim);
        assert_int_equal(kvr_sim_cached_tokens(&requests[0]), 0);
        assert_float_equal(requests[0].result.end_ms, 160, 1e-9);
        assert_int_equal(kvr_sim_cached_tokens(&requests[1]), 128);
        assert_float_equal(
            requests[1].result.end_ms, 1032, 0.05); /* stores copy it from the host */
        /* Found whole: the last token is computed all the same; vLLM's unit is the block. */
        bool vllm = strcmp(kvr_engines[i]->name, "vllm") == 0;
        uint64_t most = kvr_sim_cached_tokens(&requests[2]);
        assert_true(vllm ? most == 144 : most == 159 || most == 144);
        assert_float_equal(requests[2].result.end_ms, 2000 + 160 - (double)most, 0.05);
        kvr_sim_destroy(sim);
    }
}

static void weight_is_speed(void **state)
{
    struct kvr_sim_options options = plain_options("vllm");
    struct kvr_sim_request request = plain_request(0, 100, 1);
    struct desk desk;

    (void)state;
    struct kvr_sim *sim = open_sim(&options, &desk, 1);
    change(sim, 0, "w0", KVR_WORKER_ACTIVE, 4);
    submit(sim, &request);
    drain(sim);
    assert_float_equal(request.result.end_ms, 25, 1e-9);
    kvr_sim_destroy(sim);
}

/* A death at 50 ms: what ran starts again on the other worker and keeps its arrival time. */
static void failed_requests_are_retried(void **state)
{
    struct kvr_sim_options options = plain_options("vllm");
    struct kvr_sim_request requests[2] = {plain_request(0, 100, 1), plain_request(10, 100, 1)};
    struct desk desk;

    (void)state;
    struct kvr_sim *sim = open_sim(&options, &desk, 2);
    submit(sim, &requests[0]); /* to w0 */
    submit(sim, &requests[1]); /* to w1 */
    desk.fixed = 1;
    change(sim, 50, "w0", KVR_WORKER_DOWN, 1);
    drain(sim);
    assert_int_equal(requests[0].result.attempts, 2);
    assert_int_equal(requests[0].result.worker, 1);
    assert_float_equal(requests[1].result.end_ms, 110, 1e-9);
    assert_float_equal(requests[0].result.end_ms, 210, 1e-9);
    kvr_sim_destroy(sim);

    /* Without retries it fails at that moment. */
    options.retries = 0;
    sim = open_sim(&options, &desk, 2);
    requests[0] = plain_request(0, 100, 1);
    submit(sim, &requests[0]);
    change(sim, 50, "w0", KVR_WORKER_DOWN, 1);
    assert_int_equal(requests[0].result.status, KVR_SIM_UNAVAILABLE);
    assert_float_equal(requests[0].result.end_ms, 50, 1e-9);
    assert_int_equal(requests[0].result.recomputed, 0); /* its chunk never ended */
    /* A decision for a dead worker counts as a failure, a rejection as what it is. */
    desk.fixed = 0;
    requests[1] = plain_request(60, 100, 1);
    submit(sim, &requests[1]);
    assert_int_equal(requests[1].result.status, KVR_SIM_UNAVAILABLE);
    desk.rejects = true;
    requests[0] = plain_request(70, 100, 1);
    submit(sim, &requests[0]);
    assert_int_equal(requests[0].result.status, KVR_SIM_REJECTED);
    drain(sim);
    kvr_sim_destroy(sim);
}

/* Prefill here, decode there: the first token at 100 ms, then the KV of 100 tokens of 1000 bytes
 * crosses a link of 1 MB/s in 100 ms, then 9 steps of 7 ms. */
static void pools_move_kv(void **state)
{
    struct kvr_sim_options options = plain_options("vllm");
    struct kvr_sim_request requests[2] = {plain_request(0, 100, 10), plain_request(1000, 100, 10)};
    struct desk desk;

    (void)state;
    options.cost.decode_overhead_ms = 7;
    options.cost.prefill_token_ms = 1;
    options.link = (struct kvr_link){"slow", 1e6, 0};
    struct kvr_sim *sim = open_sim(&options, &desk, 2);
    desk.fixed = 0;
    desk.decoder = 1;
    submit(sim, &requests[0]);
    submit(sim, &requests[1]);
    change(sim, 1150, "w1", KVR_WORKER_DOWN, 1); /* while the second is on its way */
    desk.decoder = KVR_SIM_NOBODY;
    drain(sim);
    assert_float_equal(requests[0].result.first_token_ms, 100, 1e-9);
    assert_int_equal(requests[0].result.decode_worker, 1);
    assert_float_equal(requests[0].result.end_ms, 200 + 9 * (7 + 1), 1e-9);
    assert_float_equal(requests[0].result.longest_gap_ms, 100 + 7 + 1, 1e-9);
    /* Computed once more from 1200 on, when the copy arrives at nobody, all on w0. */
    assert_int_equal(requests[1].result.attempts, 2);
    assert_int_equal(requests[1].result.recomputed, 100);
    assert_float_equal(requests[1].result.first_token_ms, 1300, 1e-9);
    assert_float_equal(requests[1].result.end_ms, 1300 + 9 * (7 + 1), 1e-9);
    assert_int_equal(computed_by_workers(sim), desk.computed + desk.recomputed);
    kvr_sim_destroy(sim);

    /* Streamed while it is computed, from 0 to 100 ms, the copy of 150 ms ends at 150. */
    options.streams_kv = true;
    options.link.bytes_per_s = 1e6 / 1.5;
    sim = open_sim(&options, &desk, 2);
    desk.fixed = 0;
    desk.decoder = 1;
    requests[0] = plain_request(0, 100, 10);
    submit(sim, &requests[0]);
    drain(sim);
    assert_float_equal(requests[0].result.end_ms, 150 + 9 * (7 + 1), 1e-9);
    kvr_sim_destroy(sim);
}

/* What another worker holds is copied instead of computed: 96 of 100 tokens at 1 MB/s. */
static void pulls_copy_what_is_there(void **state)
{
    static const uint64_t ids[] = {1, 2, 3, 4, 5, 6};
    struct kvr_sim_options options = plain_options("vllm");
    struct kvr_sim_request requests[3];
    struct desk desk;

    (void)state;
    options.link = (struct kvr_link){"slow", 10e6, 0};
    struct kvr_sim *sim = open_sim(&options, &desk, 2);
    for (size_t i = 0; i < 3; i++) {
        requests[i] = plain_request(1000.0 * (double)i, 100, 1);
        requests[i].ids = ids;
        requests[i].id_count = 6;
    }
    desk.fixed = 0;
    submit(sim, &requests[0]);
    desk.fixed = 1;
    desk.pull_from = 0;
    submit(sim, &requests[1]);
    submit(sim, &requests[2]); /* has it itself by now */
    drain(sim);
    assert_int_equal(requests[1].result.pulled, 96);
    assert_float_equal(requests[1].result.end_ms, 1000 + 9.6 + 4, 1e-9);
    assert_int_equal(requests[2].result.pulled, 0);
    assert_int_equal(requests[2].result.cached[KVR_MEDIUM_GPU], 96);
    assert_float_equal(requests[2].result.end_ms, 2004, 1e-9);
    kvr_sim_destroy(sim);
}

/* A device of 10 blocks over a host tier of 100: what the device lost comes back over the link. */
static void tiers_bring_back(void **state)
{
    static const uint64_t ids[2][6] = {{1, 2, 3, 4, 5, 6}, {11, 12, 13, 14, 15, 16}};
    struct kvr_sim_options options = plain_options("vllm");
    struct kvr_sim_request requests[3];
    struct desk desk;

    (void)state;
    options.capacity_tokens = 160;
    options.tier_engine = kvr_engine_find("vllm");
    options.tiers[0] = (struct kvr_sim_tier_options){KVR_MEDIUM_CPU, 1600, {"slow", 10e6, 0}, 1};
    options.tier_count = 1;
    struct kvr_sim *sim = open_sim(&options, &desk, 1);
    for (size_t i = 0; i < 3; i++) {
        requests[i] = plain_request(1000.0 * (double)i, 100, 1);
        requests[i].ids = ids[i % 2];
        requests[i].id_count = 6;
        submit(sim, &requests[i]);
    }
    drain(sim);
    uint64_t device = requests[2].result.cached[KVR_MEDIUM_GPU];
    uint64_t host = requests[2].result.cached[KVR_MEDIUM_CPU];
    assert_true(device < 96);
    assert_int_equal(device + host, 96);
    assert_float_equal(requests[2].result.end_ms, 2000 + (double)host / 10 + 4, 1e-9);
    kvr_sim_destroy(sim);
}

static void options_are_checked(void **state)
{
    struct kvr_sim_options options = plain_options("vllm");
    const struct kvr_sim_calls calls = {.decide = desk_decide, .finished = desk_finished};
    struct kvr_error error = {0};
    struct kvr_sim *sim = NULL;

    (void)state;
    options.batch_tokens = options.batch_requests;
    assert_int_equal(kvr_sim_create(&options, &calls, &sim, &error), KVR_BAD_USAGE);
    options = plain_options("vllm");
    options.compression = 0.5;
    assert_int_equal(kvr_sim_create(&options, &calls, &sim, &error), KVR_BAD_USAGE);
    options = plain_options("vllm");
    options.load_every_ms = -1;
    assert_int_equal(kvr_sim_create(&options, &calls, &sim, &error), KVR_BAD_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_of_one_by_hand),
        cmocka_unit_test(queue_of_one_is_m_d_1),
        cmocka_unit_test(runs_equal_steps),
        cmocka_unit_test(conservation_and_determinism),
        cmocka_unit_test(cached_prefix_is_skipped),
        cmocka_unit_test(weight_is_speed),
        cmocka_unit_test(failed_requests_are_retried),
        cmocka_unit_test(pools_move_kv),
        cmocka_unit_test(pulls_copy_what_is_there),
        cmocka_unit_test(tiers_bring_back),
        cmocka_unit_test(options_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
