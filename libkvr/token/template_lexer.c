/*
 * Template text to tokens.
 *
 * jinja2's lexer is a table of regular expressions tried in order; this is the same machine by
 * hand. The hard part is white space. A tag that ends the template's data takes some of it away:
 * "{%-" all of the space before it, and (lstrip_blocks) a plain "{%" or "{#", but not "{{", the
 * blanks between it and the start of its line. A tag's end takes what follows: "-%}" all space, a
 * plain "%}" or "#}" one newline (trim_blocks); "+" on either side switches that off. Whether a tag
 * begins a line cannot be seen from its own data alone, which may be empty: the lexer remembers
 * whether the text before the data ended in a newline.
 */
#include "token/template_compile.h"

#include <stdlib.h>
#include <string.h>

struct lexer {
    struct compiler *compiler;
    const char *source;
    size_t length;
    size_t position;
    unsigned line;
    bool line_starting;
    char open[256]; /* brackets to be closed, innermost last */
    size_t open_count;
};

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static bool is_name(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || is_digit(byte) ||
           byte == '_' || (unsigned char)byte >= 0x80;
}

/* Bytes of white space (Unicode's) at `at`, 0 if there is none. */
static size_t space_at(const struct lexer *lexer, size_t at)
{
    unsigned char byte;
    size_t used;
    if (at >= lexer->length)
        return 0;
    byte = (unsigned char)lexer->source[at];
    if (byte < 0x80)
        return kvr_point_space(byte);
    return kvr_point_space(kvr_point_read(lexer->source + at, lexer->length - at, &used)) ? used
                                                                                          : 0;
}

static size_t skip_space(const struct lexer *lexer, size_t at)
{
    size_t used;
    while ((used = space_at(lexer, at)))
        at += used;
    return at;
}

static bool looks_at(const struct lexer *lexer, size_t at, const char *text)
{
    size_t length = strlen(text);
    return lexer->length - at >= length && memcmp(lexer->source + at, text, length) == 0;
}

static void advance(struct lexer *lexer, size_t to)
{
    for (size_t i = lexer->position; i < to; i++)
        lexer->line += lexer->source[i] == '\n';
    if (to > lexer->position)
        lexer->line_starting = lexer->source[to - 1] == '\n';
    lexer->position = to;
}

static void emit(struct lexer *lexer, enum token_kind kind, const char *data, size_t length)
{
    struct compiler *compiler = lexer->compiler;
    struct token *token;
    if (compiler->token_count == compiler->token_capacity) {
        size_t capacity = compiler->token_capacity ? compiler->token_capacity * 2 : 256;
        struct token *grown = realloc(compiler->tokens, capacity * sizeof *grown);
        if (!grown)
            kvr_compile_fail(compiler, KVR_NO_MEMORY, 0, "out of memory");
        compiler->tokens = grown;
        compiler->token_capacity = capacity;
    }
    token = &compiler->tokens[compiler->token_count++];
    *token =
        (struct token){.kind = (uint8_t)kind, .line = lexer->line, .data = data, .length = length};
    if (kind == TOKEN_OPERATOR)
        memcpy(token->op, data, length);
}

/* Emits the data before a tag, cut as the tag's sign says. */
static void emit_data(struct lexer *lexer, size_t end, char sign, bool variable)
{
    const char *data = lexer->source + lexer->position;
    size_t length = end - lexer->position;
    if (sign == '-') {
        struct text text = {.data = data, .length = length};
        length = kvr_text_strip_right(&text, NULL, 0);
    } else if (sign != '+' && !variable) {
        size_t start = length;
        while (start && data[start - 1] != '\n')
            start--;
        if (start || lexer->line_starting) {
            struct text text = {.data = data, .length = length};
            if (kvr_text_strip_right(&text, NULL, start) <= start)
                length = start;
        }
    }
    if (length)
        emit(lexer, TOKEN_DATA, data, length);
    advance(lexer, end);
}

static char sign_at(const struct lexer *lexer, size_t at)
{
    char byte = at < lexer->length ? lexer->source[at] : 0;
    return byte == '-' || byte == '+' ? byte : 0;
}

/* The end of a block or comment tag at `at` ("%}" or "#}", with its sign): the position after it
 * and after the space it takes, or 0 if there is none here. */
static size_t tag_end(const struct lexer *lexer, size_t at, const char *close, bool trims)
{
    char sign = sign_at(lexer, at);
    if (sign)
        at++;
    if (!looks_at(lexer, at, close))
        return 0;
    at += 2;
    if (sign == '-')
        return skip_space(lexer, at);
    if (!sign && trims && at < lexer->length && lexer->source[at] == '\n')
        at++;
    return at;
}

/* "{%- raw -%}" at `at`: the position after it, or 0. */
static size_t raw_begin(const struct lexer *lexer, size_t at)
{
    at += 2;
    if (sign_at(lexer, at))
        at++;
    at = skip_space(lexer, at);
    if (!looks_at(lexer, at, "raw"))
        return 0;
    at = skip_space(lexer, at + 3);
    if (looks_at(lexer, at, "-%}"))
        return skip_space(lexer, at + 3);
    return looks_at(lexer, at, "%}") ? at + 2 : 0;
}

static void lex_raw(struct lexer *lexer)
{
    unsigned line = lexer->line;
    for (size_t at = lexer->position; at < lexer->length; at++) {
        size_t end = at + 2;
        if (!looks_at(lexer, at, "{%"))
            continue;
        if (sign_at(lexer, end))
            end++;
        end = skip_space(lexer, end);
        if (!looks_at(lexer, end, "endraw"))
            continue;
        end = tag_end(lexer, skip_space(lexer, end + 6), "%}", true);
        if (!end)
            continue;
        emit_data(lexer, at, sign_at(lexer, at + 2), false);
        advance(lexer, end);
        return;
    }
    kvr_compile_fail(lexer->compiler, KVR_BAD_INPUT, line, "missing end of raw directive");
}

static void lex_comment(struct lexer *lexer)
{
    unsigned line = lexer->line;
    for (size_t at = lexer->position; at < lexer->length; at++) {
        size_t end = tag_end(lexer, at, "#}", true);
        if (end) {
            advance(lexer, end);
            return;
        }
    }
    kvr_compile_fail(lexer->compiler, KVR_BAD_INPUT, line, "missing end of comment tag");
}

/* [digits and single '_'] from `at`, ending in a digit. */
static size_t digits(const struct lexer *lexer, size_t at)
{
    size_t end = at;
    while (end < lexer->length &&
           (is_digit(lexer->source[end]) ||
               (lexer->source[end] == '_' && end > at && is_digit(lexer->source[end - 1]) &&
                   end + 1 < lexer->length && is_digit(lexer->source[end + 1]))))
        end++;
    return end;
}

static bool lex_number(struct lexer *lexer)
{
    const char *source = lexer->source;
    size_t at = lexer->position;
    size_t end;
    size_t whole;
    if (!is_digit(source[at]))
        return false;
    whole = digits(lexer, at);
    end = whole;
    if (!(at && source[at - 1] == '.')) {
        if (end + 1 < lexer->length && source[end] == '.' && is_digit(source[end + 1]))
            end = digits(lexer, end + 1);
        if (end < lexer->length && (source[end] == 'e' || source[end] == 'E')) {
            size_t power = end + 1;
            if (power < lexer->length && (source[power] == '+' || source[power] == '-'))
                power++;
            if (power < lexer->length && is_digit(source[power]))
                end = digits(lexer, power);
        }
        if (end > whole) {
            emit(lexer, TOKEN_FLOAT, source + at, end - at);
            advance(lexer, end);
            return true;
        }
    }
    if (source[at] == '0') {
        char base = at + 1 < lexer->length ? (char)(source[at + 1] | 0x20) : 0;
        if (base == 'x' || base == 'o' || base == 'b') {
            size_t start = at + 2;
            for (end = start; end < lexer->length; end++) {
                char c = source[end];
                bool fits = base == 'b'   ? c == '0' || c == '1'
                            : base == 'o' ? c >= '0' && c <= '7'
                                          : is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
                if (!fits && !(c == '_' && end + 1 < lexer->length && source[end + 1] != '_'))
                    break;
            }
            while (end > start && source[end - 1] == '_')
                end--;
            if (end > start) {
                emit(lexer, TOKEN_INTEGER, source + at, end - at);
                advance(lexer, end);
                return true;
            }
        }
        for (end = at + 1; end < lexer->length && source[end] == '0'; end++)
            ;
    } else {
        end = whole;
    }
    emit(lexer, TOKEN_INTEGER, source + at, end - at);
    advance(lexer, end);
    return true;
}

static bool lex_string(struct lexer *lexer)
{
    char quote = lexer->source[lexer->position];
    size_t at = lexer->position + 1;
    if (quote != '\'' && quote != '"')
        return false;
    while (at < lexer->length && lexer->source[at] != quote)
        at += lexer->source[at] == '\\' ? 2 : 1;
    if (at >= lexer->length)
        return false;
    emit(lexer, TOKEN_STRING, lexer->source + lexer->position + 1, at - lexer->position - 1);
    advance(lexer, at + 1);
    return true;
}

static void lex_operator(struct lexer *lexer)
{
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    char byte = lexer->source[lexer->position];
    char shown[24];
    size_t length = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !length; i++)
        if (looks_at(lexer, lexer->position, pairs[i]))
            length = 2;
    if (!length && byte && strchr("+-/*%~[](){}><=.:|,;", byte))
        length = 1;
    kvr_printable(shown, sizeof shown, &byte, 1);
    if (!length)
        kvr_compile_fail(
            lexer->compiler, KVR_BAD_INPUT, lexer->line, "unexpected char '%s'", shown);
    if (byte == '(' || byte == '[' || byte == '{') {
        if (lexer->open_count == sizeof lexer->open)
            kvr_compile_fail(
                lexer->compiler, KVR_BAD_INPUT, lexer->line, "brackets nested too deeply");
        lexer->open[lexer->open_count++] = byte == '(' ? ')' : byte == '[' ? ']' : '}';
    } else if (byte == ')' || byte == ']' || byte == '}') {
        if (!lexer->open_count)
            kvr_compile_fail(lexer->compiler, KVR_BAD_INPUT, lexer->line, "unexpected '%s'", shown);
        if (lexer->open[--lexer->open_count] != byte)
            kvr_compile_fail(lexer->compiler, KVR_BAD_INPUT, lexer->line,
                "unexpected '%s', expected '%c'", shown, lexer->open[lexer->open_count]);
    }
    emit(lexer, TOKEN_OPERATOR, lexer->source + lexer->position, length);
    advance(lexer, lexer->position + length);
}

/* The inside of a tag, up to and with its end. */
static void lex_inside(struct lexer *lexer, bool variable)
{
    lexer->open_count = 0;
    while (lexer->position < lexer->length) {
        size_t at = lexer->position;
        size_t space;
        if (!lexer->open_count) {
            size_t end;
            if (!variable)
                end = tag_end(lexer, at, "%}", true);
            else if (looks_at(lexer, at, "-}}"))
                end = skip_space(lexer, at + 3);
            else
                end = looks_at(lexer, at, "}}") ? at + 2 : 0;
            if (end) {
                emit(lexer, variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, lexer->source + at, 0);
                advance(lexer, end);
                return;
            }
        }
        if ((space = skip_space(lexer, at)) > at) {
            advance(lexer, space);
        } else if (lex_number(lexer) || lex_string(lexer)) {
            continue;
        } else if (is_name(lexer->source[at])) {
            size_t end = at;
            while (end < lexer->length && is_name(lexer->source[end]) && !space_at(lexer, end))
                end++;
            emit(lexer, TOKEN_NAME, lexer->source + at, end - at);
            advance(lexer, end);
        } else {
            lex_operator(lexer);
        }
    }
}

void kvr_compile_tokens(struct compiler *compiler, const char *source, size_t length)
{
    struct lexer lexer = {
        .compiler = compiler, .source = source, .length = length, .line = 1, .line_starting = true};
    while (lexer.position < length) {
        const char *brace = memchr(source + lexer.position, '{', length - lexer.position);
        size_t at = brace ? (size_t)(brace - source) : length;
        char kind;
        size_t raw;
        while (at < length) {
            kind = at + 1 < length ? source[at + 1] : 0;
            if (source[at] == '{' && (kind == '%' || kind == '{' || kind == '#'))
                break;
            brace = memchr(source + at + 1, '{', length - at - 1);
            at = brace ? (size_t)(brace - source) : length;
        }
        if (at >= length) {
            emit(&lexer, TOKEN_DATA, source + lexer.position, length - lexer.position);
            advance(&lexer, length);
            break;
        }
        emit_data(&lexer, at, sign_at(&lexer, at + 2), kind == '{');
        raw = kind == '%' ? raw_begin(&lexer, at) : 0;
        if (raw) {
            advance(&lexer, raw);
            lex_raw(&lexer);
            continue;
        }
        if (kind != '#')
            emit(&lexer, kind == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, source + at, 0);
        advance(&lexer, at + 2 + (sign_at(&lexer, at + 2) ? 1 : 0));
        if (kind == '#')
            lex_comment(&lexer);
        else
            lex_inside(&lexer, kind == '{');
    }
    emit(&lexer, TOKEN_END, source + length, 0);
}
