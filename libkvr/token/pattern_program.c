/*
 * Expression -> tree -> program. The tree is an array of nodes that name each other by number.
 */
#include "token/pattern_program.h"
#include "base/grow.h"
#include "token/unicode.h"

#include <stdlib.h>
#include <string.h>

#define GROUP_NESTING 48
#define STEP_LIMIT 30000
#define NODE_LIMIT 8000 /* they are gone through by recursion */
#define SPLIT_LIMIT 1000
#define SET_LIMIT 1000
#define LOOP_LIMIT 5     /* loops of what may be empty */
#define COUNT_LIMIT 1000 /* a repetition's numbers */
#define ENDLESS UINT32_MAX
#define NONE UINT32_MAX

enum kind {
    EMPTY,
    SET,
    SEQUENCE, /* a, then b */
    ALTERNATIVES,
    REPEAT,
    LOOK,
    ATOMIC,
    FAIL,
    LINE_START,
    LINE_END,
    TEXT_START,
    TEXT_END,
};

struct node {
    enum kind kind;
    enum kvr_pattern_mode mode;
    bool negative, behind;
    uint16_t set;
    uint32_t a, b, least, most;
};

struct parser {
    const char *text;
    size_t length, at;
    unsigned depth;
    bool caseless, dot_all;
    struct node *nodes;
    size_t node_count, node_capacity;
    struct kvr_pattern_set_source *sources; /* of each set, to know it again */
    size_t source_capacity, set_capacity, step_capacity;
    struct kvr_pattern_program *program;
    enum kvr_status status;
};

static uint32_t give_up(struct parser *in, enum kvr_status status)
{
    if (!in->status)
        in->status = status;
    return 0;
}

static uint32_t add_node(struct parser *in, struct node node)
{
    if (in->status)
        return 0;
    if (in->node_count >= NODE_LIMIT)
        return give_up(in, KVR_UNSUPPORTED);
    struct node *grown =
        kvr_grow(in->nodes, &in->node_capacity, in->node_count + 1, sizeof *in->nodes);
    if (!grown)
        return give_up(in, KVR_NO_MEMORY);
    in->nodes = grown;
    in->nodes[in->node_count] = node;
    return (uint32_t)in->node_count++;
}

static uint32_t add_pair(struct parser *in, enum kind kind, uint32_t a, uint32_t b)
{
    return add_node(in, (struct node){.kind = kind, .a = a, .b = b});
}

static char peek(const struct parser *in, size_t ahead)
{
    return in->at + ahead < in->length ? in->text[in->at + ahead] : '\0';
}

static bool accept(struct parser *in, const char *what)
{
    size_t length = strlen(what);

    if (in->length - in->at < length || memcmp(in->text + in->at, what, length) != 0)
        return false;
    in->at += length;
    return true;
}

/* The set that stands in text[start, at), one character of it. */
static uint32_t add_set(struct parser *in, size_t start)
{
    struct kvr_pattern_program *program = in->program;
    struct kvr_pattern_set_source source = {
        in->text + start, in->at - start, in->caseless, in->dot_all};
    size_t number = 0;

    if (in->status)
        return 0;
    for (; number < program->set_count; number++) {
        const struct kvr_pattern_set_source *known = &in->sources[number];
        if (known->length == source.length && known->caseless == source.caseless &&
            known->dot_all == source.dot_all &&
            memcmp(known->text, source.text, source.length) == 0)
            return add_node(in, (struct node){.kind = SET, .set = (uint16_t)number});
    }
    if (number == SET_LIMIT)
        return give_up(in, KVR_UNSUPPORTED);
    void *sources = kvr_grow(in->sources, &in->source_capacity, number + 1, sizeof *in->sources);
    if (sources)
        in->sources = sources;
    void *sets =
        kvr_grow(program->sets, &in->set_capacity, number + 1, sizeof(struct kvr_pattern_set *));
    if (sets)
        program->sets = sets;
    if (!sources || !sets)
        return give_up(in, KVR_NO_MEMORY);
    enum kvr_status status = kvr_pattern_set_create(&program->sets[number], &source);
    if (status)
        return give_up(in, status);
    in->sources[number] = source;
    program->set_count++;
    return add_node(in, (struct node){.kind = SET, .set = (uint16_t)number});
}

static uint32_t parse_alternatives(struct parser *in);

/* What stands up to the group's end. */
static uint32_t parse_inside(struct parser *in)
{
    uint32_t inside = 0;

    if (++in->depth > GROUP_NESTING)
        return give_up(in, KVR_UNSUPPORTED);
    inside = parse_alternatives(in);
    in->depth--;
    if (!accept(in, ")"))
        return give_up(in, KVR_UNSUPPORTED);
    return inside;
}

/* (?i) for what follows, or (?i:...) */
static uint32_t parse_options(struct parser *in, bool caseless, bool dot_all)
{
    bool on = true;

    for (; peek(in, 0) != ')' && peek(in, 0) != ':'; in->at++) {
        if (peek(in, 0) == '-')
            on = false;
        else if (peek(in, 0) == 'i')
            in->caseless = on;
        else if (peek(in, 0) == 's')
            in->dot_all = on;
        else
            return give_up(in, KVR_UNSUPPORTED);
    }
    if (accept(in, ")"))
        return add_node(in, (struct node){.kind = EMPTY});
    in->at++;
    uint32_t inside = parse_inside(in);
    in->caseless = caseless;
    in->dot_all = dot_all;
    return inside;
}

static uint32_t parse_group(struct parser *in)
{
    static const struct {
        const char *start;
        struct node node;
    } groups[] = {{"?=", {.kind = LOOK}}, {"?!", {.kind = LOOK, .negative = true}},
        {"?<=", {.kind = LOOK, .behind = true}},
        {"?<!", {.kind = LOOK, .behind = true, .negative = true}}, {"?>", {.kind = ATOMIC}}};
    bool caseless = in->caseless, dot_all = in->dot_all;
    uint32_t inside;

    if (accept(in, "?!)"))
        return add_node(in, (struct node){.kind = FAIL});
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (!accept(in, groups[i].start))
            continue;
        struct node node = groups[i].node;
        node.a = parse_inside(in);
        in->caseless = caseless;
        in->dot_all = dot_all;
        return add_node(in, node);
    }
    if (peek(in, 0) == '?' && peek(in, 1) != ':' && peek(in, 1) != '<' && peek(in, 1) != 'P') {
        in->at++;
        return parse_options(in, caseless, dot_all);
    }
    if (accept(in, "?<") || accept(in, "?P<")) { /* a name */
        while (peek(in, 0) && peek(in, 0) != '>')
            in->at++;
        in->at++;
    } else if (peek(in, 0) == '*' || (peek(in, 0) == '?' && !accept(in, "?:"))) {
        return give_up(in, KVR_UNSUPPORTED);
    }
    inside = parse_inside(in);
    in->caseless = caseless;
    in->dot_all = dot_all;
    return inside;
}

static uint32_t parse_atom(struct parser *in)
{
    size_t start = in->at;
    unsigned size = 1;

    if (accept(in, "("))
        return parse_group(in);
    if (accept(in, "^"))
        return add_node(in, (struct node){.kind = LINE_START});
    if (accept(in, "$"))
        return add_node(in, (struct node){.kind = LINE_END});
    if (accept(in, "\\A"))
        return add_node(in, (struct node){.kind = TEXT_START});
    if (accept(in, "\\z"))
        return add_node(in, (struct node){.kind = TEXT_END});
    if (peek(in, 0) == '\\' || peek(in, 0) == '[') {
        const char *end =
            memchr(in->text + in->at, peek(in, 0) == '[' ? ']' : '}', in->length - in->at);
        if (!end)
            return give_up(in, KVR_UNSUPPORTED);
        in->at = (size_t)(end - in->text) + 1;
        return add_set(in, start);
    }
    kvr_utf8_decode(
        (const uint8_t *)in->text + in->at, (const uint8_t *)in->text + in->length, &size);
    in->at += size;
    return add_set(in, start);
}

static bool read_number(struct parser *in, uint32_t *number)
{
    size_t start = in->at;

    for (*number = 0; peek(in, 0) >= '0' && peek(in, 0) <= '9' && *number < 100000; in->at++)
        *number = *number * 10 + (uint32_t)(peek(in, 0) - '0');
    return in->at > start;
}

/* * + ? {n} {n,} {n,m}; false: none. A brace that starts no repetition is itself. */
static bool read_repetition(struct parser *in, uint32_t *least, uint32_t *most)
{
    size_t start = in->at;

    *least = peek(in, 0) == '+';
    *most = peek(in, 0) == '?' ? 1 : ENDLESS;
    if (accept(in, "*") || accept(in, "+") || accept(in, "?"))
        return true;
    if (accept(in, "{") && read_number(in, least)) {
        *most = *least;
        if (accept(in, ",") && !read_number(in, most))
            *most = ENDLESS;
        if (accept(in, "}"))
            return true;
    }
    in->at = start;
    return false;
}

static uint32_t parse_sequence(struct parser *in)
{
    uint32_t all = NONE, least, most;

    while (in->at < in->length && peek(in, 0) != '|' && peek(in, 0) != ')' && !in->status) {
        uint32_t piece = parse_atom(in);
        while (!in->status && read_repetition(in, &least, &most)) {
            enum kvr_pattern_mode mode = accept(in, "?")   ? KVR_MODE_LAZY
                                         : accept(in, "+") ? KVR_MODE_POSSESSIVE
                                                           : KVR_MODE_GREEDY;
            if ((least > COUNT_LIMIT) | (most > COUNT_LIMIT && most != ENDLESS))
                give_up(in, KVR_UNSUPPORTED);
            piece = add_node(
                in, (struct node){
                        .kind = REPEAT, .mode = mode, .a = piece, .least = least, .most = most});
        }
        all = all == NONE ? piece : add_pair(in, SEQUENCE, all, piece);
    }
    return all == NONE ? add_node(in, (struct node){.kind = EMPTY}) : all;
}

static uint32_t parse_alternatives(struct parser *in)
{
    uint32_t all = parse_sequence(in);

    if (peek(in, 0) == '|' && !in->status) {
        in->at++;
        uint32_t others = parse_alternatives(in);
        all = add_pair(in, ALTERNATIVES, all, others);
    }
    return all;
}

/* Whether a node can match nothing. */
static bool matches_empty(const struct parser *in, uint32_t number)
{
    const struct node *node = &in->nodes[number];

    switch (node->kind) {
    case SET:
    case FAIL:
        return false;
    case SEQUENCE:
        return matches_empty(in, node->a) && matches_empty(in, node->b);
    case ALTERNATIVES:
        return matches_empty(in, node->a) || matches_empty(in, node->b);
    case REPEAT:
        return !node->least || matches_empty(in, node->a);
    case ATOMIC:
        return matches_empty(in, node->a);
    default:
        return true;
    }
}

/* The characters that a node takes; NONE: not always as many. */
static uint32_t width_of(const struct parser *in, uint32_t number)
{
    const struct node *node = &in->nodes[number];
    uint32_t a, b;

    switch (node->kind) {
    case SET:
        return 1;
    case SEQUENCE:
    case ALTERNATIVES:
        a = width_of(in, node->a);
        b = width_of(in, node->b);
        if (a == NONE || b == NONE)
            return NONE;
        return node->kind == SEQUENCE ? a + b : a == b ? a : NONE;
    case REPEAT:
        a = width_of(in, node->a);
        return a == NONE || node->least != node->most || a > COUNT_LIMIT ? NONE : a * node->least;
    case ATOMIC:
        return width_of(in, node->a);
    default:
        return 0;
    }
}

static uint32_t emit(struct parser *in, struct kvr_pattern_step step)
{
    struct kvr_pattern_program *program = in->program;

    if (in->status)
        return 0;
    if (program->step_count >= STEP_LIMIT || program->split_count > SPLIT_LIMIT)
        return give_up(in, KVR_UNSUPPORTED);
    void *grown = kvr_grow(
        program->steps, &in->step_capacity, program->step_count + 1, sizeof *program->steps);
    if (!grown)
        return give_up(in, KVR_NO_MEMORY);
    program->steps = grown;
    program->steps[program->step_count] = step;
    return program->step_count++;
}

static uint32_t emit_split(struct parser *in)
{
    return emit(in,
        (struct kvr_pattern_step){.operation = KVR_OP_SPLIT, .memo = in->program->split_count++});
}

/* Which way a split goes first: `inside`, which stands behind it, or, where lazy, the other. */
static void aim_split(struct parser *in, uint32_t split, uint32_t other, bool lazy)
{
    if (in->status)
        return;
    struct kvr_pattern_step *step = &in->program->steps[split];
    step->first = lazy ? other : split + 1;
    step->second = lazy ? split + 1 : other;
}

static void emit_node(struct parser *in, uint32_t number);

static uint32_t next_step(const struct parser *in)
{
    return in->program->step_count;
}

/* A program of its own for a look or an atomic group. */
static void emit_inner(struct parser *in, struct kvr_pattern_step step, uint32_t inside)
{
    uint32_t at = emit(in, step);

    emit_node(in, inside);
    emit(in, (struct kvr_pattern_step){.operation = KVR_OP_MATCH});
    if (!in->status) {
        in->program->steps[at].first = at + 1;
        in->program->steps[at].second = next_step(in);
    }
}

static void emit_repeat(struct parser *in, struct node node)
{
    bool lazy = node.mode == KVR_MODE_LAZY;

    for (uint32_t i = 0; i < node.least && !in->status; i++)
        emit_node(in, node.a);
    if (node.most == ENDLESS && in->nodes[node.a].kind == SET) {
        emit(in, (struct kvr_pattern_step){.operation = KVR_OP_RUN,
                     .mode = (uint8_t)node.mode,
                     .set = in->nodes[node.a].set,
                     .memo = in->program->run_count++});
    } else if (node.most == ENDLESS) {
        bool rounds = matches_empty(in, node.a);
        uint32_t split = emit_split(in), loop = in->program->loop_count;
        in->program->loop_count += rounds;
        if (in->program->loop_count > LOOP_LIMIT)
            give_up(in, KVR_UNSUPPORTED);
        if (rounds)
            emit(in, (struct kvr_pattern_step){.operation = KVR_OP_ROUND, .memo = loop});
        emit_node(in, node.a);
        emit(in, (struct kvr_pattern_step){.operation = rounds ? KVR_OP_ROUND_END : KVR_OP_JUMP,
                     .first = split,
                     .memo = loop});
        aim_split(in, split, next_step(in), lazy);
        if (!in->status)
            in->program->steps[split].loop = lazy ? KVR_LOOP_SECOND : KVR_LOOP_FIRST;
    } else if (node.most > node.least) {
        uint32_t first = next_step(in), count = node.most - node.least;
        for (uint32_t i = 0; i < count && !in->status; i++) {
            emit_split(in);
            emit_node(in, node.a);
        }
        /* each split, found again by the length of what it stands before */
        uint32_t end = next_step(in), stride = (end - first) / count;
        for (uint32_t i = 0; i < count && !in->status; i++)
            aim_split(in, first + i * stride, end, lazy);
    }
}

/* Alternatives of a look behind may be of different lengths: each is a look of its own. */
static void emit_behind(struct parser *in, struct node node)
{
    const struct node *inside = &in->nodes[node.a];
    uint32_t width = width_of(in, node.a);

    if (width == NONE && inside->kind == ALTERNATIVES) {
        struct node first = node, second = node;
        first.a = inside->a;
        second.a = inside->b;
        if (node.negative) {
            emit_behind(in, first);
            emit_behind(in, second);
            return;
        }
        uint32_t split = emit_split(in);
        emit_behind(in, first);
        uint32_t jump = emit(in, (struct kvr_pattern_step){.operation = KVR_OP_JUMP});
        aim_split(in, split, next_step(in), false);
        emit_behind(in, second);
        if (!in->status)
            in->program->steps[jump].first = next_step(in);
        return;
    }
    if (width == NONE) {
        give_up(in, KVR_UNSUPPORTED);
        return;
    }
    emit_inner(in,
        (struct kvr_pattern_step){
            .operation = KVR_OP_LOOK, .negative = node.negative, .back = width},
        node.a);
}

static void emit_node(struct parser *in, uint32_t number)
{
    if (in->status)
        return;
    struct node node = in->nodes[number];
    switch (node.kind) {
    case EMPTY:
        return;
    case SET:
        emit(in, (struct kvr_pattern_step){.operation = KVR_OP_SET, .set = node.set});
        return;
    case SEQUENCE:
        emit_node(in, node.a);
        emit_node(in, node.b);
        return;
    case ALTERNATIVES: {
        uint32_t split = emit_split(in);
        emit_node(in, node.a);
        uint32_t jump = emit(in, (struct kvr_pattern_step){.operation = KVR_OP_JUMP});
        aim_split(in, split, next_step(in), false);
        emit_node(in, node.b);
        if (!in->status)
            in->program->steps[jump].first = next_step(in);
        return;
    }
    case REPEAT:
        if (node.mode == KVR_MODE_POSSESSIVE &&
            !(node.most == ENDLESS && in->nodes[node.a].kind == SET)) {
            if (node.most == ENDLESS && matches_empty(in, node.a))
                give_up(in, KVR_UNSUPPORTED); /* what PCRE2 makes of it is not what is said */
            node.mode = KVR_MODE_GREEDY;
            uint32_t inside = add_node(in, node);
            emit_inner(in, (struct kvr_pattern_step){.operation = KVR_OP_ATOMIC}, inside);
            return;
        }
        emit_repeat(in, node);
        return;
    case LOOK:
        if (node.behind)
            emit_behind(in, node);
        else
            emit_inner(in,
                (struct kvr_pattern_step){.operation = KVR_OP_LOOK, .negative = node.negative},
                node.a);
        return;
    case ATOMIC:
        emit_inner(in, (struct kvr_pattern_step){.operation = KVR_OP_ATOMIC}, node.a);
        return;
    case FAIL:
        emit(in, (struct kvr_pattern_step){.operation = KVR_OP_FAIL});
        return;
    default:
        emit(in, (struct kvr_pattern_step){
                     .operation = (uint8_t)(node.kind - LINE_START + KVR_OP_LINE_START)});
    }
}

/* The splits of the alternatives of all of a pattern are come to where a search starts, and from
 * nowhere else. An alternative ends in a jump over those behind it. */
static void mark_outermost(struct kvr_pattern_program *program)
{
    struct kvr_pattern_step *steps = program->steps;

    for (uint32_t at = 0; steps[at].operation == KVR_OP_SPLIT && !steps[at].loop;
         at = steps[at].second) {
        uint32_t second = steps[at].second;
        if (second <= at || steps[second - 1].operation != KVR_OP_JUMP ||
            steps[second - 1].first <= second)
            return;
        steps[at].once = true;
    }
}

enum kvr_status kvr_pattern_program_create(struct kvr_pattern_program **program,
    const char *expression, size_t length, struct kvr_error *error)
{
    struct parser in = {.text = expression, .length = length};

    *program = in.program = calloc(1, sizeof **program);
    if (!in.program)
        return kvr_error_memory(error);
    uint32_t all = parse_alternatives(&in);
    if (in.at < length) /* a bracket too many */
        give_up(&in, KVR_UNSUPPORTED);
    emit_node(&in, all);
    emit(&in, (struct kvr_pattern_step){.operation = KVR_OP_MATCH});
    if (!in.status)
        mark_outermost(in.program);
    if (!in.status && !kvr_pattern_find_starts(in.program))
        in.status = KVR_NO_MEMORY;
    free(in.nodes);
    free(in.sources);
    if (in.status) {
        kvr_pattern_program_destroy(*program);
        *program = NULL;
        return in.status == KVR_UNSUPPORTED
                   ? kvr_error_set(error, KVR_UNSUPPORTED, "a split pattern without a program")
                   : kvr_error_memory(error);
    }
    return KVR_OK;
}

void kvr_pattern_program_destroy(struct kvr_pattern_program *program)
{
    if (!program)
        return;
    for (size_t i = 0; i < program->set_count; i++)
        kvr_pattern_set_destroy(program->sets[i]);
    free(program->sets);
    free(program->maps);
    free(program->steps);
    free(program);
}
