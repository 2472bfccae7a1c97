// A table of windows_os.h for tests: no Windows, and every failure that one asks for.
//
// Files are those of a directory of this machine, opened by its own calls, so that what a
// walk does against a race is real. Everything else is made of locks: pipes of 64 KiB,
// programs that are threads, consoles that do not close before they were drained. Every
// call is counted and can be made to fail; every object is counted, and one that is used
// after it was closed, or closed twice, or closed while a call is in it, ends the test.
#ifndef FAKE_WINDOWS_OS_H
#define FAKE_WINDOWS_OS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "windows_os.h"

#define FAKE_PIPE_SIZE   65536u
#define FAKE_FINAL_FRAME 12288u // that a console writes when it is closed
#define FAKE_INJECTED    1450u  // ERROR_NO_SYSTEM_RESOURCES
#define FAKE_USER        "S-1-5-21-1-2-3-1001"
#define FAKE_PID         4242u
#define FAKE_CREATED     133444736000000000ull

// What a table says that is not so.
enum {
    FAKE_NO_CONTAINER = 1 << 0,
    FAKE_NOT_LESS_PRIVILEGED = 1 << 1,
    FAKE_OTHER_PACKAGE = 1 << 2,
    FAKE_MORE_CAPABILITIES = 1 << 3,
    FAKE_OTHER_CAPABILITY = 1 << 4,
    FAKE_NO_CAPABILITY = 1 << 5,
    FAKE_MEDIUM = 1 << 6,
    FAKE_NOT_IN_JOB = 1 << 7,
    FAKE_OTHER_LIMITS = 1 << 8,
    FAKE_BREAKAWAY = 1 << 9,
    FAKE_OUTLIVES = 1 << 10,
    FAKE_OTHER_FLAG = 1 << 11,
    FAKE_RESUMED_BEFORE = 1 << 12,
    FAKE_OTHER_PROFILE = 1 << 13,
    FAKE_OTHER_DESCRIPTOR = 1 << 14,
    FAKE_SAME_RANDOM = 1 << 15,
    FAKE_IN_JOB = 1 << 17,        // the host is in a job
    FAKE_QUICK_CONSOLE = 1 << 16, // as Windows 11 24H2: closes at once
};

// Begin with a fresh table over the files of `directory`, which is C: to it.
void fake_begin(const char *directory);
// End all threads of the table and free everything. What is still open stays counted
// until then: ask fake_left before.
void fake_end(void);

void fake_lie(uint32_t lies);
void fake_lack(uint32_t missing);
void fake_delay(const char *name, uint32_t milliseconds); // in each call of that name

// Let the call of that number (from 1) fail, or each of that name; 0 and NULL: none.
void fake_fail(uint64_t number, uint32_t code);
void fake_fail_named(const char *name, uint32_t code);
// Every call from that number on, but those that close handles; 0: none.
void fake_fail_from(uint64_t number, uint32_t code);
uint64_t fake_calls(void); // since the last fake_forget
void fake_forget(void);
const char *fake_call(uint64_t number); // its name
uint64_t fake_count(const char *name);

// What exists: handles, descriptors, listings, lists, consoles, desktops, profiles, live
// programs. 0: nothing is left. Their kinds go to standard error when `tell` is set.
unsigned fake_left(bool tell);
unsigned fake_running(void); // programs that were resumed and have not ended
bool fake_ran(void);         // was any guest ever resumed?

// The last launch.
typedef struct {
    uint16_t application[256];
    uint16_t command_line[1024];
    uint16_t environment[4096];
    size_t environment_units;
    uint16_t directory[256];
    uint32_t attributes; // bits of vj_windows_attribute_kind
    uint16_t package[VJ_WINDOWS_SID_MAX];
    uint16_t capabilities[4][VJ_WINDOWS_SID_MAX];
    uint32_t capability_count;
    uint32_t handle_count;
    bool distinct; // handles of the list are, and they are the standard ones
    bool has_standard;
    vj_windows_handle beside[2]; // of the list, after the standard ones
    bool has_desktop;
    uint16_t desktop_sddl[1024];
} fake_launch;
const fake_launch *fake_last_launch(void);

// How many descriptors there are of what does not lie below that folder of C:.
unsigned fake_descriptors_outside(const char *folder);
// A directory below C: that a guest has made so, until it was reclaimed: nobody looks
// into it; nobody deletes what is in it; and not even its owner may give it other rights.
enum {
    FAKE_LOCK_LIST = 1 << 0,
    FAKE_LOCK_ENTRIES = 1 << 1,
    FAKE_LOCK_OWNER = 1 << 2,
};
void fake_lock(const char *path, uint32_t how);
// Something that another program does at the call of that number; 0: nothing.
void fake_act(uint64_t number, void (*act)(void));
// Has the library that open? For such an act, in which the lock is held.
bool fake_is_held(const char *path);
// As if it had been made with this descriptor.
void fake_describe(const char *path, const char *sddl);
// So many removals are refused with this code, as of a file that is still mapped or open.
void fake_busy(uint32_t times, uint32_t code);
// The size that a console was given last.
void fake_console_size(uint16_t *columns, uint16_t *rows);
// What a guest does with its end: as much as fits, or is there; 0 also without the other
// end.
size_t fake_client_write(vj_windows_handle client, const void *bytes, size_t size);
size_t fake_client_read(vj_windows_handle client, void *bytes, size_t size);
// Somebody else has made a pipe of the next name.
void fake_squat(bool squat);
// Another process, for what crashed hosts have left; 0: none.
void fake_owner(uint32_t pid, uint64_t created);
// The descriptor with which a path below C: was made, or NULL.
const char *fake_descriptor(const char *path);
bool fake_has_profile(const char *name);

// ---- between the files of the table

typedef enum {
    FAKE_FILE = 1,
    FAKE_SECURITY,
    FAKE_LISTING,
    FAKE_JOB,
    FAKE_PORT,
    FAKE_EVENT,
    FAKE_SERVER,
    FAKE_CLIENT,
    FAKE_THREAD,
    FAKE_PROCESS,
    FAKE_PROCESS_THREAD,
    FAKE_ATTRIBUTES,
    FAKE_CONSOLE,
    FAKE_DESKTOP,
    FAKE_KINDS,
} fake_kind;

typedef struct fake_pipe fake_pipe;
struct fake_pipe {
    uint8_t bytes[FAKE_PIPE_SIZE];
    size_t at;
    size_t used;
    int readers;
    int writers;
    bool to_guest;
    bool connected;
    uint16_t name[64];
};

typedef struct fake_object fake_object;

typedef struct fake_program fake_program;
struct fake_program {
    fake_program *next;
    fake_object *job;
    fake_object *console;
    fake_pipe *standard[3];
    fake_pipe *beside[2]; // what it reads, and what it writes
    pthread_t thread;
    bool started;
    bool joined;
    bool killed;
    bool ended;
    uint32_t exit_code;
    char script[256];
    uint16_t package[VJ_WINDOWS_SID_MAX];
    uint16_t capability[VJ_WINDOWS_SID_MAX];
    bool less_privileged;
    bool container;
};

struct fake_object {
    fake_object *next;
    fake_kind kind;
    bool closed;
    int inside; // calls that use it
    int file;
    void *directory; // DIR
    char text[2048]; // path or descriptor
    fake_pipe *pipe;
    uint64_t canceled; // how often
    bool alone;
    vj_windows_job_limits limits;
    bool limited;
    bool killed; // of a job: nothing may start in it
    uint32_t ever;
    fake_program *program;
    pthread_t thread;
    vj_windows_thread function;
    void *argument;
    bool done;
    bool joined;
    uint32_t wanted; // of attributes
    uint32_t added;
    uint32_t kinds;
    fake_object *job;
    fake_object *console;
    fake_object *handles[8];
    uint32_t handle_count;
    uint16_t package[VJ_WINDOWS_SID_MAX];
    uint16_t capabilities[4][VJ_WINDOWS_SID_MAX];
    uint32_t capability_count;
    fake_pipe *input; // of a console
    fake_pipe *output;
    bool closing;
    uint16_t columns;
    uint16_t rows;
};

typedef struct {
    char path[1024];
    uint32_t how;
} fake_locked;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char root[1024];
    uint32_t lies;
    uint32_t missing;
    bool squat;
    bool ran;
    uint64_t random;
    uint64_t calls;
    uint64_t fail_number;
    uint64_t fail_from;
    uint32_t fail_code;
    const char *fail_name;
    const char *delay_name;
    uint32_t delay_ms;
    const char **log;
    size_t log_room;
    fake_object *objects;
    fake_program *programs;
    fake_pipe *pipes[4096];
    size_t pipe_count;
    char profiles[64][128];
    char *made[4096][2]; // paths and their descriptors
    size_t made_count;
    fake_locked locked[8];
    uint64_t act_number;
    void (*act)(void);
    uint32_t busy;
    uint32_t busy_code;
    uint32_t other_pid;
    uint64_t other_created;
    fake_launch launch;
    uint16_t columns;
    uint16_t rows;
} fake_machine;

extern fake_machine *fake;

void fake_die(const char *what);
// Count a call; its error, if it is to fail. The lock is held after FAKE_CALL.
uint32_t fake_enter(const char *name);
void fake_wait(uint32_t milliseconds); // for a change, with the lock held
void fake_changed(void);
fake_object *fake_new(fake_kind kind);
// The object behind a handle of the table; dies unless it is open and of that kind.
fake_object *fake_of(const void *handle, fake_kind kind);
void fake_utf8(const uint16_t *text, char *to, size_t room);
void fake_utf16(const char *text, uint16_t *to, size_t room);
uint64_t fake_now(void);
void fake_forget_descriptors(void);
void fake_fill_machine(vj_windows_os *os);
void fake_fill_files(vj_windows_os *os);
void fake_fill_streams(vj_windows_os *os);
void fake_fill_guests(vj_windows_os *os);
void fake_end_program(fake_program *program, uint32_t exit_code);
void fake_kill_job(fake_object *job, uint32_t exit_code);
// Point 31: nothing is made with the default descriptor of the host's token.
void fake_must_be_secure(vj_windows_security security);
uint32_t fake_take(fake_pipe *from, uint8_t *bytes, uint32_t size);
uint32_t fake_put(fake_pipe *to, const uint8_t *bytes, uint32_t size);
void fake_close_pipe_end(fake_object *object);

#define FAKE_CALL()                                                                      \
    do {                                                                                 \
        uint32_t injected = fake_enter(__func__);                                        \
        if (injected) {                                                                  \
            pthread_mutex_unlock(&fake->lock);                                           \
            return injected;                                                             \
        }                                                                                \
    } while (0)

static inline uint32_t fake_leave(uint32_t code) {
    pthread_mutex_unlock(&fake->lock);
    return code;
}

#endif
