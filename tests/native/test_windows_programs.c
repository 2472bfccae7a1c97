// Programs of a WindowsJail over a table of its own: what they are started with, what is
// read back before they run, and how they and their consoles end.
//
// sources: native/visjail/identifiers.c native/visjail/streams.c
// sources: native/visjail/posix_monitor.c native/visjail/windows_core.c
// sources: native/visjail/windows_context.c native/visjail/windows_close.c
// sources: native/visjail/windows_stage.c native/visjail/windows_spawn.c
// sources: native/visjail/windows_process.c native/visjail/windows_console.c
// sources: native/visjail/windows_streams.c native/visjail/windows_remove.c
// sources: native/visjail/windows_marker.c native/visjail/windows_stale.c
// sources: native/visjail/windows_text.c native/visjail/windows_command.c
// sources: native/visjail/windows_names.c native/visjail/windows_identity.c
// sources: native/visjail/sha256.c tests/native/windows_case.c
// sources: tests/native/fake_windows_os.c tests/native/fake_windows_files.c
// sources: tests/native/fake_windows_streams.c
// sources: tests/native/fake_windows_guests.c tests/native/fake_windows_control.c
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windows_case.h"
#include "windows_core.h"

static uint64_t read_all(vj_windows_id stream, char *to, uint64_t room) {
    uint64_t total = 0;
    for (;;) {
        uint64_t count = 0;
        char piece[4096];
        vj_windows_status status =
            vj_windows_read(stream, piece, sizeof piece, LONG, &count, case_error());
        check_status(status, VJ_WINDOWS_OK, "read");
        if (!count) return total;
        for (uint64_t i = 0; i < count; i++) {
            if (total + i < room) to[total + i] = piece[i];
        }
        total += count;
    }
}

static vj_windows_exit await(vj_windows_id process) {
    vj_windows_exit result = {.size = sizeof result, .version = VJ_WINDOWS_VERSION};
    check_status(vj_windows_wait(process, LONG, &result, case_error()), VJ_WINDOWS_OK,
                 "wait");
    return result;
}

static bool has_entry(const fake_launch *launch, const char *entry) {
    for (size_t at = 0; at + 1 < launch->environment_units;) {
        size_t i = 0;
        while (entry[i] && launch->environment[at + i] == (uint16_t)entry[i]) i++;
        if (!entry[i] && !launch->environment[at + i]) return true;
        while (launch->environment[at]) at++;
        at++;
    }
    return false;
}

static void as_text(const uint16_t *units, char *to, size_t room) {
    fake_utf8(units, to, room);
}

// W4: exactly registryRead; W5, W6, W8: environment, directory and program are explicit;
// W27: the profile has no capability, the launch has one; W40: the handles are exactly
// the standard ones; W53: on the private desktop.
static void a_program_is_started(void) {
    case_begin();
    vj_windows_context_info made;
    vj_windows_id context = 0;
    vj_windows_spawn_info info;
    char text[2048], entry[1300];
    check_status(create(&context, &made, 0), VJ_WINDOWS_OK, "create");
    check_status(vj_windows_seal(context, case_error()), VJ_WINDOWS_OK, "seal");
    check_status(spawn(context, "echo", 0, &info), VJ_WINDOWS_OK, "spawn");
    const fake_launch *launch = fake_last_launch();
    check(launch->attributes ==
              (1u << VJ_WINDOWS_ATTRIBUTE_CAPABILITIES | 1u << VJ_WINDOWS_ATTRIBUTE_LPAC |
               1u << VJ_WINDOWS_ATTRIBUTE_JOB | 1u << VJ_WINDOWS_ATTRIBUTE_HANDLES),
          "every attribute and no other");
    as_text(launch->package, text, sizeof text);
    check(!strcmp(text, made.package_sid), "its package");
    as_text(launch->capabilities[0], text, sizeof text);
    check(launch->capability_count == 1 &&
              !strcmp(text, "S-1-15-3-1024-1065365936-1281604716-3511738428-1654721687-"
                            "432734479-3232135806-4053264122-3456934681"),
          "registryRead alone");
    check(launch->handle_count == 3 && launch->distinct && launch->has_standard,
          "the three standard handles");
    as_text(launch->application, text, sizeof text);
    check(!strcmp(text, "C:\\sources\\guest.exe"), "the program by its path");
    as_text(launch->directory, text, sizeof text);
    snprintf(entry, sizeof entry, "%s\\work", made.root);
    check(!strcmp(text, entry), "in `work`");
    // Without LOCALAPPDATA no AppContainer starts. The others are what Windows makes of
    // it.
    snprintf(entry, sizeof entry, "LOCALAPPDATA=%s\\temp", made.root);
    check(has_entry(launch, entry), "where the folders of the package are");
    snprintf(entry, sizeof entry, "TMP=%s\\temp\\Packages\\%s\\AC\\Temp", made.root,
             made.package);
    check(has_entry(launch, entry), "one for what is temporary");
    snprintf(entry, sizeof entry, "TEMP=%s\\temp\\Packages\\%s\\AC\\Temp", made.root,
             made.package);
    check(has_entry(launch, entry) && has_entry(launch, "SystemRoot=C:\\Windows"),
          "what every program needs");
    check(launch->has_desktop, "on the private desktop");
    as_text(launch->desktop_sddl, text, sizeof text);
    check(strstr(text, made.package_sid) != NULL, "which is its package's");
    check(!strcmp(info.package_sid, made.package_sid) && info.capability_count == 1 &&
              info.integrity == 0x1000 && info.ui_limits == 0xff &&
              info.created == FAKE_CREATED + 1 && info.pid == 77,
          "and all that is told");
    // It echoes.
    uint64_t count = 0;
    check_status(vj_windows_write(info.input, "hello", 5, LONG, &count, case_error()),
                 VJ_WINDOWS_OK, "write");
    check_status(vj_windows_close_stream(info.input, case_error()), VJ_WINDOWS_OK,
                 "close");
    check(read_all(info.output, text, sizeof text) == 5 && !memcmp(text, "hello", 5),
          "its output");
    check(read_all(info.errors, text, sizeof text) == 0, "no errors");
    vj_windows_exit result = await(info.process);
    check(!result.exit_code && !result.killed && result.processes == 1, "its end");
    check(!await(info.process).exit_code, "may be asked for again");
    check_status(vj_windows_release(info.process, case_error()), VJ_WINDOWS_OK,
                 "release");
    check_status(vj_windows_wait(info.process, 0, &result, case_error()),
                 VJ_WINDOWS_STALE, "a number that was released");
    check_status(vj_windows_read(info.output, text, 1, 0, &count, case_error()),
                 VJ_WINDOWS_STALE, "with its streams");
    // W10: kinds are not mixed.
    check_status(vj_windows_close(info.output, case_error()), VJ_WINDOWS_STALE, "kinds");
    check_status(vj_windows_kill(context, case_error()), VJ_WINDOWS_STALE, "kinds");
    close_context(context);
    case_end();
}

// W40, W64: a channel is two pipes more in the list of handles, whose numbers the program
// finds in its environment; its ends at the host are streams like the others, and go with
// the program. Without one there is neither variable nor handle.
static void a_program_has_a_channel(void) {
    case_begin();
    vj_windows_id context = sealed_context(0);
    vj_windows_spawn_info info;
    char text[64], entry[80];
    uint64_t count = 0;
    check_status(spawn(context, "echo", 0, &info), VJ_WINDOWS_OK, "spawn");
    check(!info.to_guest && !info.from_guest && fake_last_launch()->handle_count == 3,
          "none that was not asked for");
    check_status(vj_windows_release(info.process, case_error()), VJ_WINDOWS_OK,
                 "release");
    check_status(spawn(context, "relay", VJ_WINDOWS_SPAWN_CHANNEL, &info), VJ_WINDOWS_OK,
                 "spawn");
    const fake_launch *launch = fake_last_launch();
    check(launch->handle_count == 5 && launch->distinct && launch->has_standard,
          "the standard handles and two more");
    snprintf(entry, sizeof entry, "VISJAIL_CHANNEL=%llu:%llu",
             (unsigned long long)(uintptr_t)launch->beside[0],
             (unsigned long long)(uintptr_t)launch->beside[1]);
    check(has_entry(launch, entry), "their numbers, what it reads first");
    check_status(vj_windows_write(info.to_guest, "frame", 5, LONG, &count, case_error()),
                 VJ_WINDOWS_OK, "write");
    check_status(vj_windows_write(info.from_guest, "x", 1, 0, &count, case_error()),
                 VJ_WINDOWS_REFUSED, "write where it is read");
    check_status(vj_windows_close_stream(info.to_guest, case_error()), VJ_WINDOWS_OK,
                 "close");
    check(read_all(info.from_guest, text, sizeof text) == 5 && !memcmp(text, "frame", 5),
          "what came back");
    check(read_all(info.output, text, sizeof text) == 0, "nothing where others look");
    check(!await(info.process).exit_code, "its end");
    check_status(vj_windows_release(info.process, case_error()), VJ_WINDOWS_OK,
                 "release");
    check_status(vj_windows_read(info.from_guest, text, 1, 0, &count, case_error()),
                 VJ_WINDOWS_STALE, "a channel of a program that was released");
    close_context(context);
    case_end();
}

static vj_windows_status request_with(vj_windows_id context,
                                      void (*change)(vj_windows_spawn_request *)) {
    vj_windows_spawn_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    vj_windows_spawn_request request = {
        .size = sizeof request,
        .version = VJ_WINDOWS_VERSION,
        .application = text_of("C:\\sources\\guest.exe"),
        .arguments = {"guest\0exit\0"
                      "0",
                      13},
        .argument_count = 3,
        .columns = 80,
        .rows = 25,
    };
    change(&request);
    return vj_windows_spawn(context, &request, &info, case_error());
}

static void batch_file(vj_windows_spawn_request *request) {
    request->application = text_of("C:\\sources\\guest.cmd");
}
static void relative_program(vj_windows_spawn_request *request) {
    request->application = text_of("guest.exe");
}
static void relative_directory(vj_windows_spawn_request *request) {
    request->directory = text_of("work");
}
static void no_argument(vj_windows_spawn_request *request) {
    request->arguments.size = 0;
    request->argument_count = 0;
}
static void other_count(vj_windows_spawn_request *request) {
    request->argument_count = 2;
}
static void same_variables(vj_windows_spawn_request *request) {
    request->environment = (vj_windows_text){"name=1\0NAME=2", 14};
    request->environment_count = 2;
}
static void temp_outside(vj_windows_spawn_request *request) {
    request->environment = (vj_windows_text){"Temp=C:\\sources", 16};
    request->environment_count = 1;
}
static void own_local_data(vj_windows_spawn_request *request) {
    request->environment = (vj_windows_text){"LocalAppData=C:\\jails", 22};
    request->environment_count = 1;
}
static void small_memory(vj_windows_spawn_request *request) {
    request->job_memory = 4095;
}
static void small_process(vj_windows_spawn_request *request) {
    request->process_memory = 1;
}
static void uneven_memory(vj_windows_spawn_request *request) {
    request->process_memory = 100000001;
    request->job_memory = 200000001;
}
static void no_rows(vj_windows_spawn_request *request) {
    request->flags = VJ_WINDOWS_SPAWN_CONSOLE;
    request->rows = 0;
}
static void too_wide(vj_windows_spawn_request *request) {
    request->flags = VJ_WINDOWS_SPAWN_CONSOLE;
    request->columns = 32768;
}
static void unknown_flag(vj_windows_spawn_request *request) {
    request->flags = 1u << 30;
}
static void unknown_ui(vj_windows_spawn_request *request) {
    request->ui_limits = 0x100;
}
static void too_fast(vj_windows_spawn_request *request) {
    request->cpu_rate = 10001;
}
static void silent_console(vj_windows_spawn_request *request) {
    request->flags = VJ_WINDOWS_SPAWN_CONSOLE | VJ_WINDOWS_SPAWN_NO_INPUT;
}

static void console_with_channel(vj_windows_spawn_request *request) {
    request->flags = VJ_WINDOWS_SPAWN_CONSOLE | VJ_WINDOWS_SPAWN_CHANNEL;
}

static void channel_of_its_own(vj_windows_spawn_request *request) {
    static const char environment[] = "visjail_channel=1:2";
    request->flags = VJ_WINDOWS_SPAWN_CHANNEL;
    request->environment = (vj_windows_text){environment, sizeof environment};
    request->environment_count = 1;
}

// W5, W6, W7, W8, W37, W48: refused before anything is made.
static void wrong_requests_start_nothing(void) {
    case_begin();
    vj_windows_id context = sealed_context(0);
    static void (*const changes[])(vj_windows_spawn_request *) = {batch_file,
                                                                  relative_program,
                                                                  relative_directory,
                                                                  no_argument,
                                                                  other_count,
                                                                  same_variables,
                                                                  temp_outside,
                                                                  no_rows,
                                                                  too_wide,
                                                                  unknown_flag,
                                                                  unknown_ui,
                                                                  too_fast,
                                                                  silent_console,
                                                                  own_local_data,
                                                                  small_memory,
                                                                  small_process,
                                                                  console_with_channel,
                                                                  channel_of_its_own};
    fake_forget();
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        check_status(request_with(context, changes[i]), VJ_WINDOWS_REFUSED, "a request");
    }
    check(!fake_calls(), "without a call");
    close_context(context);
    case_end();
}

// W37: Windows keeps whole pages of a limit, so that is what is asked for.
static void limits_of_memory_are_whole_pages(void) {
    case_begin();
    vj_windows_id context = sealed_context(0);
    check_status(request_with(context, uneven_memory), VJ_WINDOWS_OK, "no whole pages");
    close_context(context);
    case_end();
}

// W28, W32, W33: any answer that differs ends the process before it has run.
static void any_difference_ends_the_process(void) {
    static const uint32_t lies[] = {
        FAKE_NO_CONTAINER,     FAKE_NOT_LESS_PRIVILEGED,
        FAKE_OTHER_PACKAGE,    FAKE_MORE_CAPABILITIES,
        FAKE_OTHER_CAPABILITY, FAKE_NO_CAPABILITY,
        FAKE_MEDIUM,           FAKE_NOT_IN_JOB,
        FAKE_OTHER_LIMITS,     FAKE_BREAKAWAY,
        FAKE_OUTLIVES,         FAKE_OTHER_FLAG,
    };
    case_begin();
    vj_windows_id context = sealed_context(VJ_WINDOWS_REMOVE_WORK);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        for (uint32_t flags = 0; flags <= VJ_WINDOWS_SPAWN_CONSOLE; flags++) {
            vj_windows_spawn_info info;
            unsigned before = fake_left(false);
            fake_lie(lies[i]);
            fake_forget();
            check_status(spawn(context, "exit 0", flags, &info), VJ_WINDOWS_MISMATCH,
                         "a lie");
            check(!fake_count("thread_resume") && !fake_ran(), "nothing was resumed");
            check(fake_left(false) == before, "and nothing is left");
        }
    }
    fake_lie(FAKE_RESUMED_BEFORE);
    vj_windows_spawn_info info;
    check_status(spawn(context, "exit 0", 0, &info), VJ_WINDOWS_MISMATCH,
                 "not suspended");
    fake_lie(0);
    check_status(spawn(context, "exit 7", 0, &info), VJ_WINDOWS_OK, "the truth");
    check(fake_count("thread_resume") == 2, "is resumed once");
    check(await(info.process).exit_code == 7, "and runs");
    close_context(context);
    case_end();
}

// W41: whoever has the name of a pipe already makes the start fail.
static void a_squatted_pipe_is_no_pipe(void) {
    case_begin();
    vj_windows_id context = sealed_context(0);
    vj_windows_spawn_info info;
    fake_squat(true);
    check_status(spawn(context, "exit 0", 0, &info), VJ_WINDOWS_SYSTEM, "squatted");
    fake_squat(false);
    check(!fake_ran(), "nothing ran");
    close_context(context);
    case_end();
}

// W35, W39: the job ends with all that is in it; exit codes keep their 32 bits.
static void descendants_end_with_the_program(void) {
    case_begin();
    vj_windows_id context = sealed_context(0);
    vj_windows_spawn_info info;
    char text[16];
    check_status(spawn(context, "parent 5", 0, &info), VJ_WINDOWS_OK, "spawn");
    vj_windows_exit result = await(info.process);
    check(result.exit_code == 5 && result.processes == 2 && !result.killed, "its end");
    check(!fake_running(), "and that of its descendant");
    check(read_all(info.output, text, sizeof text) == 0, "so its output ends");
    check_status(spawn(context, "exit 3221225786", 0, &info), VJ_WINDOWS_OK, "spawn");
    check(await(info.process).exit_code == 0xC000013Au, "an NTSTATUS");
    check_status(spawn(context, "hang", 0, &info), VJ_WINDOWS_OK, "spawn");
    vj_windows_exit none = {.size = sizeof none, .version = VJ_WINDOWS_VERSION};
    check_status(vj_windows_wait(info.process, 10, &none, case_error()),
                 VJ_WINDOWS_TIMED_OUT, "it hangs");
    check_status(vj_windows_kill(info.process, case_error()), VJ_WINDOWS_OK, "kill");
    check(!fake_running(), "it is gone when that returns");
    // Its job is empty before it has let go of its files.
    uint64_t last = 0, empty = 0;
    for (uint64_t i = 1; i <= fake_calls(); i++) {
        if (!strcmp(fake_call(i), "process_wait")) last = i;
        if (!strcmp(fake_call(i), "job_wait_empty")) empty = i;
    }
    check(empty && last > empty, "it was waited for itself, too");
    result = await(info.process);
    check(result.killed && result.exit_code == VJ_WINDOWS_KILLED_CODE, "and it says so");
    check_status(vj_windows_kill(info.process, case_error()), VJ_WINDOWS_OK, "again");
    // W36: the close of the context ends what still runs.
    check_status(spawn(context, "parent", 0, &info), VJ_WINDOWS_OK, "spawn");
    check_status(spawn(context, "hang", VJ_WINDOWS_SPAWN_NO_INPUT, &info), VJ_WINDOWS_OK,
                 "spawn");
    check(!info.input, "without input");
    check_status(spawn(context, "hang", VJ_WINDOWS_SPAWN_NO_CHILDREN, &info),
                 VJ_WINDOWS_OK, "spawn");
    check(fake_last_launch()->attributes & 1u << VJ_WINDOWS_ATTRIBUTE_NO_CHILDREN,
          "without children");
    close_context(context);
    case_end();
}

static void no_input_is_at_its_end(void) {
    case_begin();
    vj_windows_id context = sealed_context(0);
    vj_windows_spawn_info info;
    check_status(spawn(context, "echo", VJ_WINDOWS_SPAWN_NO_INPUT, &info), VJ_WINDOWS_OK,
                 "spawn");
    check(!info.input && !await(info.process).exit_code, "it sees the end at once");
    close_context(context);
    case_end();
}

static void ui_limit(vj_windows_spawn_request *request) {
    request->ui_limits = 1;
}

// W38: a host that is in a job has jails, without the limits that no nested job may have.
static void a_host_in_a_job_has_jails(void) {
    case_begin();
    fake_lie(FAKE_IN_JOB);
    vj_windows_id context = sealed_context(0);
    vj_windows_spawn_info info;
    check_status(request_with(context, ui_limit), VJ_WINDOWS_REFUSED, "a limit");
    check_status(spawn(context, "exit 0", 0, &info), VJ_WINDOWS_OK, "spawn");
    check(!info.ui_limits && !await(info.process).exit_code, "and it is told");
    close_context(context);
    case_end();
}

// W39: nothing is ever opened by a pid, which may be another process by then.
static void no_process_is_opened_again(void) {
    case_begin();
    vj_windows_id context = sealed_context(0);
    vj_windows_spawn_info info;
    check_status(spawn(context, "hang", 0, &info), VJ_WINDOWS_OK, "spawn");
    check(info.created == FAKE_CREATED + 1, "its creation is told");
    check_status(vj_windows_kill(info.process, case_error()), VJ_WINDOWS_OK, "kill");
    await(info.process);
    close_context(context);
    check(!fake_count("owner_created"), "by no call");
    case_end();
}

// ---- consoles

// W47: no standard handle goes with a console. W48: sizes. W44: its last words are read.
// W51: by default it does not close before it was drained.
static void a_console_is_read_to_its_end(void) {
    case_begin();
    vj_windows_id context = sealed_context(0);
    vj_windows_spawn_info info;
    uint16_t columns = 0, rows = 0;
    static char text[400000];
    check_status(spawn(context, "flood 200000", VJ_WINDOWS_SPAWN_CONSOLE, &info),
                 VJ_WINDOWS_OK, "spawn");
    check(fake_last_launch()->attributes & 1u << VJ_WINDOWS_ATTRIBUTE_CONSOLE &&
              !(fake_last_launch()->attributes & 1u << VJ_WINDOWS_ATTRIBUTE_HANDLES) &&
              !fake_last_launch()->has_standard,
          "a console, and no handle");
    check(info.input && info.output && !info.errors, "its streams");
    fake_console_size(&columns, &rows);
    check(columns == 80 && rows == 25, "its size");
    check_status(vj_windows_resize(info.process, 132, 43, case_error()), VJ_WINDOWS_OK,
                 "resize");
    fake_console_size(&columns, &rows);
    check(columns == 132 && rows == 43, "its new size");
    check_status(vj_windows_resize(info.process, 0, 43, case_error()), VJ_WINDOWS_REFUSED,
                 "no columns");
    check_status(vj_windows_resize(info.process, 80, 40000, case_error()),
                 VJ_WINDOWS_REFUSED, "too many rows");
    // Everything but the end, which comes when somebody waits.
    uint64_t total = 0;
    while (total < 200004) {
        uint64_t count = 0;
        check_status(vj_windows_read(info.output, text + total, sizeof text - total, LONG,
                                     &count, case_error()),
                     VJ_WINDOWS_OK, "read");
        total += count;
    }
    check(!await(info.process).exit_code, "its end");
    total += read_all(info.output, text + total, sizeof text - total);
    check(total == 200004 + FAKE_FINAL_FRAME, "every byte");
    for (uint64_t i = 0; i < 200000; i++) {
        check((uint8_t)text[i] == i % 251, "as it was written");
    }
    check(!memcmp(text + 200000, "PASS", 4), "and the last words");
    check_status(vj_windows_resize(info.process, 80, 25, case_error()), VJ_WINDOWS_ENDED,
                 "a console that is gone");
    close_context(context);
    check(fake_count("console_close") == 1, "it was closed once");
    case_end();
}

// The reader of a console gets to the end when nobody waits, and when it was killed.
static void a_console_ends_without_a_wait(void) {
    static char text[64000];
    for (int killed = 0; killed < 2; killed++) {
        case_begin();
        vj_windows_id context = sealed_context(0);
        vj_windows_spawn_info info;
        uint64_t count = 0;
        const char *script = killed ? "hang" : "flood 1000";
        uint64_t wanted = (killed ? 0 : 1004) + FAKE_FINAL_FRAME;
        check_status(spawn(context, script, VJ_WINDOWS_SPAWN_CONSOLE, &info),
                     VJ_WINDOWS_OK, "spawn");
        if (killed) {
            check_status(vj_windows_read(info.output, text, 1, 150, &count, case_error()),
                         VJ_WINDOWS_TIMED_OUT, "no output yet");
            check_status(vj_windows_kill(info.process, case_error()), VJ_WINDOWS_OK,
                         "kill");
        }
        check(read_all(info.output, text, sizeof text) == wanted, "all of it");
        check(await(info.process).killed == (uint32_t)killed, "and its end is known");
        close_context(context);
        check(fake_count("console_close") == 1, "one closer");
        case_end();
    }
}

// W45, W49, W50: nobody reads, and the close returns all the same.
static void a_close_drains_what_nobody_reads(void) {
    static const struct {
        const char *script;
        bool reaped, consumer_closed, quick;
    } cases[] = {
        {"flood 1000000", false, false, false}, {"flood 1000000", false, true, false},
        {"flood 10000", true, false, false},    {"flood 10000", true, true, false},
        {"flood 1000000", false, false, true},  {"hang", false, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        case_begin();
        vj_windows_id context = sealed_context(0);
        vj_windows_spawn_info info;
        uint64_t count = 0;
        if (cases[i].quick) fake_lie(FAKE_QUICK_CONSOLE);
        check_status(spawn(context, cases[i].script, VJ_WINDOWS_SPAWN_CONSOLE, &info),
                     VJ_WINDOWS_OK, "spawn");
        if (cases[i].script[0] == 'h') {
            // Input that nobody takes, either.
            static char bytes[300000];
            check_status(vj_windows_write(info.input, bytes, sizeof bytes, 20, &count,
                                          case_error()),
                         VJ_WINDOWS_TIMED_OUT, "write");
        }
        if (cases[i].reaped) await(info.process);
        if (cases[i].consumer_closed) {
            check_status(vj_windows_close_stream(info.output, case_error()),
                         VJ_WINDOWS_OK, "the consumer closes");
        }
        uint64_t before = fake_now();
        close_context(context);
        check(fake_now() - before < 20000, "in time");
        check(fake_count("console_close") == 1, "one closer");
        case_end();
    }
}

int main(void) {
    a_program_is_started();
    a_program_has_a_channel();
    wrong_requests_start_nothing();
    limits_of_memory_are_whole_pages();
    any_difference_ends_the_process();
    a_squatted_pipe_is_no_pipe();
    descendants_end_with_the_program();
    no_input_is_at_its_end();
    a_host_in_a_job_has_jails();
    no_process_is_opened_again();
    a_console_is_read_to_its_end();
    a_console_ends_without_a_wait();
    a_close_drains_what_nobody_reads();
    return 0;
}
