// A keeper: a process that owns the tree of one run at a time, and ends it.
//
// Keepers are forked ahead by pid 1 and wait for a request. When nothing of a run is
// left a keeper can take the next one, which saves a fork and an exit. A program can
// become several (linux_members.c); then the keeper ends with the last. As child
// subreaper a keeper inherits every descendant whose parent ended, however
// often it forked or changed its session, so "no child left" means that
// nothing of the run is left. Keepers are outside the guest's Landlock domain: a
// guest cannot signal them. If one is killed all the same, pid 1 ends the jail.

#include "linux_init.h"
#include "linux_members.h"
#include "linux_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/time_types.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#define SIGNAL_SET_SIZE 8
#define NANOSECONDS     1000000000ull
#define MEMORY_TICK_NS  10000000

// How often a suspended member may have run on.
#define RESUMED_MOST 16

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

// ---- requests ---------------------------------------------------------------

static long receive(int channel, vj_request *request, int wait) {
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
    long size =
        sys(SYS_recvmsg, channel, &header, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
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

static long start(const vj_setup *setup, vj_request *request, vj_stage *stage) {
    *stage = VJ_STAGE_REQUEST;
    const char *inside = request->data;
    long result = map_strings(request);
    if (result == 0 && request->descriptor_count != request->message.descriptor_count) {
        result = -EBADF;
    }
    if (result == 0) result = vj_program_start(setup, request, stage);
    if (request->data != inside) {
        sys(SYS_munmap, request->data, request->message.data_size);
    }
    return result;
}

// ---- the run ---------------------------------------------------------------

static void answer_adoption(vj_keeper *keeper, vj_member *member, vj_request *request) {
    int process = request->descriptor_count ? request->descriptors[0] : -1;
    long result = vj_member_adopt(keeper, member, process);
    vj_message answer = {.kind = VJ_MESSAGE_STARTED,
                         .pid = member->pid,
                         .refusal_slot = keeper->refused.slot,
                         .refusal_generation = keeper->refused.generation};
    if (result < 0) {
        answer = (vj_message){.kind = VJ_MESSAGE_FAILED,
                              .stage = VJ_STAGE_PROCESS,
                              .error = (int32_t)-result};
        member->stop = VJ_STOP_KILLED;
    }
    vj_message_send(member->channel, &answer, 0, 0, 0, 0);
}

static void handle_host(vj_keeper *keeper, vj_member *member) {
    vj_request request = {0};
    long size = receive(member->channel, &request, 0);
    if (size == -EAGAIN) return;
    if (size <= 0) {
        // The host let go of the run: it has no owner left.
        member->stop = VJ_STOP_KILLED;
        return;
    }
    uint32_t kind = request.message.kind;
    if (kind == VJ_MESSAGE_EXPECT && member->pid && request.descriptor_count == 1) {
        // Its descriptor stays.
        request.descriptor_count = 0;
        vj_member_expect(keeper, request.descriptors[0], request.message.timeout_ns);
    }
    if (kind == VJ_MESSAGE_ADOPT && member->expected) {
        answer_adoption(keeper, member, &request);
    }
    close_descriptors(&request);
    if (kind == VJ_MESSAGE_KILL) member->stop = VJ_STOP_KILLED;
    if (kind == VJ_MESSAGE_SIGNAL && member->pid) {
        sys(SYS_kill, member->pid, request.message.status);
    }
    // What stands still for the host would count as stopped by job control.
    if (kind == VJ_MESSAGE_SUSPEND) vj_members_pause(keeper, 0);
    if (kind == VJ_MESSAGE_SUSPEND) vj_member_suspend(keeper, member, 1);
    if (kind == VJ_MESSAGE_RESUME) vj_member_suspend(keeper, member, 0);
}

// How long the keeper may sleep.
static uint64_t time_left(vj_keeper *keeper) {
    uint64_t time = vj_clock();
    uint64_t left = UINT64_MAX;
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        const vj_member *member = &keeper->members[i];
        if (member->channel < 0 || member->stop) continue;
        uint64_t next = member->deadline ? member->deadline : UINT64_MAX;
        if (member->suspended && member->hold_at < next) next = member->hold_at;
        if (next == UINT64_MAX) continue;
        uint64_t its = next > time ? next - time : 0;
        if (its < left) left = its;
    }
    uint64_t look = keeper->watchdog.look_at;
    uint64_t until_look = look > time ? look - time : 0;
    if (until_look < left) left = until_look;
    if (vj_memory_is_bounded(keeper->setup) && left > MEMORY_TICK_NS)
        left = MEMORY_TICK_NS;
    return left;
}

static int is_over(const vj_member *member) {
    return member->channel >= 0 && (member->stop || (!member->expected && !member->pid));
}

static int has_ended(const vj_keeper *keeper) {
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        if (is_over(&keeper->members[i])) return 1;
    }
    return 0;
}

static void stop_all(vj_keeper *keeper, vj_stop stop) {
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        vj_member *member = &keeper->members[i];
        if (member->channel >= 0 && !member->stop) member->stop = stop;
    }
}

// Wait until something happens; fills what came of each member's channel.
static void look_around(vj_keeper *keeper, struct pollfd *events) {
    uint32_t count = 1;
    events[0] = (struct pollfd){.fd = keeper->signals, .events = POLLIN};
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        const vj_member *member = &keeper->members[i];
        // One that only waits to be ended is not listened to any more.
        int channel = is_over(member) ? -1 : member->channel;
        events[count++] = (struct pollfd){.fd = channel, .events = POLLIN};
    }
    uint64_t time = time_left(keeper);
    struct __kernel_timespec left = {
        .tv_sec = (long long)(time / NANOSECONDS),
        .tv_nsec = (long long)(time % NANOSECONDS),
    };
    long result = sys(SYS_ppoll, events, count, &left, 0, SIGNAL_SET_SIZE);
    if (result < 0 && result != -EINTR) vj_exit_process(1);
}

static void mind_host(vj_keeper *keeper) {
    vj_host_state state = vj_watchdog_look(keeper->setup, &keeper->watchdog);
    // Ending as a failure makes pid 1 end the jail.
    if (state == VJ_HOST_EXPIRED) vj_exit_process(1);
    if (state == VJ_HOST_STUCK) stop_all(keeper, VJ_STOP_KILLED);
    vj_members_pause(keeper, state == VJ_HOST_WAITS);
}

static void handle_events(vj_keeper *keeper, const struct pollfd *events) {
    if (events[0].revents) {
        if (vj_signals_drain(keeper->signals)) keeper->ordered = 1;
        // Only the death of a member ends something; adopted ones are just reaped.
        vj_members_reap(keeper);
    }
    if (keeper->ordered) {
        stop_all(keeper, VJ_STOP_CLOSED);
        return;
    }
    // Also where a program has just ended: the kernel may have ended it for this. Its
    // memory is free by then.
    if (vj_memory_is_over(keeper->setup, &keeper->memory, has_ended(keeper))) {
        stop_all(keeper, VJ_STOP_MEMORY);
        return;
    }
    mind_host(keeper);
    // A member that is added on the way has no event yet.
    uint32_t count = keeper->member_count;
    for (uint32_t i = 0; i < count; i++) {
        vj_member *member = &keeper->members[i];
        if (is_over(member)) continue;
        vj_member_hold(keeper, member);
        if (member->deadline && vj_clock() >= member->deadline) {
            member->stop = VJ_STOP_TIMEOUT;
        } else if (member->resumed >= RESUMED_MOST) {
            member->stop = VJ_STOP_KILLED;
        } else if (events[i + 1].revents) {
            handle_host(keeper, member);
        }
    }
}

// End the members that are over; returns whether any is left.
static int end_members(vj_keeper *keeper) {
    int left = 0;
    for (uint32_t i = 0; i < keeper->member_count; i++) {
        vj_member *member = &keeper->members[i];
        if (member->channel < 0) continue;
        if (!is_over(member) || !vj_member_end(keeper, member)) left = 1;
    }
    return left;
}

// Serve the members until none is left.
static void watch(vj_keeper *keeper) {
    static struct pollfd events[VJ_MEMBERS_MAX + 1];
    do {
        look_around(keeper, events);
        handle_events(keeper, events);
    } while (end_members(keeper));
}

// Wait for the next request. Orders to a run that had just ended may come before it.
static long next_request(int channel, vj_request *request) {
    for (;;) {
        long size = receive(channel, request, 1);
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

// In a domain of its own, a keeper ends its run at one moment, and cannot meet another.
static void keep_to_own_run(const vj_setup *setup, long supervisor) {
    if (setup->plan->backend != VJ_BACKEND_LANDLOCK) return;
    long result = vj_landlock_scope_signals();
    if (result < 0 || sys(SYS_kill, supervisor, 0) != -EPERM) vj_exit_process(1);
}

static void serve(vj_keeper *keeper, int channel, uint64_t end_signal) {
    const vj_setup *setup = keeper->setup;
    vj_request request = {0};
    sys(SYS_rt_sigprocmask, SIG_UNBLOCK, &end_signal, 0, SIGNAL_SET_SIZE);
    long size = next_request(channel, &request);
    sys(SYS_rt_sigprocmask, SIG_BLOCK, &end_signal, 0, SIGNAL_SET_SIZE);
    vj_memory_begin(setup, &keeper->memory);
    vj_refusals_begin(setup, &keeper->refused);
    vj_watchdog_begin(&keeper->watchdog);
    keeper->is_paused = 0;
    vj_stage stage = VJ_STAGE_REQUEST;
    long result = size < 0 ? size : start(setup, &request, &stage);
    if (size > 0) close_descriptors(&request);
    if (result < 0) {
        vj_message failed = {
            .kind = VJ_MESSAGE_FAILED, .stage = stage, .error = (int32_t)-result};
        vj_message_send(channel, &failed, 0, 0, 0, 0);
        return;
    }
    keeper->member_count = 1;
    keeper->members[0] = (vj_member){.channel = channel, .pid = (int)result};
    vj_refusals_member(setup, &keeper->refused, 0, (int32_t)result);
    if (request.message.timeout_ns)
        keeper->members[0].deadline = vj_clock() + request.message.timeout_ns;
    if (!(request.message.flags & VJ_SPAWN_QUIET)) {
        vj_message started = {.kind = VJ_MESSAGE_STARTED,
                              .pid = keeper->members[0].pid,
                              .refusal_slot = keeper->refused.slot,
                              .refusal_generation = keeper->refused.generation};
        vj_message_send(channel, &started, 0, 0, 0, 0);
    }

    watch(keeper);
    // After its supervisor; and the channel of a family is closed.
    if (keeper->ordered || keeper->is_family) vj_exit_process(0);
}

_Noreturn void vj_keeper_run(const vj_setup *setup, int channel, long supervisor) {
    uint64_t end_signal = follow_supervisor(setup, supervisor);
    keep_to_own_run(setup, supervisor);
    uint64_t watched = 1ull << (SIGCHLD - 1) | end_signal;
    // Without it descendants would slip away to pid 1.
    if (sys(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) vj_exit_process(1);
    int signals =
        (int)sys(SYS_signalfd4, -1, &watched, SIGNAL_SET_SIZE, O_CLOEXEC | O_NONBLOCK);
    if (signals < 0) vj_exit_process(1);
    static vj_keeper keeper;
    keeper.setup = setup;
    keeper.signals = signals;
    for (;;) {
        vj_tree_forget();
        serve(&keeper, channel, end_signal);
    }
}
