/*
 * One line of the stream, parsed in place, and its way out: the same bytes with members of our own
 * spliced in at the end. A line is parsed once and copied once.
 */
#ifndef KVR_LINE_LINE_H
#define KVR_LINE_LINE_H

#include "line/json.h"
#include "line/names.h"
#include "line/source.h"
#include "line/writer.h"

/* Reused from line to line; holds everything that parsing needs. */
struct kvr_line {
    struct kvr_source_line source;  /* text, file, number */
    struct kvr_value object;        /* the line's object, without whitespace round it */
    struct kvr_members members;     /* all its members, in order */
    unsigned slots[KVR_NAME_COUNT]; /* 1 + index of the last member of that name; 0: none */
    unsigned char lookup[256];      /* name hash -> 1 + enum kvr_name */
    struct kvr_structure *structure;
};

enum kvr_status kvr_line_init(struct kvr_line *line, struct kvr_error *error);
void kvr_line_release(struct kvr_line *line);

/* Parses text, which must outlive the line's use; source is copied for messages. KVR_BAD_INPUT when
 * it is not one JSON object. */
enum kvr_status kvr_line_parse(
    struct kvr_line *line, const struct kvr_source_line *source, struct kvr_error *error);

/* The value of a member, type KVR_ABSENT when the line has none. */
static inline struct kvr_value kvr_line_get(const struct kvr_line *line, enum kvr_name name)
{
    unsigned slot = line->slots[name];
    struct kvr_value absent = {NULL, 0, KVR_ABSENT};

    return slot ? line->members.items[slot - 1].value : absent;
}

/* KVR_BAD_INPUT, with the words that every tool has for it: member 'timestamp' is not a number. */
enum kvr_status kvr_line_wrong_type(const char *member, const char *kind, struct kvr_error *error);

/* The same for a name that is not in line/names.h; walks the members. */
struct kvr_value kvr_line_find(const struct kvr_line *line, const char *name);

static inline bool kvr_line_is_event(const struct kvr_line *line)
{
    return line->slots[KVR_NAME_EVENT] != 0;
}

/*
 * Passing a line on with changes:
 *
 *     kvr_line_begin(line, out, dropped, dropped_count);   the object up to its brace
 *     kvr_line_add(out, "match");                          ,"match":
 *     kvr_buffer_append_text(out, "{}");                   any JSON text
 *     kvr_line_end(out);                                   }
 *
 * `dropped` are the names that will be added: members of these names that the line already has are
 * left out, all others stay byte for byte. out is usually &writer->buffer, then
 * kvr_writer_line_done().
 */
void kvr_line_begin(const struct kvr_line *line, struct kvr_buffer *out,
    const enum kvr_name *dropped, size_t dropped_count);
void kvr_line_add(struct kvr_buffer *out, const char *name);
void kvr_line_end(struct kvr_buffer *out);

/* The line as it came. */
static inline void kvr_line_pass(const struct kvr_line *line, struct kvr_writer *writer)
{
    kvr_buffer_append(&writer->buffer, line->object.text, line->object.length);
    kvr_writer_line_done(writer);
}

#endif
