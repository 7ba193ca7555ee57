/*
 * Command-line options as tables. One row of a table is the option's letter, name, kind, place,
 * default and sentence; parsing, -h, --help, the manual page and the shells' completions all come
 * from it, so that they cannot disagree. Defaults are written as text in the table and go through
 * the same reader as what a user types.
 */
#ifndef KVR_BASE_OPTIONS_H
#define KVR_BASE_OPTIONS_H

#include "base/buffer.h"
#include "base/quantity.h"

#include <stdbool.h>
#include <stddef.h>

enum kvr_option_kind {
    KVR_OPTION_FLAG,     /* bool; takes no argument */
    KVR_OPTION_TEXT,     /* const char * */
    KVR_OPTION_LIST,     /* struct kvr_text_list; may be given several times */
    KVR_OPTION_COUNT,    /* uint64_t */
    KVR_OPTION_REAL,     /* double */
    KVR_OPTION_TIME_MS,  /* double, milliseconds */
    KVR_OPTION_SIZE,     /* uint64_t, bytes */
    KVR_OPTION_CAPACITY, /* struct kvr_capacity */
};

#define KVR_LIST_LIMIT 256

struct kvr_text_list {
    size_t count;
    const char *items[KVR_LIST_LIMIT];
};

struct kvr_option {
    char letter;      /* 0: long name only */
    const char *name; /* without the dashes */
    enum kvr_option_kind kind;
    size_t at;            /* offsetof() in the group's settings */
    const char *argument; /* "TOKENS": what help calls the argument; NULL for a flag */
    const char *help;     /* one or more sentences, lower case, no full stop at the end */
    const char *initial;  /* default as a user would type it; NULL: zero */
    const char *values;   /* "a|b|c": the only values; "<file>", "<directory>", "<command>":
                             what completes; "a|b|*": completes a and b, takes anything */
};

/* The options of one heading. A list of groups ends with a group whose title is NULL. */
struct kvr_option_group {
    const char *title;
    const struct kvr_option *options; /* ends with a row whose name is NULL */
    void *settings;                   /* where the rows' offsets point into */
};

struct kvr_program {
    const char *name;        /* "kvr-match" */
    const char *summary;     /* one line, as in the NAME section of its manual page */
    const char *operands;    /* "[FILE...]" */
    const char *description; /* a paragraph or two for --help */
    const char *examples;    /* one a line; a line that starts with "# " is a remark */
};

/* What the command line asked for instead of work. */
enum kvr_options_wish {
    KVR_WISH_WORK,
    KVR_WISH_HELP_SHORT, /* -h */
    KVR_WISH_HELP,       /* --help */
    KVR_WISH_VERSION,    /* -V, --version */
    KVR_WISH_MANUAL,     /* --help=scdoc: the OPTIONS section of the manual page */
    KVR_WISH_BASH,       /* --help=bash, zsh, fish: a completion script */
    KVR_WISH_ZSH,
    KVR_WISH_FISH,
};

/*
 * Sets every default, then reads argv. Options and operands may be mixed; "--" ends the options.
 * operands receives those that are left (pointers into argv), *operand_count how many; it must have
 * room for argc pointers. Names may be cut while they stay unique. Fails with KVR_BAD_USAGE.
 */
enum kvr_status kvr_options_parse(const struct kvr_option_group *groups, int argc, char **argv,
    const char **operands, size_t *operand_count, enum kvr_options_wish *wish,
    struct kvr_error *error);

/* Writes the text of a wish other than KVR_WISH_WORK. */
void kvr_options_text(const struct kvr_program *program, const struct kvr_option_group *groups,
    enum kvr_options_wish wish, struct kvr_buffer *out);

#endif
