/*
 * A template as it is compiled: a tree of nodes in an arena of its own, names as numbers.
 */
#ifndef KVR_TOKEN_TEMPLATE_TREE_H
#define KVR_TOKEN_TEMPLATE_TREE_H

#include "token/template_value.h"

enum node_kind {
    NODE_CONSTANT,
    NODE_NAME,
    NODE_TUPLE,
    NODE_LIST,
    NODE_DICT, /* items: key, value, key, value */
    NODE_ATTRIBUTE,
    NODE_ITEM,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_NOT,
    NODE_AND,
    NODE_OR,
    NODE_CONDITION, /* first if second else third */
    NODE_COMPARE,   /* first, then items with operators */
    NODE_BINARY,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_CONCAT,
    NODE_MEMBER, /* namespace.attribute as a target */
    NODE_OUTPUT,
    NODE_IF, /* first: condition; body; else: `otherwise` */
    NODE_FOR,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_CALL_BLOCK,
    NODE_FILTER_BLOCK,
    NODE_WITH,
    NODE_SCOPE, /* block, generation: a body with a scope of its own */
    NODE_BREAK,
    NODE_CONTINUE,
};

struct body {
    struct node **items;
    size_t count;
};

struct argument {
    struct text *name; /* of a keyword argument */
    struct node *value;
};

struct arguments {
    struct body positional;
    struct argument *keywords;
    size_t keyword_count;
    struct node *more_positional; /* *args */
    struct node *more_keywords;   /* **kwargs */
};

struct signature {
    struct text *name; /* NULL: the body of a call block */
    unsigned symbol;
    struct text **names;
    unsigned *symbols;
    struct node **defaults; /* NULL where there is none */
    size_t count;
    bool uses_caller;
    bool uses_varargs;
    bool uses_kwargs;
};

struct node {
    uint8_t kind;
    uint8_t op;
    bool flag; /* recursive loop */
    uint16_t method;
    uint16_t height; /* of the tree under it */
    unsigned line;
    unsigned symbol;
    struct node *first;
    struct node *second;
    struct node *third;
    uint8_t *operators;
    struct body items;
    struct body otherwise;
    struct value value;
    struct arguments *arguments;
    struct signature *signature;
    const struct filter *filter; /* NULL: not known, found out when it runs */
    const struct test *test;
};

struct kvr_template {
    struct arena arena;
    struct body body;
    struct text **symbols;
    size_t symbol_count;
    size_t symbol_capacity;
    unsigned symbol_loop;
    unsigned symbol_caller;
    unsigned symbol_varargs;
    unsigned symbol_kwargs;
    char *source; /* normalised text, for kvr_template_mentions */
    size_t source_length;
};

#endif
