// A keeper: a process that owns the tree of one run at a time, and ends it.
//
// Keepers are forked ahead by pid 1 and wait for a request. When nothing of a run is
// left a keeper can take the next one, which saves a fork and an exit. As child
// subreaper a keeper inherits every descendant whose parent ended, however
// often it forked or changed its session, so "no child left" means that
// nothing of the run is left. Keepers are outside the guest's Landlock domain: a
// guest cannot signal them. If one is killed all the same, pid 1 ends the jail.

#include "linux_init.h"
#include "linux_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/time_types.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SIGNAL_SET_SIZE 8
#define NANOSECONDS     1000000000ull
#define END_TURNS       500      // ten seconds, if nothing ends
#define KILL_WAIT_NS    20000000 // between passes over a tree that is ending
#define DEATHS_NS       200000000
#define MEMORY_TICK_NS  10000000

// How often to look whether a suspended run stands still, and how often it may not.
#define HOLD_LEAST_NS 50000000ull
#define HOLD_MOST_NS  400000000ull
#define HOLD_SHARE    10 // a look is followed by a pause of this many times its length
#define RESUMED_MOST  16

typedef struct {
    const vj_setup *setup;
    int channel;
    int signals;
    int pid; // of the direct child, 0 once it has been reaped
    int status;
    vj_stop stop;
    int suspended;
    uint64_t hold_at;    // when to look next whether it stands still
    uint64_t hold_pause; // how long the last pause was
    uint32_t resumed;    // how often it did not
    uint32_t killed;
    uint64_t deadline;   // CLOCK_MONOTONIC, 0: none
    uint64_t program_us; // of the direct child alone
    uint64_t user_us;    // of all that was reaped
    uint64_t system_us;
    uint64_t resident_kib; // the largest
    vj_memory memory;
} vj_keeper;

static void reply(vj_keeper *keeper, vj_message *message) {
    vj_message_send(keeper->channel, message, 0, 0, 0, 0);
}

static uint64_t microseconds(const struct timeval *time) {
    return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

// What the limit of processor time is about is the direct child's own time, which
// is mixed with that of its children once it has been reaped.
static void measure_program(vj_keeper *keeper) {
    siginfo_t ended;
    memset(&ended, 0, sizeof ended);
    int flags = WEXITED | WNOWAIT | WNOHANG;
    if (sys(SYS_waitid, P_PID, keeper->pid, &ended, flags, 0) == 0 && ended.si_pid) {
        keeper->program_us = vj_tree_processor_time(keeper->pid);
    }
}

int vj_signals_drain(int signals) {
    struct signalfd_siginfo records[4];
    int ordered = 0;
    for (;;) {
        long size = sys(SYS_read, signals, records, sizeof records);
        if (size <= 0) return ordered;
        for (long i = 0; i < size / (long)sizeof *records; i++) {
            ordered |= records[i].ssi_signo == SIGTERM;
        }
    }
}

static int reap(vj_keeper *keeper) {
    if (keeper->pid && keeper->setup->plan->limits.cpu_seconds) measure_program(keeper);
    for (;;) {
        int status = 0;
        struct rusage usage;
        memset(&usage, 0, sizeof usage);
        long pid = sys(SYS_wait4, -1, &status, WNOHANG, &usage);
        if (pid == -ECHILD) return 0;
        if (pid <= 0) return 1;
        // With what it had waited for itself.
        keeper->user_us += microseconds(&usage.ru_utime);
        keeper->system_us += microseconds(&usage.ru_stime);
        if ((uint64_t)usage.ru_maxrss > keeper->resident_kib) {
            keeper->resident_kib = (uint64_t)usage.ru_maxrss;
        }
        if (pid == keeper->pid) {
            keeper->status = status;
            keeper->pid = 0;
        }
    }
}

// Take the deaths that come, until none has come for a while: to look at the
// whole tree after each would take longer than the deaths themselves. Not for
// ever, because what is not ended yet may go on making short-lived children.
static void await_deaths(vj_keeper *keeper) {
    uint64_t end = vj_clock() + DEATHS_NS;
    while (reap(keeper) && vj_clock() < end) {
        struct pollfd wait = {.fd = keeper->signals, .events = POLLIN};
        struct __kernel_timespec timeout = {.tv_nsec = KILL_WAIT_NS};
        if (sys(SYS_ppoll, &wait, 1, &timeout, 0, SIGNAL_SET_SIZE) == 0) return;
        vj_signals_drain(keeper->signals);
    }
}

// End everything that is left.
static void end_tree(vj_keeper *keeper) {
    for (int turn = 0; reap(keeper); turn++) {
        // Ending as a failure makes pid 1 end the jail, and this run with it.
        if (turn == END_TURNS) vj_exit_process(1);
        keeper->killed += vj_tree_kill();
        await_deaths(keeper);
    }
}

static void suspend(vj_keeper *keeper, int suspended) {
    // Once is enough: a second look would take all for stopped by job control.
    if (keeper->suspended != suspended) {
        if (suspended) {
            vj_tree_suspend();
        } else {
            vj_tree_resume();
        }
    }
    keeper->suspended = suspended;
    keeper->resumed = 0;
    keeper->hold_pause = HOLD_LEAST_NS;
    keeper->hold_at = vj_clock() + HOLD_LEAST_NS;
    vj_message done = {.kind = VJ_MESSAGE_DONE};
    reply(keeper, &done);
}

// SIGSTOP is undone by SIGCONT, and a process can have that sent to itself while it
// stands still: by a timer, a descriptor, or the end of its parent. It is stopped again,
// and the run ended when that does not help.
static void hold(vj_keeper *keeper) {
    uint64_t start = vj_clock();
    if (!keeper->suspended || start < keeper->hold_at) return;
    uint32_t running = vj_tree_hold();
    keeper->resumed += running != 0;
    keeper->hold_pause *= 2;
    if (running) keeper->hold_pause = HOLD_LEAST_NS;
    if (keeper->hold_pause > HOLD_MOST_NS) keeper->hold_pause = HOLD_MOST_NS;
    uint64_t end = vj_clock();
    uint64_t least = (end - start) * HOLD_SHARE;
    keeper->hold_at = end + (least > keeper->hold_pause ? least : keeper->hold_pause);
}

// ---- the run ---------------------------------------------------------------

static long receive(vj_keeper *keeper, vj_request *request, int wait) {
    static char data[VJ_INLINE_DATA_MAX];
    struct iovec parts[2] = {
        {.iov_base = &request->message, .iov_len = sizeof request->message},
        {.iov_base = data, .iov_len = sizeof data},
    };
    static char control[CMSG_SPACE(VJ_DESCRIPTORS_MAX * sizeof(int))]
        __attribute__((aligned(8)));
    struct msghdr header = {
        .msg_iov = parts,
        .msg_iovlen = 2,
        .msg_control = control,
        .msg_controllen = sizeof control,
    };
    long size = sys(SYS_recvmsg, keeper->channel, &header,
                    MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
    if (size <= 0) return size;
    request->descriptor_count = 0;
    struct cmsghdr *part = CMSG_FIRSTHDR(&header);
    if (part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
        request->descriptor_count =
            (uint32_t)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(request->descriptors, CMSG_DATA(part),
               request->descriptor_count * sizeof(int));
    }
    if (header.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) return -EMSGSIZE;
    if (size < (long)sizeof request->message) return -EMSGSIZE;
    request->data = data;
    return size;
}

// Long argument lists come in a sealed memfd, the last descriptor.
static long map_strings(vj_request *request) {
    const vj_message *message = &request->message;
    if (!(message->flags & VJ_SPAWN_MEMFD)) {
        return message->data_size <= VJ_INLINE_DATA_MAX ? 0 : -E2BIG;
    }
    if (!request->descriptor_count || message->data_size > VJ_SPAWN_DATA_MAX)
        return -E2BIG;
    int memory = request->descriptors[--request->descriptor_count];
    long address = sys(SYS_mmap, 0, message->data_size, PROT_READ, MAP_PRIVATE, memory);
    sys(SYS_close, memory);
    if (address < 0 && address > -4096) return address;
    request->data = (char *)address;
    return 0;
}

static void close_descriptors(vj_request *request) {
    for (uint32_t i = 0; i < request->descriptor_count; i++) {
        sys(SYS_close, request->descriptors[i]);
    }
    request->descriptor_count = 0;
}

static long start(vj_keeper *keeper, vj_request *request, vj_stage *stage) {
    *stage = VJ_STAGE_REQUEST;
    const char *inside = request->data;
    long result = map_strings(request);
    if (result == 0 && request->descriptor_count != request->message.descriptor_count) {
        result = -EBADF;
    }
    if (result == 0) result = vj_program_start(keeper->setup, request, stage);
    if (request->data != inside) {
        sys(SYS_munmap, request->data, request->message.data_size);
    }
    return result;
}

static void handle_host(vj_keeper *keeper) {
    vj_request request = {0};
    long size = receive(keeper, &request, 0);
    if (size == -EAGAIN) return;
    if (size <= 0) {
        // The host let go of the run: it has no owner left.
        keeper->stop = VJ_STOP_KILLED;
        return;
    }
    close_descriptors(&request);
    if (request.message.kind == VJ_MESSAGE_KILL) keeper->stop = VJ_STOP_KILLED;
    if (request.message.kind == VJ_MESSAGE_SIGNAL && keeper->pid) {
        sys(SYS_kill, keeper->pid, request.message.status);
    }
    if (request.message.kind == VJ_MESSAGE_SUSPEND) suspend(keeper, 1);
    if (request.message.kind == VJ_MESSAGE_RESUME) suspend(keeper, 0);
}

// How long the keeper may sleep, or UINT64_MAX.
static uint64_t time_left(const vj_keeper *keeper) {
    uint64_t time = vj_clock();
    uint64_t left = UINT64_MAX;
    if (keeper->deadline) left = keeper->deadline > time ? keeper->deadline - time : 0;
    if (vj_memory_is_bounded(keeper->setup) && left > MEMORY_TICK_NS)
        left = MEMORY_TICK_NS;
    if (keeper->suspended) {
        uint64_t pause = keeper->hold_at > time ? keeper->hold_at - time : 0;
        if (left > pause) left = pause;
    }
    return left;
}

// Wait until the direct child has ended, a limit is reached or the host wants the end.
static void watch(vj_keeper *keeper) {
    while (keeper->pid && !keeper->stop) {
        struct pollfd events[2] = {
            {.fd = keeper->channel, .events = POLLIN},
            {.fd = keeper->signals, .events = POLLIN},
        };
        uint64_t time = time_left(keeper);
        struct __kernel_timespec left = {
            .tv_sec = (long long)(time / NANOSECONDS),
            .tv_nsec = (long long)(time % NANOSECONDS),
        };
        long result =
            sys(SYS_ppoll, events, 2, time == UINT64_MAX ? 0 : &left, 0, SIGNAL_SET_SIZE);
        if (result < 0 && result != -EINTR) vj_exit_process(1);
        if (events[1].revents) {
            if (vj_signals_drain(keeper->signals)) keeper->stop = VJ_STOP_CLOSED;
            // Only the direct child ends the run; adopted ones are just reaped.
            reap(keeper);
        }
        if (keeper->stop == VJ_STOP_CLOSED) return;
        hold(keeper);
        // Also of a child that has just ended: the kernel may have ended it for this.
        if (vj_memory_is_over(keeper->setup, &keeper->memory)) {
            keeper->stop = VJ_STOP_MEMORY;
        } else if (keeper->pid && keeper->deadline && vj_clock() >= keeper->deadline) {
            keeper->stop = VJ_STOP_TIMEOUT;
        } else if (keeper->pid && keeper->resumed >= RESUMED_MOST) {
            keeper->stop = VJ_STOP_KILLED;
        } else if (keeper->pid && events[0].revents) {
            handle_host(keeper);
        }
    }
}

static void report_exit(vj_keeper *keeper) {
    vj_message exited = {
        .kind = VJ_MESSAGE_EXITED,
        .status = keeper->status,
        .stop = keeper->stop,
        .killed = keeper->killed,
        .program_us = keeper->program_us,
        .user_us = keeper->user_us,
        .system_us = keeper->system_us,
        .resident_kib = keeper->resident_kib,
        .watched = keeper->memory.watched,
    };
    reply(keeper, &exited);
}

// Wait for the next request. Orders to a run that had just ended may come before it.
static long next_request(vj_keeper *keeper, vj_request *request) {
    for (;;) {
        long size = receive(keeper, request, 1);
        if (size == 0 || size == -ECONNRESET) vj_exit_process(0); // no longer needed
        if (size < 0 || request->message.kind == VJ_MESSAGE_SPAWN) return size;
        close_descriptors(request);
    }
}

// Without a pid namespace nothing ends with the supervisor. A keeper that has no run
// yet ends with it, by this signal; one that has takes it as the order to end the run.
static uint64_t follow_supervisor(const vj_setup *setup, long supervisor) {
    if (setup->plan->backend != VJ_BACKEND_LANDLOCK) return 0;
    long result = sys(SYS_prctl, PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    if (result < 0 || sys(SYS_getppid) != supervisor) vj_exit_process(1);
    return 1ull << (SIGTERM - 1);
}

static void serve(const vj_setup *setup, int channel, int signals, uint64_t end_signal) {
    vj_keeper keeper = {.setup = setup, .channel = channel, .signals = signals};
    vj_request request = {0};
    sys(SYS_rt_sigprocmask, SIG_UNBLOCK, &end_signal, 0, SIGNAL_SET_SIZE);
    long size = next_request(&keeper, &request);
    sys(SYS_rt_sigprocmask, SIG_BLOCK, &end_signal, 0, SIGNAL_SET_SIZE);
    vj_memory_begin(setup, &keeper.memory);
    vj_stage stage = VJ_STAGE_REQUEST;
    long result = size < 0 ? size : start(&keeper, &request, &stage);
    if (size > 0) close_descriptors(&request);
    if (result < 0) {
        vj_message failed = {
            .kind = VJ_MESSAGE_FAILED, .stage = stage, .error = (int32_t)-result};
        reply(&keeper, &failed);
        return;
    }
    keeper.pid = (int)result;
    if (request.message.timeout_ns)
        keeper.deadline = vj_clock() + request.message.timeout_ns;
    if (!(request.message.flags & VJ_SPAWN_QUIET)) {
        vj_message started = {.kind = VJ_MESSAGE_STARTED, .pid = keeper.pid};
        reply(&keeper, &started);
    }

    watch(&keeper);
    end_tree(&keeper);
    report_exit(&keeper);
    if (keeper.stop == VJ_STOP_CLOSED) vj_exit_process(0); // after its supervisor
}

_Noreturn void vj_keeper_run(const vj_setup *setup, int channel, long supervisor) {
    uint64_t end_signal = follow_supervisor(setup, supervisor);
    uint64_t watched = 1ull << (SIGCHLD - 1) | end_signal;
    // Without it descendants would slip away to pid 1.
    if (sys(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) vj_exit_process(1);
    int signals =
        (int)sys(SYS_signalfd4, -1, &watched, SIGNAL_SET_SIZE, O_CLOEXEC | O_NONBLOCK);
    if (signals < 0) vj_exit_process(1);
    for (;;) {
        vj_tree_forget();
        serve(setup, channel, signals, end_signal);
    }
}
