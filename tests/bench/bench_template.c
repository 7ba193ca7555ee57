/*
 * How fast templates render: bench_template TEMPLATE|CONFIG [MESSAGE_BYTES [TURNS]]
 *
 * Renders conversations of TURNS messages of MESSAGE_BYTES each, parsing their JSON every time as a
 * request would, and prints one JSON line: rendered text in MB/s of CPU time, and microseconds for
 * one rendering. MB are 10^6 bytes.
 */
#include "line/json.h"
#include "token/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Prose with what JSON must escape in it, and something beyond ASCII. */
static void make_messages(struct kvr_buffer *out, size_t bytes, size_t turns)
{
    static const char prose[] =
        "The cache of one worker holds what another has not seen;\nits \"prefix\" is a tree "
        "\xe2\x80\x93 "
        "and routing is a walk in it. Na\xc3\xafve hashing would not know.\tSo we ask first. ";
    kvr_buffer_append_byte(out, '[');
    for (size_t i = 0; i < turns; i++) {
        struct kvr_buffer text = {0};
        while (text.length < bytes)
            kvr_buffer_append(&text, prose, strlen(prose));
        kvr_buffer_append_format(
            out, "%s{\"role\":\"%s\",\"content\":", i ? "," : "", i % 2 ? "assistant" : "user");
        kvr_json_write_string(out, text.data, text.length);
        kvr_buffer_append_byte(out, '}');
        kvr_buffer_release(&text);
    }
    kvr_buffer_append_byte(out, ']');
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    size_t turns = argc > 3 ? strtoul(argv[3], NULL, 10) : 9;
    struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
    struct kvr_buffer messages = {0};
    struct kvr_buffer out = {0};
    struct kvr_chat *chat;
    struct kvr_chat_request request = {.add_generation_prompt = true};
    struct kvr_chat_result result;
    struct kvr_error error;
    double start;
    double seconds = 0;
    size_t rounds = 0;
    size_t rendered = 0;
    bool config;
    if (argc < 2 || !run) {
        fprintf(stderr, "usage: bench_template TEMPLATE|CONFIG [MESSAGE_BYTES [TURNS]]\n");
        return 2;
    }
    config = strstr(argv[1], ".json");
    if (kvr_chat_load(&chat, config ? argv[1] : NULL, config ? NULL : argv[1], &error)) {
        fprintf(stderr, "bench_template: %s\n", error.text);
        return 1;
    }
    make_messages(&messages, bytes, turns);
    request.messages = (struct kvr_chat_json){messages.data, messages.length};
    start = cpu_seconds();
    for (; seconds < 1 && rounds < 1000000; rounds++) {
        kvr_buffer_clear(&out);
        if (kvr_chat_render(chat, run, &request, &out, &result, NULL, &error)) {
            fprintf(stderr, "bench_template: %s\n", error.text);
            return 1;
        }
        rendered += out.length;
        seconds = cpu_seconds() - start;
    }
    printf("{\"bench\":\"template\",\"turns\":%zu,\"message_bytes\":%zu,\"text_bytes\":%zu,"
           "\"mb_per_s\":%.1f,\"us_per_rendering\":%.2f}\n",
        turns, bytes, out.length, (double)rendered / seconds / 1e6, seconds / (double)rounds * 1e6);
    kvr_chat_free(chat);
    kvr_template_run_free(run);
    kvr_buffer_release(&messages);
    kvr_buffer_release(&out);
    return 0;
}
