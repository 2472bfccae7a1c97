// Start of the dialer and the relay, and the dialer's work. See linux_ports.h.

#include "linux_ports.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/in.h>
#include <signal.h>
#include <sys/socket.h>

#define BACKLOG 128

// From Landlock ABI 4; the headers of the build machine may be older.
#define LANDLOCK_PORTS   4
#define RULE_PORT        2
#define ACCESS_BIND_TCP  (1ull << 0)
#define ACCESS_CONNECT   (1ull << 1)
#define ACCESS_ALL_FILES ((1ull << 13) - 1) // of ABI 1

struct ruleset_attributes {
    uint64_t handled_access_fs;
    uint64_t handled_access_net;
};
struct port_attributes {
    uint64_t allowed_access;
    uint64_t port;
};

// ---- sockets ---------------------------------------------------------------

static struct sockaddr_in loopback(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = __builtin_bswap16(port);
    address.sin_addr.s_addr = __builtin_bswap32(INADDR_LOOPBACK);
    return address;
}

static long new_socket(void) {
    return sys(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static uint16_t port_of(long socket) { // 0: not known
    struct sockaddr_in address = {0};
    uint32_t size = sizeof address;
    sys(SYS_getsockname, socket, &address, &size);
    return __builtin_bswap16(address.sin_port);
}

long vj_loopback_listen(uint16_t port) {
    struct sockaddr_in address = loopback(port);
    long listener = new_socket();
    if (listener < 0) return listener;
    // The port of a jail that has just been closed is free at once.
    int on = 1;
    long result = sys(SYS_setsockopt, listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (result == 0) result = sys(SYS_bind, listener, &address, sizeof address);
    if (result == 0) result = sys(SYS_listen, listener, BACKLOG);
    if (result == 0) return listener;
    sys(SYS_close, listener);
    return result;
}

long vj_loopback_connect(uint16_t port) {
    struct sockaddr_in address = loopback(port);
    long socket = new_socket();
    if (socket < 0) return socket;
    long result = sys(SYS_connect, socket, &address, sizeof address);
    if (result == 0 || result == -EINPROGRESS) {
        // Where nobody serves the port, the kernel may choose that very one for this end:
        // then the socket is its own peer, and whoever came gets back what they said.
        uint16_t own = port_of(socket);
        if (own && own != port) return socket;
        result = -ECONNREFUSED;
    }
    sys(SYS_close, socket);
    return result;
}

long vj_receive_descriptor(int socket, vj_message *message, int flags) {
    struct iovec part = {.iov_base = message, .iov_len = sizeof *message};
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof control};
    long size = sys(SYS_recvmsg, socket, &header, flags | MSG_CMSG_CLOEXEC);
    if (size < 0) return size;
    if (size != (long)sizeof *message) return -EPIPE;
    struct cmsghdr *received = CMSG_FIRSTHDR(&header);
    if (!received || received->cmsg_type != SCM_RIGHTS) {
        return message->error ? -(long)message->error : -EPIPE;
    }
    int descriptor = -1;
    memcpy(&descriptor, CMSG_DATA(received), sizeof descriptor);
    return descriptor;
}

// ---- confinement -----------------------------------------------------------

// No file, and of the ports those that the plan names. Without Landlock the filter
// alone keeps both processes from files.
static long restrict_files_and_ports(const vj_ports *ports, int is_dialer) {
    long abi = sys(SYS_landlock_create_ruleset, 0, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi == -ENOSYS || abi == -EOPNOTSUPP) return 0;
    if (abi < 0) return abi;
    struct ruleset_attributes attributes = {.handled_access_fs = ACCESS_ALL_FILES};
    size_t size = sizeof attributes.handled_access_fs;
    if (abi >= LANDLOCK_PORTS) {
        attributes.handled_access_net = ACCESS_BIND_TCP | ACCESS_CONNECT;
        size = sizeof attributes;
    }
    VJ_AUTO_FD ruleset = (int)sys(SYS_landlock_create_ruleset, &attributes, size, 0);
    if (ruleset < 0) return ruleset;
    for (uint32_t i = 0; abi >= LANDLOCK_PORTS && i < ports->count; i++) {
        if (ports->port[i].inbound == is_dialer) continue;
        struct port_attributes rule = {.allowed_access = ACCESS_CONNECT,
                                       .port = ports->port[i].leads_to};
        long result = sys(SYS_landlock_add_rule, ruleset, RULE_PORT, &rule, 0);
        if (result < 0) return result;
    }
    return sys(SYS_landlock_restrict_self, ruleset, 0);
}

long vj_ports_confine(const vj_setup *setup, const vj_ports *ports, int is_dialer) {
    vj_capabilities_drop(setup, 0);
    long result = restrict_files_and_ports(ports, is_dialer);
    return result < 0 ? result : vj_seccomp_confine_helper(is_dialer);
}

// ---- dialer ----------------------------------------------------------------

// The listeners go to the relay in the order of the plan; from then on each
// message asks for one connection, by the number of a port in the plan.
_Noreturn static void dial(const vj_setup *setup, vj_ports *ports) {
    for (uint32_t i = 0; i < ports->count; i++) {
        if (!ports->port[i].inbound) continue;
        long listener = vj_loopback_listen(ports->port[i].listens);
        vj_message made = {.error = listener < 0 ? (int32_t)-listener : 0};
        int descriptor = (int)listener;
        vj_message_send(VJ_PORTS_PEER, &made, 0, 0, &descriptor, listener >= 0);
        if (listener < 0) vj_exit_process(0);
        sys(SYS_close, listener);
    }
    vj_message confined = {.error = (int32_t)-vj_ports_confine(setup, ports, 1)};
    vj_message_send(VJ_PORTS_PEER, &confined, 0, 0, 0, 0);
    if (confined.error) vj_exit_process(1);
    for (;;) {
        vj_message request = {0};
        long size = sys(SYS_recvfrom, VJ_PORTS_PEER, &request, sizeof request, 0, 0);
        if (size != (long)sizeof request) vj_exit_process(0); // the relay has ended
        uint32_t index = (uint32_t)request.index;
        long socket = index < ports->count && !ports->port[index].inbound
                          ? vj_loopback_connect(ports->port[index].leads_to)
                          : -EBADF;
        vj_message answer = {.error = socket < 0 ? (int32_t)-socket : 0};
        int descriptor = (int)socket;
        long result =
            vj_message_send(VJ_PORTS_PEER, &answer, 0, 0, &descriptor, socket >= 0);
        if (result < 0) { // too many descriptors in flight for this user
            answer.error = (int32_t)-result;
            vj_message_send(VJ_PORTS_PEER, &answer, 0, 0, 0, 0);
        }
        if (socket >= 0) sys(SYS_close, socket);
    }
}

// ---- relay -----------------------------------------------------------------

static long make_listeners(vj_ports *ports, uint32_t *failed) {
    for (uint32_t i = 0; i < ports->count; i++) {
        vj_port *port = &ports->port[i];
        vj_message message = {0};
        long listener = port->inbound ? vj_receive_descriptor(VJ_PORTS_PEER, &message, 0)
                                      : vj_loopback_listen(port->listens);
        if (listener < 0) {
            *failed = port->operation;
            return listener;
        }
        port->listener = (int)listener;
        port->listens = port_of(port->listener);
    }
    vj_message confined = {0}; // of the dialer
    long size = sys(SYS_recvfrom, VJ_PORTS_PEER, &confined, sizeof confined, 0, 0);
    return size == (long)sizeof confined ? -(long)confined.error : -EPIPE;
}

_Noreturn static void relay(const vj_setup *setup, vj_ports *ports) {
    uint32_t failed = UINT32_MAX;
    long result = make_listeners(ports, &failed);
    if (result == 0) result = vj_ports_confine(setup, ports, 0);
    vj_message ready = {.kind = VJ_MESSAGE_PORTS,
                        .error = result < 0 ? (int32_t)-result : 0,
                        .index = (int32_t)failed,
                        .data_size = ports->count * (uint32_t)sizeof(int32_t)};
    int32_t numbers[VJ_PORTS_MAX] = {0};
    for (uint32_t i = 0; i < ports->count; i++) numbers[i] = ports->port[i].listens;
    vj_message_send(VJ_PORTS_SUPERVISOR, &ready, numbers, ready.data_size, 0, 0);
    if (result < 0) vj_exit_process(1);
    sys(SYS_close, VJ_PORTS_SUPERVISOR);
    vj_relay_serve(ports);
}

// ---- start -----------------------------------------------------------------

static void find_ports(const vj_setup *setup, vj_ports *ports) {
    const vj_operation *operations = vj_plan_operations(setup->plan);
    for (uint32_t i = 0; i < setup->plan->operation_count; i++) {
        int inbound = operations[i].kind == VJ_OPERATION_INBOUND;
        if (!inbound && operations[i].kind != VJ_OPERATION_HOST_PORT) continue;
        if (ports->count == VJ_PORTS_MAX) vj_setup_fail(setup, VJ_STAGE_PORTS, -E2BIG);
        vj_port *port = &ports->port[ports->count++];
        port->operation = i;
        port->inbound = inbound;
        port->listener = -1;
        port->listens = (uint16_t)(operations[i].mode >> 16);
        port->leads_to = (uint16_t)operations[i].mode;
    }
}

static void keep_only(int peer, int supervisor) {
    long result = sys(SYS_fcntl, peer, F_DUPFD_CLOEXEC, 64);
    long other = sys(SYS_fcntl, supervisor, F_DUPFD_CLOEXEC, 64);
    if (result >= 0) result = sys(SYS_dup3, result, VJ_PORTS_PEER, O_CLOEXEC);
    if (result >= 0) result = sys(SYS_dup3, other, VJ_PORTS_SUPERVISOR, O_CLOEXEC);
    if (result >= 0) result = sys(SYS_close_range, VJ_PORTS_FIRST_FREE, ~0u, 0);
    if (result < 0) vj_exit_process(1);
}

static void make_pair(const vj_setup *setup, int pair[2]) {
    long result = sys(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_PORTS, result);
}

static void note_helper(vj_setup *setup, long pid) {
    if (pid < 0) vj_setup_fail(setup, VJ_STAGE_PORTS, pid);
    setup->helpers[setup->helper_count++] = (int)pid;
}

// The dialer is a process of the jail, but its /proc/PID/net is the host's network, and
// readable to all. So nothing of it is shown. (When it ends, the cover goes with it.)
static void hide_process(const vj_setup *setup, long pid) {
    char path[32];
    vj_text text = {.data = path, .capacity = sizeof path};
    vj_text_string(&text, "/proc/");
    vj_text_number(&text, (uint64_t)pid, 10);
    long result = sys(SYS_mount, "none", path, "tmpfs",
                      MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=000,size=4096");
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_PORTS, result);
}

int vj_ports_fork_dialer(vj_setup *setup) {
    static vj_ports ports;
    int pair[2] = {-1, -1};
    make_pair(setup, pair);
    long pid = sys(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        find_ports(setup, &ports);
        keep_only(pair[1], pair[1]);
        sys(SYS_close, VJ_PORTS_SUPERVISOR);
        dial(setup, &ports);
    }
    note_helper(setup, pid);
    hide_process(setup, pid);
    sys(SYS_close, pair[1]);
    return pair[0];
}

void vj_ports_fork_relay(vj_setup *setup, int dialer) {
    static vj_ports ports;
    int pair[2] = {-1, -1};
    make_pair(setup, pair);
    long pid = sys(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        find_ports(setup, &ports);
        keep_only(dialer, pair[1]);
        relay(setup, &ports);
    }
    note_helper(setup, pid);
    sys(SYS_close, pair[1]);
    sys(SYS_close, dialer);
    setup->ports_channel = pair[0];
}

void vj_ports_report(vj_setup *setup) {
    struct {
        vj_message message;
        int32_t numbers[VJ_PORTS_MAX];
    } ready = {0};
    long size = sys(SYS_recvfrom, setup->ports_channel, &ready, sizeof ready, 0, 0);
    if (size < (long)sizeof ready.message) vj_setup_fail(setup, VJ_STAGE_PORTS, -EPIPE);
    if (ready.message.error) {
        setup->failed_index = ready.message.index;
        vj_setup_fail(setup, VJ_STAGE_PORTS, -(long)ready.message.error);
    }
    sys(SYS_close, setup->ports_channel);
    vj_message_send(VJ_FD_CONTROL, &ready.message, ready.numbers, ready.message.data_size,
                    0, 0);
}
