// The plan: what visjail-init does to make one jail, in order.
//
// policy_plan.c writes it, visjail-init reads it. It is one block without
// pointers, handed over in a sealed memfd. Strings are offsets into the string
// table at its end, each ended by a NUL. All numbers are in native order: the
// writer and the reader are built together and run on one machine.
#ifndef VJ_PLAN_H
#define VJ_PLAN_H

#include <stddef.h>
#include <stdint.h>

#define VJ_PLAN_MAGIC          0x4e4c5056u // "VPLN"
#define VJ_PLAN_VERSION        2u
#define VJ_PLAN_MAX_SIZE       (16u << 20)
#define VJ_PLAN_MAX_OPERATIONS 65536u
#define VJ_PATH_MAX            4096u
#define VJ_NESTED_MAX          128  // folders in each other that the host looks through
#define VJ_ANSWERS_MAX         256u // of the canaries
#define VJ_PORTS_MAX           64u
#define VJ_SOCKETS_MAX         256u // granted ones of a jail with a broker
#define VJ_NAMES_MAX  512u  // held ones of a jail with a broker: that are missing,
#define VJ_KEPT_MAX   4096u // and that are there
#define VJ_GROUPS_MAX 4u    // cgroups that one jail joins
#define VJ_COUNTERS   3u

enum {
    // Own network namespace with nothing but loopback, and the stricter filter.
    VJ_PLAN_PRIVATE_NETWORK = 1u << 0,
    // The broker answers connect(2): AF_UNIX paths are reached by exact grant only.
    VJ_PLAN_BROKER_SOCKETS = 1u << 1,
    // Single ports lead to or from the host's loopback; see linux_ports.h.
    VJ_PLAN_PORTS = 1u << 2,
    // The broker makes the names that the wall around others keeps from being made.
    VJ_PLAN_BROKER_NAMES = 1u << 3,
    // Any clause that needs the broker.
    VJ_PLAN_BROKER = VJ_PLAN_BROKER_SOCKETS | VJ_PLAN_BROKER_NAMES,
};

// Who makes the jail's places (linux_init.c).
typedef enum {
    VJ_BACKEND_NAMESPACES = 0, // visjail-init itself
    VJ_BACKEND_BUBBLEWRAP,     // bwrap did, from the same operations
    VJ_BACKEND_LANDLOCK,       // nobody: the host's places, under Landlock alone
    VJ_BACKEND_END,
} vj_backend;

typedef enum {
    // The root of the jail: an empty tmpfs, sealed at the end.
    VJ_OPERATION_ROOT = 1,
    VJ_OPERATION_DIRECTORY,
    VJ_OPERATION_SYMLINK, // path -> source
    VJ_OPERATION_FILE,    // path with the text of source
    VJ_OPERATION_COPY,    // path with the bytes of the host file source
    VJ_OPERATION_BIND,    // the host object source at path
    // A denied directory: an empty, sealed tmpfs of the given mode.
    VJ_OPERATION_MASK_DIRECTORY,
    // A denied file or socket: an empty file of mode 000.
    VJ_OPERATION_MASK_FILE,
    // Private, writable places on one tmpfs of `size` bytes; path is its
    // first place, the others follow as VJ_OPERATION_SCRATCH_PLACE.
    VJ_OPERATION_SCRATCH,
    VJ_OPERATION_SCRATCH_PLACE,
    VJ_OPERATION_DEVICES, // a private /dev
    VJ_OPERATION_PROC,    // a private /proc
    VJ_OPERATION_SEAL,    // the mount at path becomes read-only
    // A folder of the jail's own, made if it is missing, is mounted over itself: it can
    // be neither moved nor removed then. Flag: VJ_BIND_NO_EXEC.
    VJ_OPERATION_PIN,
    // Mounts nothing: an act (mode: 'r', 'w', 'x', 'c', 'b' or 'l') that must fail
    // on path.
    VJ_OPERATION_TRY,
    // Mounts nothing: the broker lets guests connect to the socket at path.
    VJ_OPERATION_SOCKET,
    // Mount nothing: a port, in mode: 16 bits on which it listens, 16 to which it
    // leads. The path names it in messages.
    VJ_OPERATION_INBOUND,
    VJ_OPERATION_HOST_PORT,
    // Mounts nothing: a name that is held; source is the folder that would hold it, or
    // the last one on the way that exists. No source: the name exists.
    VJ_OPERATION_NAME,
    VJ_OPERATION_END,
} vj_operation_kind;

enum {
    VJ_BIND_READ_ONLY = 1u << 0,
    VJ_BIND_NO_EXEC = 1u << 1,
    VJ_BIND_FILE = 1u << 2, // the object is not a directory
    // The mount point lies on a tmpfs of the jail and may be made. Without
    // it a missing mount point is an error: nothing is made on the host.
    VJ_BIND_MAKE_POINT = 1u << 3,
    // A grant of the policy: id-mapped for a root caller.
    VJ_BIND_GRANT = 1u << 4,
    // It only takes rights away (or pins): below a folder that is closed to the guest
    // that folder is covered instead.
    VJ_BIND_NARROWS = 1u << 5,
    // The object is a symbolic link: mounted over itself it leads where it did, and can
    // be neither moved nor removed.
    VJ_BIND_LINK = 1u << 6,
};

typedef struct {
    uint32_t kind;
    uint32_t flags;
    uint32_t path;
    uint32_t source;
    uint64_t device; // st_dev and st_ino that the source had when the policy
    uint64_t inode;  // was compiled; another object there ends the start
    uint64_t size;
    uint32_t mode;
    uint32_t rule; // index of the policy rule behind it, or UINT32_MAX
    // With VJ_BIND_GRANT: whose files the guest of a root caller has there, namely
    // those of the owner of the grant, not of what lies in it.
    uint32_t owner;
    uint32_t group;
} vj_operation;

// What one Landlock rule allows beneath its path.
typedef enum {
    VJ_ACCESS_READ = 1,  // read and list
    VJ_ACCESS_READ_EXEC, // and execute
    VJ_ACCESS_WRITE,     // everything
    VJ_ACCESS_DEVICES,   // read, write, truncate, device ioctls; no new names
    VJ_ACCESS_WALLED,    // everything but making names
    VJ_ACCESS_END,
} vj_access;

typedef struct {
    uint32_t path;
    uint32_t access;
    uint32_t is_file;
    // A folder that may be gone, or be another thing, by the time the jail opens:
    // without its rule less is allowed, not more.
    uint32_t optional;
    uint64_t device; // as in vj_operation; an inode of 0 is any
    uint64_t inode;
} vj_access_rule;

// Resource limits of each process in the jail; 0 means "leave as it is".
typedef struct {
    uint64_t open_files;
    uint64_t processes; // per user namespace; without effect for host uid 0
    uint64_t file_size;
    uint64_t data;
    uint64_t cpu_seconds;
} vj_process_limits;

// Files of a memory cgroup that a keeper reads.
typedef enum {
    VJ_COUNTER_EVENTS, // with the processes that the kernel ended
    VJ_COUNTER_USAGE,
    VJ_COUNTER_STATISTICS,
} vj_counter;

// Limits of the jail as a whole, as far as visjail-init has a part in them.
typedef struct {
    uint64_t memory_bytes;        // limit of the memory cgroup
    uint64_t watch_bytes;         // the keepers end what uses more; 0: nothing is watched
    uint64_t shared_memory_pages; // kernel.shmall of the jail; 0: as it is
    uint32_t groups;              // cgroups to join, at VJ_FD_GROUPS
    uint32_t counters;            // VJ_COUNTERS, or 0: there is no memory cgroup
} vj_tree_limits;

typedef struct {
    uint32_t magic;
    uint32_t version;
    uint32_t size; // of the whole block
    uint32_t flags;
    uint32_t operation_count;
    uint32_t access_count;
    uint32_t strings; // offset of the string table
    uint32_t hostname;
    uint32_t guest_id; // host uid and gid of the guest for a root caller
    uint32_t backend;  // vj_backend
    vj_process_limits limits;
    vj_tree_limits tree;
} vj_plan;

#define VJ_PLAN_GUEST_AT offsetof(vj_plan, guest_id)

// Check a block before anything in it is used: sizes, kinds, and that every
// string ends inside the block. Returns 0, or the offset of what is wrong + 1.
uint32_t vj_plan_check(const void *block, size_t size);

static inline const vj_operation *vj_plan_operations(const vj_plan *plan) {
    return (const vj_operation *)(const void *)(plan + 1);
}

static inline const vj_access_rule *vj_plan_access(const vj_plan *plan) {
    return (const vj_access_rule *)(const void *)(vj_plan_operations(plan) +
                                                  plan->operation_count);
}

static inline const char *vj_plan_string(const vj_plan *plan, uint32_t offset) {
    return (const char *)plan + offset;
}

#endif
