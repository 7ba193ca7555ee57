/*
 * Compiling: source text, tokens, tree. What this file has is what the lexer and the two parsers
 * stand on: memory of the compiled template, names as small integers, tokens as they are asked for.
 */
#include "token/template_compile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one template may take, compiled: some 200 bytes a node, so far beyond any real template. */
enum { COMPILED_BYTES_LIMIT = 256 << 20, SOURCE_BYTES_LIMIT = 16 << 20, HEIGHT_LIMIT = 400 };

_Noreturn void kvr_compile_fail(
    struct compiler *compiler, enum kvr_status status, unsigned line, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (line)
        kvr_error_set(compiler->error, status, "template line %u: %s", line, text);
    else
        kvr_error_set(compiler->error, status, "template: %s", text);
    compiler->status = status;
    longjmp(compiler->escape, 1);
}

void *kvr_compile_take(struct compiler *compiler, size_t bytes)
{
    void *taken = kvr_arena_take(&compiler->compiled->arena, bytes, COMPILED_BYTES_LIMIT);
    if (!taken)
        kvr_compile_fail(compiler, KVR_NO_MEMORY, 0, "out of memory");
    return memset(taken, 0, bytes);
}

struct text *kvr_compile_text(struct compiler *compiler, const char *data, size_t length)
{
    struct text *text = kvr_compile_take(compiler, sizeof *text);
    char *copy = kvr_compile_take(compiler, length + 1);
    memcpy(copy, data, length);
    *text = (struct text){.data = copy, .length = length, .points = SIZE_MAX};
    /* Threads share the compiled template: what strings compute late is computed now. */
    kvr_text_points(text);
    kvr_text_hash(text);
    return text;
}

unsigned kvr_compile_symbol(struct compiler *compiler, const char *data, size_t length)
{
    struct kvr_template *compiled = compiler->compiled;
    for (size_t i = 0; i < compiled->symbol_count; i++)
        if (compiled->symbols[i]->length == length &&
            memcmp(compiled->symbols[i]->data, data, length) == 0)
            return (unsigned)i;
    if (compiled->symbol_count == compiled->symbol_capacity) {
        size_t capacity = compiled->symbol_capacity ? compiled->symbol_capacity * 2 : 32;
        struct text **grown = kvr_compile_take(compiler, capacity * sizeof *grown);
        if (compiled->symbol_count)
            memcpy(grown, compiled->symbols, compiled->symbol_count * sizeof *grown);
        compiled->symbols = grown;
        compiled->symbol_capacity = capacity;
    }
    if (compiled->symbol_count >= 10000)
        kvr_compile_fail(compiler, KVR_BAD_INPUT, 0, "more than 10000 different names");
    compiled->symbols[compiled->symbol_count] = kvr_compile_text(compiler, data, length);
    return (unsigned)compiled->symbol_count++;
}

void kvr_body_add(struct compiler *compiler, struct body *body, struct node *node)
{
    /* The capacity is the power of two at or above the count. */
    if ((body->count & (body->count - 1)) == 0) {
        size_t capacity = body->count ? body->count * 2 : 1;
        struct node **grown = kvr_compile_take(compiler, capacity * sizeof *grown);
        if (body->count)
            memcpy(grown, body->items, body->count * sizeof *grown);
        body->items = grown;
    }
    body->items[body->count++] = node;
}

/* ---- tokens ---- */

const struct token *kvr_token_now(const struct compiler *compiler)
{
    return &compiler->tokens[compiler->position];
}

const struct token *kvr_token_ahead(const struct compiler *compiler)
{
    size_t ahead = compiler->position + 1;
    return &compiler->tokens[ahead < compiler->token_count ? ahead : compiler->token_count - 1];
}

const struct token *kvr_token_next(struct compiler *compiler)
{
    const struct token *token = kvr_token_now(compiler);
    if (compiler->position + 1 < compiler->token_count)
        compiler->position++;
    return token;
}

bool kvr_token_is(const struct token *token, const char *op)
{
    return token->kind == TOKEN_OPERATOR && strcmp(token->op, op) == 0;
}

bool kvr_token_is_name(const struct token *token, const char *name)
{
    return token->kind == TOKEN_NAME && token->length == strlen(name) &&
           memcmp(token->data, name, token->length) == 0;
}

bool kvr_token_skip(struct compiler *compiler, const char *op)
{
    bool found = kvr_token_is(kvr_token_now(compiler), op);
    if (found)
        kvr_token_next(compiler);
    return found;
}

bool kvr_token_skip_name(struct compiler *compiler, const char *name)
{
    bool found = kvr_token_is_name(kvr_token_now(compiler), name);
    if (found)
        kvr_token_next(compiler);
    return found;
}

void kvr_token_describe(const struct token *token, char out[80])
{
    static const char *const names[] = {"end of template", "template data / text",
        "begin of statement block", "end of statement block", "begin of print statement",
        "end of print statement"};
    if (token->kind <= TOKEN_VARIABLE_END)
        snprintf(out, 80, "%s", names[token->kind]);
    else
        kvr_printable(out, 80, token->data, token->length);
}

void kvr_token_expect(struct compiler *compiler, const char *op)
{
    const struct token *token = kvr_token_now(compiler);
    char shown[80];
    if (!kvr_token_is(token, op)) {
        kvr_token_describe(token, shown);
        kvr_compile_fail(
            compiler, KVR_BAD_INPUT, token->line, "expected token '%s', got '%s'", op, shown);
    }
    kvr_token_next(compiler);
}

const struct token *kvr_token_expect_name(struct compiler *compiler)
{
    const struct token *token = kvr_token_now(compiler);
    char shown[80];
    if (token->kind != TOKEN_NAME) {
        kvr_token_describe(token, shown);
        kvr_compile_fail(
            compiler, KVR_BAD_INPUT, token->line, "expected token 'name', got '%s'", shown);
    }
    return kvr_token_next(compiler);
}

void kvr_token_expect_kind(struct compiler *compiler, enum token_kind kind)
{
    const struct token *token = kvr_token_now(compiler);
    struct token wanted = {.kind = (uint8_t)kind};
    char shown[80];
    char expected[80];
    if (token->kind != kind) {
        kvr_token_describe(token, shown);
        kvr_token_describe(&wanted, expected);
        kvr_compile_fail(
            compiler, KVR_BAD_INPUT, token->line, "expected token '%s', got '%s'", expected, shown);
    }
    kvr_token_next(compiler);
}

/* ---- nodes ---- */

struct node *kvr_parse_node(struct compiler *compiler, enum node_kind kind, unsigned line)
{
    struct node *node = kvr_compile_take(compiler, sizeof *node);
    node->kind = (uint8_t)kind;
    node->line = line;
    node->height = 1;
    return node;
}

/* Bounds the height of the tree, and with it the recursion of the evaluator. */
void kvr_parse_height(struct compiler *compiler, struct node *node, const struct node *child)
{
    if (!child)
        return;
    if (child->height >= HEIGHT_LIMIT)
        kvr_compile_fail(compiler, KVR_BAD_INPUT, node->line,
            "expression or statement of more than %d levels", HEIGHT_LIMIT);
    if (node->height <= child->height)
        node->height = (uint16_t)(child->height + 1);
}

/* ---- the whole ---- */

/* Line ends become '\n' and one at the very end is dropped, as jinja2 reads a template. */
static char *normalise(const char *text, size_t length, size_t *out_length)
{
    char *source = malloc(length + 1);
    size_t used = 0;
    if (!source)
        return NULL;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\r') {
            source[used++] = '\n';
            i += i + 1 < length && text[i + 1] == '\n';
        } else {
            source[used++] = text[i];
        }
    }
    if (used && source[used - 1] == '\n')
        used--;
    source[used] = 0;
    *out_length = used;
    return source;
}

static bool valid_utf8(const char *text, size_t length)
{
    size_t used;
    for (size_t at = 0; at < length; at += used) {
        used = 1;
        if ((unsigned char)text[at] >= 0x80 &&
            kvr_point_read(text + at, length - at, &used) == UINT32_MAX)
            return false;
    }
    return true;
}

/* In a function of its own: what setjmp's caller keeps in registers is lost by the jump. */
static enum kvr_status compile(struct compiler *compiler)
{
    struct kvr_template *compiled = compiler->compiled;
    if (setjmp(compiler->escape))
        return compiler->status;
    compiled->symbol_loop = kvr_compile_symbol(compiler, "loop", 4);
    compiled->symbol_caller = kvr_compile_symbol(compiler, "caller", 6);
    compiled->symbol_varargs = kvr_compile_symbol(compiler, "varargs", 7);
    compiled->symbol_kwargs = kvr_compile_symbol(compiler, "kwargs", 6);
    kvr_compile_tokens(compiler, compiled->source, compiled->source_length);
    compiled->body = kvr_compile_template(compiler);
    return KVR_OK;
}

enum kvr_status kvr_template_compile(
    struct kvr_template **out, const char *text, size_t length, struct kvr_error *error)
{
    struct compiler *compiler;
    struct kvr_template *compiled;
    enum kvr_status status;
    *out = NULL;
    if (length > SOURCE_BYTES_LIMIT)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "template of more than %d bytes", SOURCE_BYTES_LIMIT);
    if (!valid_utf8(text, length))
        return kvr_error_set(error, KVR_BAD_INPUT, "template is not valid UTF-8");
    compiler = calloc(1, sizeof *compiler);
    compiled = calloc(1, sizeof *compiled);
    if (compiler && compiled)
        compiled->source = normalise(text, length, &compiled->source_length);
    if (!compiler || !compiled || !compiled->source) {
        free(compiler);
        kvr_template_free(compiled);
        return kvr_error_memory(error);
    }
    compiler->compiled = compiled;
    compiler->error = error;
    status = compile(compiler);
    free(compiler->tokens);
    free(compiler);
    if (status)
        kvr_template_free(compiled);
    else
        *out = compiled;
    return status;
}

void kvr_template_free(struct kvr_template *compiled)
{
    if (!compiled)
        return;
    kvr_arena_release(&compiled->arena);
    free(compiled->source);
    free(compiled);
}

bool kvr_template_mentions(const struct kvr_template *compiled, const char *name)
{
    return kvr_bytes_find(compiled->source, compiled->source_length, name, strlen(name));
}
