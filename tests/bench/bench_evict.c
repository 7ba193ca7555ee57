/*
 * Times eviction policies on the block accesses of a trace, from memory.
 *
 *     bench_evict TRACE.oracleGeneral REPEATS NAME@CAPACITY...
 *
 * The trace is libCacheSim's oracleGeneral format (24 bytes an access: u32 time, u64 id, u32 size,
 * i64 next access), so both programs read one file; time holds the request's number and size the
 * tokens of the block. NAME is a policy under plain semantics, tree:POLICY for the prefix tree with
 * the path pinned, or curve for the stack distances of leaf LRU at every capacity. One NDJSON
 * line each: misses, and the best of the repeats in M accesses a second of CPU time.
 */
#include "cache/block_cache.h"
#include "cache/curve.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct trace {
    uint64_t *ids;
    uint32_t *future;
    size_t *starts; /* request_count + 1 */
    uint64_t *tokens;
    size_t count, request_count;
};

static double cpu_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void load(const char *path, struct trace *trace)
{
    int file = open(path, O_RDONLY);
    struct stat about;

    if (file < 0 || fstat(file, &about) || !about.st_size) {
        perror(path);
        exit(3);
    }
    size_t count = (size_t)about.st_size / 24;
    const char *records = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (records == MAP_FAILED) {
        perror(path);
        exit(3);
    }
    trace->ids = malloc(count * sizeof *trace->ids);
    trace->future = malloc(count * sizeof *trace->future);
    trace->starts = malloc((count + 1) * sizeof *trace->starts);
    trace->tokens = calloc(count + 1, sizeof *trace->tokens);
    uint32_t last = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        uint32_t request, tokens;
        memcpy(&request, records + i * 24, 4);
        memcpy(&trace->ids[i], records + i * 24 + 4, 8);
        memcpy(&tokens, records + i * 24 + 12, 4);
        if (i == 0 || request != last)
            trace->starts[trace->request_count++] = i;
        trace->tokens[trace->request_count - 1] += tokens;
        last = request;
    }
    trace->starts[trace->request_count] = trace->count = count;
    munmap((void *)records, (size_t)about.st_size);
    close(file);
    struct kvr_error error;
    if (kvr_future_compute(trace->ids, count, trace->future, &error) != KVR_OK)
        exit(3);
}

static void fail(const struct kvr_error *error)
{
    fprintf(stderr, "bench_evict: %s\n", error->text);
    exit(1);
}

static void run(const struct trace *trace, const char *name, uint64_t capacity, int repeats)
{
    bool tree = !strncmp(name, "tree:", 5);
    const char *policy_name = tree ? name + 5 : name;
    const struct kvr_policy *policy = kvr_policy_find(policy_name, strlen(policy_name));
    struct kvr_error error;
    struct kvr_block_counts counts = {0};
    struct kvr_cache_stats stats;
    double best = 1e9;

    if (!policy) {
        fprintf(stderr, "bench_evict: no policy '%s'\n", policy_name);
        exit(2);
    }
    for (int repeat = 0; repeat < repeats; repeat++) {
        struct kvr_block_options options = {
            .capacity_blocks = capacity,
            .block_tokens = 512,
            .policy = policy,
            .plain = !tree,
            .future = policy->needs_future ? trace->future : NULL,
            .future_length = policy->needs_future ? trace->count : 0,
        };
        struct kvr_cache *cache;
        double started = cpu_s();
        if (kvr_block_cache_create(&options, &cache, &error) != KVR_OK)
            fail(&error);
        for (size_t i = 0; i < trace->request_count; i++)
            if (kvr_block_cache_serve(cache, trace->ids + trace->starts[i],
                    trace->starts[i + 1] - trace->starts[i], trace->tokens[i], NULL, NULL,
                    &error) != KVR_OK)
                fail(&error);
        double took = cpu_s() - started;
        if (took < best)
            best = took;
        counts = *kvr_block_cache_counts(cache);
        kvr_cache_stats(cache, &stats);
        kvr_cache_destroy(cache);
    }
    printf(
        "{\"tool\":\"kvr\",\"policy\":\"%s\",\"capacity\":%llu,\"accesses\":%llu,\"misses\":%llu,"
        "\"hit_tokens\":%llu,\"bytes_a_block\":%.1f,\"maccess_s\":%.2f}\n",
        name, (unsigned long long)capacity, (unsigned long long)counts.accesses,
        (unsigned long long)(counts.accesses - counts.hits), (unsigned long long)counts.hit_tokens,
        (double)stats.memory_bytes /
            (double)(stats.resident_blocks[0] ? stats.resident_blocks[0] : 1),
        (double)counts.accesses / best / 1e6);
    fflush(stdout);
}

static void run_curve(const struct trace *trace, uint64_t capacity, int repeats)
{
    struct kvr_curve_options options = {.block_tokens = 512, .sample = 1};
    struct kvr_curve_point point = {0};
    struct kvr_error error;
    double best = 1e9;

    for (int repeat = 0; repeat < repeats; repeat++) {
        struct kvr_curve *curve;
        double started = cpu_s();
        if (kvr_curve_create(&curve, &options, &error) != KVR_OK)
            fail(&error);
        for (size_t i = 0; i < trace->request_count; i++)
            if (kvr_curve_add(curve, trace->ids + trace->starts[i],
                    trace->starts[i + 1] - trace->starts[i], trace->tokens[i], 0, &error) != KVR_OK)
                fail(&error);
        kvr_curve_point(curve, capacity, &point);
        double took = cpu_s() - started;
        if (took < best)
            best = took;
        kvr_curve_destroy(curve);
    }
    printf(
        "{\"tool\":\"kvr\",\"policy\":\"curve\",\"capacity\":%llu,\"accesses\":%zu,\"misses\":%.0f,"
        "\"hit_tokens\":%.0f,\"maccess_s\":%.2f}\n",
        (unsigned long long)capacity, trace->count, (double)trace->count - point.hit_blocks,
        point.hit_tokens, (double)trace->count / best / 1e6);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct trace trace = {0};

    if (argc < 4) {
        fprintf(stderr, "usage: bench_evict TRACE.oracleGeneral REPEATS NAME@CAPACITY...\n");
        return 2;
    }
    load(argv[1], &trace);
    for (int i = 3; i < argc; i++) {
        char name[64];
        char *at = strchr(argv[i], '@');
        if (!at || (size_t)(at - argv[i]) >= sizeof name)
            return 2;
        memcpy(name, argv[i], (size_t)(at - argv[i]));
        name[at - argv[i]] = '\0';
        uint64_t capacity = strtoull(at + 1, NULL, 10);
        if (!strcmp(name, "curve"))
            run_curve(&trace, capacity, atoi(argv[2]));
        else
            run(&trace, name, capacity, atoi(argv[2]));
    }
    free(trace.ids);
    free(trace.future);
    free(trace.starts);
    free(trace.tokens);
    return 0;
}
