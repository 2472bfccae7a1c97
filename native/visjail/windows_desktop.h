// How the library and visjail-desktop.exe speak: one record of fixed size in memory that
// both have, one event each way. Nothing but the values of three handles is in the
// command line, and the helper takes no order that is not in the record.
//
// The helper makes the desktop in the window station to which Windows has connected it,
// and answers with two handles of its own. The library takes copies of them and says so;
// then the helper ends. It waits no longer than VJ_DESKTOP_TIMEOUT_MS for that.
#ifndef VISJAIL_WINDOWS_DESKTOP_H
#define VISJAIL_WINDOWS_DESKTOP_H

#include <stdbool.h>
#include <stdint.h>

#define VJ_DESKTOP_HELPER L"visjail-desktop.exe"

enum {
    VJ_DESKTOP_MAGIC = 0x4B534456, // "VDSK"
    VJ_DESKTOP_VERSION = 1,
    VJ_DESKTOP_TIMEOUT_MS = 10000,
    VJ_DESKTOP_NAME_MAX = 64,  // units of UTF-16, with the NUL
    VJ_DESKTOP_SDDL_MAX = 768, // the same
};

typedef struct {
    uint32_t magic;
    uint32_t version;
    uint32_t size;  // of this record
    uint32_t error; // the answer: code of Win32; ERROR_IO_PENDING until there is one
    uint64_t station;
    uint64_t desktop;
    uint16_t name[VJ_DESKTOP_NAME_MAX];
    uint16_t sddl[VJ_DESKTOP_SDDL_MAX];
} vj_desktop_record;

// Is the helper beside this library?
bool vj_win32_desktop_helper_is_there(void);

#endif
