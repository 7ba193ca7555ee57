/* Any bytes as a GGUF model: refused, or every number of it can be read. */
#include "tests/fuzz/model_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_model_file *file = NULL;
    struct kvr_error error;

    if (kvr_model_file_gguf("fuzzed", data, size, &file, &error) == KVR_OK)
        read_all(file);
    return 0;
}
