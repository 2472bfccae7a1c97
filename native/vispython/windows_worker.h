// What only a worker on Windows has: two pipes, and two threads that hold no lock of
// Python's.
#ifndef VISPYTHON_WINDOWS_WORKER_H
#define VISPYTHON_WINDOWS_WORKER_H

#include "worker.h"

#include <windows.h>

// windows_link.c: take the pipes, which no child inherits then. Returns NULL, or what is
// wrong with them.
const char *vis_link_open(HANDLE input, HANDLE output);
// Start the thread that reads; from then on the end of the host is the end of this
// process. False: no room for a thread.
bool vis_link_start(void);
// Let a read that waits end as broken off: this one, or the next.
void vis_link_break_off(void);

// windows_control.c: the host wants an end of that run.
void vis_interrupt_run(uint64_t run);

// windows_boot.c: a function of the interpreter that the stable ABI lacks; NULL: none.
FARPROC vis_find_in_python(const char *name);

#endif
