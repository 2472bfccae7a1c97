// What processes on macOS need whatever a policy says, as parts of a profile. Pure data;
// see macos_profile.h.
#ifndef VJ_MACOS_BASE_H
#define VJ_MACOS_BASE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *const *paths;
    size_t count;
} vj_macos_paths;

// Rules of every profile: no file of a policy is in them.
extern const char vj_macos_base[];
// In addition, for CPython, for node, and with the host's network.
extern const char vj_macos_base_python[];
extern const char vj_macos_base_node[];
extern const char vj_macos_base_network[];

// What is read and executed: by every process, as system="minimal", by git. They enter a
// profile as rules of a policy do, so that a deny of the policy holds in them too.
extern const vj_macos_paths vj_macos_read_always;
extern const vj_macos_paths vj_macos_read_system;
extern const vj_macos_paths vj_macos_read_git;

// Shared memory is asked for as a service, by the beginning of its names.
#define VJ_MACOS_MEMORY        "posix-shm:"
#define VJ_MACOS_MEMORY_LENGTH (sizeof VJ_MACOS_MEMORY - 1)
bool vj_macos_is_memory(const char *name);

#endif
