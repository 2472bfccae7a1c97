// Which names of files a jail on Windows takes, and how long its folders' may be. Pure;
// text is UTF-8.
//
// Win32 changes many names before a file system sees them, and takes some for devices. A
// name that would not come out as it went in is refused, wherever it comes from.
#ifndef VJ_WINDOWS_NAMES_H
#define VJ_WINDOWS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "windows_text.h"

#define VJ_WINDOWS_NAME_UNITS_MAX 255u // of NTFS
// MAX_PATH without its NUL: guests need not know how to ask for more.
#define VJ_WINDOWS_PATH_UNITS_MAX 259u
#define VJ_WINDOWS_DEPTH_MAX      64u
// sun_path of afunix.h, its NUL included.
#define VJ_WINDOWS_SOCKET_BYTES_MAX 108u
// "vj-", 16 digits, NUL.
#define VJ_WINDOWS_ROOT_NAME_SIZE 20u
// The name of a worker's socket in the folder `work`.
#define VJ_WINDOWS_SOCKET_NAME "visruntime.sock"

// What is wrong with one name that would be made in a jail.
vj_windows_fault vj_windows_name_fault(const char *name, size_t length);

// The same for a path relative to the folder `app`, with '/' between names.
// `folder_units` is the length of that folder's own path in UTF-16 units.
vj_windows_fault vj_windows_destination_fault(const char *path, size_t folder_units);

// What is wrong with the path of something on the host: it must begin at a drive, and
// must mean one file however it is read. Short spellings are taken, since Windows itself
// gives them out (of its temporary folder, say); who opens it asks for the final path.
vj_windows_fault vj_windows_source_fault(const char *path);

// The same for a program that is to be started, which must be an .exe or a .com.
vj_windows_fault vj_windows_program_fault(const char *path);

// Whether `path` is `folder` or lies in it by its names alone. Compares without case in
// ASCII only, so that it never takes two names for one that Windows tells apart.
bool vj_windows_is_within(const char *path, const char *folder);

// Sort `paths` (relative, '/' between names) as Windows compares them. Returns the place
// of the first one that clashes with the one in front of it: the same path, or a folder
// of the same name in another spelling. `count` if none does.
size_t vj_windows_find_clash(const char **paths, size_t count);

// The name of a jail's root folder from 64 random bits.
void vj_windows_root_name(const uint8_t random[8], char name[VJ_WINDOWS_ROOT_NAME_SIZE]);

// The bytes of the path of a worker's socket below a root folder in `parent`, its NUL
// included; and whether a root folder can be made there: everything of
// vj_windows_source_fault, and those bytes.
size_t vj_windows_socket_bytes(const char *parent);
vj_windows_fault vj_windows_parent_fault(const char *parent);

#endif
