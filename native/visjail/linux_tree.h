// The tree of a run. See linux_tree.c.
#ifndef VJ_LINUX_TREE_H
#define VJ_LINUX_TREE_H

#include "linux_system.h"

// Forget the run that was looked at before.
void vj_tree_forget(void);

// From now on: there is no pid namespace, so that a pid may become another process's
// of the host. Each signal then goes by descriptor.
void vj_tree_on_host(void);

// Stop all descendants of the caller, then send each SIGKILL. Stopping first keeps
// a fork bomb from growing while it is being counted. Returns how many were not
// yet killed by an earlier call.
uint32_t vj_tree_kill(void);

// Stop all descendants; continue them, but those that had been stopped before, by
// job control for instance. Both take effect before they return.
void vj_tree_suspend(void);
void vj_tree_resume(void);

// Of a suspended run: stop again what goes on. Returns how many processes have run since
// the last call, though they had been stopped.
uint32_t vj_tree_hold(void);

// Processor time of one process, its threads included and its children not, in
// microseconds, of which the kernel counts 10,000 at a time.
uint64_t vj_tree_processor_time(int pid);

// Call `visit` with a descriptor of /proc and the name of each process of the pid
// namespace, until it returns a negative number.
long vj_tree_each(long (*visit)(int proc, const char *name, void *context),
                  void *context);

// Write the /proc/PID/stat of every process in the pid namespace, each ended by
// NUL, `limit` bytes at most.
long vj_tree_list(int descriptor, uint64_t limit);

#endif
