/* Any bytes as a file of alert rules. */
#include "stat/alert.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_alerts alerts = {0};
    struct kvr_error error;
    char *copy = malloc(size + 1);

    if (!copy)
        return 0;
    if (size)
        memcpy(copy, data, size);
    copy[size] = '\0';
    enum kvr_status status = kvr_alerts_read(&alerts, "rules", copy, size, &error);
    if (status == KVR_OK) {
        for (size_t i = 0; i < alerts.rule_count; i++) {
            if (!alerts.rules[i].name || !alerts.rules[i].condition_count ||
                !(alerts.rules[i].for_ms >= 0) || !(alerts.rules[i].against_ms >= 0))
                abort();
        }
    } else if (status != KVR_BAD_INPUT) {
        abort();
    }
    kvr_alerts_release(&alerts);
    free(copy);
    return 0;
}
