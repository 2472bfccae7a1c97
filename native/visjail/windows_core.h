// What the files of WindowsJail share; hosts see windows_jail.h alone.
//
// A context owns everything by slots: a handle that is held, a flag for what was made.
// Whatever fails, the same way back is taken (windows_close.c): each step releases what
// its slot holds and empties it, so that it can be taken again after it has failed
// itself. The context is then poisoned, and the next vj_windows_close goes on from there.
#ifndef VISJAIL_WINDOWS_CORE_H
#define VISJAIL_WINDOWS_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "identifiers.h"
#include "streams.h"
#include "windows_identity.h"
#include "windows_jail.h"
#include "windows_names.h"
#include "windows_os.h"
#include "windows_text.h"

enum {
    VJ_WINDOWS_CONTEXT_KIND = 1,
    VJ_WINDOWS_PROCESS_KIND,
    VJ_WINDOWS_STREAM_KIND,
};

// Bounds of what is waited for, in milliseconds.
#define VJ_WINDOWS_END_MS     20000u // until a job is empty, or a console is closed
#define VJ_WINDOWS_BARRIER_MS 20000u // until canceled calls have returned
#define VJ_WINDOWS_SLICE_MS   50u
// What a program that was ended leaves as its exit code.
#define VJ_WINDOWS_KILLED_CODE 1u

// Room for a root, which is short for its sockets' sake, and for a path below it.
#define VJ_WINDOWS_PIPES 5u // the standard ones, and one for each direction beside

#define VJ_WINDOWS_ROOT_SIZE    128u
#define VJ_WINDOWS_PLACE_SIZE   1024u
#define VJ_WINDOWS_PACKAGE_SIZE (VJ_WINDOWS_PACKAGE_UNITS_MAX + 1)

// The directories of a context, in the order in which they are made.
typedef enum {
    VJ_WINDOWS_PLACE_ROOT = 0,
    VJ_WINDOWS_PLACE_APP,
    VJ_WINDOWS_PLACE_WORK,
    VJ_WINDOWS_PLACE_TEMP,
    VJ_WINDOWS_PLACES,
} vj_windows_place;

typedef struct vj_windows_process vj_windows_process;

// What calls could not finish, of the one that is alone: handles that were needed for its
// length only, and did not let themselves be closed at its end, with which the way back
// begins; and where a removal has stopped, for people. Empty: nowhere, or not known.
typedef struct {
    vj_windows_handle *handles;
    size_t count;
    size_t room;
    char obstacle[VJ_WINDOWS_PLACE_SIZE];
} vj_windows_remains;

typedef struct {
    vj_identified identified;
    vj_streams streams; // with the monitor that guards what follows
    const vj_windows_os *os;

    vj_windows_context_state state;
    bool closed;         // whole: nothing is left
    uint32_t operations; // calls that are at work in it
    bool alone;          // one of them changes what is staged
    vj_windows_process *processes;

    uint32_t flags;
    vj_windows_features features;
    char owner[VJ_WINDOWS_SID_SIZE];
    char system_root[VJ_WINDOWS_PLACE_SIZE];
    char package[VJ_WINDOWS_PACKAGE_SIZE];
    char package_sid[VJ_WINDOWS_SID_SIZE];
    char capability_sid[VJ_WINDOWS_SID_SIZE];
    char root[VJ_WINDOWS_ROOT_SIZE];

    // Slots, in the order in which they are filled.
    vj_windows_security security[VJ_WINDOWS_OBJECT_END];
    vj_windows_handle parent; // held, so that no part of its path is renamed
    bool made[VJ_WINDOWS_PLACES];
    vj_windows_handle places[VJ_WINDOWS_PLACES];
    bool has_marker;
    vj_windows_handle marker;
    bool has_profile;
    vj_windows_desktop desktop;
    vj_windows_remains remains;

    // What was staged, relative to `app`, for names that clash.
    char **staged;
    size_t staged_count;
    size_t staged_capacity;
} vj_windows_context;

typedef enum {
    VJ_WINDOWS_CLOSER_NONE = 0,
    VJ_WINDOWS_CLOSER_STARTING, // by one thread: nobody starts a second one
    VJ_WINDOWS_CLOSER_STARTED,
    VJ_WINDOWS_CLOSER_GONE, // it has returned, and the console with it
} vj_windows_closer;

struct vj_windows_process {
    vj_identified identified;
    vj_windows_context *context; // with a reference
    vj_windows_process *next;
    uint32_t users; // calls that need its handles
    bool ending;    // one thread takes it apart
    bool gone;      // that is done
    bool tried;     // by the close that is at work
    bool reaping;   // one thread ends what the program has left
    bool ended;     // `result` is whole
    bool killed;
    bool in_job; // the process is known to be
    bool empty;  // the job was seen without a process, after its end
    vj_windows_exit result;

    vj_windows_handle job;
    vj_windows_handle port;
    vj_windows_handle process;
    vj_windows_handle thread;
    // The guest's ends, until it has them.
    vj_windows_handle guest_ends[VJ_WINDOWS_PIPES];
    // The host's ends, until there is a stream that has them.
    vj_windows_handle host_ends[VJ_WINDOWS_PIPES];
    vj_windows_handle events[VJ_WINDOWS_PIPES];
    vj_windows_attributes attributes;

    vj_windows_console console;
    uint32_t console_users; // that resize it
    vj_windows_closer closer;
    vj_windows_handle closer_thread;
    vj_stream_rest rest;
};

// ---- windows_core.c

// The numbers of this process: they are never given out again, so there is one table.
vj_identifiers *vj_windows_numbers(void);

vj_windows_status vj_windows_fail(vj_windows_error *error, vj_windows_status status,
                                  const char *step, uint32_t os_error, const char *text);
vj_windows_status vj_windows_fail_os(vj_windows_error *error, const char *step,
                                     uint32_t os_error);
vj_windows_status vj_windows_fail_text(vj_windows_error *error, const char *step,
                                       vj_windows_fault fault);
// Error record and structure are of a kind that is known here; the record is cleared.
vj_windows_status vj_windows_check(const void *structure, size_t size,
                                   vj_windows_error *error);
// A text of a request as one that ends with NUL. Refused: too long, or with a NUL inside.
vj_windows_status vj_windows_take_text(const vj_windows_text *text, char *to, size_t room,
                                       const char *step, vj_windows_error *error);

vj_windows_status vj_windows_context_find(vj_windows_id id, vj_windows_context **context,
                                          vj_windows_error *error);
vj_windows_status vj_windows_process_find(vj_windows_id id, vj_windows_process **process,
                                          vj_windows_error *error);
void vj_windows_context_drop(vj_windows_context *context);
void vj_windows_process_drop(vj_windows_process *process);

// Begin an operation that needs the state, and end it. Those that are to be alone wait
// for each other. `failed` has left something behind.
vj_windows_status vj_windows_operation_begin(vj_windows_context *context,
                                             vj_windows_context_state state, bool alone,
                                             vj_windows_error *error);
void vj_windows_operation_end(vj_windows_context *context, bool alone, bool failed);
// Does the context stay as it is? Long work asks this now and then.
bool vj_windows_goes_on(vj_windows_context *context);
void vj_windows_poison(vj_windows_context *context);

// Close what is needed for the length of a call only. It is tried twice; one that is
// still open then goes to the remains (NULL: nobody has any). The first error is
// returned.
uint32_t vj_windows_handle_done(const vj_windows_os *os, vj_windows_handle *slot,
                                vj_windows_remains *remains);
void vj_windows_listing_done(const vj_windows_os *os, vj_windows_listing *slot);
// Close what remained. Anything but 0: not all.
uint32_t vj_windows_remains_close(const vj_windows_os *os, vj_windows_remains *remains);

// A path of a context in UTF-16: "<root>", "<root>\<name>", "<root>\<name>\<rest>". The
// rest may have '/' between its names. False: it does not fit.
bool vj_windows_path(const vj_windows_context *context, const char *name,
                     const char *rest, uint16_t *to, size_t room);
const char *vj_windows_place_name(vj_windows_place place);

// ---- windows_context.c

vj_windows_status vj_windows_describe(const vj_windows_os *os, vj_windows_object object,
                                      const char *owner, const char *package,
                                      vj_windows_security *security,
                                      vj_windows_error *error);
// The SID of this user.
vj_windows_status vj_windows_learn_user(const vj_windows_os *os,
                                        char owner[VJ_WINDOWS_SID_SIZE],
                                        vj_windows_error *error);

// ---- windows_close.c

// Release what the slots hold, in the right order. Anything but VJ_WINDOWS_OK: not all.
vj_windows_status vj_windows_context_undo(vj_windows_context *context,
                                          vj_windows_error *error);

// ---- windows_process.c

// In the list of its context, which holds a reference; the caller gets another one.
vj_windows_process *vj_windows_process_new(vj_windows_context *context);
// Let the caller use its handles, and stop doing so. VJ_WINDOWS_STALE: it is taken apart.
vj_windows_status vj_windows_process_use(vj_windows_process *process,
                                         vj_windows_error *error);
void vj_windows_process_leave(vj_windows_process *process);
// If that program of the context has ended, do what a wait for it would.
void vj_windows_process_look(vj_windows_context *context, const void *process);
// End the process, its descendants and its streams, and release its handles.
vj_windows_status vj_windows_process_undo(vj_windows_process *process,
                                          vj_windows_error *error);

// ---- windows_console.c

bool vj_windows_is_size(uint16_t columns, uint16_t rows);

// Start the thread that closes the console, unless there is one.
vj_windows_status vj_windows_console_begin_close(vj_windows_process *process,
                                                 vj_windows_error *error);
// Drain what nobody reads until that thread has returned.
vj_windows_status vj_windows_console_finish(vj_windows_process *process,
                                            vj_windows_error *error);

// ---- windows_remove.c

// Delete the entry `name` of the open directory `parent` with all that is in it, whatever
// guests have made there. A directory that does not let this user work in it gets the
// descriptor first; `parent` itself never does.
uint32_t vj_windows_remove_tree(const vj_windows_os *os, vj_windows_handle parent,
                                const uint16_t *name, vj_windows_security security,
                                vj_windows_remains *remains);

// ---- windows_marker.c

// What a context says of itself in its root, for when its host is gone.
typedef struct {
    char nonce[VJ_WINDOWS_ROOT_NAME_SIZE]; // the name of its root
    char package[VJ_WINDOWS_PACKAGE_SIZE];
    uint32_t pid;
    uint64_t created; // of that process
    uint32_t flags;
} vj_windows_marker;

#define VJ_WINDOWS_MARKER_NAME "context.visjail"
#define VJ_WINDOWS_MARKER_SIZE 512u

size_t vj_windows_marker_write(const vj_windows_marker *marker, char *to, size_t room);
bool vj_windows_marker_read(const char *text, size_t size, vj_windows_marker *marker);

#endif
