// WindowsJail: create, stage, seal, spawn, close.
//
// A context is one fresh private directory, one AppContainer identity of the
// less-privileged kind with the single capability registryRead, one private desktop, and
// a job per process. Programs and inputs are copied into its read-only directory `app`;
// the guest writes to `work` and `temp`. It is not a vj_jail: a JailPolicy is never
// mapped to it.
//
// All calls may be made from any thread. An id is a number of 64 bits that this process
// gives out once and never again; one that is unknown, was closed, or is of another kind
// is VJ_WINDOWS_STALE. Text is UTF-8 without NUL. Structures begin with their size and a
// version; a size or version that this library does not know is refused.
#ifndef VISJAIL_WINDOWS_JAIL_H
#define VISJAIL_WINDOWS_JAIL_H

#include <stdint.h>

#define VJ_WINDOWS_VERSION 1u

typedef int64_t vj_windows_id; // 0: none

typedef enum {
    VJ_WINDOWS_OK = 0,
    VJ_WINDOWS_REFUSED,     // the request is wrong, or cannot be enforced
    VJ_WINDOWS_UNAVAILABLE, // this Windows lacks something; the text names it
    VJ_WINDOWS_SYSTEM,      // a call failed: `step` and `os_error` say which and how
    VJ_WINDOWS_STALE,       // ESTALE: no such context, process or stream (any more)
    VJ_WINDOWS_STATE,       // not in this state of the context: staging after the seal
    VJ_WINDOWS_CLOSING,     // another thread is closing it
    VJ_WINDOWS_POISONED,    // an earlier error left something: close it (again)
    VJ_WINDOWS_MISMATCH,    // a readback did not agree; the process never ran
    VJ_WINDOWS_CHANGED,     // a source changed while it was copied
    VJ_WINDOWS_ENDED,       // the other end of the stream is gone (a pipe's EPIPE)
    VJ_WINDOWS_TIMED_OUT,   // the time of this call is over, the work goes on
    VJ_WINDOWS_NO_MEMORY,
} vj_windows_status;

typedef struct {
    uint32_t size;
    uint32_t version;
    uint32_t os_error; // code of Win32, or 0
    int32_t index;     // item of the request it concerns, or -1
    char step[32];     // "job limits", "pipe", "token"
    char text[256];    // for people
} vj_windows_error;

typedef struct {
    const char *bytes;
    uint64_t size; // without a NUL
} vj_windows_text;

enum {
    // The directory `work` goes with the context, too. Without it, what the guest wrote
    // there stays for the host.
    VJ_WINDOWS_REMOVE_WORK = 1 << 0,
};

typedef struct {
    uint32_t size;
    uint32_t version;
    vj_windows_text parent; // existing local directory, in which the root is made
    uint32_t flags;         // VJ_WINDOWS_REMOVE_WORK
    uint32_t reserved;
} vj_windows_create_options;

// Where things are. The texts are ended by NUL and belong to the caller.
typedef struct {
    uint32_t size;
    uint32_t version;
    uint32_t build; // of Windows
    uint32_t reserved;
    char package[128];     // name of the AppContainer
    char package_sid[192]; // its SID
    char root[1024];       // with `app`, `work` and `temp` in it
} vj_windows_context_info;

// One source: a regular file, or a directory with all that is in it.
typedef struct {
    vj_windows_text source; // absolute path with a drive letter
    // Relative to `app`, with '/' between names. Empty for a directory whose content goes
    // to `app` itself.
    vj_windows_text destination;
} vj_windows_source;

typedef struct {
    uint32_t size;
    uint32_t version;
    const vj_windows_source *sources;
    uint32_t source_count;
    uint32_t most_depth;      // of directories; 0: 64
    uint64_t most_files;      // with directories; 0: 100 000
    uint64_t most_bytes;      // of content; 0: 4 GiB
    uint64_t most_name_bytes; // of all names in UTF-16; 0: 32 MiB
} vj_windows_stage_request;

typedef struct {
    uint32_t size;
    uint32_t version;
    uint64_t files;
    uint64_t directories;
    uint64_t bytes;
} vj_windows_stage_info;

enum {
    VJ_WINDOWS_SPAWN_CONSOLE = 1 << 0,     // a pseudo console instead of pipes
    VJ_WINDOWS_SPAWN_NO_CHILDREN = 1 << 1, // it may start no process
    VJ_WINDOWS_SPAWN_NO_INPUT = 1 << 2,    // standard input is at its end from the start
    // Two more pipes, one for each direction, beside the standard ones: VISJAIL_CHANNEL
    // in the program's environment is INPUT:OUTPUT, its handles as decimal numbers. Not
    // with a console.
    VJ_WINDOWS_SPAWN_CHANNEL = 1 << 3,
};

typedef struct {
    uint32_t size;
    uint32_t version;
    vj_windows_text application; // absolute path of an .exe or .com
    vj_windows_text arguments;   // each ended by NUL; the first is the program's name
    // NAME=value, each ended by NUL; all that the program gets. SystemRoot is added when
    // it is not among them. LOCALAPPDATA, TEMP and TMP are always those of the package,
    // which Windows sets: `temp\Packages\<package>\AC`, and `Temp` in it. Others are
    // refused.
    vj_windows_text environment;
    uint32_t argument_count;
    uint32_t environment_count;
    vj_windows_text directory; // absolute; empty: `work`
    uint32_t flags;            // VJ_WINDOWS_SPAWN_*
    uint16_t columns;          // of a console, 1 to 32767
    uint16_t rows;
    // Limits of the process and its descendants; 0: none.
    uint32_t active_processes;
    uint32_t cpu_rate; // hundredths of a percent of all processors
    // Bytes, 4096 or more; rounded down to whole pages of 4096.
    uint64_t process_memory;
    uint64_t job_memory;
    // JOB_OBJECT_UILIMIT_*; 0: all that can be set here. A host that is in a job itself
    // can set none, as Windows nests no job that has any; then others than 0 are refused.
    uint32_t ui_limits;
    uint32_t reserved;
} vj_windows_spawn_request;

typedef struct {
    uint32_t size;
    uint32_t version;
    vj_windows_id process;
    vj_windows_id input;    // 0: none
    vj_windows_id output;   // of a console, too
    vj_windows_id errors;   // 0 with a console
    vj_windows_id to_guest; // the channel, where there is one
    vj_windows_id from_guest;
    uint32_t pid;
    uint32_t ui_limits; // as the job says
    uint64_t created;   // 100 ns since 1601
    // What was read back from the suspended process, before it ran.
    uint32_t integrity;
    uint32_t capability_count;
    char package_sid[192];
    char capability_sid[192];
} vj_windows_spawn_info;

typedef struct {
    uint32_t size;
    uint32_t version;
    uint32_t exit_code; // all 32 bits: an NTSTATUS for one that crashed
    uint32_t killed;    // vj_windows_kill or the close of the context ended it
    uint32_t processes; // that the job ever had
    uint32_t reserved;
    uint64_t user_ns; // of all of them
    uint64_t kernel_ns;
    uint64_t peak_process_memory; // bytes
    uint64_t peak_job_memory;
} vj_windows_exit;

typedef enum {
    VJ_WINDOWS_CONTEXT_OPEN = 0, // may be staged into
    VJ_WINDOWS_CONTEXT_SEALED,   // may spawn
    VJ_WINDOWS_CONTEXT_POISONED, // may only be closed
    VJ_WINDOWS_CONTEXT_CLOSING,
} vj_windows_context_state;

enum {
    VJ_WINDOWS_FOREVER = -1, // of a timeout
};

// Can a jail be made here? VJ_WINDOWS_UNAVAILABLE names each thing that is missing.
// Touches nothing.
vj_windows_status vj_windows_probe(uint32_t *build, vj_windows_error *error);

// A new context. If the attempt fails and something of it could not be taken back,
// `*context` is not 0 and the context is poisoned: vj_windows_close finishes the work.
vj_windows_status vj_windows_create(const vj_windows_create_options *options,
                                    vj_windows_id *context, vj_windows_context_info *info,
                                    vj_windows_error *error);

// Copy sources into `app`: all of them, or none.
vj_windows_status vj_windows_stage(vj_windows_id context,
                                   const vj_windows_stage_request *request,
                                   vj_windows_stage_info *info, vj_windows_error *error);

// No more staging; processes from now on.
vj_windows_status vj_windows_seal(vj_windows_id context, vj_windows_error *error);

vj_windows_status vj_windows_state_of(vj_windows_id context,
                                      vj_windows_context_state *state,
                                      vj_windows_error *error);

// Start a program. Nothing of it runs before its job, its token and its limits were read
// back and are exactly what was asked for.
vj_windows_status vj_windows_spawn(vj_windows_id context,
                                   const vj_windows_spawn_request *request,
                                   vj_windows_spawn_info *info, vj_windows_error *error);

// Wait for the program, then end what it has left behind. Its output streams can be read
// to their end afterwards. May be called again, with the same answer.
vj_windows_status vj_windows_wait(vj_windows_id process, int64_t timeout_ms,
                                  vj_windows_exit *result, vj_windows_error *error);
// End the program and all its descendants, and wait until they are gone.
vj_windows_status vj_windows_kill(vj_windows_id process, vj_windows_error *error);
vj_windows_status vj_windows_resize(vj_windows_id process, uint16_t columns,
                                    uint16_t rows, vj_windows_error *error);
// Forget a program: it is ended, its streams are closed, its id becomes stale.
vj_windows_status vj_windows_release(vj_windows_id process, vj_windows_error *error);

// Read at least one byte; `*count` is 0 at the end of the stream.
vj_windows_status vj_windows_read(vj_windows_id stream, void *bytes, uint64_t capacity,
                                  int64_t timeout_ms, uint64_t *count,
                                  vj_windows_error *error);
// Write all of it, unless the time is over: `*count` says how much was taken. Nothing to
// write is a success, whatever became of the program.
vj_windows_status vj_windows_write(vj_windows_id stream, const void *bytes, uint64_t size,
                                   int64_t timeout_ms, uint64_t *count,
                                   vj_windows_error *error);
// Calls of other threads on the stream end with VJ_WINDOWS_STALE.
vj_windows_status vj_windows_close_stream(vj_windows_id stream, vj_windows_error *error);

// End all programs of a context and remove it: profile, desktop, `app`, `temp`. Output
// that nobody has read is dropped. After an error the context is poisoned; call it again.
vj_windows_status vj_windows_close(vj_windows_id context, vj_windows_error *error);

// Remove what hosts that are dead have left in `parent`: roots whose marker agrees with
// them and names a process that does not exist any more. Each is tried, whatever became
// of the others; the first error is told, and `*removed` is right after one, too.
vj_windows_status vj_windows_remove_stale(const vj_windows_text *parent,
                                          uint64_t *removed, vj_windows_error *error);

#endif
