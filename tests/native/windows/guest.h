// The guest of the probes on Windows: one act for each run, and its error code as the
// exit code.
//
// An act that succeeds exits with 0, one that is refused with the Win32 error (of
// sockets: the Winsock error). What has more to say prints lines in UTF-8. Nothing here
// knows of jails: the same act is run outside as the control.
#ifndef WINDOWS_GUEST_H
#define WINDOWS_GUEST_H

#include <winsock2.h>

#include <windows.h>

enum {
    GUEST_WRONG_USAGE = 9001, // no Win32 error
    GUEST_NOTHING = 9002,     // it had no error, and no result either
};

typedef struct {
    int count; // behind the name of the act
    wchar_t **words;
} guest_words;

typedef DWORD (*guest_act)(guest_words words);

typedef struct {
    const wchar_t *name;
    int words; // at least so many
    guest_act act;
} guest_entry;

// One line on the standard output, in UTF-8.
void guest_say(const wchar_t *format, ...);
// The command line of this program with `words` behind it; the caller frees it.
wchar_t *guest_command(const wchar_t *words);
void guest_path(wchar_t path[MAX_PATH]);
// What a call that returned false has to say, and never 0.
DWORD guest_error(void);

// The acts of each file, up to one without a name.
extern const guest_entry guest_files[];
extern const guest_entry guest_processes[];
extern const guest_entry guest_system[];
extern const guest_entry guest_network[];
extern const guest_entry guest_streams[];

#endif
