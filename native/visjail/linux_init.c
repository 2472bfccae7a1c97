// visjail-init: makes one jail, then serves it as pid 1.
//
// The host executes it with three descriptors: the control socket, a pidfd of
// the host, and the plan in a sealed memfd. It enters the namespaces, and its
// child (CLONE_PARENT: a direct child of the host) builds the mounts, gives up
// every right, and from then on only forks keepers and makes terminals.
//
// The end of the host is seen by the pidfd. The end of the socket alone would
// not do: a forked child of the host holds it open. PDEATHSIG would not do
// either: it follows the thread that started us, not the process.

#include "linux_init.h"
#include "linux_tree.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/if.h>
#include <linux/ioctl.h>
#include <linux/sched.h>
#include <linux/sockios.h>
#include <linux/time_types.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SIGNAL_SET_SIZE 8
#define END_TURNS       500      // ten seconds, if nothing ends
#define END_WAIT_NS     20000000 // between passes over what is ending

long vj_message_send(int socket, const vj_message *message, const void *data, size_t size,
                     const int *descriptors, uint32_t descriptor_count) {
    struct iovec parts[2] = {
        {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message},
        {.iov_base = (void *)(uintptr_t)data, .iov_len = size},
    };
    char control[CMSG_SPACE(VJ_DESCRIPTORS_MAX * sizeof(int))]
        __attribute__((aligned(8)));
    memset(control, 0, sizeof control);
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = size ? 2 : 1};
    if (descriptor_count) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(descriptor_count * sizeof(int));
        struct cmsghdr *part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(descriptor_count * sizeof(int));
        memcpy(CMSG_DATA(part), descriptors, descriptor_count * sizeof(int));
    }
    long result = sys(SYS_sendmsg, socket, &header, MSG_NOSIGNAL);
    return result < 0 ? result : 0;
}

_Noreturn void vj_setup_fail(const vj_setup *setup, vj_stage stage, long error) {
    vj_message failed = {
        .kind = VJ_MESSAGE_FAILED,
        .stage = stage,
        .error = (int32_t)-error,
        .index = setup->failed_index,
    };
    vj_message_send(VJ_FD_CONTROL, &failed, 0, 0, 0, 0);
    vj_exit_process(125);
}

// ---- start -----------------------------------------------------------------

static void read_plan(vj_setup *setup) {
    long size = sys(SYS_lseek, VJ_FD_PLAN, 0, 2 /* SEEK_END */);
    if (size < (long)sizeof(vj_plan) || size > (long)VJ_PLAN_MAX_SIZE) {
        vj_setup_fail(setup, VJ_STAGE_PLAN, -EMSGSIZE);
    }
    long address = sys(SYS_mmap, 0, size, PROT_READ, MAP_PRIVATE, VJ_FD_PLAN);
    if (address < 0 && address > -4096) vj_setup_fail(setup, VJ_STAGE_PLAN, address);
    const vj_plan *plan = (const vj_plan *)address;
    if (vj_plan_check(plan, (size_t)size)) vj_setup_fail(setup, VJ_STAGE_PLAN, -EINVAL);
    sys(SYS_close, VJ_FD_PLAN);
    setup->plan = plan;
    long table = vj_call(SYS_mmap, 0, (long)((plan->operation_count + 1) * sizeof(int)),
                         PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table < 0 && table > -4096) vj_setup_fail(setup, VJ_STAGE_PLAN, table);
    setup->trees = (int *)table;
}

static void map_calls(vj_setup *setup) {
    long page =
        sys(SYS_mmap, 0, sizeof *setup->calls, PROT_READ, MAP_SHARED, VJ_FD_CALLS);
    if (page < 0 && page > -4096) vj_setup_fail(setup, VJ_STAGE_SUPERVISOR, page);
    sys(SYS_close, VJ_FD_CALLS);
    setup->calls = (const vj_calls *)page;
}

static void enter_namespaces(vj_setup *setup) {
    long flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWCGROUP;
    if (!setup->shared_memory) flags |= CLONE_NEWIPC; // else it has one already
    long result = sys(SYS_unshare, flags);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_NAMESPACES, result);
}

static void raise_loopback(vj_setup *setup) {
    VJ_AUTO_FD socket = (int)sys(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request;
    memset(&request, 0, sizeof request);
    request.ifr_name[0] = 'l';
    request.ifr_name[1] = 'o';
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    long result = socket < 0 ? socket : sys(SYS_ioctl, socket, SIOCSIFFLAGS, &request);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_NETWORK, result);
}

// Let a guest listen on any port of its own network (Linux 4.11): which of them the host
// reaches, and by what port there, is the policy's. Without a right to say so, as where
// /proc/sys is read-only, those from 1024 are left.
static void open_low_ports(int spaces) {
    VJ_AUTO_FD setting =
        (int)sys(SYS_openat, spaces, "../../sys/net/ipv4/ip_unprivileged_port_start",
                 O_WRONLY | O_CLOEXEC, 0);
    if (setting >= 0) sys(SYS_write, setting, "0", 1);
}

// The network namespace costs as much as all others together, so the process
// that is about to leave makes it while pid 1 builds the mounts.
// `spaces` is its /proc/self/ns, opened before: pid 1's pivot_root moves this
// process, too, into a root where it has no name.
static void make_network(vj_setup *setup, int channel, int spaces) {
    long result = sys(SYS_unshare, CLONE_NEWNET);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_NETWORK, result);
    raise_loopback(setup);
    if (setup->plan->flags & VJ_PLAN_PORTS) open_low_ports(spaces);
    int space = (int)sys(SYS_openat, spaces, "net", O_RDONLY | O_CLOEXEC, 0);
    if (space < 0) vj_setup_fail(setup, VJ_STAGE_NETWORK, space);
    vj_message message = {.kind = VJ_MESSAGE_PROCESS};
    result = vj_message_send(channel, &message, 0, 0, &space, 1);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_NETWORK, result);
}

static void join_network(vj_setup *setup, int channel) {
    vj_message message = {0};
    struct iovec part = {.iov_base = &message, .iov_len = sizeof message};
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof control};
    long size = sys(SYS_recvmsg, channel, &header, MSG_CMSG_CLOEXEC);
    // The other process has said why; there is nothing to add.
    if (size != (long)sizeof message) vj_exit_process(125);
    struct cmsghdr *received = CMSG_FIRSTHDR(&header);
    if (!received || received->cmsg_type != SCM_RIGHTS) vj_exit_process(125);
    int space = -1;
    memcpy(&space, CMSG_DATA(received), sizeof space);
    long result = sys(SYS_setns, space, CLONE_NEWNET);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_NETWORK, result);
    sys(SYS_close, space);
    sys(SYS_close, channel);
}

static void give_up_rights(vj_setup *setup) {
    if (setup->plan->flags & VJ_PLAN_BROKER) {
        uint32_t owns_network = VJ_PLAN_PRIVATE_NETWORK | VJ_PLAN_BROKER_SOCKETS;
        int asks = (setup->plan->flags & owns_network) == owns_network;
        vj_capabilities_drop(setup,
                             1u << CAP_SYS_PTRACE | (asks ? 1u << CAP_NET_ADMIN : 0));
        vj_landlock_prepare(setup);
        vj_refusals_prepare(setup);
        int broker = vj_broker_fork(setup);
        vj_capabilities_drop(setup, 0);
        vj_seccomp_install(setup);
        if (setup->plan->flags & VJ_PLAN_BROKER_NAMES) vj_canaries_try_wall(setup);
        vj_broker_attach(setup, broker);
        return;
    }
    vj_capabilities_drop(setup, 0);
    vj_landlock_prepare(setup);
    vj_seccomp_install(setup);
}

static void build(vj_setup *setup, int network) {
    const char *name = vj_plan_string(setup->plan, setup->plan->hostname);
    int has_ports = (setup->plan->flags & VJ_PLAN_PORTS) != 0;
    vj_mounts_build(setup);
    int dialer = has_ports ? vj_ports_fork_dialer(setup) : -1;
    if (network >= 0) join_network(setup, network);
    if (has_ports) vj_ports_fork_relay(setup, dialer);
    long result = sys(SYS_sethostname, name, strlen(name));
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_NAMESPACES, result);
    give_up_rights(setup);
}

// ---- supervision -----------------------------------------------------------

// Send what was made, or why it was not. Descriptors may be refused on the way
// (ETOOMANYREFS: too many of this user's are in flight); the host must hear that.
static void send_answer(vj_message *answer, vj_stage stage, long result,
                        const int *descriptors, uint32_t count) {
    if (result >= 0) {
        result = vj_message_send(VJ_FD_CONTROL, answer, 0, 0, descriptors, count);
    }
    if (result >= 0) return;
    answer->stage = stage;
    answer->error = (int32_t)-result;
    vj_message_send(VJ_FD_CONTROL, answer, 0, 0, 0, 0);
}

static void make_keeper(const vj_setup *setup) {
    int pair[2] = {-1, -1};
    vj_message answer = {.kind = VJ_MESSAGE_KEEPER};
    long supervisor = sys(SYS_getpid);
    long result = sys(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
    if (result == 0) {
        result = sys(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (result == 0) {
            // Nothing that reaches the host but the keeper's own channel.
            sys(SYS_close, VJ_FD_CONTROL);
            sys(SYS_close, VJ_FD_HOST);
            sys(SYS_close, pair[0]);
            vj_keeper_run(setup, pair[1], supervisor);
        }
        sys(SYS_close, pair[1]);
    }
    send_answer(&answer, VJ_STAGE_PROCESS, result, pair, 1);
    if (result >= 0) sys(SYS_close, pair[0]);
}

// The peer is opened through the master (Linux 4.13), not by a path that
// something could be mounted over.
static void make_terminal(const vj_setup *setup) {
    int pair[2] = {-1, -1};
    int unlock = 0;
    vj_message answer = {.kind = VJ_MESSAGE_TERMINAL};
    // On the host, a multiplexer inside of its devpts may be closed to everyone.
    const char *multiplexer =
        setup->plan->backend == VJ_BACKEND_LANDLOCK ? "/dev/ptmx" : "/dev/pts/ptmx";
    pair[0] =
        (int)sys(SYS_openat, AT_FDCWD, multiplexer, O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
    long result = pair[0];
    if (result >= 0) result = sys(SYS_ioctl, pair[0], TIOCSPTLCK, &unlock);
    if (result >= 0) {
        pair[1] =
            (int)sys(SYS_ioctl, pair[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        result = pair[1];
    }
    send_answer(&answer, VJ_STAGE_TERMINAL, result, pair, 2);
    vj_close_slot(&pair[0]);
    vj_close_slot(&pair[1]);
}

// A socket belongs to the network namespace of whoever made it, for good. With one of the
// host's a guest could take abstract names there, and ask for the host's interfaces.
static void make_pairs(void) {
    int ends[4] = {-1, -1, -1, -1};
    vj_message answer = {.kind = VJ_MESSAGE_PAIRS};
    long result = sys(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
    if (result == 0) {
        result = sys(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends + 2);
    }
    send_answer(&answer, VJ_STAGE_DESCRIPTORS, result, ends, 4);
    for (int i = 0; i < 4; i++) vj_close_slot(&ends[i]);
}

static int is_helper(const vj_setup *setup, long pid) {
    for (uint32_t i = 0; i < setup->helper_count; i++) {
        if (setup->helpers[i] == pid) return 1;
    }
    return 0;
}

static int has_no_child(void) {
    long pid;
    do {
        pid = sys(SYS_wait4, -1, 0, WNOHANG, 0);
    } while (pid > 0);
    return pid == -ECHILD;
}

// The end of pid 1 is the end of its namespace. Where there is none, one signal ends the
// keepers and what they have started, and every process of the host need not be looked
// at for that; where no scope holds it, they are ended one by one.
_Noreturn static void leave(const vj_setup *setup, int signals, int code) {
    int on_host = setup->plan->backend == VJ_BACKEND_LANDLOCK;
    for (int turn = 0; on_host && turn < END_TURNS; turn++) {
        int all = vj_tree_kill_all();
        if (!all || turn > 0) vj_tree_kill((vj_spared){0}, turn == all);
        if (has_no_child()) break;
        struct pollfd wait = {.fd = signals, .events = POLLIN};
        struct __kernel_timespec timeout = {.tv_nsec = END_WAIT_NS};
        sys(SYS_ppoll, &wait, 1, &timeout, 0, SIGNAL_SET_SIZE);
        vj_signals_drain(signals);
        if (has_no_child()) break;
    }
    vj_exit_process(code);
}

// A keeper ends with 0. Anything else means that one was killed or stopped
// (before Linux 6.12 Landlock does not keep signals from it), and with it
// the claim that its run is under control: the jail ends. The end of a helper
// needs no such answer: without it what it would have done for a guest fails.
static void reap_keepers(const vj_setup *setup, int signals) {
    for (;;) {
        int status = 0;
        long pid = sys(SYS_wait4, -1, &status, WNOHANG | WUNTRACED, 0);
        if (pid <= 0) return;
        if (is_helper(setup, pid) && !WIFSTOPPED(status)) continue;
        vj_refusals_end_keeper(setup, pid);
        if (status != 0) leave(setup, signals, 1);
    }
}

// Without a pid namespace the processes of the jail are told from the host's by a domain.
// That it holds is tried on the host's process, which else could be signalled.
static void keep_to_own_jail(const vj_setup *setup) {
    if (setup->plan->backend != VJ_BACKEND_LANDLOCK) return;
    long before = sys(SYS_pidfd_send_signal, VJ_FD_HOST, 0, 0, 0);
    long result = vj_landlock_scope_signals();
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_LANDLOCK, result);
    long after = sys(SYS_pidfd_send_signal, VJ_FD_HOST, 0, 0, 0);
    if (before != 0 || after != -EPERM) {
        vj_setup_fail(setup, VJ_STAGE_SUPERVISOR, before != 0 ? before : -EIO);
    }
    vj_tree_in_scope();
}

_Noreturn static void supervise(vj_setup *setup) {
    uint64_t child_signal = 1ull << (SIGCHLD - 1);
    sys(SYS_rt_sigprocmask, SIG_BLOCK, &child_signal, 0, SIGNAL_SET_SIZE);
    long signals =
        sys(SYS_signalfd4, -1, &child_signal, SIGNAL_SET_SIZE, O_CLOEXEC | O_NONBLOCK);
    if (signals < 0) vj_setup_fail(setup, VJ_STAGE_SUPERVISOR, signals);

    if (setup->plan->flags & VJ_PLAN_PORTS) vj_ports_report(setup);
    vj_message ready = {
        .kind = VJ_MESSAGE_READY,
        .landlock_abi = setup->landlock_abi,
        .guest_id = setup->guest_id,
        .identity = setup->identity,
        .flags = setup->shared_memory ? VJ_READY_SHARED_MEMORY : 0,
    };
    vj_watch_prepare(setup);
    keep_to_own_jail(setup);
    int32_t answers[VJ_ANSWERS_MAX];
    uint32_t count = vj_canaries_try(setup, answers);
    vj_close_slot(&setup->stranger);
    ready.data_size = count * (uint32_t)sizeof *answers;
    uint32_t memories = setup->refusals ? 1 : 0;
    vj_message_send(VJ_FD_CONTROL, &ready, answers, ready.data_size,
                    &setup->refusals_memory, memories);
    if (memories) sys(SYS_close, setup->refusals_memory);
    make_keeper(setup); // the first one, ahead of the first run

    for (;;) {
        struct pollfd events[3] = {
            {.fd = VJ_FD_CONTROL, .events = POLLIN},
            {.fd = (int)signals, .events = POLLIN},
            {.fd = VJ_FD_HOST, .events = POLLIN},
        };
        // Unable to look, it could not see the end of the host either.
        struct __kernel_timespec second = {.tv_sec = 1}; // ppoll(2) counts it down
        struct __kernel_timespec *wait = setup->watch ? &second : 0;
        long result = sys(SYS_ppoll, events, 3, wait, 0, SIGNAL_SET_SIZE);
        if (result < 0 && result != -EINTR) leave(setup, (int)signals, 1);
        if (vj_watch_is_stuck(setup)) leave(setup, (int)signals, 1);
        if (events[2].revents) leave(setup, (int)signals, 0); // the host is gone
        if (events[1].revents) {
            vj_signals_drain((int)signals);
            reap_keepers(setup, (int)signals);
        }
        if (events[0].revents) {
            vj_message message = {0};
            long size = sys(SYS_recvfrom, VJ_FD_CONTROL, &message, sizeof message,
                            MSG_DONTWAIT, 0);
            if (size == -EAGAIN || size == -EINTR) continue;
            if (size != (long)sizeof message) leave(setup, (int)signals, 0); // closed
            if (message.kind == VJ_MESSAGE_KEEPER) make_keeper(setup);
            else if (message.kind == VJ_MESSAGE_TERMINAL) make_terminal(setup);
            else if (message.kind == VJ_MESSAGE_PAIRS) make_pairs();
        }
    }
}

// Make the namespaces; returns in pid 1, which builds the mounts.
static void start_in_namespaces(vj_setup *setup) {
    vj_identity_enter(setup);
    vj_shared_memory_limit(setup);
    enter_namespaces(setup);

    int network[2] = {-1, -1};
    int spaces = -1;
    if (setup->plan->flags & VJ_PLAN_PRIVATE_NETWORK) {
        spaces = (int)sys(SYS_openat, AT_FDCWD, "/proc/self/ns", O_PATH | O_CLOEXEC, 0);
        if (spaces < 0) vj_setup_fail(setup, VJ_STAGE_NETWORK, spaces);
        long made =
            sys(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, network);
        if (made < 0) vj_setup_fail(setup, VJ_STAGE_NETWORK, made);
    }
    int process = -1;
    long pid = sys(SYS_clone, CLONE_PARENT | CLONE_PIDFD, 0, &process, 0, 0);
    if (pid < 0) vj_setup_fail(setup, VJ_STAGE_PROCESS, pid);
    if (pid > 0) {
        vj_message born = {.kind = VJ_MESSAGE_PROCESS, .pid = (int32_t)pid};
        vj_message_send(VJ_FD_CONTROL, &born, 0, 0, &process, 1);
        vj_close_slot(&network[0]);
        if (network[1] >= 0) make_network(setup, network[1], spaces);
        vj_exit_process(0);
    }
    vj_close_slot(&network[1]);
    vj_close_slot(&spaces);
    build(setup, network[0]);
}

int vj_main(int argument_count, char **arguments) {
    (void)argument_count;
    (void)arguments;
    static vj_setup setup = {.root = -1,
                             .ruleset = -1,
                             .outer_ruleset = -1,
                             .failed_index = -1,
                             .map = -1,
                             .stranger = -1};
    // Not for the guest, and not for a program that the start might execute.
    if (sys(SYS_close_range, VJ_FD_FIRST_FREE, ~0u, 0) < 0 ||
        sys(SYS_fcntl, VJ_FD_CONTROL, F_SETFD, FD_CLOEXEC) < 0 ||
        sys(SYS_fcntl, VJ_FD_HOST, F_SETFD, FD_CLOEXEC) < 0 ||
        sys(SYS_fcntl, VJ_FD_STATUS, F_SETFD, FD_CLOEXEC) < 0) {
        return 125;
    }
    vj_inherited_reset();
    read_plan(&setup);
    map_calls(&setup);
    vj_groups_join(&setup);
    // Helpers are made in the namespaces of visjail-init's own.
    if (setup.plan->backend != VJ_BACKEND_NAMESPACES &&
        (setup.plan->flags & (VJ_PLAN_BROKER | VJ_PLAN_PORTS))) {
        vj_setup_fail(&setup, VJ_STAGE_PLAN, -EOPNOTSUPP);
    }
    switch ((vj_backend)setup.plan->backend) {
    case VJ_BACKEND_NAMESPACES: start_in_namespaces(&setup); break;
    case VJ_BACKEND_BUBBLEWRAP:
        vj_bubblewrap_enter(&setup);
        give_up_rights(&setup);
        break;
    case VJ_BACKEND_LANDLOCK:
        vj_bare_enter(&setup);
        give_up_rights(&setup);
        break;
    case VJ_BACKEND_END: vj_setup_fail(&setup, VJ_STAGE_PLAN, -EINVAL);
    }
    // Of the host's descriptors nothing stays, 0 to 2 included.
    for (int descriptor = 0; descriptor < 3; descriptor++) sys(SYS_close, descriptor);
    if (sys(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0) != 0 ||
        sys(SYS_dup3, 0, 1, 0) < 0 || sys(SYS_dup3, 0, 2, 0) < 0) {
        vj_setup_fail(&setup, VJ_STAGE_SUPERVISOR, -EIO);
    }
    supervise(&setup);
}
