/* Numbers as Python's operators see them, for template_operators.c and template_arithmetic.c. */
#ifndef KVR_TOKEN_TEMPLATE_ARITHMETIC_H
#define KVR_TOKEN_TEMPLATE_ARITHMETIC_H

#include "token/template_internal.h"

typedef __int128 wide;

extern const char *const kvr_operator_names[]; /* as messages say them, by enum operator */

static inline bool is_integer(struct value value)
{
    return value.type == VALUE_BOOL || value.type == VALUE_INTEGER || value.type == VALUE_BIG;
}

static inline bool is_number(struct value value)
{
    return is_integer(value) || value.type == VALUE_FLOAT;
}

/* An integer as 128 bits; raises where it needs more. */
wide kvr_value_wide(struct run *run, struct value value);
struct value kvr_wide_value(struct run *run, wide number);

#endif
