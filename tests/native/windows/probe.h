// Probes of WindowsJail: a host of the public interface, which lets a guest try one act
// after another, and each of them outside of a jail as well.
//
// The same program is made twice: with visjail.dll, for Windows itself, and for the wine
// lane with the objects of the library and another table (lane_table.c). Each probe says
// its name and "ok", or what was not as it has to be.
#ifndef WINDOWS_PROBE_H
#define WINDOWS_PROBE_H

#include "check.h"
#include "windows_jail.h"

enum {
    PROBE_TEXT = 1024,
    PROBE_WORDS = 8,
    PROBE_OUTPUT = 64 * 1024,
    PROBE_MS = 20000, // the watchdog of each guest
};

typedef struct {
    char folder[PROBE_TEXT]; // an empty one, for this run
    char guest[PROBE_TEXT];  // windows_guest.exe, beside this program
    char system[PROBE_TEXT]; // the directory of Windows
    wchar_t wide_folder[PROBE_TEXT];
    wchar_t wide_guest[PROBE_TEXT];
} probe_host;

// A context, sealed, with the guest in it.
typedef struct {
    const probe_host *probe;
    vj_windows_id context;
    vj_windows_context_info info;
    char guest[2 * PROBE_TEXT];
    char output[PROBE_OUTPUT]; // of the last act, ended by NUL
} probe_jail;

typedef struct {
    const char *name;
    void (*run)(const probe_host *probe);
} probe_entry;

extern const probe_entry probe_starts[];
extern const probe_entry probe_files[];
extern const probe_entry probe_streams[];
extern const probe_entry probe_machine[];
extern const probe_entry probe_python[];
extern const probe_entry probe_ends[];

#define PROBE_WORD(...) ((const char *const[PROBE_WORDS]){__VA_ARGS__})

probe_jail *probe_open(const probe_host *probe);
void probe_close(probe_jail *jail);
vj_windows_text probe_text(const char *text);
// Start the guest in the jail; `change` may set what is not usual.
vj_windows_spawn_info probe_spawn(probe_jail *jail, const char *const words[PROBE_WORDS],
                                  const vj_windows_spawn_request *change);
// One act in the jail, to its end: its exit code, and its output.
uint32_t probe_inside(probe_jail *jail, const char *const words[PROBE_WORDS]);
// The same act without a jail.
uint32_t probe_outside(const probe_host *probe, const char *const words[PROBE_WORDS]);
// The act works outside, and is refused inside with exactly this code.
#define PROBE_DENIED(jail, code, ...)                                                    \
    do {                                                                                 \
        DONE(probe_outside((jail)->probe, PROBE_WORD(__VA_ARGS__)));                     \
        EQUAL(probe_inside((jail), PROBE_WORD(__VA_ARGS__)), (code));                    \
    } while (0)
#define PROBE_ALLOWED(jail, ...) DONE(probe_inside((jail), PROBE_WORD(__VA_ARGS__)))
// Whether a line of the last act's output is exactly that.
bool probe_said(const probe_jail *jail, const char *line);
// `format` with one text in it; of the program's own memory, for as long as it runs.
char *probe_format(const char *format, const char *text);
void probe_write_file(const char *path, const char *text);
bool probe_exists(const char *path);
vj_windows_error probe_error(void);
// Ends the program unless the call succeeded, and says what it has said.
void probe_held(vj_windows_status status, const vj_windows_error *error,
                const char *what);

#endif
