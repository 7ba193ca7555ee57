/* Translation, case by case: events are written as JSON and packed, what comes
 * out is compared as event lines. Ids are kvr's, computed by the definition. */
#include "unit.h"

#include "net/kv_event_lines.h"
#include "token/hash.h"

#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct kvr_kv_memory memory;
static struct kvr_kv_translator *translator;
static struct kvr_writer writer;
static struct kvr_kv_sink sink;

static void begin(bool native, size_t limit)
{
    const struct kvr_kv_translator_options options = {.worker = "w", .native = native};

    memory = (struct kvr_kv_memory){.limit = limit};
    kvr_writer_init(&writer, -1); /* nothing is written: lines stay in its buffer */
    sink = kvr_kv_line_sink(&writer);
    assert_int_equal(kvr_kv_translator_create(&translator, &options, &memory, &sink, NULL), KVR_OK);
}

static void end(void)
{
    kvr_kv_translator_destroy(translator);
    kvr_buffer_release(&writer.buffer);
    assert_int_equal(memory.used, 0);
    kvr_kv_memory_release(&memory);
}

static void pack(msgpack_packer *packer, struct kvr_value value)
{
    struct kvr_cursor cursor = kvr_value_open(value);
    struct kvr_member member;
    struct kvr_value element;
    size_t count = 0;
    int64_t number = 0;

    switch (value.type) {
    case KVR_ARRAY:
        while (kvr_next_element(&cursor, &element))
            count++;
        msgpack_pack_array(packer, count);
        cursor = kvr_value_open(value);
        while (kvr_next_element(&cursor, &element))
            pack(packer, element);
        break;
    case KVR_OBJECT:
        while (kvr_next_member(&cursor, &member))
            count++;
        msgpack_pack_map(packer, count);
        cursor = kvr_value_open(value);
        while (kvr_next_member(&cursor, &member)) {
            pack(packer, member.name);
            pack(packer, member.value);
        }
        break;
    case KVR_STRING:
        msgpack_pack_str(packer, value.length - 2);
        msgpack_pack_str_body(packer, value.text + 1, value.length - 2);
        break;
    case KVR_NUMBER:
        assert_true(kvr_value_i64(value, &number));
        msgpack_pack_int64(packer, number);
        break;
    default:
        msgpack_pack_nil(packer);
    }
}

/* The lines that these events give. */
static const char *lines_of(const char *events, enum kvr_status expected)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_kv_batch batch;
    struct kvr_value value;
    struct kvr_error error = {0};
    msgpack_sbuffer payload;
    msgpack_packer packer;

    assert_int_equal(
        kvr_json_check(structure, events, strlen(events), &value, NULL, &error), KVR_OK);
    msgpack_sbuffer_init(&payload);
    msgpack_packer_init(&packer, &payload, msgpack_sbuffer_write);
    msgpack_pack_array(&packer, 2);
    msgpack_pack_int(&packer, 1);
    pack(&packer, value);
    kvr_buffer_clear(&writer.buffer);
    writer.whole = 0;
    assert_int_equal(
        kvr_kv_batch_read((struct kvr_frame){(const uint8_t *)payload.data, payload.size},
            &memory.decoder, &batch, &error),
        KVR_OK);
    assert_int_equal(kvr_kv_translate(translator, &batch, &error), expected);
    msgpack_sbuffer_destroy(&payload);
    kvr_structure_destroy(structure);
    const char *text = kvr_buffer_text(&writer.buffer);
    return text ? text : "";
}

static const struct kvr_kv_counts *counts(void)
{
    return kvr_kv_translator_counts(translator);
}

static void gives(const char *events, const char *lines)
{
    assert_string_equal(lines_of(events, KVR_OK), lines);
}

#define STORED(hash, parent, more)                                                                 \
    "{\"type\":\"BlockStored\",\"block_hashes\":[" #hash "],\"parent_block_hash\":" #parent        \
    ",\"token_ids\":[1,2],\"block_size\":2" more "}"
#define REMOVED(hash, more) "{\"type\":\"BlockRemoved\",\"block_hashes\":[" #hash "]" more "}"
#define LINE(event, id, medium)                                                                    \
    "{\"event\":\"" event "\",\"worker\":\"w\",\"hash_ids\":[" #id "],\"block_size\":2,"           \
    "\"medium\":\"" medium "\"}\n"
#define ROOT(id, medium)                                                                           \
    "{\"event\":\"stored\",\"worker\":\"w\",\"hash_ids\":[" #id "],\"parent\":null,"               \
    "\"block_size\":2,\"medium\":\"" medium "\"}\n"

static void ids_by_the_definition(void **state)
{
    static const uint32_t tokens[] = {1, 2};
    const struct kvr_namespace space = {.lora = {"l", 1}, .salt = {"s", 1}};
    char wanted[512];

    (void)state;
    begin(false, 1 << 20);
    uint64_t first = kvr_block_hash(kvr_namespace_seed(&space), tokens, 2);
    uint64_t second = kvr_block_hash(first, tokens, 2);
    snprintf(wanted, sizeof wanted,
        "{\"event\":\"stored\",\"worker\":\"w\",\"hash_ids\":[%llu,%llu],"
        "\"parent\":null,"
        "\"block_size\":2,\"medium\":\"gpu\",\"lora\":\"l\",\"salt\":\"s\"}\n",
        (unsigned long long)kvr_wire_id(first), (unsigned long long)kvr_wire_id(second));
    /* Two events, one line: the second goes on where the first ends, in its
     * namespace. */
    gives(
        "[" STORED(7, null, ",\"lora_name\":\"l\",\"extra_keys\":[[\"l\",\"s\"]]") "," STORED(8, 7,
            ","
            "\""
            "lo"
            "ra"
            "_n"
            "am"
            "e"
            "\""
            ":"
            "\""
            "l"
            "\"") "]",
        wanted);
    /* The same salt, tagged or in a field of its own, gives the same id again. */
    snprintf(wanted, sizeof wanted, "\"hash_ids\":[%llu]", (unsigned long long)kvr_wire_id(first));
    assert_non_null(strstr(lines_of("[" STORED(9, null,
                                        ",\"lora_name\":\"l\",\"extra_keys\":[[[\"lora\",\"l\","
                                        "\"p\"],[\"cache_salt\",\"s\"]]]") "]",
                               KVR_OK),
        wanted));
    assert_non_null(strstr(
        lines_of("[" STORED(10, null, ",\"lora_name\":\"l\",\"cache_salt\":\"s\"") "]", KVR_OK),
        wanted));
    /* Content of the block makes another block of it, the same in both of vLLM's
     * ways to write. */
    const char *content =
        lines_of("[" STORED(11, null, ",\"extra_keys\":[[[\"img\",-3]]]") "," STORED(12, null,
                     ",\"extra_keys\":[[[\"mm\",\"img\",-3]]]") "," STORED(13, null, "") "]",
            KVR_OK);
    char id[3][32];
    for (int i = 0; i < 3; i++) {
        content = strstr(content, "\"hash_ids\":[") + 12;
        snprintf(id[i], sizeof id[i], "%.*s", (int)strcspn(content, "]"), content);
    }
    assert_string_equal(id[0], id[1]);
    assert_string_not_equal(id[0], id[2]);
    end();
}

static void references_and_media(void **state)
{
    (void)state;
    begin(true, 1 << 20);
    gives("[" STORED(5, null, "") "," STORED(5, null, "") "]", ROOT(5, "gpu") ROOT(5, "gpu"));
    gives("[" REMOVED(5, "") "]", LINE("removed", 5, "gpu"));
    /* Offloaded without tokens: known by its hash; one that is not known is
     * counted. */
    gives("[{\"type\":\"BlockStored\",\"block_hashes\":[5,6],\"parent_block_"
          "hash\":null,"
          "\"token_ids\":[],\"block_size\":2,\"medium\":\"CPU\"}]",
        ROOT(5, "cpu"));
    assert_int_equal(counts()->tokenless_blocks, 1);
    gives("[" REMOVED(5, "") "," REMOVED(5, "") "]", LINE("removed", 5, "gpu"));
    assert_int_equal(counts()->unknown_removed, 1);
    assert_int_equal(kvr_kv_translator_blocks(translator), 1);
    gives("[" REMOVED(5, ",\"medium\":\"cpu\"") "]", LINE("removed", 5, "cpu"));
    assert_int_equal(kvr_kv_translator_blocks(translator), 0);
    assert_int_equal(memory.used, 0); /* nothing is held, nothing is kept */
    gives("[\"AllBlocksCleared\"]", "{\"event\":\"cleared\",\"worker\":\"w\"}\n");
    end();
}

static void what_cannot_be_reused_is_left_out(void **state)
{
    (void)state;
    begin(true, 1 << 20);
    gives(
        "[" STORED(1, null, ",\"group_idx\":1,\"kv_cache_spec_kind\":\"sliding_window\"") "]", "");
    gives("[" STORED(2, null, ",\"group_idx\":2") "]", "");
    gives("[" REMOVED(1, ",\"group_idx\":1") "]", "");
    assert_int_equal(counts()->other_group_blocks, 3);
    gives("[" STORED(3, null, ",\"group_idx\":3,\"kv_cache_spec_kind\":\"mla_attention\"") "]",
        ROOT(3, "gpu"));
    gives("[" REMOVED(3, ",\"group_idx\":3") "]", LINE("removed", 3, "gpu"));
    /* Group 0 counts, until it is said to be of another kind. */
    gives("[" STORED(4, null, ",\"group_idx\":0") "]", ROOT(4, "gpu"));
    gives("[" STORED(5, null, ",\"group_idx\":0,\"kv_cache_spec_kind\":\"mamba\"") "]", "");
    gives("[" STORED(6, null, ",\"group_idx\":0") "]", "");
    end();
}

/* The kind decides where it is said, in whatever spelling; a window alone is a sliding one. */
static void kinds_of_attention(void **state)
{
    (void)state;
    begin(true, 1 << 20);
    gives("[" STORED(1, null, ",\"group_idx\":1,\"kv_cache_spec_kind\":\"FullAttention\"") "]",
        ROOT(1, "gpu"));
    gives("[" STORED(2, null,
              ",\"kv_cache_spec_kind\":\"full_attention\",\"kv_cache_spec_sliding_window\":9") "]",
        ROOT(2, "gpu"));
    gives("[" STORED(3, null, ",\"kv_cache_spec_sliding_window\":9") "]", "");
    gives("[" STORED(4, null, ",\"kv_cache_spec_kind\":\"sliding_window_mla\"") "]", "");
    gives("[" STORED(5, null, ",\"kv_cache_spec_kind\":\"SlidingWindow\"") "]", "");
    gives("[" STORED(6, null, ",\"kv_cache_spec_kind\":\"unknown\"") "]", "");
    gives(
        "[" STORED(7, null, ",\"kv_cache_spec_kind\":\"sink_full_attention\"") "]", ROOT(7, "gpu"));
    end();
}

/* What a worker says of another's cache, or of a store that they share. */
static void localities(void **state)
{
    (void)state;
    begin(true, 1 << 20);
    gives(
        "[" STORED(1, null, ",\"medium\":\"CPU\",\"locality\":\"REMOTE\"") "]", ROOT(1, "remote"));
    gives("[" STORED(1, null, ",\"medium\":\"CPU\",\"locality\":\"LOCAL\"") "]", ROOT(1, "cpu"));
    gives("[" REMOVED(1, ",\"medium\":\"CPU\",\"locality\":\"REMOTE\"") "]",
        LINE("removed", 1, "remote"));
    gives("[" REMOVED(1, ",\"medium\":\"CPU\",\"locality\":7") "]", LINE("removed", 1, "cpu"));
    end();
}

/* A clearing that says what is cleared leaves the rest. */
static void media_are_cleared_alone(void **state)
{
    (void)state;
    begin(true, 1 << 20);
    gives("[" STORED(2, null, "") "," STORED(1, null, "") "]", ROOT(2, "gpu") ROOT(1, "gpu"));
    gives("[" STORED(2, null, ",\"medium\":\"CPU\"") "," STORED(2, null, ",\"medium\":\"CPU\"") "]",
        ROOT(2, "cpu") ROOT(2, "cpu"));
    gives("[" STORED(1, null, ",\"locality\":\"REMOTE\"") "]", ROOT(1, "remote"));
    gives(
        "[{\"type\":\"AllBlocksCleared\",\"locality\":\"REMOTE\"}]", LINE("removed", 1, "remote"));
    gives("[{\"type\":\"AllBlocksCleared\",\"medium\":\"CPU\"}]",
        "{\"event\":\"removed\",\"worker\":\"w\",\"hash_ids\":[2,2],\"block_size\":2,\"medium\":"
        "\"cpu\"}\n");
    gives("[{\"type\":\"AllBlocksCleared\",\"medium\":\"GPU\"}]",
        "{\"event\":\"removed\",\"worker\":\"w\",\"hash_ids\":[1,2],\"block_size\":2,\"medium\":"
        "\"gpu\"}\n");
    assert_int_equal(kvr_kv_translator_blocks(translator), 0);
    gives("[" STORED(1, null, "") "]", ROOT(1, "gpu"));
    gives("[{\"type\":\"AllBlocksCleared\",\"medium\":null}]",
        "{\"event\":\"cleared\",\"worker\":\"w\"}\n");
    assert_int_equal(counts()->cleared, 4);
    end();
}

/* The id that these extra keys give to the block of STORED. */
static unsigned long long id_with(const char *keys, const char *lora)
{
    static unsigned hash = 1000;
    char events[512];

    snprintf(events, sizeof events,
        "[{\"type\":\"BlockStored\",\"block_hashes\":[%u],\"token_ids\":[1,2],\"block_size\":2,"
        "\"lora_name\":%s,\"event_version\":1,\"extra_keys\":[[%s]]}]",
        hash++, lora, keys);
    const char *at = strstr(lines_of(events, KVR_OK), "\"hash_ids\":[");
    assert_non_null(at);
    return strtoull(at + 12, NULL, 10);
}

/* Keys that say what they are give the ids of those that do not. */
static void typed_extra_keys(void **state)
{
    (void)state;
    begin(false, 1 << 20);
    unsigned long long plain = id_with("", "null");
    assert_true(
        id_with("{\"type\":\"lora\",\"name\":\"l\"}", "\"l\"") == id_with("\"l\"", "\"l\""));
    assert_true(
        id_with("{\"type\":\"lora\",\"name\":\"l\"},{\"salt\":\"l\",\"type\":\"cache_salt\"}",
            "\"l\"") == id_with("[\"cache_salt\",\"l\"]", "\"l\""));
    assert_true(id_with("{\"type\":\"cache_salt\",\"salt\":\"s\"}", "null") != plain);
    assert_true(
        id_with("{\"type\":\"mm\",\"modality\":\"image\",\"hash\":\"i\",\"block_offset\":-3}",
            "null") == id_with("[\"i\",-3]", "null"));
    assert_true(id_with("{\"type\":\"prompt_embeds\",\"hash\":\"e\"}", "null") != plain);
    assert_true(id_with("{\"type\":\"legacy\",\"value\":7}", "null") == id_with("7", "null"));
    assert_true(id_with("{\"type\":\"new\",\"x\":1}", "null") !=
                id_with("{\"type\":\"new\",\"x\":2}", "null"));
    end();
}

/* Mooncake's master, by RFC 1527: blocks by key, without tokens; size and media as said. */
static void mooncake_master(void **state)
{
    (void)state;
    begin(true, 1 << 20);
    gives("[{\"event_id\":1,\"event_type\":\"stored\",\"block_size\":null,\"lora_name\":null,"
          "\"tenant_id\":\"t\",\"medium\":\"cpu\",\"dp_rank\":null,\"object_key\":\"42\","
          "\"seq_hashes\":[42],\"base_block_idx\":0,\"parent_hash\":null,\"token_ids\":null}]",
        "{\"event\":\"stored\",\"worker\":\"w\",\"hash_ids\":[42],\"parent\":null,\"medium\":"
        "\"cpu\"}\n");
    gives(
        "[{\"event_type\":\"removed\",\"object_key\":\"42\",\"seq_hashes\":[],\"medium\":\"cpu\"}]",
        "{\"event\":\"removed\",\"worker\":\"w\",\"hash_ids\":[42],\"medium\":\"cpu\"}\n");
    /* The older names beside the newer ones. */
    gives("[{\"event_type\":\"stored\",\"type\":\"BlockStored\",\"object_key\":\"a/"
          "b\",\"seq_hashes\":[7],"
          "\"block_hashes\":[7],\"block_size\":2,\"medium\":\"disk\",\"token_ids\":null}]",
        ROOT(7, "disk"));
    gives("[{\"event_type\":\"cleared\",\"tenant_id\":\"t\"}]",
        "{\"event\":\"cleared\",\"worker\":\"w\"}\n");
    end();
    /* Without tokens there is no id of kvr's: counted. With them there is. */
    begin(false, 1 << 20);
    gives("[{\"event_type\":\"stored\",\"seq_hashes\":[42],\"medium\":\"cpu\"}]", "");
    assert_int_equal(counts()->tokenless_blocks, 1);
    assert_non_null(
        strstr(lines_of("[{\"event_type\":\"stored\",\"seq_hashes\":[1],\"parent_hash\":null,"
                        "\"token_ids\":[1,2],\"block_size\":2,\"additional_salt\":\"s\"}]",
                   KVR_OK),
            "\"salt\":\"s\""));
    end();
}

/* One event of very many blocks gives lines of a bounded length, each going on from the last. */
static void long_events_are_told_in_parts(void **state)
{
    enum { BLOCKS = 10000 };
    struct kvr_kv_batch batch;
    msgpack_sbuffer payload;
    msgpack_packer packer;
    size_t lines = 0;

    (void)state;
    begin(true, 1 << 24);
    msgpack_sbuffer_init(&payload);
    msgpack_packer_init(&packer, &payload, msgpack_sbuffer_write);
    msgpack_pack_array(&packer, 2);
    msgpack_pack_int(&packer, 1);
    msgpack_pack_array(&packer, 1);
    msgpack_pack_array(&packer, 5);
    msgpack_pack_str(&packer, 11);
    msgpack_pack_str_body(&packer, "BlockStored", 11);
    msgpack_pack_array(&packer, BLOCKS);
    for (int i = 1; i <= BLOCKS; i++)
        msgpack_pack_int(&packer, i);
    msgpack_pack_nil(&packer);
    msgpack_pack_array(&packer, BLOCKS);
    for (int i = 1; i <= BLOCKS; i++)
        msgpack_pack_int(&packer, i);
    msgpack_pack_int(&packer, 1);
    assert_int_equal(
        kvr_kv_batch_read((struct kvr_frame){(const uint8_t *)payload.data, payload.size},
            &memory.decoder, &batch, NULL),
        KVR_OK);
    assert_int_equal(kvr_kv_translate(translator, &batch, NULL), KVR_OK);
    for (const char *at = kvr_buffer_text(&writer.buffer); at && *at; lines++) {
        const char *end = strchr(at, '\n'), *parent = strstr(at, "\"parent\":");
        assert_true(end && parent && end - at < 100000);
        assert_int_equal(strtol(strchr(at, '[') + 1, NULL, 10), (long)lines * 4096 + 1);
        if (lines)
            assert_int_equal(strtol(parent + 9, NULL, 10), (long)lines * 4096);
        at = end + 1;
    }
    assert_int_equal(lines, 3);
    msgpack_sbuffer_destroy(&payload);
    end();
}

static void bad_events_fail_alone(void **state)
{
    (void)state;
    begin(false, 1 << 20);
    lines_of("[" STORED(1, null, ",\"extra_keys\":5") "," STORED(
                 2, 99, "") ",{\"type\":\"New\"},7,"
                            "{\"type\":\"BlockStored\",\"block_hashes\":[3],"
                            "\"token_ids\":[1],\"block_size\":2}]",
        KVR_BAD_INPUT);
    assert_int_equal(writer.whole, 0);
    assert_int_equal(counts()->bad_events, 3);
    assert_int_equal(counts()->orphans, 1);
    assert_int_equal(counts()->unknown_events, 1);
    end();
}

static void a_hash_with_other_content_is_not_believed(void **state)
{
    (void)state;
    begin(false, 1 << 20);
    lines_of("[" STORED(1, null, "") "]", KVR_OK);
    assert_string_equal(lines_of("[{\"type\":\"BlockStored\",\"block_hashes\":[1],"
                                 "\"token_ids\":[3,4],\"block_size\":2}]",
                            KVR_OK),
        "");
    assert_int_equal(counts()->clashes, 1);
    end();
}

static void memory_is_bounded(void **state)
{
    char events[256];

    (void)state;
    begin(true, 8192);
    for (int i = 1; i < 2000; i++) {
        snprintf(events, sizeof events,
            "[{\"type\":\"BlockStored\",\"block_hashes\":[%d],\"token_ids\":["
            "1,2],\"block_size\":2,"
            "\"cache_salt\":\"salt %d\"}]",
            i, i);
        lines_of(events, KVR_OK);
        assert_true(memory.used <= memory.limit);
    }
    assert_true(counts()->over_memory_blocks > 1000);
    assert_true(kvr_kv_translator_blocks(translator) > 20);
    end();
}

static void mooncake_objects(void **state)
{
    (void)state;
    begin(true, 1 << 20);
    gives("[[\"BlockStoreEvent\",\"k1\",[[\"memory\",\"h:1\"]],\"m\",2,\"0x2a\","
          "\"\",[1,2]]]",
        "{\"event\":\"stored\",\"worker\":\"w\",\"hash_ids\":[42],\"parent\":"
        "null,\"block_size\":2,"
        "\"medium\":\"remote\",\"model\":\"m\"}\n");
    gives("[[\"BlockStoreEvent\",\"k2\",[[\"disk\",\"/"
          "f\"]],\"m\",2,\"43\",\"42\",[3,4]]]",
        "{\"event\":\"stored\",\"worker\":\"w\",\"hash_ids\":[43],\"parent\":"
        "42,\"block_size\":2,"
        "\"medium\":\"disk\",\"model\":\"m\"}\n");
    /* From memory to disk: first it is there too, then it is gone here. */
    gives("[[\"BlockUpdateEvent\",\"k1\",[[\"local_disk\",\"h:1\"]]]]",
        "{\"event\":\"stored\",\"worker\":\"w\",\"hash_ids\":[42],\"parent\":"
        "null,\"block_size\":2,"
        "\"medium\":\"disk\",\"model\":\"m\"}\n"
        "{\"event\":\"removed\",\"worker\":\"w\",\"hash_ids\":[42],\"block_"
        "size\":2,"
        "\"medium\":\"remote\",\"model\":\"m\"}\n");
    gives("[[\"BlockUpdateEvent\",\"k2\",[]]]",
        "{\"event\":\"removed\",\"worker\":\"w\",\"hash_ids\":[43],\"block_"
        "size\":2,"
        "\"medium\":\"disk\",\"model\":\"m\"}\n");
    gives("[[\"BlockUpdateEvent\",\"k3\",[]]]", "");
    assert_int_equal(counts()->unknown_removed, 1);
    gives("[[\"RemoveAllEvent\"]]", "{\"event\":\"cleared\",\"worker\":\"w\"}\n");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_by_the_definition),
        cmocka_unit_test(references_and_media),
        cmocka_unit_test(what_cannot_be_reused_is_left_out),
        cmocka_unit_test(kinds_of_attention),
        cmocka_unit_test(localities),
        cmocka_unit_test(media_are_cleared_alone),
        cmocka_unit_test(typed_extra_keys),
        cmocka_unit_test(mooncake_master),
        cmocka_unit_test(long_events_are_told_in_parts),
        cmocka_unit_test(bad_events_fail_alone),
        cmocka_unit_test(a_hash_with_other_content_is_not_believed),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(mooncake_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
