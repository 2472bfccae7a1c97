// Devices of files on macOS, which gives no file capabilities; see posix_status.h.

#include <sys/types.h>

#include "posix_status.h"

uint64_t vj_status_device(const struct stat *status) {
    return (uint64_t)major(status->st_dev) << 32 | (uint64_t)minor(status->st_dev);
}

bool vj_status_is_known(void) {
    return true;
}

bool vj_status_is_privileged(int directory, const char *name) {
    (void)directory;
    (void)name;
    return false;
}
