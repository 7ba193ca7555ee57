/*
 * The frame that every kvr program shares, so that the rules of kvr-stream(7) are said once:
 * options, help, inputs, bad lines, output, signals, exit status.
 *
 *     int main(int argc, char **argv)
 *     {
 *         static struct settings settings;
 *         struct tool tool;
 *         const struct kvr_option_group groups[] = {{"Cache", options, &settings}, {0}};
 *         int status = tool_begin(&tool, &program, groups, argc, argv);
 *         if (status >= 0)
 *             return status;
 *         while (tool_next(&tool) == TOOL_LINE) {
 *             if (kvr_line_is_event(&tool.line))
 *                 kvr_line_pass(&tool.line, &tool.out);
 *             ...
 *         }
 *         return tool_end(&tool);
 *     }
 *
 * Exit status: 0; 1 a bad line was met; 2 bad options; 3 unreadable input or unwritable output;
 * 4 not to be had here; 128 + n ended by signal n after what was whole has been written.
 */
#ifndef KVR_CMD_TOOL_H
#define KVR_CMD_TOOL_H

#include "base/options.h"
#include "line/intake.h"

/* Rows that several programs have, with one letter and one meaning; settings is the program's own
 * struct type, with uint64_t block_size, struct kvr_capacity capacity, const char *workers. */
#define TOOL_OPTION_BLOCK_SIZE(settings, initial)                                                  \
    {                                                                                              \
        'b', "block-size", KVR_OPTION_COUNT, offsetof(settings, block_size), "TOKENS",             \
            "tokens in a block, for lines without block_size", initial, NULL                       \
    }
#define TOOL_OPTION_CAPACITY(settings, help, initial)                                              \
    {                                                                                              \
        'c', "capacity", KVR_OPTION_CAPACITY, offsetof(settings, capacity), "CAPACITY", help,      \
            initial, NULL                                                                          \
    }
#define TOOL_OPTION_WORKERS(settings)                                                              \
    {                                                                                              \
        'w', "workers", KVR_OPTION_TEXT, offsetof(settings, workers), "WORKERS",                   \
            "the workers: a number, names separated by commas, or a file of worker lines", NULL,   \
            "<file>"                                                                               \
    }

struct tool_settings {
    struct kvr_text_list merge;
    const char *output;
    const char *from, *map, *where, *time_unit;
    uint64_t line_limit_bytes;
    bool strict, keep_bad, quiet, verbose, progress;
};

enum tool_result {
    TOOL_LINE,   /* tool->line is the next line */
    TOOL_SIGNAL, /* a signal that the program asked for has come: see tool_signalled() */
    TOOL_END,
};

struct tool {
    const struct kvr_program *program;
    struct tool_settings settings;
    const char **operands; /* what stood on the command line besides options */
    size_t operand_count;
    struct kvr_source *source;
    struct kvr_intake *intake;
    struct kvr_line line;
    struct kvr_writer out;
    uint64_t lines; /* that were read, bad ones included */
    uint64_t bad_lines;
    size_t unopened;    /* inputs that could not be opened */
    int status;         /* exit status so far */
    bool waiting;       /* in before_wait() */
    bool stop_asked;    /* and it has asked to stop */
    bool show_progress; /* and when and how far it was shown last */
    double progress_ms, started_ms;
    void (*before_wait)(struct tool *tool); /* may be set: called before a read that may wait, to
                                               put what is still under way into tool->out */
    void (*settle)(struct tool *tool);      /* may be set, by a program that reads ahead: called
                                               before anything is said of a bad line or input, to
                                               deal with all lines that came before it */
    void *context;                          /* for both */
};

/*
 * Reads the options (the program's groups, then the common ones) and opens input and output.
 * Returns -1 to go on, else the exit status: help was printed or something is wrong and was said.
 * The operands are the input files. A program whose operands are something else, or that reads no
 * lines, calls tool_begin_without_input() and uses tool->operands itself.
 */
int tool_begin(struct tool *tool, const struct kvr_program *program,
    const struct kvr_option_group *groups, int argc, char **argv);
int tool_begin_without_input(struct tool *tool, const struct kvr_program *program,
    const struct kvr_option_group *groups, int argc, char **argv);

/* Makes the operands input files after all, for a program that is told so by an option. Returns as
 * tool_begin() does. */
int tool_open_input(struct tool *tool);

/* The next line, parsed. Bad lines are reported, counted and dealt with in here. */
enum tool_result tool_next(struct tool *tool);

/* Whether there was nothing to read, as no input could be opened: then a report of the lines read
 * would be one of nothing, and what a user shall see is the error alone. Where other inputs could
 * be read, the report is of these. */
bool tool_opened_nothing(const struct tool *tool);

/* The line just read turns out to be bad (error->text says why): it is reported with its file and
 * number, counted, and dropped or passed on (--keep-bad). The program goes on with tool_next(). */
void tool_bad_line(struct tool *tool, const struct kvr_error *error);

/* The same for a line that was read some lines ago, for a program that reads ahead: source is what
 * tool->line.source was, lines what tool->lines was then. Nothing may be half built in tool->out.
 */
void tool_bad_earlier_line(struct tool *tool, const struct kvr_source_line *source, uint64_t lines,
    const struct kvr_error *error);

/* The same for a line that did not come from the inputs, as those of a loop: said, unless --quiet,
 * and told by the exit status, but neither counted nor passed on. */
void tool_bad_foreign_line(struct tool *tool, const struct kvr_error *error);

/* "kvr-x: text" on standard error; warnings are left out with -q, details come with -v only. */
void tool_warn(struct tool *tool, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tool_detail(struct tool *tool, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A failure that is no line's fault: says it and keeps the exit status, which is 3 for a file that
 * is damaged as for one that cannot be read. Returns that status, so that `return tool_fail(...)`
 * or `tool_fail(...); return tool_end(...)` both read well. */
int tool_fail(struct tool *tool, const struct kvr_error *error);

/* Asks for SIGHUP, SIGUSR1, ... as TOOL_SIGNAL results; asks once, and resets, whether one came. */
void tool_catch(int signal_number);
bool tool_signalled(int signal_number);

/* Work of seconds or minutes that nothing looks up from begins or ends: between the two SIGINT and
 * SIGTERM end the program where it stands. What is whole in tool->out is written before. */
void tool_long_work(struct tool *tool, bool begins);

/* Whether SIGINT or SIGTERM came: tool_next() gives TOOL_END then. */
bool tool_interrupted(void);

/* Ends early: the output is written, nothing more is read. */
void tool_stop(struct tool *tool);
bool tool_stopped(const struct tool *tool);

/* Writes and closes the output, says how many lines were bad, frees everything, returns the exit
 * status. */
int tool_end(struct tool *tool);

/* Only closes the output, so that the programs behind it can end while this one goes on. */
void tool_close_output(struct tool *tool);

#endif
