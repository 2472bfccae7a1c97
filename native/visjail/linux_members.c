// The programs below one keeper: the one that was executed, and those that it forked as
// programs of their own.
//
// A worker forks another one (doc/reference/worker.md). The copy is no child of the
// keeper at first: the process that forked it ends at once, so that the keeper, as
// child subreaper, inherits it. It has a channel of its own to the host, and an end, a
// status and a time limit of its own, all from the kernel. The keeper learns which
// process it is from the host, by a pidfd, and believes it only of a child of its own:
// it reads nothing that a guest could write.
//
// What descends from a member is its own. A member asks the kernel to leave it its
// orphans; what came to the keeper all the same belongs to nobody, and ends with the
// next member that ends. What was there before the first member forked is the first's.

#include "linux_members.h"

#include <errno.h>
#include <linux/time_types.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define SIGNAL_SET_SIZE 8
#define END_TURNS       500      // ten seconds, if nothing ends
#define KILL_WAIT_NS    20000000 // between passes over a tree that is ending
#define DEATHS_NS       200000000
#define EXPECT_NS       10000000000ull // the host gives up earlier
// How often to look whether a suspended member stands still.
#define HOLD_LEAST_NS 50000000ull
#define HOLD_MOST_NS  400000000ull
#define HOLD_SHARE    10 // a look is followed by a pause of this many times its length
// How long the host waits at most until a member that was just suspended stands still,
// and how often it is looked at. A process that waits for its vfork child, or for a
// device, stands still without being in the state that says so.
#define SETTLE_NS      300000000ull
#define SETTLE_WAIT_NS 1000000ull

static void reply(const vj_member *member, const vj_message *message) {
    vj_message_send(member->channel, message, 0, 0, 0, 0);
}

// ---- deaths ----------------------------------------------------------------

static uint64_t microseconds(const struct timeval *time) {
    return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

// The clock that the kernel compares with RLIMIT_CPU: the ticks that found the process
// running. What it ran by its run time, as in /proc/PID/stat, is more or less than that
// (0.87 s was seen for a limit of 1 s), and would prove nothing. The number of a process
// makes a clock (CPUCLOCK_PROF, 0: linux/posix-timers.h).
static uint64_t limited_time_us(int pid) {
    struct __kernel_timespec time = {0};
    int clock = (int)(~(unsigned)pid << 3);
    if (sys(SYS_clock_gettime, clock, &time) < 0) return 0;
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

// What the limit of processor time is about is the program's own time, which is
// mixed with that of its children once it has been reaped.
static void measure_program(vj_member *member) {
    siginfo_t ended;
    memset(&ended, 0, sizeof ended);
    int flags = WEXITED | WNOWAIT | WNOHANG;
    if (sys(SYS_waitid, P_PID, member->pid, &ended, flags, 0) == 0 && ended.si_pid) {
        member->program_us = limited_time_us(member->pid);
    }
}

static void forget_elder(vj_keeper *keeper, long pid) {
    for (uint32_t i = 0; i < keeper->elder_count; i++) {
        if (keeper->elders[i] != pid) continue;
        keeper->elders[i] = keeper->elders[--keeper->elder_count];
        return;
    }
}

static void count_death(vj_keeper *keeper, long pid, int status,
                        const struct rusage *usage) {
    // With what it had waited for itself.
    uint64_t *user = &keeper->user_us, *system = &keeper->system_us;
    uint64_t *resident = &keeper->resident_kib;
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        vj_member *member = &keeper->members[i];
        if (member->pid != pid) continue;
        user = &member->user_us;
        system = &member->system_us;
        resident = &member->resident_kib;
        member->status = status;
        // Not stopped by its limit, even if that has passed: the keeper may have got its
        // turn late, and the kernel does not tell when the program ended.
        member->pid = 0;
        break;
    }
    *user += microseconds(&usage->ru_utime);
    *system += microseconds(&usage->ru_stime);
    if ((uint64_t)usage->ru_maxrss > *resident) *resident = (uint64_t)usage->ru_maxrss;
    forget_elder(keeper, pid);
}

int vj_members_reap(vj_keeper *keeper) {
    if (keeper->setup->plan->limits.cpu_seconds) {
        for (uint32_t i = 0; i < keeper->member_count; i++) {
            vj_member *member = &keeper->members[i];
            if (member->pid) measure_program(member);
        }
    }
    for (;;) {
        int status = 0;
        struct rusage usage;
        memset(&usage, 0, sizeof usage);
        long pid = sys(SYS_wait4, -1, &status, WNOHANG, &usage);
        if (pid == -ECHILD) return 0;
        if (pid <= 0) return 1;
        count_death(keeper, pid, status, &usage);
    }
}

// ---- the end of a member -----------------------------------------------------

// All children of the keeper that are others' than `member`'s.
static vj_spared others(vj_keeper *keeper, const vj_member *member) {
    static int pids[VJ_MEMBERS_MAX + VJ_ELDERS_MAX];
    vj_spared spared = {.pids = pids};
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        const vj_member *other = &keeper->members[i];
        if (other != member && other->pid) pids[spared.count++] = other->pid;
    }
    if (member != &keeper->members[0]) {
        memcpy(pids + spared.count, keeper->elders, keeper->elder_count * sizeof *pids);
        spared.count += keeper->elder_count;
    }
    return spared;
}

// What is to be ended with a member. While another is to be forked that is the member
// with what descends from it: a child that nobody owns may be the other.
static vj_spared scope_of(vj_keeper *keeper, const vj_member *member, int alone) {
    if (!alone) return others(keeper, member);
    return (vj_spared){.only = member->pid ? member->pid : -1};
}

static int is_left(vj_keeper *keeper, vj_member *member, int alone) {
    if (!vj_members_reap(keeper)) return 0;
    if (!keeper->is_family || member->pid) return 1;
    return !alone && vj_tree_is_left(others(keeper, member));
}

// Take the deaths that come, until none has come for a while: to look at the
// whole tree after each would take longer than the deaths themselves. Not for
// ever, because what is not ended yet may go on making short-lived children.
static void await_deaths(vj_keeper *keeper, vj_member *member, int alone) {
    uint64_t end = vj_clock() + DEATHS_NS;
    while (is_left(keeper, member, alone) && vj_clock() < end) {
        struct pollfd wait = {.fd = keeper->signals, .events = POLLIN};
        struct __kernel_timespec timeout = {.tv_nsec = KILL_WAIT_NS};
        if (sys(SYS_ppoll, &wait, 1, &timeout, 0, SIGNAL_SET_SIZE) == 0) return;
        if (vj_signals_drain(keeper->signals)) keeper->ordered = 1;
    }
}

static void end_tree(vj_keeper *keeper, vj_member *member, int alone) {
    for (int turn = 0; is_left(keeper, member, alone); turn++) {
        // Ending as a failure makes pid 1 end the jail, and this run with it.
        if (turn == END_TURNS) vj_exit_process(1);
        member->killed += vj_tree_kill(scope_of(keeper, member, alone), turn == 0);
        await_deaths(keeper, member, alone);
    }
}

static void report_exit(vj_keeper *keeper, const vj_member *member) {
    vj_message exited = {
        .kind = VJ_MESSAGE_EXITED,
        .flags = keeper->is_family ? VJ_EXITED_FAMILY : 0,
        .status = member->status,
        .stop = member->stop,
        .killed = member->killed,
        .program_us = member->program_us,
        .user_us = member->user_us + keeper->user_us,
        .system_us = member->system_us + keeper->system_us,
        .resident_kib = member->resident_kib > keeper->resident_kib
                            ? member->resident_kib
                            : keeper->resident_kib,
        .watched = keeper->memory.watched,
        .refusal_slot = keeper->refused.slot,
        .refusal_generation = keeper->refused.generation,
    };
    keeper->user_us = keeper->system_us = keeper->resident_kib = 0;
    reply(member, &exited);
}

static int is_expected(vj_keeper *keeper, const vj_member *but) {
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        const vj_member *member = &keeper->members[i];
        if (member != but && member->expected && !member->stop) return 1;
    }
    return 0;
}

int vj_member_end(vj_keeper *keeper, vj_member *member) {
    int alone = keeper->is_family && is_expected(keeper, member);
    // Of one that was expected in vain, this ends what may have been forked for it.
    end_tree(keeper, member, alone);
    if (alone && !member->expected && vj_tree_is_left(others(keeper, member))) return 0;
    if (!member->expected) report_exit(keeper, member);
    if (member == &keeper->members[0]) keeper->elder_count = 0;
    // The only member of a run leaves its channel for the next run.
    if (!keeper->is_family) return 1;
    sys(SYS_close, member->channel);
    vj_refusals_member(keeper->setup, &keeper->refused,
                       (uint32_t)(member - keeper->members), 0);
    *member = (vj_member){.channel = -1};
    return 1;
}

// ---- further members -----------------------------------------------------------

static long become_family(vj_keeper *keeper) {
    long count = vj_tree_children(keeper->elders, VJ_ELDERS_MAX);
    if (count < 0) return count;
    keeper->elder_count = (uint32_t)count;
    forget_elder(keeper, keeper->members[0].pid);
    keeper->is_family = 1;
    return 0;
}

static vj_member *free_place(vj_keeper *keeper) {
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        if (keeper->members[i].channel < 0) return &keeper->members[i];
    }
    if (keeper->member_count == VJ_MEMBERS_MAX) return 0;
    return &keeper->members[keeper->member_count++];
}

void vj_member_expect(vj_keeper *keeper, int channel, uint64_t limit_ns) {
    long result = keeper->is_family ? 0 : become_family(keeper);
    vj_member *member = result < 0 ? 0 : free_place(keeper);
    if (!member) {
        vj_message failed = {
            .kind = VJ_MESSAGE_FAILED,
            .stage = VJ_STAGE_PROCESS,
            .error = result < 0 ? (int32_t)-result : EUSERS,
        };
        vj_message_send(channel, &failed, 0, 0, 0, 0);
        sys(SYS_close, channel);
        return;
    }
    *member = (vj_member){
        .channel = channel,
        .expected = 1,
        .limit_ns = limit_ns,
        .deadline = vj_clock() + EXPECT_NS,
    };
    vj_message done = {.kind = VJ_MESSAGE_DONE};
    reply(member, &done);
}

long vj_member_adopt(vj_keeper *keeper, vj_member *member, int process) {
    long pid = vj_process_number(process);
    if (pid <= 0) return -ESRCH;
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        const vj_member *other = &keeper->members[i];
        if (other->pid == pid) return -EEXIST;
    }
    // Of its children alone: the kernel knows no others by this call.
    siginfo_t state;
    memset(&state, 0, sizeof state);
    long result = sys(SYS_waitid, P_PID, pid, &state, WEXITED | WNOWAIT | WNOHANG, 0);
    if (result < 0) return result;
    forget_elder(keeper, pid);
    member->pid = (int)pid;
    vj_refusals_member(keeper->setup, &keeper->refused,
                       (uint32_t)(member - keeper->members), (int32_t)pid);
    member->expected = 0;
    member->deadline = member->limit_ns ? vj_clock() + member->limit_ns : 0;
    return 0;
}

static void tell_done(const vj_member *member) {
    vj_message done = {.kind = VJ_MESSAGE_DONE};
    reply(member, &done);
}

void vj_member_suspend(vj_keeper *keeper, vj_member *member, int suspended) {
    // Once is enough: a second look would take all for stopped by job control.
    int is_new = member->suspended != suspended;
    member->suspended = suspended;
    member->resumed = 0;
    member->settle_until = 0;
    member->hold_pause = HOLD_LEAST_NS;
    member->hold_at = vj_clock() + HOLD_LEAST_NS;
    if (is_new && suspended) {
        member->hold_at = vj_clock();
        member->settle_until = member->hold_at + SETTLE_NS;
        vj_tree_suspend(others(keeper, member), member->settle_until);
        return;
    }
    if (is_new) vj_tree_resume(others(keeper, member));
    tell_done(member);
}

// A signal takes a moment to arrive.
static void settle(vj_keeper *keeper, vj_member *member) {
    uint64_t start = vj_clock();
    if (!vj_tree_stands_still(others(keeper, member)) && start < member->settle_until) {
        member->hold_at = vj_clock() + SETTLE_WAIT_NS;
        return;
    }
    vj_tree_hold(others(keeper, member)); // what is there, and what it has run
    member->settle_until = 0;
    member->hold_at = vj_clock() + HOLD_LEAST_NS;
    tell_done(member);
}

// SIGSTOP is undone by SIGCONT, and a process can have that sent to itself while it
// stands still: by a timer, a descriptor, or the end of its parent. It is stopped again,
// and the keeper ends the member when that does not help.
void vj_member_hold(vj_keeper *keeper, vj_member *member) {
    uint64_t start = vj_clock();
    if (!member->suspended || start < member->hold_at) return;
    if (member->settle_until) {
        settle(keeper, member);
        return;
    }
    uint32_t running = vj_tree_hold(others(keeper, member));
    member->resumed += running != 0;
    member->hold_pause *= 2;
    if (running) member->hold_pause = HOLD_LEAST_NS;
    if (member->hold_pause > HOLD_MOST_NS) member->hold_pause = HOLD_MOST_NS;
    uint64_t end = vj_clock();
    uint64_t least = (end - start) * HOLD_SHARE;
    member->hold_at = end + (least > member->hold_pause ? least : member->hold_pause);
}

void vj_members_pause(vj_keeper *keeper, int paused) {
    if (keeper->is_paused == paused) return;
    keeper->is_paused = paused;
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        const vj_member *member = &keeper->members[i];
        if (member->channel < 0 || member->suspended) continue;
        if (paused) vj_tree_suspend(others(keeper, member), vj_clock() + SETTLE_NS);
        else vj_tree_resume(others(keeper, member));
    }
}
