#include "cache/regroup.h"
#include "base/grow.h"
#include "base/random.h"

#include <string.h>

/* The id of inner block `index` of an outer block: a strong mix in the lower 53 bits, and what
 * stands above these (a namespace) as it is. */
static uint64_t inner_id(uint64_t outer, uint64_t index)
{
    uint64_t above = outer >> 53 << 53;
    return above | kvr_mix64(outer ^ (index + 1) * 0x9e3779b97f4a7c15u) >> 11;
}

static uint64_t chain_id(const struct kvr_cache_request *request, size_t full, size_t index)
{
    return index < full ? request->ids[index] : request->output_ids[index - full];
}

/* Cuts the chain in `count` new ids into the prompt's full blocks and the rest. */
static void cut(struct kvr_regrouped *into, const struct kvr_cache_request *request,
    uint32_t block_tokens, size_t count, size_t prompt_count)
{
    into->request = *request;
    into->request.block_tokens = block_tokens;
    into->request.ids = into->ids;
    into->request.id_count = prompt_count;
    into->request.output_ids = into->ids + prompt_count;
    into->request.output_id_count = count - prompt_count;
}

enum kvr_status kvr_regroup(struct kvr_regrouped *into, const struct kvr_cache_request *request,
    uint32_t block_tokens, struct kvr_error *error)
{
    uint32_t from = request->block_tokens;
    size_t full = kvr_cache_full_ids(request);
    size_t chain = full + request->output_id_count;
    bool coarser = block_tokens % from == 0;
    if (!coarser && from % block_tokens != 0)
        return kvr_error_set(error, KVR_BAD_INPUT,
            "ids of %u tokens cannot be regrouped into blocks of %u: neither is a multiple of the "
            "other",
            from, block_tokens);
    size_t ratio = coarser ? block_tokens / from : from / block_tokens;
    size_t count, prompt_count;
    if (coarser) {
        count = chain / ratio;
        prompt_count = full / ratio;
    } else {
        /* full inner blocks of the partial block, and whether the output's first id names it */
        size_t tail = full == request->input_tokens / from
                          ? (size_t)(request->input_tokens % from / block_tokens)
                          : 0;
        bool by_output = request->output_id_count != 0;
        if (!by_output && request->id_count <= full)
            tail = 0;
        if (chain > SIZE_MAX / sizeof *into->ids / ratio - 1)
            return kvr_error_memory(error);
        count = chain * ratio + (by_output ? 0 : tail);
        prompt_count = full * ratio + tail;
    }
    uint64_t *grown = kvr_grow(into->ids, &into->capacity, count, sizeof *into->ids);
    if (!grown)
        return kvr_error_memory(error);
    into->ids = grown;
    for (size_t i = 0; i < count; i++) {
        if (coarser) {
            grown[i] = chain_id(request, full, (i + 1) * ratio - 1);
        } else {
            size_t outer = i / ratio;
            uint64_t id = outer < chain ? chain_id(request, full, outer) : request->ids[full];
            grown[i] = i % ratio == ratio - 1 ? id : inner_id(id, i % ratio);
        }
    }
    cut(into, request, block_tokens, count, prompt_count);
    return KVR_OK;
}

void kvr_regrouped_release(struct kvr_regrouped *regrouped)
{
    free(regrouped->ids);
    memset(regrouped, 0, sizeof *regrouped);
}
