/*
 * Things chosen by name on a command line: "lru", "value(first=0.2)", lists
 * "lru,value(first=0.2)".
 */
#ifndef KVR_CACHE_CHOICE_H
#define KVR_CACHE_CHOICE_H

#include "cache/admission.h"
#include "cache/engine.h"
#include "cache/policy.h"

struct kvr_text_piece {
    const char *text;
    size_t length;
};

/* The next piece of a list, cut at `separator` outside parentheses, without spaces round it; *at
 * moves on. False at the end. */
bool kvr_list_next(struct kvr_text_piece *rest, char separator, struct kvr_text_piece *piece);

/* Parts "name(parameters)". KVR_BAD_USAGE where the parentheses do not match. */
enum kvr_status kvr_choice_split(struct kvr_text_piece text, struct kvr_text_piece *name,
    struct kvr_text_piece *parameters, struct kvr_error *error);

/* Each reads one choice with its parameters (defaults where not given) or fails with KVR_BAD_USAGE
 * and a message that lists what there is. */
enum kvr_status kvr_choice_policy(struct kvr_text_piece text, const struct kvr_policy **policy,
    struct kvr_parameter_value values[KVR_POLICY_PARAMETERS_MOST], struct kvr_error *error);
enum kvr_status kvr_choice_admission(struct kvr_text_piece text,
    const struct kvr_admission_rule **rule,
    struct kvr_parameter_value values[KVR_ADMISSION_PARAMETERS_MOST], struct kvr_error *error);

#endif
