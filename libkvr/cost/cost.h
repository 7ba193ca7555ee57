/*
 * What a request costs a worker: time of prefill, of a decode step, of moving KV; bytes of KV.
 *
 * Everything that routing and simulation ask comes down to a handful of coefficients, so that a
 * prediction is three multiplications:
 *
 *   prefill(n new, c cached) = overhead + token·n + pair·n·(c + n/2)
 *       token = 2·P / F        P active parameters, F usable FLOP/s = peak · GPUs · MFU
 *       pair  = 4·L·H·d / F    attention scores and sums of one new token with one other; with keys
 *                              and values of unlike size 2·L·H·(dk + dv); windowed layers count
 *                              their window once in `token` instead
 *   decode step(B sequences, t tokens of context in all) = overhead + max(compute, memory)
 *       compute = B·token + t·pair
 *       memory  = (weights that B tokens touch + t·KV bytes) / (bandwidth · GPUs · MBU)
 *       A mixture of E experts, k a token, touches 1 − (1 − k/E)^B of its expert weights.
 *   move(tokens) = latency + tokens·KV bytes / (compression · bytes/s)
 *       CacheGen (Liu et al., SIGCOMM 2024) reports KV 3.5–4.3 times smaller on the wire.
 *
 * The formulas are the usual ones (Kaplan et al., arXiv:2001.08361, for 2·P; Pope et al.,
 * arXiv:2211.05102, for decoding). They leave out what a small prefill pays for reading the
 * weights; a calibrated cost file has it in its overhead. Tensor parallelism is ideal but for the
 * MFU. See kvr-cost(5).
 *
 * A kvr_cost is a plain value: copy it, share it between threads, change its members.
 */
#ifndef KVR_COST_COST_H
#define KVR_COST_COST_H

#include "base/buffer.h"
#include "base/error.h"

#include <stdint.h>

enum kvr_arithmetic { KVR_BF16, KVR_FP8 };

struct kvr_model {
    const char *name;
    double parameters, active_parameters;
    uint32_t layers, windowed_layers, window_tokens;
    uint32_t heads, kv_heads, key_dim, value_dim;
    uint32_t latent_dim; /* MLA: numbers cached a token and layer; 0: keys and values of kv_heads */
    uint32_t experts, experts_per_token; /* 0: dense */
    double weight_bytes;                 /* a parameter */
    double kv_element_bytes;
    enum kvr_arithmetic arithmetic; /* which of the GPU's peaks its prefill uses */
};

struct kvr_gpu {
    const char *name;
    double bf16_flops, fp8_flops; /* peak a second, dense */
    double memory_bytes, memory_bytes_per_s;
    double mfu, mbu; /* shares of these peaks that are reached */
};

struct kvr_link {
    const char *name;
    double bytes_per_s, latency_ms;
};

/* The preset tables, in the order of presets.def. */
extern const struct kvr_model kvr_models[];
extern const size_t kvr_model_count;
extern const struct kvr_gpu kvr_gpus[];
extern const size_t kvr_gpu_count;
extern const struct kvr_link kvr_links[];
extern const size_t kvr_link_count;

/* Upper and lower case are one; NULL where there is none. */
const struct kvr_model *kvr_model_find(const char *name);
const struct kvr_gpu *kvr_gpu_find(const char *name);
const struct kvr_link *kvr_link_find(const char *name);

/* Their names as a values list of base/options.h. */
extern const char kvr_model_names[], kvr_gpu_names[], kvr_link_names[];

/* What a user types for a link: a preset, or a bandwidth such as "12.5GB/s". KVR_BAD_USAGE. */
enum kvr_status kvr_link_read(const char *text, struct kvr_link *link, struct kvr_error *error);

struct kvr_cost {
    double prefill_overhead_ms, prefill_token_ms, prefill_pair_ms;
    double decode_overhead_ms;
    double dense_weights_ms, expert_weights_ms; /* to read them once from memory */
    double expert_miss;     /* 1 − k/E: the share of experts that one token leaves untouched */
    double decode_token_ms; /* to read the KV of one token of context */
    double kv_bytes_per_token;
    double kv_capacity_tokens; /* what fits beside the weights; 0: unknown */
};

#define KVR_COST_DEFAULT_MODEL "llama-3.1-8b"
#define KVR_COST_DEFAULT_GPU "h100"

/* From a model on `gpus` GPUs. mfu 0: the GPU's default. KVR_BAD_USAGE for gpus 0 or an mfu outside
 * (0, 1]. A model that does not fit has kv_capacity_tokens 0 and still costs. */
enum kvr_status kvr_cost_compute(struct kvr_cost *cost, const struct kvr_model *model,
    const struct kvr_gpu *gpu, uint32_t gpus, double mfu, struct kvr_error *error);

/* The same by name: model "llama-3.1-70b", hardware "h100" or "8xh100"; NULL: the defaults above.
 * KVR_BAD_USAGE lists the names there are. */
enum kvr_status kvr_cost_preset(struct kvr_cost *cost, const char *model, const char *hardware,
    double mfu, struct kvr_error *error);

/* KV bytes of one token: 2·L·kv heads·d·bytes, or L·latent·bytes. All layers count, as engines
 * that treat all layers alike store it. */
double kvr_model_kv_bytes_per_token(const struct kvr_model *model);

/* Prefill of new_tokens on top of cached_tokens, without the fixed overhead: what one chunk adds to
 * a step. Tokens are doubles so that sums over a batch stay exact and nothing overflows. */
static inline double kvr_cost_prefill_compute_ms(
    const struct kvr_cost *cost, double new_tokens, double cached_tokens)
{
    return new_tokens *
           (cost->prefill_token_ms + cost->prefill_pair_ms * (cached_tokens + 0.5 * new_tokens));
}

/* Prefill of one request alone. */
static inline double kvr_cost_prefill_ms(
    const struct kvr_cost *cost, double new_tokens, double cached_tokens)
{
    return cost->prefill_overhead_ms + kvr_cost_prefill_compute_ms(cost, new_tokens, cached_tokens);
}

/* One engine step that computes prefill chunks worth prefill_compute_ms (may be 0) and one token
 * each for `sequences` sequences whose contexts sum to context_tokens. Without sequences this is
 * the prefill alone. A step of nothing takes no time. */
double kvr_cost_step_ms(const struct kvr_cost *cost, double prefill_compute_ms, double sequences,
    double context_tokens);

/* One decode step: kvr_cost_step_ms without prefill. */
static inline double kvr_cost_decode_ms(
    const struct kvr_cost *cost, double sequences, double context_tokens)
{
    return kvr_cost_step_ms(cost, 0, sequences, context_tokens);
}

/* Moving the KV of so many tokens; compression 1: as it is. 0 tokens take no time. */
static inline double kvr_cost_transfer_ms(
    const struct kvr_cost *cost, const struct kvr_link *link, double compression, double tokens)
{
    return tokens > 0 ? link->latency_ms + tokens * cost->kv_bytes_per_token * 1e3 /
                                               (compression * link->bytes_per_s)
                      : 0;
}

/*
 * A cost file (kvr-cost(5)): one JSON object, as kvr-prefill --calibrate writes it. Members that
 * it has replace those that *cost holds already, so a file may be partial. KVR_BAD_INPUT names the
 * member and what is wrong; an unknown member is refused, "description" may say anything.
 */
enum kvr_status kvr_cost_read(
    struct kvr_cost *cost, const char *text, size_t length, struct kvr_error *error);
enum kvr_status kvr_cost_load(struct kvr_cost *cost, const char *path, struct kvr_error *error);

/* What --model, --gpu, --mfu and --cost say together: the preset, then the file at `path` (NULL:
 * none). A file that names only some of model, gpu and mfu leaves the others as they are given
 * here. As kvr_cost_preset() and kvr_cost_read(); KVR_IO where the file cannot be read. */
enum kvr_status kvr_cost_settle(struct kvr_cost *cost, const char *model, const char *hardware,
    double mfu, const char *path, struct kvr_error *error);

/* Appends *cost as a cost file, one line, with its newline. Reading it gives the same cost. */
void kvr_cost_write(const struct kvr_cost *cost, struct kvr_buffer *out);

#endif
