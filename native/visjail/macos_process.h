// Runs of a jail on macOS, by the calls that every system has (visjail.h).
#ifndef VJ_MACOS_PROCESS_H
#define VJ_MACOS_PROCESS_H

#include "macos_seatbelt.h"
#include "visjail.h"

// As vj_macos_start. The run is waited for, signalled and given back by vj_run_*; of
// those, vj_run_suspend is refused, and vj_run_refusals has none: no broker is there.
vj_status vj_macos_run_start(const vj_macos_spawn *spawn, vj_run **run, int32_t *pid,
                             vj_error *error);

// The jail of the run is closed: end it, and wait for that. From any thread.
void vj_macos_run_close(vj_run *run);

#endif
