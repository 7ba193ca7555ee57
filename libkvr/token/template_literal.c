/*
 * Literals of a template to constants: strings with Python's escapes, integers of any base, floats.
 */
#include "token/template_compile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int hex_value(char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte = (char)(byte | 0x20);
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* Python's unicode-escape decoding of a literal's inside. A backslash before what is no escape
 * stays; before a newline both go. A character beyond ASCII behind a backslash comes out as jinja2
 * has it: as the text of its own escape. */
static size_t unescape(struct compiler *compiler, const struct token *token, char *out)
{
    static const char from[] = "nrtabfv\\'\"";
    static const char to[] = "\n\r\t\a\b\f\v\\'\"";
    const char *data = token->data;
    size_t used = 0;
    for (size_t i = 0; i < token->length; i++) {
        const char *known;
        uint32_t point = 0;
        size_t width;
        char code;
        if (data[i] != '\\' || i + 1 == token->length) {
            out[used++] = data[i];
            continue;
        }
        code = data[++i];
        known = strchr(from, code);
        if (code && known) {
            out[used++] = to[known - from];
        } else if (code == '\n') {
            continue;
        } else if (code >= '0' && code <= '7') {
            for (width = 0; width < 3 && i < token->length && data[i] >= '0' && data[i] <= '7';
                 width++)
                point = point * 8 + (uint32_t)(data[i++] - '0');
            i--;
            used += kvr_point_write(out + used, point);
        } else if (code == 'x' || code == 'u' || code == 'U') {
            width = code == 'x' ? 2 : code == 'u' ? 4 : 8;
            for (size_t j = 0; j < width; j++) {
                int digit = ++i < token->length ? hex_value(data[i]) : -1;
                if (digit < 0)
                    kvr_compile_fail(compiler, KVR_BAD_INPUT, token->line,
                        "truncated \\%c escape in a string", code);
                point = point * 16 + (uint32_t)digit;
            }
            if (point > 0x10ffff)
                kvr_compile_fail(
                    compiler, KVR_BAD_INPUT, token->line, "illegal Unicode character in a string");
            if (point >= 0xd800 && point < 0xe000)
                kvr_compile_fail(compiler, KVR_UNSUPPORTED, token->line,
                    "surrogate in a string, which UTF-8 cannot hold");
            used += kvr_point_write(out + used, point);
        } else if (code == 'N') {
            kvr_compile_fail(
                compiler, KVR_UNSUPPORTED, token->line, "'\\N{...}' in a string is not supported");
        } else if ((unsigned char)code >= 0x80) {
            point = kvr_point_read(data + i, token->length - i, &width);
            used += (size_t)sprintf(out + used,
                point < 0x100     ? "\\x%02x"
                : point < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                point);
            i += width - 1;
        } else {
            out[used++] = '\\';
            out[used++] = code;
        }
    }
    return used;
}

struct node *kvr_parse_string(struct compiler *compiler)
{
    unsigned line = kvr_token_now(compiler)->line;
    size_t room = 1;
    size_t used = 0;
    char *bytes;
    struct text *text;
    for (size_t at = compiler->position; compiler->tokens[at].kind == TOKEN_STRING; at++)
        room += compiler->tokens[at].length * 3;
    bytes = kvr_compile_take(compiler, room);
    while (kvr_token_now(compiler)->kind == TOKEN_STRING)
        used += unescape(compiler, kvr_token_next(compiler), bytes + used);
    text = kvr_compile_text(compiler, bytes, used);
    return kvr_parse_constant(compiler, line, kvr_text_value(text));
}

struct node *kvr_parse_integer(struct compiler *compiler)
{
    const struct token *token = kvr_token_next(compiler);
    char *digits = kvr_compile_take(compiler, token->length + 1);
    char kind = token->length > 1 ? (char)(token->data[1] | 0x20) : 0;
    int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    size_t used = 0;
    long long number;
    for (size_t i = base == 10 ? 0 : 2; i < token->length; i++)
        if (token->data[i] != '_')
            digits[used++] = token->data[i];
    errno = 0;
    number = strtoll(digits, NULL, base);
    if (errno == ERANGE) {
        struct value big = {.type = VALUE_BIG};
        if (base != 10)
            kvr_compile_fail(compiler, KVR_UNSUPPORTED, token->line,
                "integer literal of more than 64 bits in base %d", base);
        big.text = kvr_compile_text(compiler, digits, used);
        return kvr_parse_constant(compiler, token->line, big);
    }
    return kvr_parse_constant(compiler, token->line, kvr_integer(number));
}

struct node *kvr_parse_float(struct compiler *compiler)
{
    const struct token *token = kvr_token_next(compiler);
    char *digits = kvr_compile_take(compiler, token->length + 1);
    size_t used = 0;
    for (size_t i = 0; i < token->length; i++)
        if (token->data[i] != '_')
            digits[used++] = token->data[i];
    return kvr_parse_constant(compiler, token->line, kvr_float(strtod(digits, NULL)));
}
