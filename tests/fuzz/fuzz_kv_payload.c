/* Any payload: decoding, its JSON view and translation give events or a counted error, within the
 * bound of memory. Input: a byte of options, then a payload, which is taken twice and then cleared.
 */
#include "line/json.h"
#include "net/kv_event_lines.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY 4096u

static void require(bool truth)
{
    if (!truth)
        abort();
}

static uint64_t stored, removed;

static void on_stored(void *context, const struct kvr_kv_run *run)
{
    (void)context;
    require(run->count && run->space && (run->space->block_size || !run->token_count));
    require(!run->tokens || run->token_count == 0 ||
            run->token_count == run->count * (size_t)run->space->block_size);
    stored += run->count;
}

static void on_removed(void *context, const struct kvr_kv_run *run)
{
    (void)context;
    require(run->count && run->space && !run->tokens);
    removed += run->count;
    require(removed <= stored);
}

static void on_cleared(void *context, const char *worker, const char *reason)
{
    (void)context, (void)worker, (void)reason;
    stored = removed = 0;
}

/* What is printed is one JSON value. */
static void view(struct kvr_frame payload)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_kv_decoder decoder = {0};
    struct kvr_buffer out = {0};
    struct kvr_kv_batch batch;
    struct kvr_kv_event event;
    struct kvr_value value;
    enum kvr_status status;

    require(structure != NULL);
    if (kvr_kv_batch_read(payload, &decoder, &batch, NULL) == KVR_OK) {
        while ((status = kvr_kv_event_next(&batch, &decoder, &event, NULL)) != KVR_END) {
            kvr_buffer_clear(&out);
            if (status == KVR_OK && kvr_kv_event_json(&event, &out))
                require(
                    kvr_json_check(structure, out.data, out.length, &value, NULL, NULL) == KVR_OK);
        }
    }
    kvr_buffer_release(&out);
    kvr_kv_decoder_release(&decoder);
    kvr_structure_destroy(structure);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_kv_memory memory = {.limit = MEMORY};
    const struct kvr_kv_sink sink = {NULL, on_stored, on_removed, on_cleared};
    struct kvr_kv_translator *translator;
    struct kvr_kv_batch batch;

    if (!size)
        return 0;
    const struct kvr_frame payload = {data + 1, size - 1};
    const struct kvr_kv_translator_options options = {
        "w", data[0] & 1 ? "m" : NULL, data[0] & 2, data[0] & 4, data[0] & 8};
    stored = removed = 0;
    view(payload);
    require(kvr_kv_translator_create(&translator, &options, &memory, &sink, NULL) == KVR_OK);
    for (int i = 0; i < 2; i++) {
        if (kvr_kv_batch_read(payload, &memory.decoder, &batch, NULL) != KVR_OK)
            break;
        kvr_kv_translate(translator, &batch, NULL);
        require(memory.used <= memory.limit);
    }
    kvr_kv_translator_clear(translator, "fuzz");
    require(!options.shared || stored == removed); /* all that was told is taken back */
    require(memory.used == 0);
    kvr_kv_memory_release(&memory);
    kvr_kv_translator_destroy(translator);
    return 0;
}
