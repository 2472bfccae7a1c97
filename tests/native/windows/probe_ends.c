// The end of contexts and streams: what waits, what is left, and what a failed end
// leaves.

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "probe.h"

// SYSTEM_HANDLE_INFORMATION (class 16): one entry for each handle of the machine.
typedef struct {
    USHORT process;
    USHORT trace;
    UCHAR type;
    UCHAR flags;
    USHORT value;
    PVOID object;
    ULONG access;
} handle_entry;

typedef struct {
    ULONG count;
    handle_entry entries[1]; // as many as there are
} handle_list;

// How many handles this process has. GetProcessHandleCount says 0 under wine.
static uint32_t handles_open(void) {
    typedef LONG(WINAPI * query_system)(ULONG, PVOID, ULONG, PULONG);
    DWORD counted = 0;
    if (GetProcessHandleCount(GetCurrentProcess(), &counted) && counted) return counted;
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

static void one_round(const probe_host *probe) {
    vj_windows_error error = probe_error();
    probe_jail *jail = probe_open(probe);
    PROBE_ALLOWED(jail, "echo", "a");
    // One that is running, and one whose streams are closed already.
    vj_windows_spawn_info info = probe_spawn(jail, PROBE_WORD("wait", "60000"), NULL);
    probe_held(vj_windows_close_stream(info.output, &error), &error, "close_stream");
    probe_spawn(jail, PROBE_WORD("flood"), NULL);
    vj_windows_spawn_request terminal = {
        .flags = VJ_WINDOWS_SPAWN_CONSOLE, .columns = 80, .rows = 25};
    probe_spawn(jail, PROBE_WORD("flood-console"), &terminal);
    probe_close(jail);
}

// After the first round, which makes what the run time keeps, no handle is left by
// another.
static void leaves_no_handle(const probe_host *probe) {
    one_round(probe);
    Sleep(500);
    uint32_t before = handles_open();
    CHECK(before != 0);
    for (int i = 0; i < 5; i++) one_round(probe);
    uint32_t after = 0;
    // The threads that closed consoles may still be on their way out.
    for (int i = 0; i < 50; i++) {
        after = handles_open();
        if (after <= before) break;
        Sleep(100);
    }
    printf("handles %lu %lu\n", (unsigned long)before, (unsigned long)after);
    CHECK(after <= before);
}

typedef struct {
    vj_windows_id stream;
    volatile LONG reading;
} blocked;

static DWORD WINAPI read_body(void *given) {
    blocked *reader = given;
    vj_windows_error error = probe_error();
    char byte = 0;
    uint64_t count = 0;
    reader->reading = 1;
    // Nothing ever comes: only the end of the stream or of its context ends this.
    vj_windows_status status =
        vj_windows_read(reader->stream, &byte, 1, VJ_WINDOWS_FOREVER, &count, &error);
    bool ended = status == VJ_WINDOWS_STALE || status == VJ_WINDOWS_ENDED ||
                 status == VJ_WINDOWS_CLOSING || (status == VJ_WINDOWS_OK && !count);
    return ended ? 0 : (DWORD)status + 100;
}

// Readers in flight: some of streams that are closed by themselves, some not.
static void waits_for_streams(const probe_host *probe) {
    enum { READERS = 6 };
    vj_windows_error error = probe_error();
    probe_jail *jail = probe_open(probe);
    blocked readers[READERS] = {0};
    HANDLE threads[READERS];
    for (int i = 0; i < READERS; i++) {
        readers[i].stream = probe_spawn(jail, PROBE_WORD("wait", "60000"), NULL).output;
        threads[i] = CreateThread(NULL, 0, read_body, &readers[i], 0, NULL);
        CHECK(threads[i] != NULL);
        while (!readers[i].reading) Sleep(1);
    }
    Sleep(100);
    for (int i = 0; i < READERS; i += 2)
        probe_held(vj_windows_close_stream(readers[i].stream, &error), &error,
                   "close_stream");
    uint64_t begun = GetTickCount64();
    probe_close(jail);
    CHECK(GetTickCount64() - begun < PROBE_MS);
    EQUAL(WaitForMultipleObjects(READERS, threads, TRUE, PROBE_MS), WAIT_OBJECT_0);
    for (int i = 0; i < READERS; i++) {
        DWORD code = 1;
        CHECK(GetExitCodeThread(threads[i], &code));
        DONE(code);
        CloseHandle(threads[i]);
    }
}

// A terminal that floods, whose output nobody has any more: it goes, and others start.
static void abandoned_output(const probe_host *probe) {
    vj_windows_error error = probe_error();
    probe_jail *jail = probe_open(probe);
    vj_windows_spawn_request terminal = {
        .flags = VJ_WINDOWS_SPAWN_CONSOLE, .columns = 80, .rows = 25};
    for (int i = 0; i < 3; i++) {
        vj_windows_spawn_info info =
            probe_spawn(jail, PROBE_WORD("flood-console"), &terminal);
        uint64_t count = 0;
        probe_held(vj_windows_read(info.output, jail->output, PROBE_OUTPUT, PROBE_MS,
                                   &count, &error),
                   &error, "read");
        probe_held(vj_windows_close_stream(info.output, &error), &error, "close_stream");
        uint64_t begun = GetTickCount64();
        probe_held(vj_windows_release(info.process, &error), &error, "release");
        CHECK(GetTickCount64() - begun < PROBE_MS);
    }
    PROBE_ALLOWED(jail, "echo");
    probe_close(jail);
}

// Somebody has a staged file open, so that it cannot be taken away: the context says so
// and does nothing but be closed again.
static void second_close(const probe_host *probe) {
    vj_windows_error error = probe_error();
    probe_jail *jail = probe_open(probe);
    wchar_t wide[PROBE_TEXT];
    CHECK(MultiByteToWideChar(CP_UTF8, 0, jail->guest, -1, wide, PROBE_TEXT) > 0);
    HANDLE file =
        CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    vj_windows_status status = vj_windows_close(jail->context, &error);
    CHECK(status != VJ_WINDOWS_OK && status != VJ_WINDOWS_STALE);
    printf("%s: %s\n", error.step, error.text);
    vj_windows_context_state state = VJ_WINDOWS_CONTEXT_OPEN;
    probe_held(vj_windows_state_of(jail->context, &state, &error), &error, "state_of");
    EQUAL(state, VJ_WINDOWS_CONTEXT_POISONED);
    const char word[] = "guest";
    vj_windows_spawn_request request = {.size = sizeof request,
                                        .version = VJ_WINDOWS_VERSION,
                                        .application = probe_text(jail->guest),
                                        .arguments = {word, sizeof word},
                                        .argument_count = 1};
    vj_windows_spawn_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    EQUAL(vj_windows_spawn(jail->context, &request, &info, &error), VJ_WINDOWS_POISONED);
    CHECK(vj_windows_close(jail->context, &error) != VJ_WINDOWS_OK);
    CloseHandle(file);
    char *app = probe_format("%s\\app", jail->info.root);
    probe_close(jail);
    CHECK(!probe_exists(app));
}

// What a guest leaves that lets nobody in, or lets nobody delete: it goes with the jail.
// An entry of OWNER RIGHTS that takes away even WRITE_DAC is beyond this user; the
// context says so, and is closed when that has been removed.
static void closed_folders(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    char *temp = probe_format("%s\\temp", jail->info.root);
    char *closed = probe_format("%s\\closed", temp);
    PROBE_ALLOWED(jail, "close-folder", closed, "D:P");
    // Listing, and nothing else, to everybody.
    PROBE_ALLOWED(jail, "close-folder", probe_format("%s\\kept", temp),
                  "D:P(A;;0x1200a9;;;WD)");
    wchar_t wide[PROBE_TEXT];
    CHECK(MultiByteToWideChar(CP_UTF8, 0, closed, -1, wide, PROBE_TEXT) > 0);
    HANDLE folder = CreateFileW(wide, FILE_LIST_DIRECTORY, 7, NULL, OPEN_EXISTING,
                                FILE_FLAG_BACKUP_SEMANTICS, NULL);
    CHECK(folder == INVALID_HANDLE_VALUE);
    EQUAL(GetLastError(), ERROR_ACCESS_DENIED);
    probe_close(jail);
    CHECK(!probe_exists(temp));
}

const probe_entry probe_ends[] = {
    {"leaves-no-handle", leaves_no_handle}, {"waits-for-streams", waits_for_streams},
    {"abandoned-output", abandoned_output}, {"second-close", second_close},
    {"closed-folders", closed_folders},     {NULL, NULL},
};
