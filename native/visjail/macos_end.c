// Ending a jail on macOS; see macos_end.h.

#include "macos_end.h"

#include <errno.h>
#include <libproc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/event.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "macos_members.h"
#include "macos_sandbox.h"
#include "macos_seatbelt.h"

#define SECOND_NS      1000000000u
#define PROCESSES_ROOM 64u  // that begin while the list is made
#define MOST_LOOKS     100u // for a list in which nobody had ended
#define IS_ZOMBIE      5u   // SZOMB of sys/proc.h, which not every SDK gives to programs

typedef struct {
    const char *marker;
    const char *other; // a marker that no profile allows
    pid_t child;
} look;

static uint64_t now_ns(void) {
    return clock_gettime_nsec_np(CLOCK_MONOTONIC_RAW);
}

void vj_macos_marker(char marker[VJ_MARKER_SIZE]) {
    uint8_t random[16];
    arc4random_buf(random, sizeof random);
    vj_marker_write(random, marker);
}

// Whether the program itself has not ended, as far as it must still be reaped.
static bool child_lives(pid_t child) {
    siginfo_t about = {0};
    if (!child) return false;
    if (waitid(P_PID, (id_t)child, &about, WEXITED | WNOHANG | WNOWAIT)) return false;
    return !about.si_pid;
}

// All processes, with what the kernel says of the sandboxes of this user's. `*is_whole`
// is false where one ended before it was asked: it may have made another meanwhile.
static vj_macos_process *list_processes(const look *asked, size_t *count,
                                        bool *is_whole) {
    *count = 0;
    *is_whole = true;
    int room = proc_listallpids(NULL, 0);
    if (room <= 0) return NULL;
    size_t capacity = 2 * (size_t)room + PROCESSES_ROOM;
    pid_t *numbers = calloc(capacity, sizeof *numbers);
    vj_macos_process *processes = calloc(capacity, sizeof *processes);
    int found = numbers && processes
                    ? proc_listallpids(numbers, (int)(capacity * sizeof *numbers))
                    : -1;
    int name = VJ_SANDBOX_FILTER_GLOBAL_NAME | SANDBOX_CHECK_NO_REPORT;
    for (int i = 0; i < found; i++) {
        struct proc_bsdinfo about;
        int size = proc_pidinfo(numbers[i], PROC_PIDTBSDINFO, 1, &about, sizeof about);
        // 1: also of those that are only left to be reaped, which are else said to be
        // gone. Of others' processes the kernel says nothing, and what is only left to be
        // reaped has ended.
        if (size != (int)sizeof about && errno == ESRCH) *is_whole = false;
        if (size != (int)sizeof about || about.pbi_status == IS_ZOMBIE) continue;
        vj_macos_process *process = &processes[(*count)++];
        *process = (vj_macos_process){
            .process = numbers[i],
            .parent = (int32_t)about.pbi_ppid,
            .user = about.pbi_uid,
            .started = about.pbi_start_tvsec * 1000000u + about.pbi_start_tvusec,
        };
        if (about.pbi_uid != getuid()) continue;
        process->is_sandboxed =
            sandbox_check(numbers[i], NULL, VJ_SANDBOX_FILTER_NONE) == 1;
        if (!process->is_sandboxed) continue;
        process->may_look_up =
            sandbox_check(numbers[i], "mach-lookup", name, asked->marker) == 0;
        process->may_look_all =
            sandbox_check(numbers[i], "mach-lookup", name, asked->other) == 0;
    }
    free(numbers);
    // It is a member before it is in its sandbox, and whatever the list says.
    if (found >= 0 && child_lives(asked->child)) {
        bool is_listed = false;
        for (size_t i = 0; i < *count; i++)
            is_listed |= processes[i].process == asked->child;
        if (!is_listed && *count < capacity)
            processes[(*count)++] =
                (vj_macos_process){.process = asked->child, .user = getuid()};
    }
    if (found >= 0) return processes;
    free(processes);
    return NULL;
}

static void signal_all(const vj_macos_process *members, size_t count, int number) {
    for (size_t i = 0; i < count; i++) kill(members[i].process, number);
}

// Until one of them ends, or the time is over.
static void wait_for_one(const vj_macos_process *members, size_t count,
                         uint64_t wait_ns) {
    int events = kqueue();
    struct timespec time = {.tv_sec = (time_t)(wait_ns / SECOND_NS),
                            .tv_nsec = (long)(wait_ns % SECOND_NS)};
    if (events < 0) {
        nanosleep(&time, NULL);
        return;
    }
    bool is_watching = false;
    for (size_t i = 0; i < count; i++) {
        struct kevent ends;
        EV_SET(&ends, (uintptr_t)members[i].process, EVFILT_PROC, EV_ADD | EV_ONESHOT,
               NOTE_EXIT, 0, NULL);
        if (!kevent(events, &ends, 1, NULL, 0, NULL)) is_watching = true;
    }
    struct kevent event;
    if (is_watching) kevent(events, NULL, 0, &event, 1, &time);
    close(events);
}

vj_status vj_macos_end_jail(const char *marker, pid_t child, uint64_t grace_ns,
                            uint64_t bound_ns, vj_ended *ended, vj_error *error) {
    char other[VJ_MARKER_SIZE];
    vj_macos_marker(other);
    const look asked = {.marker = marker, .other = other, .child = child};
    vj_ladder ladder = {.begun_ns = now_ns(), .grace_ns = grace_ns, .bound_ns = bound_ns};
    uint32_t looks = 0;
    *ended = (vj_ended){0};
    for (;;) {
        size_t count = 0;
        bool is_whole = false;
        vj_macos_process *processes = list_processes(&asked, &count, &is_whole);
        if (!processes)
            return vj_fail(error, VJ_SYSTEM, VJ_STAGE_HOST, errno, "listing processes");
        size_t members = vj_macos_members(processes, count, getuid(), getpid(), child);
        if (members > ended->members) ended->members = (uint32_t)members;
        uint64_t wait_ns = 0;
        vj_ladder_step step = vj_ladder_next(&ladder, now_ns(), members, &wait_ns);
        switch (step) {
        case VJ_LADDER_ASK: signal_all(processes, members, SIGTERM); break;
        case VJ_LADDER_KILL:
            signal_all(processes, members, SIGSTOP);
            signal_all(processes, members, SIGKILL);
            break;
        case VJ_LADDER_WAIT: wait_for_one(processes, members, wait_ns); break;
        case VJ_LADDER_DONE:
        case VJ_LADDER_GIVE_UP: break;
        }
        free(processes);
        if (step == VJ_LADDER_DONE && !is_whole && ++looks < MOST_LOOKS) continue;
        if (step == VJ_LADDER_DONE && !is_whole)
            return vj_fail(error, VJ_TIMED_OUT, VJ_STAGE_HOST, 0,
                           "no list of processes was whole: one may be left");
        if (step == VJ_LADDER_DONE) return VJ_OK;
        if (step == VJ_LADDER_GIVE_UP) {
            ended->left = (uint32_t)members;
            return vj_fail(error, VJ_TIMED_OUT, VJ_STAGE_HOST, 0,
                           "processes of the jail are left that no signal ends");
        }
    }
}
