/*
 * always, min-length, max-length: rules that look at the prompt's length only.
 *
 * min-length is what providers do (prompts below 1024 tokens are not cached): a short prefix saves
 * little and its blocks still push out others. max-length keeps bulk jobs with very long prompts,
 * which are seldom asked twice, from sweeping the cache. A refused prompt may still hit.
 */
#include "cache/admission.h"

struct length_gate {
    struct kvr_gate gate;
    uint64_t tokens;
};

static const struct kvr_parameter min_parameters[] = {
    {"tokens", KVR_PARAMETER_INTEGER, "1024", NULL, 0, 1e15, "shortest prompt that is let in"},
};

static const struct kvr_parameter max_parameters[] = {
    {"tokens", KVR_PARAMETER_INTEGER, "32768", NULL, 0, 1e15, "longest prompt that is let in"},
};

static enum kvr_status length_init(struct kvr_gate *gate, const struct kvr_parameter_value *values,
    uint64_t seed, struct kvr_error *error)
{
    (void)seed, (void)error;
    ((struct length_gate *)gate)->tokens = (uint64_t)values[0].integer;
    return KVR_OK;
}

static bool min_admits(struct kvr_gate *gate, const struct kvr_admission_path *path, size_t at)
{
    (void)at;
    return path->tokens >= ((struct length_gate *)gate)->tokens;
}

static bool max_admits(struct kvr_gate *gate, const struct kvr_admission_path *path, size_t at)
{
    (void)at;
    return path->tokens <= ((struct length_gate *)gate)->tokens;
}

const struct kvr_admission_rule kvr_admission_always = {
    .name = "always",
    .summary = "every block",
    .source = "the engines' default",
    .size = sizeof(struct kvr_gate),
};

const struct kvr_admission_rule kvr_admission_min_length = {
    .name = "min-length",
    .summary = "blocks of prompts of at least so many tokens",
    .source = "prompt caches of API providers",
    .parameters = min_parameters,
    .parameter_count = 1,
    .size = sizeof(struct length_gate),
    .init = length_init,
    .admits = min_admits,
};

const struct kvr_admission_rule kvr_admission_max_length = {
    .name = "max-length",
    .summary = "blocks of prompts of at most so many tokens, against bulk jobs",
    .source = "size thresholds of web caches (LRU-Threshold, Abrams et al., 1995)",
    .parameters = max_parameters,
    .parameter_count = 1,
    .size = sizeof(struct length_gate),
    .init = length_init,
    .admits = max_admits,
};
