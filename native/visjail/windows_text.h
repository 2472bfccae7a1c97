// Text as Windows takes it: UTF-16 from UTF-8 and back, a command line from arguments, an
// environment block from variables. Pure, and the same on each platform: no windows.h.
//
// Nothing is repaired. What Windows could read in another way than it was meant (half a
// surrogate pair, a NUL inside, two names that differ in case only) is refused, and the
// fault says which.
#ifndef VJ_WINDOWS_TEXT_H
#define VJ_WINDOWS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The longest command line of CreateProcessW, its NUL included (its documentation).
#define VJ_WINDOWS_COMMAND_UNITS_MAX 32767u
// The longest variable, name and value together (documentation of environment variables).
#define VJ_WINDOWS_VARIABLE_UNITS_MAX 32767u
#define VJ_WINDOWS_VARIABLES_MAX      1024u
// Windows has no limit for a block in UTF-16; this is ours.
#define VJ_WINDOWS_ENVIRONMENT_UNITS_MAX (256u << 10)

typedef enum {
    VJ_WINDOWS_FINE = 0,
    VJ_WINDOWS_NOT_UTF8,
    VJ_WINDOWS_SURROGATE,       // half a pair of UTF-16, or one spelled in UTF-8
    VJ_WINDOWS_NUL,             // a NUL inside, or not as many texts as were announced
    VJ_WINDOWS_TOO_LONG,        // does not fit into the room, or a bound of Windows
    VJ_WINDOWS_EMPTY,           // nothing where something is needed
    VJ_WINDOWS_QUOTE,           // a '"' in the name of the program
    VJ_WINDOWS_NO_VALUE,        // a variable without '=' behind its name
    VJ_WINDOWS_DUPLICATE,       // two names that differ at most in case
    VJ_WINDOWS_TOO_MANY,        // more variables, or deeper folders, than the bound
    VJ_WINDOWS_MISSING,         // a variable that every program needs
    VJ_WINDOWS_OUTSIDE,         // a folder variable that leads out of the workspace
    VJ_WINDOWS_DOTS,            // a name "." or ".."
    VJ_WINDOWS_NOT_RELATIVE,    // begins at a root or a drive
    VJ_WINDOWS_NOT_ABSOLUTE,    // does not begin at a drive
    VJ_WINDOWS_FOREIGN_ROOT,    // a share, or the namespace of devices
    VJ_WINDOWS_CHARACTER,       // one that no name may hold
    VJ_WINDOWS_STREAM,          // a ':', which names an alternate stream
    VJ_WINDOWS_TRAILING,        // a dot or space at the end, which Windows drops
    VJ_WINDOWS_DEVICE,          // the reserved name of a device
    VJ_WINDOWS_SHORT_NAME,      // looks like the 8.3 spelling of another name
    VJ_WINDOWS_NOT_EXECUTABLE,  // no .exe or .com: a batch file, say
    VJ_WINDOWS_SOCKET_TOO_LONG, // a socket's path would not fit into sun_path
    VJ_WINDOWS_NOT_A_SID,       // no security identifier
    VJ_WINDOWS_FAULT_END,
} vj_windows_fault;

// A sentence for people, never NULL.
const char *vj_windows_fault_text(vj_windows_fault fault);

// `count` texts in UTF-8, one behind the other, each ended by NUL.
typedef struct {
    const char *at;
    size_t size;
    uint32_t count;
} vj_windows_strings;

// What is wrong with `length` bytes as UTF-8, and how many units they have in UTF-16.
vj_windows_fault vj_windows_measure(const char *text, size_t length, size_t *units);

// `length` bytes in UTF-8 as UTF-16, ended by NUL. `room` counts units, the NUL included;
// `*written` does not include it. On a fault `to` is empty.
vj_windows_fault vj_windows_utf16(const char *text, size_t length, uint16_t *to,
                                  size_t room, size_t *written);
// The way back; `room` counts bytes.
vj_windows_fault vj_windows_utf8(const uint16_t *text, size_t length, char *to,
                                 size_t room, size_t *written);

// The unit by which Windows compares names without case: its simple upper case. A little
// coarser than the table of NTFS, so that names may clash here which do not there.
uint16_t vj_windows_fold(uint16_t unit);

// The units of valid UTF-8, one by one.
typedef struct {
    const char *at;
    const char *end;
    uint16_t low; // second half of a pair that has begun, or 0
} vj_windows_units;

vj_windows_units vj_windows_units_of(const char *text, size_t length);
// False at the end, and at a byte that is no UTF-8.
bool vj_windows_next_unit(vj_windows_units *units, uint16_t *unit);
// Below, at or above 0, as Windows orders names: folded, unit by unit.
int vj_windows_compare(const char *left, size_t left_length, const char *right,
                       size_t right_length);

// One command line out of which the C runtime and CommandLineToArgvW read exactly
// `arguments` again. `*index` is the argument of a fault.
vj_windows_fault vj_windows_command_line(const vj_windows_strings *arguments,
                                         uint16_t *to, size_t room, size_t *written,
                                         uint32_t *index);

// The block of `entries` (NAME=VALUE): sorted as Windows sorts them, ended by two NULs,
// which `*written` includes. It stands alone, since nothing is inherited: SystemRoot,
// LOCALAPPDATA, TEMP and TMP must be there, and a variable that names a folder of the
// user must lead into `workspace`, an absolute path. `*index` is the entry of a fault.
vj_windows_fault vj_windows_environment(const vj_windows_strings *entries,
                                        const char *workspace, uint16_t *to, size_t room,
                                        size_t *written, uint32_t *index);

#endif
