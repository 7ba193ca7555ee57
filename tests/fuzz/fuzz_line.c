/*
 * Any bytes as a stream: the reader, the parser, the splicer. The first byte chooses gzip or plain
 * and a small line limit, so that long lines are met too. What parses must parse again after a
 * splice, with the same members.
 */
#include "line/expression.h"
#include "line/intake.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool law)
{
    if (!law)
        abort();
}

static void check_splice(const struct kvr_line *line)
{
    static const enum kvr_name dropped[] = {KVR_NAME_MATCH, KVR_NAME_ROUTE};
    struct kvr_buffer out = {0};
    struct kvr_line again;
    struct kvr_error error;

    require(kvr_line_init(&again, &error) == KVR_OK);
    kvr_line_begin(line, &out, dropped, 2);
    kvr_line_add(&out, "match");
    kvr_json_write_string(&out, line->source.text, line->source.length);
    kvr_line_end(&out);
    struct kvr_source_line source = {.text = out.data, .length = out.length};
    require(kvr_line_parse(&again, &source, &error) == KVR_OK);
    struct kvr_value match = kvr_line_get(&again, KVR_NAME_MATCH);
    struct kvr_buffer text = {0};
    require(kvr_value_string(match, &text) && text.length == line->source.length);
    require(memcmp(text.data, line->source.text, text.length) == 0);
    size_t kept = 0;
    for (size_t i = 0; i < line->members.count; i++)
        kept += !kvr_value_is(line->members.items[i].name, "match") &&
                !kvr_value_is(line->members.items[i].name, "route");
    require(again.members.count == kept + 1);
    kvr_buffer_release(&text);
    kvr_buffer_release(&out);
    kvr_line_release(&again);
}

static void look_around(const struct kvr_line *line)
{
    for (unsigned i = 0; i < KVR_NAME_COUNT; i++) {
        struct kvr_value value = kvr_line_get(line, (enum kvr_name)i);
        struct kvr_cursor cursor = kvr_value_open(value);
        struct kvr_member member;
        uint64_t number;
        int64_t signed_number;
        double real;
        kvr_value_u64(value, &number);
        kvr_value_i64(value, &signed_number);
        kvr_value_double(value, &real);
        if (value.type == KVR_OBJECT) {
            while (kvr_next_member(&cursor, &member))
                require(member.value.type != KVR_ABSENT);
        } else if (value.type == KVR_ARRAY) {
            uint64_t *numbers = malloc(kvr_value_u64s_room(value) * sizeof *numbers);
            ptrdiff_t count = kvr_value_u64s(value, numbers);
            require(count < (ptrdiff_t)kvr_value_u64s_room(value));
            free(numbers);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"kvr", "bailian", "azure", "ragpulse", "agent", "aiperf",
        "vllm-bench", "sglang", "litellm", "nginx"};
    char path[64];
    const char *name = path;
    struct kvr_source_options options = {.files = &name, .file_count = 1};
    struct kvr_intake_options intake_options = {0};
    struct kvr_source *source;
    struct kvr_intake *intake;
    struct kvr_line line;
    struct kvr_error error;
    enum kvr_status status;

    if (size < 1)
        return 0;
    options.line_limit_bytes = data[0] & 1 ? 16 : 0;
    intake_options.from = formats[(data[0] >> 1 & 7) + (data[0] & 32 ? 2 : 0)];
    intake_options.time_unit = data[0] & 16 ? "s" : "ms";
    int descriptor = memfd_create("fuzz", 0);
    if (descriptor < 0 || write(descriptor, data + 1, size - 1) != (ssize_t)(size - 1))
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    require(kvr_source_create(&source, &options, &error) == KVR_OK);
    require(kvr_intake_create(&intake, &intake_options, &error) == KVR_OK);
    require(kvr_line_init(&line, &error) == KVR_OK);
    while ((status = kvr_intake_next(intake, source, &line, &error)) != KVR_END) {
        if (status == KVR_OK) {
            check_splice(&line);
            look_around(&line);
        }
    }
    kvr_line_release(&line);
    kvr_intake_destroy(intake);
    kvr_source_destroy(source);
    close(descriptor);
    return 0;
}
