// Tests of the real table, without the code above it: what Win32 does with each call.
//
// One program; each test says its name and "ok", or the file, the line and what was
// wrong.
#ifndef WINDOWS_TABLE_H
#define WINDOWS_TABLE_H

#include "check.h"
#include "windows_private_desktop.h"
#include "windows_win32.h"

typedef struct {
    const vj_windows_os *os;
    wchar_t folder[MAX_PATH]; // an empty one, for this run
    wchar_t guest[MAX_PATH];  // windows_guest.exe, beside this program
    wchar_t system[MAX_PATH]; // the directory of Windows
    vj_windows_security open; // what the user and the system may do everything with
    uint16_t sddl[VJ_WINDOWS_SID_MAX + 64];
} table_test;

typedef struct {
    const char *name;
    void (*run)(table_test *test);
} table_entry;

extern const table_entry table_files[];
extern const table_entry table_processes[];
extern const table_entry table_streams[];

// A guest that was started and is suspended in a job of its own, with pipes.
typedef struct {
    vj_windows_handle job;
    vj_windows_handle port;
    vj_windows_handle input; // the host's ends
    vj_windows_handle output;
    vj_windows_handle event;
    vj_windows_started started;
} table_guest;

void table_path(const table_test *test, const wchar_t *name, wchar_t path[MAX_PATH]);
table_guest table_start(const table_test *test, const wchar_t *words);
// Resume it and wait for it; its exit code.
uint32_t table_finish(const table_test *test, table_guest *guest);
// All that it wrote, with a NUL.
void table_output(const table_test *test, const table_guest *guest, char *bytes,
                  uint32_t capacity);
void table_end(const table_test *test, table_guest *guest);

#endif
