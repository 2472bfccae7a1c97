// The mounts of a plan.
//
// Order matters three times. Sources are opened and cloned before anything is
// mounted, because the new root covers a part of the host's view. Operations
// run in the order of the plan, parents before children. Seals come last: a
// read-only tmpfs takes no more mount points.
//
// Every source is bound by descriptor, and every mount point is found without
// following links: a link that an earlier guest planted in a writable grant
// leads nowhere (the class of CVE-2026-87766).

#include "linux_init.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

// An existing directory that the new root is mounted on while it is built.
// Any directory that every system has will do: sources are cloned before.
#define BUILD_PLACE "/usr"

#define PRIVATE_MOUNT (MS_NOSUID | MS_NODEV)

#define BYTES_PER_INODE 1024 // about what the kernel keeps of each
#define INODES_LEAST    256

// One empty file of mode 000 is bound, read-only, over each denied file: it can
// neither be opened nor changed nor given another mode. It lives in the jail's
// own /dev, which every jail has, and loses its name when /dev is sealed. So does an
// empty folder, for the denied folders in which nothing is opened again: a file system
// for each would cost several times as much, here and when the jail ends.
#define DEVICES     "/dev"
#define MASK_NAME   DEVICES "/.mask"
#define MASK_FOLDER DEVICES "/.masks"

static const char *path_of(const vj_setup *setup, const vj_operation *operation) {
    return vj_plan_string(setup->plan, operation->path);
}

static const char *source_of(const vj_setup *setup, const vj_operation *operation) {
    return vj_plan_string(setup->plan, operation->source);
}

// "/a/b" as a name relative to the new root.
static const char *relative(const char *path) {
    return path[1] ? path + 1 : ".";
}

static long same_object(int descriptor, const vj_operation *operation) {
    return vj_same_object(descriptor, operation->device, operation->inode);
}

// ---- sources ---------------------------------------------------------------

// The owner of a grant's root decides how the grant is mapped.
static long map_owner(vj_setup *setup, const vj_operation *operation,
                      struct mount_attr *attributes) {
    if (setup->map < 0 || setup->map_owner != operation->owner ||
        setup->map_group != operation->group) {
        vj_close_slot(&setup->map);
        setup->map = (int)vj_identity_map(operation->owner, operation->group,
                                          setup->plan->guest_id);
        if (setup->map < 0) return setup->map;
        setup->map_owner = operation->owner;
        setup->map_group = operation->group;
    }
    attributes->attr_set |= MOUNT_ATTR_IDMAP;
    attributes->userns_fd = (unsigned)setup->map;
    return 0;
}

// What an operation is about: only of a link that is to stay the link itself.
static long open_object(const vj_operation *operation, int directory, const char *path) {
    return operation->flags & VJ_BIND_LINK ? vj_open_link(directory, path)
                                           : vj_open_no_links(directory, path);
}

static long open_tree_of(vj_setup *setup, const vj_operation *operation, int id_mapped) {
    VJ_AUTO_FD source =
        (int)open_object(operation, AT_FDCWD, source_of(setup, operation));
    if (source < 0) vj_setup_fail(setup, VJ_STAGE_SOURCE, source);
    if (same_object(source, operation) < 0) {
        vj_setup_fail(setup, VJ_STAGE_SOURCE_CHANGED, -ESTALE);
    }
    long tree = sys(SYS_open_tree, source, "",
                    AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree == -EPERM && id_mapped) return tree; // the mounts are another's
    if (tree < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, tree);

    struct mount_attr attributes = {
        .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        .propagation = MS_PRIVATE,
    };
    if (operation->flags & VJ_BIND_READ_ONLY) attributes.attr_set |= MOUNT_ATTR_RDONLY;
    if (operation->flags & VJ_BIND_NO_EXEC) attributes.attr_set |= MOUNT_ATTR_NOEXEC;
    long result = 0;
    if (id_mapped && (operation->flags & VJ_BIND_GRANT)) {
        result = map_owner(setup, operation, &attributes);
    }
    if (result == 0) {
        result = sys(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE,
                     &attributes, sizeof attributes);
    }
    if (result == 0) return tree;
    sys(SYS_close, tree);
    if (id_mapped) return result; // the caller tries again without
    vj_setup_fail(setup, VJ_STAGE_MOUNT, result);
}

static int has_tree(const vj_setup *setup, const vj_operation *operation) {
    if (operation->kind == VJ_OPERATION_BIND || operation->kind == VJ_OPERATION_COPY)
        return 1;
    return operation->kind == VJ_OPERATION_ROOT && source_of(setup, operation)[0];
}

long vj_trees_open(vj_setup *setup, int id_mapped) {
    const vj_operation *operations = vj_plan_operations(setup->plan);
    for (uint32_t i = 0; i < setup->plan->operation_count; i++) setup->trees[i] = -1;
    for (uint32_t i = 0; i < setup->plan->operation_count; i++) {
        if (!has_tree(setup, &operations[i])) continue;
        setup->failed_index = (int32_t)i;
        long tree;
        if (operations[i].kind == VJ_OPERATION_COPY) {
            tree = vj_open_public_file(source_of(setup, &operations[i]));
            if (tree < 0) vj_setup_fail(setup, VJ_STAGE_SOURCE, tree);
        } else {
            tree = open_tree_of(setup, &operations[i], id_mapped);
            if (tree < 0) return tree;
        }
        setup->trees[i] = (int)tree;
    }
    setup->failed_index = -1;
    return 0;
}

void vj_trees_close(vj_setup *setup) {
    for (uint32_t i = 0; i < setup->plan->operation_count; i++) {
        vj_close_slot(&setup->trees[i]);
        setup->trees[i] = -1;
    }
}

// ---- mount points ----------------------------------------------------------

// Operations come in the order of their paths, so most of the directories that lead to
// one were made for the one before: `setup->made` is the last that is known to be there.
static int is_made(const vj_setup *setup, const char *path, size_t length) {
    return !memcmp(setup->made, path, length) &&
           (setup->made[length] == '/' || !setup->made[length]);
}

// What was made below `path` is out of sight once something is mounted there.
static void forget_below(vj_setup *setup, const char *path) {
    size_t length = strlen(path);
    if (length == 1 || (is_made(setup, path, length) && setup->made[length])) {
        setup->made[0] = 0;
    }
}

// Make the directories that lead to `path` (and `path` itself with `last`).
// Only called where the plan says that they lie on a tmpfs of the jail.
static void make_directories(vj_setup *setup, const char *path, int last) {
    char prefix[VJ_PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof prefix)
        vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, -ENAMETOOLONG);
    memcpy(prefix, path, length + 1);
    size_t end = 0; // of the last directory on the way
    for (size_t i = 2; i <= length; i++) {
        if (prefix[i] && prefix[i] != '/') continue;
        if (!prefix[i] && !last) break;
        end = i;
        if (is_made(setup, path, i)) continue;
        prefix[i] = 0;
        long result = sys(SYS_mkdirat, setup->root, prefix + 1, 0755);
        if (result < 0 && result != -EEXIST) {
            vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, result);
        }
        prefix[i] = path[i];
    }
    if (!end) return;
    memcpy(setup->made, path, end);
    setup->made[end] = 0;
}

static int open_point(vj_setup *setup, const char *path) {
    long point = vj_open_no_links(setup->root, relative(path));
    if (point < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, point);
    return (int)point;
}

static void attach_at(vj_setup *setup, int tree, int point) {
    long result = sys(SYS_move_mount, tree, "", point, "",
                      MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, result);
}

static void attach(vj_setup *setup, int tree, const char *path) {
    VJ_AUTO_FD point = open_point(setup, path);
    attach_at(setup, tree, point);
}

static void write_file(vj_setup *setup, const char *path, const void *data, size_t size,
                       unsigned mode) {
    VJ_AUTO_FD file =
        (int)sys(SYS_openat, setup->root, relative(path),
                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (file < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, file);
    if (size && sys(SYS_write, file, data, size) != (long)size) {
        vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, -EIO);
    }
}

static uint64_t mount_of(vj_setup *setup, int folder) {
    struct statx status = {0};
    long result = sys(SYS_statx, folder, "", AT_EMPTY_PATH, STATX_MNT_ID, &status);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, result);
    return status.stx_mnt_id;
}

static int is_covered(vj_setup *setup, int folder) {
    uint64_t present = mount_of(setup, folder);
    for (uint32_t i = 0; i < setup->cover_count; i++) {
        if (setup->covers[i] == present) return 1;
    }
    return 0;
}

static void cover(vj_setup *setup, int folder, const char *path);

// Whether a folder above `path` is closed to this process. The guest, with the same
// identity and fewer rights, may not enter it either, but its owner may open it
// later. So it is covered itself, empty and closed for good: it shows nothing now.
static int is_out_of_reach(vj_setup *setup, const char *path) {
    VJ_AUTO_FD point = (int)vj_open_no_links(setup->root, relative(path));
    if (point != -EACCES && point != -ENOENT) return 0;
    char prefix[VJ_PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof prefix)
        vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, -ENAMETOOLONG);
    memcpy(prefix, path, length + 1);
    for (;;) {
        while (length > 1 && prefix[length - 1] != '/') length--;
        prefix[length > 1 ? --length : length] = 0;
        VJ_AUTO_FD folder = (int)vj_open_no_links(setup->root, relative(prefix));
        if (folder < 0) continue;
        if (is_covered(setup, folder)) return 1;
        if (point == -ENOENT) return 0; // went away: for the caller to refuse
        cover(setup, folder, prefix);
        return 1;
    }
}

// The place at `path`, or -1 where it is out of reach.
static int open_in_reach(vj_setup *setup, const char *path) {
    long point = vj_open_no_links(setup->root, relative(path));
    if (point >= 0) return (int)point;
    return is_out_of_reach(setup, path) ? -1 : open_point(setup, path);
}

static void seal(vj_setup *setup, const char *path) {
    VJ_AUTO_FD point = open_in_reach(setup, path);
    if (point < 0) return; // as its mask was
    if (!memcmp(path, DEVICES, sizeof DEVICES)) {
        sys(SYS_unlinkat, setup->root, relative(MASK_NAME), 0);
        sys(SYS_unlinkat, setup->root, relative(MASK_FOLDER), AT_REMOVEDIR);
    }
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
    long result =
        sys(SYS_mount_setattr, point, "", AT_EMPTY_PATH, &attributes, sizeof attributes);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, result);
}

// mount(2) on a directory below the new root that was looked up without links.
static void mount_at(vj_setup *setup, const char *type, int point, unsigned long flags,
                     const char *options, vj_stage stage) {
    char place[64];
    vj_text text = {.data = place, .capacity = sizeof place};
    vj_text_string(&text, "/proc/self/fd/");
    vj_text_number(&text, (uint64_t)point, 10);
    long result = sys(SYS_mount, type, place, type, flags, options);
    if (result < 0) vj_setup_fail(setup, stage, result);
}

static void mount_tmpfs(vj_setup *setup, int point, unsigned mode, uint64_t size,
                        unsigned long flags) {
    char options[128];
    vj_text text = {.data = options, .capacity = sizeof options};
    vj_text_string(&text, "mode=");
    vj_text_number(&text, mode, 8);
    vj_text_string(&text, ",size=");
    vj_text_number(&text, size, 10);
    // Empty files cost kernel memory that the size does not count.
    vj_text_string(&text, ",nr_inodes=");
    vj_text_number(&text, size ? size / BYTES_PER_INODE + INODES_LEAST : 0, 10);
    mount_at(setup, "tmpfs", point, PRIVATE_MOUNT | flags, options, VJ_STAGE_MOUNT);
}

static void cover(vj_setup *setup, int folder, const char *path) {
    if (setup->cover_count == VJ_COVERS_MAX) {
        vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, -E2BIG);
    }
    mount_tmpfs(setup, folder, 0, 65536, MS_NOEXEC);
    forget_below(setup, path);
    VJ_AUTO_FD mask = open_point(setup, path);
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
    long result =
        sys(SYS_mount_setattr, mask, "", AT_EMPTY_PATH, &attributes, sizeof attributes);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, result);
    setup->covers[setup->cover_count++] = mount_of(setup, mask);
}

// ---- operations ------------------------------------------------------------

static void do_root(vj_setup *setup, const vj_operation *operation, int tree) {
    if (tree >= 0) {
        long result =
            sys(SYS_move_mount, tree, "", AT_FDCWD, BUILD_PLACE, MOVE_MOUNT_F_EMPTY_PATH);
        if (result < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, result);
    } else {
        char options[64];
        vj_text text = {.data = options, .capacity = sizeof options};
        vj_text_string(&text, "mode=755,size=");
        vj_text_number(&text, operation->size, 10);
        long result =
            sys(SYS_mount, "tmpfs", BUILD_PLACE, "tmpfs", PRIVATE_MOUNT, options);
        if (result < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, result);
    }
    long root =
        sys(SYS_openat, AT_FDCWD, BUILD_PLACE, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (root < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, root);
    setup->root = (int)root;
}

static int is_missing(vj_setup *setup, const char *path) {
    VJ_AUTO_FD present = (int)vj_open_no_links(setup->root, relative(path));
    return present < 0;
}

static void do_bind(vj_setup *setup, const vj_operation *operation, int tree) {
    const char *path = path_of(setup, operation);
    if ((operation->flags & VJ_BIND_NARROWS) && is_out_of_reach(setup, path)) return;
    if (operation->flags & VJ_BIND_MAKE_POINT) {
        int is_file = (operation->flags & VJ_BIND_FILE) != 0;
        make_directories(setup, path, !is_file);
        if (is_file && is_missing(setup, path)) write_file(setup, path, 0, 0, 0644);
    }
    VJ_AUTO_FD point = (int)open_object(operation, setup->root, relative(path));
    if (point < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, point);
    attach_at(setup, tree, point);
}

static void do_copy(vj_setup *setup, const vj_operation *operation, int source) {
    static char data[65536];
    const char *path = path_of(setup, operation);
    make_directories(setup, path, 0);
    size_t size = 0;
    while (size < sizeof data) {
        size_t room = sizeof data - size;
        long count = sys(SYS_read, source, data + size, room);
        if (count < 0) vj_setup_fail(setup, VJ_STAGE_SOURCE, count);
        size += (size_t)count;
        if ((size_t)count < room) break; // of a file, the end
    }
    // Longer than this is no file that belongs into a minimal root.
    if (size == sizeof data) vj_setup_fail(setup, VJ_STAGE_SOURCE, -EFBIG);
    write_file(setup, path, data, size, 0644);
}

static void mask_by(vj_setup *setup, const char *name, int point) {
    long tree = sys(SYS_open_tree, setup->root, relative(name),
                    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, tree);
    VJ_AUTO_FD mask = (int)tree;
    struct mount_attr attributes = {
        .attr_set =
            MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        .propagation = MS_PRIVATE,
    };
    long result =
        sys(SYS_mount_setattr, mask, "", AT_EMPTY_PATH, &attributes, sizeof attributes);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, result);
    attach_at(setup, mask, point);
}

// An object of the host must be the one that the policy was compiled for: a mask over
// another one would leave it bare.
static void do_mask(vj_setup *setup, const vj_operation *operation) {
    VJ_AUTO_FD point = open_in_reach(setup, path_of(setup, operation));
    if (point < 0) return;
    if (operation->inode && same_object(point, operation) < 0) {
        vj_setup_fail(setup, VJ_STAGE_SOURCE_CHANGED, -ESTALE);
    }
    if (operation->kind == VJ_OPERATION_MASK_FILE) mask_by(setup, MASK_NAME, point);
    else if (!operation->mode) mask_by(setup, MASK_FOLDER, point);
    // One through which something is reached gets a place of its own, for what leads
    // there.
    else mount_tmpfs(setup, point, operation->mode, 1u << 20, MS_NOEXEC);
}

// All private places are directories of one tmpfs, so that its size bounds
// their sum. Each is bound to its path, the first one over the tmpfs itself,
// which nothing can reach from then on (an umount would wait for RCU: 5 ms).
static void do_scratch(vj_setup *setup, uint32_t first) {
    const vj_plan *plan = setup->plan;
    const vj_operation *operations = vj_plan_operations(plan);
    const char *stage = path_of(setup, &operations[first]);
    make_directories(setup, stage, 1);
    VJ_AUTO_FD bare = open_point(setup, stage);
    mount_tmpfs(setup, bare, 0755, operations[first].size, 0);
    VJ_AUTO_FD scratch = open_point(setup, stage);
    struct statx status = {0};
    if (sys(SYS_statx, scratch, "", AT_EMPTY_PATH, STATX_TYPE, &status) < 0) {
        vj_setup_fail(setup, VJ_STAGE_MOUNT, -EIO);
    }
    setup->scratch_device = (uint64_t)status.stx_dev_major << 32 | status.stx_dev_minor;

    uint32_t end = first + 1;
    while (end < plan->operation_count &&
           (operations[end].kind == VJ_OPERATION_SCRATCH_PLACE ||
            operations[end].kind == VJ_OPERATION_PIN)) {
        end++;
    }
    for (uint32_t i = first + 1; i < end; i++) {
        if (operations[i].kind != VJ_OPERATION_SCRATCH_PLACE) continue;
        char name[24];
        vj_text text = {.data = name, .capacity = sizeof name};
        vj_text_number(&text, i - first, 10);
        long result = sys(SYS_mkdirat, scratch, name, operations[i].mode);
        // mkdir is subject to the umask, and the sticky bit matters for /tmp.
        if (result == 0) result = sys(SYS_fchmodat, scratch, name, operations[i].mode);
        if (result < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, result);
        long tree =
            sys(SYS_open_tree, scratch, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (tree < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, tree);
        setup->trees[i] = (int)tree;
    }
}

static void forbid_execution(vj_setup *setup, int tree) {
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_NOEXEC};
    long result =
        sys(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, result);
}

static void do_place(vj_setup *setup, const vj_operation *operation, int tree) {
    const char *path = path_of(setup, operation);
    if (operation->flags & VJ_BIND_MAKE_POINT) make_directories(setup, path, 1);
    if (operation->flags & VJ_BIND_NO_EXEC) forbid_execution(setup, tree);
    attach(setup, tree, path);
}

// Without what is mounted in it: the second mount of a place has no seam inside.
static void do_pin(vj_setup *setup, const vj_operation *operation) {
    const char *path = path_of(setup, operation);
    make_directories(setup, path, 1);
    VJ_AUTO_FD point = open_point(setup, path);
    VJ_AUTO_FD tree = (int)sys(SYS_open_tree, point, "",
                               AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0) vj_setup_fail(setup, VJ_STAGE_MOUNT, tree);
    if (operation->flags & VJ_BIND_NO_EXEC) forbid_execution(setup, tree);
    attach_at(setup, tree, point);
}

// Read-only: devices are written to all the same, but their mode and times, which they
// share with the host's or with the next run, stay.
static void bind_device(vj_setup *setup, int from, const char *source, int folder,
                        const char *name) {
    VJ_AUTO_FD tree =
        (int)sys(SYS_open_tree, from, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0) vj_setup_fail(setup, VJ_STAGE_DEVICES, tree);
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                                MOUNT_ATTR_NOEXEC,
                                    .propagation = MS_PRIVATE};
    long result =
        sys(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes);
    if (result == 0) {
        result = sys(SYS_move_mount, tree, "", folder, name, MOVE_MOUNT_F_EMPTY_PATH);
    }
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_DEVICES, result);
}

static void do_devices(vj_setup *setup) {
    static const char *const nodes[] = {"null",   "zero",    "full",
                                        "random", "urandom", "tty"};
    static const char *const links[][2] = {
        {"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"},
        {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
        {"ptmx", "pts/ptmx"},
    };
    make_directories(setup, DEVICES, 1);
    VJ_AUTO_FD bare = open_point(setup, DEVICES);
    mount_tmpfs(setup, bare, 0755, 65536, MS_NOEXEC);
    VJ_AUTO_FD devices = open_point(setup, DEVICES);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        char source[32];
        vj_text text = {.data = source, .capacity = sizeof source};
        vj_text_string(&text, "/dev/");
        vj_text_string(&text, nodes[i]);
        VJ_AUTO_FD point =
            (int)sys(SYS_openat, devices, nodes[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (point < 0) vj_setup_fail(setup, VJ_STAGE_DEVICES, point);
        bind_device(setup, AT_FDCWD, source, devices, nodes[i]);
    }
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        long result = sys(SYS_symlinkat, links[i][1], devices, links[i][0]);
        if (result < 0) vj_setup_fail(setup, VJ_STAGE_DEVICES, result);
    }
    if (sys(SYS_mkdirat, devices, "pts", 0755) < 0 ||
        sys(SYS_mkdirat, devices, "shm", 0755) < 0) {
        vj_setup_fail(setup, VJ_STAGE_DEVICES, -EIO);
    }
    // No gid=5: that group is not mapped in the jail.
    VJ_AUTO_FD terminals = open_point(setup, DEVICES "/pts");
    mount_at(setup, "devpts", terminals, MS_NOSUID | MS_NOEXEC,
             "newinstance,ptmxmode=0666,mode=620,max=64", VJ_STAGE_DEVICES);
    // A guest may own the node; closed by one it would be closed to all later runs.
    VJ_AUTO_FD mounted = open_point(setup, DEVICES "/pts");
    bind_device(setup, mounted, "ptmx", mounted, "ptmx");
    write_file(setup, MASK_NAME, 0, 0, 0);
    long result = sys(SYS_mkdirat, setup->root, relative(MASK_FOLDER), 0);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_DEVICES, result);
}

static void mask_in_proc(vj_setup *setup, int proc, const char *name) {
    VJ_AUTO_FD present = (int)vj_open_no_links(proc, name);
    if (present == -ENOENT) return; // not built into this kernel
    if (present < 0) vj_setup_fail(setup, VJ_STAGE_PROC, present);
    mask_by(setup, MASK_NAME, present);
}

static void read_only_in_proc(vj_setup *setup, int proc, const char *name) {
    VJ_AUTO_FD tree =
        (int)sys(SYS_open_tree, proc, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree == -ENOENT) return; // not built into this kernel
    if (tree < 0) vj_setup_fail(setup, VJ_STAGE_PROC, tree);
    struct mount_attr attributes = {
        .attr_set =
            MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
        .propagation = MS_PRIVATE,
    };
    long result =
        sys(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes);
    if (result == 0)
        result = sys(SYS_move_mount, tree, "", proc, name, MOVE_MOUNT_F_EMPTY_PATH);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_PROC, result);
}

// A session's share of the processors is among what anybody may write there (autogroup,
// which keeps a program from its turn as a low priority does), and so are the limits that
// one run would set another. For host uid 0: whatever a driver made there lets its owner
// write, with or without capabilities, and so do the files of the supervisor and the
// keepers, which are root's.
static void close_proc(vj_setup *setup, int proc) {
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
    long result =
        sys(SYS_mount_setattr, proc, "", AT_EMPTY_PATH, &attributes, sizeof attributes);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_PROC, result);
}

// Host uid 0 may write most of /proc/sys even without any capability, so
// these parts are read-only or masked in every jail.
static void do_proc(vj_setup *setup, const char *path) {
    static const char *const read_only[] = {"sys", "sysrq-trigger", "irq", "bus",
                                            "fs",  "pressure"};
    static const char *const masked[] = {"kcore", "keys", "timer_list"};
    // Mode 0400: only a guest that is host uid 0 could open them.
    static const char *const masked_for_root[] = {
        "kmsg",       "slabinfo",    "vmallocinfo",  "kpagecount",
        "kpageflags", "kpagecgroup", "pagetypeinfo", "sched_debug"};
    make_directories(setup, path, 1);
    VJ_AUTO_FD bare = open_point(setup, path);
    mount_at(setup, "proc", bare, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0, VJ_STAGE_PROC);
    VJ_AUTO_FD proc = open_point(setup, path);
    close_proc(setup, proc);
    for (size_t i = 0; i < sizeof read_only / sizeof *read_only; i++) {
        read_only_in_proc(setup, proc, read_only[i]);
    }
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++) {
        mask_in_proc(setup, proc, masked[i]);
    }
    if (setup->identity != VJ_IDENTITY_ROOT) return;
    for (size_t i = 0; i < sizeof masked_for_root / sizeof *masked_for_root; i++) {
        mask_in_proc(setup, proc, masked_for_root[i]);
    }
    if (setup->plan->flags & VJ_PLAN_PRIVATE_NETWORK) return;
    mask_in_proc(setup, proc, "sys/net/ipv4/tcp_fastopen_key"); // mode 0600, the host's
}

static void do_symlink(vj_setup *setup, const vj_operation *operation) {
    const char *path = path_of(setup, operation);
    make_directories(setup, path, 0);
    long result =
        sys(SYS_symlinkat, source_of(setup, operation), setup->root, relative(path));
    if (result < 0 && result != -EEXIST)
        vj_setup_fail(setup, VJ_STAGE_MOUNT_POINT, result);
}

static void do_operation(vj_setup *setup, uint32_t index) {
    const vj_operation *operation = &vj_plan_operations(setup->plan)[index];
    const char *path = path_of(setup, operation);
    switch ((vj_operation_kind)operation->kind) {
    case VJ_OPERATION_ROOT: do_root(setup, operation, setup->trees[index]); break;
    case VJ_OPERATION_DIRECTORY: make_directories(setup, path, 1); break;
    case VJ_OPERATION_SYMLINK: do_symlink(setup, operation); break;
    case VJ_OPERATION_FILE:
        make_directories(setup, path, 0);
        write_file(setup, path, source_of(setup, operation),
                   strlen(source_of(setup, operation)), 0644);
        break;
    case VJ_OPERATION_COPY: do_copy(setup, operation, setup->trees[index]); break;
    case VJ_OPERATION_BIND: do_bind(setup, operation, setup->trees[index]); break;
    case VJ_OPERATION_MASK_DIRECTORY:
    case VJ_OPERATION_MASK_FILE: do_mask(setup, operation); break;
    case VJ_OPERATION_SCRATCH: do_scratch(setup, index); break;
    case VJ_OPERATION_SCRATCH_PLACE:
        do_place(setup, operation, setup->trees[index]);
        break;
    case VJ_OPERATION_PIN: do_pin(setup, operation); break;
    case VJ_OPERATION_DEVICES: do_devices(setup); break;
    case VJ_OPERATION_PROC: do_proc(setup, path); break;
    case VJ_OPERATION_SEAL: seal(setup, path); break;
    case VJ_OPERATION_TRY:    // for linux_canary.c
    case VJ_OPERATION_SOCKET: // for linux_broker_connect.c
    case VJ_OPERATION_NAME:   // for linux_broker_names.c
    case VJ_OPERATION_INBOUND:
    case VJ_OPERATION_HOST_PORT: break; // for linux_ports.c
    case VJ_OPERATION_END: vj_setup_fail(setup, VJ_STAGE_PLAN, -EINVAL);
    }
    forget_below(setup, path);
}

// What is visible at each path must be what the policy was compiled for.
static void verify(vj_setup *setup) {
    const vj_operation *operations = vj_plan_operations(setup->plan);
    for (uint32_t i = 0; i < setup->plan->operation_count; i++) {
        int masks = operations[i].kind == VJ_OPERATION_MASK_DIRECTORY ||
                    operations[i].kind == VJ_OPERATION_MASK_FILE;
        if (operations[i].kind != VJ_OPERATION_BIND && !masks) continue;
        setup->failed_index = (int32_t)i;
        const char *path = path_of(setup, &operations[i]);
        int narrows = (operations[i].flags & VJ_BIND_NARROWS) != 0;
        VJ_AUTO_FD visible =
            (int)open_object(&operations[i], setup->root, relative(path));
        if (visible < 0 && (masks || narrows) && is_out_of_reach(setup, path)) continue;
        if (!masks && visible >= 0 && is_covered(setup, visible)) {
            if (narrows) continue;
            // A grant that is closed to its own guest, with rules in it.
            vj_setup_fail(setup, VJ_STAGE_VERIFY, -EACCES);
        }
        // Below a mask of mode 000 nothing can be looked up, by us neither.
        if (visible < 0) vj_setup_fail(setup, VJ_STAGE_VERIFY, visible);
        long result = same_object(visible, &operations[i]);
        if (masks) result = result == 0 ? -EEXIST : 0; // the denied object itself
        if (result < 0) vj_setup_fail(setup, VJ_STAGE_VERIFY, result);
    }
    setup->failed_index = -1;
}

void vj_mounts_build(vj_setup *setup) {
    // First of all: nothing that the host mounts later may appear in here.
    long result = sys(SYS_mount, 0, "/", 0, MS_REC | MS_PRIVATE, 0);
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_PROPAGATION, result);
    if (setup->identity != VJ_IDENTITY_MAPPED) vj_trees_open(setup, 0);

    for (uint32_t i = 0; i < setup->plan->operation_count; i++) {
        setup->failed_index = (int32_t)i;
        do_operation(setup, i);
    }
    verify(setup);

    result = sys(SYS_fchdir, setup->root);
    if (result == 0) result = sys(SYS_pivot_root, ".", ".");
    if (result == 0) result = sys(SYS_umount2, ".", MNT_DETACH);
    if (result == 0) result = sys(SYS_chdir, "/");
    if (result < 0) vj_setup_fail(setup, VJ_STAGE_PIVOT, result);
    vj_trees_close(setup);
    vj_close_slot(&setup->root);
    setup->root = -1;
}
