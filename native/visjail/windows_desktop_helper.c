// visjail-desktop.exe: make one private desktop, hand it over, end.
//
// It is a program of its own because the first call of USER32 ties a process to a window
// station for good, and because a service may have none of a user: Windows picks one for
// a new process (points 53 and 54). Nothing of the station or of other desktops is
// changed. See windows_desktop.h for what it is told.

#include "windows_desktop.h"

#include <stdlib.h>
#include <wchar.h>

#include "windows_win32.h"

typedef HWINSTA(WINAPI *get_station)(void);
typedef HWINSTA(WINAPI *open_station)(LPCWSTR, BOOL, ACCESS_MASK);
typedef HDESK(WINAPI *create_desktop)(LPCWSTR, LPCWSTR, DEVMODEW *, DWORD, ACCESS_MASK,
                                      LPSECURITY_ATTRIBUTES);
typedef BOOL(WINAPI *object_information)(HANDLE, int, PVOID, DWORD, LPDWORD);

typedef struct {
    get_station get_station;
    open_station open_station;
    create_desktop create_desktop;
    object_information object_information;
} user_calls;

static FARPROC of_user(const char *name) {
    HMODULE library = LoadLibraryExW(L"user32.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    return library ? GetProcAddress(library, name) : NULL;
}

static bool find_calls(user_calls *calls) {
    calls->get_station = (get_station)(void (*)(void))of_user("GetProcessWindowStation");
    calls->open_station = (open_station)(void (*)(void))of_user("OpenWindowStationW");
    calls->create_desktop = (create_desktop)(void (*)(void))of_user("CreateDesktopW");
    calls->object_information =
        (object_information)(void (*)(void))of_user("GetUserObjectInformationW");
    return calls->get_station && calls->open_station && calls->create_desktop &&
           calls->object_information;
}

static DWORD error_of_call(void) {
    DWORD error = GetLastError();
    return error ? error : ERROR_GEN_FAILURE;
}

// A handle that this process was given, and not one that it opened: that it is
// inheritable says so. From now on nobody inherits it any more.
static HANDLE inherited(const wchar_t *text) {
    wchar_t *end = NULL;
    unsigned long long value = wcstoull(text, &end, 16);
    HANDLE handle = (HANDLE)(ULONG_PTR)value;
    DWORD flags = 0;
    if (!value || !end || *end || !GetHandleInformation(handle, &flags)) return NULL;
    if (!(flags & HANDLE_FLAG_INHERIT)) return NULL;
    return SetHandleInformation(handle, HANDLE_FLAG_INHERIT, 0) ? handle : NULL;
}

static bool ends(const uint16_t *text, uint32_t capacity) {
    return wmemchr(text, 0, capacity) != NULL;
}

// A name of ours: letters, digits, dots and hyphens. A backslash would be a station's.
static bool is_name(const uint16_t *name) {
    static const wchar_t allowed[] =
        L"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    return *name && ends(name, VJ_DESKTOP_NAME_MAX) && !name[wcsspn(name, allowed)];
}

static DWORD make(const user_calls *calls, vj_desktop_record *record) {
    // What is checked is what is used: the other side could write meanwhile.
    vj_desktop_record order = *record;
    if (order.magic != VJ_DESKTOP_MAGIC || order.version != VJ_DESKTOP_VERSION ||
        order.size != sizeof order || order.error != ERROR_IO_PENDING || order.station ||
        order.desktop)
        return ERROR_INVALID_DATA;
    if (!is_name(order.name) || !ends(order.sddl, VJ_DESKTOP_SDDL_MAX))
        return ERROR_INVALID_NAME;
    SECURITY_ATTRIBUTES attributes = {sizeof attributes, NULL, FALSE};
    if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(
            order.sddl, SDDL_REVISION_1, &attributes.lpSecurityDescriptor, NULL))
        return error_of_call();
    wchar_t station_name[VJ_DESKTOP_NAME_MAX] = L"";
    DWORD size = 0;
    DWORD error = 0;
    HWINSTA station = NULL;
    HDESK desktop = NULL;
    // A handle with this one right: what a guest gets of the station is no more than
    // that.
    if (!calls->object_information(calls->get_station(), UOI_NAME, station_name,
                                   sizeof station_name - sizeof *station_name, &size) ||
        !(station = calls->open_station(station_name, FALSE, WINSTA_READATTRIBUTES)) ||
        !(desktop = calls->create_desktop(order.name, NULL, NULL, 0,
                                          READ_CONTROL | DESKTOP_READOBJECTS |
                                              DESKTOP_CREATEWINDOW | DESKTOP_WRITEOBJECTS,
                                          &attributes)))
        error = error_of_call();
    LocalFree(attributes.lpSecurityDescriptor);
    if (error) return error;
    // They are closed when this process ends.
    record->station = (uint64_t)(ULONG_PTR)station;
    record->desktop = (uint64_t)(ULONG_PTR)desktop;
    return 0;
}

// NOLINTNEXTLINE(misc-use-internal-linkage): the start of the C run time calls it
int wmain(int count, wchar_t **words);

int wmain(int count, wchar_t **words) {
    if (count != 4) return 2;
    HANDLE section = inherited(words[1]);
    HANDLE answered = inherited(words[2]);
    HANDLE taken = inherited(words[3]);
    if (!section || !answered || !taken) return 2;
    vj_desktop_record *record =
        MapViewOfFile(section, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, sizeof *record);
    if (!record) return 2;
    user_calls calls;
    DWORD error = find_calls(&calls) ? make(&calls, record) : ERROR_NOT_SUPPORTED;
    MemoryBarrier();
    record->error = error;
    if (!SetEvent(answered)) return 1;
    DWORD waited = WaitForSingleObject(taken, VJ_DESKTOP_TIMEOUT_MS);
    return error || waited != WAIT_OBJECT_0;
}
