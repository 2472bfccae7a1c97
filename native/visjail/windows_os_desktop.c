// The private desktop of a context: starts visjail-desktop.exe and takes what it has
// made.

#include "windows_desktop.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "windows_private_desktop.h"
#include "windows_win32.h"

// What the library and the helper share while it runs.
typedef struct {
    HANDLE section;
    HANDLE answered;
    HANDLE taken;
    vj_desktop_record *record;
    HANDLE process;
} helper_meeting;

// The path of a file beside the library, wherever that was loaded from: neither PATH nor
// the current directory is searched (point 63).
static bool path_beside(const wchar_t *name, wchar_t path[MAX_PATH]) {
    HMODULE library = NULL;
    if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                            (LPCWSTR)(uintptr_t)&vj_windows_os_table, &library))
        return false;
    DWORD length = GetModuleFileNameW(library, path, MAX_PATH);
    if (!length || length >= MAX_PATH) return false;
    wchar_t *slash = wcsrchr(path, L'\\');
    if (!slash || (size_t)(slash - path) + 1 + wcslen(name) >= MAX_PATH) return false;
    wcscpy(slash + 1, name);
    return true;
}

bool vj_win32_desktop_helper_is_there(void) {
    wchar_t path[MAX_PATH];
    if (!path_beside(VJ_DESKTOP_HELPER, path)) return false;
    DWORD attributes = GetFileAttributesW(path);
    return attributes != INVALID_FILE_ATTRIBUTES &&
           !(attributes & FILE_ATTRIBUTE_DIRECTORY);
}

static uint32_t prepare(helper_meeting *meeting, vj_windows_security security,
                        const uint16_t *name, const uint16_t *sddl) {
    SECURITY_ATTRIBUTES attributes = security->attributes;
    attributes.bInheritHandle = TRUE;
    meeting->section =
        CreateFileMappingW(INVALID_HANDLE_VALUE, &attributes, PAGE_READWRITE, 0,
                           sizeof *meeting->record, NULL);
    meeting->answered = CreateEventW(&attributes, TRUE, FALSE, NULL);
    meeting->taken = CreateEventW(&attributes, TRUE, FALSE, NULL);
    if (!meeting->section || !meeting->answered || !meeting->taken)
        return vj_win32_error();
    meeting->record = MapViewOfFile(meeting->section, FILE_MAP_READ | FILE_MAP_WRITE, 0,
                                    0, sizeof *meeting->record);
    if (!meeting->record) return vj_win32_error();
    *meeting->record = (vj_desktop_record){.magic = VJ_DESKTOP_MAGIC,
                                           .version = VJ_DESKTOP_VERSION,
                                           .size = sizeof *meeting->record,
                                           .error = ERROR_IO_PENDING};
    uint32_t code = vj_win32_copy(meeting->record->name, VJ_DESKTOP_NAME_MAX, name);
    return code ? code : vj_win32_copy(meeting->record->sddl, VJ_DESKTOP_SDDL_MAX, sddl);
}

static uint32_t start_helper(helper_meeting *meeting, vj_windows_security security) {
    wchar_t path[MAX_PATH];
    wchar_t directory[MAX_PATH];
    wchar_t root[MAX_PATH];
    if (!path_beside(VJ_DESKTOP_HELPER, path)) return VJ_WINDOWS_ERROR_FILE_NOT_FOUND;
    UINT length = GetSystemDirectoryW(directory, MAX_PATH);
    UINT root_length = GetSystemWindowsDirectoryW(root, MAX_PATH);
    if (!length || length >= MAX_PATH || !root_length || root_length >= MAX_PATH)
        return vj_win32_error();
    wchar_t command[MAX_PATH + 80];
    _snwprintf(command, MAX_PATH + 80, L"\"%ls\" %llx %llx %llx", path,
               (unsigned long long)(ULONG_PTR)meeting->section,
               (unsigned long long)(ULONG_PTR)meeting->answered,
               (unsigned long long)(ULONG_PTR)meeting->taken);
    // The one variable without which USER32 does not load. The block has two NULs.
    wchar_t environment[MAX_PATH + 16] = {0};
    _snwprintf(environment, MAX_PATH + 14, L"SystemRoot=%ls", root);
    HANDLE given[] = {meeting->section, meeting->answered, meeting->taken};
    SIZE_T size = 0;
    InitializeProcThreadAttributeList(NULL, 1, 0, &size);
    STARTUPINFOEXW start = {.StartupInfo.cb = sizeof start,
                            .lpAttributeList = calloc(1, size ? size : 1)};
    if (!start.lpAttributeList) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    if (!InitializeProcThreadAttributeList(start.lpAttributeList, 1, 0, &size)) {
        uint32_t code = vj_win32_error();
        free(start.lpAttributeList);
        return code;
    }
    PROCESS_INFORMATION helper = {0};
    SECURITY_ATTRIBUTES attributes = security->attributes;
    uint32_t code = 0;
    if (!UpdateProcThreadAttribute(start.lpAttributeList, 0, VJ_ATTRIBUTE_HANDLE_LIST,
                                   given, sizeof given, NULL, NULL) ||
        !CreateProcessW(path, command, &attributes, &attributes, TRUE,
                        EXTENDED_STARTUPINFO_PRESENT | CREATE_UNICODE_ENVIRONMENT |
                            CREATE_NO_WINDOW,
                        environment, directory, &start.StartupInfo, &helper))
        code = vj_win32_error();
    DeleteProcThreadAttributeList(start.lpAttributeList);
    free(start.lpAttributeList);
    if (code) return code;
    CloseHandle(helper.hThread);
    meeting->process = helper.hProcess;
    return 0;
}

static uint32_t take(const helper_meeting *meeting, uint64_t value, HANDLE *handle) {
    // The rights are the helper's choice and not more than that.
    return DuplicateHandle(meeting->process, (HANDLE)(ULONG_PTR)value,
                           GetCurrentProcess(), handle, 0, FALSE, DUPLICATE_SAME_ACCESS)
               ? 0
               : vj_win32_error();
}

static uint32_t take_over(const helper_meeting *meeting, vj_windows_desktop desktop) {
    HANDLE either[] = {meeting->answered, meeting->process};
    switch (WaitForMultipleObjects(2, either, FALSE, VJ_DESKTOP_TIMEOUT_MS)) {
    case WAIT_OBJECT_0: break;
    case WAIT_OBJECT_0 + 1: return ERROR_PROCESS_ABORTED;
    case WAIT_TIMEOUT: return VJ_WINDOWS_ERROR_TIMEOUT;
    default: return vj_win32_error();
    }
    vj_desktop_record answer = *meeting->record;
    if (answer.error) return answer.error;
    if (!answer.station || !answer.desktop) return ERROR_INVALID_DATA;
    uint32_t code = take(meeting, answer.station, &desktop->station);
    if (!code) code = take(meeting, answer.desktop, &desktop->desktop);
    return code;
}

// The helper goes, whatever it does: 0 only if it says itself that all went well.
static uint32_t end_helper(const helper_meeting *meeting) {
    if (!meeting->process) return 0;
    DWORD status = 1;
    SetEvent(meeting->taken);
    if (WaitForSingleObject(meeting->process, VJ_DESKTOP_TIMEOUT_MS) == WAIT_OBJECT_0 &&
        GetExitCodeProcess(meeting->process, &status) && !status)
        return 0;
    TerminateProcess(meeting->process, 1);
    WaitForSingleObject(meeting->process, VJ_DESKTOP_TIMEOUT_MS);
    return ERROR_PROCESS_ABORTED;
}

static void part(helper_meeting *meeting) {
    if (meeting->record) UnmapViewOfFile(meeting->record);
    HANDLE const handles[] = {meeting->section, meeting->answered, meeting->taken,
                              meeting->process};
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        if (handles[i]) CloseHandle(handles[i]);
}

uint32_t vj_win32_desktop_request(const uint16_t *name, const uint16_t *sddl,
                                  vj_windows_security security,
                                  vj_windows_desktop *desktop) {
    *desktop = NULL;
    vj_windows_desktop made = calloc(1, sizeof *made);
    if (!made) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    helper_meeting meeting = {0};
    uint32_t code = prepare(&meeting, security, name, sddl);
    if (!code) code = start_helper(&meeting, security);
    if (!code) code = take_over(&meeting, made);
    uint32_t ended = end_helper(&meeting);
    if (!code) code = ended;
    part(&meeting);
    if (!code || vj_win32_desktop_close(NULL, made)) *desktop = made;
    return code;
}

// What the kernel says of the desktop itself. GetSecurityInfo would load USER32 into the
// host's process.
static uint32_t verify(HANDLE desktop, const uint16_t *sddl) {
    // Generic rights are mapped when an object is made; these are a desktop's
    // (winuser.h).
    const GENERIC_MAPPING mapping = {
        STANDARD_RIGHTS_READ | DESKTOP_READOBJECTS | DESKTOP_ENUMERATE,
        STANDARD_RIGHTS_WRITE | DESKTOP_CREATEWINDOW | DESKTOP_CREATEMENU |
            DESKTOP_HOOKCONTROL | DESKTOP_JOURNALRECORD | DESKTOP_JOURNALPLAYBACK |
            DESKTOP_WRITEOBJECTS,
        STANDARD_RIGHTS_EXECUTE | DESKTOP_SWITCHDESKTOP,
        STANDARD_RIGHTS_REQUIRED | 0x1FF};
    const SECURITY_INFORMATION parts = OWNER_SECURITY_INFORMATION |
                                       DACL_SECURITY_INFORMATION |
                                       LABEL_SECURITY_INFORMATION;
    DWORD size = 0;
    GetKernelObjectSecurity(desktop, parts, NULL, 0, &size);
    if (!size) return vj_win32_error();
    PSECURITY_DESCRIPTOR actual = calloc(1, size);
    PSECURITY_DESCRIPTOR expected = NULL;
    if (!actual) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    uint32_t code = 0;
    if (!GetKernelObjectSecurity(desktop, parts, actual, size, &size) ||
        !ConvertStringSecurityDescriptorToSecurityDescriptorW(sddl, SDDL_REVISION_1,
                                                              &expected, NULL))
        code = vj_win32_error();
    else if (!vj_win32_same_descriptor(actual, expected, &mapping))
        code = ERROR_INVALID_SECURITY_DESCR;
    LocalFree(expected);
    free(actual);
    return code;
}

uint32_t vj_win32_desktop_open(const vj_windows_os *os, const uint16_t *name,
                               const uint16_t *sddl, vj_windows_security security,
                               vj_windows_desktop *desktop) {
    uint32_t code = vj_win32_desktop_request(name, sddl, security, desktop);
    if (code) return code;
    code = verify((*desktop)->desktop, sddl);
    if (!code) return 0;
    if (!vj_win32_desktop_close(os, *desktop)) *desktop = NULL;
    return code;
}

uint32_t vj_win32_desktop_close(const vj_windows_os *os, vj_windows_desktop desktop) {
    (void)os;
    // What could not be closed stays, for the next attempt.
    HANDLE *const handles[] = {&desktop->desktop, &desktop->station};
    uint32_t code = 0;
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) {
        if (!*handles[i]) continue;
        if (CloseHandle(*handles[i])) *handles[i] = NULL;
        else code = vj_win32_error();
    }
    if (!code) free(desktop);
    return code;
}
