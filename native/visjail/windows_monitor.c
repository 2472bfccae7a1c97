// Monitors by slim locks of Windows; see monitor.h.

#include <windows.h>

#include "monitor.h"

typedef struct {
    SRWLOCK lock;
    CONDITION_VARIABLE condition;
} parts;

_Static_assert(sizeof(parts) <= sizeof(vj_monitor), "a monitor has room for its parts");

static parts *parts_of(vj_monitor *monitor) {
    return (parts *)(void *)monitor;
}

void vj_monitor_enter(vj_monitor *monitor) {
    AcquireSRWLockExclusive(&parts_of(monitor)->lock);
}

void vj_monitor_leave(vj_monitor *monitor) {
    ReleaseSRWLockExclusive(&parts_of(monitor)->lock);
}

void vj_monitor_wait(vj_monitor *monitor, uint32_t timeout_ms) {
    parts *own = parts_of(monitor);
    // FALSE says that the time is over, which who waits sees by its own clock.
    (void)SleepConditionVariableSRW(&own->condition, &own->lock, timeout_ms, 0);
}

void vj_monitor_wake(vj_monitor *monitor) {
    WakeAllConditionVariable(&parts_of(monitor)->condition);
}
