// libvisjail: open jails and run programs in them, from a threaded host.
//
// A jail is opened once from a plan (policy.h) and serves any number of runs.
// All calls may be made from any thread; one run is waited for by one thread
// at a time. Nothing here prints, logs, exits or touches signal handlers, and
// every descriptor is close-on-exec.
#ifndef VISJAIL_H
#define VISJAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "links.h"
#include "plan.h"
#include "policy.h"
#include "refusals.h"
#include "run.h"

typedef struct vj_jail vj_jail;
typedef struct vj_run vj_run;

typedef struct {
    int32_t pid;           // of pid 1, in the caller's pid namespace
    uint32_t landlock_abi; // 0: the kernel has no Landlock
    uint32_t guest_id;     // host uid under which the guest runs
    uint32_t identity;     // vj_identity of run.h
    uint32_t answer_count; // of the canaries (linux_canary.c): an errno each
    uint32_t flags;        // VJ_READY_* of run.h
    int32_t answers[VJ_ANSWERS_MAX];
    uint32_t port_count; // that listen, in the order of the plan's port operations
    int32_t ports[VJ_PORTS_MAX];
} vj_jail_info;

// The cgroups that the jail joins before anything else happens in it: as many
// cgroup.procs files as its plan says, and those of vj_counter. All stay open here.
typedef struct {
    int32_t members[VJ_GROUPS_MAX];
    int32_t counters[VJ_COUNTERS];
    uint32_t count;
    uint32_t counter_count;
} vj_groups;

// What the start of a jail needs beside its plan.
typedef struct {
    const char *bubblewrap; // path of the binary, for a plan that is for it
    // It follows links at its mount points, so none may be where a guest could have
    // made one (the class of CVE-2026-87766).
    uint32_t follows_links;
    uint32_t disables_userns; // it has --disable-userns, and that works here
    vj_groups groups;
} vj_jail_options;

// Start `init_path`, or bwrap, with the plan and wait until the jail is complete.
// Fails with stage and errno; nothing of the attempt is left. The jail ends with the
// process, and with its first thread (of a main that calls pthread_exit).
vj_status vj_jail_open(const char *init_path, const vj_jail_options *options,
                       const void *plan, uint64_t plan_size, vj_jail **jail,
                       vj_jail_info *info, vj_error *error);

// End everything in the jail and wait for it. Idempotent; the handle stays
// valid until vj_jail_free. In a forked child of the opener it only lets go.
void vj_jail_close(vj_jail *jail);
void vj_jail_free(vj_jail *jail);

// 1 while pid 1 lives.
int vj_jail_alive(vj_jail *jail);

// A pseudo-terminal of the jail's own devpts: master for the host, slave for a
// program's descriptors 0 to 2.
vj_status vj_jail_terminal(vj_jail *jail, int *master, int *slave, vj_error *error);

// Two pairs of connected AF_UNIX sockets that belong to the jail's network namespace: the
// ends of a stream, then those of one that keeps packets (SOCK_SEQPACKET). For what a
// guest is to have one end of.
vj_status vj_jail_pairs(vj_jail *jail, int ends[4], vj_error *error);

typedef struct {
    const char *strings; // cwd, arguments, environment entries: each ended by NUL
    uint64_t strings_size;
    uint32_t argument_count;
    uint32_t environment_count;
    uint32_t flags;      // VJ_SPAWN_* of run.h
    uint32_t file;       // with VJ_SPAWN_FILE: vj_file of run.h
    uint64_t timeout_ns; // until the keeper ends the run; 0: none
    uint64_t limit;      // of a file operation, in bytes
    uint32_t descriptor_count;
    const int32_t *descriptors; // of the host; they stay open here
    const int32_t *numbers;     // what they become in the program
} vj_spawn;

// Start a program. VJ_SYSTEM with stage "execute" and ENOENT or EACCES is the
// program's own fault, everything else the jail's. `*pid` counts inside the jail.
// With VJ_SPAWN_QUIET it does not wait for the start: vj_exit says what came of it.
vj_status vj_run_start(vj_jail *jail, const vj_spawn *spawn, vj_run **run, int32_t *pid,
                       vj_error *error);

// A run for a program that a process of `run` is about to fork. It becomes one once
// vj_run_adopt has told which process that is, and its time limit begins then; freed
// before, nothing comes of it. VJ_SYSTEM with stage "process" is the keeper's refusal:
// EUSERS, 63 programs come from one that was started already; E2BIG, that one has left
// too many processes behind.
vj_status vj_run_expect(vj_run *run, uint64_t timeout_ns, vj_run **expected,
                        vj_error *error);
// It is the process of the pidfd `process`. The keeper refuses in the same way: ESRCH or
// ECHILD, that is no process which it has inherited; EEXIST, it is another run's already.
vj_status vj_run_adopt(vj_run *expected, int process, int32_t *pid, vj_error *error);

typedef struct {
    int32_t status;        // wait status of the direct child
    uint32_t stop;         // vj_stop of run.h
    uint32_t killed;       // descendants that had to be ended
    uint32_t failed_stage; // of a quiet start: where it failed, or 0 ...
    int32_t failed_errno;  // ... and how
    uint64_t program_us;   // of the direct child alone, with a limit of processor time
    uint64_t user_us;      // of the whole run, as the jail's supervisor measured it
    uint64_t system_us;
    uint64_t resident_kib; // largest of any process of the run
    uint64_t watched;      // largest sum of the jail that was seen, where it is watched
} vj_exit;

// Wait until nothing of the run is left; -1 waits for ever.
vj_status vj_run_wait(vj_run *run, int64_t timeout_ns, vj_exit *result, vj_error *error);
vj_status vj_run_signal(vj_run *run, int32_t signal_number);
vj_status vj_run_kill(vj_run *run);
// Stop every process of the run, or continue those that this stopped; done when it
// returns. Nothing for a run that has ended. Its time limit goes on.
vj_status vj_run_suspend(vj_run *run, bool suspended, vj_error *error);
// What the broker of the jail has refused to the run, if the jail has one, and was not
// told yet: the first `capacity` of them. `*dropped` counts those that nobody could keep.
// Returns how many there are. With a `capacity` of 0 they stay. What a guest that was
// ended was about to be told is not among them.
uint32_t vj_run_refusals(vj_run *run, vj_refusal *refusals, uint32_t capacity,
                         uint32_t *dropped);
// The descriptor that becomes readable when the run has ended, for event loops.
int vj_run_descriptor(vj_run *run);
void vj_run_free(vj_run *run); // ends the run if it has not ended

// Output of one stream: the first and the last bytes, `limit` in all.
typedef struct vj_capture vj_capture;
vj_capture *vj_capture_new(int descriptor, uint64_t limit); // takes the descriptor
void vj_capture_free(vj_capture *capture);
uint64_t vj_capture_total(const vj_capture *capture);
uint64_t vj_capture_size(const vj_capture *capture);
// vj_capture_size bytes, in order, until the next call for this capture.
const char *vj_capture_bytes(vj_capture *capture);

// write(2) to a program's input, without SIGPIPE for the caller: how many bytes, or the
// negative of errno.
int64_t vj_write_quietly(int descriptor, const void *data, uint64_t size);

// One call on a stream of the run's: how many bytes, or the negative of errno. Unlike
// with read(2) and its like the run is stopped for a moment, and should that not help
// ended, where the guest has a caller that does not want to wait (O_NONBLOCK) wait in the
// kernel.
int64_t vj_run_read(vj_run *run, int descriptor, void *data, uint64_t size);
int64_t vj_run_write(vj_run *run, int descriptor, const void *data, uint64_t size);
int64_t vj_run_pending(vj_run *run, int descriptor); // how many bytes wait (FIONREAD)
void vj_run_let_go(vj_run *run, int descriptor);     // close(2)
// Any other call begins, for which the guest could have its caller wait in the kernel,
// such as one on what it was lent; returns a number, which vj_run_called gives back once
// the call has returned. It must not wait for the guest in an ordinary way.
uint32_t vj_run_call(vj_run *run);
void vj_run_called(vj_run *run, uint32_t number);
// Set the size of a terminal, in characters: 0, or the negative of errno.
int32_t vj_run_resize(vj_run *run, int descriptor, uint16_t rows, uint16_t columns);

// Feed `input` to `input_descriptor` (closed when done; -1: none), read the
// captures (NULL: none) and wait for the run, all at once. `*input_offset` keeps
// the place between calls. VJ_TIMED_OUT and VJ_INTERRUPTED: call again.
vj_status vj_run_communicate(vj_run *run, const char *input, uint64_t input_size,
                             uint64_t *input_offset, int *input_descriptor,
                             vj_capture *output, vj_capture *errors, int64_t timeout_ns,
                             vj_exit *result, vj_error *error);

// Read what a terminal's non-blocking master has, up to `capacity` (at least 4 KiB).
// VJ_TIMED_OUT: nothing came. VJ_INTERRUPTED: a signal, or `wakeup` (-1: none) became
// readable. VJ_CLOSED: every program has let go of the terminal, and all was read.
vj_status vj_terminal_read(int descriptor, int wakeup, int64_t timeout_ns, char *data,
                           uint64_t capacity, uint64_t *size, vj_error *error);

enum {
    VJ_SEARCH_SET_ID = 1 << 0,       // files with a set-id bit
    VJ_SEARCH_LINKS = 1 << 1,        // files with several names
    VJ_SEARCH_CAPABILITIES = 1 << 2, // files with capabilities (capabilities(7))
    VJ_SEARCH_DEVICES = 1 << 3,      // device nodes, where no mount makes them dead
    VJ_SEARCH_NO_INSTALLED = 1 << 4, // nothing in what `secrets` names as installed code
};

typedef struct {
    const char *directory;
    uint64_t most_entries;
    uint64_t most_findings; // sockets, FIFOs, set-id files and closed folders
    uint64_t most_secrets;
    uint64_t most_key_bytes; // of files that could hold private keys
    const char *secrets;     // list of secret names (secret_names.h)
    uint64_t secrets_size;
    uint64_t most_links; // names of files that have several
    // Those over the host's files (vj_tree_new), for the rights of each such name.
    const vj_tree *rules;
    // Files all of whose names are findings, sorted by device, then by inode.
    const vj_file_id *wanted;
    uint64_t wanted_count;
    uint32_t first_folder; // number that the first folder of installed code gets
    int files;             // VJ_SEARCH_*
} vj_search_request;

typedef struct {
    char *findings; // a kind and a path, each ended by NUL
    uint64_t size;
    vj_link *links;
    uint64_t link_count;
} vj_search_result;

// What a mount alone does not tame at and below a path, and what holds secrets
// (posix_search.c). VJ_REFUSED: there is more than the given numbers, or something could
// not be looked at; `error` says what. Free both tables with vj_free.
vj_status vj_search(const vj_search_request *request, vj_search_result *result,
                    vj_error *error);

// What looking for patterns may still cost; each search takes from it.
typedef struct {
    uint64_t entries; // names that are looked at
    uint64_t matches;
    uint64_t work; // characters that are compared
} vj_expand_budget;

typedef struct {
    const char *directory; // to look through; without a link
    uint64_t fixed;        // how much of it is the fixed beginning of the patterns
    const char *patterns;  // what comes after that (pattern.h), each ended by NUL
    uint64_t patterns_size;
    uint64_t most_matches; // of one pattern
} vj_expand_request;

// What patterns name below a directory, in one walk (posix_expand.c): a kind ('d'
// directory, 'f' regular file, 'l' link, 'o' other), the number of the pattern in decimal
// and a path, together ended by NUL. VJ_REFUSED as above; the error's index is the number
// of a pattern that asked for what was refused.
vj_status vj_expand(const vj_expand_request *request, vj_expand_budget *budget,
                    char **matches, uint64_t *size, vj_error *error);
void vj_free(void *memory);

#endif
