/*
 * Expressions: tokens to a tree, one function a level of jinja2's grammar, loosest first:
 * condition, or, and, not, comparison, + -, ~, * / // %, **, unary, primary with its postfixes.
 * Note that `~` binds tighter than `+`, that a unary minus takes the filters after it only at the
 * outside, and that `**` is left-associative, all as in jinja2.
 */
#include "token/template_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct node *parse_unary(struct compiler *compiler, bool with_filter);
static struct node *parse_postfix(struct compiler *compiler, struct node *node);
static struct node *parse_primary(struct compiler *compiler, bool with_namespace);

static void deeper(struct compiler *compiler)
{
    if (++compiler->depth > 600)
        kvr_compile_fail(
            compiler, KVR_BAD_INPUT, kvr_token_now(compiler)->line, "nested too deeply");
}

static struct node *make(struct compiler *compiler, enum node_kind kind, unsigned line,
    struct node *first, struct node *second)
{
    struct node *node = kvr_parse_node(compiler, kind, line);
    node->first = first;
    node->second = second;
    kvr_parse_height(compiler, node, first);
    kvr_parse_height(compiler, node, second);
    return node;
}

static struct node *constant(struct compiler *compiler, unsigned line, struct value value)
{
    struct node *node = kvr_parse_node(compiler, NODE_CONSTANT, line);
    node->value = value;
    return node;
}

static void add_item(struct compiler *compiler, struct node *node, struct node *item)
{
    kvr_body_add(compiler, &node->items, item);
    kvr_parse_height(compiler, node, item);
}

/* ---- literals ---- */

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

static struct node *parse_string(struct compiler *compiler)
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
    return constant(compiler, line, kvr_text_value(text));
}

static struct node *parse_integer(struct compiler *compiler)
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
        return constant(compiler, token->line, big);
    }
    return constant(compiler, token->line, kvr_integer(number));
}

static struct node *parse_float(struct compiler *compiler)
{
    const struct token *token = kvr_token_next(compiler);
    char *digits = kvr_compile_take(compiler, token->length + 1);
    size_t used = 0;
    for (size_t i = 0; i < token->length; i++)
        if (token->data[i] != '_')
            digits[used++] = token->data[i];
    return constant(compiler, token->line, kvr_float(strtod(digits, NULL)));
}

/* ---- primaries ---- */

static struct node *parse_list(struct compiler *compiler)
{
    struct node *node = kvr_parse_node(compiler, NODE_LIST, kvr_token_next(compiler)->line);
    while (!kvr_token_is(kvr_token_now(compiler), "]")) {
        if (node->items.count)
            kvr_token_expect(compiler, ",");
        if (kvr_token_is(kvr_token_now(compiler), "]"))
            break;
        add_item(compiler, node, kvr_parse_expression(compiler, true));
    }
    kvr_token_expect(compiler, "]");
    return node;
}

static struct node *parse_dict(struct compiler *compiler)
{
    struct node *node = kvr_parse_node(compiler, NODE_DICT, kvr_token_next(compiler)->line);
    while (!kvr_token_is(kvr_token_now(compiler), "}")) {
        if (node->items.count)
            kvr_token_expect(compiler, ",");
        if (kvr_token_is(kvr_token_now(compiler), "}"))
            break;
        add_item(compiler, node, kvr_parse_expression(compiler, true));
        kvr_token_expect(compiler, ":");
        add_item(compiler, node, kvr_parse_expression(compiler, true));
    }
    kvr_token_expect(compiler, "}");
    return node;
}

static struct node *parse_name(struct compiler *compiler, bool with_namespace)
{
    const struct token *token = kvr_token_next(compiler);
    struct kvr_template *compiled = compiler->compiled;
    struct node *node;
    if (kvr_token_is_name(token, "true") || kvr_token_is_name(token, "True"))
        return constant(compiler, token->line, kvr_bool(true));
    if (kvr_token_is_name(token, "false") || kvr_token_is_name(token, "False"))
        return constant(compiler, token->line, kvr_bool(false));
    if (kvr_token_is_name(token, "none") || kvr_token_is_name(token, "None"))
        return constant(compiler, token->line, kvr_none());
    node = kvr_parse_node(compiler, NODE_NAME, token->line);
    node->symbol = kvr_compile_symbol(compiler, token->data, token->length);
    node->value = kvr_text_value(compiled->symbols[node->symbol]);
    if (with_namespace && kvr_token_skip(compiler, ".")) {
        token = kvr_token_expect_name(compiler);
        node->kind = NODE_MEMBER;
        node->value = kvr_text_value(kvr_compile_text(compiler, token->data, token->length));
    }
    if (compiler->signature) {
        compiler->signature->uses_caller |= node->symbol == compiled->symbol_caller;
        compiler->signature->uses_varargs |= node->symbol == compiled->symbol_varargs;
        compiler->signature->uses_kwargs |= node->symbol == compiled->symbol_kwargs;
    }
    return node;
}

static struct node *parse_primary(struct compiler *compiler, bool with_namespace)
{
    const struct token *token = kvr_token_now(compiler);
    struct node *node;
    char shown[80];
    deeper(compiler);
    if (token->kind == TOKEN_NAME) {
        node = parse_name(compiler, with_namespace);
    } else if (token->kind == TOKEN_STRING) {
        node = parse_string(compiler);
    } else if (token->kind == TOKEN_INTEGER) {
        node = parse_integer(compiler);
    } else if (token->kind == TOKEN_FLOAT) {
        node = parse_float(compiler);
    } else if (kvr_token_is(token, "(")) {
        kvr_token_next(compiler);
        if (kvr_token_is(kvr_token_now(compiler), ")"))
            node = kvr_parse_node(compiler, NODE_TUPLE, token->line);
        else
            node = kvr_parse_tuple(compiler, true, NULL);
        kvr_token_expect(compiler, ")");
    } else if (kvr_token_is(token, "[")) {
        node = parse_list(compiler);
    } else if (kvr_token_is(token, "{")) {
        node = parse_dict(compiler);
    } else {
        kvr_token_describe(token, shown);
        kvr_compile_fail(compiler, KVR_BAD_INPUT, token->line, "unexpected '%s'", shown);
    }
    compiler->depth--;
    return node;
}

static bool tuple_ends(const struct compiler *compiler, const char *end_name)
{
    const struct token *token = kvr_token_now(compiler);
    return token->kind == TOKEN_VARIABLE_END || token->kind == TOKEN_BLOCK_END ||
           kvr_token_is(token, ")") || (end_name && kvr_token_is_name(token, end_name));
}

/* One expression, or several with commas between them as a tuple. `simple`: only primaries, as the
 * targets of assignments are written. */
static struct node *parse_sequence(struct compiler *compiler, bool simple, bool with_condition,
    bool with_namespace, const char *end_name)
{
    struct node *tuple = kvr_parse_node(compiler, NODE_TUPLE, kvr_token_now(compiler)->line);
    bool is_tuple = false;
    char shown[80];
    for (;;) {
        if (tuple->items.count)
            kvr_token_expect(compiler, ",");
        if (tuple_ends(compiler, end_name))
            break;
        add_item(compiler, tuple,
            simple ? parse_primary(compiler, with_namespace)
                   : kvr_parse_expression(compiler, with_condition));
        if (!kvr_token_is(kvr_token_now(compiler), ","))
            break;
        is_tuple = true;
    }
    if (is_tuple)
        return tuple;
    if (!tuple->items.count) {
        kvr_token_describe(kvr_token_now(compiler), shown);
        kvr_compile_fail(compiler, KVR_BAD_INPUT, kvr_token_now(compiler)->line,
            "expected an expression, got '%s'", shown);
    }
    return tuple->items.items[0];
}

struct node *kvr_parse_tuple(struct compiler *compiler, bool with_condition, const char *end_name)
{
    return parse_sequence(compiler, false, with_condition, false, end_name);
}

static void check_target(struct compiler *compiler, const struct node *target)
{
    if (target->kind == NODE_TUPLE) {
        for (size_t i = 0; i < target->items.count; i++)
            check_target(compiler, target->items.items[i]);
    } else if (target->kind != NODE_NAME && target->kind != NODE_MEMBER) {
        kvr_compile_fail(compiler, KVR_BAD_INPUT, target->line, "cannot assign to an expression");
    } else if (target->kind == NODE_NAME && compiler->loops &&
               target->symbol == compiler->compiled->symbol_loop) {
        kvr_compile_fail(compiler, KVR_BAD_INPUT, target->line,
            "cannot assign to special loop variable in for-loop target");
    }
}

struct node *kvr_parse_target(
    struct compiler *compiler, const char *end_name, bool with_namespace, bool with_tuple)
{
    struct node *target;
    if (with_tuple) {
        target = parse_sequence(compiler, true, false, with_namespace, end_name);
    } else {
        const struct token *token = kvr_token_now(compiler);
        char shown[80];
        if (token->kind != TOKEN_NAME) {
            kvr_token_describe(token, shown);
            kvr_compile_fail(
                compiler, KVR_BAD_INPUT, token->line, "expected token 'name', got '%s'", shown);
        }
        target = parse_name(compiler, false);
    }
    check_target(compiler, target);
    return target;
}

/* ---- postfixes ---- */

static struct arguments *parse_arguments(struct compiler *compiler)
{
    struct arguments *arguments = kvr_compile_take(compiler, sizeof *arguments);
    unsigned line = kvr_token_now(compiler)->line;
    size_t capacity = 0;
    bool comma = false;
    kvr_token_expect(compiler, "(");
    while (!kvr_token_is(kvr_token_now(compiler), ")")) {
        bool wrong = false;
        if (comma) {
            kvr_token_expect(compiler, ",");
            if (kvr_token_is(kvr_token_now(compiler), ")"))
                break;
        }
        if (kvr_token_skip(compiler, "*")) {
            wrong = arguments->more_positional || arguments->more_keywords;
            arguments->more_positional = kvr_parse_expression(compiler, true);
        } else if (kvr_token_skip(compiler, "**")) {
            wrong = arguments->more_keywords;
            arguments->more_keywords = kvr_parse_expression(compiler, true);
        } else if (kvr_token_now(compiler)->kind == TOKEN_NAME &&
                   kvr_token_is(kvr_token_ahead(compiler), "=")) {
            const struct token *name = kvr_token_next(compiler);
            kvr_token_next(compiler);
            wrong = arguments->more_keywords;
            if (arguments->keyword_count == capacity) {
                struct argument *grown;
                capacity = capacity ? capacity * 2 : 4;
                grown = kvr_compile_take(compiler, capacity * sizeof *grown);
                if (arguments->keyword_count)
                    memcpy(grown, arguments->keywords, arguments->keyword_count * sizeof *grown);
                arguments->keywords = grown;
            }
            for (size_t i = 0; i < arguments->keyword_count; i++)
                if (kvr_token_is_name(name, arguments->keywords[i].name->data))
                    kvr_compile_fail(compiler, KVR_BAD_INPUT, name->line,
                        "keyword argument '%s' repeated", arguments->keywords[i].name->data);
            arguments->keywords[arguments->keyword_count++] =
                (struct argument){.name = kvr_compile_text(compiler, name->data, name->length),
                    .value = kvr_parse_expression(compiler, true)};
        } else {
            wrong =
                arguments->more_positional || arguments->more_keywords || arguments->keyword_count;
            kvr_body_add(compiler, &arguments->positional, kvr_parse_expression(compiler, true));
        }
        if (wrong)
            kvr_compile_fail(
                compiler, KVR_BAD_INPUT, line, "invalid syntax for function call expression");
        comma = true;
    }
    kvr_token_expect(compiler, ")");
    return arguments;
}

static void arguments_height(struct compiler *compiler, struct node *node)
{
    const struct arguments *arguments = node->arguments;
    if (!arguments)
        return;
    for (size_t i = 0; i < arguments->positional.count; i++)
        kvr_parse_height(compiler, node, arguments->positional.items[i]);
    for (size_t i = 0; i < arguments->keyword_count; i++)
        kvr_parse_height(compiler, node, arguments->keywords[i].value);
    kvr_parse_height(compiler, node, arguments->more_positional);
    kvr_parse_height(compiler, node, arguments->more_keywords);
}

static struct node *parse_call(struct compiler *compiler, struct node *callee)
{
    struct node *node = make(compiler, NODE_CALL, kvr_token_now(compiler)->line, callee, NULL);
    node->arguments = parse_arguments(compiler);
    arguments_height(compiler, node);
    return node;
}

/* "a.b.c", the name of a filter or test, into out[120]. */
static const char *dotted_name(struct compiler *compiler, char out[120])
{
    const struct token *token = kvr_token_expect_name(compiler);
    size_t used = 0;
    for (;;) {
        size_t length = token->length;
        if (length > 118 - used)
            length = 118 - used;
        memcpy(out + used, token->data, length);
        used += length;
        if (used >= 118 || !kvr_token_skip(compiler, "."))
            break;
        out[used++] = '.';
        token = kvr_token_expect_name(compiler);
    }
    out[used] = 0;
    return out;
}

struct node *kvr_parse_filters(struct compiler *compiler, struct node *node, bool inline_start)
{
    while (inline_start || kvr_token_is(kvr_token_now(compiler), "|")) {
        struct node *filter;
        char name[120];
        if (!inline_start)
            kvr_token_next(compiler);
        inline_start = false;
        filter = make(compiler, NODE_FILTER, kvr_token_now(compiler)->line, node, NULL);
        dotted_name(compiler, name);
        filter->filter = kvr_filter_find(name, strlen(name));
        filter->value = kvr_text_value(kvr_compile_text(compiler, name, strlen(name)));
        if (!filter->filter && !compiler->soft)
            kvr_compile_fail(compiler, KVR_BAD_INPUT, filter->line, "no filter named '%s'", name);
        if (kvr_token_is(kvr_token_now(compiler), "("))
            filter->arguments = parse_arguments(compiler);
        arguments_height(compiler, filter);
        node = filter;
    }
    return node;
}

static struct node *parse_test(struct compiler *compiler, struct node *tested)
{
    unsigned line = kvr_token_next(compiler)->line;
    bool negated = kvr_token_skip_name(compiler, "not");
    struct node *node = make(compiler, NODE_TEST, line, tested, NULL);
    const struct token *token;
    char name[120];
    dotted_name(compiler, name);
    node->test = kvr_test_find(name, strlen(name));
    node->value = kvr_text_value(kvr_compile_text(compiler, name, strlen(name)));
    if (!node->test && !compiler->soft)
        kvr_compile_fail(compiler, KVR_BAD_INPUT, line, "no test named '%s'", name);
    token = kvr_token_now(compiler);
    if (kvr_token_is(token, "(")) {
        node->arguments = parse_arguments(compiler);
    } else if ((token->kind >= TOKEN_NAME && token->kind <= TOKEN_FLOAT &&
                   !kvr_token_is_name(token, "else") && !kvr_token_is_name(token, "or") &&
                   !kvr_token_is_name(token, "and")) ||
               kvr_token_is(token, "[") || kvr_token_is(token, "{")) {
        if (kvr_token_is_name(token, "is"))
            kvr_compile_fail(
                compiler, KVR_BAD_INPUT, token->line, "you cannot chain multiple tests with is");
        node->arguments = kvr_compile_take(compiler, sizeof *node->arguments);
        kvr_body_add(compiler, &node->arguments->positional,
            parse_postfix(compiler, parse_primary(compiler, false)));
    }
    arguments_height(compiler, node);
    return negated ? make(compiler, NODE_NOT, line, node, NULL) : node;
}

static struct node *parse_subscript_part(struct compiler *compiler)
{
    const struct token *token = kvr_token_now(compiler);
    struct node *node = kvr_parse_node(compiler, NODE_SLICE, token->line);
    if (!kvr_token_is(token, ":")) {
        node->first = kvr_parse_expression(compiler, true);
        if (!kvr_token_is(kvr_token_now(compiler), ":"))
            return node->first;
    }
    kvr_token_expect(compiler, ":");
    token = kvr_token_now(compiler);
    if (!kvr_token_is(token, ":") && !kvr_token_is(token, "]") && !kvr_token_is(token, ","))
        node->second = kvr_parse_expression(compiler, true);
    if (kvr_token_skip(compiler, ":")) {
        token = kvr_token_now(compiler);
        if (!kvr_token_is(token, "]") && !kvr_token_is(token, ","))
            node->third = kvr_parse_expression(compiler, true);
    }
    kvr_parse_height(compiler, node, node->first);
    kvr_parse_height(compiler, node, node->second);
    kvr_parse_height(compiler, node, node->third);
    return node;
}

static struct node *parse_subscript(struct compiler *compiler, struct node *object)
{
    const struct token *token = kvr_token_next(compiler);
    struct node *key;
    if (kvr_token_is(token, ".")) {
        const struct token *name = kvr_token_now(compiler);
        if (name->kind == TOKEN_NAME) {
            struct node *node = make(compiler, NODE_ATTRIBUTE, token->line, object, NULL);
            kvr_token_next(compiler);
            node->value = kvr_text_value(kvr_compile_text(compiler, name->data, name->length));
            node->method = (uint16_t)kvr_method_find(name->data, name->length);
            return node;
        }
        if (name->kind != TOKEN_INTEGER)
            kvr_compile_fail(compiler, KVR_BAD_INPUT, name->line, "expected name or number");
        return make(compiler, NODE_ITEM, token->line, object, parse_integer(compiler));
    }
    key = kvr_parse_node(compiler, NODE_TUPLE, token->line);
    while (!kvr_token_is(kvr_token_now(compiler), "]")) {
        if (key->items.count)
            kvr_token_expect(compiler, ",");
        add_item(compiler, key, parse_subscript_part(compiler));
    }
    kvr_token_expect(compiler, "]");
    if (key->items.count == 1)
        return make(compiler, NODE_ITEM, token->line, object, key->items.items[0]);
    for (size_t i = 0; i < key->items.count; i++)
        if (key->items.items[i]->kind == NODE_SLICE)
            kvr_compile_fail(
                compiler, KVR_UNSUPPORTED, token->line, "slice with a comma is not supported");
    return make(compiler, NODE_ITEM, token->line, object, key);
}

static struct node *parse_postfix(struct compiler *compiler, struct node *node)
{
    for (;;) {
        const struct token *token = kvr_token_now(compiler);
        if (kvr_token_is(token, ".") || kvr_token_is(token, "["))
            node = parse_subscript(compiler, node);
        else if (kvr_token_is(token, "("))
            node = parse_call(compiler, node);
        else
            return node;
    }
}

static struct node *parse_unary(struct compiler *compiler, bool with_filter)
{
    const struct token *token = kvr_token_now(compiler);
    struct node *node;
    deeper(compiler);
    if (kvr_token_skip(compiler, "-"))
        node = make(compiler, NODE_NEGATIVE, token->line, parse_unary(compiler, false), NULL);
    else if (kvr_token_skip(compiler, "+"))
        node = make(compiler, NODE_POSITIVE, token->line, parse_unary(compiler, false), NULL);
    else
        node = parse_primary(compiler, false);
    node = parse_postfix(compiler, node);
    while (with_filter) {
        token = kvr_token_now(compiler);
        if (kvr_token_is(token, "|"))
            node = kvr_parse_filters(compiler, node, false);
        else if (kvr_token_is_name(token, "is"))
            node = parse_test(compiler, node);
        else if (kvr_token_is(token, "("))
            node = parse_call(compiler, node);
        else
            break;
    }
    compiler->depth--;
    return node;
}

/* ---- operators ---- */

static struct node *binary(struct compiler *compiler, enum operator op, unsigned line,
    struct node *left, struct node *right)
{
    struct node *node = make(compiler, NODE_BINARY, line, left, right);
    node->op = (uint8_t)op;
    return node;
}

static struct node *parse_power(struct compiler *compiler)
{
    struct node *left = parse_unary(compiler, true);
    while (kvr_token_is(kvr_token_now(compiler), "**")) {
        unsigned line = kvr_token_next(compiler)->line;
        left = binary(compiler, OP_POW, line, left, parse_unary(compiler, true));
    }
    return left;
}

static struct node *parse_product(struct compiler *compiler)
{
    static const char *const names[] = {"*", "/", "//", "%"};
    static const enum operator operators[] = {OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD};
    struct node *left = parse_power(compiler);
    for (size_t i = 0; i < 4;) {
        if (kvr_token_is(kvr_token_now(compiler), names[i])) {
            unsigned line = kvr_token_next(compiler)->line;
            left = binary(compiler, operators[i], line, left, parse_power(compiler));
            i = 0;
        } else {
            i++;
        }
    }
    return left;
}

static struct node *parse_concat(struct compiler *compiler)
{
    struct node *first = parse_product(compiler);
    struct node *node;
    if (!kvr_token_is(kvr_token_now(compiler), "~"))
        return first;
    node = kvr_parse_node(compiler, NODE_CONCAT, first->line);
    add_item(compiler, node, first);
    while (kvr_token_skip(compiler, "~"))
        add_item(compiler, node, parse_product(compiler));
    return node;
}

static struct node *parse_sum(struct compiler *compiler)
{
    struct node *left = parse_concat(compiler);
    for (;;) {
        const struct token *token = kvr_token_now(compiler);
        bool minus = kvr_token_is(token, "-");
        if (!minus && !kvr_token_is(token, "+"))
            return left;
        kvr_token_next(compiler);
        left = binary(compiler, minus ? OP_SUB : OP_ADD, token->line, left, parse_concat(compiler));
    }
}

static bool comparison(struct compiler *compiler, uint8_t *op)
{
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
    for (uint8_t i = 0; i < 6; i++) {
        if (kvr_token_skip(compiler, names[i])) {
            *op = (uint8_t)(OP_EQ + i);
            return true;
        }
    }
    if (kvr_token_skip_name(compiler, "in")) {
        *op = OP_IN;
        return true;
    }
    if (kvr_token_is_name(kvr_token_now(compiler), "not") &&
        kvr_token_is_name(kvr_token_ahead(compiler), "in")) {
        kvr_token_next(compiler);
        kvr_token_next(compiler);
        *op = OP_NOT_IN;
        return true;
    }
    return false;
}

static struct node *parse_comparison(struct compiler *compiler)
{
    unsigned line = kvr_token_now(compiler)->line;
    struct node *first = parse_sum(compiler);
    struct node *node = NULL;
    uint8_t op;
    while (comparison(compiler, &op)) {
        size_t count;
        if (!node)
            node = make(compiler, NODE_COMPARE, line, first, NULL);
        count = node->items.count;
        if ((count & (count - 1)) == 0) {
            uint8_t *grown = kvr_compile_take(compiler, count ? count * 2 : 1);
            if (count)
                memcpy(grown, node->operators, count);
            node->operators = grown;
        }
        node->operators[count] = op;
        add_item(compiler, node, parse_sum(compiler));
    }
    return node ? node : first;
}

static struct node *parse_not(struct compiler *compiler)
{
    struct node *node;
    if (!kvr_token_is_name(kvr_token_now(compiler), "not"))
        return parse_comparison(compiler);
    deeper(compiler);
    node = make(compiler, NODE_NOT, kvr_token_next(compiler)->line, NULL, NULL);
    node->first = parse_not(compiler);
    kvr_parse_height(compiler, node, node->first);
    compiler->depth--;
    return node;
}

static struct node *parse_and(struct compiler *compiler)
{
    struct node *left = parse_not(compiler);
    while (kvr_token_is_name(kvr_token_now(compiler), "and")) {
        unsigned line = kvr_token_next(compiler)->line;
        left = make(compiler, NODE_AND, line, left, parse_not(compiler));
    }
    return left;
}

static struct node *parse_or(struct compiler *compiler)
{
    struct node *left = parse_and(compiler);
    while (kvr_token_is_name(kvr_token_now(compiler), "or")) {
        unsigned line = kvr_token_next(compiler)->line;
        left = make(compiler, NODE_OR, line, left, parse_and(compiler));
    }
    return left;
}

struct node *kvr_parse_expression(struct compiler *compiler, bool with_condition)
{
    struct node *node;
    bool soft = compiler->soft;
    size_t start = compiler->position;
    deeper(compiler);
    if (with_condition) {
        /* A conditional expression makes unknown filters in it an error of the rendering only,
         * which is known when the "if" behind them is seen: look for it first. */
        unsigned depth = 0;
        for (size_t at = start; at < compiler->token_count && !compiler->soft; at++) {
            const struct token *token = &compiler->tokens[at];
            if (token->kind < TOKEN_NAME)
                break;
            if (token->kind == TOKEN_OPERATOR && strchr("([{", token->op[0]))
                depth++;
            if (token->kind == TOKEN_OPERATOR && strchr(")]}", token->op[0]) && depth-- == 0)
                break;
            if (!depth && (kvr_token_is(token, ",") || kvr_token_is(token, "=")))
                break;
            if (!depth && kvr_token_is_name(token, "if"))
                compiler->soft = true;
        }
    }
    node = parse_or(compiler);
    while (with_condition && kvr_token_is_name(kvr_token_now(compiler), "if")) {
        unsigned line = kvr_token_next(compiler)->line;
        struct node *condition = make(compiler, NODE_CONDITION, line, node, parse_or(compiler));
        if (kvr_token_skip_name(compiler, "else"))
            condition->third = kvr_parse_expression(compiler, true);
        kvr_parse_height(compiler, condition, condition->third);
        node = condition;
    }
    compiler->soft = soft;
    compiler->depth--;
    return node;
}
