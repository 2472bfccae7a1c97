// Whether the host waits for a lock of a guest's. See linux_watchdog.c.
#ifndef VJ_LINUX_WATCHDOG_H
#define VJ_LINUX_WATCHDOG_H

#include "linux_init.h"

typedef enum {
    VJ_HOST_FREE = 0,
    VJ_HOST_WAITS,   // the guest is to stand still meanwhile
    VJ_HOST_STUCK,   // that did not help: the run is to end
    VJ_HOST_EXPIRED, // it is ending, and may not be able to
} vj_host_state;

typedef struct {
    uint64_t look_at;   // when to look next (CLOCK_MONOTONIC)
    uint64_t waited_at; // when it was first seen to wait; 0: it does not
    vj_host_state state;
} vj_watchdog;

// A run begins.
void vj_watchdog_begin(vj_watchdog *watchdog);

// Look, if it is time.
vj_host_state vj_watchdog_look(const vj_setup *setup, vj_watchdog *watchdog);

#endif
