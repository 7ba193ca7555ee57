/* What is noted when a request is over: a line in the log, `done` for the decision, the gauges. */
#include "net/serve_private.h"

#include "base/clock.h"

static void write_log(struct call *call, unsigned status, double now_ms, const char *failure)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_buffer *out = &serve->log.buffer;

    if (!serve->logs || !call->line.length)
        return;
    kvr_buffer_append(out, call->line.data, call->line.length);
    if (serve->options.log_prompts && call->request.length > call->content_at + 1)
        kvr_buffer_append(out, call->request.data + call->content_at,
            call->request.length - call->content_at - 1);
    kvr_line_add(out, "response");
    kvr_answer_write(&call->answer, status, call->begun_ms, now_ms,
        call->chosen ? call->chosen->name : NULL, out);
    if (call->tries > 1) {
        kvr_buffer_append_text(out, ",\"attempts\":");
        kvr_buffer_append_u64(out, call->tries);
    }
    if (failure) {
        kvr_buffer_append_text(out, ",\"error\":\"");
        kvr_buffer_append_text(out, failure);
        kvr_buffer_append_byte(out, '"');
    }
    kvr_buffer_append_text(out, "}}");
    kvr_writer_line_done(&serve->log);
}

/* The decision's side counts the request no more. */
static void tell_done(struct call *call, unsigned status, double now_ms)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_buffer *out = &serve->done;

    if (!call->told)
        return;
    call->told = false;
    kvr_buffer_clear(out);
    kvr_buffer_append_text(out, "{\"event\":\"done\",\"id\":\"");
    kvr_buffer_append(out, call->id.data, call->id.length);
    kvr_buffer_append_byte(out, '"');
    if (call->chosen) {
        kvr_buffer_append_text(out, ",\"worker\":");
        kvr_json_write_string(out, call->chosen->name, strlen(call->chosen->name));
    }
    kvr_buffer_append_text(out, ",\"response\":");
    kvr_answer_write(&call->answer, status, call->begun_ms, now_ms, NULL, out);
    kvr_buffer_append_text(out, "}}");
    if (out->failed)
        return;
    if (serve->pipeline)
        kvr_pipe_mention(serve->pipeline, out->data, out->length);
    else
        fleet_tell_line(serve, out->data, out->length);
}

static void count(struct call *call, unsigned status, double now_ms)
{
    struct kvr_serve *serve = call->serve;

    if (!call->reason[0])
        return; /* asked of the front end itself, or refused */
    struct kvr_gauge_row *row =
        kvr_gauges_row(&serve->gauges, call->chosen ? call->chosen->name : "", call->reason);

    if (!row)
        return;
    row->by_class[status / 100 < 6 ? status / 100 : 0]++;
    if (!call->generates)
        return;
    kvr_histogram_add(&row->e2e_s, (now_ms - call->begun_ms) / 1e3, 0.001);
    kvr_histogram_add(&row->ttft_s, (call->answer.first_ms - call->begun_ms) / 1e3, 0.001);
    row->matched_tokens += call->verdict.matched;
    row->input_tokens += call->answer.prompt_tokens > 0 ? (uint64_t)call->answer.prompt_tokens
                                                        : call->verdict.input_tokens;
    row->cached_tokens += call->answer.cached_tokens > 0 ? (uint64_t)call->answer.cached_tokens : 0;
}

void call_note_end(struct call *call, unsigned status, const char *failure)
{
    double now_ms = kvr_clock_ms();

    write_log(call, status, now_ms, failure);
    tell_done(call, status, now_ms);
    count(call, status, now_ms);
}
