/*
 * What the files of the template interpreter share, one header an idea:
 *
 *     template_value.h   values, their memory, Python's operations on them
 *     template_text.h    strings
 *     template_tree.h    the compiled template
 *     template_run.h     a rendering: state, failure, calls, scopes, statements
 */
#ifndef KVR_TOKEN_TEMPLATE_INTERNAL_H
#define KVR_TOKEN_TEMPLATE_INTERNAL_H

#include "token/template_run.h"

#endif
