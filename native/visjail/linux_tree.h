// The tree of a run. See linux_tree.c.
#ifndef VJ_LINUX_TREE_H
#define VJ_LINUX_TREE_H

#include "linux_system.h"

// Children of the caller that a call leaves alone, with all that descends from them:
// these, or where `only` is not 0 all but that one.
typedef struct {
    const int *pids;
    uint32_t count;
    int only;
} vj_spared;

// Forget the run that was looked at before.
void vj_tree_forget(void);

// From now on: there is no pid namespace, so that a pid may become another process's
// of the host. Each signal then goes by descriptor.
void vj_tree_on_host(void);

// Each signal of this process goes to its own descendants only, by the kernel's word
// (vj_landlock_scope_signals): signals to all that it may signal then reach them all.
void vj_tree_in_scope(void);

// Kill all that the caller may signal, at one moment: the kernel lets nobody be forked
// meanwhile. Only where vj_tree_in_scope has been called; else it does nothing and
// returns 0.
int vj_tree_kill_all(void);

// Stop all descendants of the caller, then send each SIGKILL. Stopping first keeps
// a fork bomb from growing while it is being counted. Returns how many were not
// yet killed by an earlier call; the `first` of several calls remembers none.
uint32_t vj_tree_kill(vj_spared spared, int first);

// Whether any descendant is left that has not ended.
int vj_tree_is_left(vj_spared spared);

// The children of the caller that have not ended: how many, or -E2BIG.
long vj_tree_children(int *pids, uint32_t most);

// Send all descendants SIGSTOP, in passes of which none begins after `until`
// (CLOCK_MONOTONIC); continue them, but those that had been stopped before, by job
// control for instance.
void vj_tree_suspend(vj_spared spared, uint64_t until);
void vj_tree_resume(vj_spared spared);
// Whether all are in the state of a stopped process.
int vj_tree_stands_still(vj_spared spared);

// Of a process that is named by a pidfd: its number in the pid namespace of /proc, 0
// where it has none there, -1 once it has ended and was waited for.
long vj_process_number(int descriptor);

// Of a suspended run: stop again what goes on. Returns how many processes have run since
// the last call, though they had been stopped.
uint32_t vj_tree_hold(vj_spared spared);

// Call `visit` with a descriptor of /proc and the name of each process of the pid
// namespace, until it returns a negative number.
long vj_tree_each(long (*visit)(int proc, const char *name, void *context),
                  void *context);

// The same for the threads of one process of them, by a descriptor of its folder of
// threads.
long vj_tree_each_thread(int proc, const char *process,
                         long (*visit)(int threads, const char *name, void *context),
                         void *context);

// Write the /proc/PID/stat of every process in the pid namespace, each ended by
// NUL, `limit` bytes at most.
long vj_tree_list(int descriptor, uint64_t limit);

#endif
