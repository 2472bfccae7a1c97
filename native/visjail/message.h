// Messages between the host library and visjail-init.
//
// Two kinds of SOCK_SEQPACKET socket carry them: one control socket per jail
// (to pid 1) and one channel per run (to the keeper that owns the run). The
// guest holds neither. One message is one packet; descriptors travel beside
// it. Numbers are in native order: both ends are built together.
#ifndef VJ_MESSAGE_H
#define VJ_MESSAGE_H

#include <stdint.h>

#include "error.h"
#include "plan.h"
#include "run.h"

#define VJ_INLINE_DATA_MAX 65536u // more argv and environment than this goes by memfd
#define VJ_SPAWN_DATA_MAX  (2u << 20)
#define VJ_STRINGS_MAX     65536u // arguments plus environment entries
#define VJ_DESCRIPTORS_MAX 16u

// Descriptors of visjail-init when it starts; all others are closed.
enum {
    VJ_FD_CONTROL = 3,
    VJ_FD_HOST = 4,
    VJ_FD_PLAN = 5,
    VJ_FD_CALLS = 6,  // the page of calls.h
    VJ_FD_STATUS = 7, // the host's /proc/PID/status
    // As many cgroup.procs files as the plan says, to be joined before anything else.
    VJ_FD_GROUPS = 8,
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

// Flags of EXITED.
enum {
    VJ_EXITED_FAMILY = 1u << 0, // the keeper has others, or had: it takes no other run
};

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

#endif
