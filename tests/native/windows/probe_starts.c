// How a guest starts and ends: identity, arguments, job, descendants, handles.

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "probe.h"

#include <sddl.h>

// Where the library may refuse: with a name for what is missing, and nothing on the disk.
static void unavailable(const probe_host *probe) {
    vj_windows_error error = probe_error();
    vj_windows_id context = 0;
    vj_windows_context_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    vj_windows_create_options options = {.size = sizeof options,
                                         .version = VJ_WINDOWS_VERSION,
                                         .parent = probe_text(probe->folder)};
    uint32_t build = 0;
    EQUAL(vj_windows_probe(&build, &error), VJ_WINDOWS_UNAVAILABLE);
    printf("%s\n", error.text);
    EQUAL(vj_windows_create(&options, &context, &info, &error), VJ_WINDOWS_UNAVAILABLE);
    CHECK(!context);
    WIN32_FIND_DATAW entry;
    wchar_t pattern[PROBE_TEXT];
    _snwprintf(pattern, PROBE_TEXT, L"%ls\\vj-*", probe->wide_folder);
    CHECK(FindFirstFileW(pattern, &entry) == INVALID_HANDLE_VALUE);
}

static void exact(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    PROBE_ALLOWED(jail, "echo", "a b", "", "back\\", "\"quoted\"", "\xc3\xa4");
    CHECK(probe_said(jail, "[a b]") && probe_said(jail, "[]") &&
          probe_said(jail, "[back\\]"));
    CHECK(probe_said(jail, "[\"quoted\"]") && probe_said(jail, "[\xc3\xa4]"));
    PROBE_ALLOWED(jail, "directory");
    CHECK(probe_said(jail, probe_format("%s\\work", jail->info.root)));
    PROBE_ALLOWED(jail, "environment");
    char *temp = probe_format("TEMP=%s\\temp\\Packages\\", jail->info.root);
    temp = probe_format(probe_format("%s%%s\\AC\\Temp", temp), jail->info.package);
    CHECK(probe_said(jail, temp));
    CHECK(!strstr(jail->output, "Path=") && !strstr(jail->output, "PATH="));
    EQUAL(probe_inside(jail, PROBE_WORD("exit", "0xC0000142")), 0xC0000142);
    probe_close(jail);
}

// The token of the guest, by its own word; the host has compared it before it ran.
static void token(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    PROBE_ALLOWED(jail, "token");
    CHECK(probe_said(jail, "package 1") && probe_said(jail, "less-privileged 1"));
    CHECK(probe_said(jail, "probe 2") && probe_said(jail, "integrity S-1-16-4096"));
    CHECK(probe_said(jail, probe_format("sid %s", jail->info.package_sid)));
    CHECK(probe_said(jail, "capability S-1-15-3-1024-1065365936-1281604716-3511738428-"
                           "1654721687-432734479-3232135806-4053264122-3456934681"));
    const char *first = strstr(jail->output, "capability ");
    CHECK(first && !strstr(first + 1, "capability "));
    probe_close(jail);
}

typedef HRESULT(WINAPI *derive_package)(PCWSTR, PSID *);
typedef BOOL(WINAPI *derive_capability)(PCWSTR, PSID **, DWORD *, PSID **, DWORD *);

static bool is_sid(PSID sid, const char *text) {
    LPSTR said = NULL;
    bool same = ConvertSidToStringSidA(sid, &said) && !strcmp(said, text);
    LocalFree(said);
    return same;
}

static void free_sids(PSID *sids, DWORD count) {
    for (DWORD i = 0; i < count; i++) LocalFree(sids[i]);
    LocalFree(sids);
}

// What the library has computed is what Windows derives.
static void derived(const probe_host *probe) {
    HMODULE userenv = LoadLibraryExW(L"userenv.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    HMODULE base = LoadLibraryExW(L"kernelbase.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    derive_package package = (derive_package)(void (*)(void))GetProcAddress(
        userenv, "DeriveAppContainerSidFromAppContainerName");
    derive_capability capability = (derive_capability)(void (*)(void))GetProcAddress(
        base, "DeriveCapabilitySidsFromName");
    CHECK(package && capability);
    probe_jail *jail = probe_open(probe);
    wchar_t name[128];
    PSID sid = NULL;
    CHECK(MultiByteToWideChar(CP_UTF8, 0, jail->info.package, -1, name, 128) > 0);
    CHECK(SUCCEEDED(package(name, &sid)) && is_sid(sid, jail->info.package_sid));
    FreeSid(sid);
    PSID *groups = NULL;
    PSID *capabilities = NULL;
    DWORD group_count = 0;
    DWORD capability_count = 0;
    CHECK(capability(L"registryRead", &groups, &group_count, &capabilities,
                     &capability_count));
    vj_windows_spawn_info info = probe_spawn(jail, PROBE_WORD("echo"), NULL);
    CHECK(capability_count == 1 && is_sid(capabilities[0], info.capability_sid));
    free_sids(groups, group_count);
    free_sids(capabilities, capability_count);
    probe_close(jail);
}

static void descendants(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    const char *const ways[] = {"descend", "descend-by-name"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        PROBE_ALLOWED(jail, ways[i], "token");
        CHECK(probe_said(jail, "less-privileged 1"));
        CHECK(probe_said(jail, probe_format("sid %s", jail->info.package_sid)));
    }
    PROBE_ALLOWED(jail, "descend-to-system");
    probe_close(jail);
}

static void ordinary_descendants(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    PROBE_ALLOWED(jail, "descend", "echo");
    PROBE_ALLOWED(jail, "descend-by-name", "echo");
    probe_close(jail);
}

// A guest that may start no process: error 5 for its first child, and none without that.
static void no_children(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    PROBE_ALLOWED(jail, "descend", "echo");
    vj_windows_spawn_request alone = {.flags = VJ_WINDOWS_SPAWN_NO_INPUT |
                                               VJ_WINDOWS_SPAWN_NO_CHILDREN};
    vj_windows_spawn_info info = probe_spawn(jail, PROBE_WORD("descend", "echo"), &alone);
    vj_windows_error error = probe_error();
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    probe_held(vj_windows_wait(info.process, PROBE_MS, &end, &error), &error, "wait");
    EQUAL(end.exit_code, ERROR_ACCESS_DENIED);
    probe_close(jail);
}

static void break_away(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    EQUAL(probe_inside(jail, PROBE_WORD("break-away")), ERROR_ACCESS_DENIED);
    probe_close(jail);
}

// A guest that leaves a child behind: the process id that it says, as a handle.
static HANDLE child_of(vj_windows_id output) {
    vj_windows_error error = probe_error();
    char line[64] = "";
    uint64_t count = 0;
    probe_held(vj_windows_read(output, line, sizeof line - 1, PROBE_MS, &count, &error),
               &error, "read");
    HANDLE child = OpenProcess(SYNCHRONIZE, FALSE, (DWORD)strtoul(line, NULL, 10));
    CHECK(child != NULL);
    return child;
}

static void ends(const probe_host *probe) {
    vj_windows_error error = probe_error();
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    // Killed.
    probe_jail *jail = probe_open(probe);
    vj_windows_spawn_info info =
        probe_spawn(jail, PROBE_WORD("leave-child", "stay"), NULL);
    HANDLE child = child_of(info.output);
    EQUAL(vj_windows_wait(info.process, 100, &end, &error), VJ_WINDOWS_TIMED_OUT);
    probe_held(vj_windows_kill(info.process, &error), &error, "kill");
    probe_held(vj_windows_wait(info.process, PROBE_MS, &end, &error), &error, "wait");
    CHECK(end.killed == 1);
    EQUAL(WaitForSingleObject(child, PROBE_MS), WAIT_OBJECT_0);
    CloseHandle(child);
    // Waited for: what it left behind goes with it.
    info = probe_spawn(jail, PROBE_WORD("leave-child"), NULL);
    child = child_of(info.output);
    probe_held(vj_windows_wait(info.process, PROBE_MS, &end, &error), &error, "wait");
    DONE(end.exit_code);
    EQUAL(WaitForSingleObject(child, PROBE_MS), WAIT_OBJECT_0);
    CloseHandle(child);
    // Running when its context is closed.
    info = probe_spawn(jail, PROBE_WORD("leave-child", "stay"), NULL);
    child = child_of(info.output);
    vj_windows_id process = info.process;
    probe_close(jail);
    EQUAL(WaitForSingleObject(child, PROBE_MS), WAIT_OBJECT_0);
    CloseHandle(child);
    EQUAL(vj_windows_kill(process, &error), VJ_WINDOWS_STALE);
}

// The host dies: nobody closes anything, and the guests go all the same.
static void host_body(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    vj_windows_spawn_info info =
        probe_spawn(jail, PROBE_WORD("leave-child", "stay"), NULL);
    vj_windows_error error = probe_error();
    char line[64] = "";
    uint64_t count = 0;
    probe_held(
        vj_windows_read(info.output, line, sizeof line - 1, PROBE_MS, &count, &error),
        &error, "read");
    printf("%s\n", line);
    fflush(stdout);
    Sleep(PROBE_MS);
}

static void host_dies(const probe_host *probe) {
    wchar_t self[PROBE_TEXT];
    wchar_t command[3 * PROBE_TEXT];
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    HANDLE read = NULL;
    HANDLE written = NULL;
    CHECK(GetModuleFileNameW(NULL, self, PROBE_TEXT) != 0);
    _snwprintf(command, 3 * PROBE_TEXT, L"\"%ls\" \"%ls\" host-body", self,
               probe->wide_folder);
    CHECK(CreatePipe(&read, &written, &inherited, 0));
    STARTUPINFOW start = {.cb = sizeof start,
                          .dwFlags = STARTF_USESTDHANDLES,
                          .hStdOutput = written,
                          .hStdError = written};
    PROCESS_INFORMATION host = {0};
    CHECK(CreateProcessW(self, command, NULL, NULL, TRUE, 0, NULL, NULL, &start, &host));
    CloseHandle(written);
    char line[64] = "";
    DWORD size = 0;
    CHECK(ReadFile(read, line, sizeof line - 1, &size, NULL));
    HANDLE guest = OpenProcess(SYNCHRONIZE, FALSE, (DWORD)strtoul(line, NULL, 10));
    CHECK(guest != NULL);
    EQUAL(WaitForSingleObject(guest, 200), WAIT_TIMEOUT);
    CHECK(TerminateProcess(host.hProcess, 1));
    EQUAL(WaitForSingleObject(guest, PROBE_MS), WAIT_OBJECT_0);
    EQUAL(WaitForSingleObject(host.hProcess, PROBE_MS), WAIT_OBJECT_0);
    CloseHandle(guest);
    CloseHandle(host.hThread);
    CloseHandle(host.hProcess);
    CloseHandle(read);
    // What it left is found by its marker, and removed because its owner is dead.
    vj_windows_error error = probe_error();
    vj_windows_text parent = probe_text(probe->folder);
    uint64_t removed = 0;
    probe_held(vj_windows_remove_stale(&parent, &removed, &error), &error,
               "remove_stale");
    CHECK(removed >= 1);
}

// An inheritable event of the host: ERROR_INVALID_HANDLE in the guest, and nothing else.
static void handles(const probe_host *probe) {
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    HANDLE secret = CreateEventW(&inherited, TRUE, FALSE, NULL);
    CHECK(secret != NULL);
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)(ULONG_PTR)secret);
    probe_jail *jail = probe_open(probe);
    EQUAL(probe_inside(jail, PROBE_WORD("use-handle", number)), ERROR_INVALID_HANDLE);
    EQUAL(WaitForSingleObject(secret, 0), WAIT_TIMEOUT);
    probe_close(jail);
    wchar_t command[2 * PROBE_TEXT];
    _snwprintf(command, 2 * PROBE_TEXT, L"\"%ls\" use-handle %hs", probe->wide_guest,
               number);
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION child = {0};
    CHECK(CreateProcessW(probe->wide_guest, command, NULL, NULL, TRUE, CREATE_NO_WINDOW,
                         NULL, NULL, &start, &child));
    EQUAL(WaitForSingleObject(child.hProcess, PROBE_MS), WAIT_OBJECT_0);
    EQUAL(WaitForSingleObject(secret, 0), WAIT_OBJECT_0);
    CloseHandle(child.hThread);
    CloseHandle(child.hProcess);
    CloseHandle(secret);
}

static void limits(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    vj_windows_error error = probe_error();
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    PROBE_ALLOWED(jail, "many-children", "3");
    vj_windows_spawn_request few = {.flags = VJ_WINDOWS_SPAWN_NO_INPUT,
                                    .active_processes = 3};
    vj_windows_spawn_info info =
        probe_spawn(jail, PROBE_WORD("many-children", "3"), &few);
    probe_held(vj_windows_wait(info.process, PROBE_MS, &end, &error), &error, "wait");
    EQUAL(end.exit_code, ERROR_NOT_ENOUGH_QUOTA);
    PROBE_ALLOWED(jail, "commit", "268435456");
    vj_windows_spawn_request small = {.flags = VJ_WINDOWS_SPAWN_NO_INPUT,
                                      .process_memory = 64u << 20};
    info = probe_spawn(jail, PROBE_WORD("commit", "268435456"), &small);
    probe_held(vj_windows_wait(info.process, PROBE_MS, &end, &error), &error, "wait");
    EQUAL(end.exit_code, ERROR_COMMITMENT_LIMIT);
    vj_windows_spawn_request slow = {.flags = VJ_WINDOWS_SPAWN_NO_INPUT,
                                     .cpu_rate = 2000};
    info = probe_spawn(jail, PROBE_WORD("echo"), &slow);
    probe_held(vj_windows_wait(info.process, PROBE_MS, &end, &error), &error, "wait");
    DONE(end.exit_code);
    CHECK(info.ui_limits & 0xFF);
    probe_close(jail);
}

typedef struct {
    probe_jail *jail;
    volatile LONG go;
} close_race;

static DWORD WINAPI race_body(void *given) {
    close_race *race = given;
    vj_windows_error error = probe_error();
    while (!race->go) SwitchToThread();
    // Whoever comes second is told so, by one of these names.
    vj_windows_status status = vj_windows_close(race->jail->context, &error);
    return status == VJ_WINDOWS_OK || status == VJ_WINDOWS_CLOSING ||
                   status == VJ_WINDOWS_STALE
               ? 0
               : (DWORD)status + 100;
}

static void close_at_once(const probe_host *probe) {
    close_race race = {.jail = probe_open(probe)};
    HANDLE threads[8];
    probe_spawn(race.jail, PROBE_WORD("flood"), NULL);
    for (int i = 0; i < 8; i++) {
        threads[i] = CreateThread(NULL, 0, race_body, &race, 0, NULL);
        CHECK(threads[i] != NULL);
    }
    race.go = 1;
    EQUAL(WaitForMultipleObjects(8, threads, TRUE, PROBE_MS), WAIT_OBJECT_0);
    for (int i = 0; i < 8; i++) {
        DWORD code = 1;
        CHECK(GetExitCodeThread(threads[i], &code));
        DONE(code);
        CloseHandle(threads[i]);
    }
    free(race.jail);
}

const probe_entry probe_starts[] = {
    {"unavailable", unavailable},
    {"exact", exact},
    {"token", token},
    {"derived", derived},
    {"descendants", descendants},
    {"ordinary-descendants", ordinary_descendants},
    {"no-children", no_children},
    {"break-away", break_away},
    {"ends", ends},
    {"host-body", host_body},
    {"host-dies", host_dies},
    {"handles", handles},
    {"limits", limits},
    {"close-at-once", close_at_once},
    {NULL, NULL},
};
