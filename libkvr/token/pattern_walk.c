#include "token/pattern_walk.h"
#include "base/grow.h"
#include "token/unicode.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 2048         /* places that a block of bits is for */
#define STEPS_PER_BYTE 100 /* and one for each step of the program; models take 31 at most */
#define STEPS_AT_LEAST 1000000
#define FRAME_LIMIT (512 * 1024 * 1024 / sizeof(struct kvr_walk_frame))

/* What to do when the way taken fails. */
enum after {
    TAKE_SECOND, /* of a split */
    NOTE_FAILED, /* a split: both its ways failed */
    TAKE_LESS,   /* a run: one character less */
    TAKE_MORE,   /* a lazy run: one more */
};

struct kvr_walk_frame {
    uint32_t step : 28, after : 4;
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
        if (walk->spare) {
            free(block);
        } else {
            memset(block->bits, 0, sizeof block->bits);
            walk->spare = block;
        }
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
    walk->text = text;
    walk->length = length;
    walk->steps = 0;
    walk->frame_count = 0;
    walk->status = KVR_OK;
}

void kvr_walk_release(struct kvr_walk *walk)
{
    forget(walk);
    free(walk->known[0]);
    free(walk->known[1]);
    free(walk->spare);
    free(walk->frames);
    free(walk->runs);
    memset(walk, 0, sizeof *walk);
}

/* Memory for this text, when it is first searched. */
static bool prepare(struct kvr_walk *walk)
{
    const struct kvr_pattern_program *program = walk->program;
    size_t blocks = (walk->length / BLOCK + 1) * program->split_count;

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

static bool is_known(const struct kvr_walk *walk, int kind, uint32_t memo, size_t at)
{
    const struct kvr_walk_block *block =
        walk->known[kind][at / BLOCK * walk->program->split_count + memo];

    return block && block->bits[at % BLOCK / 64] >> at % 64 & 1;
}

static bool note(struct kvr_walk *walk, int kind, uint32_t memo, size_t at)
{
    struct kvr_walk_block **place =
        &walk->known[kind][at / BLOCK * walk->program->split_count + memo];

    if (!*place) {
        *place = walk->spare ? walk->spare : calloc(1, sizeof **place);
        walk->spare = NULL;
        if (!*place)
            return false;
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

static bool push(struct kvr_walk *walk, uint32_t step, enum after after, size_t at, size_t low)
{
    if (walk->frame_count == walk->frame_capacity) {
        struct kvr_walk_frame *grown = kvr_grow_within(walk->frames, &walk->frame_capacity,
            walk->frame_count + 1, FRAME_LIMIT, sizeof *walk->frames);
        if (!grown || walk->frame_count >= FRAME_LIMIT) {
            walk->frames = grown ? grown : walk->frames;
            walk->status = KVR_NO_MEMORY;
            return false;
        }
        walk->frames = grown;
    }
    walk->frames[walk->frame_count++] =
        (struct kvr_walk_frame){step, after, (uint32_t)at, (uint32_t)low};
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

/* The next place of a greedy run, not behind *at, for what follows it to be tried; false: none. */
static bool take_less(struct kvr_walk *walk, uint32_t number, size_t *at, size_t low)
{
    const struct kvr_walk_run *run = &walk->runs[walk->program->steps[number].memo];

    if (run->known && *at >= run->start && *at <= run->end && (ptrdiff_t)*at > run->top) {
        if (run->top < (ptrdiff_t)low)
            return false;
        *at = (size_t)run->top;
    }
    return push(walk, number, TAKE_LESS, *at, low);
}

/* After what follows a greedy run failed at frame.at. */
static bool less_failed(struct kvr_walk *walk, struct kvr_walk_frame frame, size_t *at)
{
    struct kvr_walk_run *run = &walk->runs[walk->program->steps[frame.step].memo];
    ptrdiff_t next = frame.at ? (ptrdiff_t)before(walk, frame.at) : -1;

    if (run->known && frame.at >= run->start && frame.at <= run->end && run->top > next)
        run->top = next;
    if (next < (ptrdiff_t)frame.low)
        return false;
    *at = (size_t)next;
    return take_less(walk, frame.step, at, frame.low);
}

/* Where a lazy run goes on for what follows it to be tried, from *at on. */
static bool take_more(struct kvr_walk *walk, uint32_t number, size_t *at)
{
    const struct kvr_walk_run *run = &walk->runs[walk->program->steps[number].memo];

    if (run->known && *at >= run->start && *at < run->end)
        *at = run->end;
    return push(walk, number, TAKE_MORE, *at, 0);
}

/* After what follows a lazy run failed at frame.at. */
static bool more_failed(struct kvr_walk *walk, struct kvr_walk_frame frame, size_t *at)
{
    struct kvr_walk_run *run = &walk->runs[walk->program->steps[frame.step].memo];
    unsigned size = in_set(walk, walk->program->steps[frame.step].set, frame.at);

    if (run->known && frame.at == run->end) {
        run->end += size;
    } else if (run->known && size && frame.at + size == run->start) {
        run->start = frame.at;
    } else if (!run->known || frame.at < run->start || frame.at > run->end) {
        *run = (struct kvr_walk_run){.known = true, .start = frame.at, .end = frame.at + size};
    }
    *at = frame.at + size;
    return size && take_more(walk, frame.step, at);
}

/* Goes back to the last choice above `base`; false: there is none. */
static bool go_back(struct kvr_walk *walk, size_t base, uint32_t *number, size_t *at)
{
    while (walk->frame_count > base && !walk->status) {
        struct kvr_walk_frame frame = walk->frames[--walk->frame_count];
        const struct kvr_pattern_step *step = &walk->program->steps[frame.step];
        walk->steps++;
        switch (frame.after) {
        case TAKE_SECOND:
            *at = frame.at;
            *number = step->second;
            return push(walk, frame.step, NOTE_FAILED, frame.at, 0);
        case NOTE_FAILED:
            if (!note(walk, 0, step->memo, frame.at))
                walk->status = KVR_NO_MEMORY;
            continue;
        case TAKE_LESS:
            if (!less_failed(walk, frame, at))
                continue;
            *number = frame.step + 1;
            return true;
        default:
            if (!more_failed(walk, frame, at))
                continue;
            *number = frame.step + 1;
            return true;
        }
    }
    return false;
}

static enum outcome walk_from(
    struct kvr_walk *walk, uint32_t number, size_t at, bool looking, size_t *stop);

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
    for (size_t i = base; i < walk->frame_count && outcome == MATCHED; i++) {
        const struct kvr_walk_frame *frame = &walk->frames[i];
        if (frame->after <= NOTE_FAILED &&
            !note(walk, 1, walk->program->steps[frame->step].memo, frame->at))
            walk->status = KVR_NO_MEMORY;
    }
    walk->frame_count = base;
    if (walk->status || outcome == BROKEN)
        return BROKEN;
    return (outcome == MATCHED) != step->negative ? MATCHED : FAILED;
}

/* One step at *at, or many; MATCHED: went on to *number. */
static enum outcome take_step(struct kvr_walk *walk, uint32_t *number, size_t *at)
{
    const struct kvr_pattern_step *step = &walk->program->steps[*number];
    size_t base = walk->frame_count;
    enum outcome outcome = FAILED;
    bool holds;

    switch ((enum kvr_pattern_operation)step->operation) {
    case KVR_OP_JUMP:
        *number = step->first;
        return MATCHED;
    case KVR_OP_RUN:
        ++*number;
        if (step->mode == KVR_MODE_LAZY)
            return take_more(walk, *number - 1, at) ? MATCHED : FAILED;
        size_t low = *at;
        *at = run_from(walk, step, low)->end;
        if (step->mode == KVR_MODE_POSSESSIVE)
            return MATCHED;
        return take_less(walk, *number - 1, at, low) ? MATCHED : FAILED;
    case KVR_OP_LOOK:
        ++*number;
        outcome = look(walk, step, *at);
        *number = outcome == MATCHED ? step->second : *number;
        return outcome;
    case KVR_OP_ATOMIC:
        outcome = walk_from(walk, step->first, *at, false, at);
        walk->frame_count = base;
        *number = step->second;
        return outcome;
    case KVR_OP_LINE_START:
        holds = !*at || (walk->text[*at - 1] == '\n' && *at < walk->length);
        break;
    case KVR_OP_LINE_END:
        holds = *at == walk->length || walk->text[*at] == '\n';
        break;
    case KVR_OP_TEXT_START:
        holds = !*at;
        break;
    case KVR_OP_TEXT_END:
        holds = *at == walk->length;
        break;
    default:
        return FAILED;
    }
    ++*number;
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
    size_t base = walk->frame_count;
    uint64_t limit =
        STEPS_AT_LEAST + (uint64_t)walk->length * (STEPS_PER_BYTE + walk->program->step_count);

    for (;;) {
        const struct kvr_pattern_step *step = &walk->program->steps[number];
        enum outcome outcome = FAILED;
        unsigned size;
        for (; step->operation == KVR_OP_SET && (size = in_set(walk, step->set, at)); step++) {
            at += size;
            number++;
            walk->steps++;
        }
        if (step->operation == KVR_OP_MATCH) {
            *stop = at;
            return MATCHED;
        }
        if (++walk->steps > limit)
            walk->status = KVR_BAD_INPUT;
        if (step->operation == KVR_OP_SET) {
            outcome = FAILED;
        } else if (step->operation == KVR_OP_SPLIT) {
            bool first = may_take(walk, step->maps[0], at);
            bool second = may_take(walk, step->maps[1], at);
            bool inside = step->loop == KVR_LOOP_FIRST ? first : step->loop && second;
            if (!inside && !(first && second)) {
                number = first ? step->first : step->second; /* no choice */
                outcome = MATCHED;
            } else if (looking && is_known(walk, 1, step->memo, at)) {
                *stop = at; /* where it would end does not matter */
                return MATCHED;
            } else if (!is_known(walk, 0, step->memo, at)) {
                bool pushed = push(walk, number, first ? TAKE_SECOND : NOTE_FAILED, at, 0);
                outcome = pushed ? MATCHED : BROKEN;
                number = first ? step->first : step->second;
            }
        } else {
            outcome = take_step(walk, &number, &at);
        }
        if (walk->status || outcome == BROKEN)
            return BROKEN;
        if (outcome == FAILED && !go_back(walk, base, &number, &at))
            return walk->status ? BROKEN : FAILED;
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
