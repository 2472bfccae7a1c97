// Jails whose places visjail-init did not make: bubblewrap did, or nobody.
//
// Nothing is believed of what another program has made: each place is compared with the
// plan, by device and inode and by the flags of its mount, before the jail serves.

#include "linux_init.h"
#include "linux_tree.h"

#include <asm/statfs.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>

// What getdents64 gives of "." and "..".
#define EMPTY_FOLDER_BYTES 48

#define TMPFS_MAGIC_NUMBER 0x01021994
#define PROC_MAGIC_NUMBER  0x9fa0

// Of statfs(2), f_flags.
#define MOUNT_READ_ONLY 1
#define MOUNT_NO_SUID   2
#define MOUNT_NO_DEV    4

typedef struct {
    long type;
    long flags;
} file_system;

static const char *path_of(const vj_setup *setup, const vj_operation *operation) {
    return vj_plan_string(setup->plan, operation->path);
}

// EPROTO: bubblewrap made something else than it was asked for, as ESTALE would say of a
// source that another program has moved.
static void expect(vj_setup *setup, int holds) {
    if (!holds) vj_setup_fail(setup, VJ_STAGE_VERIFY, -EPROTO);
}

static file_system file_system_of(vj_setup *setup, int place) {
    struct statfs status;
    memset(&status, 0, sizeof status);
    long result = sys(SYS_fstatfs, place, &status);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_VERIFY, result);
    file_system found = {.type = status.f_type, .flags = status.f_flags};
    return found;
}

static int open_place(vj_setup *setup, const char *path) {
    long place = vj_open_no_links(setup->root, path[1] ? path + 1 : ".");
    if (place < 0) vj_setup_fail(setup, VJ_STAGE_VERIFY, place);
    return (int)place;
}

// The last bind at a path is the one that is seen; those before it are hidden copies.
static int is_visible(const vj_setup *setup, uint32_t index) {
    const vj_operation *operations = vj_plan_operations(setup->plan);
    for (uint32_t i = index + 1; i < setup->plan->operation_count; i++) {
        if (operations[i].kind == VJ_OPERATION_BIND &&
            operations[i].path != operations[index].path &&
            !memcmp(path_of(setup, &operations[i]), path_of(setup, &operations[index]),
                    strlen(path_of(setup, &operations[index])) + 1)) {
            return 0;
        }
    }
    return 1;
}

static int is_beneath(const char *path, const char *above) {
    size_t length = strlen(above);
    return strlen(path) > length && !memcmp(path, above, length) && path[length] == '/';
}

// A pin has the same place as what is seen there, but lies under a later bind of a
// folder above it.
static int is_pin(const vj_setup *setup, uint32_t index) {
    const vj_operation *operations = vj_plan_operations(setup->plan);
    for (uint32_t i = index + 1; i < setup->plan->operation_count; i++) {
        if (operations[i].kind == VJ_OPERATION_BIND &&
            is_beneath(path_of(setup, &operations[index]),
                       path_of(setup, &operations[i]))) {
            return 1;
        }
    }
    return 0;
}

static int is_empty(vj_setup *setup, const char *path) {
    char entries[512];
    VJ_AUTO_FD folder = (int)sys(SYS_openat, setup->root, path + 1,
                                 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (folder < 0) return 1; // not to be looked into, so not known
    long all = 0;
    for (;;) {
        long size = sys(SYS_getdents64, folder, entries, sizeof entries);
        if (size <= 0) return size == -EINVAL ? 0 : all <= EMPTY_FOLDER_BYTES;
        all += size;
        if (all > EMPTY_FOLDER_BYTES) return 0;
    }
}

static void check_bind(vj_setup *setup, uint32_t index) {
    const vj_operation *operation = &vj_plan_operations(setup->plan)[index];
    const char *path = path_of(setup, operation);
    VJ_AUTO_FD place = open_place(setup, path);
    long same = vj_same_object(place, operation->device, operation->inode);
    if (same < 0) vj_setup_fail(setup, VJ_STAGE_VERIFY, same);
    if (is_pin(setup, index)) {
        // A mount point answers EBUSY before anything else is looked at, and what is not
        // empty is not removed either way.
        if (is_empty(setup, path)) return;
        const char *name = 0;
        VJ_AUTO_FD above = (int)vj_open_above(setup->root, path + 1, &name);
        if (above < 0) vj_setup_fail(setup, VJ_STAGE_VERIFY, above);
        long result = sys(SYS_unlinkat, above, name, AT_REMOVEDIR);
        expect(setup, result == -EBUSY || result == -EACCES || result == -EROFS);
        return;
    }
    if (!is_visible(setup, index)) return;
    file_system found = file_system_of(setup, place);
    int read_only = (operation->flags & VJ_BIND_READ_ONLY) != 0;
    expect(setup, (found.flags & MOUNT_NO_SUID) && (found.flags & MOUNT_NO_DEV));
    expect(setup, !read_only || (found.flags & MOUNT_READ_ONLY));
}

static void check_mask(vj_setup *setup, const vj_operation *operation) {
    VJ_AUTO_FD place = open_place(setup, path_of(setup, operation));
    if (operation->inode &&
        vj_same_object(place, operation->device, operation->inode) == 0) {
        vj_setup_fail(setup, VJ_STAGE_VERIFY, -EPROTO); // the denied object itself
    }
    file_system found = file_system_of(setup, place);
    expect(setup, (found.flags & MOUNT_READ_ONLY) && (found.flags & MOUNT_NO_DEV));
    if (operation->kind == VJ_OPERATION_MASK_DIRECTORY) {
        expect(setup, found.type == TMPFS_MAGIC_NUMBER);
    }
}

static void check_own_place(vj_setup *setup, const vj_operation *operation, long type,
                            long flags) {
    VJ_AUTO_FD place = open_place(setup, path_of(setup, operation));
    file_system found = file_system_of(setup, place);
    expect(setup, found.type == type && (found.flags & flags) == flags);
}

static void check_operation(vj_setup *setup, uint32_t index) {
    const vj_operation *operation = &vj_plan_operations(setup->plan)[index];
    int host_root = *vj_plan_string(setup->plan, operation->source) != 0;
    setup->failed_index = (int32_t)index;
    switch ((vj_operation_kind)operation->kind) {
    case VJ_OPERATION_ROOT: {
        VJ_AUTO_FD place = open_place(setup, "/");
        file_system found = file_system_of(setup, place);
        expect(setup, (found.flags & MOUNT_READ_ONLY) != 0);
        expect(setup, host_root || found.type == TMPFS_MAGIC_NUMBER);
        break;
    }
    case VJ_OPERATION_BIND: check_bind(setup, index); break;
    case VJ_OPERATION_MASK_DIRECTORY:
    case VJ_OPERATION_MASK_FILE: check_mask(setup, operation); break;
    case VJ_OPERATION_SCRATCH_PLACE:
    case VJ_OPERATION_PIN:
        check_own_place(setup, operation, TMPFS_MAGIC_NUMBER,
                        MOUNT_NO_SUID | MOUNT_NO_DEV);
        break;
    case VJ_OPERATION_DEVICES:
        check_own_place(setup, operation, TMPFS_MAGIC_NUMBER,
                        MOUNT_NO_SUID | MOUNT_NO_DEV | MOUNT_READ_ONLY);
        break;
    case VJ_OPERATION_PROC:
        check_own_place(setup, operation, PROC_MAGIC_NUMBER, MOUNT_NO_SUID);
        break;
    case VJ_OPERATION_DIRECTORY:
    case VJ_OPERATION_SYMLINK:
    case VJ_OPERATION_FILE:
    case VJ_OPERATION_COPY:
    case VJ_OPERATION_SCRATCH:
    case VJ_OPERATION_SEAL:
    case VJ_OPERATION_TRY:
    case VJ_OPERATION_SOCKET: // these four are refused before: there is no helper
    case VJ_OPERATION_INBOUND:
    case VJ_OPERATION_HOST_PORT:
    case VJ_OPERATION_NAME:
    case VJ_OPERATION_END: break;
    }
}

// The host cannot make a descriptor of a process that it has not started: pid 1 sends
// its own.
static void announce(vj_setup *setup) {
    VJ_AUTO_FD self = (int)sys(SYS_pidfd_open, sys(SYS_getpid), 0);
    if (self < 0) vj_setup_fail(setup, VJ_STAGE_PROCESS, self);
    vj_message born = {.kind = VJ_MESSAGE_PROCESS};
    long result = vj_message_send(VJ_FD_CONTROL, &born, 0, 0, &self, 1);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_PROCESS, result);
}

static void open_root(vj_setup *setup) {
    setup->root =
        (int)sys(SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (setup->root < 0) vj_setup_fail(setup, VJ_STAGE_VERIFY, setup->root);
}

static void close_root(vj_setup *setup) {
    vj_close_slot(&setup->root);
    setup->root = -1;
    setup->failed_index = -1;
}

void vj_bubblewrap_enter(vj_setup *setup) {
    announce(setup);
    // It was executed by a descriptor, whose number the kernel took for its name.
    sys(SYS_prctl, PR_SET_NAME, "visjail-init", 0, 0, 0);
    setup->guest_id = (uint32_t)sys(SYS_geteuid);
    setup->identity = VJ_IDENTITY_CALLER;
    if (sys(SYS_getpid) != 1) vj_setup_fail(setup, VJ_STAGE_NAMESPACES, -ESRCH);
    open_root(setup);
    for (uint32_t i = 0; i < setup->plan->operation_count; i++) check_operation(setup, i);
    close_root(setup);
}

void vj_bare_enter(vj_setup *setup) {
    vj_identity_keep(setup);
    vj_tree_on_host();
    // Whatever escapes a keeper comes here.
    long result = sys(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_SUPERVISOR, result);
    open_root(setup);
    const vj_operation *operations = vj_plan_operations(setup->plan);
    for (uint32_t i = 0; i < setup->plan->operation_count; i++) {
        if (operations[i].kind != VJ_OPERATION_BIND) continue;
        setup->failed_index = (int32_t)i;
        VJ_AUTO_FD place = open_place(setup, path_of(setup, &operations[i]));
        long same = vj_same_object(place, operations[i].device, operations[i].inode);
        if (same < 0) vj_setup_fail(setup, VJ_STAGE_SOURCE_CHANGED, same);
    }
    close_root(setup);
    result = sys(SYS_chdir, "/");
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_VERIFY, result);
}
