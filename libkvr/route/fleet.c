#include "route/fleet.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NONE UINT32_MAX

struct kvr_placement {
    double end_ms; /* ends by itself then: the key of the heap */
    double predicted_end_ms;
    double prefill_end_ms; /* as predicted when placed … */
    double shift_ms;       /* … when the worker's backlog_shift_ms was this */
    uint64_t id;           /* 0: not in by_id */
    uint64_t tokens;
    uint32_t worker, epoch;
    uint32_t heap_at;
    uint32_t twin; /* the other half of a disaggregated request, or NONE */
    uint32_t next; /* in the free list */
};

void kvr_fleet_init(struct kvr_fleet *fleet)
{
    *fleet = (struct kvr_fleet){
        .load_ttl_ms = 10e3,
        .lease_ms = 600e3,
        .drain_ms = 60e3,
        .free_list = NONE,
        .version = 1,
    };
}

void kvr_fleet_release(struct kvr_fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->count; i++)
        free(fleet->names[i]);
    free(fleet->workers);
    free(fleet->names);
    free(fleet->prefill);
    free(fleet->decode);
    free(fleet->pool);
    free(fleet->heap);
    kvr_u64_map_release(&fleet->by_name);
    kvr_u64_map_release(&fleet->by_id);
    memset(fleet, 0, sizeof *fleet);
}

/* Lists of those that take requests: rebuilt when membership changes, read at every decision. */
static void list_members(struct kvr_fleet *fleet)
{
    fleet->prefill_count = fleet->decode_count = 0;
    for (uint32_t i = 0; i < fleet->count; i++) {
        const struct kvr_worker *worker = &fleet->workers[i];
        if (worker->state != KVR_WORKER_ACTIVE)
            continue;
        if (worker->role == KVR_ROLE_DECODE)
            fleet->decode[fleet->decode_count++] = i;
        else
            fleet->prefill[fleet->prefill_count++] = i;
    }
    fleet->version++;
}

/* Names are found by hash; two names of one hash share a chain of probes at hash + 1, + 2, … */
static uint64_t *name_slot(
    const struct kvr_fleet *fleet, const char *name, size_t length, uint64_t *key)
{
    uint64_t *found;

    for (*key = XXH3_64bits(name, length); (found = kvr_u64_map_find(&fleet->by_name, *key));
         ++*key) {
        const char *other = fleet->names[*found];
        if (strncmp(other, name, length) == 0 && other[length] == '\0')
            return found;
    }
    return NULL;
}

uint32_t kvr_fleet_find(const struct kvr_fleet *fleet, const char *name, size_t length)
{
    uint64_t key, *found = name_slot(fleet, name, length, &key);

    return found ? (uint32_t)*found : KVR_NO_WORKER;
}

static bool grow_array(void *array, uint32_t count, size_t element)
{
    void **place = array;
    void *larger = reallocarray(*place, count, element);

    if (larger)
        *place = larger;
    return larger != NULL;
}

enum kvr_status kvr_fleet_join(struct kvr_fleet *fleet, const char *name, size_t length,
    uint32_t *worker, struct kvr_error *error)
{
    uint64_t key, *found = name_slot(fleet, name, length, &key);

    if (found) {
        *worker = (uint32_t)*found;
        return KVR_OK;
    }
    if (memchr(name, '\0', length))
        return kvr_error_set(error, KVR_BAD_INPUT, "a worker's name has a NUL byte");
    if (fleet->count == KVR_WORKER_LIMIT)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "more than %u workers have been named", KVR_WORKER_LIMIT);
    if (fleet->count == fleet->size) {
        uint32_t size = fleet->size ? fleet->size * 2 : 16;
        if (!grow_array(&fleet->workers, size, sizeof *fleet->workers) ||
            !grow_array(&fleet->names, size, sizeof *fleet->names) ||
            !grow_array(&fleet->prefill, size, sizeof *fleet->prefill) ||
            !grow_array(&fleet->decode, size, sizeof *fleet->decode))
            return kvr_error_memory(error);
        fleet->size = size;
    }
    char *copy = strndup(name, length);
    uint64_t *slot = copy ? kvr_u64_map_insert(&fleet->by_name, key, NULL) : NULL;
    if (!slot) {
        free(copy);
        return kvr_error_memory(error);
    }
    *slot = *worker = fleet->count;
    fleet->names[fleet->count] = copy;
    fleet->workers[fleet->count++] = (struct kvr_worker){
        .weight = 1,
        .kv_usage = NAN,
        .report_until_ms = -INFINITY,
    };
    fleet->prefill[fleet->prefill_count++] = *worker; /* the largest number: still ascending */
    fleet->version++;
    return KVR_OK;
}

void kvr_fleet_set_state(struct kvr_fleet *fleet, uint32_t worker, enum kvr_worker_state state)
{
    struct kvr_worker *w = &fleet->workers[worker];

    if (w->state == state)
        return;
    if (state == KVR_WORKER_DOWN) {
        w->epoch++;
        w->outstanding = w->waiting = 0;
        w->outstanding_tokens = 0;
        w->end_sum_ms = 0;
        w->backlog_end_ms = fleet->now_ms;
        w->report_until_ms = -INFINITY;
        w->kv_usage = NAN;
    }
    if (state == KVR_WORKER_DRAINING)
        w->drain_until_ms = fleet->now_ms + fleet->drain_ms;
    w->state = (uint8_t)state;
    list_members(fleet);
}

void kvr_fleet_set_role(struct kvr_fleet *fleet, uint32_t worker, enum kvr_worker_role role)
{
    if (fleet->workers[worker].role != role) {
        fleet->workers[worker].role = (uint8_t)role;
        list_members(fleet);
    }
}

void kvr_fleet_set_weight(struct kvr_fleet *fleet, uint32_t worker, double weight)
{
    if (fleet->workers[worker].weight != weight) {
        fleet->workers[worker].weight = weight;
        fleet->version++;
    }
}

/* The heap: least end first. Each placement knows where it lies. */
static void heap_put(struct kvr_fleet *fleet, uint32_t at, uint32_t index)
{
    fleet->heap[at] = index;
    fleet->pool[index].heap_at = at;
}

static void heap_up(struct kvr_fleet *fleet, uint32_t at, uint32_t index)
{
    double end_ms = fleet->pool[index].end_ms;

    while (at) {
        uint32_t parent = (at - 1) / 2;
        if (fleet->pool[fleet->heap[parent]].end_ms <= end_ms)
            break;
        heap_put(fleet, at, fleet->heap[parent]);
        at = parent;
    }
    heap_put(fleet, at, index);
}

static void heap_down(struct kvr_fleet *fleet, uint32_t at, uint32_t index)
{
    double end_ms = fleet->pool[index].end_ms;

    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= fleet->heap_count)
            break;
        if (child + 1 < fleet->heap_count &&
            fleet->pool[fleet->heap[child + 1]].end_ms < fleet->pool[fleet->heap[child]].end_ms)
            child++;
        if (fleet->pool[fleet->heap[child]].end_ms >= end_ms)
            break;
        heap_put(fleet, at, fleet->heap[child]);
        at = child;
    }
    heap_put(fleet, at, index);
}

static void heap_remove(struct kvr_fleet *fleet, uint32_t at)
{
    uint32_t moved = fleet->heap[--fleet->heap_count];

    if (at == fleet->heap_count)
        return;
    if (at && fleet->pool[moved].end_ms < fleet->pool[fleet->heap[(at - 1) / 2]].end_ms)
        heap_up(fleet, at, moved);
    else
        heap_down(fleet, at, moved);
}

static void end_placement(struct kvr_fleet *fleet, uint32_t index)
{
    struct kvr_placement *placement = &fleet->pool[index];
    struct kvr_worker *worker = &fleet->workers[placement->worker];

    if (placement->epoch == worker->epoch) {
        worker->outstanding--;
        worker->outstanding_tokens -= (int64_t)placement->tokens;
        worker->end_sum_ms -= placement->predicted_end_ms;
        if (worker->outstanding == 0)
            worker->end_sum_ms = 0; /* no rounding stays behind */
    }
    if (placement->id)
        kvr_u64_map_remove(&fleet->by_id, placement->id, NULL);
    if (placement->twin != NONE)
        fleet->pool[placement->twin].twin = NONE;
    heap_remove(fleet, placement->heap_at);
    placement->next = fleet->free_list;
    fleet->free_list = index;
}

/*
 * A finished request tells that its prefill is over, and with it those before it in the worker's
 * queue. What the prediction still had of them is taken off the backlog. Later placements were
 * predicted on top of it, so each one's prefill end counts less what was taken off since.
 */
static void shorten_backlog(struct kvr_fleet *fleet, const struct kvr_placement *placement)
{
    struct kvr_worker *worker = &fleet->workers[placement->worker];
    double moved_ms = worker->backlog_shift_ms - placement->shift_ms;
    double left_ms = placement->prefill_end_ms - moved_ms - fleet->now_ms;

    if (placement->epoch == worker->epoch && left_ms > 0) {
        worker->backlog_end_ms -= left_ms;
        worker->backlog_shift_ms += left_ms;
    }
}

static bool end_by_id(struct kvr_fleet *fleet, uint64_t id)
{
    uint64_t *found = kvr_u64_map_find(&fleet->by_id, id);

    if (!found)
        return false;
    uint32_t index = (uint32_t)*found, twin = fleet->pool[index].twin;
    shorten_backlog(fleet, &fleet->pool[index]);
    end_placement(fleet, index);
    if (twin != NONE) {
        shorten_backlog(fleet, &fleet->pool[twin]);
        end_placement(fleet, twin);
    }
    return true;
}

void kvr_fleet_advance(struct kvr_fleet *fleet, double now_ms)
{
    if (!(now_ms > fleet->now_ms) || isinf(now_ms))
        return;
    fleet->now_ms = now_ms;
    while (fleet->heap_count && fleet->pool[fleet->heap[0]].end_ms <= now_ms)
        end_placement(fleet, fleet->heap[0]);
}

void kvr_fleet_report(
    struct kvr_fleet *fleet, uint32_t worker, const struct kvr_load_report *report)
{
    struct kvr_worker *w = &fleet->workers[worker];
    int64_t reported = (int64_t)report->waiting + report->running;
    int64_t correction = reported - w->outstanding;

    w->correction = (int32_t)(correction > INT32_MAX ? INT32_MAX : correction);
    w->token_correction = report->tokens >= 0 ? report->tokens - w->outstanding_tokens : 0;
    w->waiting = report->waiting;
    w->kv_usage = report->kv_usage < 0 ? 0 : report->kv_usage > 1 ? 1 : report->kv_usage;
    w->report_until_ms = fleet->now_ms + fleet->load_ttl_ms;
}

/* Room for two more placements: the oldest by end time make way at the limit. */
static bool reserve_placements(struct kvr_fleet *fleet)
{
    while (fleet->heap_count + 2 > KVR_PLACEMENT_LIMIT)
        end_placement(fleet, fleet->heap[0]);
    if (fleet->heap_count + 2 > fleet->pool_size) {
        uint32_t size = fleet->pool_size ? fleet->pool_size * 2 : 256;
        if (!grow_array(&fleet->pool, size, sizeof *fleet->pool) ||
            !grow_array(&fleet->heap, size, sizeof *fleet->heap))
            return false;
        fleet->pool_size = size;
    }
    return true;
}

static uint32_t count_placement(struct kvr_fleet *fleet, const struct kvr_placement *placement)
{
    struct kvr_worker *worker = &fleet->workers[placement->worker];
    uint32_t index = fleet->free_list;

    if (index != NONE)
        fleet->free_list = fleet->pool[index].next;
    else
        index = fleet->pool_used++;
    fleet->pool[index] = *placement;
    fleet->pool[index].epoch = worker->epoch;
    fleet->pool[index].shift_ms = worker->backlog_shift_ms;
    worker->outstanding++;
    worker->outstanding_tokens += (int64_t)placement->tokens;
    worker->end_sum_ms += placement->predicted_end_ms;
    heap_up(fleet, fleet->heap_count++, index);
    return index;
}

bool kvr_fleet_place(struct kvr_fleet *fleet, const struct kvr_placement_request *request)
{
    struct kvr_worker *worker = &fleet->workers[request->worker];

    if (request->id) /* first: it may take work off the backlog */
        end_by_id(fleet, request->id);
    double prefill_end_ms = fmax(fleet->now_ms, worker->backlog_end_ms) + request->prefill_ms;
    double predicted_end_ms = prefill_end_ms + request->decode_ms;
    double end_ms = fleet->done_seen ? fleet->now_ms + fleet->lease_ms : predicted_end_ms;
    bool apart =
        request->decode_worker != KVR_NO_WORKER && request->decode_worker != request->worker;
    struct kvr_placement placement = {
        .end_ms = apart ? prefill_end_ms : end_ms,
        .predicted_end_ms = apart ? prefill_end_ms : predicted_end_ms,
        .prefill_end_ms = prefill_end_ms,
        .id = apart ? 0 : request->id,
        .tokens = request->tokens,
        .worker = request->worker,
        .twin = NONE,
    };

    if (!reserve_placements(fleet))
        return false;
    uint64_t *slot = request->id ? kvr_u64_map_insert(&fleet->by_id, request->id, NULL) : NULL;
    if (request->id && !slot)
        return false;
    uint32_t index = count_placement(fleet, &placement);
    if (apart) {
        placement.end_ms = end_ms;
        placement.predicted_end_ms = predicted_end_ms;
        placement.prefill_end_ms = -INFINITY;
        placement.id = request->id;
        placement.worker = request->decode_worker;
        placement.twin = index;
        uint32_t second = count_placement(fleet, &placement);
        fleet->pool[index].twin = second;
        index = second;
        fleet->workers[request->decode_worker].placed++;
        fleet->workers[request->decode_worker].last_placed = fleet->placements + 1;
    }
    if (slot)
        *slot = index;
    worker->backlog_end_ms = prefill_end_ms;
    worker->placed++;
    worker->last_placed = ++fleet->placements;
    return true;
}

bool kvr_fleet_done(struct kvr_fleet *fleet, uint64_t id)
{
    fleet->done_seen = true;
    return end_by_id(fleet, id);
}
