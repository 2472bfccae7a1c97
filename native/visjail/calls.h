// Calls of the host's that are under way on streams which guests hold, too.
//
// One page for each jail, which the host writes and the keepers read (linux_watchdog.c).
// No guest has it.
#ifndef VJ_CALLS_H
#define VJ_CALLS_H

#include <stdint.h>

// As many threads of a host as fill a page. Calls beyond them are not watched.
#define VJ_CALLS_MAX 512u

typedef struct {
    uint64_t since[VJ_CALLS_MAX]; // CLOCK_MONOTONIC in ns; 0: no call
} vj_calls;

#endif
