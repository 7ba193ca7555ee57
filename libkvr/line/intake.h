/*
 * From a source to parsed stream lines: foreign formats (--from, --map), time units (--time-unit)
 * and the filter (--where), in one place for every tool. Lines of merged inputs are the stream's
 * own already and only parsed. --where looks at request lines; event lines always stay.
 */
#ifndef KVR_LINE_INTAKE_H
#define KVR_LINE_INTAKE_H

#include "line/line.h"

struct kvr_intake;

struct kvr_intake_options {
    const char *from;      /* NULL: kvr */
    const char *map;       /* a jq program, or NULL */
    const char *where;     /* a jq expression, or NULL */
    const char *time_unit; /* "ms", "s", "us"; NULL: ms */
};

enum kvr_status kvr_intake_create(
    struct kvr_intake **intake, const struct kvr_intake_options *options, struct kvr_error *error);
void kvr_intake_destroy(struct kvr_intake *intake);

/*
 * The next line that passes, parsed into *line (initialised by the caller). Statuses as of
 * kvr_source_next(); after KVR_BAD_INPUT line->source says which line, its text where there is one.
 */
enum kvr_status kvr_intake_next(struct kvr_intake *intake, struct kvr_source *source,
    struct kvr_line *line, struct kvr_error *error);

#endif
