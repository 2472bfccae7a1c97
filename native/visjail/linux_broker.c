// Start of the broker, and its service. See linux_broker.h.

#include "linux_broker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/time_types.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SIGNAL_SET_SIZE 8

// In the broker, after all other descriptors are closed.
enum { CHANNEL = 0, LISTENER = 1, FIRST_FREE = 2 };

// SECCOMP_IOCTL_NOTIF_SET_FLAGS, which older headers do not have.
#define NOTIF_SET_FLAGS SECCOMP_IOW(4, uint64_t)

// Calls that wait at the same time, each in a child. One more is told EAGAIN, as
// connect(2) is by a socket whose backlog is full.
#define WAITING_MAX 128
// How often it is looked whether the guests of waiting calls still live.
#define WAITING_TURN_NS 50000000

// Room for what a newer kernel may add to the structure.
#define NOTIFICATION_SIZE 512

typedef struct {
    long process;
    uint64_t id;
} waiting_call;

typedef struct {
    vj_broker shared;
    waiting_call waiting[WAITING_MAX];
    uint32_t waiting_count;
} service;

int vj_broker_waits(const vj_broker *broker, uint64_t id) {
    return sys(SYS_ioctl, broker->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

static const vj_broker_call *find_in(const vj_broker_call *calls, int number) {
    for (; calls->act; calls++) {
        if (calls->number == number) return calls;
    }
    return 0;
}

static const vj_broker_call *find_call(const vj_setup *setup, int number) {
    const vj_broker_call *found = 0;
    if (setup->plan->flags & VJ_PLAN_BROKER_SOCKETS)
        found = find_in(vj_broker_socket_calls, number);
    if (!found && (setup->plan->flags & VJ_PLAN_BROKER_NAMES))
        found = find_in(vj_broker_name_calls, number);
    return found;
}

// A guest that is gone wants no answer, so a failure to give one is none.
static void reply(const vj_broker *broker, uint64_t id, long result) {
    if (result == VJ_BROKER_ANSWERED) return;
    struct seccomp_notif_resp answer = {.id = id};
    if (result == VJ_BROKER_CONTINUE) answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else answer.error = (int32_t)result;
    sys(SYS_ioctl, broker->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

// ---- calls that wait -------------------------------------------------------

// Take the children that have answered. A guest that was killed leaves a call
// behind that waits for nobody.
static void tend_waiting(service *state) {
    for (uint32_t i = 0; i < state->waiting_count;) {
        waiting_call *call = &state->waiting[i];
        int gone = !vj_broker_waits(&state->shared, call->id);
        if (gone) sys(SYS_kill, call->process, SIGKILL);
        int status = 0;
        if (sys(SYS_wait4, call->process, &status, gone ? 0 : WNOHANG, 0) == 0) {
            i++;
            continue;
        }
        // One that died without an answer; after an answer this finds nobody.
        if (status != 0) reply(&state->shared, call->id, -EIO);
        *call = state->waiting[--state->waiting_count];
    }
}

static void start_waiting(service *state, const vj_broker_call *call,
                          const struct seccomp_notif *notification) {
    if (state->waiting_count == WAITING_MAX) {
        reply(&state->shared, notification->id, -EAGAIN);
        return;
    }
    long process = sys(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (process == 0) {
        reply(&state->shared, notification->id, call->act(&state->shared, notification));
        vj_exit_process(0);
    }
    if (process < 0) {
        reply(&state->shared, notification->id, -EAGAIN);
        return;
    }
    state->waiting[state->waiting_count++] =
        (waiting_call){.process = process, .id = notification->id};
}

// ---- service ---------------------------------------------------------------

static void take_one(service *state) {
    union {
        struct seccomp_notif fields;
        char space[NOTIFICATION_SIZE];
    } received;
    memset(&received, 0, sizeof received); // the kernel insists
    // ENOENT: the guest was killed before its call was taken.
    if (sys(SYS_ioctl, state->shared.listener, SECCOMP_IOCTL_NOTIF_RECV, &received) < 0) {
        return;
    }
    const struct seccomp_notif *notification = &received.fields;
    const vj_broker_call *call = find_call(state->shared.setup, notification->data.nr);
    if (!call) reply(&state->shared, notification->id, -ENOSYS);
    else if (call->may_wait) start_waiting(state, call, notification);
    else reply(&state->shared, notification->id, call->act(&state->shared, notification));
}

_Noreturn static void serve(service *state) {
    for (;;) {
        struct pollfd event = {.fd = state->shared.listener, .events = POLLIN};
        struct __kernel_timespec turn = {.tv_nsec = WAITING_TURN_NS};
        long result = sys(SYS_ppoll, &event, 1, state->waiting_count ? &turn : 0, 0,
                          SIGNAL_SET_SIZE);
        if (result < 0 && result != -EINTR) vj_exit_process(1);
        if (state->waiting_count) tend_waiting(state);
        if (event.revents & POLLIN) take_one(state);
        else if (event.revents) vj_exit_process(0); // nobody is under the filter
    }
}

static long sizes_fit(void) {
    struct seccomp_notif_sizes sizes = {0};
    long result = sys(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes);
    if (result < 0) return result;
    return sizes.seccomp_notif <= NOTIFICATION_SIZE &&
                   sizes.seccomp_notif_resp <= sizeof(struct seccomp_notif_resp)
               ? 0
               : -EOVERFLOW;
}

// Whether descriptors can be given (Linux 5.9), tried with a flag that came in 5.14. A
// kernel that knows it looks for the call, which does not exist.
static long gives_descriptors(void) {
    struct seccomp_notif_addfd given = {.flags = SECCOMP_ADDFD_FLAG_SEND,
                                        .srcfd = LISTENER};
    long result = sys(SYS_ioctl, LISTENER, SECCOMP_IOCTL_NOTIF_ADDFD, &given);
    return result == -ENOENT ? 0 : -EOPNOTSUPP;
}

static long receive_listener(void) {
    vj_message message = {0};
    struct iovec part = {.iov_base = &message, .iov_len = sizeof message};
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof control};
    long size = sys(SYS_recvmsg, CHANNEL, &header, MSG_CMSG_CLOEXEC);
    if (size < 0) return size;
    struct cmsghdr *received = CMSG_FIRSTHDR(&header);
    // Pid 1 has ended, or has failed and says so itself.
    if (!received || received->cmsg_type != SCM_RIGHTS) vj_exit_process(0);
    int listener = -1;
    memcpy(&listener, CMSG_DATA(received), sizeof listener);
    return listener == LISTENER ? 0 : -EBADF;
}

_Noreturn static void become_broker(const vj_setup *setup, int channel) {
    static service state;
    // Nothing that leads out of the jail stays: not the host's descriptors either.
    if (sys(SYS_dup3, channel, CHANNEL, O_CLOEXEC) < 0 ||
        sys(SYS_close_range, CHANNEL + 1, ~0u, 0) < 0) {
        vj_exit_process(1);
    }
    long result = receive_listener();
    // A hint that guest and broker wait for each other in turn; from Linux 6.6.
    sys(SYS_ioctl, LISTENER, NOTIF_SET_FLAGS, 1 /* SYNC_WAKE_UP */);
    if (result == 0) result = sizes_fit();
    if (result == 0 && (setup->plan->flags & VJ_PLAN_BROKER_SOCKETS)) {
        result = vj_broker_sockets_prepare(setup);
    }
    if (result == 0 && (setup->plan->flags & VJ_PLAN_BROKER_NAMES)) {
        result = gives_descriptors();
        if (result == 0) result = vj_broker_names_prepare(setup);
    }
    if (result == 0) result = vj_seccomp_confine_broker(setup);
    vj_message answer = {.error = (int32_t)-result};
    vj_message_send(CHANNEL, &answer, 0, 0, 0, 0);
    if (result < 0) vj_exit_process(1);
    sys(SYS_close, CHANNEL);
    state.shared.setup = setup;
    state.shared.listener = LISTENER;
    serve(&state);
}

int vj_broker_fork(vj_setup *setup) {
    // The domain of the broker, in which those of the programs lie.
    long result = setup->outer_ruleset >= 0
                      ? sys(SYS_landlock_restrict_self, setup->outer_ruleset, 0)
                      : 0;
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_LANDLOCK, result);
    int pair[2] = {-1, -1};
    result = sys(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
    if (result == 0) result = sys(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_BROKER, result);
    if (result == 0) become_broker(setup, pair[1]);
    setup->helpers[setup->helper_count++] = (int)result;
    sys(SYS_close, pair[1]);
    return pair[0];
}

void vj_broker_attach(const vj_setup *setup, int channel) {
    long listener = vj_seccomp_trap(setup);
    if (listener < 0) vj_setup_fail(setup, VJ_STAGE_BROKER, listener);
    vj_message message = {0};
    int descriptor = (int)listener;
    long result = vj_message_send(channel, &message, 0, 0, &descriptor, 1);
    // Held by the broker alone, so that its end is the end of the listener.
    sys(SYS_close, listener);
    if (result == 0) {
        long size = sys(SYS_recvfrom, channel, &message, sizeof message, 0, 0);
        result = size == (long)sizeof message ? -(long)message.error : -EPIPE;
    }
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_BROKER, result);
    sys(SYS_close, channel);
}
