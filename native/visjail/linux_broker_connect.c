// connect(2) under exact grants of AF_UNIX sockets.
//
// A path leads to a socket of the host through every mount, read-only ones and
// other network namespaces too, and no filter sees the path. So each connect is
// made here, with a copy of the address and on a duplicate of the guest's socket,
// never by letting the guest's own call go on: between a check and the kernel's
// look the guest could change the address, or put another socket under the number.
//
// A path is looked up once, from the guest's folder, and what is connected to is
// the object that was found, by descriptor.
//
// A guest may also connect to the sockets that guests made: all those in the private
// places, and those in granted folders that were bound here. A socket's file is made by
// its bind and by nothing else, so a file that has been seen to belong to a guest's
// socket is no other's as long as it exists.

#include "linux_broker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>

#ifndef SIOCUNIXFILE
#define SIOCUNIXFILE 0x89e0 // Linux 4.13
#endif

// What a guest may connect to by path: these sockets, and all of its own places.
static struct {
    uint64_t device;
    uint64_t inode;
} granted[VJ_SOCKETS_MAX];
static uint32_t granted_count;

// Files of sockets that guests bound in granted folders, held open likewise.
#define OWN_MAX 512
static struct {
    uint64_t device;
    uint64_t inode;
    int held;
} own[OWN_MAX];
static uint32_t own_count;

static long identify(int object, uint64_t *device, uint64_t *inode) {
    struct statx status = {0};
    long result =
        sys(SYS_statx, object, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &status);
    *device = (uint64_t)status.stx_dev_major << 32 | status.stx_dev_minor;
    *inode = status.stx_ino;
    return result;
}

// Each granted socket is held open for the life of the jail: a number of an inode
// that is in use is not given to another file.
long vj_broker_sockets_prepare(const vj_setup *setup) {
    const vj_operation *operations = vj_plan_operations(setup->plan);
    for (uint32_t i = 0; i < setup->plan->operation_count; i++) {
        if (operations[i].kind != VJ_OPERATION_SOCKET) continue;
        if (granted_count == VJ_SOCKETS_MAX) return -E2BIG;
        const char *path = vj_plan_string(setup->plan, operations[i].path);
        long held = sys(SYS_openat, AT_FDCWD, path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
        if (held < 0) return held;
        uint64_t device = 0;
        uint64_t inode = 0;
        long result = identify((int)held, &device, &inode);
        if (result < 0) return result;
        granted[granted_count].device = device;
        granted[granted_count].inode = inode;
        granted_count++;
    }
    return 0;
}

static int may_connect(const vj_setup *setup, int object) {
    uint64_t device = 0;
    uint64_t inode = 0;
    if (identify(object, &device, &inode) < 0) return 0;
    // The private places are one tmpfs that nobody outside of the jail has.
    if (setup->scratch_device && device == setup->scratch_device) return 1;
    for (uint32_t i = 0; i < granted_count; i++) {
        if (granted[i].device == device && granted[i].inode == inode) return 1;
    }
    for (uint32_t i = 0; i < own_count; i++) {
        if (own[i].device == device && own[i].inode == inode) return 1;
    }
    return 0;
}

// "/proc/self" is the guest, not the process that looks. (Programs go through a
// folder's descriptor there when a path is longer than sun_path.)
static long open_object(uint32_t thread, const char *path) {
    static const char self[] = "/proc/self/";
    char other[sizeof(struct sockaddr_un) + 32];
    if (!memcmp(path, self, sizeof self - 1)) {
        vj_text text = {.data = other, .capacity = sizeof other};
        vj_text_string(&text, "/proc/");
        vj_text_number(&text, thread, 10);
        vj_text_string(&text, path + sizeof self - 2);
        if (text.overflow) return -ENAMETOOLONG;
        path = other;
    }
    VJ_AUTO_FD start = (int)vj_guest_directory(thread, AT_FDCWD);
    if (start < 0) return start;
    return sys(SYS_openat, start, path, O_PATH | O_CLOEXEC, 0);
}

// With the path that the object has, whatever words led to it.
static long refuse_object(const vj_broker *broker,
                          const struct seccomp_notif *notification, const char *link) {
    static char path[VJ_PATH_MAX];
    long length = sys(SYS_readlinkat, AT_FDCWD, link, path, sizeof path);
    const vj_refused refused = {.kind = VJ_REFUSAL_CONNECT,
                                .error = EACCES,
                                .folder = path,
                                .folder_length = length < 0 ? 0 : (size_t)length};
    return vj_refuse(broker, notification->id, notification->pid, &refused);
}

static long connect_path(const vj_broker *broker,
                         const struct seccomp_notif *notification, int socket,
                         const char *path) {
    VJ_AUTO_FD object = (int)open_object(notification->pid, path);
    if (object < 0) return object;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    vj_text text = {.data = address.sun_path, .capacity = sizeof address.sun_path};
    vj_text_string(&text, "/proc/self/fd/");
    vj_text_number(&text, (uint64_t)object, 10);
    if (!may_connect(broker->setup, object))
        return refuse_object(broker, notification, address.sun_path);
    return sys(SYS_connect, socket, &address, VJ_SOCKET_PATH_OFFSET + text.length + 1);
}

long vj_socket_call_read(const vj_broker *broker,
                         const struct seccomp_notif *notification, vj_socket_call *call) {
    memset(call, 0, sizeof *call);
    call->socket = -1;
    call->length = (int)notification->data.args[2];
    size_t length = (size_t)call->length;
    if (call->length < 0 || length > sizeof(struct sockaddr_storage)) return -EINVAL;
    call->socket =
        (int)vj_guest_descriptor(notification->pid, (int)notification->data.args[0]);
    if (call->socket < 0) return call->socket;
    long result = vj_guest_read(notification->pid, notification->data.args[1],
                                &call->address, length);
    if (result < 0) return result;
    if (!vj_broker_waits(broker, notification->id)) return VJ_BROKER_ANSWERED;

    int family = 0;
    uint32_t size = sizeof family;
    result = sys(SYS_getsockopt, call->socket, SOL_SOCKET, SO_DOMAIN, &family, &size);
    if (result < 0) return result; // not a socket
    // Only a path leads to the host's files. An abstract name belongs to the network
    // namespace, and with the host's network to Landlock's scope, which holds here.
    call->by_path = family == AF_UNIX && call->address.common.sa_family == AF_UNIX &&
                    length > VJ_SOCKET_PATH_OFFSET && call->address.local.sun_path[0];
    // Longer than the kernel takes: as it would say.
    return call->by_path && length > sizeof call->address.local ? -EINVAL : 0;
}

static long act_connect(const vj_broker *broker,
                        const struct seccomp_notif *notification) {
    vj_socket_call call;
    long result = vj_socket_call_read(broker, notification, &call);
    if (result == 0) {
        result = call.by_path ? connect_path(broker, notification, call.socket,
                                             call.address.local.sun_path)
                              : sys(SYS_connect, call.socket, &call.address, call.length);
    }
    vj_close_slot(&call.socket);
    return result;
}

// ---- what guests bound -----------------------------------------------------

// A file that has lost its last name leads nobody anywhere.
static void forget_removed(void) {
    for (uint32_t i = 0; i < own_count;) {
        struct statx status = {0};
        long result =
            sys(SYS_statx, own[i].held, "", AT_EMPTY_PATH, STATX_NLINK, &status);
        if (result == 0 && status.stx_nlink) {
            i++;
            continue;
        }
        sys(SYS_close, own[i].held);
        own[i] = own[--own_count];
    }
}

long vj_own_socket_room(void) {
    if (own_count == OWN_MAX) forget_removed();
    return own_count == OWN_MAX ? -ENOBUFS : 0;
}

// Remember the file of a socket that has just been bound. The kernel says which it is;
// the name may lead elsewhere by now. That takes CAP_NET_ADMIN over the network
// namespace, so with the host's network nothing is remembered, and nothing let in.
void vj_own_socket_remember(const vj_setup *setup, int socket) {
    long held = sys(SYS_ioctl, socket, SIOCUNIXFILE, 0);
    if (held < 0) return;
    uint64_t device = 0;
    uint64_t inode = 0;
    if (identify((int)held, &device, &inode) < 0 || device == setup->scratch_device) {
        sys(SYS_close, held);
        return;
    }
    own[own_count].device = device;
    own[own_count].inode = inode;
    own[own_count].held = (int)held;
    own_count++;
}

const vj_broker_call vj_broker_socket_calls[] = {
    {.number = SYS_connect, .may_wait = 1, .act = act_connect},
    {.number = SYS_bind, .may_wait = 0, .act = vj_broker_bind},
    {.number = -1, .may_wait = 0, .act = 0},
};
