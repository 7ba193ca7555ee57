/* Streams of KV events over a network that loses, doubles and reorders, from a publisher that keeps
 * its last messages and sometimes starts again: what we think a worker holds is what it holds, or,
 * where that cannot be known, part of it. */
#include "unit.h"

#include "net/kv_event_lines.h"
#include "net/kv_event_spec.h"
#include "net/kv_event_stream.h"
#include "token/hash.h"

#include <math.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HASHES = 300, MESSAGES = 400, BLOCK = 4, BACKLOG = 8 };

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

/* ---- a worker and its publisher ---- */

struct message {
    uint64_t sequence;
    msgpack_sbuffer payload;
};

struct publisher {
    int held[HASHES + 1];   /* references of hash h */
    int parent[HASHES + 1]; /* a hash has one parent and one content, as real ones; 0: none */
    struct message sent[MESSAGES * 4];
    size_t count, first; /* messages from `first` on are of this run of the publisher */
    uint64_t sequence;
    size_t buffer; /* messages kept */
    double time_s;
};

static void pack_text(msgpack_packer *packer, const char *text)
{
    msgpack_pack_str(packer, strlen(text));
    msgpack_pack_str_body(packer, text, strlen(text));
}

static void pack_stored(msgpack_packer *packer, const struct publisher *p, int hash)
{
    msgpack_pack_array(packer, 7);
    pack_text(packer, "BlockStored");
    msgpack_pack_array(packer, 1);
    msgpack_pack_int(packer, hash);
    if (p->parent[hash])
        msgpack_pack_int(packer, p->parent[hash]);
    else
        msgpack_pack_nil(packer);
    msgpack_pack_array(packer, BLOCK);
    for (int i = 0; i < BLOCK; i++)
        msgpack_pack_int(packer, hash * 10 + i);
    msgpack_pack_int(packer, BLOCK);
    msgpack_pack_nil(packer);
    pack_text(packer, "GPU");
}

static void pack_removed(msgpack_packer *packer, int hash)
{
    msgpack_pack_array(packer, 3);
    pack_text(packer, "BlockRemoved");
    msgpack_pack_array(packer, 1);
    msgpack_pack_int(packer, hash);
    pack_text(packer, "GPU");
}

static bool has_child(const struct publisher *p, int hash)
{
    for (int i = 1; i <= HASHES; i++)
        if (p->held[i] && p->parent[i] == hash)
            return true;
    return false;
}

/* One change of the worker's cache. Children go before their parents, as in engines. */
static void change(struct publisher *p, msgpack_packer *packer)
{
    int hash = 1 + (int)draw(HASHES);

    if (draw(300) == 0) {
        memset(p->held, 0, sizeof p->held);
        msgpack_pack_array(packer, 1);
        pack_text(packer, "AllBlocksCleared");
    } else if (p->held[hash] && draw(3) && (p->held[hash] > 1 || !has_child(p, hash))) {
        p->held[hash]--;
        pack_removed(packer, hash);
    } else {
        while (p->parent[hash] && !p->held[p->parent[hash]])
            hash = p->parent[hash];
        p->held[hash]++;
        pack_stored(packer, p, hash);
    }
}

static struct message *publish(struct publisher *p)
{
    struct message *message = &p->sent[p->count++];
    msgpack_packer packer;
    int events = 1 + (int)draw(4);

    assert_true(p->count < sizeof p->sent / sizeof *p->sent);
    message->sequence = p->sequence++;
    msgpack_sbuffer_init(&message->payload);
    msgpack_packer_init(&packer, &message->payload, msgpack_sbuffer_write);
    msgpack_pack_array(&packer, 3);
    msgpack_pack_double(&packer, p->time_s += 0.5);
    msgpack_pack_array(&packer, (size_t)events);
    while (events--)
        change(p, &packer);
    msgpack_pack_int(&packer, 0);
    return message;
}

static void start_again(struct publisher *p)
{
    memset(p->held, 0, sizeof p->held);
    p->sequence = 0;
    p->first = p->count;
}

static void begin_publisher(struct publisher *p, size_t buffer)
{
    memset(p, 0, sizeof *p);
    p->buffer = buffer;
    for (int i = 2; i <= HASHES; i++)
        p->parent[i] = draw(4) ? 1 + (int)draw((uint64_t)i - 1) : 0;
}

static void end_publisher(struct publisher *p)
{
    for (size_t i = 0; i < p->count; i++)
        msgpack_sbuffer_destroy(&p->sent[i].payload);
}

/* ---- a reader ---- */

struct reader {
    struct kvr_kv_stream *stream;
    struct kvr_kv_memory memory;
    struct kvr_kv_sink sink;
    int held[HASHES + 1];
    uint64_t ids[HASHES + 1]; /* kvr's id of each hash */
    bool native;
    unsigned clears;
    char reasons[64];
    double now_ms;
    bool quiet; /* the network loses no more answers */
};

static int hash_of(const struct reader *reader, uint64_t id)
{
    if (reader->native)
        return (int)id;
    for (int i = 1; i <= HASHES; i++)
        if (reader->ids[i] == id)
            return i;
    fail_msg("an id that no block has");
    return 0;
}

static void on_stored(void *context, const struct kvr_kv_run *run)
{
    struct reader *reader = context;

    assert_string_equal(run->worker, "w0");
    assert_int_equal(run->space->block_size, BLOCK);
    for (size_t i = 0; i < run->count; i++)
        reader->held[hash_of(reader, run->ids[i])]++;
}

static void on_removed(void *context, const struct kvr_kv_run *run)
{
    struct reader *reader = context;

    for (size_t i = 0; i < run->count; i++)
        assert_true(reader->held[hash_of(reader, run->ids[i])]-- > 0);
}

static void on_cleared(void *context, const char *worker, const char *reason)
{
    struct reader *reader = context;

    assert_string_equal(worker, "w0");
    memset(reader->held, 0, sizeof reader->held);
    reader->clears++;
    if (reason)
        reader->reasons[strlen(reader->reasons) % 60] = reason[0];
}

/* kvr's ids by the definition: from a seed of 0, block by block. */
static uint64_t id_of(const struct publisher *p, int hash, uint64_t *full)
{
    uint32_t tokens[BLOCK];
    uint64_t parent = 0;

    if (p->parent[hash])
        id_of(p, p->parent[hash], &parent);
    for (int i = 0; i < BLOCK; i++)
        tokens[i] = (uint32_t)(hash * 10 + i);
    *full = kvr_block_hash(parent, tokens, BLOCK);
    return kvr_wire_id(*full);
}

static void begin_reader(struct reader *reader, const struct publisher *p, bool native, bool replay)
{
    uint64_t full;

    memset(reader, 0, sizeof *reader);
    reader->native = native;
    reader->memory.limit = 64 << 20;
    reader->sink = (struct kvr_kv_sink){reader, on_stored, on_removed, on_cleared};
    for (int i = 1; i <= HASHES; i++)
        reader->ids[i] = id_of(p, i, &full);
    const struct kvr_kv_stream_options options = {.name = "w0",
        .native = native,
        .can_replay = replay,
        .replay_timeout_ms = 1000,
        .reorder_ms = 50,
        .memory = &reader->memory,
        .sink = &reader->sink};
    assert_int_equal(kvr_kv_stream_create(&reader->stream, &options, NULL), KVR_OK);
}

static void end_reader(struct reader *reader)
{
    kvr_kv_stream_destroy(reader->stream);
    assert_int_equal(reader->memory.used, 0);
    kvr_kv_memory_release(&reader->memory);
}

static void deliver(struct reader *reader, const struct message *message, bool replayed)
{
    uint8_t number[8];
    struct kvr_error error = {0};

    for (int i = 0; i < 8; i++)
        number[i] = (uint8_t)(message->sequence >> (56 - 8 * i));
    const struct kvr_frame frames[] = {{(const uint8_t *)"t", 1}, {number, 8},
        {(const uint8_t *)message->payload.data, message->payload.size}};
    assert_int_equal(
        kvr_kv_stream_take(reader->stream, frames, 3, replayed, reader->now_ms, &error), KVR_OK);
}

static void deliver_end(struct reader *reader)
{
    const struct kvr_frame frames[] = {
        {NULL, 0}, {(const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff", 8}, {NULL, 0}};

    assert_int_equal(
        kvr_kv_stream_take(reader->stream, frames, 3, true, reader->now_ms, NULL), KVR_OK);
}

/* Time goes on; requests are answered, some not at all. */
static void attend(struct reader *reader, const struct publisher *p, double more_ms, bool sure)
{
    uint64_t from, replies = 0;

    reader->now_ms += more_ms;
    kvr_kv_stream_tick(reader->stream, reader->now_ms);
    if (!kvr_kv_stream_request(reader->stream, reader->now_ms, &from) || (!sure && !draw(4)))
        return;
    size_t first = p->count > p->first + p->buffer ? p->count - p->buffer : p->first;
    for (size_t i = first; i < p->count; i++)
        if (p->sent[i].sequence >= from && (!replies++ || reader->quiet || draw(20)))
            deliver(reader, &p->sent[i], true); /* but for the first, some get lost on the way */
    deliver_end(reader);
}

/* ---- laws ---- */

struct law {
    bool native, replay, restarts, exact, sure;
    size_t buffer;
};

static void run_law(uint64_t seed, const struct law *law)
{
    static struct publisher p;
    static struct reader reader;
    const struct message *waiting[BACKLOG];
    size_t held_back = 0, safe = 0;

    random_state = seed * 2654435761u + 1;
    begin_publisher(&p, law->buffer);
    begin_reader(&reader, &p, law->native, law->replay);
    for (size_t i = draw(2) * draw(20); i; i--)
        publish(&p); /* before we join */
    for (int i = 0; i < MESSAGES; i++) {
        if (law->restarts && draw(120) == 0) {
            start_again(&p);
            held_back = 0;
            safe = 3;
            if (law->replay)
                kvr_kv_stream_reconnected(reader.stream);
        }
        const struct message *message = publish(&p);
        uint64_t fate = safe ? 9 : draw(20);
        safe -= safe > 0;
        if (fate == 0) {
            /* lost */
        } else if (fate == 1 && held_back < BACKLOG) {
            waiting[held_back++] = message; /* late */
        } else {
            deliver(&reader, message, false);
            if (fate == 2)
                deliver(&reader, message, false);
        }
        if (held_back && draw(3) == 0)
            deliver(&reader, waiting[--held_back], false);
        attend(&reader, &p, (double)draw(30), law->sure);
    }
    /* A quiet end: what is missing now shows with the next message. */
    reader.quiet = true;
    for (int round = 0; round < 4; round++) {
        deliver(&reader, publish(&p), false);
        for (int i = 0; i < 12; i++)
            attend(&reader, &p, 700, true);
    }
    for (int hash = 1; hash <= HASHES; hash++) {
        if (law->exact ? reader.held[hash] != p.held[hash] : reader.held[hash] > p.held[hash])
            fail_msg("seed %u: hash %d is held %d times, not %d", (unsigned)seed, hash,
                reader.held[hash], p.held[hash]);
    }
    end_reader(&reader);
    end_publisher(&p);
}

static void with_a_long_buffer_everything_is_known(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        run_law(seed, &(struct law){true, true, false, true, true, 1 << 20});
        run_law(seed, &(struct law){false, true, false, true, true, 1 << 20});
    }
}

static void with_restarts_nothing_is_promised_that_is_not_there(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        run_law(seed, &(struct law){seed % 2, true, true, false, false, 1 << 20});
}

static void with_a_short_buffer_nothing_is_promised_that_is_not_there(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        run_law(seed, &(struct law){seed % 2, true, seed % 3 == 0, false, false, 1 + seed % 7});
}

static void without_replay_nothing_is_promised_that_is_not_there(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        run_law(seed, &(struct law){seed % 2, false, seed % 3 == 0, false, true, 0});
}

/* ---- single cases ---- */

static struct publisher publisher;
static struct reader reader;

static void begin(bool native, bool replay)
{
    random_state = 99;
    begin_publisher(&publisher, 1 << 20);
    begin_reader(&reader, &publisher, native, replay);
}

static void end(void)
{
    end_reader(&reader);
    end_publisher(&publisher);
}

static const struct kvr_kv_stream_counts *counts(void)
{
    return kvr_kv_stream_counts(reader.stream);
}

static void a_request_that_is_not_answered(void **state)
{
    uint64_t from;

    (void)state;
    begin(true, true);
    for (int i = 0; i < 5; i++)
        publish(&publisher);
    deliver(&reader, &publisher.sent[0], false);
    deliver(&reader, &publisher.sent[3], false);
    assert_true(kvr_kv_stream_request(reader.stream, 0, &from));
    assert_int_equal(from, 1);
    assert_false(kvr_kv_stream_request(reader.stream, 1, &from));
    assert_true(kvr_kv_stream_tick(reader.stream, 999) == 1000);
    double now_ms = 0;
    for (int attempt = 1; attempt < 3; attempt++) {
        now_ms += 1000 << (attempt - 1);
        kvr_kv_stream_tick(reader.stream, now_ms);
        assert_true(kvr_kv_stream_request(reader.stream, now_ms, &from));
        assert_int_equal(from, 1);
    }
    assert_int_equal(reader.clears, 1);
    kvr_kv_stream_tick(reader.stream, now_ms + 4000);
    assert_string_equal(reader.reasons, "jg"); /* joined, and a gap that cannot be closed */
    assert_int_equal(counts()->replays_unanswered, 3);
    assert_int_equal(counts()->lost_messages, 2);
    deliver(&reader, &publisher.sent[4], false);
    assert_int_equal(counts()->gaps, 1);
    end();
}

static void an_unknown_parent_asks_for_everything(void **state)
{
    uint64_t from;
    struct kvr_kv_counts events;
    uint64_t blocks;
    struct message message = {.sequence = 0};
    msgpack_packer packer;

    (void)state;
    begin(false, true);
    int child = 2;
    while (!publisher.parent[child])
        child++;
    msgpack_sbuffer_init(&message.payload);
    msgpack_packer_init(&packer, &message.payload, msgpack_sbuffer_write);
    msgpack_pack_array(&packer, 2);
    msgpack_pack_double(&packer, 1);
    msgpack_pack_array(&packer, 1);
    pack_stored(&packer, &publisher, child);
    deliver(&reader, &message, false);
    kvr_kv_stream_event_counts(reader.stream, &events, &blocks);
    assert_int_equal(events.orphans, 1);
    assert_int_equal(blocks, 0);
    assert_true(kvr_kv_stream_request(reader.stream, 0, &from));
    assert_int_equal(from, 0);
    deliver_end(&reader);
    /* It is not asked again and again. */
    message.sequence = 1;
    deliver(&reader, &message, false);
    assert_false(kvr_kv_stream_request(reader.stream, 0, &from));
    message.sequence = 2;
    reader.now_ms = 10001;
    deliver(&reader, &message, false);
    assert_true(kvr_kv_stream_request(reader.stream, 10001, &from));
    msgpack_sbuffer_destroy(&message.payload);
    end();
}

static void ranks_are_workers(void **state)
{
    static const char *const payloads[] = {
        "\x93\x01\x90\x00", "\x93\x01\x90\x01", "\x93\x01\x90\xc0", "\x93\x01\x90\xcd\x05\x00"};
    static const size_t sizes[] = {4, 4, 4, 6};

    (void)state;
    begin(true, false);
    for (int i = 0; i < 4; i++) {
        const uint8_t number[8] = {0, 0, 0, 0, 0, 0, 0, (uint8_t)(i == 2)};
        const struct kvr_frame frames[] = {
            {NULL, 0}, {number, 8}, {(const uint8_t *)payloads[i], sizes[i]}};
        struct kvr_error error = {0};
        if (i != 1) /* rank 1 is "w0/1": the reader's own checks want "w0" */
            assert_int_equal(kvr_kv_stream_take(reader.stream, frames, 3, false, 0, &error),
                i == 3 ? KVR_BAD_INPUT : KVR_OK);
    }
    assert_int_equal(reader.clears, 1);
    assert_int_equal(counts()->bad_messages, 1); /* rank 1280 */
    end();
}

/* Pods that share a stream have numbers of their own, and ranks too. */
static void pods_are_workers(void **state)
{
    static const char *const topics[] = {"kv@a@m", "kv@b@m", "kv@a@m", "kv@b@m", "kv@a/1@m",
        "kv@@m", "kv@a", "kv@a\n@m", "", "kv@a@m@n"};
    static const uint8_t numbers[] = {0, 0, 1, 1, 0, 0, 1, 2, 3, 2};
    struct kvr_kv_memory memory = {.limit = 1 << 20};
    struct kvr_writer writer;
    struct kvr_kv_stream *stream;

    (void)state;
    kvr_writer_init(&writer, -1);
    struct kvr_kv_sink sink = kvr_kv_line_sink(&writer);
    const struct kvr_kv_stream_options options = {
        .name = "w0", .by_topic = true, .memory = &memory, .sink = &sink};
    assert_int_equal(kvr_kv_stream_create(&stream, &options, NULL), KVR_OK);
    for (size_t i = 0; i < sizeof numbers; i++) {
        const uint8_t number[8] = {0, 0, 0, 0, 0, 0, 0, numbers[i]};
        const struct kvr_frame frames[] = {{(const uint8_t *)topics[i], strlen(topics[i])},
            {number, 8},
            {(const uint8_t *)"\x93\x01\x91\x91\xb0"
                              "AllBlocksCleared\x00",
                22}};
        assert_int_equal(kvr_kv_stream_take(stream, frames, 3, false, 0, NULL), KVR_OK);
    }
    assert_int_equal(kvr_kv_stream_counts(stream)->restarts, 0);
    assert_int_equal(kvr_kv_stream_counts(stream)->gaps, 0);
    const char *text = kvr_buffer_text(&writer.buffer);
    size_t a = 0, b = 0, other = 0;
    for (const char *at = text; (at = strstr(at, "\"worker\":\"")); at++) {
        a += strncmp(at + 10, "a\"", 2) == 0;
        b += strncmp(at + 10, "b\"", 2) == 0;
        other += strncmp(at + 10, "w0\"", 3) == 0;
    }
    assert_int_equal(a, 4); /* one for the join, three of its own */
    assert_int_equal(b, 3);
    assert_int_equal(other, 5);
    kvr_kv_stream_destroy(stream);
    kvr_kv_memory_release(&memory);
    kvr_buffer_release(&writer.buffer);
    assert_int_equal(memory.used, 0);
}

/* ---- what people write ---- */

static void specs(void **state)
{
    struct kvr_kv_spec spec;

    (void)state;
    assert_int_equal(
        kvr_kv_spec_read("w0=tcp://h:1,replay=tcp://h:2,topic=kv@x=y", true, &spec, NULL), KVR_OK);
    assert_string_equal(spec.name, "w0");
    assert_string_equal(spec.place, "tcp://h:1");
    assert_string_equal(spec.replay, "tcp://h:2");
    assert_string_equal(spec.topic, "kv@x=y");
    assert_null(spec.model);
    kvr_kv_spec_release(&spec);
    assert_int_equal(kvr_kv_spec_read("a,b/c=d,model=m,replay=r", false, &spec, NULL), KVR_OK);
    assert_null(spec.name);
    assert_string_equal(spec.place, "a,b/c=d");
    assert_string_equal(spec.model, "m");
    assert_string_equal(spec.replay, "r");
    kvr_kv_spec_release(&spec);
    static const char *const bad[] = {
        "", "w0=", "=tcp://h:1", "tcp://", "http://h", "w0=tcp://h:1,replay=x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(kvr_kv_spec_read(bad[i], true, &spec, NULL), KVR_BAD_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_a_long_buffer_everything_is_known),
        cmocka_unit_test(with_restarts_nothing_is_promised_that_is_not_there),
        cmocka_unit_test(with_a_short_buffer_nothing_is_promised_that_is_not_there),
        cmocka_unit_test(without_replay_nothing_is_promised_that_is_not_there),
        cmocka_unit_test(a_request_that_is_not_answered),
        cmocka_unit_test(an_unknown_parent_asks_for_everything),
        cmocka_unit_test(ranks_are_workers),
        cmocka_unit_test(pods_are_workers),
        cmocka_unit_test(specs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
