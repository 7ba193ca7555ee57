#include "token/pattern_walk.h"
#include "base/grow.h"
#include "token/unicode.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 2048      /* places that a block of bits is for */
#define SPARE_BLOCKS 64 /* kept for the next text */
#define INLINE                                                                                     \
    inline __attribute__((always_inline)) /* a frame that is passed stays in registers             \
                                           */
#define STEPS_PER_BYTE 100       /* and one for each step of the program; models take 31 at most */
#define STEPS_AT_LEAST 100000000 /* some 0.3 s: possessive groups note nothing */
#define FRAME_LIMIT (512 * 1024 * 1024 / sizeof(struct kvr_walk_frame))

/* What to do when the way taken fails. */
enum after {
    TAKE_SECOND, /* of a split */
    NOTE_FAILED, /* a split: both its ways failed */
    TAKE_LESS,   /* a run: one character less */
    TAKE_MORE,   /* a lazy run: one more */
};

/* Where a walk is. moved: a bit for each loop of what may be empty, whether its present round has
 * taken a character; the round that has not ends the loop. A character is taken in all at once. */
struct place {
    uint32_t step;
    unsigned moved;
    size_t at;
};

struct kvr_walk_frame {
    uint32_t step : 20, after : 4, moved : 8; /* moved: of a run, where it starts */
    uint32_t at;
    uint32_t low; /* of a run: where it starts */
};

/* Greedy: [start, end) is the whole of a run from start on, and what follows fails in (top, end].
 * Lazy: what follows fails in [start, end). */
struct kvr_walk_run {
    bool known;
    size_t start, end;
    ptrdiff_t top;
};

enum outcome { FAILED, MATCHED, BROKEN };

/* Bits of BLOCK places; while in use and later, the next one that is. */
struct kvr_walk_block {
    uint64_t bits[BLOCK / 64];
    struct kvr_walk_block **place, *next;
};

static void forget(struct kvr_walk *walk)
{
    while (walk->used) {
        struct kvr_walk_block *block = walk->used;
        walk->used = block->next;
        *block->place = NULL;
        if (walk->spare_count == SPARE_BLOCKS) {
            free(block);
            continue;
        }
        memset(block->bits, 0, sizeof block->bits);
        block->next = walk->spare;
        walk->spare = block;
        walk->spare_count++;
    }
    walk->block_count = 0;
}

void kvr_walk_begin(struct kvr_walk *walk, const struct kvr_pattern_program *program,
    const uint8_t *text, size_t length)
{
    if (walk->program != program) {
        free(walk->runs);
        walk->runs = NULL;
    } else if (walk->runs && walk->steps) {
        memset(walk->runs, 0, program->run_count * sizeof *walk->runs);
    }
    forget(walk);
    walk->program = program;
    walk->all_moved = (1u << program->loop_count) - 1;
    walk->list_count = (size_t)program->split_count << program->loop_count;
    walk->text = text;
    walk->length = length;
    walk->steps = 0;
    walk->step_limit = STEPS_AT_LEAST + (uint64_t)length * (STEPS_PER_BYTE + program->step_count);
    walk->frame_count = 0;
    walk->status = KVR_OK;
}

void kvr_walk_release(struct kvr_walk *walk)
{
    forget(walk);
    free(walk->known[0]);
    free(walk->known[1]);
    while (walk->spare) {
        struct kvr_walk_block *block = walk->spare;
        walk->spare = block->next;
        free(block);
    }
    free(walk->frames);
    free(walk->runs);
    memset(walk, 0, sizeof *walk);
}

/* Memory for this text, when it is first searched. */
static bool prepare(struct kvr_walk *walk)
{
    const struct kvr_pattern_program *program = walk->program;
    size_t blocks = (walk->length / BLOCK + 1) * walk->list_count;

    if (walk->block_count)
        return true;
    if (blocks > walk->block_capacity) {
        for (int kind = 0; kind < 2; kind++) {
            free(walk->known[kind]);
            walk->known[kind] = calloc(blocks, sizeof **walk->known);
        }
        walk->block_capacity = walk->known[0] && walk->known[1] ? blocks : 0;
    }
    if (!walk->runs)
        walk->runs = calloc(program->run_count + 1, sizeof *walk->runs);
    walk->block_count = walk->block_capacity < blocks ? 0 : blocks;
    return walk->runs && walk->block_capacity >= blocks;
}

/* The number of the list of blocks for a split, one for each value of `moved`, and a place. */
static inline size_t block_of(const struct kvr_walk *walk, uint32_t memo, unsigned moved, size_t at)
{
    return at / BLOCK * walk->list_count + memo * (walk->all_moved + 1) + moved;
}

static inline bool is_known(
    const struct kvr_walk *walk, int kind, uint32_t memo, unsigned moved, size_t at)
{
    const struct kvr_walk_block *block = walk->known[kind][block_of(walk, memo, moved, at)];

    return block && block->bits[at % BLOCK / 64] >> at % 64 & 1;
}

static bool note(struct kvr_walk *walk, int kind, const struct kvr_walk_frame *frame)
{
    uint32_t memo = walk->program->steps[frame->step].memo;
    size_t at = frame->at;
    struct kvr_walk_block **place = &walk->known[kind][block_of(walk, memo, frame->moved, at)];

    if (!*place) {
        *place = walk->spare ? walk->spare : calloc(1, sizeof **place);
        if (!*place)
            return false;
        if (walk->spare) {
            walk->spare = walk->spare->next;
            walk->spare_count--;
        }
        (*place)->place = place;
        (*place)->next = walk->used;
        walk->used = *place;
    }
    (*place)->bits[at % BLOCK / 64] |= UINT64_C(1) << at % 64;
    return true;
}

/* Bytes of the character at `at` if it is in the set; 0 if not, or at the end. */
static inline unsigned in_set(const struct kvr_walk *walk, uint16_t number, size_t at)
{
    const struct kvr_pattern_set *set = walk->program->sets[number];
    const uint8_t *text = walk->text;
    unsigned size;

    if (at >= walk->length)
        return 0;
    if (text[at] < 0x80)
        return set->ascii[text[at] / 64] >> text[at] % 64 & 1;
    uint32_t character = kvr_utf8_decode(text + at, text + walk->length, &size);
    const uint64_t *bits = set->bits[set->block[character >> 8]];
    return bits[character % 256 / 64] >> character % 64 & 1 ? size : 0;
}

/* Where the character before `at` (> 0) starts. */
static size_t before(const struct kvr_walk *walk, size_t at)
{
    size_t start = at - 1;
    unsigned size;

    while (start && at - start < 4 && (walk->text[start] & 0xc0) == 0x80)
        start--;
    kvr_utf8_decode(walk->text + start, walk->text + at, &size);
    return start + size == at ? start : at - 1;
}

static __attribute__((noinline)) bool grow_frames(struct kvr_walk *walk)
{
    struct kvr_walk_frame *grown = kvr_grow_within(walk->frames, &walk->frame_capacity,
        walk->frame_count + 1, FRAME_LIMIT, sizeof *walk->frames);

    walk->frames = grown ? grown : walk->frames;
    if (!grown || walk->frame_count >= FRAME_LIMIT)
        walk->status = KVR_NO_MEMORY;
    return !walk->status;
}

static INLINE bool push(struct kvr_walk *walk, struct kvr_walk_frame frame)
{
    if (walk->frame_count == walk->frame_capacity && !grow_frames(walk))
        return false;
    walk->frames[walk->frame_count++] = frame;
    return true;
}

/* What is known of the run from `at` on, where it ends first of all. */
static struct kvr_walk_run *run_from(
    struct kvr_walk *walk, const struct kvr_pattern_step *step, size_t at)
{
    struct kvr_walk_run *run = &walk->runs[step->memo];
    size_t end = at;
    unsigned size;

    if (run->known && at >= run->start && at <= run->end)
        return run;
    while ((size = in_set(walk, step->set, end))) {
        end += size;
        walk->steps++;
        if (run->known && end == run->start) { /* all of a run, whose later part is known */
            run->start = at;
            return run;
        }
    }
    *run = (struct kvr_walk_run){.known = true, .start = at, .end = end, .top = (ptrdiff_t)end};
    return run;
}

/* Whether what is known of a run says nothing of this frame: it has taken no character where others
 * that came here had. */
static inline bool is_apart(const struct kvr_walk *walk, const struct kvr_walk_frame *frame)
{
    return frame->at == frame->low && frame->moved != walk->all_moved;
}

/* Goes on behind a run at the frame's place. */
static INLINE bool go_on(struct kvr_walk *walk, struct kvr_walk_frame frame, struct place *here)
{
    here->step = frame.step + 1;
    here->at = frame.at;
    here->moved = frame.at == frame.low ? frame.moved : walk->all_moved;
    return push(walk, frame);
}

/* Tries what follows a greedy run at the frame's place, or the next before it; false: at none. */
static INLINE bool take_less(struct kvr_walk *walk, struct kvr_walk_frame frame, struct place *here)
{
    const struct kvr_walk_run *run = &walk->runs[walk->program->steps[frame.step].memo];

    if (run->known && frame.at >= run->start && frame.at <= run->end &&
        (ptrdiff_t)frame.at > run->top && !is_apart(walk, &frame)) {
        frame.at = run->top > (ptrdiff_t)frame.low ? (uint32_t)run->top : frame.low;
        if (run->top < (ptrdiff_t)frame.low && !is_apart(walk, &frame))
            return false;
    }
    return go_on(walk, frame, here);
}

/* After what follows a greedy run failed at frame.at. */
static bool less_failed(struct kvr_walk *walk, struct kvr_walk_frame frame, struct place *here)
{
    struct kvr_walk_run *run = &walk->runs[walk->program->steps[frame.step].memo];
    ptrdiff_t next = frame.at ? (ptrdiff_t)before(walk, frame.at) : -1;

    if (run->known && frame.at >= run->start && frame.at <= run->end && run->top > next &&
        !is_apart(walk, &frame))
        run->top = next;
    if (next < (ptrdiff_t)frame.low)
        return false;
    frame.at = (uint32_t)next;
    return take_less(walk, frame, here);
}

/* Tries what follows a lazy run at the frame's place, or the next behind it that may do. */
static INLINE bool take_more(struct kvr_walk *walk, struct kvr_walk_frame frame, struct place *here)
{
    const struct kvr_walk_run *run = &walk->runs[walk->program->steps[frame.step].memo];

    if (run->known && frame.at >= run->start && frame.at < run->end && !is_apart(walk, &frame))
        frame.at = (uint32_t)run->end;
    return go_on(walk, frame, here);
}

/* After what follows a lazy run failed at frame.at. */
static bool more_failed(struct kvr_walk *walk, struct kvr_walk_frame frame, struct place *here)
{
    struct kvr_walk_run *run = &walk->runs[walk->program->steps[frame.step].memo];
    unsigned size = in_set(walk, walk->program->steps[frame.step].set, frame.at);
    size_t end = frame.at + size;

    if (is_apart(walk, &frame)) {
        /* nothing is learned */
    } else if (run->known && frame.at == run->end) {
        run->end = end;
    } else if (run->known && size && end == run->start) {
        run->start = frame.at;
    } else if (!run->known || frame.at < run->start || frame.at > run->end) {
        *run = (struct kvr_walk_run){.known = true, .start = frame.at, .end = end};
    }
    frame.at = (uint32_t)end;
    return size && take_more(walk, frame, here);
}

/* Goes back to the last choice above `base`; false: there is none. */
static bool go_back(struct kvr_walk *walk, size_t base, struct place *here)
{
    while (walk->frame_count > base && !walk->status) {
        struct kvr_walk_frame frame = walk->frames[--walk->frame_count];
        walk->steps++;
        switch (frame.after) {
        case TAKE_SECOND:
            *here = (struct place){walk->program->steps[frame.step].second, frame.moved, frame.at};
            frame.after = NOTE_FAILED;
            return walk->program->steps[frame.step].once || push(walk, frame);
        case NOTE_FAILED:
            if (!note(walk, 0, &frame))
                walk->status = KVR_NO_MEMORY;
            continue;
        case TAKE_LESS:
            if (less_failed(walk, frame, here))
                return true;
            continue;
        default:
            if (more_failed(walk, frame, here))
                return true;
        }
    }
    return false;
}

static enum outcome walk_from(
    struct kvr_walk *walk, uint32_t step, size_t at, bool looking, size_t *stop);

/* Whether a look holds at `at`; its splits that were come through are noted. */
static enum outcome look(struct kvr_walk *walk, const struct kvr_pattern_step *step, size_t at)
{
    size_t base = walk->frame_count, stop;

    for (uint32_t i = 0; i < step->back; i++) {
        if (!at)
            return step->negative ? MATCHED : FAILED;
        at = before(walk, at);
    }
    const struct kvr_pattern_step *inside = &walk->program->steps[step->first];
    if (inside->operation == KVR_OP_SET && inside[1].operation == KVR_OP_MATCH)
        return (in_set(walk, inside->set, at) != 0) != step->negative ? MATCHED : FAILED;
    enum outcome outcome = walk_from(walk, step->first, at, true, &stop);
    for (size_t i = base; i < walk->frame_count && outcome == MATCHED; i++)
        if (walk->frames[i].after <= NOTE_FAILED && !note(walk, 1, &walk->frames[i]))
            walk->status = KVR_NO_MEMORY;
    walk->frame_count = base;
    if (walk->status || outcome == BROKEN)
        return BROKEN;
    return (outcome == MATCHED) != step->negative ? MATCHED : FAILED;
}

static enum outcome take_run(
    struct kvr_walk *walk, const struct kvr_pattern_step *step, struct place *here)
{
    struct kvr_walk_frame frame = {
        here->step, TAKE_MORE, here->moved, (uint32_t)here->at, (uint32_t)here->at};

    if (step->mode == KVR_MODE_LAZY)
        return take_more(walk, frame, here) ? MATCHED : FAILED;
    frame.at = (uint32_t)run_from(walk, step, here->at)->end;
    frame.after = TAKE_LESS;
    if (step->mode != KVR_MODE_POSSESSIVE)
        return take_less(walk, frame, here) ? MATCHED : FAILED;
    here->step++;
    here->moved = frame.at == frame.low ? here->moved : walk->all_moved;
    here->at = frame.at;
    return MATCHED;
}

static enum outcome take_atomic(
    struct kvr_walk *walk, const struct kvr_pattern_step *step, struct place *here)
{
    size_t base = walk->frame_count, stop = here->at;
    enum outcome outcome = walk_from(walk, step->first, here->at, false, &stop);

    walk->frame_count = base;
    here->step = step->second;
    here->moved = stop == here->at ? here->moved : walk->all_moved;
    here->at = stop;
    return outcome;
}

/* One step, but a set or a split; MATCHED: went on from it. */
static enum outcome take_step(struct kvr_walk *walk, struct place *here)
{
    const struct kvr_pattern_step *step = &walk->program->steps[here->step];
    size_t at = here->at;
    enum outcome outcome = FAILED;
    bool holds = true;

    switch ((enum kvr_pattern_operation)step->operation) {
    case KVR_OP_JUMP:
        here->step = step->first;
        return MATCHED;
    case KVR_OP_RUN:
        return take_run(walk, step, here);
    case KVR_OP_LOOK:
        outcome = look(walk, step, at);
        here->step = step->second;
        return outcome;
    case KVR_OP_ATOMIC:
        return take_atomic(walk, step, here);
    case KVR_OP_ROUND:
        here->moved &= ~(1u << step->memo);
        break;
    case KVR_OP_ROUND_END:
        if (here->moved >> step->memo & 1) {
            here->step = step->first;
            return MATCHED;
        }
        break;
    case KVR_OP_LINE_START:
        holds = !at || (walk->text[at - 1] == '\n' && at < walk->length);
        break;
    case KVR_OP_LINE_END:
        holds = at == walk->length || walk->text[at] == '\n';
        break;
    case KVR_OP_TEXT_START:
        holds = !at;
        break;
    case KVR_OP_TEXT_END:
        holds = at == walk->length;
        break;
    default:
        return FAILED;
    }
    here->step++;
    return holds ? MATCHED : FAILED;
}

/* Whether a way that starts with these bytes can be taken. */
static inline bool may_take(const struct kvr_walk *walk, uint16_t map, size_t at)
{
    return map == KVR_NO_MAP ||
           (at < walk->length && kvr_byte_in(walk->program->maps[map], walk->text[at]));
}

/* Runs the program from a step to where it matches. Frames above those that it found stay, for
 * look(). */
static enum outcome walk_from(
    struct kvr_walk *walk, uint32_t number, size_t at, bool looking, size_t *stop)
{
    const struct kvr_pattern_step *steps = walk->program->steps;
    size_t base = walk->frame_count;
    unsigned moved = walk->all_moved;

    for (;;) {
        const struct kvr_pattern_step *step = &steps[number];
        enum outcome outcome = FAILED;
        unsigned size;
        for (; step->operation == KVR_OP_SET && (size = in_set(walk, step->set, at)); step++) {
            at += size;
            moved = walk->all_moved;
            walk->steps++;
        }
        number = (uint32_t)(step - steps);
        if (step->operation == KVR_OP_MATCH) {
            *stop = at;
            return MATCHED;
        }
        if (++walk->steps > walk->step_limit)
            walk->status = KVR_BAD_INPUT;
        if (step->operation == KVR_OP_SPLIT) {
            bool first = may_take(walk, step->maps[0], at);
            bool second = may_take(walk, step->maps[1], at);
            bool inside = step->loop == KVR_LOOP_FIRST ? first : step->loop && second;
            if (!inside && !(first && second)) {
                number = first ? step->first : step->second; /* no choice */
                continue;
            }
            if (looking && is_known(walk, 1, step->memo, moved, at)) {
                *stop = at; /* where it would end does not matter */
                return MATCHED;
            }
            if (step->once || !is_known(walk, 0, step->memo, moved, at)) {
                struct kvr_walk_frame frame = {
                    number, first ? TAKE_SECOND : NOTE_FAILED, moved, (uint32_t)at, 0};
                if (!push(walk, frame))
                    return BROKEN;
                number = first ? step->first : step->second;
                continue;
            }
        }
        struct place here = {number, moved, at};
        if (step->operation != KVR_OP_SET && step->operation != KVR_OP_SPLIT)
            outcome = take_step(walk, &here);
        if (walk->status || outcome == BROKEN)
            return BROKEN;
        if (outcome == FAILED && !go_back(walk, base, &here))
            return walk->status ? BROKEN : FAILED;
        number = here.step;
        moved = here.moved;
        at = here.at;
    }
}

enum kvr_status kvr_walk_find(
    struct kvr_walk *walk, size_t from, bool *found, size_t *start, size_t *stop)
{
    unsigned size;

    *found = false;
    const uint64_t *start_map =
        walk->program->start == KVR_NO_MAP ? NULL : walk->program->maps[walk->program->start];
    for (size_t at = from; at <= walk->length; at += size) {
        walk->frame_count = 0;
        size = 1;
        if (start_map && (at == walk->length || !kvr_byte_in(start_map, walk->text[at])))
            continue;
        if (!walk->block_count && !prepare(walk))
            return KVR_NO_MEMORY;
        enum outcome outcome = walk_from(walk, 0, at, false, stop);
        if (outcome == BROKEN)
            return walk->status;
        if (outcome == MATCHED) {
            *start = at;
            *found = true;
            return KVR_OK;
        }
        size = 1;
        if (at < walk->length)
            kvr_utf8_decode(walk->text + at, walk->text + walk->length, &size);
    }
    return KVR_OK;
}
