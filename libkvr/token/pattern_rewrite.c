#include "token/codepoints.h"
#include "token/pattern.h"
#include "token/unicode.h"

#include <stdlib.h>
#include <string.h>

#define CLASS_NESTING 16 /* classes in classes */
#define GROUP_NESTING 64

struct reader {
    const char *text;
    size_t length, at;
    bool caseless; /* the option i holds here */
    bool extended; /* and x: spaces and comments are left out */
};

static bool looking_at(const struct reader *in, const char *what)
{
    size_t length = strlen(what);

    return in->length - in->at >= length && memcmp(in->text + in->at, what, length) == 0;
}

/* Reads {Name}, {^Name} or L after \p. */
static enum kvr_status read_property(
    struct reader *in, struct kvr_codepoints *set, bool *negated, struct kvr_error *error)
{
    char name[32], shown[40];
    size_t length = 0;

    if (in->at < in->length && in->text[in->at] == '{') {
        in->at++;
        if (in->at < in->length && in->text[in->at] == '^') {
            *negated = !*negated;
            in->at++;
        }
        while (in->at < in->length && in->text[in->at] != '}' && length < sizeof name - 1)
            name[length++] = in->text[in->at++];
        if (in->at == in->length || in->text[in->at] != '}')
            return kvr_error_set(error, KVR_BAD_INPUT, "a property in a pattern is not closed");
        in->at++;
    } else if (in->at < in->length) {
        name[length++] = in->text[in->at++];
    }
    name[length] = '\0';
    if (strncmp(name, "Script=", 7) == 0)
        memmove(name, name + 7, length - 6);
    if (kvr_codepoints_add_property(set, name))
        return KVR_OK;
    return kvr_error_set(error, KVR_UNSUPPORTED, "the character property '%s' in a split pattern",
        kvr_printable(shown, sizeof shown, name, length));
}

/* Adds what \p{..}, \P{..}, \s, \d, \w, \h and their opposites stand for; in->at is after the
 * letter. *is_set: the letter was one of these. In a class \w lacks what Oniguruma adds to it
 * elsewhere. */
static enum kvr_status read_set(struct reader *in, char letter, bool in_class,
    struct kvr_codepoints *set, bool *is_set, struct kvr_error *error)
{
    static const char letters[] = "psdwh";
    const char *place = memchr(letters, letter | 0x20, 5);
    bool negated = letter < 'a';
    enum kvr_status status = KVR_OK;

    *is_set = place && letter >= 'A';
    if (!*is_set)
        return KVR_OK;
    struct kvr_codepoints *own = kvr_codepoints_new();
    if (!own)
        return kvr_error_memory(error);
    switch (*place) {
    case 'p':
        status = read_property(in, own, &negated, error);
        break;
    case 's':
        kvr_codepoints_add_categories(own, KVR_IS_SPACE);
        break;
    case 'd':
        kvr_codepoints_add_categories(own, KVR_CATEGORY_BIT(KVR_ND));
        break;
    case 'w':
        kvr_codepoints_add_word(own, in_class ? KVR_WORD_UNICODE : KVR_WORD_ONIGURUMA);
        break;
    default: /* hexadecimal digits */
        kvr_codepoints_add_range(own, '0', '9');
        kvr_codepoints_add_range(own, 'A', 'F');
        kvr_codepoints_add_range(own, 'a', 'f');
    }
    if (negated)
        kvr_codepoints_invert(own);
    kvr_codepoints_add(set, own);
    free(own);
    return status;
}

/* Hexadecimal digits, `most` of them or up to a closing brace. */
static enum kvr_status read_hex(
    struct reader *in, size_t most, uint32_t *character, struct kvr_error *error)
{
    bool braced = in->at < in->length && in->text[in->at] == '{';
    size_t digits = 0;

    *character = 0;
    in->at += braced;
    for (; in->at < in->length && digits < (braced ? 8 : most); in->at++, digits++) {
        char c = in->text[in->at];
        int value = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (value < 0)
            break;
        *character = *character << 4 | (uint32_t)value;
    }
    bool closed = !braced || (in->at < in->length && in->text[in->at] == '}');
    in->at += braced && closed;
    if (!digits || !closed || *character >= 0x110000)
        return kvr_error_set(error, KVR_BAD_INPUT, "a bad \\x or \\u escape in a pattern");
    return KVR_OK;
}

/* The one character that an escape stands for; in->at is after the letter. */
static enum kvr_status read_escaped(
    struct reader *in, char letter, uint32_t *character, struct kvr_error *error)
{
    static const char names[] = "rntvf0ae", values[] = "\r\n\t\v\f\0\a\x1b";
    const char *name = memchr(names, letter, sizeof names - 1);

    if (name)
        *character = (uint8_t)values[name - names];
    else if (letter == 'x' || letter == 'u')
        return read_hex(in, letter == 'x' ? 2 : 4, character, error);
    else if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
             (letter >= '1' && letter <= '9'))
        return kvr_error_set(
            error, KVR_UNSUPPORTED, "the escape '\\%c' in a split pattern", letter);
    else
        *character = (uint8_t)letter;
    return KVR_OK;
}

/* [:name:] */
static enum kvr_status read_posix(
    struct reader *in, struct kvr_codepoints *set, struct kvr_error *error)
{
    static const struct {
        const char *text;
        uint32_t categories;
    } names[] = {{"[:space:]", KVR_IS_SPACE}, {"[:digit:]", KVR_CATEGORY_BIT(KVR_ND)},
        {"[:punct:]", KVR_IS_PUNCTUATION | KVR_IS_SYMBOL},
        {"[:cntrl:]", KVR_CATEGORY_BIT(KVR_CC) | KVR_CATEGORY_BIT(KVR_CONTROL_SPACE)}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (looking_at(in, names[i].text)) {
            kvr_codepoints_add_categories(set, names[i].categories);
            in->at += strlen(names[i].text);
            return KVR_OK;
        }
    }
    return kvr_error_set(error, KVR_UNSUPPORTED, "'%.*s' in a class of a split pattern",
        (int)(in->length - in->at < 9 ? in->length - in->at : 9), in->text + in->at);
}

static enum kvr_status read_class(struct reader *in, struct kvr_codepoints *set, bool *negated,
    unsigned depth, struct kvr_error *error);

/* [...] in a class: its members, or all but these. */
static enum kvr_status read_inner_class(
    struct reader *in, struct kvr_codepoints *set, unsigned depth, struct kvr_error *error)
{
    struct kvr_codepoints *inner = kvr_codepoints_new();
    bool negated;

    if (!inner)
        return kvr_error_memory(error);
    enum kvr_status status = read_class(in, inner, &negated, depth + 1, error);
    if (!status && negated)
        kvr_codepoints_invert(inner);
    if (!status)
        kvr_codepoints_add(set, inner);
    free(inner);
    return status;
}

/* One character of a class, plain or escaped; *is_set: it was \p{..} or its like, added to set. */
static enum kvr_status read_member(struct reader *in, struct kvr_codepoints *set, bool *is_set,
    uint32_t *character, struct kvr_error *error)
{
    const uint8_t *text = (const uint8_t *)in->text;
    unsigned size;

    *is_set = false;
    if (in->text[in->at] != '\\') {
        *character = kvr_utf8_decode(text + in->at, text + in->length, &size);
        in->at += size;
        return KVR_OK;
    }
    if (in->at + 1 >= in->length)
        return kvr_error_set(error, KVR_BAD_INPUT, "a pattern ends in a backslash");
    char letter = in->text[in->at + 1];
    in->at += 2;
    if (letter == 'b') { /* in a class a backspace */
        *character = '\b';
        return KVR_OK;
    }
    enum kvr_status status = read_set(in, letter, true, set, is_set, error);
    return status || *is_set ? status : read_escaped(in, letter, character, error);
}

/* A character, a range, or a set, of a class. */
static enum kvr_status read_members(
    struct reader *in, struct kvr_codepoints *set, struct kvr_error *error)
{
    uint32_t first, last;
    bool is_set;
    enum kvr_status status = read_member(in, set, &is_set, &first, error);

    if (status || is_set)
        return status;
    last = first;
    if (in->at + 1 < in->length && in->text[in->at] == '-' && in->text[in->at + 1] != ']') {
        in->at++;
        status = read_member(in, set, &is_set, &last, error);
        if (!status && is_set) { /* [a-\d]: the dash is itself */
            kvr_codepoints_add_range(set, '-', '-');
            last = first;
        }
    }
    if (!status && last < first)
        return kvr_error_set(error, KVR_BAD_INPUT, "a range of a pattern goes backwards");
    if (!status)
        kvr_codepoints_add_range(set, first, last);
    return status;
}

/* From the opening bracket to behind the closing one. Members that follow each other and classes in
 * classes add up, "&&" keeps what is on both of its sides. */
static enum kvr_status read_class(struct reader *in, struct kvr_codepoints *set, bool *negated,
    unsigned depth, struct kvr_error *error)
{
    size_t start = in->at++;
    struct kvr_codepoints *kept = NULL; /* what the operands of && before this one share */
    enum kvr_status status = KVR_OK;

    *negated = in->at < in->length && in->text[in->at] == '^';
    in->at += *negated;
    if (depth > CLASS_NESTING)
        return kvr_error_set(error, KVR_BAD_INPUT, "classes of a pattern nested too deep");
    for (bool first = true; !status; first = false) {
        if (in->at >= in->length)
            status = kvr_error_set(
                error, KVR_BAD_INPUT, "the class at byte %zu of a pattern is not closed", start);
        else if (in->text[in->at] == ']' && !first)
            break;
        else if (looking_at(in, "[:"))
            status = read_posix(in, set, error);
        else if (in->text[in->at] == '[')
            status = read_inner_class(in, set, depth, error);
        else if (looking_at(in, "&&")) {
            in->at += 2;
            if (kept)
                kvr_codepoints_keep(kept, set);
            else if ((kept = kvr_codepoints_new()))
                memcpy(kept, set, sizeof *kept);
            else
                status = kvr_error_memory(error);
            memset(set, 0, sizeof *set);
        } else
            status = read_members(in, set, error);
    }
    in->at++;
    if (kept)
        kvr_codepoints_keep(set, kept);
    free(kept);
    return status;
}

/* \b and \B: whether a word character stands before and behind. */
static void append_border(bool differ, const struct kvr_codepoints *word, struct kvr_buffer *out)
{
    static const char *const looks[2][4] = {
        {"(?:(?<=[", "])(?=[", "])|(?<![", "])(?!["}, {"(?:(?<=[", "])(?![", "])|(?<![", "])(?=["}};

    for (int i = 0; i < 4; i++) {
        kvr_buffer_append_text(out, looks[differ][i]);
        kvr_codepoints_append(word, out);
    }
    kvr_buffer_append_text(out, "]))");
}

/* Copies or rewrites one escape outside of classes; in->at is at the backslash. */
static enum kvr_status rewrite_escape(
    struct reader *in, struct kvr_buffer *out, struct kvr_error *error)
{
    struct kvr_codepoints *set;
    uint32_t character;
    bool is_set;

    if (in->at + 1 >= in->length)
        return kvr_error_set(error, KVR_BAD_INPUT, "a pattern ends in a backslash");
    char letter = in->text[in->at + 1];
    in->at += 2;
    if (letter == 'A' || letter == 'z') {
        kvr_buffer_append(out, in->text + in->at - 2, 2);
        return KVR_OK;
    }
    if (!(set = kvr_codepoints_new()))
        return kvr_error_memory(error);
    if (letter == 'b' || letter == 'B') {
        kvr_codepoints_add_word(set, KVR_WORD_ONIGURUMA);
        append_border(letter == 'b', set, out);
        free(set);
        return KVR_OK;
    }
    enum kvr_status status = read_set(in, letter, false, set, &is_set, error);
    if (!status && is_set) { /* only in classes does (?i) make more of \p{Lu} */
        bool keep_case = in->caseless && strchr("pPwW", letter);
        kvr_buffer_append_text(out, keep_case ? "(?-i:[" : "[");
        kvr_codepoints_append(set, out);
        kvr_buffer_append_text(out, keep_case ? "])" : "]");
    }
    free(set);
    if (status || is_set)
        return status;
    status = read_escaped(in, letter, &character, error);
    if (!status)
        kvr_buffer_append_format(out, "\\x{%x}", (unsigned)character);
    return status;
}

/* A class is written as its members, or as all but its members, so that (?i) means the same. */
static enum kvr_status rewrite_class(
    struct reader *in, struct kvr_buffer *out, struct kvr_error *error)
{
    struct kvr_codepoints *set = kvr_codepoints_new();
    bool negated;

    if (!set)
        return kvr_error_memory(error);
    enum kvr_status status = read_class(in, set, &negated, 0, error);
    if (!status) {
        size_t before = out->length;
        kvr_buffer_append_text(out, negated ? "[^" : "[");
        kvr_codepoints_append(set, out);
        kvr_buffer_append_byte(out, ']');
        if (out->length == before + 2 + negated) { /* no members: nothing, or anything, matches */
            out->length = before;
            kvr_buffer_append_text(out, negated ? "(?s:.)" : "(?!)");
        }
    }
    free(set);
    return status;
}

/* What was written last, for the quantifier that may follow. */
struct writer {
    struct kvr_buffer *out;
    size_t atom;     /* where it starts */
    char quantifier; /* its last one: 'n' {n}, '{' another interval, 0 none */
    size_t branch;   /* where the alternative starts */
    unsigned depth;
    size_t groups[GROUP_NESTING];        /* where the open ones start */
    bool caseless[GROUP_NESTING];        /* the option i behind them */
    bool extended[GROUP_NESTING];        /* and x */
    unsigned options[GROUP_NESTING + 1]; /* groups opened by (?i) at a depth, to be closed */
};

static void write_plain(struct writer *writer, const char *text, size_t length)
{
    writer->atom = writer->out->length;
    writer->quantifier = 0;
    kvr_buffer_append(writer->out, text, length);
}

/* A quantifier of what is quantified already: (?:X{1,3})+. PCRE2 would take X{1,3}+ for one that
 * gives nothing back, and X{3}? for one that prefers less. */
static void wrap(struct writer *writer)
{
    size_t length = writer->out->length - writer->atom;

    kvr_buffer_append_text(writer->out, "(?:)");
    if (writer->out->failed)
        return;
    char *start = writer->out->data + writer->atom;
    memmove(start + 3, start, length);
    memcpy(start, "(?:", 3);
    start[3 + length] = ')';
}

static size_t count_digits(const char *text, size_t length)
{
    size_t count = 0;

    while (count < length && text[count] >= '0' && text[count] <= '9')
        count++;
    return count;
}

/* {n}, {n,}, {,m} or {n,m} at text[0]: its length; 0 where the brace is a character. */
static size_t interval_length(const char *text, size_t length, bool *exact, bool *from_zero)
{
    size_t at = 1 + count_digits(text + 1, length - 1), first = at - 1, second = 0;

    *exact = at < length && text[at] != ',';
    *from_zero = !first;
    if (at < length && text[at] == ',') {
        second = count_digits(text + at + 1, length - at - 1);
        at += 1 + second;
    }
    return at < length && text[at] == '}' && (first || second) ? at + 1 : 0;
}

static void rewrite_quantifier(struct reader *in, struct writer *writer)
{
    const char *text = in->text + in->at;
    bool exact = false, from_zero = false;
    size_t size = *text == '{' ? interval_length(text, in->length - in->at, &exact, &from_zero) : 1;

    if (!size) {
        write_plain(writer, text, 1);
        in->at++;
        return;
    }
    if (writer->quantifier && (*text != '?' || writer->quantifier == 'n'))
        wrap(writer);
    if (from_zero)
        kvr_buffer_append_text(writer->out, "{0");
    kvr_buffer_append(writer->out, text + from_zero, size - from_zero);
    writer->quantifier = (char)(*text != '{' ? 0 : exact ? 'n' : '{');
    in->at += size;
}

/* "(" and, of "(?imx-imx:", the options: m is there what s is here, that a dot matches all.
 * Options alone, "(?i)", are a group of all that follows in the group around them, alternatives
 * included: a(?i)b|c is a(?i:b|c). Where an alternative starts, PCRE2's reading is the same. What x
 * leaves out is left out here. */
static enum kvr_status open_group(struct reader *in, struct writer *writer, struct kvr_error *error)
{
    if (writer->depth == GROUP_NESTING)
        return kvr_error_set(error, KVR_UNSUPPORTED, "groups of a pattern nested too deep");
    bool on = true, caseless = in->caseless, extended = in->extended;
    bool starts = writer->out->length == writer->branch;
    size_t start = writer->out->length;
    write_plain(writer, "(", 1);
    in->at++;
    if (in->at < in->length && in->text[in->at] == '?') {
        do {
            char option = in->text[in->at++];
            on = on && option != '-';
            in->caseless = option == 'i' ? on : in->caseless;
            in->extended = option == 'x' ? on : in->extended;
            if (option != 'x')
                kvr_buffer_append_byte(writer->out, (uint8_t)(option == 'm' ? 's' : option));
        } while (in->at < in->length && strchr("imsx-", in->text[in->at]) && in->text[in->at]);
        if (in->at < in->length && in->text[in->at] == ')') {
            in->at++;
            write_plain(writer, starts ? ")" : ":", 1);
            writer->options[writer->depth] += !starts;
            writer->branch = writer->out->length;
            return KVR_OK;
        }
        if (in->at < in->length && strchr("~yWDSIL", in->text[in->at]) && in->text[in->at])
            return kvr_error_set(error, KVR_UNSUPPORTED,
                "the group '(?%c' of a split pattern is not supported", in->text[in->at]);
        /* what else opens it: a colon, a look, a name */
        while (in->at < in->length && strchr(":=!<>", in->text[in->at]) && in->text[in->at]) {
            char c = in->text[in->at++];
            kvr_buffer_append_byte(writer->out, (uint8_t)c);
            if (c != '<')
                break;
        }
    }
    writer->caseless[writer->depth] = caseless;
    writer->extended[writer->depth] = extended;
    writer->groups[writer->depth++] = start;
    writer->options[writer->depth] = 0;
    writer->branch = writer->out->length;
    return KVR_OK;
}

static void close_options(struct writer *writer)
{
    for (; writer->options[writer->depth]; writer->options[writer->depth]--)
        write_plain(writer, ")", 1);
}

/* Skips a space or a comment of an extended pattern. A quantifier behind it stands alone. */
static bool skip_unread(struct reader *in, struct writer *writer)
{
    if (!in->extended || !in->text[in->at] || !strchr(" \t\n\r\f#", in->text[in->at]))
        return false;
    if (in->text[in->at] == '#')
        while (in->at + 1 < in->length && in->text[in->at] != '\n')
            in->at++;
    in->at++;
    writer->quantifier = 'n';
    return true;
}

enum kvr_status kvr_pattern_rewrite(
    const char *text, size_t length, struct kvr_buffer *out, struct kvr_error *error)
{
    struct reader in = {.text = text, .length = length};
    struct writer writer = {.out = out, .atom = out->length, .branch = out->length};

    while (in.at < length) {
        enum kvr_status status = KVR_OK;
        if (skip_unread(&in, &writer))
            continue;
        if (text[in.at] == '\\' || text[in.at] == '[') {
            write_plain(&writer, "", 0);
            status = text[in.at] == '[' ? rewrite_class(&in, out, error)
                                        : rewrite_escape(&in, out, error);
        } else if (text[in.at] == '(') {
            status = open_group(&in, &writer, error);
        } else if (text[in.at] == ')' && writer.depth) {
            close_options(&writer);
            write_plain(&writer, ")", 1);
            writer.atom = writer.groups[--writer.depth];
            in.caseless = writer.caseless[writer.depth];
            in.extended = writer.extended[writer.depth];
            in.at++;
        } else if (strchr("+*?{", text[in.at]) && text[in.at]) {
            rewrite_quantifier(&in, &writer);
        } else {
            unsigned size;
            kvr_utf8_decode((const uint8_t *)text + in.at, (const uint8_t *)text + length, &size);
            write_plain(&writer, text + in.at, size);
            in.at += size;
            writer.branch = text[in.at - 1] == '|' ? out->length : writer.branch;
        }
        if (status)
            return status;
    }
    close_options(&writer);
    return out->failed ? kvr_error_memory(error) : KVR_OK;
}
