/*
 * Running a pattern's program so that no text makes it slow.
 *
 * A backtracking matcher takes long where it asks the same question again: whether what follows
 * this step of the pattern matches from this place of the text. The answer depends on the two
 * alone, not on how one came there: no back reference is read, and the start of a match does not
 * matter. So it is kept, for all searches of a text:
 *
 *   a split that failed       a bit for the split and the place
 *   a look ahead that held    the same, for the splits that it came through
 *   a run of one set          where the run ends, and from which of its places on what follows is
 *                             known to fail: a run of a million characters is gone over once,
 *                             whichever of its characters searches start at
 *
 * A split of which only one way can begin with the next byte is no choice, and is not noted, unless
 * that way leads round a loop: so every way round comes by a note.
 *
 * Each pair of step and place is then tried about once, and time is in proportion to the text. What
 * little is left (runs in loops in runs) is bounded by a number of steps a byte, and is an error.
 *
 * (Keeping answers is Norvig's of 1991; for a choice of the steps: Davis, Servant, Lee, "Using
 * Selective Memoization to Defeat Regular Expression Denial of Service", 2021.)
 */
#ifndef KVR_TOKEN_PATTERN_WALK_H
#define KVR_TOKEN_PATTERN_WALK_H

#include "token/pattern_program.h"

/* What is known of one text. All zero bytes is ready. */
struct kvr_walk {
    const struct kvr_pattern_program *program;
    const uint8_t *text;
    size_t length;
    uint64_t steps, step_limit; /* taken in this text, and how many may be */
    size_t list_count;          /* of blocks, for as many places as a block has */
    unsigned all_moved;         /* see struct place */
    struct kvr_walk_frame *frames;
    size_t frame_count, frame_capacity;
    struct kvr_walk_run *runs;
    struct kvr_walk_block **known[2]; /* bits, by place and split: it fails; it holds (in a look) */
    struct kvr_walk_block *used, *spare;
    unsigned spare_count;
    size_t block_count, block_capacity;
    enum kvr_status status;
};

/* Forgets what is known and turns to text[0, length), which must stay as it is; length is below
 * 2^32 - 1. */
void kvr_walk_begin(struct kvr_walk *walk, const struct kvr_pattern_program *program,
    const uint8_t *text, size_t length);
void kvr_walk_release(struct kvr_walk *walk);

/* The first match that starts at `from` or later. *found: there is one. KVR_BAD_INPUT: too many
 * steps; KVR_NO_MEMORY; both without a text. */
enum kvr_status kvr_walk_find(
    struct kvr_walk *walk, size_t from, bool *found, size_t *start, size_t *stop);

#endif
