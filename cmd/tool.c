#include "cmd/tool.h"

#include "base/clock.h"
#include "line/format.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { PROGRESS_EVERY_MS = 500, PROGRESS_CHECK_LINES = 1024 };

/* Set by signal handlers: the one mutable state that a program cannot hand around. */
static volatile int interrupted; /* SIGINT or SIGTERM, its number */
static volatile double interrupted_ms;

enum { INSISTENCE_MS = 500 }; /* a second signal after so long ends the program as it is */

static volatile int woken; /* any signal that somebody waits for */
static volatile int caught[NSIG];

static const struct kvr_option common_options[] = {
    {'m', "merge-input", KVR_OPTION_LIST, offsetof(struct tool_settings, merge), "FILE",
        "merges the lines of a file, FIFO or socket as they arrive; may be given several times",
        NULL, "<file>"},
    {0, "from", KVR_OPTION_TEXT, offsetof(struct tool_settings, from), "FORMAT",
        "what the input is, turned into request lines first", "kvr", KVR_FORMAT_NAMES},
    {0, "map", KVR_OPTION_TEXT, offsetof(struct tool_settings, map), "PROGRAM",
        "a jq program that turns each foreign record into request lines first", NULL, NULL},
    {0, "where", KVR_OPTION_TEXT, offsetof(struct tool_settings, where), "EXPRESSION",
        "keeps only request lines for which this jq expression is true; event lines stay", NULL,
        NULL},
    {0, "time-unit", KVR_OPTION_TEXT, offsetof(struct tool_settings, time_unit), "UNIT",
        "unit of the input's timestamps, which become milliseconds", "ms", "ms|s|us"},
    {'o', "output", KVR_OPTION_TEXT, offsetof(struct tool_settings, output), "FILE",
        "writes to a file instead of standard output (-)", NULL, "<file>"},
    {0, "strict", KVR_OPTION_FLAG, offsetof(struct tool_settings, strict), NULL,
        "stops at the first bad line", NULL, NULL},
    {0, "keep-bad", KVR_OPTION_FLAG, offsetof(struct tool_settings, keep_bad), NULL,
        "passes bad lines on as they are instead of dropping them", NULL, NULL},
    {0, "max-line", KVR_OPTION_SIZE, offsetof(struct tool_settings, line_limit_bytes), "SIZE",
        "a longer line is a bad line", "64MiB", NULL},
    {'p', "progress", KVR_OPTION_FLAG, offsetof(struct tool_settings, progress), NULL,
        "shows progress on standard error; on by itself when that is a terminal and the input is "
        "files",
        NULL, NULL},
    {'q', "quiet", KVR_OPTION_FLAG, offsetof(struct tool_settings, quiet), NULL,
        "no warnings, no progress, no messages about bad lines, which are still counted", NULL,
        NULL},
    {'v', "verbose", KVR_OPTION_FLAG, offsetof(struct tool_settings, verbose), NULL,
        "says more on standard error", NULL, NULL},
    {0},
};

static void say(const struct tool *tool, const char *format, va_list arguments)
{
    char text[1024], safe[2048];

    vsnprintf(text, sizeof text, format, arguments);
    kvr_printable(safe, sizeof safe, text, strlen(text));
    fprintf(stderr, "%s%s: %s\n", tool->show_progress && tool->progress_ms > 0 ? "\r\033[K" : "",
        tool->program->name, safe);
}

void tool_warn(struct tool *tool, const char *format, ...)
{
    va_list arguments;

    if (tool->settings.quiet)
        return;
    va_start(arguments, format);
    say(tool, format, arguments);
    va_end(arguments);
}

void tool_detail(struct tool *tool, const char *format, ...)
{
    va_list arguments;

    if (!tool->settings.verbose)
        return;
    va_start(arguments, format);
    say(tool, format, arguments);
    va_end(arguments);
}

/* Worse wins: what could not be read or written matters more than a bad line. */
static void keep_status(struct tool *tool, int status)
{
    if (status > tool->status)
        tool->status = status;
}

static void say_error(struct tool *tool, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(tool, format, arguments);
    va_end(arguments);
}

/* What is wrong with the data of a file that the program needs is no bad line of its input: nothing
 * was read that could be counted. */
int tool_fail(struct tool *tool, const struct kvr_error *error)
{
    enum kvr_status status = error->status == KVR_BAD_INPUT ? KVR_IO : error->status;

    say_error(tool, "%s", error->text);
    keep_status(tool, kvr_status_exit(status));
    return tool->status;
}

static void on_interrupt(int number)
{
    /* A signal that comes just before a read would not end it: ring again until it does. */
    static const struct itimerval again = {{0, 100000}, {0, 100000}};

    double now_ms = kvr_clock_ms();

    /* Asked again: what keeps the program may be an output that nobody reads. Not at once, as
     * timeout(1) sends its signal to the process and to the group that it is in. */
    if (interrupted && now_ms - interrupted_ms >= INSISTENCE_MS) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    if (!interrupted)
        interrupted_ms = now_ms;
    interrupted = number;
    woken = 1;
    setitimer(ITIMER_REAL, &again, NULL);
}

static void on_caught(int number)
{
    caught[number] = 1;
    woken = 1;
}

static void on_alarm(int number)
{
    (void)number;
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler}; /* no SA_RESTART: reads shall be woken */

    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void tool_catch(int signal_number)
{
    handle(signal_number, on_caught);
}

bool tool_signalled(int signal_number)
{
    bool came = caught[signal_number];

    caught[signal_number] = 0;
    return came;
}

void tool_long_work(struct tool *tool, bool begins)
{
    if (begins)
        kvr_writer_flush(&tool->out);
    handle(SIGINT, begins ? SIG_DFL : on_interrupt);
    handle(SIGTERM, begins ? SIG_DFL : on_interrupt);
}

bool tool_interrupted(void)
{
    return interrupted != 0;
}

static void flush_before_wait(void *context)
{
    struct tool *tool = context;

    tool->waiting = true;
    if (tool->before_wait)
        tool->before_wait(tool);
    tool->waiting = false;
    kvr_writer_flush(&tool->out);
}

/* Help and the like go to standard output, whose failure counts as any other. */
static int print_wish(
    struct tool *tool, const struct kvr_option_group *groups, enum kvr_options_wish wish)
{
    struct kvr_error error = {0};

    kvr_options_text(tool->program, groups, wish, &tool->out.buffer);
    tool->out.whole = tool->out.buffer.length;
    if (kvr_writer_close(&tool->out, &error) != KVR_OK)
        return tool_fail(tool, &error);
    return 0;
}

enum { GROUP_LIMIT = 24 };

/* Descriptors 0 to 2 that are closed would be taken by the next file opened, which then would get
 * what was meant for standard output or error. A standard input that is closed is no empty one: to
 * read it is an error. */
static void keep_standard_descriptors(void)
{
    int descriptor;

    if (fcntl(STDIN_FILENO, F_GETFD) < 0)
        (void)!open("/dev/null", O_WRONLY);
    while ((descriptor = open("/dev/null", O_RDWR)) >= 0 && descriptor <= STDERR_FILENO)
        ;
    if (descriptor > STDERR_FILENO)
        close(descriptor);
}

static bool is_same_file(const struct stat *output, const char *input)
{
    struct stat status;
    int found = strcmp(input, "-") == 0 ? fstat(STDIN_FILENO, &status) : stat(input, &status);

    return found == 0 && status.st_dev == output->st_dev && status.st_ino == output->st_ino;
}

/* Opens -o, emptied only when it is known to be no input: what is not read yet would be lost. */
static enum kvr_status open_output(struct tool *tool, struct kvr_error *error)
{
    const struct tool_settings *settings = &tool->settings;
    const char *name = settings->output;
    struct stat output;
    bool same;

    tool->out.descriptor = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (tool->out.descriptor < 0 || fstat(tool->out.descriptor, &output) != 0)
        return kvr_error_errno(error, KVR_IO, "cannot write %s", name);
    if (!S_ISREG(output.st_mode))
        return KVR_OK;
    same = tool->operand_count == 0 && is_same_file(&output, "-");
    for (size_t i = 0; i < tool->operand_count; i++)
        same |= is_same_file(&output, tool->operands[i]);
    for (size_t i = 0; i < settings->merge.count; i++)
        same |= is_same_file(&output, settings->merge.items[i]);
    if (same)
        return kvr_error_set(error, KVR_BAD_USAGE, "%s is input and output at once", name);
    if (ftruncate(tool->out.descriptor, 0) != 0)
        return kvr_error_errno(error, KVR_IO, "cannot write %s", name);
    return KVR_OK;
}

int tool_begin_without_input(struct tool *tool, const struct kvr_program *program,
    const struct kvr_option_group *groups, int argc, char **argv)
{
    struct kvr_option_group all[GROUP_LIMIT];
    enum kvr_options_wish wish;
    struct kvr_error error = {0};
    size_t count = 0;

    memset(tool, 0, sizeof *tool);
    tool->program = program;
    bool output_closed = fcntl(STDOUT_FILENO, F_GETFD) < 0;
    keep_standard_descriptors();
    kvr_writer_init(&tool->out, STDOUT_FILENO);
    while (groups[count].title && count < GROUP_LIMIT - 2) {
        all[count] = groups[count];
        count++;
    }
    all[count++] = (struct kvr_option_group){"Input and output", common_options, &tool->settings};
    all[count] = (struct kvr_option_group){0};
    tool->operands = calloc((size_t)argc + 1, sizeof *tool->operands);
    if (!tool->operands) {
        kvr_error_memory(&error);
        return tool_fail(tool, &error);
    }
    enum kvr_status status =
        kvr_options_parse(all, argc, argv, tool->operands, &tool->operand_count, &wish, &error);
    if (status != KVR_OK) {
        say_error(tool, "%s; '%s -h' lists the options", error.text, program->name);
        free(tool->operands);
        return kvr_status_exit(status);
    }
    if (wish != KVR_WISH_WORK) {
        free(tool->operands);
        return print_wish(tool, all, wish);
    }
    handle(SIGPIPE, SIG_IGN);
    handle(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of its write */
    handle(SIGINT, on_interrupt);
    handle(SIGTERM, on_interrupt);
    handle(SIGALRM, on_alarm);
    if (tool->settings.output && strcmp(tool->settings.output, "-") == 0)
        tool->settings.output = NULL;
    if (tool->settings.output) {
        if (open_output(tool, &error) != KVR_OK) {
            free(tool->operands);
            return tool_fail(tool, &error);
        }
    } else if (output_closed) {
        kvr_error_set(&error, KVR_IO, "standard output is closed");
        free(tool->operands);
        return tool_fail(tool, &error);
    }
    tool->started_ms = kvr_clock_ms();
    return -1;
}

int tool_begin(struct tool *tool, const struct kvr_program *program,
    const struct kvr_option_group *groups, int argc, char **argv)
{
    int begun = tool_begin_without_input(tool, program, groups, argc, argv);

    return begun >= 0 ? begun : tool_open_input(tool);
}

int tool_open_input(struct tool *tool)
{
    struct kvr_error error = {0};
    const struct tool_settings *settings = &tool->settings;
    struct kvr_source_options source = {
        .files = tool->operands,
        .file_count = tool->operand_count,
        .merged = settings->merge.items,
        .merged_count = settings->merge.count,
        .line_limit_bytes = settings->line_limit_bytes,
        .before_wait = flush_before_wait,
        .context = tool,
    };
    struct kvr_intake_options intake = {
        settings->from, settings->map, settings->where, settings->time_unit};
    uint64_t read, total = 0;

    enum kvr_status status = kvr_source_create(&tool->source, &source, &error);
    if (status == KVR_OK) {
        kvr_source_stop_when(tool->source, &woken);
        kvr_source_progress(tool->source, &read, &total);
        status = kvr_intake_create(&tool->intake, &intake, &error);
    }
    if (status == KVR_OK)
        status = kvr_line_init(&tool->line, &error);
    tool->show_progress =
        !settings->quiet && (settings->progress || (total && isatty(STDERR_FILENO)));
    if (status != KVR_OK) {
        tool_fail(tool, &error);
        return tool_end(tool);
    }
    return -1;
}

static void show_progress(struct tool *tool, bool last)
{
    double now_ms = kvr_clock_ms();
    uint64_t read, total;

    if (!last && now_ms - tool->progress_ms < PROGRESS_EVERY_MS)
        return;
    double seconds = (now_ms - tool->started_ms) / 1e3 + 1e-9;
    kvr_source_progress(tool->source, &read, &total);
    tool->progress_ms = now_ms;
    fprintf(stderr, "\r\033[K%s: %" PRIu64 " lines, %.0f lines/s, %.1f MB/s", tool->program->name,
        tool->lines, (double)tool->lines / seconds, (double)read / 1e6 / seconds);
    if (total && read && !last)
        fprintf(stderr, ", %.0f %%, %.0f s left", 100.0 * (double)read / (double)total,
            seconds * (double)(total - read) / (double)read);
    if (last)
        fputc('\n', stderr);
    fflush(stderr);
}

static void count_bad_line(
    struct tool *tool, const struct kvr_source_line *source, const struct kvr_error *error)
{
    tool->bad_lines++;
    keep_status(tool, kvr_status_exit(KVR_BAD_INPUT));
    if (error->status >= KVR_IO) /* the line's fault or not: something that it needs is not there */
        keep_status(tool, kvr_status_exit(error->status));
    if (!tool->settings.quiet)
        say_error(tool, "%s:%" PRIu64 ": %s", source->file, source->number, error->text);
    if (tool->settings.keep_bad && source->text) {
        kvr_buffer_append(&tool->out.buffer, source->text, source->length);
        kvr_writer_line_done(&tool->out);
    }
    if (tool->settings.strict)
        tool_stop(tool);
}

void tool_bad_foreign_line(struct tool *tool, const struct kvr_error *error)
{
    keep_status(tool, kvr_status_exit(KVR_BAD_INPUT));
    if (!tool->settings.quiet)
        say_error(tool, "%s", error->text);
}

void tool_bad_line(struct tool *tool, const struct kvr_error *error)
{
    tool->out.buffer.length = tool->out.whole; /* what was already built of the line */
    count_bad_line(tool, &tool->line.source, error);
}

void tool_bad_earlier_line(struct tool *tool, const struct kvr_source_line *source, uint64_t lines,
    const struct kvr_error *error)
{
    count_bad_line(tool, source, error);
    if (tool->settings.strict)
        tool->lines = lines;
}

/* What was read before comes out first. False when that has ended the program's reading. */
static bool settle(struct tool *tool)
{
    if (tool->settle)
        tool->settle(tool);
    return !tool_stopped(tool);
}

enum tool_result tool_next(struct tool *tool)
{
    struct kvr_error error = {0};

    if (tool->show_progress && tool->lines % PROGRESS_CHECK_LINES == 0)
        show_progress(tool, false);
    for (;;) {
        if (!tool->source || tool->out.closed || tool->out.error.status != KVR_OK)
            return TOOL_END;
        enum kvr_status status = kvr_intake_next(tool->intake, tool->source, &tool->line, &error);
        switch (status) {
        case KVR_OK:
            tool->lines++;
            return TOOL_LINE;
        case KVR_END:
            if (tool->stop_asked)
                tool_stop(tool);
            if (interrupted || !woken || !tool->source)
                return TOOL_END;
            woken = 0;
            return TOOL_SIGNAL;
        case KVR_BAD_INPUT:
            if (!settle(tool))
                return TOOL_END;
            tool->lines++;
            count_bad_line(tool, &tool->line.source, &error);
            break;
        default: {
            const struct kvr_source_line *source = &tool->line.source;
            if (!settle(tool))
                return TOOL_END;
            if (source->file)
                kvr_error_prefix(&error, "%s:%" PRIu64, source->file, source->number);
            else
                tool->unopened += status == KVR_IO;
            tool_fail(tool, &error);
            if (status == KVR_NO_MEMORY)
                return TOOL_END;
            break;
        }
        }
    }
}

bool tool_opened_nothing(const struct tool *tool)
{
    return tool->unopened && tool->source && !kvr_source_opened(tool->source);
}

bool tool_stopped(const struct tool *tool)
{
    return !tool->source || tool->stop_asked;
}

void tool_stop(struct tool *tool)
{
    if (tool->waiting) { /* the source is at work: it ends when it comes back */
        tool->stop_asked = true;
        woken = 1;
        return;
    }
    kvr_source_destroy(tool->source);
    tool->source = NULL;
}

void tool_close_output(struct tool *tool)
{
    struct kvr_error error = {0};

    if (tool->out.descriptor >= 0 && kvr_writer_close(&tool->out, &error) != KVR_OK)
        tool_fail(tool, &error);
}

int tool_end(struct tool *tool)
{
    tool_close_output(tool);
    if (tool->show_progress && tool->source)
        show_progress(tool, true);
    if (tool->bad_lines && !tool->settings.quiet)
        say_error(tool, "%" PRIu64 " of %" PRIu64 " lines were bad", tool->bad_lines, tool->lines);
    tool_stop(tool);
    kvr_intake_destroy(tool->intake);
    if (tool->line.structure)
        kvr_line_release(&tool->line);
    free(tool->operands);
    return interrupted ? 128 + interrupted : tool->status;
}
