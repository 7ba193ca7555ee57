/*
 * vllm bench serve --save-detailed: one object with parallel arrays, one element a request, times
 * in seconds. The end is latencies[i] where there is one, else TTFT plus the inter-token times. A
 * request with an error, or without a TTFT and output, failed.
 */
#include "line/format.h"
#include "line/format_record.h"

enum column { INPUT, OUTPUT, TTFT, ITL, LATENCY, START, ERROR, COLUMNS };

static const char *const columns[COLUMNS][2] = {{"input_lens", NULL}, {"output_lens", NULL},
    {"ttfts", NULL}, {"itls", NULL}, {"latencies", "e2els"}, {"start_times", NULL},
    {"errors", NULL}};

static double sum(struct kvr_value list)
{
    struct kvr_cursor cursor = kvr_value_open(list);
    struct kvr_value element;
    double total = 0;

    while (kvr_next_element(&cursor, &element))
        total += kvr_format_number(element);
    return list.type == KVR_ARRAY ? total : NAN;
}

static enum kvr_status convert(
    void *state, const struct kvr_line *line, struct kvr_buffer *out, struct kvr_error *error)
{
    struct kvr_cursor cursors[COLUMNS];
    struct kvr_value inputs = kvr_line_find(line, columns[INPUT][0]);
    struct kvr_value model = kvr_line_find(line, "model_id");

    (void)state;
    if (inputs.type != KVR_ARRAY)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "no array 'input_lens': was it run with --save-detailed?");
    for (int i = 0; i < COLUMNS; i++) {
        struct kvr_value list = kvr_line_find(line, columns[i][0]);
        if (list.type == KVR_ABSENT && columns[i][1])
            list = kvr_line_find(line, columns[i][1]);
        cursors[i] = kvr_value_open(list);
    }
    for (;;) {
        struct kvr_format_record record = kvr_format_record();
        struct kvr_value values[COLUMNS];
        for (int i = 0; i < COLUMNS; i++) {
            if (!kvr_next_element(&cursors[i], &values[i]))
                values[i] = (struct kvr_value){NULL, 0, KVR_ABSENT};
        }
        if (values[INPUT].type == KVR_ABSENT)
            return KVR_OK;
        double ttft = kvr_format_number(values[TTFT]);
        double latency = kvr_format_number(values[LATENCY]);
        if (isnan(latency))
            latency = ttft + sum(values[ITL]);
        record.model = model;
        record.input_length = kvr_format_integer(values[INPUT]);
        record.output_length = kvr_format_integer(values[OUTPUT]);
        record.timestamp_ms = kvr_format_number(values[START]) * 1e3;
        record.ttft_ms = ttft * 1e3;
        record.e2e_ms = latency * 1e3;
        bool failed = (values[ERROR].type == KVR_STRING && values[ERROR].length > 2) ||
                      (ttft == 0 && record.output_length <= 0);
        record.status = failed ? 0 : 200;
        kvr_format_write(&record, out);
    }
}

const struct kvr_format kvr_format_vllm_bench = {
    .name = "vllm-bench",
    .summary = "vllm bench serve --save-detailed: one object of parallel arrays",
    .json = true,
    .convert = convert,
};
