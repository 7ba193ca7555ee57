/* Any bytes as a partial: refused, or merged twice and written again; what was written merges into
 * the same numbers. */
#include "stat/partial.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool law)
{
    if (!law)
        abort();
}

static struct kvr_report *make(void)
{
    struct kvr_report_options options;
    struct kvr_report *report;

    require(kvr_report_defaults(&options, NULL) == KVR_OK);
    options.cost = (struct kvr_cost){.prefill_overhead_ms = 1, .prefill_token_ms = 1};
    options.session_limit = 1000;
    options.block_limit = 1000;
    require(kvr_report_create(&report, &options, NULL) == KVR_OK);
    return report;
}

static uint64_t requests(const struct kvr_report *report)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < report->worker_names.count; i++)
        sum += report->workers[i].tally.counters[KVR_COUNT_REQUESTS];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_source_line source = {.text = (const char *)data, .length = size, .file = "fuzz"};
    struct kvr_buffer text = {0};
    struct kvr_error error;
    struct kvr_line line;

    require(kvr_line_init(&line, &error) == KVR_OK);
    char *copy = malloc(size + 1); /* the parser may look one byte past a number */
    require(copy != NULL);
    if (size)
        memcpy(copy, data, size);
    copy[size] = '\0';
    source.text = copy;
    if (kvr_line_parse(&line, &source, &error) == KVR_OK) {
        struct kvr_report *report = make(), *again = make();
        enum kvr_status first = kvr_partial_merge(report, &line, NULL, &error);
        if (first == KVR_OK) {
            kvr_partial_write(report, NULL, &text);
            require(!text.failed);
            struct kvr_source_line written = {
                .text = kvr_buffer_text(&text), .length = text.length, .file = "again"};
            require(kvr_line_parse(&line, &written, &error) == KVR_OK);
            require(kvr_partial_merge(again, &line, NULL, &error) == KVR_OK);
            require(requests(again) == requests(report));
            require(kvr_partial_merge(report, &line, NULL, &error) == KVR_OK);
            require(kvr_partial_settle(report, &error) == KVR_OK);
        } else {
            require(requests(report) == 0);
        }
        kvr_report_destroy(report);
        kvr_report_destroy(again);
    }
    kvr_buffer_release(&text);
    kvr_line_release(&line);
    free(copy);
    return 0;
}
