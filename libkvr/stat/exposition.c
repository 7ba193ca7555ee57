#include "stat/exposition.h"

#include <math.h>
#include <stdlib.h>

static bool is_name(char byte, bool first)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
           byte == ':' || (!first && byte >= '0' && byte <= '9');
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return at;
}

/* Behind the closing brace of labels that begin at `at`; NULL when there is none on the line. */
static const char *labels_end(const char *at, const char *end)
{
    bool quoted = false;

    for (; at < end; at++) {
        if (quoted && *at == '\\')
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (*at == '}' && !quoted)
            return at;
    }
    return NULL;
}

static bool read_value(const char *at, const char *end, double *value)
{
    char text[64], *rest;
    size_t length = 0;

    while (at + length < end && at[length] != ' ' && at[length] != '\t')
        length++;
    if (length == 0 || length >= sizeof text)
        return false;
    memcpy(text, at, length);
    text[length] = '\0';
    if (!strchr("+-.0123456789INin", text[0]))
        return false;
    *value = strtod(text, &rest); /* knows +Inf and NaN too */
    return *rest == '\0';
}

static bool read_sample(const char *at, const char *end, struct kvr_exposition_sample *sample)
{
    const char *start = at = skip_blanks(at, end);

    while (at < end && is_name(*at, at == start))
        at++;
    if (at == start)
        return false;
    sample->name = (struct kvr_text){start, (size_t)(at - start)};
    sample->labels = (struct kvr_text){at, 0};
    at = skip_blanks(at, end);
    if (at < end && *at == '{') {
        const char *closing = labels_end(at + 1, end);
        if (!closing)
            return false;
        sample->labels = (struct kvr_text){at + 1, (size_t)(closing - at - 1)};
        at = skip_blanks(closing + 1, end);
    }
    return read_value(at, end, &sample->value);
}

bool kvr_exposition_next(struct kvr_exposition *exposition, struct kvr_exposition_sample *sample)
{
    while (exposition->at < exposition->end) {
        const char *at = exposition->at;
        const char *newline = memchr(at, '\n', (size_t)(exposition->end - at));
        const char *end = newline ? newline : exposition->end;
        exposition->at = newline ? newline + 1 : exposition->end;
        if (end > at && end[-1] == '\r')
            end--;
        at = skip_blanks(at, end);
        if (at == end || *at == '#')
            continue;
        if (read_sample(at, end, sample))
            return true;
        exposition->bad_lines++;
    }
    return false;
}

bool kvr_exposition_label(
    const struct kvr_exposition_sample *sample, const char *name, struct kvr_buffer *out)
{
    const char *at = sample->labels.text, *end = at + sample->labels.length;
    size_t wanted = strlen(name);

    while (at < end) {
        while (at < end && (*at == ',' || *at == ' ' || *at == '\t'))
            at++;
        const char *start = at;
        while (at < end && *at != '=' && *at != ' ')
            at++;
        bool found = (size_t)(at - start) == wanted && memcmp(start, name, wanted) == 0;
        while (at < end && *at != '"')
            at++;
        if (at == end)
            return false;
        for (at++; at < end && *at != '"'; at++) {
            char byte = *at;
            if (byte == '\\' && at + 1 < end) {
                at++;
                byte = *at == 'n' ? '\n' : *at;
            }
            if (found)
                kvr_buffer_append_byte(out, byte);
        }
        if (found)
            return at < end && !out->failed;
        at += at < end;
    }
    return false;
}
