// What of Linux is newer than the headers of glibc 2.31 and Linux 5.10 (Debian 11).
//
// Where they have it, theirs is taken. Since Linux 5.1 a new call has the same number on
// every machine. A kernel that is older answers ENOSYS or EINVAL, which each caller has
// to know anyway.
#ifndef VJ_LINUX_NEWER_H
#define VJ_LINUX_NEWER_H

#include <stdint.h>
#include <sys/syscall.h>

// Before linux/mount.h: the macros there would take the names from this one's enum.
#include <sys/mount.h>

#include <linux/close_range.h>
#include <linux/mount.h>
#include <linux/seccomp.h>

#ifndef SYS_close_range
#define SYS_close_range 436 // Linux 5.9
#endif
#ifndef SYS_openat2
#define SYS_openat2 437 // Linux 5.6
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438 // Linux 5.6
#endif
#ifndef SYS_getxattrat
#define SYS_getxattrat 464 // Linux 6.13
#endif

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1u << 2) // Linux 5.11
#endif
#ifndef SECCOMP_ADDFD_FLAG_SEND
#define SECCOMP_ADDFD_FLAG_SEND (1u << 1) // Linux 5.14
#endif

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442 // Linux 5.12
#endif
#ifndef MOUNT_ATTR_SIZE_VER0
#define MOUNT_ATTR_IDMAP 0x00100000
struct mount_attr {
    uint64_t attr_set;
    uint64_t attr_clr;
    uint64_t propagation;
    uint64_t userns_fd;
};
#endif

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444 // Linux 5.13
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif
#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>
#else
#define LANDLOCK_CREATE_RULESET_VERSION (1u << 0)
enum landlock_rule_type { LANDLOCK_RULE_PATH_BENEATH = 1 };
struct landlock_path_beneath_attr {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));
#endif

#endif
