/* What the files share that turn template text into a tree: tokens, and memory of the tree. */
#ifndef KVR_TOKEN_TEMPLATE_COMPILE_H
#define KVR_TOKEN_TEMPLATE_COMPILE_H

#include "token/template_internal.h"

enum token_kind {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
};

struct token {
    uint8_t kind;
    char op[3]; /* an operator's own text, NUL-padded ("**", "//", "==") */
    unsigned line;
    const char *data;
    size_t length;
};

struct compiler {
    jmp_buf escape;
    struct kvr_error *error;
    enum kvr_status status;
    struct kvr_template *compiled;
    struct token *tokens;
    size_t token_count;
    size_t token_capacity;
    size_t position;
    unsigned depth;
    bool soft; /* inside an if: an unknown filter fails only when it runs */
    unsigned loops;
    struct signature *signature; /* of the innermost macro */
    struct {
        const char *const *ends; /* the tags that end the innermost body */
        const char *tag;
    } looking;
};

_Noreturn void kvr_compile_fail(struct compiler *compiler, enum kvr_status status, unsigned line,
    const char *format, ...) __attribute__((format(printf, 4, 5)));
void *kvr_compile_take(struct compiler *compiler, size_t bytes);
struct text *kvr_compile_text(struct compiler *compiler, const char *data, size_t length);
unsigned kvr_compile_symbol(struct compiler *compiler, const char *data, size_t length);
void kvr_compile_tokens(struct compiler *compiler, const char *source, size_t length);
struct body kvr_compile_template(struct compiler *compiler);
void kvr_body_add(struct compiler *compiler, struct body *body, struct node *node);

const struct token *kvr_token_now(const struct compiler *compiler);
const struct token *kvr_token_ahead(const struct compiler *compiler);
const struct token *kvr_token_next(struct compiler *compiler);
bool kvr_token_is(const struct token *token, const char *op);
bool kvr_token_is_name(const struct token *token, const char *name);
bool kvr_token_skip(struct compiler *compiler, const char *op);
bool kvr_token_skip_name(struct compiler *compiler, const char *name);
void kvr_token_expect(struct compiler *compiler, const char *op);
const struct token *kvr_token_expect_name(struct compiler *compiler);
void kvr_token_expect_kind(struct compiler *compiler, enum token_kind kind);
void kvr_token_describe(const struct token *token, char out[80]);

struct node *kvr_parse_node(struct compiler *compiler, enum node_kind kind, unsigned line);
struct node *kvr_parse_expression(struct compiler *compiler, bool with_condition);
struct node *kvr_parse_tuple(struct compiler *compiler, bool with_condition, const char *end_name);
struct node *kvr_parse_filters(struct compiler *compiler, struct node *node, bool inline_start);
struct node *kvr_parse_target(
    struct compiler *compiler, const char *end_name, bool with_namespace, bool with_tuple);
void kvr_parse_height(struct compiler *compiler, struct node *node, const struct node *child);

/* A node of two children, of which either may be NULL. */
struct node *kvr_parse_pair(struct compiler *compiler, enum node_kind kind, unsigned line,
    struct node *first, struct node *second);
struct node *kvr_parse_constant(struct compiler *compiler, unsigned line, struct value value);
void kvr_parse_item(struct compiler *compiler, struct node *node, struct node *item);
/* One level deeper in the text; the caller takes it back from compiler->depth. */
void kvr_parse_deeper(struct compiler *compiler);
struct node *kvr_parse_unary(struct compiler *compiler, bool with_filter);
struct node *kvr_parse_string(struct compiler *compiler);
struct node *kvr_parse_integer(struct compiler *compiler);
struct node *kvr_parse_float(struct compiler *compiler);

#endif
