/*
 * Operators: one function a level of jinja2's grammar, loosest last: **, * / // %, ~, + -,
 * comparisons, not, and, or, the conditional expression. Note that `~` binds tighter than `+` and
 * that `**` is left-associative, as in jinja2.
 */
#include "token/template_compile.h"

#include <string.h>

void kvr_parse_deeper(struct compiler *compiler)
{
    if (++compiler->depth > 600)
        kvr_compile_fail(
            compiler, KVR_BAD_INPUT, kvr_token_now(compiler)->line, "nested too deeply");
}

struct node *kvr_parse_pair(struct compiler *compiler, enum node_kind kind, unsigned line,
    struct node *first, struct node *second)
{
    struct node *node = kvr_parse_node(compiler, kind, line);
    node->first = first;
    node->second = second;
    kvr_parse_height(compiler, node, first);
    kvr_parse_height(compiler, node, second);
    return node;
}

struct node *kvr_parse_constant(struct compiler *compiler, unsigned line, struct value value)
{
    struct node *node = kvr_parse_node(compiler, NODE_CONSTANT, line);
    node->value = value;
    return node;
}

void kvr_parse_item(struct compiler *compiler, struct node *node, struct node *item)
{
    kvr_body_add(compiler, &node->items, item);
    kvr_parse_height(compiler, node, item);
}

static struct node *binary(struct compiler *compiler, enum operator op, unsigned line,
    struct node *left, struct node *right)
{
    struct node *node = kvr_parse_pair(compiler, NODE_BINARY, line, left, right);
    node->op = (uint8_t)op;
    return node;
}

static struct node *parse_power(struct compiler *compiler)
{
    struct node *left = kvr_parse_unary(compiler, true);
    while (kvr_token_is(kvr_token_now(compiler), "**")) {
        unsigned line = kvr_token_next(compiler)->line;
        left = binary(compiler, OP_POW, line, left, kvr_parse_unary(compiler, true));
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
    kvr_parse_item(compiler, node, first);
    while (kvr_token_skip(compiler, "~"))
        kvr_parse_item(compiler, node, parse_product(compiler));
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
            node = kvr_parse_pair(compiler, NODE_COMPARE, line, first, NULL);
        count = node->items.count;
        if ((count & (count - 1)) == 0) {
            uint8_t *grown = kvr_compile_take(compiler, count ? count * 2 : 1);
            if (count)
                memcpy(grown, node->operators, count);
            node->operators = grown;
        }
        node->operators[count] = op;
        kvr_parse_item(compiler, node, parse_sum(compiler));
    }
    return node ? node : first;
}

static struct node *parse_not(struct compiler *compiler)
{
    struct node *node;
    if (!kvr_token_is_name(kvr_token_now(compiler), "not"))
        return parse_comparison(compiler);
    kvr_parse_deeper(compiler);
    node = kvr_parse_pair(compiler, NODE_NOT, kvr_token_next(compiler)->line, NULL, NULL);
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
        left = kvr_parse_pair(compiler, NODE_AND, line, left, parse_not(compiler));
    }
    return left;
}

static struct node *parse_or(struct compiler *compiler)
{
    struct node *left = parse_and(compiler);
    while (kvr_token_is_name(kvr_token_now(compiler), "or")) {
        unsigned line = kvr_token_next(compiler)->line;
        left = kvr_parse_pair(compiler, NODE_OR, line, left, parse_and(compiler));
    }
    return left;
}

struct node *kvr_parse_expression(struct compiler *compiler, bool with_condition)
{
    struct node *node;
    bool soft = compiler->soft;
    size_t start = compiler->position;
    kvr_parse_deeper(compiler);
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
        struct node *condition =
            kvr_parse_pair(compiler, NODE_CONDITION, line, node, parse_or(compiler));
        if (kvr_token_skip_name(compiler, "else"))
            condition->third = kvr_parse_expression(compiler, true);
        kvr_parse_height(compiler, condition, condition->third);
        node = condition;
    }
    compiler->soft = soft;
    compiler->depth--;
    return node;
}
