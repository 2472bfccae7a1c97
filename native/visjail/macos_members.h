// Which processes belong to a jail on macOS, and how they are ended. Pure.
//
// macOS has no namespace, no cgroup and no subreaper, and a child that is orphaned
// belongs to launchd. But no process ever leaves its sandbox. So each jail's profile
// allows one lookup that no other allows, by a name that is made for it: whoever may look
// that up, and may not look up another name made just as well, is in this jail.
#ifndef VJ_MACOS_MEMBERS_H
#define VJ_MACOS_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// "visruntime.jail." and 32 hexadecimal digits.
#define VJ_MARKER_SIZE 49u

// Write a marker from 16 random bytes.
void vj_marker_write(const uint8_t random[16], char marker[VJ_MARKER_SIZE]);

typedef struct {
    int32_t process;
    int32_t parent;
    uint32_t user;
    uint32_t is_sandboxed; // the kernel's answers, 0 or 1
    uint32_t may_look_up;  // the jail's marker
    uint32_t may_look_all; // a name that no profile allows
    uint64_t started;      // microseconds; tells a number that is used anew
} vj_macos_process;

// Whether a process is in the jail. `child` is the host's own child, which is not in its
// sandbox from its first instruction on.
bool vj_macos_is_member(const vj_macos_process *process, uint32_t user, int32_t host,
                        int32_t child);

// Put the members first, parents before their children where both are there, so that who
// makes processes ends before what it made. Returns how many.
size_t vj_macos_members(vj_macos_process *processes, size_t count, uint32_t user,
                        int32_t host, int32_t child);

typedef enum {
    VJ_LADDER_DONE = 0, // nobody is left
    VJ_LADDER_ASK,      // SIGTERM, once
    VJ_LADDER_WAIT,     // for `*wait_ns`, or until one ends
    VJ_LADDER_KILL,    // SIGSTOP to all, then SIGKILL to all: who stands still makes none
    VJ_LADDER_GIVE_UP, // processes are left that no signal ends
} vj_ladder_step;

typedef struct {
    uint64_t begun_ns;
    uint64_t grace_ns;  // between asking and killing; 0: nobody is asked
    uint64_t bound_ns;  // for all of it
    uint64_t killed_ns; // last time, 0: not yet
    bool has_asked;
} vj_ladder;

#define VJ_LADDER_AGAIN_NS 20000000u // between two looks for what is left

// What to do now, with `members` left. Changes the ladder as if it had been done.
vj_ladder_step vj_ladder_next(vj_ladder *ladder, uint64_t now_ns, size_t members,
                              uint64_t *wait_ns);

#endif
