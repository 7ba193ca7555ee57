/* Any text as --tier, --sweep, --policy and --admission: refused with a message, or a cache that
 * can be made and serves. */
#include "cache/sweep.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool law)
{
    if (!law)
        abort();
}

static void try_tier(const char *text)
{
    struct kvr_tier tier;
    struct kvr_cache *cache;
    struct kvr_admission admission;
    struct kvr_error error = {0};
    static const uint64_t ids[] = {1, 2, 3};
    struct kvr_cache_request request = {ids, 3, NULL, 0, 48, 0, 16, 0, 1};

    if (kvr_tier_read(text, &tier, &error) != KVR_OK) {
        require(error.text[0]);
        return;
    }
    struct kvr_tiers_options options = {
        .tiers = &tier, .tier_count = 1, .block_tokens = 16, .kv_bytes_per_token = 64};
    if (tier.capacity.amount > 1 << 20 || kvr_tiers_create(&options, &cache, &error) != KVR_OK)
        return;
    require(kvr_cache_admit(cache, &request, &admission, &error) == KVR_OK);
    require(kvr_cache_finish(cache, admission.live, &error) == KVR_OK);
    kvr_cache_destroy(cache);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_sweep sweep = {.block_tokens = 16, .kv_bytes_per_token = 64};
    struct kvr_parameter_value values[8];
    const struct kvr_policy *policy;
    const struct kvr_admission_rule *rule;
    struct kvr_error error = {0};
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    struct kvr_text_piece piece = {text, strlen(text)};
    try_tier(text);
    if (kvr_choice_policy(piece, &policy, values, &error) == KVR_OK)
        require(policy != NULL);
    if (kvr_choice_admission(piece, &rule, values, &error) == KVR_OK)
        require(rule != NULL);
    if (kvr_sweep_grid(&sweep, text, &error) == KVR_OK)
        require(sweep.cell_count >= 2 && sweep.cell_count <= KVR_SWEEP_CELLS_MOST);
    kvr_sweep_release(&sweep);
    free(text);
    return 0;
}
