// Monitors by pthreads; see monitor.h.

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "monitor.h"

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
} parts;

_Static_assert(sizeof(parts) <= sizeof(vj_monitor), "a monitor has room for its parts");

static parts *parts_of(vj_monitor *monitor) {
    return (parts *)(void *)monitor;
}

// None of these can fail but for a lock that is not one.
static void must(int result) {
    if (result) abort();
}

void vj_monitor_enter(vj_monitor *monitor) {
    must(pthread_mutex_lock(&parts_of(monitor)->mutex));
}

void vj_monitor_leave(vj_monitor *monitor) {
    must(pthread_mutex_unlock(&parts_of(monitor)->mutex));
}

void vj_monitor_wait(vj_monitor *monitor, uint32_t timeout_ms) {
    parts *own = parts_of(monitor);
    struct timespec until;
    must(clock_gettime(CLOCK_MONOTONIC, &until));
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    int result =
        pthread_cond_clockwait(&own->condition, &own->mutex, CLOCK_MONOTONIC, &until);
    if (result != ETIMEDOUT) must(result);
}

void vj_monitor_wake(vj_monitor *monitor) {
    must(pthread_cond_broadcast(&parts_of(monitor)->condition));
}
