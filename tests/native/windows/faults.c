// Each call of Win32 that a life of a context makes fails once (W66): afterwards there is
// no file, no process and no handle more than before, or the context is poisoned and one
// close cleans up.
//
//     windows_faults.exe FOLDER FIRST LAST STEP
//
// From the call of the number FIRST on, every STEP-th. It says how many calls have
// failed, whether there were fewer than LAST, and which ones did no harm: those that the
// life did not have to tell of.
//
// A life is create, stage, seal, a program with pipes and one on a console, close. What
// fails are calls of the table's own files; see faulty_calls.h. Over the table of the
// wine lane (lane_table.c).

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "check.h"
#include "windows_jail.h"
#include "windows_win32.h"

enum { TEXT = 1024, PATIENCE_MS = 20000, INJECTED = 1450 }; // ERROR_NO_SYSTEM_RESOURCES

static struct {
    volatile LONG calls;
    volatile LONG failing; // the number of the call; 0: none
    const char *name;      // of the one that has failed
    LONG(NTAPI *create_file)(PHANDLE, ACCESS_MASK, PVOID, PVOID, PLARGE_INTEGER, ULONG,
                             ULONG, ULONG, ULONG, PVOID, ULONG);
    HRESULT(WINAPI *create_console)(COORD, HANDLE, HANDLE, DWORD, void **);
} state;

bool faulty_call(const char *name);
FARPROC faulty_entry(const char *name, FARPROC real);

bool faulty_call(const char *name) {
    LONG number = InterlockedIncrement(&state.calls);
    if (number != state.failing) return false;
    state.name = name;
    SetLastError(INJECTED);
    return true;
}

static LONG NTAPI create_file(PHANDLE handle, ACCESS_MASK access, PVOID object,
                              PVOID block, PLARGE_INTEGER size, ULONG attributes,
                              ULONG share, ULONG how, ULONG options, PVOID extended,
                              ULONG extended_size) {
    const LONG refused = (LONG)0xC000009A; // STATUS_INSUFFICIENT_RESOURCES
    if (faulty_call("NtCreateFile")) return refused;
    return state.create_file(handle, access, object, block, size, attributes, share, how,
                             options, extended, extended_size);
}

static HRESULT WINAPI create_console(COORD size, HANDLE input, HANDLE output, DWORD flags,
                                     void **console) {
    if (faulty_call("CreatePseudoConsole")) return E_OUTOFMEMORY;
    return state.create_console(size, input, output, flags, console);
}

FARPROC faulty_entry(const char *name, FARPROC real) {
    if (real && !strcmp(name, "NtCreateFile")) {
        memcpy(&state.create_file, &real, sizeof real);
        return (FARPROC)(void (*)(void))create_file;
    }
    if (real && !strcmp(name, "CreatePseudoConsole")) {
        memcpy(&state.create_console, &real, sizeof real);
        return (FARPROC)(void (*)(void))create_console;
    }
    return real;
}

// ---- one life

typedef struct {
    char folder[TEXT];
    char guest[TEXT];
    vj_windows_id context;
    vj_windows_error error;
    char root[TEXT];
    DWORD pids[2];
} one_life;

static vj_windows_text text_of(const char *text) {
    return (vj_windows_text){text, strlen(text)};
}

static bool held(vj_windows_status status) {
    return status == VJ_WINDOWS_OK;
}

static bool is_made(one_life *life) {
    const vj_windows_create_options options = {.size = sizeof options,
                                               .version = VJ_WINDOWS_VERSION,
                                               .parent = text_of(life->folder),
                                               .flags = VJ_WINDOWS_REMOVE_WORK};
    vj_windows_context_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    if (!held(vj_windows_create(&options, &life->context, &info, &life->error)))
        return false;
    snprintf(life->root, sizeof life->root, "%s", info.root);
    return true;
}

static bool is_staged(one_life *life) {
    const vj_windows_source source = {text_of(life->guest), text_of("bin/guest.exe")};
    const vj_windows_stage_request request = {.size = sizeof request,
                                              .version = VJ_WINDOWS_VERSION,
                                              .sources = &source,
                                              .source_count = 1};
    vj_windows_stage_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    return held(vj_windows_stage(life->context, &request, &info, &life->error)) &&
           held(vj_windows_seal(life->context, &life->error));
}

static bool runs(one_life *life, uint32_t flags, int which) {
    static const char words[] = "guest\0echo\0said";
    char program[TEXT + 32];
    char bytes[256];
    uint64_t count = 0;
    snprintf(program, sizeof program, "%s\\app\\bin\\guest.exe", life->root);
    const vj_windows_spawn_request request = {.size = sizeof request,
                                              .version = VJ_WINDOWS_VERSION,
                                              .application = text_of(program),
                                              .arguments = {words, sizeof words},
                                              .argument_count = 3,
                                              .flags = flags,
                                              .columns = 80,
                                              .rows = 25};
    vj_windows_spawn_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    if (!held(vj_windows_spawn(life->context, &request, &info, &life->error)))
        return false;
    life->pids[which] = info.pid;
    if (!held(vj_windows_read(info.output, bytes, sizeof bytes, PATIENCE_MS, &count,
                              &life->error)))
        return false;
    return held(vj_windows_wait(info.process, PATIENCE_MS, &end, &life->error)) &&
           held(vj_windows_release(info.process, &life->error));
}

// True: to its end. Else `error` says what was told.
static bool lives(one_life *life) {
    life->error =
        (vj_windows_error){.size = sizeof life->error, .version = VJ_WINDOWS_VERSION};
    if (!is_made(life) || !is_staged(life) || !runs(life, 0, 0) ||
        !runs(life, VJ_WINDOWS_SPAWN_CONSOLE, 1) ||
        !held(vj_windows_close(life->context, &life->error)))
        return false;
    life->context = 0;
    return true;
}

// ---- what is left

// SYSTEM_HANDLE_INFORMATION (class 16): GetProcessHandleCount says 0 under wine.
static uint32_t handles_open(void) {
    DWORD counted = 0;
    if (GetProcessHandleCount(GetCurrentProcess(), &counted) && counted) return counted;
    typedef struct {
        ULONG count;
        struct {
            USHORT process;
            USHORT trace;
            UCHAR type;
            UCHAR flags;
            USHORT value;
            PVOID object;
            ULONG access;
        } entries[1];
    } handle_list;
    typedef LONG(WINAPI * query_system)(ULONG, PVOID, ULONG, PULONG);
    query_system query = (query_system)(void (*)(void))GetProcAddress(
        GetModuleHandleW(L"ntdll.dll"), "NtQuerySystemInformation");
    ULONG size = 1u << 20;
    handle_list *list = calloc(1, size);
    CHECK(query && list && query(16, list, size, &size) >= 0);
    uint32_t found = 0;
    for (ULONG i = 0; i < list->count; i++)
        found += list->entries[i].process == (USHORT)GetCurrentProcessId();
    free(list);
    return found;
}

static bool is_running(DWORD pid) {
    HANDLE process = pid ? OpenProcess(SYNCHRONIZE, FALSE, pid) : NULL;
    if (!process) return false;
    bool runs = WaitForSingleObject(process, 0) == WAIT_TIMEOUT;
    CloseHandle(process);
    return runs;
}

static bool is_empty(const char *folder) {
    wchar_t pattern[TEXT];
    WIN32_FIND_DATAW entry;
    bool empty = true;
    _snwprintf(pattern, TEXT, L"%hs\\*", folder);
    HANDLE found = FindFirstFileW(pattern, &entry);
    CHECK(found != INVALID_HANDLE_VALUE);
    do
        empty =
            empty && (!wcscmp(entry.cFileName, L".") || !wcscmp(entry.cFileName, L".."));
    while (FindNextFileW(found, &entry));
    FindClose(found);
    return empty;
}

static void check_left(const one_life *life, uint32_t handles, LONG number) {
    bool clean = is_empty(life->folder) && !is_running(life->pids[0]) &&
                 !is_running(life->pids[1]);
    uint32_t now = 0;
    // The thread that closed a console may still be on its way out.
    for (int i = 0; i < 50; i++) {
        now = handles_open();
        if (now <= handles) break;
        Sleep(20);
    }
    if (clean && now <= handles) return;
    printf("call %ld, %s: %s, %lu handles of %lu\n", (long)number,
           state.name ? state.name : "none", clean ? "clean" : "something is left",
           (unsigned long)now, (unsigned long)handles);
    fflush(stdout);
    ExitProcess(1);
}

// NOLINTNEXTLINE(misc-use-internal-linkage): the start of the C run time calls it
int wmain(int count, wchar_t **words);

int wmain(int count, wchar_t **words) {
    static one_life life;
    wchar_t guest[MAX_PATH];
    CHECK(count == 5 && GetModuleFileNameW(NULL, guest, MAX_PATH) != 0);
    wchar_t *slash = wcsrchr(guest, L'\\');
    CHECK(slash != NULL);
    wcscpy(slash, L"\\windows_guest.exe");
    snprintf(life.folder, TEXT, "%ls", words[1]);
    snprintf(life.guest, TEXT, "%ls", guest);
    LONG first = wcstol(words[2], NULL, 10);
    LONG last = wcstol(words[3], NULL, 10);
    LONG every = wcstol(words[4], NULL, 10);
    CHECK(first > 0 && every > 0);
    // What the run time and the first console keep.
    for (int i = 0; i < 2; i++) CHECK(lives(&life));
    Sleep(200);
    uint32_t handles = handles_open();
    unsigned failed = 0;
    for (LONG number = first; number <= last; number += every) {
        state.calls = 0;
        state.name = NULL;
        memset(life.pids, 0, sizeof life.pids);
        state.failing = number;
        bool whole = lives(&life);
        state.failing = 0;
        if (!whole && life.context) {
            vj_windows_error error = {.size = sizeof error,
                                      .version = VJ_WINDOWS_VERSION};
            vj_windows_status status = vj_windows_close(life.context, &error);
            CHECK(status == VJ_WINDOWS_OK || status == VJ_WINDOWS_STALE);
        }
        life.context = 0;
        check_left(&life, handles, number);
        if (!state.name) break;
        failed++;
        if (whole) printf("harmless %s\n", state.name);
    }
    printf("failed %u\nend %d\n", failed, state.name == NULL);
    return 0;
}
