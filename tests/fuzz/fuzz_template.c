/*
 * A template, a NUL, and the JSON text of its variable v: compiled and rendered within small
 * bounds. Whatever comes out, the pieces lie in the text in order, and a second rendering in the
 * same working memory gives the same.
 */
#include "token/template.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check_pieces(const struct kvr_template_run *run, size_t length)
{
    size_t count;
    size_t at = 0;
    const struct kvr_template_range *pieces = kvr_template_trace(run, &count);
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].start < at || pieces[i].end <= pieces[i].start || pieces[i].end > length)
            abort();
        at = pieces[i].end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kvr_template_limits limits = {
        .steps = 20000, .output_bytes = 1 << 16, .memory_bytes = 1 << 22, .depth = 200};
    const char *text = (const char *)data;
    const char *split = size ? memchr(text, 0, size) : NULL;
    size_t length = split ? (size_t)(split - text) : size;
    struct kvr_template_variable variable = {.name = "v",
        .json = split ? split + 1 : "null",
        .json_length = split ? size - length - 1 : 4};
    struct kvr_template *compiled;
    struct kvr_template_run *run;
    struct kvr_buffer first = {0};
    struct kvr_buffer second = {0};
    struct kvr_template_fault fault;
    struct kvr_error error;
    enum kvr_status status;
    if (kvr_template_compile(&compiled, text, length, &error))
        return 0;
    run = kvr_template_run_new(&limits, 0);
    if (!run)
        abort();
    status = kvr_template_render(compiled, run, &variable, 1, &first, &fault, &error);
    check_pieces(run, first.length);
    if (status && first.length)
        abort();
    if (kvr_template_render(compiled, run, &variable, 1, &second, NULL, &error) != status ||
        first.length != second.length ||
        (first.length && memcmp(first.data, second.data, first.length) != 0))
        abort();
    kvr_buffer_release(&first);
    kvr_buffer_release(&second);
    kvr_template_run_free(run);
    kvr_template_free(compiled);
    return 0;
}
