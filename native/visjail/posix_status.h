// What each system has its own ways to say of a file.
#ifndef VJ_POSIX_STATUS_H
#define VJ_POSIX_STATUS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

// The number of its device, as Python's os.major and os.minor make it.
uint64_t vj_status_device(const struct stat *status);

// Whether executing a file gives more rights than its mode says (capabilities(7)).
// `directory` may be AT_FDCWD. Where it cannot be found out, vj_status_is_known is false.
bool vj_status_is_privileged(int directory, const char *name);
bool vj_status_is_known(void);

#endif
