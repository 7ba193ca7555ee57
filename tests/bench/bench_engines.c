/*
 * How fast the exact engines are: block accesses a second (the full blocks of the prompts that are
 * looked up) and bookkeeping bytes a resident block, on a trace or on a made-up one.
 *
 *     bench_engines [FILE BLOCK_TOKENS [CAPACITY_BLOCKS]]     gzip NDJSON as Mooncake's
 *
 * One NDJSON line an engine and setting, best of three runs. Reading the file is not timed.
 */
#include "base/grow.h"
#include "base/random.h"
#include "cache/replay.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

struct trace {
    struct kvr_cache_request *requests;
    uint64_t *ids;
    size_t count, room, id_count, id_room;
};

static void *need(void *memory)
{
    if (!memory) {
        fputs("bench_engines: out of memory\n", stderr);
        exit(3);
    }
    return memory;
}

static void add(
    struct trace *trace, uint64_t input, uint64_t output, uint32_t block, double time_ms)
{
    trace->requests =
        need(kvr_grow(trace->requests, &trace->room, trace->count + 1, sizeof *trace->requests));
    trace->requests[trace->count++] = (struct kvr_cache_request){
        .input_tokens = input, .output_tokens = output, .block_tokens = block, .time_ms = time_ms};
}

static void push(struct trace *trace, uint64_t id)
{
    trace->ids =
        need(kvr_grow(trace->ids, &trace->id_room, trace->id_count + 1, sizeof *trace->ids));
    trace->ids[trace->id_count++] = id;
    trace->requests[trace->count - 1].id_count++;
}

static uint64_t number_after(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static void read_trace(struct trace *trace, const char *path, uint32_t block)
{
    enum { LONGEST = 1 << 22 };
    char *line = need(malloc(LONGEST));
    gzFile file = gzopen(path, "rb");
    if (!file) {
        fprintf(stderr, "bench_engines: cannot read %s\n", path);
        exit(3);
    }
    while (gzgets(file, line, LONGEST)) {
        add(trace, number_after(line, "\"input_length\":"),
            number_after(line, "\"output_length\":"), block,
            (double)number_after(line, "\"timestamp\":"));
        char *at = strstr(line, "\"hash_ids\":"), *end;
        for (at = at ? strchr(at, '[') : NULL; at && *at && *at != ']'; at = end) {
            uint64_t id = strtoull(at + 1, &end, 10);
            if (end == at + 1)
                break;
            push(trace, id);
        }
    }
    gzclose(file);
    free(line);
}

/* Conversations that grow turn by turn behind a few shared prompts. */
static void make_trace(struct trace *trace, uint32_t block)
{
    enum { TALKS = 512, LONGEST = 1500 };
    struct kvr_random random = {1};
    static struct {
        uint64_t ids[LONGEST + 100];
        size_t count;
    } talks[TALKS];
    uint64_t fresh = 1000000;
    for (int i = 0; i < 20000; i++) {
        uint32_t which = kvr_random_below(&random, TALKS);
        if (!talks[which].count || talks[which].count > LONGEST) {
            uint64_t shared = kvr_random_below(&random, 8);
            for (talks[which].count = 0; talks[which].count < 60; talks[which].count++)
                talks[which].ids[talks[which].count] = 1 + shared * 100 + talks[which].count;
        }
        for (uint32_t grown = 5 + kvr_random_below(&random, 60); grown; grown--)
            talks[which].ids[talks[which].count++] = fresh++;
        add(trace, talks[which].count * block + 3, 2 * block, block, i * 50.0);
        for (size_t k = 0; k < talks[which].count; k++)
            push(trace, talks[which].ids[k]);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void check(enum kvr_status status, const struct kvr_error *error)
{
    if (status != KVR_OK) {
        fprintf(stderr, "bench_engines: %s\n", error->text);
        exit(1);
    }
}

struct setting {
    const char *engine, *parameters;
    uint32_t live;
};

static void run(
    const struct trace *trace, const struct setting *setting, uint64_t capacity, uint32_t block)
{
    const struct kvr_engine *engine = kvr_engine_find(setting->engine);
    struct kvr_cache_stats stats = {0};
    uint64_t accesses = 0;
    double best = 1e9;
    for (int repeat = 0; repeat < 3; repeat++) {
        struct kvr_parameter_value values[16];
        struct kvr_error error = {0};
        struct kvr_cache *cache;
        struct kvr_replay replay;
        struct kvr_engine_options options = {
            .capacity_blocks = capacity, .block_tokens = block, .values = values};
        check(kvr_parameter_defaults(engine->parameters, engine->parameter_count, values, &error),
            &error);
        check(kvr_parameter_read(engine->parameters, engine->parameter_count, setting->parameters,
                  strlen(setting->parameters), values, &error),
            &error);
        check(kvr_cache_create(engine, &options, &cache, &error), &error);
        check(kvr_replay_init(&replay, cache, setting->live, false, &error), &error);
        const uint64_t *ids = trace->ids;
        double start = seconds();
        accesses = 0;
        for (size_t i = 0; i < trace->count; i++) {
            struct kvr_cache_request request = trace->requests[i];
            struct kvr_replay_result result;
            request.ids = ids;
            ids += request.id_count;
            accesses += kvr_cache_full_ids(&request);
            check(kvr_replay_request(&replay, &request, &result, &error), &error);
        }
        double taken = seconds() - start;
        best = taken < best ? taken : best;
        kvr_cache_stats(cache, &stats);
        kvr_replay_release(&replay);
        kvr_cache_destroy(cache);
    }
    uint64_t resident = 0, hits = 0;
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++) {
        resident += stats.resident_blocks[medium];
        hits += stats.hit_blocks[medium];
    }
    printf("{\"engine\":\"%s\",\"parameters\":\"%s\",\"live\":%u,\"capacity_blocks\":%llu,"
           "\"requests\":%zu,\"accesses\":%llu,\"hit_blocks\":%llu,\"seconds\":%.4f,"
           "\"accesses_per_second\":%.3g,\"bytes_per_resident_block\":%.1f}\n",
        setting->engine, setting->parameters, setting->live, (unsigned long long)capacity,
        trace->count, (unsigned long long)accesses, (unsigned long long)hits, best,
        (double)accesses / best, resident ? (double)stats.memory_bytes / (double)resident : 0.0);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct trace trace = {0};
    uint32_t block = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 16;
    uint64_t capacity = argc > 3 ? strtoull(argv[3], NULL, 10) : 100000;
    if (!block || !capacity || argc == 2) {
        fputs("usage: bench_engines [FILE BLOCK_TOKENS [CAPACITY_BLOCKS]]\n", stderr);
        return 2;
    }
    if (argc > 1)
        read_trace(&trace, argv[1], block);
    else
        make_trace(&trace, block);
    static const struct setting settings[] = {{"vllm", "", 0}, {"vllm", "", 8},
        {"sglang", "strategy=lru", 0}, {"sglang", "strategy=lru", 8},
        {"sglang", "strategy=slru", 0}, {"sglang", "strategy=lru,host-ratio=2", 0},
        {"lmcache", "", 0}, {"mooncake", "", 0}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        run(&trace, &settings[i], capacity, block);
    free(trace.requests);
    free(trace.ids);
    return 0;
}
