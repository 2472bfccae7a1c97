// bind(2) of AF_UNIX sockets by path, where `sockets` are granted or names are held.
//
// The kernel takes a path and no folder, and what it was given is what getsockname(2)
// tells and what others then connect to. So the guest's own words are used wherever they
// are safe, with a copy of the address and on a duplicate of the guest's socket.
//
// Beside names that are held the wall judges what guests bind themselves, so all that is
// not behind it goes on. Behind it the name alone is bound, from the folder that was
// looked at: on the way of any longer words a guest of another jail on the same folder
// could put a link meanwhile. So getsockname(2) tells that name without its folder.

#include "linux_broker_target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>

static vj_target to;

// Under the umask of the guest, from the folder `start`.
static long bind_from(const vj_broker *broker, const struct seccomp_notif *notification,
                      int start, const vj_socket_call *call) {
    const vj_setup *setup = broker->setup;
    int remembers = (setup->plan->flags & VJ_PLAN_BROKER_SOCKETS) != 0;
    long result = vj_guest_take_umask(notification->pid);
    if (result == 0 && remembers && vj_own_socket_room() < 0) {
        const char *words = call->address.local.sun_path;
        const vj_refused refused = {.kind = VJ_REFUSAL_SOCKETS,
                                    .error = ENOBUFS,
                                    .folder = words,
                                    .folder_length = strlen(words)};
        return vj_refuse(broker, notification->id, notification->pid, &refused);
    }
    if (result == 0) result = sys(SYS_fchdir, start);
    if (result < 0) return result;
    if (!vj_broker_waits(broker, notification->id)) return VJ_BROKER_ANSWERED;
    result = sys(SYS_bind, call->socket, &call->address, call->length);
    if (result == 0 && remembers) vj_own_socket_remember(setup, call->socket);
    return result;
}

// Whether `words` may stay as they are: in the jail's own places, where no other jail is,
// if they are the very path of the folder, from the root on.
static int may_keep_words(const vj_broker *broker, const char *words) {
    struct statx status = {0};
    if (sys(SYS_statx, to.place.folder, "", AT_EMPTY_PATH, STATX_TYPE, &status) < 0)
        return 0;
    uint64_t device = (uint64_t)status.stx_dev_major << 32 | status.stx_dev_minor;
    size_t length = (size_t)(to.name - to.text);
    return device == broker->setup->scratch_device && length == to.place.length + 1 &&
           words[length - 1] == '/' && !memcmp(words, to.place.path, length - 1);
}

static long bind_beside_names(const vj_broker *broker,
                              const struct seccomp_notif *notification,
                              vj_socket_call *call) {
    char *words = call->address.local.sun_path;
    memcpy(to.text, words, strlen(words) + 1);
    if (vj_target_find(notification->pid, AT_FDCWD, &to) < 0) return VJ_BROKER_CONTINUE;
    if (!vj_place_is_walled(&to.place) || vj_place_is_in_free(&to.place) ||
        vj_target_has_slash(&to)) {
        return VJ_BROKER_CONTINUE;
    }
    if (vj_target_verdict(&to) != VJ_NAME_OTHER) {
        const vj_refused refused = vj_target_refused(&to, VJ_REFUSAL_BIND);
        return vj_refuse(broker, notification->id, notification->pid, &refused);
    }
    if (may_keep_words(broker, words))
        return bind_from(broker, notification, to.place.folder, call);
    memcpy(words, to.name, to.length + 1);
    call->length = (int)(VJ_SOCKET_PATH_OFFSET + to.length + 1);
    return bind_from(broker, notification, to.place.folder, call);
}

static long bind_path(const vj_broker *broker, const struct seccomp_notif *notification,
                      vj_socket_call *call) {
    if (broker->setup->plan->flags & VJ_PLAN_BROKER_NAMES) {
        to.place.folder = -1;
        long result = bind_beside_names(broker, notification, call);
        vj_target_forget(&to);
        return result;
    }
    VJ_AUTO_FD start = (int)vj_guest_directory(notification->pid, AT_FDCWD);
    return start < 0 ? start : bind_from(broker, notification, start, call);
}

long vj_broker_bind(const vj_broker *broker, const struct seccomp_notif *notification) {
    vj_socket_call call;
    long result = vj_socket_call_read(broker, notification, &call);
    int names = (broker->setup->plan->flags & VJ_PLAN_BROKER_NAMES) != 0;
    if (result == 0 && call.by_path) {
        result = bind_path(broker, notification, &call);
    } else if (names && result <= 0) {
        result = VJ_BROKER_CONTINUE; // makes no file, or fails
    } else if (result == 0) {
        result = sys(SYS_bind, call.socket, &call.address, call.length);
    }
    vj_close_slot(&call.socket);
    return result;
}
