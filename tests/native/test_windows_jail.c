// WindowsJail over a table of its own: what each call does, and what it asks of Windows.
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
// sources: tests/native/fake_windows_os.c tests/native/fake_windows_guests.c
// sources: tests/native/fake_windows_control.c
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "windows_case.h"
#include "windows_core.h"

static const char *below_jails(const vj_windows_context_info *info, const char *name) {
    static _Thread_local char paths[4][512];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 4];
    // "C:\jails\vj-..." is jails/vj-...
    snprintf(path, sizeof paths[0], "jails/%s%s%s", strrchr(info->root, '\\') + 1,
             name[0] ? "/" : "", name);
    return path;
}

static void close_context(vj_windows_id context) {
    check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_OK, "close");
}

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

// ---- create

// W9: sizes and versions; W67: nothing is touched on a Windows that lacks something.
static void requests_are_checked(void) {
    case_begin();
    vj_windows_context_info info = {.size = sizeof info, .version = VJ_WINDOWS_VERSION};
    vj_windows_create_options options = {.size = sizeof options,
                                         .version = VJ_WINDOWS_VERSION,
                                         .parent = text_of("C:\\jails")};
    vj_windows_id context = 0;
    options.version = 2;
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "another version");
    options.version = VJ_WINDOWS_VERSION;
    options.size++;
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "another size");
    options.size--;
    vj_windows_error other = {.size = 4, .version = VJ_WINDOWS_VERSION};
    check_status(vj_windows_create(&options, &context, &info, &other), VJ_WINDOWS_REFUSED,
                 "an error record of another size");
    options.flags = 1u << 31;
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "an unknown flag");
    options.flags = 0;
    options.parent = (vj_windows_text){"C:\\jails\0x", 10};
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "a NUL in a text");
    options.parent = text_of("C:\\jails\xed\xa0\x80");
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "half a surrogate pair");
    options.parent = text_of("jails");
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "a relative parent");
    options.parent = text_of("C:\\sources\\guest.exe");
    check_status(vj_windows_create(&options, &context, &info, case_error()),
                 VJ_WINDOWS_REFUSED, "a parent that is a file");
    check(fake_count("directory_create") == 0 && fake_count("profile_create") == 0,
          "and nothing was made");
    fake_lack(VJ_WINDOWS_NEEDS_LPAC | VJ_WINDOWS_NEEDS_DESKTOP);
    fake_forget();
    options.parent = text_of("C:\\jails");
    vj_windows_error *error = case_error();
    check_status(vj_windows_create(&options, &context, &info, error),
                 VJ_WINDOWS_UNAVAILABLE, "a Windows that lacks something");
    check(strstr(error->text, "LPAC") && strstr(error->text, "private desktops") &&
              !strstr(error->text, "pseudo"),
          "names what is missing, and that alone");
    check(fake_calls() == 1 && !strcmp(fake_call(1), "features"),
          "and asks nothing else");
    uint32_t build = 0;
    check_status(vj_windows_probe(&build, case_error()), VJ_WINDOWS_UNAVAILABLE, "probe");
    check(build == 26100 && !context, "with the build");
    case_end();
}

// W11: a root of 64 random bits, made atomically, and no other source of them. W12: the
// bound of sun_path, before anything is made. W13: descriptors at creation. W24: a
// marker.
static void a_context_is_made(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    char text[512];
    check_status(create(&context, &info, 0), VJ_WINDOWS_OK, "create");
    const char *name = strrchr(info.root, '\\') + 1;
    check(strlen(name) == 19 && !strncmp(name, "vj-", 3) &&
              strspn(name + 3, "0123456789abcdef") == 16,
          "vj- and 16 digits");
    check(!strncmp(info.package_sid, "S-1-15-2-", 9) && fake_has_profile(info.package),
          "a profile");
    check(strstr(info.package, name) != NULL, "whose name is unique with the root's");
    static const char *const places[] = {"", "app", "work", "temp"};
    for (size_t i = 0; i < 4; i++) {
        const char *descriptor = fake_descriptor(below_jails(&info, places[i]));
        check(descriptor && strstr(descriptor, "D:P(") &&
                  strstr(descriptor, info.package_sid) && strstr(descriptor, FAKE_USER),
              "a directory is born with its descriptor");
        check(!strstr(descriptor, ";;;WD)") && !strstr(descriptor, ";;;BU)") &&
                  !strstr(descriptor, ";;;AC)") && !strstr(descriptor, "S-1-15-2-1)") &&
                  !strstr(descriptor, "S-1-15-2-2)"),
              "and nobody else is in it");
    }
    const char *marker = fake_descriptor(below_jails(&info, VJ_WINDOWS_MARKER_NAME));
    check(marker && !strstr(marker, info.package_sid), "a marker that no guest reads");
    case_read(below_jails(&info, VJ_WINDOWS_MARKER_NAME), text, sizeof text);
    vj_windows_marker read;
    check(vj_windows_marker_read(text, strlen(text), &read) &&
              !strcmp(read.nonce, name) && !strcmp(read.package, info.package) &&
              read.pid == FAKE_PID && read.created == FAKE_CREATED && !read.flags,
          "that says whose it is");
    case_write(below_jails(&info, "work/result"), "of the guest");
    case_write(below_jails(&info, "temp/scrap"), "of the guest");
    close_context(context);
    // W23: what was worked stays, and the rest goes.
    check(!strcmp(case_read(below_jails(&info, "work/result"), text, sizeof text),
                  "of the guest"),
          "work stays");
    check(!case_exists(below_jails(&info, "temp")) &&
              !case_exists(below_jails(&info, "app")) &&
              !case_exists(below_jails(&info, VJ_WINDOWS_MARKER_NAME)) &&
              !fake_has_profile(info.package),
          "the rest does not");
    check_status(vj_windows_close(context, case_error()), VJ_WINDOWS_STALE,
                 "a number that was closed");
    case_end();
}

static void everything_goes_if_it_was_asked_for(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    check_status(create(&context, &info, VJ_WINDOWS_REMOVE_WORK), VJ_WINDOWS_OK,
                 "create");
    case_write(below_jails(&info, "work/result"), "of the guest");
    mkdir(case_path(below_jails(&info, "temp/a")), 0700);
    mkdir(case_path(below_jails(&info, "temp/a/b")), 0700);
    case_write(below_jails(&info, "temp/a/b/c"), "deep");
    // A link is removed and not followed, as a junction of a guest must be.
    check(!symlink(case_path("sources"), case_path(below_jails(&info, "temp/a/link"))),
          "a link");
    close_context(context);
    check(!case_files() && case_exists("sources/lib/one.py"), "but no source of it");
    case_end();
}

static void a_root_that_exists_is_never_taken(void) {
    case_begin();
    vj_windows_id first = 0, second = 0;
    fake_lie(FAKE_SAME_RANDOM);
    check_status(create(&first, NULL, 0), VJ_WINDOWS_OK, "create");
    fake_forget();
    vj_windows_status status = create(&second, NULL, 0);
    check_status(status, VJ_WINDOWS_SYSTEM, "the same name again");
    check(!second && fake_count("fake_random") == 8, "is tried a few times, and no more");
    fake_lie(0);
    check_status(create(&second, NULL, 0), VJ_WINDOWS_OK, "and another name works");
    close_context(first);
    close_context(second);
    // No clock stands in for the system's random numbers.
    fake_fail_named("fake_random", FAKE_INJECTED);
    check_status(create(&first, NULL, 0), VJ_WINDOWS_SYSTEM, "no random numbers");
    fake_fail_named(NULL, 0);
    check(!first && fake_count("directory_create") && !fake_left(true), "no context");
    case_end();
}

static void a_path_must_fit_a_socket(void) {
    case_begin();
    // "\vj-", 16 digits, "\work\visruntime.sock" and NUL follow the parent.
    char path[128] = "C:\\jails\\";
    size_t longest = 0;
    for (size_t length = 40; length < 90; length++) {
        memset(path + 9, 'n', length);
        path[9 + length] = 0;
        char host[128];
        snprintf(host, sizeof host, "jails/%s", path + 9);
        mkdir(case_path(host), 0700);
        vj_windows_id context = 0;
        vj_windows_context_info info = {.size = sizeof info, .version = 1};
        const vj_windows_create_options options = {
            .size = sizeof options, .version = 1, .parent = text_of(path)};
        vj_windows_error *error = case_error();
        fake_forget();
        vj_windows_status status = vj_windows_create(&options, &context, &info, error);
        bool fits = vj_windows_socket_bytes(path) <= VJ_WINDOWS_SOCKET_BYTES_MAX;
        check_status(status, fits ? VJ_WINDOWS_OK : VJ_WINDOWS_REFUSED, path);
        if (fits) {
            longest = 9 + length;
            close_context(context);
        } else {
            char needed[8];
            snprintf(needed, sizeof needed, "%zu", vj_windows_socket_bytes(path));
            check(strstr(error->text, needed) && !fake_count("directory_create"),
                  "the length is told, and nothing was made");
        }
    }
    // 107 bytes and their NUL.
    check(longest + strlen("\\vj-0123456789abcdef\\work\\visruntime.sock") == 107,
          "the bound itself fits");
    case_end();
}

static void what_windows_answers_is_compared(void) {
    case_begin();
    static const uint32_t lies[] = {FAKE_OTHER_DESCRIPTOR, FAKE_OTHER_PROFILE};
    for (size_t i = 0; i < 2; i++) {
        vj_windows_id context = 0;
        fake_lie(lies[i]);
        check_status(create(&context, NULL, 0), VJ_WINDOWS_MISMATCH, "another answer");
        check(!context && !fake_left(true) && !case_files(), "leaves nothing");
    }
    fake_lie(0);
    case_end();
}

// ---- stage

// W15: copies; W17 and W18: what is refused; W19: bounds, and all or nothing.
static void sources_are_copied(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    char text[64];
    check_status(create(&context, &info, 0), VJ_WINDOWS_OK, "create");
    check(!link(case_path("sources/guest.exe"), case_path("sources/second-name")),
          "link");
    check_status(stage(context, "C:\\sources\\lib", "Lib"), VJ_WINDOWS_OK, "directory");
    check_status(stage(context, "C:/sources/guest.exe", "bin/guest.exe"), VJ_WINDOWS_OK,
                 "file");
    check(!strcmp(case_read(below_jails(&info, "app/Lib/deep/two.py"), text, sizeof text),
                  "two = 2"),
          "what is deep");
    struct stat source, copy;
    check(!stat(case_path("sources/guest.exe"), &source) &&
              !stat(case_path(below_jails(&info, "app/bin/guest.exe")), &copy) &&
              source.st_ino != copy.st_ino && copy.st_nlink == 1,
          "a copy, and no second name");
    case_write("sources/guest.exe", "another program");
    check(!strcmp(case_read(below_jails(&info, "app/bin/guest.exe"), text, sizeof text),
                  "a program"),
          "that does not change with its source");
    const char *descriptor = fake_descriptor(below_jails(&info, "app/Lib/one.py"));
    check(descriptor && strstr(descriptor, "0x1200a9"), "which the guest may only read");
    close_context(context);
    case_end();
}

static void check_refused(vj_windows_id context, const char *source,
                          const char *destination) {
    unsigned before = case_files();
    vj_windows_status status = stage(context, source, destination);
    check_status(status, VJ_WINDOWS_REFUSED, destination);
    check(case_files() == before, "and nothing is staged");
    vj_windows_context_state state;
    vj_windows_state_of(context, &state, case_error());
    check(state == VJ_WINDOWS_CONTEXT_OPEN, "the context goes on");
}

static void what_cannot_be_staged_is_refused(void) {
    case_begin();
    vj_windows_id context = 0;
    check_status(create(&context, NULL, 0), VJ_WINDOWS_OK, "create");
    static const char *const destinations[] = {
        "",        "../x",   "a/../b",   "C:\\x", "C:x",  "\\x",   "/x",   "a\\b",
        "a:b",     "nul",    "COM1.txt", "a./b",  "a ",   "a\x01", "a?",   "a//b",
        "conout$", "a*.txt", "a/",       ".",     "LPT9", "a|b",   "a\"b", "A~1.TXT"};
    for (size_t i = 0; i < sizeof destinations / sizeof *destinations; i++) {
        check_refused(context, "C:\\sources\\guest.exe", destinations[i]);
    }
    static const char *const sources[] = {"sources\\guest.exe",     "\\\\host\\share\\x",
                                          "\\\\?\\C:\\sources",     "\\\\.\\C:\\sources",
                                          "C:\\sources\\..\\jails", "C:\\sources:stream"};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        check_refused(context, sources[i], "x");
    }
    check(!symlink("guest.exe", case_path("sources/link")), "a link");
    check_refused(context, "C:\\sources\\link", "x");
    check_refused(context, "C:\\sources", "x");
    unlink(case_path("sources/link"));
    check(!mkfifo(case_path("sources/fifo"), 0600), "a FIFO");
    check_refused(context, "C:\\sources\\fifo", "x");
    check_refused(context, "C:\\sources", "x");
    unlink(case_path("sources/fifo"));
    // Two names that Windows takes for one, also of two calls.
    check_status(stage(context, "C:\\sources\\lib", "Lib"), VJ_WINDOWS_OK, "stage");
    check_refused(context, "C:\\sources\\guest.exe", "lib");
    check_refused(context, "C:\\sources\\guest.exe", "LIB/other");
    check_refused(context, "C:\\sources\\lib", "Lib");
    check_status(stage(context, "C:\\sources\\missing", "x"), VJ_WINDOWS_SYSTEM,
                 "missing");
    close_context(context);
    case_end();
}

static void staging_is_bounded(void) {
    case_begin();
    vj_windows_id context = 0;
    check_status(create(&context, NULL, 0), VJ_WINDOWS_OK, "create");
    unsigned before = case_files();
    // Below `sources`: 2 directories, 3 files, 23 bytes, and `sources` itself.
    const vj_windows_source sources[] = {{text_of("C:\\sources"), text_of("")}};
    static const struct {
        uint32_t depth;
        uint64_t files, bytes, names;
        vj_windows_status status;
    } bounds[] = {
        {3, 6, 23, 0, VJ_WINDOWS_OK},       {2, 6, 23, 0, VJ_WINDOWS_REFUSED},
        {3, 5, 23, 0, VJ_WINDOWS_REFUSED},  {3, 6, 22, 0, VJ_WINDOWS_REFUSED},
        {3, 6, 23, 64, VJ_WINDOWS_REFUSED},
    };
    for (size_t i = sizeof bounds / sizeof *bounds; i-- > 0;) {
        const vj_windows_stage_request request = {.size = sizeof request,
                                                  .version = 1,
                                                  .sources = sources,
                                                  .source_count = 1,
                                                  .most_depth = bounds[i].depth,
                                                  .most_files = bounds[i].files,
                                                  .most_bytes = bounds[i].bytes,
                                                  .most_name_bytes = bounds[i].names};
        vj_windows_stage_info info = {.size = sizeof info, .version = 1};
        vj_windows_error *error = case_error();
        check_status(vj_windows_stage(context, &request, &info, error), bounds[i].status,
                     "bounds");
        if (bounds[i].status != VJ_WINDOWS_OK) {
            check(case_files() == before && error->index == 0, "nothing is staged");
        } else {
            check(info.files == 3 && info.directories == 3 && info.bytes == 23,
                  "counted");
        }
    }
    close_context(context);
    case_end();
}

// ---- states

// W52: each state takes what it takes.
static void states_follow_each_other(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_spawn_info info;
    check_status(create(&context, NULL, 0), VJ_WINDOWS_OK, "create");
    check_status(spawn(context, "exit 0", 0, &info), VJ_WINDOWS_STATE, "not sealed");
    check_status(vj_windows_seal(context, case_error()), VJ_WINDOWS_OK, "seal");
    check_status(vj_windows_seal(context, case_error()), VJ_WINDOWS_STATE, "sealed");
    check_status(stage(context, "C:\\sources\\lib", "Lib"), VJ_WINDOWS_STATE, "too late");
    fake_fail_named("profile_delete", FAKE_INJECTED);
    vj_windows_error *error = case_error();
    check_status(vj_windows_close(context, error), VJ_WINDOWS_SYSTEM,
                 "a close that fails");
    check(error->os_error == FAKE_INJECTED && !strcmp(error->step, "profile"),
          "says how");
    vj_windows_context_state state;
    check_status(vj_windows_state_of(context, &state, case_error()), VJ_WINDOWS_OK, "");
    check(state == VJ_WINDOWS_CONTEXT_POISONED, "leaves a poisoned context");
    check_status(spawn(context, "exit 0", 0, &info), VJ_WINDOWS_POISONED, "that runs");
    check_status(stage(context, "C:\\sources\\lib", "L"), VJ_WINDOWS_POISONED, "takes");
    check_status(vj_windows_seal(context, case_error()), VJ_WINDOWS_POISONED, "nothing");
    fake_fail_named(NULL, 0);
    close_context(context);
    case_end();
}

// ---- spawn

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
    char text[2048], entry[1100];
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
    snprintf(entry, sizeof entry, "TEMP=%s\\temp", made.root);
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

// W5, W6, W7, W8, W37, W48: refused before anything is made.
static void wrong_requests_start_nothing(void) {
    case_begin();
    vj_windows_id context = sealed_context(0);
    static void (*const changes[])(vj_windows_spawn_request *) = {
        batch_file,    relative_program, relative_directory, no_argument,
        other_count,   same_variables,   temp_outside,       no_rows,
        too_wide,      unknown_flag,     unknown_ui,         too_fast,
        silent_console};
    fake_forget();
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        check_status(request_with(context, changes[i]), VJ_WINDOWS_REFUSED, "a request");
    }
    check(!fake_calls(), "without a call");
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
        check(fake_now() - before < 5000, "in time");
        check(fake_count("console_close") == 1, "one closer");
        case_end();
    }
}

// ---- what is stale

// W24: by its marker and its nonce, and only when its host is dead.
static void only_the_dead_are_cleaned_up(void) {
    case_begin();
    vj_windows_id context = 0;
    vj_windows_context_info info;
    uint64_t removed = 9;
    const vj_windows_text parent = text_of("C:\\jails");
    char name[64], marker[512];
    // A live context: its marker is open.
    check_status(create(&context, &info, 0), VJ_WINDOWS_OK, "create");
    check_status(vj_windows_remove_stale(&parent, &removed, case_error()), VJ_WINDOWS_OK,
                 "stale");
    check(!removed && case_exists(below_jails(&info, "app")), "the living stay");
    close_context(context);
    // By hand: what a host leaves that was killed.
    static const struct {
        const char *root, *nonce, *package;
        uint32_t pid;
        uint64_t created;
        uint32_t flags;
        bool goes;
    } cases[] = {
        {"vj-00000000000000a1", "vj-00000000000000a1", "visruntime.vj-00000000000000a1",
         99, 7, 0, true},
        {"vj-00000000000000a2", "vj-00000000000000a2", "visruntime.vj-00000000000000a2",
         99, 7, VJ_WINDOWS_REMOVE_WORK, true},
        // The pid lives, and is that process.
        {"vj-00000000000000a3", "vj-00000000000000a3", "visruntime.vj-00000000000000a3",
         11, 7, 0, false},
        // The pid lives, and is another process.
        {"vj-00000000000000a4", "vj-00000000000000a4", "visruntime.vj-00000000000000a4",
         11, 8, 0, true},
        // A marker of another root, a package of another root, a name of another form.
        {"vj-00000000000000a5", "vj-00000000000000a1", "visruntime.vj-00000000000000a5",
         99, 7, 0, false},
        {"vj-00000000000000a6", "vj-00000000000000a6", "visruntime.vj-00000000000000a5",
         99, 7, 0, false},
        {"vj-0000000000000a7", "vj-0000000000000a7", "visruntime.vj-0000000000000a7", 99,
         7, 0, false},
    };
    fake_owner(11, 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(name, sizeof name, "jails/%s", cases[i].root);
        mkdir(case_path(name), 0700);
        static const char *const places[] = {"app", "work", "temp"};
        for (size_t j = 0; j < 3; j++) {
            snprintf(name, sizeof name, "jails/%s/%s", cases[i].root, places[j]);
            mkdir(case_path(name), 0700);
            snprintf(name, sizeof name, "jails/%s/%s/file", cases[i].root, places[j]);
            case_write(name, "x");
        }
        vj_windows_marker own = {
            .pid = cases[i].pid, .created = cases[i].created, .flags = cases[i].flags};
        snprintf(own.nonce, sizeof own.nonce, "%s", cases[i].nonce);
        snprintf(own.package, sizeof own.package, "%s", cases[i].package);
        size_t size = vj_windows_marker_write(&own, marker, sizeof marker);
        check(size && !marker[size], "a marker");
        snprintf(name, sizeof name, "jails/%s/" VJ_WINDOWS_MARKER_NAME, cases[i].root);
        case_write(name, marker);
    }
    // And a directory of the form without any marker.
    mkdir(case_path("jails/vj-00000000000000a8"), 0700);
    check_status(vj_windows_remove_stale(&parent, &removed, case_error()), VJ_WINDOWS_OK,
                 "stale");
    check(removed == 3, "three were stale");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(name, sizeof name, "jails/%s/app", cases[i].root);
        check(case_exists(name) != cases[i].goes, cases[i].root);
        snprintf(name, sizeof name, "jails/%s/work/file", cases[i].root);
        bool work_goes = cases[i].goes && cases[i].flags & VJ_WINDOWS_REMOVE_WORK;
        check(case_exists(name) != work_goes, name);
    }
    check(case_exists("jails/vj-00000000000000a8"), "a name alone says nothing");
    case_end();
}

static void markers_are_read_strictly(void) {
    static const char *const wrong[] = {
        "",
        "visjail context 1\n",
        "visjail context 2\nn\np\n1 2 3\n",
        "visjail context 1\nn\np\n1 2\n",
        "visjail context 1\nn\np\n1 2 3\nmore",
        "visjail context 1\nn\np\n-1 2 3\n",
        "visjail context 1\nn\np\n4294967296 2 3\n",
        "visjail context 1\nn\np\n1 18446744073709551616 3\n",
        "visjail context 1\nn\np\n1 2 3 \n",
        "visjail context 1\nn\np\n1  2 3\n",
        "visjail context 1\nabcdefghijabcdefghij\np\n1 2 3\n"};
    vj_windows_marker marker;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        check(!vj_windows_marker_read(wrong[i], strlen(wrong[i]), &marker), wrong[i]);
    }
    static const char right[] = "visjail context 1\nn\np\n1 18446744073709551615 3\n";
    check(vj_windows_marker_read(right, sizeof right - 1, &marker) &&
              marker.created == UINT64_MAX && marker.pid == 1 && marker.flags == 3,
          right);
}

int main(void) {
    requests_are_checked();
    a_context_is_made();
    everything_goes_if_it_was_asked_for();
    a_root_that_exists_is_never_taken();
    a_path_must_fit_a_socket();
    what_windows_answers_is_compared();
    sources_are_copied();
    what_cannot_be_staged_is_refused();
    staging_is_bounded();
    states_follow_each_other();
    a_program_is_started();
    wrong_requests_start_nothing();
    any_difference_ends_the_process();
    a_squatted_pipe_is_no_pipe();
    descendants_end_with_the_program();
    no_input_is_at_its_end();
    a_console_is_read_to_its_end();
    a_close_drains_what_nobody_reads();
    only_the_dead_are_cleaned_up();
    markers_are_read_strictly();
    return 0;
}
