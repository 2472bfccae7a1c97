// Acts on files and the registry: what a guest may do to its own folders, and what to
// others.

#include "guest.h"

#include <aclapi.h>
#include <sddl.h>
#include <wchar.h>

static DWORD opened(const wchar_t *path, DWORD access, DWORD disposition, DWORD flags) {
    HANDLE file =
        CreateFileW(path, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                    NULL, disposition, flags, NULL);
    if (file == INVALID_HANDLE_VALUE) return guest_error();
    CloseHandle(file);
    return 0;
}

static DWORD read_file(guest_words words) {
    HANDLE file = CreateFileW(words.words[0], GENERIC_READ, FILE_SHARE_READ, NULL,
                              OPEN_EXISTING, 0, NULL);
    if (file == INVALID_HANDLE_VALUE) return guest_error();
    char bytes[256] = "";
    DWORD size = 0;
    BOOL done = ReadFile(file, bytes, sizeof bytes - 1, &size, NULL);
    DWORD code = done ? 0 : guest_error();
    CloseHandle(file);
    if (done) guest_say(L"%hs", bytes);
    return code;
}

static DWORD write_file(guest_words words) {
    HANDLE file =
        CreateFileW(words.words[0], GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    if (file == INVALID_HANDLE_VALUE) return guest_error();
    DWORD size = 0;
    BOOL done = WriteFile(file, "guest", 5, &size, NULL);
    DWORD code = done ? 0 : guest_error();
    CloseHandle(file);
    return code;
}

static DWORD create_file(guest_words words) {
    return opened(words.words[0], GENERIC_WRITE, CREATE_NEW, 0);
}

static DWORD append_file(guest_words words) {
    return opened(words.words[0], FILE_APPEND_DATA, OPEN_EXISTING, 0);
}

static DWORD overwrite_file(guest_words words) {
    return opened(words.words[0], GENERIC_WRITE, OPEN_EXISTING, 0);
}

static DWORD truncate_file(guest_words words) {
    return opened(words.words[0], GENERIC_WRITE, TRUNCATE_EXISTING, 0);
}

static DWORD open_stream(guest_words words) {
    wchar_t path[MAX_PATH];
    _snwprintf(path, MAX_PATH, L"%ls:stream", words.words[0]);
    return opened(path, GENERIC_WRITE, CREATE_ALWAYS, 0);
}

static DWORD write_attributes(guest_words words) {
    return opened(words.words[0], FILE_WRITE_ATTRIBUTES, OPEN_EXISTING,
                  FILE_FLAG_BACKUP_SEMANTICS);
}

static DWORD write_extended(guest_words words) {
    return opened(words.words[0], FILE_WRITE_EA, OPEN_EXISTING,
                  FILE_FLAG_BACKUP_SEMANTICS);
}

static DWORD write_acl(guest_words words) {
    return opened(words.words[0], WRITE_DAC, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
}

static DWORD write_owner(guest_words words) {
    return opened(words.words[0], WRITE_OWNER, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
}

static DWORD take_delete(guest_words words) {
    return opened(words.words[0], DELETE, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
}

// A lower mandatory label would let a process of low integrity write.
static DWORD write_label(guest_words words) {
    PSECURITY_DESCRIPTOR descriptor = NULL;
    if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(
            L"S:(ML;;NW;;;LW)", SDDL_REVISION_1, &descriptor, NULL))
        return guest_error();
    PACL label = NULL;
    BOOL present = FALSE;
    BOOL by_default = FALSE;
    GetSecurityDescriptorSacl(descriptor, &present, &label, &by_default);
    DWORD code =
        SetNamedSecurityInfoW(words.words[0], SE_FILE_OBJECT, LABEL_SECURITY_INFORMATION,
                              NULL, NULL, NULL, label);
    LocalFree(descriptor);
    return code;
}

static DWORD delete_file(guest_words words) {
    return DeleteFileW(words.words[0]) ? 0 : guest_error();
}

static DWORD rename_file(guest_words words) {
    return MoveFileExW(words.words[0], words.words[1], MOVEFILE_REPLACE_EXISTING)
               ? 0
               : guest_error();
}

static DWORD link_file(guest_words words) {
    return CreateHardLinkW(words.words[1], words.words[0], NULL) ? 0 : guest_error();
}

static DWORD make_folder(guest_words words) {
    return CreateDirectoryW(words.words[0], NULL) ? 0 : guest_error();
}

static DWORD remove_folder(guest_words words) {
    return RemoveDirectoryW(words.words[0]) ? 0 : guest_error();
}

static DWORD set_rights(const wchar_t *path, const wchar_t *sddl) {
    PSECURITY_DESCRIPTOR rights = NULL;
    if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(sddl, SDDL_REVISION_1,
                                                              &rights, NULL))
        return guest_error();
    DWORD code =
        SetFileSecurityW(path, DACL_SECURITY_INFORMATION, rights) ? 0 : guest_error();
    LocalFree(rights);
    return code;
}

// A folder with a file in it, which in the end give these rights: "D:P" is nobody at all.
static DWORD close_folder(guest_words words) {
    // Everybody, and every package of the less privileged kind: this guest, too.
    static const wchar_t open[] = L"D:P(A;OICI;FA;;;WD)(A;OICI;FA;;;S-1-15-2-2)";
    SECURITY_ATTRIBUTES attributes = {.nLength = sizeof attributes};
    wchar_t file[MAX_PATH];
    if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(
            open, SDDL_REVISION_1, &attributes.lpSecurityDescriptor, NULL))
        return guest_error();
    BOOL made = CreateDirectoryW(words.words[0], &attributes);
    DWORD code = made ? 0 : guest_error();
    LocalFree(attributes.lpSecurityDescriptor);
    _snwprintf(file, MAX_PATH, L"%ls\\file", words.words[0]);
    if (!code) code = opened(file, GENERIC_WRITE, CREATE_NEW, 0);
    if (!code) code = set_rights(file, words.words[1]);
    return code ? code : set_rights(words.words[0], words.words[1]);
}

static DWORD list_folder(guest_words words) {
    wchar_t pattern[MAX_PATH];
    _snwprintf(pattern, MAX_PATH, L"%ls\\*", words.words[0]);
    WIN32_FIND_DATAW entry;
    HANDLE found = FindFirstFileW(pattern, &entry);
    if (found == INVALID_HANDLE_VALUE) return guest_error();
    do guest_say(L"%ls", entry.cFileName);
    while (FindNextFileW(found, &entry));
    FindClose(found);
    return 0;
}

static HKEY hive(const wchar_t *name) {
    return !wcscmp(name, L"HKLM") ? HKEY_LOCAL_MACHINE : HKEY_CURRENT_USER;
}

static DWORD read_key(guest_words words) {
    HKEY key = NULL;
    LONG code = RegOpenKeyExW(hive(words.words[0]), words.words[1], 0, KEY_READ, &key);
    if (!code) RegCloseKey(key);
    return (DWORD)code;
}

static DWORD write_key(guest_words words) {
    HKEY key = NULL;
    LONG code =
        RegOpenKeyExW(hive(words.words[0]), words.words[1], 0, KEY_SET_VALUE, &key);
    if (code) return (DWORD)code;
    code = RegSetValueExW(key, L"guest", 0, REG_SZ, (const BYTE *)L"1", 4);
    RegCloseKey(key);
    return (DWORD)code;
}

// The data folder of the package: what %LOCALAPPDATA% says is checked by writing to it.
static DWORD write_application_data(guest_words words) {
    (void)words;
    wchar_t path[MAX_PATH];
    DWORD length = GetEnvironmentVariableW(L"LOCALAPPDATA", path, MAX_PATH - 16);
    if (!length || length >= MAX_PATH - 16) return ERROR_ENVVAR_NOT_FOUND;
    wcscat(path, L"\\guest.txt");
    return opened(path, GENERIC_WRITE, CREATE_ALWAYS, 0);
}

const guest_entry guest_files[] = {
    {L"read", 1, read_file},
    {L"write", 1, write_file},
    {L"create", 1, create_file},
    {L"append", 1, append_file},
    {L"overwrite", 1, overwrite_file},
    {L"truncate", 1, truncate_file},
    {L"stream", 1, open_stream},
    {L"attributes", 1, write_attributes},
    {L"extended", 1, write_extended},
    {L"acl", 1, write_acl},
    {L"owner", 1, write_owner},
    {L"take-delete", 1, take_delete},
    {L"label", 1, write_label},
    {L"delete", 1, delete_file},
    {L"rename", 2, rename_file},
    {L"link", 2, link_file},
    {L"make-folder", 1, make_folder},
    {L"remove-folder", 1, remove_folder},
    {L"close-folder", 2, close_folder},
    {L"list", 1, list_folder},
    {L"read-key", 2, read_key},
    {L"write-key", 2, write_key},
    {L"application-data", 0, write_application_data},
    {NULL, 0, NULL},
};
