// Pipes, pseudo consoles, and the helper that makes a desktop.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "table.h"

typedef struct {
    const table_test *test;
    vj_windows_handle pipe;
} cancel_order;

static void cancel_soon(void *argument) {
    const cancel_order *order = argument;
    Sleep(300);
    order->test->os->pipe_cancel(order->test->os, order->pipe);
}

static void pipes(table_test *test) {
    const vj_windows_os *os = test->os;
    const wchar_t name[] = L"\\\\.\\pipe\\vj-test-squatted";
    vj_windows_handle server = NULL;
    vj_windows_handle client = NULL;
    vj_windows_handle second = NULL;
    vj_windows_handle event = NULL;
    vj_windows_handle thread = NULL;
    char bytes[64];
    uint32_t count = 0;
    DONE(os->event_create(os, test->open, &event));
    DONE(os->pipe_create(os, name, VJ_WINDOWS_PIPE_FROM_GUEST, test->open, &server));
    uint32_t squatted =
        os->pipe_create(os, name, VJ_WINDOWS_PIPE_FROM_GUEST, test->open, &second);
    // Windows says the first, wine the second.
    CHECK(squatted == VJ_WINDOWS_ERROR_ACCESS_DENIED ||
          squatted == VJ_WINDOWS_ERROR_PIPE_BUSY);
    DONE(os->pipe_connect(os, name, VJ_WINDOWS_PIPE_FROM_GUEST, false, test->open,
                          &client));
    DWORD flags = HANDLE_FLAG_INHERIT;
    CHECK(GetHandleInformation(vj_win32_handle(client), &flags));
    CHECK(!(flags & HANDLE_FLAG_INHERIT));
    CHECK(GetHandleInformation(vj_win32_handle(server), &flags));
    CHECK(!(flags & HANDLE_FLAG_INHERIT));
    EQUAL(os->pipe_read(os, server, event, bytes, sizeof bytes, 100, &count),
          VJ_WINDOWS_ERROR_TIMEOUT);
    cancel_order order = {test, server};
    DONE(os->thread_start(os, cancel_soon, &order, test->open, &thread));
    EQUAL(os->pipe_read(os, server, event, bytes, sizeof bytes, 20000, &count),
          VJ_WINDOWS_ERROR_OPERATION_ABORTED);
    DONE(os->thread_wait(os, thread, 10000));
    DONE(os->handle_close(os, thread));
    DONE(os->pipe_cancel(os, server)); // nothing is in flight
    DONE(os->file_write(os, client, "tail", 4));
    DONE(os->handle_close(os, client));
    DONE(os->pipe_read(os, server, event, bytes, sizeof bytes, 5000, &count));
    CHECK(count == 4 && !memcmp(bytes, "tail", 4));
    EQUAL(os->pipe_read(os, server, event, bytes, sizeof bytes, 5000, &count),
          VJ_WINDOWS_ERROR_BROKEN_PIPE);
    DONE(os->handle_close(os, server));
    DONE(os->handle_close(os, event));
}

// A guest that reads nothing: a write ends in its time, and says how far it came.
static void back_pressure(table_test *test) {
    table_guest guest = table_start(test, L"wait 60000");
    uint32_t before = 0;
    uint32_t count = 0;
    uint32_t size = 1 << 20;
    char *bytes = calloc(1, size);
    CHECK(bytes != NULL);
    DONE(test->os->thread_resume(test->os, guest.started.thread, &before));
    uint64_t begun = test->os->now_ms(test->os);
    uint32_t code = test->os->pipe_write(test->os, guest.input, guest.event, bytes, size,
                                         500, &count);
    uint64_t took = test->os->now_ms(test->os) - begun;
    CHECK(count < size && took < 10000);
    if (!count) EQUAL(code, VJ_WINDOWS_ERROR_TIMEOUT);
    DONE(test->os->job_terminate(test->os, guest.job, 1));
    DONE(test->os->job_wait_empty(test->os, guest.job, guest.port, 10000));
    EQUAL(
        test->os->pipe_write(test->os, guest.input, guest.event, bytes, 1, 5000, &count),
        VJ_WINDOWS_ERROR_BROKEN_PIPE);
    free(bytes);
    table_end(test, &guest);
}

typedef struct {
    HANDLE pipe;
    uint32_t size;
    uint32_t wrong; // bytes that were not the next one
} slow_reader;

static char byte_at(uint32_t at) {
    return (char)(at % 251);
}

static void read_slowly(void *argument) {
    slow_reader *reader = argument;
    static char bytes[8192];
    DWORD count = 0;
    for (uint32_t turn = 0;; turn++) {
        DWORD wanted = turn % 7 ? 1 + turn * 37 % 3000 : sizeof bytes;
        if (!ReadFile(reader->pipe, bytes, wanted, &count, NULL)) return;
        for (DWORD i = 0; i < count; i++)
            reader->wrong += bytes[i] != byte_at(reader->size + i);
        reader->size += count;
        if (turn % 3 == 0) Sleep(4);
    }
}

// Writes that run out of time again and again, and go on behind what was counted: the
// other end reads every byte once.
static void exact_writes(table_test *test) {
    const vj_windows_os *os = test->os;
    const wchar_t name[] = L"\\\\.\\pipe\\vj-test-exact";
    enum { ALL = 512 * 1024 };
    vj_windows_handle server = NULL;
    vj_windows_handle client = NULL;
    vj_windows_handle event = NULL;
    vj_windows_handle thread = NULL;
    char *bytes = calloc(1, ALL);
    CHECK(bytes != NULL);
    for (uint32_t i = 0; i < ALL; i++) bytes[i] = byte_at(i);
    DONE(os->event_create(os, test->open, &event));
    DONE(os->pipe_create(os, name, VJ_WINDOWS_PIPE_TO_GUEST, test->open, &server));
    DONE(
        os->pipe_connect(os, name, VJ_WINDOWS_PIPE_TO_GUEST, false, test->open, &client));
    slow_reader reader = {.pipe = vj_win32_handle(client)};
    DONE(os->thread_start(os, read_slowly, &reader, test->open, &thread));
    uint32_t written = 0;
    uint32_t late = 0;
    while (written < ALL) {
        uint32_t count = 0;
        uint32_t code = os->pipe_write(os, server, event, bytes + written, ALL - written,
                                       written % 2, &count);
        CHECK(!code || code == VJ_WINDOWS_ERROR_TIMEOUT);
        CHECK(code ? !count : count != 0);
        late += code != 0;
        written += count;
    }
    DONE(os->handle_close(os, server));
    DONE(os->thread_wait(os, thread, 20000));
    printf("late %lu\n", (unsigned long)late);
    EQUAL(reader.size, ALL);
    EQUAL(reader.wrong, 0);
    CHECK(late > 0);
    DONE(os->handle_close(os, thread));
    DONE(os->handle_close(os, client));
    DONE(os->handle_close(os, event));
    free(bytes);
}

static void all_output(table_test *test) {
    table_guest guest = table_start(test, L"pour 300000");
    uint32_t before = 0;
    uint32_t size = 400000;
    char *bytes = calloc(1, size);
    CHECK(bytes != NULL);
    DONE(test->os->thread_resume(test->os, guest.started.thread, &before));
    table_output(test, &guest, bytes, size);
    EQUAL((uint32_t)strlen(bytes), 300003);
    CHECK(!strcmp(bytes + 300000, "END"));
    free(bytes);
    table_end(test, &guest);
}

// Reads until `wanted` was there, 20 seconds at most.
static bool read_until(const table_test *test, const table_guest *guest,
                       const char *wanted) {
    static char seen[64 * 1024];
    uint32_t length = 0;
    uint64_t end = test->os->now_ms(test->os) + 20000;
    memset(seen, 0, sizeof seen);
    while (length + 1 < sizeof seen && test->os->now_ms(test->os) < end) {
        uint32_t count = 0;
        uint32_t code =
            test->os->pipe_read(test->os, guest->output, guest->event, seen + length,
                                (uint32_t)sizeof seen - 1 - length, 1000, &count);
        length += count;
        if (strstr(seen, wanted)) return true;
        if (code && code != VJ_WINDOWS_ERROR_TIMEOUT) break;
    }
    // For people: escape sequences as they came would be taken by their terminal.
    for (uint32_t i = 0; i < length; i++) putchar(seen[i] == 27 ? '^' : seen[i]);
    putchar('\n');
    return false;
}

static void close_console(void *argument) {
    vj_windows_console console = argument;
    vj_windows_os_table()->console_close(vj_windows_os_table(), console);
}

static table_guest console_guest(const table_test *test, const wchar_t *words,
                                 vj_windows_console *console) {
    const vj_windows_os *os = test->os;
    static volatile LONG next;
    table_guest guest = {0};
    vj_windows_job_limits limits = {0};
    vj_windows_handle ends[2] = {NULL, NULL};
    wchar_t names[2][128];
    for (int i = 0; i < 2; i++)
        _snwprintf(names[i], 128, L"\\\\.\\pipe\\vj-console-%lu-%ld",
                   GetCurrentProcessId(), InterlockedIncrement(&next));
    DONE(os->event_create(os, test->open, &guest.event));
    DONE(os->pipe_create(os, names[0], VJ_WINDOWS_PIPE_TO_GUEST, test->open,
                         &guest.input));
    DONE(os->pipe_connect(os, names[0], VJ_WINDOWS_PIPE_TO_GUEST, false, test->open,
                          &ends[0]));
    DONE(os->pipe_create(os, names[1], VJ_WINDOWS_PIPE_FROM_GUEST, test->open,
                         &guest.output));
    DONE(os->pipe_connect(os, names[1], VJ_WINDOWS_PIPE_FROM_GUEST, false, test->open,
                          &ends[1]));
    EQUAL(os->console_create(os, 0, 30, ends[0], ends[1], console),
          VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    EQUAL(os->console_create(os, 90, 32768, ends[0], ends[1], console),
          VJ_WINDOWS_ERROR_INVALID_PARAMETER);
    DONE(os->console_create(os, 90, 30, ends[0], ends[1], console));
    DONE(os->handle_close(os, ends[0]));
    DONE(os->handle_close(os, ends[1]));
    DONE(os->job_create(os, test->open, &guest.job));
    DONE(os->job_watch(os, guest.job, &guest.port));
    DONE(os->job_set_limits(os, guest.job, &limits));
    vj_windows_attributes attributes = NULL;
    vj_windows_attribute job = {
        .kind = VJ_WINDOWS_ATTRIBUTE_JOB, .handles = &guest.job, .handle_count = 1};
    vj_windows_attribute terminal = {.kind = VJ_WINDOWS_ATTRIBUTE_CONSOLE,
                                     .console = *console};
    DONE(os->attributes_open(os, 2, &attributes));
    DONE(os->attributes_add(os, attributes, &job));
    DONE(os->attributes_add(os, attributes, &terminal));
    wchar_t command[MAX_PATH + 64];
    wchar_t environment[512] = {0};
    _snwprintf(command, MAX_PATH + 64, L"\"%ls\" %ls", test->guest, words);
    _snwprintf(environment, 500, L"SystemRoot=%ls", test->system);
    vj_windows_launch launch = {.application = test->guest,
                                .command_line = command,
                                .environment = environment,
                                .directory = test->folder,
                                .attributes = attributes,
                                .process = test->open,
                                .thread = test->open};
    DONE(vj_win32_process_start(&launch, &guest.started));
    DONE(os->attributes_close(os, attributes));
    uint32_t before = 0;
    DONE(os->thread_resume(os, guest.started.thread, &before));
    return guest;
}

static void console(table_test *test) {
    const vj_windows_os *os = test->os;
    vj_windows_console terminal = NULL;
    table_guest guest = console_guest(test, L"console", &terminal);
    CHECK(read_until(test, &guest, "SIZE 90x30"));
    uint32_t count = 0;
    DONE(os->pipe_write(os, guest.input, guest.event, "hello\r", 6, 5000, &count));
    CHECK(read_until(test, &guest, "GOT:"));
    printf("resize %lu\n", (unsigned long)os->console_resize(os, terminal, 100, 40));
    DONE(os->pipe_write(os, guest.input, guest.event, "quit\r", 5, 5000, &count));
    DONE(os->process_wait(os, guest.started.process, 20000));
    // A thread of its own closes it while the output is read to its end.
    vj_windows_handle closer = NULL;
    DONE(os->thread_start(os, close_console, terminal, test->open, &closer));
    CHECK(!read_until(test, &guest, "never written"));
    DONE(os->thread_wait(os, closer, 20000));
    DONE(os->handle_close(os, closer));
    table_end(test, &guest);
}

static void desktop(table_test *test) {
    vj_windows_desktop made = NULL;
    uint64_t begun = test->os->now_ms(test->os);
    EQUAL(vj_win32_desktop_request(L"other\\name", test->sddl, test->open, &made),
          ERROR_INVALID_NAME);
    CHECK(!made);
    EQUAL(vj_win32_desktop_request(L"visjail-test", L"no descriptor", test->open, &made),
          ERROR_INVALID_PARAMETER);
    DONE(vj_win32_desktop_request(L"visjail-test", test->sddl, test->open, &made));
    CHECK(made && made->desktop && made->station);
    CHECK(test->os->now_ms(test->os) - begun < 30000);
    table_guest guest = table_start(test, L"exit 0");
    DONE(vj_win32_desktop_give(made, vj_win32_handle(guest.started.process)));
    EQUAL(table_finish(test, &guest), 0);
    table_end(test, &guest);
    DONE(test->os->desktop_close(test->os, made));
    // With the comparison of the descriptor, which not every system answers.
    printf("verified %lu\n",
           (unsigned long)test->os->desktop_open(test->os, L"visjail-test", test->sddl,
                                                 test->open, &made));
    if (made) DONE(test->os->desktop_close(test->os, made));
}

const table_entry table_streams[] = {
    {"pipes", pipes},
    {"back-pressure", back_pressure},
    {"all-output", all_output},
    {"exact-writes", exact_writes},
    {"console", console},
    {"desktop", desktop},
    {NULL, NULL},
};
