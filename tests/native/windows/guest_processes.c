// Acts on processes: descendants, jobs, handles, limits.

#include "guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

// Start this program again; its process handle, or NULL.
static HANDLE started(const wchar_t *application, const wchar_t *words, DWORD flags,
                      DWORD *process) {
    wchar_t *command = guest_command(words);
    if (!command) return NULL;
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION child = {0};
    BOOL done = CreateProcessW(application, command, NULL, NULL, TRUE, flags, NULL, NULL,
                               &start, &child);
    DWORD error = done ? 0 : guest_error();
    free(command);
    SetLastError(error);
    if (!done) return NULL;
    CloseHandle(child.hThread);
    if (process) *process = child.dwProcessId;
    return child.hProcess;
}

static DWORD code_of(HANDLE process) {
    DWORD code = GUEST_NOTHING;
    if (!process) return guest_error();
    if (WaitForSingleObject(process, 20000) != WAIT_OBJECT_0) code = WAIT_TIMEOUT;
    else GetExitCodeProcess(process, &code);
    CloseHandle(process);
    return code;
}

static DWORD echo(guest_words words) {
    for (int i = 0; i < words.count; i++) guest_say(L"[%ls]", words.words[i]);
    return 0;
}

static DWORD environment(guest_words words) {
    (void)words;
    wchar_t *block = GetEnvironmentStringsW();
    if (!block) return guest_error();
    for (const wchar_t *entry = block; *entry; entry += wcslen(entry) + 1)
        guest_say(L"%ls", entry);
    FreeEnvironmentStringsW(block);
    return 0;
}

static DWORD directory(guest_words words) {
    (void)words;
    wchar_t path[MAX_PATH];
    if (!GetCurrentDirectoryW(MAX_PATH, path)) return guest_error();
    guest_say(L"%ls", path);
    return 0;
}

static DWORD leave(guest_words words) {
    return (DWORD)wcstoul(words.words[0], NULL, 0);
}

static DWORD wait_here(guest_words words) {
    Sleep((DWORD)wcstoul(words.words[0], NULL, 0));
    return 0;
}

// A descendant by its application name, which runs another act of this program.
static DWORD descend(guest_words words) {
    wchar_t path[MAX_PATH];
    guest_path(path);
    return code_of(started(path, words.words[0], 0, NULL));
}

// The same, found by the command line alone.
static DWORD descend_by_name(guest_words words) {
    return code_of(started(NULL, words.words[0], 0, NULL));
}

static DWORD descend_to_system(guest_words words) {
    (void)words;
    wchar_t path[MAX_PATH];
    UINT length = GetSystemDirectoryW(path, MAX_PATH - 16);
    if (!length || length >= MAX_PATH - 16) return guest_error();
    wcscat(path, L"\\where.exe");
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION child = {0};
    wchar_t command[] = L"where.exe /?";
    if (!CreateProcessW(path, command, NULL, NULL, FALSE, CREATE_NO_WINDOW, NULL, NULL,
                        &start, &child))
        return guest_error();
    CloseHandle(child.hThread);
    return code_of(child.hProcess);
}

// 0: the descendant left the job. 5 is the refusal.
static DWORD break_away(guest_words words) {
    (void)words;
    HANDLE process = started(NULL, L"wait 60000", CREATE_BREAKAWAY_FROM_JOB, NULL);
    if (!process) return guest_error();
    BOOL inside = FALSE;
    IsProcessInJob(process, NULL, &inside);
    TerminateProcess(process, 1);
    CloseHandle(process);
    return inside ? GUEST_NOTHING : 0;
}

// Leaves a child behind that waits, says its process id, and waits itself if it is told
// to.
static DWORD leave_child(guest_words words) {
    DWORD id = 0;
    HANDLE process = started(NULL, L"wait 60000", 0, &id);
    if (!process) return guest_error();
    CloseHandle(process);
    guest_say(L"%lu", id);
    if (words.count && !wcscmp(words.words[0], L"stay")) Sleep(60000);
    return 0;
}

// How many children can be started at once, up to a number.
static DWORD many_children(guest_words words) {
    unsigned long wanted = wcstoul(words.words[0], NULL, 0);
    for (unsigned long i = 0; i < wanted; i++) {
        HANDLE process = started(NULL, L"wait 60000", 0, NULL);
        if (!process) return guest_error();
        CloseHandle(process);
    }
    return 0;
}

// Whether the number is a handle of an event here: the host has one of that number.
static DWORD use_handle(guest_words words) {
    HANDLE handle = (HANDLE)(ULONG_PTR)_wcstoui64(words.words[0], NULL, 0);
    return SetEvent(handle) ? 0 : guest_error();
}

static DWORD in_job(guest_words words) {
    (void)words;
    BOOL inside = FALSE;
    if (!IsProcessInJob(GetCurrentProcess(), NULL, &inside)) return guest_error();
    guest_say(L"%d", inside);
    return 0;
}

static DWORD commit_memory(guest_words words) {
    SIZE_T size = (SIZE_T)_wcstoui64(words.words[0], NULL, 0);
    char *memory = VirtualAlloc(NULL, size, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    if (!memory) return guest_error();
    for (SIZE_T at = 0; at < size; at += 4096) memory[at] = 1;
    return 0;
}

static DWORD open_process(guest_words words) {
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, FALSE,
                                 (DWORD)wcstoul(words.words[0], NULL, 0));
    if (!process) return guest_error();
    CloseHandle(process);
    return 0;
}

// Loaded by its bare name, as programs do it that can be fooled.
static DWORD load_library(guest_words words) {
    HMODULE library = LoadLibraryW(words.words[0]);
    if (!library) return guest_error();
    wchar_t path[MAX_PATH];
    if (GetModuleFileNameW(library, path, MAX_PATH)) guest_say(L"%ls", path);
    return 0;
}

static DWORD crash(guest_words words) {
    (void)words;
    RaiseException(0xC0000005, EXCEPTION_NONCONTINUABLE, 0, NULL);
    return 0;
}

const guest_entry guest_processes[] = {
    {L"echo", 0, echo},
    {L"environment", 0, environment},
    {L"directory", 0, directory},
    {L"exit", 1, leave},
    {L"wait", 1, wait_here},
    {L"descend", 1, descend},
    {L"descend-by-name", 1, descend_by_name},
    {L"descend-to-system", 0, descend_to_system},
    {L"break-away", 0, break_away},
    {L"leave-child", 0, leave_child},
    {L"many-children", 1, many_children},
    {L"use-handle", 1, use_handle},
    {L"in-job", 0, in_job},
    {L"commit", 1, commit_memory},
    {L"open-process", 1, open_process},
    {L"load", 1, load_library},
    {L"crash", 0, crash},
    {NULL, 0, NULL},
};
