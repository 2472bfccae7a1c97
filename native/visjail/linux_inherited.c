// What a program inherits from whoever started it, and a jail must not: sessions,
// signals, priorities and limits of the host.

#include "linux_init.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/resource.h>

#define SIGNAL_SET_SIZE 8
#define NICE_ZERO       20 // getpriority(2) as the kernel answers: 20 - nice
#define IOPRIO_PROCESS  1

// Signals that wait in a queue count for the user, on the whole machine. This is far
// below the usual limit of a user and far above what programs use.
#define QUEUED_SIGNALS 4096

#define USUAL_UMASK 022

static void default_signals(void) {
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } action = {0};
    // An ignored SIGCHLD is inherited through exec and would make every wait
    // fail with ECHILD.
    for (int number = 1; number <= 64; number++) {
        sys(SYS_rt_sigaction, number, &action, 0, SIGNAL_SET_SIZE);
    }
    uint64_t none = 0;
    sys(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, SIGNAL_SET_SIZE);
}

// A host may have closed 0, 1 or 2. Whatever this program opened would land
// there, and be lost when they are replaced.
static void fill_standard_descriptors(void) {
    long opened;
    do {
        opened = sys(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
    } while (opened >= 0 && opened < 3);
    if (opened >= 0) sys(SYS_close, opened);
}

// Each bind holds a descriptor until it is attached. Raising the soft limit to
// the hard one needs no right.
static void raise_descriptor_limit(void) {
    struct rlimit64 limit = {0};
    if (sys(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        sys(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, 0);
    }
}

// To `most` where more is allowed; the soft limit goes as far up as it may.
static void set_limit(int resource, uint64_t most) {
    struct rlimit64 limit = {0};
    if (sys(SYS_prlimit64, 0, resource, 0, &limit) < 0) return;
    if (limit.rlim_max > most) limit.rlim_max = most;
    limit.rlim_cur = limit.rlim_max;
    sys(SYS_prlimit64, 0, resource, &limit, 0);
}

// Nobody is favoured because the host is: to have less needs no right. A host that
// has put itself behind others keeps its guests there, too.
static void lower_priority(void) {
    if (sys(SYS_sched_getscheduler, 0) > 0) {
        long policy = sys(SYS_sched_getscheduler, 0) & ~(long)SCHED_RESET_ON_FORK;
        int priority = 0;
        if (policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE) {
            sys(SYS_sched_setscheduler, 0, SCHED_NORMAL, &priority);
        }
    }
    if (sys(SYS_getpriority, PRIO_PROCESS, 0) > NICE_ZERO) {
        sys(SYS_setpriority, PRIO_PROCESS, 0, 0);
    }
    sys(SYS_ioprio_set, IOPRIO_PROCESS, 0, 0);
    // 1 and not 0: with 0 the kernel still starts a core handler that is a pipe, on
    // the host, as host root. Set here because the filter keeps guests from it.
    set_limit(RLIMIT_CORE, 1);
    set_limit(RLIMIT_NICE, 0);
    set_limit(RLIMIT_RTPRIO, 0);
    set_limit(RLIMIT_SIGPENDING, QUEUED_SIGNALS);
    VJ_AUTO_FD file =
        (int)sys(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC, 0);
    char sign = 0;
    if (file >= 0 && sys(SYS_pread64, file, &sign, 1, 0) == 1 && sign == '-') {
        sys(SYS_write, file, "0", 1);
    }
}

void vj_inherited_reset(void) {
    fill_standard_descriptors();
    // The folders that lead to the grants are made under it, and so are the guests'
    // files.
    sys(SYS_umask, USUAL_UMASK);
    default_signals();
    // Out of the terminal's reach, whose signals are for the host; and out of the
    // host's session, whose share of the processors a guest could else change. It
    // fails only for the leader of a process group, which has one of its own.
    sys(SYS_setsid);
    lower_priority();
    raise_descriptor_limit();
}
