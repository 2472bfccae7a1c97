// Ending a jail on macOS: by its host, and by its watcher when the host was killed.
#ifndef VJ_MACOS_END_H
#define VJ_MACOS_END_H

#include <stdint.h>
#include <sys/types.h>

#include "error.h"

// How visjail-macos-watch ends when the time of a jail was over.
enum { VJ_WATCH_ENDED = 3, VJ_WATCH_NOBODY = 4 };

typedef struct {
    uint32_t members; // most that were there at a time, `child` among them
    uint32_t left;    // that no signal ended
} vj_ended;

// End whoever may look up `marker`, and `child` (0: none), a child of the caller that
// need not be in its sandbox yet; as vj_macos_run_end, but the child stays to be reaped.
vj_status vj_macos_end_jail(const char *marker, pid_t child, uint64_t grace_ns,
                            uint64_t bound_ns, vj_ended *ended, vj_error *error);

#endif
