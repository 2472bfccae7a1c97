// Runs of a jail on macOS; see macos_process.h. How they are read is posix_capture.c.

#include "macos_process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "posix_capture.h"

#define CLOSE_BOUND_NS 15000000000 // above the bound of ending a jail

struct vj_run {
    pid_t owner;
    vj_macos_run *jail;
    pthread_mutex_t lock; // over everything below, and over `jail`
    bool ended;
    uint32_t order; // vj_stop: who ended it, if the program did not
    vj_exit result;
};

int64_t vj_now_ns(void) {
    return (int64_t)clock_gettime_nsec_np(CLOCK_MONOTONIC_RAW);
}

// A pipe of macOS grows by itself, up to 64 KiB.
bool vj_stream_widen(int descriptor) {
    (void)descriptor;
    return false;
}

int64_t vj_write_quietly(int descriptor, const void *data, uint64_t size) {
    if (fcntl(descriptor, F_SETNOSIGPIPE, 1)) return -errno;
    ssize_t count = write(descriptor, data, (size_t)size);
    return count < 0 ? -errno : count;
}

vj_status vj_macos_run_start(const vj_macos_spawn *spawn, vj_run **run, int32_t *pid,
                             vj_error *error) {
    *run = NULL;
    *pid = 0;
    vj_run *made = calloc(1, sizeof *made);
    if (!made)
        return vj_fail(error, VJ_NO_MEMORY, VJ_STAGE_HOST, ENOMEM, "no memory for a run");
    made->owner = getpid();
    pthread_mutex_init(&made->lock, NULL);
    vj_status status = vj_macos_start(spawn, &made->jail, error);
    if (status != VJ_OK) {
        pthread_mutex_destroy(&made->lock);
        free(made);
        return status;
    }
    *pid = vj_macos_run_process(made->jail);
    *run = made;
    return VJ_OK;
}

pid_t vj_run_owner(const vj_run *run) {
    return run->owner;
}

int vj_run_channel(const vj_run *run) {
    return vj_macos_run_descriptor(run->jail);
}

int vj_run_descriptor(vj_run *run) {
    return vj_macos_run_descriptor(run->jail);
}

// Nobody looks at the calls of a host here.
uint32_t vj_run_call(vj_run *run) {
    (void)run;
    return 0;
}

void vj_run_called(vj_run *run, uint32_t place) {
    (void)run;
    (void)place;
}

void vj_jail_prepare(vj_run *run) {
    (void)run; // each run has a helper of its own
}

// With the lock held. Whoever the program left behind ends with it.
static void finish(vj_run *run) {
    vj_macos_exit found = {0};
    vj_error ignored; // somebody may be left: their watcher stays and tries again
    vj_macos_run_finish(run->jail, &found, &ignored);
    bool was_killed = WIFSIGNALED(found.status) && WTERMSIG(found.status) == SIGKILL;
    run->ended = true;
    run->result = (vj_exit){
        .status = found.status,
        .stop = found.timed_out ? VJ_STOP_TIMEOUT
                : was_killed    ? run->order
                                : VJ_STOP_NONE,
        .killed = found.killed,
        .program_us = found.user_us + found.system_us,
        .user_us = found.user_us,
        .system_us = found.system_us,
        .resident_kib = found.resident_kib,
    };
}

bool vj_run_ended(vj_run *run, bool readable, vj_exit *result) {
    (void)readable; // the kernel is asked: its answer is cheap
    pthread_mutex_lock(&run->lock);
    if (!run->ended && vj_macos_run_has_ended(run->jail)) finish(run);
    bool ended = run->ended;
    if (ended) *result = run->result;
    pthread_mutex_unlock(&run->lock);
    return ended;
}

vj_status vj_run_wait(vj_run *run, int64_t timeout_ns, vj_exit *result, vj_error *error) {
    int input = -1;
    uint64_t offset = 0;
    return vj_run_communicate(run, NULL, 0, &offset, &input, NULL, NULL, timeout_ns,
                              result, error);
}

vj_status vj_run_signal(vj_run *run, int32_t signal_number) {
    vj_error ignored; // a run that has just ended needs no signal any more
    vj_status status = VJ_OK;
    if (run->owner != getpid()) return VJ_OK;
    pthread_mutex_lock(&run->lock);
    if (!run->ended) status = vj_macos_run_signal(run->jail, signal_number, &ignored);
    pthread_mutex_unlock(&run->lock);
    return status;
}

static void order_end(vj_run *run, uint32_t order) {
    if (run->owner != getpid()) return;
    pthread_mutex_lock(&run->lock);
    if (!run->ended) {
        if (!run->order) run->order = order;
        vj_macos_run_kill(run->jail);
    }
    pthread_mutex_unlock(&run->lock);
}

vj_status vj_run_kill(vj_run *run) {
    order_end(run, VJ_STOP_KILLED);
    return VJ_OK;
}

void vj_macos_run_close(vj_run *run) {
    order_end(run, VJ_STOP_CLOSED);
    if (run->owner != getpid()) return;
    int64_t until = vj_now_ns() + CLOSE_BOUND_NS;
    vj_exit result;
    vj_error ignored;
    vj_status status = VJ_INTERRUPTED;
    while (status == VJ_INTERRUPTED && vj_now_ns() < until)
        status = vj_run_wait(run, until - vj_now_ns(), &result, &ignored);
}

vj_status vj_run_suspend(vj_run *run, bool suspended, vj_error *error) {
    (void)run;
    (void)suspended;
    return vj_fail(error, VJ_REFUSED, VJ_STAGE_REQUEST, 0,
                   "standing still as a whole is not built for macOS");
}

uint32_t vj_run_refusals(vj_run *run, vj_refusal *refusals, uint32_t capacity,
                         uint32_t *dropped) {
    (void)run;
    (void)refusals;
    (void)capacity;
    *dropped = 0;
    return 0;
}

void vj_run_free(vj_run *run) {
    if (!run) return;
    // In a forked child of the host it is its parent's run: nothing of it is ended.
    if (run->owner == getpid()) {
        vj_macos_run_free(run->jail);
        pthread_mutex_destroy(&run->lock);
        free(run);
    }
}
