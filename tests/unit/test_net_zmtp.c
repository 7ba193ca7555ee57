/* ZMTP: bytes to messages however they are cut, captured bytes of vLLM's own socket, a connection
 * against a peer that the test plays, and peers that mean no good. */
#include "unit.h"

#include "base/random.h"
#include "net/kv_event_file.h"
#include "net/zmtp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct kvr_random chance = {7};

static uint32_t draw(uint32_t below)
{
    return kvr_random_below(&chance, below);
}

/* ---- the reader ---- */

static struct kvr_zmtp_budget budget;

static struct kvr_zmtp_reader a_reader(size_t limit)
{
    budget = (struct kvr_zmtp_budget){0, 1 << 20};
    return (struct kvr_zmtp_reader){.limit = limit, .budget = &budget};
}

/* Gives the reader some of the bytes. */
static size_t feed(struct kvr_zmtp_reader *reader, const uint8_t *bytes, size_t size)
{
    size_t room;

    assert_true(kvr_zmtp_reader_room(reader, &room));
    assert_true(room > 0);
    size = size < room ? size : room;
    memcpy(reader->bytes.data + reader->bytes.length, bytes, size);
    reader->bytes.length += size;
    return size;
}

static void put_frame(struct kvr_buffer *out, uint8_t flags, const void *bytes, size_t size)
{
    uint8_t header[9] = {flags, (uint8_t)size};
    bool large = size > 255 || draw(5) == 0; /* a long header may hold a short size */

    if (large) {
        header[0] |= 2;
        for (int i = 0; i < 8; i++)
            header[1 + i] = (uint8_t)((uint64_t)size >> (56 - 8 * i));
    }
    kvr_buffer_append(out, header, large ? 9 : 2);
    kvr_buffer_append(out, bytes, size);
}

enum { MESSAGES = 400 };

static void messages_however_they_are_cut(void **state)
{
    static uint8_t content[5000];
    struct kvr_zmtp_reader reader = a_reader(1 << 16);
    struct kvr_buffer wire = {0};
    struct kvr_frame frames[KVR_MESSAGE_FRAMES];
    size_t sizes[MESSAGES][10], counts[MESSAGES], commands = 0, seen = 0, count, at = 0, done = 0;
    const char *why;

    (void)state;
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)i;
    for (size_t i = 0; i < MESSAGES; i++) {
        counts[i] = 1 + draw(10);
        for (size_t j = 0; j < counts[i]; j++) {
            if (draw(10) == 0) { /* also between the frames of a message */
                put_frame(&wire, 4, "\4PING\0\1xyz", 10);
                commands++;
            }
            sizes[i][j] = draw(draw(4) ? 20 : sizeof content);
            put_frame(&wire, j + 1 < counts[i], content, sizes[i][j]);
        }
    }
    while (done < MESSAGES) {
        enum kvr_zmtp_piece piece = kvr_zmtp_reader_next(&reader, frames, &count, &why);
        if (piece == KVR_ZMTP_MORE) {
            assert_true(at < wire.length);
            size_t some = 1 + draw(draw(3) ? 50 : 20000);
            some = some < wire.length - at ? some : wire.length - at;
            at += feed(&reader, (const uint8_t *)wire.data + at, some);
        } else if (piece == KVR_ZMTP_COMMAND) {
            assert_int_equal(frames[0].size, 10);
            assert_memory_equal(frames[0].data, "\4PING\0\1xyz", 10);
            seen++;
        } else {
            assert_int_equal(piece, KVR_ZMTP_MESSAGE);
            assert_int_equal(
                count, counts[done] < KVR_MESSAGE_FRAMES ? counts[done] : KVR_MESSAGE_FRAMES);
            for (size_t j = 0; j < count; j++) {
                assert_int_equal(frames[j].size, sizes[done][j]);
                assert_memory_equal(frames[j].data, content, sizes[done][j]);
            }
            done++;
        }
    }
    assert_int_equal(seen, commands);
    assert_int_equal(at, wire.length);
    assert_true(kvr_zmtp_reader_is_empty(&reader));
    kvr_zmtp_reader_release(&reader);
    kvr_buffer_release(&wire);
    assert_int_equal(budget.used, 0);
}

/* What the reader says of these bytes, at the latest when all have come. */
static enum kvr_zmtp_piece verdict(size_t limit, const char *bytes, size_t size)
{
    struct kvr_zmtp_reader reader = a_reader(limit);
    struct kvr_frame frames[KVR_MESSAGE_FRAMES];
    const char *why = NULL;
    size_t count;

    feed(&reader, (const uint8_t *)bytes, size);
    enum kvr_zmtp_piece piece = kvr_zmtp_reader_next(&reader, frames, &count, &why);
    assert_true((piece == KVR_ZMTP_BROKEN) == (why != NULL));
    kvr_zmtp_reader_release(&reader);
    return piece;
}

static void what_no_peer_sends(void **state)
{
    (void)state;
    assert_int_equal(verdict(100, "\0\1x", 3), KVR_ZMTP_MESSAGE);
    assert_int_equal(verdict(100, "\1\1x", 3), KVR_ZMTP_MORE);
    assert_int_equal(verdict(100, "\x08\0", 2), KVR_ZMTP_BROKEN);
    assert_int_equal(verdict(100, "\x80", 1), KVR_ZMTP_BROKEN);
    assert_int_equal(verdict(100, "\5\1x", 3), KVR_ZMTP_BROKEN); /* a command with more to come */
    /* Refused at their headers: a gigabyte, all there is, one byte too many. */
    assert_int_equal(verdict(1 << 24, "\2\0\0\0\0\x40\0\0\0", 9), KVR_ZMTP_BROKEN);
    assert_int_equal(verdict(1 << 24, "\2\xff\xff\xff\xff\xff\xff\xff\xff", 9), KVR_ZMTP_BROKEN);
    assert_int_equal(verdict(100, "\0\x62", 2), KVR_ZMTP_MORE);
    assert_int_equal(verdict(100, "\0\x63", 2), KVR_ZMTP_BROKEN);
    /* Frames without bytes count too. */
    char tiny[102] = {0};
    for (size_t i = 0; i < sizeof tiny; i += 2)
        tiny[i] = 1;
    assert_int_equal(verdict(100, tiny, 100), KVR_ZMTP_MORE);
    assert_int_equal(verdict(100, tiny, 102), KVR_ZMTP_BROKEN);
}

static void unfinished_messages_share_a_budget(void **state)
{
    struct kvr_zmtp_reader readers[8];
    static uint8_t part[4096];
    size_t room, refused = 0;

    (void)state;
    budget = (struct kvr_zmtp_budget){0, 1 << 20};
    part[0] = 3; /* one frame of a megabyte, and more frames to come */
    part[6] = 0x10;
    for (size_t i = 0; i < 8; i++) {
        readers[i] = (struct kvr_zmtp_reader){.limit = 1 << 24, .budget = &budget};
        feed(&readers[i], part, sizeof part);
        while (readers[i].bytes.length < 1 << 20) {
            struct kvr_frame frames[KVR_MESSAGE_FRAMES];
            const char *why;
            size_t count;
            assert_int_equal(
                kvr_zmtp_reader_next(&readers[i], frames, &count, &why), KVR_ZMTP_MORE);
            if (!kvr_zmtp_reader_room(&readers[i], &room)) {
                refused++;
                break;
            }
            memset(readers[i].bytes.data + readers[i].bytes.length, 0, room);
            readers[i].bytes.length += room;
        }
    }
    assert_int_equal(refused, 7); /* the first had all of it */
    assert_true(budget.used <= budget.limit + 8 * KVR_ZMTP_LEAST);
    for (size_t i = 0; i < 8; i++)
        kvr_zmtp_reader_release(&readers[i]);
    assert_int_equal(budget.used, 0);
}

/* ---- a connection ---- */

static struct kvr_reactor reactor;
static struct kvr_zmtp *connection;
static int listener;
static char path[64];

static void begin(bool dealer, const char *topic)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char endpoint[96];

    snprintf(path, sizeof path, "/tmp/kvr-zmtp-%ld", (long)getpid());
    unlink(path);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(kvr_reactor_init(&reactor, NULL), KVR_OK);
    budget = (struct kvr_zmtp_budget){0, 1 << 20};
    snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
    const struct kvr_zmtp_options options = {endpoint, dealer, topic, 1 << 16, &budget};
    assert_int_equal(kvr_zmtp_open(&connection, &reactor, &options, NULL), KVR_OK);
}

static void end(void)
{
    kvr_zmtp_close(connection);
    kvr_reactor_release(&reactor);
    close(listener);
    unlink(path);
    assert_int_equal(budget.used, 0);
}

static void steps(int count)
{
    while (count--)
        kvr_reactor_step(&reactor, 1);
}

static void expect(int peer, const void *bytes, size_t size)
{
    uint8_t got[256];

    assert_true(size <= sizeof got);
    steps(2);
    assert_int_equal(recv(peer, got, size, MSG_DONTWAIT | MSG_WAITALL), (ssize_t)size);
    assert_memory_equal(got, bytes, size);
}

static void give(int peer, const void *bytes, size_t size)
{
    assert_int_equal(send(peer, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
    steps(2);
}

static const char peers_greeting[64] = "\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL";
static const char peers_ready[] = "\4\x19\5READY\xbSocket-Type\0\0\0\3PUB";

static int accept_and_greet(void)
{
    static const char ours[64] = "\xff\0\0\0\0\0\0\0\0\x7f\3\0NULL";
    int peer = accept(listener, NULL, NULL);

    assert_true(peer >= 0);
    expect(peer, ours, 64);
    give(peer, peers_greeting, 64);
    return peer;
}

static void nothing_more(struct kvr_frame *frames)
{
    size_t count;

    assert_false(kvr_zmtp_receive(connection, frames, &count));
}

static void subscribes_and_receives(void **state)
{
    struct kvr_frame frames[KVR_MESSAGE_FRAMES];
    size_t count;

    (void)state;
    begin(false, "kv@");
    int peer = accept_and_greet();
    expect(peer, peers_ready, 23);
    recv(peer, (char[16]){0}, 4, 0); /* "SUB", the rest of READY */
    assert_false(kvr_zmtp_is_connected(connection));
    give(peer, peers_ready, 27);
    assert_true(kvr_zmtp_is_connected(connection));
    assert_true(kvr_zmtp_stirred(connection));
    expect(peer, "\0\4\1kv@", 6);
    nothing_more(frames);
    /* A message, a sign of life that is wanted, half a message; then its rest. */
    give(peer, "\1\4kv@w\1\3seq\0\2xy\4\x9\4PING\0\1ab\1\1", 28);
    assert_true(kvr_zmtp_receive(connection, frames, &count));
    assert_int_equal(count, 3);
    assert_memory_equal(frames[0].data, "kv@w", 4);
    assert_int_equal(frames[2].size, 2);
    nothing_more(frames);
    expect(peer, "\4\7\4PONGab", 9);
    give(peer, "t\0\0", 3);
    assert_true(kvr_zmtp_receive(connection, frames, &count));
    assert_int_equal(count, 2);
    assert_int_equal(frames[1].size, 0);
    nothing_more(frames);
    assert_int_equal(budget.used, 0); /* nothing is kept where nothing is unfinished */
    /* It goes, and comes back. */
    close(peer);
    steps(2);
    nothing_more(frames);
    assert_false(kvr_zmtp_is_connected(connection));
    assert_non_null(strstr(kvr_zmtp_trouble(connection), "closed"));
    for (int i = 0; i < 1000 && kvr_zmtp_connections(connection) == 1; i++) {
        struct timeval soon = {0, 1000};
        setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
        steps(1);
        peer = accept(listener, NULL, NULL);
        if (peer < 0)
            continue;
        steps(2);
        give(peer, peers_greeting, 64);
        give(peer, peers_ready, 27);
    }
    assert_int_equal(kvr_zmtp_connections(connection), 2);
    close(peer);
    end();
}

static void a_request_waits_for_its_connection(void **state)
{
    const struct kvr_frame request[] = {{NULL, 0}, {(const uint8_t *)"12345678", 8}};

    (void)state;
    begin(true, NULL);
    assert_true(kvr_zmtp_send(connection, (struct kvr_frame[]){{NULL, 0}}, 1));
    assert_true(kvr_zmtp_send(connection, request, 2)); /* instead of the one before */
    int peer = accept_and_greet();
    expect(peer, "\4\x29\5READY\xbSocket-Type\0\0\0\6DEALER\x8Identity\0\0\0\0", 43);
    give(peer, peers_ready, 27);
    expect(peer,
        "\1\0\0\x8"
        "12345678",
        12);
    assert_true(kvr_zmtp_send(connection, request, 2));
    expect(peer,
        "\1\0\0\x8"
        "12345678",
        12);
    close(peer);
    end();
}

static void strange_peers(void **state)
{
    static const struct {
        const char *greeting, *then;
        size_t greeting_size, size;
    } peers[] = {{"HTTP/1.1 400 Bad Request\r\n", "", 26, 0},
        {"\xff\0\0\0\0\0\0\0\1\x7f\1\0", "", 12, 0},
        {"\xff\0\0\0\0\0\0\0\1\x7f\3\0CURVE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
         "\0\0"
         "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            "", 64, 0},
        {peers_greeting, "\4\6\5ERROR", 64, 8}, {peers_greeting, "\0\1x", 64, 3},
        {peers_greeting, "\4\6\5OTHER", 64, 8}, {peers_greeting, "\xf0\xf0", 64, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        begin(false, NULL);
        int peer = accept(listener, NULL, NULL);
        steps(2);
        give(peer, peers[i].greeting, peers[i].greeting_size);
        if (peers[i].size)
            give(peer, peers[i].then, peers[i].size);
        assert_non_null(kvr_zmtp_trouble(connection));
        assert_false(kvr_zmtp_is_connected(connection));
        close(peer);
        end();
    }
}

/* Messages that never end, and signs of life that are asked for without reading any: the connection
 * ends, and so does what it took. */
static void a_peer_that_floods(void **state)
{
    static const char *const floods[] = {"\1\0", "\4\7\4PING\0\1"};
    static const size_t sizes[] = {2, 9};
    struct kvr_frame frames[KVR_MESSAGE_FRAMES];
    static char many[65520];
    size_t count, most = 0;

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        begin(false, NULL);
        int peer = accept_and_greet();
        give(peer, peers_ready, 27);
        for (size_t i = 0; i + sizes[kind] <= sizeof many; i += sizes[kind])
            memcpy(many + i, floods[kind], sizes[kind]);
        size_t whole = sizeof many / sizes[kind] * sizes[kind], sent = 0;
        for (int i = 0; i < 2000 && kvr_zmtp_is_connected(connection); i++) {
            ssize_t some =
                send(peer, many + sent % whole, whole - sent % whole, MSG_DONTWAIT | MSG_NOSIGNAL);
            sent += some > 0 ? (size_t)some : 0;
            steps(1);
            while (kvr_zmtp_receive(connection, frames, &count))
                ;
            most = budget.used > most ? budget.used : most;
        }
        assert_false(kvr_zmtp_is_connected(connection));
        assert_true(most <= 4 * KVR_ZMTP_CHUNK);
        close(peer);
        end();
    }
}

static void endpoints(void **state)
{
    static const char *const bad[] = {"tcp://h", "tcp://:1", "tcp://h:", "tcp://h:0",
        "tcp://h:65536", "tcp://h:1x", "tcp://h:+1", "ipc://", "ipc://@", "http://h:1", "tcp:/h:1",
        "", "tcp://[::1", "tcp://::1]:1"};
    static const char *const no_ports[] = {"tcp://*:", "tcp://*:0", "tcp://*:65536",
        "tcp://*:99999", "tcp://*:1x", "tcp://*:99999999999999999999"};
    int descriptor;

    (void)state;
    assert_int_equal(kvr_reactor_init(&reactor, NULL), KVR_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct kvr_zmtp_options options = {bad[i], false, NULL, 1 << 16, &budget};
        assert_int_equal(kvr_zmtp_open(&connection, &reactor, &options, NULL), KVR_BAD_USAGE);
        assert_null(connection);
    }
    for (size_t i = 0; i < sizeof no_ports / sizeof *no_ports; i++) {
        assert_int_equal(kvr_zmtp_listen(no_ports[i], &descriptor, NULL), KVR_BAD_USAGE);
        assert_int_equal(descriptor, -1);
    }
    const struct kvr_zmtp_options six = {"tcp://[::1]:1", false, NULL, 1 << 16, &budget};
    assert_int_equal(kvr_zmtp_open(&connection, &reactor, &six, NULL), KVR_OK);
    kvr_zmtp_close(connection);
    kvr_reactor_release(&reactor);
}

/* ---- captured ---- */

static void a_captured_conversation(void **state)
{
    const char *shared = getenv("SHARED");
    struct kvr_zmtp_reader reader = a_reader(1 << 20);
    struct kvr_frame frames[KVR_MESSAGE_FRAMES];
    struct kvr_kv_reader *list;
    struct kvr_kv_record record;
    static uint8_t bytes[1 << 16];
    char file[512];
    const char *why;
    size_t count, messages = 0;

    (void)state;
    snprintf(file, sizeof file, "%s/events/vllm-0.33.0-sha256-int/zmtp_sub_server_to_client.bin",
        shared ? shared : "../shared");
    FILE *captured = fopen(file, "rb");
    if (!captured)
        skip();
    size_t size = fread(bytes, 1, sizeof bytes, captured), at = 64; /* behind the greeting */
    fclose(captured);
    snprintf(file, sizeof file, "%s/events/vllm-0.33.0-sha256-int/sub_frames.bin",
        shared ? shared : "../shared");
    assert_int_equal(kvr_kv_reader_open(&list, file, 1 << 20, NULL), KVR_OK);
    for (;;) {
        enum kvr_zmtp_piece piece = kvr_zmtp_reader_next(&reader, frames, &count, &why);
        assert_true(piece != KVR_ZMTP_BROKEN);
        if (piece == KVR_ZMTP_MORE && at == size)
            break;
        if (piece == KVR_ZMTP_MORE)
            at += feed(&reader, bytes + at, size - at < 1000 ? size - at : 1000);
        if (piece != KVR_ZMTP_MESSAGE)
            continue;
        assert_int_equal(kvr_kv_reader_next(list, &record, NULL), KVR_OK);
        assert_int_equal(count, record.frame_count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(frames[i].size, record.frames[i].size);
            assert_memory_equal(frames[i].data, record.frames[i].data, frames[i].size);
        }
        messages++;
    }
    assert_int_equal(messages, 13);
    assert_int_equal(kvr_kv_reader_next(list, &record, NULL), KVR_END);
    kvr_kv_reader_close(list);
    kvr_zmtp_reader_release(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_however_they_are_cut),
        cmocka_unit_test(what_no_peer_sends),
        cmocka_unit_test(unfinished_messages_share_a_budget),
        cmocka_unit_test(subscribes_and_receives),
        cmocka_unit_test(a_request_waits_for_its_connection),
        cmocka_unit_test(strange_peers),
        cmocka_unit_test(a_peer_that_floods),
        cmocka_unit_test(endpoints),
        cmocka_unit_test(a_captured_conversation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
