// A host that waits for a lock of a guest's.
//
// Who writes to a pipe or reads it holds the kernel's mutex of the pipe meanwhile. A
// thread that the scheduler hardly ever lets run (of the lowest priority, beside many
// busy ones) holds it for minutes, and whoever else wants the pipe sleeps in a state
// that no signal ends: the host would neither keep a time limit of its own, nor end
// when it is killed, and what is to end with it would live on. To close a pipe takes
// that lock as well, and so an exit does. A terminal has such a lock for its size.
//
// So the host notes each such call (calls.h), and a keeper with a run looks every
// second. Where a call has lasted too long, the run is stopped until it has returned:
// on its way to being stopped a thread leaves the kernel, and gives back what it held
// there; those that kept it from its turn do not run any more. Should that not help, the
// run ends. The keeper itself never uses anything that a guest could lock.

#include "linux_watchdog.h"

#include <signal.h>

#define LOOK_NS       1000000000ull
#define WAITING_NS    500000000ull
#define LOOK_AGAIN_NS 5000000ull
#define STUCK_NS      5000000000ull

// A host with more than a thousand groups is never seen to be ending: they come before
// what tells.
#define STATUS_BYTES 16384

void vj_watchdog_begin(vj_watchdog *watchdog) {
    *watchdog = (vj_watchdog){.look_at = vj_clock() + LOOK_NS};
}

static int waits(const vj_setup *setup, uint64_t time) {
    for (uint32_t i = 0; i < VJ_CALLS_MAX; i++) {
        uint64_t since = __atomic_load_n(&setup->calls->since[i], __ATOMIC_RELAXED);
        if (since && time > since && time - since > WAITING_NS) return 1;
    }
    return 0;
}

// The line of /proc/PID/status that begins with `name`; 0 when there is none.
static const char *line_of(const char *text, const char *name) {
    size_t length = strlen(name);
    for (; *text; text++) {
        if (*text == '\n' && !memcmp(text + 1, name, length)) return text + 1 + length;
    }
    return 0;
}

static int has_pending(const char *text, const char *name, int signal) {
    const char *mask = line_of(text, name);
    uint64_t signals = 0;
    for (; mask && *mask && *mask != '\n'; mask++) {
        int digit = *mask >= 'a' ? *mask - 'a' + 10 : *mask - '0';
        if (digit >= 0) signals = signals * 16 + (uint64_t)digit;
    }
    return (signals >> (signal - 1) & 1) != 0;
}

// The status of the host's first thread; of a process that is gone there is none.
static const char *read_status(void) {
    static char text[STATUS_BYTES + 1];
    long size = sys(SYS_pread64, VJ_FD_STATUS, text, STATUS_BYTES, 0);
    if (size <= 0) return 0;
    text[size] = 0;
    return text;
}

// Any signal that ends a process at once leaves SIGKILL for each of its threads. One that
// is on its way out has no memory any more when it closes its files, pipes among them.
static int is_ending(const char *status) {
    return has_pending(status, "ShdPnd:\t", SIGKILL) ||
           has_pending(status, "SigPnd:\t", SIGKILL) ||
           (line_of(status, "Threads:") && !line_of(status, "VmSize:"));
}

// Or held by a debugger: it does not wait for anybody's lock.
static int is_stopped(const char *status) {
    const char *state = line_of(status, "State:\t");
    return state && (*state == 'T' || *state == 't');
}

vj_host_state vj_watchdog_look(const vj_setup *setup, vj_watchdog *watchdog) {
    uint64_t time = vj_clock();
    if (time < watchdog->look_at) return watchdog->state;
    const char *status = read_status();
    vj_host_state found = VJ_HOST_FREE;
    if (!status || is_ending(status)) {
        found = VJ_HOST_EXPIRED;
    } else if (!is_stopped(status) && waits(setup, time)) {
        if (!watchdog->waited_at) watchdog->waited_at = time;
        found = time - watchdog->waited_at < STUCK_NS ? VJ_HOST_WAITS : VJ_HOST_STUCK;
    }
    if (found == VJ_HOST_FREE) watchdog->waited_at = 0;
    watchdog->look_at = time + (found == VJ_HOST_FREE ? LOOK_NS : LOOK_AGAIN_NS);
    watchdog->state = found;
    return found;
}
