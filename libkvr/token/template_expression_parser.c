/*
 * Primary expressions and what is hung on to them: names, literals, tuples, lists, dicts, then
 * attributes, subscripts, calls, filters and tests. A unary minus takes the filters after it only
 * at the outside, as in jinja2.
 */
#include "token/template_compile.h"

#include <string.h>

static struct node *parse_postfix(struct compiler *compiler, struct node *node);
static struct node *parse_primary(struct compiler *compiler, bool with_namespace);

/* ---- primaries ---- */

static struct node *parse_list(struct compiler *compiler)
{
    struct node *node = kvr_parse_node(compiler, NODE_LIST, kvr_token_next(compiler)->line);
    while (!kvr_token_is(kvr_token_now(compiler), "]")) {
        if (node->items.count)
            kvr_token_expect(compiler, ",");
        if (kvr_token_is(kvr_token_now(compiler), "]"))
            break;
        kvr_parse_item(compiler, node, kvr_parse_expression(compiler, true));
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
        kvr_parse_item(compiler, node, kvr_parse_expression(compiler, true));
        kvr_token_expect(compiler, ":");
        kvr_parse_item(compiler, node, kvr_parse_expression(compiler, true));
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
        return kvr_parse_constant(compiler, token->line, kvr_bool(true));
    if (kvr_token_is_name(token, "false") || kvr_token_is_name(token, "False"))
        return kvr_parse_constant(compiler, token->line, kvr_bool(false));
    if (kvr_token_is_name(token, "none") || kvr_token_is_name(token, "None"))
        return kvr_parse_constant(compiler, token->line, kvr_none());
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
    kvr_parse_deeper(compiler);
    if (token->kind == TOKEN_NAME) {
        node = parse_name(compiler, with_namespace);
    } else if (token->kind == TOKEN_STRING) {
        node = kvr_parse_string(compiler);
    } else if (token->kind == TOKEN_INTEGER) {
        node = kvr_parse_integer(compiler);
    } else if (token->kind == TOKEN_FLOAT) {
        node = kvr_parse_float(compiler);
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
        kvr_parse_item(compiler, tuple,
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
    struct node *node =
        kvr_parse_pair(compiler, NODE_CALL, kvr_token_now(compiler)->line, callee, NULL);
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
        filter = kvr_parse_pair(compiler, NODE_FILTER, kvr_token_now(compiler)->line, node, NULL);
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
    struct node *node = kvr_parse_pair(compiler, NODE_TEST, line, tested, NULL);
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
    return negated ? kvr_parse_pair(compiler, NODE_NOT, line, node, NULL) : node;
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
            struct node *node = kvr_parse_pair(compiler, NODE_ATTRIBUTE, token->line, object, NULL);
            kvr_token_next(compiler);
            node->value = kvr_text_value(kvr_compile_text(compiler, name->data, name->length));
            node->method = (uint16_t)kvr_method_find(name->data, name->length);
            return node;
        }
        if (name->kind != TOKEN_INTEGER)
            kvr_compile_fail(compiler, KVR_BAD_INPUT, name->line, "expected name or number");
        return kvr_parse_pair(
            compiler, NODE_ITEM, token->line, object, kvr_parse_integer(compiler));
    }
    key = kvr_parse_node(compiler, NODE_TUPLE, token->line);
    while (!kvr_token_is(kvr_token_now(compiler), "]")) {
        if (key->items.count)
            kvr_token_expect(compiler, ",");
        kvr_parse_item(compiler, key, parse_subscript_part(compiler));
    }
    kvr_token_expect(compiler, "]");
    if (key->items.count == 1)
        return kvr_parse_pair(compiler, NODE_ITEM, token->line, object, key->items.items[0]);
    for (size_t i = 0; i < key->items.count; i++)
        if (key->items.items[i]->kind == NODE_SLICE)
            kvr_compile_fail(
                compiler, KVR_UNSUPPORTED, token->line, "slice with a comma is not supported");
    return kvr_parse_pair(compiler, NODE_ITEM, token->line, object, key);
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

struct node *kvr_parse_unary(struct compiler *compiler, bool with_filter)
{
    const struct token *token = kvr_token_now(compiler);
    struct node *node;
    kvr_parse_deeper(compiler);
    if (kvr_token_skip(compiler, "-"))
        node = kvr_parse_pair(
            compiler, NODE_NEGATIVE, token->line, kvr_parse_unary(compiler, false), NULL);
    else if (kvr_token_skip(compiler, "+"))
        node = kvr_parse_pair(
            compiler, NODE_POSITIVE, token->line, kvr_parse_unary(compiler, false), NULL);
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
