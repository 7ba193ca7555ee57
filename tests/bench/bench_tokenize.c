/*
 * How fast text becomes tokens. As a program:
 *
 *     bench_tokenize VOCABULARY TEXTS.ndjson [pass]     (gzip or not; each line has "text")
 *
 * prints one NDJSON line: MB/s (of UTF-8 text) by CPU time, documents one at a time, as
 * cold (the first quarter in a fresh process), fresh (the other quarters, each seen for the first
 * time) and warm (the last of them again); and fresh once more with the processor's caches swept
 * between portions of 160 texts, as when other work runs in between. With `pass` it is only the
 * rate of one pass over all texts, which tokenize_program.py sets beside the program's. As a
 * library (tokenize.sh builds one) it is what tokenize_peers.py calls next to other tokenizers.
 */
#include "line/json.h"
#include "token/file.h"
#include "token/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bench {
    struct kvr_tokenizer *tokenizer;
    struct kvr_encoder *encoder;
    struct kvr_ids ids;
};

struct bench *bench_tokenize_open(const char *path);
long bench_tokenize_encode(struct bench *bench, const char *text, size_t length);
const uint32_t *bench_tokenize_ids(struct bench *bench);

/* PyUnicode_AsUTF8AndSize, handed over by the caller, so that this file needs no Python. */
typedef const char *text_of_object(void *object, ssize_t *length);
static text_of_object *text_of;
void bench_tokenize_python(text_of_object *function);
long bench_tokenize_object(struct bench *bench, void *object);

void bench_tokenize_python(text_of_object *function)
{
    text_of = function;
}

long bench_tokenize_object(struct bench *bench, void *object)
{
    ssize_t length = 0;
    const char *text = text_of(object, &length);

    return bench_tokenize_encode(bench, text, (size_t)length);
}

struct bench *bench_tokenize_open(const char *path)
{
    struct bench *bench = calloc(1, sizeof *bench);
    struct kvr_error error;

    if (!bench || kvr_tokenizer_load(&bench->tokenizer, path, getenv("KVR_BENCH_CACHE"), &error) ||
        kvr_encoder_new(&bench->encoder, bench->tokenizer, &error)) {
        fprintf(stderr, "bench_tokenize: %s\n", error.text);
        exit(1);
    }
    return bench;
}

/* The number of tokens. */
long bench_tokenize_encode(struct bench *bench, const char *text, size_t length)
{
    bench->ids.count = 0;
    if (kvr_encode(bench->encoder, text, length, KVR_ENCODE_SPECIAL, &bench->ids, NULL))
        exit(1);
    return (long)bench->ids.count;
}

const uint32_t *bench_tokenize_ids(struct bench *bench)
{
    return bench->ids.data;
}

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct texts {
    struct kvr_buffer bytes;
    size_t *ends, count;
};

static void read_texts(struct texts *texts, const char *path)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_buffer file = {0};
    struct kvr_error error;

    if (kvr_read_file(path, &file, &error)) {
        fprintf(stderr, "bench_tokenize: %s\n", error.text);
        exit(1);
    }
    texts->ends = malloc((file.length / 8 + 1) * sizeof *texts->ends);
    for (size_t at = 0; at < file.length;) {
        const char *line = file.data + at, *newline = memchr(line, '\n', file.length - at);
        size_t length = newline ? (size_t)(newline - line) : file.length - at;
        struct kvr_value value;
        at += length + 1;
        if (kvr_json_check(structure, line, length, &value, NULL, &error) ||
            !kvr_value_string(kvr_value_get(value, "text"), &texts->bytes))
            continue;
        texts->ends[texts->count++] = texts->bytes.length;
    }
    kvr_structure_destroy(structure);
    kvr_buffer_release(&file);
}

/* MB/s over texts [first, last); *tokens grows. */
static double pass(
    struct bench *bench, const struct texts *texts, size_t first, size_t last, size_t *tokens)
{
    size_t start = first ? texts->ends[first - 1] : 0, bytes = texts->ends[last - 1] - start;
    double began = cpu_seconds();

    for (size_t i = first; i < last; i++) {
        *tokens +=
            (size_t)bench_tokenize_encode(bench, texts->bytes.data + start, texts->ends[i] - start);
        start = texts->ends[i];
    }
    return (double)bytes / 1e6 / (cpu_seconds() - began);
}

/* As pass(), but before every 160 texts other memory goes through the caches, which is not timed.
 */
static double swept_pass(
    struct bench *bench, const struct texts *texts, size_t first, size_t last, size_t *tokens)
{
    enum { PORTION = 160, SWEEP_BYTES = 64 << 20 };
    volatile char *sweep = calloc(1, SWEEP_BYTES);
    double seconds = 0, megabytes = 0;

    for (size_t i = first; sweep && i < last; i += PORTION) {
        size_t stop = i + PORTION < last ? i + PORTION : last;
        size_t bytes = texts->ends[stop - 1] - (i ? texts->ends[i - 1] : 0);
        for (size_t at = 0; at < SWEEP_BYTES; at += 64)
            sweep[at]++;
        double rate = pass(bench, texts, i, stop, tokens);
        megabytes += (double)bytes / 1e6;
        seconds += (double)bytes / 1e6 / rate;
    }
    free((void *)(uintptr_t)sweep);
    return megabytes / seconds;
}

int main(int argc, char **argv)
{
    struct texts texts = {0};
    size_t tokens = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokenize VOCABULARY TEXTS.ndjson [pass]\n");
        return 2;
    }
    read_texts(&texts, argv[2]);
    double began = cpu_seconds();
    struct bench *bench = bench_tokenize_open(argv[1]);
    double start_ms = (cpu_seconds() - began) * 1e3;
    if (argc > 3) {
        double rate = pass(bench, &texts, 0, texts.count, &tokens);
        printf("{\"bytes\":%zu,\"tokens\":%zu,\"mb_s\":%.1f}\n", texts.bytes.length, tokens, rate);
        return 0;
    }
    size_t quarter = texts.count / 4;
    double cold = pass(bench, &texts, 0, quarter, &tokens);
    double fresh = pass(bench, &texts, quarter, texts.count, &tokens);
    double warm = pass(bench, &texts, quarter * 3, texts.count, &tokens);
    struct bench *other = bench_tokenize_open(argv[1]);
    pass(other, &texts, 0, quarter, &tokens);
    double swept = swept_pass(other, &texts, quarter, texts.count, &tokens);
    printf("{\"vocabulary\":\"%s\",\"texts\":%zu,\"bytes\":%zu,\"start_ms\":%.1f,"
           "\"cold_mb_s\":%.1f,\"fresh_mb_s\":%.1f,\"warm_mb_s\":%.1f,\"swept_mb_s\":%.1f}\n",
        argv[1], texts.count, texts.bytes.length, start_ms, cold, fresh, warm, swept);
    return 0;
}
