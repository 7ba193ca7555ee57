/*
 * Parameters of things chosen by name: an engine, a policy. The thing declares a table; text such
 * as "strategy=lfu,host-ratio=2" is read against it; help, manual page and completions print it.
 *
 * A value is read once into struct kvr_parameter_value; code asks by the index of its own table, so
 * no name is looked up where time matters.
 */
#ifndef KVR_BASE_PARAMETER_H
#define KVR_BASE_PARAMETER_H

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvr_parameter_kind {
    KVR_PARAMETER_INTEGER,  /* digits, with an optional k, M, G (powers of 1000) */
    KVR_PARAMETER_NUMBER,   /* a finite decimal number; "30%" reads as 0.3 */
    KVR_PARAMETER_DURATION, /* ms unless it has a unit: us, ms, s, m, h, d */
    KVR_PARAMETER_FLAG,     /* on or off; the bare name means on */
    KVR_PARAMETER_CHOICE,   /* one of the words of `choices` */
};

struct kvr_parameter {
    const char *name;
    enum kvr_parameter_kind kind;
    const char *initial; /* its default, written as a user would */
    const char *choices; /* CHOICE: the words, separated by spaces; else NULL */
    double least, most;  /* INTEGER, NUMBER, DURATION: the range allowed, both ends included */
    const char *help;    /* half a line for people, lower case, no full stop */
};

struct kvr_parameter_value {
    int64_t integer; /* INTEGER; FLAG: 0 or 1; CHOICE: the index of the word */
    double number;   /* INTEGER, NUMBER; DURATION: ms */
};

/* Fills values[0 … count-1] with the defaults of the table. A default that cannot be read is a
 * fault of the table and comes back as KVR_BAD_USAGE. */
enum kvr_status kvr_parameter_defaults(const struct kvr_parameter *table, size_t count,
    struct kvr_parameter_value *values, struct kvr_error *error);

/* Reads "name=value,name=value" (length bytes, may be empty) over the values already there.
 * KVR_BAD_USAGE names the parameter, what is wrong, and what would be right. */
enum kvr_status kvr_parameter_read(const struct kvr_parameter *table, size_t count,
    const char *text, size_t length, struct kvr_parameter_value *values, struct kvr_error *error);

/* Appends one line a parameter, "  name=DEFAULT  help (choices)", for --help. */
void kvr_parameter_describe(
    const struct kvr_parameter *table, size_t count, struct kvr_buffer *out);

#endif
