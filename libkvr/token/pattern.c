/*
 * Patterns are compiled by PCRE2, which says what is wrong with them, and run by the walker, which
 * no text makes slow (pattern_walk.h). The few that it has no program for are PCRE2's to run, with
 * a bound on what is looked at: a window of the text first, and more where a match reaches its end
 * (a partial match); all of these together may be so many times the text.
 */
#include "token/pattern.h"
#include "token/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define HEAP_LIMIT_KIB (512 * 1024)
#define MATCH_LIMIT 1000000 /* backtracking steps that a match may take */
#define WINDOW 256          /* bytes that PCRE2 sees first from where a search starts */
#define LOOKS 256           /* how often a text may be looked at again */

struct kvr_pattern {
    pcre2_code *code;
    pcre2_match_context *context;
    struct kvr_pattern_program *program; /* NULL: it has none */
    char shown[60];
};

/* Of PCRE2's reasons to refuse a pattern, those that are its own: Oniguruma may read it. */
static bool is_limit(int number)
{
    return number == PCRE2_ERROR_PATTERN_TOO_LARGE || number == PCRE2_ERROR_QUANTIFIER_TOO_BIG ||
           number == PCRE2_ERROR_PARENTHESES_NEST_TOO_DEEP ||
           number == PCRE2_ERROR_PATTERN_TOO_COMPLICATED ||
           number == PCRE2_ERROR_LOOKBEHIND_NOT_FIXED_LENGTH ||
           number == PCRE2_ERROR_LOOKBEHIND_TOO_COMPLICATED ||
           number == PCRE2_ERROR_LOOKBEHIND_TOO_LONG;
}

static enum kvr_status compile(
    struct kvr_pattern *p, const struct kvr_buffer *rewritten, struct kvr_error *error)
{
    const char *expression = rewritten->length ? rewritten->data : "";
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    PCRE2_UCHAR why[128];
    PCRE2_SIZE offset;
    int number = 0;

    p->context = pcre2_match_context_create(NULL);
    if (!context || !p->context) {
        pcre2_compile_context_free(context);
        return kvr_error_memory(error);
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_match_limit(p->context, MATCH_LIMIT);
    pcre2_set_heap_limit(p->context, HEAP_LIMIT_KIB);
    /* without what makes runs give nothing back: PCRE2 10.42 is wrong about some before X?+ */
    p->code = pcre2_compile((PCRE2_SPTR)expression, rewritten->length,
        PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_MULTILINE | PCRE2_NO_AUTO_POSSESS, &number,
        &offset, context);
    pcre2_compile_context_free(context);
    enum kvr_status status = KVR_UNSUPPORTED;
    /* repeated groups of large classes are soon too large for PCRE2, but well formed */
    if (p->code || number == PCRE2_ERROR_PATTERN_TOO_LARGE)
        status = kvr_pattern_program_create(&p->program, expression, rewritten->length, error);
    if (status != KVR_UNSUPPORTED)
        return status;
    if (!p->code) {
        pcre2_get_error_message(number, why, sizeof why);
        if (is_limit(number))
            return kvr_error_set(error, KVR_UNSUPPORTED,
                "the split pattern '%s' is not supported: %s", p->shown, (char *)why);
        return kvr_error_set(error, KVR_BAD_INPUT, "a split pattern: %s", (char *)why);
    }
    /* without a JIT for this machine, matching is slower and the same */
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    return KVR_OK;
}

enum kvr_status kvr_pattern_compile(
    struct kvr_pattern **pattern, const char *text, size_t length, struct kvr_error *error)
{
    struct kvr_buffer rewritten = {0};
    enum kvr_status status = kvr_pattern_rewrite(text, length, &rewritten, error);

    *pattern = status ? NULL : calloc(1, sizeof **pattern);
    if (*pattern) {
        kvr_printable((*pattern)->shown, sizeof(*pattern)->shown, text, length);
        status = compile(*pattern, &rewritten, error);
    } else if (!status) {
        status = kvr_error_memory(error);
    }
    if (status) {
        kvr_pattern_release(*pattern);
        *pattern = NULL;
    }
    kvr_buffer_release(&rewritten);
    return status;
}

void kvr_pattern_release(struct kvr_pattern *pattern)
{
    if (!pattern)
        return;
    kvr_pattern_program_destroy(pattern->program);
    pcre2_code_free(pattern->code);
    pcre2_match_context_free(pattern->context);
    free(pattern);
}

bool kvr_pattern_has_program(const struct kvr_pattern *pattern)
{
    return pattern->program != NULL;
}

const uint64_t *kvr_pattern_starts(const struct kvr_pattern *pattern)
{
    const struct kvr_pattern_program *program = pattern->program;

    return program && program->start != KVR_NO_MAP ? program->maps[program->start] : NULL;
}

void kvr_search_text(
    struct kvr_search *search, const struct kvr_pattern *pattern, const char *text, size_t length)
{
    search->pattern = pattern;
    search->text = text;
    search->length = length;
    search->looked = 0;
    if (pattern->program)
        kvr_walk_begin(&search->walk, pattern->program, (const uint8_t *)text, length);
}

void kvr_search_release(struct kvr_search *search)
{
    pcre2_match_data_free(search->match_data);
    kvr_walk_release(&search->walk);
    memset(search, 0, sizeof *search);
}

static enum kvr_status too_many_steps(const struct kvr_search *search, struct kvr_error *error)
{
    return kvr_error_set(error, KVR_BAD_INPUT,
        "the split pattern '%s' takes too many steps on this text", search->pattern->shown);
}

/* Where a window of so many bytes ends: before a character. */
static size_t window_end(const struct kvr_search *search, size_t from, size_t size)
{
    if (search->length - from <= size)
        return search->length;
    size_t end = from + size;
    while (end > from + 1 && (search->text[end] & 0xc0) == 0x80)
        end--;
    return end;
}

static int match(struct kvr_search *search, size_t from, size_t end)
{
    const struct kvr_pattern *pattern = search->pattern;
    PCRE2_SPTR text = (PCRE2_SPTR)search->text;
    uint32_t options = PCRE2_NO_UTF_CHECK | (end < search->length ? PCRE2_PARTIAL_HARD : 0);
    int result =
        pcre2_match(pattern->code, text, end, from, options, search->match_data, pattern->context);

    if (result == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter's stack is the heap */
        result = pcre2_match(pattern->code, text, end, from, options | PCRE2_NO_JIT,
            search->match_data, pattern->context);
    return result;
}

/* PCRE2's search; *found says whether it matched. */
static enum kvr_status find_by_pcre2(struct kvr_search *search, size_t from, bool *found,
    size_t *start, size_t *stop, struct kvr_error *error)
{
    size_t window = WINDOW;

    if (!search->match_data && !(search->match_data = pcre2_match_data_create(1, NULL)))
        return kvr_error_memory(error);
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(search->match_data);
    for (;;) {
        size_t end = window_end(search, from, window);
        int result = match(search, from, end);
        if (result == PCRE2_ERROR_NOMATCH && end == search->length)
            return KVR_OK;
        if (result == PCRE2_ERROR_NOMATCH ||
            (result >= 0 && range[0] == end && end < search->length)) {
            from = end;           /* an empty match there may be one because nothing more is seen */
        } else if (result >= 0) { /* 0: one with groups, for which there is no room and no need */
            *start = range[0];
            *stop = range[1];
            *found = true;
            return KVR_OK;
        } else {
            search->looked += end - from;
            if (result != PCRE2_ERROR_PARTIAL || search->looked / LOOKS > search->length + 65536)
                return too_many_steps(search, error);
            window *= 4;
        }
    }
}

/* One search; *found says whether it matched. */
static enum kvr_status find(struct kvr_search *search, size_t from, bool *found, size_t *start,
    size_t *stop, struct kvr_error *error)
{
    *found = false;
    if (search->length >= UINT32_MAX)
        return kvr_error_set(error, KVR_BAD_INPUT, "a text of 4 GiB or more");
    if (!search->pattern->program)
        return find_by_pcre2(search, from, found, start, stop, error);
    enum kvr_status status = kvr_walk_find(&search->walk, from, found, start, stop);
    return !status                   ? KVR_OK
           : status == KVR_BAD_INPUT ? too_many_steps(search, error)
                                     : kvr_error_memory(error);
}

enum kvr_status kvr_search_next(struct kvr_search *search, size_t from, size_t last_stop,
    bool *found, size_t *start, size_t *stop, struct kvr_error *error)
{
    const uint8_t *bytes = (const uint8_t *)search->text;
    unsigned size;

    while (from <= search->length) {
        enum kvr_status status = find(search, from, found, start, stop, error);
        if (status || !*found || *start != *stop || *stop != last_stop)
            return status;
        size = 1;
        if (from < search->length)
            kvr_utf8_decode(bytes + from, bytes + search->length, &size);
        from += size;
    }
    *found = false;
    return KVR_OK;
}
