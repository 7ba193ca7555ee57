#include "cost/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double kvr_model_kv_bytes_per_token(const struct kvr_model *model)
{
    double numbers = model->latent_dim
                         ? model->latent_dim
                         : (double)model->kv_heads * (model->key_dim + model->value_dim);

    return model->layers * numbers * model->kv_element_bytes;
}

/*
 * The weights of a mixture split without knowing its inner shapes. Of parameters P, a token uses
 * the active A: all of the dense part D and k of E equal experts X, so P = D + X and
 * A = D + X·k/E, hence X = (P − A) / (1 − k/E). (gpt-oss counts A without the input embedding; the
 * error is that embedding, half a per cent of the total.)
 */
static double expert_parameters(const struct kvr_model *model)
{
    if (!model->experts)
        return 0;
    double miss = 1 - (double)model->experts_per_token / model->experts;
    double experts = (model->parameters - model->active_parameters) / miss;
    return fmin(experts, model->parameters);
}

enum kvr_status kvr_cost_compute(struct kvr_cost *cost, const struct kvr_model *model,
    const struct kvr_gpu *gpu, uint32_t gpus, double mfu, struct kvr_error *error)
{
    if (mfu == 0)
        mfu = gpu->mfu;
    if (gpus == 0)
        return kvr_error_set(error, KVR_BAD_USAGE, "a worker needs at least one GPU");
    if (!(mfu > 0 && mfu <= 1))
        return kvr_error_set(error, KVR_BAD_USAGE, "mfu %g is not in (0, 1]", mfu);

    double peak = model->arithmetic == KVR_FP8 ? gpu->fp8_flops : gpu->bf16_flops;
    double flops_per_ms = peak * gpus * mfu / 1e3;
    double bytes_per_ms = gpu->memory_bytes_per_s * gpus * gpu->mbu / 1e3;
    double head_flops = 2.0 * model->heads * (model->key_dim + model->value_dim);
    double whole_layers = model->layers - model->windowed_layers;
    double window_flops = head_flops * model->windowed_layers * model->window_tokens;
    double kv_bytes = kvr_model_kv_bytes_per_token(model);
    double experts = expert_parameters(model);
    double room = gpu->memory_bytes * gpus * 0.9 - model->parameters * model->weight_bytes;

    *cost = (struct kvr_cost){
        .prefill_token_ms = (2 * model->active_parameters + window_flops) / flops_per_ms,
        .prefill_pair_ms = head_flops * whole_layers / flops_per_ms,
        .dense_weights_ms = (model->parameters - experts) * model->weight_bytes / bytes_per_ms,
        .expert_weights_ms = experts * model->weight_bytes / bytes_per_ms,
        .expert_miss = model->experts ? 1 - (double)model->experts_per_token / model->experts : 0,
        .decode_token_ms = kv_bytes * whole_layers / model->layers / bytes_per_ms,
        .kv_bytes_per_token = kv_bytes,
        .kv_capacity_tokens = room > 0 ? floor(room / kv_bytes) : 0,
    };
    return KVR_OK;
}

static enum kvr_status unknown(
    struct kvr_error *error, const char *what, const char *name, const struct kvr_buffer *names)
{
    char shown[64];

    return kvr_error_set(error, KVR_BAD_USAGE, "no %s '%s'; there are %.*s", what,
        kvr_printable(shown, sizeof shown, name, strlen(name)), (int)names->length, names->data);
}

enum kvr_status kvr_cost_preset(struct kvr_cost *cost, const char *model, const char *hardware,
    double mfu, struct kvr_error *error)
{
    const char *gpu_name = hardware ? hardware : KVR_COST_DEFAULT_GPU;
    const char *model_name = model ? model : KVR_COST_DEFAULT_MODEL;
    const struct kvr_model *found_model = kvr_model_find(model_name);
    unsigned long gpus = 1;
    struct kvr_buffer names = {0};

    if (*gpu_name >= '0' && *gpu_name <= '9') {
        char *end;
        gpus = strtoul(gpu_name, &end, 10);
        if (*end != 'x' || gpus == 0 || gpus > 1024)
            return kvr_error_set(
                error, KVR_BAD_USAGE, "hardware is a GPU, or 1 to 1024 of them as in '8xh100'");
        gpu_name = end + 1;
    }
    const struct kvr_gpu *found_gpu = kvr_gpu_find(gpu_name);
    if (found_model && found_gpu)
        return kvr_cost_compute(cost, found_model, found_gpu, (uint32_t)gpus, mfu, error);

    enum kvr_status status;
    if (!found_model) {
        for (size_t i = 0; i < kvr_model_count; i++)
            kvr_buffer_append_format(&names, "%s%s", i ? ", " : "", kvr_models[i].name);
        status = unknown(error, "model", model_name, &names);
    } else {
        for (size_t i = 0; i < kvr_gpu_count; i++)
            kvr_buffer_append_format(&names, "%s%s", i ? ", " : "", kvr_gpus[i].name);
        status = unknown(error, "GPU", gpu_name, &names);
    }
    kvr_buffer_release(&names);
    return status;
}

double kvr_cost_step_ms(
    const struct kvr_cost *cost, double prefill_compute_ms, double sequences, double context_tokens)
{
    double compute = prefill_compute_ms, memory = 0, overhead = 0;

    if (prefill_compute_ms > 0)
        overhead = cost->prefill_overhead_ms;
    if (sequences > 0) {
        double touched = cost->expert_miss > 0 ? 1 - pow(cost->expert_miss, sequences) : 1;
        compute += sequences * cost->prefill_token_ms + context_tokens * cost->prefill_pair_ms;
        memory = cost->dense_weights_ms + cost->expert_weights_ms * touched +
                 context_tokens * cost->decode_token_ms;
        overhead = fmax(overhead, cost->decode_overhead_ms);
    }
    return overhead + fmax(compute, memory);
}
