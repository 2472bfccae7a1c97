// What of macOS the host's side of Seatbelt calls, made of Linux: so that its own logic
// (starting, waiting, ending, the watcher) runs here with real processes.
//
// It shows nothing of what Seatbelt holds. A process is "in the sandbox" of a marker by a
// limit that children and programs inherit and that others can read (RLIMIT_MSGQUEUE).
#ifndef VJ_TEST_DARWIN_H
#define VJ_TEST_DARWIN_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/sysmacros.h>
#include <time.h>

#define POSIX_SPAWN_CLOEXEC_DEFAULT 0
#define O_EVTONLY                   O_PATH
#define F_GETPATH                   50
#define F_SETNOSIGPIPE              73
#define _PC_CASE_SENSITIVE          11

#define st_mtimespec st_mtim

int darwin_fcntl(int file, int command, ...);
#define fcntl darwin_fcntl

uint64_t clock_gettime_nsec_np(clockid_t clock);
void darwin_random(void *bytes, size_t size);
#define arc4random_buf darwin_random

// Programs do not export what is looked up by its name.
void *darwin_symbol(void *handle, const char *name);
#define dlsym darwin_symbol

// Linux has other names for terminals.
char *darwin_terminal(int file);
#define ttyname darwin_terminal

// The letter of the act that the sandbox of this process does not deny, or 0.
extern char darwin_leaks;

#endif
