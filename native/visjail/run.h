// What a host asks of a jail's runs, and what it is told of them.
#ifndef VJ_RUN_H
#define VJ_RUN_H

#include <stdint.h>

// Under which identity the guest runs.
typedef enum {
    VJ_IDENTITY_CALLER = 1, // the caller's own, not root
    VJ_IDENTITY_MAPPED,     // root called: another host uid, grants id-mapped
    VJ_IDENTITY_ROOT,       // root called and id-mapping was refused
} vj_identity;

// Flags of READY.
enum {
    VJ_READY_SHARED_MEMORY = 1u << 0, // kernel.shmall of the jail has been set
};

// How a program is started: flags of vj_spawn.
enum {
    VJ_SPAWN_TERMINAL = 1u << 0,     // descriptor 0 becomes the controlling terminal
    VJ_SPAWN_MEMFD = 1u << 1,        // the strings are in the last descriptor
    VJ_SPAWN_SEARCH = 1u << 2,       // look argv[0] up in the PATH of the environment
    VJ_SPAWN_FILE = 1u << 3,         // not a program but a file operation (vj_file)
    VJ_SPAWN_QUIET = 1u << 5,        // no STARTED: the end, or the failure, says enough
    VJ_SPAWN_CWD_FALLBACK = 1u << 4, // when cwd cannot be entered, use HOME
};

// File operations, run by a confined child under the jail's own rights.
typedef enum {
    VJ_FILE_READ = 1, // to descriptor 1
    VJ_FILE_WRITE,    // from descriptor 0
    VJ_FILE_STAT,     // a struct vj_file_status to descriptor 1
    VJ_FILE_LIST,     // names, each ended by NUL, to descriptor 1
    VJ_FILE_MAKE_DIRECTORY,
    VJ_FILE_REMOVE,
    VJ_FILE_REALPATH,  // the path without links, to descriptor 1
    VJ_FILE_PROCESSES, // /proc/PID/stat of each process, ended by NUL, to descriptor 1
} vj_file;

typedef struct {
    uint64_t size;
    int64_t modified_ns;
    uint32_t mode;
    uint32_t links;
} vj_file_status;

// Why a keeper ended its run.
typedef enum {
    VJ_STOP_NONE = 0, // the direct child ended by itself
    VJ_STOP_TIMEOUT,
    VJ_STOP_KILLED, // the host asked
    VJ_STOP_CLOSED, // the jail ended, and its keeper with it
    VJ_STOP_MEMORY, // the kernel ended a process for memory, or the watched sum was over
} vj_stop;

#endif
