// Making names behind the wall: the creation broker.
//
// Where a denied name does not exist yet, no program of the jail may make any name in
// the folders around it: Landlock, which judges what really happens, gives none of them
// that right (see _policy/wall.py). This is what makes the other names there for them.
//
// What is not behind the wall is let go on (VJ_BROKER_CONTINUE), and so is all that is
// not understood. That is safe whatever the guest does with its memory meanwhile: the
// call is judged by the wall then. What is behind it is made here, once, with a copy of
// the path, in a folder that was opened before the question was asked; a name that is
// held is answered with EACCES. To open a file that exists goes on too, so that a
// terminal, a FIFO or a device is opened by who wanted it.

#include "linux_broker_target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/stat.h>

#define SET_ID_BITS 06000u // refused by the filter of the guest; not made here either

static vj_target to;
static vj_target from;
static char words[VJ_PATH_MAX]; // of a symbolic link

// ---- one call, its arguments in registers ----------------------------------

typedef struct {
    const vj_broker *broker;
    uint64_t id;
    uint32_t thread;
    int directory;
    uint64_t path;
    int source_directory; // of the second path, where there is one
    uint64_t source;
    unsigned flags;
    unsigned mode;
} request;

static request request_of(const vj_broker *broker,
                          const struct seccomp_notif *notification) {
    return (request){
        .broker = broker,
        .id = notification->id,
        .thread = notification->pid,
        .directory = AT_FDCWD,
        .source_directory = AT_FDCWD,
    };
}

// Whether what was there when the jail opened, or a folder above a held name, still is:
// the kernel says so itself then. If it is gone the next moment the wall judges the call.
static int is_taken(vj_name verdict) {
    if (verdict == VJ_NAME_HELD) return 0;
    struct statx status = {0};
    long result = sys(SYS_statx, to.place.folder, to.name, AT_SYMLINK_NOFOLLOW,
                      STATX_TYPE, &status);
    return result == 0 &&
           (verdict == VJ_NAME_KEPT || (status.stx_mode & S_IFMT) == S_IFDIR);
}

static long refuse(const request *call, vj_refusal_kind kind, const vj_target *target) {
    const vj_refused refused = vj_target_refused(target, kind);
    return vj_refuse(call->broker, call->id, call->thread, &refused);
}

// 1 if the name is to be made here, 0 if the call goes on, or the errno to answer.
static long prepare(const request *call, vj_name most) {
    if (vj_guest_string(call->thread, call->path, to.text, sizeof to.text) < 0) return 0;
    if (!vj_broker_waits(call->broker, call->id)) return 0;
    if (vj_target_find(call->thread, call->directory, &to) < 0) return 0;
    if (!vj_place_is_walled(&to.place)) return 0;
    vj_name verdict = vj_target_verdict(&to);
    if (verdict <= most) return 1;
    return is_taken(verdict) ? 0 : refuse(call, VJ_REFUSAL_CREATE, &to);
}

// Last of all, since what was looked up is another process's if the guest is gone.
static int may_act(const request *call) {
    return vj_broker_waits(call->broker, call->id);
}

// ---- files -----------------------------------------------------------------

// The guest has the file before it goes on, and the broker has it no more: a program
// that is written and then executed at once would be "busy" (ETXTBSY) otherwise.
static long hand_over(const request *call, int *file) {
    struct seccomp_notif_addfd given = {
        .id = call->id,
        .srcfd = (uint32_t)*file,
        .newfd_flags = call->flags & O_CLOEXEC,
    };
    long result =
        sys(SYS_ioctl, call->broker->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &given);
    vj_close_slot(file);
    *file = -1;
    if (result < 0) return result == -ENOENT ? VJ_BROKER_ANSWERED : result;
    struct seccomp_notif_resp answer = {.id = call->id, .val = result};
    sys(SYS_ioctl, call->broker->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    return VJ_BROKER_ANSWERED;
}

// A file that is not there is made; one that is is for the guest itself to open.
static long create_file(const request *call) {
    if (call->flags & (O_PATH | O_DIRECTORY)) return VJ_BROKER_CONTINUE;
    // As for a name that is taken: it may be a file that the host has made since.
    long result = prepare(call, VJ_NAME_OTHER);
    if (result <= 0) return result < 0 ? result : VJ_BROKER_CONTINUE;
    if (vj_target_has_slash(&to)) return VJ_BROKER_CONTINUE;
    result = vj_guest_take_umask(call->thread);
    if (!may_act(call)) return VJ_BROKER_ANSWERED;
    if (result < 0) return result;
    unsigned flags = call->flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC;
    VJ_AUTO_FD file = (int)sys(SYS_openat, to.place.folder, to.name, flags,
                               call->mode & 07777u & ~SET_ID_BITS);
    if (file == -EEXIST && !(call->flags & O_EXCL)) return VJ_BROKER_CONTINUE;
    return file < 0 ? file : hand_over(call, &file);
}

static long make_folder(const request *call) {
    long result = prepare(call, VJ_NAME_ABOVE);
    if (result <= 0) return result < 0 ? result : VJ_BROKER_CONTINUE;
    result = vj_guest_take_umask(call->thread);
    if (!may_act(call)) return VJ_BROKER_ANSWERED;
    if (result < 0) return result;
    return sys(SYS_mkdirat, to.place.folder, to.name, call->mode & 07777u & ~SET_ID_BITS);
}

static long make_node(const request *call) {
    unsigned type = call->mode & S_IFMT;
    if (type && type != S_IFREG && type != S_IFIFO && type != S_IFSOCK) {
        return VJ_BROKER_CONTINUE;
    }
    long result = prepare(call, VJ_NAME_OTHER);
    if (result <= 0) return result < 0 ? result : VJ_BROKER_CONTINUE;
    result = vj_guest_take_umask(call->thread);
    if (!may_act(call)) return VJ_BROKER_ANSWERED;
    if (result < 0) return result;
    return sys(SYS_mknodat, to.place.folder, to.name, call->mode & ~SET_ID_BITS, 0);
}

static long make_symlink(const request *call) {
    if (vj_guest_string(call->thread, call->source, words, sizeof words) < 0) {
        return VJ_BROKER_CONTINUE;
    }
    long result = prepare(call, VJ_NAME_OTHER);
    if (result <= 0) return result < 0 ? result : VJ_BROKER_CONTINUE;
    if (!may_act(call)) return VJ_BROKER_ANSWERED;
    return sys(SYS_symlinkat, words, to.place.folder, to.name);
}

// ---- second names, and moves -----------------------------------------------

// The object itself, which a path through /proc/self/fd may lead to.
static long open_object(const request *call) {
    if ((call->flags & AT_EMPTY_PATH) && !from.text[0]) {
        return vj_guest_directory(call->thread, call->source_directory);
    }
    const char *path = from.text;
    VJ_AUTO_FD start = (int)vj_target_start(call->thread, call->source_directory, &path);
    if (start < 0) return start;
    int follow = (call->flags & AT_SYMLINK_FOLLOW) != 0;
    if (path[0]) return vj_target_open(start, path, follow ? 0 : O_NOFOLLOW);
    // Not followed it is the link in /proc that is meant.
    return follow ? sys(SYS_fcntl, start, F_DUPFD_CLOEXEC, 0) : -ELOOP;
}

static long make_link(const request *call) {
    if (vj_guest_string(call->thread, call->source, from.text, sizeof from.text) < 0) {
        return VJ_BROKER_CONTINUE;
    }
    long result = prepare(call, VJ_NAME_OTHER);
    if (result <= 0) return result < 0 ? result : VJ_BROKER_CONTINUE;
    VJ_AUTO_FD object = (int)open_object(call);
    if (object < 0) return VJ_BROKER_CONTINUE;
    char link[64];
    vj_text text = {.data = link, .capacity = sizeof link};
    vj_text_string(&text, "/proc/self/fd/");
    vj_text_number(&text, (uint64_t)object, 10);
    if (!may_act(call)) return VJ_BROKER_ANSWERED;
    return sys(SYS_linkat, AT_FDCWD, link, to.place.folder, to.name, AT_SYMLINK_FOLLOW);
}

static long move(const request *call) {
    if (vj_guest_string(call->thread, call->source, from.text, sizeof from.text) < 0 ||
        vj_guest_string(call->thread, call->path, to.text, sizeof to.text) < 0 ||
        !vj_broker_waits(call->broker, call->id) ||
        vj_target_find(call->thread, call->source_directory, &from) < 0 ||
        vj_target_find(call->thread, call->directory, &to) < 0) {
        return VJ_BROKER_CONTINUE;
    }
    if (!vj_place_is_walled(&to.place) && !vj_place_is_walled(&from.place)) {
        return VJ_BROKER_CONTINUE;
    }
    // Whatever is moved to a folder above a held name may hold it already. A folder above
    // one stays where it is: elsewhere its names are made, and it is brought back by
    // another jail, or the host. And so does what the host has made at a held name since:
    // elsewhere it is held no more, and a guest would write what is in it.
    if (vj_target_verdict(&to) != VJ_NAME_OTHER)
        return refuse(call, VJ_REFUSAL_MOVE, &to);
    if (vj_target_verdict(&from) != VJ_NAME_OTHER)
        return refuse(call, VJ_REFUSAL_MOVE, &from);
    if (!may_act(call)) return VJ_BROKER_ANSWERED;
    return sys(SYS_renameat2, from.place.folder, from.name, to.place.folder, to.name,
               call->flags);
}

// ---- the calls -------------------------------------------------------------

static long act(const vj_broker *broker, const struct seccomp_notif *notification) {
    const uint64_t *given = (const void *)notification->data.args;
    request call = request_of(broker, notification);
    switch (notification->data.nr) {
    case SYS_openat:
        call.directory = (int)given[0];
        call.path = given[1];
        call.flags = (unsigned)given[2];
        call.mode = (unsigned)given[3];
        return create_file(&call);
    case SYS_mkdirat:
        call.directory = (int)given[0];
        call.path = given[1];
        call.mode = (unsigned)given[2];
        return make_folder(&call);
    case SYS_mknodat:
        call.directory = (int)given[0];
        call.path = given[1];
        call.mode = (unsigned)given[2];
        return make_node(&call);
    case SYS_symlinkat:
        call.source = given[0];
        call.directory = (int)given[1];
        call.path = given[2];
        return make_symlink(&call);
    case SYS_linkat:
        call.source_directory = (int)given[0];
        call.source = given[1];
        call.directory = (int)given[2];
        call.path = given[3];
        call.flags = (unsigned)given[4];
        return make_link(&call);
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2:
        call.source_directory = (int)given[0];
        call.source = given[1];
        call.directory = (int)given[2];
        call.path = given[3];
        call.flags = notification->data.nr == SYS_renameat2 ? (unsigned)given[4] : 0;
        return move(&call);
#ifdef SYS_open // x86_64 has the older calls without a folder as well
    case SYS_open:
        call.path = given[0];
        call.flags = (unsigned)given[1];
        call.mode = (unsigned)given[2];
        return create_file(&call);
    case SYS_creat:
        call.path = given[0];
        call.flags = O_CREAT | O_WRONLY | O_TRUNC;
        call.mode = (unsigned)given[1];
        return create_file(&call);
    case SYS_mkdir:
        call.path = given[0];
        call.mode = (unsigned)given[1];
        return make_folder(&call);
    case SYS_mknod:
        call.path = given[0];
        call.mode = (unsigned)given[1];
        return make_node(&call);
    case SYS_symlink:
        call.source = given[0];
        call.path = given[1];
        return make_symlink(&call);
    case SYS_link:
        call.source = given[0];
        call.path = given[1];
        return make_link(&call);
    case SYS_rename:
        call.source = given[0];
        call.path = given[1];
        return move(&call);
#endif
    default: return -ENOSYS;
    }
}

static long act_create(const vj_broker *broker,
                       const struct seccomp_notif *notification) {
    to.place.folder = -1;
    from.place.folder = -1;
    long result = act(broker, notification);
    vj_target_forget(&to);
    vj_target_forget(&from);
    return result;
}

const vj_broker_call vj_broker_name_calls[] = {
    {.number = SYS_bind, .act = vj_broker_bind},
    {.number = SYS_openat, .act = act_create},
    {.number = SYS_mkdirat, .act = act_create},
    {.number = SYS_mknodat, .act = act_create},
    {.number = SYS_symlinkat, .act = act_create},
    {.number = SYS_linkat, .act = act_create},
    {.number = SYS_renameat2, .act = act_create},
#ifdef SYS_renameat
    {.number = SYS_renameat, .act = act_create},
#endif
#ifdef SYS_open
    {.number = SYS_open, .act = act_create},
    {.number = SYS_creat, .act = act_create},
    {.number = SYS_mkdir, .act = act_create},
    {.number = SYS_mknod, .act = act_create},
    {.number = SYS_symlink, .act = act_create},
    {.number = SYS_link, .act = act_create},
    {.number = SYS_rename, .act = act_create},
#endif
    {.number = -1, .act = 0},
};
