/*
 * What is counted about any set of requests: the whole run, one worker, one group of --by, one
 * window. Counters and sketches only, so that two tallies of disjoint sets add up to the tally of
 * their union, exactly and in any order. Every metric is a function of a tally (stat/metrics.h).
 *
 * Times are summed in whole microseconds for the same reason.
 */
#ifndef KVR_STAT_TALLY_H
#define KVR_STAT_TALLY_H

#include "stat/sketch.h"

enum kvr_counter {
#define COUNTER(name, text, what) KVR_COUNT_##name,
#define SKETCH(name, text, what)
#include "stat/tally.def"
#undef COUNTER
#undef SKETCH
    KVR_COUNTER_COUNT,
};

enum kvr_sketch_name {
#define COUNTER(name, text, what)
#define SKETCH(name, text, what) KVR_SKETCH_##name,
#include "stat/tally.def"
#undef COUNTER
#undef SKETCH
    KVR_SKETCH_COUNT,
};

/* The names in partials. */
const char *kvr_counter_text(enum kvr_counter counter);
const char *kvr_sketch_text(enum kvr_sketch_name sketch);

/* Whether a request begins a conversation or goes on with one; the offset of its sketches. */
enum kvr_kind { KVR_KIND_NEW, KVR_KIND_CONTINUED, KVR_KIND_UNKNOWN, KVR_KIND_COUNT };

/* A tally of all zero bytes is an empty tally. */
struct kvr_tally {
    uint64_t counters[KVR_COUNTER_COUNT];
    struct kvr_sketch sketches[KVR_SKETCH_COUNT];
};

void kvr_tally_release(struct kvr_tally *tally);
void kvr_tally_clear(struct kvr_tally *tally);

/* False when memory is short; what could be added then is added. */
bool kvr_tally_merge(struct kvr_tally *into, const struct kvr_tally *from);

/* The sketches of all kinds of conversation from `first` (…_NEW) on, added up into *all. */
bool kvr_tally_all_kinds(
    const struct kvr_tally *tally, enum kvr_sketch_name first, struct kvr_sketch *all);

#endif
