// The handles of a private desktop, for the file that makes it and the one that gives it
// to a process. Included by windows_os_*.c alone.
#ifndef VISJAIL_WINDOWS_PRIVATE_DESKTOP_H
#define VISJAIL_WINDOWS_PRIVATE_DESKTOP_H

#include "windows_win32.h"

struct vj_windows_private_desktop {
    HANDLE station; // WINSTA_READATTRIBUTES
    HANDLE desktop;
};

// Without the comparison of its descriptor.
uint32_t vj_win32_desktop_request(const uint16_t *name, const uint16_t *sddl,
                                  vj_windows_security security,
                                  vj_windows_desktop *desktop);
// Create a process without asking whether its attributes make it a jail.
uint32_t vj_win32_process_start(const vj_windows_launch *launch,
                                vj_windows_started *started);
// Put copies into a process that has not run yet, as if it had inherited them.
uint32_t vj_win32_desktop_give(vj_windows_desktop desktop, HANDLE process);

#endif
