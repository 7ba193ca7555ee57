/*
 * A slow, obvious model of the block cache and its policies: an array of items, and for every
 * question a loop over all of them. No links, no heap, no table. Queues are ranks: the newest has
 * the largest. It states what each policy means; the fast ones are compared with it.
 */
#ifndef KVR_TESTS_POLICY_MODEL_H
#define KVR_TESTS_POLICY_MODEL_H

#include "base/random.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_ITEMS = 256, MODEL_LOG = 1 << 16 };

struct item {
    uint64_t id;
    int parent; /* index, -1: none */
    bool queued;
    int queue;      /* s3fifo, slru, arc: 0 or 1 */
    unsigned count; /* uses, as the policy counts them */
    double rank;    /* among queued: the smallest is the oldest */
    double touched; /* lru */
    double key;     /* gdsf, value */
    uint64_t stamp; /* gdsf, value, ttl: when the key was set */
    double time_ms; /* ttl */
};

struct ghost_list {
    uint64_t ids[MODEL_ITEMS * 4];
    int count, most;
};

struct model {
    const char *policy;
    bool plain;
    int capacity, count;
    struct item items[MODEL_ITEMS];
    double top, bottom; /* ranks given so far */
    uint64_t ticks, clock;
    unsigned depth;
    double now_ms, ttl_ms;
    const uint64_t *all; /* belady: every access to come */
    uint64_t all_count;
    uint64_t hand; /* sieve: id to be looked at next; 0: the oldest */
    struct kvr_random random;
    uint64_t members[MODEL_ITEMS]; /* random: candidates in the order of the swaps */
    int member_count;
    struct ghost_list ghosts[2];
    double target, inflation; /* arc; gdsf, value */
    int arc_miss;             /* 0 none, 1 in B1, 2 in B2 */
    bool was_ghost, ever_evicted, no_ghost;
    uint64_t evicted[MODEL_LOG]; /* ids in order */
    int evicted_count;
};

static bool is(const struct model *m, const char *name)
{
    return !strcmp(m->policy, name);
}

static int find_item(const struct model *m, uint64_t id)
{
    for (int i = 0; i < m->count; i++)
        if (m->items[i].id == id)
            return i;
    return -1;
}

static int count_queue(const struct model *m, int queue)
{
    int count = 0;

    for (int i = 0; i < m->count; i++)
        count += m->items[i].queue == queue;
    return count;
}

static bool has_children(const struct model *m, int item)
{
    for (int i = 0; i < m->count; i++)
        if (m->items[i].parent == item)
            return true;
    return false;
}

/* ── ghosts: a list with the oldest first ── */

static bool take_ghost(struct ghost_list *list, uint64_t id)
{
    for (int i = 0; i < list->count; i++)
        if (list->ids[i] == id) {
            memmove(list->ids + i, list->ids + i + 1,
                (size_t)(list->count - i - 1) * sizeof *list->ids);
            list->count--;
            return true;
        }
    return false;
}

static void add_ghost(struct ghost_list *list, uint64_t id)
{
    if (!list->most)
        return;
    if (list->count == list->most)
        take_ghost(list, list->ids[0]);
    list->ids[list->count++] = id;
}

/* ── what a use, an insertion, a place in the queue mean ── */

static uint64_t next_use(const struct model *m, uint64_t id)
{
    for (uint64_t i = m->clock + 1; i < m->all_count; i++)
        if (m->all[i] == id)
            return i;
    return UINT64_MAX;
}

static void model_hit(struct model *m, int at)
{
    struct item *item = &m->items[at];

    if (is(m, "clock") || is(m, "sieve"))
        item->count = 1;
    else if (!strncmp(m->policy, "s3fifo", 6))
        item->count += item->count < 3;
    else
        item->count++;
    if (is(m, "gdsf"))
        item->key = m->inflation + item->count;
    if (is(m, "value"))
        item->key = m->inflation + (item->count + 1) * (1 + 0.01 * m->depth);
    item->stamp = m->ticks++;
    item->time_ms = m->now_ms;
    if (is(m, "slru") || is(m, "arc"))
        item->queue = 1;
    bool moves = is(m, "lru") || is(m, "lfu") || is(m, "slru") || is(m, "arc") ||
                 !strncmp(m->policy, "belady", 6);
    if (item->queued && moves)
        item->rank = ++m->top;
    while (is(m, "slru") && count_queue(m, 1) > (int)(0.8 * m->capacity)) {
        int oldest = -1;
        for (int i = 0; i < m->count; i++)
            if (m->items[i].queued && m->items[i].queue == 1 &&
                (oldest < 0 || m->items[i].rank < m->items[oldest].rank))
                oldest = i;
        if (oldest < 0)
            break;
        m->items[oldest].queue = 0;
        m->items[oldest].rank = ++m->top;
    }
}

static void model_miss(struct model *m, uint64_t id)
{
    double b1 = m->ghosts[0].count, b2 = m->ghosts[1].count;

    m->was_ghost = !strncmp(m->policy, "s3fifo", 6) && take_ghost(&m->ghosts[0], id);
    m->arc_miss = 0;
    if (!is(m, "arc"))
        return;
    if (take_ghost(&m->ghosts[0], id)) {
        m->arc_miss = 1;
        m->target = fmin(m->target + fmax(1, b2 / b1), m->capacity);
    } else if (take_ghost(&m->ghosts[1], id)) {
        m->arc_miss = 2;
        m->target = fmax(m->target - fmax(1, b1 / b2), 0);
    }
}

static int small_most(const struct model *m)
{
    int most = (int)(0.1 * m->capacity);
    return most ? most : 1;
}

static int model_insert(struct model *m, uint64_t id, int parent)
{
    struct item *item = &m->items[m->count];

    memset(item, 0, sizeof *item);
    item->id = id;
    item->parent = parent;
    if (!strncmp(m->policy, "s3fifo", 6)) {
        bool cold = is(m, "s3fifo-cold") && !m->ever_evicted;
        /* the item itself is not counted yet */
        int in_small = 0;
        for (int i = 0; i < m->count; i++)
            in_small += m->items[i].queue == 0;
        item->queue = m->was_ghost || (cold && in_small >= small_most(m));
    }
    if (is(m, "arc"))
        item->queue = m->arc_miss != 0;
    if (is(m, "lfu") || is(m, "gdsf"))
        item->count = 1;
    item->key = m->inflation + (is(m, "value") ? (1 + 0.01 * m->depth) : 1);
    item->stamp = m->ticks++;
    item->time_ms = m->now_ms;
    m->arc_miss = 0;
    m->was_ghost = false;
    return m->count++;
}

static void model_queue(struct model *m, int at, bool fresh)
{
    struct item *item = &m->items[at];

    item->queued = true;
    m->members[m->member_count++] = item->id;
    if (fresh || !is(m, "sieve")) {
        item->rank = fresh ? ++m->top : --m->bottom;
        return;
    }
    /* under the hand: between what the hand has passed and what it looks at next */
    double next = INFINITY, passed = -INFINITY;
    int hand = m->hand ? find_item(m, m->hand) : -1;
    if (hand >= 0)
        next = m->items[hand].rank;
    for (int i = 0; i < m->count; i++)
        if (i != at && m->items[i].queued && m->items[i].rank < next && m->items[i].rank > passed)
            passed = m->items[i].rank;
    if (hand < 0)
        item->rank = --m->bottom;
    else
        item->rank = isinf(passed) ? next - 1 : (passed + next) / 2;
    if (item->rank < m->bottom)
        m->bottom = item->rank;
    m->hand = item->id;
}

/* The queued item with the smallest rank above `above`; -1: none. */
static int next_in_rank(const struct model *m, int queue, double above)
{
    int best = -1;

    for (int i = 0; i < m->count; i++)
        if (m->items[i].queued && (queue < 0 || m->items[i].queue == queue) &&
            m->items[i].rank > above && (best < 0 || m->items[i].rank < m->items[best].rank))
            best = i;
    return best;
}

static int oldest_of(const struct model *m, int queue)
{
    return next_in_rank(m, queue, -INFINITY);
}

static void model_unqueue(struct model *m, int at)
{
    struct item *item = &m->items[at];

    if (m->hand == item->id) {
        int newer = next_in_rank(m, -1, item->rank);
        m->hand = newer < 0 ? 0 : m->items[newer].id;
    }
    item->queued = false;
    for (int i = 0; i < m->member_count; i++)
        if (m->members[i] == item->id) {
            m->members[i] = m->members[--m->member_count];
            break;
        }
}

/* ── victims ── */

/* Whether a goes before b, for policies that are an order of all candidates. */
static bool goes_first(const struct model *m, const struct item *a, const struct item *b)
{
    if (is(m, "lfu"))
        return a->count != b->count ? a->count < b->count : a->rank < b->rank;
    if (is(m, "gdsf") || is(m, "value"))
        return a->key != b->key ? a->key < b->key : a->stamp < b->stamp;
    if (is(m, "ttl"))
        return a->time_ms != b->time_ms ? a->time_ms < b->time_ms : a->stamp < b->stamp;
    if (!strncmp(m->policy, "belady", 6)) {
        uint64_t next_a = next_use(m, a->id), next_b = next_use(m, b->id);
        return next_a != next_b ? next_a > next_b : a->rank < b->rank;
    }
    return a->rank < b->rank; /* fifo, lru */
}

static int clock_victim(struct model *m, int queue)
{
    int at;

    while ((at = oldest_of(m, queue)) >= 0 && m->items[at].count) {
        m->items[at].count--;
        m->items[at].rank = ++m->top;
    }
    return at;
}

static int sieve_victim(struct model *m)
{
    int at = m->hand ? find_item(m, m->hand) : oldest_of(m, -1);

    while (at >= 0 && m->items[at].count) {
        m->items[at].count = 0;
        int newer = next_in_rank(m, -1, m->items[at].rank);
        at = newer < 0 ? oldest_of(m, -1) : newer;
    }
    if (at >= 0)
        m->hand = m->items[at].id; /* unqueueing moves it on */
    return at;
}

static int small_victim(struct model *m)
{
    int at;

    while ((at = oldest_of(m, 0)) >= 0 && m->items[at].count >= 2) {
        m->items[at].count = 0;
        m->items[at].queue = 1;
        m->items[at].rank = ++m->top;
    }
    return at;
}

static int s3fifo_victim(struct model *m)
{
    int at = -1;

    m->ever_evicted = true;
    if (count_queue(m, 1) <= m->capacity - small_most(m))
        at = small_victim(m);
    if (at < 0)
        at = clock_victim(m, 1);
    return at < 0 ? small_victim(m) : at;
}

static int arc_victim(struct model *m)
{
    int t1 = count_queue(m, 0), t2 = count_queue(m, 1), at;
    int b1 = m->ghosts[0].count, b2 = m->ghosts[1].count;

    m->no_ghost = false;
    if (!m->arc_miss && t1 + b1 >= m->capacity) {
        if (t1 >= m->capacity) {
            at = oldest_of(m, 0);
            m->no_ghost = at >= 0;
            if (at >= 0)
                return at;
        } else if (b1) {
            take_ghost(&m->ghosts[0], m->ghosts[0].ids[0]);
        }
    } else if (!m->arc_miss && t1 + t2 + b1 + b2 >= 2 * m->capacity && b2) {
        take_ghost(&m->ghosts[1], m->ghosts[1].ids[0]);
    }
    bool from_t1 = t1 && (t1 > m->target || (t1 == m->target && m->arc_miss == 2));
    at = oldest_of(m, !from_t1);
    return at < 0 ? oldest_of(m, from_t1) : at;
}

static int model_victim(struct model *m)
{
    int best = -1;

    if (is(m, "random"))
        best =
            m->member_count
                ? find_item(m, m->members[kvr_random_below(&m->random, (uint32_t)m->member_count)])
                : -1;
    else if (is(m, "clock"))
        best = clock_victim(m, -1);
    else if (is(m, "sieve"))
        best = sieve_victim(m);
    else if (!strncmp(m->policy, "s3fifo", 6))
        best = s3fifo_victim(m);
    else if (is(m, "arc"))
        best = arc_victim(m);
    else if (is(m, "slru"))
        best = oldest_of(m, 0) >= 0 ? oldest_of(m, 0) : oldest_of(m, 1);
    else
        for (int i = 0; i < m->count; i++)
            if (m->items[i].queued && (best < 0 || goes_first(m, &m->items[i], &m->items[best])))
                best = i;
    if (best >= 0)
        model_unqueue(m, best);
    return best;
}

static void model_evict(struct model *m, int at)
{
    struct item gone = m->items[at];

    if ((is(m, "gdsf") || is(m, "value")) && gone.key > m->inflation)
        m->inflation = gone.key;
    if (!strncmp(m->policy, "s3fifo", 6) && gone.queue == 0)
        add_ghost(&m->ghosts[0], gone.id);
    if (is(m, "arc") && !m->no_ghost)
        add_ghost(&m->ghosts[gone.queue], gone.id);
    m->no_ghost = false;
    if (m->evicted_count < MODEL_LOG)
        m->evicted[m->evicted_count++] = gone.id;
    m->count--;
    memmove(m->items + at, m->items + at + 1, (size_t)(m->count - at) * sizeof *m->items);
    for (int i = 0; i < m->count; i++)
        m->items[i].parent -= m->items[i].parent > at;
    int parent = gone.parent > at ? gone.parent - 1 : gone.parent;
    if (parent >= 0 && !m->items[parent].queued && !has_children(m, parent))
        model_queue(m, parent, false);
}

static void model_expire(struct model *m)
{
    for (bool again = true; again && is(m, "ttl");) {
        again = false;
        int first = -1;
        for (int i = 0; i < m->count; i++)
            if (m->items[i].queued && (first < 0 || goes_first(m, &m->items[i], &m->items[first])))
                first = i;
        if (first >= 0 && m->now_ms - m->items[first].time_ms >= m->ttl_ms) {
            model_unqueue(m, first);
            model_evict(m, first);
            again = true;
        }
    }
}

static bool model_refuses(const struct model *m, uint64_t id, int victim)
{
    return is(m, "belady-bypass") && next_use(m, id) >= next_use(m, m->items[victim].id);
}

/* ── requests ── */

static int model_plain(struct model *m, const uint64_t *ids, int count, uint64_t clock)
{
    int hits = 0;

    for (int i = 0; i < count; i++) {
        int at = find_item(m, ids[i]);
        m->clock = clock + (uint64_t)i;
        m->depth = (unsigned)i;
        if (at >= 0) {
            hits++;
            model_hit(m, at);
            continue;
        }
        model_miss(m, ids[i]);
        if (m->count == m->capacity) {
            int victim = model_victim(m);
            if (model_refuses(m, ids[i], victim)) {
                model_queue(m, victim, false);
                continue;
            }
            model_evict(m, victim);
        }
        model_queue(m, model_insert(m, ids[i], -1), true);
    }
    return hits;
}

/* Leaf LRU, word for word as the reference figures' notes state it. */
static int model_leaf_lru(struct model *m, const uint64_t *ids, int count)
{
    int hits = 0, end;

    while (hits < count && find_item(m, ids[hits]) >= 0)
        hits++;
    for (int i = hits; i-- > 0;)
        m->items[find_item(m, ids[i])].touched = ++m->top;
    for (end = hits; end < count; end++) {
        if (m->count == m->capacity) {
            int oldest = 0;
            for (int i = 1; i < m->count; i++)
                if (m->items[i].touched < m->items[oldest].touched)
                    oldest = i;
            bool own = false;
            for (int i = 0; i < end; i++)
                own = own || m->items[oldest].id == ids[i];
            if (own)
                break;
            model_evict(m, oldest);
        }
        int at = model_insert(m, ids[end], end ? find_item(m, ids[end - 1]) : -1);
        m->items[at].touched = ++m->top;
        m->items[at].queued = true; /* nothing is an heir here */
    }
    for (int i = end; i-- > 0;)
        m->items[find_item(m, ids[i])].touched = ++m->top;
    return hits;
}

static int model_tree(struct model *m, const uint64_t *ids, int count, uint64_t clock)
{
    uint64_t aside[2];
    int hits = 0, asides = 0, end;

    while (hits < count && find_item(m, ids[hits]) >= 0)
        hits++;
    for (int i = hits; i-- > 0;) {
        m->clock = clock + (uint64_t)i;
        m->depth = (unsigned)i;
        model_hit(m, find_item(m, ids[i]));
    }
    uint64_t own = hits ? ids[hits - 1] : 0;
    for (end = hits; end < count; end++) {
        m->clock = clock + (uint64_t)end;
        m->depth = (unsigned)end;
        model_miss(m, ids[end]);
        if (m->count == m->capacity) {
            int victim = model_victim(m);
            if (victim >= 0 && m->items[victim].id == own) {
                aside[asides++] = own;
                victim = model_victim(m);
            }
            if (victim < 0)
                break;
            if (model_refuses(m, ids[end], victim)) {
                model_queue(m, victim, false);
                break;
            }
            model_evict(m, victim);
        }
        int parent = end ? find_item(m, ids[end - 1]) : -1;
        model_insert(m, ids[end], parent);
        if (parent >= 0 && m->items[parent].queued)
            model_unqueue(m, parent);
    }
    while (asides) {
        int at = find_item(m, aside[--asides]);
        if (!has_children(m, at) && !m->items[at].queued)
            model_queue(m, at, false);
    }
    if (end) {
        int tip = find_item(m, ids[end - 1]);
        if (!has_children(m, tip) && !m->items[tip].queued)
            model_queue(m, tip, true);
    }
    return hits;
}

/* Serves a request whose first block is access number `clock`; returns the blocks hit. */
static int model_serve(struct model *m, const uint64_t *ids, int count, uint64_t clock)
{
    model_expire(m);
    if (m->plain)
        return model_plain(m, ids, count, clock);
    return is(m, "lru") ? model_leaf_lru(m, ids, count) : model_tree(m, ids, count, clock);
}

static void model_init(struct model *m, const char *policy, bool plain, int capacity)
{
    memset(m, 0, sizeof *m);
    m->policy = policy;
    m->plain = plain;
    m->capacity = capacity;
    m->ghosts[0].most = is(m, "arc") ? capacity : (int)(0.9 * capacity);
    m->ghosts[1].most = capacity;
}

#endif
