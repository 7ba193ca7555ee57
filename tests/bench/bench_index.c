/*
 * The prefix index alone, on a Mooncake trace.
 *
 *   bench_index TRACE WORKERS SPLIT REPEAT [WORKLOAD]
 *
 * Each 512-token block of the trace becomes SPLIT blocks. Requests are routed once, outside the
 * clock: longest match, ties and matches of the first trace block alone to the worker with the
 * fewest blocks. WORKLOAD gets one line a request, "worker held ids…", so that a peer can be given
 * the same. Processor time, best of REPEAT; one JSON line on stdout:
 *   stored   from empty, events with the blocks that the chosen worker lacked: blocks/s
 *   place    from empty, whole placements (touches and inserts): inserted blocks/s
 *   churn    placements into workers of an eighth of the blocks each needs: inserts and evictions/s
 *   find     every request against the full index: finds/s, blocks of the best match/s
 *   walk     the same where event streams may have left holes
 */
#include "cache/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

struct request {
    const uint64_t *ids;
    size_t count;
    uint32_t worker;
    size_t held; /* blocks that the worker had before */
};

static struct request *requests;
static size_t request_count;
static uint32_t worker_count;
static uint32_t split;

static void *checked(void *memory)
{
    if (!memory) {
        fprintf(stderr, "bench_index: out of memory\n");
        exit(3);
    }
    return memory;
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* "hash_ids": [ … ] of one line of the trace. */
static void read_line(const char *line, struct request *request)
{
    const char *at = strstr(line, "\"hash_ids\"");
    uint64_t *ids = NULL;
    size_t count = 0, room = 0;
    char *end;

    at = at ? strchr(at, '[') : NULL;
    while (at && *at != ']') {
        uint64_t id = strtoull(++at, &end, 10);
        if (end == at)
            break;
        if (count + split > room) {
            room = 2 * room + split + 16;
            ids = checked(realloc(ids, room * sizeof *ids));
        }
        for (uint32_t i = 0; i < split; i++)
            ids[count++] = id * split + i;
        at = end;
    }
    *request = (struct request){ids, count, 0, 0};
}

static void read_trace(const char *path)
{
    gzFile file = gzopen(path, "rb");
    char *line = checked(malloc(1 << 22));
    size_t room = 0;

    if (!file) {
        fprintf(stderr, "bench_index: cannot read '%s'\n", path);
        exit(3);
    }
    while (gzgets(file, line, 1 << 22)) {
        if (request_count == room) {
            room = 2 * room + 1024;
            requests = checked(realloc(requests, room * sizeof *requests));
        }
        read_line(line, &requests[request_count++]);
    }
    gzclose(file);
    free(line);
}

static struct kvr_index *new_index(uint64_t capacity_blocks)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index;

    options.capacity_blocks = capacity_blocks;
    options.seed = 1;
    if (kvr_index_create(&index, &options, NULL) != KVR_OK)
        checked(NULL);
    for (uint32_t w = 0; w < worker_count; w++) {
        char name[16];
        uint32_t id;
        snprintf(name, sizeof name, "w%u", w);
        kvr_index_worker(index, name, strlen(name), &id, NULL);
    }
    return index;
}

static struct kvr_blocks blocks_of(uint64_t space, const struct request *request)
{
    return (struct kvr_blocks){space, request->ids, request->count, 512 / split};
}

static uint64_t space_of(const struct kvr_index *index)
{
    return kvr_index_space(index, NULL, 0, NULL, 0, NULL, 0, 512 / split);
}

static void route_all(void)
{
    struct kvr_index *index = new_index(KVR_INDEX_UNBOUNDED);
    uint64_t space = space_of(index);

    for (size_t r = 0; r < request_count; r++) {
        struct kvr_blocks blocks = blocks_of(space, &requests[r]);
        const struct kvr_index_match *matches;
        size_t found = kvr_index_find(index, 0, &blocks, &matches), best = 0;
        uint32_t run[1024] = {0}, chosen = UINT32_MAX;

        for (size_t i = 0; i < found; i++) {
            run[matches[i].worker] = matches[i].blocks;
            best = matches[i].blocks > best ? matches[i].blocks : best;
        }
        for (uint32_t w = 0; w < worker_count; w++)
            if ((best <= split || run[w] == best) &&
                (chosen == UINT32_MAX ||
                    kvr_index_worker_blocks(index, w) < kvr_index_worker_blocks(index, chosen)))
                chosen = w;
        requests[r].worker = chosen;
        requests[r].held = run[chosen];
        kvr_index_place(index, chosen, 0, &blocks, NULL, NULL);
    }
    kvr_index_destroy(index);
}

static void write_workload(const char *path)
{
    FILE *file = fopen(path, "w");

    if (!file) {
        fprintf(stderr, "bench_index: cannot write '%s'\n", path);
        exit(3);
    }
    for (size_t r = 0; r < request_count; r++) {
        fprintf(file, "%u %zu", requests[r].worker, requests[r].held);
        for (size_t i = 0; i < requests[r].count; i++)
            fprintf(file, " %llu", (unsigned long long)requests[r].ids[i]);
        putc('\n', file);
    }
    if (fclose(file) != 0)
        exit(3);
}

static double time_stored(struct kvr_index *index, size_t *stored)
{
    uint64_t space = space_of(index);
    double start = seconds();

    *stored = 0;
    for (size_t r = 0; r < request_count; r++) {
        struct kvr_blocks blocks = blocks_of(space, &requests[r]);
        blocks.ids += requests[r].held;
        blocks.count -= requests[r].held;
        *stored += blocks.count;
        if (blocks.count)
            kvr_index_stored(index, requests[r].worker, KVR_MEDIUM_GPU, &blocks, NULL);
    }
    return seconds() - start;
}

static double time_place(struct kvr_index *index, size_t *moved)
{
    uint64_t space = space_of(index);
    double start = seconds();

    *moved = 0;
    for (size_t r = 0; r < request_count; r++) {
        struct kvr_blocks blocks = blocks_of(space, &requests[r]);
        struct kvr_index_placed placed;
        kvr_index_place(index, requests[r].worker, 0, &blocks, &placed, NULL);
        *moved += placed.inserted + placed.evicted;
    }
    return seconds() - start;
}

static double time_find(struct kvr_index *index, size_t *matched)
{
    uint64_t space = space_of(index);
    double start = seconds();

    *matched = 0;
    for (size_t r = 0; r < request_count; r++) {
        struct kvr_blocks blocks = blocks_of(space, &requests[r]);
        const struct kvr_index_match *matches;
        size_t found = kvr_index_find(index, 0, &blocks, &matches);
        uint32_t best = 0;
        for (size_t i = 0; i < found; i++)
            best = matches[i].blocks > best ? matches[i].blocks : best;
        *matched += best;
    }
    return seconds() - start;
}

static double least(double best, double now)
{
    return now < best ? now : best;
}

int main(int argc, char **argv)
{
    double stored_s = 1e9, place_s = 1e9, churn_s = 1e9, find_s = 1e9, walk_s = 1e9;
    size_t stored = 0, placed = 0, churned = 0, matched = 0, walked = 0, capacity;
    uint64_t pairs = 0, bytes = 0, distinct = 0;

    if (argc < 5) {
        fprintf(stderr, "usage: bench_index TRACE WORKERS SPLIT REPEAT [WORKLOAD]\n");
        return 2;
    }
    worker_count = (uint32_t)atoi(argv[2]);
    split = (uint32_t)atoi(argv[3]);
    if (worker_count < 1 || worker_count > 1024 || split < 1 || split > 512)
        return 2;
    read_trace(argv[1]);
    route_all();
    if (argc > 5)
        write_workload(argv[5]);
    for (int repeat = 0; repeat < atoi(argv[4]); repeat++) {
        struct kvr_index *index = new_index(KVR_INDEX_UNBOUNDED);
        stored_s = least(stored_s, time_stored(index, &stored));
        walk_s = least(walk_s, time_find(index, &walked));
        kvr_index_destroy(index);

        index = new_index(KVR_INDEX_UNBOUNDED);
        place_s = least(place_s, time_place(index, &placed));
        find_s = least(find_s, time_find(index, &matched));
        pairs = kvr_index_pairs(index);
        bytes = kvr_index_memory_bytes(index);
        distinct = kvr_index_distinct_blocks(index);
        kvr_index_destroy(index);

        capacity = pairs / worker_count / 8;
        index = new_index(capacity);
        churn_s = least(churn_s, time_place(index, &churned));
        kvr_index_destroy(index);
    }
    if (walked != matched) {
        fprintf(stderr, "bench_index: walking found %zu blocks, searching %zu\n", walked, matched);
        return 1;
    }
    printf("{\"program\":\"kvr\",\"block_tokens\":%u,\"workers\":%u,\"requests\":%zu,"
           "\"pairs\":%llu,\"distinct\":%llu,\"stored_per_s\":%.0f,\"place_per_s\":%.0f,"
           "\"churn_per_s\":%.0f,\"finds_per_s\":%.0f,\"matched_blocks_per_s\":%.0f,"
           "\"walk_finds_per_s\":%.0f,\"walk_matched_blocks_per_s\":%.0f,"
           "\"matched_blocks\":%zu,\"bytes_per_pair\":%.2f}\n",
        512 / split, worker_count, request_count, (unsigned long long)pairs,
        (unsigned long long)distinct, (double)stored / stored_s, (double)placed / place_s,
        (double)churned / churn_s, (double)request_count / find_s, (double)matched / find_s,
        (double)request_count / walk_s, (double)matched / walk_s, matched,
        (double)bytes / (double)pairs);
    return 0;
}
