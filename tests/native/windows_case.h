// What the tests of WindowsJail share: a directory with sources, and short ways to call.
#ifndef WINDOWS_CASE_H
#define WINDOWS_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "fake_windows_os.h"
#include "windows_jail.h"

#define LONG 20000 // milliseconds: a bound, not a wait

// A fresh machine whose C: has `jails` and `sources` with some files.
void case_begin(void);
// Nothing may be left of any jail.
void case_end(void);

void check(bool condition, const char *what);
// For more to say: what was expected, and what the error says.
void check_status(vj_windows_status is, vj_windows_status wanted, const char *what);

vj_windows_error *case_error(void); // of this thread, empty
vj_windows_text text_of(const char *text);
// The path on this machine of something on C:.
const char *case_path(const char *below);
void case_write(const char *below, const char *content);
char *case_read(const char *below, char *to, size_t room);
bool case_exists(const char *below);
// The files and directories below `jails`.
unsigned case_files(void);

vj_windows_status create(vj_windows_id *context, vj_windows_context_info *info,
                         uint32_t flags);
vj_windows_status stage(vj_windows_id context, const char *source,
                        const char *destination);
// The guest of fake_windows_guests.c with this script.
vj_windows_status spawn(vj_windows_id context, const char *script, uint32_t flags,
                        vj_windows_spawn_info *info);
vj_windows_id sealed_context(uint32_t flags);
void close_context(vj_windows_id context);
// What lies in the root of a context, for case_path.
const char *below_jails(const vj_windows_context_info *info, const char *name);

#endif
