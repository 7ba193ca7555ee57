/*
 * A split pattern as a small program, for the walker that no text makes slow (pattern_walk.h).
 *
 * Made of the expression as pattern_rewrite.c writes it: literals, classes that list code points,
 * groups, alternatives, repetitions of all kinds, atomic groups, looks ahead and (of fixed length)
 * behind, ^ $ \A \z, and the options i and s. What else PCRE2 knows is "not supported" here: then
 * the pattern has no program, and PCRE2 alone runs it.
 */
#ifndef KVR_TOKEN_PATTERN_PROGRAM_H
#define KVR_TOKEN_PATTERN_PROGRAM_H

#include "base/error.h"
#include "token/pattern_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvr_pattern_operation {
    KVR_OP_MATCH,
    KVR_OP_FAIL,
    KVR_OP_SET,   /* one character of `set` */
    KVR_OP_JUMP,  /* to `first` */
    KVR_OP_SPLIT, /* try `first`, then `second`; memo: its number */
    KVR_OP_RUN,   /* any number of characters of `set`, then the next operation; memo: its number */
    KVR_OP_LOOK,  /* whether what stands at `first` matches here, `back` characters before */
    KVR_OP_ATOMIC,    /* what stands at `first`, as it matches first; then `second` */
    KVR_OP_ROUND,     /* of a loop of what may be empty; memo: its number */
    KVR_OP_ROUND_END, /* back to `first`, unless the round was empty */
    KVR_OP_LINE_START,
    KVR_OP_LINE_END,
    KVR_OP_TEXT_START,
    KVR_OP_TEXT_END,
};

enum kvr_pattern_mode { KVR_MODE_GREEDY, KVR_MODE_LAZY, KVR_MODE_POSSESSIVE };

enum kvr_pattern_loop { KVR_NO_LOOP, KVR_LOOP_FIRST, KVR_LOOP_SECOND };

#define KVR_NO_MAP UINT16_MAX

struct kvr_pattern_step {
    uint8_t operation, mode;
    bool negative; /* of a look */
    bool once;     /* a split that a place is met at once only: nothing need be kept of it */
    uint8_t loop;  /* of a split: which of its ways leads back to it */
    uint16_t set;
    uint16_t maps[2]; /* of a split: the bytes that its ways start with, or KVR_NO_MAP */
    uint32_t first, second, back, memo;
};

struct kvr_pattern_program {
    struct kvr_pattern_step *steps;
    uint32_t step_count, split_count, run_count;
    uint32_t loop_count; /* of what may be empty, at most 5 */
    struct kvr_pattern_set **sets;
    size_t set_count;
    uint64_t (*maps)[4]; /* sets of bytes */
    size_t map_count;
    uint16_t start; /* the map of a match's first byte, or KVR_NO_MAP */
};

/* KVR_UNSUPPORTED where the expression has no program (error may be NULL). `expression` is one that
 * PCRE2 has compiled. */
enum kvr_status kvr_pattern_program_create(struct kvr_pattern_program **program,
    const char *expression, size_t length, struct kvr_error *error);
/* The part of create that finds the maps; false: memory is short. */
bool kvr_pattern_find_starts(struct kvr_pattern_program *program);
void kvr_pattern_program_destroy(struct kvr_pattern_program *program);

#endif
