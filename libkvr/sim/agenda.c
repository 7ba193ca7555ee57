/* What happens next: two heaps, of workers by wake-up and of KV copies by end. */
#include "base/grow.h"
#include "sim/cluster_private.h"

#include <math.h>

double kvr_sim_wake_ms(const struct kvr_sim *sim, uint32_t number)
{
    const struct kvr_sim_worker *engine = sim->members[number]->engine;

    return engine ? kvr_sim_worker_wake_ms(engine) : INFINITY;
}

static bool wakes_first(const struct kvr_sim *sim, uint32_t a, uint32_t b)
{
    double x = kvr_sim_wake_ms(sim, a), y = kvr_sim_wake_ms(sim, b);

    return x < y || (x == y && a < b);
}

static void heap_put(struct kvr_sim *sim, uint32_t at, uint32_t number)
{
    sim->heap[at] = number;
    sim->members[number]->heap_at = at;
}

void kvr_sim_agenda_add(struct kvr_sim *sim, uint32_t number)
{
    heap_put(sim, number, number);
}

void kvr_sim_agenda_update(struct kvr_sim *sim, uint32_t number)
{
    uint32_t at = sim->members[number]->heap_at;

    while (at && wakes_first(sim, number, sim->heap[(at - 1) / 2])) {
        heap_put(sim, at, sim->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= sim->count)
            break;
        if (child + 1 < sim->count && wakes_first(sim, sim->heap[child + 1], sim->heap[child]))
            child++;
        if (!wakes_first(sim, sim->heap[child], number))
            break;
        heap_put(sim, at, sim->heap[child]);
        at = child;
    }
    heap_put(sim, at, number);
}

static bool moves_first(const struct kvr_sim_request *a, const struct kvr_sim_request *b)
{
    return a->move_end_ms < b->move_end_ms ||
           (a->move_end_ms == b->move_end_ms && a->move_number < b->move_number);
}

static void sift_move(struct kvr_sim *sim, size_t at, struct kvr_sim_request *request)
{
    struct kvr_sim_request **heap = sim->moving;

    while (at && moves_first(request, heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= sim->moving_count)
            break;
        if (child + 1 < sim->moving_count && moves_first(heap[child + 1], heap[child]))
            child++;
        if (!moves_first(heap[child], request))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = request;
}

static void remove_move(struct kvr_sim *sim, size_t at)
{
    struct kvr_sim_request *last = sim->moving[--sim->moving_count];

    if (at < sim->moving_count)
        sift_move(sim, at, last);
}

enum kvr_status kvr_sim_move_begin(
    struct kvr_sim *sim, struct kvr_sim_request *request, double end_ms, struct kvr_error *error)
{
    struct kvr_sim_request **grown =
        kvr_grow(sim->moving, &sim->moving_size, sim->moving_count + 1, sizeof *grown);

    if (!grown)
        return kvr_error_memory(error);
    sim->moving = grown;
    request->move_end_ms = end_ms;
    request->move_number = sim->moves++;
    sim->moving_count++;
    sift_move(sim, sim->moving_count - 1, request);
    return KVR_OK;
}

struct kvr_sim_request *kvr_sim_move_take(struct kvr_sim *sim)
{
    struct kvr_sim_request *first = sim->moving[0];

    remove_move(sim, 0);
    return first;
}

void kvr_sim_move_forget(struct kvr_sim *sim, const struct kvr_sim_request *request)
{
    for (size_t i = 0; i < sim->moving_count; i++) {
        if (sim->moving[i] == request) {
            remove_move(sim, i);
            return;
        }
    }
}
