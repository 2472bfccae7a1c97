// What the reader of a run's streams asks of the run, whatever the system.
#ifndef VJ_POSIX_CAPTURE_H
#define VJ_POSIX_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "visjail.h"

// The process that started the run.
pid_t vj_run_owner(const vj_run *run);
// What becomes readable when the run has news, its end among them.
int vj_run_channel(const vj_run *run);

// Whether the run has ended; fills `result` if so. `readable`: its channel has
// something. An order to end that is not carried out in time ends the jail.
bool vj_run_ended(vj_run *run, bool readable, vj_exit *result);
// The run has ended and was read to its end: what is needed for the next one may begin.
void vj_jail_prepare(vj_run *run);

int64_t vj_now_ns(void);

// Let a pipe hold half a MiB. Returns false where it holds what it did.
bool vj_stream_widen(int descriptor);

#endif
