// Landlock: the second layer of the file policy.
//
// One ruleset allows the union of all grants and nothing else, so that no
// mistake in the mounts reaches outside them. It cannot take anything away
// below a grant: denies inside a grant rest on the mounts alone. The rules are
// opened inside the finished jail. Each program gets a domain of its own, one
// deeper than the supervisor, which also shields the supervisor and the other
// runs from its signals and from ptrace.

#include "linux_init.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>

// By ABI; the headers of the build machine may be older than the kernel.
#define ACCESS_EXECUTE             (1ull << 0)
#define ACCESS_WRITE_FILE          (1ull << 1)
#define ACCESS_READ_FILE           (1ull << 2)
#define ACCESS_READ_DIR            (1ull << 3)
#define ACCESS_MAKE_ANYTHING       (0x7full << 6) // MAKE_CHAR to MAKE_SYM
#define ACCESS_REFER               (1ull << 13)   // ABI 2
#define ACCESS_TRUNCATE            (1ull << 14)   // ABI 3
#define ACCESS_IOCTL_DEV           (1ull << 15)   // ABI 5
#define SCOPE_ABSTRACT_UNIX_SOCKET (1ull << 0)    // ABI 6
#define SCOPE_SIGNAL               (1ull << 1)    // ABI 6

#define ACCESS_OF_FILES                                                                  \
    (ACCESS_EXECUTE | ACCESS_WRITE_FILE | ACCESS_READ_FILE | ACCESS_TRUNCATE |           \
     ACCESS_IOCTL_DEV)

struct ruleset_attributes {
    uint64_t handled_access_fs;
    uint64_t handled_access_net;
    uint64_t scoped;
};

static uint64_t handled_rights(uint32_t abi) {
    if (abi >= 5) return (1ull << 16) - 1;
    if (abi >= 3) return (1ull << 15) - 1;
    if (abi >= 2) return (1ull << 14) - 1; // with REFER
    return (1ull << 13) - 1;
}

static uint64_t rights_of(const vj_access_rule *rule, int with_wall) {
    uint64_t rights = 0;
    switch ((vj_access)rule->access) {
    case VJ_ACCESS_READ: rights = ACCESS_READ_FILE | ACCESS_READ_DIR; break;
    case VJ_ACCESS_READ_EXEC:
        rights = ACCESS_READ_FILE | ACCESS_READ_DIR | ACCESS_EXECUTE;
        break;
    case VJ_ACCESS_WRITE: rights = ~0ull; break;
    case VJ_ACCESS_DEVICES:
        rights = ACCESS_READ_FILE | ACCESS_READ_DIR | ACCESS_WRITE_FILE |
                 ACCESS_TRUNCATE | ACCESS_IOCTL_DEV;
        break;
    case VJ_ACCESS_WALLED: rights = with_wall ? ~ACCESS_MAKE_ANYTHING : ~0ull; break;
    case VJ_ACCESS_END: break;
    }
    return rule->is_file ? rights & ACCESS_OF_FILES : rights;
}

static int has_wall(const vj_plan *plan) {
    const vj_access_rule *rules = vj_plan_access(plan);
    for (uint32_t i = 0; i < plan->access_count; i++) {
        if (rules[i].access == VJ_ACCESS_WALLED) return 1;
    }
    return 0;
}

// What the mounts showed a moment ago can only have been moved since.
static vj_stage stage_of(long error) {
    return error == -ENOENT || error == -ENOTDIR || error == -ELOOP
               ? VJ_STAGE_SOURCE_CHANGED
               : VJ_STAGE_LANDLOCK;
}

// Above every number that a program's descriptors can get.
static int keep(const vj_setup *setup, long ruleset) {
    long kept = sys(SYS_fcntl, ruleset, F_DUPFD_CLOEXEC, VJ_DESCRIPTORS_MAX);
    if (kept < 0) vj_setup_fail(setup, VJ_STAGE_LANDLOCK, kept);
    sys(SYS_close, ruleset);
    return (int)kept;
}

static int build(const vj_setup *setup, const struct ruleset_attributes *attributes,
                 size_t size, int with_wall) {
    long ruleset = sys(SYS_landlock_create_ruleset, attributes, size, 0);
    if (ruleset < 0) vj_setup_fail(setup, VJ_STAGE_LANDLOCK, ruleset);
    const vj_access_rule *rules = vj_plan_access(setup->plan);
    for (uint32_t i = 0; i < setup->plan->access_count; i++) {
        const char *path = vj_plan_string(setup->plan, rules[i].path);
        if (!with_wall && rules[i].optional) continue; // allowed by the one above
        // The plan has real paths. A link in one was put there while the jail opened.
        VJ_AUTO_FD place = (int)vj_open_no_links(AT_FDCWD, path);
        // A folder above it that the guest may not enter: without a rule Landlock
        // allows less, not more.
        if (place == -EACCES) continue;
        int is_meant =
            place >= 0 && (!rules[i].inode ||
                           vj_same_object(place, rules[i].device, rules[i].inode) == 0);
        if (rules[i].optional && !is_meant) continue;
        if (place < 0) vj_setup_fail(setup, stage_of(place), place);
        // With mounts, what is there has been compared already.
        if (!is_meant && setup->plan->backend == VJ_BACKEND_LANDLOCK) {
            vj_setup_fail(setup, VJ_STAGE_SOURCE_CHANGED, -ESTALE);
        }
        struct landlock_path_beneath_attr beneath = {
            .allowed_access =
                rights_of(&rules[i], with_wall) & attributes->handled_access_fs,
            .parent_fd = place,
        };
        long result =
            sys(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
        if (result < 0) vj_setup_fail(setup, VJ_STAGE_LANDLOCK, result);
    }
    return keep(setup, ruleset);
}

// Without it a file that may not be written could be truncated (before 3), and the
// host's processes be signalled (before 6).
static long least_abi(const vj_setup *setup) {
    switch ((vj_backend)setup->plan->backend) {
    case VJ_BACKEND_NAMESPACES: return 1;
    case VJ_BACKEND_BUBBLEWRAP: return 3;
    case VJ_BACKEND_LANDLOCK: return 6;
    case VJ_BACKEND_END: break;
    }
    return LONG_MAX;
}

// A layer that does not speak of it refuses to move a file to another folder
// (ACCESS_REFER), so it is allowed everywhere here: the programs' own layer decides.
static long keep_to_domain(uint64_t scopes) {
    struct ruleset_attributes attributes = {.handled_access_fs = ACCESS_REFER,
                                            .scoped = scopes};
    VJ_AUTO_FD ruleset =
        (int)sys(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
    if (ruleset < 0) return ruleset;
    VJ_AUTO_FD root = (int)sys(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);
    if (root < 0) return root;
    struct landlock_path_beneath_attr everywhere = {.allowed_access = ACCESS_REFER,
                                                    .parent_fd = root};
    long result =
        sys(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &everywhere, 0);
    return result < 0 ? result : sys(SYS_landlock_restrict_self, ruleset, 0);
}

long vj_landlock_scope_signals(void) {
    return keep_to_domain(SCOPE_SIGNAL);
}

void vj_landlock_prepare(vj_setup *setup) {
    setup->ruleset = -1;
    setup->outer_ruleset = -1;
    long abi = sys(SYS_landlock_create_ruleset, 0, 0, LANDLOCK_CREATE_RULESET_VERSION);
    // Not built in, or switched off at boot: the report says one layer. But names that
    // do not exist yet have no other, and the mounts of bubblewrap do not do alone:
    // what the host mounts later comes into them.
    if ((abi == -ENOSYS || abi == -EOPNOTSUPP) && !has_wall(setup->plan) &&
        setup->plan->backend == VJ_BACKEND_NAMESPACES) {
        return;
    }
    if (abi < 0) vj_setup_fail(setup, VJ_STAGE_LANDLOCK, abi);
    if (abi < least_abi(setup)) vj_setup_fail(setup, VJ_STAGE_LANDLOCK, -EOPNOTSUPP);
    setup->landlock_abi = (uint32_t)abi;

    struct ruleset_attributes attributes = {.handled_access_fs =
                                                handled_rights((uint32_t)abi)};
    size_t size = sizeof attributes.handled_access_fs;
    if (abi >= 6) {
        // Of the whole jail, in which the programs' own domains lie, so that they reach
        // each other's. A network namespace alone does not do: a socket that another
        // jail has passed belongs to that jail's.
        vj_canary_stranger_make(setup);
        long result = keep_to_domain(SCOPE_ABSTRACT_UNIX_SOCKET);
        if (result < 0) vj_setup_fail(setup, VJ_STAGE_LANDLOCK, result);
        attributes.scoped = SCOPE_SIGNAL;
        size = sizeof attributes;
    }
    setup->ruleset = build(setup, &attributes, size, 1);
    // The broker makes names where the programs may not.
    setup->outer_ruleset = setup->plan->flags & VJ_PLAN_BROKER_NAMES
                               ? build(setup, &attributes, size, 0)
                               : setup->ruleset;
}
