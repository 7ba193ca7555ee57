#include "line/line.h"

#include <stdlib.h>

static const char *const name_texts[KVR_NAME_COUNT] = {
#define NAME_TEXT(name, text) [KVR_NAME_##name] = text,
    KVR_NAMES(NAME_TEXT)
#undef NAME_TEXT
};

static const unsigned char name_lengths[KVR_NAME_COUNT] = {
#define NAME_LENGTH(name, text) [KVR_NAME_##name] = sizeof text - 1,
    KVR_NAMES(NAME_LENGTH)
#undef NAME_LENGTH
};

const char *kvr_name_text(enum kvr_name name)
{
    return name_texts[name];
}

/* Names spread well over 256 places by their length and two of their letters. */
static inline unsigned name_place(const char *text, size_t length)
{
    unsigned first = (unsigned char)text[0], last = (unsigned char)text[length - 1];

    return (first * 7 + last * 31 + (unsigned)length * 17) & 255;
}

static void fill_lookup(struct kvr_line *line)
{
    for (unsigned i = 0; i < KVR_NAME_COUNT; i++) {
        unsigned place = name_place(name_texts[i], name_lengths[i]);
        while (line->lookup[place])
            place = (place + 1) & 255;
        line->lookup[place] = (unsigned char)(i + 1);
    }
}

/* Returns KVR_NAME_COUNT for a name that no tool looks at. */
static enum kvr_name find_name(const struct kvr_line *line, const char *text, size_t length)
{
    if (length == 0)
        return KVR_NAME_COUNT;
    for (unsigned place = name_place(text, length); line->lookup[place];
         place = (place + 1) & 255) {
        unsigned name = line->lookup[place] - 1;
        if (name_lengths[name] == length && memcmp(name_texts[name], text, length) == 0)
            return (enum kvr_name)name;
    }
    return KVR_NAME_COUNT;
}

/* A name written with escapes is still that name. */
static enum kvr_name find_escaped_name(struct kvr_value name)
{
    for (unsigned i = 0; i < KVR_NAME_COUNT; i++) {
        if (kvr_value_is(name, name_texts[i]))
            return (enum kvr_name)i;
    }
    return KVR_NAME_COUNT;
}

enum kvr_status kvr_line_init(struct kvr_line *line, struct kvr_error *error)
{
    memset(line, 0, sizeof *line);
    fill_lookup(line);
    line->structure = kvr_structure_create();
    return line->structure ? KVR_OK : kvr_error_memory(error);
}

void kvr_line_release(struct kvr_line *line)
{
    kvr_structure_destroy(line->structure);
    kvr_members_release(&line->members);
    memset(line, 0, sizeof *line);
}

enum kvr_status kvr_line_wrong_type(const char *member, const char *kind, struct kvr_error *error)
{
    return kvr_error_set(error, KVR_BAD_INPUT, "member '%s' is not %s", member, kind);
}

enum kvr_status kvr_line_parse(
    struct kvr_line *line, const struct kvr_source_line *source, struct kvr_error *error)
{
    line->source = *source;
    memset(line->slots, 0, sizeof line->slots);
    enum kvr_status status = kvr_json_check(
        line->structure, source->text, source->length, &line->object, &line->members, error);
    if (status != KVR_OK)
        return status;
    if (line->object.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "not a JSON object");
    for (size_t i = 0; i < line->members.count; i++) {
        struct kvr_value name = line->members.items[i].name;
        enum kvr_name number = find_name(line, name.text + 1, name.length - 2);
        if (number == KVR_NAME_COUNT && memchr(name.text, '\\', name.length))
            number = find_escaped_name(name);
        if (number != KVR_NAME_COUNT)
            line->slots[number] = (unsigned)i + 1;
    }
    return KVR_OK;
}

struct kvr_value kvr_line_find(const struct kvr_line *line, const char *name)
{
    for (size_t i = line->members.count; i-- > 0;) {
        if (kvr_value_is(line->members.items[i].name, name))
            return line->members.items[i].value;
    }
    return (struct kvr_value){NULL, 0, KVR_ABSENT};
}

static bool is_dropped(
    const struct kvr_member *member, const enum kvr_name *dropped, size_t dropped_count)
{
    for (size_t i = 0; i < dropped_count; i++) {
        if (kvr_value_is(member->name, name_texts[dropped[i]]))
            return true;
    }
    return false;
}

void kvr_line_begin(const struct kvr_line *line, struct kvr_buffer *out,
    const enum kvr_name *dropped, size_t dropped_count)
{
    const struct kvr_members *members = &line->members;
    const char *end = line->object.text + 1; /* of what is copied: after the last member's value */
    bool changed = false;

    for (size_t i = 0; i < dropped_count; i++)
        changed |= line->slots[dropped[i]] != 0;
    if (!changed) {
        if (members->count)
            end = members->items[members->count - 1].value.text +
                  members->items[members->count - 1].value.length;
        kvr_buffer_append(out, line->object.text, (size_t)(end - line->object.text));
        return;
    }
    kvr_buffer_append_byte(out, '{');
    for (size_t i = 0, kept = 0; i < members->count; i++) {
        const struct kvr_member *member = &members->items[i];
        if (is_dropped(member, dropped, dropped_count))
            continue;
        if (kept++)
            kvr_buffer_append_byte(out, ',');
        end = member->value.text + member->value.length;
        kvr_buffer_append(out, member->name.text, (size_t)(end - member->name.text));
    }
}

void kvr_line_add(struct kvr_buffer *out, const char *name)
{
    /* No value ends in an opening brace, so this one is the line's own: nothing stands before. */
    if (out->length && out->data[out->length - 1] != '{')
        kvr_buffer_append_byte(out, ',');
    kvr_buffer_append_byte(out, '"');
    kvr_buffer_append_text(out, name);
    kvr_buffer_append_text(out, "\":");
}

void kvr_line_end(struct kvr_buffer *out)
{
    kvr_buffer_append_byte(out, '}');
}
