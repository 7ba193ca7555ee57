/* Decoding of KV events: every captured stream, any msgpack against msgpack-c, odd layouts. */
#include "unit.h"

#include "line/json.h"
#include "net/kv_event_file.h"

#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the captured streams ---- */

static const char *const captures[] = {"vllm-0.11.0", "vllm-0.14.1", "vllm-0.20.2", "vllm-0.24.0",
    "vllm-0.29.0", "vllm-0.33.0-sha256-int", "vllm-0.33.0-sha256_cbor-int",
    "vllm-0.33.0-sha256_cbor-bytes-dp1", "sglang-0.4.10.post2", "sglang-0.5.12", "sglang-0.5.20",
    "sglang-0.5.23-radix"};

static const char *shared(void)
{
    const char *path = getenv("SHARED");
    return path ? path : "../shared";
}

/* Whether two JSON values say the same; a member that is null may be missing on the other side. */
static bool equal(struct kvr_value a, struct kvr_value b)
{
    struct kvr_cursor left, right;
    struct kvr_value x, y;
    struct kvr_member member;
    double p, q;

    if (a.type <= KVR_NULL && b.type <= KVR_NULL)
        return true;
    if (a.type != b.type)
        return false;
    if (a.type == KVR_NUMBER && memchr(a.text, '.', a.length))
        return kvr_value_double(a, &p) && kvr_value_double(b, &q) && p == q;
    if (a.type != KVR_ARRAY && a.type != KVR_OBJECT)
        return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
    left = kvr_value_open(a);
    right = kvr_value_open(b);
    if (a.type == KVR_ARRAY) {
        while (kvr_next_element(&left, &x))
            if (!kvr_next_element(&right, &y) || !equal(x, y))
                return false;
        return !kvr_next_element(&right, &y);
    }
    for (int side = 0; side < 2; side++) {
        struct kvr_cursor cursor = side ? right : left;
        while (kvr_next_member(&cursor, &member)) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)member.name.length - 2, member.name.text + 1);
            if (!equal(member.value, kvr_value_get(side ? a : b, name)))
                return false;
        }
    }
    return true;
}

static struct kvr_value parse(struct kvr_structure *structure, const char *text, size_t length)
{
    struct kvr_value value;
    struct kvr_error error = {0};

    if (kvr_json_check(structure, text, length, &value, NULL, &error) != KVR_OK)
        fail_msg("%s", error.text);
    return value;
}

/* The events of a message, as JSON. */
static void decode(const struct kvr_kv_message *message, struct kvr_kv_batch *batch,
    struct kvr_kv_decoder *decoder, struct kvr_buffer *out)
{
    struct kvr_kv_event event;
    struct kvr_error error = {0};
    enum kvr_status status;

    assert_int_equal(kvr_kv_batch_read(message->payload, decoder, batch, &error), KVR_OK);
    kvr_buffer_clear(out);
    kvr_buffer_append_byte(out, '[');
    while ((status = kvr_kv_event_next(batch, decoder, &event, &error)) != KVR_END) {
        assert_int_equal(status, KVR_OK);
        assert_true(event.type != KVR_KV_OTHER);
        if (out->length > 1)
            kvr_buffer_append_byte(out, ',');
        assert_true(kvr_kv_event_json(&event, out));
    }
    kvr_buffer_append_byte(out, ']');
}

/* Reads a file of frames beside the lines of expected.ndjson from `from` on. */
static unsigned compare(const char *capture, const char *file, unsigned from)
{
    struct kvr_structure *structure = NULL, *other = NULL;
    struct kvr_kv_reader *reader;
    struct kvr_kv_record record;
    struct kvr_kv_message message;
    struct kvr_kv_batch batch;
    struct kvr_kv_decoder decoder = {0};
    struct kvr_buffer out = {0};
    struct kvr_error error = {0};
    char path[512], *line = NULL;
    size_t room = 0;
    ssize_t length;
    unsigned count = 0;
    double time_s;

    structure = kvr_structure_create();
    other = kvr_structure_create();
    snprintf(path, sizeof path, "%s/events/%s/expected.ndjson", shared(), capture);
    FILE *expected = fopen(path, "r");
    assert_non_null(expected);
    for (unsigned i = 0; i < from; i++)
        assert_true(getline(&line, &room, expected) > 0);
    snprintf(path, sizeof path, "%s/events/%s/%s", shared(), capture, file);
    assert_int_equal(kvr_kv_reader_open(&reader, path, 1 << 20, &error), KVR_OK);
    while (kvr_kv_reader_next(reader, &record, &error) == KVR_OK) {
        assert_int_equal(
            kvr_kv_message_read(record.frames, record.frame_count, &message, &error), KVR_OK);
        if (message.end)
            break;
        assert_true((length = getline(&line, &room, expected)) > 0);
        struct kvr_value wanted = parse(structure, line, (size_t)length);
        decode(&message, &batch, &decoder, &out);
        struct kvr_value events = parse(other, out.data, out.length);
        if (!equal(events, kvr_value_get(wanted, "events")))
            fail_msg("%s %s %u: %.*s", capture, file, count, (int)out.length, out.data);
        uint64_t sequence, rank = 0;
        assert_true(kvr_value_u64(kvr_value_get(wanted, "seq"), &sequence));
        assert_int_equal(message.sequence, sequence);
        if (kvr_value_double(kvr_value_get(wanted, "ts"), &time_s))
            assert_true(batch.time_s == time_s);
        if (kvr_value_u64(kvr_value_get(wanted, "data_parallel_rank"), &rank))
            assert_true(batch.has_rank && batch.rank == rank);
        if (!from) { /* old replies to replays have no topic */
            struct kvr_buffer topic = {0};
            assert_true(kvr_value_string(kvr_value_get(wanted, "topic"), &topic));
            assert_int_equal(topic.length, message.topic.length);
            if (topic.length)
                assert_memory_equal(topic.data, message.topic.text, topic.length);
            kvr_buffer_release(&topic);
        }
        count++;
    }
    assert_true(getline(&line, &room, expected) < 0);
    fclose(expected);
    free(line);
    kvr_kv_reader_close(reader);
    kvr_kv_decoder_release(&decoder);
    kvr_buffer_release(&out);
    kvr_structure_destroy(structure);
    kvr_structure_destroy(other);
    return count;
}

static void captured_streams(void **state)
{
    char path[512];

    (void)state;
    snprintf(path, sizeof path, "%s/events/NOTES.md", shared());
    if (access(path, R_OK) != 0)
        skip();
    for (size_t i = 0; i < sizeof captures / sizeof *captures; i++) {
        unsigned messages = compare(captures[i], "sub_frames.bin", 0);
        unsigned replayed = strstr(captures[i], "0.33.0") ? 3 : 5;
        assert_true(messages == 13 || messages == 41);
        assert_int_equal(compare(captures[i], "replay_frames.bin", replayed), messages - replayed);
    }
}

/* ---- msgpack ---- */

static uint64_t random_state = 88172645463325252u;

static uint64_t draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

/* Some value of every type and width, from random bits. */
static void pack_some(msgpack_packer *packer, int depth)
{
    char bytes[400] = "text";
    uint64_t bits = draw() >> draw() % 64;
    size_t length = draw() % (draw() % 4 ? 20 : sizeof bits * 40);

    switch (draw() % (depth < 6 ? 12 : 9)) {
    case 0:
        msgpack_pack_nil(packer);
        break;
    case 1:
        draw() % 2 ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
        break;
    case 2:
    case 3:
        msgpack_pack_uint64(packer, bits);
        break;
    case 4:
        msgpack_pack_int64(packer, -(int64_t)(bits >> 1));
        break;
    case 5:
        draw() % 2 ? msgpack_pack_double(packer, (double)bits / 3)
                   : msgpack_pack_float(packer, (float)bits / 7);
        break;
    case 6:
        msgpack_pack_str(packer, length);
        msgpack_pack_str_body(packer, bytes, length);
        break;
    case 7:
        msgpack_pack_bin(packer, length);
        msgpack_pack_bin_body(packer, bytes, length);
        break;
    case 8:
        length = draw() % 3 ? UINT64_C(1) << draw() % 5 : length;
        msgpack_pack_ext(packer, length, 5);
        msgpack_pack_ext_body(packer, bytes, length);
        break;
    case 9:
    case 10:
        length = draw() % (draw() % 8 ? 5 : 20);
        msgpack_pack_array(packer, length);
        for (size_t i = 0; i < length; i++)
            pack_some(packer, depth + 1);
        break;
    default:
        length = draw() % (draw() % 8 ? 4 : 20);
        msgpack_pack_map(packer, length);
        for (size_t i = 0; i < 2 * length; i++)
            pack_some(packer, depth + 1);
    }
}

/* Our reading of one value beside msgpack-c's. */
static void same_value(struct kvr_msgpack *reader, const msgpack_object *object)
{
    struct kvr_msgpack_value value;

    assert_true(kvr_msgpack_next(reader, &value));
    switch (object->type) {
    case MSGPACK_OBJECT_NIL:
        assert_int_equal(value.type, KVR_MSGPACK_NIL);
        break;
    case MSGPACK_OBJECT_BOOLEAN:
        assert_int_equal(value.type, KVR_MSGPACK_BOOLEAN);
        assert_int_equal(value.number, object->via.boolean);
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        assert_int_equal(value.type, KVR_MSGPACK_UNSIGNED);
        assert_true(value.number == object->via.u64);
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        assert_int_equal(value.type, KVR_MSGPACK_NEGATIVE);
        assert_true((int64_t)value.number == object->via.i64);
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        assert_int_equal(value.type, KVR_MSGPACK_REAL);
        assert_memory_equal(&value.real, &object->via.f64, sizeof value.real);
        break;
    case MSGPACK_OBJECT_STR:
        assert_int_equal(value.type, KVR_MSGPACK_TEXT);
        assert_int_equal(value.length, object->via.str.size);
        assert_memory_equal(value.bytes, object->via.str.ptr, value.length);
        break;
    case MSGPACK_OBJECT_BIN:
        assert_int_equal(value.type, KVR_MSGPACK_BYTES);
        assert_int_equal(value.length, object->via.bin.size);
        assert_memory_equal(value.bytes, object->via.bin.ptr, value.length);
        break;
    case MSGPACK_OBJECT_EXT:
        assert_int_equal(value.type, KVR_MSGPACK_EXTENSION);
        assert_int_equal(value.length, object->via.ext.size);
        assert_memory_equal(value.bytes, object->via.ext.ptr, value.length);
        break;
    case MSGPACK_OBJECT_ARRAY:
        assert_int_equal(value.type, KVR_MSGPACK_ARRAY);
        assert_int_equal(value.length, object->via.array.size);
        for (uint32_t i = 0; i < value.length; i++)
            same_value(reader, &object->via.array.ptr[i]);
        break;
    case MSGPACK_OBJECT_MAP:
        assert_int_equal(value.type, KVR_MSGPACK_MAP);
        assert_int_equal(value.length, object->via.map.size);
        for (uint32_t i = 0; i < value.length; i++) {
            same_value(reader, &object->via.map.ptr[i].key);
            same_value(reader, &object->via.map.ptr[i].val);
        }
        break;
    default:
        fail();
    }
}

static void reads_as_msgpack_c(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        msgpack_sbuffer bytes;
        msgpack_packer packer;
        msgpack_unpacked unpacked;
        size_t offset = 0;

        msgpack_sbuffer_init(&bytes);
        msgpack_packer_init(&packer, &bytes, msgpack_sbuffer_write);
        pack_some(&packer, 0);
        msgpack_unpacked_init(&unpacked);
        assert_int_equal(msgpack_unpack_next(&unpacked, bytes.data, bytes.size, &offset),
            MSGPACK_UNPACK_SUCCESS);
        struct kvr_msgpack reader = {
            (const uint8_t *)bytes.data, (const uint8_t *)bytes.data + bytes.size};
        struct kvr_msgpack skipped = reader, cut = reader;
        same_value(&reader, &unpacked.data);
        assert_ptr_equal(reader.at, reader.end);
        assert_true(kvr_msgpack_skip(&skipped));
        assert_ptr_equal(skipped.at, skipped.end);
        cut.end -= 1 + draw() % bytes.size;
        assert_false(kvr_msgpack_skip(&cut)); /* no prefix of a value is a value */
        msgpack_unpacked_destroy(&unpacked);
        msgpack_sbuffer_destroy(&bytes);
    }
}

static void refuses_lies(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
    } lies[] = {{"\xdd\xff\xff\xff\xff\x01", 6}, {"\xdf\x7f\xff\xff\xff\x01", 6}, {"\xc1", 1},
        {"\xda\xff", 2}, {"\xc6\xff\xff\xff\xff", 5}, {"\x92\x01", 2}, {"", 0}, {"\xd8\x01", 2}};

    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct kvr_msgpack reader = {
            (const uint8_t *)lies[i].bytes, (const uint8_t *)lies[i].bytes + lies[i].size};
        assert_false(kvr_msgpack_skip(&reader));
    }
    /* A million levels cost nothing to pass over, and are too deep to print. */
    size_t depth = 1000000;
    uint8_t *deep = malloc(depth);
    assert_non_null(deep);
    memset(deep, 0x91, depth - 1);
    deep[depth - 1] = 0xc0;
    struct kvr_msgpack reader = {deep, deep + depth}, again = reader;
    struct kvr_buffer out = {0};
    assert_true(kvr_msgpack_skip(&reader));
    assert_false(kvr_msgpack_json(&again, &out));
    assert_int_equal(out.length, 0);
    kvr_buffer_release(&out);
    free(deep);
}

/* ---- layouts nobody has sent yet ---- */

/* Decodes the one event of a payload. */
static enum kvr_status one(
    const char *bytes, size_t size, struct kvr_kv_decoder *decoder, struct kvr_kv_event *event)
{
    struct kvr_kv_batch batch;
    struct kvr_error error = {0};
    struct kvr_frame payload = {(const uint8_t *)bytes, size};
    enum kvr_status status = kvr_kv_batch_read(payload, decoder, &batch, &error);

    if (status != KVR_OK)
        return status;
    return kvr_kv_event_next(&batch, decoder, event, &error);
}

#define ONE(literal) one(literal, sizeof(literal) - 1, &decoder, &event)

static void unseen_layouts(void **state)
{
    struct kvr_kv_decoder decoder = {0};
    struct kvr_kv_event event;

    (void)state;
    /* a longer array; text hashes; a batch that is a map */
    assert_int_equal(ONE("\x92\x01\x91\x97\xac"
                         "BlockRemoved\x92\xa2\x34\x32\xa4\x30x2B\xa3"
                         "CPU\x00\x01\x02\x03"),
        KVR_OK);
    assert_int_equal(event.type, KVR_KV_REMOVED);
    assert_int_equal(event.hash_count, 2);
    assert_true(event.hashes[0] == 42 && event.hashes[1] == 43);
    assert_int_equal(event.medium, KVR_MEDIUM_CPU);
    assert_true(event.has_group && event.group == 0);
    assert_int_equal(ONE("\x83\xa6"
                         "events\x91\xa7Unknown\xa1x\x01\xa2ts\xca\x3f\x80\x00\x00"),
        KVR_OK);
    assert_int_equal(event.type, KVR_KV_OTHER);
    /* Mooncake: removed by an update without replicas */
    assert_int_equal(ONE("\x92\x01\x91\x93\xb0"
                         "BlockUpdateEvent\xa1k\x90"),
        KVR_OK);
    assert_int_equal(event.type, KVR_KV_UPDATED);
    assert_int_equal(event.media, 0);
    assert_int_equal(ONE("\x92\x01\x91\x93\xb0"
                         "BlockUpdateEvent\xa1k\x92\x92\xa6memory\xa1p\x92\xaalocal_disk\xa1p"),
        KVR_OK);
    assert_int_equal(event.media, 1u << KVR_MEDIUM_REMOTE | 1u << KVR_MEDIUM_DISK);
    /* broken ones, each alone */
    assert_int_equal(ONE("\x92\x01\x91\x92\xac"
                         "BlockRemoved\xc3"),
        KVR_BAD_INPUT);
    assert_int_equal(ONE("\x92\x01\x91\x05"), KVR_BAD_INPUT);
    assert_int_equal(ONE("\x92\x01\x91\x90"), KVR_BAD_INPUT);
    assert_int_equal(ONE("\x92\x01\x91\x81\xa1x\x01"), KVR_BAD_INPUT);
    assert_int_equal(ONE("\x92\x01\x05"), KVR_BAD_INPUT);
    assert_int_equal(ONE("\x91\x01"), KVR_BAD_INPUT);
    assert_int_equal(ONE("\x92\x01\x92\x05"), KVR_BAD_INPUT);
    kvr_kv_decoder_release(&decoder);
}

/* What an event with this token_ids has as tokens; the list's bytes are given. */
static void tokens_are(const char *list, size_t size, size_t count, const uint32_t *tokens)
{
    static const char before[] = "\x92\x01\x91\x95\xab"
                                 "BlockStored\x91\x01\xc0";
    struct kvr_kv_decoder decoder = {0};
    struct kvr_kv_event event;
    char bytes[256];

    memcpy(bytes, before, sizeof before - 1);
    memcpy(bytes + sizeof before - 1, list, size);
    bytes[sizeof before - 1 + size] = 2; /* block_size */
    enum kvr_status status = one(bytes, sizeof before + size, &decoder, &event);
    assert_int_equal(status, tokens ? KVR_OK : KVR_BAD_INPUT);
    if (tokens) {
        assert_int_equal(event.token_count, count);
        assert_memory_equal(event.tokens, tokens, count * sizeof *tokens);
        assert_int_equal(event.block_size, 2);
    }
    kvr_kv_decoder_release(&decoder);
}

/* Long lists are read when a batch is found whole, short and odd ones with their event. */
static void token_lists(void **state)
{
    static const uint32_t tokens[] = {1, 200, 40000, 3000000000, 5, 6, 7, 8, 9};

    (void)state;
    tokens_are(
        "\x99\x01\xcc\xc8\xcd\x9c\x40\xce\xb2\xd0\x5e\x00\x05\x06\x07\x08\x09", 17, 9, tokens);
    tokens_are("\x92\x01\xcc\xc8", 4, 2, tokens);
    /* Pairs with the token that follows: the first of each. */
    tokens_are("\x92\x92\x01\xcc\xc8\x92\xcc\xc8\xcd\x9c\x40", 11, 2, tokens);
    tokens_are("\x92\x93\x01\x02\xa1x\x91\xcc\xc8", 9, 2, tokens);
    tokens_are("\x92\x92\x01\x02\x05", 5, 0, NULL);
    tokens_are("\x91\x90", 2, 0, NULL);
    tokens_are("\x91\x91\xc0", 3, 0, NULL);
    tokens_are("\x99\x01\x02\x03\x04\x05\x06\x07\x08\xa1x", 11, 0, NULL);
    tokens_are("\x91\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 10, 0, NULL);
}

/* Every list of small numbers in any value, found on the way, is what it is by itself. */
static void lists_met_on_the_way(void **state)
{
    struct kvr_msgpack_numbers kept = {0};
    size_t found = 0;

    (void)state;
    for (int round = 0; round < 300; round++) {
        msgpack_sbuffer bytes;
        msgpack_packer packer;
        uint32_t numbers[64];
        size_t count;

        msgpack_sbuffer_init(&bytes);
        msgpack_packer_init(&packer, &bytes, msgpack_sbuffer_write);
        msgpack_pack_array(&packer, 3);
        pack_some(&packer, 3);
        size_t length = draw() % 40;
        msgpack_pack_array(&packer, length);
        for (size_t i = 0; i < length; i++)
            draw() % 200 ? msgpack_pack_uint64(&packer, draw() >> (32 + draw() % 32))
                         : msgpack_pack_nil(&packer);
        pack_some(&packer, 3);
        struct kvr_msgpack reader = {
            (const uint8_t *)bytes.data, (const uint8_t *)bytes.data + bytes.size};
        kept.count = kept.list_count = 0;
        assert_true(kvr_msgpack_walk(&reader, &kept));
        assert_ptr_equal(reader.at, reader.end);
        const uint8_t *last = NULL;
        for (size_t i = 0; i < kept.list_count; i++) {
            struct kvr_msgpack list = {kept.lists[i].start, reader.end};
            assert_true(kept.lists[i].start > last);
            last = kept.lists[i].start;
            if (kept.lists[i].count > 64)
                continue;
            assert_true(kvr_msgpack_u32s(&list, numbers, &count));
            assert_ptr_equal(list.at, kept.lists[i].end);
            assert_int_equal(count, kept.lists[i].count);
            assert_memory_equal(numbers, kept.numbers + kept.lists[i].first, 4 * count);
            found++;
        }
        msgpack_sbuffer_destroy(&bytes);
    }
    assert_true(found > 100);
    kvr_msgpack_numbers_release(&kept);
}

static void media_names(void **state)
{
    static const struct {
        const char *name;
        enum kvr_medium medium;
        bool known;
    } names[] = {{"GPU", KVR_MEDIUM_GPU, true}, {"", KVR_MEDIUM_GPU, true},
        {"cpu_pinned", KVR_MEDIUM_CPU, true}, {"CPU_TIER2", KVR_MEDIUM_CPU, true},
        {"DISK", KVR_MEDIUM_DISK, true}, {"EXTERNAL", KVR_MEDIUM_REMOTE, true},
        {"TAPE", KVR_MEDIUM_REMOTE, false}};
    enum kvr_medium medium;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct kvr_text text = {names[i].name, strlen(names[i].name)};
        assert_int_equal(kvr_kv_medium(text, &medium), names[i].known);
        assert_int_equal(medium, names[i].medium);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_streams),
        cmocka_unit_test(reads_as_msgpack_c),
        cmocka_unit_test(refuses_lies),
        cmocka_unit_test(unseen_layouts),
        cmocka_unit_test(token_lists),
        cmocka_unit_test(lists_met_on_the_way),
        cmocka_unit_test(media_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
