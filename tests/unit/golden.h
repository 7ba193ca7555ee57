/*
 * Reads the golden runs of the real engines (shared/engines, and the slices of them in tests/data):
 * a trace, and what an engine answered. A reader for just these files, in tests only: it trusts
 * their form and stops the test where it is wrong. In a list of ids UINT64_MAX stands for null.
 */
#ifndef KVR_TESTS_GOLDEN_H
#define KVR_TESTS_GOLDEN_H

#include "id_list.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct golden_request { /* of a trace */
    struct id_list ids, next_ids;
    uint64_t tail_tokens, output_tokens;
};

struct golden_trace {
    struct golden_request *requests;
    size_t count;
};

struct golden_result {
    uint64_t hit_blocks, usage_blocks;
    bool has_usage, truncated, rejected;
    struct id_list evicted;
};

struct golden_run {
    uint64_t blocks; /* num_gpu_blocks or pages */
    uint64_t overlap, block_tokens, hit_blocks, total_prompt_blocks;
    char policy[32];
    struct golden_result *results;
    size_t count;
    struct id_list free_queue;
};

/* The next character that is not white space or a comma. */
static char golden_peek(const char **at)
{
    while (**at == ' ' || **at == '\n' || **at == ',' || **at == ':')
        ++*at;
    return **at;
}

static bool golden_enter(const char **at, char open)
{
    if (golden_peek(at) != open)
        return false;
    ++*at;
    return true;
}

/* A string into out, cut to size - 1. */
static void golden_text(const char **at, char *out, size_t size)
{
    size_t length = 0;
    if (!golden_enter(at, '"'))
        abort();
    for (; **at && **at != '"'; ++*at)
        if (length + 1 < size)
            out[length++] = **at;
    out[length] = 0;
    ++*at;
}

static uint64_t golden_number(const char **at)
{
    static const struct {
        const char *word;
        uint64_t value;
    } words[] = {{"true", 1}, {"false", 0}, {"null", UINT64_MAX}};
    golden_peek(at);
    for (size_t i = 0; i < 3; i++) {
        size_t length = strlen(words[i].word);
        if (!strncmp(*at, words[i].word, length)) {
            *at += length;
            return words[i].value;
        }
    }
    char *end;
    uint64_t value = strtoull(*at, &end, 10);
    if (end == *at)
        abort();
    *at = end;
    return value;
}

static void golden_numbers(const char **at, struct id_list *list)
{
    if (!golden_enter(at, '['))
        abort();
    while (!golden_enter(at, ']'))
        id_push(list, golden_number(at));
}

static char *golden_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)size + 1);
    if (!text || fread(text, 1, (size_t)size, file) != (size_t)size)
        abort();
    fclose(file);
    return text;
}

/* False where the file is not there. */
static bool golden_trace_read(struct golden_trace *trace, const char *path)
{
    memset(trace, 0, sizeof *trace);
    char *text = golden_read(path), key[32], ignored[64];
    if (!text)
        return false;
    const char *at = text;
    if (!golden_enter(&at, '['))
        abort();
    while (golden_enter(&at, '{')) {
        trace->requests = realloc(trace->requests, (trace->count + 1) * sizeof *trace->requests);
        if (!trace->requests)
            abort();
        struct golden_request *request = &trace->requests[trace->count++];
        memset(request, 0, sizeof *request);
        while (!golden_enter(&at, '}')) {
            golden_text(&at, key, sizeof key);
            if (!strcmp(key, "hash_ids"))
                golden_numbers(&at, &request->ids);
            else if (!strcmp(key, "next_ids"))
                golden_numbers(&at, &request->next_ids);
            else if (!strcmp(key, "tail_tokens"))
                request->tail_tokens = golden_number(&at);
            else if (!strcmp(key, "output_tokens"))
                request->output_tokens = golden_number(&at);
            else
                golden_text(&at, ignored, sizeof ignored);
        }
    }
    free(text);
    return true;
}

static void golden_trace_release(struct golden_trace *trace)
{
    for (size_t i = 0; i < trace->count; i++) {
        id_free(&trace->requests[i].ids);
        id_free(&trace->requests[i].next_ids);
    }
    free(trace->requests);
}

static bool golden_run_read(struct golden_run *run, const char *path)
{
    memset(run, 0, sizeof *run);
    char *text = golden_read(path), key[32], ignored[128];
    if (!text)
        return false;
    const char *at = text;
    if (!golden_enter(&at, '{'))
        abort();
    while (!golden_enter(&at, '}')) {
        golden_text(&at, key, sizeof key);
        if (!strcmp(key, "num_gpu_blocks") || !strcmp(key, "pages")) {
            run->blocks = golden_number(&at);
        } else if (!strcmp(key, "overlap")) {
            run->overlap = golden_number(&at);
        } else if (!strcmp(key, "block_size") || !strcmp(key, "page_size")) {
            run->block_tokens = golden_number(&at);
        } else if (!strcmp(key, "hit_blocks")) {
            run->hit_blocks = golden_number(&at);
        } else if (!strcmp(key, "total_prompt_blocks")) {
            run->total_prompt_blocks = golden_number(&at);
        } else if (!strcmp(key, "policy")) {
            golden_text(&at, run->policy, sizeof run->policy);
        } else if (!strcmp(key, "final_free_queue")) {
            golden_numbers(&at, &run->free_queue);
        } else if (!strcmp(key, "results")) {
            if (!golden_enter(&at, '['))
                abort();
            while (golden_enter(&at, '{')) {
                run->results = realloc(run->results, (run->count + 1) * sizeof *run->results);
                if (!run->results)
                    abort();
                struct golden_result *result = &run->results[run->count++];
                memset(result, 0, sizeof *result);
                while (!golden_enter(&at, '}')) {
                    golden_text(&at, key, sizeof key);
                    if (!strcmp(key, "hit_blocks")) {
                        result->hit_blocks = golden_number(&at);
                    } else if (!strcmp(key, "usage_blocks")) {
                        result->usage_blocks = golden_number(&at);
                        result->has_usage = true;
                    } else if (!strcmp(key, "truncated")) {
                        result->truncated = golden_number(&at);
                    } else if (!strcmp(key, "rejected")) {
                        result->rejected = golden_number(&at);
                    } else if (!strcmp(key, "evicted")) {
                        golden_numbers(&at, &result->evicted);
                    } else {
                        golden_text(&at, ignored, sizeof ignored);
                    }
                }
            }
            if (!golden_enter(&at, ']'))
                abort();
        } else if (golden_peek(&at) == '"') {
            golden_text(&at, ignored, sizeof ignored);
        } else {
            golden_number(&at);
        }
    }
    free(text);
    return true;
}

static void golden_run_release(struct golden_run *run)
{
    for (size_t i = 0; i < run->count; i++)
        id_free(&run->results[i].evicted);
    free(run->results);
    id_free(&run->free_queue);
}

#endif
