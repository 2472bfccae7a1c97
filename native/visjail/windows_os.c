// Calls that belong to no kind of object, and what there is at all.

#include "windows_win32.h"

#include <bcrypt.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "windows_desktop.h"

uint32_t vj_win32_of_result(HRESULT result) {
    if (SUCCEEDED(result)) return 0;
    if (result == E_NOTIMPL) return VJ_WINDOWS_ERROR_NOT_SUPPORTED;
    uint32_t value = (uint32_t)result;
    // An HRESULT of the facility of Win32 has the code in its lower half.
    bool of_win32 = value >> 16 == 0x8007 && (value & 0xFFFF);
    return of_win32 ? value & 0xFFFF : value;
}

uint32_t vj_win32_of_status(LONG status) {
    typedef ULONG(WINAPI * convert)(LONG);
    if (status >= 0) return 0;
    convert call =
        (convert)(void (*)(void))vj_win32_late(L"ntdll.dll", "RtlNtStatusToDosError");
    ULONG code = call ? call(status) : 0;
    return code ? code : (uint32_t)status;
}

FARPROC vj_win32_late(const wchar_t *library, const char *name) {
    // By its whole path: a module of the same name that the host has from elsewhere is
    // not it.
    wchar_t path[MAX_PATH];
    UINT length = GetSystemDirectoryW(path, MAX_PATH);
    if (!length || length + 1 + wcslen(library) >= MAX_PATH) return NULL;
    path[length] = L'\\';
    wcscpy(path + length + 1, library);
    HMODULE loaded = LoadLibraryExW(path, NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    return loaded ? GetProcAddress(loaded, name) : NULL;
}

wchar_t *vj_win32_path(const uint16_t *path) {
    static const wchar_t prefix[] = L"\\\\?\\";
    size_t length = wcslen(path);
    wchar_t *whole = malloc((length + sizeof prefix / sizeof *prefix) * sizeof *whole);
    if (!whole) return NULL;
    memcpy(whole, prefix, sizeof prefix);
    memcpy(whole + sizeof prefix / sizeof *prefix - 1, path, (length + 1) * sizeof *path);
    return whole;
}

uint32_t vj_win32_copy(uint16_t *to, uint32_t capacity, const wchar_t *from) {
    size_t length = wcslen(from) + 1;
    if (length > capacity) return VJ_WINDOWS_ERROR_INSUFFICIENT_BUFFER;
    memcpy(to, from, length * sizeof *from);
    return 0;
}

uint64_t vj_win32_now_ms(const vj_windows_os *os) {
    (void)os;
    return GetTickCount64();
}

uint32_t vj_win32_random(const vj_windows_os *os, void *bytes, uint32_t size) {
    (void)os;
    return vj_win32_of_status(
        BCryptGenRandom(NULL, bytes, size, BCRYPT_USE_SYSTEM_PREFERRED_RNG));
}

uint32_t vj_win32_user_sid(const vj_windows_os *os, uint16_t *text, uint32_t capacity) {
    (void)os;
    HANDLE token = NULL;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token))
        return vj_win32_error();
    void *answer = NULL;
    uint32_t code = vj_win32_token(token, TokenUser, &answer);
    if (!code)
        code = vj_win32_sid_text(((const TOKEN_USER *)answer)->User.Sid, text, capacity);
    free(answer);
    CloseHandle(token);
    return code;
}

uint32_t vj_win32_system_root(const vj_windows_os *os, uint16_t *path,
                              uint32_t capacity) {
    (void)os;
    UINT length = GetSystemWindowsDirectoryW(path, capacity);
    if (length && length < capacity) return 0;
    uint32_t code = length ? VJ_WINDOWS_ERROR_INSUFFICIENT_BUFFER : vj_win32_error();
    if (capacity) path[0] = 0;
    return code;
}

static uint64_t of_time(FILETIME time) {
    return (uint64_t)time.dwHighDateTime << 32 | time.dwLowDateTime;
}

static uint32_t created_of(HANDLE process, uint64_t *created) {
    FILETIME begun;
    FILETIME ended;
    FILETIME kernel;
    FILETIME user;
    if (!GetProcessTimes(process, &begun, &ended, &kernel, &user))
        return vj_win32_error();
    *created = of_time(begun);
    return 0;
}

uint32_t vj_win32_process_created(const vj_windows_os *os, vj_windows_handle process,
                                  uint64_t *created) {
    (void)os;
    *created = 0;
    return created_of(vj_win32_handle(process), created);
}

uint32_t vj_win32_self(const vj_windows_os *os, uint32_t *pid, uint64_t *created) {
    (void)os;
    *created = 0;
    *pid = GetCurrentProcessId();
    return created_of(GetCurrentProcess(), created);
}

uint32_t vj_win32_owner_created(const vj_windows_os *os, uint32_t pid,
                                uint64_t *created) {
    (void)os;
    *created = 0;
    HANDLE process =
        OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, pid);
    if (!process) return vj_win32_error();
    // One that has ended can be opened as long as anybody has a handle of it.
    bool ended = WaitForSingleObject(process, 0) == WAIT_OBJECT_0;
    uint32_t code =
        ended ? VJ_WINDOWS_ERROR_INVALID_PARAMETER : created_of(process, created);
    CloseHandle(process);
    return code;
}

uint32_t vj_win32_handle_close(const vj_windows_os *os, vj_windows_handle handle) {
    (void)os;
    return CloseHandle(vj_win32_handle(handle)) ? 0 : vj_win32_error();
}

uint32_t vj_win32_event_create(const vj_windows_os *os, vj_windows_security security,
                               vj_windows_handle *event) {
    (void)os;
    HANDLE made = CreateEventW(&security->attributes, TRUE, FALSE, NULL);
    *event = vj_win32_out(made);
    return made ? 0 : vj_win32_error();
}

typedef struct {
    vj_windows_thread function;
    void *argument;
} thread_start;

static DWORD WINAPI run_thread(void *given) {
    thread_start start = *(thread_start *)given;
    free(given);
    start.function(start.argument);
    return 0;
}

uint32_t vj_win32_thread_start(const vj_windows_os *os, vj_windows_thread function,
                               void *argument, vj_windows_security security,
                               vj_windows_handle *thread) {
    (void)os;
    *thread = NULL;
    thread_start *start = malloc(sizeof *start);
    if (!start) return VJ_WINDOWS_ERROR_NOT_ENOUGH_MEMORY;
    *start = (thread_start){function, argument};
    HANDLE made = CreateThread(&security->attributes, 0, run_thread, start, 0, NULL);
    if (!made) {
        uint32_t code = vj_win32_error();
        free(start);
        return code;
    }
    *thread = vj_win32_out(made);
    return 0;
}

static uint32_t waited(HANDLE object, uint32_t timeout_ms) {
    switch (WaitForSingleObject(object, timeout_ms)) {
    case WAIT_OBJECT_0: return 0;
    case WAIT_TIMEOUT: return VJ_WINDOWS_ERROR_TIMEOUT;
    default: return vj_win32_error();
    }
}

uint32_t vj_win32_thread_wait(const vj_windows_os *os, vj_windows_handle thread,
                              uint32_t timeout_ms) {
    (void)os;
    return waited(vj_win32_handle(thread), timeout_ms);
}

uint32_t vj_win32_process_wait(const vj_windows_os *os, vj_windows_handle process,
                               uint32_t timeout_ms) {
    (void)os;
    return waited(vj_win32_handle(process), timeout_ms);
}

// ---- what there is

// Every attribute that a jail needs is tried in a list that is then thrown away: a system
// that refuses one has to be found before anything is made (point 67). A list only keeps
// where a value lies, so these need not mean anything.
static uint32_t missing_attributes(void) {
    static const struct {
        DWORD_PTR attribute;
        uint32_t missing;
    } tried[] = {
        {VJ_ATTRIBUTE_SECURITY_CAPABILITIES, VJ_WINDOWS_NEEDS_CAPABILITIES},
        {VJ_ATTRIBUTE_ALL_APPLICATION_PACKAGES_POLICY, VJ_WINDOWS_NEEDS_LPAC},
        {VJ_ATTRIBUTE_HANDLE_LIST, VJ_WINDOWS_NEEDS_HANDLE_LIST},
        {VJ_ATTRIBUTE_JOB_LIST, VJ_WINDOWS_NEEDS_JOB_LIST},
    };
    const DWORD count = sizeof tried / sizeof *tried;
    SECURITY_CAPABILITIES capabilities = {0};
    DWORD policy = 1;
    HANDLE handle = GetCurrentProcess();
    void *const values[] = {&capabilities, &policy, &handle, &handle};
    const SIZE_T sizes[] = {sizeof capabilities, sizeof policy, sizeof handle,
                            sizeof handle};
    uint32_t missing = 0;
    SIZE_T size = 0;
    InitializeProcThreadAttributeList(NULL, count, 0, &size);
    LPPROC_THREAD_ATTRIBUTE_LIST list = calloc(1, size ? size : 1);
    bool begun = list && InitializeProcThreadAttributeList(list, count, 0, &size);
    for (DWORD i = 0; i < count; i++)
        if (!begun || !UpdateProcThreadAttribute(list, 0, tried[i].attribute, values[i],
                                                 sizes[i], NULL, NULL))
            missing |= tried[i].missing;
    if (begun) DeleteProcThreadAttributeList(list);
    free(list);
    return missing;
}

// A job of nobody else's, whose one limit has to be there when it is read.
static bool job_limits_are_read(const vj_windows_os *os) {
    uint16_t user[VJ_WINDOWS_SID_MAX];
    wchar_t sddl[VJ_WINDOWS_SID_MAX + 32] = L"D:P(A;;GA;;;";
    vj_windows_security security = NULL;
    vj_windows_handle job = NULL;
    vj_windows_job_limits limits = {0};
    vj_windows_job_readback readback = {0};
    if (vj_win32_user_sid(os, user, VJ_WINDOWS_SID_MAX)) return false;
    wcscat(sddl, user);
    wcscat(sddl, L")");
    uint32_t code = vj_win32_security_open(os, sddl, &security);
    if (!code) code = vj_win32_job_create(os, security, &job);
    if (!code) code = vj_win32_job_set_limits(os, job, &limits);
    if (!code) code = vj_win32_job_read_limits(os, job, &readback);
    if (job) vj_win32_handle_close(os, job);
    if (security) vj_win32_security_close(os, security);
    return !code && readback.kill_on_close && !readback.breakaway;
}

static uint32_t build_of_windows(void) {
    typedef LONG(WINAPI * get_version)(OSVERSIONINFOW *);
    // GetVersionEx would answer what the manifest of the host's program lets it answer.
    get_version call =
        (get_version)(void (*)(void))vj_win32_late(L"ntdll.dll", "RtlGetVersion");
    OSVERSIONINFOW version = {.dwOSVersionInfoSize = sizeof version};
    return call && call(&version) >= 0 ? version.dwBuildNumber : 0;
}

uint32_t vj_win32_features(const vj_windows_os *os, vj_windows_features *features) {
    static const struct {
        const wchar_t *library;
        const char *name;
        uint32_t missing;
    } late[] = {
        {L"userenv.dll", "CreateAppContainerProfile", VJ_WINDOWS_NEEDS_APP_CONTAINER},
        {L"userenv.dll", "DeleteAppContainerProfile", VJ_WINDOWS_NEEDS_APP_CONTAINER},
        {L"kernel32.dll", "CreatePseudoConsole", VJ_WINDOWS_NEEDS_CONSOLE},
        {L"kernel32.dll", "ResizePseudoConsole", VJ_WINDOWS_NEEDS_CONSOLE},
        {L"kernel32.dll", "ClosePseudoConsole", VJ_WINDOWS_NEEDS_CONSOLE},
    };
    uint8_t byte = 0;
    *features = (vj_windows_features){.build = build_of_windows()};
    for (size_t i = 0; i < sizeof late / sizeof *late; i++)
        if (!vj_win32_late(late[i].library, late[i].name))
            features->missing |= late[i].missing;
    features->missing |= missing_attributes();
    if (!job_limits_are_read(os)) features->missing |= VJ_WINDOWS_NEEDS_JOB_READBACK;
    if (vj_win32_random(os, &byte, 1)) features->missing |= VJ_WINDOWS_NEEDS_RANDOM;
    if (!vj_win32_desktop_helper_is_there())
        features->missing |= VJ_WINDOWS_NEEDS_DESKTOP;
    // JOB_OBJECT_UILIMIT_ALL of every Windows 10; IME since build 22621, INJECTION since
    // 26100. A bit that a build does not know makes the whole call fail.
    BOOL in_job = FALSE;
    if (!IsProcessInJob(GetCurrentProcess(), NULL, &in_job)) return vj_win32_error();
    features->host_in_job = in_job;
    features->ui_limits = 0xFF;
    if (features->build >= 22621) features->ui_limits |= 0x100;
    if (features->build >= 26100) features->ui_limits |= 0x200;
    return 0;
}
