/* Any bytes as a /metrics page. */
#include "stat/series.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_engine_series series;
    struct kvr_exposition_sample sample;
    struct kvr_buffer text = {0};
    char *page = malloc(size ? size : 1); /* exactly as long: reading past it shows */

    if (!page)
        return 0;
    if (size)
        memcpy(page, data, size);
    kvr_series_read(page, size, &series);
    for (size_t i = 1; i < series.ttft_count; i++) {
        if (!(series.ttft[i - 1].until_s < series.ttft[i].until_s))
            abort();
    }
    kvr_series_ttft_ms(&series, &series, 0.5);
    struct kvr_exposition exposition = kvr_exposition_open(page, size);
    while (kvr_exposition_next(&exposition, &sample)) {
        if (sample.name.text < page || sample.name.text + sample.name.length > page + size ||
            sample.labels.text + sample.labels.length > page + size)
            abort();
        kvr_buffer_clear(&text);
        kvr_exposition_label(&sample, "le", &text);
    }
    kvr_buffer_release(&text);
    free(page);
    return 0;
}
