// What the files of visjail-init share.
//
//   linux_init.c        start, namespaces, identity, then supervision as pid 1
//   linux_inherited.c   what a jail does not take over from its host
//   linux_namespaces.c  the mounts of a plan
//   linux_paths.c       paths of a plan, without links
//   linux_identity.c    host uid and gid of the guest; id-mapped grants
//   linux_landlock.c    the ruleset of each program
//   linux_seccomp.c     the filter of the whole jail
//   linux_broker*.c     one process that judges calls which no filter can judge
//   linux_refusals.c    which run the broker's refusals belong to
//   linux_ports.c       single ports to and from the host's loopback
//   linux_relay.c       the process that moves their bytes
//   linux_prepared.c    places that bubblewrap made, or nobody: compared with the plan
//   linux_keeper.c      one process per run: owns the run's tree, and ends it
//   linux_members.c     the programs below one keeper, where one forked others
//   linux_tree.c        which processes a run has; signals to all of them
//   linux_watchdog.c    whether the host waits for a lock of a guest's
//   linux_memory.c      cgroups, and the watch over the memory of the whole jail
//   linux_shared_memory.c  a limit on System V shared memory
//   linux_spawn.c       from a request to a running program
//   linux_files.c       file operations of the host, under the jail's rights
//   linux_canary.c      forbidden acts, tried when the jail opens
//   linux_canary_names.c  one of them: to make a name that must not be made
//
// A setup step that fails ends the process: nothing continues with less.
#ifndef VJ_LINUX_INIT_H
#define VJ_LINUX_INIT_H

#include "calls.h"
#include "linux_system.h"
#include "message.h"
#include "plan.h"
#include "refusals.h"

#define VJ_COVERS_MAX  256
#define VJ_HELPERS_MAX 3 // broker, dialer, relay

typedef struct vj_watch vj_watch;

typedef struct {
    const vj_plan *plan;
    int *trees;  // per operation: the detached mount of its source, or -1
    int root;    // O_PATH of the new root
    int ruleset; // Landlock, or -1 where the kernel has none
    // Of a jail with a broker: the same without the wall, for pid 1 and the broker.
    int outer_ruleset;
    uint32_t landlock_abi;
    uint32_t guest_id;
    vj_identity identity;
    uint64_t scratch_device; // of the private places, as in vj_operation
    // Processes beside the keepers: what they do is refused when they end.
    int helpers[VJ_HELPERS_MAX];
    uint32_t helper_count;
    int ports_channel;    // to the relay, until it is ready
    int32_t failed_index; // operation under way, for error messages
    // The user namespace of the last id-mapped grant: most have the same owner.
    int map;
    uint32_t map_owner;
    uint32_t map_group;
    // Mount ids of the masks over folders that were closed to this process.
    uint64_t covers[VJ_COVERS_MAX];
    uint32_t cover_count;
    char made[VJ_PATH_MAX]; // a directory of the new root that is known to be there
    const vj_calls *calls;  // of the host
    vj_watch *watch;        // shared by the keepers; NULL where nothing is watched
    int shared_memory;      // whether System V shared memory has its limit
    int stranger;           // see vj_canary_stranger_make, or -1
    vj_refusals *refusals;  // of a jail with a broker
    int refusals_memory;    // its descriptor, until the host has it
} vj_setup;

// Report and end. `error` is a negative errno, as the kernel returned it.
_Noreturn void vj_setup_fail(const vj_setup *setup, vj_stage stage, long error);

// Leave the host's session, and put signals, priorities and limits in order.
void vj_inherited_reset(void);

// Send one message with descriptors; returns 0 or a negative errno.
long vj_message_send(int socket, const vj_message *message, const void *data, size_t size,
                     const int *descriptors, uint32_t descriptor_count);

// Open, check and clone the sources of all binds. With `id_mapped`, grants get
// the guest's identity; returns -errno when a file system refuses that.
long vj_trees_open(vj_setup *setup, int id_mapped);
void vj_trees_close(vj_setup *setup);

// Without following any link; and whether it is the object of the plan (0 or -ESTALE).
long vj_open_no_links(int directory, const char *path);
// The same of a link that stands last, which is opened itself; anything else: -ESTALE.
long vj_open_link(int directory, const char *path);
// The folder that holds the last name of `path`. Whatever makes or removes a name where
// guests write does it by that descriptor: they exchange folders for links meanwhile.
long vj_open_above(int directory, const char *path, const char **name);
long vj_open_public_file(const char *path);
long vj_same_object(int descriptor, uint64_t device, uint64_t inode);

// Build the mounts and make them the root of this mount namespace.
void vj_mounts_build(vj_setup *setup);

// Become the identity that the guest will have, inside a new user namespace.
void vj_identity_enter(vj_setup *setup);
// A user namespace that maps the file owner to the guest; its descriptor.
long vj_identity_map(uint32_t owner, uint32_t group, uint32_t guest);
long vj_write_text(const char *path, const char *data, size_t size);
// Stay the caller, without the groups of host root.
void vj_identity_keep(vj_setup *setup);
// Give up all capabilities but `kept` (of the first 32) and the way to get them back.
void vj_capabilities_drop(const vj_setup *setup, uint32_t kept);

// Join the cgroups of the plan. The first thing that is done.
void vj_groups_join(vj_setup *setup);
// Join an ipc namespace whose kernel.shmall is set, where the kernel allows that.
void vj_shared_memory_limit(vj_setup *setup);
void vj_watch_prepare(vj_setup *setup);
// Whether a keeper has not come back from measuring: nobody keeps the limits then.
int vj_watch_is_stuck(const vj_setup *setup);

// What one keeper remembers of the memory of the jail.
typedef struct {
    uint64_t started;
    uint64_t kills;     // what the kernel had ended for memory when the run began
    uint64_t watched;   // largest sum that was seen, in bytes
    uint64_t killed_at; // when such an end was first seen since
    uint64_t look_at;   // when to look next for a jail that cannot go on
    uint64_t refaults;
    uint32_t stuck; // how many looks in a row found it so
} vj_memory;
void vj_memory_begin(const vj_setup *setup, vj_memory *memory);
int vj_memory_is_bounded(const vj_setup *setup);
// Look, if it is time. 1: the limit was reached since the run began, and what was ended
// for it has given its memory back, or is not waited for (`at_once`).
int vj_memory_is_over(const vj_setup *setup, vj_memory *memory, int at_once);

void vj_landlock_prepare(vj_setup *setup);
// From now on the caller signals nobody but what it starts (Landlock ABI 6).
long vj_landlock_scope_signals(void);
void vj_seccomp_install(const vj_setup *setup);
// Hand the calls of the plan's clauses to a listener; its descriptor, or -errno.
long vj_seccomp_trap(const vj_setup *setup);
// What the broker, or the dialer or relay, may call from now on.
long vj_seccomp_confine_broker(const vj_setup *setup);
long vj_seccomp_confine_helper(int is_dialer);

// Fork the broker (linux_broker.h), before this process is under the filter, and
// give it its listener afterwards. The channel between the two is returned.
int vj_broker_fork(vj_setup *setup);
void vj_broker_attach(const vj_setup *setup, int channel);

// What a keeper knows of its own slot of refusals.h; `slot` counts from 1.
typedef struct {
    uint32_t slot;
    uint32_t generation;
} vj_refused_run;
// Before the broker is forked.
void vj_refusals_prepare(vj_setup *setup);
// A keeper takes a run; the program in a place has come, or (0) has gone.
void vj_refusals_begin(const vj_setup *setup, vj_refused_run *run);
void vj_refusals_member(const vj_setup *setup, const vj_refused_run *run, uint32_t place,
                        int32_t pid);
// Pid 1 has taken the death of a process that may have been a keeper.
void vj_refusals_end_keeper(const vj_setup *setup, long keeper);

// Start the two processes of linux_ports.h: one in the host's network namespace, one
// in the jail's. The channel between them is returned, and handed on.
int vj_ports_fork_dialer(vj_setup *setup);
void vj_ports_fork_relay(vj_setup *setup, int dialer);
// Wait until the ports are open, and tell the host their numbers.
void vj_ports_report(vj_setup *setup);

// Compare what bubblewrap has made, or for a jail without namespaces what the host
// has, with the plan.
void vj_bubblewrap_enter(vj_setup *setup);
void vj_bare_enter(vj_setup *setup);

// Empty a signalfd; whether SIGTERM was among what came.
int vj_signals_drain(int signals);

// Serve one run on `channel`, then end. Never returns.
_Noreturn void vj_keeper_run(const vj_setup *setup, int channel, long supervisor);

// Start the program of a request in a child of this process. Returns its pid;
// on failure a negative errno with the stage in `*stage`.
typedef struct {
    vj_message message;
    char *data; // the strings
    int descriptors[VJ_DESCRIPTORS_MAX];
    uint32_t descriptor_count;
} vj_request;
long vj_program_start(const vj_setup *setup, vj_request *request, vj_stage *stage);

// Run in a confined child of the keeper: does the operation, returns 0 or errno.
int vj_file_operation(const vj_setup *setup, const vj_request *request);

// Try what must not be possible, in a confined child; returns how many answers
// there are.
uint32_t vj_canaries_try(const vj_setup *setup, int32_t answers[VJ_ANSWERS_MAX]);

// The same for names that the wall must keep from being made, while the broker does not
// answer yet: so that it is the wall alone that is tried. vj_canaries_try reports it.
void vj_canaries_try_wall(const vj_setup *setup);
// Make an abstract socket that takes connections, outside of the jail's Landlock domain
// (so before that is entered): what the canary about those tries to reach. It ends with
// vj_canaries_try.
void vj_canary_stranger_make(vj_setup *setup);

// Confine the calling process as a program of the jail; 0 or a negative errno.
long vj_confine(const vj_setup *setup, vj_stage *stage);

#endif
