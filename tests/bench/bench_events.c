/*
 * KV events through every stage.
 *
 *   bench_events make FILE BLOCKS MIX        writes frames as vLLM 0.24 and later send them: MIX is
 *                                            "stored" (prompts of 32 blocks, 128 blocks a message)
 * or "churn" (each block stored is removed later, one event each, as engines do) bench_events index
 * FILE REPEAT           frames from the file into a prefix index, in process bench_events socket
 * PROGRAM FILE PLACE   frames over a real socket to PROGRAM (kvr-events with what pins it), until
 * its last line is here bench_events latency PROGRAM PLACE RATE SECONDS RATE blocks/s, 16 a
 * message: from just before a message is sent until its line has been read One JSON line each.
 */
#include "cache/index.h"
#include "net/kv_event_file.h"
#include "net/kv_event_publish.h"
#include "net/kv_event_stream.h"

#include <fcntl.h>
#include <msgpack.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

enum { BLOCK = 16, PROMPT = 32, PROMPTS = 4, KEPT = 65536, TINY = 16 };

static void die(const char *why)
{
    fprintf(stderr, "bench_events: %s\n", why);
    exit(3);
}

static double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- making ---- */

static void text(msgpack_packer *packer, const char *bytes)
{
    msgpack_pack_str(packer, strlen(bytes));
    msgpack_pack_str_body(packer, bytes, strlen(bytes));
}

/* Blocks first … first + count - 1, each the child of the one before; `root`: the first has none.
 */
static void pack_stored(msgpack_packer *packer, uint64_t first, unsigned count, bool root)
{
    msgpack_pack_map(packer, 8);
    text(packer, "type");
    text(packer, "BlockStored");
    text(packer, "block_hashes");
    msgpack_pack_array(packer, count);
    for (unsigned i = 0; i < count; i++)
        msgpack_pack_uint64(packer, mix(first + i));
    text(packer, "parent_block_hash");
    root ? msgpack_pack_nil(packer) : msgpack_pack_uint64(packer, mix(first - 1));
    text(packer, "token_ids");
    msgpack_pack_array(packer, count * BLOCK);
    for (unsigned i = 0; i < count * BLOCK; i++)
        msgpack_pack_uint64(packer, mix(first * BLOCK + i) % 128000);
    text(packer, "block_size");
    msgpack_pack_int(packer, BLOCK);
    text(packer, "lora_id");
    msgpack_pack_nil(packer);
    text(packer, "medium");
    text(packer, "GPU");
    text(packer, "group_idx");
    msgpack_pack_int(packer, 0);
}

static void pack_removed(msgpack_packer *packer, uint64_t block)
{
    msgpack_pack_map(packer, 4);
    text(packer, "type");
    text(packer, "BlockRemoved");
    text(packer, "block_hashes");
    msgpack_pack_array(packer, 1);
    msgpack_pack_uint64(packer, mix(block));
    text(packer, "medium");
    text(packer, "GPU");
    text(packer, "group_idx");
    msgpack_pack_int(packer, 0);
}

static void begin_batch(msgpack_packer *packer, size_t events)
{
    msgpack_pack_array(packer, 3);
    msgpack_pack_double(packer, 1764400000.5);
    msgpack_pack_array(packer, events);
}

static void write_u32(FILE *file, uint32_t number)
{
    const uint8_t bytes[] = {
        (uint8_t)(number >> 24), (uint8_t)(number >> 16), (uint8_t)(number >> 8), (uint8_t)number};
    fwrite(bytes, 1, 4, file);
}

static void write_message(FILE *file, uint32_t sequence, const msgpack_sbuffer *payload)
{
    write_u32(file, 3);
    write_u32(file, 2);
    fwrite("kv", 1, 2, file);
    write_u32(file, 8);
    write_u32(file, 0);
    write_u32(file, sequence);
    write_u32(file, (uint32_t)payload->size);
    fwrite(payload->data, 1, payload->size, file);
}

static int make(const char *path, uint64_t blocks, bool churn)
{
    FILE *file = fopen(path, "wb");
    uint32_t messages = (uint32_t)(blocks / (PROMPT * PROMPTS));
    msgpack_sbuffer payload;
    msgpack_packer packer;
    uint64_t block = 1, removed = 1;

    if (!file)
        die("cannot write the file");
    write_u32(file, messages + 1);
    msgpack_sbuffer_init(&payload);
    for (uint32_t i = 0; i < messages; i++) {
        unsigned gone = churn && block > KEPT ? PROMPT * PROMPTS : 0;
        msgpack_sbuffer_clear(&payload);
        msgpack_packer_init(&packer, &payload, msgpack_sbuffer_write);
        begin_batch(&packer, PROMPTS + gone);
        for (int j = 0; j < PROMPTS; j++, block += PROMPT)
            pack_stored(&packer, block, PROMPT, true);
        while (gone--)
            pack_removed(&packer, removed++);
        msgpack_pack_int(&packer, 0);
        write_message(file, i, &payload);
    }
    /* The last one tells that all have come. */
    msgpack_sbuffer_clear(&payload);
    msgpack_packer_init(&packer, &payload, msgpack_sbuffer_write);
    begin_batch(&packer, 1);
    msgpack_pack_map(&packer, 1);
    text(&packer, "type");
    text(&packer, "AllBlocksCleared");
    msgpack_pack_int(&packer, 0);
    write_message(file, messages, &payload);
    msgpack_sbuffer_destroy(&payload);
    return fclose(file) ? 3 : 0;
}

/* ---- into the index ---- */

struct into {
    struct kvr_index *index;
    uint32_t worker;
    uint64_t blocks, most;
};

static struct kvr_blocks blocks_of(const struct into *into, const struct kvr_kv_run *run)
{
    const struct kvr_kv_space *space = run->space;

    return (struct kvr_blocks){
        kvr_index_space(into->index, space->model.text, space->model.length, space->lora.text,
            space->lora.length, space->salt.text, space->salt.length, space->block_size),
        run->ids, run->count, space->block_size};
}

static void into_stored(void *context, const struct kvr_kv_run *run)
{
    struct into *into = context;
    struct kvr_blocks blocks = blocks_of(into, run);

    if (kvr_index_stored(into->index, into->worker, run->medium, &blocks, NULL) != KVR_OK)
        die("the index refused blocks");
    into->blocks += run->count;
}

static void into_removed(void *context, const struct kvr_kv_run *run)
{
    struct into *into = context;
    struct kvr_blocks blocks = blocks_of(into, run);

    if (kvr_index_removed(into->index, into->worker, run->medium, &blocks, NULL) != KVR_OK)
        die("the index refused blocks");
    into->blocks += run->count;
}

static void into_cleared(void *context, const char *worker, const char *reason)
{
    struct into *into = context;

    (void)worker, (void)reason;
    if (kvr_index_pairs(into->index) > into->most)
        into->most = kvr_index_pairs(into->index);
    kvr_index_worker_clear(into->index, into->worker);
}

static double index_once(const char *path, struct into *into)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_kv_memory memory = {.limit = SIZE_MAX};
    const struct kvr_kv_sink sink = {into, into_stored, into_removed, into_cleared};
    struct kvr_kv_stream_options stream_options = {
        .name = "w0", .memory = &memory, .sink = &sink, .reorder_ms = 1};
    struct kvr_kv_stream *stream;
    struct kvr_kv_reader *reader;
    struct kvr_kv_record record;
    double start = seconds(CLOCK_PROCESS_CPUTIME_ID);

    memset(into, 0, sizeof *into);
    if (kvr_index_create(&into->index, &options, NULL) != KVR_OK ||
        kvr_index_worker(into->index, "w0", 2, &into->worker, NULL) != KVR_OK ||
        kvr_kv_stream_create(&stream, &stream_options, NULL) != KVR_OK ||
        kvr_kv_reader_open(&reader, path, 1 << 24, NULL) != KVR_OK)
        die("cannot begin");
    while (kvr_kv_reader_next(reader, &record, NULL) == KVR_OK)
        if (kvr_kv_stream_take(stream, record.frames, record.frame_count, false, 0, NULL) != KVR_OK)
            die("a bad message");
    double took = seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
    kvr_kv_reader_close(reader);
    kvr_kv_stream_destroy(stream);
    kvr_kv_memory_release(&memory);
    kvr_index_destroy(into->index);
    return took;
}

static int into_index(const char *path, int repeat)
{
    struct into into;
    double best = 1e9;

    while (repeat-- > 0) {
        double took = index_once(path, &into);
        best = took < best ? took : best;
    }
    printf("{\"figure\":\"frames to index\",\"program\":\"kvr\",\"blocks\":%llu,\"held\":%llu,"
           "\"blocks_per_s\":%.0f}\n",
        (unsigned long long)into.blocks, (unsigned long long)into.most, (double)into.blocks / best);
    return 0;
}

/* ---- over a socket ---- */

static struct kvr_kv_publisher *open_publisher(void *context, const char *place)
{
    struct kvr_kv_publisher_options options = {.endpoint = place};
    struct kvr_kv_publisher *publisher;
    struct kvr_error error = {0};

    if (kvr_kv_publisher_open(&publisher, context, &options, &error) != KVR_OK)
        die(error.text);
    return publisher;
}

static FILE *start(const char *program, const char *place)
{
    char command[1024];
    FILE *lines;

    snprintf(command, sizeof command, "exec %s -q --idle 1s w0=%s", program, place);
    lines = popen(command, "r");
    if (!lines)
        die("cannot start the program");
    return lines;
}

static void await_subscriber(struct kvr_kv_publisher *publisher)
{
    for (int i = 0; i < 5000; i++) {
        if (kvr_kv_publisher_subscribers(publisher))
            return;
        usleep(2000);
    }
    die("nobody subscribed");
}

struct messages {
    struct kvr_frame *items;
    size_t count;
};

static struct messages load(const char *path)
{
    struct messages messages = {0};
    struct kvr_kv_reader *reader;
    struct kvr_kv_record record;

    if (kvr_kv_reader_open(&reader, path, 1 << 24, NULL) != KVR_OK)
        die("cannot read the file");
    while (kvr_kv_reader_next(reader, &record, NULL) == KVR_OK) {
        const struct kvr_frame *payload = &record.frames[record.frame_count - 1];
        uint8_t *bytes = malloc(payload->size);
        messages.items = realloc(messages.items, (messages.count + 1) * sizeof *messages.items);
        if (!bytes || !messages.items)
            die("out of memory");
        memcpy(bytes, payload->data, payload->size);
        messages.items[messages.count++] = (struct kvr_frame){bytes, payload->size};
    }
    kvr_kv_reader_close(reader);
    return messages;
}

struct sending {
    struct kvr_kv_publisher *publisher;
    struct messages messages;
};

static void *send_all(void *context)
{
    struct sending *sending = context;

    for (size_t i = 0; i < sending->messages.count; i++)
        kvr_kv_publisher_send(
            sending->publisher, (struct kvr_text){"kv", 2}, i, sending->messages.items[i], false);
    return NULL;
}

static int over_socket(const char *program, const char *path, const char *place)
{
    static char bytes[1 << 16];
    void *context = zmq_ctx_new();
    struct sending sending = {open_publisher(context, place), load(path)};
    FILE *lines = start(program, place);
    uint64_t ids = 0, cleared = 0, total = 0;
    pthread_t thread;
    ssize_t got;

    await_subscriber(sending.publisher);
    double begin = seconds(CLOCK_MONOTONIC);
    if (pthread_create(&thread, NULL, send_all, &sending) != 0)
        die("no thread");
    /* Ids are counted by the commas and brackets of their lists; the engine's own clearing ends. */
    bool in_list = false;
    char before = 0;
    while (cleared < 2 && (got = read(fileno(lines), bytes, sizeof bytes)) > 0) {
        total += (uint64_t)got;
        for (ssize_t i = 0; i < got; i++) {
            if (bytes[i] == '[')
                in_list = true;
            ids += in_list && (bytes[i] == ',' || bytes[i] == ']');
            if (bytes[i] == ']')
                in_list = false;
            cleared += before == '"' && bytes[i] == 'c';
            before = bytes[i];
        }
    }
    double took = seconds(CLOCK_MONOTONIC) - begin;
    pthread_join(thread, NULL);
    kvr_kv_publisher_close(sending.publisher);
    pclose(lines);
    zmq_ctx_term(context);
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    double busy = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                  1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    printf(
        "{\"figure\":\"socket to lines\",\"program\":\"kvr\",\"blocks\":%llu,\"line_bytes\":%llu,"
        "\"blocks_per_s\":%.0f,\"blocks_per_processor_s\":%.0f}\n",
        (unsigned long long)ids, (unsigned long long)total, (double)ids / took, (double)ids / busy);
    return cleared == 2 ? 0 : 3;
}

/* ---- latency ---- */

struct reading {
    FILE *lines;
    const double *sent;
    double *latency;
    size_t count;
};

/* Each message's line begins with an id that is its number + 1. */
static void *read_lines(void *context)
{
    struct reading *reading = context;
    char *line = NULL;
    size_t room = 0, done = 0;

    while (done < reading->count && getline(&line, &room, reading->lines) > 0) {
        double now = seconds(CLOCK_MONOTONIC);
        const char *at = strstr(line, "\"hash_ids\":[");
        if (!at)
            continue;
        size_t number = strtoull(at + 12, NULL, 10) / TINY;
        if (number < reading->count) {
            reading->latency[number] = now - reading->sent[number];
            done++;
        }
    }
    free(line);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

static int latency(const char *program, const char *place, double rate, double for_s)
{
    void *context = zmq_ctx_new();
    struct kvr_kv_publisher *publisher = open_publisher(context, place);
    struct reading reading = {.lines = start(program, place)};
    double step_s = TINY / rate;
    msgpack_sbuffer payload;
    msgpack_packer packer;
    pthread_t thread;

    reading.count = (size_t)(for_s / step_s);
    double *sent = calloc(reading.count, sizeof *sent);
    reading.sent = sent;
    reading.latency = calloc(reading.count, sizeof *reading.latency);
    if (!sent || !reading.latency || pthread_create(&thread, NULL, read_lines, &reading) != 0)
        die("cannot begin");
    await_subscriber(publisher);
    msgpack_sbuffer_init(&payload);
    double begin = seconds(CLOCK_MONOTONIC) + 0.05;
    for (size_t i = 0; i < reading.count; i++) {
        msgpack_sbuffer_clear(&payload);
        msgpack_packer_init(&packer, &payload, msgpack_sbuffer_write);
        begin_batch(&packer, 1);
        msgpack_pack_array(&packer, 7);
        text(&packer, "BlockStored");
        msgpack_pack_array(&packer, TINY);
        for (size_t j = 0; j < TINY; j++)
            msgpack_pack_uint64(&packer, i * TINY + j + 1);
        msgpack_pack_nil(&packer);
        msgpack_pack_array(&packer, TINY * BLOCK);
        for (size_t j = 0; j < TINY * BLOCK; j++)
            msgpack_pack_uint64(&packer, mix(i * TINY * BLOCK + j) % 128000);
        msgpack_pack_int(&packer, BLOCK);
        msgpack_pack_nil(&packer);
        text(&packer, "GPU");
        msgpack_pack_int(&packer, 0);
        struct timespec wait = {0, 0};
        double left = begin + (double)i * step_s - seconds(CLOCK_MONOTONIC);
        if (left > 0) {
            wait.tv_nsec = (long)(left * 1e9);
            nanosleep(&wait, NULL);
        }
        sent[i] = seconds(CLOCK_MONOTONIC);
        kvr_kv_publisher_send(publisher, (struct kvr_text){"kv", 2}, i,
            (struct kvr_frame){(const uint8_t *)payload.data, payload.size}, false);
    }
    double took = seconds(CLOCK_MONOTONIC) - begin;
    kvr_kv_publisher_close(publisher);
    pthread_join(thread, NULL);
    qsort(reading.latency, reading.count, sizeof *reading.latency, by_value);
    printf("{\"figure\":\"latency\",\"program\":\"kvr\",\"messages\":%zu,\"blocks_per_s\":%.0f,"
           "\"p50_us\":%.0f,\"p99_us\":%.0f,\"max_us\":%.0f}\n",
        reading.count, (double)reading.count * TINY / took,
        1e6 * reading.latency[reading.count / 2], 1e6 * reading.latency[reading.count * 99 / 100],
        1e6 * reading.latency[reading.count - 1]);
    pclose(reading.lines);
    zmq_ctx_term(context);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (strcmp(what, "make") == 0 && argc == 5)
        return make(argv[2], strtoull(argv[3], NULL, 10), strcmp(argv[4], "churn") == 0);
    if (strcmp(what, "index") == 0 && argc == 4)
        return into_index(argv[2], atoi(argv[3]));
    if (strcmp(what, "socket") == 0 && argc == 5)
        return over_socket(argv[2], argv[3], argv[4]);
    if (strcmp(what, "latency") == 0 && argc == 6)
        return latency(argv[2], argv[3], atof(argv[4]), atof(argv[5]));
    die("see the head of bench_events.c");
}
