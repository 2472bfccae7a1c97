// Under which host identity the guest runs.
//
// An ordinary caller keeps its own uid and gid, mapped to themselves. A root
// caller's guest gets a host uid that nobody else has, so that a hole in the
// jail does not end at host uid 0; grants reach it by id-mapped mounts (Linux
// 5.12; ext4, xfs, btrfs, tmpfs since 6.3, not overlayfs), which show the owner of a
// grant as the guest and store what the guest makes as that owner.

#include "linux_init.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/stat.h>
#include <signal.h>

long vj_write_text(const char *path, const char *data, size_t size) {
    VJ_AUTO_FD file = (int)sys(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
    if (file < 0) return file;
    long result = sys(SYS_write, file, data, size);
    return result < 0 ? result : 0;
}

static void map_line(vj_text *text, uint32_t inside, uint32_t outside, uint32_t count) {
    if (!count) return;
    vj_text_number(text, inside, 10);
    vj_text_string(text, " ");
    vj_text_number(text, outside, 10);
    vj_text_string(text, " ");
    vj_text_number(text, count, 10);
    vj_text_string(text, "\n");
}

static long write_map(long pid, const char *name, const char *data, size_t size) {
    char path[64];
    vj_text text = {.data = path, .capacity = sizeof path};
    vj_text_string(&text, "/proc/");
    vj_text_number(&text, (uint64_t)pid, 10);
    vj_text_string(&text, name);
    return vj_write_text(path, data, size);
}

// The owner becomes the guest; every other id stays what it is.
static long write_owner_map(long pid, const char *name, uint32_t owner, uint32_t guest) {
    uint32_t low = owner < guest ? owner : guest;
    uint32_t high = owner < guest ? guest : owner;
    char lines[192];
    vj_text text = {.data = lines, .capacity = sizeof lines};
    map_line(&text, owner, guest, 1);
    map_line(&text, 0, 0, low);
    // The same number needs no change, and there is nothing in between.
    if (low != high) map_line(&text, low + 1, low + 1, high - low - 1);
    map_line(&text, high + 1, high + 1, UINT32_MAX - high - 1);
    return write_map(pid, name, lines, text.length);
}

long vj_identity_map(uint32_t owner, uint32_t group, uint32_t guest) {
    // A namespace needs a process to be born in; it only waits to be ended.
    long pid = sys(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0) return pid;
    if (pid == 0) {
        for (;;) sys(SYS_ppoll, 0, 0, 0, 0);
    }
    long result = write_owner_map(pid, "/uid_map", owner, guest);
    if (result == 0) result = write_owner_map(pid, "/gid_map", group, guest);
    if (result == 0) {
        char path[64];
        vj_text text = {.data = path, .capacity = sizeof path};
        vj_text_string(&text, "/proc/");
        vj_text_number(&text, (uint64_t)pid, 10);
        vj_text_string(&text, "/ns/user");
        result = sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    }
    sys(SYS_kill, pid, SIGKILL);
    sys(SYS_wait4, pid, 0, 0, 0);
    return result;
}

// Keep the capabilities over the change of uid: they are needed until the
// user namespace exists, where a sysctl lets only root make one.
static long become(uint32_t guest) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    long result = sys(SYS_setgroups, 0, 0);
    if (result == 0) result = sys(SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0);
    if (result == 0) result = sys(SYS_setresgid, guest, guest, guest);
    if (result == 0) result = sys(SYS_setresuid, guest, guest, guest);
    if (result == 0) result = sys(SYS_capget, &header, data);
    if (result == 0) {
        data[0].effective = data[0].permitted;
        data[1].effective = data[1].permitted;
        result = sys(SYS_capset, &header, data);
    }
    // The change of uid made this process non-dumpable, and its own
    // /proc/self/uid_map unwritable with it.
    if (result == 0) result = sys(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
    return result;
}

static void write_own_maps(vj_setup *setup, uint32_t user, uint32_t group) {
    char line[64];
    vj_text text = {.data = line, .capacity = sizeof line};
    map_line(&text, user, user, 1);
    // Before 3.19 the file does not exist; everywhere else it must be written.
    long result = vj_write_text("/proc/self/setgroups", "deny", 4);
    if (result == 0 || result == -ENOENT) {
        result = vj_write_text("/proc/self/uid_map", line, text.length);
    }
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_ID_MAP, result);
    text.length = 0;
    map_line(&text, group, group, 1);
    result = vj_write_text("/proc/self/gid_map", line, text.length);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_ID_MAP, result);
}

static long read_text(const char *path, char *data, size_t capacity) {
    VJ_AUTO_FD file = (int)sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return file;
    long size = sys(SYS_read, file, data, capacity - 1);
    if (size >= 0) data[size] = 0;
    return size;
}

// Whether uid 0 is the host's as well: in a user namespace it is mostly some ordinary
// uid, as in rootless containers. The kernel's own settings belong to the host's uid 0
// (fs/proc/proc_sysctl.c), whatever maps of ids lie between.
static int is_host_root(void) {
    struct statx settings = {0};
    long result = sys(SYS_statx, AT_FDCWD, "/proc/sys", 0, STATX_UID, &settings);
    return result < 0 || settings.stx_uid == 0; // unknown: the careful answer
}

// The groups of the host's root are not the guest's. In a user namespace that
// may not change them they are those of an ordinary user, and stay.
static void drop_groups(const vj_setup *setup) {
    char answer[8] = {0};
    long result = sys(SYS_setgroups, 0, 0);
    if (result == -EPERM &&
        read_text("/proc/self/setgroups", answer, sizeof answer) >= 4 &&
        !memcmp(answer, "deny", 4)) {
        result = 0;
    }
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_ID_MAP, result);
}

// What counts for the user of the guest counts for the caller, who has the same uid: a
// jail gets a part, so that one or two do not take all. Of instances a quarter of the
// usual number, of watches an eighth of what this machine allows (at least 8,192, by its
// memory). Before Linux 4.13 (watches 5.11) there is no such limit.
static void limit_quotas(void) {
    char text[24] = {0};
    vj_write_text("/proc/sys/user/max_inotify_instances", "32", 2);
    long size = read_text("/proc/sys/fs/inotify/max_user_watches", text, sizeof text);
    uint64_t watches = 0;
    for (long i = 0; i < size && text[i] >= '0' && text[i] <= '9'; i++) {
        watches = watches * 10 + (uint64_t)(text[i] - '0');
    }
    vj_text share = {.data = text, .capacity = sizeof text};
    vj_text_number(&share, watches / 8, 10);
    if (watches) {
        vj_write_text("/proc/sys/user/max_inotify_watches", text, share.length);
    }
}

void vj_identity_enter(vj_setup *setup) {
    uint32_t user = (uint32_t)sys(SYS_geteuid);
    uint32_t group = (uint32_t)sys(SYS_getegid);
    int root = user == 0 && is_host_root();
    setup->identity = root ? VJ_IDENTITY_ROOT : VJ_IDENTITY_CALLER;
    if (root) {
        // All grants or none: a jail in which some files belong to the guest
        // and others to nobody would be no use.
        long mapped = vj_trees_open(setup, 1);
        vj_close_slot(&setup->map);
        setup->map = -1;
        if (mapped == 0) mapped = become(setup->plan->guest_id);
        // EINVAL: the file system knows no id-mapped mounts, or this user namespace not
        // the guest's id. EPERM: this root is not the file system's, as in a container.
        // Anything else is an accident, and no reason to go on with less.
        int refused = mapped == -EINVAL || mapped == -EPERM;
        if (mapped < 0 && (!refused || sys(SYS_geteuid) != 0)) {
            vj_setup_fail(setup, VJ_STAGE_ID_MAP, mapped);
        }
        if (mapped == 0) {
            setup->identity = VJ_IDENTITY_MAPPED;
            user = group = setup->plan->guest_id;
        } else {
            vj_trees_close(setup);
            drop_groups(setup);
        }
    }
    setup->guest_id = user;
    long result = sys(SYS_unshare, CLONE_NEWUSER);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_USER_NAMESPACE, result);
    write_own_maps(setup, user, group);
    if (setup->identity != VJ_IDENTITY_MAPPED) limit_quotas();
}

void vj_identity_keep(vj_setup *setup) {
    setup->guest_id = (uint32_t)sys(SYS_geteuid);
    setup->identity = VJ_IDENTITY_CALLER;
    if (setup->guest_id != 0) return;
    if (is_host_root()) setup->identity = VJ_IDENTITY_ROOT;
    drop_groups(setup);
}

void vj_capabilities_drop(const vj_setup *setup, uint32_t kept) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct few[2] = {{.effective = kept, .permitted = kept}};
    // Past the last capability the kernel answers EINVAL, which ends the loop.
    for (unsigned capability = 0; capability < 64; capability++) {
        if (sys(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0) < 0) break;
    }
    long result = sys(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (result == 0) result = sys(SYS_capset, &header, few);
    if (result == 0) result = sys(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (result == 0) result = sys(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    // Nothing above is believed: what is in force is read back.
    struct __user_cap_data_struct left[2] = {{1, 1, 1}, {1, 1, 1}};
    if (result == 0) result = sys(SYS_capget, &header, left);
    uint32_t held = left[0].effective | left[0].permitted;
    if (result == 0 && ((held & ~kept) | left[0].inheritable | left[1].effective |
                        left[1].permitted | left[1].inheritable)) {
        result = -EPERM;
    }
    // In the host's user namespace an ordinary caller may not lower its bounding set;
    // with no_new_privs nothing in it can be had.
    if (result == 0 && setup->plan->backend != VJ_BACKEND_LANDLOCK &&
        sys(SYS_prctl, PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 0) {
        result = -EPERM;
    }
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_CAPABILITIES, result);
}
