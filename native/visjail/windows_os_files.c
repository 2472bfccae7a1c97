// Files and directories of the table.

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "windows_win32.h"

#include <winternl.h>

enum {
    LISTING_BYTES = 64 * 1024,
    EVERYBODY = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
    // Whatever it is, itself: never what a reparse point leads to.
    AS_IT_IS = FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT,
};

struct vj_windows_entries {
    HANDLE directory; // the caller's
    bool begun;
    const FILE_ID_BOTH_DIR_INFO *next; // in `bytes`, or NULL
    uint64_t bytes[LISTING_BYTES / sizeof(uint64_t)];
};

typedef struct {
    ACCESS_MASK access;
    DWORD share;
} open_rights;

static open_rights rights_of(vj_windows_open_mode mode) {
    switch (mode) {
    case VJ_WINDOWS_OPEN_PIN: return (open_rights){FILE_GENERIC_READ, FILE_SHARE_READ};
    case VJ_WINDOWS_OPEN_HOLD:
        return (open_rights){FILE_GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE};
    case VJ_WINDOWS_OPEN_ALONE: return (open_rights){DELETE | FILE_GENERIC_READ, 0};
    }
    return (open_rights){0, 0};
}

uint32_t vj_win32_directory_create(const vj_windows_os *os, const uint16_t *path,
                                   vj_windows_security security) {
    (void)os;
    wchar_t *whole = vj_win32_path(path);
    if (!whole) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    uint32_t code = CreateDirectoryW(whole, &security->attributes) ? 0 : vj_win32_error();
    free(whole);
    return code;
}

uint32_t vj_win32_file_create(const vj_windows_os *os, const uint16_t *path,
                              vj_windows_security security, vj_windows_handle *file) {
    (void)os;
    *file = NULL;
    wchar_t *whole = vj_win32_path(path);
    if (!whole) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    HANDLE made = CreateFileW(whole, FILE_GENERIC_WRITE, FILE_SHARE_READ,
                              &security->attributes, CREATE_NEW,
                              FILE_ATTRIBUTE_NORMAL | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    uint32_t code = made == INVALID_HANDLE_VALUE ? vj_win32_error() : 0;
    free(whole);
    // CreateFile calls an existing file ERROR_FILE_EXISTS, and a directory by the other
    // name.
    if (code == ERROR_FILE_EXISTS) return VJ_WINDOWS_ERROR_ALREADY_EXISTS;
    if (!code) *file = vj_win32_out(made);
    return code;
}

enum {
    // Options of NtCreateFile (winternl.h of the Windows SDK, ntifs.h).
    DIRECTORY_ONLY = 0x1,          // FILE_DIRECTORY_FILE
    SYNCHRONOUS_NONALERT = 0x20,   // FILE_SYNCHRONOUS_IO_NONALERT
    BACKUP_INTENT = 0x4000,        // FILE_OPEN_FOR_BACKUP_INTENT
    OPEN_REPARSE_POINT = 0x200000, // FILE_OPEN_REPARSE_POINT
};

// What CreateFile cannot do: start from an open directory, and ask for no more rights
// than the caller does. CreateFile adds SYNCHRONIZE and FILE_READ_ATTRIBUTES, the first
// of which a guest can take away from the owner of what it has made. Without
// SYNCHRONOUS_NONALERT a handle needs no right to wait for it (documentation:
// NtCreateFile, "CreateOptions").
// `parent` NULL: an absolute path. Else one component, or none for `parent` itself.
static uint32_t open_native(HANDLE parent, const uint16_t *path, open_rights rights,
                            ULONG options, HANDLE *handle) {
    typedef LONG(NTAPI * create_file)(PHANDLE, ACCESS_MASK, POBJECT_ATTRIBUTES,
                                      PIO_STATUS_BLOCK, PLARGE_INTEGER, ULONG, ULONG,
                                      ULONG, ULONG, PVOID, ULONG);
    enum {
        OPEN_ONLY = 1,      // FILE_OPEN
        IGNORE_CASE = 0x40, // OBJ_CASE_INSENSITIVE
        TEXT_MAX = 0xFFFE,  // bytes of a UNICODE_STRING
    };
    create_file call =
        (create_file)(void (*)(void))vj_win32_late(L"ntdll.dll", "NtCreateFile");
    if (!call) return VJ_WINDOWS_ERROR_NOT_SUPPORTED;
    if (parent && wcschr(path, L'\\')) return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    // Either way a copy: UNICODE_STRING has no const.
    wchar_t *text = vj_win32_path(path);
    if (!text) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    text[1] = L'?'; // The native namespace calls "\\?\" by "\??\".
    wchar_t *name = parent ? text + 4 : text;
    size_t bytes = wcslen(name) * sizeof *name;
    uint32_t code = VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    if (bytes <= TEXT_MAX) {
        UNICODE_STRING whole = {(USHORT)bytes, (USHORT)bytes, name};
        OBJECT_ATTRIBUTES attributes = {.Length = sizeof attributes,
                                        .RootDirectory = parent,
                                        .ObjectName = &whole,
                                        .Attributes = IGNORE_CASE};
        IO_STATUS_BLOCK block = {0};
        code = vj_win32_of_status(
            call(handle, rights.access, &attributes, &block, NULL, 0, rights.share,
                 OPEN_ONLY, options | BACKUP_INTENT | OPEN_REPARSE_POINT, NULL, 0));
    }
    free(text);
    return code;
}

uint32_t vj_win32_open(const vj_windows_os *os, vj_windows_handle parent,
                       const uint16_t *path, vj_windows_open_mode mode,
                       vj_windows_handle *handle) {
    (void)os;
    *handle = NULL;
    open_rights rights = rights_of(mode);
    HANDLE opened = NULL;
    if (parent) {
        if (!path[0]) return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
        uint32_t code = open_native(vj_win32_handle(parent), path, rights,
                                    SYNCHRONOUS_NONALERT, &opened);
        if (!code) *handle = vj_win32_out(opened);
        return code;
    }
    wchar_t *whole = vj_win32_path(path);
    if (!whole) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    opened = CreateFileW(whole, rights.access, rights.share, NULL, OPEN_EXISTING,
                         AS_IT_IS, NULL);
    uint32_t code = opened == INVALID_HANDLE_VALUE ? vj_win32_error() : 0;
    free(whole);
    if (!code) *handle = vj_win32_out(opened);
    return code;
}

static uint64_t of_parts(DWORD high, DWORD low) {
    return (uint64_t)high << 32 | low;
}

uint32_t vj_win32_file_information(const vj_windows_os *os, vj_windows_handle handle,
                                   vj_windows_file *file) {
    (void)os;
    HANDLE of = vj_win32_handle(handle);
    *file = (vj_windows_file){0};
    if (GetFileType(of) != FILE_TYPE_DISK) return 0; // VJ_WINDOWS_KIND_OTHER
    BY_HANDLE_FILE_INFORMATION basic;
    FILE_BASIC_INFO times;
    FILE_ID_INFO identity;
    if (!GetFileInformationByHandle(of, &basic) ||
        !GetFileInformationByHandleEx(of, FileBasicInfo, &times, sizeof times))
        return vj_win32_error();
    file->volume = basic.dwVolumeSerialNumber;
    uint64_t index = of_parts(basic.nFileIndexHigh, basic.nFileIndexLow);
    memcpy(file->id, &index, sizeof index);
    // ReFS has identities of 128 bits; a file system that has none says so.
    if (GetFileInformationByHandleEx(of, FileIdInfo, &identity, sizeof identity)) {
        file->volume = identity.VolumeSerialNumber;
        memcpy(file->id, &identity.FileId, sizeof file->id);
    }
    file->kind =
        basic.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT ? VJ_WINDOWS_KIND_REPARSE
        : basic.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY   ? VJ_WINDOWS_KIND_DIRECTORY
                                                              : VJ_WINDOWS_KIND_FILE;
    file->links = basic.nNumberOfLinks;
    file->size = of_parts(basic.nFileSizeHigh, basic.nFileSizeLow);
    file->written = (uint64_t)times.LastWriteTime.QuadPart;
    file->changed = (uint64_t)times.ChangeTime.QuadPart;
    return 0;
}

uint32_t vj_win32_final_path(const vj_windows_os *os, vj_windows_handle handle,
                             uint16_t *path, uint32_t capacity) {
    (void)os;
    static const wchar_t prefix[] = L"\\\\?\\";
    const size_t skip = sizeof prefix / sizeof *prefix - 1;
    if (capacity) path[0] = 0;
    wchar_t *whole = calloc(VJ_WINDOWS_PATH_MAX, sizeof *whole);
    if (!whole) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    DWORD length =
        GetFinalPathNameByHandleW(vj_win32_handle(handle), whole, VJ_WINDOWS_PATH_MAX,
                                  FILE_NAME_NORMALIZED | VOLUME_NAME_DOS);
    uint32_t code = 0;
    if (!length) code = vj_win32_error();
    else if (length >= VJ_WINDOWS_PATH_MAX) code = VJ_WINDOWS_ERROR_INSUFFICIENT_BUFFER;
    // "\\?\UNC\..." is another machine's, and "\\?\Volume{...}" has no letter.
    else if (length < skip + 2 || wcsncmp(whole, prefix, skip) != 0 ||
             whole[skip + 1] != L':')
        code = VJ_WINDOWS_ERROR_NOT_SUPPORTED;
    else code = vj_win32_copy(path, capacity, whole + skip);
    free(whole);
    return code;
}

uint32_t vj_win32_file_read(const vj_windows_os *os, vj_windows_handle file, void *bytes,
                            uint32_t size, uint32_t *count) {
    (void)os;
    DWORD done = 0;
    *count = 0;
    if (!ReadFile(vj_win32_handle(file), bytes, size, &done, NULL)) {
        uint32_t code = vj_win32_error();
        return code == VJ_WINDOWS_ERROR_HANDLE_EOF ? 0 : code;
    }
    *count = done;
    return 0;
}

uint32_t vj_win32_file_write(const vj_windows_os *os, vj_windows_handle file,
                             const void *bytes, uint32_t size) {
    (void)os;
    const char *at = bytes;
    while (size) {
        DWORD done = 0;
        if (!WriteFile(vj_win32_handle(file), at, size, &done, NULL))
            return vj_win32_error();
        if (!done) return ERROR_WRITE_FAULT;
        at += done;
        size -= done;
    }
    return 0;
}

uint32_t vj_win32_listing_open(const vj_windows_os *os, vj_windows_handle directory,
                               vj_windows_listing *listing) {
    (void)os;
    *listing = NULL;
    vj_windows_listing made = calloc(1, sizeof *made);
    if (!made) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    made->directory = vj_win32_handle(directory);
    *listing = made;
    return 0;
}

static uint32_t fill(vj_windows_listing listing) {
    if (!GetFileInformationByHandleEx(listing->directory,
                                      listing->begun ? FileIdBothDirectoryInfo
                                                     : FileIdBothDirectoryRestartInfo,
                                      listing->bytes, sizeof listing->bytes)) {
        listing->next = NULL;
        return vj_win32_error();
    }
    listing->begun = true;
    listing->next = (const FILE_ID_BOTH_DIR_INFO *)listing->bytes;
    return 0;
}

static bool is_dots(const WCHAR *name, size_t units) {
    return (units == 1 && name[0] == L'.') ||
           (units == 2 && name[0] == L'.' && name[1] == L'.');
}

uint32_t vj_win32_listing_next(const vj_windows_os *os, vj_windows_listing listing,
                               vj_windows_entry *entry) {
    (void)os;
    *entry = (vj_windows_entry){0};
    for (;;) {
        if (!listing->next) {
            uint32_t code = fill(listing);
            if (code) return code;
        }
        const FILE_ID_BOTH_DIR_INFO *at = listing->next;
        listing->next =
            at->NextEntryOffset
                ? (const FILE_ID_BOTH_DIR_INFO *)(const void *)((const char *)at +
                                                                at->NextEntryOffset)
                : NULL;
        size_t units = at->FileNameLength / sizeof(WCHAR);
        if (is_dots(at->FileName, units)) continue;
        if (units >= VJ_WINDOWS_NAME_MAX) return VJ_WINDOWS_ERROR_INSUFFICIENT_BUFFER;
        memcpy(entry->name, at->FileName, units * sizeof(WCHAR));
        DWORD attributes = at->FileAttributes;
        entry->kind = attributes & FILE_ATTRIBUTE_REPARSE_POINT ? VJ_WINDOWS_KIND_REPARSE
                      : attributes & FILE_ATTRIBUTE_DIRECTORY ? VJ_WINDOWS_KIND_DIRECTORY
                                                              : VJ_WINDOWS_KIND_FILE;
        return 0;
    }
}

void vj_win32_listing_close(const vj_windows_os *os, vj_windows_listing listing) {
    (void)os;
    free(listing);
}

// Away at once, though others have it open; file systems and systems that cannot do that
// take it away with the last handle.
static uint32_t mark_for_removal(HANDLE file) {
    DWORD posix = 0x13; // DELETE, POSIX_SEMANTICS, IGNORE_READONLY_ATTRIBUTE
    if (SetFileInformationByHandle(file,
                                   (FILE_INFO_BY_HANDLE_CLASS)VJ_FILE_DISPOSITION_EX,
                                   &posix, sizeof posix))
        return 0;
    uint32_t code = vj_win32_error();
    // A directory with something in it would not be empty the second time either.
    if (code == VJ_WINDOWS_ERROR_DIRECTORY_NOT_EMPTY) return code;
    FILE_DISPOSITION_INFO last = {TRUE};
    return SetFileInformationByHandle(file, FileDispositionInfo, &last, sizeof last)
               ? 0
               : vj_win32_error();
}

static bool is_absent(uint32_t code) {
    return code == VJ_WINDOWS_ERROR_FILE_NOT_FOUND ||
           code == VJ_WINDOWS_ERROR_PATH_NOT_FOUND;
}

// DELETE is also granted by FILE_DELETE_CHILD of the directory around it, and
// FILE_READ_ATTRIBUTES by FILE_LIST_DIRECTORY of it (documentation: "File Security and
// Access Rights"). No other right is asked for, or a guest's descriptor would decide.
static uint32_t remove_once(HANDLE parent, const uint16_t *path) {
    HANDLE file = NULL;
    uint32_t code = open_native(
        parent, path, (open_rights){DELETE | FILE_READ_ATTRIBUTES, EVERYBODY}, 0, &file);
    if (code) return code;
    code = mark_for_removal(file);
    CloseHandle(file);
    return code;
}

// True: it was, and is no more.
static bool clear_read_only(HANDLE parent, const uint16_t *path) {
    const open_rights rights = {FILE_READ_ATTRIBUTES | FILE_WRITE_ATTRIBUTES, EVERYBODY};
    FILE_BASIC_INFO basic;
    HANDLE file = NULL;
    if (open_native(parent, path, rights, 0, &file)) return false;
    bool cleared =
        GetFileInformationByHandleEx(file, FileBasicInfo, &basic, sizeof basic) &&
        basic.FileAttributes & FILE_ATTRIBUTE_READONLY;
    if (cleared) {
        basic.FileAttributes &= ~(DWORD)FILE_ATTRIBUTE_READONLY;
        if (!basic.FileAttributes) basic.FileAttributes = FILE_ATTRIBUTE_NORMAL;
        cleared = SetFileInformationByHandle(file, FileBasicInfo, &basic, sizeof basic);
    }
    CloseHandle(file);
    return cleared;
}

uint32_t vj_win32_remove(const vj_windows_os *os, vj_windows_handle parent,
                         const uint16_t *path) {
    (void)os;
    HANDLE from = vj_win32_handle(parent);
    HANDLE file = NULL;
    if (!path[0]) return VJ_WINDOWS_ERROR_INVALID_PARAMETER;
    uint32_t code = remove_once(from, path);
    // Systems and servers of files that know no IGNORE_READONLY_ATTRIBUTE.
    if (code == VJ_WINDOWS_ERROR_ACCESS_DENIED && clear_read_only(from, path))
        code = remove_once(from, path);
    if (is_absent(code)) return 0;
    if (code) return code;
    // Marked only, because somebody has it open: it is not gone, and its name is taken.
    // Asked for, such a name is refused, and not unknown.
    const open_rights look = {FILE_READ_ATTRIBUTES, EVERYBODY};
    code = open_native(from, path, look, 0, &file);
    if (!code) CloseHandle(file);
    return is_absent(code) ? 0 : VJ_WINDOWS_ERROR_SHARING_VIOLATION;
}

// By its own handle, and with the call that sets nothing but this one object: others
// would carry rights on to what lies below. An owner may write a DACL whatever it says,
// but for an entry of OWNER RIGHTS; WRITE_DAC is all that is asked for.
uint32_t vj_win32_reclaim(const vj_windows_os *os, vj_windows_handle parent,
                          const uint16_t *path, vj_windows_security security) {
    (void)os;
    HANDLE file = NULL;
    uint32_t code =
        open_native(vj_win32_handle(parent), path, (open_rights){WRITE_DAC, EVERYBODY},
                    DIRECTORY_ONLY, &file);
    if (code) return code;
    if (!SetKernelObjectSecurity(file, DACL_SECURITY_INFORMATION, security->descriptor))
        code = vj_win32_error();
    CloseHandle(file);
    return code;
}
