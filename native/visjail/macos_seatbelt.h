// Jailed programs on macOS: started by visjail-macos-init, ended as a whole.
//
// The one file of the library that acts on macOS. Nothing here is used by Linux, and no
// function leaves a process behind when it fails.
#ifndef VJ_MACOS_SEATBELT_H
#define VJ_MACOS_SEATBELT_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "macos_brief.h"
#include "macos_members.h"
#include "macos_profile.h"

#define VJ_MACOS_SPAWN_VERSION 2u

typedef struct vj_macos_run vj_macos_run;

typedef struct {
    uint32_t size; // of this structure
    uint32_t version;
    uint32_t flags; // VJ_BRIEF_*
    uint32_t argument_count;
    uint32_t environment_count;
    // Become those of these numbers in the program, and stay the caller's; -1: none.
    int32_t descriptors[VJ_BRIEF_DESCRIPTORS];
    const char *helper;              // visjail-macos-init, absolute
    const char *watcher;             // visjail-macos-watch, absolute
    const vj_macos_profile *profile; // made with `marker` as one of its services
    const char *marker;              // of the jail
    const char *const *arguments;    // the first one absolute, but with VJ_BRIEF_SEARCH
    const char *const *environment;  // complete: nothing is inherited
    const char *directory;           // absolute
    const char *canary; // a file that the caller can read and the guest must not, or NULL
    vj_brief_limits limits;
    uint64_t timeout_ns; // until the jail is ended by its watcher; 0: none
    uint32_t file;       // with VJ_BRIEF_FILE: vj_file of run.h
    uint32_t reserved;
    uint64_t limit; // of a file operation, in bytes
} vj_macos_spawn;

typedef struct {
    int32_t status;     // as wait4 gives it
    uint32_t timed_out; // 1: it was the watcher that ended it, at its time
    uint32_t killed;    // processes beside the program that had to be ended
    uint32_t reserved;
    uint64_t user_us;
    uint64_t system_us;
    uint64_t resident_kib; // largest of the program and what it waited for
} vj_macos_exit;

// Whether this process is in a sandbox, so that no jail can be opened from it. Asks the
// kernel: a variable or a file says nothing.
bool vj_macos_is_sandboxed(void);

// A new marker, from the kernel's random numbers.
void vj_macos_marker(char marker[VJ_MARKER_SIZE]);

// The path by which the kernel knows what is at `path`: without links, as the volume
// spells it. `resolved` has VJ_MACOS_STRING_MAX + 1 bytes.
vj_status vj_macos_real_path(const char *path, char *resolved, vj_error *error);

// Whether names that differ in case only are one name on the volume of `path`.
vj_status vj_macos_ignores_case(const char *path, bool *ignores, vj_error *error);

// The path of a program or library that this process has loaded, by its number; NULL
// behind the last one.
const char *vj_macos_image(uint32_t number);

// Start a program in its sandbox. Returns when it has been executed, or with the stage
// that failed; then nothing is left of it. VJ_REFUSED with VJ_STAGE_NESTED: the caller is
// in a sandbox itself.
vj_status vj_macos_start(const vj_macos_spawn *spawn, vj_macos_run **run,
                         vj_error *error);
int32_t vj_macos_run_process(const vj_macos_run *run);

// The jail ends with this process, however that ends: visjail-macos-watch sees to it.

// Wait for the program, not for what it left behind. VJ_TIMED_OUT: it goes on; a negative
// time is none.
vj_status vj_macos_run_wait(vj_macos_run *run, int64_t timeout_ns, vj_macos_exit *result,
                            vj_error *error);
vj_status vj_macos_run_signal(vj_macos_run *run, int32_t signal_number, vj_error *error);

// What becomes readable when the program has ended, and stays so.
int32_t vj_macos_run_descriptor(const vj_macos_run *run);
// Whether the program has ended, without waiting and without reaping it.
bool vj_macos_run_has_ended(const vj_macos_run *run);
// Have the watcher end the jail, without waiting for that.
void vj_macos_run_kill(vj_macos_run *run);

// End whoever is in the jail: asked first, for `grace_ns`, then killed, until nobody is
// left. VJ_TIMED_OUT after `bound_ns` with somebody left; `*left` says how many.
vj_status vj_macos_run_end(vj_macos_run *run, uint64_t grace_ns, uint64_t bound_ns,
                           uint32_t *left, vj_error *error);
// The same after the program itself has ended, and what is known of it: VJ_OK only if
// nobody is left.
vj_status vj_macos_run_finish(vj_macos_run *run, vj_macos_exit *result, vj_error *error);

// Give a run back. A program that still runs is killed with all of its jail.
void vj_macos_run_free(vj_macos_run *run);

// A pair of ends of a new terminal, both closed on exec.
vj_status vj_macos_terminal(uint16_t rows, uint16_t columns, int32_t *master,
                            int32_t *slave, vj_error *error);

#endif
