// In place of vj_try (by the linker's --wrap): a sandbox that only marks denies no act,
// so here it is said of each that it is denied, but for the one that leaks.

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "darwin.h"
#include "macos_sandbox.h"
#include "macos_try.h"

int32_t __real_vj_try(const char *act);
int32_t __wrap_vj_try(const char *act);

int32_t __wrap_vj_try(const char *act) {
    bool is_within = sandbox_check(getpid(), NULL, VJ_SANDBOX_FILTER_NONE) == 1;
    // What is made in the jail's own folder is no forbidden act.
    bool is_own = act[0] == 'c' && strstr(act, "/home/made");
    bool is_denied = is_within && !is_own && act[0] != darwin_leaks;
    return is_denied ? EPERM : __real_vj_try(act);
}
