/*
 * Options that name a field take a jq expression. Plain paths (.a.b, .a["b c"], .a[0]) and
 * alternatives of them (.a.b // .c) are answered in place from the line; everything else runs in
 * libjq, which costs some microseconds a line and sees numbers as doubles.
 */
#ifndef KVR_LINE_EXPRESSION_H
#define KVR_LINE_EXPRESSION_H

#include "line/line.h"

struct kvr_expression;

/* Compiles jq text. KVR_BAD_USAGE with jq's own words when it does not compile. */
enum kvr_status kvr_expression_create(
    struct kvr_expression **expression, const char *text, struct kvr_error *error);

/* The same for a whole program as --map takes it, for kvr_expression_each(). */
enum kvr_status kvr_expression_create_program(
    struct kvr_expression **expression, const char *text, struct kvr_error *error);

void kvr_expression_destroy(struct kvr_expression *expression);

/* Whether it runs without libjq. */
bool kvr_expression_is_native(const struct kvr_expression *expression);

/*
 * The first result on a line; KVR_ABSENT when a native path finds nothing or jq gives no result.
 * The value points into the line or into the expression and lives until the next call on either.
 * KVR_BAD_INPUT when jq raises an error.
 */
enum kvr_status kvr_expression_evaluate(struct kvr_expression *expression,
    const struct kvr_line *line, struct kvr_value *value, struct kvr_error *error);

/*
 * Runs a program on one JSON text and calls emit() with each result as compact JSON. KVR_BAD_INPUT
 * when jq raises an error, or what emit returned when it is not KVR_OK.
 */
enum kvr_status kvr_expression_each(struct kvr_expression *expression, const char *text,
    size_t length, enum kvr_status (*emit)(void *context, const char *json, size_t length),
    void *context, struct kvr_error *error);

#endif
