#include "stat/tally.h"

#include <string.h>

const char *kvr_counter_text(enum kvr_counter counter)
{
    static const char *const texts[] = {
#define COUNTER(name, text, what) text,
#define SKETCH(name, text, what)
#include "stat/tally.def"
#undef COUNTER
#undef SKETCH
    };

    return texts[counter];
}

const char *kvr_sketch_text(enum kvr_sketch_name sketch)
{
    static const char *const texts[] = {
#define COUNTER(name, text, what)
#define SKETCH(name, text, what) text,
#include "stat/tally.def"
#undef COUNTER
#undef SKETCH
    };

    return texts[sketch];
}

void kvr_tally_release(struct kvr_tally *tally)
{
    for (int i = 0; i < KVR_SKETCH_COUNT; i++)
        kvr_sketch_release(&tally->sketches[i]);
    memset(tally->counters, 0, sizeof tally->counters);
}

void kvr_tally_clear(struct kvr_tally *tally)
{
    for (int i = 0; i < KVR_SKETCH_COUNT; i++)
        kvr_sketch_clear(&tally->sketches[i]);
    memset(tally->counters, 0, sizeof tally->counters);
}

bool kvr_tally_merge(struct kvr_tally *into, const struct kvr_tally *from)
{
    bool whole = true;

    for (int i = 0; i < KVR_COUNTER_COUNT; i++) {
        if (__builtin_add_overflow(into->counters[i], from->counters[i], &into->counters[i]))
            into->counters[i] = UINT64_MAX;
    }
    for (int i = 0; i < KVR_SKETCH_COUNT; i++)
        whole &= kvr_sketch_merge(&into->sketches[i], &from->sketches[i]);
    return whole;
}

bool kvr_tally_all_kinds(
    const struct kvr_tally *tally, enum kvr_sketch_name first, struct kvr_sketch *all)
{
    bool whole = true;

    for (int i = 0; i < KVR_KIND_COUNT; i++)
        whole &= kvr_sketch_merge(all, &tally->sketches[(int)first + i]);
    return whole;
}
