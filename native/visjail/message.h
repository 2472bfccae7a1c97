// Messages between the host library and visjail-init.
//
// Two kinds of SOCK_SEQPACKET socket carry them: one control socket per jail
// (to pid 1) and one channel per run (to the keeper that owns the run). The
// guest holds neither. One message is one packet; descriptors travel beside
// it. Numbers are in native order: both ends are built together.
#ifndef VJ_MESSAGE_H
#define VJ_MESSAGE_H

#include <stdint.h>

#include "plan.h"

#define VJ_INLINE_DATA_MAX 65536u // more argv and environment than this goes by memfd
#define VJ_SPAWN_DATA_MAX  (2u << 20)
#define VJ_STRINGS_MAX     65536u // arguments plus environment entries
#define VJ_DESCRIPTORS_MAX 16u

// Descriptors of visjail-init when it starts; all others are closed.
enum {
    VJ_FD_CONTROL = 3,
    VJ_FD_HOST = 4,
    VJ_FD_PLAN = 5,
    // As many cgroup.procs files as the plan says, to be joined before anything else.
    VJ_FD_GROUPS = 6,
    // What the kernel counts of the jail's memory, if the plan says so (vj_counter).
    VJ_FD_COUNTERS = VJ_FD_GROUPS + (int)VJ_GROUPS_MAX,
    VJ_FD_FIRST_FREE = VJ_FD_COUNTERS + (int)VJ_COUNTERS,
};

typedef enum {
    VJ_MESSAGE_PROCESS = 1, // init -> host: pid 1 exists; its pidfd is attached
    VJ_MESSAGE_READY,       // init -> host: the jail is complete; answers behind it
    VJ_MESSAGE_FAILED,      // init or keeper -> host: stage, error, index
    VJ_MESSAGE_KEEPER,      // host -> init: make one; init -> host: its channel
    VJ_MESSAGE_TERMINAL,    // host -> init: make one; init -> host: master, slave
    VJ_MESSAGE_PAIRS,       // host -> init: make them; init -> host: the two ends of a
                            // stream, the two ends of a socket that keeps packets
    VJ_MESSAGE_SPAWN,       // host -> keeper
    VJ_MESSAGE_STARTED,     // keeper -> host: the program has been executed
    VJ_MESSAGE_SIGNAL,      // host -> keeper: send `status` to the direct child
    VJ_MESSAGE_KILL,        // host -> keeper: end the whole run
    VJ_MESSAGE_SUSPEND,     // host -> keeper: stop the whole run; answered by DONE
    VJ_MESSAGE_RESUME,      // host -> keeper: continue it; answered by DONE
    VJ_MESSAGE_DONE,        // keeper -> host
    VJ_MESSAGE_EXPECT,      // host -> keeper: a process of this run will fork a program;
                            // the channel of its own is attached, on which DONE or
                            // FAILED is the answer
    VJ_MESSAGE_ADOPT,       // host -> keeper, on that channel: it is the process of this
                            // pidfd; answered by STARTED or FAILED
    VJ_MESSAGE_PORTS,       // init -> host: the ports that listen, one int32 each
    VJ_MESSAGE_EXITED,      // keeper -> host: nothing of the run is left
} vj_message_kind;

// Where something failed. Kept in step with stage_names in error.c.
typedef enum {
    VJ_STAGE_NONE = 0,
    VJ_STAGE_PLAN,
    VJ_STAGE_GROUP,
    VJ_STAGE_USER_NAMESPACE,
    VJ_STAGE_ID_MAP,
    VJ_STAGE_NAMESPACES,
    VJ_STAGE_PROCESS,
    VJ_STAGE_PROPAGATION,
    VJ_STAGE_SOURCE,
    VJ_STAGE_SOURCE_CHANGED,
    VJ_STAGE_MOUNT,
    VJ_STAGE_MOUNT_POINT,
    VJ_STAGE_VERIFY,
    VJ_STAGE_PROC,
    VJ_STAGE_DEVICES,
    VJ_STAGE_NETWORK,
    VJ_STAGE_PIVOT,
    VJ_STAGE_CAPABILITIES,
    VJ_STAGE_LANDLOCK,
    VJ_STAGE_SECCOMP,
    VJ_STAGE_BROKER,
    VJ_STAGE_PORTS,
    VJ_STAGE_CANARIES,
    VJ_STAGE_LEFT,
    VJ_STAGE_SUPERVISOR,
    VJ_STAGE_REQUEST,
    VJ_STAGE_SESSION,
    VJ_STAGE_DESCRIPTORS,
    VJ_STAGE_TERMINAL,
    VJ_STAGE_DIRECTORY,
    VJ_STAGE_LIMITS,
    VJ_STAGE_EXECUTE,
    VJ_STAGE_HOST,
    VJ_STAGE_BUBBLEWRAP,
    VJ_STAGE_END,
} vj_stage;

// Why a keeper ended its run.
typedef enum {
    VJ_STOP_NONE = 0, // the direct child ended by itself
    VJ_STOP_TIMEOUT,
    VJ_STOP_KILLED, // the host asked
    VJ_STOP_CLOSED, // the jail ended, and its keeper with it
    VJ_STOP_MEMORY, // the kernel ended a process for memory, or the watched sum was over
} vj_stop;

// Flags of READY.
enum {
    VJ_READY_SHARED_MEMORY = 1u << 0, // kernel.shmall of the jail has been set
};

// Flags of EXITED.
enum {
    VJ_EXITED_FAMILY = 1u << 0, // the keeper has others, or had: it takes no other run
};

enum {
    VJ_SPAWN_TERMINAL = 1u << 0,     // descriptor 0 becomes the controlling terminal
    VJ_SPAWN_MEMFD = 1u << 1,        // the strings are in the last descriptor
    VJ_SPAWN_SEARCH = 1u << 2,       // look argv[0] up in the PATH of the environment
    VJ_SPAWN_FILE = 1u << 3,         // not a program but a file operation (vj_file)
    VJ_SPAWN_QUIET = 1u << 5,        // no STARTED: the end, or the failure, says enough
    VJ_SPAWN_CWD_FALLBACK = 1u << 4, // when cwd cannot be entered, use HOME
};

// File operations, run by a confined child under the jail's own rights.
typedef enum {
    VJ_FILE_READ = 1, // to descriptor 1
    VJ_FILE_WRITE,    // from descriptor 0
    VJ_FILE_STAT,     // a struct vj_file_status to descriptor 1
    VJ_FILE_LIST,     // names, each ended by NUL, to descriptor 1
    VJ_FILE_MAKE_DIRECTORY,
    VJ_FILE_REMOVE,
    VJ_FILE_REALPATH,  // the path without links, to descriptor 1
    VJ_FILE_PROCESSES, // /proc/PID/stat of each process, ended by NUL, to descriptor 1
} vj_file;

typedef struct {
    uint64_t size;
    int64_t modified_ns;
    uint32_t mode;
    uint32_t links;
} vj_file_status;

typedef struct {
    uint32_t kind;
    uint32_t flags;
    uint32_t stage;
    int32_t error; // a positive errno
    int32_t index;
    int32_t pid;    // in the jail's pid namespace
    int32_t status; // a wait status, or a signal number
    uint32_t stop;
    uint32_t file; // vj_file, with VJ_SPAWN_FILE
    uint32_t argument_count;
    uint32_t environment_count;
    uint32_t data_size; // strings: cwd, argv, environment, each ended by NUL
    uint32_t descriptor_count;
    uint32_t killed;     // descendants that the keeper had to end
    uint64_t timeout_ns; // 0: none
    uint64_t limit;      // of a file operation, in bytes
    uint64_t program_us; // of the direct child alone, with a limit of processor time
    uint64_t user_us;
    uint64_t system_us;
    uint64_t resident_kib; // largest of any process of the run
    uint64_t watched;      // largest sum of the jail that its keeper saw, in bytes
    // READY only
    uint32_t landlock_abi; // 0: the kernel has none
    uint32_t guest_id;     // host uid of the guest
    uint32_t identity;     // vj_identity
    // STARTED and EXITED only: where refusals of the run are (refusals.h); the slot
    // counts from 1, and 0 is none
    uint32_t refusal_slot;
    uint32_t refusal_generation;
    // SPAWN only: the number that each descriptor gets in the program
    int32_t descriptor_numbers[VJ_DESCRIPTORS_MAX];
    uint32_t reserved;
} vj_message;

// Under which identity the guest runs.
typedef enum {
    VJ_IDENTITY_CALLER = 1, // the caller's own, not root
    VJ_IDENTITY_MAPPED,     // root called: another host uid, grants id-mapped
    VJ_IDENTITY_ROOT,       // root called and id-mapping was refused
} vj_identity;

#endif
