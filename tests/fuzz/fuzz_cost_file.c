/* Any bytes as a cost file: refused, or a cost that writes and reads back as itself. */
#include "cost/cost.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_cost cost = {0}, back = {0};
    struct kvr_buffer text = {0};
    struct kvr_error error;

    if (kvr_cost_read(&cost, (const char *)data, size, &error) == KVR_OK) {
        kvr_cost_write(&cost, &text);
        if (kvr_cost_read(&back, text.data, text.length, &error) != KVR_OK ||
            memcmp(&cost, &back, sizeof cost) != 0)
            abort();
    }
    kvr_buffer_release(&text);
    return 0;
}
