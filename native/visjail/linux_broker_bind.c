// bind(2) of AF_UNIX sockets by path, where `sockets` are granted or names are held.
//
// The kernel takes a path and no folder, and what it was given is what getsockname(2)
// tells and what others then connect to. So the guest's own words are used wherever they
// are safe, with a copy of the address and on a duplicate of the guest's socket.
//
// Beside names that are held the wall judges what guests bind themselves, so all that is
// not behind it goes on. Behind it the words are used only if they are the very path of
// the folder that was looked at: no guest can move that folder or put a link in its way,
// but through the broker, which does one thing at a time.

#include "linux_broker_target.h"

#include <errno.h>
#include <fcntl.h>

static vj_target to;

// Under the umask of the guest, from the folder `start`.
static long bind_from(const vj_broker *broker, const struct seccomp_notif *notification,
                      int start, const vj_socket_call *call) {
    const vj_setup *setup = broker->setup;
    int remembers = (setup->plan->flags & VJ_PLAN_BROKER_SOCKETS) != 0;
    long result = vj_guest_take_umask(notification->pid);
    if (result == 0 && remembers) result = vj_own_socket_room();
    if (result == 0) result = sys(SYS_fchdir, start);
    if (result < 0) return result;
    if (!vj_broker_waits(broker, notification->id)) return VJ_BROKER_ANSWERED;
    result = sys(SYS_bind, call->socket, &call->address, call->length);
    if (result == 0 && remembers) vj_own_socket_remember(setup, call->socket);
    return result;
}

// Whether `words`, of `length` bytes, is from `start` on the path of the folder of `to`,
// with its slash. An absolute path starts at a place without a path.
static int is_very_path(const vj_place *start, const char *words, size_t length) {
    size_t way = to.place.length == 1 ? 0 : to.place.length;
    size_t skip = start->length == 1 ? 0 : start->length;
    if (memcmp(to.place.path, start->path, skip) != 0) return 0;
    // A relative path without a folder: the two are the same.
    if (!length) return start->length && skip == way;
    if (start->length) {
        if (to.place.path[skip] != '/') return 0;
        skip++;
    }
    return skip + length == way + 1 && words[length - 1] == '/' &&
           !memcmp(to.place.path + skip, words, length - 1);
}

// The path of the folder in the place of the words of a guest that went through links
// or dots. The name alone where that is too long for an address.
static void rewrite(vj_socket_call *call) {
    char path[sizeof call->address.local.sun_path];
    vj_text text = {.data = path, .capacity = sizeof path};
    if (to.place.length > 1) vj_text_string(&text, to.place.path);
    vj_text_string(&text, "/");
    vj_text_string(&text, to.name);
    const char *words = text.overflow ? to.name : path;
    size_t length = strlen(words);
    memcpy(call->address.local.sun_path, words, length);
    call->address.local.sun_path[length] = 0;
    call->length = (int)(VJ_SOCKET_PATH_OFFSET + length + 1);
}

static long bind_beside_names(const vj_broker *broker,
                              const struct seccomp_notif *notification,
                              vj_socket_call *call) {
    static vj_place start;
    const char *words = call->address.local.sun_path;
    size_t length = strlen(words);
    memcpy(to.text, words, length + 1);
    if (vj_target_find(notification->pid, AT_FDCWD, &to) < 0) return VJ_BROKER_CONTINUE;
    if (!vj_place_is_walled(&to.place) || vj_place_is_in_free(&to.place) ||
        vj_target_has_slash(&to)) {
        return VJ_BROKER_CONTINUE;
    }
    if (vj_target_verdict(&to) != VJ_NAME_OTHER) return -EACCES;
    VJ_AUTO_FD folder = (int)vj_guest_directory(notification->pid, AT_FDCWD);
    if (folder < 0) return folder;
    start.folder = folder;
    start.length = 0;
    long result = words[0] == '/' ? 0 : vj_place_look_up(&start);
    if (result < 0 || !is_very_path(&start, words, (size_t)(to.name - to.text))) {
        rewrite(call);
        return bind_from(broker, notification, to.place.folder, call);
    }
    return bind_from(broker, notification, folder, call);
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
