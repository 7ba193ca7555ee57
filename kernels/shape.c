#include "kernels/shape.h"

#include <string.h>
#include <strings.h>

/* From the models' config.json; a test holds them against the parameter counts of presets.def. */
const struct kvr_shape kvr_shapes[] = {
    /* name          vocabulary hidden layers heads kv  dim  inner   tied  norms  theta     eps */
    {"tiny", 1000, 256, 3, 4, 2, 64, 544, true, true, 10000, 1e-5f},
    {"1b", 128256, 2048, 16, 32, 8, 64, 8192, true, false, 500000, 1e-5f},
    {"llama-3.1-8b", 128256, 4096, 32, 32, 8, 128, 14336, false, false, 500000, 1e-5f},
    {"llama-3.1-70b", 128256, 8192, 80, 64, 8, 128, 28672, false, false, 500000, 1e-5f},
    {"llama-3.1-405b", 128256, 16384, 126, 128, 8, 128, 53248, false, false, 500000, 1e-5f},
    {"qwen3-0.6b", 151936, 1024, 28, 16, 8, 128, 3072, true, true, 1000000, 1e-6f},
    {"qwen3-1.7b", 151936, 2048, 28, 16, 8, 128, 6144, true, true, 1000000, 1e-6f},
    {"qwen3-4b", 151936, 2560, 36, 32, 8, 128, 9728, true, true, 1000000, 1e-6f},
    {"qwen3-8b", 151936, 4096, 36, 32, 8, 128, 12288, false, true, 1000000, 1e-6f},
    {"qwen3-14b", 151936, 5120, 40, 40, 8, 128, 17408, false, true, 1000000, 1e-6f},
    {"qwen3-32b", 151936, 5120, 64, 64, 8, 128, 25600, false, true, 1000000, 1e-6f},
};
const size_t kvr_shape_count = sizeof kvr_shapes / sizeof *kvr_shapes;

enum kvr_status kvr_shape_find(
    const char *name, const struct kvr_shape **shape, struct kvr_error *error)
{
    struct kvr_buffer names = {0};
    char shown[64];

    for (size_t i = 0; i < kvr_shape_count; i++) {
        if (strcasecmp(kvr_shapes[i].name, name) == 0) {
            *shape = &kvr_shapes[i];
            return KVR_OK;
        }
    }
    for (size_t i = 0; i < kvr_shape_count; i++)
        kvr_buffer_append_format(&names, "%s%s", i ? ", " : "", kvr_shapes[i].name);
    const char *list = kvr_buffer_text(&names);
    kvr_error_set(error, KVR_BAD_USAGE, "no kernels for model '%s'; there are those of %s",
        kvr_printable(shown, sizeof shown, name, strlen(name)), list ? list : "the dense presets");
    kvr_buffer_release(&names);
    return KVR_BAD_USAGE;
}

/* Weights that every token is multiplied with in one layer. */
static double layer_matrices(const struct kvr_shape *shape)
{
    double heads = (double)shape->heads * shape->head_dim;
    double kv_heads = (double)shape->kv_heads * shape->head_dim;

    return (double)shape->hidden * (2 * heads + 2 * kv_heads + 3.0 * shape->inner);
}

double kvr_shape_parameters(const struct kvr_shape *shape)
{
    double norms = 2.0 * shape->hidden + (shape->head_norms ? 2.0 * shape->head_dim : 0);

    return (shape->tied ? 1.0 : 2.0) * shape->vocabulary * shape->hidden +
           shape->layers * (layer_matrices(shape) + norms) + shape->hidden;
}

double kvr_shape_kv_bytes_per_token(const struct kvr_shape *shape)
{
    return 2.0 * shape->layers * shape->kv_heads * shape->head_dim * 2;
}

double kvr_shape_flops(const struct kvr_shape *shape, double new_tokens, double cached_tokens)
{
    double pairs = new_tokens * (cached_tokens + 0.5 * (new_tokens + 1));

    return 2 * shape->layers * layer_matrices(shape) * new_tokens +
           4.0 * shape->layers * shape->heads * shape->head_dim * pairs +
           (new_tokens > 0 ? 2.0 * shape->vocabulary * shape->hidden : 0);
}

struct kvr_model kvr_shape_model(const struct kvr_shape *shape)
{
    return (struct kvr_model){
        .name = shape->name,
        .parameters = kvr_shape_parameters(shape),
        .active_parameters = kvr_shape_parameters(shape),
        .layers = shape->layers,
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .key_dim = shape->head_dim,
        .value_dim = shape->head_dim,
        .weight_bytes = 2,
        .kv_element_bytes = 2,
        .arithmetic = KVR_BF16,
    };
}
