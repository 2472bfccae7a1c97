// Acts on what a guest is: its token, its desktop, and the services of the machine.

#include "guest.h"

#include <objbase.h>
#include <sddl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <wincred.h>

// Numbers of TOKEN_INFORMATION_CLASS (winnt.h) that not every compiler's header has.
enum {
    IS_APP_CONTAINER = 29,
    CAPABILITIES = 30,
    APP_CONTAINER_SID = 31,
    IS_LESS_PRIVILEGED = 46,
};

static void say_sid(const wchar_t *name, PSID sid) {
    LPWSTR text = NULL;
    if (!sid || !ConvertSidToStringSidW(sid, &text)) return;
    guest_say(L"%ls %ls", name, text);
    LocalFree(text);
}

static void *asked(HANDLE token, TOKEN_INFORMATION_CLASS which) {
    DWORD size = 0;
    GetTokenInformation(token, which, NULL, 0, &size);
    void *answer = size ? calloc(1, size) : NULL;
    if (!answer || !GetTokenInformation(token, which, answer, size, &size)) {
        DWORD error = guest_error();
        free(answer);
        SetLastError(error);
        return NULL;
    }
    return answer;
}

static void say_flag(HANDLE token, const wchar_t *name, int which) {
    DWORD flag = 0;
    DWORD size = 0;
    // The header of some compilers ends before the newest number.
    // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange)
    TOKEN_INFORMATION_CLASS asked_for = (TOKEN_INFORMATION_CLASS)which;
    // headers
    if (GetTokenInformation(token, asked_for, &flag, sizeof flag, &size))
        guest_say(L"%ls %lu", name, flag);
    else guest_say(L"%ls error %lu", name, GetLastError());
}

// Which of two rights the token has where one is for all packages and the other for the
// less privileged ones as well: 2 for the latter, 3 for an ordinary package.
static void say_probe(void) {
    PSECURITY_DESCRIPTOR descriptor = NULL;
    HANDLE token = NULL;
    GENERIC_MAPPING mapping = {1, 2, 0, 3};
    PRIVILEGE_SET privileges;
    DWORD size = sizeof privileges;
    DWORD granted = 0;
    BOOL status = FALSE;
    const wchar_t *text =
        L"O:SYG:SYD:(A;;0x7;;;WD)(A;;0x1;;;S-1-15-2-1)(A;;0x2;;;S-1-15-2-2)";
    if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(text, SDDL_REVISION_1,
                                                              &descriptor, NULL))
        return;
    if (ImpersonateSelf(SecurityImpersonation) &&
        OpenThreadToken(GetCurrentThread(), TOKEN_QUERY, FALSE, &token)) {
        AccessCheck(descriptor, token, MAXIMUM_ALLOWED, &mapping, &privileges, &size,
                    &granted, &status);
        guest_say(L"probe %lu", granted & 3);
        CloseHandle(token);
    }
    RevertToSelf();
    LocalFree(descriptor);
}

static DWORD say_token(guest_words words) {
    (void)words;
    HANDLE token = NULL;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY | TOKEN_DUPLICATE, &token))
        return guest_error();
    say_flag(token, L"package", IS_APP_CONTAINER);
    say_flag(token, L"less-privileged", IS_LESS_PRIVILEGED);
    TOKEN_USER *user = asked(token, TokenUser);
    if (user) say_sid(L"user", user->User.Sid);
    free(user);
    PSID *package = asked(token, (TOKEN_INFORMATION_CLASS)APP_CONTAINER_SID);
    if (package) say_sid(L"sid", *package);
    free(package);
    TOKEN_GROUPS *capabilities = asked(token, (TOKEN_INFORMATION_CLASS)CAPABILITIES);
    for (DWORD i = 0; capabilities && i < capabilities->GroupCount; i++)
        say_sid(L"capability", capabilities->Groups[i].Sid);
    free(capabilities);
    TOKEN_MANDATORY_LABEL *label = asked(token, TokenIntegrityLevel);
    if (label) say_sid(L"integrity", label->Label.Sid);
    free(label);
    say_probe();
    CloseHandle(token);
    return 0;
}

typedef HWINSTA(WINAPI *get_station)(void);
typedef HDESK(WINAPI *get_desktop)(DWORD);
typedef HDESK(WINAPI *open_desktop)(LPCWSTR, DWORD, BOOL, ACCESS_MASK);
typedef BOOL(WINAPI *close_desktop)(HDESK);
typedef BOOL(WINAPI *object_information)(HANDLE, int, PVOID, DWORD, LPDWORD);

// user32.dll is loaded when an act needs it: that alone connects a process to a desktop.
static FARPROC of_user(const char *name) {
    HMODULE library = LoadLibraryExW(L"user32.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    return library ? GetProcAddress(library, name) : NULL;
}

static void say_object(const wchar_t *what, HANDLE object) {
    object_information query =
        (object_information)(void (*)(void))of_user("GetUserObjectInformationW");
    wchar_t name[128] = L"";
    DWORD size = 0;
    if (query && query(object, UOI_NAME, name, sizeof name, &size))
        guest_say(L"%ls %ls", what, name);
    else guest_say(L"%ls error %lu", what, GetLastError());
}

static DWORD say_desktop(guest_words words) {
    (void)words;
    get_station station = (get_station)(void (*)(void))of_user("GetProcessWindowStation");
    get_desktop desktop = (get_desktop)(void (*)(void))of_user("GetThreadDesktop");
    if (!station || !desktop) return guest_error();
    say_object(L"station", station());
    say_object(L"desktop", desktop(GetCurrentThreadId()));
    return 0;
}

static DWORD enter_desktop(guest_words words) {
    open_desktop open = (open_desktop)(void (*)(void))of_user("OpenDesktopW");
    close_desktop close = (close_desktop)(void (*)(void))of_user("CloseDesktop");
    if (!open || !close) return guest_error();
    HDESK desktop =
        open(words.words[0], 0, FALSE, (ACCESS_MASK)wcstoul(words.words[1], NULL, 0));
    if (!desktop) return guest_error();
    close(desktop);
    return 0;
}

typedef BOOL(WINAPI *read_credential)(LPCWSTR, DWORD, DWORD, PCREDENTIALW *);
typedef SC_HANDLE(WINAPI *open_manager)(LPCWSTR, LPCWSTR, DWORD);
typedef HRESULT(WINAPI *initialize)(LPVOID, DWORD);
typedef HRESULT(WINAPI *create_instance)(REFCLSID, LPUNKNOWN, DWORD, REFIID, LPVOID *);
typedef HRESULT(WINAPI *parse_class)(LPCOLESTR, LPCLSID);

static FARPROC of_library(const wchar_t *library, const char *name) {
    HMODULE loaded = LoadLibraryExW(library, NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    return loaded ? GetProcAddress(loaded, name) : NULL;
}

// A credential that the host has stored under this name.
static DWORD credential(guest_words words) {
    read_credential call =
        (read_credential)(void (*)(void))of_library(L"advapi32.dll", "CredReadW");
    PCREDENTIALW found = NULL;
    if (!call) return guest_error();
    return call(words.words[0], CRED_TYPE_GENERIC, 0, &found) ? 0 : guest_error();
}

static DWORD service_manager(guest_words words) {
    (void)words;
    open_manager call =
        (open_manager)(void (*)(void))of_library(L"advapi32.dll", "OpenSCManagerW");
    if (!call) return guest_error();
    return call(NULL, NULL, 1 /* SC_MANAGER_CONNECT */) ? 0 : guest_error();
}

// Make an object of a class in another process; the class is a text in braces.
static DWORD activate(guest_words words) {
    initialize begin =
        (initialize)(void (*)(void))of_library(L"ole32.dll", "CoInitializeEx");
    parse_class parse =
        (parse_class)(void (*)(void))of_library(L"ole32.dll", "CLSIDFromString");
    create_instance create =
        (create_instance)(void (*)(void))of_library(L"ole32.dll", "CoCreateInstance");
    if (!begin || !parse || !create) return guest_error();
    const IID unknown = {0, 0, 0, {0xC0, 0, 0, 0, 0, 0, 0, 0x46}};
    CLSID which;
    HRESULT result = begin(NULL, 0);
    if (SUCCEEDED(result)) result = parse(words.words[0], &which);
    IUnknown *object = NULL;
    if (SUCCEEDED(result))
        result = create(&which, NULL, CLSCTX_LOCAL_SERVER | CLSCTX_INPROC_SERVER,
                        &unknown, (LPVOID *)&object);
    return SUCCEEDED(result) ? 0 : (DWORD)result;
}

typedef BOOL(WINAPI *open_clipboard)(HWND);
typedef HANDLE(WINAPI *clipboard_data)(UINT);

static DWORD read_clipboard(guest_words words) {
    (void)words;
    open_clipboard open = (open_clipboard)(void (*)(void))of_user("OpenClipboard");
    clipboard_data data = (clipboard_data)(void (*)(void))of_user("GetClipboardData");
    if (!open || !data) return guest_error();
    if (!open(NULL)) return guest_error();
    return data(13 /* CF_UNICODETEXT */) ? 0 : guest_error();
}

const guest_entry guest_system[] = {
    {L"token", 0, say_token},
    {L"desktop", 0, say_desktop},
    {L"enter-desktop", 2, enter_desktop},
    {L"credential", 1, credential},
    {L"service-manager", 0, service_manager},
    {L"activate", 1, activate},
    {L"clipboard", 0, read_clipboard},
    {NULL, 0, NULL},
};
