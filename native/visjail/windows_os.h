// The table of operating system calls that WindowsJail is made of.
//
// Everything above this table (windows_context.c, windows_stage.c, windows_spawn.c,
// windows_console.c) is plain C that compiles on every platform; everything below it is
// windows_os*.c, one thin function per call of Win32; what includes windows.h is there
// and in windows_desktop_helper.c. The tests put a table of their own here and let each
// call fail.
//
// Rules for every function of a table:
//   - It returns 0 or the code of GetLastError (an HRESULT or NTSTATUS is mapped to such
//     a code; never 0 for a failure), and leaves its results at zero when it fails. Only
//     what it has made all the same, and could not take back, is in its result then, for
//     the caller to close.
//   - Text is UTF-16, ended by NUL. Paths are absolute, with a drive letter and
//     backslashes, and without the prefix "\\?\": the table puts that before them, so
//     that length and odd names do not matter.
//   - Whatever creates an object takes its security descriptor, which may not be NULL: a
//     host whose token has an unusable default DACL works all the same, and no object is
//     ever open to more than it says (point 31). One function changes a descriptor of
//     something that exists, and it is for what guests have left (point 14): `reclaim`.
//   - No handle is inheritable but the client end of a pipe.
//   - What waits has a bound in milliseconds and returns VJ_WINDOWS_ERROR_TIMEOUT.
//   - It may be called from any thread.
#ifndef VISJAIL_WINDOWS_OS_H
#define VISJAIL_WINDOWS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A HANDLE of the kernel. INVALID_HANDLE_VALUE never leaves the table: no handle is NULL.
typedef struct vj_windows_kernel_object *vj_windows_handle;
// A security descriptor together with the attributes that point to it.
typedef struct vj_windows_descriptor *vj_windows_security;
// An open listing of a directory.
typedef struct vj_windows_entries *vj_windows_listing;
// A list of attributes for a process, with the memory that they point to.
typedef struct vj_windows_attribute_list *vj_windows_attributes;
// A pseudo console: HPCON, and what ends it.
typedef struct vj_windows_pseudo_console *vj_windows_console;
// The private desktop of a context: handles of it and of its station.
typedef struct vj_windows_private_desktop *vj_windows_desktop;

// Codes of Win32 that something above the table tells apart (System Error Codes,
// winerror.h).
enum {
    VJ_WINDOWS_ERROR_FILE_NOT_FOUND = 2,
    VJ_WINDOWS_ERROR_PATH_NOT_FOUND = 3,
    VJ_WINDOWS_ERROR_ACCESS_DENIED = 5,
    VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY = 8,
    VJ_WINDOWS_ERROR_NO_MORE_FILES = 18,
    VJ_WINDOWS_ERROR_SHARING_VIOLATION = 32,
    VJ_WINDOWS_ERROR_HANDLE_EOF = 38,
    VJ_WINDOWS_ERROR_NOT_SUPPORTED = 50,
    VJ_WINDOWS_ERROR_INVALID_PARAMETER = 87,
    VJ_WINDOWS_ERROR_BROKEN_PIPE = 109,
    VJ_WINDOWS_ERROR_INSUFFICIENT_BUFFER = 122,
    VJ_WINDOWS_ERROR_DIRECTORY_NOT_EMPTY = 145,
    VJ_WINDOWS_ERROR_ALREADY_EXISTS = 183,
    VJ_WINDOWS_ERROR_PIPE_BUSY = 231,
    VJ_WINDOWS_ERROR_NO_DATA = 232,
    VJ_WINDOWS_ERROR_TIMEOUT = 258, // WAIT_TIMEOUT
    VJ_WINDOWS_ERROR_OPERATION_ABORTED = 995,
    VJ_WINDOWS_ERROR_NOT_FOUND = 1168,
};

enum {
    VJ_WINDOWS_PATH_MAX =
        32768,                 // units of UTF-16 with the NUL, as the kernel's own bound
    VJ_WINDOWS_NAME_MAX = 256, // of one component, with the NUL (NTFS)
    VJ_WINDOWS_SID_MAX = 192,  // text of a SID, with the NUL
    VJ_WINDOWS_CAPABILITIES_READ = 8,
};

// What this Windows lacks, as bits of `missing` (point 67).
enum {
    VJ_WINDOWS_NEEDS_APP_CONTAINER = 1 << 0, // CreateAppContainerProfile and Delete...
    VJ_WINDOWS_NEEDS_LPAC = 1
        << 1, // the attribute that opts out of ALL APPLICATION PACKAGES
    VJ_WINDOWS_NEEDS_CAPABILITIES = 1 << 2, // the attribute SECURITY_CAPABILITIES
    VJ_WINDOWS_NEEDS_HANDLE_LIST = 1 << 3,
    VJ_WINDOWS_NEEDS_JOB_LIST = 1 << 4,
    VJ_WINDOWS_NEEDS_JOB_READBACK = 1 << 5, // limits of a job that can be read
    VJ_WINDOWS_NEEDS_CONSOLE = 1 << 6,      // the three calls of pseudo consoles
    VJ_WINDOWS_NEEDS_DESKTOP = 1 << 7,      // desktops, and the helper beside the library
    VJ_WINDOWS_NEEDS_RANDOM = 1 << 8,       // BCryptGenRandom
};

typedef struct {
    uint32_t missing;   // VJ_WINDOWS_NEEDS_*
    uint32_t build;     // of Windows, as RtlGetVersion says
    uint32_t ui_limits; // JOB_OBJECT_UILIMIT_* that this build knows (point 37)
    bool host_in_job;   // this process is in a job itself (point 38)
} vj_windows_features;

typedef enum {
    VJ_WINDOWS_KIND_OTHER = 0, // a device, a pipe: anything that is not on a disk
    VJ_WINDOWS_KIND_FILE,
    VJ_WINDOWS_KIND_DIRECTORY,
    VJ_WINDOWS_KIND_REPARSE, // whatever the tag (point 17)
} vj_windows_kind;

// GetFileInformationByHandleEx of one open handle.
typedef struct {
    uint32_t kind; // vj_windows_kind
    uint32_t links;
    uint64_t volume;
    uint8_t id[16]; // FileIdInfo
    uint64_t size;
    uint64_t written; // 100 ns since 1601
    uint64_t changed; // the same, of anything
} vj_windows_file;

typedef struct {
    uint16_t name[VJ_WINDOWS_NAME_MAX];
    uint32_t kind; // vj_windows_kind
} vj_windows_entry;

// Zero: no such limit.
typedef struct {
    uint32_t active_processes;
    uint32_t cpu_rate;       // hundredths of a percent of all processors, hard
    uint64_t process_memory; // bytes, committed
    uint64_t job_memory;
    uint32_t ui; // JOB_OBJECT_UILIMIT_*
} vj_windows_job_limits;

// What a job says of itself.
typedef struct {
    vj_windows_job_limits limits;
    bool kill_on_close;
    bool breakaway; // BREAKAWAY_OK or SILENT_BREAKAWAY_OK
    bool other;     // any flag beside these and those of the limits
} vj_windows_job_readback;

typedef struct {
    uint64_t user_ns;
    uint64_t kernel_ns;
    uint64_t peak_process_memory; // bytes
    uint64_t peak_job_memory;
    uint32_t processes; // that there ever were
    uint32_t active;
} vj_windows_job_usage;

// What the token of the suspended process says (point 28).
typedef struct {
    bool app_container;
    // From the token, or from AccessCheck against a descriptor that gives ALL APPLICATION
    // PACKAGES one right and ALL RESTRICTED APPLICATION PACKAGES another.
    bool less_privileged;
    uint32_t integrity; // the RID: 0x1000 is low
    uint16_t package[VJ_WINDOWS_SID_MAX];
    uint32_t capability_count; // all of them, also those that do not fit below
    uint16_t capabilities[VJ_WINDOWS_CAPABILITIES_READ][VJ_WINDOWS_SID_MAX];
} vj_windows_token;

// Attributes of a process. Each is one call of UpdateProcThreadAttribute, whose result is
// returned; attribute lists are made for an exact number of them, and process_create of a
// table refuses (ERROR_INVALID_PARAMETER) a list that does not hold that many: an error
// that was overlooked cannot become a process without its jail.
typedef enum {
    VJ_WINDOWS_ATTRIBUTE_CAPABILITIES = 0, // `package` and `capabilities`
    VJ_WINDOWS_ATTRIBUTE_LPAC,        // PROCESS_CREATION_ALL_APPLICATION_PACKAGES_OPT_OUT
    VJ_WINDOWS_ATTRIBUTE_JOB,         // `handles[0]`
    VJ_WINDOWS_ATTRIBUTE_HANDLES,     // `handles`, distinct
    VJ_WINDOWS_ATTRIBUTE_CONSOLE,     // `console`
    VJ_WINDOWS_ATTRIBUTE_NO_CHILDREN, // PROCESS_CREATION_CHILD_PROCESS_RESTRICTED
    VJ_WINDOWS_ATTRIBUTE_END,
} vj_windows_attribute_kind;

typedef struct {
    vj_windows_attribute_kind kind;
    uint32_t capability_count;
    const uint16_t *package; // SIDs as text; the table keeps what the list points to
    const uint16_t *const *capabilities;
    const vj_windows_handle *handles;
    vj_windows_console console;
    uint32_t handle_count;
} vj_windows_attribute;

typedef struct {
    const uint16_t *application; // lpApplicationName, never NULL (point 8)
    uint16_t *command_line;      // Windows may write into it
    const uint16_t *environment; // a whole block with both NULs, never NULL (point 5)
    const uint16_t *directory;   // never NULL (point 6)
    vj_windows_attributes attributes;
    // Copies of its handles are put into the suspended process, which takes the first
    // that it finds; lpDesktop is empty. Both ways to name it fail for an LPAC (point
    // 53).
    vj_windows_desktop desktop;
    vj_windows_handle standard[3]; // all NULL: a console (point 47)
    vj_windows_security process;   // of the process object ...
    vj_windows_security thread;    // ... and of its first thread
} vj_windows_launch;

typedef struct {
    vj_windows_handle process;
    vj_windows_handle thread;
    uint32_t pid; // for people: nothing is ever opened by it
} vj_windows_started;

typedef enum {
    VJ_WINDOWS_PIPE_FROM_GUEST = 0, // the host reads
    VJ_WINDOWS_PIPE_TO_GUEST,       // the host writes
} vj_windows_direction;

typedef enum {
    // An existing file or directory. It is opened as it is, never what a reparse point
    // leads to; nobody may write, rename or delete it while the handle is open.
    VJ_WINDOWS_OPEN_PIN = 0,
    // The same, but others may write: a directory of a context in which guests work.
    VJ_WINDOWS_OPEN_HOLD,
    // To be deleted: the rights to read and to delete, nothing shared. It fails with
    // ERROR_SHARING_VIOLATION while somebody has it open.
    VJ_WINDOWS_OPEN_ALONE,
} vj_windows_open_mode;

typedef void (*vj_windows_thread)(void *argument);

typedef struct vj_windows_os vj_windows_os;
struct vj_windows_os {
    void *state; // of the table; Win32 needs none

    // ---- what there is; changes nothing
    // Try each entry point and each attribute once; success also when something is
    // missing.
    uint32_t (*features)(const vj_windows_os *os, vj_windows_features *features);
    uint64_t (*now_ms)(const vj_windows_os *os); // of a clock that only goes forward
    // BCryptGenRandom with BCRYPT_USE_SYSTEM_PREFERRED_RNG.
    uint32_t (*random)(const vj_windows_os *os, void *bytes, uint32_t size);
    // The SID of the user of this process, as text.
    uint32_t (*user_sid)(const vj_windows_os *os, uint16_t *text, uint32_t capacity);
    // GetSystemWindowsDirectoryW.
    uint32_t (*system_root)(const vj_windows_os *os, uint16_t *path, uint32_t capacity);
    // This process: its pid and when it was created (100 ns since 1601).
    uint32_t (*self)(const vj_windows_os *os, uint32_t *pid, uint64_t *created);
    // A process that is asked for its creation time alone. ERROR_INVALID_PARAMETER: there
    // is none. Only for what a crashed host has left (point 24).
    uint32_t (*owner_created)(const vj_windows_os *os, uint32_t pid, uint64_t *created);

    // ---- handles and descriptors
    uint32_t (*handle_close)(const vj_windows_os *os, vj_windows_handle handle);
    uint32_t (*security_open)(const vj_windows_os *os, const uint16_t *sddl,
                              vj_windows_security *security);
    uint32_t (*security_close)(const vj_windows_os *os, vj_windows_security security);
    // Are owner, protection, label and every entry of the DACL of the open file exactly
    // those?
    uint32_t (*security_equal)(const vj_windows_os *os, vj_windows_handle file,
                               vj_windows_security security, bool *equal);

    // ---- identity
    // CreateAppContainerProfile without capabilities (point 27); the SID as text. One
    // that failed, but for ERROR_ALREADY_EXISTS, may have made the profile, or a part of
    // it.
    uint32_t (*profile_create)(const vj_windows_os *os, const uint16_t *name,
                               uint16_t *sid, uint32_t capacity);
    // DeleteAppContainerProfile. Success also when there is none any more.
    uint32_t (*profile_delete)(const vj_windows_os *os, const uint16_t *name);

    // ---- files
    uint32_t (*directory_create)(const vj_windows_os *os, const uint16_t *path,
                                 vj_windows_security security);
    // A new file for writing, shared with readers only; ERROR_ALREADY_EXISTS else.
    uint32_t (*file_create)(const vj_windows_os *os, const uint16_t *path,
                            vj_windows_security security, vj_windows_handle *file);
    // `parent` is NULL and `path` absolute, or `path` is one component in the open
    // directory `parent`, whatever that directory is called by now.
    uint32_t (*open)(const vj_windows_os *os, vj_windows_handle parent,
                     const uint16_t *path, vj_windows_open_mode mode,
                     vj_windows_handle *handle);
    uint32_t (*file_information)(const vj_windows_os *os, vj_windows_handle handle,
                                 vj_windows_file *file);
    // GetFinalPathNameByHandleW, VOLUME_NAME_DOS, without its prefix.
    // ERROR_NOT_SUPPORTED for one that is not on a drive of this machine.
    uint32_t (*final_path)(const vj_windows_os *os, vj_windows_handle handle,
                           uint16_t *path, uint32_t capacity);
    uint32_t (*file_read)(const vj_windows_os *os, vj_windows_handle file, void *bytes,
                          uint32_t size, uint32_t *count); // *count 0: the end
    uint32_t (*file_write)(const vj_windows_os *os, vj_windows_handle file,
                           const void *bytes, uint32_t size); // all of them
    uint32_t (*listing_open)(const vj_windows_os *os, vj_windows_handle directory,
                             vj_windows_listing *listing);
    // The next entry that is neither "." nor ".."; ERROR_NO_MORE_FILES after the last.
    uint32_t (*listing_next)(const vj_windows_os *os, vj_windows_listing listing,
                             vj_windows_entry *entry);
    // It gives back memory only, which does not fail.
    void (*listing_close)(const vj_windows_os *os, vj_windows_listing listing);
    // Delete a file, a reparse point itself, or an empty directory, read-only or not; it
    // is gone when this returns. Success also when there is none. `parent` and `path` as
    // for `open`. No right is asked of the thing itself that the directory around it
    // cannot give: whoever may delete entries there deletes this one, whatever it says.
    uint32_t (*remove)(const vj_windows_os *os, vj_windows_handle parent,
                       const uint16_t *path);
    // Give a directory that a guest has made, and that does not let this user work in it,
    // another DACL, which its owner may do. The directory itself, by a handle; `parent`
    // and `path` as for `open`, or an empty `path`: the open directory `parent`. Only for
    // one that is being removed with the context in which it lies, and never for a file,
    // which might have another name elsewhere.
    uint32_t (*reclaim)(const vj_windows_os *os, vj_windows_handle parent,
                        const uint16_t *path, vj_windows_security security);

    // ---- jobs
    uint32_t (*job_create)(const vj_windows_os *os, vj_windows_security security,
                           vj_windows_handle *job);
    // The port of the job's messages, for job_wait_empty.
    uint32_t (*job_watch)(const vj_windows_os *os, vj_windows_handle job,
                          vj_windows_handle *port);
    // The limits, and always JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE.
    uint32_t (*job_set_limits)(const vj_windows_os *os, vj_windows_handle job,
                               const vj_windows_job_limits *limits);
    uint32_t (*job_read_limits)(const vj_windows_os *os, vj_windows_handle job,
                                vj_windows_job_readback *readback);
    uint32_t (*job_terminate)(const vj_windows_os *os, vj_windows_handle job,
                              uint32_t exit_code);
    // Until no process is active in it.
    uint32_t (*job_wait_empty)(const vj_windows_os *os, vj_windows_handle job,
                               vj_windows_handle port, uint32_t timeout_ms);
    uint32_t (*job_usage)(const vj_windows_os *os, vj_windows_handle job,
                          vj_windows_job_usage *usage);

    // ---- the desktop (points 53 to 56)
    // Let the helper make a desktop with exactly this descriptor in the window station
    // that Windows selected for it. Bounded in time; a helper that fails is ended.
    uint32_t (*desktop_open)(const vj_windows_os *os, const uint16_t *name,
                             const uint16_t *sddl, vj_windows_security security,
                             vj_windows_desktop *desktop);
    uint32_t (*desktop_close)(const vj_windows_os *os, vj_windows_desktop desktop);

    // ---- pipes (point 41)
    // The host's end: first instance, one instance, no remote clients, overlapped.
    uint32_t (*pipe_create)(const vj_windows_os *os, const uint16_t *name,
                            vj_windows_direction direction, vj_windows_security security,
                            vj_windows_handle *server);
    // The guest's end, for synchronous use. `inheritable` but for a console's ends.
    uint32_t (*pipe_connect)(const vj_windows_os *os, const uint16_t *name,
                             vj_windows_direction direction, bool inheritable,
                             vj_windows_security security, vj_windows_handle *client);
    uint32_t (*event_create)(const vj_windows_os *os, vj_windows_security security,
                             vj_windows_handle *event);
    // One overlapped operation on the host's end, with the caller's event, until it has
    // moved at least one byte. It never returns while the operation is in flight: at the
    // end of its time it cancels it, and what was moved until then counts as success.
    // `*count` is exact: no byte beyond it was moved, so that who goes on behind it sends
    // none twice. ERROR_OPERATION_ABORTED: canceled. ERROR_BROKEN_PIPE: the other end is
    // closed and, for a reader, all was read.
    uint32_t (*pipe_read)(const vj_windows_os *os, vj_windows_handle pipe,
                          vj_windows_handle event, void *bytes, uint32_t size,
                          uint32_t timeout_ms, uint32_t *count);
    uint32_t (*pipe_write)(const vj_windows_os *os, vj_windows_handle pipe,
                           vj_windows_handle event, const void *bytes, uint32_t size,
                           uint32_t timeout_ms, uint32_t *count);
    // CancelIoEx for all that is in flight. Success also when nothing is.
    uint32_t (*pipe_cancel)(const vj_windows_os *os, vj_windows_handle pipe);

    // ---- pseudo consoles
    uint32_t (*console_create)(const vj_windows_os *os, uint16_t columns, uint16_t rows,
                               vj_windows_handle input, vj_windows_handle output,
                               vj_windows_console *console);
    uint32_t (*console_resize)(const vj_windows_os *os, vj_windows_console console,
                               uint16_t columns, uint16_t rows);
    // ClosePseudoConsole: before Windows 11 24H2 it does not return until its clients are
    // gone and all output was read. Runs in a thread of its own, once per console.
    void (*console_close)(const vj_windows_os *os, vj_windows_console console);

    // ---- threads of the host
    uint32_t (*thread_start)(const vj_windows_os *os, vj_windows_thread function,
                             void *argument, vj_windows_security security,
                             vj_windows_handle *thread);
    // The handle stays open.
    uint32_t (*thread_wait)(const vj_windows_os *os, vj_windows_handle thread,
                            uint32_t timeout_ms);

    // ---- processes
    uint32_t (*attributes_open)(const vj_windows_os *os, uint32_t count,
                                vj_windows_attributes *attributes);
    uint32_t (*attributes_add)(const vj_windows_os *os, vj_windows_attributes attributes,
                               const vj_windows_attribute *attribute);
    uint32_t (*attributes_close)(const vj_windows_os *os,
                                 vj_windows_attributes attributes);
    // Always CREATE_SUSPENDED, EXTENDED_STARTUPINFO_PRESENT, CREATE_UNICODE_ENVIRONMENT
    // and STARTF_USESTDHANDLES; inherits handles only if `standard` has any. A process
    // that did not get its desktop is in `*started`, suspended, and has to be ended.
    uint32_t (*process_create)(const vj_windows_os *os, const vj_windows_launch *launch,
                               vj_windows_started *started);
    uint32_t (*process_in_job)(const vj_windows_os *os, vj_windows_handle process,
                               vj_windows_handle job, bool *inside);
    uint32_t (*process_token)(const vj_windows_os *os, vj_windows_handle process,
                              vj_windows_token *token);
    uint32_t (*process_created)(const vj_windows_os *os, vj_windows_handle process,
                                uint64_t *created);
    // ResumeThread. `*before` is the count of suspensions that there was: 1.
    uint32_t (*thread_resume)(const vj_windows_os *os, vj_windows_handle thread,
                              uint32_t *before);
    uint32_t (*process_wait)(const vj_windows_os *os, vj_windows_handle process,
                             uint32_t timeout_ms);
    uint32_t (*process_exit_code)(const vj_windows_os *os, vj_windows_handle process,
                                  uint32_t *exit_code);
    // Success also for one that has ended.
    uint32_t (*process_terminate)(const vj_windows_os *os, vj_windows_handle process,
                                  uint32_t exit_code);
};

// The table of this machine (windows_os.c).
const vj_windows_os *vj_windows_os_table(void);

#endif
