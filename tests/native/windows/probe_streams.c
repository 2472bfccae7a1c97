// Streams and consoles: everything arrives, and nothing that a guest does or leaves
// undone holds up the end of a context.

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "probe.h"

enum {
    TAKEN = 128 * 1024,         // that a consumer takes before it pauses
    WRITTEN = 16 * 1024 * 1024, // that is written to a guest that does not read
    CLOSE_MS = 20000,
    GUESTS = 4,
};

static vj_windows_spawn_info start(probe_jail *jail, bool console,
                                   const char *const *words) {
    vj_windows_spawn_request request = {.flags = console ? VJ_WINDOWS_SPAWN_CONSOLE : 0,
                                        .columns = console ? 90 : 0,
                                        .rows = console ? 30 : 0};
    return probe_spawn(jail, words, &request);
}

static void pour(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    vj_windows_error error = probe_error();
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    vj_windows_spawn_info info = start(jail, false, PROBE_WORD("pour", "3000000"));
    // It has ended, and nobody has read: not one byte of it is lost.
    uint64_t length = 0;
    uint64_t count = 1;
    char last[3] = "";
    while (count) {
        probe_held(vj_windows_read(info.output, jail->output, PROBE_OUTPUT, PROBE_MS,
                                   &count, &error),
                   &error, "read");
        length += count;
        if (count >= 3) memcpy(last, jail->output + count - 3, 3);
    }
    CHECK(length == 3000003 && !memcmp(last, "END", 3));
    probe_held(vj_windows_wait(info.process, PROBE_MS, &end, &error), &error, "wait");
    DONE(end.exit_code);
    info = start(jail, false, PROBE_WORD("to-both"));
    probe_held(vj_windows_read(info.output, jail->output, PROBE_OUTPUT, PROBE_MS, &count,
                               &error),
               &error, "read");
    CHECK(count == 6 && !memcmp(jail->output, "output", 6));
    probe_held(vj_windows_read(info.errors, jail->output, PROBE_OUTPUT, PROBE_MS, &count,
                               &error),
               &error, "read");
    CHECK(count == 6 && !memcmp(jail->output, "errors", 6));
    probe_held(vj_windows_release(info.process, &error), &error, "release");
    EQUAL(vj_windows_read(info.output, jail->output, 1, 0, &count, &error),
          VJ_WINDOWS_STALE);
    probe_close(jail);
}

static void round_trip(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    vj_windows_error error = probe_error();
    vj_windows_spawn_info info = start(jail, false, PROBE_WORD("copy"));
    uint64_t count = 0;
    probe_held(
        vj_windows_write(info.input, "there and back", 14, PROBE_MS, &count, &error),
        &error, "write");
    probe_held(vj_windows_read(info.output, jail->output, PROBE_OUTPUT, PROBE_MS, &count,
                               &error),
               &error, "read");
    CHECK(count == 14 && !memcmp(jail->output, "there and back", 14));
    probe_held(vj_windows_close_stream(info.input, &error), &error, "close_stream");
    probe_held(vj_windows_read(info.output, jail->output, PROBE_OUTPUT, PROBE_MS, &count,
                               &error),
               &error, "read");
    DONE((uint32_t)count);
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    probe_held(vj_windows_wait(info.process, PROBE_MS, &end, &error), &error, "wait");
    probe_close(jail);
}

typedef struct {
    vj_windows_id input;
    volatile LONG ended;
} much_writer;

static DWORD WINAPI write_much(void *given) {
    much_writer *writer = given;
    vj_windows_error error = probe_error();
    uint64_t count = 0;
    char *bytes = calloc(1, WRITTEN);
    if (!bytes) return 1;
    (void)vj_windows_write(writer->input, bytes, WRITTEN, VJ_WINDOWS_FOREVER, &count,
                           &error);
    free(bytes);
    writer->ended = 1;
    return 0;
}

typedef enum { ACTIVE, REAPED, CONSUMER_CLOSED, CONCURRENT, WAYS } close_way;

typedef struct {
    probe_jail *jail;
    vj_windows_spawn_info info;
    much_writer writer;
    HANDLE thread;
} pressed_guest;

// A flooding guest of which 128 KiB were taken, and to which 16 MiB are being written.
static void press(pressed_guest *pressed, const probe_host *probe, bool console) {
    vj_windows_error error = probe_error();
    pressed->jail = probe_open(probe);
    pressed->info =
        start(pressed->jail, console, PROBE_WORD(console ? "flood-console" : "flood"));
    uint64_t taken = 0;
    while (taken < TAKEN) {
        uint64_t count = 0;
        probe_held(vj_windows_read(pressed->info.output, pressed->jail->output,
                                   PROBE_OUTPUT, PROBE_MS, &count, &error),
                   &error, "read");
        CHECK(count > 0);
        taken += count;
    }
    pressed->writer.input = pressed->info.input;
    pressed->thread = CreateThread(NULL, 0, write_much, &pressed->writer, 0, NULL);
    CHECK(pressed->thread != NULL);
    Sleep(100);
    CHECK(!pressed->writer.ended);
}

static DWORD WINAPI close_body(void *given) {
    pressed_guest *pressed = given;
    vj_windows_error error = probe_error();
    return (DWORD)vj_windows_close(pressed->jail->context, &error);
}

static void release(pressed_guest *pressed) {
    EQUAL(WaitForSingleObject(pressed->thread, CLOSE_MS), WAIT_OBJECT_0);
    CHECK(pressed->writer.ended == 1);
    CloseHandle(pressed->thread);
    free(pressed->jail);
}

static void close_in_time(pressed_guest *pressed, close_way way) {
    vj_windows_error error = probe_error();
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    if (way == REAPED) {
        probe_held(vj_windows_kill(pressed->info.process, &error), &error, "kill");
        probe_held(vj_windows_wait(pressed->info.process, PROBE_MS, &end, &error), &error,
                   "wait");
    }
    if (way == CONSUMER_CLOSED)
        probe_held(vj_windows_close_stream(pressed->info.output, &error), &error,
                   "close_stream");
    uint64_t begun = GetTickCount64();
    probe_held(vj_windows_close(pressed->jail->context, &error), &error, "close");
    CHECK(GetTickCount64() - begun < CLOSE_MS);
    release(pressed);
}

static void pressure(const probe_host *probe, bool console) {
    for (close_way way = ACTIVE; way < CONCURRENT; way++)
        for (int i = 0; i < GUESTS; i++) {
            pressed_guest one = {0};
            press(&one, probe, console);
            close_in_time(&one, way);
        }
    pressed_guest all[GUESTS] = {0};
    HANDLE closers[GUESTS];
    for (int i = 0; i < GUESTS; i++) press(&all[i], probe, console);
    for (int i = 0; i < GUESTS; i++) {
        closers[i] = CreateThread(NULL, 0, close_body, &all[i], 0, NULL);
        CHECK(closers[i] != NULL);
    }
    EQUAL(WaitForMultipleObjects(GUESTS, closers, TRUE, CLOSE_MS), WAIT_OBJECT_0);
    for (int i = 0; i < GUESTS; i++) {
        DWORD code = 1;
        CHECK(GetExitCodeThread(closers[i], &code));
        DONE(code);
        CloseHandle(closers[i]);
        release(&all[i]);
    }
}

static void pipe_pressure(const probe_host *probe) {
    pressure(probe, false);
}

static void console_pressure(const probe_host *probe) {
    pressure(probe, true);
}

// Reads until `wanted` was there.
static bool read_until(probe_jail *jail, vj_windows_id output, const char *wanted) {
    vj_windows_error error = probe_error();
    uint64_t end = GetTickCount64() + PROBE_MS;
    uint64_t length = 0;
    memset(jail->output, 0, PROBE_OUTPUT);
    while (length + 1 < PROBE_OUTPUT && GetTickCount64() < end) {
        uint64_t count = 0;
        vj_windows_status status =
            vj_windows_read(output, jail->output + length, PROBE_OUTPUT - 1 - length,
                            1000, &count, &error);
        length += count;
        if (strstr(jail->output, wanted)) return true;
        if (status != VJ_WINDOWS_TIMED_OUT && (status != VJ_WINDOWS_OK || !count)) break;
    }
    for (uint64_t i = 0; i < length; i++)
        putchar(jail->output[i] == 27 ? '^' : jail->output[i]);
    putchar('\n');
    return false;
}

static void console_sizes(probe_jail *jail) {
    static const uint16_t wrong[][2] = {{0, 30}, {90, 0}, {32768, 30}, {90, 65535}};
    vj_windows_error error = probe_error();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        vj_windows_spawn_request request = {.size = sizeof request,
                                            .version = VJ_WINDOWS_VERSION,
                                            .application = probe_text(jail->guest),
                                            .arguments = {"guest", 6},
                                            .argument_count = 1,
                                            .flags = VJ_WINDOWS_SPAWN_CONSOLE,
                                            .columns = wrong[i][0],
                                            .rows = wrong[i][1]};
        vj_windows_spawn_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
        EQUAL(vj_windows_spawn(jail->context, &request, &info, &error),
              VJ_WINDOWS_REFUSED);
    }
}

static void console(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    vj_windows_error error = probe_error();
    vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
    uint64_t count = 0;
    console_sizes(jail);
    vj_windows_spawn_info info = start(jail, true, PROBE_WORD("console"));
    CHECK(!info.errors && info.output && info.input);
    CHECK(read_until(jail, info.output, "SIZE 90x30"));
    probe_held(vj_windows_write(info.input, "hello\r", 6, PROBE_MS, &count, &error),
               &error, "write");
    CHECK(read_until(jail, info.output, "GOT:"));
    probe_held(vj_windows_write(info.input, "quit\r", 5, PROBE_MS, &count, &error),
               &error, "write");
    probe_held(vj_windows_wait(info.process, PROBE_MS, &end, &error), &error, "wait");
    DONE(end.exit_code);
    probe_close(jail);
}

// What wine does not have: a size that changes, and standard handles that are the
// console.
static void whole_console(const probe_host *probe) {
    probe_jail *jail = probe_open(probe);
    vj_windows_error error = probe_error();
    uint64_t count = 0;
    vj_windows_spawn_info info = start(jail, true, PROBE_WORD("standard-handles"));
    CHECK(read_until(jail, info.output, "111"));
    info = start(jail, true, PROBE_WORD("console"));
    CHECK(read_until(jail, info.output, "SIZE 90x30"));
    EQUAL(vj_windows_resize(info.process, 0, 40, &error), VJ_WINDOWS_REFUSED);
    probe_held(vj_windows_resize(info.process, 100, 40, &error), &error, "resize");
    probe_held(vj_windows_write(info.input, "hello\r", 6, PROBE_MS, &count, &error),
               &error, "write");
    CHECK(read_until(jail, info.output, "SIZE 100x40"));
    probe_close(jail);
}

// Eight terminals that end by themselves keep their last line, while others are closed.
static void marks(const probe_host *probe) {
    enum { TERMINALS = 8 };
    probe_jail *jails[TERMINALS];
    vj_windows_spawn_info infos[TERMINALS];
    vj_windows_error error = probe_error();
    char number[8];
    for (int i = 0; i < TERMINALS; i++) {
        jails[i] = probe_open(probe);
        snprintf(number, sizeof number, "%d", i);
        infos[i] = start(jails[i], true, PROBE_WORD("mark", number));
    }
    for (int i = 0; i < TERMINALS; i++) {
        vj_windows_exit end = {.size = sizeof end, .version = VJ_WINDOWS_VERSION};
        probe_held(vj_windows_wait(infos[i].process, PROBE_MS, &end, &error), &error,
                   "wait");
        DONE(end.exit_code);
        snprintf(number, sizeof number, "%d", i);
        CHECK(read_until(jails[i], infos[i].output, probe_format("PASS %s", number)));
        probe_close(jails[i]);
    }
}

const probe_entry probe_streams[] = {
    {"pour", pour},
    {"round-trip", round_trip},
    {"pipe-pressure", pipe_pressure},
    {"console-pressure", console_pressure},
    {"console", console},
    {"whole-console", whole_console},
    {"marks", marks},
    {NULL, NULL},
};
