// A lock with one condition, as streams and contexts of several threads need it.
//
// One file for each system implements it (posix_monitor.c, windows_monitor.c). All zero
// is a monitor that is open: SRWLOCK_INIT and CONDITION_VARIABLE_INIT are, and so are the
// initializers of pthreads on Linux.
#ifndef VISJAIL_MONITOR_H
#define VISJAIL_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t opaque[12];
} vj_monitor;

#define VJ_MONITOR_INITIALIZER {{0}}

void vj_monitor_enter(vj_monitor *monitor);
void vj_monitor_leave(vj_monitor *monitor);
// Leave, wait until somebody wakes or the time is over, enter. It may also end early.
void vj_monitor_wait(vj_monitor *monitor, uint32_t timeout_ms);
void vj_monitor_wake(vj_monitor *monitor); // everybody who waits

#endif
