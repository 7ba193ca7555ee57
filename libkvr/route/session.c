/*
 * session: every turn of a conversation on the worker of its first turn.
 *
 * A new session finds its worker on a hash ring with bounded load (ring.h): no two routers need to
 * talk to agree on it. From then on the session is remembered: it stays where it is while that
 * worker lives, also when workers join and the ring would now say otherwise, for its KV is there.
 *
 * The drain plan. A draining worker takes no new session but keeps its open ones until the fleet's
 * drain time is over; then, or when a worker is gone, each of its sessions is handed on at its next
 * turn, once, to where the ring says, and stays there even if the old worker returns: its cache
 * would be cold or stale by then. The reason of that one decision is "drained".
 *
 * Memory: `limit` sessions of 56 bytes or so; the one unused for longest is forgotten first, one
 * unused for ttl counts as new. A request without a session is left to the next link.
 */
#include "route/ring.h"

#include <stdlib.h>

#define NONE UINT32_MAX

enum { TTL, BOUND, NODES, LIMIT };

static const struct kvr_parameter parameters[] = {
    [TTL] = {.name = "ttl",
        .kind = KVR_PARAMETER_DURATION,
        .initial = "10m",
        .least = 1,
        .most = 1e12,
        .help = "a session unused for so long counts as new"},
    KVR_ROUTE_RING_PARAMETERS(BOUND, NODES),
    [LIMIT] = {.name = "limit",
        .kind = KVR_PARAMETER_INTEGER,
        .initial = "1M",
        .least = 1,
        .most = 1e9,
        .help = "sessions remembered"},
};

struct entry {
    uint64_t session;
    double used_ms;
    uint32_t worker;
    uint32_t newer, older; /* in order of use */
};

struct session {
    double ttl_ms;
    uint32_t limit;
    struct kvr_route_ring ring;
    struct kvr_u64_map index; /* session → entry */
    struct entry *entries;
    uint32_t count, size, newest, oldest;
};

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    struct session *s = state;

    s->ttl_ms = setup->values[TTL].number;
    s->limit = (uint32_t)setup->values[LIMIT].integer;
    s->newest = s->oldest = NONE;
    return kvr_route_ring_init(&s->ring, &setup->values[BOUND], &setup->values[NODES], error);
}

static void release(void *state)
{
    struct session *s = state;

    kvr_route_ring_release(&s->ring);
    kvr_u64_map_release(&s->index);
    free(s->entries);
}

static enum kvr_status fleet_changed(
    void *state, const struct kvr_fleet *fleet, struct kvr_error *error)
{
    struct session *s = state;

    return kvr_route_ring_build(&s->ring, fleet, error);
}

static bool may_stay(const struct kvr_fleet *fleet, uint32_t worker)
{
    const struct kvr_worker *w = &fleet->workers[worker];

    return w->role != KVR_ROLE_DECODE &&
           (w->state == KVR_WORKER_ACTIVE ||
               (w->state == KVR_WORKER_DRAINING && fleet->now_ms < w->drain_until_ms));
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    const struct session *s = state;
    const struct entry *entry = NULL;

    if (view->request->session == 0)
        return false;
    const uint64_t *found = kvr_u64_map_find(&s->index, view->request->session);
    if (found && view->fleet->now_ms - s->entries[*found].used_ms <= s->ttl_ms)
        entry = &s->entries[*found];
    if (entry && may_stay(view->fleet, entry->worker)) {
        decision->worker = entry->worker;
        decision->reason = KVR_ROUTE_SESSION;
        return true;
    }
    if (view->candidate_count == 0)
        return false;
    decision->worker = kvr_route_ring_find(&s->ring, view, view->request->session);
    decision->reason = entry ? KVR_ROUTE_DRAINED : KVR_ROUTE_SESSION;
    return true;
}

static void unlink_entry(struct session *s, uint32_t at)
{
    struct entry *entry = &s->entries[at];

    *(entry->newer == NONE ? &s->newest : &s->entries[entry->newer].older) = entry->older;
    *(entry->older == NONE ? &s->oldest : &s->entries[entry->older].newer) = entry->newer;
}

static void link_newest(struct session *s, uint32_t at)
{
    s->entries[at].newer = NONE;
    s->entries[at].older = s->newest;
    *(s->newest == NONE ? &s->oldest : &s->entries[s->newest].newer) = at;
    s->newest = at;
}

/* An entry for a session not there yet: a new one, or that of the session unused for longest. */
static uint32_t make_entry(struct session *s, uint64_t session)
{
    uint32_t at = s->count;

    if (s->count == s->limit) {
        at = s->oldest;
        unlink_entry(s, at);
        kvr_u64_map_remove(&s->index, s->entries[at].session, NULL);
    } else if (s->count == s->size) {
        uint32_t size = s->size ? s->size * 2 : 64;
        struct entry *larger = reallocarray(s->entries, size, sizeof *larger);
        if (!larger)
            return NONE;
        s->entries = larger;
        s->size = size;
    }
    uint64_t *slot = kvr_u64_map_insert(&s->index, session, NULL);
    if (!slot) {
        if (at != s->count)
            link_newest(s, at); /* stays, without a key, until it is the oldest again */
        return NONE;
    }
    s->count += at == s->count;
    *slot = at;
    s->entries[at].session = session;
    link_newest(s, at);
    return at;
}

/* Memory too short to remember a session costs affinity, never the request. */
static void learn(
    void *state, const struct kvr_route_view *view, const struct kvr_route_decision *decision)
{
    struct session *s = state;
    uint64_t session = view->request->session;

    if (session == 0)
        return;
    const uint64_t *found = kvr_u64_map_find(&s->index, session);
    uint32_t at = found ? (uint32_t)*found : make_entry(s, session);
    if (at == NONE)
        return;
    unlink_entry(s, at);
    link_newest(s, at);
    s->entries[at].worker = decision->worker;
    s->entries[at].used_ms = view->fleet->now_ms;
}

const struct kvr_route_policy kvr_route_session = {
    .name = "session",
    .summary = "every turn of a session on the worker of its first turn",
    .formula = "A new session: the first worker at or after hash(session) on a ring of `nodes` "
               "points a worker whose load is within `bound` times the fair share. An open one "
               "stays on its worker while that is active, or draining within --drain; else it is "
               "handed on once, by the ring, and stays there.",
    .source = "Karger et al., 1997; Mirrokni et al., arXiv:1608.01350 (bounded loads); vLLM "
              "production-stack's session policy; smg's consistent_hashing and manual.",
    .use = "For chat and agents, whose prefix is their own history; needs no index at all. First "
           "in a chain.",
    .fails = "Sees no prefix that sessions share, and a session that has become long stays on a "
             "busy worker (--escape moves it). Requests without a session go to the next link.",
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof *parameters,
    .state_size = sizeof(struct session),
    .keeps_draining = true,
    .init = init,
    .release = release,
    .fleet_changed = fleet_changed,
    .decide = decide,
    .learn = learn,
};
