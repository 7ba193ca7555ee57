/*
 * Statements: the tags of a template and the bodies between them.
 */
#include "token/template_compile.h"

#include <stdio.h>
#include <string.h>

static struct body parse_body(struct compiler *compiler, const char *const *ends);

/* "tag end", for messages: what the innermost open tag waits for. */
static void fail_open(struct compiler *compiler, unsigned line, const char *found)
{
    char wanted[120] = "";
    size_t used = 0;
    for (const char *const *end = compiler->looking.ends; end && *end; end++)
        used += (size_t)snprintf(
            wanted + used, sizeof wanted - used, "%s'%s'", used ? " or " : "", *end);
    if (!compiler->looking.ends)
        kvr_compile_fail(
            compiler, KVR_BAD_INPUT, line, "encountered unknown tag '%s'", found ? found : "");
    if (found)
        kvr_compile_fail(compiler, KVR_BAD_INPUT, line,
            "encountered unknown tag '%s'; looking for %s to close '%s'", found, wanted,
            compiler->looking.tag);
    kvr_compile_fail(compiler, KVR_BAD_INPUT, line,
        "unexpected end of template; looking for %s to close '%s'", wanted, compiler->looking.tag);
}

/* The body of a tag up to one of the names in `ends`, which is left as the current token. */
static struct body parse_block(struct compiler *compiler, const char *tag, const char *const *ends)
{
    const char *const *outer_ends = compiler->looking.ends;
    const char *outer_tag = compiler->looking.tag;
    struct body body;
    if (++compiler->depth > 600)
        kvr_compile_fail(
            compiler, KVR_BAD_INPUT, kvr_token_now(compiler)->line, "nested too deeply");
    kvr_token_skip(compiler, ":");
    kvr_token_expect_kind(compiler, TOKEN_BLOCK_END);
    compiler->looking.ends = ends;
    compiler->looking.tag = tag;
    body = parse_body(compiler, ends);
    compiler->looking.ends = outer_ends;
    compiler->looking.tag = outer_tag;
    compiler->depth--;
    return body;
}

static struct body parse_block_to(struct compiler *compiler, const char *tag, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct body body = parse_block(compiler, tag, ends);
    kvr_token_next(compiler);
    return body;
}

static void body_height(struct compiler *compiler, struct node *node, const struct body *body)
{
    for (size_t i = 0; i < body->count; i++)
        kvr_parse_height(compiler, node, body->items[i]);
}

static struct node *parse_if(struct compiler *compiler, unsigned line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *node = kvr_parse_node(compiler, NODE_IF, line);
    const struct token *token;
    bool soft = compiler->soft;
    compiler->soft = true;
    node->first = kvr_parse_tuple(compiler, false, NULL);
    node->items = parse_block(compiler, "if", ends);
    token = kvr_token_next(compiler);
    if (kvr_token_is_name(token, "elif")) {
        struct node *rest;
        if (++compiler->depth > 600)
            kvr_compile_fail(compiler, KVR_BAD_INPUT, token->line, "nested too deeply");
        rest = parse_if(compiler, token->line);
        compiler->depth--;
        kvr_body_add(compiler, &node->otherwise, rest);
    } else if (kvr_token_is_name(token, "else")) {
        node->otherwise = parse_block_to(compiler, "if", "endif");
    }
    compiler->soft = soft;
    kvr_parse_height(compiler, node, node->first);
    body_height(compiler, node, &node->items);
    body_height(compiler, node, &node->otherwise);
    return node;
}

static struct node *parse_for(struct compiler *compiler, unsigned line)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct node *node = kvr_parse_node(compiler, NODE_FOR, line);
    bool soft = compiler->soft;
    compiler->loops++;
    node->first = kvr_parse_target(compiler, "in", false, true);
    if (!kvr_token_skip_name(compiler, "in"))
        kvr_token_expect(compiler, "in");
    node->second = kvr_parse_tuple(compiler, false, "recursive");
    compiler->soft = false;
    if (kvr_token_skip_name(compiler, "if"))
        node->third = kvr_parse_expression(compiler, true);
    node->flag = kvr_token_skip_name(compiler, "recursive");
    node->items = parse_block(compiler, "for", ends);
    compiler->loops--;
    if (kvr_token_is_name(kvr_token_next(compiler), "else"))
        node->otherwise = parse_block_to(compiler, "for", "endfor");
    compiler->soft = soft;
    kvr_parse_height(compiler, node, node->second);
    kvr_parse_height(compiler, node, node->third);
    body_height(compiler, node, &node->items);
    body_height(compiler, node, &node->otherwise);
    return node;
}

static struct node *parse_set(struct compiler *compiler, unsigned line)
{
    struct node *node = kvr_parse_node(compiler, NODE_SET, line);
    node->first = kvr_parse_target(compiler, NULL, true, true);
    if (kvr_token_skip(compiler, "=")) {
        node->second = kvr_parse_tuple(compiler, true, NULL);
        kvr_parse_height(compiler, node, node->second);
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    node->second = kvr_parse_filters(compiler, NULL, false);
    node->items = parse_block_to(compiler, "set", "endset");
    kvr_parse_height(compiler, node, node->second);
    body_height(compiler, node, &node->items);
    return node;
}

static void parse_signature(struct compiler *compiler, struct signature *signature)
{
    struct body names = {0};
    struct body defaults = {0};
    kvr_token_expect(compiler, "(");
    while (!kvr_token_is(kvr_token_now(compiler), ")")) {
        struct node *name;
        struct node *value = NULL;
        if (names.count)
            kvr_token_expect(compiler, ",");
        name = kvr_parse_target(compiler, NULL, false, false);
        if (name->kind != NODE_NAME)
            kvr_compile_fail(compiler, KVR_BAD_INPUT, name->line, "cannot assign to a constant");
        if (kvr_token_skip(compiler, "="))
            value = kvr_parse_expression(compiler, true);
        else if (defaults.count && defaults.items[defaults.count - 1])
            kvr_compile_fail(compiler, KVR_BAD_INPUT, name->line,
                "non-default argument follows default argument");
        for (size_t i = 0; i < names.count; i++)
            if (names.items[i]->symbol == name->symbol)
                kvr_compile_fail(compiler, KVR_BAD_INPUT, name->line, "duplicate argument '%s'",
                    name->value.text->data);
        kvr_body_add(compiler, &names, name);
        kvr_body_add(compiler, &defaults, value);
    }
    kvr_token_expect(compiler, ")");
    signature->count = names.count;
    signature->defaults = defaults.items;
    signature->names = kvr_compile_take(compiler, names.count * sizeof *signature->names + 1);
    signature->symbols = kvr_compile_take(compiler, names.count * sizeof *signature->symbols + 1);
    for (size_t i = 0; i < names.count; i++) {
        signature->names[i] = names.items[i]->value.text;
        signature->symbols[i] = names.items[i]->symbol;
    }
}

/* The body of a macro or call block. */
static void parse_macro_body(
    struct compiler *compiler, struct node *node, const char *tag, const char *end)
{
    struct signature *outer = compiler->signature;
    struct signature *signature = node->signature;
    bool soft = compiler->soft;
    unsigned loops = compiler->loops;
    compiler->signature = signature;
    compiler->soft = false;
    compiler->loops = 0;
    node->items = parse_block_to(compiler, tag, end);
    compiler->signature = outer;
    compiler->soft = soft;
    compiler->loops = loops;
    body_height(compiler, node, &node->items);
    if (outer) {
        outer->uses_caller |= signature->uses_caller;
        outer->uses_varargs |= signature->uses_varargs;
        outer->uses_kwargs |= signature->uses_kwargs;
    }
    /* A parameter of that name takes the special meaning away. */
    for (size_t i = 0; i < signature->count; i++) {
        if (signature->symbols[i] == compiler->compiled->symbol_varargs)
            signature->uses_varargs = false;
        if (signature->symbols[i] == compiler->compiled->symbol_kwargs)
            signature->uses_kwargs = false;
        if (signature->symbols[i] == compiler->compiled->symbol_caller) {
            if (signature->uses_caller && !signature->defaults[i])
                kvr_compile_fail(compiler, KVR_BAD_INPUT, node->line,
                    "the special 'caller' argument must be omitted or be given a default");
            signature->uses_caller = false;
        }
    }
}

static struct node *parse_macro(struct compiler *compiler, unsigned line)
{
    struct node *node = kvr_parse_node(compiler, NODE_MACRO, line);
    struct node *name = kvr_parse_target(compiler, NULL, false, false);
    if (name->kind != NODE_NAME)
        kvr_compile_fail(compiler, KVR_BAD_INPUT, line, "cannot assign to a constant");
    node->signature = kvr_compile_take(compiler, sizeof *node->signature);
    node->signature->name = name->value.text;
    node->signature->symbol = name->symbol;
    parse_signature(compiler, node->signature);
    parse_macro_body(compiler, node, "macro", "endmacro");
    return node;
}

static struct node *parse_call_block(struct compiler *compiler, unsigned line)
{
    struct node *node = kvr_parse_node(compiler, NODE_CALL_BLOCK, line);
    node->signature = kvr_compile_take(compiler, sizeof *node->signature);
    if (kvr_token_is(kvr_token_now(compiler), "("))
        parse_signature(compiler, node->signature);
    node->first = kvr_parse_expression(compiler, true);
    if (node->first->kind != NODE_CALL)
        kvr_compile_fail(compiler, KVR_BAD_INPUT, line, "expected call");
    parse_macro_body(compiler, node, "call", "endcall");
    kvr_parse_height(compiler, node, node->first);
    return node;
}

static struct node *parse_filter_block(struct compiler *compiler, unsigned line)
{
    struct node *node = kvr_parse_node(compiler, NODE_FILTER_BLOCK, line);
    bool soft = compiler->soft;
    compiler->soft = false;
    node->second = kvr_parse_filters(compiler, NULL, true);
    node->items = parse_block_to(compiler, "filter", "endfilter");
    compiler->soft = soft;
    kvr_parse_height(compiler, node, node->second);
    body_height(compiler, node, &node->items);
    return node;
}

/* items: the body; otherwise: target, value, target, value. */
static struct node *parse_with(struct compiler *compiler, unsigned line)
{
    struct node *node = kvr_parse_node(compiler, NODE_WITH, line);
    bool soft = compiler->soft;
    while (kvr_token_now(compiler)->kind != TOKEN_BLOCK_END) {
        if (node->otherwise.count)
            kvr_token_expect(compiler, ",");
        kvr_body_add(compiler, &node->otherwise, kvr_parse_target(compiler, NULL, false, true));
        kvr_token_expect(compiler, "=");
        kvr_body_add(compiler, &node->otherwise, kvr_parse_expression(compiler, true));
    }
    compiler->soft = false;
    node->items = parse_block_to(compiler, "with", "endwith");
    compiler->soft = soft;
    body_height(compiler, node, &node->items);
    body_height(compiler, node, &node->otherwise);
    return node;
}

/* A body that is rendered where it stands, in a scope of its own. */
static struct node *parse_scope(
    struct compiler *compiler, unsigned line, const char *tag, const char *end)
{
    struct node *node = kvr_parse_node(compiler, NODE_SCOPE, line);
    bool soft = compiler->soft;
    compiler->soft = false;
    node->items = parse_block_to(compiler, tag, end);
    compiler->soft = soft;
    body_height(compiler, node, &node->items);
    return node;
}

static struct node *parse_named_block(struct compiler *compiler, unsigned line)
{
    const struct token *name = kvr_token_expect_name(compiler);
    struct node *node;
    kvr_token_skip_name(compiler, "scoped");
    if (kvr_token_is_name(kvr_token_now(compiler), "required"))
        kvr_compile_fail(compiler, KVR_UNSUPPORTED, line, "required block is not supported");
    node = parse_scope(compiler, line, "block", "endblock");
    if (kvr_token_now(compiler)->kind == TOKEN_NAME &&
        kvr_token_now(compiler)->length == name->length &&
        memcmp(kvr_token_now(compiler)->data, name->data, name->length) == 0)
        kvr_token_next(compiler);
    return node;
}

static struct node *parse_print(struct compiler *compiler, unsigned line)
{
    struct node *node = kvr_parse_node(compiler, NODE_OUTPUT, line);
    while (kvr_token_now(compiler)->kind != TOKEN_BLOCK_END) {
        if (node->items.count)
            kvr_token_expect(compiler, ",");
        kvr_body_add(compiler, &node->items, kvr_parse_expression(compiler, true));
    }
    body_height(compiler, node, &node->items);
    return node;
}

static struct node *parse_jump(struct compiler *compiler, enum node_kind kind, unsigned line)
{
    if (!compiler->loops)
        kvr_compile_fail(compiler, KVR_BAD_INPUT, line, "'%s' outside a loop",
            kind == NODE_BREAK ? "break" : "continue");
    return kvr_parse_node(compiler, kind, line);
}

static struct node *parse_generation(struct compiler *compiler, unsigned line)
{
    return parse_scope(compiler, line, "generation", "endgeneration");
}

static struct node *parse_break(struct compiler *compiler, unsigned line)
{
    return parse_jump(compiler, NODE_BREAK, line);
}

static struct node *parse_continue(struct compiler *compiler, unsigned line)
{
    return parse_jump(compiler, NODE_CONTINUE, line);
}

static const struct {
    const char *tag;
    struct node *(*parse)(struct compiler *compiler, unsigned line); /* NULL: not supported */
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"generation", parse_generation},
    {"block", parse_named_block},
    {"print", parse_print},
    {"break", parse_break},
    {"continue", parse_continue},
    {"include", NULL},
    {"import", NULL},
    {"from", NULL},
    {"extends", NULL},
    {"autoescape", NULL},
};

static struct node *parse_statement(struct compiler *compiler)
{
    const struct token *token = kvr_token_now(compiler);
    char shown[80];
    if (token->kind != TOKEN_NAME)
        kvr_compile_fail(compiler, KVR_BAD_INPUT, token->line, "tag name expected");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!kvr_token_is_name(token, statements[i].tag))
            continue;
        if (!statements[i].parse)
            kvr_compile_fail(compiler, KVR_UNSUPPORTED, token->line,
                "'%s' is not supported in a chat template", statements[i].tag);
        kvr_token_next(compiler);
        return statements[i].parse(compiler, token->line);
    }
    kvr_token_describe(token, shown);
    fail_open(compiler, token->line, shown);
    return NULL;
}

static struct node *add_output(struct compiler *compiler, struct body *body, struct node *output,
    struct node *node, unsigned line)
{
    if (!output) {
        output = kvr_parse_node(compiler, NODE_OUTPUT, line);
        kvr_body_add(compiler, body, output);
    }
    kvr_body_add(compiler, &output->items, node);
    kvr_parse_height(compiler, output, node);
    return output;
}

static struct body parse_body(struct compiler *compiler, const char *const *ends)
{
    struct body body = {0};
    struct node *output = NULL;
    for (;;) {
        const struct token *token = kvr_token_now(compiler);
        if (token->kind == TOKEN_END) {
            if (ends)
                fail_open(compiler, token->line, NULL);
            return body;
        }
        kvr_token_next(compiler);
        if (token->kind == TOKEN_DATA) {
            struct node *node = kvr_parse_node(compiler, NODE_CONSTANT, token->line);
            node->value = kvr_text_value(kvr_compile_text(compiler, token->data, token->length));
            output = add_output(compiler, &body, output, node, token->line);
        } else if (token->kind == TOKEN_VARIABLE_BEGIN) {
            struct node *node = kvr_parse_tuple(compiler, true, NULL);
            output = add_output(compiler, &body, output, node, token->line);
            kvr_token_expect_kind(compiler, TOKEN_VARIABLE_END);
        } else {
            output = NULL;
            for (const char *const *end = ends; end && *end; end++)
                if (kvr_token_is_name(kvr_token_now(compiler), *end))
                    return body;
            kvr_body_add(compiler, &body, parse_statement(compiler));
            kvr_token_expect_kind(compiler, TOKEN_BLOCK_END);
        }
    }
}

struct body kvr_compile_template(struct compiler *compiler)
{
    return parse_body(compiler, NULL);
}
