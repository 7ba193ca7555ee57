/*
 * What a pattern's program can start with at each of its splits, and at its start: most ways are
 * seen to be none by the next byte, before they are taken.
 */
#include "base/grow.h"
#include "token/pattern_program.h"

#include <string.h>

#define VISIT_LIMIT 3000 /* steps looked at for one map; where it is met, no map is made */

struct visit {
    struct kvr_pattern_program *program;
    uint32_t *seen;   /* a number a step: the last visit that saw it */
    uint32_t *todo;   /* steps still to be looked at */
    uint32_t *atomic; /* of the end of an atomic group: where the group starts; else 0 */
    uint32_t number, todo_count;
    size_t map_capacity;
};

static void see(struct visit *visit, uint32_t step)
{
    if (visit->seen[step] == visit->number)
        return;
    visit->seen[step] = visit->number;
    visit->todo[visit->todo_count++] = step;
}

/* Adds the bytes that matches from a step on start with. False: they may take no character. */
static bool gather(struct visit *visit, uint32_t from, uint64_t map[4])
{
    const struct kvr_pattern_program *program = visit->program;
    bool known = true;

    visit->number++;
    visit->todo_count = 0;
    see(visit, from);
    for (uint32_t count = 0; visit->todo_count && known; count++) {
        uint32_t at = visit->todo[--visit->todo_count];
        const struct kvr_pattern_step *step = &program->steps[at];
        bool takes = step->operation == KVR_OP_SET || step->operation == KVR_OP_RUN;
        for (int i = 0; i < 4 && takes; i++)
            map[i] |= program->sets[step->set]->leads[i];
        switch ((enum kvr_pattern_operation)step->operation) {
        case KVR_OP_SET:
        case KVR_OP_FAIL:
            break;
        case KVR_OP_MATCH:
            /* what follows an atomic group does not choose the ways in it */
            known = visit->atomic[at] && (from < visit->atomic[at] || from > at);
            if (known)
                see(visit, at + 1);
            break;
        case KVR_OP_SPLIT:
            see(visit, step->second);
            see(visit, step->first);
            break;
        case KVR_OP_JUMP:
        case KVR_OP_ATOMIC:
            see(visit, step->first);
            break;
        case KVR_OP_LOOK:
            see(visit, step->second);
            break;
        case KVR_OP_ROUND_END:
            see(visit, step->first);
            see(visit, at + 1);
            break;
        default:
            see(visit, at + 1);
        }
        known = known && count < VISIT_LIMIT;
    }
    return known;
}

/* The number of a map, one that is there already where it is the same. */
static bool number_of(struct visit *visit, uint32_t from, uint16_t *number)
{
    struct kvr_pattern_program *program = visit->program;
    uint64_t map[4] = {0};

    *number = KVR_NO_MAP;
    if (!gather(visit, from, map) || program->map_count == KVR_NO_MAP)
        return true;
    for (size_t i = 0; i < program->map_count; i++) {
        if (memcmp(program->maps[i], map, sizeof map) == 0) {
            *number = (uint16_t)i;
            return true;
        }
    }
    void *grown = kvr_grow(program->maps, &visit->map_capacity, program->map_count + 1, sizeof map);
    if (!grown)
        return false;
    program->maps = grown;
    memcpy(program->maps[program->map_count], map, sizeof map);
    *number = (uint16_t)program->map_count++;
    return true;
}

bool kvr_pattern_find_starts(struct kvr_pattern_program *program)
{
    uint32_t count = program->step_count;
    struct visit visit = {.program = program,
        .seen = calloc(count, sizeof *visit.seen),
        .todo = calloc(count, sizeof *visit.todo),
        .atomic = calloc(count, sizeof *visit.atomic)};
    bool ok = visit.seen && visit.todo && visit.atomic;

    for (uint32_t i = 0; i < count && ok; i++)
        if (program->steps[i].operation == KVR_OP_ATOMIC)
            visit.atomic[program->steps[i].second - 1] = program->steps[i].first;
    ok = ok && number_of(&visit, 0, &program->start);
    for (uint32_t i = 0; i < count && ok; i++) {
        struct kvr_pattern_step *step = &program->steps[i];
        if (step->operation == KVR_OP_SPLIT)
            ok = number_of(&visit, step->first, &step->maps[0]) &&
                 number_of(&visit, step->second, &step->maps[1]);
    }
    free(visit.seen);
    free(visit.todo);
    free(visit.atomic);
    return ok;
}
