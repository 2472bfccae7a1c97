// What the host-side files share: the run, and messages to and from the jail.
#ifndef VJ_POSIX_PROCESS_H
#define VJ_POSIX_PROCESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "calls.h"
#include "message.h"
#include "posix_capture.h"
#include "refusals.h"
#include "visjail.h"

typedef struct vj_refusals_reader vj_refusals_reader;

// Where the refusals of a run are, as its keeper says (message.h).
typedef struct {
    uint32_t slot;
    uint32_t generation;
} vj_refused_place;

// Those that have been read and not been asked for yet.
typedef struct {
    vj_refusal *records; // room for VJ_REFUSALS_MAX, or NULL while there are none
    uint32_t count;
    uint32_t dropped; // beyond that, or of which nobody could tell whose they were
} vj_refused_list;

struct vj_jail {
    pid_t owner;       // the process that opened it
    atomic_uint users; // who has it, and its runs: the last one gives back the memory
    atomic_bool closed;
    pthread_mutex_t end;  // over `process`; taken before the other lock
    int process;          // pidfd of pid 1
    int outer;            // pidfd of our child whose child pid 1 is, or -1: pid 1 is ours
    vj_calls *calls;      // under way on streams of the guests
    bool tracks;          // pid 1 ends its processes one by one: the kernel does not
    pthread_mutex_t lock; // over everything below
    int control;
    int spare;                    // channel of the keeper that waits, or -1
    int keepers_asked;            // requests whose answer has not come
    vj_refusals_reader *refusals; // of a jail with a broker
};

struct vj_run {
    vj_jail *jail; // counts this run among its users
    pid_t owner;   // the process that started it
    int channel;
    uint64_t limit_ns;        // of time, from its adoption on; of an expected program
    pthread_mutex_t ordering; // one order that is answered at a time
    pthread_mutex_t lock;     // over everything below: one waits, another may kill
    bool ended;
    bool reusable;    // its keeper has nothing left of the run
    bool watched;     // the host looks at the channel itself
    uint32_t done;    // orders that the keeper has carried out
    int64_t must_end; // when even a hindered keeper has ended it; 0: no order given
    uint32_t order;   // what ended it then: 1 timeout, 2 killed
    vj_exit result;
    int32_t pid; // in the jail; 0: of a quiet start
    vj_refused_place refused_at;
    vj_refused_list refused;
};

// Make the page of a jail; returns its descriptor, or -1.
int vj_calls_make(vj_calls **calls);
void vj_calls_unmap(vj_calls *calls);

// Read the memory that a jail with a broker sends with READY.
vj_status vj_refusals_map(int memory, vj_refusals_reader **reader, vj_error *error);
void vj_refusals_unmap(vj_refusals_reader *reader);
// Add what has been refused to the program `pid` since it was asked for; with `ended` for
// the last time.
void vj_refusals_take(vj_refusals_reader *reader, const vj_refused_place *place,
                      int32_t pid, bool ended, vj_refused_list *list);

vj_status vj_send(int socket, const vj_message *message, const void *data, size_t size,
                  const int *descriptors, uint32_t count, vj_error *error);
vj_status vj_receive(int socket, int flags, vj_message *message, int *descriptors,
                     uint32_t *count, vj_error *error);

// With what stands behind the message, where `data` is not NULL.
vj_status vj_receive_with(int socket, int flags, vj_message *message, void *data,
                          size_t capacity, int *descriptors, uint32_t *count,
                          vj_error *error);
vj_status vj_failure_of(const vj_message *message, vj_error *error);

void vj_close_all(const int *descriptors, uint32_t count);

// Kill the process of a pidfd and wait for its end, as its parent or not.
void vj_process_end(int process, bool is_child);

// Start a program with these descriptors under these numbers, and no environment.
// Returns 0 or an errno.
typedef struct {
    const char *program;
    char *const *arguments;
    const int *descriptors; // each above all of `numbers`
    const int *numbers;
    uint32_t count;
    bool session; // of its own
} vj_launch;
int vj_launch_start(const vj_launch *launch, pid_t *pid);

// The numbers under which visjail-init expects the files of the cgroups; returns how
// many there are.
#define VJ_GROUP_FILES_MAX (VJ_GROUPS_MAX + VJ_COUNTERS)
uint32_t vj_groups_place(const vj_groups *groups, int *descriptors, int *numbers);

// The same descriptor above those of visjail-init; the given one is closed.
int vj_above_reserved(int descriptor);
// A sealed memfd with `size` bytes, or -1.
int vj_sealed_memory(const char *name, const void *data, size_t size);

// Start bwrap with the operations of a plan as its arguments (linux_bubblewrap.c).
// `errors` gets what it prints.
typedef struct {
    const char *init_path;
    const vj_plan *plan;
    const vj_jail_options *options;
    int control;
    int host;
    int memory; // the plan
    int calls;
    int status;
    int errors;
    const vj_groups *groups;
} vj_bubblewrap;
// Whether what bwrap was to cover is still what the plan means.
vj_status vj_bubblewrap_recheck(const vj_plan *plan, vj_error *error);
vj_status vj_bubblewrap_start(const vj_bubblewrap *start, pid_t *pid, vj_error *error);

#endif
