/* A listening socket while descriptors have run out: it rests, and goes on when there are some. */
#include "unit.h"

#include "net/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST = 128 };

static struct kvr_listener listener;
static int taken[MOST];
static size_t taken_count;
static size_t calls;

static void on_guest(struct kvr_watch *watch, unsigned events)
{
    int descriptor;

    (void)events;
    assert_ptr_equal(watch, &listener.watch);
    calls++;
    while ((descriptor = kvr_listener_accept(&listener, NULL, NULL)) >= 0) {
        assert_true(taken_count < MOST);
        taken[taken_count++] = descriptor;
    }
}

static void rests_without_descriptors(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct rlimit before, few;
    struct kvr_reactor reactor;

    (void)state;
    assert_int_equal(kvr_reactor_init(&reactor, NULL), KVR_OK);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(descriptor, 16), 0);
    assert_int_equal(getsockname(descriptor, (struct sockaddr *)&address, &size), 0);
    assert_true(kvr_listener_open(&listener, &reactor, descriptor, on_guest));
    int caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(caller, (struct sockaddr *)&address, sizeof address), 0);

    /* No descriptor at all may be made. */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < 100 && !calls; i++)
        kvr_reactor_step(&reactor, 100);
    assert_int_equal(calls, 1);
    assert_int_equal(taken_count, 0);
    assert_int_equal(listener.watch.events, 0); /* nobody wakes us */
    assert_true(listener.timer.place > 0);      /* but the clock */

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < 100 && !taken_count; i++)
        kvr_reactor_step(&reactor, 100);
    assert_int_equal(taken_count, 1);
    assert_int_equal(listener.watch.events, EPOLLIN);
    assert_int_equal(listener.timer.place, 0);

    close(taken[0]);
    close(caller);
    kvr_listener_close(&listener);
    kvr_listener_close(&listener);
    kvr_reactor_release(&reactor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rests_without_descriptors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
