/* A line of config.json and any bytes behind it as a safetensors model: refused, or every number of
 * it can be read. */
#include "tests/fuzz/model_file.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t config = end ? (size_t)(end - data) : size, skipped = end ? config + 1 : size;
    struct kvr_model_file *file = NULL;
    struct kvr_error error;

    if (kvr_model_file_safetensors("fuzzed", (const char *)data, config, data + skipped,
            size - skipped, &file, &error) == KVR_OK)
        read_all(file);
    return 0;
}
