#include "net/open_loop.h"

#include "base/clock.h"

#include <math.h>
#include <poll.h>

enum { LATE_MS = 10, WAIT_MS_MOST = 1000, INPUTS_MOST = 64 };

static void call_ended(struct kvr_call *call);

static enum kvr_status start(struct kvr_due_call *call, struct kvr_error *error)
{
    call->call.ended = call_ended;
    enum kvr_status status = kvr_client_start(call->loop->client, &call->call, error);
    call->tries += status == KVR_OK;
    return status;
}

static void link_under_way(struct kvr_open_loop *loop, struct kvr_due_call *call)
{
    call->before = NULL;
    call->after = loop->under_way;
    if (loop->under_way)
        loop->under_way->before = call;
    loop->under_way = call;
    loop->in_flight++;
}

static void unlink_under_way(struct kvr_open_loop *loop, struct kvr_due_call *call)
{
    if (call->before)
        call->before->after = call->after;
    else
        loop->under_way = call->after;
    if (call->after)
        call->after->before = call->before;
    loop->in_flight--;
}

/* Sent again is only what certainly had no effect, or what a worker asked to be sent again. */
static bool may_retry(const struct kvr_due_call *due)
{
    const struct kvr_call *call = &due->call;

    if (due->tries > due->loop->retries || due->loop->stopped())
        return false;
    if (call->status == 429 || call->status == 503)
        return true;
    return !call->any_byte &&
           (call->failure == KVR_CALL_UNREACHED || call->failure == KVR_CALL_BROKEN);
}

static void call_ended(struct kvr_call *call)
{
    struct kvr_due_call *due = (struct kvr_due_call *)call;

    if (may_retry(due) && start(due, NULL) == KVR_OK)
        return;
    unlink_under_way(due->loop, due);
    due->loop->ended(due);
}

void kvr_open_loop_add(struct kvr_open_loop *loop, struct kvr_due_call *call)
{
    call->loop = loop;
    call->tries = 0;
    call->next = NULL;
    if (loop->last)
        loop->last->next = call;
    else
        loop->first = call;
    loop->last = call;
    loop->waiting++;
    loop->waiting_bytes += call->held_bytes;
}

struct kvr_due_call *kvr_open_loop_take(struct kvr_open_loop *loop)
{
    struct kvr_due_call *call = loop->first;

    if (!call)
        return NULL;
    loop->first = call->next;
    if (!loop->first)
        loop->last = NULL;
    loop->waiting--;
    loop->waiting_bytes -= call->held_bytes;
    return call;
}

bool kvr_open_loop_idle(const struct kvr_open_loop *loop)
{
    return !loop->first && !loop->in_flight;
}

void kvr_open_loop_start(struct kvr_open_loop *loop)
{
    double now_ms = kvr_clock_ms();
    struct kvr_error error;

    while (loop->first && loop->in_flight < loop->concurrency && !loop->stopped()) {
        if (loop->first->due_ms > now_ms)
            break;
        struct kvr_due_call *call = kvr_open_loop_take(loop);
        if (start(call, &error) != KVR_OK) {
            loop->dropped(call, &error);
            continue;
        }
        link_under_way(loop, call);
        loop->sent++;
        double late_ms = call->call.started_ms - call->due_ms;
        if (late_ms > LATE_MS) {
            loop->late++;
            loop->latest_ms = late_ms > loop->latest_ms ? late_ms : loop->latest_ms;
        }
    }
}

/* Until the next call is due, or the client's timers want to be looked at. */
static int wait_ms(const struct kvr_open_loop *loop)
{
    int wait = kvr_client_wait_ms(loop->client);

    if (wait < 0 || wait > WAIT_MS_MOST)
        wait = WAIT_MS_MOST;
    if (!loop->first || loop->in_flight >= loop->concurrency)
        return wait;
    double left_ms = loop->first->due_ms - kvr_clock_ms();
    return left_ms < wait ? (left_ms > 0 ? (int)ceil(left_ms) : 0) : wait;
}

bool kvr_open_loop_wait(struct kvr_open_loop *loop, const int *inputs, size_t input_count)
{
    struct pollfd polled[INPUTS_MOST + 1];
    size_t count = 1;

    kvr_open_loop_start(loop);
    polled[0] = (struct pollfd){kvr_client_descriptor(loop->client), POLLIN, 0};
    for (size_t i = 0; i < input_count && i < INPUTS_MOST; i++)
        polled[count++] = (struct pollfd){inputs[i], POLLIN, 0};
    int ready = poll(polled, count, wait_ms(loop));
    kvr_client_step(loop->client);
    kvr_open_loop_start(loop);
    for (size_t i = 1; ready > 0 && i < count; i++)
        if (polled[i].revents)
            return true;
    return false;
}

void kvr_open_loop_cancel(struct kvr_open_loop *loop)
{
    while (loop->under_way)
        kvr_client_cancel(&loop->under_way->call);
}

double kvr_pace_next(struct kvr_pace *pace, double timestamp_ms, double now_ms)
{
    if (pace->rate > 0) {
        double due_ms = pace->started ? pace->next_ms : now_ms, step_ms = 1000 / pace->rate;
        pace->started = true;
        if (pace->poisson)
            step_ms *= -log(1 - kvr_random_unit(&pace->random));
        pace->next_ms = due_ms + step_ms;
        return due_ms;
    }
    if (pace->speed <= 0 || isnan(timestamp_ms))
        return NAN;
    if (!pace->started) {
        pace->started = true;
        pace->start_ms = now_ms;
        pace->first_timestamp_ms = timestamp_ms;
    }
    return pace->start_ms + (timestamp_ms - pace->first_timestamp_ms) / pace->speed;
}
