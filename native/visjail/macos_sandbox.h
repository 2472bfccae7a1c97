// Functions of libSystem that no header of the SDK declares, as their users declare them
// (WebKit, Chromium): sandbox_check is what tells a host about a process, the others
// apply a profile to the caller itself.
#ifndef VJ_MACOS_SANDBOX_H
#define VJ_MACOS_SANDBOX_H

#include <stdint.h>
#include <sys/types.h>

enum {
    VJ_SANDBOX_FILTER_NONE = 0,
    VJ_SANDBOX_FILTER_PATH = 1,
    VJ_SANDBOX_FILTER_GLOBAL_NAME = 2,
};

// Or'ed into the kind of a filter: no message in the system's log.
extern const int SANDBOX_CHECK_NO_REPORT;

int sandbox_init_with_parameters(const char *profile, uint64_t flags,
                                 const char *const parameters[], char **error);
void sandbox_free_error(char *error);

// 0: the process may do `operation` (NULL: it is in no sandbox); 1: it may not.
int sandbox_check(pid_t process, const char *operation, int kind, ...);

#endif
