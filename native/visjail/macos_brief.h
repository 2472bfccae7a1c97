// What visjail-macos-init is told and what it answers. Pure.
//
// The host writes one brief into a pipe and closes it: numbers in native order, then
// strings, each ended by NUL, in the order of vj_brief_view. The helper reads all of it
// before it does anything. On the other pipe comes one record of the stage VJ_STAGE_NONE
// right before the program is executed, which closes the pipe, and one of another stage
// when something failed. A pipe that ends without a word is a helper that died.
#ifndef VJ_MACOS_BRIEF_H
#define VJ_MACOS_BRIEF_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"

#define VJ_BRIEF_MAGIC        0x4642564du // "MVBF"
#define VJ_BRIEF_VERSION      3u
#define VJ_BRIEF_MAX          (16u << 20)
#define VJ_BRIEF_STRINGS_MAX  65536u
#define VJ_BRIEF_FAILED_MAGIC 0x4646564du // "MVFF"

// Descriptors of the helper when it starts, behind those of the program; all others are
// closed.
enum { VJ_BRIEF_DESCRIPTORS = 16, VJ_BRIEF_FD = 16, VJ_BRIEF_FD_FAILED = 17 };

enum {
    VJ_BRIEF_TERMINAL = 1u << 0, // descriptor 0 becomes the controlling terminal
    VJ_BRIEF_SEARCH = 1u << 1,   // look the program up in the PATH of the environment
    VJ_BRIEF_HOME = 1u << 2,     // where the directory cannot be entered, HOME is, or "/"
    // No program: arguments are acts, which are tried (macos_try.h).
    VJ_BRIEF_TRY = 1u << 3,
    // No program: `file` is done on the one argument, a path.
    VJ_BRIEF_FILE = 1u << 4,
};
#define VJ_BRIEF_FLAGS 31u

// 0 leaves a limit as it is. Each holds for one process: macOS has none of a tree.
typedef struct {
    uint64_t open_files;
    uint64_t file_size;
    uint64_t cpu_seconds;
} vj_brief_limits;

typedef struct {
    uint32_t magic;
    uint32_t version;
    uint32_t size; // of all, this header included
    uint32_t flags;
    uint32_t parameters; // of the profile, pairs of strings
    uint32_t arguments;
    uint32_t environment;
    int32_t host;  // the process that the helper is a child of
    uint32_t file; // vj_file of run.h
    uint32_t reserved;
    uint64_t limit; // of a file operation, in bytes
    vj_brief_limits limits;
} vj_brief;

// What a brief says, as pointers into it. The lists end with NULL.
typedef struct {
    vj_brief header;
    const char *profile;
    const char *directory; // where the program starts
    const char *canary;    // a file of the host's that it must not be able to open, or ""
    const char *marker;    // by which its processes are found (macos_members.h)
    const char **parameters; // name, value, name, value
    const char **arguments;
    const char **environment;
} vj_brief_view;

// Write a brief. Of `view` the counts, the flags and the limits are taken, and as many
// strings as they say. `*block` is allocated.
vj_status vj_brief_write(const vj_brief_view *view, void **block, uint64_t *size,
                         vj_error *error);

// Read one, checking everything before it is used: sizes, counts, and that each string
// ends inside of it. `*block` must stay as long as the view; give that back by
// vj_brief_release.
vj_status vj_brief_read(const void *block, uint64_t size, vj_brief_view *view,
                        vj_error *error);
void vj_brief_release(vj_brief_view *view);

// What the helper says. A guest never has the pipe, but the host bounds the text all
// the same.
typedef struct {
    uint32_t magic;
    uint32_t stage;
    int32_t os_error;
    uint32_t reserved;
    char text[240];
} vj_brief_failed;

void vj_brief_fail(vj_brief_failed *record, uint32_t stage, int os_error,
                   const char *text);

// The error that a record stands for, VJ_OK for the last one before the program; a record
// that is none is an error, too.
vj_status vj_brief_failure(const vj_brief_failed *record, uint64_t size, vj_error *error);

#endif
