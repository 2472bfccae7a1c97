// Who a jail on Windows is: its package, its capability, and the security descriptors of
// what is made for it. Pure.
#ifndef VJ_WINDOWS_IDENTITY_H
#define VJ_WINDOWS_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "windows_text.h"

#define VJ_WINDOWS_SID_SIZE 184u // the longest identifier as text, and its NUL
// Longest name that CreateAppContainerProfile takes.
#define VJ_WINDOWS_PACKAGE_UNITS_MAX 64u
#define VJ_WINDOWS_PACKAGE_PREFIX    "visruntime."
// Enough for the longest descriptor of this file with the longest identifiers.
#define VJ_WINDOWS_SDDL_SIZE 1024u

// Names a package that nobody else has, from the name of its root folder.
vj_windows_fault vj_windows_package_name(const char *root_name, char *name, size_t size);

// The identifier of a package: what DeriveAppContainerSidFromAppContainerName gives.
vj_windows_fault vj_windows_package_sid(const char *name, char sid[VJ_WINDOWS_SID_SIZE]);

// The identifier of a capability: the second of DeriveCapabilitySidsFromName, which
// tokens hold.
vj_windows_fault vj_windows_capability_sid(const char *name,
                                           char sid[VJ_WINDOWS_SID_SIZE]);

// Every capability that a guest gets. There is one, and no way to ask for another: it
// lets programs start others, and holds no network. Returns how many.
size_t vj_windows_capabilities(const char *const **names);

// What a descriptor is for.
typedef enum {
    VJ_WINDOWS_ROOT, // the jail's folder: the guest goes through it, and sees nothing
    VJ_WINDOWS_APP,  // what was staged: the guest reads and executes
    VJ_WINDOWS_WORK, // `work` and `temp`: the guest makes, changes and removes
    // 0x81 (DESKTOP_READOBJECTS and WRITEOBJECTS): programs that load USER32 start.
    // Without DESKTOP_CREATEWINDOW (0x2) a guest makes no window there.
    VJ_WINDOWS_DESKTOP,
    VJ_WINDOWS_PROGRAM, // a process and its thread: others of the guest's may open them
    VJ_WINDOWS_PRIVATE, // pipes, jobs, events: of the host alone; guests inherit handles
    // A guest's folder that is being removed. With the rights of a file by number:
    // generic ones are mapped when an object is made, and not said to be when it gets
    // others.
    VJ_WINDOWS_RECLAIMED,
    VJ_WINDOWS_OBJECT_END,
} vj_windows_object;

// The whole descriptor in SDDL, protected against what a parent would hand down. `owner`
// is the host's user, `package` the guest's package.
vj_windows_fault vj_windows_sddl(vj_windows_object object, const char *owner,
                                 const char *package, char *sddl, size_t size);

#endif
