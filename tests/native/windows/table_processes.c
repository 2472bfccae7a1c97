// Jobs, processes and their handles.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "table.h"

// The environment of a guest: no more than Windows needs.
static void environment_of(const table_test *test, wchar_t block[512]) {
    memset(block, 0, 512 * sizeof *block);
    _snwprintf(block, 500, L"SystemRoot=%ls", test->system);
}

static vj_windows_attribute of_handles(vj_windows_attribute_kind kind,
                                       const vj_windows_handle *handles, uint32_t count) {
    return (vj_windows_attribute){
        .kind = kind, .handles = handles, .handle_count = count};
}

static void pipe_of(const table_test *test, vj_windows_direction direction,
                    vj_windows_handle *server, vj_windows_handle *client) {
    static volatile LONG next;
    wchar_t name[128];
    _snwprintf(name, 128, L"\\\\.\\pipe\\vj-test-%lu-%ld", GetCurrentProcessId(),
               InterlockedIncrement(&next));
    DONE(test->os->pipe_create(test->os, name, direction, test->open, server));
    DONE(test->os->pipe_connect(test->os, name, direction, true, test->open, client));
}

table_guest table_start(const table_test *test, const wchar_t *words) {
    const vj_windows_os *os = test->os;
    table_guest guest = {0};
    vj_windows_job_limits limits = {0};
    vj_windows_handle ends[2] = {NULL, NULL};
    vj_windows_attributes attributes = NULL;
    wchar_t command[MAX_PATH + 256];
    wchar_t environment[512];
    _snwprintf(command, MAX_PATH + 256, L"\"%ls\" %ls", test->guest, words);
    environment_of(test, environment);
    DONE(os->job_create(os, test->open, &guest.job));
    DONE(os->job_watch(os, guest.job, &guest.port));
    DONE(os->job_set_limits(os, guest.job, &limits));
    pipe_of(test, VJ_WINDOWS_PIPE_TO_GUEST, &guest.input, &ends[0]);
    pipe_of(test, VJ_WINDOWS_PIPE_FROM_GUEST, &guest.output, &ends[1]);
    DONE(os->event_create(os, test->open, &guest.event));
    DONE(os->attributes_open(os, 2, &attributes));
    vj_windows_attribute job = of_handles(VJ_WINDOWS_ATTRIBUTE_JOB, &guest.job, 1);
    vj_windows_attribute inherited = of_handles(VJ_WINDOWS_ATTRIBUTE_HANDLES, ends, 2);
    DONE(os->attributes_add(os, attributes, &job));
    DONE(os->attributes_add(os, attributes, &inherited));
    vj_windows_launch launch = {.application = test->guest,
                                .command_line = command,
                                .environment = environment,
                                .directory = test->folder,
                                .attributes = attributes,
                                .standard = {ends[0], ends[1], ends[1]},
                                .process = test->open,
                                .thread = test->open};
    // The call of the table refuses what is no jail ...
    EQUAL(os->process_create(os, &launch, &guest.started),
          VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    CHECK(!guest.started.process);
    // ... and this is what is behind it.
    DONE(vj_win32_process_start(&launch, &guest.started));
    DONE(os->attributes_close(os, attributes));
    DONE(os->handle_close(os, ends[0]));
    DONE(os->handle_close(os, ends[1]));
    return guest;
}

uint32_t table_finish(const table_test *test, table_guest *guest) {
    uint32_t before = 0;
    uint32_t code = 0;
    DONE(test->os->thread_resume(test->os, guest->started.thread, &before));
    EQUAL(before, 1);
    DONE(test->os->process_wait(test->os, guest->started.process, 20000));
    DONE(test->os->process_exit_code(test->os, guest->started.process, &code));
    return code;
}

void table_output(const table_test *test, const table_guest *guest, char *bytes,
                  uint32_t capacity) {
    uint32_t length = 0;
    uint32_t code = 0;
    while (!code && length + 1 < capacity) {
        uint32_t count = 0;
        code = test->os->pipe_read(test->os, guest->output, guest->event, bytes + length,
                                   capacity - 1 - length, 5000, &count);
        length += count;
    }
    if (code) EQUAL(code, VJ_WINDOWS_ERROR_BROKEN_PIPE);
    bytes[length] = 0;
}

void table_end(const table_test *test, table_guest *guest) {
    vj_windows_handle handles[] = {guest->job,           guest->port,
                                   guest->input,         guest->output,
                                   guest->event,         guest->started.process,
                                   guest->started.thread};
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        if (handles[i]) DONE(test->os->handle_close(test->os, handles[i]));
    *guest = (table_guest){0};
}

// Nothing of it runs before it is resumed, and then it is in its job already.
static void suspended(table_test *test) {
    table_guest guest = table_start(test, L"in-job");
    bool inside = false;
    uint32_t code = 0;
    EQUAL(test->os->process_wait(test->os, guest.started.process, 300),
          VJ_WINDOWS_ERROR_TIMEOUT);
    EQUAL(test->os->process_exit_code(test->os, guest.started.process, &code),
          VJ_WINDOWS_ERROR_TIMEOUT);
    DONE(test->os->process_in_job(test->os, guest.started.process, guest.job, &inside));
    CHECK(inside);
    EQUAL(table_finish(test, &guest), 0);
    char output[64];
    table_output(test, &guest, output, sizeof output);
    CHECK(!strcmp(output, "1\n"));
    table_end(test, &guest);
}

static void exit_codes(table_test *test) {
    table_guest guest = table_start(test, L"exit 0xC0000142");
    EQUAL(table_finish(test, &guest), 0xC0000142);
    table_end(test, &guest);
    guest = table_start(test, L"exit 259"); // STILL_ACTIVE
    EQUAL(table_finish(test, &guest), 259);
    table_end(test, &guest);
}

static void kill_tree(table_test *test) {
    table_guest guest = table_start(test, L"leave-child stay");
    uint32_t before = 0;
    uint32_t code = 0;
    char line[64] = "";
    uint32_t count = 0;
    DONE(test->os->thread_resume(test->os, guest.started.thread, &before));
    DONE(test->os->pipe_read(test->os, guest.output, guest.event, line, sizeof line - 1,
                             20000, &count));
    HANDLE descendant = OpenProcess(SYNCHRONIZE, FALSE, (DWORD)strtoul(line, NULL, 10));
    CHECK(descendant != NULL);
    vj_windows_job_usage usage;
    DONE(test->os->job_usage(test->os, guest.job, &usage));
    // A console host of the guest may be the third.
    printf("active %lu\n", (unsigned long)usage.active);
    CHECK(usage.active >= 2 && usage.processes >= usage.active);
    EQUAL(test->os->job_wait_empty(test->os, guest.job, guest.port, 50),
          VJ_WINDOWS_ERROR_TIMEOUT);
    DONE(test->os->job_terminate(test->os, guest.job, 77));
    DONE(test->os->job_wait_empty(test->os, guest.job, guest.port, 10000));
    DONE(test->os->process_wait(test->os, guest.started.process, 10000));
    DONE(test->os->process_exit_code(test->os, guest.started.process, &code));
    EQUAL(code, 77);
    EQUAL(WaitForSingleObject(descendant, 10000), WAIT_OBJECT_0);
    CloseHandle(descendant);
    // Once more, to one that has ended.
    DONE(test->os->process_terminate(test->os, guest.started.process, 1));
    table_end(test, &guest);
}

static void close_job(table_test *test) {
    table_guest guest = table_start(test, L"wait 60000");
    uint32_t before = 0;
    DONE(test->os->thread_resume(test->os, guest.started.thread, &before));
    EQUAL(test->os->process_wait(test->os, guest.started.process, 300),
          VJ_WINDOWS_ERROR_TIMEOUT);
    DONE(test->os->handle_close(test->os, guest.job));
    guest.job = NULL;
    DONE(test->os->process_wait(test->os, guest.started.process, 10000));
    table_end(test, &guest);
}

static void break_away(table_test *test) {
    table_guest guest = table_start(test, L"break-away");
    EQUAL(table_finish(test, &guest), VJ_WINDOWS_ERROR_ACCESS_DENIED);
    table_end(test, &guest);
}

// In a job of a host that is in one itself: the guest of a guest, so to speak.
static void nested_job(table_test *test) {
    HANDLE outer = CreateJobObjectW(NULL, NULL);
    CHECK(outer && AssignProcessToJobObject(outer, GetCurrentProcess()));
    table_guest guest = table_start(test, L"in-job");
    bool inside = false;
    DONE(test->os->process_in_job(test->os, guest.started.process, guest.job, &inside));
    CHECK(inside);
    DONE(test->os->process_in_job(test->os, guest.started.process, vj_win32_out(outer),
                                  &inside));
    CHECK(inside);
    EQUAL(table_finish(test, &guest), 0);
    table_end(test, &guest);
    CloseHandle(outer);
}

// An inheritable handle that is not in the list: the guest has nothing of that number.
static void handle_list(table_test *test) {
    SECURITY_ATTRIBUTES attributes = test->open->attributes;
    attributes.bInheritHandle = TRUE;
    HANDLE secret = CreateEventW(&attributes, TRUE, FALSE, NULL);
    CHECK(secret != NULL);
    wchar_t words[64];
    _snwprintf(words, 64, L"use-handle %llu", (unsigned long long)(ULONG_PTR)secret);
    table_guest guest = table_start(test, words);
    EQUAL(table_finish(test, &guest), ERROR_INVALID_HANDLE);
    EQUAL(WaitForSingleObject(secret, 0), WAIT_TIMEOUT);
    table_end(test, &guest);
    // The control: a process that inherits everything can use it.
    wchar_t command[MAX_PATH + 128];
    _snwprintf(command, MAX_PATH + 128, L"\"%ls\" %ls", test->guest, words);
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION child = {0};
    CHECK(CreateProcessW(test->guest, command, NULL, NULL, TRUE, 0, NULL, NULL, &start,
                         &child));
    EQUAL(WaitForSingleObject(child.hProcess, 20000), WAIT_OBJECT_0);
    EQUAL(WaitForSingleObject(secret, 0), WAIT_OBJECT_0);
    CloseHandle(child.hProcess);
    CloseHandle(child.hThread);
    CloseHandle(secret);
}

static void exact_start(table_test *test) {
    table_guest guest = table_start(test, L"echo \"a b\" \"\" \"q\\\"q\"");
    EQUAL(table_finish(test, &guest), 0);
    char output[4096];
    table_output(test, &guest, output, sizeof output);
    CHECK(!strcmp(output, "[a b]\n[]\n[q\"q]\n"));
    table_end(test, &guest);
    guest = table_start(test, L"environment");
    EQUAL(table_finish(test, &guest), 0);
    table_output(test, &guest, output, sizeof output);
    printf("%s", output);
    table_end(test, &guest);
    guest = table_start(test, L"directory");
    EQUAL(table_finish(test, &guest), 0);
    table_output(test, &guest, output, sizeof output);
    printf("directory %s", output);
    table_end(test, &guest);
}

// Too few, too many, twice the same, none at all: none of it becomes a process.
static void attributes(table_test *test) {
    const vj_windows_os *os = test->os;
    vj_windows_attributes list = NULL;
    vj_windows_handle handle = vj_win32_out(GetCurrentProcess());
    vj_windows_attribute job = of_handles(VJ_WINDOWS_ATTRIBUTE_JOB, &handle, 1);
    vj_windows_attribute none = of_handles(VJ_WINDOWS_ATTRIBUTE_HANDLES, NULL, 0);
    vj_windows_attribute package = {.kind = VJ_WINDOWS_ATTRIBUTE_CAPABILITIES,
                                    .package = L"S-1-15-2-1-2-3-4-5-6-7"};
    vj_windows_attribute lpac = {.kind = VJ_WINDOWS_ATTRIBUTE_LPAC};
    DONE(os->attributes_open(os, 2, &list));
    DONE(os->attributes_add(os, list, &job));
    EQUAL(os->attributes_add(os, list, &job), VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    EQUAL(os->attributes_add(os, list, &none), VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    printf("capabilities %lu\n", (unsigned long)os->attributes_add(os, list, &package));
    printf("lpac %lu\n", (unsigned long)os->attributes_add(os, list, &lpac));
    DONE(os->attributes_close(os, list));
}

static void tokens(table_test *test) {
    vj_windows_token token;
    uint32_t code =
        test->os->process_token(test->os, vj_win32_out(GetCurrentProcess()), &token);
    printf("token %lu %d %d\n", (unsigned long)code, token.app_container,
           token.less_privileged);
    CHECK(!token.app_container && !token.package[0]);
}

static void profiles(table_test *test) {
    uint16_t sid[VJ_WINDOWS_SID_MAX] = {0};
    uint32_t code =
        test->os->profile_create(test->os, L"visjail.test", sid, VJ_WINDOWS_SID_MAX);
    printf("profile %lu\n", (unsigned long)code);
    if (!code) DONE(test->os->profile_delete(test->os, L"visjail.test"));
}

static void threads_body(void *argument) {
    Sleep(200);
    *(volatile LONG *)argument = 1;
}

static void threads(table_test *test) {
    volatile LONG ended = 0;
    vj_windows_handle thread = NULL;
    DONE(test->os->thread_start(test->os, threads_body, (void *)&ended, test->open,
                                &thread));
    EQUAL(test->os->thread_wait(test->os, thread, 1), VJ_WINDOWS_ERROR_TIMEOUT);
    DONE(test->os->thread_wait(test->os, thread, 10000));
    CHECK(ended == 1);
    DONE(test->os->handle_close(test->os, thread));
}

const table_entry table_processes[] = {
    {"suspended", suspended},
    {"exit-codes", exit_codes},
    {"kill-tree", kill_tree},
    {"close-job", close_job},
    {"break-away", break_away},
    {"nested-job", nested_job},
    {"handle-list", handle_list},
    {"exact-start", exact_start},
    {"attributes", attributes},
    {"tokens", tokens},
    {"profiles", profiles},
    {"threads", threads},
    {NULL, NULL},
};
