/*
 * A byte of choices, then pieces of text with a NUL between each: tokenizer_config.json, template,
 * messages, tools, chat_template_kwargs. Read and rendered in every style within small bounds.
 */
#include "token/chat.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct kvr_chat_json next_piece(const char **at, const char *end)
{
    struct kvr_chat_json piece = {*at, 0};
    const char *stop = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;
    piece.length = (size_t)((stop ? stop : end) - *at);
    if (!piece.length)
        piece.data = NULL;
    *at = stop ? stop + 1 : end;
    return piece;
}

static void render(const struct kvr_chat *chat, struct kvr_template_run *run,
    const struct kvr_chat_request *request)
{
    struct kvr_buffer out = {0};
    struct kvr_chat_result result;
    struct kvr_template_fault fault;
    struct kvr_error error;
    const struct kvr_template_range *pieces;
    size_t count;
    enum kvr_status status = kvr_chat_render(chat, run, request, &out, &result, &fault, &error);
    if (status && (out.length || !error.text[0]))
        abort();
    pieces = kvr_template_trace(run, &count);
    for (size_t i = 0; i < count; i++)
        if (pieces[i].end > out.length || pieces[i].start >= pieces[i].end ||
            (i && pieces[i].start < pieces[i - 1].end))
            abort();
    for (size_t i = 0; !status && i < result.media_count; i++)
        if (result.media[i].text_offset > out.length)
            abort();
    kvr_buffer_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kvr_template_limits limits = {
        .steps = 20000, .output_bytes = 1 << 16, .memory_bytes = 1 << 22, .depth = 200};
    const char *at = (const char *)data + 1;
    const char *end = (const char *)data + size;
    struct kvr_chat_request request = {0};
    struct kvr_chat_json config;
    struct kvr_chat_json source;
    struct kvr_template_run *run;
    struct kvr_chat *chat;
    struct kvr_error error;
    if (size < 2)
        return 0;
    request.add_generation_prompt = data[0] & 1;
    request.continue_final_message = data[0] & 2;
    config = next_piece(&at, end);
    source = next_piece(&at, end);
    request.messages = next_piece(&at, end);
    request.tools = next_piece(&at, end);
    request.kwargs = next_piece(&at, end);
    if (kvr_chat_read(&chat, config.data, config.length, source.data, source.length, &error))
        return 0;
    run = kvr_template_run_new(&limits, 0);
    if (!run)
        abort();
    for (int style = KVR_CHAT_PLAIN; style <= KVR_CHAT_SGLANG; style++) {
        request.style = (enum kvr_chat_style)style;
        render(chat, run, &request);
    }
    kvr_template_run_free(run);
    kvr_chat_free(chat);
    return 0;
}
